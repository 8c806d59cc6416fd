//! The options as the crates below have them.

use foreshore_base::limits::{MAX_TRANSACTIONS, PAGE_BYTES};
use foreshore_orthrus::{MAX_THREADS, PartitionOptions};
use foreshore_txn::{EngineOptions, LockOptions, LogOptions, PoolOptions, READ_ONLY_BYTES};

use super::{Options, check::MAX_LOCK_BUCKETS};

/// Buckets of the lock table for each page of the pool, if nobody says how many: some of its records are locked at a
/// time.
const BUCKETS_PER_PAGE: usize = 4;
/// The fewest of them.
const FEWEST_BUCKETS: usize = 1 << 16;
/// Files of the log that count: each is open, and a process may usually have a thousand.
const MOST_LOG_FILES: u64 = 512;
/// Transactions that all threads of partitioned execution have begun and not ended, at most: the other places are for
/// those that are run otherwise, and for locks that wait for the disk.
const MOST_IN_FLIGHT: usize = MAX_TRANSACTIONS / 4 * 3;
/// All threads have room for one.
const _: () = assert!(MOST_IN_FLIGHT >= 2 * MAX_THREADS);

impl Options {
    /// For partitioned execution.
    pub(crate) fn partitions(&self) -> PartitionOptions {
        let changing = if self.automatic_threads { self.control_threads } else { 0 };
        let most = MOST_IN_FLIGHT / (self.execution_threads + changing).max(1);
        PartitionOptions {
            control_threads: self.control_threads,
            execution_threads: self.execution_threads,
            automatic: self.automatic_threads,
            window: self.execution_window.min(most),
            queue: self.submit_queue,
            ring_capacity: self.ring_capacity,
            pin_threads: self.pin_threads,
        }
    }

    /// Buckets of the lock table.
    fn buckets(&self) -> usize {
        match self.lock_buckets {
            0 => (self.pool_bytes / PAGE_BYTES * BUCKETS_PER_PAGE).clamp(FEWEST_BUCKETS, MAX_LOCK_BUCKETS),
            buckets => buckets,
        }
    }

    /// For the engine.
    pub(crate) fn engine(&self) -> EngineOptions {
        EngineOptions {
            create: self.create,
            read_only: self.read_only,
            log: LogOptions {
                segment_bytes: self.log_segment_bytes,
                buffer_bytes: self.log_buffer_bytes,
                capacity_bytes: self.log_bytes,
                most_segments: MOST_LOG_FILES,
                flush_interval: self.flush_interval,
                latency: self.log_latency,
                insert: self.log_insert,
                past_cache: self.log_past_cache,
            },
            pool: PoolOptions {
                bytes: self.pool_bytes,
                prefault: self.prefault,
                translation: self.translation,
                transit: self.transit,
                free_space: self.free_space,
                read_ahead: self.read_ahead,
                cleaners: self.cleaners,
                ..PoolOptions::default()
            },
            locks: LockOptions {
                buckets: self.buckets(),
                partitions: self.partitions().partitions(),
                keep_notes: self.lock_notes,
                max_locks_per_transaction: self.max_locks_per_transaction,
                max_locks: self.max_locks,
                table: self.lock_table,
                key_ranges: self.key_range_modes,
                intents: self.intent_locks,
                deadlock: self.deadlock_policy,
                digests: self.deadlock_digests,
                confirm_deadlocks: self.deadlock_confirmation,
                deadlock_timeout: self.deadlock_timeout,
                victim: self.victim_policy,
                ..LockOptions::default()
            },
            latch_mode: self.latch_mode,
            early_lock_release: self.early_lock_release,
            pipeline_length: self.pipeline_length,
            release_tags: self.release_tags,
            read_validation: self.read_validation,
            read_only_bytes: READ_ONLY_BYTES,
            checkpoint_bytes: self.checkpoint_bytes,
            recovery_target: self.recovery_target,
            recovery_observer: None,
            escalation_locks: self.escalation_locks,
            escalation_bytes: self.escalation_bytes,
            log_full: self.log_full,
            node_capacity: self.node_capacity,
            locking: self.locking,
        }
    }
}
