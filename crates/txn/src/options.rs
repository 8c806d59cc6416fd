//! How an engine and its transactions are set up.

use std::panic::Location;

use foreshore_btree::LatchMode;
use foreshore_env::{sync::Arc, time::Duration};
use foreshore_lock::LockOptions;
use foreshore_pages::PoolOptions;
use foreshore_wal::LogOptions;

use crate::{engine::READ_ONLY_BYTES, recovery::RecoveryObserver};

/// How an engine is set up. Everything may differ from one opening of a database to the next.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Make the database if there is none.
    pub create: bool,
    /// Open it to be read: not a byte of it changes, others may have it open in the same way, and transactions that
    /// write fail. What recovery has to repeat after a crash, it repeats in memory: at most
    /// [`READ_ONLY_BYTES`], else opening fails. Nothing is made, whatever `create` says. What
    /// it reads may be in the system's cache only (TXN-40).
    pub read_only: bool,
    /// The log.
    pub log: LogOptions,
    /// The buffer pool.
    pub pool: PoolOptions,
    /// The lock manager. Its seed is replaced by the database's own.
    pub locks: LockOptions,
    /// How nodes of trees are latched by those who read.
    pub latch_mode: LatchMode,
    /// The log's growth after which the background thread takes a checkpoint, without the images of pages, which come
    /// anew after each checkpoint; with them it is at most an eighth of the log's capacity. Looked at when a
    /// transaction ends.
    pub checkpoint_bytes: u64,
    /// What a recovery after a crash may take: checkpoints come often enough for that, as far as the disk lets them.
    /// Zero: no matter.
    pub recovery_target: Duration,
    /// Who is told how far the recovery is, while the database is opened.
    pub recovery_observer: Option<RecoveryObserver>,
    /// What becomes of the locks of a transaction that has its commit record and waits for the flush.
    pub early_lock_release: EarlyLockRelease,
    /// How many transactions a [`crate::Pipeline`] completes at most before it waits for their flush; at least 1, at
    /// most [`MAX_PIPELINE_LENGTH`].
    pub pipeline_length: u32,
    /// Whether an early release leaves tags, by which readers know what they wait for: off in tests that prove that
    /// they would notice.
    #[doc(hidden)]
    pub release_tags: bool,
    /// Locks on the keys of one table that a transaction may have before one on the table is tried in their place; 0:
    /// never. It is tried without waiting, and again when there are twice as many.
    pub escalation_locks: usize,
    /// Bytes of locks that a transaction may have before the same is tried for the table with the most, of those
    /// without such a lock; 0: never.
    pub escalation_bytes: usize,
    /// What is done when the log is full and no checkpoint can shorten it.
    pub log_full: LogFullPolicy,
    /// Most records in a node of a tree: `usize::MAX`, or a handful in tests, so that nodes split and merge all the
    /// time.
    #[doc(hidden)]
    pub node_capacity: usize,
    /// Whether what was read without locks is validated: for tests that prove that they would notice.
    #[doc(hidden)]
    pub read_validation: bool,
    /// Memory for what differs from the files of a database that is open to be read:
    /// [`READ_ONLY_BYTES`], or less in tests.
    #[doc(hidden)]
    pub read_only_bytes: u64,
    /// Whether transactions lock at all: for tests that prove that they would notice.
    #[doc(hidden)]
    pub locking: bool,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            create: true,
            read_only: false,
            log: LogOptions::default(),
            pool: PoolOptions::default(),
            locks: LockOptions::default(),
            latch_mode: LatchMode::default(),
            checkpoint_bytes: 256 << 20,
            recovery_target: Duration::from_secs(30),
            recovery_observer: None,
            log_full: LogFullPolicy::default(),
            early_lock_release: EarlyLockRelease::default(),
            pipeline_length: MAX_PIPELINE_LENGTH,
            release_tags: true,
            escalation_locks: 100_000,
            escalation_bytes: 16 << 20,
            node_capacity: usize::MAX,
            read_validation: true,
            read_only_bytes: READ_ONLY_BYTES,
            locking: true,
        }
    }
}

/// What is done when the log is full and no checkpoint can shorten it, because an open transaction needs it.
///
/// Under either policy a transaction during which a sixteenth of the room that changes have was filled, or another one,
/// and which has written an eighth of that itself, waits until the one that needs most of the log has ended: for at
/// most ten seconds, and for at most one if that one does not get on. So large transactions do not fill the log
/// together, where all of them would fail. One that was refused, or ended, beside others may well succeed alone:
/// [`Txn::was_crowded`](crate::Txn::was_crowded).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFullPolicy {
    /// A transaction that wants to write waits up to a second for others to end, and fails with `LogFull` then; at once
    /// if it is itself the one that needs most of the log.
    #[default]
    Throttle,
    /// As `Throttle`, and a moment later the transaction that needs most of the log is ended: it is rolled back in the
    /// background unless it is in the middle of a change, and its next operation fails with `LogHeld`. Its locks stay
    /// until its owner gives it up. Prepared transactions are not ended. Costs every change an atomic instruction more.
    EndOldest,
}

impl LogFullPolicy {
    /// All of them.
    pub const ALL: [LogFullPolicy; 2] = [LogFullPolicy::Throttle, LogFullPolicy::EndOldest];
}

/// How a transaction reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadMode {
    /// Under locks (Kimura et al. 2012).
    #[default]
    Locking,
    /// Without locks until it writes, where what it reads is committed: it remembers the leaves that it has read, and
    /// validates at its commit that nobody has changed them. If somebody has, it fails with `StaleReads`, and has to
    /// run again.
    Hybrid,
}

impl ReadMode {
    /// All of them.
    pub const ALL: [ReadMode; 2] = [ReadMode::Locking, ReadMode::Hybrid];
}

/// How a transaction begins.
#[derive(Clone, Debug, Default)]
pub struct BeginOptions {
    /// Its age for the choice of deadlock victims, smaller is older: [`crate::Txn::age`] of the attempt that it
    /// repeats. By default it is the youngest.
    pub age: Option<u64>,
    /// Whether others give way rather than this one, where one of several has to: the lowest priority does, and among
    /// equals the age decides. Default: 0.
    pub priority: i8,
    /// A name that deadlock reports show.
    pub label: Option<Arc<str>>,
    /// The call that reports name, in the place of the one that begins it: of a transaction that one thread wants and
    /// another begins.
    pub wanted_at: Option<&'static Location<'static>>,
    /// Whether most of those that begin so lock nothing and write nothing (they may): the id, and so the age, then come
    /// from a block of the slot's, and to begin changes no memory that others change. Such an id may be lower than
    /// those of some that began before.
    pub seldom_locks: bool,
}

/// The longest pipeline (Kimura et al. 2012, §6).
pub const MAX_PIPELINE_LENGTH: u32 = 100_000;

/// Which locks of a transaction go when its commit record has its place in the log, before it is durable (Kimura et al.
/// 2012, §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EarlyLockRelease {
    /// None.
    Off,
    /// The locks under which nothing can have been changed (S-ELR). Always serializable, but writers are still in the
    /// way.
    Shared,
    /// All (safe SX-ELR): a transaction that reads what is not durable yet waits for that at its own commit.
    #[default]
    SharedAndExclusive,
}

/// When a commit returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the transaction will survive any crash, and so will everything that it has read.
    #[default]
    Sync,
    /// At once, and the flush is asked for: it comes as soon as the disk is through with what it is writing. A crash
    /// before that loses the newest transactions, never an older one without the newer. `Transaction::commit_pipelined`
    /// gives a ticket that tells when it is through.
    Pipelined,
    /// At once. The log is flushed a little later (the option `flush_interval`); a crash before that loses the newest
    /// transactions, never an older one without the newer.
    Lazy,
}
