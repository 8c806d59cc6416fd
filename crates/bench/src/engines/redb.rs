//! redb: a copy-on-write B-tree, one writer at a time, readers of snapshots beside it. So every outcome is that of a
//! serial order.

use std::{
    ops::{Bound, ControlFlow},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use ::redb::{
    Database, Durability as Commit, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, Table,
    TableDefinition, WriteTransaction,
};
use foreshore_env::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use super::{
    Durability, EngineOptions,
    btreemap::is_empty_range,
    rival::{ReadOnly, Settings, fatal},
};
use crate::{
    BenchError,
    engine::{Attempts, Body, Engine, EngineTxn, Failure, Order, Outcome, Reader, TableIndex, Visit},
};

/// How often a lazy commit is made durable, and with it all before: as often as Foreshore syncs its log. Without this
/// no lazy commit would ever reach the file, and no page that one has replaced would be used again.
const SYNC_EVERY: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub struct RedbEngine {
    database: Database,
    tables: Vec<String>,
    durability: Durability,
    opened: Instant,
    /// When a lazy commit was last made durable, in milliseconds since `opened`. Written and read by the one writer.
    synced_ms: AtomicU64,
}

fn definition<'n, 'b>(name: &'n str) -> TableDefinition<'n, &'b [u8], &'b [u8]> {
    TableDefinition::new(name)
}

impl RedbEngine {
    /// Opens the database in the directory of `options`, or makes it there, and makes the tables that it lacks. Option:
    /// `cache_bytes`.
    pub fn open(tables: &[String], options: &EngineOptions) -> Result<RedbEngine, BenchError> {
        let mut settings = Settings::new("redb", options)?;
        let cache_bytes = settings.cache_bytes()?;
        settings.finish()?;
        super::make_directory(&options.directory)?;
        let database = Database::builder()
            .set_cache_size(cache_bytes)
            .create(options.directory.join("redb"))
            .map_err(fatal)?;
        let txn = database.begin_write().map_err(fatal)?;
        for name in tables {
            txn.open_table(definition(name)).map_err(fatal)?;
        }
        txn.commit().map_err(fatal)?;
        Ok(RedbEngine {
            database,
            tables: tables.to_vec(),
            durability: options.durability,
            opened: Instant::now(),
            synced_ms: AtomicU64::new(0),
        })
    }

    fn execute(
        &self,
        durability: Durability,
        attempts: &mut Attempts,
        body: &mut Body<'_>,
    ) -> Result<Outcome, Failure> {
        let mut txn = self.database.begin_write().map_err(fatal)?;
        if durability == Durability::Lazy && !self.sync_is_due() {
            txn.set_durability(Commit::None).map_err(fatal)?;
        }
        let mut writing =
            Writing { txn: &txn, names: &self.tables, tables: self.tables.iter().map(|_| None).collect() };
        // It does not undo a transaction that a panic drops.
        let result = catch_unwind(AssertUnwindSafe(|| body(&mut writing)));
        drop(writing);
        match result {
            Ok(Ok(())) => txn.commit().map(|()| Outcome::Committed).map_err(fatal),
            Ok(stopped) => {
                txn.abort().map_err(fatal)?;
                attempts.ended(stopped)
            }
            Err(panic) => {
                let _ = txn.abort();
                resume_unwind(panic)
            }
        }
    }

    /// Whether the writer who asks should make all lazy commits durable.
    fn sync_is_due(&self) -> bool {
        let now_ms = self.opened.elapsed().as_millis() as u64;
        // Relaxed: only the one writer asks, and writers are ordered by the engine.
        let due = now_ms - self.synced_ms.load(Ordering::Relaxed) >= SYNC_EVERY.as_millis() as u64;
        if due {
            self.synced_ms.store(now_ms, Ordering::Relaxed);
        }
        due
    }
}

struct Writing<'t> {
    txn: &'t WriteTransaction,
    names: &'t [String],
    /// Those that this transaction has opened.
    tables: Vec<Option<Table<'t, &'static [u8], &'static [u8]>>>,
}

impl<'t> Writing<'t> {
    fn table(&mut self, table: TableIndex) -> Result<&mut Table<'t, &'static [u8], &'static [u8]>, Failure> {
        let place = usize::from(table.0);
        let Some(open) = self.tables.get_mut(place) else { return Err(Failure::no_table(table)) };
        match open {
            Some(open) => Ok(open),
            None => Ok(open.insert(self.txn.open_table(definition(&self.names[place])).map_err(fatal)?)),
        }
    }
}

struct Reading<'t> {
    txn: &'t ReadTransaction,
    names: &'t [String],
    /// Those that this transaction has opened.
    tables: Vec<Option<ReadOnlyTable<&'static [u8], &'static [u8]>>>,
}

impl Reading<'_> {
    fn table(&mut self, table: TableIndex) -> Result<&ReadOnlyTable<&'static [u8], &'static [u8]>, Failure> {
        let place = usize::from(table.0);
        let Some(open) = self.tables.get_mut(place) else { return Err(Failure::no_table(table)) };
        match open {
            Some(open) => Ok(open),
            None => Ok(open.insert(self.txn.open_table(definition(&self.names[place])).map_err(fatal)?)),
        }
    }
}

fn get(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    key: &[u8],
    value: &mut Vec<u8>,
) -> Result<bool, Failure> {
    let found = table.get(key).map_err(fatal)?;
    if let Some(found) = &found {
        value.clear();
        value.extend_from_slice(found.value());
    }
    Ok(found.is_some())
}

fn scan(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    (low, high): (Bound<&[u8]>, Bound<&[u8]>),
    order: Order,
    visit: &mut Visit<'_>,
) -> Result<(), Failure> {
    if is_empty_range(low, high) {
        return Ok(());
    }
    let mut records = table.range::<&[u8]>((low, high)).map_err(fatal)?;
    while let Some(record) = match order {
        Order::Ascending => records.next(),
        Order::Descending => records.next_back(),
    } {
        let (key, value) = record.map_err(fatal)?;
        if visit(key.value(), value.value()) == ControlFlow::Break(()) {
            break;
        }
    }
    Ok(())
}

impl Reader for Writing<'_> {
    fn get(&mut self, table: TableIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        get(self.table(table)?, key, value)
    }

    fn scan(
        &mut self,
        table: TableIndex,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        scan(self.table(table)?, range, order, visit)
    }
}

impl EngineTxn for Writing<'_> {
    fn insert(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<bool, Failure> {
        let table = self.table(table)?;
        if table.get(key).map_err(fatal)?.is_some() {
            return Ok(false);
        }
        table.insert(key, value).map_err(fatal)?;
        Ok(true)
    }

    fn put(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.table(table)?.insert(key, value).map_err(fatal)?;
        Ok(())
    }

    fn delete(&mut self, table: TableIndex, key: &[u8]) -> Result<bool, Failure> {
        Ok(self.table(table)?.remove(key).map_err(fatal)?.is_some())
    }
}

impl Reader for Reading<'_> {
    fn get(&mut self, table: TableIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        get(self.table(table)?, key, value)
    }

    fn scan(
        &mut self,
        table: TableIndex,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        scan(self.table(table)?, range, order, visit)
    }
}

impl Engine for RedbEngine {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn transact(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.execute(self.durability, attempts, body)
    }

    fn read(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        let txn = self.database.begin_read().map_err(fatal)?;
        let tables = self.tables.iter().map(|_| None).collect();
        attempts.ended(body(&mut ReadOnly(Reading { txn: &txn, names: &self.tables, tables })))
    }

    fn load(&self, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.execute(Durability::Lazy, &mut Attempts::default(), body)
    }

    fn settle(&self) -> Result<(), Failure> {
        self.database.begin_write().map_err(fatal)?.commit().map_err(fatal)
    }

    fn caveats(&self) -> Vec<&'static str> {
        match self.durability {
            Durability::Sync | Durability::Pipelined => Vec::new(),
            Durability::Lazy => vec![
                "redb keeps lazy commits in memory: what came after the last sync, every 100 ms, is lost when the process is killed",
            ],
        }
    }
}
