//! The circular buffer between those who append and the flusher.
//!
//! Position `p` of the log has its place at `p` modulo the ring's size. The ring is made of atomic words, so that a
//! reader that comes too late reads nonsense (which it is told, and which its checksum would tell) but is no data race.
//!
//! Protocol (WAL-1): the words of a free place are 0. Who has claimed a place writes the record into it, and its first
//! word last, with release ordering; a first word that is not 0 so says that the record behind it is whole. The
//! flusher, which has written records to the file, says so, sets their words to 0, and only then gives the place free.

use std::slice;

use foreshore_env::{
    CachePadded, hint,
    sync::atomic::{AtomicU64, Ordering, fence},
    words::{self, LINE_WORDS, WORD_BYTES},
};

use crate::frame::{self, HEADER_BYTES, MAX_RECORD_BYTES};

/// So many lines of a record are fetched at most before it is written: of longer ones the processor sees where they go.
const MOST_LINES: usize = 4;

/// The circular buffer.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Written by the one who has claimed the position, until it is published; then, by the flusher, set to 0.
    words: Box<[AtomicU64]>,
    /// Below this records are in the files. Always between two records. Advanced by the flusher.
    written: CachePadded<AtomicU64>,
    /// Below this places are free. Advanced by the flusher.
    reclaimed: CachePadded<AtomicU64>,
}

/// What a reader found at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A first word that gives this length; the bytes were copied.
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
        Ring {
            words: (0..bytes / WORD_BYTES).map(|_| AtomicU64::new(0)).collect(),
            written: CachePadded::new(AtomicU64::new(position)),
            reclaimed: CachePadded::new(AtomicU64::new(position)),
        }
    }

    /// Tells the simulator what lies where.
    pub(crate) fn name_for_simulation(&self) {
        hint::name(&self.words, "log ring word");
        hint::name(slice::from_ref(&self.written), "log ring written");
        hint::name(slice::from_ref(&self.reclaimed), "log ring reclaimed");
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.words.len() * WORD_BYTES) as u64
    }

    /// Below this records are in the files.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// How much of the ring is taken when the log reaches to `end`; more than [`Ring::bytes`] means no room.
    #[inline]
    pub(crate) fn taken(&self, end: u64) -> u64 {
        // Pairs with the release in `retire`: the words of a free place are seen as 0.
        end.saturating_sub(self.reclaimed.load(Ordering::Acquire))
    }

    /// The records of `[from, to)` are in the file: gives their places free.
    pub(crate) fn retire(&self, from: u64, to: u64) {
        self.written.store(to, Ordering::Release);
        // Pairs with the fence in `read`: who reads a word that is cleared below knows that it came too late.
        fence(Ordering::Release);
        for run in self.runs(from, to) {
            words::clear(run);
        }
        // Pairs with the acquire in `taken`.
        self.reclaimed.store(to, Ordering::Release);
    }

    /// Copies the record at `position`, which is below the tail, to `out`; anything may stand there.
    pub(crate) fn read(&self, position: u64, out: &mut Vec<u8>) -> Found {
        if position < self.written() {
            return Found::Written;
        }
        let length = frame::length_of(self.first_word(position));
        let possible = (HEADER_BYTES..=MAX_RECORD_BYTES).contains(&length);
        if possible {
            out.resize(frame::padded(length) as usize, 0);
            self.copy_out(position, out);
        }
        // Pairs with the fence in `retire`.
        fence(Ordering::Acquire);
        if position < self.written.load(Ordering::Relaxed) {
            Found::Written
        } else if possible {
            Found::Bytes(length)
        } else if length == 0 {
            Found::Unpublished
        } else {
            Found::Nothing
        }
    }

    #[inline]
    fn index(&self, position: u64) -> usize {
        (position as usize / WORD_BYTES) & (self.words.len() - 1)
    }

    /// Writes a record at a claimed position and publishes it.
    #[inline]
    pub(crate) fn write(&self, position: u64, first_word: u64, header: &[u64; 3], payload: &[&[u8]]) {
        let start = self.index(position);
        let mut writer = Writer { ring: self, index: start, word: 0, filled: 0 };
        writer.index = writer.after(start);
        for &word in header {
            writer.put(word);
        }
        for piece in payload {
            writer.write(piece);
        }
        writer.finish();
        // Pairs with the acquire in `first_word`.
        self.words[start].store(first_word, Ordering::Release);
    }

    /// As [`Ring::write`], for a record with its payload in one piece.
    #[inline]
    pub(crate) fn write_whole(&self, position: u64, first_word: u64, header: &[u64; 3], payload: &[u8]) {
        let start = self.index(position);
        let (chunks, rest) = payload.as_chunks::<WORD_BYTES>();
        let behind = start + 1 + header.len();
        let places = self.words.get(start + 1..behind + chunks.len() + usize::from(!rest.is_empty()));
        // Around the end of the ring.
        let Some((head, body)) = places.and_then(|places| places.split_at_checked(header.len())) else {
            return self.write(position, first_word, header, &[payload]);
        };
        for (place, word) in head.iter().zip(header) {
            place.store(*word, Ordering::Relaxed);
        }
        words::store(chunks, body);
        if let (false, Some(place)) = (rest.is_empty(), body.last()) {
            let mut last = [0; WORD_BYTES];
            last[..rest.len()].copy_from_slice(rest);
            place.store(u64::from_le_bytes(last), Ordering::Relaxed);
        }
        // Pairs with the acquire in `first_word`.
        self.words[start].store(first_word, Ordering::Release);
    }

    /// Has the first lines fetched that a record of `length` bytes at a claimed position will be written to: whoever cleared them may
    /// have them in his cache. Those at the ring's beginning are not among them.
    #[inline]
    pub(crate) fn prefetch(&self, position: u64, length: usize) {
        let lines = self.words[self.index(position)..].chunks(LINE_WORDS);
        lines
            .take(length.div_ceil(LINE_WORDS * WORD_BYTES).min(MOST_LINES))
            .for_each(|line| hint::prefetch(&line[0], hint::Access::Write));
    }

    /// The first word of the record at a position; 0 if it is not published.
    #[inline]
    pub(crate) fn first_word(&self, position: u64) -> u64 {
        self.words[self.index(position)].load(Ordering::Acquire)
    }

    /// A later word of a published record.
    #[inline]
    pub(crate) fn word(&self, position: u64) -> u64 {
        self.words[self.index(position)].load(Ordering::Relaxed)
    }

    /// The words of `[from, to)`, in at most two runs.
    fn runs(&self, from: u64, to: u64) -> [&[AtomicU64]; 2] {
        let (start, count) = (self.index(from), ((to - from) as usize / WORD_BYTES).min(self.words.len()));
        let first = count.min(self.words.len() - start);
        [&self.words[start..start + first], &self.words[..count - first]]
    }

    /// Fills `out` with the bytes from `from` on.
    pub(crate) fn copy_out(&self, from: u64, out: &mut [u8]) {
        let to = from + out.len() as u64;
        let (mut places, _) = out.as_chunks_mut::<WORD_BYTES>();
        for run in self.runs(from, to) {
            let (here, rest) = places.split_at_mut(run.len());
            words::load(run, here);
            places = rest;
        }
    }
}

/// Packs bytes into the words of a ring.
struct Writer<'a> {
    ring: &'a Ring,
    /// The next word.
    index: usize,
    /// Bytes that do not fill a word yet, lowest first.
    word: u64,
    /// How many of them, below 8.
    filled: u32,
}

impl Writer<'_> {
    #[inline]
    fn after(&self, index: usize) -> usize {
        (index + 1) & (self.ring.words.len() - 1)
    }

    #[inline]
    fn put(&mut self, word: u64) {
        self.ring.words[self.index].store(word, Ordering::Relaxed);
        self.index = self.after(self.index);
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
            let ring = Ring::new(512, 0);
            let at = start * 8 + 512;
            let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let expected = pieces.concat();
            let end = at + 32 + expected.len().next_multiple_of(8) as u64;
            let mut out = vec![0; (end - at) as usize];
            if whole {
                ring.write_whole(at, 7, &[1, 2, 3], &expected);
            } else {
                ring.write(at, 7, &[1, 2, 3], &slices);
            }
            ring.copy_out(at, &mut out);
            prop_assert_eq!(ring.first_word(at), 7);
            prop_assert_eq!(out[8..32].to_vec(), [1u64, 2, 3].map(u64::to_le_bytes).concat());
            prop_assert_eq!(&out[32..32 + expected.len()], &expected[..]);
            prop_assert!(out[32 + expected.len()..].iter().all(|&byte| byte == 0));
            ring.retire(at, end);
            prop_assert_eq!((ring.written(), ring.taken(end)), (end, 0));
            prop_assert!(ring.words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        }
    }
}
