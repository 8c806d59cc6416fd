//! What a commit that does not wait hands back.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use foreshore_base::{Lsn, StorageError};
use foreshore_env::{sync::Arc, time::Instant};

use crate::{
    committer::{Waiter, WakerCell},
    core::Core,
    error::TxnError,
};

/// A commit on its way to the disk: [`CommitTicket::wait`] for it, ask for it, or `await` it; no runtime is needed. What the
/// transaction did, and what it has read, is certain once the commit is durable. Dropping the ticket changes nothing.
#[derive(Debug)]
#[must_use = "the commit is on its way to the disk, not there"]
pub struct CommitTicket {
    core: Arc<Core>,
    lsn: Lsn,
    /// Known to the committer, from the first poll on.
    waker: Option<Arc<WakerCell>>,
}

impl CommitTicket {
    pub(crate) fn new(core: Arc<Core>, lsn: Lsn) -> CommitTicket {
        CommitTicket { core, lsn, waker: None }
    }

    /// What must be durable: the commit record, or for a transaction that has only read, the newest commit that it saw.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Whether it is certain.
    #[inline]
    pub fn is_durable(&self) -> bool {
        self.core.log.is_durable(self.lsn)
    }

    /// Waits until it is certain.
    ///
    /// # Errors
    /// [`TxnError::OutcomeUnknown`] if the log failed before; [`StorageError::Forked`] in a fork.
    pub fn wait(&self) -> Result<(), TxnError> {
        if self.is_durable() {
            return Ok(());
        }
        self.core.life.check_process()?;
        self.core.log.flush(self.lsn).map_err(unknown)
    }

    /// As [`CommitTicket::wait`], until `deadline` at most; whether it is certain.
    pub fn wait_until(&self, deadline: Instant) -> Result<bool, TxnError> {
        if self.is_durable() {
            return Ok(true);
        }
        self.core.life.check_process()?;
        self.core.log.flush_until(self.lsn, deadline).map_err(unknown)
    }

    /// Ready, or bad for ever; `None` if it may still become durable.
    fn outcome(&self) -> Option<Result<(), TxnError>> {
        if self.is_durable() {
            return Some(Ok(()));
        }
        self.core.log.poisoned().map(|cause| Err(unknown(cause)))
    }
}

fn unknown(cause: StorageError) -> TxnError {
    TxnError::OutcomeUnknown { cause }
}

impl Future for CommitTicket {
    type Output = Result<(), TxnError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(outcome) = self.outcome() {
            return Poll::Ready(outcome);
        }
        self.core.life.check_process()?;
        let cell = Arc::clone(self.waker.get_or_insert_default());
        let known = cell.lock().replace(context.waker().clone()).is_some();
        // The committer takes the waker out when it is through; whoever finds none is not known to it.
        if !known && self.core.committer.add(self.lsn, Waiter::Ticket(cell)).is_err() {
            // Closed: all was made durable, or could not be.
            return Poll::Ready(self.outcome().unwrap_or(Err(unknown(StorageError::Closed))));
        }
        self.outcome().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for CommitTicket {
    fn drop(&mut self) {
        if let Some(cell) = &self.waker {
            cell.lock().take();
        }
    }
}
