//! Transactions whose locks are known before they run.

use std::{
    borrow::Cow,
    ops::RangeBounds,
    panic::{AssertUnwindSafe, catch_unwind},
};

use foreshore_base::key::Key;
use foreshore_txn::{Direction, Footprint, IntentMode, LockKind, TableInfo};

use crate::{
    database::Database,
    error::{Error, Result},
    range::Bounds,
    submit::{self, Submitted},
    table::{TableDefinition, TableLock},
    transact::{self, Session, TransactOptions},
    transaction::{Transaction, encode_bound, encode_key},
    value::Value,
};

/// How [`Database::transact`] comes to its locks. Transactions of either kind may run in a database at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Execution {
    /// Each when it is needed. Transactions that meet in another order may deadlock; one of them then runs again.
    #[default]
    Dynamic,
    /// All before it runs, in one order for all transactions, so that planned ones never deadlock with each other (Ren et al.
    /// 2016). The closure runs twice at least: first without locks and without effect, to see what it touches. What it
    /// reads in that first run may be uncommitted and need not fit together; whatever it returns then, an error or a panic
    /// too, counts for nothing. See [`Plan`], which needs no such run, for the rest.
    Planned,
}

/// A transaction that says what it will touch. Made by [`Database::plan`], run by [`Plan::run`].
///
/// All locks are granted before the transaction runs: the tables first, then keys and the gaps between them, in one order
/// for all plans. So planned transactions never deadlock with each other. With others
/// ([`Database::begin`], [`Execution::Dynamic`]) they may, while they wait for their locks; as ever, the youngest of a circle
/// gives way, and is run again.
///
/// A plan need not be exact. What is in it and not touched was locked in vain. What is touched and not in it is locked when
/// it is touched, if it is free; if it is not, the transaction does not wait (it might close a circle): it is undone and
/// runs again with a larger plan, and after a few such misses with exclusive locks on whole tables, so that it comes to an
/// end. [`Stats::plan_misses`](crate::Stats::plan_misses) and [`Stats::plan_fallbacks`](crate::Stats::plan_fallbacks) count
/// both. Serializable it is in any case.
///
/// A plan that names nothing is found out by a first run of the closure: see [`Execution::Planned`].
#[derive(Debug)]
#[must_use = "a plan does nothing before it is run"]
pub struct Plan<'d> {
    database: &'d Database,
    options: TransactOptions,
    /// Or what was wrong with one of them.
    steps: Result<Vec<Step<'d>>>,
}

/// A part of a plan.
#[derive(Debug)]
pub(crate) enum Step<'d> {
    Key { table: Cow<'d, TableInfo>, key: Vec<u8>, kind: LockKind },
    Range { table: Cow<'d, TableInfo>, bounds: Bounds, kind: LockKind },
    Table { table: Cow<'d, TableInfo>, mode: IntentMode },
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "keys go in by value, as they do everywhere in a transaction"
)]
impl<'d> Plan<'d> {
    pub(crate) fn new(database: &'d Database) -> Plan<'d> {
        Plan { database, options: TransactOptions::default(), steps: Ok(Vec::new()) }
    }

    /// How it runs. [`TransactOptions::execution`] is of no effect.
    pub fn options(mut self, options: TransactOptions) -> Plan<'d> {
        self.options = options;
        self
    }

    /// It will read this key. (That it is absent, too: then what keeps it absent is locked when it is read.)
    pub fn read<K: Key, V: Value>(self, table: TableDefinition<'_, K, V>, key: K) -> Plan<'d> {
        self.key(table, &key, LockKind::Shared)
    }

    /// It will read this key, and insert, change or delete it.
    pub fn write<K: Key, V: Value>(self, table: TableDefinition<'_, K, V>, key: K) -> Plan<'d> {
        self.key(table, &key, LockKind::Exclusive)
    }

    /// It will read keys of this range. Nobody can put a key into the range from the moment when the locks are granted.
    pub fn read_range<K: Key, V: Value>(
        self,
        table: TableDefinition<'_, K, V>,
        range: impl RangeBounds<K>,
    ) -> Plan<'d> {
        self.range(table, range, LockKind::Shared)
    }

    /// It will read keys of this range, and change or delete those that are there.
    pub fn write_range<K: Key, V: Value>(
        self,
        table: TableDefinition<'_, K, V>,
        range: impl RangeBounds<K>,
    ) -> Plan<'d> {
        self.range(table, range, LockKind::Exclusive)
    }

    /// It will use much of this table: see [`Transaction::lock_table`].
    pub fn lock_table<K: Key, V: Value>(self, table: TableDefinition<'_, K, V>, lock: TableLock) -> Plan<'d> {
        self.step(|database| {
            let table = table_info(database, &table)?;
            Ok(Step::Table { table, mode: lock.mode() })
        })
    }

    /// Runs it: gets the locks, calls `body`, commits, as [`Database::transact`] does; `body` runs again after a deadlock or a
    /// miss.
    ///
    /// # Errors
    /// As [`Database::transact`], and what was wrong with a key or table of the plan.
    #[track_caller]
    pub fn run<R>(self, body: impl FnMut(&mut Transaction) -> Result<R>) -> Result<R> {
        let Plan { database, options, steps } = self;
        let steps = steps?;
        let planner = Some(Planner::new(steps));
        let session = Session::Alone(database);
        transact::run(session, &options, planner, body, Transaction::commit).map(|(result, ())| result)
    }

    /// Gives it to the threads of partitioned execution, and does not wait: they get the locks and run `body`, many transactions
    /// at a time, and the handle tells the result (ORTHRUS; Ren et al. 2016).
    ///
    /// Threads of two kinds share the work. Control threads
    /// ([`Options::control_threads`](crate::Options::control_threads)) lock and unlock, each in its part of the lock names, so
    /// that what many transactions want at once stays in one core's cache; execution threads
    /// ([`Options::execution_threads`](crate::Options::execution_threads)) run transactions and never wait for a lock or for
    /// the disk. This is for machines with many cores and records that all of them want. Transactions that are run
    /// otherwise may do so at the same time.
    ///
    /// ```
    /// # use foreshore::{Database, TableDefinition};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// const VOTES: TableDefinition<u32, u64> = TableDefinition::new("votes");
    ///
    /// let votes: Vec<_> = (0..10)
    ///     .map(|vote| {
    ///         let party = vote % 3;
    ///         db.plan().write(VOTES, party).submit(move |tx| {
    ///             let votes = tx.get(VOTES, party)?.unwrap_or(0) + 1;
    ///             tx.put(VOTES, party, votes)
    ///         })
    ///     })
    ///     .collect();
    /// for vote in votes {
    ///     vote?.wait()?; // durable
    /// }
    /// # assert_eq!(db.transact(|tx| tx.get(VOTES, 0))?, Some(4));
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// # Errors
    /// What was wrong with a key or table of the plan, or that the threads cannot be started. The rest is told by the handle.
    pub fn submit<R: Send + 'static>(
        self,
        body: impl FnMut(&mut Transaction) -> Result<R> + Send + 'static,
    ) -> Result<Submitted<R>> {
        let Plan { database, options, steps } = self;
        let steps = steps?.into_iter().map(Step::into_owned).collect();
        submit::submit(database, options, Planner::new(steps), body)
    }

    fn key<K: Key, V: Value>(self, table: TableDefinition<'_, K, V>, key: &K, kind: LockKind) -> Plan<'d> {
        self.step(|database| {
            let mut encoded = Vec::new();
            encode_key(key, &mut encoded)?;
            let table = table_info(database, &table)?;
            Ok(Step::Key { table, key: encoded, kind })
        })
    }

    fn range<K: Key, V: Value>(
        self,
        table: TableDefinition<'_, K, V>,
        range: impl RangeBounds<K>,
        kind: LockKind,
    ) -> Plan<'d> {
        self.step(|database| {
            let bounds = (encode_bound(range.start_bound())?, encode_bound(range.end_bound())?);
            let table = table_info(database, &table)?;
            Ok(Step::Range { table, bounds, kind })
        })
    }

    fn step(mut self, step: impl FnOnce(&'d Database) -> Result<Step<'d>>) -> Plan<'d> {
        if let Ok(steps) = &mut self.steps {
            match step(self.database) {
                Ok(step) => steps.push(step),
                Err(error) => self.steps = Err(error),
            }
        }
        self
    }
}

/// Plans the runs of one transaction.
pub(crate) struct Planner<'p> {
    steps: Vec<Step<'p>>,
    /// Of the last run, with what it met beside it.
    footprint: Option<Footprint>,
}

impl<'p> Planner<'p> {
    /// `steps`: what the caller declares; if nothing, the body is asked.
    pub(crate) fn new(steps: Vec<Step<'p>>) -> Planner<'p> {
        Planner { steps, footprint: None }
    }

    /// What the next run is to lock. What went wrong with the body in reconnaissance is for the run to find out again, under
    /// locks: it may have seen what never was.
    pub(crate) fn footprint<R>(
        &mut self,
        tx: &mut Transaction,
        body: &mut impl FnMut(&mut Transaction) -> Result<R>,
    ) -> Result<Footprint> {
        if let Some(footprint) = self.footprint.take() {
            return Ok(footprint);
        }
        tx.txn().begin_reconnaissance();
        let declared = if self.steps.is_empty() {
            // A body that is broken off by a panic is left as it would be by an error that it passes on.
            let _ = catch_unwind(AssertUnwindSafe(|| body(tx).map(drop)));
            Ok(())
        } else {
            self.steps.iter().try_for_each(|step| step.foresee(tx))
        };
        let footprint = tx.txn().end_reconnaissance();
        declared.map(|()| footprint)
    }

    /// Keeps a footprint for another run.
    pub(crate) fn keep(&mut self, footprint: Footprint) {
        self.footprint = Some(footprint);
    }

    /// Keeps the footprint for another run; whether the last one left it.
    pub(crate) fn has_missed(&mut self, tx: &mut Transaction) -> bool {
        self.footprint = tx.txn().take_footprint();
        tx.txn().has_missed()
    }
}

/// Asks for all locks of a footprint.
pub(crate) fn follow(tx: &mut Transaction, footprint: Footprint) -> Result<()> {
    tx.txn().follow(footprint).map_err(|error| tx.fail(error))
}

/// The table of a definition, borrowed from the cache of tables if it is there.
fn table_info<'d, K: Key, V: Value>(
    database: &'d Database,
    table: &TableDefinition<'_, K, V>,
) -> Result<Cow<'d, TableInfo>> {
    Ok(match database.inner().table(table)? {
        Cow::Borrowed(cached) => Cow::Borrowed(&cached.info),
        Cow::Owned(cached) => Cow::Owned(cached.info),
    })
}

impl Step<'_> {
    fn into_owned(self) -> Step<'static> {
        match self {
            Step::Key { table, key, kind } => Step::Key { table: Cow::Owned(table.into_owned()), key, kind },
            Step::Range { table, bounds, kind } => {
                Step::Range { table: Cow::Owned(table.into_owned()), bounds, kind }
            }
            Step::Table { table, mode } => Step::Table { table: Cow::Owned(table.into_owned()), mode },
        }
    }

    fn foresee(&self, tx: &mut Transaction) -> Result<()> {
        let foreseen = match self {
            Step::Key { table, key, kind } => tx.txn().foresee(table, key, *kind),
            Step::Table { table, mode } => tx.txn().lock_table(table, *mode),
            Step::Range { table, bounds, kind } => {
                return foresee_range(tx, table, bounds, *kind);
            }
        };
        foreseen.map_err(|error| tx.fail(error))
    }
}

/// Goes through the range, so that the names of its keys and gaps are known.
fn foresee_range(tx: &mut Transaction, table: &TableInfo, bounds: &Bounds, kind: LockKind) -> Result<()> {
    let mut cursor =
        crate::range::Cursor::<&[u8], &[u8]>::new(tx, table.clone(), bounds, Direction::Ascending, kind)?;
    loop {
        match cursor.next_encoded(tx) {
            Ok(Some(_)) => {}
            // A long value that is being replaced may not be readable. The run takes the rest when it comes to it.
            Ok(None) | Err(Error::Corrupted { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
