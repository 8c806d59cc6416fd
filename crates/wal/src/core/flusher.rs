//! The flusher: one thread that follows behind those who append, writes what is published, and syncs.
//!
//! A segment becomes part of the log when the one before it is durable to its end (WAL-5), whoever has written how much of it meanwhile
//! (`pen.rs`). Each sync is preceded by a mark, a record that says how far the log was durable when it was made (WAL-7, `scan.rs`). A log
//! that has been quiet for a flush interval gets a mark of its own, for nobody knows when the next batch will bring one.

use foreshore_base::{Result, StorageError};
use foreshore_env::{
    sabotage::{Fault, planted},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use super::{
    Core,
    pen::{Pen, Stalls},
    wait::{Task, Timer},
};
use crate::store::Segment;

/// The flusher thread's own.
#[derive(Debug)]
pub(crate) struct Flusher {
    core: Arc<Core>,
    pen: Arc<Mutex<Pen>>,
    /// What the newest mark says was durable.
    marked: u64,
    /// Where the log ends with a mark that says that all before it is durable.
    sealed: u64,
    timer: Timer,
    stalls: Stalls,
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
    /// A flusher with this pen. `sealed`: the log ends with a mark for all before it.
    pub(crate) fn new(core: Arc<Core>, pen: Arc<Mutex<Pen>>, sealed: bool) -> Flusher {
        let durable = core.durable();
        let sealed = if sealed { durable } else { 0 };
        // An empty log has nothing that a mark could prove.
        let bare = sealed == 0 && durable > core.low_water();
        let timer = Timer { flush: None, mark: bare.then(|| Instant::now() + core.flush_interval) };
        Flusher { core, pen, marked: sealed, sealed, timer, stalls: Stalls::default() }
    }

    /// The thread's life.
    pub(crate) fn run(mut self) {
        let core = Arc::clone(&self.core);
        let _farewell = Farewell(&core);
        loop {
            let result = match core.next_task(&mut self.timer) {
                Task::Sync => self.sync_batch(),
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
        if written == durable && core.published(written, core.tail()) == written {
            self.stalls.wait();
            return Ok(());
        }
        let target = core.begin_batch();
        let position = self.write_and_sync(target)?;
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

    /// All is durable: a last mark says so, so that later damage to any of it is known for damage.
    fn seal(&mut self) {
        let core = Arc::clone(&self.core);
        let durable = core.durable();
        if self.sealed == durable {
            return;
        }
        core.append_mark(durable);
        let target = core.begin_batch();
        match self.write_and_sync(target) {
            Ok(position) => core.end_batch(position, Duration::ZERO),
            Err(error) => core.poison(&error.to_string()),
        }
    }

    /// Makes a batch that reaches to `target` durable, or what of it is published; gives how far. What the writer has written beyond
    /// is left to the next one: who waits for that is woken by that.
    fn write_and_sync(&mut self, target: u64) -> Result<u64> {
        self.write(target)?;
        Ok(self.sync()?.min(target))
    }

    /// Writes published records up to `target`, or up to the first that is not published.
    fn write(&mut self, target: u64) -> Result<()> {
        loop {
            let mut pen = self.pen.lock();
            let far_ahead = pen.is_far_ahead();
            if !far_ahead && !pen.write_piece(target)? {
                return Ok(());
            }
            drop(pen);
            self.stalls.are_over();
            if far_ahead {
                self.sync()?;
            }
        }
    }

    /// Makes durable what was written so far, and gives where that ends. Segments become part of the log in their order.
    fn sync(&mut self) -> Result<u64> {
        let unsynced = self.pen.lock().begin_sync();
        for segment in &unsynced.ended {
            self.sync_segment(segment)?;
            self.core.store.admit()?;
        }
        if let Some(segment) = &unsynced.last {
            self.sync_segment(segment)?;
        }
        self.pen.lock().end_sync(unsynced.ended.len());
        Ok(unsynced.position)
    }

    fn sync_segment(&self, segment: &Segment) -> Result<()> {
        let synced = if planted(Fault::LogUnsynced) { Ok(()) } else { segment.file.sync() };
        if !planted(Fault::LogSyncErrorIgnored) {
            synced.map_err(StorageError::io("sync", &segment.path))?;
        }
        if !self.core.latency.is_zero() {
            thread::sleep(self.core.latency);
        }
        Ok(())
    }
}
