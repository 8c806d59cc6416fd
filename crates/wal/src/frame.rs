//! A record as bytes. All numbers are little-endian; a record starts at a multiple of 8.
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 4 | length of the whole record, without the zeros that fill it up to a multiple of 8 |
//! | 4 | 4 | CRC32C of the length, of the header from offset 8, and of the payload, seeded with the log id |
//! | 8 | 8 | LSN: where this record starts |
//! | 16 | 8 | LSN of the previous record of the transaction, or 0 |
//! | 24 | 6 | transaction id |
//! | 30 | 1 | kind |
//! | 31 | 1 | zero |
//! | 32 | … | payload |
//!
//! The LSN inside the checksum keeps what a recycled segment held before from passing for a record (WAL-4), the log
//! id keeps out the records of another database.

use foreshore_base::{Lsn, TxnId};
use foreshore_env::{
    sabotage::{Fault, planted},
    words::WORD_BYTES,
};

/// What a record means. The log does not know; it keeps 0 and 255 for itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecordKind(pub u8);

impl RecordKind {
    /// "The segment ends here": what follows up to its end is void.
    pub(crate) const SEGMENT_END: RecordKind = RecordKind(0);
    /// Payload: the LSN below which everything was durable when this record was made.
    pub(crate) const MARK: RecordKind = RecordKind(u8::MAX);

    /// Whether the log keeps this kind for itself.
    pub(crate) fn is_own(self) -> bool {
        self == RecordKind::SEGMENT_END || self == RecordKind::MARK
    }
}

/// What a record says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// Where it starts.
    pub lsn: Lsn,
    /// The previous record of its transaction; [`Lsn::ZERO`] for the first.
    pub prev: Lsn,
    /// Its transaction; [`TxnId::SYSTEM`] for none.
    pub txn: TxnId,
    /// Its meaning.
    pub kind: RecordKind,
}

impl RecordHeader {
    /// Of one of the log's own records.
    pub(crate) fn own(lsn: Lsn, kind: RecordKind) -> RecordHeader {
        RecordHeader { lsn, prev: Lsn::ZERO, txn: TxnId::SYSTEM, kind }
    }
}

/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 32;
/// Longest record: header and payload.
pub const MAX_RECORD_BYTES: usize = 64 << 10;
/// Longest payload.
pub const MAX_PAYLOAD_BYTES: usize = MAX_RECORD_BYTES - HEADER_BYTES;
/// Transaction ids are stored in 48 bits.
pub(crate) const MAX_TXN: u64 = (1 << 48) - 1;
/// Bytes of a record of kind [`RecordKind::MARK`].
pub(crate) const MARK_BYTES: usize = HEADER_BYTES + 8;

const KIND_SHIFT: u32 = 48;

const _: () = assert!(MAX_RECORD_BYTES.is_multiple_of(8) && MAX_RECORD_BYTES <= u32::MAX as usize);

/// What a record takes of the log: its length, up to the next multiple of 8.
#[inline]
pub(crate) const fn padded(length: usize) -> u64 {
    (length as u64).next_multiple_of(8)
}

/// The second to fourth word of a record; the first has length and checksum.
#[inline]
pub(crate) fn header_words(header: &RecordHeader) -> [u64; 3] {
    [header.lsn.0, header.prev.0, header.txn.0 | u64::from(header.kind.0) << KIND_SHIFT]
}

/// The kind in the fourth word.
#[inline]
pub(crate) fn kind_of(word: u64) -> RecordKind {
    RecordKind((word >> KIND_SHIFT) as u8)
}

/// The first word.
#[inline]
pub(crate) fn first_word(length: usize, checksum: u32) -> u64 {
    length as u64 | u64::from(checksum) << 32
}

/// The length in the first word.
#[inline]
pub(crate) fn length_of(first_word: u64) -> usize {
    first_word as u32 as usize
}

/// Bytes of a record's header under its checksum: all but the checksum itself.
const HEAD_BYTES: usize = HEADER_BYTES - size_of::<u32>();

/// What stands before the payload under the checksum.
#[inline]
fn head(length: usize, header: &[u64; 3]) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    let (first, rest) = head.split_at_mut(size_of::<u32>());
    first.copy_from_slice(&(length as u32).to_le_bytes());
    for (place, word) in rest.chunks_exact_mut(size_of::<u64>()).zip(header) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    head
}

/// What a checksum covers of a short record, in one piece: a checksum of many small pieces that start anywhere takes
/// most of its time at their ends.
#[derive(Debug)]
#[repr(align(8))]
pub(crate) struct Gathered {
    /// Zeros behind the payload.
    bytes: [u8; Gathered::BYTES + WORD_BYTES],
    payload_bytes: usize,
}

impl Gathered {
    /// Longer records are not put together.
    const BYTES: usize = 256;

    /// Puts a record of `length` bytes together, if it is short.
    #[inline]
    pub(crate) fn new(length: usize, header: &[u64; 3], payload: &[&[u8]]) -> Option<Gathered> {
        let payload_bytes = length - HEADER_BYTES;
        if HEAD_BYTES + payload_bytes > Gathered::BYTES {
            return None;
        }
        let mut bytes = [0; Gathered::BYTES + WORD_BYTES];
        bytes[..HEAD_BYTES].copy_from_slice(&head(length, header));
        let mut rest = &mut bytes[HEAD_BYTES..];
        for piece in payload {
            let (place, after) = rest.split_at_mut(piece.len());
            place.copy_from_slice(piece);
            rest = after;
        }
        Some(Gathered { bytes, payload_bytes })
    }

    /// The payload as the log has it: whole words.
    #[inline]
    pub(crate) fn padded_payload(&self) -> &[u8] {
        &self.bytes[HEAD_BYTES..][..self.payload_bytes.next_multiple_of(WORD_BYTES)]
    }
}

/// The checksum of one log: seeded with its id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal {
    seed: u32,
}

impl Seal {
    pub(crate) fn new(log_id: u64) -> Seal {
        Seal { seed: crc32c::crc32c(&log_id.to_le_bytes()) }
    }

    /// The checksum of a record.
    #[inline]
    pub(crate) fn checksum(self, length: usize, header: &[u64; 3], payload: &[&[u8]]) -> u32 {
        let begun = crc32c::crc32c_append(self.seed, &head(length, header));
        payload.iter().fold(begun, |checksum, piece| crc32c::crc32c_append(checksum, piece))
    }

    /// The checksum of a record that was put together in one piece.
    #[inline]
    pub(crate) fn checksum_gathered(self, gathered: &Gathered) -> u32 {
        crc32c::crc32c_append(self.seed, &gathered.bytes[..HEAD_BYTES + gathered.payload_bytes])
    }

    /// The record at the start of `bytes`, if there is a whole and sound one that belongs at `at`; and its length.
    /// Takes any bytes.
    pub(crate) fn parse(self, bytes: &[u8], at: Lsn) -> Option<(RecordHeader, usize)> {
        let length = record_length(bytes)?;
        let record = bytes.get(..length)?;
        let word = |index: usize| word_at(record, 8 * index);
        let words = [word(1), word(2), word(3)];
        if words[0] != at.0 || words[2] >> 56 != 0 {
            return None;
        }
        let checksum = self.checksum(length, &words, &[&record[HEADER_BYTES..]]);
        let header = RecordHeader {
            lsn: at,
            prev: Lsn(words[1]),
            txn: TxnId(words[2] & MAX_TXN),
            kind: kind_of(words[2]),
        };
        let sound = word(0) >> 32 == u64::from(checksum) || planted(Fault::LogChecksumUnchecked);
        sound.then_some((header, length))
    }

    /// A mark that stands at `at` and says that all below `durable` is durable.
    pub(crate) fn encode_mark(self, at: Lsn, durable: Lsn) -> [u8; MARK_BYTES] {
        let header = RecordHeader::own(at, RecordKind::MARK);
        let (words, payload) = (header_words(&header), durable.0.to_le_bytes());
        let checksum = self.checksum(MARK_BYTES, &words, &[&payload]);
        let mut mark = [0; MARK_BYTES];
        let all = [first_word(MARK_BYTES, checksum), words[0], words[1], words[2], durable.0];
        for (place, word) in mark.chunks_exact_mut(WORD_BYTES).zip(all) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        mark
    }

    /// A record at `at` that says that its segment ends there.
    pub(crate) fn encode_segment_end(self, at: Lsn) -> [u8; HEADER_BYTES] {
        let words = header_words(&RecordHeader::own(at, RecordKind::SEGMENT_END));
        let checksum = self.checksum(HEADER_BYTES, &words, &[]);
        let mut record = [0; HEADER_BYTES];
        let all = [first_word(HEADER_BYTES, checksum), words[0], words[1], words[2]];
        for (place, word) in record.chunks_exact_mut(WORD_BYTES).zip(all) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        record
    }

    /// What a mark at the start of `bytes` says was durable.
    pub(crate) fn parse_mark(self, bytes: &[u8], at: Lsn) -> Option<Lsn> {
        match self.parse(bytes, at) {
            Some((header, MARK_BYTES)) if header.kind == RecordKind::MARK => {
                Some(Lsn(word_at(bytes, HEADER_BYTES)))
            }
            _ => None,
        }
    }
}

/// The length that a record at the start of `bytes` gives for itself, if it is a possible one.
pub(crate) fn record_length(bytes: &[u8]) -> Option<usize> {
    let length = length_of(bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))?);
    (HEADER_BYTES..=MAX_RECORD_BYTES).contains(&length).then_some(length)
}

/// The word at an offset; 0 past the end.
pub(crate) fn word_at(bytes: &[u8], offset: usize) -> u64 {
    bytes.get(offset..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}
