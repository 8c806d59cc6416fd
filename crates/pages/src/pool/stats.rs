//! What the pool counts. Only slow paths count: a hit writes nothing.

use foreshore_env::sync::atomic::{AtomicU64, Ordering};

use super::BufferPool;

/// A count that orders nothing.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The pool's counts since it was made. See [`PoolStats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) loads: Counter,
    pub(crate) lost_loads: Counter,
    pub(crate) read_ahead: Counter,
    pub(crate) read_ahead_failures: Counter,
    pub(crate) evictions: Counter,
    pub(crate) dirty_evictions: Counter,
    pub(crate) cleaner_writes: Counter,
    pub(crate) helped_writes: Counter,
    pub(crate) sweep_writes: Counter,
    pub(crate) images: Counter,
    pub(crate) image_bytes: Counter,
    pub(crate) allocations: Counter,
    pub(crate) frees: Counter,
    pub(crate) space_searches: Counter,
}

/// The pool in numbers. Counts are since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Frames in the pool.
    pub frames: u64,
    /// Frames that hold a page, at about this moment.
    pub frames_used: u64,
    /// Frames whose page is newer than the file, at about this moment.
    pub frames_dirty: u64,
    /// Pages in the data file, allocated or not.
    pub pages: u64,
    /// Pages read from the file by those who needed them: misses.
    pub loads: u64,
    /// Misses that found, frame in hand, that somebody else was loading the page.
    pub lost_loads: u64,
    /// Pages read from the file before anybody asked for them.
    pub read_ahead: u64,
    /// Pages that should have been, and could not be read.
    pub read_ahead_failures: u64,
    /// Pages that gave up their frame.
    pub evictions: u64,
    /// Pages written one by one by threads that needed a frame, because the cleaner had not come to them.
    pub dirty_evictions: u64,
    /// Pages written by the cleaner.
    pub cleaner_writes: u64,
    /// Pages written by threads that needed a frame and helped the cleaner, which was behind.
    pub helped_writes: u64,
    /// Pages written by checkpoint sweeps and flushes.
    pub sweep_writes: u64,
    /// Page images logged.
    pub images: u64,
    /// Their bytes in the log.
    pub image_bytes: u64,
    /// Pages allocated.
    pub allocations: u64,
    /// Pages freed.
    pub frees: u64,
    /// Allocations that had to look for free pages in the bitmaps, because their thread's share was used up.
    pub space_searches: u64,
}

impl BufferPool {
    /// Bytes of page images in the log, since the pool was made.
    pub fn image_bytes(&self) -> u64 {
        self.counters.image_bytes.get()
    }

    /// The pool in numbers.
    pub fn stats(&self) -> PoolStats {
        let counters = &self.counters;
        let count = |wanted: fn(&super::Frame) -> bool| {
            self.all_frames().filter(|place| wanted(place.frame)).count() as u64
        };
        PoolStats {
            frames: self.frame_count() as u64,
            frames_used: count(|frame| frame.page().is_some()),
            frames_dirty: count(super::Frame::is_dirty),
            pages: self.page_count(),
            loads: counters.loads.get(),
            lost_loads: counters.lost_loads.get(),
            read_ahead: counters.read_ahead.get(),
            read_ahead_failures: counters.read_ahead_failures.get(),
            evictions: counters.evictions.get(),
            dirty_evictions: counters.dirty_evictions.get(),
            cleaner_writes: counters.cleaner_writes.get(),
            helped_writes: counters.helped_writes.get(),
            sweep_writes: counters.sweep_writes.get(),
            images: counters.images.get(),
            image_bytes: counters.image_bytes.get(),
            allocations: counters.allocations.get(),
            frees: counters.frees.get(),
            space_searches: counters.space_searches.get(),
        }
    }
}
