//! Pages in private memory.

use std::fmt;

use foreshore_base::limits::PAGE_BYTES;
use foreshore_env::words;

use super::PageWords;

/// A page in private memory, as it is on disk.
#[derive(Clone)]
#[repr(C, align(64))]
pub struct PageBuffer(pub [u8; PAGE_BYTES]);

impl PageBuffer {
    /// A page of zeros.
    pub const fn zeroed() -> PageBuffer {
        PageBuffer([0; PAGE_BYTES])
    }

    /// A page of zeros on the heap.
    pub fn boxed() -> Box<PageBuffer> {
        Box::new(PageBuffer::zeroed())
    }
}

impl fmt::Debug for PageBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageBuffer").finish_non_exhaustive()
    }
}

impl PageWords {
    /// A private copy. Torn, unless the caller holds the latch or validates.
    pub fn snapshot(&self) -> Box<PageBuffer> {
        let mut buffer = PageBuffer::boxed();
        self.store_to(&mut buffer.0);
        buffer
    }

    /// Copies the words from word `first` on; as many as there are, if `target` has room for more.
    pub(crate) fn copy_words(&self, first: usize, target: &mut [u8]) {
        words::load(self.0.get(first..).unwrap_or(&[]), target.as_chunks_mut().0);
    }

    /// Copies the whole page.
    pub fn store_to(&self, target: &mut [u8; PAGE_BYTES]) {
        self.copy_words(0, target);
    }

    /// Replaces the whole page. Needs the latch exclusively.
    pub fn load_from(&self, buffer: &[u8; PAGE_BYTES]) {
        words::store(buffer.as_chunks().0, &self.0);
    }
}
