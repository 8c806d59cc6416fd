//! The contract between workloads and engines: transactions as closures over ordered byte keys. The engine begins,
//! commits, rolls back and retries; the workload only reads and writes.
//!
//! Everything here is object-safe: one indirect call for each row operation is far below what the row costs, and the
//! workloads compile once for all engines.

mod threads;

use std::{collections::BTreeMap, error::Error, fmt, ops::Bound, ops::ControlFlow};

use serde::Serialize;

pub use self::threads::{Client, Server, Serving, Submission, Submitted, Submitter};
use crate::{row::KeyBytes, workload::Worker};

/// A table of an engine: its place in the list of names that the engine was opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableIndex(pub u16);

/// Which end of a range a scan starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the lowest key upward.
    Ascending,
    /// From the highest key downward.
    Descending,
}

/// Why an attempt at a transaction came to nothing, other than by its own wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortCause {
    /// It was chosen as the victim of a deadlock.
    Deadlock,
    /// It waited for a lock for longer than it may.
    LockTimeout,
    /// It would have had to wait and may not.
    WouldBlock,
    /// It met a lock that was neither in its plan nor free.
    PlanMiss,
    /// What it had read was changed before it could commit; for engines that check at the end.
    Conflict,
    /// Anything else; such a failure ends the run, unless the engine cures it itself by another attempt, as Foreshore
    /// does where transactions have filled the log.
    Other,
}

/// Aborted attempts, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AbortCounts {
    /// Victims of deadlocks.
    pub deadlock: u64,
    /// Waits for a lock that took too long.
    pub lock_timeout: u64,
    /// Waits that were not allowed.
    pub would_block: u64,
    /// Planned transactions that met a lock which was neither in their plan nor free.
    pub plan_miss: u64,
    /// Commits refused because what had been read was changed.
    pub conflict: u64,
    /// All other causes.
    pub other: u64,
}

impl AbortCounts {
    /// Counts one abort.
    pub fn count(&mut self, cause: AbortCause) {
        match cause {
            AbortCause::Deadlock => self.deadlock += 1,
            AbortCause::LockTimeout => self.lock_timeout += 1,
            AbortCause::WouldBlock => self.would_block += 1,
            AbortCause::PlanMiss => self.plan_miss += 1,
            AbortCause::Conflict => self.conflict += 1,
            AbortCause::Other => self.other += 1,
        }
    }

    /// Aborts of every cause.
    pub fn total(&self) -> u64 {
        self.deadlock + self.lock_timeout + self.would_block + self.plan_miss + self.conflict + self.other
    }

    /// Adds another thread's counts.
    pub fn add(&mut self, other: &AbortCounts) {
        self.deadlock += other.deadlock;
        self.lock_timeout += other.lock_timeout;
        self.would_block += other.would_block;
        self.plan_miss += other.plan_miss;
        self.conflict += other.conflict;
        self.other += other.other;
    }
}

/// What the attempts at transactions came to; counted by the engine, which alone sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// Attempts that were aborted.
    pub aborts: AbortCounts,
    /// Attempts that were made after an aborted one.
    pub retries: u64,
}

impl Attempts {
    /// Adds another thread's counts.
    pub fn add(&mut self, other: &Attempts) {
        self.aborts.add(&other.aborts);
        self.retries += other.retries;
    }

    /// How a transaction that has nothing to commit ended, by the result of its body.
    pub(crate) fn ended(&mut self, result: Result<(), Stop>) -> Result<Outcome, Failure> {
        match result {
            Ok(()) => Ok(Outcome::Committed),
            Err(Stop::Rollback) => Ok(Outcome::RolledBack),
            Err(Stop::Failed(failure)) => {
                self.aborts.count(failure.cause);
                Err(failure)
            }
        }
    }
}

/// A failure of the engine, or of the data that it returned.
#[derive(Debug)]
pub struct Failure {
    /// Which kind of abort this is.
    pub cause: AbortCause,
    /// The engine's own error.
    pub source: Box<dyn Error + Send + Sync>,
}

impl Failure {
    /// Of a body that names a table of which the engine knows nothing.
    #[cold]
    pub(crate) fn no_table(table: TableIndex) -> Failure {
        Failure::fatal(format!("the engine was opened without table {}", table.0))
    }

    /// A failure that no retry cures, from its description.
    pub fn fatal(message: impl Into<String>) -> Failure {
        Failure { cause: AbortCause::Other, source: message.into().into() }
    }

    /// The engine works, but what it has answered is not what the workload left: something is lost, or another.
    pub fn inconsistent(message: impl Into<String>) -> Failure {
        Failure { cause: AbortCause::Other, source: Box::new(Inconsistency(message.into())) }
    }

    /// Whether it is one of [`Failure::inconsistent`].
    pub fn is_inconsistent(&self) -> bool {
        self.source.is::<Inconsistency>()
    }
}

/// What is wrong with the data.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Inconsistency(String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}

/// Why a transaction's body ends early.
#[derive(Debug)]
pub enum Stop {
    /// The workload wants no trace of this transaction: one NewOrder in a hundred names an item that does not exist.
    Rollback,
    /// The engine failed; it decides whether the body runs again.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

/// How a transaction ended when the engine itself is well.
#[derive(Debug)]
pub enum Outcome {
    /// Committed, as durably as the engine was told to.
    Committed,
    /// Rolled back by the workload's own wish.
    RolledBack,
    /// Given up after as many retries as the engine grants.
    GaveUp(Failure),
}

/// What a scan calls for each record: key, value; `Break` ends the scan.
pub type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

/// What a read of several keys calls for each of them: its number, and its value if it is there.
pub type VisitMany<'v> = dyn FnMut(usize, Option<&[u8]>) + 'v;

/// What a transaction can read.
pub trait Reader {
    /// Reads a value into `value`, whose content is replaced; false when the key is not there.
    fn get(&mut self, table: TableIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure>;

    /// Visits the records of a range in order until `visit` breaks off.
    fn scan(
        &mut self,
        table: TableIndex,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure>;
}

/// A transaction while it runs.
pub trait EngineTxn: Reader {
    /// The engine's own number of this run, if it shows who waits for whom by numbers.
    fn number(&self) -> Option<u64> {
        None
    }

    /// As [`Reader::get`], for a record that this transaction is going to change: for engines that have locks.
    fn get_for_update(
        &mut self,
        table: TableIndex,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        self.get(table, key, value)
    }

    /// As [`Reader::get`] of one key after the other, or [`EngineTxn::get_for_update`]: `visit` gets the number and
    /// the value of each, in this order. For engines that have a call for several keys; the others use `value`.
    fn get_many(
        &mut self,
        table: TableIndex,
        keys: &[KeyBytes],
        for_update: bool,
        value: &mut Vec<u8>,
        visit: &mut VisitMany<'_>,
    ) -> Result<(), Failure> {
        for (number, key) in keys.iter().enumerate() {
            let found = match for_update {
                true => self.get_for_update(table, key, value)?,
                false => self.get(table, key, value)?,
            };
            visit(number, found.then_some(value.as_slice()));
        }
        Ok(())
    }

    /// Adds a record; false, and no change, when the key is there.
    fn insert(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<bool, Failure>;

    /// Adds records behind all others of the table, in ascending order of their keys, each of which has this value. For
    /// engines that have a call for that. False, and no change, when they do not ascend or the first is not behind all
    /// others.
    fn append(&mut self, table: TableIndex, keys: &[KeyBytes], value: &[u8]) -> Result<bool, Failure> {
        for key in keys {
            if !self.insert(table, key, value)? {
                return Err(Failure::fatal(format!("key {} is there already", key.escape_ascii())));
            }
        }
        Ok(true)
    }

    /// Writes a record, whether or not the key is there.
    fn put(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<(), Failure>;

    /// Removes a record; false when it was not there.
    fn delete(&mut self, table: TableIndex, key: &[u8]) -> Result<bool, Failure>;
}

/// A transaction's code. It may run several times and must then do the same.
pub type Body<'b> = dyn FnMut(&mut dyn EngineTxn) -> Result<(), Stop> + 'b;

/// What a worker calls for each key that its transaction is going to touch: table, key, whether it writes it.
pub type Foresee<'f> = dyn FnMut(TableIndex, &[u8], bool) + 'f;

/// A store that runs transactions.
pub trait Engine: Send + Sync {
    /// The name that selects it on the command line.
    fn name(&self) -> &'static str;

    /// Runs a transaction to its end, retrying as the engine sees fit. `Err` is a failure after which the engine
    /// must not be expected to work.
    fn transact(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure>;

    /// Runs the transaction that a worker has drawn, as [`Engine::transact`] does; an engine that can make use of it
    /// asks the worker first what the transaction will touch.
    fn run(&self, attempts: &mut Attempts, worker: &mut dyn Worker) -> Result<Outcome, Failure> {
        if worker.reads_only() {
            self.read(attempts, &mut |txn| worker.run(txn))
        } else {
            self.transact(attempts, &mut |txn| worker.run(txn))
        }
    }

    /// As [`Engine::transact`], for a body that only reads, from a snapshot where the engine has one. An engine may
    /// refuse what such a body writes.
    fn read(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.transact(attempts, body)
    }

    /// What one thread runs its transactions through, one after another, if they know of each other; otherwise each is
    /// run by [`Engine::run`].
    fn session(&self) -> Option<Box<dyn Session + '_>> {
        None
    }

    /// How transactions are given to threads of the engine, if they run there and not in the threads of its clients.
    fn submitter(&self) -> Option<&dyn Submitter> {
        None
    }

    /// How threads of the engine come to draw transactions themselves, if they do.
    fn server(&self) -> Option<&dyn Server> {
        None
    }

    /// As [`Engine::transact`], for loading: nothing needs to be durable before [`Engine::settle`] returns.
    fn load(&self, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.transact(&mut Attempts::default(), body)
    }

    /// Called between loading and running: makes the load durable, and does what it left to do (a checkpoint) now and
    /// not while measured.
    fn settle(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// The engine's own counters, for the report.
    fn counters(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    /// What it does not promise although the run asks for it, in sentences; printed beside its figures.
    fn caveats(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Ends it in good order.
    fn close(&self) -> Result<(), Failure> {
        self.settle()
    }
}

/// One thread's way into an engine: where commits do not wait for the disk, a transaction may depend on the one before
/// it.
pub trait Session {
    /// As [`Engine::run`].
    fn run(&mut self, attempts: &mut Attempts, worker: &mut dyn Worker) -> Result<Outcome, Failure>;

    /// Waits until all that was committed is as durable as the engine makes it.
    fn finish(&mut self) -> Result<(), Failure>;
}

/// The session of an engine whose transactions know nothing of each other.
struct Independent<'e>(&'e dyn Engine);

impl Session for Independent<'_> {
    fn run(&mut self, attempts: &mut Attempts, worker: &mut dyn Worker) -> Result<Outcome, Failure> {
        self.0.run(attempts, worker)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// What one thread runs the transactions of an engine through.
pub(crate) fn session(engine: &dyn Engine) -> Box<dyn Session + '_> {
    engine.session().unwrap_or_else(|| Box::new(Independent(engine)))
}
