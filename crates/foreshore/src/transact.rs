//! Running a transaction again when it was the victim of a deadlock, or one of several that filled the log together.

mod attempts;
mod place;

use std::panic::Location;

use foreshore_env::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use foreshore_txn::{BeginOptions, Engine};

use crate::{
    Durability, Isolation, Options, ReadMode,
    admission::Admission,
    database::Database,
    error::{Error, Result},
    nested,
    plan::{Execution, Planner},
    transaction::{Transaction, TransactionAge},
    view::DeadlockView,
};

pub(crate) use attempts::Failures;
use attempts::{Attempts, Next, wants_log};
pub(crate) use place::PlaceQueue;

/// [`TransactOptions::retries`], unless somebody says otherwise. Where that many are allowed, or more, runs that were
/// only refused a wait do not count (DB-12).
const DEFAULT_RETRIES: u32 = 1000;

/// How a transaction runs. What is `None` is as the database's [`Options`] say.
///
/// ```
/// # use foreshore::{Database, TransactOptions};
/// # use std::time::Duration;
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = Database::open(directory.path())?;
/// let options = TransactOptions {
///     deadline: Some(Duration::from_secs(1)),
///     label: Some("transfer".into()),
///     ..TransactOptions::default()
/// };
/// db.transact_with(&options, |tx| Ok(()))?;
/// # Ok::<(), foreshore::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactOptions {
    /// How often [`Database::transact`] runs the closure again: after a deadlock, or (alone, and only a few times)
    /// after several large transactions filled the log together. Default: 1000, which is to say, as often as it takes:
    /// a victim keeps its age, the youngest of a cycle gives way, so only transactions that began before this one, or
    /// have a higher priority, can make it give way (or that read without locks and have a number from before).
    ///
    /// Under [`DeadlockPolicy::WaitDie`](crate::DeadlockPolicy::WaitDie),
    /// [`NoWait`](crate::DeadlockPolicy::NoWait) and [`Timeout`](crate::DeadlockPolicy::Timeout), where running again
    /// stands for waiting, a run that was refused a wait counts only if fewer than 1000 are allowed: with the default
    /// such a transaction runs again for as long as it may wait, see [`lock_timeout`](Self::lock_timeout).
    pub retries: u32,
    /// How long it may wait for others, from its beginning, over all attempts: for locks, for pages that others change
    /// or are just reading from the file, for room in the log or the pool, for a submitted transaction's turn to be
    /// begun, and for a place among the open transactions, its own or that of one that makes a table for it. (A place
    /// is waited for 10 s at most. In a pipeline and by [`Database::begin`] no transaction waits for its own, but for a
    /// tenth of a second beside submitted transactions.)
    ///
    /// Once it has passed, whatever would wait fails, and a victim is not run again; what waits for nobody goes on.
    /// Default: as long as it takes.
    pub deadline: Option<Duration>,
    /// How long each wait for a lock may last, until it fails with [`Error::LockTimeout`]: `Some(Duration::ZERO)` is to
    /// fail at once, `Some(Duration::MAX)` to wait for as long as it takes. What [`Database::transact`] runs again
    /// because a policy refused it a wait (see [`retries`](Self::retries)) fails so, too, when it is refused again and
    /// its first such wait would have ended. Default:
    /// [`Options::lock_timeout`](crate::Options::lock_timeout), and if that is 0, as long as it takes, or 10 s within
    /// the body of another transaction (see [`Database::transact`]).
    pub lock_timeout: Option<Duration>,
    /// How durable the commit is when the call returns.
    pub durability: Option<Durability>,
    /// Its isolation from other transactions.
    pub isolation: Option<Isolation>,
    /// Whether it reads without locks where it can. By default transactions of [`Database::begin`] do not: whoever
    /// chooses [`ReadMode::Hybrid`] for one has to be ready for [`Error::StaleReads`] from each read and from the
    /// commit, where [`Database::transact`] runs the transaction again. What is planned locks in any case.
    pub read_mode: Option<ReadMode>,
    /// How [`Database::transact`] gets its locks. Without effect on [`Database::begin`], which is always dynamic, and
    /// on [`Database::plan`].
    pub execution: Option<Execution>,
    /// A name for deadlock reports and lists of lock holders.
    pub label: Option<Arc<str>>,
    /// Whether an operation fails with [`Error::WouldBlock`] instead of waiting for a lock. A lock of a submitted
    /// transaction may be held for a moment after its result is there. Nor does it wait for a place among those that
    /// are open.
    pub no_wait: bool,
    /// Whether others give way rather than this one, where one of several has to: those of the lowest priority do, and
    /// among equals [`Options::deadlock_policy`](crate::Options::deadlock_policy) decides. For long transactions that
    /// would be expensive to run again. It moves nobody forward in a queue, and has no effect under
    /// [`DeadlockPolicy::Timeout`](crate::DeadlockPolicy::Timeout) and
    /// [`DeadlockPolicy::NoWait`](crate::DeadlockPolicy::NoWait), where nobody is chosen, nor where
    /// [`deadlock_confirmation`](crate::Options::deadlock_confirmation) is off: there whoever suspects a cycle gives
    /// way. A stream of more important ones may keep a transaction from its end. Default: 0.
    pub priority: i8,
    /// The age of an earlier transaction, [`Transaction::age`], in whose place this one begins: where the youngest
    /// gives way it counts as if it had begun when that one did. For work that a program begins again by itself, as
    /// [`Database::transact`] does. Default: its own, the youngest.
    pub age: Option<TransactionAge>,
}

impl TransactOptions {
    /// The deadline as a point in time; one that lies beyond what a clock can say is none.
    pub(crate) fn deadline_from_now(&self) -> Option<Instant> {
        let deadline = self.deadline?;
        Instant::now().checked_add(deadline)
    }

    /// How long each wait for a lock lasts of a transaction that this thread begins, and whether that is so because it
    /// does within the body of another one (DB-11).
    #[inline]
    pub(crate) fn longest_wait(&self, database: &Options) -> (Option<Duration>, bool) {
        let default = Some(database.lock_timeout).filter(|timeout| !timeout.is_zero());
        match self.lock_timeout.or(default) {
            None => {
                let limit = nested::lock_timeout();
                (limit, limit.is_some())
            }
            said => (said, false),
        }
    }

    /// The age that it was given.
    fn given_age(&self) -> Option<u64> {
        self.age.map(|TransactionAge(age)| age)
    }
}

impl Default for TransactOptions {
    fn default() -> TransactOptions {
        TransactOptions {
            retries: DEFAULT_RETRIES,
            deadline: None,
            lock_timeout: None,
            durability: None,
            isolation: None,
            read_mode: None,
            execution: None,
            label: None,
            no_wait: false,
            priority: 0,
            age: None,
        }
    }
}

/// Whose transactions are run.
pub(crate) enum Session<'a> {
    /// Transactions that stand by themselves.
    Alone(&'a Database),
    /// The transactions of a pipeline, one after another.
    Pipeline(&'a Database, &'a mut foreshore_txn::Pipeline),
}

impl<'a> Session<'a> {
    /// `reads`: how it reads, whatever its options say. `at`: the call that reports name.
    pub(crate) fn begin(
        &mut self,
        options: &TransactOptions,
        reads: ReadMode,
        deadline: Option<Instant>,
        age: Option<u64>,
        at: &'static Location<'static>,
    ) -> Result<Transaction> {
        let TransactOptions { priority, ref label, .. } = *options;
        let age = age.or(options.given_age());
        // A transaction that runs again keeps its age, and locks.
        let seldom_locks = age.is_none() && reads == ReadMode::Hybrid;
        let begin = BeginOptions { age, priority, label: label.clone(), wanted_at: Some(at), seldom_locks };
        match self {
            Session::Alone(database) => {
                database.begun(Engine::begin_striped(&database.inner().engine, begin), options, deadline)
            }
            Session::Pipeline(database, pipeline) => database.begun(pipeline.begin(begin), options, deadline),
        }
    }

    /// Where its transactions are let in, if there is somebody to look after that. A pipeline has locks and does not
    /// wait.
    fn admission(&self) -> Option<&'a Admission> {
        match *self {
            Session::Alone(database) => database.inner().admission.as_ref(),
            Session::Pipeline(..) => None,
        }
    }

    /// Whether its transactions wait before they begin, for a turn or for a place.
    fn waits(&self, options: &TransactOptions) -> bool {
        matches!(self, Session::Alone(_)) && !options.no_wait
    }

    fn database(&self) -> &'a Database {
        let (Session::Alone(database) | Session::Pipeline(database, _)) = self;
        database
    }

    fn engine(&self) -> &'a Engine {
        self.database().engine()
    }

    fn commits(&self) -> u64 {
        self.engine().commits()
    }

    /// How its transactions read when they run for the first time.
    fn read_mode(&self, options: &TransactOptions) -> ReadMode {
        options.read_mode.unwrap_or(self.database().options().read_mode)
    }

    /// Undoes what reconnaissance may have set.
    pub(crate) fn set_up(&self, tx: &mut Transaction, options: &TransactOptions, deadline: Option<Instant>) {
        tx.set_up(options, self.database().options(), deadline);
    }
}

/// Runs `body` in a transaction of `session`, planned if there is a planner, and ends it by `commit`; gives what `body`
/// returned and what `commit` did.
#[track_caller]
pub(crate) fn run<R, C>(
    mut session: Session<'_>,
    options: &TransactOptions,
    mut planner: Option<Planner<'_>>,
    mut body: impl FnMut(&mut Transaction) -> Result<R>,
    commit: impl Fn(&mut Transaction) -> Result<C>,
) -> Result<(R, C)> {
    session.database().inner().check_process()?;
    let mut body = |tx: &mut Transaction| nested::within(|| body(tx));
    let deadline = options.deadline_from_now();
    // Planned transactions are not in each other's way, and a transaction that does not wait does not wait here.
    let admission = session.admission().filter(|_| planner.is_none() && !options.no_wait);
    let log_turns = session.waits(options).then(|| &session.database().inner().log_turns);
    let mut attempts =
        Attempts::new(session.database(), options, deadline, log_turns, session.read_mode(options));
    let places = session.waits(options).then(|| &session.database().inner().place_queue);
    let mut age = options.given_age();
    let at = Location::caller();
    loop {
        attempts.wait_for_log(session.engine());
        // DB-9: before it has any lock.
        let mut permit = admission.and_then(|admission| admission.enter(age, deadline));
        // What is planned locks what it reads, whatever the mode.
        let reads = if planner.is_none() { attempts.read_mode() } else { ReadMode::Locking };
        let run = {
            let mut begin = || session.begin(options, reads, deadline, age, at);
            let mut tx = match places {
                // With its permit: whom that let in would only wait behind it.
                Some(places) => places.begin(deadline, age.is_some(), begin)?,
                None => begin()?,
            };
            if planner.is_none() {
                tx.txn().set_read_mode(reads);
            }
            if attempts.has_turn() {
                tx.txn().watch_company();
            }
            // DB-4.
            age = Some(tx.age().0);
            let result = match &mut planner {
                None => body(&mut tx),
                Some(planner) => {
                    let set_up = |tx: &mut Transaction| session.set_up(tx, options, deadline);
                    planner.run(&mut tx, set_up, &mut body)
                }
            };
            if let Some(admission) = admission
                && (tx.txn().has_waited() || tx.txn().crowds_log())
            {
                let engine = session.engine();
                admission.note_wait(|| engine.locks().waited() + engine.log().waited());
            }
            let commit = |tx: &mut Transaction| {
                // It asks for no more locks: the next one may come in while this one waits for the disk. If it does
                // not, it is better not woken before they are released.
                if tx.waits_for_disk() {
                    drop(permit.take());
                }
                commit(tx)
            };
            end_run(&mut tx, result, planner.as_mut(), commit, Transaction::rollback_in_place)?
        };
        // Before it waits for anything again.
        let is_victim = matches!(run, Run::Victim(_));
        match (permit, admission) {
            (Some(permit), _) => permit.end(is_victim),
            (None, Some(admission)) if is_victim => admission.note_victim(|| session.commits()),
            (None, _) => {}
        }
        match attempts.next(run) {
            Next::AtOnce => {}
            Next::After(pause) => thread::sleep(pause),
            Next::Give(ended) => return ended,
        }
    }
}

/// What came of a run of the body.
pub(crate) enum Run<R> {
    /// The run left its plan, and is undone; the planner knows what it met.
    Missed,
    /// What the run had read without locks was changed by others, and it is undone.
    Stale,
    /// The run is committed; what its body returned.
    Committed(R),
    /// The run failed for any other reason, and is undone; but after [`Error::OutcomeUnknown`] it may be committed.
    Failed(Error),
    /// The run is undone, because it and others have filled the log together.
    Crowded(Error),
    /// The run is undone, because somebody had to give way and it was chosen.
    Victim(Arc<DeadlockView>),
}

/// Ends a run whose body gave `result`, and its transaction: by `commit`, if it may, else by `rollback`.
///
/// # Errors
/// What undoing it met.
pub(crate) fn end_run<R, C>(
    tx: &mut Transaction,
    result: Result<R>,
    planner: Option<&mut Planner<'_>>,
    commit: impl FnOnce(&mut Transaction) -> Result<C>,
    rollback: impl FnOnce(&mut Transaction) -> Result<()>,
) -> Result<Run<(R, C)>> {
    let mut thrown_away = None;
    // Whatever the body made of it (DB-8).
    let run = if planner.is_some_and(|planner| planner.has_missed(tx)) {
        thrown_away = Some(result);
        Run::Missed
    } else if tx.txn().has_stale_reads() {
        thrown_away = Some(result);
        Run::Stale
    } else {
        // A body may have swallowed the error: what it then computed is worth nothing (DB-3).
        match (result, tx.take_victim()) {
            (Ok(value), None) => {
                let error = match commit(tx) {
                    Ok(committed) => return Ok(Run::Committed((value, committed))),
                    Err(error) => error,
                };
                // As below.
                nested::within(|| drop(value));
                return Ok(match error {
                    Error::StaleReads => Run::Stale,
                    // Others have ended it: it needed no more itself.
                    error @ Error::LogHeld => Run::Crowded(error),
                    error => Run::Failed(error),
                });
            }
            (Err(error), None) if wants_log(&error) && tx.txn().was_crowded() => Run::Crowded(error),
            (Err(error), None) => Run::Failed(error),
            (result, Some(report)) => {
                thrown_away = Some(result);
                Run::Victim(report)
            }
        }
    };
    let rolled_back = rollback(tx);
    // It may wait for locks where it is dropped, as the body may (DB-11).
    nested::within(|| drop(thrown_away));
    rolled_back.map(|()| run)
}
