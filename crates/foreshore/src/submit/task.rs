//! Transactions on the side of those who run them.

use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use foreshore_env::time::{Duration, Instant};
use foreshore_orthrus::{Job, Next, WaitsAt};
use foreshore_txn::{Footprint, LockError, Parted, PlaceSearch, Txn, TxnError};

use super::{Ended, end_of_a_fork};
use crate::{
    DeadlockPolicy, Durability, ReadMode,
    database::Database,
    error::{Error, RefusedLock, Result},
    nested,
    plan::{Planner, Steps},
    transact::{self, Failures, Run, Session, TransactOptions},
    transaction::Transaction,
};

/// Before it is looked again whether others have let go of a table that they locked, whose queue wakes no thread that
/// has more to do; or of what is in the way of making one; or whether the log is somebody's alone, or too many
/// transactions are open.
const PAUSE: Duration = Duration::from_millis(1);

/// How a run ends that was refused a table; nobody is told.
const REFUSED: &str = "a table cannot be made yet";

/// Whose transactions are run.
pub(super) trait Client: Send {
    /// What a transaction comes to.
    type Output: Send;

    /// Runs the transaction; again, after a deadlock or a miss.
    fn run(&mut self, tx: &mut Transaction) -> Result<Self::Output>;

    /// Is told that the transaction has ended, and has let go of everything but `database`. Whether there is another
    /// one to be run, whose plan may use the memory of `steps`; after [`Ended::Lost`] there is none.
    fn end(
        &mut self,
        ended: Ended<Self::Output>,
        database: Option<Database>,
        steps: Steps<'static>,
    ) -> Option<Again>;

    /// Where it is noted where it waits to be begun.
    fn waits_at(&self) -> Option<&WaitsAt> {
        None
    }
}

/// Another transaction of a client.
pub(super) struct Again {
    pub(super) database: Database,
    pub(super) planner: Planner<'static>,
    pub(super) options: TransactOptions,
}

/// What the threads work at: one transaction of a client, and perhaps another one after it.
pub(super) struct Task<C: Client> {
    /// Until the last one has ended: it keeps the database open.
    database: Option<Database>,
    options: TransactOptions,
    deadline: Option<Instant>,
    /// How long each transaction waits to be begun that was submitted, or is served, within a body (DB-11).
    patience: Option<Duration>,
    /// Until when this one does, beside its deadline.
    patience_ends: Option<Instant>,
    /// The limit to its waits for locks that it has from the body in which it was submitted or served (DB-11).
    body_limit: Option<Duration>,
    planner: Planner<'static>,
    client: C,
    /// Who submitted it, or serves it.
    wanted_at: &'static Location<'static>,
    /// While it waits for tables, or its locks are away.
    tx: Option<Transaction>,
    age: Option<u64>,
    failures: Failures,
    /// Since when a table cannot be made that it needs.
    refused: Option<Instant>,
    /// Since when it lets somebody pass who has the log alone.
    lets_pass: Option<Instant>,
    /// For a place among the transactions that are open.
    place: PlaceSearch,
    /// What is to be done when the locks have left.
    then: Option<Then<C::Output>>,
    /// The client knows how the last one ended.
    told: bool,
}

/// What follows on a run whose locks others wait for: after these have left.
enum Then<R> {
    /// The transaction is tried again: it has missed, or it is a victim.
    Begin,
    /// The transaction is tried again, after this pause.
    Later(Duration),
    /// The client is told how the transaction ended.
    End(Ended<R>),
}

impl<C: Client> Task<C> {
    /// The first transaction as `planner` and `options` say. Reports name the caller, which may be in a body.
    #[track_caller]
    pub(super) fn new(
        database: Database,
        options: TransactOptions,
        planner: Planner<'static>,
        client: C,
    ) -> Task<C> {
        let patience = nested::lock_timeout();
        Task {
            database: Some(database),
            deadline: options.deadline_from_now(),
            options,
            patience,
            patience_ends: patience.map(|most| Instant::now() + most),
            body_limit: None,
            planner,
            client,
            wanted_at: Location::caller(),
            tx: None,
            age: None,
            failures: Failures::default(),
            refused: None,
            lets_pass: None,
            place: PlaceSearch::default(),
            then: None,
            told: false,
        }
    }

    /// This task, whose waits for locks have this limit because of the body in which it is made.
    pub(super) fn with_body_limit(mut self, limit: Option<Duration>) -> Task<C> {
        self.body_limit = limit;
        self
    }

    /// Whether it has that limit still: what a procedure draws may say another one.
    fn is_within_body(&self) -> bool {
        self.body_limit.is_some() && self.options.lock_timeout == self.body_limit
    }

    /// Tells how it ended.
    fn end(&mut self, ended: Ended<C::Output>) -> Next {
        self.tx = None;
        // If telling goes wrong, that was it.
        self.told = true;
        let (database, steps) = (self.database.take(), self.planner.take_steps());
        let Some(again) = self.client.end(ended, database, steps) else { return Next::Done };
        self.told = false;
        self.database = Some(again.database);
        self.planner = again.planner;
        self.options = again.options;
        self.deadline = self.options.deadline_from_now();
        self.patience_ends = self.patience.map(|most| Instant::now() + most);
        self.age = None;
        self.failures = Failures::default();
        (self.refused, self.lets_pass, self.place) = (None, None, PlaceSearch::default());
        Next::Again
    }

    fn fail(&mut self, error: Error) -> Next {
        self.end(Ended::Failed(error))
    }

    /// Until when it waits to be begun.
    fn begins_by(&self) -> Option<Instant> {
        self.deadline.into_iter().chain(self.patience_ends).min()
    }

    /// Whether it waits for others to end, so many of which are open that it could not begin.
    fn waits_for_a_place(&mut self) -> bool {
        let by = self.begins_by();
        !self.options.no_wait && self.place.goes_on(by)
    }

    /// Whether it is refused what is not free at once, and so would be what its last run has not given back yet.
    fn asks_at_once(&self) -> bool {
        let policy = self.database.as_ref().map(|database| database.options().deadlock_policy);
        self.options.no_wait
            || self.options.lock_timeout == Some(Duration::ZERO)
            || matches!(policy, Some(DeadlockPolicy::NoWait | DeadlockPolicy::WaitDie))
    }

    /// A transaction that has nothing yet, and what it will touch; none if it is to be tried again a little later.
    fn try_begin(&mut self, database: &Database) -> Result<Option<(Transaction, Footprint)>> {
        let log_turns = &database.inner().log_turns;
        // DB-10.
        if !self.options.no_wait && log_turns.is_to_pass(&mut self.lets_pass, self.deadline) {
            return Ok(None);
        }
        let mut session = Session::Alone(database);
        let (reads, at) = (ReadMode::Locking, self.wanted_at);
        let mut tx = match session.begin(&self.options, reads, self.deadline, self.age, at) {
            Err(Error::TooManyTransactions { .. }) if self.waits_for_a_place() => return Ok(None),
            begun => begun?,
        };
        (self.lets_pass, self.place) = (None, PlaceSearch::default());
        if self.is_within_body() {
            tx.note_within_body();
        }
        let Task { client, planner, .. } = self;
        self.age = Some(tx.age().0);
        // ORTHRUS-3.
        tx.txn().make_tables_at_once(self.refused);
        let footprint = planner.footprint(&mut tx, &mut |tx| client.run(tx));
        end_of_a_fork(database.engine().is_forked());
        if tx.txn().was_refused_a_table() {
            self.refused.get_or_insert_with(Instant::now);
            return tx.rollback().map(|()| None);
        }
        session.set_up(&mut tx, &self.options, self.deadline);
        if self.is_within_body() {
            tx.note_within_body();
        }
        Ok(Some((tx, footprint?)))
    }

    /// Parts with its locks, if it has its tables.
    fn part(
        &mut self,
        mut tx: Transaction,
        part: impl FnOnce(&mut Txn) -> Result<Option<Box<Parted>>, TxnError>,
    ) -> Next {
        match part(tx.txn()) {
            Ok(parted) => {
                self.tx = Some(tx);
                parted.map_or(Next::Later(PAUSE), Next::Locks)
            }
            Err(error) => {
                let error = tx.fail(error);
                self.after(tx, Err(error))
            }
        }
    }

    /// Goes on after a run of the body: gives back the locks first.
    fn after(&mut self, mut tx: Transaction, result: Result<C::Output>) -> Next {
        let refused = tx.txn().was_refused_a_table();
        // Whatever the body made of it.
        let (result, thrown_away) =
            if refused { (Err(Error::application(REFUSED)), Some(result)) } else { (result, None) };
        self.refused = refused.then(|| self.refused.unwrap_or_else(Instant::now));
        let waits = tx.durability() == Durability::Sync;
        let mut left = None;
        let travels = !self.asks_at_once();
        let rollback = |tx: &mut Transaction| tx.rollback_parting(travels).map(|parted| left = parted);
        let planner = Some(&mut self.planner);
        let ended = transact::end_run(&mut tx, result, planner, Transaction::commit_parting, rollback);
        drop(tx);
        nested::within(|| drop(thrown_away));
        let then = match ended {
            // What is planned locks what it reads: nothing is stale.
            Ok(Run::Missed | Run::Stale) => Then::Begin,
            Ok(Run::Committed((value, (ticket, parted)))) => {
                left = parted;
                Then::End(Ended::Committed(value, ticket, waits))
            }
            Ok(Run::Failed(_)) if refused => Then::Later(PAUSE),
            Ok(Run::Failed(error) | Run::Crowded(error)) | Err(error) => self.again_after(error),
            Ok(Run::Victim(report)) => self.again_after(Error::Deadlock(report)),
        };
        match left {
            Some(parted) => {
                let ends = matches!(then, Then::End(_));
                self.then = Some(then);
                Next::Release { parted, ends }
            }
            None => self.go_on(then),
        }
    }

    fn again_after(&mut self, error: Error) -> Then<C::Output> {
        let Some(database) = &self.database else { return Then::End(Ended::Failed(error)) };
        self.failures.note(&error, &self.options);
        let refused = matches!(error, Error::Deadlock(_));
        match self.failures.runs_again(error, database, &self.options, self.deadline) {
            Ok(pause) => Then::Later(pause),
            // Of waits that a policy refused: those have no other limit.
            Err(error @ Error::LockTimeout(_)) if self.is_within_body() && refused => {
                Then::End(Ended::Failed(error.within_body()))
            }
            Err(error) => Then::End(Ended::Failed(error)),
        }
    }

    fn go_on(&mut self, then: Then<C::Output>) -> Next {
        match then {
            Then::Begin => self.begin(),
            Then::Later(after) => Next::Later(after),
            Then::End(ended) => self.end(ended),
        }
    }
}

impl<C: Client> Job for Task<C> {
    fn deadline(&self) -> Option<Instant> {
        self.begins_by()
    }

    fn waits_at(&self) -> Option<&WaitsAt> {
        self.client.waits_at()
    }

    fn withdrawn(&mut self) {
        let next = self.fail(Error::Cancelled);
        debug_assert!(matches!(next, Next::Done), "what repeats itself is not taken out");
    }

    fn overdue(&mut self) -> bool {
        let limit = self.patience.filter(|_| self.patience_ends == self.begins_by());
        matches!(self.fail(Error::LockTimeout(Box::new(RefusedLock::not_begun(limit)))), Next::Again)
    }

    fn begin(&mut self) -> Next {
        if let Some(tx) = self.tx.take() {
            return self.part(tx, Txn::part_further);
        }
        let Some(database) = self.database.take() else { return Next::Done };
        let begun = self.try_begin(&database);
        self.database = Some(database);
        match begun {
            Ok(Some((tx, footprint))) => self.part(tx, |txn| txn.part(footprint)),
            Ok(None) => Next::Later(PAUSE),
            Err(error) => {
                let then = self.again_after(error);
                self.go_on(then)
            }
        }
    }

    fn locked(&mut self, parted: Box<Parted>, outcome: Result<(), LockError>) -> Next {
        let Some(mut tx) = self.tx.take() else { return Next::Done };
        let result = match tx.txn().rejoin(*parted, outcome) {
            Ok(()) => {
                let ran = catch_unwind(AssertUnwindSafe(|| nested::within(|| self.client.run(&mut tx))));
                if let Some(database) = &self.database {
                    end_of_a_fork(database.engine().is_forked());
                }
                match ran {
                    Ok(result) => result,
                    Err(panic) => {
                        drop(tx);
                        return self.end(Ended::Panicked(panic));
                    }
                }
            }
            Err(error) => Err(tx.fail(error)),
        };
        self.after(tx, result)
    }

    fn released(&mut self) -> Next {
        match self.then.take() {
            Some(then) => self.go_on(then),
            None => Next::Done,
        }
    }
}

impl<C: Client> Drop for Task<C> {
    fn drop(&mut self) {
        if self.told {
            return;
        }
        self.tx = None;
        let (mut database, steps) = (self.database.take(), self.planner.take_steps());
        if let Some(Then::End(ended)) = self.then.take() {
            // It has come to its end, and was dropped before it could tell.
            let Some(again) = self.client.end(ended, database, steps) else { return };
            database = Some(again.database);
        }
        let again = self.client.end(Ended::Lost, database, Steps::default());
        debug_assert!(again.is_none(), "nobody is left to run another one");
    }
}
