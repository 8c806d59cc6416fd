//! [`PageWords`]: the bytes of a page in shared memory, read and written through relaxed atomic words.
//!
//! An optimistic reader reads a page while a writer changes it. With plain memory that is a data race, undefined
//! whatever is done with the bytes; with relaxed atomic words it is a read of some old and some new words, which the
//! latch's version then exposes. On the usual processors a relaxed load is a plain load.
//!
//! PAGE-1: no access leaves the page, whatever offset it is given: a torn read may be nonsense, it is never out of
//! bounds. Reads past the end give zeros, writes past the end are dropped.

mod buffer;
mod compare;

use std::{fmt, hint::select_unpredictable, ops::Range};

use foreshore_base::limits::PAGE_BYTES;
use foreshore_env::{
    hint,
    sync::atomic::{AtomicU64, Ordering},
    words::{self, LINE_WORDS, WORD_BYTES},
};

pub use buffer::PageBuffer;

/// Words in a page.
const PAGE_WORDS: usize = PAGE_BYTES / WORD_BYTES;

/// Bytes in a cache line.
pub(crate) const LINE_BYTES: usize = LINE_WORDS * WORD_BYTES;
/// Lines at a page's beginning that are asked for at once: the header and 64 slots, which is most of what a leaf with
/// values of a hundred bytes has; in the order in which a search among so many by halves comes to them.
const FIRST_LINES: [usize; 9] = [0, 5, 3, 7, 2, 4, 6, 8, 1];

/// A cache line of a page in private memory, by words.
pub(crate) type Line = [[u8; WORD_BYTES]; LINE_WORDS];

/// A page in shared memory. A word holds eight bytes of the page in little-endian order.
///
/// Guarded by the latch of its frame: stores by the exclusive holder, loads by anybody, who must validate what it
/// made of them unless it holds the latch. All accesses are relaxed; the latch orders them.
#[repr(C, align(4096))]
pub struct PageWords([AtomicU64; PAGE_WORDS]);

const _: () = assert!(size_of::<PageWords>() == PAGE_BYTES && size_of::<PageBuffer>() == PAGE_BYTES);

impl Default for PageWords {
    fn default() -> PageWords {
        PageWords(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl fmt::Debug for PageWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageWords").finish_non_exhaustive()
    }
}

/// The part of `length` bytes at `offset` that lies in the page.
#[inline]
fn clamp(offset: usize, length: usize) -> usize {
    length.min(PAGE_BYTES.saturating_sub(offset))
}

/// The eight bytes at `bytes`, zeros where there are fewer, as a word.
#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    if let Some(chunk) = bytes.first_chunk() {
        return u64::from_le_bytes(*chunk);
    }
    // The first and the last of them, which overlap: no loop.
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            let shift = (bytes.len() - 4) * 8;
            u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << shift
        }
        _ => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// A word whose first `bytes` bytes are ones.
#[inline]
fn first_bytes(bytes: usize) -> u64 {
    u64::MAX.checked_shr((u64::BITS as usize - bytes * 8) as u32).unwrap_or(0)
}

impl PageWords {
    /// Asks for the lines that a search begins with, all at once: the header, the first slots, and the fences' end.
    #[inline]
    pub(crate) fn prefetch(&self) {
        for line in FIRST_LINES {
            hint::prefetch(&self.0[line * LINE_WORDS], hint::Access::Read);
        }
        hint::prefetch(&self.0[PAGE_WORDS - 1], hint::Access::Read);
    }

    /// Asks for the line of `offset`.
    #[inline]
    pub(crate) fn prefetch_line(&self, offset: usize) {
        if let Some(word) = self.0.get(offset / WORD_BYTES) {
            hint::prefetch(word, hint::Access::Read);
        }
    }

    /// Asks for the line of `offset` and the one behind it.
    #[inline]
    pub(crate) fn prefetch_at(&self, offset: usize) {
        self.prefetch_line(offset);
        self.prefetch_behind(offset);
    }

    /// Asks for the line behind the one of `offset`.
    #[inline]
    pub(crate) fn prefetch_behind(&self, offset: usize) {
        self.prefetch_line(offset + LINE_BYTES);
    }

    /// Asks for the lines that `bytes` before `end` will be written to, for the first four of them.
    #[inline]
    pub(crate) fn prefetch_place(&self, bytes: usize, end: usize) {
        let lines = end.saturating_sub(bytes) / LINE_BYTES..end.div_ceil(LINE_BYTES);
        let first_words = lines.take(4).filter_map(|line| self.0.get(line * LINE_WORDS));
        first_words.for_each(|word| hint::prefetch(word, hint::Access::Write));
    }

    #[inline]
    fn load(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    #[inline]
    fn store(&self, index: usize, value: u64) {
        if let Some(word) = self.0.get(index) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The eight bytes at any offset as a little-endian number. Two loads when they lie in two words, so only an
    /// aligned number is sure not to be half old and half new.
    #[inline]
    pub fn u64(&self, offset: usize) -> u64 {
        let (index, shift) = (offset / WORD_BYTES, offset % WORD_BYTES * 8);
        let low = self.load(index) >> shift;
        if shift == 0 { low } else { low | self.load(index + 1) << (64 - shift) }
    }

    /// The four bytes at `offset`.
    #[inline]
    pub fn u32(&self, offset: usize) -> u32 {
        self.u64(offset) as u32
    }

    /// The two bytes at `offset`.
    #[inline]
    pub fn u16(&self, offset: usize) -> u16 {
        self.u64(offset) as u16
    }

    /// The byte at `offset`.
    #[inline]
    pub fn u8(&self, offset: usize) -> u8 {
        (self.load(offset / WORD_BYTES) >> (offset % WORD_BYTES * 8)) as u8
    }

    /// How many of the `count` words from word `first` on come before the first of which `before` is false, given that
    /// it is true of none behind that; found by halves, in steps that do not depend on the words. Words past the end
    /// are not looked at.
    #[inline]
    pub(crate) fn partition_point(&self, first: usize, count: usize, before: impl Fn(u64) -> bool) -> usize {
        let words = self.0.get(first..).unwrap_or(&[]);
        let mut words = &words[..count.min(words.len())];
        let mut low = 0;
        while words.len() > 1 {
            let half = words.len() / 2;
            let (lower, upper) = (&words[..words.len() - half], &words[half..]);
            let goes_up = before(upper[0].load(Ordering::Relaxed));
            words = select_unpredictable(goes_up, upper, lower);
            low += select_unpredictable(goes_up, half, 0);
        }
        low + words.first().map_or(0, |word| usize::from(before(word.load(Ordering::Relaxed))))
    }

    /// The bytes from `offset` on, a word at a time: each word of memory is loaded once, also at odd offsets.
    #[inline]
    fn words_from(&self, offset: usize) -> impl FnMut() -> u64 + '_ {
        let (mut index, shift) = (offset / WORD_BYTES, (offset % WORD_BYTES * 8) as u32);
        let mut current = self.load(index);
        move || {
            index += 1;
            let next = self.load(index);
            // Twice by half: a shift by 64 is none.
            let word = current >> shift | next << (63 - shift) << 1;
            current = next;
            word
        }
    }

    /// Fills `target` from `offset` on; with zeros past the page's end.
    #[inline]
    pub fn copy_to(&self, offset: usize, target: &mut [u8]) {
        let (index, shift) = (offset / WORD_BYTES, (offset % WORD_BYTES * 8) as u32);
        let whole = target.len() / WORD_BYTES;
        // Each chunk at an odd offset takes from two words: one more than there are chunks. All in the page, as a rule,
        // so that there is one check for all of them.
        let Some((first, others)) = self.0.get(index..=index + whole).and_then(<[_]>::split_first) else {
            return self.copy_across_the_end(offset, target);
        };
        let (chunks, rest) = target.as_chunks_mut::<WORD_BYTES>();
        let mut current = first.load(Ordering::Relaxed);
        if shift == 0 {
            for (chunk, next) in chunks.iter_mut().zip(others) {
                *chunk = current.to_le_bytes();
                current = next.load(Ordering::Relaxed);
            }
        } else {
            for (chunk, next) in chunks.iter_mut().zip(others) {
                let next = next.load(Ordering::Relaxed);
                *chunk = (current >> shift | next << (u64::BITS - shift)).to_le_bytes();
                current = next;
            }
        }
        if !rest.is_empty() {
            let next = self.load(index + whole + 1);
            let word = (current >> shift | next << (63 - shift) << 1).to_le_bytes();
            rest.copy_from_slice(&word[..rest.len()]);
        }
    }

    #[cold]
    fn copy_across_the_end(&self, offset: usize, target: &mut [u8]) {
        let mut next = self.words_from(offset);
        for chunk in target.chunks_mut(WORD_BYTES) {
            chunk.copy_from_slice(&next().to_le_bytes()[..chunk.len()]);
        }
    }

    /// These words, as they are now; none if one of them is past the end.
    #[inline]
    pub(crate) fn words_in(&self, words: Range<usize>) -> impl Iterator<Item = u64> {
        self.0.get(words).unwrap_or(&[]).iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// Copies these lines of the page to the same place of `target`; none if one of them is past the end. At whole
    /// words of both sides nothing is shifted, and there are few other instructions than the moves.
    pub(crate) fn copy_lines(&self, lines: Range<usize>, target: &mut [Line]) {
        let (all, _) = self.0.as_chunks::<LINE_WORDS>();
        let (Some(from), Some(to)) = (all.get(lines.clone()), target.get_mut(lines)) else { return };
        for (to, from) in to.iter_mut().zip(from) {
            words::load(from, to);
        }
    }

    /// Copies whole words, from the one on in which `offset` lies, as many as the page has: what of `target` would be
    /// of others stays.
    #[inline]
    pub fn copy_words_at(&self, offset: usize, target: &mut [[u8; WORD_BYTES]]) {
        words::load(self.0.get(offset / WORD_BYTES..).unwrap_or(&[]), target);
    }

    /// Appends `length` bytes at `offset` to `target`, or as many of them as the page has, if that is nonsense.
    #[inline]
    pub(crate) fn append_to(&self, offset: usize, length: usize, target: &mut Vec<u8>) {
        let (start, length) = (target.len(), clamp(offset, length));
        target.resize(start + length, 0);
        self.copy_to(offset, &mut target[start..]);
    }

    /// Stores a word. Needs the latch exclusively.
    #[inline]
    pub(crate) fn set_u64(&self, offset: usize, value: u64) {
        if offset.is_multiple_of(WORD_BYTES) {
            self.store(offset / WORD_BYTES, value);
        } else {
            self.write(offset, &value.to_le_bytes());
        }
    }

    /// Stores four bytes. Needs the latch exclusively.
    #[inline]
    pub(crate) fn set_u32(&self, offset: usize, value: u32) {
        self.set_number(offset, &value.to_le_bytes());
    }

    /// Stores two bytes. Needs the latch exclusively.
    #[inline]
    pub(crate) fn set_u16(&self, offset: usize, value: u16) {
        self.set_number(offset, &value.to_le_bytes());
    }

    /// Stores a byte. Needs the latch exclusively.
    #[inline]
    pub(crate) fn set_u8(&self, offset: usize, value: u8) {
        self.set_number(offset, &[value]);
    }

    /// Stores a number of less than a word, mostly within one.
    #[inline]
    fn set_number<const N: usize>(&self, offset: usize, bytes: &[u8; N]) {
        let skip = offset % WORD_BYTES;
        if skip + N <= WORD_BYTES {
            self.merge(offset / WORD_BYTES, skip, bytes);
        } else {
            self.write(offset, bytes);
        }
    }

    /// Stores `bytes` at `offset`; those past the page's end are dropped. Needs the latch exclusively: a word of
    /// which only a part changes is read and written back.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let bytes = &bytes[..clamp(offset, bytes.len())];
        let (mut index, skip) = (offset / WORD_BYTES, offset % WORD_BYTES);
        let (head, body) = bytes.split_at(bytes.len().min((WORD_BYTES - skip) % WORD_BYTES));
        if !head.is_empty() {
            self.merge(index, skip, head);
            index += 1;
        }
        // One check for all words that are written whole.
        let words = self.0.get(index..).unwrap_or(&[]);
        let (chunks, rest) = body.as_chunks::<WORD_BYTES>();
        words::store(chunks, words);
        if !rest.is_empty() {
            self.merge(index + chunks.len(), 0, rest);
        }
    }

    /// Replaces some bytes of one word.
    #[inline]
    fn merge(&self, index: usize, skip: usize, bytes: &[u8]) {
        let (mask, value) = (first_bytes(bytes.len()) << (skip * 8), word_of(bytes) << (skip * 8));
        self.store(index, self.load(index) & !mask | value);
    }

    /// Moves the `count` words from the aligned offset `from` on one word up. Needs the latch exclusively.
    pub(crate) fn move_up(&self, from: usize, count: usize) {
        let first = from / WORD_BYTES;
        let words = self.0.get(first..=first + count).unwrap_or(&[]);
        for pair in words.windows(2).rev() {
            pair[1].store(pair[0].load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Moves the `count` words behind the one at the aligned offset `to` one word down. Needs the latch exclusively.
    pub(crate) fn move_down(&self, to: usize, count: usize) {
        let first = to / WORD_BYTES;
        let words = self.0.get(first..=first + count).unwrap_or(&[]);
        for pair in words.windows(2) {
            pair[0].store(pair[1].load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Fills the words from the aligned offset `from` on with zeros, up to the one that `to` lies in or begins. Needs
    /// the latch exclusively.
    pub(crate) fn clear_to(&self, from: usize, to: usize) {
        words::clear(self.0.get(from / WORD_BYTES..to.div_ceil(WORD_BYTES)).unwrap_or(&[]));
    }

    /// Fills the page with zeros. Needs the latch exclusively.
    pub fn clear(&self) {
        words::clear(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering as Order;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a plain byte array, at every offset, also past the end.
        #[test]
        fn words_behave_as_bytes(
            writes in prop::collection::vec((0..PAGE_BYTES + 64, prop::collection::vec(any::<u8>(), 0..40)), 1..40),
            offset in 0..PAGE_BYTES + 64,
            length in 0..70_usize,
            other in prop_oneof![prop::collection::vec(any::<u8>(), 0..10), prop::collection::vec(any::<u8>(), 0..70)],
        ) {
            let words = PageWords::default();
            let mut bytes = vec![0; PAGE_BYTES];
            for (at, data) in &writes {
                words.write(*at, data);
                for (index, byte) in data.iter().enumerate().filter(|(index, _)| at + index < PAGE_BYTES) {
                    bytes[at + index] = *byte;
                }
            }
            prop_assert_eq!(&words.snapshot().0[..], &bytes[..]);
            let mut padded = bytes.clone();
            padded.resize(PAGE_BYTES + 256, 0);
            prop_assert_eq!(words.u64(offset), u64::from_le_bytes(padded[offset..][..8].try_into().unwrap()));
            prop_assert_eq!(words.u32(offset), u32::from_le_bytes(padded[offset..][..4].try_into().unwrap()));
            prop_assert_eq!(words.u16(offset), u16::from_le_bytes(padded[offset..][..2].try_into().unwrap()));
            prop_assert_eq!(words.u8(offset), padded[offset]);
            let mine = &bytes[offset.min(PAGE_BYTES)..(offset + length).min(PAGE_BYTES).max(offset.min(PAGE_BYTES))];
            prop_assert_eq!(words.compare(offset, length, &other), mine.cmp(&other[..]));
            prop_assert_eq!(words.compare(offset, length, mine), Order::Equal);
            prop_assert!(words.has(offset, mine));
            prop_assert_eq!(words.has(offset, &other), bytes.get(offset..).unwrap_or(&[]).starts_with(&other));
            for changed in 0..mine.len() {
                let mut unlike = mine.to_vec();
                unlike[changed] ^= 1 << (changed % 8);
                prop_assert!(!words.has(offset, &unlike), "byte {} of {}", changed, mine.len());
            }
            let beyond = [mine, &[0]].concat();
            prop_assert!(offset + beyond.len() <= PAGE_BYTES || !words.has(offset, &beyond));
            let mut target = vec![7; length];
            words.copy_to(offset, &mut target);
            prop_assert_eq!(&target[..], &padded[offset..][..length]);
            let mut appended = vec![9];
            words.append_to(offset, length, &mut appended);
            prop_assert_eq!(&appended[1..], mine);
        }
    }

    #[test]
    fn extreme_offsets_stay_inside() {
        let words = PageWords::default();
        for offset in [PAGE_BYTES - 1, PAGE_BYTES, u16::MAX as usize, usize::MAX / 2] {
            words.write(offset, &[1; 16]);
            words.set_u64(offset & !7, 3);
            assert_eq!(
                words.compare(offset, usize::MAX / 2, &[]),
                if offset < PAGE_BYTES { Order::Greater } else { Order::Equal }
            );
            let mut target = Vec::new();
            words.append_to(offset, usize::MAX, &mut target);
            assert!(target.len() <= 1);
        }
    }

    #[test]
    fn words_move_over_each_other() {
        let words = PageWords::default();
        (0..8).for_each(|word| words.set_u64(64 + word * 8, word as u64));
        words.move_up(64, 8);
        assert_eq!(words.u64(64), 0);
        assert_eq!(words.u64(72), 0);
        assert_eq!(words.u64(128), 7);
        words.move_down(64, 8);
        assert_eq!(words.u64(64), 0);
        assert_eq!(words.u64(120), 7);
        assert_eq!(words.u64(128), 7);
        // What would leave the page stays as it is.
        words.set_u64(PAGE_BYTES - 8, 5);
        words.move_up(PAGE_BYTES - 8, 1);
        words.move_down(PAGE_BYTES - 8, 1);
        words.move_up(PAGE_BYTES, 0);
        assert_eq!(words.u64(PAGE_BYTES - 8), 5);
    }
}
