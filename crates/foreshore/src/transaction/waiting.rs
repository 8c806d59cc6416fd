//! Whether a transaction locks what it reads, how long it waits for that, and who may end it.

use foreshore_env::time::{Duration, Instant};
use foreshore_txn::{CancelToken, ReadMode};

use super::Transaction;
use crate::{Options, transact::TransactOptions};

/// Cancels a transaction from another thread. Made by [`Transaction::cancel_handle`], and by
/// [`ReadTransaction::cancel_handle`](crate::ReadTransaction::cancel_handle).
///
/// It is good for one transaction: when [`Database::transact`](crate::Database::transact) runs a body again, that is
/// another one, for which the body has to ask for a handle anew, and between two runs there is nothing to cancel.
/// Whoever has to end all of it gives it a [`deadline`](crate::TransactOptions::deadline), too, or lets the body look
/// at a flag of its own.
#[derive(Clone, Debug)]
pub struct CancelHandle(CancelToken);

impl CancelHandle {
    /// Cancels the transaction: a wait for a lock ends within a few milliseconds, and every later operation and the
    /// commit fail with [`Error::Cancelled`](crate::Error::Cancelled), but for its rollback. A commit that has begun is
    /// not stopped.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether the transaction was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

impl Transaction {
    /// What it can change of itself, as the options have it.
    pub(crate) fn set_up(
        &mut self,
        options: &TransactOptions,
        database: &Options,
        deadline: Option<Instant>,
    ) {
        let (lock_timeout, within_body) = options.longest_wait(database);
        self.asker.within_body = within_body;
        let txn = &mut self.asker.txn;
        txn.set_deadline(deadline);
        txn.set_lock_timeout(lock_timeout);
        txn.set_no_wait(options.no_wait);
        txn.set_read_mode(options.read_mode.unwrap_or_default());
        txn.set_isolation(options.isolation.unwrap_or(database.isolation));
    }

    /// The limit to its waits is that of whoever has begun it within a body (DB-11): errors say so.
    pub(crate) fn note_within_body(&mut self) {
        self.asker.within_body = true;
    }

    /// How it reads: as its options have it, or with locks, when [`Database::transact`](crate::Database::transact) runs
    /// it again because what it had read without was changed by others.
    pub fn read_mode(&self) -> ReadMode {
        self.asker.txn.read_mode()
    }

    /// Until when this transaction may wait for locks, latches and pages; `None`, as long as it takes. What
    /// [`Database::transact`](crate::Database::transact) runs again begins with the limits of its options, however
    /// often it is run.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.asker.txn.set_deadline(deadline);
    }

    /// How long each of its waits for a lock may last, until it fails with
    /// [`Error::LockTimeout`](crate::Error::LockTimeout); `None`, as long as it takes. For this run, as
    /// [`Transaction::set_deadline`].
    pub fn set_lock_timeout(&mut self, timeout: Option<Duration>) {
        self.asker.within_body = false;
        self.asker.txn.set_lock_timeout(timeout);
    }

    /// Whether to fail with [`Error::WouldBlock`](crate::Error::WouldBlock) instead of waiting for a lock. The failed
    /// operation changed nothing, and the transaction goes on.
    pub fn set_no_wait(&mut self, no_wait: bool) {
        self.asker.txn.set_no_wait(no_wait);
    }

    /// A handle with which another thread can cancel this transaction.
    pub fn cancel_handle(&mut self) -> CancelHandle {
        CancelHandle(self.cancel.get_or_insert_with(|| self.asker.txn.cancel_token()).clone())
    }
}
