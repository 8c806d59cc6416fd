//! What all transactions of a database share, and the background threads with them.

use foreshore_base::{Lsn, Result, StorageError, TableId};
use foreshore_btree::{BTree, TreeEnv};
use foreshore_env::StripedArc;
use foreshore_env::sync::{Arc, Mutex, atomic::AtomicUsize};
use foreshore_lock::LockManager;
use foreshore_pages::BufferPool;
use foreshore_wal::Log;

use crate::{
    backup::Pins,
    catalog::{Catalog, Makers},
    checkpoint::Growth,
    committer::Committer,
    control::ControlFile,
    file_end::FileEnd,
    life::Life,
    options::EngineOptions,
    prepared::PreparedTable,
    recovery::RecoveryReport,
    settled::Settled,
    stats::Counters,
    table::TxnTable,
    transaction::{StaleReadCounters, Unpurged},
};

/// How often in the length of a segment the log is told what it need not keep space for.
const FLOOR_STEPS: u64 = 16;

/// What all transactions of a database share.
#[derive(Debug)]
pub(crate) struct Core {
    /// No other engine of this process has it.
    pub(crate) number: u64,
    /// How it was opened, with a pipeline length within bounds, and without the observer of its recovery.
    pub(crate) options: EngineOptions,
    pub(crate) log: Arc<Log>,
    pub(crate) pool: Arc<BufferPool>,
    pub(crate) trees: Arc<TreeEnv>,
    pub(crate) locks: StripedArc<LockManager>,
    pub(crate) transactions: TxnTable,
    pub(crate) catalog: Catalog,
    /// Who waits for a place to make a table in.
    pub(crate) makers: Makers,
    /// Also held for the length of a checkpoint: there is one at a time.
    pub(crate) control: Mutex<ControlFile>,
    /// Whose turn it is to cut the data file, or to copy it.
    pub(crate) file_end: FileEnd,
    pub(crate) growth: Growth,
    pub(crate) committer: Committer,
    pub(crate) prepared: PreparedTable,
    pub(crate) backups: Pins,
    pub(crate) stats: Counters,
    pub(crate) recovery: RecoveryReport,
    /// How far readers may trust pages without asking for locks.
    pub(crate) settled: Settled,
    /// Where reads without locks fail.
    pub(crate) stale_reads: StaleReadCounters,
    /// Long values that wait for the reaper.
    pub(crate) unpurged: Unpurged,
    /// Transactions that had written and were open when the database was closed. Written once, by close; relaxed: it is
    /// read for reports.
    pub(crate) cut_off: AtomicUsize,
    pub(crate) life: Arc<Life>,
}

impl Core {
    /// Whether anything may still be done.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        self.life.check()
    }

    /// Whether anything may be changed.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.options.read_only { Err(StorageError::ReadOnly) } else { Ok(()) }
    }

    /// The table of long values.
    pub(crate) fn long_values(&self) -> BTree {
        BTree::open(&self.trees, TableId::OVERFLOW, self.catalog.overflow_root())
    }

    /// Leaves long values to the reaper (TXN-43).
    pub(crate) fn leave_unpurged(&self, ids: Vec<u64>) {
        if !ids.is_empty() {
            self.unpurged.add(ids);
            self.growth.ask_reaper();
        }
    }

    /// Whether all transactions with records before or at `lsn` have ended, durably, as far as anybody has looked a
    /// moment ago.
    pub(crate) fn is_settled(&self, lsn: Lsn) -> bool {
        if lsn >= self.settled.lsn() {
            self.settled.look(&self.life, &self.log, &self.transactions);
        }
        lsn < self.settled.lsn()
    }

    /// Tells the checkpointer when the log has grown enough.
    #[inline]
    pub(crate) fn note_log_growth(&self, lsn: Lsn) {
        if self.growth.note(lsn, || self.pool.image_bytes()) {
            self.raise_undo_floor();
        }
    }

    /// Tells the log from where on the oldest open transaction may have to be taken back (WAL-13).
    #[cold]
    pub(crate) fn raise_undo_floor(&self) {
        let tail = self.log.tail();
        self.growth.raise_floor_again(tail.0 + self.log.segment_bytes() / FLOOR_STEPS);
        // A transaction that begins while this looks appends behind the tail.
        self.log.keep_before(self.transactions.oldest().min(tail));
    }
}
