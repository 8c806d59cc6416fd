//! Transactions that other threads run: partitioned execution.

mod procedure;
mod task;
mod threads;

use std::{
    any::Any,
    future::Future,
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    pin::Pin,
    process,
    task::{Context, Poll, Waker},
};

use foreshore_env::{
    sabotage::{Fault, planted},
    sync::{Arc, Condvar, Mutex},
    time::Instant,
};
use foreshore_orthrus::{Partitions, WaitsAt};

use crate::{
    database::Database,
    error::{Error, Result},
    nested,
    pipeline::CommitTicket,
    plan::{Planner, Steps},
    transact::TransactOptions,
    transaction::Transaction,
};
pub use procedure::{Procedure, Serving};
use task::{Again, Client, Task};

/// A transaction that was given to the threads of partitioned execution. Made by [`Plan::submit`](crate::Plan::submit).
///
/// [`Submitted::wait`] for its result, or `await` it, in any runtime. Dropping it changes nothing: the transaction
/// runs, unless [`Submitted::cancel`] came first.
///
/// Whoever awaits it is woken by one of the threads of partitioned execution. A task that is polled there, where it is
/// woken, should be quick: other transactions of the thread wait meanwhile. If it waits for a lock of one of these, it
/// waits for itself: so each of its waits for a lock ends after 10 s, unless options say when, as within a body (see
/// [`Database::transact`]).
#[derive(Debug)]
#[must_use = "the transaction is on its way; its result is here"]
pub struct Submitted<R> {
    cell: Arc<Cell<R>>,
}

/// Where the result comes to lie.
struct Cell<R> {
    /// Written once by the job, then by whoever waits.
    state: Mutex<State<R>>,
    changed: Condvar,
    path: Arc<Path>,
    partitions: Arc<Partitions>,
    waits_at: WaitsAt,
}

impl<R> std::fmt::Debug for Cell<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cell").finish_non_exhaustive()
    }
}

enum State<R> {
    /// Not yet; who is to be woken.
    Running {
        waker: Option<Waker>,
        sleeps: bool,
    },
    Ended(Ended<R>),
    /// The result was taken out.
    Taken,
}

/// How a submitted transaction ended.
enum Ended<R> {
    /// With the ticket, and whether the result waits for it.
    Committed(R, CommitTicket, bool),
    Failed(Error),
    Panicked(Box<dyn Any + Send>),
    /// The threads ended before it was done.
    Lost,
}

impl<R> Cell<R> {
    fn end(&self, ended: Ended<R>) {
        let before = mem::replace(&mut *self.state.lock(), State::Ended(ended));
        let State::Running { waker, sleeps } = before else { return };
        if sleeps {
            self.changed.notify_all();
        }
        if let Some(waker) = waker.filter(|_| !planted(Fault::WakerForgotten)) {
            // What goes wrong in somebody's runtime is nothing to the transactions of others, which this thread runs,
            // too. It may wait for their locks there, as a body may (DB-11).
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| nested::within(|| waker.wake()))) {
                // Nor is what its panic carries.
                mem::forget(panic);
            }
            end_of_a_fork(self.partitions.is_forked());
        }
    }

    fn put_back(&self, ended: Ended<R>) {
        *self.state.lock() = State::Ended(ended);
    }

    fn lost(&self) -> Error {
        lost(&self.path, &self.partitions)
    }

    /// Takes the end out, if it has come, before `deadline` if there is one.
    fn take(&self, deadline: Option<Instant>) -> Option<Ended<R>> {
        if self.partitions.is_forked() {
            return Some(Ended::Lost);
        }
        let mut state = self.state.lock();
        while let State::Running { sleeps, .. } = &mut *state {
            *sleeps = true;
            state = match deadline {
                None => self.changed.wait(state),
                Some(deadline) if Instant::now() >= deadline => return None,
                Some(deadline) => self.changed.wait_until(state, deadline),
            };
        }
        match mem::replace(&mut *state, State::Taken) {
            State::Ended(ended) => Some(ended),
            State::Running { .. } | State::Taken => panic!("{TAKEN}"),
        }
    }

    /// The result, of what is not a commit that may still be on its way.
    fn result(&self, ended: Ended<R>) -> Result<R> {
        match ended {
            Ended::Committed(value, ..) => Ok(value),
            Ended::Failed(error) => Err(error),
            Ended::Panicked(panic) => resume_unwind(panic),
            Ended::Lost => Err(self.lost()),
        }
    }
}

impl<R> Drop for Cell<R> {
    /// Nobody has asked: what a panic carries may panic where it is dropped, and that is nothing to the transactions of
    /// others. What a body has returned may wait for locks there, as the body may (DB-11).
    fn drop(&mut self) {
        let state = mem::replace(&mut *self.state.lock(), State::Taken);
        match state {
            State::Ended(Ended::Panicked(panic)) => mem::forget(panic),
            state => nested::within(|| drop(state)),
        }
    }
}

impl<R> Submitted<R> {
    /// Waits for the result: what the body returned, committed as durably as the options say.
    ///
    /// Its locks are given back just behind the result, by other threads: a transaction that asks for one of them
    /// without waiting ([`TransactOptions::no_wait`]) may still be refused.
    ///
    /// A body that runs is not interrupted. So where the database is closed, the handle of a transaction that waits for
    /// its thread says so when the body that runs there has ended.
    ///
    /// In the body of a submitted or served transaction, and wherever else a thread of partitioned execution calls or
    /// drops something of yours, it does not wait: this may be the thread that is to run the other transaction, whose
    /// limits nobody looks at then. [`Submitted::wait_until`] waits there, too, with a limit of its own.
    ///
    /// # Errors
    /// As [`Database::transact`](crate::Database::transact); [`Error::WaitInBody`] if it would have to wait on a thread
    /// of partitioned execution: the transaction goes on; [`Error::Closed`] if the database was closed before it ran;
    /// [`Error::ThreadDied`] if one of the threads of partitioned execution has died before (of a defect, or of a panic
    /// where something is dropped that a body has captured or returned): this transaction is not committed, and nothing
    /// runs that is submitted to this database until it is opened again. Other transactions go on.
    /// [`Error::PartitionerPanicked`] fails this one only. [`Error::Forked`] in a fork of the process, where it does
    /// not run. A transaction that was refused because others have filled the log with it is told so at once, not run
    /// again alone.
    ///
    /// # Panics
    /// If the body has panicked under locks, with what it said. It has left no trace. And if the handle has given its
    /// result before, to whoever polled it.
    pub fn wait(self) -> Result<R> {
        // DB-11.
        let at_once = Partitions::are_here().then(Instant::now);
        let Some(ended) = self.cell.take(at_once) else { return Err(Error::WaitInBody) };
        if let Ended::Committed(_, ticket, true) = &ended {
            ticket.wait()?;
        }
        self.cell.result(ended)
    }

    /// As [`Submitted::wait`], until `deadline` at most: the handle comes back when there is no result then. The
    /// transaction goes on; [`TransactOptions::deadline`] bounds how long it waits for locks.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`], with the handle, if there is no result yet; [`WaitError::Failed`] with what
    /// [`Submitted::wait`] fails with.
    ///
    /// # Panics
    /// As [`Submitted::wait`].
    pub fn wait_until(self, deadline: Instant) -> Result<R, WaitError<R>> {
        let Some(ended) = self.cell.take(Some(deadline)) else { return Err(WaitError::TimedOut(self)) };
        if let Ended::Committed(_, ticket, true) = &ended
            && !ticket.wait_until(deadline).map_err(WaitError::Failed)?
        {
            self.cell.put_back(ended);
            return Err(WaitError::TimedOut(self));
        }
        self.cell.result(ended).map_err(WaitError::Failed)
    }

    /// Cancels it if none of the threads has begun it: then it is not run, the queue has room for another one, the
    /// handle says [`Error::Cancelled`], and what its body has captured is dropped here. Whether that is so. One that
    /// has been begun goes on: its body may give a [`CancelHandle`](crate::CancelHandle) of it to others
    /// ([`Transaction::cancel_handle`]), and [`TransactOptions::deadline`] bounds how long it waits.
    ///
    /// ```
    /// # use foreshore::{Database, Error, TableDefinition};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// # const REPORTS: TableDefinition<u32, u32> = TableDefinition::new("reports");
    /// let report = db.plan().read_range(REPORTS, ..).submit(|tx| tx.count_range(REPORTS, ..))?;
    /// if report.cancel() {
    ///     assert!(matches!(report.wait(), Err(Error::Cancelled)));
    /// } else {
    ///     assert_eq!(report.wait()?, 0);
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cancel(&self) -> bool {
        let Cell { partitions, waits_at, .. } = &*self.cell;
        !partitions.is_forked() && partitions.withdraw(waits_at)
    }

    /// Whether it has run to its end. (Its commit may still be on its way to the disk.) In a fork of the process it
    /// never has.
    pub fn has_run(&self) -> bool {
        !self.cell.partitions.is_forked() && !matches!(*self.cell.state.lock(), State::Running { .. })
    }
}

/// Why [`Submitted::wait_until`] gives no result.
#[derive(Debug, thiserror::Error)]
pub enum WaitError<R> {
    /// There is none yet.
    #[error("the submitted transaction has not ended yet: wait for it again")]
    TimedOut(Submitted<R>),
    /// The transaction has failed.
    #[error(transparent)]
    Failed(Error),
}

/// Polling it panics as [`Submitted::wait`] does.
impl<R> Future for Submitted<R> {
    type Output = Result<R>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R>> {
        let cell = &self.cell;
        if cell.partitions.is_forked() {
            return Poll::Ready(Err(cell.lost()));
        }
        let mut ended = {
            // Neither cloned nor dropped under the mutex: what a waker does there may wait for the end of the
            // transaction, which takes the mutex to tell.
            let own = context.waker().clone();
            let mut state = cell.state.lock();
            if let State::Running { waker, .. } = &mut *state {
                let before = waker.replace(own);
                drop(state);
                drop(before);
                return Poll::Pending;
            }
            match mem::replace(&mut *state, State::Taken) {
                State::Ended(ended) => ended,
                State::Running { .. } | State::Taken => panic!("{TAKEN}"),
            }
        };
        if let Ended::Committed(_, ticket, true) = &mut ended {
            match Pin::new(ticket).poll(context) {
                Poll::Pending => {
                    cell.put_back(ended);
                    return Poll::Pending;
                }
                Poll::Ready(durable) => durable?,
            }
        }
        Poll::Ready(cell.result(ended))
    }
}

impl<R> Drop for Submitted<R> {
    /// Nobody is to be woken any more.
    fn drop(&mut self) {
        if self.cell.partitions.is_forked() {
            return;
        }
        let waker = match &mut *self.cell.state.lock() {
            State::Running { waker, .. } => waker.take(),
            State::Ended(_) | State::Taken => None,
        };
        // Not dropped under the mutex, as above.
        drop(waker);
    }
}

const TAKEN: &str = "a submitted transaction was asked for its result once more";

/// What is wrong with threads that end before their work is done.
fn lost(path: &Path, partitions: &Partitions) -> Error {
    let path = path.to_path_buf();
    if partitions.is_forked() {
        return Error::Forked { path };
    }
    // Whoever dies drops what it has, and only then stops the others.
    let is_closed = partitions.has_stopped() && !partitions.is_poisoned();
    if is_closed { Error::Closed { path } } else { Error::ThreadDied { path } }
}

/// Ends the process if what was called on one of the threads has forked and this is the fork: nobody is here to whom it
/// could return.
fn end_of_a_fork(is_fork: bool) {
    if is_fork {
        process::abort();
    }
}

/// One transaction, and where its result goes.
struct Once<R, F> {
    /// Until the transaction has ended.
    body: Option<F>,
    cell: Arc<Cell<R>>,
}

impl<R, F> Client for Once<R, F>
where
    R: Send,
    F: FnMut(&mut Transaction) -> Result<R> + Send,
{
    type Output = R;

    fn run(&mut self, tx: &mut Transaction) -> Result<R> {
        match &mut self.body {
            Some(body) => body(tx),
            None => Err(Error::application("the transaction has ended")),
        }
    }

    fn end(&mut self, ended: Ended<R>, database: Option<Database>, _: Steps<'static>) -> Option<Again> {
        // Whoever waits may open the database again, of which the body may have captured a handle, too. If that panics,
        // the transaction has ended all the same. What is dropped may wait for locks, as the body may (DB-11).
        let dropped = catch_unwind(AssertUnwindSafe(|| nested::within(|| drop(self.body.take()))));
        drop(database);
        self.cell.end(ended);
        if let Err(panic) = dropped {
            resume_unwind(panic);
        }
        None
    }

    fn waits_at(&self) -> Option<&WaitsAt> {
        Some(&self.cell.waits_at)
    }
}

#[track_caller]
pub(crate) fn submit<R, F>(
    database: &Database,
    mut options: TransactOptions,
    planner: Planner<'static>,
    body: F,
) -> Result<Submitted<R>>
where
    R: Send + 'static,
    F: FnMut(&mut Transaction) -> Result<R> + Send + 'static,
{
    let partitions = database.partitions()?;
    let cell = Arc::new(Cell {
        state: Mutex::new(State::Running { waker: None, sleeps: false }),
        changed: Condvar::default(),
        path: Arc::from(database.path()),
        partitions: Arc::clone(partitions),
        waits_at: WaitsAt::default(),
    });
    let client = Once { body: Some(body), cell: Arc::clone(&cell) };
    let body_limit = nested::bound(&mut options, database);
    let task = Task::new(database.clone(), options, planner, client).with_body_limit(body_limit);
    if partitions.try_submit(Box::new(task)).is_err() {
        return Err(Error::SubmitQueueFull { limit: database.options().submit_queue });
    }
    Ok(Submitted { cell })
}
