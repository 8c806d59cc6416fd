//! How a lock manager is set up.

use foreshore_env::time::Duration;

use crate::lifeline::Lifeline;
use crate::mode::KeyMode;
use crate::partitioner::Partitioner;

/// Locks that every transaction is sure of, whatever the others hold: its slot's own segment of requests.
pub(crate) const OWN_REQUESTS: usize = 256;

/// The implementations of the lock table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockTableKind {
    /// A latch for each bucket, held for the list operation only. A request that is alone in its bucket, or shares as
    /// all of them do, comes and goes without it.
    #[default]
    Latched,
    /// A baseline to measure against: the queues of `Latched` under one mutex.
    GlobalMutex,
    /// A baseline: the queues of `Latched` behind one queue of spinning threads (MCS).
    GlobalMcs,
    /// A baseline: `Latched`, but that every request takes the latch of its bucket, also where it is alone or all
    /// share.
    AlwaysLatched,
    /// Jung et al. 2013: requests come and go beside the latch, which is for those who wait and for conversions; they
    /// are recycled in bulk. A thread of the lock manager keeps some ready.
    Staged,
}

impl LockTableKind {
    /// All lock tables.
    pub const ALL: [LockTableKind; 5] = [
        LockTableKind::Latched,
        LockTableKind::GlobalMutex,
        LockTableKind::GlobalMcs,
        LockTableKind::AlwaysLatched,
        LockTableKind::Staged,
    ];
}

/// Which modes there are for keys and gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyRangeModes {
    /// All combinations of a key's mode and a gap's (Graefe; Kimura et al. 2012, Table 2).
    #[default]
    Orthogonal,
    /// The baseline of Kimura et al. 2012, Figure 3: without those that Lomet's set (VLDB 1993) lacks. A gap is locked
    /// shared only with its key, and a key exclusively with a shared gap only as a whole. A gap is checked for an
    /// insert without its key, which stands for Lomet's insert locks.
    Lomet,
    /// A baseline: key and gap are one thing, shared or exclusive, as in ARIES/KVL (Mohan 1990). There the gap is the
    /// one below the key; here it is the one above, as for the others, so that the same number of locks is compared.
    NextKey,
}

impl KeyRangeModes {
    /// All sets of modes.
    pub const ALL: [KeyRangeModes; 3] =
        [KeyRangeModes::Orthogonal, KeyRangeModes::Lomet, KeyRangeModes::NextKey];

    /// The weakest mode of the set that covers this one.
    #[inline]
    #[must_use]
    pub fn widen(self, mode: KeyMode) -> KeyMode {
        match self {
            KeyRangeModes::Orthogonal => mode,
            KeyRangeModes::Lomet => match mode {
                KeyMode::NS => KeyMode::S,
                KeyMode::NX => KeyMode::SX,
                KeyMode::XS => KeyMode::X,
                other => other,
            },
            KeyRangeModes::NextKey => self.widen_check(mode),
        }
    }

    /// As [`KeyRangeModes::widen`], for a check that keeps nothing.
    #[inline]
    #[must_use]
    pub(crate) fn widen_check(self, mode: KeyMode) -> KeyMode {
        match self {
            KeyRangeModes::NextKey if mode == KeyMode::N => KeyMode::N,
            KeyRangeModes::NextKey if mode.is_exclusive() => KeyMode::X,
            KeyRangeModes::NextKey => KeyMode::S,
            KeyRangeModes::Lomet if mode != KeyMode::NX => self.widen(mode),
            KeyRangeModes::Orthogonal | KeyRangeModes::Lomet => mode,
        }
    }
}

/// How locks on tables and the volume are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IntentLockKind {
    /// Intents in lines of the transactions' own; only absolute locks write to anything shared.
    #[default]
    Private,
    /// Counters outside the lock table (Kimura et al. 2012).
    Lightweight,
    /// The baseline: requests in the lock table.
    InTable,
    /// A baseline: requests in the lock table that a transaction inherits from its predecessor.
    Inherited,
}

impl IntentLockKind {
    /// All kinds.
    pub const ALL: [IntentLockKind; 4] = [
        IntentLockKind::Private,
        IntentLockKind::Lightweight,
        IntentLockKind::InTable,
        IntentLockKind::Inherited,
    ];
}

/// What is done about deadlocks. All but the first are baselines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadlockPolicy {
    /// Digests, found at once, confirmed exactly, one victim. With [`DigestKind::Bloom`]: Kimura et al. 2012, Algorithm
    /// 5 as printed, sleeping with backoff.
    #[default]
    Dreadlocks,
    /// Algorithm 5; waiters spin.
    DreadlocksSpin,
    /// Algorithm 5; waiters sleep, and their digests get out of date.
    DreadlocksSleep,
    /// Algorithm 5; waiters spin while no more transactions are open than there are processors, else they sleep with
    /// backoff.
    DreadlocksHybrid,
    /// A wait-for graph, partitioned by transaction.
    WaitForGraph,
    /// A transaction that is younger than one in its way gives way.
    WaitDie,
    /// A transaction that is younger than one whose way it is in gives way when it has to wait.
    WoundWait,
    /// Nothing is looked for; a transaction that waits longer than the option `deadlock_timeout` says gives way.
    Timeout,
    /// Nobody waits; a transaction that would have to gives way.
    NoWait,
}

impl DeadlockPolicy {
    /// All policies.
    pub const ALL: [DeadlockPolicy; 9] = [
        DeadlockPolicy::Dreadlocks,
        DeadlockPolicy::DreadlocksSpin,
        DeadlockPolicy::DreadlocksSleep,
        DeadlockPolicy::DreadlocksHybrid,
        DeadlockPolicy::WaitForGraph,
        DeadlockPolicy::WaitDie,
        DeadlockPolicy::WoundWait,
        DeadlockPolicy::Timeout,
        DeadlockPolicy::NoWait,
    ];

    /// Whether cycles are looked for. The other policies make transactions give way before there is one, or without
    /// knowing of one.
    pub fn detects(self) -> bool {
        match self {
            DeadlockPolicy::Dreadlocks
            | DeadlockPolicy::DreadlocksSpin
            | DeadlockPolicy::DreadlocksSleep
            | DeadlockPolicy::DreadlocksHybrid
            | DeadlockPolicy::WaitForGraph => true,
            DeadlockPolicy::WaitDie
            | DeadlockPolicy::WoundWait
            | DeadlockPolicy::Timeout
            | DeadlockPolicy::NoWait => false,
        }
    }
}

/// How digests stand for transactions, under the policies that have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DigestKind {
    /// A bit for each.
    #[default]
    Exact,
    /// Kimura et al. 2012, §4.2: three bits of 512 for each. Transactions may be mistaken for one another.
    Bloom,
}

/// Who gives way in a deadlock, of those with the lowest priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum VictimPolicy {
    /// The youngest transaction; among equals the one with the largest id.
    #[default]
    Youngest,
    /// Kill-short (Kimura et al. 2012, §4.3): the one whose pipeline has the fewest completed transactions that wait
    /// for their flush, for that flush is what it costs; among equals the youngest.
    ShortestPipeline,
    /// Kill-long, which the paper measures beside it: the one whose pipeline has the most.
    LongestPipeline,
}

/// How a lock manager is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockOptions {
    /// Buckets of the lock table, rounded up to a power of two. 32 bytes each; 64 in the staged table.
    pub buckets: usize,
    /// Most locks on keys that one transaction may hold.
    pub max_locks_per_transaction: usize,
    /// Most locks on keys that all transactions may hold together, beyond the 256 that each is sure of; rounded up to a
    /// multiple of 256. A lock takes 32 bytes. The staged table has as much again, and as much as everybody is sure of
    /// again, for locks on their way back; when that is used up too, nobody is sure of anything.
    pub max_locks: usize,
    /// Seed of the lock names: secret, so that nobody can choose keys that meet in one bucket.
    pub seed: u64,
    /// The number of equal ranges of names that are locked by threads of their own, which then have buckets of their
    /// own; 1 if a transaction that wants a lock takes it itself.
    pub partitions: usize,
    /// Where the names of keys lie; by their hash alone if it is `None`.
    pub partitioner: Option<Partitioner>,
    /// The lock table.
    pub table: LockTableKind,
    /// Modes of keys and gaps.
    pub key_ranges: KeyRangeModes,
    /// Locks on tables.
    pub intents: IntentLockKind,
    /// What is done about deadlocks.
    pub deadlock: DeadlockPolicy,
    /// How digests stand for transactions.
    pub digests: DigestKind,
    /// Whether a suspected deadlock is confirmed by an exact walk before anybody gives way. Off, a transaction that
    /// suspects it gives way itself, as in the paper: for experiments.
    pub confirm_deadlocks: bool,
    /// The longest wait under [`DeadlockPolicy::Timeout`].
    pub deadlock_timeout: Duration,
    /// Who gives way in a deadlock.
    pub victim: VictimPolicy,
    /// Reports that are kept about those who gave way, for whatever reason; 0 for none.
    pub history: usize,
    /// Whether every transaction notes the key and the time of each lock that it is granted, so that views show them.
    /// Without that they show the keys that somebody waits for. Costs a look at the clock and a copy of the key for
    /// each lock, and no access to memory that others write.
    pub keep_notes: bool,
    /// What ends all waits when it fails; they go on for ever if it is `None`.
    pub lifeline: Option<Lifeline>,
}

impl Default for LockOptions {
    fn default() -> LockOptions {
        LockOptions {
            buckets: 1 << 16,
            max_locks_per_transaction: 1_000_000,
            max_locks: 8_000_000,
            seed: 0,
            partitions: 1,
            partitioner: None,
            table: LockTableKind::default(),
            key_ranges: KeyRangeModes::default(),
            intents: IntentLockKind::default(),
            deadlock: DeadlockPolicy::default(),
            digests: DigestKind::default(),
            confirm_deadlocks: true,
            deadlock_timeout: Duration::from_secs(1),
            victim: VictimPolicy::default(),
            history: 128,
            keep_notes: false,
            lifeline: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wider_modes_cover_and_stay_as_they_are() {
        for set in KeyRangeModes::ALL {
            for mode in KeyMode::ALL {
                let wide = set.widen(mode);
                assert!(wide.covers(mode) && wide.covers(set.widen_check(mode)), "{set:?} {mode}");
                assert!(set.widen_check(mode).covers(mode));
                assert_eq!(set.widen(wide), wide);
                assert_eq!(mode == KeyMode::N, wide == KeyMode::N);
                for other in KeyMode::ALL.into_iter().filter(|other| other.covers(mode)) {
                    assert!(set.widen(other).covers(wide), "{set:?} {mode} {other}");
                }
            }
        }
    }
}
