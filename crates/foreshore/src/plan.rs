//! Transactions whose locks are known before they run.

mod steps;

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

use foreshore_base::key::Key;
use foreshore_txn::{Footprint, LockKind};

pub(crate) use steps::Steps;

use crate::{
    database::Database,
    error::{Error, Result},
    nested,
    range::{self, KeyRange},
    submit::{self, Submitted},
    table::{TableDefinition, TableLock},
    transact::{self, Session, TransactOptions},
    transaction::Transaction,
    value::Value,
};

/// How [`Database::transact`] gets its locks. Transactions of either kind may run in a database at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Execution {
    /// Each when it is needed. Transactions that meet in another order may deadlock; one of them then runs again.
    #[default]
    Dynamic,
    /// All before it runs, in one order for all transactions, so that planned ones never deadlock with each other (Ren
    /// et al. 2016). The closure runs twice at least: first without locks and without effect, to see what it touches.
    /// (A first run that writes more than 16 MiB, or needs more locks than a transaction may have, ends there, with
    /// [`Error::PlanMiss`]; the rest is locked as what is not in a [`Plan`].)
    /// What it reads in that first run may be uncommitted and need not fit together; whatever it returns then, an error
    /// or a panic too, counts for nothing. (The program's panic hook hears of it all the same, and in a program whose
    /// panics abort it ends the process.) See [`Plan`], which needs no such run, for the rest.
    Planned,
}

/// A transaction that says what it will touch. Made by [`Database::plan`], run by [`Plan::run`].
///
/// All locks are granted before the transaction runs: the tables first, then keys and the gaps between them, in one
/// order for all plans. So planned transactions never deadlock with each other. With others ([`Database::begin`],
/// [`Execution::Dynamic`]) they may, while they wait for their locks; as ever, one of a cycle gives way, and is run
/// again.
///
/// A plan need not be exact. What is in it and not touched was locked in vain. What is touched and not in it is locked
/// when it is touched, if it is free; if it is not, the transaction does not wait (it might close a cycle): it is
/// undone and runs again with a larger plan, and after a few such misses with exclusive locks on whole tables, so that
/// it comes to an end. [`Stats::plan_misses`](crate::Stats::plan_misses) and
/// [`Stats::plan_fallbacks`](crate::Stats::plan_fallbacks) count both. Serializable it is in any case.
///
/// A table that is named and not there is made when the plan runs.
///
/// A plan that names nothing is found out by a first run of the closure: see [`Execution::Planned`].
#[derive(Debug)]
#[must_use = "a plan does nothing before it is run"]
pub struct Plan<'d> {
    database: &'d Database,
    options: TransactOptions,
    /// Or what was wrong with one of them.
    steps: Result<Steps<'d>>,
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "keys go in by value, as they do everywhere in a transaction"
)]
impl<'d> Plan<'d> {
    pub(crate) fn new(database: &'d Database) -> Plan<'d> {
        Plan { database, options: TransactOptions::default(), steps: Ok(Steps::default()) }
    }

    /// A plan that names nothing yet, in the memory of another one.
    pub(crate) fn over(database: &'d Database, options: TransactOptions, steps: Steps<'static>) -> Plan<'d> {
        Plan { database, options, steps: Ok(steps.emptied()) }
    }

    /// How it runs, and what it names, or what was wrong with that.
    pub(crate) fn into_parts(self) -> (TransactOptions, Result<Steps<'static>>) {
        (self.options, self.steps.map(Steps::into_owned))
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

    /// It will read keys of this range. Its keys and the gaps between them are looked for when it runs, and locked with
    /// the rest: from then on nobody can put a key there. But one that somebody has put there after the look splits a
    /// gap: what lies above it is locked when it is read, as whatever is not in the plan.
    pub fn read_range<K: Key, V: Value, By>(
        self,
        table: TableDefinition<'_, K, V>,
        range: impl KeyRange<K, By>,
    ) -> Plan<'d> {
        self.range(table, range, LockKind::Shared)
    }

    /// It will read keys of this range, and change or delete those that are there.
    pub fn write_range<K: Key, V: Value, By>(
        self,
        table: TableDefinition<'_, K, V>,
        range: impl KeyRange<K, By>,
    ) -> Plan<'d> {
        self.range(table, range, LockKind::Exclusive)
    }

    /// It will use much of this table: see [`Transaction::lock_table`].
    pub fn lock_table<K: Key, V: Value>(self, table: TableDefinition<'_, K, V>, lock: TableLock) -> Plan<'d> {
        self.step(|steps, database| steps.add_table(database, &table, lock.mode()))
    }

    /// It cannot be told what it will touch: what was named is forgotten, and found out by a first run.
    pub fn by_reconnaissance(mut self) -> Plan<'d> {
        self.steps = self.steps.map(Steps::emptied);
        self
    }

    /// Runs it: gets the locks, calls `body`, commits, as [`Database::transact`] does; `body` runs again after a
    /// deadlock or a miss.
    ///
    /// # Errors
    /// As [`Database::transact`], and what was wrong with a key or table of the plan.
    #[track_caller]
    pub fn run<R>(self, body: impl FnMut(&mut Transaction) -> Result<R>) -> Result<R> {
        let Plan { database, options, steps } = self;
        let steps = steps?;
        let planner = Some(Planner::new(steps));
        let session = Session::Alone(database);
        transact::run(session, &options, planner, body, Transaction::commit_in_place)
            .map(|(result, ())| result)
    }

    /// Gives it to the threads of partitioned execution, and does not wait: they get the locks and run `body`, many
    /// transactions at a time, and the handle tells the result (ORTHRUS; Ren et al. 2016).
    ///
    /// Threads of two kinds share the work. Control threads
    /// ([`Options::control_threads`](crate::Options::control_threads)) lock and unlock, each in its part of the lock
    /// names, so that what many transactions want at once stays in one core's cache; execution threads
    /// ([`Options::execution_threads`](crate::Options::execution_threads)) run transactions, and wait neither for locks
    /// nor for commits to be durable. This is for machines with many cores and records that all of them want.
    /// Transactions that are run otherwise may do so at the same time. A body must not wait for another submitted
    /// transaction: it has the thread that the other may need, and it is these threads that look at limits. So
    /// [`Submitted::wait`] is refused there ([`Error::WaitInBody`]); but nobody sees a body that blocks its thread by
    /// itself until another has ended, by an executor or by way of a third thread.
    ///
    /// For what a body needs beside locks its thread does wait, and other transactions with it: for pages to be read;
    /// for room in the log, or for a larger transaction to go on alone in it, 10 s at most; and for the disk where a
    /// table is made, where [`Transaction::append`] comes behind a record whose deletion is not durable, and where
    /// [`Options::early_lock_release`](crate::Options::early_lock_release) lets many commits keep their locks until
    /// they are durable.
    ///
    /// Each execution thread has room for a window of transactions that have begun
    /// ([`Options::execution_window`](crate::Options::execution_window)); the others wait in a queue, behind those that
    /// wait for locks, until one has ended. [`TransactOptions::deadline`] counts there, too. One whose turn has come,
    /// and which finds as many transactions open as may be, waits for one of these to end, for 10 s at most, and then
    /// fails with [`Error::TooManyTransactions`]; at once, if it does not wait ([`TransactOptions::no_wait`]).
    ///
    /// Submitted within the body of a transaction, which may wait for it, it waits 10 s at most to be begun, and for
    /// each lock, unless options say how long waits for locks may last, and then fails with [`Error::LockTimeout`] (or,
    /// as above, [`Error::TooManyTransactions`]): nobody sees that it waits for the one that waits for it. So does what
    /// is submitted in anything else that these threads call or drop: methods of a [`Procedure`](crate::Procedure),
    /// wakers, what a body has captured.
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
    /// A fork of the process that the closure makes ends as by [`abort`](std::process::abort) if it returns from it:
    /// nobody is there who would go on.
    ///
    /// # Errors
    /// What was wrong with a key or table of the plan; [`Error::Io`] if the threads cannot be started;
    /// [`Error::SubmitQueueFull`] if as many wait to be begun as may: wait for some of those first; [`Error::Closed`],
    /// [`Error::Poisoned`], [`Error::Forked`]. The rest is told by the handle.
    #[track_caller]
    pub fn submit<R: Send + 'static>(
        self,
        body: impl FnMut(&mut Transaction) -> Result<R> + Send + 'static,
    ) -> Result<Submitted<R>> {
        let database = self.database;
        let (options, steps) = self.into_parts();
        submit::submit(database, options, Planner::new(steps?), body)
    }

    fn key<K: Key, V: Value>(self, table: TableDefinition<'_, K, V>, key: &K, kind: LockKind) -> Plan<'d> {
        self.step(|steps, database| steps.add_key(database, &table, key, kind))
    }

    fn range<K: Key, V: Value, By>(
        self,
        table: TableDefinition<'_, K, V>,
        range: impl KeyRange<K, By>,
        kind: LockKind,
    ) -> Plan<'d> {
        self.step(|steps, database| {
            let bounds = range::encode(&range, &mut Vec::new(), &mut Vec::new())?;
            steps.add_range(database, &table, bounds, kind)
        })
    }

    fn step(mut self, step: impl FnOnce(&mut Steps<'d>, &'d Database) -> Result<()>) -> Plan<'d> {
        if let Ok(steps) = &mut self.steps
            && let Err(error) = step(steps, self.database)
        {
            self.steps = Err(error);
        }
        self
    }
}

/// Plans the runs of one transaction.
pub(crate) struct Planner<'p> {
    steps: Steps<'p>,
    /// Of the last run, with what it met beside it.
    footprint: Option<Footprint>,
    /// What was wrong with the plan: the first run is told.
    refused: Option<Error>,
}

impl<'p> Planner<'p> {
    /// `steps`: what the caller declares; if nothing, the body is asked.
    pub(crate) fn new(steps: Steps<'p>) -> Planner<'p> {
        Planner { steps, footprint: None, refused: None }
    }

    /// [`Planner::new`] of a plan that something may be wrong with.
    pub(crate) fn checked(steps: Result<Steps<'p>>) -> Planner<'p> {
        match steps {
            Ok(steps) => Planner::new(steps),
            Err(error) => Planner { refused: Some(error), ..Planner::new(Steps::default()) },
        }
    }

    /// Runs `body` under all locks of its footprint. `set_up` undoes what the reconnaissance for that may have set.
    pub(crate) fn run<R>(
        &mut self,
        tx: &mut Transaction,
        set_up: impl FnOnce(&mut Transaction),
        body: &mut impl FnMut(&mut Transaction) -> Result<R>,
    ) -> Result<R> {
        let footprint = self.footprint(tx, body);
        set_up(tx);
        tx.txn().follow(footprint?).map_err(|error| tx.fail(error))?;
        body(tx)
    }

    /// What the next run is to lock. What went wrong with the body in reconnaissance is for the run to find out again,
    /// under locks: it may have seen what never was.
    pub(crate) fn footprint<R>(
        &mut self,
        tx: &mut Transaction,
        body: &mut impl FnMut(&mut Transaction) -> Result<R>,
    ) -> Result<Footprint> {
        if let Some(footprint) = self.footprint.take() {
            return Ok(footprint);
        }
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        tx.txn().begin_reconnaissance();
        let declared = if self.steps.is_empty() {
            // A body that is interrupted by a panic is left as it would be by an error that it passes on.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| nested::within(|| drop(body(tx))))) {
                // Nor does what its panic carries do anything.
                mem::forget(panic);
            }
            Ok(())
        } else {
            match self.steps.foresee(tx) {
                // More than it may lock: the run is told.
                Err(Error::PlanMiss) => Ok(()),
                foreseen => foreseen,
            }
        };
        let footprint = tx.txn().end_reconnaissance();
        // DB-8.
        tx.take_victim();
        declared.map(|()| footprint)
    }

    /// Of a transaction that has ended: what it named, for the memory of another one's plan.
    pub(crate) fn take_steps(&mut self) -> Steps<'p> {
        self.footprint = None;
        mem::take(&mut self.steps)
    }

    /// Keeps the footprint for another run; whether the last one left it.
    pub(crate) fn has_missed(&mut self, tx: &mut Transaction) -> bool {
        self.footprint = tx.txn().take_footprint();
        tx.txn().has_missed()
    }
}
