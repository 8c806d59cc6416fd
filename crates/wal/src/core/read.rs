//! Reading one record by its LSN: from the ring while it is there, else from its file.

use foreshore_base::{Lsn, Result, StorageError};
use foreshore_env::{
    sync::atomic::{Ordering, fence},
    thread,
};

use super::Core;
use crate::{
    frame::{self, HEADER_BYTES, MAX_RECORD_BYTES, RecordHeader, padded},
    segment::no_record,
};

/// How many bytes are read at first for a record of unknown length.
const FIRST_READ_BYTES: u64 = 512;

/// A record that was found, or why not.
enum Found {
    Record(RecordHeader),
    /// Its place has been claimed, but it is not published.
    Unpublished,
    /// It has left the ring.
    Written,
    /// There is none.
    Nothing,
}

impl Core {
    /// Reads the record that starts at `lsn`; `buffer` gets its payload.
    pub(crate) fn read(&self, lsn: Lsn, buffer: &mut Vec<u8>) -> Result<RecordHeader> {
        let header = self.read_any(lsn, buffer, false)?;
        if header.kind.is_own() || header.prev >= lsn { Err(self.no_record(lsn)) } else { Ok(header) }
    }

    /// As [`Core::read`], of any kind; may wait for a record that somebody is in the middle of appending.
    pub(crate) fn read_any(&self, lsn: Lsn, buffer: &mut Vec<u8>, wait: bool) -> Result<RecordHeader> {
        if lsn.0 < self.low_water() || lsn.0 >= self.tail() || !self.geometry.is_start(lsn.0) {
            return Err(self.no_record(lsn));
        }
        loop {
            match self.read_from_ring(lsn, buffer) {
                Found::Record(header) => return Ok(header),
                Found::Written => return self.read_from_file(lsn, buffer),
                Found::Nothing => return Err(self.no_record(lsn)),
                Found::Unpublished if !wait => return Err(self.no_record(lsn)),
                Found::Unpublished => {
                    if let Some(poisoned) = self.poisoned() {
                        return Err(poisoned);
                    }
                    thread::yield_now();
                }
            }
        }
    }

    fn read_from_ring(&self, lsn: Lsn, buffer: &mut Vec<u8>) -> Found {
        if lsn.0 < self.written() {
            return Found::Written;
        }
        let length = frame::length_of(self.ring.first_word(lsn.0));
        let possible = (HEADER_BYTES..=MAX_RECORD_BYTES).contains(&length);
        if possible {
            self.ring.copy_out(lsn.0, lsn.0 + padded(length), buffer);
        }
        // Pairs with the fence of the flusher: if a word read above had been cleared, `written` says so now.
        fence(Ordering::Acquire);
        if lsn.0 < self.written.load(Ordering::Relaxed) {
            return Found::Written;
        }
        if length == 0 {
            return Found::Unpublished;
        }
        match self.seal.parse(buffer, lsn) {
            Some((header, length)) if possible => {
                strip(buffer, length);
                Found::Record(header)
            }
            _ => Found::Nothing,
        }
    }

    fn read_from_file(&self, lsn: Lsn, buffer: &mut Vec<u8>) -> Result<RecordHeader> {
        let base = self.geometry.base(lsn.0);
        let segment = self.store.segment(base).ok_or_else(|| self.no_record(lsn))?;
        let offset = self.geometry.offset(lsn.0);
        let room = self.geometry.segment_bytes() - offset;
        let fill = |buffer: &mut Vec<u8>, bytes: u64| {
            let have = buffer.len();
            buffer.resize(bytes.min(room) as usize, 0);
            segment
                .file
                .read_exact_at(&mut buffer[have..], offset + have as u64)
                .map_err(StorageError::io("read", &segment.path))
        };
        buffer.clear();
        fill(buffer, FIRST_READ_BYTES)?;
        if let Some(length) = frame::record_length(buffer).filter(|&length| length > buffer.len()) {
            fill(buffer, length as u64)?;
        }
        let (header, length) = self.seal.parse(buffer, lsn).ok_or_else(|| {
            StorageError::corrupt_log(lsn, "the record that starts there does not match its checksum")
        })?;
        strip(buffer, length);
        Ok(header)
    }

    #[cold]
    fn no_record(&self, lsn: Lsn) -> StorageError {
        no_record(lsn, Lsn(self.low_water()), Lsn(self.tail()))
    }
}

/// Leaves the payload of the record of `length` bytes.
fn strip(buffer: &mut Vec<u8>, length: usize) {
    buffer.truncate(length);
    buffer.drain(..HEADER_BYTES);
}
