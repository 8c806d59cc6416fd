//! Commits that do not wait for the disk.

use std::{
    future::Future,
    panic::Location,
    pin::Pin,
    task::{Context, Poll},
};

use foreshore_env::{sync::Arc, time::Instant};

use crate::{
    database::{Database, Inner},
    error::{Error, Result},
    transact::{self, Session, TransactOptions},
    transaction::Transaction,
};

/// A commit on its way to the disk. Made by [`Transaction::commit_pipelined`] and [`Pipeline::transact`].
///
/// What the transaction did, and what it has read, is certain once the commit is durable: [`CommitTicket::wait`] for
/// that, ask with [`CommitTicket::is_durable`], or `await` the ticket, in any runtime. Dropping it changes nothing.
/// As long as it is there, so are the memory and the open files of its database, also after that was closed: keep it
/// for no longer than its answer matters.
///
/// Whoever awaits it is woken by the thread that gives back the locks of commits that keep them until they are durable,
/// as they do without full [`early_lock_release`](crate::Options::early_lock_release). A task that is polled there,
/// where it is woken, must not wait for such a lock: nobody gives it back meanwhile.
#[derive(Debug)]
#[must_use = "the commit is on its way to the disk, not there"]
pub struct CommitTicket {
    ticket: foreshore_txn::CommitTicket,
    /// For the names in errors; it does not keep the database open.
    path: Arc<std::path::Path>,
}

impl CommitTicket {
    pub(crate) fn new(ticket: foreshore_txn::CommitTicket, database: &Inner) -> CommitTicket {
        CommitTicket { ticket, path: Arc::from(database.path.as_path()) }
    }

    /// Whether the commit is durable.
    pub fn is_durable(&self) -> bool {
        self.ticket.is_durable()
    }

    /// Waits until the commit is durable.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the log failed before: the database has stopped, and when it is opened again, all
    /// of the transaction is there or nothing. [`Error::Forked`] in a fork of the process.
    pub fn wait(&self) -> Result<()> {
        self.ticket.wait().map_err(|error| Error::from_txn(error, &self.path))
    }

    /// As [`CommitTicket::wait`], until `deadline` at most; whether the commit is durable.
    ///
    /// # Errors
    /// As [`CommitTicket::wait`].
    pub fn wait_until(&self, deadline: Instant) -> Result<bool> {
        self.ticket.wait_until(deadline).map_err(|error| Error::from_txn(error, &self.path))
    }
}

impl Future for CommitTicket {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = Pin::new(&mut self.ticket).poll(context);
        outcome.map_err(|error| Error::from_txn(error, &self.path))
    }
}

/// A session whose transactions, one after another, do not wait for the disk: each begins as soon as the one before it
/// has committed, and its [`CommitTicket`] is through no earlier than theirs. Made by [`Database::pipeline`].
///
/// With [`Options::early_lock_release`](crate::Options::early_lock_release) on, as it is by default, others can go on
/// with what these transactions touched at once. When it is off, the session keeps their locks until the flush, or
/// until one of its transactions is the victim of a deadlock. After
/// [`Options::pipeline_length`](crate::Options::pipeline_length) transactions it waits for the disk.
#[derive(Debug)]
pub struct Pipeline {
    database: Database,
    pipeline: foreshore_txn::Pipeline,
}

impl Pipeline {
    pub(crate) fn new(database: Database, pipeline: foreshore_txn::Pipeline) -> Pipeline {
        Pipeline { database, pipeline }
    }

    /// As [`Database::transact`], but does not wait for the disk: gives what `body` returned, and a ticket that tells
    /// when it is certain.
    ///
    /// # Errors
    /// As [`Database::transact`], with what [`Pipeline::begin`] and [`Transaction::commit_pipelined`] fail with.
    /// [`Error::OutcomeUnknown`] is of a table that `body` has made; of this transaction nothing is committed.
    #[track_caller]
    pub fn transact<R>(
        &mut self,
        body: impl FnMut(&mut Transaction) -> Result<R>,
    ) -> Result<(R, CommitTicket)> {
        self.transact_with(&TransactOptions::default(), body)
    }

    /// [`Pipeline::transact`] with a deadline, another isolation, and so on. The durability of the options is of no
    /// effect.
    ///
    /// # Errors
    /// As [`Pipeline::transact`].
    #[track_caller]
    pub fn transact_with<R>(
        &mut self,
        options: &TransactOptions,
        body: impl FnMut(&mut Transaction) -> Result<R>,
    ) -> Result<(R, CommitTicket)> {
        let planner = self.database.planner(options);
        let session = Session::Pipeline(&self.database, &mut self.pipeline);
        transact::run(session, options, planner, body, Transaction::commit_pipelined_in_place)
    }

    /// Begins the next transaction, which may be ended as any other.
    ///
    /// # Errors
    /// [`Error::PipelineBusy`] while the last one is open; what [`Database::begin`] fails with; what befell the log,
    /// where those before it had to be durable first: it has not begun then, and their tickets say that their outcome
    /// is unknown.
    #[track_caller]
    pub fn begin(&mut self) -> Result<Transaction> {
        self.begin_with(&TransactOptions::default())
    }

    /// [`Pipeline::begin`] with a deadline, a label, and so on.
    ///
    /// # Errors
    /// As [`Pipeline::begin`].
    #[track_caller]
    pub fn begin_with(&mut self, options: &TransactOptions) -> Result<Transaction> {
        let (reads, deadline) = (options.read_mode.unwrap_or_default(), options.deadline_from_now());
        let mut session = Session::Pipeline(&self.database, &mut self.pipeline);
        session.begin(options, reads, deadline, None, Location::caller())
    }

    /// Waits until everything that it has committed is durable.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the log has failed before, or does; [`Error::Forked`] in a fork of the process.
    pub fn flush(&self) -> Result<()> {
        self.pipeline.flush().map_err(|error| Error::from_txn(error, self.database.path()))
    }

    /// Transactions that it has completed since it was last known to be durable as a whole. 0 in a fork of the process.
    pub fn length(&self) -> u32 {
        if self.database.engine().is_forked() { 0 } else { self.pipeline.length() }
    }
}
