//! Reading forward.

use foreshore_base::{Lsn, Result, StorageError};
use foreshore_env::sync::Arc;

use crate::{
    core::Core,
    frame::{HEADER_BYTES, RecordHeader, RecordKind, padded},
    segment::no_record,
};

/// Bytes read from a file at once.
const CHUNK_BYTES: u64 = 256 << 10;

/// Reads the records of a log forward, up to the tail at the time when the reader was made.
#[derive(Debug)]
pub struct LogReader {
    core: Arc<Core>,
    /// Where the last record ended.
    position: u64,
    end: u64,
    /// Bytes of the file from `chunk_start` on; whole records unless the last one is cut.
    chunk: Vec<u8>,
    chunk_start: u64,
}

impl LogReader {
    pub(crate) fn new(core: Arc<Core>, from: Lsn) -> LogReader {
        let end = core.tail();
        LogReader { core, position: from.0, end, chunk: Vec::new(), chunk_start: 0 }
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
            return Err(no_record(lsn, Lsn(self.core.low_water()), Lsn(self.end)));
        }
        if let Some(header) = self.parse(start, payload) {
            return Ok(header);
        }
        if start < self.core.ring.written() {
            self.fill(start)?;
            if let Some(header) = self.parse(start, payload) {
                return Ok(header);
            }
        }
        self.core.read_any(lsn, payload, true)
    }

    /// The record at `start`, if the chunk holds it.
    fn parse(&self, start: u64, payload: &mut Vec<u8>) -> Option<RecordHeader> {
        let offset = usize::try_from(start.checked_sub(self.chunk_start)?).ok()?;
        let bytes = self.chunk.get(offset..)?;
        let (header, length) = self.core.seal.parse(bytes, Lsn(start))?;
        payload.clear();
        payload.extend_from_slice(&bytes[HEADER_BYTES..length]);
        Some(header)
    }

    /// Reads a chunk of the file, only what is written and of the same segment.
    fn fill(&mut self, start: u64) -> Result<()> {
        let geometry = self.core.geometry;
        let base = geometry.base(start);
        let segment = self
            .core
            .store
            .segment(base)
            .ok_or_else(|| no_record(Lsn(start), Lsn(self.core.low_water()), Lsn(self.end)))?;
        let end = self.core.ring.written().min(base + geometry.segment_bytes()).min(start + CHUNK_BYTES);
        self.chunk_start = start;
        self.chunk.resize(end.saturating_sub(start) as usize, 0);
        let result = segment.file.read_exact_at(&mut self.chunk, start - base);
        if result.is_err() {
            self.chunk.clear();
        }
        result.map_err(StorageError::io("read", &segment.path))
    }
}
