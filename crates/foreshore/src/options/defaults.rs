//! What the options are unless somebody says otherwise.

use foreshore_env::time::Duration;
use foreshore_txn::{
    DeadlockPolicy, DigestKind, EarlyLockRelease, IntentLockKind, KeyRangeModes, MAX_PIPELINE_LENGTH,
    VictimPolicy,
};

use super::Options;
use crate::{
    Durability, Execution, FreeSpace, Isolation, LatchMode, LockTable, LogFullPolicy, LogInsert, ReadMode,
    Transit, Translation,
};

impl Default for Options {
    fn default() -> Options {
        Options {
            create: true,
            read_only: false,
            pool_bytes: 256 << 20,
            translation: Translation::default(),
            transit: Transit::default(),
            free_space: FreeSpace::default(),
            read_ahead: 32,
            cleaners: 1,
            latch_mode: LatchMode::default(),
            log_bytes: 4 << 30,
            log_segment_bytes: 16 << 20,
            log_buffer_bytes: 8 << 20,
            log_insert: LogInsert::default(),
            log_past_cache: true,
            log_full: LogFullPolicy::default(),
            flush_interval: Duration::from_millis(100),
            checkpoint_bytes: 256 << 20,
            recovery_target: Duration::from_secs(30),
            early_lock_release: EarlyLockRelease::default(),
            pipeline_length: MAX_PIPELINE_LENGTH,
            victim_policy: VictimPolicy::default(),
            log_latency: Duration::ZERO,
            lock_table: LockTable::default(),
            key_range_modes: KeyRangeModes::default(),
            intent_locks: IntentLockKind::default(),
            deadlock_policy: DeadlockPolicy::default(),
            deadlock_digests: DigestKind::default(),
            deadlock_confirmation: true,
            deadlock_timeout: Duration::from_secs(1),
            admission_control: true,
            lock_timeout: Duration::ZERO,
            lock_notes: false,
            lock_buckets: 0,
            escalation_locks: 100_000,
            escalation_bytes: 16 << 20,
            max_locks_per_transaction: 1_000_000,
            max_locks: 8_000_000,
            durability: Durability::default(),
            isolation: Isolation::default(),
            read_mode: ReadMode::default(),
            execution: Execution::default(),
            control_threads: 1,
            execution_threads: 2,
            automatic_threads: false,
            execution_window: 16,
            submit_queue: 1 << 16,
            ring_capacity: 64,
            pin_threads: false,
            locking: true,
            release_tags: true,
            read_validation: true,
            node_capacity: usize::MAX,
        }
    }
}
