//! The pen: what is published goes from the ring to the files. Two threads take it in turn: the flusher, for a batch that it is about
//! to sync, and the writer, which makes room in the ring while the flusher waits for the disk. So a sync holds up nobody who
//! appends, as long as the disk is as fast as they are.
//!
//! The pen does not wait for a sync where a segment ends: the next one is prepared, and written under the name of a spare until the
//! flusher has synced all before it and admits it to the log (WAL-5).

use std::{collections::VecDeque, ops::Range};

use foreshore_base::{Result, StorageError};
use foreshore_env::{disk::BLOCK_BYTES, thread, time::Duration};

use super::Core;
use crate::{
    frame::{self, RecordKind},
    segment::SEGMENT_HEADER_BYTES,
    store::Segment,
};

/// The most that is written at once, but for the last record.
const PIECE_BYTES: u64 = 1 << 20;
/// Segments that are written to their end before the first of them is durable, at most: what the writer is ahead of the disk.
const MOST_ENDED: usize = 4;
/// So much is written with zeros ahead, where a file has only reserved its space so far: there each sync makes the system note durably
/// which blocks have been written, and so it does that for many at a time.
const AHEAD_BYTES: u64 = 64 << 10;
const BLOCK: u64 = BLOCK_BYTES as u64;
/// How often somebody only yields to who is in the middle of an append, before he sleeps.
const YIELDS: u32 = 16;
/// How long he sleeps then.
const NAP: Duration = Duration::from_micros(50);

// So no piece begins or ends with a part of a block that is not of the log.
const _: () = assert!(SEGMENT_HEADER_BYTES.is_multiple_of(BLOCK) && AHEAD_BYTES.is_multiple_of(BLOCK));

/// Guarded by its mutex, which is held while a piece is written, and while a segment is prepared if none is, but not for a sync.
#[derive(Debug)]
pub(super) struct Pen {
    /// The segment that is written.
    segment: Segment,
    /// Something was written to it since its last sync began.
    unsynced: bool,
    /// Those before it that were written to their end and are not all durable, the oldest first.
    ended: VecDeque<Segment>,
    piece: Piece,
    /// Up to this offset in the segment nothing has to be written ahead.
    ready: u64,
}

/// Bytes on their way from the ring to the file: whole blocks, the first of which may begin with what was written before. They may go past
/// the system's cache so, and through it no block has to be read that is not there.
#[derive(Debug, Default)]
struct Piece {
    /// Room for the blocks, wherever the first may begin in it.
    room: Vec<u8>,
    /// What the last block that was written has of the log, if it ended within one.
    tail: Vec<u8>,
}

impl Piece {
    /// Room for so many bytes that begin where a block does, also in memory: see `DiskFile::stream_all_at`.
    fn blocks(&mut self, bytes: usize) -> &mut [u8] {
        // What it holds is overwritten: no zeros in between.
        self.room.resize(self.room.len().max(bytes + BLOCK_BYTES), 0);
        let address = self.room.as_ptr().addr();
        let begin = address.next_multiple_of(BLOCK_BYTES) - address;
        &mut self.room[begin..begin + bytes]
    }
}

/// What has to be synced for all that was written to be durable.
#[derive(Debug)]
pub(super) struct Unsynced {
    /// Segments that were written to their end, the oldest first. Each but the first is to be admitted before it is synced.
    pub(super) ended: Vec<Segment>,
    /// The one that is written, to be admitted if there are any before it; none if all of it is durable already.
    pub(super) last: Option<Segment>,
    /// Up to where it was written.
    pub(super) position: u64,
}

impl Pen {
    /// A pen that goes on in `segment`.
    pub(super) fn new(segment: Segment) -> Pen {
        Pen { segment, unsynced: false, ended: VecDeque::new(), piece: Piece::default(), ready: 0 }
    }

    /// Whether so much is not durable that the flusher has to come before more is written.
    pub(super) fn is_far_ahead(&self) -> bool {
        self.ended.len() >= MOST_ENDED
    }

    /// Whether a segment has been written to its end and waits for the flusher.
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Writes a piece of what is published below `target`; false: there is nothing, or somebody is in the middle of an append.
    pub(super) fn write_piece(&mut self, core: &Core, target: u64) -> Result<bool> {
        let position = core.ring.written();
        let end = core.published(position, target);
        if end == position {
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
        self.write_blocks(core, begin..end)?;
        self.unsynced = true;

        core.ring.retire(position, end);
        core.room_was_made();
        let half = base + geometry.segment_bytes() / 2;
        if (position..end).contains(&half) {
            core.want_space();
        }
        Ok(true)
    }

    /// Writes what the ring has there, and the rest of its blocks.
    fn write_blocks(&mut self, core: &Core, positions: Range<u64>) -> Result<()> {
        let Segment { base, file, path } = &self.segment;
        let (begin, end) = (positions.start - base, positions.end - base);
        let first = begin / BLOCK * BLOCK;
        let (from, to) = ((begin - first) as usize, (end - first) as usize);
        let mut tail = std::mem::take(&mut self.piece.tail);
        if tail.len() != from {
            // The log was opened here.
            tail.resize(from, 0);
            file.read_exact_at(&mut tail, first).map_err(StorageError::io("read the end of", path))?;
        }
        let mut block_end = end.next_multiple_of(BLOCK);
        if block_end > self.ready && end - begin < AHEAD_BYTES {
            self.ready = end.next_multiple_of(AHEAD_BYTES);
            let data = file.next_data(block_end).map_err(StorageError::io("look for a hole in", path))?;
            block_end = if data == Some(block_end) { block_end } else { self.ready };
        }
        let blocks = self.piece.blocks((block_end - first) as usize);
        blocks[..from].copy_from_slice(&tail);
        core.ring.copy_out(positions.start, &mut blocks[from..to]);
        blocks[to..].fill(0);
        let written = match core.past_cache {
            true => file.stream_all_at(blocks, first),
            false => file.write_all_at(blocks, first),
        };
        written.map_err(StorageError::io("write", path))?;
        tail.clear();
        tail.extend_from_slice(&blocks[to / BLOCK_BYTES * BLOCK_BYTES..to]);
        self.piece.tail = tail;
        Ok(())
    }

    /// What a sync that begins now has to cover.
    pub(super) fn begin_sync(&mut self, core: &Core) -> Unsynced {
        let last = (std::mem::take(&mut self.unsynced) || self.has_ended()).then(|| self.segment.clone());
        let ended = self.ended.iter().cloned().collect();
        Unsynced { ended, last, position: core.ring.written() }
    }

    /// So many segments that were written to their end are durable, and the next one is admitted.
    pub(super) fn end_sync(&mut self, ended: usize) {
        self.ended.drain(..ended);
    }
}

impl Core {
    /// The end of the published records from `position` on: within its segment, not much more than a piece, at
    /// most `target`. Always between two records, or at the end of the segment.
    pub(super) fn published(&self, position: u64, target: u64) -> u64 {
        let Core { ring, geometry, .. } = self;
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
}

/// How often in a row there was nothing to write because somebody was in the middle of an append.
#[derive(Debug, Default)]
pub(super) struct Stalls(u32);

impl Stalls {
    /// Somebody has claimed a place and not yet published: lets him run.
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

/// Tells everybody when the writer dies: who waits for room would wait for ever.
struct Farewell<'a>(&'a Core);

impl Drop for Farewell<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.poison("the writer of the log died");
        }
    }
}

/// The life of the writer's thread.
pub(crate) fn run_writer(core: &Core) {
    let _farewell = Farewell(core);
    let mut stalls = Stalls::default();
    while core.writing_is_wanted() {
        if let Err(error) = make_room(core, &mut stalls) {
            // What the file holds now nobody knows (WAL-8).
            return core.poison(&error.to_string());
        }
        core.look_after_space();
    }
}

/// Writes what is published, as far as the writer may be ahead of the disk; the flusher hears of each segment that ends.
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
    }
    Ok(())
}
