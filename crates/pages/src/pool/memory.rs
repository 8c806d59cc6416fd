//! The memory of the pages: one piece, aligned, and untouched until a page comes to it.
//!
//! The allocator hands out zeros for nothing only where it need not look after a large alignment itself: asked for one,
//! it takes memory as it is and writes the zeros, and with them touches every page of the pool. So the piece is longer
//! by one alignment, asked for with a word's alignment, and the first page begins where the alignment wants it.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ptr::NonNull,
    slice,
};

use foreshore_base::limits::PAGE_BYTES;

use crate::words::PageWords;

/// Pages of zeros that take memory only once they are used.
#[derive(Debug)]
pub(super) struct PageMemory {
    /// What the allocator gave, and what it is asked to take back.
    allocation: NonNull<u8>,
    layout: Layout,
    /// The first page, inside the allocation.
    pages: NonNull<PageWords>,
    count: usize,
}

// SAFETY: the memory belongs to this value alone, and what it holds (arrays of atomic integers) may be used by any
// thread.
unsafe impl Send for PageMemory {}
// SAFETY: sharing it gives out `&PageWords` only, and those may be shared.
unsafe impl Sync for PageMemory {}

impl PageMemory {
    /// Memory for so many pages, all zeros; `None` if there is none.
    ///
    /// # Panics
    ///
    /// If `count` is 0.
    pub(super) fn zeroed(count: usize) -> Option<PageMemory> {
        assert!(count > 0, "a pool has frames");
        let layout = layout(count)?;
        // SAFETY: the layout has a size above 0, because `count` is.
        let memory = unsafe { alloc_zeroed(layout) };
        let allocation = NonNull::new(memory)?;
        let padding = memory.align_offset(align_of::<PageWords>());
        debug_assert!(padding < align_of::<PageWords>());
        // SAFETY: the padding is less than the alignment, by which the allocation is longer than its pages.
        let pages = unsafe { allocation.add(padding) }.cast::<PageWords>();
        Some(PageMemory { allocation, layout, pages, count })
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[PageWords] {
        // SAFETY: `pages` is aligned and has `count` pages behind it in one allocation that lives as long as `self`; a
        // `PageWords` is an array of atomic integers, for which zeros are valid; nobody has it exclusively.
        unsafe { slice::from_raw_parts(self.pages.as_ptr(), self.count) }
    }
}

impl Drop for PageMemory {
    fn drop(&mut self) {
        // SAFETY: the allocation came from the global allocator with this layout, and nobody uses it any more. Pages
        // have nothing to drop.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) }
    }
}

/// One alignment more than the pages need, aligned no more than the allocator aligns anyway.
fn layout(count: usize) -> Option<Layout> {
    let bytes = count.checked_mul(PAGE_BYTES)?.checked_add(align_of::<PageWords>())?;
    Layout::from_size_align(bytes, align_of::<u64>()).ok()
}

#[cfg(test)]
mod tests {
    use foreshore_base::StorageError;

    use super::*;
    use crate::pool::frame::Frames;

    #[test]
    fn pages_are_aligned_zeros_that_do_not_overlap() {
        for count in [1, 2, 8, 33] {
            let memory = PageMemory::zeroed(count).expect("there is memory");
            let pages = memory.as_slice();
            assert_eq!(pages.len(), count);
            for (index, page) in pages.iter().enumerate() {
                assert!(std::ptr::from_ref(page).addr().is_multiple_of(align_of::<PageWords>()));
                assert!((0..PAGE_BYTES).step_by(8).all(|offset| page.u64(offset) == 0));
                (0..PAGE_BYTES).step_by(8).for_each(|offset| page.set_u64(offset, index as u64 + 1));
            }
            for (index, page) in pages.iter().enumerate() {
                assert!((0..PAGE_BYTES).step_by(8).all(|offset| page.u64(offset) == index as u64 + 1));
            }
        }
    }

    #[test]
    fn more_than_there_is_room_for_is_an_error() {
        assert!(PageMemory::zeroed(usize::MAX / PAGE_BYTES).is_none());
        // No processor addresses so much.
        let error = Frames::new(1 << 45).unwrap_err();
        assert!(matches!(error, StorageError::OutOfMemory { .. }), "{error}");
    }

    /// Bytes of this process that are in memory.
    #[cfg(target_os = "linux")]
    fn resident_bytes() -> u64 {
        use foreshore_env::disk::{Disk, OpenMode, RealDisk};
        let file = RealDisk.open(std::path::Path::new("/proc/self/statm"), OpenMode::Read).unwrap();
        let mut text = [0; 128];
        let length = file.read_at(&mut text, 0).unwrap();
        let text = std::str::from_utf8(&text[..length]).unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn untouched_pages_take_no_memory() {
        const BYTES: usize = 1 << 30;
        let before = resident_bytes();
        let memory = PageMemory::zeroed(BYTES / PAGE_BYTES).expect("there is memory");
        for index in [0, 77, BYTES / PAGE_BYTES - 1] {
            let page = &memory.as_slice()[index];
            assert_eq!(page.u64(PAGE_BYTES - 8), 0);
            page.set_u64(PAGE_BYTES - 8, 7);
        }
        // The other tests of this process take some meanwhile.
        let taken = resident_bytes().saturating_sub(before);
        assert!(taken < BYTES as u64 / 2, "{taken} bytes for three pages");
    }
}
