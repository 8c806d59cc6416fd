//! Finding a frame: the free list, then CLOCK.
//!
//! The hand is a counter: whoever needs a frame advances it, looks at the frame where it was, and has let go of it
//! before any I/O (Shore-MT §6.2.3, last paragraph, without the mutex). Only clean pages are evicted; a dirty one is
//! left to the cleaner. When too many are, the cleaner is helped, or waited for if it waits for the log, or, when that
//! was in vain, the page is written first, as every page is written, and then evicted if it is still clean. All of this
//! ends when `frame_wait` is over, or the patience of whoever needs the frame, also a wait for the log's disk. So a
//! page that has a write in transit stays in its frame, and nobody can read its old bytes back from the file (PAGE-5).

use foreshore_base::{FrameIndex, Lsn, PageId, Result, StorageError};
use foreshore_env::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant, earlier},
};
use foreshore_latch::{ExclusiveGuard, Patience, parking::LOOK_INTERVAL};

use super::{BufferPool, ExclusivePage, FrameRef, write::Batch};
use crate::words::PageBuffer;

/// Dirty pages that a thread leaves to the cleaner before it helps, or waits for it.
const DIRTY_SKIPS: u32 = 32;
/// How often it waits before it writes one itself, and how long at most.
const CLEANER_WAITS: u32 = 4;
const CLEANER_WAIT: Duration = Duration::from_millis(100);
/// Frames that are looked at for one that a page read ahead may have.
const COLD_LOOKS: usize = 64;
/// Rounds over the frames without a find after which a thread sleeps before it goes on.
const ROUNDS: usize = 3;
/// How long it sleeps then.
const NAP: Duration = Duration::from_micros(500);

/// A frame without a page, latched exclusively. It goes back to the free list unless a page is placed in it.
#[derive(Debug)]
pub(super) struct EmptyFrame<'p> {
    place: FrameRef<'p>,
    /// Taken only by `place`.
    guard: Option<ExclusiveGuard<'p>>,
}

impl<'p> EmptyFrame<'p> {
    /// Fills the frame before it is a page's.
    pub(super) fn load_from(&self, buffer: &PageBuffer) {
        self.place.words.load_from(&buffer.0);
    }

    /// Enters `id` in the translation; `None` when it is in a frame already. From here on whoever wants the page waits
    /// for this latch.
    pub(super) fn place(self, id: PageId) -> Option<ExclusivePage<'p>> {
        let page = self.place_unused(id)?;
        page.place.frame.touch();
        Some(page)
    }

    /// [`EmptyFrame::place`] for a page that nobody uses yet: to CLOCK it is the next to go.
    pub(super) fn place_unused(mut self, id: PageId) -> Option<ExclusivePage<'p>> {
        let FrameRef { pool, frame, index, .. } = self.place;
        frame.set_page(id);
        if !pool.translation.insert(id, index) {
            frame.set_page(PageId::NONE);
            return None;
        }
        self.guard.take().map(|guard| ExclusivePage { place: self.place, guard, id })
    }
}

impl Drop for EmptyFrame<'_> {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            drop(guard);
            self.place.pool.free.lock().push(self.place.index);
        }
    }
}

impl BufferPool {
    /// An empty frame for page `id`. Waits for one for a bounded time.
    pub(super) fn claim(&self, id: PageId, patience: Patience<'_>) -> Result<EmptyFrame<'_>> {
        match self.claim_free() {
            Some(frame) => Ok(frame),
            None => self.claim_by_clock(id, patience),
        }
    }

    fn claim_free(&self) -> Option<EmptyFrame<'_>> {
        let index = self.free.lock().pop()?;
        self.cleaner.takes_frame(index, self.frames.count());
        let place = self.frame(index);
        // Nobody holds it for long: at most somebody who came for the page that was here, and sees that it is gone.
        Some(EmptyFrame { place, guard: Some(place.frame.latch.exclusive()) })
    }

    /// A frame that others have emptied meanwhile, or that this thread helps to clean, if it need not wait for the log,
    /// by the look of the dirty page that the hand has come to.
    fn claim_cleaned(&self, dirty: FrameRef<'_>) -> Result<Option<EmptyFrame<'_>>> {
        match self.claim_free() {
            None if self.is_logged(dirty) => self.help_to_clean(),
            free => Ok(free),
        }
    }

    #[cold]
    fn claim_by_clock(&self, id: PageId, patience: Patience<'_>) -> Result<EmptyFrame<'_>> {
        let frames = self.frames.count();
        let mut search = Search::new(frames, id, patience);
        loop {
            for _ in 0..ROUNDS * frames {
                let place = self.next_frame();
                if place.frame.is_referenced() {
                    place.frame.forget_reference();
                    continue;
                }
                if place.frame.is_dirty() {
                    if search.has_left_enough()
                        && let Some(frame) = self.claim_cleaned(place)?
                    {
                        return Ok(frame);
                    }
                    if !search.clean(self, place)? {
                        continue;
                    }
                }
                if let Some(frame) = self.evict(place) {
                    return Ok(frame);
                }
            }
            if let Some(frame) = self.claim_free() {
                return Ok(frame);
            }
            search.check(self)?;
            thread::sleep(NAP);
        }
    }

    /// An empty frame for a page that nobody has asked for yet: a free one, or that of a clean page which was not used
    /// since the hand passed. Waits for nothing, writes nothing, and makes no page look older than it is.
    pub(super) fn claim_cold(&self) -> Option<EmptyFrame<'_>> {
        if let Some(frame) = self.claim_free() {
            return Some(frame);
        }
        for _ in 0..COLD_LOOKS.min(self.frames.count()) {
            let place = self.next_frame();
            if place.frame.is_dirty() {
                self.cleaner.wake();
            } else if !place.frame.is_referenced()
                && let Some(frame) = self.evict(place)
            {
                return Some(frame);
            }
        }
        None
    }

    fn next_frame(&self) -> FrameRef<'_> {
        let step = self.hand.fetch_add(1, Ordering::Relaxed);
        self.cleaner.hand_is_at(step);
        self.frame_of_step(step)
    }

    /// How many steps the hand has made.
    pub(super) fn hand_position(&self) -> u64 {
        self.hand.load(Ordering::Relaxed)
    }

    /// The frame that the hand meets with this step.
    pub(super) fn frame_of_step(&self, step: u64) -> FrameRef<'_> {
        self.frame(FrameIndex((step % self.frames.count() as u64) as u32))
    }

    /// Writes a dirty page; without waiting for its latch, so that a thread that holds latches may look for a frame.
    /// False: the log was not durable by the deadline.
    #[cold]
    fn write_for_eviction(&self, place: FrameRef<'_>, deadline: Instant) -> Result<bool> {
        let _announced = self.transit.try_leave(place.frame.page());
        let mut batch = Batch::new(1);
        batch.try_collect(place);
        let wanted = batch.is_full();
        let written = batch.write(self, Some(deadline))?;
        self.counters.dirty_evictions.add(written);
        Ok(!wanted || written > 0)
    }

    /// Empties a frame whose page is clean and that nobody holds.
    pub(super) fn evict<'p>(&'p self, place: FrameRef<'p>) -> Option<EmptyFrame<'p>> {
        let FrameRef { frame, .. } = place;
        if !frame.page().is_some() || frame.is_dirty() || frame.is_in_transit() {
            return None;
        }
        let guard = frame.latch.try_exclusive()?;
        let page = frame.page();
        if !page.is_some() || frame.is_dirty() {
            return None;
        }
        self.translation.remove(page);
        frame.set_page(PageId::NONE);
        debug_assert_eq!(frame.recovery_lsn(), Lsn::ZERO);
        self.counters.evictions.add(1);
        Some(EmptyFrame { place, guard: Some(guard) })
    }
}

/// What a thread remembers while it looks for a frame.
struct Search<'a> {
    /// The page that needs the frame, and how long whoever needs it is ready to wait.
    page: PageId,
    patience: Patience<'a>,
    /// Dirty pages that it still leaves to the cleaner before it waits.
    skips: u32,
    /// How often it still waits for the cleaner.
    waits: u32,
    /// When `frame_wait` is over, known when it first has to wait.
    deadline: Option<Instant>,
    /// A page could not be written, because the log's disk did not come on.
    stalled: bool,
}

impl Search<'_> {
    fn new(frames: usize, page: PageId, patience: Patience<'_>) -> Search<'_> {
        let skips = DIRTY_SKIPS.min(frames as u32);
        Search { page, patience, skips, waits: CLEANER_WAITS, deadline: None, stalled: false }
    }

    fn deadline(&mut self, pool: &BufferPool) -> Instant {
        *self.deadline.get_or_insert_with(|| Instant::now() + pool.frame_wait)
    }

    /// Until when it may wait, and no longer than `wait`.
    fn until(&mut self, pool: &BufferPool, wait: Duration) -> Instant {
        earlier(self.deadline(pool).min(Instant::now() + wait), self.patience.deadline)
    }

    /// Whether its time is up.
    fn check(&mut self, pool: &BufferPool) -> Result<()> {
        BufferPool::check_patience(self.page, self.patience)?;
        if Instant::now() >= self.deadline(pool) {
            return Err(StorageError::PoolExhausted { frames: pool.frames.count(), stalled: self.stalled });
        }
        Ok(())
    }

    /// Whether it leaves no more dirty pages to the cleaner for now.
    fn has_left_enough(&self) -> bool {
        self.skips == 0
    }

    /// The hand has come to a dirty page: sees to it that it or others become clean. Whether this one may be.
    #[cold]
    fn clean(&mut self, pool: &BufferPool, place: FrameRef<'_>) -> Result<bool> {
        if self.skips > 0 {
            self.skips -= 1;
            pool.cleaner.wake();
            return Ok(false);
        }
        if self.waits > 0 {
            self.waits -= 1;
            if let Some(progress) = pool.cleaner.await_progress(self.until(pool, CLEANER_WAIT), self.patience)
            {
                self.stalled = !progress;
                self.skips = DIRTY_SKIPS.min(pool.frames.count() as u32);
                self.check(pool)?;
                return Ok(false);
            }
            self.waits = 0;
        }
        self.check(pool)?;
        let wait = if self.patience.cancelled.is_some() { LOOK_INTERVAL } else { pool.frame_wait };
        let until = self.until(pool, wait);
        self.stalled = !pool.write_for_eviction(place, until)?;
        Ok(true)
    }
}
