//! What the crates below report, and the application itself, as errors of the facade.

use std::{error, path::Path};

use foreshore_base::{
    StorageError,
    limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES},
};
use foreshore_env::sync::Arc;
use foreshore_txn::{LockError, LogHolder, TxnError};

use super::{Error, RefusedLock};
use crate::{database::Inner, view::Names};

impl Error {
    /// Wraps the application's own error, so that it can leave a [`Database::transact`](crate::Database::transact)
    /// closure. The transaction is rolled back and not run again.
    pub fn application(error: impl Into<Box<dyn error::Error + Send + Sync>>) -> Error {
        Error::Application(error.into())
    }

    #[cold]
    pub(crate) fn from_storage(error: StorageError, database: &Path) -> Error {
        let path = || database.to_owned();
        match error {
            StorageError::Io { action, path, source } if foreshore_base::is_disk_full(&source) => {
                Error::DiskFull { action, path, reason: source.to_string() }
            }
            StorageError::Io { action, path, source } => Error::Io { action, path, source },
            StorageError::Corrupted { site, detail } => Error::Corrupted { path: path(), site, detail },
            StorageError::UpgradeRequired { path, found, supported } => {
                Error::UpgradeRequired { path, found, supported }
            }
            StorageError::NotADatabase { path, detail } => Error::NotADatabase { path, detail },
            StorageError::AlreadyOpen { path } => Error::AlreadyOpen { path },
            StorageError::Poisoned { cause } => Error::Poisoned { path: path(), cause },
            StorageError::LogFull { disk_is_full: true, .. } => Error::DiskFull {
                action: "lengthen the log of".to_owned(),
                path: path(),
                reason:
                    "there is no space for its next segments, or for the moment no more files can be opened"
                        .to_owned(),
            },
            StorageError::LogFull { used_bytes, capacity_bytes, .. } => {
                Error::LogFull { used_bytes, capacity_bytes, holder: None, is_own: false }
            }
            StorageError::PoolExhausted { frames, stalled } => Error::PoolExhausted { frames, stalled },
            StorageError::OutOfMemory { bytes } => Error::InvalidOption {
                name: "pool_bytes".to_owned(),
                value: bytes.to_string(),
                expected: "as many bytes as there is memory for".to_owned(),
            },
            StorageError::LimitExceeded { what, limit, got } => Error::LimitExceeded { what, limit, got },
            StorageError::ReadOnly => Error::ReadOnly { path: path() },
            StorageError::Closed => Error::Closed { path: path() },
            StorageError::Forked => Error::Forked { path: path() },
            other => Error::Other(other.to_string()),
        }
    }

    /// `database`: for the names of tables.
    #[cold]
    fn from_lock(error: LockError, path: &Path, database: Option<&Inner>) -> Error {
        match error {
            LockError::Deadlock(report) => {
                let names = Names::of_tables(database, report.cycle.iter().map(|edge| edge.table));
                Error::Deadlock(Arc::new(names.deadlock(&report)))
            }
            LockError::PlanMiss => Error::PlanMiss,
            LockError::StaleReads => Error::StaleReads,
            LockError::Timeout(refusal) => Error::LockTimeout(Box::new(RefusedLock::new(*refusal, database))),
            LockError::WouldBlock(refusal) => {
                Error::WouldBlock(Box::new(RefusedLock::new(*refusal, database)))
            }
            LockError::Cancelled => Error::Cancelled,
            LockError::Ended(error) => Error::from_storage(*error, path),
            LockError::TooManyLocks { limit } => Error::TooManyLocks { limit },
            LockError::Partitioner(said) => Error::PartitionerPanicked { said: said.into() },
            LockError::TooManyTransactions { limit } => {
                let prepared = database.map_or(0, |database| database.engine.prepared_count());
                Error::TooManyTransactions { limit, prepared }
            }
        }
    }

    /// Of an operation that may wait for locks, or for room in the log: tells who is in the way.
    #[cold]
    pub(crate) fn from_operation(error: TxnError, database: &Inner) -> Error {
        let mut error = match error {
            TxnError::Lock(error) => return Error::from_lock(error, &database.path, Some(database)),
            error => Error::from_txn(error, &database.path),
        };
        if let Error::LogFull { holder, .. } = &mut error {
            // Of this moment, which is later than the failure: whoever has ended meanwhile is in nobody's way.
            // Pages are nobody's: the next checkpoint lets them go.
            let mut holders = database.engine.log_retention().holders.into_iter();
            let found = holders.find(|hold| !matches!(hold.holder, LogHolder::Pages));
            *holder = found.map(|hold| Box::new(hold.holder));
        }
        error
    }

    #[cold]
    pub(crate) fn from_txn(error: TxnError, database: &Path) -> Error {
        match error {
            TxnError::Storage(error) => Error::from_storage(error, database),
            TxnError::Lock(error) => Error::from_lock(error, database, None),
            TxnError::TableGone { name } => Error::NoSuchTable { table: name },
            TxnError::TableExists { name } => Error::TableExists { table: name },
            TxnError::Failed => Error::TransactionFailed,
            TxnError::LogHeld => Error::LogHeld,
            TxnError::PipelineBusy => Error::PipelineBusy,
            TxnError::BackupStopped { path, reason } => Error::BackupStopped { path, reason },
            TxnError::Busy { reason } => Error::Busy { path: database.to_owned(), reason },
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
