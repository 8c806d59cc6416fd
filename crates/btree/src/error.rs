//! What can end an operation on a tree early.

use foreshore_base::StorageError;
use foreshore_lock::LockError;

/// Why an operation on a tree did not happen.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The environment failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A lock was not granted.
    #[error(transparent)]
    Lock(#[from] LockError),
}

/// A result of an operation that may need locks.
pub(crate) type Result<T, E = TreeError> = std::result::Result<T, E>;
