//! How a transaction can fail.

use std::path::PathBuf;

use foreshore_base::StorageError;
use foreshore_btree::TreeError;
use foreshore_lock::LockError;

/// Why an operation of a transaction failed. The transaction is still open afterwards (unless the operation was its
/// commit), and the failed operation has left no trace in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TxnError {
    /// The environment failed. [`StorageError::Poisoned`] ends every transaction of the database.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A lock was not granted. After [`LockError::Deadlock`] and [`LockError::PlanMiss`] the transaction must be rolled
    /// back.
    #[error(transparent)]
    Lock(LockError),
    /// An earlier operation made this transaction a deadlock victim, or left its plan; all that is left is to roll it
    /// back.
    #[error("the transaction was a deadlock's victim, or left its plan; roll it back and run it again")]
    Failed,
    /// The log is full, and this transaction needed most of it: it was ended, and all that is left is to give it up.
    #[error("the transaction was ended because it held most of a full log; roll it back")]
    LogHeld,
    /// The commit record was written, but the log failed before it was known to be durable. The database is poisoned;
    /// when it is opened again, the transaction is there as a whole or not at all.
    #[error("the outcome of the commit is unknown until the database is opened again: {cause}")]
    OutcomeUnknown {
        /// What happened to the log.
        #[source]
        cause: StorageError,
    },
    /// The transaction before this one in its pipeline is still open.
    #[error("a pipeline has one open transaction at a time, and this one's is still open")]
    PipelineBusy,
    /// The table was dropped, or renamed, after it was looked up; or there was none to be renamed.
    #[error("there is no table {name:?}")]
    TableGone {
        /// Its name.
        name: String,
    },
    /// A table was to get the name of another one.
    #[error("there is a table {name:?} already")]
    TableExists {
        /// The name.
        name: String,
    },
    /// A global id must have at least one byte, and not more than the limit.
    #[error("a global id has 1 to {limit} bytes, this one has {bytes}")]
    InvalidGlobalId {
        /// Its length.
        bytes: usize,
        /// The longest.
        limit: usize,
    },
    /// A transaction is prepared under this global id already.
    #[error("the global id {:?} is in use", String::from_utf8_lossy(id))]
    GlobalIdInUse {
        /// The id.
        id: Vec<u8>,
    },
    /// No transaction is prepared under this global id; perhaps somebody has decided about it already.
    #[error("no transaction is prepared under the global id {:?}", String::from_utf8_lossy(id))]
    UnknownGlobalId {
        /// The id.
        id: Vec<u8>,
    },
    /// The transaction of this global id is being prepared or decided about at this moment.
    #[error("the transaction {:?} is being prepared or decided about", String::from_utf8_lossy(id))]
    GlobalIdBusy {
        /// The id.
        id: Vec<u8>,
    },
    /// A backup was not finished. What it has copied cannot be opened.
    #[error("the backup in {} was not finished: {reason}; remove that directory", path.display())]
    BackupStopped {
        /// Where it was made.
        path: PathBuf,
        /// Why it ended.
        reason: &'static str,
    },
    /// Somebody is doing what excludes this: see [`Engine::compact`](crate::Engine::compact).
    #[error("{reason}; try again when that is over")]
    Busy {
        /// Who is in the way.
        reason: &'static str,
    },
    /// The cursor is of another transaction.
    #[error("the cursor belongs to another transaction")]
    ForeignCursor,
    /// The savepoint is of another transaction, or has ended: it was released, or undone by a rollback to an earlier
    /// one.
    #[error(
        "the savepoint is not one of this transaction, or was released, or undone by a rollback to an earlier one"
    )]
    InvalidSavepoint,
}

impl TxnError {
    /// The log has failed behind a commit record.
    pub(crate) fn unknown(cause: StorageError) -> TxnError {
        TxnError::OutcomeUnknown { cause }
    }

    /// Whether the same work, begun anew (with the same age), can be expected to succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            TxnError::Lock(error) => error.is_retryable(),
            TxnError::Failed => true,
            _ => false,
        }
    }
}

impl From<LockError> for TxnError {
    fn from(error: LockError) -> TxnError {
        match error {
            LockError::Ended(error) => TxnError::Storage(*error),
            error => TxnError::Lock(error),
        }
    }
}

impl From<TreeError> for TxnError {
    fn from(error: TreeError) -> TxnError {
        match error {
            TreeError::Storage(error) => TxnError::Storage(error),
            TreeError::Lock(error) => error.into(),
        }
    }
}
