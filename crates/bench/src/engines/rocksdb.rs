//! RocksDB: a log-structured merge tree, with pessimistic transactions over it (`TransactionDB`). They lock the keys
//! that they read and write until they end; cycles of waits are found, and a transaction that closes one runs again.
//! What is read in a range is locked key by key: phantoms remain. Bodies that only read get a snapshot.
//!
//! All tables are in one key space: the number of a table, then the key.

mod library;

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow, RangeBounds},
};

use foreshore_env::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use self::library::{Database, Opening, Records, RocksdbError, Txn};
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

/// Of each key in the Bloom filters: what RocksDB's own guide advises.
const BLOOM_BITS_PER_KEY: f64 = 10.0;
/// Parts of the lock table; whoever gives back a lock wakes all who wait in its part.
const LOCK_STRIPES: usize = 1024;
/// Deadlocks are found at once, so nobody should wait so long.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// A search for a cycle that visits more transactions than this takes it that there is one: as many as may run.
const DEADLOCK_DEPTH: i64 = 1024;
/// Settling waits so long at most for compactions that the load left to do.
const SETTLE_WITHIN: Duration = Duration::from_secs(20);

/// See the module.
pub struct RocksdbEngine {
    /// They write and sync the log, where commits stay in memory.
    keepers: Keepers,
    database: Arc<Database>,
    tables: u16,
    durability: Durability,
    /// Whether commits stay in memory until the log is written.
    in_memory: bool,
}

impl RocksdbEngine {
    /// Opens the database in the directory of `options`, or makes it there. Options: `cache_bytes`, `lazy` (where its
    /// commits are: `memory`, or `write` for one write each).
    pub fn open(tables: &[String], options: &EngineOptions) -> Result<RocksdbEngine, BenchError> {
        let mut settings = Settings::new("rocksdb", options)?;
        let cache_bytes = settings.cache_bytes()?;
        let lazy_in_memory = settings.choice("lazy", &[("memory", true), ("write", false)])?;
        settings.finish()?;
        super::make_directory(&options.directory)?;
        let in_memory = lazy_in_memory && options.durability == Durability::Lazy;
        let opening = Opening {
            cache_bytes,
            keep_log_in_memory: in_memory,
            bloom_bits_per_key: BLOOM_BITS_PER_KEY,
            lock_stripes: LOCK_STRIPES,
            lock_timeout: LOCK_TIMEOUT,
            deadlock_depth: DEADLOCK_DEPTH,
        };
        let database = Arc::new(Database::open(&options.directory, &opening).map_err(failure)?);
        let keepers = Keepers::default();
        if in_memory {
            let kept = Arc::clone(&database);
            keepers.keep(FLUSH_EVERY, move || kept.sync().map_err(failure))?;
        }
        let (tables, durability) = (tables.len() as u16, options.durability);
        Ok(RocksdbEngine { keepers, database, tables, durability, in_memory })
    }

    fn execute(
        &self,
        durability: Durability,
        attempts: &mut Attempts,
        body: &mut Body<'_>,
    ) -> Result<Outcome, Failure> {
        retried(attempts, || {
            let txn = self.database.begin(durability != Durability::Lazy);
            let mut writing = Writing { txn, keys: Keys::new(self.tables) };
            body(&mut writing)?;
            writing.txn.commit().map_err(failure)?;
            Ok(())
        })
    }
}

/// The cause of an abort stands in the text of its status.
#[cold]
fn failure(error: RocksdbError) -> Failure {
    let cause = match &*error.0 {
        text if text.starts_with("Resource busy") && text.contains("Deadlock") => AbortCause::Deadlock,
        text if text.starts_with("Resource busy") => AbortCause::Conflict,
        text if text.starts_with("Operation timed out") => AbortCause::LockTimeout,
        _ => AbortCause::Other,
    };
    Failure { cause, source: Box::new(error) }
}

/// Makes keys of the one key space.
struct Keys {
    tables: u16,
    key: Vec<u8>,
}

impl Keys {
    fn new(tables: u16) -> Keys {
        Keys { tables, key: Vec::with_capacity(64) }
    }

    fn prefix(&self, table: TableIndex) -> Result<[u8; 2], Failure> {
        if table.0 < self.tables { Ok(table.0.to_be_bytes()) } else { Err(Failure::no_table(table)) }
    }

    fn key(&mut self, table: TableIndex, key: &[u8]) -> Result<&[u8], Failure> {
        let prefix = self.prefix(table)?;
        self.key.clear();
        self.key.extend_from_slice(&prefix);
        self.key.extend_from_slice(key);
        Ok(&self.key)
    }
}

/// Visits the records of a range, whose keys begin with `prefix`: that, the key behind it, and the value.
fn scan(
    mut records: Records<'_>,
    prefix: [u8; 2],
    (low, high): (Bound<&[u8]>, Bound<&[u8]>),
    order: Order,
    mut visit: impl FnMut(&[u8], &[u8], &[u8]) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    if is_empty_range(low, high) {
        return Ok(());
    }
    match (order, low, high) {
        (Order::Ascending, Bound::Included(key) | Bound::Excluded(key), _) => {
            records.seek(&[&prefix, key].concat());
        }
        (Order::Ascending, Bound::Unbounded, _) => records.seek(&prefix),
        (Order::Descending, _, Bound::Included(key) | Bound::Excluded(key)) => {
            records.seek_back(&[&prefix, key].concat());
        }
        (Order::Descending, _, Bound::Unbounded) => {
            records.seek_back(&(u16::from_be_bytes(prefix) + 1).to_be_bytes());
        }
    }
    let mut is_first = true;
    while let Some((whole, value)) = records.record().map_err(failure)? {
        let inside =
            whole.strip_prefix(&prefix).filter(|key| RangeBounds::<[u8]>::contains(&(low, high), *key));
        match inside {
            Some(key) if visit(whole, key, value)? == ControlFlow::Break(()) => break,
            Some(_) => {}
            // The bound itself, where the search begins, may be excluded.
            None if is_first => {}
            None => break,
        }
        is_first = false;
        records.step(order == Order::Descending);
    }
    Ok(())
}

/// A transaction that locks what it reads and writes.
struct Writing<'d> {
    txn: Txn<'d>,
    keys: Keys,
}

impl Reader for Writing<'_> {
    fn get(&mut self, table: TableIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        self.txn.get(self.keys.key(table, key)?, false, value).map_err(failure)
    }

    /// Each record is locked, and then read as it is now; it may be gone by then.
    fn scan(
        &mut self,
        table: TableIndex,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        let mut now = Vec::new();
        scan(self.txn.iterator(), self.keys.prefix(table)?, range, order, |whole, key, _| {
            let is_there = self.txn.get(whole, false, &mut now).map_err(failure)?;
            Ok(if is_there { visit(key, &now) } else { ControlFlow::Continue(()) })
        })
    }
}

impl EngineTxn for Writing<'_> {
    fn get_for_update(
        &mut self,
        table: TableIndex,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        self.txn.get(self.keys.key(table, key)?, true, value).map_err(failure)
    }

    fn insert(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<bool, Failure> {
        let key = self.keys.key(table, key)?;
        if self.txn.get(key, true, &mut Vec::new()).map_err(failure)? {
            return Ok(false);
        }
        self.txn.put(key, value).map_err(failure)?;
        Ok(true)
    }

    fn put(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.txn.put(self.keys.key(table, key)?, value).map_err(failure)
    }

    fn delete(&mut self, table: TableIndex, key: &[u8]) -> Result<bool, Failure> {
        let key = self.keys.key(table, key)?;
        let is_there = self.txn.get(key, true, &mut Vec::new()).map_err(failure)?;
        if is_there {
            self.txn.delete(key).map_err(failure)?;
        }
        Ok(is_there)
    }
}

struct Reading<'d> {
    snapshot: library::Snapshot<'d>,
    keys: Keys,
}

impl Reader for Reading<'_> {
    fn get(&mut self, table: TableIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        self.snapshot.get(self.keys.key(table, key)?, value).map_err(failure)
    }

    fn scan(
        &mut self,
        table: TableIndex,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        let records = self.snapshot.iterator();
        scan(records, self.keys.prefix(table)?, range, order, |_, key, value| Ok(visit(key, value)))
    }
}

impl Engine for RocksdbEngine {
    fn name(&self) -> &'static str {
        "rocksdb"
    }

    fn transact(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.execute(self.durability, attempts, body)
    }

    fn read(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        let reading = Reading { snapshot: self.database.snapshot(), keys: Keys::new(self.tables) };
        attempts.ended(body(&mut ReadOnly(reading)))
    }

    fn load(&self, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.execute(Durability::Lazy, &mut Attempts::default(), body)
    }

    /// Makes the load durable, moves it out of memory, and waits while it is being compacted.
    fn settle(&self) -> Result<(), Failure> {
        self.database.sync().map_err(failure)?;
        self.database.flush().map_err(failure)?;
        let busy = [
            c"rocksdb.num-running-flushes",
            c"rocksdb.compaction-pending",
            c"rocksdb.num-running-compactions",
        ];
        let begin = Instant::now();
        while begin.elapsed() < SETTLE_WITHIN && busy.iter().any(|name| self.database.property(name) > 0) {
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        [
            ("block_cache_bytes", c"rocksdb.block-cache-usage"),
            ("compaction_bytes_pending", c"rocksdb.estimate-pending-compaction-bytes"),
            ("files_bytes", c"rocksdb.total-sst-files-size"),
            ("memtable_bytes", c"rocksdb.cur-size-all-mem-tables"),
        ]
        .map(|(name, property)| (name.to_owned(), self.database.property(property)))
        .into()
    }

    fn caveats(&self) -> Vec<&'static str> {
        let mut caveats = vec![
            "RocksDB locks keys, not ranges: while a transaction that also writes runs, records that others add may appear in a range that it has read (phantoms)",
            "its memtables, up to 128 MiB, lie beside its cache",
        ];
        if self.in_memory {
            caveats.push(LOST_WHEN_KILLED);
        }
        caveats
    }

    fn close(&self) -> Result<(), Failure> {
        self.keepers.stop()?;
        self.database.sync().map_err(failure)
    }
}
