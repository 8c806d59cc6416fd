//! fjall: a log-structured merge tree. Transactions read a snapshot and either run beside each other and are checked
//! when they commit (one whose reads were overwritten is refused and runs again), or write one at a time. Both ways
//! every outcome is that of a serial order.

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use ::fjall::{
    Database, Keyspace, KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticWriteTx, PersistMode,
    Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace, SingleWriterWriteTx,
};
use foreshore_env::{
    thread,
    time::{Duration, Instant},
};

use super::{
    Durability, EngineOptions, LOST_WHEN_KILLED,
    btreemap::is_empty_range,
    keepers::{FLUSH_EVERY, Keepers},
    rival::{ReadOnly, Retries, Settings, fatal},
};
use crate::{
    BenchError,
    engine::{
        AbortCause, Attempts, Body, Engine, EngineTxn, Failure, Order, Outcome, Reader, TableIndex, Visit,
    },
};

/// Settling waits so long at most for compactions that the load left to do.
const SETTLE_WITHIN: Duration = Duration::from_secs(20);

/// How transactions are kept apart.
enum Transactions {
    /// Checked when they commit.
    Optimistic(OptimisticTxDatabase),
    /// One that writes at a time. Its tables, once more, as it wants them when it writes.
    SingleWriter(SingleWriterTxDatabase, Vec<SingleWriterTxKeyspace>),
}

#[derive(Clone, Copy)]
enum Kind {
    Optimistic,
    SingleWriter,
}

/// See the module.
pub struct FjallEngine {
    /// They write and sync the journal, where commits stay in memory.
    keepers: Keepers,
    transactions: Transactions,
    tables: Vec<Keyspace>,
    /// What a commit waits for; nothing, where it stays in memory.
    commit: Option<PersistMode>,
}

impl FjallEngine {
    /// Opens the database in the directory of `options`, or makes it there, and makes the tables that it lacks.
    /// Options: `cache_bytes`, `transactions` (`optimistic` or `single_writer`), `lazy` (where its commits are:
    /// `memory`, or `write` for one write each).
    pub fn open(tables: &[String], options: &EngineOptions) -> Result<FjallEngine, BenchError> {
        let mut settings = Settings::new("fjall", options)?;
        let cache_bytes = settings.cache_bytes()? as u64;
        let kind = settings.choice(
            "transactions",
            &[("optimistic", Kind::Optimistic), ("single_writer", Kind::SingleWriter)],
        )?;
        let lazy = settings.choice("lazy", &[("memory", None), ("write", Some(PersistMode::Buffer))])?;
        settings.finish()?;
        let directory = &options.directory;
        super::make_directory(directory)?;
        let (transactions, tables) = match kind {
            Kind::Optimistic => {
                let database = OptimisticTxDatabase::builder(directory).cache_size(cache_bytes).open();
                let database = database.map_err(fatal)?;
                let open = |name: &String| database.keyspace(name, KeyspaceCreateOptions::default);
                let open: Vec<_> = tables.iter().map(open).collect::<Result<_, _>>().map_err(fatal)?;
                let tables = open.iter().map(|table| table.inner().clone()).collect();
                (Transactions::Optimistic(database), tables)
            }
            Kind::SingleWriter => {
                let database = SingleWriterTxDatabase::builder(directory).cache_size(cache_bytes).open();
                let database = database.map_err(fatal)?;
                let open = |name: &String| database.keyspace(name, KeyspaceCreateOptions::default);
                let open: Vec<_> = tables.iter().map(open).collect::<Result<_, _>>().map_err(fatal)?;
                let tables = open.iter().map(|table| table.inner().clone()).collect();
                (Transactions::SingleWriter(database, open), tables)
            }
        };
        let commit = match options.durability {
            Durability::Sync | Durability::Pipelined => Some(PersistMode::SyncData),
            Durability::Lazy => lazy,
        };
        let engine = FjallEngine { keepers: Keepers::default(), transactions, tables, commit };
        if commit.is_none() {
            let kept = engine.database().clone();
            engine.keepers.keep(FLUSH_EVERY, move || kept.persist(PersistMode::SyncData).map_err(fatal))?;
        }
        Ok(engine)
    }

    fn database(&self) -> &Database {
        match &self.transactions {
            Transactions::Optimistic(database) => database.inner(),
            Transactions::SingleWriter(database, _) => database.inner(),
        }
    }

    fn begin(&self, commit: Option<PersistMode>) -> Result<Write<'_>, Failure> {
        match &self.transactions {
            Transactions::Optimistic(database) => {
                let txn = database.write_tx().map_err(fatal)?;
                Ok(Write::Optimistic(Box::new(txn.durability(commit))))
            }
            Transactions::SingleWriter(database, tables) => {
                let txn = database.write_tx().durability(commit);
                Ok(Write::SingleWriter(Box::new(txn), tables))
            }
        }
    }

    fn execute(
        &self,
        commit: Option<PersistMode>,
        attempts: &mut Attempts,
        body: &mut Body<'_>,
    ) -> Result<Outcome, Failure> {
        let mut retries = Retries::default();
        loop {
            let mut writing = Writing { txn: self.begin(commit)?, tables: &self.tables };
            // Dropped by a panic, a single writer would leave the lock of all writers poisoned.
            match catch_unwind(AssertUnwindSafe(|| body(&mut writing))) {
                Ok(Ok(())) => {}
                Ok(stopped) => return attempts.ended(stopped),
                Err(panic) => {
                    drop(writing);
                    resume_unwind(panic)
                }
            }
            let committed = match writing.txn {
                Write::Optimistic(txn) => txn.commit().map_err(fatal)?,
                Write::SingleWriter(txn, _) => txn.commit().map(Ok).map_err(fatal)?,
            };
            let Err(conflict) = committed else { return Ok(Outcome::Committed) };
            let failure = Failure { cause: AbortCause::Conflict, source: Box::new(conflict) };
            if let Err(failure) = retries.again(attempts, failure) {
                return Ok(Outcome::GaveUp(failure));
            }
        }
    }
}

fn get(source: &impl Readable, table: &Keyspace, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
    let found = source.get(table, key).map_err(fatal)?;
    if let Some(found) = &found {
        value.clear();
        value.extend_from_slice(found);
    }
    Ok(found.is_some())
}

fn scan(
    source: &impl Readable,
    table: &Keyspace,
    (low, high): (Bound<&[u8]>, Bound<&[u8]>),
    order: Order,
    visit: &mut Visit<'_>,
) -> Result<(), Failure> {
    if is_empty_range(low, high) {
        return Ok(());
    }
    let mut records = source.range::<&[u8], _>(table, (low, high));
    while let Some(record) = match order {
        Order::Ascending => records.next(),
        Order::Descending => records.next_back(),
    } {
        let (key, value) = record.into_inner().map_err(fatal)?;
        if visit(&key, &value) == ControlFlow::Break(()) {
            break;
        }
    }
    Ok(())
}

fn table(tables: &[Keyspace], table: TableIndex) -> Result<&Keyspace, Failure> {
    tables.get(usize::from(table.0)).ok_or_else(|| Failure::no_table(table))
}

/// A transaction that writes; undone when it is dropped before it commits.
enum Write<'d> {
    Optimistic(Box<OptimisticWriteTx>),
    SingleWriter(Box<SingleWriterWriteTx<'d>>, &'d [SingleWriterTxKeyspace]),
}

struct Writing<'t> {
    txn: Write<'t>,
    tables: &'t [Keyspace],
}

impl Writing<'_> {
    fn contains(&self, table: &Keyspace, key: &[u8]) -> Result<bool, Failure> {
        match &self.txn {
            Write::Optimistic(txn) => txn.contains_key(table, key),
            Write::SingleWriter(txn, _) => txn.contains_key(table, key),
        }
        .map_err(fatal)
    }
}

impl Reader for Writing<'_> {
    fn get(&mut self, index: TableIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        let table = table(self.tables, index)?;
        match &self.txn {
            Write::Optimistic(txn) => get(&**txn, table, key, value),
            Write::SingleWriter(txn, _) => get(&**txn, table, key, value),
        }
    }

    fn scan(
        &mut self,
        index: TableIndex,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        let table = table(self.tables, index)?;
        match &self.txn {
            Write::Optimistic(txn) => scan(&**txn, table, range, order, visit),
            Write::SingleWriter(txn, _) => scan(&**txn, table, range, order, visit),
        }
    }
}

impl EngineTxn for Writing<'_> {
    fn insert(&mut self, index: TableIndex, key: &[u8], value: &[u8]) -> Result<bool, Failure> {
        if self.contains(table(self.tables, index)?, key)? {
            return Ok(false);
        }
        self.put(index, key, value)?;
        Ok(true)
    }

    fn put(&mut self, index: TableIndex, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        let table = table(self.tables, index)?;
        match &mut self.txn {
            Write::Optimistic(txn) => txn.insert(table, key, value),
            Write::SingleWriter(txn, tables) => txn.insert(&tables[usize::from(index.0)], key, value),
        }
        Ok(())
    }

    fn delete(&mut self, index: TableIndex, key: &[u8]) -> Result<bool, Failure> {
        let table = table(self.tables, index)?;
        if !self.contains(table, key)? {
            return Ok(false);
        }
        match &mut self.txn {
            Write::Optimistic(txn) => txn.remove(table, key),
            Write::SingleWriter(txn, tables) => txn.remove(&tables[usize::from(index.0)], key),
        }
        Ok(true)
    }
}

struct Reading<'t> {
    snapshot: ::fjall::Snapshot,
    tables: &'t [Keyspace],
}

impl Reader for Reading<'_> {
    fn get(&mut self, index: TableIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        get(&self.snapshot, table(self.tables, index)?, key, value)
    }

    fn scan(
        &mut self,
        index: TableIndex,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        scan(&self.snapshot, table(self.tables, index)?, range, order, visit)
    }
}

impl Engine for FjallEngine {
    fn name(&self) -> &'static str {
        "fjall"
    }

    fn transact(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.execute(self.commit, attempts, body)
    }

    fn read(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        let snapshot = match &self.transactions {
            Transactions::Optimistic(database) => database.read_tx(),
            Transactions::SingleWriter(database, _) => database.read_tx(),
        };
        attempts.ended(body(&mut ReadOnly(Reading { snapshot, tables: &self.tables })))
    }

    fn load(&self, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.execute(None, &mut Attempts::default(), body)
    }

    /// Makes the load durable, and waits while it is being compacted.
    fn settle(&self) -> Result<(), Failure> {
        self.database().persist(PersistMode::SyncAll).map_err(fatal)?;
        let begin = Instant::now();
        while begin.elapsed() < SETTLE_WITHIN
            && (self.database().outstanding_flushes() > 0 || self.database().active_compactions() > 0)
        {
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        BTreeMap::from([
            ("compactions".to_owned(), self.database().compactions_completed() as u64),
            ("journals".to_owned(), self.database().journal_count() as u64),
            ("write_buffer_bytes".to_owned(), self.database().write_buffer_size()),
        ])
    }

    fn caveats(&self) -> Vec<&'static str> {
        if self.commit.is_none() { vec![LOST_WHEN_KILLED] } else { Vec::new() }
    }

    fn close(&self) -> Result<(), Failure> {
        self.keepers.stop()?;
        self.database().persist(PersistMode::SyncAll).map_err(fatal)
    }
}
