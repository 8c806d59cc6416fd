//! What a page has, compared with keys.

use std::cmp::Ordering;

use foreshore_env::words::WORD_BYTES;

use super::{PageWords, clamp, first_bytes, word_of};

impl PageWords {
    /// Compares `length` bytes at `offset` with `other`, as byte strings. Of bytes past the page's end there are none.
    #[inline]
    pub fn compare(&self, offset: usize, length: usize, other: &[u8]) -> Ordering {
        let length = clamp(offset, length);
        if other.len() > WORD_BYTES {
            return self.compare_words(offset, length, other);
        }
        // Most of what is left of a key behind its node's prefix. No branches: in a search nobody can foretell them.
        let mask = first_bytes(length.min(other.len()));
        let (mine, theirs) = (self.u64(offset) & mask, word_of(other) & mask);
        mine.swap_bytes().cmp(&theirs.swap_bytes()).then(length.cmp(&other.len()))
    }

    /// Whether the first `bytes` of `other`, at most eight, are those at `offset`.
    #[inline]
    pub(crate) fn agree(&self, offset: usize, other: &[u8; WORD_BYTES], bytes: usize) -> bool {
        (self.u64(offset) ^ u64::from_le_bytes(*other)) & first_bytes(bytes) == 0
    }

    /// Whether the bytes at `offset` are these, all of them in the page.
    #[inline]
    pub(crate) fn has(&self, offset: usize, bytes: &[u8]) -> bool {
        if clamp(offset, bytes.len()) < bytes.len() {
            return false;
        }
        let Some(last) = bytes.last_chunk() else {
            return (self.u64(offset) ^ word_of(bytes)) & first_bytes(bytes.len()) == 0;
        };
        // The last one overlaps the one before it: nothing is masked.
        let (chunks, _) = bytes.as_chunks::<WORD_BYTES>();
        let places = (offset..).step_by(WORD_BYTES);
        chunks.iter().zip(places).all(|(chunk, place)| self.u64(place) == u64::from_le_bytes(*chunk))
            && self.u64(offset + bytes.len() - WORD_BYTES) == u64::from_le_bytes(*last)
    }

    fn compare_words(&self, offset: usize, length: usize, other: &[u8]) -> Ordering {
        let (chunks, rest) = other[..length.min(other.len())].as_chunks::<WORD_BYTES>();
        let mut next = self.words_from(offset);
        for chunk in chunks {
            let (mine, theirs) = (next(), u64::from_le_bytes(*chunk));
            if mine != theirs {
                return mine.swap_bytes().cmp(&theirs.swap_bytes());
            }
        }
        if !rest.is_empty() {
            let (mine, theirs) = (next() & first_bytes(rest.len()), word_of(rest));
            if mine != theirs {
                return mine.swap_bytes().cmp(&theirs.swap_bytes());
            }
        }
        length.cmp(&other.len())
    }

    /// The first eight bytes of the `length` at `offset` as a number that sorts as they do; zeros follow fewer.
    #[inline]
    pub(crate) fn sort_key(&self, offset: usize, length: usize) -> u64 {
        let word = self.u64(offset).swap_bytes();
        if length >= WORD_BYTES { word } else { word & !(u64::MAX >> (length * 8)) }
    }
}
