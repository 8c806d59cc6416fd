//! Transactions that other threads run: partitioned execution.

mod threads;

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use foreshore_env::{
    sync::{Arc, Condvar, Mutex},
    time::Instant,
};
use foreshore_orthrus::{Job, Next, Partitions};
use foreshore_txn::{LockError, Parted};

use crate::{
    Durability,
    database::Database,
    error::{Error, Result},
    pipeline::CommitTicket,
    plan::Planner,
    transact::{Session, TransactOptions},
    transaction::Transaction,
};

/// A transaction that was given to the threads of partitioned execution. Made by [`Plan::submit`](crate::Plan::submit).
///
/// [`Submitted::wait`] for its result, or `await` it, in any runtime. Dropping it changes nothing: the transaction runs.
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
    /// It was taken out.
    Taken,
}

/// How it ended.
enum Ended<R> {
    /// The ticket, if the result waits for it.
    Committed(R, Option<CommitTicket>),
    Failed(Error),
    Panicked(Box<dyn Any + Send>),
    /// The threads ended before it was done.
    Lost,
}

impl<R> Cell<R> {
    fn end(&self, ended: Ended<R>) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Ended(ended));
        let State::Running { waker, sleeps } = before else { return };
        if sleeps {
            self.changed.notify_all();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn put_back(&self, ended: Ended<R>) {
        *self.state.lock() = State::Ended(ended);
    }

    /// What is wrong with threads that end before their work is done.
    fn lost(&self) -> Error {
        let path = self.path.to_path_buf();
        if self.partitions.is_poisoned() {
            Error::Poisoned { path, cause: "a thread of partitioned execution has died".to_owned() }
        } else {
            Error::Closed { path }
        }
    }

    /// Takes the end out, if it has come, before `deadline` if there is one.
    fn take(&self, deadline: Option<Instant>) -> Option<Ended<R>> {
        let mut state = self.state.lock();
        while let State::Running { sleeps, .. } = &mut *state {
            *sleeps = true;
            state = match deadline {
                None => self.changed.wait(state),
                Some(deadline) if Instant::now() >= deadline => return None,
                Some(deadline) => self.changed.wait_until(state, deadline),
            };
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Ended(ended) => Some(ended),
            State::Running { .. } | State::Taken => Some(Ended::Lost),
        }
    }

    /// The result, of what is not a commit that may still be on its way.
    fn result(&self, ended: Ended<R>) -> Result<R> {
        match ended {
            Ended::Committed(value, _) => Ok(value),
            Ended::Failed(error) => Err(error),
            Ended::Panicked(panic) => resume_unwind(panic),
            Ended::Lost => Err(self.lost()),
        }
    }
}

impl<R> Submitted<R> {
    /// Waits for the result: what the body returned, committed as durably as the options say.
    ///
    /// # Errors
    /// As [`Database::transact`](crate::Database::transact); [`Error::Closed`] if the database was closed before it ran.
    ///
    /// # Panics
    /// If the body has panicked under locks, with what it said. It has left no trace.
    pub fn wait(self) -> Result<R> {
        let Some(ended) = self.cell.take(None) else { return Err(self.cell.lost()) };
        if let Ended::Committed(_, Some(ticket)) = &ended {
            ticket.wait()?;
        }
        self.cell.result(ended)
    }

    /// As [`Submitted::wait`], until `deadline` at most: the handle comes back when there is no result then. The transaction
    /// goes on; [`TransactOptions::deadline`] bounds how long it waits for locks.
    pub fn wait_until(self, deadline: Instant) -> Result<R, WaitError<R>> {
        let Some(ended) = self.cell.take(Some(deadline)) else { return Err(WaitError::TimedOut(self)) };
        if let Ended::Committed(_, Some(ticket)) = &ended
            && !ticket.wait_until(deadline).map_err(WaitError::Failed)?
        {
            self.cell.put_back(ended);
            return Err(WaitError::TimedOut(self));
        }
        self.cell.result(ended).map_err(WaitError::Failed)
    }

    /// Whether it has run to its end. (Its commit may still be on its way to the disk.)
    pub fn has_run(&self) -> bool {
        !matches!(*self.cell.state.lock(), State::Running { .. })
    }
}

/// Why [`Submitted::wait_until`] gives no result.
#[derive(Debug)]
pub enum WaitError<R> {
    /// There is none yet.
    TimedOut(Submitted<R>),
    /// The transaction has failed.
    Failed(Error),
}

impl<R> Future for Submitted<R> {
    type Output = Result<R>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R>> {
        let cell = &self.cell;
        let mut ended = {
            let mut state = cell.state.lock();
            if let State::Running { waker, .. } = &mut *state {
                *waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            match std::mem::replace(&mut *state, State::Taken) {
                State::Ended(ended) => ended,
                State::Running { .. } | State::Taken => Ended::Lost,
            }
        };
        if let Ended::Committed(_, Some(ticket)) = &mut ended {
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

/// A submitted transaction, on the side of those who run it.
struct Task<R, F> {
    /// Until it has ended: it keeps the database open.
    database: Option<Database>,
    options: TransactOptions,
    deadline: Option<Instant>,
    planner: Planner<'static>,
    body: F,
    /// While its locks are away.
    tx: Option<Transaction>,
    age: Option<u64>,
    attempts: u32,
    /// Since when a table that it needs is locked by others.
    refused: Option<Instant>,
    cell: Arc<Cell<R>>,
    ended: bool,
}

pub(crate) fn submit<R, F>(
    database: &Database,
    options: TransactOptions,
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
        partitions: Arc::clone(&partitions),
    });
    partitions.submit(Box::new(Task {
        database: Some(database.clone()),
        deadline: options.deadline_from_now(),
        options,
        planner,
        body,
        tx: None,
        age: None,
        attempts: 0,
        refused: None,
        cell: Arc::clone(&cell),
        ended: false,
    }));
    Ok(Submitted { cell })
}

impl<R, F> Task<R, F>
where
    R: Send,
    F: FnMut(&mut Transaction) -> Result<R> + Send,
{
    /// Tells how it ended, after it has let go of everything: who waits may open the database anew.
    fn end(&mut self, ended: Ended<R>) {
        self.tx = None;
        self.database = None;
        self.ended = true;
        self.cell.end(ended);
    }

    fn fail(&mut self, error: Error) -> Next {
        self.end(Ended::Failed(error));
        Next::Done(None)
    }

    /// Its locks, or none yet because a table is locked by others.
    fn try_begin(&mut self, database: &Database) -> Result<Option<Box<Parted>>> {
        let mut session = Session::Alone(database);
        let mut tx = session.begin(&self.options, self.deadline, self.age)?;
        self.age = Some(tx.age());
        let footprint = self.planner.footprint(&mut tx, &mut self.body);
        session.set_up(&mut tx, &self.options, self.deadline);
        let since = *self.refused.get_or_insert_with(Instant::now);
        match tx.txn().part(footprint?, since).map_err(|error| tx.fail(error))? {
            Ok(parted) => {
                self.refused = None;
                self.tx = Some(tx);
                Ok(Some(parted))
            }
            Err(footprint) => {
                self.planner.keep(footprint);
                tx.rollback()?;
                Ok(None)
            }
        }
    }

    /// What becomes of it after a run that failed.
    fn after(&mut self, error: Error) -> Next {
        if !error.is_retryable() {
            return self.fail(error);
        }
        if self.attempts > self.options.retries {
            return self.fail(Error::RetriesExhausted { attempts: self.attempts, last: Box::new(error) });
        }
        Next::Later
    }
}

impl<R, F> Job for Task<R, F>
where
    R: Send,
    F: FnMut(&mut Transaction) -> Result<R> + Send,
{
    fn begin(&mut self) -> Next {
        let Some(database) = self.database.take() else { return Next::Done(None) };
        let begun = self.try_begin(&database);
        self.database = Some(database);
        match begun {
            Ok(Some(parted)) => Next::Locks(parted),
            Ok(None) => Next::Later,
            Err(error) => self.fail(error),
        }
    }

    fn locked(&mut self, parted: Box<Parted>, outcome: Result<(), LockError>) -> Next {
        let Some(mut tx) = self.tx.take() else { return Next::Done(None) };
        let result = match tx.txn().rejoin(*parted, outcome) {
            Ok(()) => match catch_unwind(AssertUnwindSafe(|| (self.body)(&mut tx))) {
                Ok(result) => result,
                Err(panic) => {
                    drop(tx);
                    self.end(Ended::Panicked(panic));
                    return Next::Done(None);
                }
            },
            Err(error) => Err(tx.fail(error)),
        };
        if self.planner.has_missed(&mut tx) {
            // DB-8.
            return match tx.rollback() {
                Ok(()) => self.begin(),
                Err(error) => self.fail(error),
            };
        }
        self.attempts += 1;
        let error = match (result, tx.take_victim()) {
            (Ok(value), None) => {
                let durability = tx.durability();
                return match tx.commit_parting() {
                    Ok((ticket, parted)) => {
                        let ticket = (durability == Durability::Sync).then_some(ticket);
                        self.end(Ended::Committed(value, ticket));
                        Next::Done(parted)
                    }
                    Err(error) => self.fail(error),
                };
            }
            (Err(error), None) => tx.rollback().err().unwrap_or(error),
            (_, Some(report)) => tx.rollback().err().unwrap_or(Error::Deadlock(report)),
        };
        self.after(error)
    }
}

impl<R, F> Drop for Task<R, F> {
    fn drop(&mut self) {
        if !self.ended {
            self.tx = None;
            self.database = None;
            self.cell.end(Ended::Lost);
        }
    }
}
