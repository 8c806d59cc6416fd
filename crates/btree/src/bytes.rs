//! Short byte strings without allocation, and what differs between two.

use std::num::NonZeroU64;

use foreshore_env::words::WORD_BYTES;
use foreshore_pages::PageWords;

/// A value, of which 256 bytes are kept in place.
pub(crate) type SmallValue = SmallBytes<33>;
/// A key, of which 128 are.
pub(crate) type SmallKey = SmallBytes<17>;

/// A byte string on the stack; a long one goes to the heap. For what is copied out of a page. So many words are kept in
/// place, one more than the bytes need, for they may begin within a word.
#[derive(Debug)]
pub(crate) struct SmallBytes<const WORDS: usize> {
    /// Where it begins in `inline`.
    start: usize,
    length: usize,
    inline: [[u8; WORD_BYTES]; WORDS],
    /// Holds the bytes when they are more than `inline` holds.
    spill: Vec<u8>,
}

impl<const WORDS: usize> SmallBytes<WORDS> {
    const INLINE_BYTES: usize = (WORDS - 1) * WORD_BYTES;

    #[inline]
    pub(crate) fn new() -> SmallBytes<WORDS> {
        SmallBytes { start: 0, length: 0, inline: [[0; WORD_BYTES]; WORDS], spill: Vec::new() }
    }

    /// Becomes the `length` bytes at `offset`, all of which lie in the page; where they do not, some of them are
    /// others.
    #[inline]
    pub(crate) fn copy(&mut self, words: &PageWords, offset: usize, length: usize) {
        if length > Self::INLINE_BYTES {
            return self.copy_long(words, offset, length);
        }
        // Whole words, with what is before and behind it in the first and the last: none is shifted.
        (self.start, self.length) = (offset % WORD_BYTES, length);
        let count = (self.start + length).div_ceil(WORD_BYTES);
        words.copy_words_at(offset, &mut self.inline[..count]);
    }

    #[inline(never)]
    fn copy_long(&mut self, words: &PageWords, offset: usize, length: usize) {
        words.copy_to(offset, self.resize(length));
    }

    /// Sets the length and gives the bytes, whatever they are, to be overwritten.
    #[inline]
    pub(crate) fn resize(&mut self, length: usize) -> &mut [u8] {
        (self.start, self.length) = (0, length);
        if length <= Self::INLINE_BYTES {
            return &mut self.inline.as_flattened_mut()[..length];
        }
        self.spill.resize(length, 0);
        &mut self.spill[..length]
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        if self.length <= Self::INLINE_BYTES {
            &self.inline.as_flattened()[self.start..self.start + self.length]
        } else {
            &self.spill[..self.length]
        }
    }
}

/// The first place where two values of equal length differ, and the end of the last; some bytes at a time.
#[inline]
pub(crate) fn difference(old: &[u8], new: &[u8]) -> Option<(usize, usize)> {
    // Most of a large value stays as it is.
    let same = old.as_rchunks::<32>().1.iter().rev().zip(new.as_rchunks().1.iter().rev());
    let end = old.len() - 32 * same.take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[..end], &new[..end]);

    let ((old_words, old_rest), (new_words, new_rest)) = (old.as_chunks(), new.as_chunks());
    let differs = |(old, new): (&[u8; WORD_BYTES], &[u8; WORD_BYTES])| {
        NonZeroU64::new(u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new))
    };
    let begin_of_rest = end - old_rest.len();
    let rest = || old_rest.iter().zip(new_rest).map(|(old, new)| old != new);
    let mut words = old_words.iter().zip(new_words).map(differs).enumerate();

    let first_word = words.find_map(|(word, bits)| Some((word, bits?)));
    let first = match first_word {
        Some((word, bits)) => word * WORD_BYTES + bits.trailing_zeros() as usize / 8,
        None => begin_of_rest + rest().position(|differs| differs)?,
    };
    let end = match rest().rposition(|differs| differs) {
        Some(last) => begin_of_rest + last + 1,
        None => {
            let (word, bits) = words.rev().find_map(|(word, bits)| Some((word, bits?))).or(first_word)?;
            (word + 1) * WORD_BYTES - bits.leading_zeros() as usize / 8
        }
    };
    Some((first, end))
}

#[cfg(test)]
mod tests {
    use foreshore_pages::PageWords;

    use super::{SmallValue, difference};

    #[test]
    fn bytes_are_those_of_the_page() {
        let page = PageWords::default();
        let content: Vec<u8> =
            (0..foreshore_base::limits::PAGE_BYTES).map(|at| (at * 7 % 251) as u8).collect();
        page.write(0, &content);
        let mut bytes = SmallValue::new();
        for offset in (64..80).chain(content.len() - 80..content.len()) {
            for length in (0..20).chain(SmallValue::INLINE_BYTES - 9..SmallValue::INLINE_BYTES + 9) {
                if let Some(expected) = content.get(offset..offset + length) {
                    bytes.copy(&page, offset, length);
                    assert_eq!(bytes.as_slice(), expected, "{length} at {offset}");
                }
            }
        }
    }

    #[test]
    fn the_difference_is_as_narrow_as_it_can_be() {
        for length in (0..40).chain(64..100) {
            let old = vec![7; length];
            assert_eq!(difference(&old, &old), None);
            for first in 0..length {
                for last in first..length {
                    let mut new = old.clone();
                    new[first] = 8;
                    new[last] = 9;
                    assert_eq!(difference(&old, &new), Some((first, last + 1)), "{length} bytes");
                }
            }
        }
    }
}
