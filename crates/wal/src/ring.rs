//! The circular buffer between those who append and the flusher.
//!
//! Position `p` of the log has its place at `p` modulo the ring's size. The ring is made of atomic words, so that a
//! reader that comes too late reads nonsense (which it is told, and which its checksum would tell) but is no data race.
//!
//! Protocol (WAL-1): each place of 32 bytes has a mark beside the ring, which is 0 while the place is free. A record
//! takes as much, so no two begin in one place. A thread that has claimed a place for a record writes it, and then,
//! with release ordering, the mark of the place where it begins, which says how long it is: what has a mark is whole.
//! The flusher, which has written records to the file, says so, sets their marks to 0, and only then gives the places
//! free; the words stay as they are. It keeps what the last block of the file has, because that block is written again
//! with what follows, from here: whole blocks go to the file as they lie in the ring, at the same offsets in their
//! blocks.

use std::slice;

use foreshore_env::{
    CachePadded,
    disk::BLOCK_BYTES,
    hint,
    sync::atomic::{AtomicU16, AtomicU64, Ordering, fence},
    words::{self, LINE_WORDS, WORD_BYTES},
};

use crate::frame::{self, HEADER_BYTES, MAX_RECORD_BYTES, RecordKind};

/// How many lines of a record are fetched at most before it is written: of longer ones the processor sees where they
/// go.
const MOST_LINES: usize = 4;

/// What one mark is for.
const PLACE_BYTES: usize = HEADER_BYTES;
/// What is written again with what follows. Models' rings are smaller than that.
const KEPT_BYTES: usize = if cfg!(foreshore_loom) { WORD_BYTES } else { BLOCK_BYTES };
/// Of a mark: the record ends its segment. The rest says how many words it takes.
const ENDS_SEGMENT: u16 = 1 << 15;

const _: () = assert!(MAX_RECORD_BYTES / WORD_BYTES < ENDS_SEGMENT as usize);
// As `pen.rs` takes it for granted.
const _: () = assert!(cfg!(foreshore_loom) || KEPT_BYTES == BLOCK_BYTES);

/// The circular buffer.
#[derive(Debug)]
pub(crate) struct Ring {
    /// The ring's words, and as many before and behind them that they can begin where a block would. Written by the one
    /// who has claimed the position, until it is published.
    room: Box<[AtomicU64]>,
    /// Where the ring's words begin.
    begin: usize,
    /// As many as the ring has.
    count: usize,
    /// One for each place. Written by whoever publishes a record that begins there; then, by the flusher, set to 0.
    marks: Box<[AtomicU16]>,
    /// Below this records are in the files. Always between two records. Advanced by the flusher.
    written: CachePadded<AtomicU64>,
    /// Below this places are free. Advanced by the flusher.
    reclaimed: CachePadded<AtomicU64>,
}

/// A record that has been published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    /// What it takes of the log.
    pub(crate) bytes: u64,
    /// What follows in its segment is void.
    pub(crate) ends_segment: bool,
}

/// What a reader found at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// What has been published there, whose first word gives this length; the bytes were copied.
    Bytes(usize),
    /// The place has been claimed, but no record is published.
    Unpublished,
    /// What was there is in the file.
    Written,
    /// No record starts there.
    Nothing,
}

impl Ring {
    /// A ring for a log that ends at `position`. `bytes` is a power of two.
    pub(crate) fn new(bytes: usize, position: u64) -> Ring {
        debug_assert!(bytes.is_power_of_two());
        let count = bytes / WORD_BYTES;
        let mut room = Vec::with_capacity(count + KEPT_BYTES / WORD_BYTES - 1);
        // Before they are touched.
        hint::huge_pages(room.spare_capacity_mut());
        room.resize_with(room.capacity(), || AtomicU64::new(0));
        let address = room.as_ptr().addr();
        Ring {
            begin: (address.next_multiple_of(KEPT_BYTES) - address) / WORD_BYTES,
            room: room.into(),
            count,
            marks: (0..bytes.div_ceil(PLACE_BYTES)).map(|_| AtomicU16::new(0)).collect(),
            written: CachePadded::new(AtomicU64::new(position)),
            reclaimed: CachePadded::new(AtomicU64::new(kept(position))),
        }
    }

    /// Tells the simulator what lies where.
    pub(crate) fn name_for_simulation(&self) {
        hint::name(&self.room, "log ring word");
        hint::name(&self.marks, "log ring mark");
        hint::name(slice::from_ref(&self.written), "log ring written");
        hint::name(slice::from_ref(&self.reclaimed), "log ring reclaimed");
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.count * WORD_BYTES) as u64
    }

    /// The ring's words.
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        &self.room[self.begin..self.begin + self.count]
    }

    /// Below this records are in the files.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// How much of the ring is taken when the log reaches to `end`; more than [`Ring::bytes`] means no room.
    #[inline]
    pub(crate) fn taken(&self, end: u64) -> u64 {
        // Pairs with the release in `retire`: the marks of a free place are seen as 0.
        end.saturating_sub(self.reclaimed.load(Ordering::Acquire))
    }

    /// Fills the ring with what the last block of the file has of the log, before anything is written.
    pub(crate) fn resume(&self, bytes: &[u8]) {
        let [run, _] = self.runs(kept(self.written()), self.written());
        let (chunks, _) = bytes.as_chunks::<WORD_BYTES>();
        debug_assert_eq!(chunks.len(), run.len());
        words::store(chunks, run);
    }

    /// The records of `[from, to)` are in the file: gives their places free, but for what is written again with what
    /// follows.
    pub(crate) fn retire(&self, from: u64, to: u64) {
        self.written.store(to, Ordering::Release);
        // Pairs with the fence in `read`: a thread that finds a mark cleared below knows that it came too late.
        fence(Ordering::Release);
        // A record that begins in the place where `to` lies has begun at `to` or behind it: of a record before it the
        // place would have been full.
        let (first, end) = (from as usize / PLACE_BYTES, to as usize / PLACE_BYTES);
        for place in first..end {
            self.marks[place & (self.marks.len() - 1)].store(0, Ordering::Relaxed);
        }
        // Pairs with the acquire in `taken`.
        self.reclaimed.store(kept(to), Ordering::Release);
    }

    /// Copies the record at `position`, which is below the tail, to `out`; anything may stand there.
    pub(crate) fn read(&self, position: u64, out: &mut Vec<u8>) -> Found {
        if position < self.written() {
            return Found::Written;
        }
        let published = self.published(position).is_some();
        let length = if published { frame::length_of(self.word(position)) } else { 0 };
        let possible = (HEADER_BYTES..=MAX_RECORD_BYTES).contains(&length);
        if possible {
            out.resize(frame::padded(length) as usize, 0);
            self.copy_out(position, out);
        }
        // Pairs with the fences in `retire` and in `claimed`: a thread that reads what was written to this place later
        // knows that it came too late.
        fence(Ordering::Acquire);
        if position < self.written.load(Ordering::Relaxed) {
            Found::Written
        } else if possible {
            Found::Bytes(length)
        } else if !published {
            Found::Unpublished
        } else {
            Found::Nothing
        }
    }

    #[inline]
    fn index(&self, position: u64) -> usize {
        (position as usize / WORD_BYTES) & (self.count - 1)
    }

    #[inline]
    fn mark(&self, position: u64) -> &AtomicU16 {
        &self.marks[(position as usize / PLACE_BYTES) & (self.marks.len() - 1)]
    }

    /// What comes before the first store to a place that was claimed. The thread that claimed it has seen that it is
    /// free, and so do all that see what is stored from here on.
    #[inline]
    fn claimed() {
        // Pairs with the fence in `read`.
        fence(Ordering::Release);
    }

    /// What comes behind the last store: the record is whole.
    #[inline]
    fn publish(&self, position: u64, first_word: u64, header: &[u64; 3]) {
        let words = frame::length_of(first_word).div_ceil(WORD_BYTES) as u16;
        let flag = if frame::kind_of(header[2]) == RecordKind::SEGMENT_END { ENDS_SEGMENT } else { 0 };
        // Pairs with the acquire in `published`.
        self.mark(position).store(words | flag, Ordering::Release);
    }

    /// The record at a position, if it is published.
    #[inline]
    pub(crate) fn published(&self, position: u64) -> Option<Published> {
        let mark = self.mark(position).load(Ordering::Acquire);
        let bytes = u64::from(mark & !ENDS_SEGMENT) * WORD_BYTES as u64;
        (mark != 0).then_some(Published { bytes, ends_segment: mark & ENDS_SEGMENT != 0 })
    }

    /// Writes a record at a claimed position and publishes it.
    #[inline]
    pub(crate) fn write(&self, position: u64, first_word: u64, header: &[u64; 3], payload: &[&[u8]]) {
        Ring::claimed();
        let mut writer = Writer { words: self.words(), index: self.index(position), word: 0, filled: 0 };
        writer.put(first_word);
        for &word in header {
            writer.put(word);
        }
        for piece in payload {
            writer.write(piece);
        }
        writer.finish();
        self.publish(position, first_word, header);
    }

    /// As [`Ring::write`], for a record with its payload in one piece.
    #[inline]
    pub(crate) fn write_whole(&self, position: u64, first_word: u64, header: &[u64; 3], payload: &[u8]) {
        let start = self.index(position);
        let (chunks, rest) = payload.as_chunks::<WORD_BYTES>();
        let count = 1 + header.len() + chunks.len() + usize::from(!rest.is_empty());
        let places = self.words().get(start..start + count);
        // Around the end of the ring.
        let Some((head, body)) = places.and_then(|places| places.split_first_chunk::<4>()) else {
            return self.write(position, first_word, header, &[payload]);
        };
        Ring::claimed();
        let [second, third, fourth] = *header;
        for (place, word) in head.iter().zip([first_word, second, third, fourth]) {
            place.store(word, Ordering::Relaxed);
        }
        words::store(chunks, body);
        if let (false, Some(place)) = (rest.is_empty(), body.last()) {
            let mut last = [0; WORD_BYTES];
            last[..rest.len()].copy_from_slice(rest);
            place.store(u64::from_le_bytes(last), Ordering::Relaxed);
        }
        self.publish(position, first_word, header);
    }

    /// Has the mark fetched of a record of `length` bytes at a claimed position, and the first lines that it will be
    /// written to: it is long ago that anybody had them, but for the mark and the line in which the record before ends,
    /// which another processor may be writing to now. Those at the ring's beginning are not among them.
    #[inline]
    pub(crate) fn prefetch(&self, position: u64, length: usize) {
        hint::prefetch(self.mark(position), hint::Access::Write);
        let index = self.index(position);
        let before = index % LINE_WORDS;
        let lines = (before + length.div_ceil(WORD_BYTES)).div_ceil(LINE_WORDS);
        let first_words = self.words()[index - before..].iter().step_by(LINE_WORDS);
        first_words.take(lines.min(MOST_LINES)).for_each(|word| hint::prefetch(word, hint::Access::Write));
    }

    /// A word of a published record.
    #[inline]
    fn word(&self, position: u64) -> u64 {
        self.words()[self.index(position)].load(Ordering::Relaxed)
    }

    /// The words of `[from, to)`, in at most two runs.
    pub(crate) fn runs(&self, from: u64, to: u64) -> [&[AtomicU64]; 2] {
        let words = self.words();
        let (start, count) = (self.index(from), ((to - from) as usize / WORD_BYTES).min(words.len()));
        let first = count.min(words.len() - start);
        [&words[start..start + first], &words[..count - first]]
    }

    /// Fills `out` with the bytes from `from` on.
    pub(crate) fn copy_out(&self, from: u64, out: &mut [u8]) {
        words::load_runs(self.runs(from, from + out.len() as u64), out);
    }
}

/// Where what has to be written again begins that reaches to `position`.
fn kept(position: u64) -> u64 {
    position / KEPT_BYTES as u64 * KEPT_BYTES as u64
}

/// Packs bytes into the words of a ring.
struct Writer<'a> {
    words: &'a [AtomicU64],
    /// The next word.
    index: usize,
    /// Bytes that do not fill a word yet, lowest first.
    word: u64,
    /// How many of them, below 8.
    filled: u32,
}

impl Writer<'_> {
    #[inline]
    fn put(&mut self, word: u64) {
        self.words[self.index].store(word, Ordering::Relaxed);
        self.index = (self.index + 1) & (self.words.len() - 1);
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
        let shift = 8 * self.filled;
        if shift == 0 {
            for &word in words {
                self.put(u64::from_le_bytes(word));
            }
        } else {
            for &word in words {
                let word = u64::from_le_bytes(word);
                self.put(self.word | word << shift);
                self.word = word >> (64 - shift);
            }
        }
        if !rest.is_empty() {
            let mut last = [0; WORD_BYTES];
            last[..rest.len()].copy_from_slice(rest);
            let word = u64::from_le_bytes(last);
            self.word |= word << shift;
            self.filled += rest.len() as u32;
            if self.filled >= WORD_BYTES as u32 {
                self.filled -= WORD_BYTES as u32;
                self.put(self.word);
                self.word = word >> (64 - shift);
            }
        }
    }

    #[inline]
    fn finish(&mut self) {
        if self.filled > 0 {
            self.put(self.word);
        }
    }
}

#[cfg(all(test, foreshore_loom))]
mod models;

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_pieces_come_out_as_they_went_in(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..6),
            start in 0u64..64,
            whole: bool,
        ) {
            let ring = Ring::new(512, 512);
            prop_assert!(ring.words().as_ptr().addr().is_multiple_of(BLOCK_BYTES));
            let at = start * 8 + 512;
            let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let expected = pieces.concat();
            let end = at + 32 + expected.len().next_multiple_of(8) as u64;
            let mut out = vec![0; (end - at) as usize];
            let header = [1, 2, 3 | 9 << 48];
            prop_assert_eq!(ring.published(at), None);
            let first_word = frame::first_word((end - at) as usize, 7);
            if whole {
                ring.write_whole(at, first_word, &header, &expected);
            } else {
                ring.write(at, first_word, &header, &slices);
            }
            ring.copy_out(at, &mut out);
            prop_assert_eq!(ring.published(at), Some(Published { bytes: end - at, ends_segment: false }));
            let head: Vec<u8> = [first_word].into_iter().chain(header).flat_map(u64::to_le_bytes).collect();
            prop_assert_eq!(&out[..32], &head[..]);
            prop_assert_eq!(&out[32..32 + expected.len()], &expected[..]);
            prop_assert!(out[32 + expected.len()..].iter().all(|&byte| byte == 0));
            ring.write(end, 32, &[4, 5, 6], &[]);
            ring.retire(at, end);
            prop_assert_eq!((ring.written(), ring.taken(end)), (end, end % BLOCK_BYTES as u64));
            prop_assert_eq!(ring.published(end), Some(Published { bytes: 32, ends_segment: true }));
            ring.retire(end, end + 32);
            ring.retire(end + 32, end + 64);
            prop_assert_eq!((ring.published(at + 512), ring.word(at + 512)), (None, first_word), "what was there is left there");
            prop_assert!(ring.marks.iter().all(|mark| mark.load(Ordering::Relaxed) == 0));
        }
    }
}
