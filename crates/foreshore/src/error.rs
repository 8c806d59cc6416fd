//! The one error type of the facade.

mod advice;
mod code;
mod convert;
mod lock;

use std::{error, io, path::PathBuf};

use foreshore_base::CorruptionSite;
use foreshore_env::sync::Arc;
use foreshore_txn::LogHolder;

pub use lock::RefusedLock;

use crate::view::DeadlockView;

/// A result whose failure is an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong. Each message says what to do next.
///
/// An operation that fails has changed nothing, but where its error or its documentation says so
/// ([`Error::OutcomeUnknown`]). What concurrency brings about ([`Error::Deadlock`], [`Error::LockTimeout`],
/// [`Error::WouldBlock`], [`Error::Cancelled`]) and what a limit forbids leaves the database as healthy as before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The transaction was the victim of a deadlock, or of a policy against them.
    /// [`Database::transact`](crate::Database::transact) runs such a transaction again by itself.
    #[error("{0}; roll back and run the transaction again")]
    Deadlock(Arc<DeadlockView>),
    /// The transaction follows a [`Plan`](crate::Plan), and touched something that is not in it and that others have
    /// locked. [`Plan::run`](crate::Plan::run) runs it again by itself, with a larger plan.
    #[error("{}", advice::PLAN_MISSED)]
    PlanMiss,
    /// The transaction read without locks ([`ReadMode::Hybrid`](crate::ReadMode::Hybrid)), and others have changed what
    /// it has read. [`Database::transact`](crate::Database::transact) runs such a transaction again, with locks.
    #[error("others have changed what the transaction has read without locks; roll back and run it again")]
    StaleReads,
    /// The transaction's deadline passed while it waited for a lock, or it waited as long as `lock_timeout` lets it.
    #[error("{}", .0.timed_out())]
    LockTimeout(Box<RefusedLock>),
    /// The transaction would have had to wait for a lock and was told not to, or for ever
    /// ([`Options::read_only`](crate::Options::read_only)).
    #[error("{}", .0.refused())]
    WouldBlock(Box<RefusedLock>),
    /// The transaction was cancelled by its [`CancelHandle`](crate::CancelHandle).
    #[error("the transaction was cancelled; it is rolled back when it is dropped")]
    Cancelled,
    /// [`Database::transact`](crate::Database::transact) has run the transaction as often, or as long, as it may.
    #[error(
        "gave up after {attempts} attempts; allow more retries or a later deadline; the last attempt failed: {last}"
    )]
    RetriesExhausted {
        /// How often it ran.
        attempts: u32,
        /// How the last attempt ended.
        #[source]
        last: Box<Error>,
    },
    /// An earlier operation of this transaction failed, so it can only be rolled back.
    #[error("an earlier operation of this transaction failed, so none of it is committed; begin another")]
    TransactionFailed,
    /// A [`Pipeline`](crate::Pipeline) was to begin a transaction while its last one is open.
    #[error("the pipeline's last transaction is still open; commit it or roll it back first")]
    PipelineBusy,
    /// The global id of a transaction to be prepared is empty or too long.
    #[error("a global id has 1 to {limit} bytes, this one has {bytes}")]
    InvalidGlobalId {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A transaction is prepared under this global id already.
    #[error(
        "a transaction is prepared under {:?} already; decide about it first, or use another id",
        crate::PreparedTransaction::show_id(id)
    )]
    GlobalIdInUse {
        /// The id.
        id: Vec<u8>,
    },
    /// No transaction is prepared under this global id.
    #[error(
        "no transaction is prepared under {:?}; see Database::prepared for those that are",
        crate::PreparedTransaction::show_id(id)
    )]
    UnknownGlobalId {
        /// The id.
        id: Vec<u8>,
    },
    /// Somebody else prepares this transaction, or decides about it, at this moment.
    #[error(
        "somebody is deciding about the transaction {:?}; look again in a moment",
        crate::PreparedTransaction::show_id(id)
    )]
    GlobalIdBusy {
        /// The id.
        id: Vec<u8>,
    },
    /// A savepoint or cursor is of another transaction, or the savepoint was undone by a rollback or released.
    #[error("the {what} is of another transaction{}; make a new one", advice::or_ended(what))]
    NotOfThisTransaction {
        /// "savepoint" or "cursor".
        what: &'static str,
    },
    /// The commit could not be confirmed: after reopening, the transaction is there as a whole or not at all.
    #[error("{}", advice::of_an_unknown_outcome(cause))]
    OutcomeUnknown {
        /// Why the confirmation failed.
        #[source]
        cause: Box<Error>,
    },
    /// The transaction holds as many locks as it may.
    #[error("locks are limited to {limit}; {}", advice::FEWER_LOCKS)]
    TooManyLocks {
        /// The limit.
        limit: usize,
    },
    /// As many transactions are open as there may be.
    #[error("open transactions are limited to {limit}; end some, and keep fewer open at a time{}", lock::decide_some(*prepared))]
    TooManyTransactions {
        /// The limit.
        limit: usize,
        /// Those of them that are prepared, each of which stays until somebody decides about it.
        prepared: usize,
    },
    /// As many submitted transactions wait to be begun as may
    /// ([`Options::submit_queue`](crate::Options::submit_queue)): this one was not taken, and its body is gone.
    #[error("submitted transactions waiting to begin are limited to {limit}; {}", advice::SUBMIT_LATER)]
    SubmitQueueFull {
        /// The limit.
        limit: usize,
    },
    /// A thread of partitioned execution was to wait without a limit for what these threads run, perhaps for itself:
    /// [`Submitted::wait`](crate::Submitted::wait), [`Serving::wait`](crate::Serving::wait).
    #[error("{}", advice::NOT_IN_A_BODY)]
    WaitInBody,
    /// The caller's partitioner ([`Builder::partitioner`](crate::Builder::partitioner)) has panicked where it was asked
    /// about a key of this transaction. What failed has changed nothing; other transactions go on, and so may this one.
    #[error(
        "the partitioner has panicked on a key of the transaction ({said}); make it return a number for every key"
    )]
    PartitionerPanicked {
        /// What it said.
        said: String,
    },
    /// The encoded key is longer than the limit.
    #[error(
        "a key of {bytes} bytes is longer than the limit of {limit}; shorten it, or use its hash as the key"
    )]
    KeyTooLong {
        /// Its length, encoded.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The encoded value is longer than the limit.
    #[error(
        "a value of {bytes} bytes is longer than the limit of {limit}; store it in parts under several keys"
    )]
    ValueTooLong {
        /// Its length, encoded.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The table exists with other types than it was asked for with.
    #[error("table {table:?} holds {stored}, but is opened as {asked}; use the types it was created with")]
    TypeMismatch {
        /// The table.
        table: String,
        /// The types that the catalogue has.
        stored: String,
        /// The types of the [`TableDefinition`](crate::TableDefinition).
        asked: String,
    },
    /// There is no table of that name, and none is made here; or it was dropped, or renamed, a moment ago.
    #[error("there is no table {table:?}, or it was dropped or renamed just now; see Database::tables")]
    NoSuchTable {
        /// The name.
        table: String,
    },
    /// A table cannot get the name of another one.
    #[error("there is a table {table:?} already: choose another name, or drop that table first")]
    TableExists {
        /// The name.
        table: String,
    },
    /// Entries that were to be appended are not in order.
    #[error(
        "entry {entry} does not come after the last key of table {table:?}; append in ascending order, or use put"
    )]
    NotBehind {
        /// The table.
        table: String,
        /// Where in what was given, from 0.
        entry: u64,
    },
    /// A stored key or value does not decode as the table's type.
    #[error(
        "table {table:?} holds bytes that do not decode as {expected}; read it as bytes, and check who wrote them"
    )]
    Undecodable {
        /// The table.
        table: String,
        /// The type that the bytes should have been.
        expected: String,
    },
    /// [`Options`](crate::Options) have no option of that name.
    #[error("there is no option {name:?}; the options are: {known}")]
    UnknownOption {
        /// The name.
        name: String,
        /// All names.
        known: String,
    },
    /// The option does not take this value.
    #[error("option {name} does not take {value:?}; give {expected}")]
    InvalidOption {
        /// The option.
        name: String,
        /// What was given.
        value: String,
        /// What it takes.
        expected: String,
    },
    /// There is no space on the disk, or none for this user (a quota, or a limit on the size of files), or the log
    /// needs another file and for the moment none can be opened. The operation is undone. What has begun can end, and
    /// the database can be read, closed and opened; changes are accepted again as soon as there is space.
    ///
    /// Where a file would grow beyond such a limit (`ulimit -f`), the system ends the process by the signal `SIGXFSZ`,
    /// but for one that ignores or catches it: a program that wants this error there has to, as `foreshore` does.
    #[error("the disk is full: cannot {action} {}: {reason}; make room there and continue", path.display())]
    DiskFull {
        /// What was attempted, as a verb phrase.
        action: String,
        /// The file, or the directory.
        path: PathBuf,
        /// What the system says, which tells a full disk from a quota and from a limit on the size of files.
        reason: String,
    },
    /// An operation of the operating system failed.
    #[error("cannot {action} {}: {source}; {}", advice::shown(path), advice::next_step(action, source))]
    Io {
        /// What was attempted, as a verb phrase.
        action: String,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Stored bytes are not what was written.
    #[error("database {}: {site} is damaged: {detail}; run `foreshore verify` and restore a backup", path.display())]
    Corrupted {
        /// The database.
        path: PathBuf,
        /// Where.
        site: CorruptionSite,
        /// What is wrong there.
        detail: String,
    },
    /// The database is in a format that this version cannot use.
    #[error("{}", advice::of_format(path, *found, *supported))]
    UpgradeRequired {
        /// The file that says so.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The format of this version.
        supported: u32,
    },
    /// The path holds something, but no database.
    #[error("{}", advice::of_a_stranger(path, detail))]
    NotADatabase {
        /// The path.
        path: PathBuf,
        /// What was found instead.
        detail: String,
    },
    /// Somebody has the database open.
    #[error(
        "{} is open already, in this process or another; close it there, or share one Database (it is Clone)",
        path.display()
    )]
    AlreadyOpen {
        /// The database.
        path: PathBuf,
    },
    /// An earlier failure stopped the database; nothing more is accepted until it is opened again.
    #[error(
        "database {} stopped after an earlier failure ({cause}); close it and open it again to recover",
        path.display()
    )]
    Poisoned {
        /// The database.
        path: PathBuf,
        /// The first failure.
        cause: String,
    },
    /// One of the threads of partitioned execution has died, and so have the others: see
    /// [`Submitted::wait`](crate::Submitted::wait).
    #[error("{}", advice::of_a_dead_thread(path))]
    ThreadDied {
        /// The database.
        path: PathBuf,
    },
    /// The log has reached its cap, and an open transaction or a dirty page needs all of it.
    #[error(
        "the log is full: {used_bytes} of {capacity_bytes} bytes are needed{}",
        advice::by_whom(holder.as_deref(), *is_own)
    )]
    LogFull {
        /// Bytes that must be kept.
        used_bytes: u64,
        /// The cap.
        capacity_bytes: u64,
        /// Who needs most of them, if it is known: [`Database::log_retention`](crate::Database::log_retention) has all.
        holder: Option<Box<LogHolder>>,
        /// Whether that is the transaction that was refused.
        is_own: bool,
    },
    /// The log is full, and this transaction needed most of it: it was ended (see
    /// [`Options::log_full`](crate::Options::log_full)), its changes are undone or about to be, and all that is left is
    /// to give it up.
    #[error(
        "the transaction was ended because it held most of a full log; keep transactions short, or {}",
        advice::RAISE_LOG
    )]
    LogHeld,
    /// All of the buffer pool is in use at the same time, or changed and cannot be written.
    #[error("all {frames} frames of the buffer pool {}", advice::of_frames(*stalled))]
    PoolExhausted {
        /// Frames in the pool.
        frames: usize,
        /// They could not be written in time, because the log was not synced.
        stalled: bool,
    },
    /// Another named limit was reached.
    #[error("{what}: at most {limit}, got {got}; see foreshore::limits and the page Limits")]
    LimitExceeded {
        /// The limited quantity.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// What was asked for.
        got: u64,
    },
    /// A change to a database that was opened with [`Options::read_only`](crate::Options::read_only).
    #[error("database {} was opened read-only; open it without read_only to change it", path.display())]
    ReadOnly {
        /// The database.
        path: PathBuf,
    },
    /// A [backup](crate::Database::backup) was not finished. What it has copied is not opened as a database.
    #[error("the backup in {} was not finished: {reason}; remove that directory and start again", path.display())]
    BackupStopped {
        /// Where it was made.
        path: PathBuf,
        /// Why it ended.
        reason: &'static str,
    },
    /// A [salvage](crate::Salvage::open_with) was stopped while it looked at the pages.
    #[error("the salvage was stopped before it was finished; nothing has changed: start it again")]
    SalvageStopped,
    /// What excludes this call is under way: see [`Database::compact`](crate::Database::compact).
    #[error("database {}: {reason}; try again when that is over", path.display())]
    Busy {
        /// The database.
        path: PathBuf,
        /// Who is in the way.
        reason: &'static str,
    },
    /// The database was closed.
    #[error("database {} is closed; open it again", path.display())]
    Closed {
        /// The database.
        path: PathBuf,
    },
    /// This process is a fork of the one that opened the database, and has none of its threads: nothing can be done
    /// with it here.
    #[error("database {} belongs to the process that opened it, and this is a fork of that; use it there", path.display())]
    Forked {
        /// The database.
        path: PathBuf,
    },
    /// The application's own error, from within [`Database::transact`](crate::Database::transact): it rolls the
    /// transaction back and comes out as it went in. Made by [`Error::application`].
    #[error(transparent)]
    Application(Box<dyn error::Error + Send + Sync>),
    /// A failure that this version of the facade has no name for.
    #[error("{0}")]
    Other(String),
}
