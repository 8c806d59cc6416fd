//! The buffer pool: pages of the data file in a fixed number of frames.
//!
//! A hit costs two array reads and the latch's version, and writes nothing (Shore-MT §6.2.3 had hash tables here, which
//! the gallery keeps; an array of frame numbers needs no hash and no bucket latch). A miss takes a frame by CLOCK,
//! whose hand is a counter that nobody holds, enters the page in the translation at once, latched exclusively, and
//! reads it: a thread that asks for the page meanwhile waits for that latch, so a page is read once.
//!
//! There are no pins. A page is used under its frame's latch, and eviction needs that latch exclusively; an optimistic
//! reader holds nothing, and eviction raises the version that it will validate. So a latch is all that a pin would be.

mod checkpoint;
mod cleaner;
mod clock;
mod copy;
mod fetch;
mod frame;
mod image;
mod memory;
mod page;
mod read_ahead;
mod redo;
mod stamp;
mod stats;
#[cfg(test)]
mod tests;
mod transit;
mod translation;
mod write;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use foreshore_base::{FrameIndex, Lsn, PageId, Result, StorageError, limits::PAGE_BYTES};
use foreshore_env::{
    disk::{Disk, DiskFile, OpenMode},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread,
    time::{Duration, Instant},
};
use foreshore_wal::Log;

pub use image::{BITMAP_FORMAT, PAGE_IMAGE};
pub use page::{ExclusivePage, OptimisticPage, SharedPage};
pub use stamp::{PageStamp, PageVersion};
pub use stats::PoolStats;
pub use transit::TransitKind;
pub use translation::TranslationKind;

use self::{
    cleaner::Cleaner,
    frame::{Frame, Frames},
    read_ahead::Readers,
    stats::Counters,
    transit::Transit,
    translation::Translation,
};
use crate::{
    layout::Seal,
    space::{self, FreeSpaceKind, Header, Space},
    words::PageWords,
};

/// Fewest frames of a pool.
const MIN_FRAMES: usize = 8;
/// Most frames of a pool: frame numbers are 32 bits, and one value stands for "absent".
const MAX_FRAMES: usize = u32::MAX as usize - 1;
/// How long anybody waits for a latch of a page or for the end of its write. Far beyond what I/O takes: a wait this
/// long is a fault, and becomes an error instead of a hang.
const LATCH_WAIT: Duration = Duration::from_secs(60);
/// How often a waiter must have looked around, which it does every 10 ms if it gets a processor, before a wait of
/// [`LATCH_WAIT`] counts as a fault (PAGE-17).
const FEWEST_LOOKS: u32 = 1000;

/// How long the cleaner and the readers may still hold what nobody else does, and how often they are looked at.
const QUIESCENCE_WAIT: Duration = Duration::from_secs(60);
const QUIESCENCE_LOOK: Duration = Duration::from_millis(1);

/// How a pool is made.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Memory for pages. At least eight frames are made of it; below 64 threads will wait for frames.
    pub bytes: usize,
    /// Whether the system is to give all of that memory when the pool is made, and not as it is first used.
    pub prefault: bool,
    /// Threads in the background, 64 at most, that write dirty pages before the clock hand comes to them.
    pub cleaners: usize,
    /// How long a thread looks for a frame before it gives up with [`StorageError::PoolExhausted`].
    pub frame_wait: Duration,
    /// Pages that one bitmap page covers, when a file is made: a multiple of 64, at most [`space::BITMAP_SPAN`]. An
    /// existing file keeps its own.
    pub bitmap_span: u32,
    /// How pages are found.
    pub translation: TranslationKind,
    /// How pages on their way in and out are known.
    pub transit: TransitKind,
    /// How free pages are found.
    pub free_space: FreeSpaceKind,
    /// Pages that are read ahead of a scan at most, at most an eighth of the pool; 0: none.
    pub read_ahead: usize,
    /// For salvage: pages may be newer than the log, redo passes over those that cannot be read, and the header page is
    /// not needed.
    pub salvage: bool,
    /// What is written is kept in memory and lost at the end: what the file has already need not be written again
    /// (PAGE-18).
    pub transient: bool,
}

impl Default for PoolOptions {
    fn default() -> PoolOptions {
        PoolOptions {
            bytes: 64 << 20,
            prefault: false,
            cleaners: 1,
            frame_wait: Duration::from_secs(10),
            bitmap_span: space::BITMAP_SPAN,
            translation: TranslationKind::default(),
            transit: TransitKind::default(),
            free_space: FreeSpaceKind::default(),
            read_ahead: 32,
            salvage: false,
            transient: false,
        }
    }
}

/// The buffer pool of a database.
#[derive(Debug)]
pub struct BufferPool {
    frames: Frames,
    translation: Translation,
    transit: Transit,
    /// CLOCK's hand: the next frame to look at, modulo the number of frames. Relaxed: it orders nothing.
    hand: AtomicU64,
    /// Frames that hold no page and that nobody has claimed. Guarded by the mutex, which is held for a push or a pop.
    free: Mutex<Vec<FrameIndex>>,
    /// The redo horizon: a page whose newest image is older logs one before its next change (PAGE-7). Written by the
    /// checkpoint sweep and by recovery; read under an exclusive latch. Relaxed: the latches that the sweep takes
    /// order it (PAGE-8).
    horizon: AtomicU64,
    /// The horizon of the last sweep before the file was opened.
    opened_horizon: Lsn,
    pub(crate) seal: Seal,
    pub(crate) log: Arc<Log>,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) path: PathBuf,
    pub(crate) space: Space,
    pub(crate) counters: Counters,
    frame_wait: Duration,
    /// See [`PoolOptions::salvage`] and [`PoolOptions::transient`].
    pub(crate) salvage: bool,
    transient: bool,
    /// Held by whoever sweeps, or cuts the file: one at a time. What the header page says in the file.
    pub(crate) sweeping: Mutex<Header>,
    /// Nothing is written any more. Set once, under `sweeping` and `Space::growing`; read by whoever is about to write.
    closed: AtomicBool,
    /// Pages that redo could not read, with what was wrong. Guarded by the mutex; used in recovery alone.
    awaiting: Mutex<BTreeMap<PageId, String>>,
    /// How many there are, so that redo need not take the mutex when there are none. Written under the mutex.
    awaiting_count: AtomicUsize,
    cleaner: Cleaner,
    readers: Readers,
}

/// A frame, as long as the pool lives. Which page is in it the latch says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameRef<'p> {
    pub(crate) pool: &'p BufferPool,
    pub(crate) frame: &'p Frame,
    pub(crate) words: &'p PageWords,
    index: FrameIndex,
}

impl BufferPool {
    /// Makes the data file and a pool for it. The file must not exist; it is durable on return.
    pub fn create(
        disk: &Arc<dyn Disk>,
        path: &Path,
        log: Arc<Log>,
        options: &PoolOptions,
    ) -> Result<Arc<BufferPool>> {
        let file = disk.open(path, OpenMode::CreateNew).map_err(StorageError::io("make", path))?;
        let seal = Seal::new(log.id());
        let made = Space::create(&*file, path, seal, options.bitmap_span, options.free_space)?;
        if let Some(directory) = path.parent() {
            disk.sync_directory(directory).map_err(StorageError::io("sync", directory))?;
        }
        BufferPool::start(file, path, log, made, options)
    }

    /// A pool for an existing data file. Pages are looked at when they are used.
    pub fn open(
        disk: &Arc<dyn Disk>,
        path: &Path,
        log: Arc<Log>,
        options: &PoolOptions,
    ) -> Result<Arc<BufferPool>> {
        let file = match disk.open(path, OpenMode::ReadWrite) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StorageError::corrupt_file(path, "it is missing"));
            }
            Err(error) => return Err(StorageError::io("open", path)(error)),
        };
        let opened = Space::open(&*file, path, Seal::new(log.id()), options.free_space, options.salvage)?;
        BufferPool::start(file, path, log, opened, options)
    }

    fn start(
        file: Arc<dyn DiskFile>,
        path: &Path,
        log: Arc<Log>,
        (space, header): (Space, Header),
        options: &PoolOptions,
    ) -> Result<Arc<BufferPool>> {
        let count = (options.bytes / PAGE_BYTES).max(MIN_FRAMES);
        if count > MAX_FRAMES {
            let (limit, got) = (MAX_FRAMES as u64, count as u64);
            return Err(StorageError::beyond_limit("frames of the buffer pool", limit, got));
        }
        let pool = Arc::new(BufferPool {
            frames: Frames::new(count)?,
            translation: Translation::new(options.translation, count),
            transit: Transit::new(options.transit),
            hand: AtomicU64::new(0),
            free: Mutex::new((0..count as u32).rev().map(FrameIndex).collect()),
            horizon: AtomicU64::new(log.tail().0),
            opened_horizon: header.horizon,
            seal: Seal::new(log.id()),
            log,
            file,
            path: path.to_owned(),
            space,
            counters: Counters::default(),
            frame_wait: options.frame_wait,
            salvage: options.salvage,
            transient: options.transient,
            sweeping: Mutex::new(header),
            closed: AtomicBool::new(false),
            awaiting: Mutex::new(BTreeMap::new()),
            awaiting_count: AtomicUsize::new(0),
            cleaner: Cleaner::default(),
            readers: Readers::new(options.read_ahead, count),
        });
        Cleaner::start(&pool, options)?;
        Readers::start(&pool)?;
        Ok(pool)
    }

    #[inline]
    fn frame(&self, index: FrameIndex) -> FrameRef<'_> {
        let (frame, words) = self.frames.get(index);
        FrameRef { pool: self, frame, words, index }
    }

    pub(crate) fn all_frames(&self) -> impl Iterator<Item = FrameRef<'_>> {
        (0..self.frames.count() as u32).map(|index| self.frame(FrameIndex(index)))
    }

    /// The frame that holds `page`, as far as anybody can know without its latch.
    #[inline(always)]
    pub(crate) fn resident(&self, page: PageId) -> Option<FrameRef<'_>> {
        self.translation.get(page).map(|index| self.frame(index))
    }

    #[inline]
    pub(crate) fn horizon(&self) -> Lsn {
        Lsn(self.horizon.load(Ordering::Relaxed))
    }

    /// Sets the redo horizon: recovery tells the pool from where the log is kept. A pool begins with the log's end
    /// as its horizon, which costs images but is always safe.
    pub fn set_redo_horizon(&self, horizon: Lsn) {
        self.horizon.store(horizon.0, Ordering::Relaxed);
    }

    /// The horizon of the last [`BufferPool::sweep`] before the file was opened. A checkpoint with a newer one was
    /// taken of another copy of the file (PAGE-12).
    pub fn opened_horizon(&self) -> Lsn {
        self.opened_horizon
    }

    /// Pages in the data file, allocated or not.
    pub fn page_count(&self) -> u64 {
        self.space.page_count()
    }

    /// Frames in the pool.
    pub(crate) fn frame_count(&self) -> usize {
        self.frames.count()
    }

    fn latch_deadline() -> Instant {
        Instant::now() + LATCH_WAIT
    }

    /// A wait of [`LATCH_WAIT`] for a page was in vain. What the latch says tells whether somebody holds it or has just
    /// been woken.
    #[cold]
    fn stuck(&self, page: PageId) -> StorageError {
        let frame = self.resident(page).map(|place| &place.frame.latch);
        let state = frame.map_or_else(|| "it is in no frame".to_owned(), |latch| format!("{latch:?}"));
        StorageError::io(format!("latch page {page} ({state}) of"), &self.path)(
            io::ErrorKind::TimedOut.into(),
        )
    }

    /// A failed write or sync: the database stops, because nobody knows what is in the file (PAGE-9).
    #[cold]
    fn fatal(&self, error: StorageError) -> StorageError {
        self.log.poison(&error.to_string());
        error
    }

    /// Stops the cleaner and the readers, and lets nobody write to the file any more (PAGE-13): when this returns, no
    /// write is under way. Pages in memory stay usable; what is dirty stays unwritten (see [`BufferPool::flush_all`]).
    pub fn close(&self) {
        self.cleaner.stop();
        self.readers.stop();
        // No sweep is under way.
        let _sweeping = self.sweeping.lock();
        // Nor does anybody lengthen the file: a thread that comes later sees that it is closed.
        let growing = self.space.growing.lock();
        self.closed.store(true, Ordering::Relaxed);
        drop(growing);
        // Partner is the fence in `check_open`: whoever announced a write and does not see this is seen below.
        fence(Ordering::SeqCst);
        for place in self.all_frames() {
            // A write that hangs for so long has nobody who would wait for it.
            _ = place.frame.await_write(BufferPool::latch_deadline());
        }
    }

    /// Whether pages may be written; asked by whoever has announced that it writes.
    pub(crate) fn check_open(&self) -> Result<()> {
        // Partner is the fence in `close`.
        fence(Ordering::SeqCst);
        if self.closed.load(Ordering::Relaxed) { Err(StorageError::Closed) } else { Ok(()) }
    }

    /// Looks for what must not be while nobody but the cleaner and the readers use the pool: a latch or a write left
    /// over, frames and translation that disagree, a page in two frames. Says what it found.
    pub fn verify_quiescent(&self) -> Result<(), String> {
        let mut seen = BTreeMap::new();
        let deadline = Instant::now() + QUIESCENCE_WAIT;
        while !self.readers.are_idle() {
            if Instant::now() >= deadline {
                return Err("pages are being read ahead".to_owned());
            }
            thread::sleep(QUIESCENCE_LOOK);
        }
        for place in self.all_frames() {
            let (index, page) = (place.index, place.frame.page());
            if !place.frame.await_write(deadline) {
                return Err(format!("a write of page {page} in frame {index} is in transit"));
            }
            let Ok(guard) = place.frame.latch.exclusive_until(Some(deadline), &mut || true) else {
                return Err(format!("frame {index} with page {page} is latched"));
            };
            if !page.is_some() {
                if place.frame.is_dirty() {
                    return Err(format!("frame {index} is empty but dirty"));
                }
            } else if self.translation.get(page) != Some(index) {
                return Err(format!("page {page} is in frame {index}, the translation says otherwise"));
            } else if let Some(other) = seen.insert(page, index) {
                return Err(format!("page {page} is in the frames {other} and {index}"));
            } else if place.words.page_id() != page {
                return Err(format!("frame {index} holds page {}, not {page}", place.words.page_id()));
            }
            drop(guard);
        }
        let free = self.free.lock().len();
        if free + seen.len() != self.frames.count() {
            return Err(format!(
                "{} frames, {} with a page and {free} free",
                self.frames.count(),
                seen.len()
            ));
        }
        match self.awaiting.lock().len() {
            0 => Ok(()),
            count => Err(format!("{count} pages still await an image")),
        }
    }
}

impl Drop for BufferPool {
    fn drop(&mut self) {
        self.cleaner.stop();
        self.readers.stop();
    }
}
