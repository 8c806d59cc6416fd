//! Short byte strings without allocation.

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
