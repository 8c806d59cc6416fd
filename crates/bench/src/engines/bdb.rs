//! Berkeley DB 5.3: a B-tree and a write-ahead log, with locks on pages that a transaction keeps until it ends (degree 3).
//! What is read in a range is locked with its pages, so no record can appear there. Cycles of waits are found whenever somebody
//! has to wait; the youngest transaction in one runs again. Bodies that only read lock as all others do, or, if it is asked for,
//! read old versions of pages.

mod library;

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow, RangeBounds},
};

use foreshore_env::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use self::library::{BdbError, Environment, Move, Opening, Reason, Txn};
use super::{
    Durability, EngineOptions,
    btreemap::is_empty_range,
    rival::{ReadOnly, Settings, Snapshot, no_table, retried},
};
use crate::{
    BenchError,
    engine::{AbortCause, Attempts, Body, Engine, EngineTxn, Failure, Order, Outcome, TableIndex, Visit},
};

/// Bytes of a page if nothing else is said: what it takes itself where blocks of the file system are of this size.
const PAGE_BYTES: usize = 4096;
/// Transactions that may run at the same time: as many as threads, and some of its own.
const TRANSACTIONS: u32 = 1200;
/// Whoever may have locks: transactions, and each open table.
const LOCKERS: u32 = 10_000;
/// Locks, and pages that are locked, at the same time; 128 threads that each read 8,000 pages.
const LOCKS: u32 = 1 << 20;
/// Of the table of locks; as many as there may be locks would take 72 MiB more.
const LOCK_BUCKETS: u32 = 1 << 16;
/// As much as Foreshore's.
const LOG_BUFFER_BYTES: u32 = 8 << 20;
const LOG_FILE_BYTES: u32 = 64 << 20;
/// What is dirty is written when the log has grown by so much: 256 MiB, as Foreshore does it.
const CHECKPOINT_LOG_KIB: u32 = 256 << 10;
/// How often it is looked whether the log has grown by so much.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// See the module.
pub struct BdbEngine {
    environment: Arc<Environment>,
    durability: Durability,
    /// Whether bodies that only read get a snapshot.
    snapshots: bool,
    /// Set once, by who closes the engine; read by its thread. Relaxed: nothing else goes with it.
    stop: Arc<AtomicBool>,
    /// Taken by who closes the engine first.
    checkpoints: Mutex<Option<thread::JoinHandle<Result<(), BdbError>>>>,
}

impl BdbEngine {
    /// Opens the environment in the directory of `options`, or makes it there, and makes the tables that it lacks. Options:
    /// `cache_bytes`, `page_bytes`, `reads` (`locks` or `snapshots`).
    pub fn open(tables: &[String], options: &EngineOptions) -> Result<BdbEngine, BenchError> {
        let mut settings = Settings::new("bdb", options)?;
        let cache_bytes = settings.cache_bytes()?;
        let page_bytes = settings.bytes("page_bytes", PAGE_BYTES)?;
        let snapshots = settings.choice("reads", &[("locks", false), ("snapshots", true)])?;
        settings.finish()?;
        if !(512..=65_536).contains(&page_bytes) || !page_bytes.is_power_of_two() {
            return Err(BenchError::invalid("page_bytes is a power of two, 512 to 65536"));
        }
        super::make_directory(&options.directory)?;
        // The versions of a page keep the transactions that wrote them.
        let versions = if snapshots { (cache_bytes / page_bytes) as u32 } else { 0 };
        let opening = Opening {
            cache_bytes: cache_bytes as u64,
            transactions: TRANSACTIONS + versions,
            lockers: LOCKERS,
            locks: LOCKS,
            lock_buckets: LOCK_BUCKETS,
            log_buffer_bytes: LOG_BUFFER_BYTES,
            log_file_bytes: LOG_FILE_BYTES,
        };
        let environment =
            Environment::open(&options.directory, &opening, tables, page_bytes as u32, snapshots)
                .map_err(failure)?;
        let environment = Arc::new(environment);
        let stop = Arc::new(AtomicBool::new(false));
        let checkpoints = {
            let (environment, stop) = (Arc::clone(&environment), Arc::clone(&stop));
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    thread::sleep(LOOK_EVERY);
                    environment.checkpoint(CHECKPOINT_LOG_KIB)?;
                }
                Ok(())
            })
        };
        Ok(BdbEngine {
            environment,
            durability: options.durability,
            snapshots,
            stop,
            checkpoints: Mutex::new(Some(checkpoints)),
        })
    }

    fn execute(
        &self,
        durability: Durability,
        attempts: &mut Attempts,
        body: &mut Body<'_>,
    ) -> Result<Outcome, Failure> {
        retried(attempts, || {
            let txn = self.environment.begin(durability != Durability::Lazy, false).map_err(failure)?;
            let mut writing = Writing(Open { txn, tables: self.environment.tables() });
            body(&mut writing)?;
            writing.0.txn.commit().map_err(failure)?;
            Ok(())
        })
    }

    /// Ends the thread that makes checkpoints, and tells how it fared.
    fn stop(&self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(checkpoints) = self.checkpoints.lock().take() else { return Ok(()) };
        let ended = checkpoints.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ended.map_err(failure)
    }
}

impl Drop for BdbEngine {
    fn drop(&mut self) {
        // Who wants to know how it fared closes it.
        let _ = self.stop();
    }
}

#[cold]
fn failure(error: BdbError) -> Failure {
    let cause = match error.reason {
        Reason::Deadlock => AbortCause::Deadlock,
        Reason::LockNotGranted => AbortCause::LockTimeout,
        Reason::Other => AbortCause::Other,
    };
    Failure { cause, source: Box::new(error) }
}

struct Open<'e> {
    txn: Txn<'e>,
    tables: usize,
}

impl Open<'_> {
    fn table(&self, table: TableIndex) -> Result<usize, Failure> {
        let place = usize::from(table.0);
        if place < self.tables { Ok(place) } else { Err(no_table(table)) }
    }
}

impl Snapshot for Open<'_> {
    fn get(&mut self, table: TableIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        self.txn.get(self.table(table)?, key, false, value).map_err(failure)
    }

    fn scan(
        &mut self,
        table: TableIndex,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        let table = self.table(table)?;
        if is_empty_range(low, high) {
            return Ok(());
        }
        let mut cursor = self.txn.cursor(table).map_err(failure)?;
        let (from, step, end) = match order {
            Order::Ascending => (low, Move::Next, Move::First),
            Order::Descending => (high, Move::Previous, Move::Last),
        };
        let mut record = match from {
            Bound::Included(key) | Bound::Excluded(key) => {
                // It looks for the first record that is not before the key; if there is none, the last is before it.
                match (cursor.go(Move::Key, key).map_err(failure)?.is_some(), order) {
                    (true, _) => cursor.record(),
                    (false, Order::Ascending) => None,
                    (false, Order::Descending) => cursor.go(Move::Last, &[]).map_err(failure)?,
                }
            }
            Bound::Unbounded => cursor.go(end, &[]).map_err(failure)?,
        };
        let mut is_first = true;
        while let Some((key, value)) = record {
            if RangeBounds::<[u8]>::contains(&(low, high), key) {
                if visit(key, value) == ControlFlow::Break(()) {
                    break;
                }
            } else if !is_first {
                // Only where the search begins may a record lie before the range.
                break;
            }
            is_first = false;
            record = cursor.go(step, &[]).map_err(failure)?;
        }
        Ok(())
    }
}

/// A transaction that locks what it reads and writes.
struct Writing<'e>(Open<'e>);

impl EngineTxn for Writing<'_> {
    fn get(&mut self, table: TableIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        self.0.get(table, key, value)
    }

    fn get_for_update(
        &mut self,
        table: TableIndex,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        self.0.txn.get(self.0.table(table)?, key, true, value).map_err(failure)
    }

    fn insert(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<bool, Failure> {
        self.0.txn.put(self.0.table(table)?, key, value, false).map_err(failure)
    }

    fn put(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.0.txn.put(self.0.table(table)?, key, value, true).map(|_| ()).map_err(failure)
    }

    fn delete(&mut self, table: TableIndex, key: &[u8]) -> Result<bool, Failure> {
        self.0.txn.delete(self.0.table(table)?, key).map_err(failure)
    }

    fn scan(
        &mut self,
        table: TableIndex,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        self.0.scan(table, range, order, visit)
    }
}

impl Engine for BdbEngine {
    fn name(&self) -> &'static str {
        "bdb"
    }

    fn transact(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.execute(self.durability, attempts, body)
    }

    fn read(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        retried(attempts, || {
            // There is nothing to commit: it ends when it is dropped.
            let txn = self.environment.begin(false, self.snapshots).map_err(failure)?;
            body(&mut ReadOnly(Open { txn, tables: self.environment.tables() }))
        })
    }

    fn load(&self, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.execute(Durability::Lazy, &mut Attempts::default(), body)
    }

    /// A checkpoint, as Foreshore makes one.
    fn settle(&self) -> Result<(), Failure> {
        self.environment.flush_log().map_err(failure)?;
        self.environment.checkpoint(0).map_err(failure)
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        let Ok(counts) = self.environment.counts() else { return BTreeMap::new() };
        [
            ("commits", counts.commits),
            ("deadlocks", counts.deadlocks),
            ("lock_requests", counts.lock_requests),
            ("lock_waits", counts.lock_waits),
            ("log_flushes", counts.log_flushes),
            ("pages_read", counts.pages_read),
            ("pages_written", counts.pages_written),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .into()
    }

    fn close(&self) -> Result<(), Failure> {
        self.stop()?;
        self.settle()
    }
}
