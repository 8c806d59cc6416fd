//! What a database tells of itself.

use std::ops::Deref;

use foreshore_orthrus::{PartitionStats, ThreadStats as PartitionThread};
use foreshore_txn::{EngineStats, StuckTable};

use crate::admission::Admission;

/// Declares [`Stats`] with a list of its fields by name.
macro_rules! stats {
    ($($(#[$doc:meta])* $field:ident: $from:expr,)*) => {
        /// Counters since the database was opened, and sizes as they are. Made by
        /// [`Database::stats`](crate::Database::stats), while the database works: the figures belong to about the same
        /// moment.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $field: u64,)*
            /// Why the last checkpoint in the background failed, if it did: the log is not shortened meanwhile.
            pub checkpoint_failure: Option<String>,
            /// Dropped tables whose pages cannot be freed because one is damaged, or the system refuses it: a sentence
            /// for each, with table and page. [`Database::verify`](crate::Database::verify) reports damage too; opening
            /// it again tries again.
            pub drop_failures: Vec<String>,
            /// What each thread of partitioned execution does now, and has done; empty before the first transaction
            /// that was given to them.
            pub partition_threads: Vec<PartitionThread>,
        }

        impl Stats {
            pub(crate) fn of(
                engine: &EngineStats,
                admission: Option<&Admission>,
                partition_threads: Vec<PartitionThread>,
                partitions: PartitionStats,
            ) -> Stats {
                $(let $field: fn(&Sources<'_>) -> u64 = $from;)*
                let sources = Sources { engine, admission, partitions };
                Stats {
                    $($field: $field(&sources),)*
                    checkpoint_failure: engine.checkpoint_failure.clone(),
                    drop_failures: drop_failures(engine),
                    partition_threads,
                }
            }

            /// All figures by name, for tools.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }
        }
    };
}

fn drop_failures(engine: &EngineStats) -> Vec<String> {
    let sentences = engine.tables_stuck.iter().map(|stuck| {
        let StuckTable { table, name, failure } = stuck;
        format!("the pages of the dropped table {name:?} ({table}) cannot be freed: {failure}")
    });
    sentences.collect()
}

/// Where the figures come from: most are the engine's.
struct Sources<'s> {
    engine: &'s EngineStats,
    admission: Option<&'s Admission>,
    partitions: PartitionStats,
}

impl Deref for Sources<'_> {
    type Target = EngineStats;

    fn deref(&self) -> &EngineStats {
        self.engine
    }
}

stats! {
    /// Committed transactions that wrote.
    commits: |stats| stats.commits,
    /// Committed transactions that only read.
    read_only_commits: |stats| stats.read_only_commits,
    /// Transactions rolled back, for whatever reason.
    rollbacks: |stats| stats.rollbacks,
    /// Transactions that were rolled back in their owner's place, because they needed most of a full log: see
    /// [`Options::log_full`](crate::Options::log_full).
    transactions_ended: |stats| stats.ended,
    /// Open transactions that have written.
    writers_open: |stats| stats.writers_open as u64,
    /// Transactions that are prepared and wait for a decision.
    prepared: |stats| stats.prepared as u64,
    /// Transactions that had written and were open when the database was closed: the next opening undoes them. 0
    /// before.
    cut_off: |stats| stats.cut_off as u64,
    /// Checkpoints.
    checkpoints: |stats| stats.checkpoints,
    /// Tables, without those that the database keeps for itself.
    tables: |stats| stats.tables as u64,
    /// Dropped tables whose pages are still being freed.
    tables_dropped: |stats| stats.tables_dropped as u64,
    /// Dropped tables whose pages cannot be freed: see [`Stats::drop_failures`].
    tables_stuck: |stats| stats.tables_stuck.len() as u64,
    /// Pages in the data file.
    pages: |stats| stats.pages,
    /// Bytes of the data file's pages that hold nothing at all: what was freed, and what it grew by in advance. New
    /// pages come from here, and [`Database::compact`](crate::Database::compact) gives most of it back; free room
    /// within pages that hold a few entries, which it gives back too, is not counted. 0 also when the free space cannot
    /// be read; [`Database::verify`](crate::Database::verify) tells why.
    fragmented_bytes: |stats| stats.pages_free * foreshore_base::limits::PAGE_BYTES as u64,
    /// Frames of the buffer pool.
    pool_frames: |stats| stats.pool.frames,
    /// Frames that hold a page.
    pool_frames_used: |stats| stats.pool.frames_used,
    /// Frames whose page is newer than the file.
    pool_frames_dirty: |stats| stats.pool.frames_dirty,
    /// Pages read from the file by those who needed them.
    pool_loads: |stats| stats.pool.loads,
    /// Pages that scans had read before they came to them.
    pool_read_ahead: |stats| stats.pool.read_ahead,
    /// Pages that should have been read so, and could not be.
    pool_read_ahead_failures: |stats| stats.pool.read_ahead_failures,
    /// Pages that gave up their frame for another.
    pool_evictions: |stats| stats.pool.evictions,
    /// Pages that had to be written one by one by the thread that needed their frame, because nobody had in the
    /// background.
    pool_dirty_evictions: |stats| stats.pool.dirty_evictions,
    /// Pages written in the background.
    pool_cleaner_writes: |stats| stats.pool.cleaner_writes,
    /// Pages written by threads that needed frames and helped those who write in the background.
    pool_helped_writes: |stats| stats.pool.helped_writes,
    /// Pages written by checkpoints.
    pool_sweep_writes: |stats| stats.pool.sweep_writes,
    /// Whole pages that were logged, so that a torn write can be repaired.
    page_images: |stats| stats.pool.images,
    /// Their bytes in the log.
    page_image_bytes: |stats| stats.pool.image_bytes,
    /// Pages taken into use.
    page_allocations: |stats| stats.pool.allocations,
    /// Allocations that had to look for free pages in the bitmaps, because their thread's share was used up.
    page_searches: |stats| stats.pool.space_searches,
    /// Pages given back.
    page_frees: |stats| stats.pool.frees,
    /// Bytes of the log that are needed.
    log_used_bytes: |stats| stats.log_used_bytes,
    /// Bytes ever written to the log.
    log_tail: |stats| stats.log_tail,
    /// How much of that is on the disk.
    log_durable: |stats| stats.log_durable,
    /// How often the log was flushed: each time a batch of records, and of commits, became durable together.
    log_flushes: |stats| stats.log_flushes,
    /// Locks on keys that were granted and given back.
    locks_released: |stats| stats.locks.released,
    /// Requests for locks that had to wait.
    lock_waits: |stats| stats.locks.waits,
    /// Time spent in these waits, in all.
    lock_waited_ns: |stats| stats.locks.waited_ns,
    /// The longest of these waits.
    lock_longest_wait_ns: |stats| stats.locks.longest_wait_ns,
    /// Deadlocks, each resolved by one victim.
    deadlocks: |stats| stats.locks.deadlocks,
    /// Suspected deadlocks that were none when they were looked at closely.
    deadlock_suspicions_refuted: |stats| stats.locks.suspicions_refuted,
    /// Transactions that gave way without a confirmed deadlock, under a policy that asks for that.
    deadlock_precautions: |stats| stats.locks.precautions,
    /// How many transactions are let in at a time, because too many gave way in deadlocks; 0: there is no limit.
    admission_limit: |stats| stats.admission.and_then(Admission::limit).unwrap_or(0).into(),
    /// Transactions that wait now until they are let in.
    admission_waiting: |stats| stats.admission.map_or(0, Admission::waiting),
    /// Transactions that had to wait until they were let in.
    admission_waits: |stats| stats.admission.map_or(0, Admission::waits),
    /// Runs of planned transactions that met a lock which was neither in their plan nor free: they were undone and
    /// repeated with a larger plan.
    plan_misses: |stats| stats.plan_misses,
    /// Planned transactions that missed so often that they locked whole tables.
    plan_fallbacks: |stats| stats.plan_fallbacks,
    /// Transactions that read without locks and ran again with locks, because others had changed what they had read:
    /// see [`ReadMode::Hybrid`](crate::ReadMode::Hybrid).
    stale_reads: |stats| stats.stale_reads,
    /// Transactions of that mode that locked what they might have read without locks: they had read 256 pages so, or
    /// reads of the table were stale too often of late.
    unlocked_fallbacks: |stats| stats.unlocked_fallbacks,
    /// Locks on keys that became one on their table.
    lock_escalations: |stats| stats.locks.escalations,
    /// Times that they could not, because others were in the way.
    lock_escalations_refused: |stats| stats.locks.escalations_refused,
    /// Waits for locks that ended at their deadline.
    lock_timeouts: |stats| stats.locks.timeouts,
    /// Waits for locks that were cancelled.
    lock_cancellations: |stats| stats.locks.cancelled,
    /// Records that were gone through when the database was opened.
    recovery_records: |stats| stats.recovery.records_read,
    /// Transactions that were undone when the database was opened.
    recovery_losers: |stats| stats.recovery.losers,
    /// What recovery would take if the power failed now, but for undoing what is open, as far as one can tell.
    recovery_estimate_ns: |stats| u64::try_from(stats.recovery_estimate.as_nanos()).unwrap_or(u64::MAX),
    /// How long recovery took when the database was opened.
    recovery_ns: |stats| u64::try_from(stats.recovery.duration.as_nanos()).unwrap_or(u64::MAX),
    /// Transactions that threads of partitioned execution ([`Plan::submit`](crate::Plan::submit)) were given and have
    /// done.
    partitioned_done: |stats| stats.partitions.done,
    /// Transactions of partitioned execution that are begun and not ended.
    partitioned_in_flight: |stats| stats.partitions.in_flight,
    /// Transactions of partitioned execution that are not begun.
    partitioned_queued: |stats| stats.partitions.queued,
    /// Footprints whose locks the threads of partitioned execution were asked for.
    partitioned_footprints: |stats| stats.partitions.footprints,
    /// Partitions that the footprints went to, in all.
    partitioned_visits: |stats| stats.partitions.visits,
    /// Messages that carried a footprint: one more than partitions for each.
    partitioned_messages: |stats| stats.partitions.messages,
    /// Messages that carried locks to be given back.
    partitioned_releases: |stats| stats.partitions.releases,
    /// Messages that found their queue full and waited at their sender.
    partitioned_queues_full: |stats| stats.partitions.rings_full,
    /// Locks for which such transactions had to wait.
    partitioned_waits: |stats| stats.partitions.waits,
    /// How often a transaction was put off for a little: a table was locked, or a deadlock was resolved.
    partitioned_later: |stats| stats.partitions.later,
    /// Threads that lock for them now; 0 if there are no such threads.
    partitioned_control_threads: |stats| stats.partitions.controllers,
    /// Times that a thread began to lock, because there was more to lock than the others could
    /// ([`Options::automatic_threads`](crate::Options::automatic_threads)).
    partitioned_moves_to_control: |stats| stats.partitions.to_control,
    /// Times that a thread began to run transactions, because there were more than the others could run.
    partitioned_moves_to_execution: |stats| stats.partitions.to_execution,
}

/// What [`Database::verify`](crate::Database::verify) found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Damage: one sentence for each place, up to a thousand of them.
    pub problems: Vec<String>,
    /// Problems beyond those.
    pub problems_dropped: u64,
    /// Tables, without those that the database keeps for itself.
    pub tables: u64,
    /// Entries of all tables, those that the database keeps for itself included.
    pub records: u64,
    /// Entries that were deleted and not yet taken away.
    pub ghosts: u64,
    /// Pages of all tables.
    pub pages: u64,
    /// Pages in use that were not come to, because they are damaged or lie behind such a page.
    pub pages_unreachable: u64,
    /// Records of the log.
    pub log_records: u64,
}

impl VerifyReport {
    pub(crate) fn of(report: foreshore_txn::VerifyReport) -> VerifyReport {
        VerifyReport {
            problems_dropped: report.problems_dropped,
            tables: report.tables,
            records: report.trees.records,
            ghosts: report.trees.ghosts,
            pages: report.trees.pages,
            pages_unreachable: report.pages_unreachable,
            log_records: report.log_records,
            problems: report.problems,
        }
    }

    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}
