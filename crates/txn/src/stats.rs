//! What happened so far, in numbers.

use std::cell::Cell;

use foreshore_base::TableId;
use foreshore_env::{
    CachePadded, hint,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    thread_local,
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
    StaleReads,
    UnlockedFallback,
}

const EVENTS: usize = 9;

/// Copies of the counters, a pair of lines each, so that threads count beside each other.
const COPIES: usize = if cfg!(foreshore_loom) { 2 } else { 64 };

thread_local! {
    /// The copy in which this thread counts, in all databases of the process: it is chosen by the first in which it
    /// counts. So two threads whose first databases differ may share a copy, which costs time and no count.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom's has no constant form")]
    static COPY: Cell<usize> = Cell::new(usize::MAX);
}

/// Counters: what was counted is the sum of the copies. They order nothing, so they are relaxed.
#[derive(Debug)]
pub(crate) struct Counters {
    copies: Box<[CachePadded<[AtomicU64; EVENTS]>]>,
    /// The copy of the next thread that comes.
    next: AtomicUsize,
}

impl Counters {
    pub(crate) fn new() -> Counters {
        let copy = || CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let copies: Box<[_]> = (0..COPIES).map(|_| copy()).collect();
        hint::name(&copies, "counters of transactions");
        Counters { copies, next: AtomicUsize::new(0) }
    }

    #[inline]
    pub(crate) fn count(&self, event: Event) {
        // A thread that is ending counts somewhere, too.
        let copy = COPY.try_with(Cell::get).unwrap_or(0);
        let copy = self.copies.get(copy).unwrap_or_else(|| self.assign());
        copy[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    fn assign(&self) -> &CachePadded<[AtomicU64; EVENTS]> {
        let copy = self.next.fetch_add(1, Ordering::Relaxed) % COPIES;
        let _ = COPY.try_with(|chosen| chosen.set(copy));
        &self.copies[copy]
    }

    fn of(&self, event: Event) -> u64 {
        self.copies.iter().map(|copy| copy[event as usize].load(Ordering::Relaxed)).sum()
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
    /// Transactions that were rolled back in their owner's place, because they needed most of a full log.
    pub ended: u64,
    /// Checkpoints taken.
    pub checkpoints: u64,
    /// Runs of planned transactions that met a lock which was neither in their footprint nor free, and were repeated.
    pub plan_misses: u64,
    /// Planned transactions that missed so often that they locked whole tables.
    pub plan_fallbacks: u64,
    /// Transactions whose reads without locks were changed by others, so that they had to run again: see
    /// [`ReadMode::Hybrid`](crate::ReadMode::Hybrid).
    pub stale_reads: u64,
    /// Transactions of that mode that locked what they might have read without locks: they had read as many pages as
    /// one may, or reads of the table were stale too often. Not those that ran again.
    pub unlocked_fallbacks: u64,
    /// What a recovery would take if the power failed now, but for undoing what is open, as far as one can tell (see
    /// [`EngineOptions::recovery_target`](crate::EngineOptions::recovery_target)).
    pub recovery_estimate: Duration,
    /// Why the last checkpoint in the background failed, if it did: the log is not shortened meanwhile.
    pub checkpoint_failure: Option<String>,
    /// Open transactions that have written.
    pub writers_open: usize,
    /// Transactions that are prepared and wait for a decision.
    pub prepared: usize,
    /// Transactions that had written and were open when the database was closed: the next opening undoes them. 0
    /// before.
    pub cut_off: usize,
    /// Tables, without the engine's own.
    pub tables: usize,
    /// Dropped tables whose pages are not all free yet.
    pub tables_dropped: usize,
    /// Dropped tables whose pages cannot be freed, with the reason: a page is damaged, or the system refuses it. The
    /// next opening tries again.
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
    /// Pages in the data file that hold nothing; 0 when a bitmap page cannot be read.
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

    /// Transactions that have written and ended so far, and readers that were rolled back.
    pub(crate) fn writers_ended(&self) -> u64 {
        self.stats.of(Event::Commit) + self.stats.of(Event::Rollback)
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
            stale_reads: self.stats.of(Event::StaleReads),
            unlocked_fallbacks: self.stats.of(Event::UnlockedFallback),
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

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    /// As many threads as there may ever be: each has a copy, those that come one after another have different ones,
    /// and no count is lost.
    #[test]
    fn every_thread_counts_somewhere() {
        const THREADS: usize = COPIES * COPIES + 2 * COPIES;
        let counters = Counters::new();
        let place = |copy: &CachePadded<[AtomicU64; EVENTS]>| std::ptr::from_ref(copy).addr();
        let mut places = Vec::new();
        for _ in 0..THREADS {
            let copy = counters.assign();
            copy[Event::Commit as usize].fetch_add(1, Ordering::Relaxed);
            places.push(place(copy));
        }
        for round in places.chunks(COPIES) {
            let mut different = round.to_vec();
            different.sort_unstable();
            different.dedup();
            assert_eq!(different.len(), COPIES);
        }
        assert_eq!(counters.of(Event::Commit), THREADS as u64);
        assert_eq!(counters.of(Event::Rollback), 0);
        // This thread has got the last copy, and keeps it.
        counters.count(Event::Rollback);
        counters.count(Event::Rollback);
        let last = counters.copies.iter().find(|copy| place(copy) == places[THREADS - 1]).unwrap();
        assert_eq!(last[Event::Rollback as usize].load(Ordering::Relaxed), 2);
    }
}
