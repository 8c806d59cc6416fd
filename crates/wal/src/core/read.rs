//! Reading one record by its LSN: from the ring while it is there, else from its file.

use foreshore_base::{Lsn, Result, StorageError};
use foreshore_env::thread;

use super::Core;
use crate::{
    frame::{self, HEADER_BYTES, RecordHeader},
    ring::Found,
    segment::{no_record, unsound},
};

/// How many bytes are read at first for a record of unknown length.
const FIRST_READ_BYTES: u64 = 512;

impl Core {
    /// Reads the record that starts at `lsn`; `buffer` gets its payload.
    pub(crate) fn read(&self, lsn: Lsn, buffer: &mut Vec<u8>) -> Result<RecordHeader> {
        self.read_any(lsn, buffer, false).and_then(|header| self.checked(header))
    }

    /// Refuses the log's own records, and a record that says that a later one precedes it.
    pub(crate) fn checked(&self, header: RecordHeader) -> Result<RecordHeader> {
        let refused = header.kind.is_own() || header.prev >= header.lsn;
        if refused { Err(self.no_record(header.lsn)) } else { Ok(header) }
    }

    /// As [`Core::read`], of any kind; may wait for a record that somebody is in the middle of appending.
    pub(crate) fn read_any(&self, lsn: Lsn, buffer: &mut Vec<u8>, wait: bool) -> Result<RecordHeader> {
        if lsn.0 < self.low_water() || lsn.0 >= self.tail() || !self.geometry.is_start(lsn.0) {
            return Err(self.no_record(lsn));
        }
        loop {
            match self.ring.read(lsn.0, buffer) {
                Found::Written => return self.read_from_file(lsn, buffer),
                Found::Bytes(_) => {
                    let (header, length) = self.seal.parse(buffer, lsn).ok_or_else(|| self.no_record(lsn))?;
                    strip(buffer, length);
                    return Ok(header);
                }
                Found::Unpublished if wait => {
                    if let Some(poisoned) = self.poisoned() {
                        return Err(poisoned);
                    }
                    thread::yield_now();
                }
                Found::Unpublished | Found::Nothing => return Err(self.no_record(lsn)),
            }
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
        let (header, length) = self.seal.parse(buffer, lsn).ok_or_else(|| unsound(lsn))?;
        strip(buffer, length);
        Ok(header)
    }

    #[cold]
    pub(crate) fn no_record(&self, lsn: Lsn) -> StorageError {
        no_record(lsn, Lsn(self.low_water()), Lsn(self.tail()))
    }
}

/// Leaves the payload of the record of `length` bytes.
fn strip(buffer: &mut Vec<u8>, length: usize) {
    buffer.truncate(length);
    buffer.drain(..HEADER_BYTES);
}
