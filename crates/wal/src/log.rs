//! The log, as the crates above see it.

use std::{collections::VecDeque, io, path::Path};

use foreshore_base::{Lsn, Result, StorageError, TxnId};
use foreshore_env::{
    disk::Disk,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use crate::{
    core::{Core, Stop, run_flusher, run_maker, run_writer},
    frame::{RecordHeader, RecordKind},
    insert::Urgency,
    options::LogOptions,
    reader::{BackwardReader, LogReader},
    scan::{self, Found},
    segment::Geometry,
    store::{self, Store},
    survey,
};

/// The write-ahead log: records are appended by any number of threads, and become durable in the order of their LSNs.
///
/// Dropping it without [`Log::close`] is like the death of the process: what was not flushed is lost.
#[derive(Debug)]
pub struct Log {
    core: Arc<Core>,
    /// The threads of the flusher, of the writer and of the maker of spares, until they are joined.
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl Log {
    /// Makes an empty log in `directory`, which is made when absent. Segments that an interrupted making left there are
    /// thrown away, so whoever calls this is sure that there is no database. `log_id` should be random.
    pub fn create(
        disk: Arc<dyn Disk>,
        directory: &Path,
        log_id: u64,
        options: &LogOptions,
    ) -> Result<Arc<Log>> {
        Log::create_at(disk, directory, log_id, 0, options)
    }

    /// As [`Log::create`], with the first segment at (or, as segments begin at multiples of their size, before) `base`:
    /// for tests of large LSNs.
    #[doc(hidden)]
    pub fn create_at(
        disk: Arc<dyn Disk>,
        directory: &Path,
        log_id: u64,
        base: u64,
        options: &LogOptions,
    ) -> Result<Arc<Log>> {
        disk.create_directory(directory).map_err(StorageError::io("make", directory))?;
        if let Some(parent) = directory.parent() {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            disk.sync_directory(parent).map_err(StorageError::io("sync", parent))?;
        }
        let listing = store::list(&*disk, directory)?;
        for (_, path) in listing.segments.iter().chain(&listing.spares) {
            disk.remove(path).map_err(StorageError::io("remove", path))?;
        }
        let geometry = Geometry::new(options.segment());
        let base = geometry.base(base);
        let store = Store::new(disk, directory, log_id, geometry, VecDeque::new(), Vec::new())?;
        let last = store.make(base)?;
        let end = geometry.next_start(base);
        let found = Found { store, geometry, last, end, sealed: false };
        Log::start(Core::new(found, log_id, end, options), directory)
    }

    /// Opens a log and finds its end, reading from `from` on: the oldest LSN that anybody still needs (the start of the
    /// redo and of every transaction that may have to be undone). Segments before it are recycled.
    ///
    /// A torn tail is the end, and is overwritten. Damage to what was durable once is `Corrupted`, as far as it can be
    /// known for damage: see the crate's README.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        log_id: u64,
        from: Lsn,
        options: &LogOptions,
    ) -> Result<Arc<Log>> {
        let found = scan::open(disk, directory, log_id, from)?;
        Log::start(Core::new(found, log_id, from.0, options), directory)
    }

    /// Opens a log from the segment of `from` on as far as it can be read, and says why it ends there if that is not
    /// its end: for salvage, on a disk that keeps nothing of what is written to it. The log is for reading; it may lack
    /// a segment's header.
    ///
    /// # Errors
    /// `Corrupted` without that segment; `Io` where this process gets no more files.
    pub fn open_damaged(
        disk: Arc<dyn Disk>,
        directory: &Path,
        log_id: u64,
        from: Lsn,
        options: &LogOptions,
    ) -> Result<(Arc<Log>, Option<StorageError>)> {
        let (found, damage) = scan::open_damaged(disk, directory, log_id, from)?;
        Ok((Log::start(Core::new(found, log_id, from.0, options), directory)?, damage))
    }

    /// The id of the log in a directory whose owner does not know it any more, and where the run of segments begins
    /// that leads up to its newest one, as their headers say; `None` if no header is sound. Reads only. For salvage.
    ///
    /// # Errors
    /// The directory cannot be listed, or this process gets no more files.
    pub fn survey(disk: &dyn Disk, directory: &Path) -> Result<Option<(u64, Lsn)>> {
        survey::survey(disk, directory)
    }

    /// The size of the segments of the log in a directory, which was fixed when it was made; `None` if no segment says
    /// it. Opens no log, and may run beside whoever has it open.
    ///
    /// # Errors
    /// The directory cannot be listed, or this process gets no more files.
    pub fn segment_bytes_in(disk: &dyn Disk, directory: &Path) -> Result<Option<u64>> {
        survey::segment_bytes(disk, directory)
    }

    fn start(core: Core, directory: &Path) -> Result<Arc<Log>> {
        let log = Log { core: Arc::new(core), threads: Mutex::default() };
        log.core.name_for_simulation();
        log.core.reserve()?;
        log.spawn("foreshore-log", run_flusher)
            .and_then(|()| log.spawn("foreshore-write", run_writer))
            .and_then(|()| log.spawn("foreshore-space", run_maker))
            .map_err(StorageError::io("start a thread for", directory))?;
        Ok(Arc::new(log))
    }

    fn spawn(&self, name: &str, life: fn(&Core)) -> io::Result<()> {
        let core = Arc::clone(&self.core);
        let handle = thread::Builder::new().name(name.to_owned()).spawn(move || life(&core))?;
        self.threads.lock().push(handle);
        Ok(())
    }

    /// Appends a record whose payload is the concatenation of these pieces; returns its LSN. Waits only for the
    /// flusher, for room in the circular buffer and, if it is work, for space on the disk that work may use (WAL-13);
    /// beside [`Log::close`] until that knows whether the record is durable (WAL-18).
    ///
    /// # Errors
    /// `LogFull` for work past [`Log::work_bytes`], or where there is no space on the disk for more that could be taken
    /// back, and for what ends work past all of the capacity;
    /// `LimitExceeded` for a payload above `MAX_PAYLOAD_BYTES`, a transaction id above 48 bits, or one of the two kinds
    /// that the log keeps for itself; `Poisoned`; `Closed`. Nothing is appended then; but beside [`Log::close`]
    /// the record may be in the buffer, where this log's readers see it, and no later opening does (WAL-18).
    #[inline]
    pub fn append(
        &self,
        urgency: Urgency,
        txn: TxnId,
        prev: Lsn,
        kind: RecordKind,
        payload: &[&[u8]],
    ) -> Result<Lsn> {
        self.core.append(txn, prev, kind, payload, urgency)
    }

    /// Whether records of so many bytes together would be appended now, or refused, without waiting: for room in the
    /// buffer, or, if they are work, for space on the disk. A hint: others may take it. At most a quarter of the
    /// smallest buffer (256 KiB), lest it never be so.
    pub fn has_room(&self, urgency: Urgency, bytes: u64) -> bool {
        self.core.has_room(urgency, bytes)
    }

    /// Waits until [`Log::has_room`], so that [`Log::append`] hardly waits: for whoever is about to take a latch that
    /// all want. Until `deadline` at most; whether there is room.
    pub fn await_room(&self, urgency: Urgency, bytes: u64, deadline: Option<Instant>) -> bool {
        self.core.await_room(urgency, bytes, deadline)
    }

    /// Whether somebody waits for room in the buffer, or for space on the disk, now. A figure.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.core.awaiting_room() > 0
    }

    /// For how long these were waited for by now, all threads together, since the log was opened; those that have slept
    /// since they last looked are not in it.
    pub fn waited(&self) -> Duration {
        self.core.waited()
    }

    /// Returns when the record that starts at `lsn`, and so everything before it, is durable. One sync serves all who
    /// wait for it.
    ///
    /// # Errors
    /// `Poisoned` if the log dies first; `Corrupted` if no record with this LSN has been appended: a page that claims
    /// to depend on one is damaged.
    #[inline]
    pub fn flush(&self, lsn: Lsn) -> Result<()> {
        self.core.flush(lsn, None).map(|_| ())
    }

    /// As [`Log::flush`], until `deadline` at most; whether the record is durable.
    pub fn flush_until(&self, lsn: Lsn, deadline: Instant) -> Result<bool> {
        self.core.flush(lsn, Some(deadline))
    }

    /// Asks for a flush of the record that starts at `lsn`, without waiting.
    pub fn request_flush(&self, lsn: Lsn) {
        self.core.request_flush(lsn);
    }

    /// The id that the log was made with.
    pub fn id(&self) -> u64 {
        self.core.store.log_id()
    }

    /// Every record that starts below this is durable.
    #[inline]
    pub fn durable(&self) -> Lsn {
        Lsn(self.core.durable())
    }

    /// Has the processor fetch the line where all appends meet, for a caller that will append soon. That of a log that
    /// claims places under a mutex, or one for several, is left alone.
    #[inline]
    pub fn prefetch_tail(&self) {
        self.core.prefetch_tail();
    }

    /// Whether the record that starts at `lsn` is durable.
    #[inline]
    pub fn is_durable(&self, lsn: Lsn) -> bool {
        self.durable() > lsn
    }

    /// The next record gets this LSN or a later one.
    #[inline]
    pub fn tail(&self) -> Lsn {
        Lsn(self.core.tail())
    }

    /// Reads the record that starts at `lsn`; `buffer` gets its payload. Any `lsn` is allowed, also one from a damaged
    /// record.
    pub fn read(&self, lsn: Lsn, buffer: &mut Vec<u8>) -> Result<RecordHeader> {
        self.core.read(lsn, buffer)
    }

    /// As [`Log::read`], for one record after another, each before the last.
    pub fn backward(&self) -> BackwardReader<'_> {
        BackwardReader::new(&self.core)
    }

    /// Reads forward from `from` (the LSN of a record, or a former [`Log::tail`]) up to the present tail.
    pub fn reader(&self, from: Lsn) -> LogReader {
        LogReader::new(Arc::clone(&self.core), from)
    }

    /// Says that nothing below `lsn` is needed any more. Segments that lie below it are recycled. Never goes back.
    pub fn release_before(&self, lsn: Lsn) -> Result<()> {
        if let Some(poisoned) = self.core.poisoned() {
            return Err(poisoned);
        }
        let low_water = self.core.raise_low_water(lsn.0);
        let result = self.core.release_space(low_water);
        if let Err(error) = &result {
            self.core.poison(&error.to_string());
        }
        result
    }

    /// Says that nothing before `lsn` will be taken back: no open transaction has a record there. Space for that need
    /// not be kept on the disk any more. Never goes back; a late word costs space, nothing else.
    pub fn keep_before(&self, lsn: Lsn) {
        self.core.raise_undo_floor(lsn.0);
    }

    /// Bytes of a segment.
    pub fn segment_bytes(&self) -> u64 {
        self.core.geometry.segment_bytes()
    }

    /// What [`Log::release_before`] has said, or where the log was opened.
    pub fn low_water(&self) -> Lsn {
        Lsn(self.core.low_water())
    }

    /// Bytes of the log between the low-water mark and the tail.
    pub fn used_bytes(&self) -> u64 {
        self.core.tail().saturating_sub(self.core.low_water())
    }

    /// The most that the log may hold.
    pub fn capacity_bytes(&self) -> u64 {
        self.core.capacity_bytes
    }

    /// The most that ordinary appends may fill: three eighths of the capacity.
    pub fn work_bytes(&self) -> u64 {
        self.core.work_bytes
    }

    /// Bytes that ordinary appends may still fill as things are: fewer on a disk that has no space for more.
    pub fn work_left_bytes(&self) -> u64 {
        self.core.work_left_bytes()
    }

    /// Whether a log from `from` on would be within what ordinary appends may fill: as much as is needed to take it
    /// back is left then.
    pub fn is_within_work(&self, from: Lsn) -> bool {
        self.core.is_within_work(from.0)
    }

    /// The error of an append that is refused now.
    pub fn full(&self) -> StorageError {
        self.core.log_full()
    }

    /// How often a batch was made durable since the log was opened.
    pub fn flushes(&self) -> u64 {
        self.core.flushes()
    }

    /// Stops the whole database for good: every later append and flush, and every one that waits, fails with this
    /// cause. The first cause stays. Anybody calls this whose failure leaves log and memory apart.
    #[cold]
    pub fn poison(&self, cause: &str) {
        self.core.poison(cause);
    }

    /// The error that everybody gets since [`Log::poison`].
    #[inline]
    pub fn poisoned(&self) -> Option<StorageError> {
        self.core.poisoned()
    }

    /// Makes everything durable, puts a mark under it, and ends the flusher. Appends fail from now on, but for some
    /// that have begun, and are made durable, too (WAL-18); reading goes on.
    pub fn close(&self) -> Result<()> {
        self.stop(Stop::Flushed);
        self.core.poisoned().map_or(Ok(()), Err)
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    fn stop(&self, stop: Stop) {
        self.core.shut(stop);
        // Held while joining: a second caller returns when the first has joined.
        let mut threads = self.threads.lock();
        for handle in threads.drain(..) {
            // One that panicked has poisoned the log.
            let _ = handle.join();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.stop(Stop::Now);
    }
}
