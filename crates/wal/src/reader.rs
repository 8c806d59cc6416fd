//! Reading forward, and back from record to record, by pieces of a segment's file that have many of them.

use foreshore_base::{Lsn, Result, StorageError};
use foreshore_env::sync::Arc;

use crate::{
    core::Core,
    frame::{HEADER_BYTES, RecordHeader, RecordKind, padded},
};

/// Bytes read from a file at once, at most.
const CHUNK_BYTES: u64 = 256 << 10;
/// As many are read at once for a record that was come back to from afar.
const LEAST_BACK_BYTES: u64 = 8 << 10;
/// How many of them lie behind the record's beginning. What is longer is read again by itself.
const RECORD_BYTES: u64 = 512;

/// A piece of a segment's file; of what is written there nothing changes any more.
#[derive(Debug, Default)]
struct Chunk {
    start: u64,
    /// Records at both ends may be cut.
    bytes: Vec<u8>,
}

impl Chunk {
    /// The record at `lsn`, if all of it is here; `payload` gets its payload.
    fn parse(&self, core: &Core, lsn: Lsn, payload: &mut Vec<u8>) -> Option<RecordHeader> {
        let offset = usize::try_from(lsn.0.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(offset..)?;
        let (header, length) = core.seal.parse(bytes, lsn)?;
        payload.clear();
        payload.extend_from_slice(&bytes[HEADER_BYTES..length]);
        Some(header)
    }

    /// Reads what is written of `[from, to)` in the segment of `lsn`, which is written and lies there.
    fn fill(&mut self, core: &Core, lsn: Lsn, from: u64, to: u64) -> Result<()> {
        let base = core.geometry.base(lsn.0);
        self.bytes.clear();
        let segment = core.store.segment(base).ok_or_else(|| core.no_record(lsn))?;
        self.start = from.max(base);
        let end = to.min(core.ring.written()).min(base + core.geometry.segment_bytes());
        self.bytes.resize(end.saturating_sub(self.start) as usize, 0);
        let read = segment.file.read_exact_at(&mut self.bytes, self.start - base);
        if read.is_err() {
            self.bytes.clear();
        }
        read.map_err(StorageError::io("read", &segment.path))
    }
}

/// Reads the records of a log forward, up to the tail at the time when the reader was made.
#[derive(Debug)]
pub struct LogReader {
    core: Arc<Core>,
    /// Where the last record ended.
    position: u64,
    end: u64,
    chunk: Chunk,
}

impl LogReader {
    pub(crate) fn new(core: Arc<Core>, from: Lsn) -> LogReader {
        let end = core.tail();
        LogReader { core, position: from.0, end, chunk: Chunk::default() }
    }

    /// The next record, or `None` at the end; `payload` gets its payload. Skips the log's own records.
    ///
    /// An error is for good: the next call gives it again.
    #[allow(clippy::should_implement_trait, reason = "it lends its buffer and can fail: no iterator")]
    pub fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<RecordHeader>> {
        while self.position < self.end {
            let start = self.core.geometry.next_start(self.position);
            if start >= self.end {
                // Only the rest of a segment lies between, too small for a record.
                break;
            }
            let header = self.read(start, payload)?;
            if header.kind == RecordKind::SEGMENT_END {
                self.position = self.core.geometry.base(start) + self.core.geometry.segment_bytes();
                continue;
            }
            if header.prev >= header.lsn {
                return Err(StorageError::corrupt_log(
                    header.lsn,
                    "the record says that a later one precedes it",
                ));
            }
            self.position = start + padded(HEADER_BYTES + payload.len());
            if !header.kind.is_own() {
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    fn read(&mut self, start: u64, payload: &mut Vec<u8>) -> Result<RecordHeader> {
        let lsn = Lsn(start);
        if !self.core.geometry.is_start(start) {
            return Err(self.core.no_record(lsn));
        }
        if let Some(header) = self.chunk.parse(&self.core, lsn, payload) {
            return Ok(header);
        }
        if start < self.core.ring.written() {
            self.chunk.fill(&self.core, lsn, start, start + CHUNK_BYTES)?;
            if let Some(header) = self.chunk.parse(&self.core, lsn, payload) {
                return Ok(header);
            }
        }
        self.core.read_any(lsn, payload, true)
    }
}

/// Reads records of a log one by one, as [`Log::read`](crate::Log::read) does, for whoever goes back from each to an
/// earlier one: what the file has before a record is read with it, the more of it the longer the way back is
/// (at most 256 KiB), and kept until the reader is dropped.
#[derive(Debug)]
pub struct BackwardReader<'log> {
    core: &'log Core,
    chunk: Chunk,
    /// What was asked for last.
    asked: u64,
}

impl<'log> BackwardReader<'log> {
    pub(crate) fn new(core: &'log Core) -> BackwardReader<'log> {
        BackwardReader { core, chunk: Chunk::default(), asked: 0 }
    }

    /// Reads the record that starts at `lsn`; `payload` gets its payload. Any `lsn` is allowed, also one that does not
    /// lie before the last.
    ///
    /// # Errors
    /// Those of [`Log::read`](crate::Log::read): the record alone decides, not what else would have been read with it.
    pub fn read(&mut self, lsn: Lsn, payload: &mut Vec<u8>) -> Result<RecordHeader> {
        match self.parse(lsn, payload) {
            Some(header) => self.core.checked(header),
            None => self.core.read(lsn, payload),
        }
    }

    /// The record at `lsn`, if the file has it, and it is not longer than what was read of it.
    fn parse(&mut self, lsn: Lsn, payload: &mut Vec<u8>) -> Option<RecordHeader> {
        let core = self.core;
        let in_file = lsn.0 >= core.low_water() && lsn.0 < core.ring.written();
        if !in_file || !core.geometry.is_start(lsn.0) {
            return None;
        }
        self.chunk.parse(core, lsn, payload).or_else(|| {
            // A way that leaps over more than it was given would leave most of a larger piece unread.
            let near = self.chunk.start.saturating_sub(lsn.0) <= self.asked;
            self.asked =
                if near { (2 * self.asked).clamp(LEAST_BACK_BYTES, CHUNK_BYTES) } else { LEAST_BACK_BYTES };
            let to = lsn.0 + RECORD_BYTES;
            if self.chunk.fill(core, lsn, to.saturating_sub(self.asked), to).is_err() {
                self.asked = 0;
            }
            self.chunk.parse(core, lsn, payload)
        })
    }
}
