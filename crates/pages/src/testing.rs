//! What the tests of this crate share: a database of pages, without trees and transactions, on a disk that watches
//! the pool's promises.

use std::{cell::Cell, collections::HashSet, fmt, io, path::Path};

use foreshore_base::{Lsn, PageId, Result, StorageError, TxnId, limits::PAGE_BYTES};
use foreshore_env::{
    disk::{Disk, DiskFile, OpenMode},
    hand_on,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread, thread_local,
    time::{Duration, Instant},
};
use foreshore_latch::Patience;
use foreshore_testkit::FaultyDisk;
use foreshore_wal::{Log, LogOptions, RecordKind, Urgency};

use crate::{
    BufferPool, ExclusivePage, FreeSpaceKind, NewPage, PageWords, PoolOptions, TransitKind, TranslationKind,
    layout,
};

/// How long a test waits for what is to happen, on the slowest machine.
pub(crate) const FAR: Duration = Duration::from_secs(120);

pub(crate) const DATA: &str = "/db/data";
pub(crate) const LOG: &str = "/db/log";
const LOG_ID: u64 = 77;

/// A disk that watches the data file: no page is written before its log (PAGE-3), unsealed, or by two at once
/// (PAGE-5); none is read while it is written, or by two at once (PAGE-4).
#[derive(Debug)]
pub(crate) struct WatchedDisk {
    inner: FaultyDisk,
    watch: Arc<Watch>,
}

#[derive(Debug, Default)]
pub(crate) struct Watch {
    log: OnceLock<Weak<Log>>,
    busy: Mutex<HashSet<u64>>,
    faults: Mutex<Vec<String>>,
    /// Data pages written under the watch's eyes.
    pub(crate) pages_written: AtomicU64,
    pub(crate) pages_read: AtomicU64,
}

impl Watch {
    fn enter(&self, page: u64, what: &str) {
        if !self.busy.lock().insert(page) {
            self.fault(format!("page {page} is {what} while it is read or written"));
        }
    }

    fn leave(&self, page: u64) {
        self.busy.lock().remove(&page);
    }

    fn fault(&self, text: String) {
        self.faults.lock().push(text);
    }

    pub(crate) fn check(&self) {
        let faults = self.faults.lock();
        assert!(faults.is_empty() || thread::panicking(), "{faults:?}");
    }
}

impl Disk for WatchedDisk {
    hand_on!(inner: create_directory, sync_directory, list, rename, remove, exists, lies_in, lock, lock_shared);

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let inner = self.inner.open(path, mode)?;
        if path != Path::new(DATA) {
            return Ok(inner);
        }
        Ok(Arc::new(WatchedFile { inner, watch: Arc::clone(&self.watch) }))
    }
}

struct WatchedFile {
    inner: Arc<dyn DiskFile>,
    watch: Arc<Watch>,
}

impl fmt::Debug for WatchedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedFile").finish_non_exhaustive()
    }
}

impl DiskFile for WatchedFile {
    hand_on!(inner: sync, len, set_len, allocate);

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let end = offset + buffer.len() as u64;
        let pages = || offset / PAGE_BYTES as u64..end.div_ceil(PAGE_BYTES as u64);
        for page in pages() {
            self.watch.enter(page, "read");
            self.watch.pages_read.fetch_add(1, Ordering::Relaxed);
        }
        thread::yield_now();
        let result = self.inner.read_at(buffer, offset);
        pages().for_each(|page| self.watch.leave(page));
        result
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let Some(log) = self.watch.log.get().and_then(Weak::upgrade) else {
            return self.inner.write_all_at(bytes, offset);
        };
        let first = offset / PAGE_BYTES as u64;
        for (index, page) in (first..).zip(bytes.as_chunks::<PAGE_BYTES>().0) {
            self.watch.enter(index, "written");
            self.watch.pages_written.fetch_add(1, Ordering::Relaxed);
            let lsn = layout::lsn_of(page).max(layout::image_lsn_of(page));
            if lsn > Lsn::ZERO && !log.is_durable(lsn) {
                self.watch
                    .fault(format!("page {index} is written with LSN {lsn}, durable is {}", log.durable()));
            }
            let seal = layout::Seal::new(log.id());
            if let Err(error) = seal.check(page, PageId(index as u32), log.tail()) {
                self.watch.fault(format!("page {index} is written wrongly: {error}"));
            }
        }
        thread::yield_now();
        let result = self.inner.write_all_at(bytes, offset);
        (first..first + (bytes.len() / PAGE_BYTES) as u64).for_each(|page| self.watch.leave(page));
        result
    }
}

/// A page gets a number at an offset. Payload: page id, offset, number.
pub(crate) const SET: RecordKind = RecordKind(100);
/// A page is allocated, with zeros but for this number at offset 64. Payload: page id, number.
pub(crate) const ALLOCATE: RecordKind = RecordKind(101);
/// A page is freed. Payload: page id.
pub(crate) const FREE: RecordKind = RecordKind(102);

/// A page moves: the new one is allocated, with zeros but for the number at offset 64, and the old one, whose number
/// becomes 0, is freed. Payload: new page id, old page id, number.
pub(crate) const MOVE: RecordKind = RecordKind(104);

/// For tests of what happens only if others come to something at the right moment: so many rounds at least, then more,
/// until it has happened, or for [`FAR`]. That time begins behind those rounds: they may take as long by themselves,
/// where the machine is busy or stands still, and under a sanitizer.
pub(crate) struct Rounds {
    least: u64,
    behind: Option<Instant>,
}

impl Rounds {
    pub(crate) fn at_least(least: u64) -> Rounds {
        Rounds { least, behind: None }
    }

    /// Whether so many are enough.
    pub(crate) fn are_over(&mut self, rounds: u64, has_happened: bool) -> bool {
        let is_late = |behind: &mut Option<Instant>| behind.get_or_insert_with(Instant::now).elapsed() > FAR;
        rounds >= self.least && (has_happened || is_late(&mut self.behind))
    }
}

/// A record that changes nothing.
pub(crate) const NOTHING: RecordKind = RecordKind(103);

/// A database of pages.
pub(crate) struct World {
    pub(crate) disk: FaultyDisk,
    pub(crate) watch: Arc<Watch>,
    pub(crate) log: Arc<Log>,
    pub(crate) pool: Arc<BufferPool>,
    /// The changes that recovery found in the log.
    pub(crate) found: Vec<Lsn>,
}

thread_local! {
    /// The pool that this thread's tests make.
    static VARIANT: Cell<(TranslationKind, TransitKind)> = Cell::default();
}

/// Runs a test over every way of translation, and every way of transit.
pub(crate) fn over_all(test: impl Fn()) {
    let translations = TranslationKind::ALL.map(|kind| (kind, TransitKind::InFrame));
    let transits =
        [TransitKind::OneList, TransitKind::ManyLists].map(|kind| (TranslationKind::PageTable, kind));
    over(&[&translations[..], &transits[..]].concat(), test);
}

/// Runs a test over the road and over what differs from it most.
pub(crate) fn over_extremes(test: impl Fn()) {
    over(&[Default::default(), (TranslationKind::Cuckoo, TransitKind::OneList)], test);
}

fn over(variants: &[(TranslationKind, TransitKind)], test: impl Fn()) {
    for variant in variants {
        VARIANT.set(*variant);
        println!("{variant:?}");
        test();
    }
}

pub(crate) fn options(frames: usize) -> PoolOptions {
    PoolOptions {
        bytes: frames * PAGE_BYTES,
        prefault: false,
        cleaners: 1,
        frame_wait: FAR,
        bitmap_span: 128,
        translation: VARIANT.get().0,
        transit: VARIANT.get().1,
        read_ahead: 32,
        free_space: FreeSpaceKind::default(),
        salvage: false,
        transient: false,
    }
}

/// What comes of an action that needs frames, in a pool that waits for them for a short time only: a machine that
/// stands still may let it pass before the cleaner comes on.
pub(crate) fn once_there_is_a_frame<R>(mut action: impl FnMut() -> Result<R>) -> R {
    let start = Instant::now();
    loop {
        match action() {
            Err(StorageError::PoolExhausted { .. }) if start.elapsed() < FAR => {}
            result => return result.unwrap(),
        }
    }
}

fn log_options() -> LogOptions {
    LogOptions {
        segment_bytes: 128 << 10,
        buffer_bytes: 256 << 10,
        flush_interval: Duration::from_millis(5),
        ..LogOptions::default()
    }
}

impl World {
    pub(crate) fn create(frames: usize) -> World {
        World::create_on(FaultyDisk::new(), &options(frames)).unwrap()
    }

    pub(crate) fn create_on(disk: FaultyDisk, options: &PoolOptions) -> Result<World> {
        World::create_with(disk, options, &log_options())
    }

    /// One whose log is flushed when somebody asks for it, and not by the time.
    pub(crate) fn create_with_a_lazy_log(frames: usize) -> World {
        let log = LogOptions { flush_interval: Duration::from_secs(3600), ..log_options() };
        World::create_with(FaultyDisk::new(), &options(frames), &log).unwrap()
    }

    fn create_with(disk: FaultyDisk, options: &PoolOptions, log: &LogOptions) -> Result<World> {
        disk.create_directory(Path::new("/db")).unwrap();
        disk.create_directory(Path::new(LOG)).unwrap();
        disk.sync_directory(Path::new("/")).unwrap();
        disk.sync_directory(Path::new("/db")).unwrap();
        let watch = Arc::new(Watch::default());
        let watched: Arc<dyn Disk> = Arc::new(WatchedDisk { inner: disk.clone(), watch: Arc::clone(&watch) });
        let log = Log::create(Arc::clone(&watched), Path::new(LOG), LOG_ID, log)?;
        watch.log.set(Arc::downgrade(&log)).unwrap();
        let pool = BufferPool::create(&watched, Path::new(DATA), Arc::clone(&log), options)?;
        Ok(World { disk, watch, log, pool, found: Vec::new() })
    }

    /// Opens what is on `disk` and repeats the history from `horizon` on.
    pub(crate) fn recover(disk: FaultyDisk, options: &PoolOptions, horizon: Lsn) -> Result<World> {
        let watch = Arc::new(Watch::default());
        let watched: Arc<dyn Disk> = Arc::new(WatchedDisk { inner: disk.clone(), watch: Arc::clone(&watch) });
        let log = Log::open(Arc::clone(&watched), Path::new(LOG), LOG_ID, horizon, &log_options())?;
        watch.log.set(Arc::downgrade(&log)).unwrap();
        let pool = BufferPool::open(&watched, Path::new(DATA), Arc::clone(&log), options)?;
        pool.set_redo_horizon(horizon);
        let (mut reader, mut payload, mut found) = (log.reader(horizon), Vec::new(), Vec::new());
        while let Some(header) = reader.next(&mut payload)? {
            if pool.redo_record(&header, &payload)? {
                continue;
            }
            let number = |offset: usize| u64::from_le_bytes(payload[offset..offset + 8].try_into().unwrap());
            let page = PageId(payload.first_chunk().map_or(0, |id| u32::from_le_bytes(*id)));
            if header.kind != NOTHING {
                found.push(header.lsn);
            }
            match header.kind {
                SET => pool.redo(page, header.lsn, |words| {
                    words.set_u64(number(4) as usize, number(12));
                    Ok(())
                })?,
                ALLOCATE => {
                    pool.redo_allocate(page, header.lsn)?;
                    pool.redo_format(page, header.lsn, |words| {
                        words.set_u64(64, number(4));
                        Ok(())
                    })?;
                }
                FREE => pool.redo_free(page, header.lsn)?,
                MOVE => {
                    let from = PageId(u32::from_le_bytes(payload[4..8].try_into().unwrap()));
                    pool.redo_move(from, page, header.lsn)?;
                    pool.redo_format(page, header.lsn, |words| {
                        words.set_u64(64, number(8));
                        Ok(())
                    })?;
                    pool.redo(from, header.lsn, |words| {
                        words.set_u64(64, 0);
                        Ok(())
                    })?;
                }
                NOTHING => {}
                kind => panic!("a record of kind {kind:?}"),
            }
        }
        pool.finish_redo()?;
        Ok(World { disk, watch, log, pool, found })
    }

    pub(crate) fn append(&self, kind: RecordKind, payload: &[&[u8]]) -> Result<Lsn> {
        self.log.append(Urgency::Work, TxnId::SYSTEM, Lsn::ZERO, kind, payload)
    }

    pub(crate) fn allocate(&self, number: u64) -> Result<PageId> {
        self.allocate_logged(number).map(|(id, _)| id)
    }

    pub(crate) fn allocate_logged(&self, number: u64) -> Result<(PageId, Lsn)> {
        self.allocate_for(number, Urgency::Work)
    }

    /// A page that had best lie near `hint`.
    pub(crate) fn allocate_near(&self, hint: PageId, number: u64) -> Result<PageId> {
        self.fill(self.pool.allocate(hint)?, number).map(|(id, _)| id)
    }

    pub(crate) fn allocate_for(&self, number: u64, urgency: Urgency) -> Result<(PageId, Lsn)> {
        self.fill(self.pool.allocate_for(PageId::NONE, urgency, Patience::ENDLESS)?, number)
    }

    fn fill(&self, mut page: NewPage<'_>, number: u64) -> Result<(PageId, Lsn)> {
        let id = page.id();
        let lsn = self.append(ALLOCATE, &[&id.0.to_le_bytes(), &number.to_le_bytes()])?;
        page.page().words().set_u64(64, number);
        drop(page.commit(lsn));
        Ok((id, lsn))
    }

    pub(crate) fn free(&self, id: PageId) -> Result<Lsn> {
        let freeing = self.pool.free_page_within(id, Patience::ENDLESS)?;
        let lsn = self.append(FREE, &[&id.0.to_le_bytes()])?;
        freeing.commit(lsn);
        Ok(lsn)
    }

    /// Makes everything in the log durable.
    pub(crate) fn flush_log(&self) -> Result<()> {
        let mark = self.append(NOTHING, &[])?;
        self.log.flush(mark)
    }

    pub(crate) fn set_on(&self, page: &mut ExclusivePage<'_>, offset: usize, number: u64) -> Result<Lsn> {
        page.prepare(Urgency::Work)?;
        let payload: [&[u8]; 3] =
            [&page.id().0.to_le_bytes(), &(offset as u64).to_le_bytes(), &number.to_le_bytes()];
        let lsn = self.append(SET, &payload)?;
        page.words().set_u64(offset, number);
        page.applied(lsn);
        Ok(lsn)
    }

    pub(crate) fn set(&self, id: PageId, offset: usize, number: u64) -> Result<Lsn> {
        self.set_on(&mut self.pool.exclusive(id)?, offset, number)
    }

    pub(crate) fn get(&self, id: PageId, offset: usize) -> Result<u64> {
        Ok(self.pool.shared(id)?.words().u64(offset))
    }

    /// Reads `offset` without a latch, as often as it takes.
    pub(crate) fn get_optimistic<R>(&self, id: PageId, read: impl Fn(&PageWords) -> R) -> Result<R> {
        loop {
            let page = self.pool.optimistic(id)?;
            let result = read(page.words());
            if page.validate() {
                return Ok(result);
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.pool.close();
        self.watch.check();
        // Not all worlds end well; those that do are checked by their tests.
        self.log.close().ok();
    }
}
