//! Giving space back: the pages at the end of the file move to free ones before, and the file is cut.
//!
//! A compaction sets a *ceiling*: from there on no page is allocated. What lies above is moved below, a page a record,
//! by whoever knows what refers to it. Then
//!
//! 1. the new end is chosen: nothing above it is in use, nor reserved, and because of the ceiling nothing will be;
//! 2. a checkpoint is taken: the records that freed those pages are durable, and recovery begins behind them;
//! 3. the header page counts no page any more that will be cut off, durably (PAGE-19);
//! 4. the file is cut (PAGE-15).
//!
//! So recovery never meets a record of a page that was cut off, but for records of a later life of it, which begins
//! with one that writes it whole, and lengthens the file again.
//!
//! Whoever finds no free page below the ceiling lifts it, and the compaction ends without a cut: it never makes
//! anybody's work fail, nor wait.

use foreshore_base::{PageId, Result, StorageError, limits::PAGE_BYTES};
use foreshore_env::sync::atomic::Ordering;
use foreshore_latch::Patience;

use super::{EXTENT_PAGES, FIRST_PAGES, FREE_IN_USE, Header, NewPage, Space, bitmap, reserve::Run};
use crate::pool::BufferPool;

/// Free pages that are left for writers during the compaction and after it: this many, and one more for this many pages
/// in use.
const LEAST_SLACK: u64 = 16;
const SLACK_SHARE: u64 = 32;

/// A compaction under way. Its drop ends it.
#[derive(Debug)]
#[must_use]
pub struct Compaction<'p> {
    pool: &'p BufferPool,
    ceiling: u64,
    /// Where pages move to.
    run: Option<Run>,
}

/// Where the file can be cut, once a checkpoint has been taken.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct NewEnd(pub(super) u64);

impl BufferPool {
    /// The length in pages to which the file can be compacted: all that is in use, and some room.
    pub fn least_page_count(&self) -> Result<u64> {
        let pages = self.page_count();
        let fixed = 1 + pages.div_ceil(self.space.span);
        Ok(self.space.least_pages(pages.saturating_sub(self.free_page_count()? + fixed)))
    }

    /// Begins to compact the file to so many pages; `None`: it has no more, or a compaction is under way.
    pub fn begin_compaction(&self, pages: u64) -> Option<Compaction<'_>> {
        let ceiling = pages.max(EXTENT_PAGES).next_multiple_of(EXTENT_PAGES);
        if ceiling >= self.page_count() || !self.space.map().lock().begin_compaction(ceiling) {
            return None;
        }
        self.space.release_runs_beyond(ceiling);
        Some(Compaction { pool: self, ceiling, run: None })
    }
}

impl Space {
    /// The length of a file that has room for so many pages in use, and some.
    fn least_pages(&self, used: u64) -> u64 {
        let wanted = used + LEAST_SLACK + used / SLACK_SHARE;
        let mut pages = FIRST_PAGES.min(self.span);
        // The header page, and a bitmap page for each span.
        while pages < wanted + 1 + pages.div_ceil(self.span) {
            pages = (wanted + 1 + pages.div_ceil(self.span)).next_multiple_of(EXTENT_PAGES);
        }
        pages
    }

    /// A free page below the ceiling, of the run or of the next one; `None`: there is none.
    pub(super) fn take_below(
        &self,
        pool: &BufferPool,
        run: &mut Option<Run>,
        ceiling: u64,
        patience: Patience<'_>,
    ) -> Result<Option<PageId>> {
        loop {
            if let Some(page) = run.as_mut().and_then(|run| run.take(self.map())) {
                if u64::from(page.0) < ceiling {
                    return Ok(Some(page));
                }
                // Somebody has lifted the ceiling, and the run reaches beyond.
                self.settle(page, false);
                return Ok(None);
            }
            if let Some(used_up) = run.take() {
                self.release_run(used_up);
            }
            let first = self.map().lock().first_free;
            let Some(found) = self.search(pool, first, ceiling, patience)? else { return Ok(None) };
            self.take_space(pool, found).inspect_err(|_| self.release_run(found))?;
            *run = Some(found);
        }
    }
}

impl<'p> Compaction<'p> {
    /// The pages in use that lie above the ceiling, the last one first.
    pub fn pages_above(&self) -> Result<Vec<PageId>> {
        let mut above = Vec::new();
        self.pool.visit_allocated(&mut |page| {
            if u64::from(page.0) >= self.ceiling {
                above.push(page);
            }
        })?;
        above.reverse();
        Ok(above)
    }

    /// A page below the ceiling for the content of `from`, which is above; committing it frees `from`. `None`: there is
    /// none. It is waited for with the end of [`BufferPool::optimistic_within`].
    ///
    /// The caller holds `from` and `referrer`, which refers to it, but no [`NewPage`] or
    /// [`FreeingPage`](super::FreeingPage) (PAGE-10).
    ///
    /// # Errors
    /// Among others `Corrupted` if the bitmap gives `referrer` away: the caller would wait for itself.
    pub fn page_for(
        &mut self,
        from: PageId,
        referrer: PageId,
        patience: Patience<'_>,
    ) -> Result<Option<NewPage<'p>>> {
        if u64::from(from.0) < self.ceiling {
            return Ok(None);
        }
        match self.pool.space.take_below(self.pool, &mut self.run, self.ceiling, patience)? {
            Some(to) if to == referrer => {
                self.pool.space.settle(to, false);
                Err(StorageError::corrupt_page(to, FREE_IN_USE))
            }
            Some(to) => self.pool.take_page_of(to, from, patience).map(Some),
            None => Ok(None),
        }
    }

    /// Chooses where the file will end: behind the last page above the ceiling that is in use or spoken for. The caller
    /// takes a checkpoint after this and before [`Compaction::cut`].
    pub fn choose_end(&self) -> Result<NewEnd> {
        let space = &self.pool.space;
        space.release_runs_beyond(self.ceiling);
        // First this, then the bits: a page that was handed out is in one of them.
        let spoken_for = space.map().lock().end();
        let mut end = self.ceiling.max(spoken_for);
        let pages = self.pool.page_count();
        let spans = (self.ceiling / space.span..pages.div_ceil(space.span)).rev();
        for start in spans.map(|number| number * space.span) {
            let bitmap = self.pool.bitmap_shared(PageId(start as u32))?;
            let in_span = space.span.min(pages - start);
            let last = (0..in_span).rev().find(|index| {
                bitmap::get(bitmap.words(), *index) && !space.is_fixed(PageId((start + index) as u32))
            });
            if let Some(last) = last {
                end = end.max(start + last + 1);
                break;
            }
        }
        Ok(NewEnd(end.next_multiple_of(EXTENT_PAGES)))
    }

    /// Cuts the file, durably, if the compaction was not ended to make way for somebody; gives how many pages that
    /// were. Every checkpoint that recovery could begin at began after [`Compaction::choose_end`] (PAGE-15). Nothing is
    /// cut off either while somebody keeps what would be from being written.
    pub fn cut(self, NewEnd(end): NewEnd) -> Result<u64> {
        let pool = self.pool;
        let space = &pool.space;
        // Nobody closes the pool. First: a sweep waits for latches, whose holders may wait for the file to grow.
        let mut header = pool.sweeping.lock();
        // Nobody changes these pages any more, so they stay clean, unless the ceiling is lifted.
        if !pool.write_from(PageId(end as u32))? {
            return Ok(0);
        }
        pool.check_open()?;
        // Durable before the file is shorter (PAGE-19), and before whoever needs a longer one would wait for it. If
        // nothing is cut after all, the next sweep counts anew.
        let new = Header { count: end.min(header.count), ..*header };
        pool.write_header(&mut header, new)?;
        pool.sync()?;
        // Nobody grows the file, nor lifts the ceiling.
        let mut reserved = space.growing.lock();
        let pages = space.page_count();
        if !space.map().lock().has_ceiling() || end >= pages {
            return Ok(0);
        }
        space.pages.store(end, Ordering::Release);
        for page in end..pages {
            pool.forget(PageId(page as u32));
        }
        *reserved = end.min(*reserved);
        let length = end * PAGE_BYTES as u64;
        pool.file
            .set_len(length)
            .map_err(StorageError::io(format!("cut {} pages off", pages - end), &pool.path))?;
        drop(reserved);
        pool.sync()?;
        Ok(pages - end)
    }
}

impl Drop for Compaction<'_> {
    fn drop(&mut self) {
        let space = &self.pool.space;
        if let Some(run) = self.run.take() {
            space.release_run(run);
        }
        space.map().lock().end_compaction();
    }
}
