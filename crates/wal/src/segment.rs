//! Where an LSN lies: the endless log is cut into segments of equal size, one file each.
//!
//! An LSN is a byte offset in the endless log, so `LSN − base` is the offset in the file of the segment that begins
//! at `base`. The first [`SEGMENT_HEADER_BYTES`] of each segment hold its header and no records. No record crosses the
//! end of a segment: where the next one does not fit, a record of kind `SEGMENT_END` stands (or, if not even that
//! fits, nothing), and the log goes on in the next segment.
//!
//! | offset | bytes | header of a segment |
//! | --- | --- | --- |
//! | 0 | 8 | magic |
//! | 8 | 4 | format version |
//! | 12 | 4 | CRC32C of the header without these four bytes |
//! | 16 | 8 | log id |
//! | 24 | 8 | base: the LSN of the first byte of the file |
//! | 32 | 8 | bytes of a segment, a power of two |
//! | 40 | 24 | zero |
//!
//! A segment says that another one follows (WAL-14), in a sector of its own:
//!
//! | offset | bytes | note of a segment that is followed; anything else is none |
//! | --- | --- | --- |
//! | 512 | 8 | base of this segment: a note in a recycled file is none |
//! | 520 | 4 | CRC32C of the log id and the base |
//! | 524 | 4 | `next` |

use std::path::Path;

use foreshore_base::{Lsn, Result, StorageError};

use crate::frame::{HEADER_BYTES, MAX_RECORD_BYTES, word_at};

/// Bytes before the first record of a segment.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 4096;
/// Bytes of the header that say something.
pub(crate) const HEADER_USED_BYTES: usize = 64;
/// Where the note of a segment lies that is followed by another. Not in the sector of the header, which a crash must
/// not tear.
pub(crate) const NOTE_OFFSET: u64 = 512;
/// Bytes of that note.
pub(crate) const NOTE_BYTES: usize = 16;
/// The smallest segment: the longest record fits after the header.
pub(crate) const MIN_SEGMENT_BYTES: u64 = 128 << 10;
/// The largest segment: opening a log reads one at a time into memory.
pub(crate) const MAX_SEGMENT_BYTES: u64 = 256 << 20;

/// The largest base of a segment: no log goes so far.
const MAX_BASE: u64 = u64::MAX / 2;
const MAGIC: [u8; 8] = *b"FORESHOR";
const FORMAT: u32 = 1;
/// Ends the name of a segment that is part of the log.
const SUFFIX: &str = ".log";

const _: () = assert!(NOTE_OFFSET + NOTE_BYTES as u64 <= SEGMENT_HEADER_BYTES);
const _: () = assert!(SEGMENT_HEADER_BYTES + MAX_RECORD_BYTES as u64 <= MIN_SEGMENT_BYTES);

/// How the log is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// A power of two.
    segment_bytes: u64,
}

/// Where a record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Where the record of kind `SEGMENT_END` goes that must stand before it, if one must.
    pub(crate) segment_end: Option<u64>,
    /// The record itself.
    pub(crate) start: u64,
}

impl Geometry {
    pub(crate) fn new(segment_bytes: u64) -> Geometry {
        debug_assert!(segment_bytes.is_power_of_two());
        Geometry { segment_bytes }
    }

    pub(crate) fn segment_bytes(self) -> u64 {
        self.segment_bytes
    }

    /// The base of the segment that holds a position.
    #[inline]
    pub(crate) fn base(self, position: u64) -> u64 {
        position & !(self.segment_bytes - 1)
    }

    /// The offset in the file.
    #[inline]
    pub(crate) fn offset(self, position: u64) -> u64 {
        position & (self.segment_bytes - 1)
    }

    /// Bytes from a position to the end of its segment.
    #[inline]
    fn room(self, position: u64) -> u64 {
        self.segment_bytes - self.offset(position)
    }

    /// Where a record of `bytes` (a multiple of 8) goes when the log ends at `position`.
    #[inline]
    pub(crate) fn place(self, position: u64, bytes: u64) -> Place {
        let room = self.room(position);
        if room == self.segment_bytes {
            return Place { segment_end: None, start: position + SEGMENT_HEADER_BYTES };
        }
        if bytes <= room {
            return Place { segment_end: None, start: position };
        }
        let segment_end = (room >= HEADER_BYTES as u64).then_some(position);
        Place { segment_end, start: position + room + SEGMENT_HEADER_BYTES }
    }

    /// Where the record starts that follows the one that ended at `position`.
    #[inline]
    pub(crate) fn next_start(self, position: u64) -> u64 {
        self.place(position, HEADER_BYTES as u64).start
    }

    /// Whether a record can start here at all.
    pub(crate) fn is_start(self, position: u64) -> bool {
        position.is_multiple_of(8)
            && self.offset(position) >= SEGMENT_HEADER_BYTES
            && self.room(position) >= HEADER_BYTES as u64
    }
}

/// The name of the segment that begins at `base`.
pub(crate) fn file_name(base: u64) -> String {
    format!("{base:016x}{SUFFIX}")
}

/// The base in the name of a segment; `None` for any other file, and for a base beyond all that a log reaches: sums of
/// bases and sizes never overflow.
pub(crate) fn base_in_name(path: &Path) -> Option<u64> {
    let digits = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
    let base = u64::from_str_radix(digits, 16).ok()?;
    (file_name(base).strip_suffix(SUFFIX) == Some(digits) && base <= MAX_BASE).then_some(base)
}

/// The header of a segment.
pub(crate) fn encode_header(log_id: u64, base: u64, geometry: Geometry) -> [u8; HEADER_USED_BYTES] {
    let mut header = [0; HEADER_USED_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[16..24].copy_from_slice(&log_id.to_le_bytes());
    header[24..32].copy_from_slice(&base.to_le_bytes());
    header[32..40].copy_from_slice(&geometry.segment_bytes.to_le_bytes());
    let checksum = header_checksum(&header);
    header[12..16].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// The base in a sound header of this log.
pub(crate) fn base_in_header(header: &[u8; HEADER_USED_BYTES], log_id: u64) -> Option<u64> {
    let base = word_at(header, 24);
    let sound = base <= MAX_BASE && decode_header(header, Path::new(""), log_id, base).is_ok();
    sound.then_some(base)
}

fn header_checksum(header: &[u8; HEADER_USED_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..])
}

/// The note that another segment follows the one at `base`.
pub(crate) fn encode_note(log_id: u64, base: u64) -> [u8; NOTE_BYTES] {
    let mut note = [0; NOTE_BYTES];
    note[..8].copy_from_slice(&base.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&log_id.to_le_bytes()), &note[..8]);
    note[8..12].copy_from_slice(&checksum.to_le_bytes());
    note[12..].copy_from_slice(b"next");
    note
}

/// Whether the segment at `base`, of which these are the first bytes, says that another one follows.
pub(crate) fn has_note(segment: &[u8], log_id: u64, base: u64) -> bool {
    let offset = NOTE_OFFSET as usize;
    segment.get(offset..offset + NOTE_BYTES) == Some(encode_note(log_id, base).as_slice())
}

/// Checks the header of the segment that should begin at `base`; gives how its log is cut.
pub(crate) fn decode_header(
    header: &[u8; HEADER_USED_BYTES],
    path: &Path,
    log_id: u64,
    base: u64,
) -> Result<Geometry> {
    let damaged = |detail: &str| StorageError::corrupt_file(path, detail);
    if header[..8] != MAGIC {
        return Err(damaged("not a segment of a log: it does not begin with the magic number"));
    }
    let tag = word_at(header, 8);
    let (format, checksum) = (tag as u32, (tag >> 32) as u32);
    if checksum != header_checksum(header) {
        return Err(damaged("the checksum of the segment's header does not match"));
    }
    if format != FORMAT {
        return Err(StorageError::UpgradeRequired {
            path: path.to_owned(),
            found: format,
            supported: FORMAT,
        });
    }
    if word_at(header, 16) != log_id {
        return Err(damaged("the segment belongs to the log of another database"));
    }
    if word_at(header, 24) != base {
        return Err(damaged("the segment's header gives another LSN than its name"));
    }
    let segment_bytes = word_at(header, 32);
    if !segment_bytes.is_power_of_two()
        || !(MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES).contains(&segment_bytes)
        || !base.is_multiple_of(segment_bytes)
    {
        return Err(damaged("the segment's header gives an impossible size"));
    }
    Ok(Geometry { segment_bytes })
}

/// An LSN at which no record of this log starts.
#[cold]
pub(crate) fn no_record(lsn: Lsn, low: Lsn, tail: Lsn) -> StorageError {
    StorageError::corrupt_log(lsn, format!("no record starts there; the log goes from {low} to {tail}"))
}

/// A record that is not as it was written.
#[cold]
pub(crate) fn unsound(lsn: Lsn) -> StorageError {
    StorageError::corrupt_log(lsn, "the record that starts there does not match its checksum")
}
