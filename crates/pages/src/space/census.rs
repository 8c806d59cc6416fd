//! Which pages are in use, and how many are not.

use foreshore_base::{PageId, Result};

use super::{EXTENT_PAGES, bitmap};
use crate::{layout::PAGE_HEADER_BYTES, pool::BufferPool};

impl BufferPool {
    /// Whether page `id` is marked as in use.
    pub fn is_allocated(&self, id: PageId) -> Result<bool> {
        if u64::from(id.0) >= self.page_count() {
            return Ok(false);
        }
        let bitmap = self.bitmap_shared(id)?;
        Ok(self.space.bit(bitmap.words(), id))
    }

    /// Pages of the file that hold nothing and may be allocated. Exact when nobody allocates meanwhile.
    pub fn free_page_count(&self) -> Result<u64> {
        let (pages, span) = (self.page_count(), self.space.span);
        let mut free = 0;
        for start in (0..pages).step_by(span as usize) {
            let bitmap = self.bitmap_shared(PageId(start as u32))?;
            for extent in (0..span.min(pages - start)).step_by(EXTENT_PAGES as usize) {
                free += u64::from(bitmap::free_in_extent(bitmap.words(), extent).count_ones());
            }
        }
        Ok(free)
    }

    /// Visits the pages that are marked as in use, in order, but for the header page and the bitmap pages. Exact when
    /// nobody allocates meanwhile.
    pub fn visit_allocated(&self, visit: &mut dyn FnMut(PageId)) -> Result<()> {
        let (pages, span) = (self.page_count(), self.space.span);
        for start in (0..pages).step_by(span as usize) {
            let bitmap = self.bitmap_shared(PageId(start as u32))?.words().snapshot();
            let body = &bitmap.0[PAGE_HEADER_BYTES..];
            for index in 0..span.min(pages - start) {
                let page = PageId((start + index) as u32);
                if body[index as usize / 8] >> (index % 8) & 1 != 0 && !self.space.is_fixed(page) {
                    visit(page);
                }
            }
        }
        Ok(())
    }
}
