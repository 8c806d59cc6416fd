//! How an engine and its transactions are set up.

use foreshore_btree::LatchMode;
use foreshore_env::sync::Arc;
use foreshore_lock::LockOptions;
use foreshore_pages::PoolOptions;
use foreshore_wal::LogOptions;

/// The least growth of the log between two checkpoints of the background thread.
const MIN_CHECKPOINT_BYTES: u64 = 64 << 10;

/// How an engine is set up. Everything may differ from one opening of a database to the next.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Make the database if there is none.
    pub create: bool,
    /// The log.
    pub log: LogOptions,
    /// The buffer pool.
    pub pool: PoolOptions,
    /// The lock manager. Its seed is replaced by the database's own.
    pub locks: LockOptions,
    /// How nodes of trees are latched by those who read.
    pub latch_mode: LatchMode,
    /// The log's growth after which the background thread takes a checkpoint; at most an eighth of the log's capacity.
    pub checkpoint_bytes: u64,
    /// Most records in a node of a tree: `usize::MAX`, or a handful in tests, so that nodes split and merge all the time.
    #[doc(hidden)]
    pub node_capacity: usize,
    /// Whether transactions lock at all: for tests that prove that they would notice.
    #[doc(hidden)]
    pub locking: bool,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            create: true,
            log: LogOptions::default(),
            pool: PoolOptions::default(),
            locks: LockOptions::default(),
            latch_mode: LatchMode::default(),
            checkpoint_bytes: 256 << 20,
            node_capacity: usize::MAX,
            locking: true,
        }
    }
}

impl EngineOptions {
    /// [`EngineOptions::checkpoint_bytes`] within its limits: appends are refused at half of the capacity, and the log
    /// cannot be shortened before a checkpoint is complete.
    pub(crate) fn checkpoint_interval(&self) -> u64 {
        self.checkpoint_bytes.min(self.log.capacity_bytes / 8).max(MIN_CHECKPOINT_BYTES)
    }
}

/// How a transaction begins.
#[derive(Clone, Debug, Default)]
pub struct BeginOptions {
    /// Its age for the choice of deadlock victims, smaller is older: [`crate::Txn::age`] of the attempt that it
    /// repeats. By default it is the youngest.
    pub age: Option<u64>,
    /// A name that deadlock reports show.
    pub label: Option<Arc<str>>,
}

/// When a commit returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the transaction will survive any crash, and so will everything that it has read.
    #[default]
    Sync,
    /// At once. The log is flushed a little later ([`LogOptions::flush_interval`]); a crash before that loses the newest
    /// transactions, never an older one without the newer.
    Lazy,
}
