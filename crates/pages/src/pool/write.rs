//! Writing pages: the one way that a page of the pool gets into the file.
//!
//! 1. Announce the write; somebody else's in transit means: not now (PAGE-5).
//! 2. Under the shared latch, copy the page. The latch is let go before any I/O.
//! 3. Make the log durable up to the copy's page LSN (PAGE-3). Once for the whole batch.
//! 4. Seal the copies with their checksums and write them; neighbours in one call.
//! 5. Under the shared latch again, if it is to be had: a page that has not changed since the copy is clean; one that
//!    has is dirty from behind the copy's LSN on. Whether or not, the write is no longer in transit.

use foreshore_base::{Lsn, PageId, Result, StorageError, limits::PAGE_BYTES};
use foreshore_env::{
    sabotage::{Fault, planted},
    time::Instant,
};
use foreshore_latch::{SharedGuard, Version};

use super::{BufferPool, FrameRef, frame::Transit};

/// Pages to be written together.
#[derive(Debug)]
pub(super) struct Batch<'p> {
    /// Copies, in the order of `entries`.
    bytes: Vec<u8>,
    entries: Vec<Entry<'p>>,
    capacity: usize,
}

#[derive(Debug)]
struct Entry<'p> {
    place: FrameRef<'p>,
    id: PageId,
    /// Page LSN and version of the copy.
    lsn: Lsn,
    version: Version,
    /// Its drop ends the write.
    _transit: Transit<'p>,
}

impl<'p> Batch<'p> {
    pub(super) fn new(capacity: usize) -> Batch<'p> {
        Batch { bytes: Vec::new(), entries: Vec::new(), capacity }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Those whose pages were collected.
    pub(super) fn places(&self) -> Vec<FrameRef<'p>> {
        self.entries.iter().map(|entry| entry.place).collect()
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= self.capacity
    }

    /// Copies the frame's page if it is dirty, not latched exclusively, and not being written by somebody else.
    pub(super) fn try_collect(&mut self, place: FrameRef<'p>) {
        if !place.frame.is_dirty() {
            return;
        }
        if let Some(transit) = place.frame.begin_write()
            && let Some(guard) = place.frame.latch.try_shared()
        {
            self.collect(place, transit, &guard);
        }
    }

    /// Copies the frame's page if it is dirty.
    pub(super) fn collect(&mut self, place: FrameRef<'p>, transit: Transit<'p>, guard: &SharedGuard<'_>) {
        if !place.frame.is_dirty() {
            return;
        }
        let start = self.bytes.len();
        self.bytes.resize(start + PAGE_BYTES, 0);
        place.words.copy_words(0, &mut self.bytes[start..]);
        self.entries.push(Entry {
            place,
            id: place.frame.page(),
            lsn: place.words.lsn(),
            version: guard.version(),
            _transit: transit,
        });
    }

    /// Writes what was collected, and is empty again. Returns how many pages it wrote: none, if the log was not durable
    /// by the deadline. A failure stops the database.
    pub(super) fn write(&mut self, pool: &BufferPool, deadline: Option<Instant>) -> Result<u64> {
        if self.entries.is_empty() {
            return Ok(0);
        }
        let result = self.write_pages(pool, deadline);
        if let Ok(true) = result {
            self.entries.iter().for_each(Entry::settle);
        }
        let count = self.entries.len() as u64;
        self.entries.clear();
        self.bytes.clear();
        result.map(|written| if written { count } else { 0 })
    }

    /// Whether the pages were written: they are not, if the log was not durable by the deadline.
    fn write_pages(&mut self, pool: &BufferPool, deadline: Option<Instant>) -> Result<bool> {
        if let Some(poisoned) = pool.log.poisoned() {
            return Err(poisoned);
        }
        pool.check_open()?;
        let newest = self.entries.iter().map(|entry| entry.lsn).max().unwrap_or(Lsn::ZERO);
        if newest > Lsn::ZERO && !pool.log.is_durable(newest) && !planted(Fault::PageBeforeLog) {
            match deadline {
                None => pool.log.flush(newest)?,
                Some(deadline) if pool.log.flush_until(newest, deadline)? => {}
                Some(_) => return Ok(false),
            }
        }
        for page in self.bytes.as_chunks_mut::<PAGE_BYTES>().0 {
            pool.seal.set(page);
        }
        let mut start = 0;
        for run in self.entries.chunk_by(|a, b| a.id.0.checked_add(1) == Some(b.id.0)) {
            let end = start + run.len() * PAGE_BYTES;
            let offset = u64::from(run[0].id.0) * PAGE_BYTES as u64;
            pool.file.write_all_at(&self.bytes[start..end], offset).map_err(|error| {
                pool.fatal(StorageError::io(format!("write page {} of", run[0].id), &pool.path)(error))
            })?;
            start = end;
        }
        Ok(true)
    }
}

impl Entry<'_> {
    /// After the write. The frame still holds the page: a dirty page is not evicted.
    fn settle(&self) {
        let frame = self.place.frame;
        // Held exclusively, it is about to change: it stays dirty, from where it was.
        if let Some(guard) = frame.latch.try_shared() {
            debug_assert!(frame.holds(self.id), "page {} left its frame while it was written", self.id);
            let unchanged = guard.version() == self.version || planted(Fault::ChangedPageClean);
            frame.set_recovery_lsn(if unchanged { Lsn::ZERO } else { self.lsn.advance(1) });
        }
    }
}
