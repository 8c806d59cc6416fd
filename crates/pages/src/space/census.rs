//! Which pages are in use, and how many are not.

use foreshore_base::{PageId, Result, StorageError, limits::PAGE_BYTES};
use foreshore_env::disk::DiskFile;

use super::{EXTENT_PAGES, Space, alloc::GIVES_FIXED, bitmap};
use crate::{
    layout::PAGE_HEADER_BYTES,
    pool::{BufferPool, SharedPage},
};

/// Where the hole ends that begins with a page, `from` itself if none does. A page of which a part lies in a hole does
/// not.
pub(crate) fn hole_end(file: &dyn DiskFile, from: u64, pages: u64) -> u64 {
    // A system that cannot say has none.
    let data = file.next_data(from * PAGE_BYTES as u64).unwrap_or(Some(0));
    data.map_or(pages, |place| place / PAGE_BYTES as u64).clamp(from, pages.max(from))
}

impl Space {
    /// Whether so many of the first `below` pages are free, put aside or not, as far as the bitmap pages say that are
    /// in memory: for room for another one the cleaner, which asks, might have to wait for itself.
    pub(super) fn has_free(&self, pool: &BufferPool, below: u64, wanted: u64) -> Result<bool> {
        let first_free = self.map().lock().first_free;
        let (mut free, mut start) = (0, first_free / self.span * self.span);
        while free < wanted && start < below {
            if pool.resident(self.bitmap_of(PageId(start as u32))).is_some()
                && let Some((bitmap, pages)) = pool.span_at(start)?
            {
                for extent in (0..pages.min(below - start)).step_by(EXTENT_PAGES as usize) {
                    free += u64::from(bitmap::free_in_extent(bitmap.words(), extent).count_ones());
                }
            }
            start += self.span;
        }
        Ok(free >= wanted)
    }
}

impl BufferPool {
    /// The bitmap page of the span that begins at `start`, and how many pages of the span the file has; `None`: it has
    /// none. A bitmap page that cannot be had because the file is being cut is no damage.
    fn span_at(&self, start: u64) -> Result<Option<(SharedPage<'_>, u64)>> {
        loop {
            let pages = self.page_count();
            if start >= pages {
                return Ok(None);
            }
            match self.bitmap_shared(PageId(start as u32)) {
                Err(StorageError::Corrupted { .. }) if self.page_count() != pages => {}
                bitmap => return Ok(Some((bitmap?, self.space.span.min(pages - start)))),
            }
        }
    }

    /// Whether page `id` is marked as in use.
    pub fn is_allocated(&self, id: PageId) -> Result<bool> {
        let index = u64::from(id.0) % self.space.span;
        let span = self.span_at(u64::from(id.0) - index)?;
        Ok(span.is_some_and(|(bitmap, pages)| index < pages && bitmap::get(bitmap.words(), index)))
    }

    /// The first page from `from` on, which may be the end, of which there is something: in memory, in the file, or a
    /// mark that it is in use. Holes of the file are passed over without being read. For a caller that has the database
    /// alone.
    pub fn next_page(&self, from: u64) -> u64 {
        let pages = self.page_count();
        let end = hole_end(&*self.file, from, pages);
        // Page by page as far as there are frames; for what is left of a hole that is longer the frames are fewer.
        let near = end.min(from + self.frame_count() as u64);
        let (mut number, mut in_memory) = (from, None);
        while number < end {
            let start = number - number % self.space.span;
            let stop = if number < near { near } else { end }.min(start + self.space.span);
            let bitmap = self.space.bitmap_of(PageId(number as u32));
            // One that lies in the hole itself marks nothing, unless it is in memory.
            let says_something = u64::from(bitmap.0) < from || self.resident(bitmap).is_some();
            let bitmap = says_something.then(|| self.bitmap_shared(bitmap).ok()).flatten();
            let is_marked =
                |number: &u64| bitmap.as_ref().is_some_and(|page| bitmap::get(page.words(), number - start));
            let is_resident = |number: &u64| self.resident(PageId(*number as u32)).is_some();
            let used = if number < near {
                (number..stop).find(|number| is_marked(number) || is_resident(number))
            } else {
                let resident = *in_memory.get_or_insert_with(|| self.first_in_memory(number, end));
                let marked = bitmap.is_some().then(|| (number..stop).find(is_marked)).flatten();
                resident.into_iter().filter(|resident| *resident < stop).chain(marked).min()
            };
            if let Some(used) = used {
                return used;
            }
            number = stop;
        }
        // What was in memory may have been written meanwhile.
        if hole_end(&*self.file, from, pages) == end { end } else { from }
    }

    /// The first page from `from` on that is in a frame, if it comes before `end`.
    fn first_in_memory(&self, from: u64, end: u64) -> Option<u64> {
        let pages = self.all_frames().map(|place| place.frame.page()).filter(|page| page.is_some());
        pages.map(|page| u64::from(page.0)).filter(|number| (from..end).contains(number)).min()
    }

    /// Pages of the file that hold nothing and may be allocated. Exact when nobody allocates meanwhile, nor cuts the
    /// file.
    pub fn free_page_count(&self) -> Result<u64> {
        let (mut free, mut start) = (0, 0);
        while let Some((bitmap, pages)) = self.span_at(start)? {
            for extent in (0..pages).step_by(EXTENT_PAGES as usize) {
                free += u64::from(bitmap::free_in_extent(bitmap.words(), extent).count_ones());
            }
            start += self.space.span;
        }
        Ok(free)
    }

    /// Whether the file ends before a page that is marked as in use, as one does that was cut. The caller sees to it
    /// that no compaction cuts it meanwhile.
    ///
    /// # Errors
    /// `Corrupted` then, with the first such page.
    pub fn check_file_end(&self) -> Result<()> {
        let span = self.space.span;
        let start = (self.page_count() - 1) / span * span;
        let bitmap = self.bitmap_shared(PageId(start as u32))?.words().snapshot();
        // Asked behind the look at the bits: the file has grown before a page behind its old end is marked.
        let pages = self.page_count();
        let is_used = |page: &u64| {
            let index = (page - start) as usize;
            bitmap.0[PAGE_HEADER_BYTES + index / 8] >> (index % 8) & 1 != 0
        };
        match (pages.min(start + span)..start + span).find(is_used) {
            Some(page) => {
                let detail =
                    format!("it is in use, but the file ends before it: it has {pages} pages, and was cut");
                Err(StorageError::corrupt_page(PageId(page as u32), detail))
            }
            None => Ok(()),
        }
    }

    /// Visits the pages that are marked as in use, in order, but for the header page and the bitmap pages. Exact when
    /// nobody allocates meanwhile; a file that is cut meanwhile has none of what is cut off.
    ///
    /// # Errors
    /// Among others `Corrupted` if one of these is marked as free.
    pub fn visit_allocated(&self, visit: &mut dyn FnMut(PageId)) -> Result<()> {
        let mut start = 0;
        while let Some((bitmap, pages)) = self.span_at(start)? {
            let bits = bitmap.words().snapshot();
            // `visit` may take its time.
            drop(bitmap);
            let body = &bits.0[PAGE_HEADER_BYTES..];
            for index in 0..pages {
                let page = PageId((start + index) as u32);
                match (body[index as usize / 8] >> (index % 8) & 1 != 0, self.space.is_fixed(page)) {
                    (true, false) => visit(page),
                    (false, true) => {
                        return Err(StorageError::corrupt_page(self.space.bitmap_of(page), GIVES_FIXED));
                    }
                    _ => {}
                }
            }
            start += self.space.span;
        }
        Ok(())
    }
}
