//! What can end an operation on a tree early.

use foreshore_base::StorageError;
use foreshore_lock::LockError;

/// Why an operation on a tree did not happen.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The environment failed.
    #[error(transparent)]
    Storage(StorageError),
    /// A lock was not granted, or the wait for a latch ended by the transaction's wish.
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl From<StorageError> for TreeError {
    /// A transaction that may not wait longer is told so in the same words whether it waited for a lock or for a latch.
    fn from(error: StorageError) -> TreeError {
        match error {
            StorageError::WaitEnded { cancelled: true, .. } => TreeError::Lock(LockError::Cancelled),
            StorageError::WaitEnded { cancelled: false, .. } => {
                TreeError::Lock(LockError::Timeout(Box::default()))
            }
            error => TreeError::Storage(error),
        }
    }
}

/// A result of an operation that may need locks.
pub(crate) type Result<T, E = TreeError> = std::result::Result<T, E>;
