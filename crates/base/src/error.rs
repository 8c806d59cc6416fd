//! Failures of the environment, as every layer below the facade reports them.

use std::{fmt, io, path::PathBuf};

use crate::{Lsn, PageId};

/// A result whose failure is one of the environment.
pub type Result<T, E = StorageError> = std::result::Result<T, E>;

/// Where damage was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CorruptionSite {
    /// A page of the data file.
    Page(PageId),
    /// A place in the log.
    Log(Lsn),
    /// The control file or another whole file.
    File(PathBuf),
}

impl fmt::Display for CorruptionSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CorruptionSite::Page(page) => write!(f, "page {page}"),
            CorruptionSite::Log(lsn) => write!(f, "the log at LSN {lsn}"),
            CorruptionSite::File(path) => write!(f, "file {}", path.display()),
        }
    }
}

/// Whether an error of the operating system says that there is no space, or none for this user.
pub fn is_disk_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// A failure of the environment: files, space, or the state of the database as a whole. What concurrency
/// brings about (deadlock, time-out) is not here: see the lock crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// An operation of the operating system failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted, as a verb phrase: "read page 7 of".
        action: String,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Stored bytes are not what was written.
    #[error("{site} is damaged: {detail}")]
    Corrupted {
        /// Where.
        site: CorruptionSite,
        /// What is wrong there.
        detail: String,
    },
    /// The files are in a format that this version cannot use.
    #[error("{} has format {found}, this version reads format {supported}; open it with a matching version", path.display())]
    UpgradeRequired {
        /// The file.
        path: PathBuf,
        /// Its format version.
        found: u32,
        /// The format version of this build.
        supported: u32,
    },
    /// The path holds something, but no Foreshore database.
    #[error("{} is not a Foreshore database: {detail}", path.display())]
    NotADatabase {
        /// The path that was opened.
        path: PathBuf,
        /// What was found instead.
        detail: String,
    },
    /// Somebody else has the database open.
    #[error("{} is open already, in this process or another; close it there first", path.display())]
    AlreadyOpen {
        /// The database.
        path: PathBuf,
    },
    /// An earlier failure left log and memory apart; nothing more is accepted until the database is opened anew.
    #[error("the database stopped after an earlier failure ({cause}); close it and open it again to recover")]
    Poisoned {
        /// The first failure.
        cause: String,
    },
    /// The log has reached its cap and cannot be shortened, because an open transaction or a dirty page needs it.
    #[error(
        "the log is full{}: {used_bytes} of {capacity_bytes} bytes are held; end the oldest transaction or {}",
        if *.disk_is_full { ", because the disk is, or no more files can be opened" } else { "" },
        if *.disk_is_full { "make room on the disk, or raise the limit on open files" } else { "raise log_bytes" }
    )]
    LogFull {
        /// Bytes that the log must keep.
        used_bytes: u64,
        /// The cap, or what work may fill with the space that there is.
        capacity_bytes: u64,
        /// The cap is not reached, but there is no space on the disk, or for the moment no file can be opened to take
        /// it.
        disk_is_full: bool,
    },
    /// Every frame of the buffer pool is in use.
    #[error(
        "all {frames} frames of the buffer pool {}",
        if *.stalled { "have unwritten changes, and the disk is not keeping up; find out what holds it up" } else { "are in use; raise pool_bytes" }
    )]
    PoolExhausted {
        /// Frames in the pool.
        frames: usize,
        /// They could not be written in time, because the log was not synced.
        stalled: bool,
    },
    /// There is no memory for a buffer pool of this size.
    #[error("there is no memory for a buffer pool of {bytes} bytes; lower pool_bytes")]
    OutOfMemory {
        /// Bytes of all pages.
        bytes: u64,
    },
    /// A wait for the latch of a page, or for a frame to read it into, ended early, because its transaction would not
    /// wait longer. On its way to the layer that knows whose wait it was, and what that is told.
    #[error("a wait for page {page} {}", if *.cancelled { "was cancelled" } else { "reached its deadline" })]
    WaitEnded {
        /// The page.
        page: PageId,
        /// Whether somebody cancelled it; otherwise its deadline passed.
        cancelled: bool,
    },
    /// A named limit was reached.
    #[error("{what}: at most {limit}, got {got}")]
    LimitExceeded {
        /// The limited quantity: "key length in bytes".
        what: &'static str,
        /// The limit.
        limit: u64,
        /// The value that was refused.
        got: u64,
    },
    /// A change to a database that was opened to be read.
    #[error("the database was opened read-only; open it without read_only to change it")]
    ReadOnly,
    /// The database was closed.
    #[error("the database is closed")]
    Closed,
    /// This process is a fork of the one that opened the database, and has not the threads that it needs.
    #[error("this process did not open the database, but is a fork of one that did; use it there")]
    Forked,
}

impl StorageError {
    /// An [`StorageError::Io`] from its parts; for `map_err`.
    pub fn io(action: impl Into<String>, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> StorageError {
        let (action, path) = (action.into(), path.into());
        move |source| StorageError::Io { action, path, source }
    }

    /// More was asked for than a named limit allows.
    #[cold]
    pub fn beyond_limit(what: &'static str, limit: u64, got: u64) -> StorageError {
        StorageError::LimitExceeded { what, limit, got }
    }

    /// Damage in a page.
    pub fn corrupt_page(page: PageId, detail: impl Into<String>) -> StorageError {
        StorageError::Corrupted { site: CorruptionSite::Page(page), detail: detail.into() }
    }

    /// Damage in the log.
    pub fn corrupt_log(lsn: Lsn, detail: impl Into<String>) -> StorageError {
        StorageError::Corrupted { site: CorruptionSite::Log(lsn), detail: detail.into() }
    }

    /// Damage in a whole file.
    pub fn corrupt_file(path: impl Into<PathBuf>, detail: impl Into<String>) -> StorageError {
        StorageError::Corrupted { site: CorruptionSite::File(path.into()), detail: detail.into() }
    }
}
