//! How a request for a lock can fail.

use std::fmt;

use foreshore_base::TxnId;
use foreshore_env::sync::Arc;

use crate::{DeadlockReport, IntentMode, Mode};

/// A mode of either kind of lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockMode {
    /// Of a key and the gap above it.
    Key(Mode),
    /// Of a table or the volume.
    Table(IntentMode),
}

impl LockMode {
    /// The mode of a request in the lock table.
    pub(crate) fn of(mode: Mode) -> LockMode {
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
pub struct Holder {
    /// The transaction.
    pub txn: TxnId,
    /// Its label.
    pub label: Option<Arc<str>>,
    /// The mode that conflicts.
    pub mode: LockMode,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transaction {}", self.txn)?;
        if let Some(label) = &self.label {
            write!(f, " ({label})")?;
        }
        write!(f, " in mode {}", self.mode)
    }
}

/// Why a lock was not granted. The locks that were held before are held still, in the modes they had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LockError {
    /// The transaction was chosen to resolve a deadlock: it has to be rolled back.
    #[error("{0}")]
    Deadlock(Arc<DeadlockReport>),
    /// The deadline passed. Who was in the way then; nobody, if they went away at the last moment.
    #[error("the deadline passed while waiting for {}", list(.0))]
    Timeout(Vec<Holder>),
    /// It was not to wait, and these were in the way.
    #[error("the lock is not free: {}", list(.0))]
    WouldBlock(Vec<Holder>),
    /// A planned transaction met a lock that its plan does not have and that is not free: it has to be rolled back, and run
    /// again with a larger plan. Never given by the lock manager itself.
    #[error("a lock that is not in the transaction's plan is not free")]
    PlanMiss,
    /// The wait was cancelled.
    #[error("cancelled while waiting for a lock")]
    Cancelled,
    /// A limit on locks is reached, of the transaction or of all together.
    #[error("locks are limited to {limit}")]
    TooManyLocks {
        /// The limit.
        limit: usize,
    },
    /// All slots for transactions are taken.
    #[error("transactions open at a time are limited to {limit}")]
    TooManyTransactions {
        /// The limit.
        limit: usize,
    },
}

impl LockError {
    /// Whether the same work, begun anew, can be expected to succeed: true for deadlocks, which are gone with the victim, and
    /// for plans, which grow.
    pub fn is_retryable(&self) -> bool {
        matches!(self, LockError::Deadlock(_) | LockError::PlanMiss)
    }
}

fn list(holders: &[Holder]) -> String {
    let names: Vec<String> = holders.iter().map(Holder::to_string).collect();
    if names.is_empty() { "somebody who has gone since".to_owned() } else { names.join(", ") }
}
