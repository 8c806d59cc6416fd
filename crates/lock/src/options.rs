//! How a lock manager is set up.

/// Locks that every transaction is sure of, whatever the others hold: its slot's own segment of requests.
pub(crate) const OWN_REQUESTS: usize = 256;

/// Which lock table runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockTableKind {
    /// A latch for each bucket, held for the list operation only.
    #[default]
    Latched,
    /// The baseline: the same queues under one mutex.
    GlobalMutex,
}

/// What is done about deadlocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadlockPolicy {
    /// Digests, found at once, confirmed exactly, one victim.
    #[default]
    Dreadlocks,
    /// The baseline: nothing. Waits end at their deadlines.
    Timeout,
}

/// Who gives way in a deadlock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum VictimPolicy {
    /// The transaction with the largest age value; among equals the one with the largest id.
    #[default]
    Youngest,
}

/// How a lock manager is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockOptions {
    /// Buckets of the lock table, rounded up to a power of two. 32 bytes each.
    pub buckets: usize,
    /// Most locks on keys that one transaction may hold.
    pub max_locks_per_transaction: usize,
    /// Most locks on keys that all transactions may hold together, beyond the 256 that each is sure of; rounded up to a
    /// multiple of 256. A lock takes 32 bytes.
    pub max_locks: usize,
    /// Seed of the lock names: secret, so that nobody can choose keys that meet in one bucket.
    pub seed: u64,
    /// The lock table.
    pub table: LockTableKind,
    /// What is done about deadlocks.
    pub deadlock: DeadlockPolicy,
    /// Who gives way in a deadlock.
    pub victim: VictimPolicy,
    /// Deadlock reports that are kept.
    pub history: usize,
}

impl Default for LockOptions {
    fn default() -> LockOptions {
        LockOptions {
            buckets: 1 << 16,
            max_locks_per_transaction: 1_000_000,
            max_locks: 8_000_000,
            seed: 0,
            table: LockTableKind::default(),
            deadlock: DeadlockPolicy::default(),
            victim: VictimPolicy::default(),
            history: 128,
        }
    }
}
