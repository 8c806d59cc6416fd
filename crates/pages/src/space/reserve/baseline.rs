//! The gallery: free pages without caches (Shore-MT §6.2.2, §7.3). Every allocation looks into the bitmaps.
//!
//! From Johnson et al. 2009: the free space manager first "acquired a page latch while holding the mutex"; then it let the mutex
//! go before, and then it got caches. Departures: there are bitmaps to search, no lists; what is handed out is reserved until
//! its bit is set, as on the road.

use foreshore_base::{PageId, Result, StorageError};

use crate::{pool::BufferPool, space::Space};

impl Space {
    /// Searches, and keeps nothing for the next time.
    pub(super) fn candidate_uncached(&self, pool: &BufferPool, hint: PageId) -> Result<PageId> {
        let mut run = self.reserve_run(pool, hint)?;
        let page = run.take(self.map());
        self.release_run(run);
        page.ok_or_else(|| StorageError::corrupt_page(hint, "an extent with a free page has none"))
    }

    /// The same, one thread at a time. Who holds a bitmap page waits for nobody here, so this ends.
    pub(super) fn candidate_alone(&self, pool: &BufferPool, hint: PageId) -> Result<PageId> {
        let _alone = self.reservations.searching.lock();
        self.candidate_uncached(pool, hint)
    }
}
