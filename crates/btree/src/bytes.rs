//! Short byte strings without allocation, and what differs between two.

/// Bytes kept in place.
const INLINE_BYTES: usize = 256;

/// A byte string on the stack; a long one goes to the heap. For keys and values that are copied out of a page.
#[derive(Debug)]
pub(crate) struct SmallBytes {
    length: usize,
    inline: [u8; INLINE_BYTES],
    /// Holds the bytes when they are more than `inline` holds.
    spill: Vec<u8>,
}

impl SmallBytes {
    #[inline]
    pub(crate) fn new() -> SmallBytes {
        SmallBytes { length: 0, inline: [0; INLINE_BYTES], spill: Vec::new() }
    }

    /// Sets the length and gives the bytes, whatever they are, to be overwritten.
    #[inline]
    pub(crate) fn resize(&mut self, length: usize) -> &mut [u8] {
        self.length = length;
        if length <= INLINE_BYTES {
            return &mut self.inline[..length];
        }
        self.spill.resize(length, 0);
        &mut self.spill[..length]
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        if self.length <= INLINE_BYTES { &self.inline[..self.length] } else { &self.spill[..self.length] }
    }

    /// Lets `fill` put the bytes into a vector.
    pub(crate) fn set_with(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        self.spill.clear();
        fill(&mut self.spill);
        self.length = self.spill.len();
        if self.length <= INLINE_BYTES {
            self.inline[..self.length].copy_from_slice(&self.spill);
        }
    }
}

/// The first place where two values of equal length differ, and the end of the last; eight bytes at a time.
#[inline]
pub(crate) fn difference(old: &[u8], new: &[u8]) -> Option<(usize, usize)> {
    let ((old_words, old_rest), (new_words, new_rest)) = (old.as_chunks::<8>(), new.as_chunks::<8>());
    let words = old_words.iter().zip(new_words).take_while(|(old, new)| old == new).count();
    let start = words * 8;
    let first = start + old[start..].iter().zip(&new[start..]).position(|(old, new)| old != new)?;

    let rest = old_rest.iter().zip(new_rest).rposition(|(old, new)| old != new);
    let last = rest.map(|last| old.len() - old_rest.len() + last).or_else(|| {
        let word = old_words.iter().zip(new_words).rposition(|(old, new)| old != new)?;
        let last = old_words[word].iter().zip(&new_words[word]).rposition(|(old, new)| old != new)?;
        Some(word * 8 + last)
    })?;
    Some((first, last + 1))
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn the_difference_is_as_narrow_as_it_can_be() {
        for length in 0..40 {
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
