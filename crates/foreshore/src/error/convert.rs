//! What the crates below report, as errors of the facade.

use std::path::Path;

use foreshore_base::{
    StorageError,
    limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES},
};
use foreshore_txn::{LockError, TxnError};

use super::Error;

impl Error {
    #[cold]
    pub(crate) fn from_storage(error: StorageError, database: &Path) -> Error {
        let path = || database.to_owned();
        match error {
            StorageError::Io { action, path, source } => Error::Io { action, path, source },
            StorageError::Corrupted { site, detail } => Error::Corrupted { path: path(), site, detail },
            StorageError::UpgradeRequired { path, found, supported } => {
                Error::UpgradeRequired { path, found, supported }
            }
            StorageError::NotADatabase { path, detail } => Error::NotADatabase { path, detail },
            StorageError::AlreadyOpen { path } => Error::AlreadyOpen { path },
            StorageError::Poisoned { cause } => Error::Poisoned { path: path(), cause },
            StorageError::LogFull { used_bytes, capacity_bytes } => {
                Error::LogFull { used_bytes, capacity_bytes }
            }
            StorageError::PoolExhausted { frames } => Error::PoolExhausted { frames },
            StorageError::LimitExceeded { what, limit, got } => Error::LimitExceeded { what, limit, got },
            StorageError::ReadOnly => Error::ReadOnly { path: path() },
            StorageError::Closed => Error::Closed { path: path() },
            other => Error::Other(other.to_string()),
        }
    }

    #[cold]
    pub(crate) fn from_lock(error: LockError) -> Error {
        match error {
            LockError::Deadlock(report) => Error::Deadlock(report),
            LockError::PlanMiss => Error::PlanMiss,
            LockError::Timeout(holders) => Error::LockTimeout(holders),
            LockError::WouldBlock(holders) => Error::WouldBlock(holders),
            LockError::Cancelled => Error::Cancelled,
            LockError::TooManyLocks { limit } => Error::TooManyLocks { limit },
            LockError::TooManyTransactions { limit } => Error::TooManyTransactions { limit },
        }
    }

    #[cold]
    pub(crate) fn from_txn(error: TxnError, database: &Path) -> Error {
        match error {
            TxnError::Storage(error) => Error::from_storage(error, database),
            TxnError::Lock(error) => Error::from_lock(error),
            TxnError::TableDropped { name } => Error::NoSuchTable { table: name },
            TxnError::Failed => Error::TransactionFailed,
            TxnError::LogHeld => Error::LogHeld,
            TxnError::PipelineBusy => Error::PipelineBusy,
            TxnError::BackupStopped { path, reason } => Error::BackupStopped { path, reason },
            TxnError::InvalidGlobalId { bytes, limit } => Error::InvalidGlobalId { bytes, limit },
            TxnError::GlobalIdInUse { id } => Error::GlobalIdInUse { id },
            TxnError::UnknownGlobalId { id } => Error::UnknownGlobalId { id },
            TxnError::GlobalIdBusy { id } => Error::GlobalIdBusy { id },
            TxnError::ForeignCursor => Error::NotOfThisTransaction { what: "cursor" },
            TxnError::InvalidSavepoint => Error::NotOfThisTransaction { what: "savepoint" },
            TxnError::OutcomeUnknown { cause } => {
                Error::OutcomeUnknown { cause: Box::new(Error::from_storage(cause, database)) }
            }
            other => Error::Other(other.to_string()),
        }
    }

    #[cold]
    pub(crate) fn key_too_long(bytes: usize) -> Error {
        Error::KeyTooLong { bytes, limit: MAX_KEY_BYTES }
    }

    #[cold]
    pub(crate) fn value_too_long(bytes: usize) -> Error {
        Error::ValueTooLong { bytes, limit: MAX_VALUE_BYTES }
    }
}
