//! The pen: what is published goes from the ring to the files. Two threads take it in turn: the flusher, for a batch
//! that it is about to sync, and the writer, which makes room in the ring while the flusher waits for the disk. So a
//! sync holds up nobody who appends, as long as the disk is as fast as they are.
//!
//! The pen does not wait for a sync where a segment ends: the next one is prepared, and written under the name of a
//! spare until the flusher has synced all before it and admits it to the log (WAL-5).

use std::collections::VecDeque;

use foreshore_base::{Result, StorageError};
use foreshore_env::{
    disk::{BLOCK_BYTES, Parts},
    thread,
    time::Duration,
};

use super::{Core, Farewell};
use crate::{segment::SEGMENT_HEADER_BYTES, store::Segment};

/// The most that is written at once, but for the last record.
const PIECE_BYTES: u64 = 1 << 20;
/// Segments that are written to their end before the first of them is durable, at most: what the writer is ahead of the
/// disk.
const MOST_ENDED: usize = 4;
/// How many bytes are written with zeros ahead, where a file has only reserved its space so far: there each sync makes
/// the system note durably which blocks have been written, and so it does that for many at a time.
const AHEAD_BYTES: u64 = 64 << 10;
const BLOCK: u64 = BLOCK_BYTES as u64;
/// How often a thread only yields to another that is in the middle of an append, before it sleeps.
const YIELDS: u32 = 16;
/// How long it sleeps then.
const NAP: Duration = Duration::from_micros(50);

// So no piece begins or ends with a part of a block that is not of the log.
const _: () = assert!(SEGMENT_HEADER_BYTES.is_multiple_of(BLOCK) && AHEAD_BYTES.is_multiple_of(BLOCK));

/// Guarded by its mutex, which is held while a piece is written, and while a segment is prepared if none is, but not
/// for a sync.
#[derive(Debug)]
pub(super) struct Pen {
    /// The segment that is written.
    segment: Segment,
    /// Something was written to it since its last sync began.
    unsynced: bool,
    /// Those before it that were written to their end and are not all durable, the oldest first.
    ended: VecDeque<Segment>,
    /// Nothing was written since the log was opened: the ring lacks the beginning of its last block.
    resumes: bool,
    /// Room for what does not fill a block, wherever a block may begin in it.
    room: Vec<u8>,
    /// Up to this offset in the segment nothing has to be written ahead.
    ready: u64,
}

/// Published records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Where the last one ends.
    end: u64,
    /// Where the next one is looked for: there, or at the end of the segment that the last one ends.
    pub(super) next: u64,
}

/// What has to be synced for all that was written to be durable.
#[derive(Debug)]
pub(super) struct Unsynced {
    /// Segments that were written to their end, the oldest first. Each but the first is to be admitted before it is
    /// synced.
    pub(super) ended: Vec<Segment>,
    /// The one that is written, to be admitted if there are any before it; none if all of it is durable already.
    pub(super) last: Option<Segment>,
    /// Up to where it was written.
    pub(super) position: u64,
}

impl Pen {
    /// A pen that goes on in `segment`.
    pub(super) fn new(segment: Segment) -> Pen {
        Pen { segment, unsynced: false, ended: VecDeque::new(), resumes: true, room: Vec::new(), ready: 0 }
    }

    /// Whether so much is not durable that the flusher has to come before more is written.
    pub(super) fn is_far_ahead(&self) -> bool {
        self.ended.len() >= MOST_ENDED
    }

    /// Whether a segment has been written to its end and waits for the flusher.
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Writes a piece of what is published below `target`; false: there is nothing, or somebody is in the middle of an
    /// append.
    pub(super) fn write_piece(&mut self, core: &Core, target: u64) -> Result<bool> {
        let position = core.ring.written();
        let run = core.published(position, target);
        if run.next == position {
            return Ok(false);
        }
        let geometry = core.geometry;
        let base = geometry.base(position);
        if self.segment.base != base {
            let next = core.store.prepare(base)?;
            self.ended.push_back(std::mem::replace(&mut self.segment, next));
            self.ready = 0;
        }
        let begin = position.max(base + SEGMENT_HEADER_BYTES);
        self.write_run(core, begin, run)?;
        self.unsynced = true;

        core.ring.retire(position, run.next);
        core.room_was_made(run.next - position);
        let half = base + geometry.segment_bytes() / 2;
        if (position..run.next).contains(&half) {
            core.want_space();
        }
        Ok(true)
    }

    /// Writes what the ring has from `begin` to the end of the run: whole blocks, from the beginning of the one in
    /// which the last run ended to zeros behind this one. So they may go past the system's cache, and through it no
    /// block has to be read that is not there.
    fn write_run(&mut self, core: &Core, begin: u64, run: Run) -> Result<()> {
        let Segment { base, file, path } = &self.segment;
        let first = begin / BLOCK * BLOCK;
        if std::mem::take(&mut self.resumes) && first < begin {
            let mut before = vec![0; (begin - first) as usize];
            file.read_exact_at(&mut before, first - base)
                .map_err(StorageError::io("read the end of", path))?;
            core.ring.resume(&before);
        }
        let mut end = run.next.next_multiple_of(BLOCK) - base;
        if end > self.ready && run.next - begin < AHEAD_BYTES {
            self.ready = end.next_multiple_of(AHEAD_BYTES);
            let data = file.next_data(end).map_err(StorageError::io("look for a hole in", path))?;
            end = if data == Some(end) { end } else { self.ready };
        }
        // Whole blocks are written from where they lie; a thread that appends may be at the rest of the last one.
        let last = run.end / BLOCK * BLOCK;
        let rest = blocks(&mut self.room, (base + end - last) as usize);
        let (records, zeros) = rest.split_at_mut((run.end - last) as usize);
        core.ring.copy_out(last, records);
        zeros.fill(0);
        let parts = Parts { words: core.ring.runs(first, last), bytes: rest };
        let written = match core.past_cache {
            true => file.stream_at(parts, first - base),
            false => file.write_parts_at(parts, first - base),
        };
        written.map_err(StorageError::io("write", path))
    }

    /// What a sync that begins now has to cover.
    pub(super) fn begin_sync(&mut self, core: &Core) -> Unsynced {
        let last = (std::mem::take(&mut self.unsynced) || self.has_ended()).then(|| self.segment.clone());
        let ended = self.ended.iter().cloned().collect();
        Unsynced { ended, last, position: core.ring.written() }
    }

    /// So many segments that were written to their end are durable, and the next one is admitted. They stay open to be
    /// read.
    pub(super) fn end_sync(&mut self, ended: usize) {
        self.ended.drain(..ended).for_each(|segment| segment.file.end_stream());
    }
}

impl Core {
    /// The published records from `position` on: within its segment, not much more than a piece, at most up to
    /// `target`.
    pub(super) fn published(&self, position: u64, target: u64) -> Run {
        let Core { ring, geometry, .. } = self;
        let segment_end = geometry.base(position) + geometry.segment_bytes();
        let mut end = position;
        while end < target && end - position < PIECE_BYTES {
            let start = geometry.next_start(end);
            if start >= segment_end {
                return Run { end, next: segment_end };
            }
            let Some(record) = ring.published(start) else { break };
            end = start + record.bytes;
            if record.ends_segment {
                return Run { end, next: segment_end };
            }
        }
        Run { end, next: end }
    }
}

/// Room for so many bytes that begin where a block does, also in memory: see `DiskFile::stream_at`.
fn blocks(room: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    // What it holds is overwritten: no zeros in between.
    room.resize(room.len().max(bytes + BLOCK_BYTES), 0);
    let address = room.as_ptr().addr();
    let begin = address.next_multiple_of(BLOCK_BYTES) - address;
    &mut room[begin..begin + bytes]
}

/// How often in a row there was nothing to write because somebody was in the middle of an append.
#[derive(Debug, Default)]
pub(super) struct Stalls(u32);

impl Stalls {
    /// A thread has claimed a place and not yet published: lets it run.
    pub(super) fn wait(&mut self) {
        self.0 += 1;
        if self.0 <= YIELDS {
            thread::yield_now();
        } else {
            thread::sleep(NAP);
        }
    }

    pub(super) fn are_over(&mut self) {
        self.0 = 0;
    }
}

/// The life of the writer's thread.
pub(crate) fn run_writer(core: &Core) {
    let _farewell = Farewell { core, died: "the writer of the log died" };
    let mut stalls = Stalls::default();
    while core.writing_is_wanted() {
        if let Err(error) = make_room(core, &mut stalls) {
            // What the file holds now nobody knows (WAL-8).
            return core.poison(&error.to_string());
        }
        core.look_after_space();
    }
}

/// Writes what is published, as far as the writer may be ahead of the disk; the flusher hears of each segment that
/// ends.
fn make_room(core: &Core, stalls: &mut Stalls) -> Result<()> {
    let (before, target) = (core.ring.written(), core.tail());
    // What a closed log has left is the flusher's, and to one that has failed nothing is written any more.
    while core.is_open() {
        let mut pen = core.pen.lock();
        let far_ahead = pen.is_far_ahead();
        let written = !far_ahead && pen.write_piece(core, target)?;
        let flusher_is_due = pen.has_ended();
        drop(pen);
        if flusher_is_due {
            core.want_batch();
        }
        if far_ahead {
            // The flusher says when it goes on.
            return Ok(());
        }
        if !written {
            break;
        }
        stalls.are_over();
    }
    if core.ring.written() == before && before < target {
        core.still_crowded();
        stalls.wait();
    } else {
        core.has_written();
    }
    Ok(())
}
