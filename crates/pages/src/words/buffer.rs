//! Pages in private memory.

use std::fmt;

use foreshore_base::limits::PAGE_BYTES;

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
