//! The road: a two-level array of frame numbers.
//!
//! A hit is two loads and writes nothing. The second level is made leaf by leaf as the data file grows, and never
//! goes away, so no reader has to be waited for.

use foreshore_base::{FrameIndex, PageId};
use foreshore_env::sync::{
    OnceLock,
    atomic::{AtomicU32, Ordering},
};

/// Page ids that one leaf covers, as a power of two.
const LEAF_BITS: u32 = 17;
const LEAF_ENTRIES: usize = 1 << LEAF_BITS;
const LEAVES: usize = 1 << (u32::BITS - LEAF_BITS);

/// No frame holds the page. Other entries are frame numbers plus one.
const ABSENT: u32 = 0;

/// Entries are frame number + 1. Set from `ABSENT` by compare-and-swap, by the one that holds the frame exclusively;
/// set back to `ABSENT` by the exclusive holder of the frame that the entry names.
type Leaf = Box<[AtomicU32]>;

/// The table. A page has at most one entry, so it is in at most one frame (PAGE-4).
#[derive(Debug)]
pub(in crate::pool) struct PageTable {
    leaves: Box<[OnceLock<Leaf>]>,
}

impl PageTable {
    pub(in crate::pool) fn new() -> PageTable {
        PageTable { leaves: (0..LEAVES).map(|_| OnceLock::new()).collect() }
    }

    /// The frame that holds `page`, as far as anybody can know without its latch.
    #[inline]
    pub(in crate::pool) fn get(&self, page: PageId) -> Option<FrameIndex> {
        let leaf = self.leaves[(page.0 >> LEAF_BITS) as usize].get()?;
        // Acquire pairs with the Release of `insert`: the frame is seen latched, or later.
        match leaf[page.0 as usize % LEAF_ENTRIES].load(Ordering::Acquire) {
            ABSENT => None,
            entry => Some(FrameIndex(entry - 1)),
        }
    }

    fn entry(&self, page: PageId) -> &AtomicU32 {
        let leaf = self.leaves[(page.0 >> LEAF_BITS) as usize]
            .get_or_init(|| (0..LEAF_ENTRIES).map(|_| AtomicU32::new(ABSENT)).collect());
        &leaf[page.0 as usize % LEAF_ENTRIES]
    }

    /// Enters `page`; false when it is in a frame already. The caller holds `frame` exclusively.
    pub(in crate::pool) fn insert(&self, page: PageId, frame: FrameIndex) -> bool {
        self.entry(page).compare_exchange(ABSENT, frame.0 + 1, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Takes `page` out. The caller holds its frame exclusively.
    pub(in crate::pool) fn remove(&self, page: PageId) {
        self.entry(page).store(ABSENT, Ordering::Release);
    }
}
