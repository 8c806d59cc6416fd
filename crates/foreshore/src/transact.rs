//! Running a transaction again when it was the victim of a deadlock.

use foreshore_env::{
    random::{self, Xorshift},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use foreshore_txn::BeginOptions;

use crate::{
    Durability, Isolation,
    admission::Admission,
    database::Database,
    error::{Error, Result},
    plan::{self, Execution, Planner},
    transaction::Transaction,
};

/// How a transaction runs. What is `None` is as the database's [`Options`](crate::Options) say.
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
    /// How often [`Database::transact`] runs a deadlock's victim again. Default: 1000, which is to say, as often as it
    /// takes: a victim keeps its age, the youngest of a circle gives way, so only transactions that began before
    /// this one can make it give way.
    pub retries: u32,
    /// How long it may wait for locks, from its beginning, over all attempts. Default: as long as it takes.
    pub deadline: Option<Duration>,
    /// How long each wait for a lock may last, until it fails with [`Error::LockTimeout`].
    pub lock_timeout: Option<Duration>,
    /// When its commit counts.
    pub durability: Option<Durability>,
    /// What it is kept apart from.
    pub isolation: Option<Isolation>,
    /// How [`Database::transact`] comes to its locks. Without effect on [`Database::begin`], which is always dynamic, and on
    /// [`Database::plan`].
    pub execution: Option<Execution>,
    /// A name for deadlock reports and lists of lock holders.
    pub label: Option<Arc<str>>,
    /// Fail with [`Error::WouldBlock`] instead of waiting for a lock.
    pub no_wait: bool,
}

impl TransactOptions {
    /// The deadline as a point in time; one that lies beyond what a clock can say is none.
    pub(crate) fn deadline_from_now(&self) -> Option<Instant> {
        Instant::now().checked_add(self.deadline?)
    }
}

impl Default for TransactOptions {
    fn default() -> TransactOptions {
        TransactOptions {
            retries: 1000,
            deadline: None,
            lock_timeout: None,
            durability: None,
            isolation: None,
            execution: None,
            label: None,
            no_wait: false,
        }
    }
}

/// The first pause is at most this long; each later one may be twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// No pause is longer.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// Whose transactions are run.
pub(crate) enum Session<'a> {
    /// Each by itself.
    Alone(&'a Database),
    /// Those of a pipeline, one after another.
    Pipeline(&'a Database, &'a mut foreshore_txn::Pipeline),
}

impl<'a> Session<'a> {
    #[track_caller]
    pub(crate) fn begin(
        &mut self,
        options: &TransactOptions,
        deadline: Option<Instant>,
        age: Option<u64>,
    ) -> Result<Transaction> {
        let begin = BeginOptions { age, label: options.label.clone() };
        let (database, begun) = match self {
            Session::Alone(database) => (*database, database.engine().begin(begin)),
            Session::Pipeline(database, pipeline) => (*database, pipeline.begin(begin)),
        };
        database.begun(begun, options, deadline)
    }

    /// Where its transactions are let in, if there is somebody to look after that. A pipeline has locks and does not wait.
    fn admission(&self) -> Option<&'a Admission> {
        match *self {
            Session::Alone(database) => database.inner().admission.as_ref(),
            Session::Pipeline(..) => None,
        }
    }

    fn commits(&self) -> u64 {
        let (Session::Alone(database) | Session::Pipeline(database, _)) = self;
        database.engine().commits()
    }

    /// Undoes what reconnaissance may have set.
    pub(crate) fn set_up(&self, tx: &mut Transaction, options: &TransactOptions, deadline: Option<Instant>) {
        let (Session::Alone(database) | Session::Pipeline(database, _)) = self;
        database.set_up(tx.txn(), options, deadline);
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
    commit: impl Fn(Transaction) -> Result<C>,
) -> Result<(R, C)> {
    let deadline = options.deadline_from_now();
    // Planned transactions are not in each other's way, and who does not wait does not wait here.
    let admission = session.admission().filter(|_| planner.is_none() && !options.no_wait);
    let mut age = None;
    let mut attempts = 0;
    loop {
        // DB-9: before it has any lock.
        let permit = admission.and_then(|admission| admission.enter(deadline));
        let mut tx = session.begin(options, deadline, age)?;
        // DB-4.
        age = Some(tx.age());
        let result = match &mut planner {
            None => body(&mut tx),
            Some(planner) => {
                let footprint = planner.footprint(&mut tx, &mut body);
                session.set_up(&mut tx, options, deadline);
                footprint.and_then(|footprint| plan::follow(&mut tx, footprint)).and_then(|()| body(&mut tx))
            }
        };
        if let Some(planner) = &mut planner
            && planner.has_missed(&mut tx)
        {
            // DB-8: whatever the body made of it. No pause: the next run waits for what this one met.
            tx.rollback()?;
            continue;
        }
        attempts += 1;
        // A body may have swallowed the error: what it then computed is worth nothing (DB-3).
        let victim = tx.take_victim();
        let error = match (result, victim) {
            (Ok(value), None) => {
                // It asks for no more locks: the next one may come in while this one waits for the disk.
                drop(permit);
                match commit(tx) {
                    Ok(committed) => return Ok((value, committed)),
                    Err(error) => error,
                }
            }
            (Err(error), None) => {
                tx.rollback()?;
                error
            }
            (_, Some(report)) => {
                tx.rollback()?;
                match (permit, admission) {
                    (Some(permit), _) => permit.end(true),
                    (None, Some(admission)) => admission.note_victim(|| session.commits()),
                    (None, None) => {}
                }
                Error::Deadlock(report)
            }
        };
        if !error.is_retryable() {
            return Err(error);
        }
        if attempts > options.retries {
            return Err(Error::RetriesExhausted { attempts, last: Box::new(error) });
        }
        pause(attempts, deadline);
    }
}

/// Lets those who won go on before this thread is in their way again. Jittered, so that two victims of each other do not
/// meet in step.
#[cold]
fn pause(attempts: u32, deadline: Option<Instant>) {
    let most = FIRST_PAUSE.saturating_mul(1 << attempts.min(16)).min(LONGEST_PAUSE);
    let jittered = Xorshift::new(random::seed()).below(most.as_nanos() as u64);
    let left = deadline.map_or(LONGEST_PAUSE, |deadline| deadline.saturating_duration_since(Instant::now()));
    thread::sleep(Duration::from_nanos(jittered).min(left));
}
