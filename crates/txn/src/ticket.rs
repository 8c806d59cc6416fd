//! What a commit that does not wait hands back.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use foreshore_base::Lsn;
use foreshore_env::{Handle, sync::Arc, time::Instant};

use crate::{
    committer::{Waiter, WakerCell},
    core::Core,
    error::TxnError,
};

/// A commit on its way to the disk: [`CommitTicket::wait`] for it, ask for it, or `await` it; no runtime is needed.
/// What the transaction did, and what it has read, is certain once the commit is durable. Dropping the ticket changes
/// nothing.
#[derive(Debug)]
#[must_use = "the commit is on its way to the disk, not there"]
pub struct CommitTicket {
    core: Handle<Core>,
    lsn: Lsn,
    /// Known to the committer, from the first poll on.
    waker: Option<Arc<WakerCell>>,
}

impl CommitTicket {
    pub(crate) fn new(core: Handle<Core>, lsn: Lsn) -> CommitTicket {
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
    /// [`TxnError::OutcomeUnknown`] if the log failed before;
    /// [`StorageError::Forked`](foreshore_base::StorageError::Forked) in a fork.
    pub fn wait(&self) -> Result<(), TxnError> {
        if self.is_durable() {
            return Ok(());
        }
        self.core.life.check_process()?;
        self.core.log.flush(self.lsn).map_err(TxnError::unknown)
    }

    /// As [`CommitTicket::wait`], until `deadline` at most; whether it is certain.
    pub fn wait_until(&self, deadline: Instant) -> Result<bool, TxnError> {
        if self.is_durable() {
            return Ok(true);
        }
        self.core.life.check_process()?;
        self.core.log.flush_until(self.lsn, deadline).map_err(TxnError::unknown)
    }

    /// Ready, or bad for ever; `None` if it may still become durable.
    fn outcome(&self) -> Option<Result<(), TxnError>> {
        if self.is_durable() {
            return Some(Ok(()));
        }
        self.core.log.poisoned().map(|cause| Err(TxnError::unknown(cause)))
    }
}

impl Future for CommitTicket {
    type Output = Result<(), TxnError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(outcome) = self.outcome() {
            return Poll::Ready(outcome);
        }
        self.core.life.check_process()?;
        let cell = Arc::clone(self.waker.get_or_insert_default());
        // Neither cloned nor dropped under the mutex: what a waker does there may wait for the committer, which takes
        // the mutex to wake.
        let own = context.waker().clone();
        let before = cell.lock().replace(own);
        let known = before.is_some();
        drop(before);
        // The committer takes the waker out when it is through; whoever finds none is not known to it.
        if !known && self.core.committer.add(self.lsn, Waiter::Ticket(cell)).is_err() {
            // It is being closed, which makes all durable or fails. The flush needs nobody but the log, so the
            // committer may wait for it, too.
            return Poll::Ready(self.wait());
        }
        self.outcome().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for CommitTicket {
    fn drop(&mut self) {
        if let Some(cell) = &self.waker {
            // Not dropped under the mutex, as above.
            let waker = cell.lock().take();
            drop(waker);
        }
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use std::{path::Path, task::Waker};

    use foreshore_env::{disk::Disk, thread, time::Duration};
    use foreshore_testkit::FaultyDisk;

    use super::*;
    use crate::{BeginOptions, Engine, EngineOptions};

    /// A task that polled while the database was being closed, when the committer had ended and the log had not, was
    /// told that the outcome of its commit was unknown. Then it became durable.
    #[test]
    fn a_ticket_that_is_polled_during_a_close_is_answered_by_the_log() {
        let disk = FaultyDisk::new();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let engine = Engine::open(shared, Path::new("db"), &EngineOptions::default()).unwrap();
        let table = engine.create_table("t", b"").unwrap();
        disk.hold_syncs(true);
        let mut txn = engine.begin(BeginOptions::default()).unwrap();
        txn.put(&table, b"key", b"value").unwrap();
        let mut ticket = txn.commit_pipelined().unwrap();
        thread::scope(|scope| {
            let close = scope.spawn(|| engine.close());
            while engine.core().committer.add(Lsn::ZERO, Waiter::Ticket(Arc::default())).is_ok() {
                thread::sleep(Duration::from_millis(1));
            }
            let polled =
                scope.spawn(move || Pin::new(&mut ticket).poll(&mut Context::from_waker(Waker::noop())));
            thread::sleep(Duration::from_millis(30));
            disk.hold_syncs(false);
            assert!(matches!(polled.join().unwrap(), Poll::Ready(Ok(()))));
            close.join().unwrap().unwrap();
        });
    }
}
