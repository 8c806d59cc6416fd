//! What those who append, those who wait and the flusher share.
//!
//! The positions, ascending (WAL-2): `low water ≤ written ≤ tail` and `durable ≤ written`; `reclaimed` is where the
//! block of the file begins in which `written` lies.
//!
//! ```text
//!   low water        durable         reclaimed   written               tail
//!       |    on disk    |  in the file   |  in a block |  in the ring only   |   free places of the ring …
//!       |               |   but unsynced | that is not |                     |   up to reclaimed + ring size
//!       |               |                |  full yet   |                     |
//! ```

mod append;
mod flusher;
mod gather;
mod lead;
mod maker;
mod pen;
mod read;
mod reserve;
#[cfg(test)]
mod tests;
mod wait;

use std::slice;

use foreshore_base::StorageError;
use foreshore_env::{
    CachePadded, hint,
    sync::{
        Condvar, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    doze::Doze,
    frame::Seal,
    insert::Inserter,
    options::{LogOptions, work_bytes},
    ring::Ring,
    scan::Found,
    segment::Geometry,
    store::Store,
};
use flusher::Flusher;
use pen::Pen;
use wait::{Timer, Waiting};

pub(crate) use flusher::run_flusher;
pub(crate) use maker::run_maker;
pub(crate) use pen::run_writer;
pub(crate) use wait::Stop;

/// [`Core::gate`]: everything is allowed.
const OPEN: u8 = 0;
/// [`Core::gate`]: the log was closed; what is there may be read.
const CLOSED: u8 = 1;
/// [`Core::gate`]: something failed; see [`Core::cause`].
const POISONED: u8 = 2;

/// The log stops before LSNs of this size: sums of positions and lengths never overflow.
const LAST_POSITION: u64 = u64::MAX / 4;

/// How many blocks the ring has, each of which is allowed as a whole to those who append (`insert/fetch_add.rs`): a
/// nearly full one is filled to the end by single claims.
const BLOCKS_OF_RING: u64 = 16;

/// What those who append, those who wait and the flusher share.
#[derive(Debug)]
pub(crate) struct Core {
    /// Where the next record is claimed.
    inserter: Inserter,
    /// Below this records are durable. Advanced by the flusher.
    durable: CachePadded<AtomicU64>,
    /// Batches made durable. Counted by the flusher; relaxed, for it orders nothing.
    flushes: AtomicU64,
    /// Below this nothing is needed. Advanced by checkpoints.
    low_water: AtomicU64,
    /// Nothing before this is ever taken back. Advanced by whoever knows who is open.
    undo_floor: AtomicU64,
    /// Work may be appended up to here: space on the disk for it, and for taking it back (WAL-13). Written under
    /// [`Core::telling_space`]; relaxed, since a thread that claims by an old value claims less.
    space_limit: AtomicU64,
    /// Held to tell how far the space goes.
    telling_space: Mutex<()>,
    /// Work has begun, so space is taken for it. Not before: what space there is may be needed to recover. Relaxed: it
    /// is seen by the maker of spares that is woken after it was set.
    takes_space: AtomicBool,
    /// There was no space for more. Written under [`Core::telling_space`] or by the maker of spares, relaxed: it
    /// chooses between two refusals.
    disk_is_full: AtomicBool,
    /// `OPEN`, `CLOSED` or `POISONED`; only ever grows. Shut under the mutex of `waiting`; a relaxed look behind a
    /// claim is ordered by the tail (WAL-18).
    gate: AtomicU8,
    /// The first failure; set before the gate says `POISONED`.
    cause: OnceLock<String>,
    /// There is enough in the ring for the writer to write it.
    write_wanted: AtomicBool,
    /// The flusher sleeps until an append wakes it.
    doze: Doze,
    /// How many wait for room in the ring, or for space on the disk. Changed with `waiting` locked. Relaxed: what is
    /// done about them is done with that.
    awaiting_room: AtomicUsize,
    /// For how long they have waited, in nanoseconds.
    waited_ns: AtomicU64,
    /// Who waits, and for what.
    waiting: Mutex<Waiting>,
    /// Whoever makes a batch durable holds it: the flusher, or a leader (`lead.rs`). Nobody waits for it, for `waiting`
    /// says who is next.
    flusher: Mutex<Flusher>,
    /// Held while a piece is written.
    pen: Mutex<Pen>,
    /// The flusher sleeps here.
    work: Condvar,
    /// The writer sleeps here.
    writing: Condvar,
    /// Those who wait for a flush: each batch of the flusher wakes one of the two, by its number's parity.
    batches: [Condvar; 2],
    /// Those who wait for room in the ring, or for space on the disk.
    space: Condvar,
    /// The maker of spares sleeps here.
    making: Condvar,
    pub(crate) ring: Ring,
    pub(crate) seal: Seal,
    pub(crate) geometry: Geometry,
    pub(crate) store: Store,
    /// The most that the log may hold.
    pub(crate) capacity_bytes: u64,
    /// The most that work may fill.
    pub(crate) work_bytes: u64,
    pub(crate) flush_interval: Duration,
    /// See [`LogOptions::latency`].
    latency: Duration,
    /// See [`LogOptions::past_cache`].
    past_cache: bool,
}

/// Poisons the log if the thread that has it panics: others would wait for it for ever.
struct Farewell<'a> {
    core: &'a Core,
    died: &'static str,
}

impl Drop for Farewell<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.core.poison(self.died);
        }
    }
}

impl Core {
    /// A log that ends where it was found to, everything durable, and of which nothing is needed below `low`.
    pub(crate) fn new(found: Found, log_id: u64, low: u64, options: &LogOptions) -> Core {
        let Found { store, geometry, last, end: tail, sealed } = found;
        // An empty log has nothing that a mark could prove.
        let bare = !sealed && tail > low;
        let capacity_bytes = options.capacity(geometry.segment_bytes(), tail.saturating_sub(low));
        let timer = Timer { flush: None, mark: bare.then(|| Instant::now() + options.interval()) };
        Core {
            inserter: Inserter::new(options.insert, geometry, tail, options.buffer() as u64 / BLOCKS_OF_RING),
            durable: CachePadded::new(AtomicU64::new(tail)),
            flushes: AtomicU64::new(0),
            low_water: AtomicU64::new(low),
            undo_floor: AtomicU64::new(low),
            space_limit: AtomicU64::new(u64::MAX),
            telling_space: Mutex::default(),
            takes_space: AtomicBool::new(low == tail),
            disk_is_full: AtomicBool::new(false),
            gate: AtomicU8::new(OPEN),
            cause: OnceLock::new(),
            write_wanted: AtomicBool::new(false),
            doze: Doze::default(),
            awaiting_room: AtomicUsize::new(0),
            waited_ns: AtomicU64::new(0),
            waiting: Mutex::new(Waiting::new(timer)),
            flusher: Mutex::new(Flusher::new(tail, sealed)),
            pen: Mutex::new(Pen::new(last)),
            work: Condvar::new(),
            writing: Condvar::new(),
            batches: [Condvar::new(), Condvar::new()],
            space: Condvar::new(),
            making: Condvar::new(),
            ring: Ring::new(options.buffer(), tail),
            seal: Seal::new(log_id),
            geometry,
            store,
            capacity_bytes,
            work_bytes: work_bytes(capacity_bytes),
            flush_interval: options.interval(),
            latency: options.latency,
            past_cache: options.past_cache,
        }
    }

    /// Tells the simulator what lies where.
    pub(crate) fn name_for_simulation(&self) {
        hint::name(slice::from_ref(&self.inserter), "log tail");
        hint::name(slice::from_ref(&self.durable), "log durable position");
        hint::name(slice::from_ref(&self.waiting), "log waiters");
        self.ring.name_for_simulation();
    }

    pub(crate) fn tail(&self) -> u64 {
        self.inserter.tail()
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    pub(crate) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    pub(crate) fn low_water(&self) -> u64 {
        self.low_water.load(Ordering::Acquire)
    }

    /// Raises the low-water mark; gives where it is now.
    pub(crate) fn raise_low_water(&self, position: u64) -> u64 {
        let position = position.min(self.tail());
        self.low_water.fetch_max(position, Ordering::AcqRel).max(position)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.gate.load(Ordering::Acquire) == OPEN
    }

    /// Stops everything for good. The first cause stays.
    #[cold]
    pub(crate) fn poison(&self, cause: &str) {
        self.cause.get_or_init(|| cause.to_owned());
        // Under the mutex: whoever is about to sleep sees it, or is woken.
        let mut waiting = self.waiting.lock();
        self.gate.store(POISONED, Ordering::Release);
        self.wake_all(&mut waiting);
    }

    /// Why the gate is shut; `None` when it is not.
    pub(crate) fn poisoned(&self) -> Option<StorageError> {
        let cause = self.cause.get().filter(|_| self.gate.load(Ordering::Acquire) == POISONED)?;
        Some(StorageError::Poisoned { cause: cause.clone() })
    }

    #[cold]
    pub(crate) fn refusal(&self) -> StorageError {
        self.poisoned().unwrap_or(StorageError::Closed)
    }
}
