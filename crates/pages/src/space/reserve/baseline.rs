//! The gallery: free pages without caches (Shore-MT §6.2.2, §7.3). Every allocation looks into the bitmaps.
//!
//! From Johnson et al. 2009: the free space manager first "acquired a page latch while holding the mutex"; then it let
//! the mutex go before, and then it got caches. Departures: there are bitmaps to search, no lists; what is handed out
//! is reserved until its bit is set, as on the road. The spinlocks of its figure 6 stand in for the mutex; they let
//! others run after a while.

use foreshore_base::{PageId, Result, StorageError};
use foreshore_env::sync::Mutex;
use foreshore_latch::baseline::{Latch, Mcs, Ttas};

use super::{Demand, FreeSpaceKind};
use crate::{pool::BufferPool, space::Space};

/// What is held for a whole search: one of these, by the kind. They guard no data: a search alone is the baseline's
/// point.
#[derive(Debug, Default)]
pub(in crate::space) struct Searching {
    mutex: Mutex<()>,
    ttas: Ttas,
    mcs: Mcs,
}

impl Space {
    /// Searches, and keeps nothing for the next time.
    pub(super) fn candidate_uncached(&self, pool: &BufferPool, demand: Demand<'_>) -> Result<PageId> {
        let mut run = self.reserve_for(pool, demand)?;
        let page = run.take(self.map());
        self.release_run(run);
        page.ok_or_else(|| StorageError::corrupt_page(demand.hint, "an extent with a free page has none"))
    }

    /// [`Space::candidate_uncached`], one thread at a time. A thread that holds a bitmap page waits for nobody here, so
    /// this ends.
    pub(super) fn candidate_alone(&self, pool: &BufferPool, demand: Demand<'_>) -> Result<PageId> {
        let search = || self.candidate_uncached(pool, demand);
        let Searching { mutex, ttas, mcs } = &self.reservations.searching;
        match self.reservations.kind {
            FreeSpaceKind::GlobalTtas => ttas.exclusive(search),
            FreeSpaceKind::GlobalMcs => mcs.exclusive(search),
            _ => {
                let _alone = mutex.lock();
                search()
            }
        }
    }
}
