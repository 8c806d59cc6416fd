//! How a request for a lock can fail.

use std::fmt::{self, Write};
use std::ops::Deref;

use foreshore_base::{StorageError, TxnId};
use foreshore_env::sync::Arc;
use foreshore_env::time::Duration;

use crate::deadlock::write_transaction;
use crate::view::{BlockerView, TransactionView};
use crate::{DeadlockEdge, DeadlockReport, IntentMode, KeyMode};

/// A mode of either kind of lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockMode {
    /// Of a key and the gap above it.
    Key(KeyMode),
    /// Of a table or the volume.
    Table(IntentMode),
}

impl LockMode {
    /// The mode of a request in the lock table.
    pub(crate) fn of(mode: KeyMode) -> LockMode {
        mode.intent().map_or(LockMode::Key(mode), LockMode::Table)
    }
}

impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockMode::Key(mode) => mode.fmt(f),
            LockMode::Table(mode) => mode.fmt(f),
        }
    }
}

/// A transaction that stands in the way of a request: it holds a lock, or has asked for it earlier.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocker {
    /// The transaction.
    pub txn: TxnId,
    /// Its label.
    pub label: Option<Arc<str>>,
    /// Its priority; `None` if it has ended meanwhile.
    pub priority: Option<i8>,
    /// The mode that conflicts.
    pub mode: LockMode,
}

impl From<&BlockerView> for Blocker {
    fn from(blocker: &BlockerView) -> Blocker {
        let BlockerView { transaction, mode, .. } = blocker;
        let TransactionView { id, label, priority, .. } = transaction;
        Blocker { txn: *id, label: label.clone(), priority: *priority, mode: *mode }
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_transaction(f, self.txn, self.label.as_deref(), self.priority)?;
        write!(f, " in mode {}", self.mode)
    }
}

/// A lock that was not granted: what was wanted, and, as a slice, who was in the way.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Refusal {
    /// Who wanted what, and how long it had waited. `None` if it was no lock that was waited for, but those who work on
    /// the same page, or who write.
    pub wish: Option<DeadlockEdge>,
    /// Who was in the way at last: nobody, if they went away at the last moment.
    pub blockers: Vec<Blocker>,
    /// The limit of a single wait that was reached ([`crate::WaitPolicy::timeout`]). `None`: it was a deadline, or
    /// nothing was waited for.
    pub timeout: Option<Duration>,
}

impl Deref for Refusal {
    type Target = [Blocker];

    fn deref(&self) -> &[Blocker] {
        &self.blockers
    }
}

impl From<Vec<Blocker>> for Box<Refusal> {
    fn from(blockers: Vec<Blocker>) -> Box<Refusal> {
        Box::new(Refusal { blockers, ..Refusal::default() })
    }
}

impl Refusal {
    fn timed_out(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = match &self.wish {
            Some(wish) => write!(text, "{wish}"),
            None => write!(text, "waited"),
        };
        let _ = match self.timeout {
            Some(timeout) => write!(text, ", and may wait {} ms for a lock", timeout.as_millis()),
            None => write!(text, ", until its deadline"),
        };
        text + &self.in_the_way()
    }

    fn refused(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = match &self.wish {
            Some(wish) => wish.write_who(&mut text).and_then(|()| {
                text.push_str(" was not to wait for ");
                wish.write_wish(&mut text)
            }),
            None => write!(text, "the lock is not free"),
        };
        text + &self.in_the_way()
    }

    fn in_the_way(&self) -> String {
        let names: Vec<String> = self.blockers.iter().map(Blocker::to_string).collect();
        let names =
            if names.is_empty() { "somebody who has gone since".to_owned() } else { names.join(", ") };
        format!("; in its way: {names}")
    }
}

/// Why a lock was not granted. The locks that were held before are held still, in the modes they had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The transaction was chosen to resolve a deadlock: it has to be rolled back.
    #[error("{0}")]
    Deadlock(Arc<DeadlockReport>),
    /// The deadline passed, or as much time as a single wait may take.
    #[error("{}", .0.timed_out())]
    Timeout(Box<Refusal>),
    /// The transaction was not to wait, and somebody was in the way.
    #[error("{}", .0.refused())]
    WouldBlock(Box<Refusal>),
    /// A planned transaction met a lock that its plan does not have and that is not free: it has to be rolled back, and
    /// run again with a larger plan. Never given by the lock manager itself.
    #[error("a lock that is not in the transaction's plan is not free")]
    PlanMiss,
    /// What a transaction has read without locks was changed by others: it has to be rolled back, and run again with
    /// locks. Never given by the lock manager itself.
    #[error("what the transaction has read without locks was changed by others")]
    StaleReads,
    /// The wait was cancelled.
    #[error("cancelled while waiting for a lock")]
    Cancelled,
    /// There is nothing to be locked any more: [`crate::LockOptions::lifeline`] has failed, with this. Or the lock was
    /// granted, and what its owner had to do next has failed.
    #[error(transparent)]
    Ended(Box<StorageError>),
    /// A limit on locks is reached, of the transaction or of all together.
    #[error("locks are limited to {limit}")]
    TooManyLocks {
        /// The limit.
        limit: usize,
    },
    /// The caller's partitioner has panicked where it was asked about the key, and said this: the key has no name to be
    /// locked under.
    #[error("the partitioner has panicked on a key: {0}")]
    Partitioner(Box<str>),
    /// All slots for transactions are taken.
    #[error("transactions open at a time are limited to {limit}")]
    TooManyTransactions {
        /// The limit.
        limit: usize,
    },
}

impl LockError {
    /// Whether the same work, begun anew, can be expected to succeed: true for deadlocks, which are gone with the
    /// victim, for plans, which grow, and for stale reads, which will be locked.
    pub fn is_retryable(&self) -> bool {
        matches!(self, LockError::Deadlock(_) | LockError::PlanMiss | LockError::StaleReads)
    }
}
