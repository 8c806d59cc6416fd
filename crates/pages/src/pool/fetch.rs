//! Getting hold of a page: hits, waits for arriving pages, loads.

use foreshore_base::{Lsn, PageId, Result, StorageError, limits::PAGE_BYTES};
use foreshore_env::{
    hint,
    time::{Instant, earlier},
};
use foreshore_latch::{ExclusiveGuard, Patience, SharedGuard, WaitEnded};

use super::{BufferPool, ExclusivePage, FEWEST_LOOKS, FrameRef, OptimisticPage, SharedPage, transit::Permit};
use crate::words::PageBuffer;

impl BufferPool {
    /// The page for reading without a latch. A hit writes nothing to shared memory, but for CLOCK's bit when the hand
    /// has passed. A page that is held exclusively or has to be read is waited for.
    ///
    /// When `id` was itself read optimistically, believe an error only after validating the page that it came from.
    #[inline]
    pub fn optimistic(&self, id: PageId) -> Result<OptimisticPage<'_>> {
        self.optimistic_within(id, Patience::ENDLESS)
    }

    /// As [`BufferPool::optimistic`], for somebody who may not wait for a latch for ever: [`StorageError::WaitEnded`]
    /// then, also while there is no frame for the page. A read from the file is waited for all the same.
    #[inline(always)]
    pub fn optimistic_within(&self, id: PageId, patience: Patience<'_>) -> Result<OptimisticPage<'_>> {
        match self.optimistic_now(id) {
            Some(page) => Ok(page),
            None => self.shared_within(id, patience).map(SharedPage::release),
        }
    }

    /// The page, if it is in the pool and nobody has it latched exclusively: no wait, no read from the file, no error.
    #[inline(always)]
    pub fn optimistic_now(&self, id: PageId) -> Option<OptimisticPage<'_>> {
        let place = self.resident(id)?;
        place.words.prefetch();
        let version = place.frame.latch.optimistic()?;
        if !place.frame.holds(id) {
            return None;
        }
        place.frame.touch();
        Some(OptimisticPage { place, version, id })
    }

    /// Asks the processor for what a reader looks at first of a page, if it is in the pool; whether it is.
    #[inline]
    pub fn prefetch(&self, id: PageId) -> bool {
        let place = self.resident(id).filter(|_| id.is_some());
        if let Some(place) = place {
            hint::prefetch(place.frame, hint::Access::Read);
            place.words.prefetch();
        }
        place.is_some()
    }

    /// The page, latched shared.
    #[inline]
    pub fn shared(&self, id: PageId) -> Result<SharedPage<'_>> {
        self.shared_within(id, Patience::ENDLESS)
    }

    /// As [`BufferPool::shared`], with the end of [`BufferPool::optimistic_within`].
    #[inline]
    pub fn shared_within(&self, id: PageId, patience: Patience<'_>) -> Result<SharedPage<'_>> {
        if let Some(place) = self.resident(id)
            && let Some(guard) = place.frame.latch.shared_now()
            && place.frame.holds(id)
        {
            place.frame.touch();
            return Ok(SharedPage { place, guard, id });
        }
        self.shared_slow(id, patience)
    }

    #[cold]
    fn shared_slow(&self, id: PageId, patience: Patience<'_>) -> Result<SharedPage<'_>> {
        let deadline = BufferPool::latch_deadline();
        loop {
            let Some(place) = self.resident(id) else {
                if let Some(page) = self.load(id, patience)? {
                    return Ok(page.downgrade());
                }
                continue;
            };
            let guard = self.wait_shared(place, id, deadline, patience)?;
            if place.frame.holds(id) {
                place.frame.touch();
                return Ok(SharedPage { place, guard, id });
            }
        }
    }

    /// The page, latched exclusively.
    #[inline]
    pub fn exclusive(&self, id: PageId) -> Result<ExclusivePage<'_>> {
        self.exclusive_within(id, Patience::ENDLESS)
    }

    /// As [`BufferPool::exclusive`], with the end of [`BufferPool::optimistic_within`].
    #[inline]
    pub fn exclusive_within(&self, id: PageId, patience: Patience<'_>) -> Result<ExclusivePage<'_>> {
        if let Some(place) = self.resident(id)
            && let Some(guard) = place.frame.latch.try_exclusive()
            && place.frame.holds(id)
        {
            place.frame.touch();
            return Ok(ExclusivePage { place, guard, id });
        }
        self.exclusive_slow(id, patience)
    }

    #[cold]
    fn exclusive_slow(&self, id: PageId, patience: Patience<'_>) -> Result<ExclusivePage<'_>> {
        let deadline = BufferPool::latch_deadline();
        loop {
            let page = match self.exclusive_resident(id, deadline, patience)? {
                None => self.load(id, patience)?,
                page => page,
            };
            if let Some(page) = page {
                return Ok(page);
            }
        }
    }

    /// The page exclusively if it is in a frame.
    fn exclusive_resident(
        &self,
        id: PageId,
        deadline: Instant,
        patience: Patience<'_>,
    ) -> Result<Option<ExclusivePage<'_>>> {
        while let Some(place) = self.resident(id) {
            let guard = self.wait_exclusive(place, id, deadline, patience)?;
            if place.frame.holds(id) {
                place.frame.touch();
                return Ok(Some(ExclusivePage { place, guard, id }));
            }
        }
        Ok(None)
    }

    /// The page exclusively, from the pool or in an empty frame with whatever bytes: for those who write it whole.
    /// True: it was in the pool, and its bytes are the page's.
    pub(crate) fn exclusive_unread(
        &self,
        id: PageId,
        patience: Patience<'_>,
    ) -> Result<(ExclusivePage<'_>, bool)> {
        let deadline = BufferPool::latch_deadline();
        loop {
            if let Some(page) = self.exclusive_resident(id, deadline, patience)? {
                return Ok((page, true));
            }
            if let Some(_permit) = self.enter_transit(id, patience)?
                && let Some(page) = self.claim(id, patience)?.place(id)
            {
                return Ok((page, false));
            }
        }
    }

    /// Permission to bring in a page; `None`: it has come meanwhile, or may have. Whoever finds it on its way waits
    /// until then, its patience ends, or the pool takes it for a fault. With time of its own for that: that of whoever
    /// has waited for a latch before may have passed while this process was stopped (PAGE-17).
    fn enter_transit(&self, id: PageId, patience: Patience<'_>) -> Result<Option<Permit<'_>>> {
        let limit = BufferPool::latch_deadline();
        if let Some(permit) = self.transit.enter(id, limit, patience) {
            // In a list: whoever was there before may have placed it.
            return Ok(Some(permit).filter(|permit| !permit.is_listed() || self.resident(id).is_none()));
        }
        BufferPool::check_patience(id, patience)?;
        if Instant::now() >= limit { Err(self.stuck(id)) } else { Ok(None) }
    }

    pub(super) fn wait_shared<'p>(
        &self,
        place: FrameRef<'p>,
        id: PageId,
        deadline: Instant,
        patience: Patience<'_>,
    ) -> Result<SharedGuard<'p>> {
        self.wait_for_latch(id, deadline, patience, |until, look| {
            place.frame.latch.shared_until(Some(until), look)
        })
    }

    fn wait_exclusive<'p>(
        &self,
        place: FrameRef<'p>,
        id: PageId,
        deadline: Instant,
        patience: Patience<'_>,
    ) -> Result<ExclusiveGuard<'p>> {
        self.wait_for_latch(id, deadline, patience, |until, look| {
            place.frame.latch.exclusive_until(Some(until), look)
        })
    }

    /// Waits as `wait` does, until the caller's patience ends, or until the pool's own `deadline`: then it is a fault,
    /// unless this thread has hardly looked around since (PAGE-17).
    fn wait_for_latch<G>(
        &self,
        page: PageId,
        deadline: Instant,
        patience: Patience<'_>,
        mut wait: impl FnMut(Instant, &mut dyn FnMut() -> bool) -> Result<G, WaitEnded>,
    ) -> Result<G> {
        let (mut limit, mut looks) = (deadline, 0_u32);
        loop {
            let until = earlier(limit, patience.deadline);
            let ended = wait(until, &mut || {
                looks = looks.saturating_add(1);
                !patience.is_cancelled()
            });
            return match ended {
                Ok(guard) => Ok(guard),
                Err(WaitEnded::GaveUp) => Err(StorageError::WaitEnded { page, cancelled: true }),
                Err(WaitEnded::Deadline) if until < limit => {
                    Err(StorageError::WaitEnded { page, cancelled: false })
                }
                Err(WaitEnded::Deadline) if looks < FEWEST_LOOKS => {
                    limit = BufferPool::latch_deadline();
                    continue;
                }
                Err(WaitEnded::Deadline) => Err(self.stuck(page)),
            };
        }
    }

    /// Whether whoever wants `page` would wait for it.
    pub(crate) fn check_patience(page: PageId, patience: Patience<'_>) -> Result<()> {
        let cancelled = patience.is_cancelled();
        if cancelled || patience.deadline.is_some_and(|own| own <= Instant::now()) {
            return Err(StorageError::WaitEnded { page, cancelled });
        }
        Ok(())
    }

    /// Reads a page that is in no frame into one. `None`: somebody else has placed it meanwhile.
    fn load(&self, id: PageId, patience: Patience<'_>) -> Result<Option<ExclusivePage<'_>>> {
        if !self.is_in_file(id) {
            return Err(self.not_in_file(id));
        }
        let Some(permit) = self.enter_transit(id, patience)? else {
            return Ok(None);
        };
        let frame = self.claim(id, patience)?;
        let mut buffer = PageBuffer::zeroed();
        if permit.is_listed() {
            self.counters.loads.add(1);
            self.read(id, &mut buffer).map_err(|error| self.unless_cut_off(id, error))?;
            frame.load_from(&buffer);
            return Ok(frame.place(id));
        }
        let Some(page) = frame.place(id) else {
            self.counters.lost_loads.add(1);
            return Ok(None);
        };
        self.counters.loads.add(1);
        match self.read(id, &mut buffer) {
            Ok(()) => {
                page.words().load_from(&buffer.0);
                Ok(Some(page))
            }
            Err(error) => {
                page.evacuate();
                Err(self.unless_cut_off(id, error))
            }
        }
    }

    fn is_in_file(&self, id: PageId) -> bool {
        id.is_some() && u64::from(id.0) < self.page_count()
    }

    #[cold]
    fn not_in_file(&self, id: PageId) -> StorageError {
        let detail = format!("something refers to it, but the file has {} pages", self.page_count());
        StorageError::corrupt_page(id, detail)
    }

    /// The file may have been cut while the page was being read: then whoever came with an old page id is told that.
    #[cold]
    fn unless_cut_off(&self, id: PageId, error: StorageError) -> StorageError {
        if self.is_in_file(id) { error } else { self.not_in_file(id) }
    }

    /// Frees the frame of a page that was cut off. One that somebody holds, or is just bringing in, stays: it is clean
    /// (PAGE-15), its page is nobody's, and if there is such a page again, it is written whole.
    pub(crate) fn forget(&self, id: PageId) {
        let Some(place) = self.resident(id) else { return };
        if let Some(guard) = place.frame.latch.try_exclusive()
            && place.frame.holds(id)
            && !place.frame.is_dirty()
            && !place.frame.is_in_transit()
        {
            ExclusivePage { place, guard, id }.evacuate();
        }
    }

    /// Reads page `id` from the file and checks it (PAGE-6).
    fn read(&self, id: PageId, buffer: &mut PageBuffer) -> Result<()> {
        let offset = u64::from(id.0) * PAGE_BYTES as u64;
        self.file
            .read_exact_at(&mut buffer.0, offset)
            .map_err(|error| StorageError::io(format!("read page {id} of"), &self.path)(error))?;
        let newest = if self.salvage { Lsn::MAX } else { self.log.tail() };
        self.seal.check(&buffer.0, id, newest)
    }

    /// Makes a page that comes into being: zeros, but for its id.
    pub(crate) fn clear(page: &mut ExclusivePage<'_>) {
        page.words().clear();
        page.words().set_page_id(page.id());
        debug_assert_eq!(page.lsn(), Lsn::ZERO);
    }
}

#[cfg(test)]
mod tests;
