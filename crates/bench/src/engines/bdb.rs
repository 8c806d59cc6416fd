//! Berkeley DB 5.3: a B-tree and a write-ahead log, with locks on pages that a transaction keeps until it ends
//! (degree 3). What is read in a range is locked with its pages, so no record can appear there. Cycles of waits are
//! found whenever somebody has to wait; the youngest transaction in one runs again. Bodies that only read lock as all
//! others do, or, if it is asked for, read old versions of pages.

mod library;

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow, RangeBounds},
};

use foreshore_env::{sync::Arc, time::Duration};

use self::library::{BdbError, CommitTo, Environment, LogWay, Move, Opening, Reason, Txn};
use super::{
    Durability, EngineOptions, LOST_WHEN_KILLED,
    btreemap::is_empty_range,
    keepers::{FLUSH_EVERY, Keepers},
    rival::{ReadOnly, Settings, retried},
};
use crate::{
    BenchError,
    engine::{
        AbortCause, Attempts, Body, Engine, EngineTxn, Failure, Order, Outcome, Reader, TableIndex, Visit,
    },
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
const LOG_BUFFER_BYTES: u32 = 16 << 20;
const LOG_FILE_BYTES: u32 = 64 << 20;
/// By how much the log grows before what is dirty is written: 256 MiB, as Foreshore does it.
const CHECKPOINT_LOG_KIB: u32 = 256 << 10;
/// How often a thread looks whether the log has grown by that much.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How the files of the log are written, as the option `log` names it; the first is the default. Past the system's
/// cache (DB_LOG_DIRECT) is not what Debian's library is built for.
const LOGS: [(&str, &[LogWay]); 4] = [
    ("plain", &[]),
    ("zeroed", &[LogWay::Zeroed]),
    ("dsync", &[LogWay::Dsync]),
    ("zeroed_dsync", &[LogWay::Zeroed, LogWay::Dsync]),
];

/// See the module.
pub struct BdbEngine {
    /// They make checkpoints and flush the log.
    keepers: Keepers,
    environment: Arc<Environment>,
    /// Where a commit that counts gets to.
    commit: CommitTo,
    /// Where a commit that need not be durable gets to.
    lazy: CommitTo,
    /// Whether bodies that only read get a snapshot.
    snapshots: bool,
}

impl BdbEngine {
    /// Opens the environment in the directory of `options`, or makes it there, and makes the tables that it lacks.
    /// Options: `cache_bytes`, `page_bytes`, `reads` (`locks` or `snapshots`), `lazy` (where its commits are: `memory`,
    /// or `write` for one write each), `log` (how its files are written).
    pub fn open(tables: &[String], options: &EngineOptions) -> Result<BdbEngine, BenchError> {
        let mut settings = Settings::new("bdb", options)?;
        let cache_bytes = settings.cache_bytes()?;
        let page_bytes = settings.bytes("page_bytes", PAGE_BYTES)?;
        let snapshots = settings.choice("reads", &[("locks", false), ("snapshots", true)])?;
        let lazy = settings.choice("lazy", &[("memory", CommitTo::Memory), ("write", CommitTo::System)])?;
        let log = settings.choice("log", &LOGS)?;
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
            log_ways: log.iter().fold(0, |ways, way| ways | *way as u32),
        };
        let environment =
            Environment::open(&options.directory, &opening, tables, page_bytes as u32, snapshots)
                .map_err(failure)?;
        let environment = Arc::new(environment);
        let commit = if options.durability == Durability::Lazy { lazy } else { CommitTo::Disk };
        let keepers = Keepers::default();
        let kept = Arc::clone(&environment);
        keepers.keep(LOOK_EVERY, move || kept.checkpoint(CHECKPOINT_LOG_KIB).map_err(failure))?;
        if commit == CommitTo::Memory {
            let kept = Arc::clone(&environment);
            keepers.keep(FLUSH_EVERY, move || kept.flush_log().map_err(failure))?;
        }
        Ok(BdbEngine { keepers, environment, commit, lazy, snapshots })
    }

    fn execute(
        &self,
        commit: CommitTo,
        attempts: &mut Attempts,
        body: &mut Body<'_>,
    ) -> Result<Outcome, Failure> {
        retried(attempts, || {
            let txn = self.environment.begin(commit, false).map_err(failure)?;
            let mut open = Open { txn, tables: self.environment.tables() };
            body(&mut open)?;
            open.txn.commit().map_err(failure)?;
            Ok(())
        })
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

/// A transaction that locks what it reads, unless it has a snapshot, and what it writes.
struct Open<'e> {
    txn: Txn<'e>,
    tables: usize,
}

impl Open<'_> {
    fn table(&self, table: TableIndex) -> Result<usize, Failure> {
        let place = usize::from(table.0);
        if place < self.tables { Ok(place) } else { Err(Failure::no_table(table)) }
    }
}

impl Reader for Open<'_> {
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

impl EngineTxn for Open<'_> {
    fn get_for_update(
        &mut self,
        table: TableIndex,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        self.txn.get(self.table(table)?, key, true, value).map_err(failure)
    }

    fn insert(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<bool, Failure> {
        self.txn.put(self.table(table)?, key, value, false).map_err(failure)
    }

    fn put(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.txn.put(self.table(table)?, key, value, true).map(|_| ()).map_err(failure)
    }

    fn delete(&mut self, table: TableIndex, key: &[u8]) -> Result<bool, Failure> {
        self.txn.delete(self.table(table)?, key).map_err(failure)
    }
}

impl Engine for BdbEngine {
    fn name(&self) -> &'static str {
        "bdb"
    }

    fn transact(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.execute(self.commit, attempts, body)
    }

    fn read(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        retried(attempts, || {
            // There is nothing to commit: it ends when it is dropped.
            let txn = self.environment.begin(CommitTo::Memory, self.snapshots).map_err(failure)?;
            body(&mut ReadOnly(Open { txn, tables: self.environment.tables() }))
        })
    }

    fn load(&self, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.execute(self.lazy, &mut Attempts::default(), body)
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
            ("log_writes", counts.log_writes),
            ("pages_read", counts.pages_read),
            ("pages_written", counts.pages_written),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .into()
    }

    fn caveats(&self) -> Vec<&'static str> {
        match self.commit {
            CommitTo::Disk | CommitTo::System => Vec::new(),
            CommitTo::Memory => vec![LOST_WHEN_KILLED],
        }
    }

    fn close(&self) -> Result<(), Failure> {
        self.keepers.stop()?;
        self.settle()
    }
}

#[cfg(test)]
mod tests {
    use foreshore_env::{thread, time::Instant};

    use super::*;

    fn open(settings: &[(&str, &str)], directory: &std::path::Path) -> BdbEngine {
        let settings =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let options = EngineOptions {
            directory: directory.to_owned(),
            durability: Durability::Lazy,
            settings,
            ..EngineOptions::default()
        };
        BdbEngine::open(&["table".to_owned()], &options).unwrap()
    }

    /// How often the log is written by so many commits of one record.
    fn log_writes(settings: &[(&str, &str)], commits: u32) -> u64 {
        let directory = tempfile::tempdir().unwrap();
        let engine = open(settings, directory.path());
        let before = engine.counters()["log_writes"];
        commit(&engine, commits);
        let writes = engine.counters()["log_writes"] - before;
        engine.close().unwrap();
        writes
    }

    fn commit(engine: &BdbEngine, commits: u32) {
        for number in 0..commits {
            let put = |txn: &mut dyn EngineTxn| Ok(txn.put(TableIndex(0), &number.to_be_bytes(), b"")?);
            let outcome = engine.transact(&mut Attempts::default(), &mut { put }).unwrap();
            assert!(matches!(outcome, Outcome::Committed));
        }
    }

    #[test]
    fn a_lazy_commit_is_written_only_if_it_is_asked_for() {
        let written = log_writes(&[("lazy", "write")], 1000);
        assert!(written >= 1000, "{written} writes");
        let in_memory = log_writes(&[], 1000);
        assert!(in_memory < 500, "{in_memory} writes");
    }

    #[test]
    fn what_stays_in_memory_is_flushed_soon() {
        let directory = tempfile::tempdir().unwrap();
        let engine = open(&[], directory.path());
        commit(&engine, 1);
        let (before, deadline) = (engine.counters()["log_flushes"], Instant::now() + Duration::from_secs(60));
        while engine.counters()["log_flushes"] == before {
            assert!(Instant::now() < deadline, "nobody flushes the log");
            thread::sleep(Duration::from_millis(1));
            commit(&engine, 1);
        }
        engine.close().unwrap();
    }

    #[test]
    fn the_log_is_written_in_every_way() {
        for (log, _) in LOGS {
            let directory = tempfile::tempdir().unwrap();
            let engine = open(&[("log", log), ("lazy", "write")], directory.path());
            commit(&engine, 10);
            engine.close().unwrap();
        }
    }
}
