//! What happened so far, in numbers.

use foreshore_base::TableId;
use foreshore_env::{
    CachePadded,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use foreshore_lock::LockStats;
use foreshore_pages::PoolStats;

use crate::{core::Core, recovery::RecoveryReport};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Commit,
    ReadOnlyCommit,
    Rollback,
    Checkpoint,
    PlanMiss,
    PlanFallback,
    Ended,
}

const EVENTS: usize = 7;

/// Counters, one line each. They order nothing, so they are relaxed.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    counts: [CachePadded<AtomicU64>; EVENTS],
}

impl Counters {
    #[inline]
    pub(crate) fn count(&self, event: Event) {
        self.counts[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn of(&self, event: Event) -> u64 {
        self.counts[event as usize].load(Ordering::Relaxed)
    }
}

/// A dropped table whose pages cannot be freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckTable {
    /// Its id.
    pub table: TableId,
    /// What it was called.
    pub name: String,
    /// Why: it names the page.
    pub failure: String,
}

/// A look at an engine, taken while it works: the numbers belong to about the same moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EngineStats {
    /// Committed transactions that have written.
    pub commits: u64,
    /// Committed transactions that have not.
    pub read_only_commits: u64,
    /// Transactions rolled back, for whatever reason.
    pub rollbacks: u64,
    /// Those of them that were rolled back in their owner's place, because they needed most of a full log.
    pub ended: u64,
    /// Checkpoints taken.
    pub checkpoints: u64,
    /// Runs of planned transactions that met a lock which was neither in their footprint nor free, and were repeated.
    pub plan_misses: u64,
    /// Planned transactions that missed so often that they locked whole tables.
    pub plan_fallbacks: u64,
    /// What a recovery would take if the power failed now, as far as one can tell (see
    /// [`EngineOptions::recovery_target`](crate::EngineOptions::recovery_target)).
    pub recovery_estimate: Duration,
    /// Why the last checkpoint in the background failed, if it did: the log is not shortened meanwhile.
    pub checkpoint_failure: Option<String>,
    /// Open transactions that have written.
    pub writers_open: usize,
    /// Transactions that are prepared and wait for a decision.
    pub prepared: usize,
    /// Transactions that had written and were open when the database was closed: the next opening undoes them. 0 before.
    pub cut_off: usize,
    /// Tables, without the engine's own.
    pub tables: usize,
    /// Dropped tables whose pages are not all free yet.
    pub tables_dropped: usize,
    /// Those of them whose pages cannot be freed, with the reason: a page is damaged. The next opening tries again.
    pub tables_stuck: Vec<StuckTable>,
    /// Bytes of the log that are needed.
    pub log_used_bytes: u64,
    /// Where the log ends.
    pub log_tail: u64,
    /// What is durable of it.
    pub log_durable: u64,
    /// Batches of the log that were made durable.
    pub log_flushes: u64,
    /// Pages in the data file.
    pub pages: u64,
    /// Those of them that hold nothing; 0 when a bitmap page cannot be read.
    pub pages_free: u64,
    /// The lock manager.
    pub locks: LockStats,
    /// The buffer pool.
    pub pool: PoolStats,
    /// What opening the database took.
    pub recovery: RecoveryReport,
}

impl Core {
    /// Transactions committed so far, readers too.
    pub(crate) fn commits(&self) -> u64 {
        self.stats.of(Event::Commit) + self.stats.of(Event::ReadOnlyCommit)
    }

    pub(crate) fn collect_stats(&self) -> EngineStats {
        let dropped = self.catalog.dropped();
        EngineStats {
            commits: self.stats.of(Event::Commit),
            read_only_commits: self.stats.of(Event::ReadOnlyCommit),
            rollbacks: self.stats.of(Event::Rollback),
            ended: self.stats.of(Event::Ended),
            checkpoints: self.stats.of(Event::Checkpoint),
            plan_misses: self.stats.of(Event::PlanMiss),
            plan_fallbacks: self.stats.of(Event::PlanFallback),
            recovery_estimate: self.growth.recovery_estimate(self.log.tail()),
            checkpoint_failure: self.growth.failure(),
            writers_open: self.transactions.open_count(),
            prepared: self.prepared.len(),
            cut_off: self.cut_off.load(Ordering::Relaxed),
            tables: self.catalog.len(),
            tables_dropped: dropped.len(),
            tables_stuck: dropped
                .into_iter()
                .filter_map(|(table, dropped)| {
                    Some(StuckTable { table, name: dropped.name, failure: dropped.failure? })
                })
                .collect(),
            log_used_bytes: self.log.used_bytes(),
            log_tail: self.log.tail().0,
            log_durable: self.log.durable().0,
            log_flushes: self.log.flushes(),
            pages: self.pool.page_count(),
            pages_free: self.pool.free_page_count().unwrap_or(0),
            locks: self.locks.stats(),
            pool: self.pool.stats(),
            recovery: self.recovery,
        }
    }
}
