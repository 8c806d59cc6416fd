//! The checkpoint sweep: everything that is older than the new redo horizon gets into the file, and nobody stops.
//!
//! Shore-MT §7.7 takes the newest LSN that a cleaner's sweep has met as the redo point. Read literally that is wrong: a
//! page that was visited early and changed again before the sweep ended has a change below that LSN which is not in the
//! file. The horizon here is the log's end *before* the sweep. PAGE-8 in the README has the argument.

use foreshore_base::{FrameIndex, Lsn, PageId, Result, StorageError};
use foreshore_env::{
    sabotage::{Fault, planted},
    sync::atomic::Ordering,
};
use foreshore_latch::Patience;

use super::{BufferPool, FrameRef, write::Batch};
use crate::space::Header;

/// Pages written with one wait for the log, and between two syncs: a commit whose log is synced meanwhile waits behind
/// them, so they are few. To sync less often while the log is not flushed made insertion with lazy commits a tenth
/// faster, and the 99.9th percentile of synchronous ones during checkpoints two to three times as long: a flush that
/// waits behind a sync does not show before the next batch is written.
const BATCH_PAGES: usize = 16;
/// How many frames have their dirty ones sorted at a time. Each takes eight bytes of memory.
const SORTED_FRAMES: usize = 1 << 16;
/// How often pages are written that stay dirty because somebody latched them meanwhile.
const WRITE_ROUNDS: u32 = 4;

impl BufferPool {
    /// Moves the redo horizon to the log's end and makes durable in the data file every change that was logged before
    /// it. Returns the horizon: recovery may begin there, once a checkpoint record says so.
    pub fn sweep(&self) -> Result<Lsn> {
        let mut header = self.sweeping.lock();
        self.check_open()?;
        // First this: the bitmap pages of all of them were formatted before the horizon, so they are written (PAGE-19).
        let count = self.page_count();
        let horizon = self.log.tail();
        // From its visit on (the latch orders it), a page whose image is older logs one before it changes.
        self.horizon.store(horizon.0, Ordering::Relaxed);
        self.write_dirty(|place| {
            // The second: a change that was prepared under the old horizon and logged behind the new one.
            place.frame.recovery_lsn() < horizon || place.words.image_lsn() < horizon
        })?;
        if count > header.count {
            self.sync()?;
        }
        let new = Header { horizon, count, ..*header };
        self.write_header(&mut header, new)?;
        self.sync()?;
        Ok(horizon)
    }

    /// Writes the header page, by the holder of `sweeping`, who syncs it.
    pub(crate) fn write_header(&self, header: &mut Header, new: Header) -> Result<()> {
        *header = new;
        header
            .write(&*self.file, self.seal)
            .map_err(|error| self.fatal(StorageError::io("write page 0 of", &self.path)(error)))
    }

    /// Writes all dirty pages and makes them durable. Pages that change meanwhile may stay dirty.
    pub fn flush_all(&self) -> Result<()> {
        let _one_at_a_time = self.sweeping.lock();
        self.write_dirty(|_| true)?;
        self.sync()
    }

    /// Writes the pages from `first` on, which nobody changes any more, until none is dirty; false: one was latched
    /// again and again while it was written. By the holder of `sweeping`.
    pub(crate) fn write_from(&self, first: PageId) -> Result<bool> {
        let is_left = |place: FrameRef<'_>| place.frame.page() >= first && place.frame.is_dirty();
        for _ in 0..WRITE_ROUNDS {
            self.write_dirty(is_left)?;
            if !self.all_frames().any(is_left) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) fn sync(&self) -> Result<()> {
        if let Some(poisoned) = self.log.poisoned() {
            return Err(poisoned);
        }
        if planted(Fault::DataUnsynced) {
            return Ok(());
        }
        self.file.sync().map_err(|error| self.fatal(StorageError::io("sync", &self.path)(error)))
    }

    /// Latches every frame in turn, empty ones too, and writes the dirty pages that are `wanted`. `wanted` is asked
    /// under the shared latch.
    ///
    /// A part of the frames at a time, and of these in the order of the file: neighbours go with one write, and pages
    /// that the file never had, with which a sync writes more than their bytes, come together at its end.
    pub(super) fn write_dirty(&self, wanted: impl Fn(FrameRef<'_>) -> bool) -> Result<()> {
        let mut sweep = Sweep { pool: self, batch: Batch::new(BATCH_PAGES), unsynced: 0 };
        let frames = self.frames.count() as u32;
        let mut dirty = Vec::new();
        for first in (0..frames).step_by(SORTED_FRAMES) {
            for index in (first..frames).take(SORTED_FRAMES).map(FrameIndex) {
                let place = self.frame(index);
                let _guard = match place.frame.latch.try_shared() {
                    Some(guard) => guard,
                    None => self.wait_shared(
                        place,
                        place.frame.page(),
                        BufferPool::latch_deadline(),
                        Patience::ENDLESS,
                    )?,
                };
                if place.frame.is_dirty() && wanted(place) {
                    dirty.push((place.frame.page(), index));
                }
            }
            dirty.sort_unstable();
            // A thread that has taken a frame for another page since has written this one.
            for (_, index) in dirty.drain(..) {
                sweep.visit(self.frame(index), &wanted)?;
                if sweep.batch.is_full() {
                    sweep.write()?;
                }
            }
            sweep.write()?;
        }
        Ok(())
    }
}

/// A walk over frames, and what it has collected.
#[derive(Debug)]
struct Sweep<'p> {
    pool: &'p BufferPool,
    batch: Batch<'p>,
    /// Pages written since the last sync.
    unsynced: u64,
}

impl<'p> Sweep<'p> {
    /// Before it waits it writes what it has collected: whoever holds the latch may be looking for a clean frame.
    fn visit(&mut self, place: FrameRef<'p>, wanted: &impl Fn(FrameRef<'_>) -> bool) -> Result<()> {
        let deadline = BufferPool::latch_deadline();
        loop {
            let guard = match place.frame.latch.try_shared() {
                Some(guard) => guard,
                None => {
                    self.write()?;
                    self.pool.wait_shared(place, place.frame.page(), deadline, Patience::ENDLESS)?
                }
            };
            let skipped = planted(Fault::SweepSkipsPages) && place.index.0.is_multiple_of(4);
            if !place.frame.is_dirty() || !wanted(place) || skipped {
                return Ok(());
            }
            if let Some(transit) = place.frame.begin_write() {
                self.batch.collect(place, transit, &guard);
                return Ok(());
            }
            // The write in transit may have an older copy: look again when it has ended.
            drop(guard);
            self.write()?;
            if !place.frame.await_write(deadline) {
                return Err(self.pool.stuck(place.frame.page()));
            }
        }
    }

    /// Writes what was collected.
    fn write(&mut self) -> Result<()> {
        let written = self.batch.write(self.pool, None)?;
        self.pool.counters.sweep_writes.add(written);
        self.unsynced += written;
        if self.unsynced >= BATCH_PAGES as u64 {
            self.pool.sync()?;
            self.unsynced = 0;
        }
        Ok(())
    }
}
