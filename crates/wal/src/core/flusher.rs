//! The flusher: one thread that follows behind those who append, writes what is published, and syncs.
//!
//! What is un-synced lies in one segment (WAL-5): a segment is synced to its end before the next one is made. Each
//! sync is preceded by a mark, a record that says how far the log was durable when it was made (WAL-7, `scan.rs`). A log
//! that has been quiet for a flush interval gets a mark of its own, for nobody knows when the next batch will bring one.

use foreshore_base::{Result, StorageError};
use foreshore_env::{
    sabotage::{Fault, planted},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{
    Core,
    wait::{Task, Timer},
};
use crate::{
    frame::{self, RecordKind},
    segment::SEGMENT_HEADER_BYTES,
    store::Segment,
};

/// The most that is written at once, but for the last record.
const PIECE_BYTES: u64 = 1 << 20;
/// How often the flusher only yields to somebody in the middle of an append, before it sleeps.
const YIELDS: u32 = 16;
/// How long it sleeps then.
const NAP: Duration = Duration::from_micros(50);

/// The flusher thread's own.
#[derive(Debug)]
pub(crate) struct Flusher {
    core: Arc<Core>,
    /// The segment that is written.
    segment: Segment,
    /// Something was written to it since its last sync.
    unsynced: bool,
    /// What the newest mark says was durable.
    marked: u64,
    /// Where the log ends with a mark that says that all before it is durable.
    sealed: u64,
    timer: Timer,
    /// Bytes on their way from the ring to the file.
    piece: Vec<u8>,
    /// How often in a row there was nothing to write because somebody was in the middle of an append.
    stalls: u32,
}

/// Tells everybody when the flusher ends, also by a panic.
struct Farewell<'a>(&'a Core);

impl Drop for Farewell<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.poison("the flusher of the log died");
        }
        self.0.flusher_ends();
    }
}

impl Flusher {
    /// A flusher that goes on in `segment`. `sealed`: the log ends with a mark for all before it.
    pub(crate) fn new(core: Arc<Core>, segment: Segment, sealed: bool) -> Flusher {
        let durable = core.durable();
        let sealed = if sealed { durable } else { 0 };
        // An empty log has nothing that a mark could prove.
        let bare = sealed == 0 && durable > core.low_water();
        let timer = Timer { flush: None, mark: bare.then(|| Instant::now() + core.flush_interval) };
        Flusher {
            core,
            segment,
            unsynced: false,
            marked: sealed,
            sealed,
            timer,
            piece: Vec::new(),
            stalls: 0,
        }
    }

    /// The thread's life.
    pub(crate) fn run(mut self) {
        let core = Arc::clone(&self.core);
        let _farewell = Farewell(&core);
        loop {
            let result = match core.next_task(&mut self.timer) {
                Task::Sync => self.sync_batch(),
                Task::Write => self.write_batch(),
                Task::Seal => return self.seal(),
                Task::Stop => return,
            };
            if let Err(error) = result {
                // An error is final (WAL-8): what the file holds now nobody knows.
                core.poison(&error.to_string());
                return;
            }
            core.look_after_space();
        }
    }

    /// Makes all that is published durable.
    fn sync_batch(&mut self) -> Result<()> {
        let core = Arc::clone(&self.core);
        let begun = Instant::now();
        let durable = core.durable();
        let mark = if self.marked == durable { None } else { core.append_mark(durable) };
        self.marked = durable;
        let written = core.ring.written();
        if written == durable && self.published(written, core.tail()) == written {
            self.wait_for_appender();
            return Ok(());
        }
        let target = core.begin_batch();
        let position = self.write(target)?;
        self.sync()?;
        core.end_batch(position, begun.elapsed());

        // What was appended since the batch began waits for its flush from then on.
        self.timer.flush = Some(begun + core.flush_interval);
        if mark.is_some_and(|mark| mark.seals(position)) {
            (self.marked, self.sealed, self.timer.mark) = (position, position, None);
        } else {
            self.timer.mark = Some(Instant::now() + core.flush_interval);
        }
        Ok(())
    }

    /// Writes all that is published, to make room.
    fn write_batch(&mut self) -> Result<()> {
        let (before, target) = (self.core.ring.written(), self.core.tail());
        if self.write(target)? == before && before < target {
            self.core.still_crowded();
            self.wait_for_appender();
        }
        Ok(())
    }

    /// All is durable: a last mark says so, so that later damage to any of it is known for damage.
    fn seal(&mut self) {
        let core = Arc::clone(&self.core);
        let durable = core.durable();
        if self.sealed == durable {
            return;
        }
        core.append_mark(durable);
        let target = core.begin_batch();
        match self.write(target).and_then(|position| self.sync().map(|()| position)) {
            Ok(position) => core.end_batch(position, Duration::ZERO),
            Err(error) => core.poison(&error.to_string()),
        }
    }

    /// Writes published records up to `target`, or up to the first that is not published; gives how far it came.
    fn write(&mut self, target: u64) -> Result<u64> {
        let mut position = self.core.ring.written();
        loop {
            let end = self.published(position, target);
            if end == position {
                return Ok(position);
            }
            self.write_piece(position, end)?;
            self.stalls = 0;
            position = end;
        }
    }

    /// The end of the published records from `position` on: within its segment, not much more than a piece, at
    /// most `target`. Always between two records, or at the end of the segment.
    fn published(&self, position: u64, target: u64) -> u64 {
        let Core { ring, geometry, .. } = &*self.core;
        let segment_end = geometry.base(position) + geometry.segment_bytes();
        let mut end = position;
        while end < target && end - position < PIECE_BYTES {
            let start = geometry.next_start(end);
            if start >= segment_end {
                return segment_end;
            }
            let first_word = ring.first_word(start);
            if first_word == 0 {
                break;
            }
            if frame::kind_of(ring.word(start + 24)) == RecordKind::SEGMENT_END {
                return segment_end;
            }
            end = start + frame::padded(frame::length_of(first_word));
        }
        end
    }

    /// Writes whole records of one segment and gives their places in the ring free.
    fn write_piece(&mut self, position: u64, end: u64) -> Result<()> {
        let core = Arc::clone(&self.core);
        let base = core.geometry.base(position);
        if self.segment.base != base {
            // The one before was synced when its end was written.
            self.segment = core.store.make(base)?;
        }
        let begin = position.max(base + SEGMENT_HEADER_BYTES);
        core.ring.copy_out(begin, end, &mut self.piece);
        self.segment
            .file
            .write_all_at(&self.piece, begin - base)
            .map_err(StorageError::io("write", &self.segment.path))?;
        self.unsynced = true;

        core.ring.retire(position, end);
        core.room_was_made();
        if core.geometry.offset(end) == 0 {
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        if self.unsynced {
            let synced = if planted(Fault::LogUnsynced) { Ok(()) } else { self.segment.file.sync() };
            if !planted(Fault::LogSyncErrorIgnored) {
                synced.map_err(StorageError::io("sync", &self.segment.path))?;
            }
            self.unsynced = false;
            if !self.core.latency.is_zero() {
                thread::sleep(self.core.latency);
            }
        }
        Ok(())
    }

    /// Somebody has claimed a place and not yet published: lets him run.
    fn wait_for_appender(&mut self) {
        self.stalls += 1;
        if self.stalls <= YIELDS {
            thread::yield_now();
        } else {
            thread::sleep(NAP);
        }
    }
}
