//! Frames: the fixed places in memory that pages come to.
//!
//! ```text
//!            claim: latch exclusively        place: translation set     load or format
//!   empty ────────────────────────▶ claimed ────────────────────▶ arriving ──────────▶ clean ◀──────┐
//!     ▲                                                               │ error            │  prepare │ written and
//!     └───────────────────────────────────────────────────────────────┘                  ▼          │ unchanged
//!     evict: latch exclusively, clean and not in transit            clean ─────▶ empty  dirty ───────┘
//! ```

use foreshore_base::{FrameIndex, Lsn, PageId, Result, StorageError, limits::PAGE_BYTES};
use foreshore_env::{
    hint,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time::Instant,
};
use foreshore_latch::{
    HybridLatch,
    parking::{self, Parked},
};

use super::{BufferPool, FEWEST_LOOKS, memory::PageMemory};
use crate::words::PageWords;

/// No write of the page is in transit.
const IDLE: u32 = 0;
/// A write is in transit.
const WRITING: u32 = 1;
/// A write is in transit and somebody waits for its end.
const AWAITED: u32 = 2;

/// What the pool keeps about a frame, on a cache line of its own; the page's bytes are elsewhere.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Frame {
    /// Guards the page's bytes and the fields below as they say.
    pub(crate) latch: HybridLatch,
    /// The page in the frame, 0 for none. Written by the exclusive holder; read under the latch, or optimistically and
    /// then validated. Relaxed: the latch orders it.
    page: AtomicU32,
    /// CLOCK's bit: used since the hand last passed. Written by anybody, relaxed; a lost update costs one load.
    referenced: AtomicBool,
    /// `IDLE`, `WRITING` or `AWAITED`. Set by compare-and-swap by the one who copies the page for writing, cleared by
    /// the same when the write has ended: two writes of one page are never in transit together (PAGE-5).
    transit: AtomicU32,
    /// A bound from below for the oldest record whose change is not in the file; 0: there is none, the page is clean.
    /// Set by the exclusive holder. Cleared or raised by the writer in transit under the shared latch.
    recovery_lsn: AtomicU64,
}

impl Frame {
    #[inline]
    pub(crate) fn page(&self) -> PageId {
        PageId(self.page.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn holds(&self, page: PageId) -> bool {
        self.page() == page
    }

    pub(super) fn set_page(&self, page: PageId) {
        self.page.store(page.0, Ordering::Relaxed);
    }

    /// Tells CLOCK that the page is in use; writes only if nobody has said so since the hand passed.
    #[inline]
    pub(super) fn touch(&self) {
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn is_referenced(&self) -> bool {
        self.referenced.load(Ordering::Relaxed)
    }

    pub(super) fn forget_reference(&self) {
        self.referenced.store(false, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn recovery_lsn(&self) -> Lsn {
        Lsn(self.recovery_lsn.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn is_dirty(&self) -> bool {
        self.recovery_lsn() != Lsn::ZERO
    }

    pub(crate) fn set_recovery_lsn(&self, lsn: Lsn) {
        self.recovery_lsn.store(lsn.0, Ordering::Relaxed);
    }

    /// Marks the page dirty from `lsn` on, unless it has been dirty for longer. Needs the latch exclusively.
    pub(crate) fn mark_dirty(&self, lsn: Lsn) {
        if !self.is_dirty() {
            self.set_recovery_lsn(lsn);
        }
    }

    pub(crate) fn is_in_transit(&self) -> bool {
        // Acquire pairs with the Release of `Transit::drop`.
        self.transit.load(Ordering::Acquire) != IDLE
    }

    /// Announces a write; `None` while another one is in transit.
    pub(super) fn begin_write(&self) -> Option<Transit<'_>> {
        // Acquire pairs with the Release of the last writer's end: its write is in the file before the next begins.
        self.transit
            .compare_exchange(IDLE, WRITING, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Transit { frame: self })
    }

    /// Even, as the parking lot wants it of everybody but latches.
    fn transit_address(&self) -> usize {
        std::ptr::from_ref(&self.transit).addr()
    }

    /// Waits until no write is in transit; false when `deadline` passed before, and this thread has looked around often
    /// enough to tell (PAGE-17).
    pub(super) fn await_write(&self, mut deadline: Instant) -> bool {
        let mut looks = 0_u32;
        loop {
            // Acquire, should it have ended: pairs with the Release of `Transit::drop`.
            let announced =
                self.transit.compare_exchange(WRITING, AWAITED, Ordering::Relaxed, Ordering::Acquire);
            if announced == Err(IDLE) {
                return true;
            }
            // The writer sets IDLE and then takes the space's mutex to wake: it is seen here, or finds this thread.
            let awaited = || self.transit.load(Ordering::Relaxed) == AWAITED;
            let look = || {
                looks = looks.saturating_add(1);
                true
            };
            match parking::park(self.transit_address(), awaited, Some(deadline), look) {
                Parked::Woken | Parked::NotNeeded => {}
                Parked::Deadline | Parked::GaveUp if looks < FEWEST_LOOKS => {
                    deadline = BufferPool::latch_deadline();
                }
                Parked::Deadline | Parked::GaveUp => return false,
            }
        }
    }
}

/// A write in transit; its drop is the end of it.
#[derive(Debug)]
pub(super) struct Transit<'p> {
    frame: &'p Frame,
}

impl Drop for Transit<'_> {
    fn drop(&mut self) {
        // Release pairs with the Acquire of whoever looks for the end.
        if self.frame.transit.swap(IDLE, Ordering::Release) == AWAITED {
            parking::unpark_all(self.frame.transit_address());
        }
    }
}

/// All frames and their pages. Neither moves nor shrinks before the pool goes: a frame's memory is always a page's,
/// only of which page may change (PAGE-4).
#[derive(Debug)]
pub(super) struct Frames {
    frames: Box<[Frame]>,
    pages: PageMemory,
}

impl Frames {
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn new(count: usize) -> Result<Frames> {
        let error = StorageError::OutOfMemory { bytes: count as u64 * PAGE_BYTES as u64 };
        // First, because the frames are filled in: whoever asks for too much is told before that.
        let Some(pages) = PageMemory::zeroed(count) else { return Err(error) };
        let mut frames = Vec::new();
        if frames.try_reserve_exact(count).is_err() {
            return Err(error);
        }
        // Before they are touched. Pages are looked for at random.
        hint::huge_pages(frames.spare_capacity_mut());
        frames.resize_with(count, Frame::default);
        let frames = frames.into_boxed_slice();
        hint::name(&frames, "frame");
        hint::name(pages.as_slice(), "page in frame");
        hint::huge_pages(pages.as_slice());
        Ok(Frames { frames, pages })
    }

    pub(super) fn count(&self) -> usize {
        self.frames.len()
    }

    /// The memory of these frames.
    pub(super) fn pages(&self, frames: std::ops::Range<usize>) -> &[PageWords] {
        &self.pages.as_slice()[frames]
    }

    #[inline]
    pub(super) fn get(&self, index: FrameIndex) -> (&Frame, &PageWords) {
        let index = index.0 as usize;
        (&self.frames[index], &self.pages.as_slice()[index])
    }
}
