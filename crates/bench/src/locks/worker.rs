//! One thread's transactions, and what they guard.

use foreshore_base::{TableId, TxnId};
use foreshore_env::{
    CachePadded,
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};
use foreshore_lock::{Age, KeyMode, KeyRef, LockError, LockManager, LockOptions, LockOwner, WaitPolicy};

use super::{Cell, HOT_KEYS, failure};
use crate::{BenchError, random::Random};

pub(super) const TABLE: TableId = TableId(16);
/// Keys that a thread goes round when they are cold.
pub(super) const COLD_KEYS: u64 = 1 << 20;
/// Transaction numbers that a thread takes at a time, so that ages are nearly in order of time.
const NUMBERS_AT_A_TIME: u64 = 64;
/// A wait of this length is a failure.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A lock manager, and what its locks guard.
pub(super) struct Scene {
    pub(super) manager: Arc<LockManager>,
    /// Guarded by the lock on the key of that number. Relaxed: the lock orders them.
    pub(super) counts: Box<[CachePadded<AtomicU64>]>,
    /// The next transaction number that nobody has taken.
    numbers: CachePadded<AtomicU64>,
}

impl Scene {
    pub(super) fn new(options: &LockOptions) -> Scene {
        Scene {
            manager: LockManager::new(options),
            counts: (0..HOT_KEYS).map(|_| CachePadded::default()).collect(),
            numbers: CachePadded::default(),
        }
    }
}

/// What a thread has seen.
#[derive(Default)]
pub(super) struct Seen {
    /// Transactions that got all of their locks.
    pub(super) transactions: u64,
    /// Their locks.
    pub(super) locks: u64,
    /// Attempts that gave way.
    pub(super) aborts: u64,
    /// Locks granted, also those of attempts that gave way.
    pub(super) granted: u64,
    /// Of these, exclusive ones on hot keys.
    pub(super) exclusive: u64,
    /// Counts that changed while they were shared.
    pub(super) torn: u64,
}

impl Seen {
    pub(super) fn add(&mut self, other: &Seen) {
        self.transactions += other.transactions;
        self.locks += other.locks;
        self.aborts += other.aborts;
        self.granted += other.granted;
        self.exclusive += other.exclusive;
        self.torn += other.torn;
    }
}

/// One thread's source of transactions.
pub(super) struct LockThread<'s> {
    cell: &'s Cell<'s>,
    scene: &'s Scene,
    random: Random,
    /// Set apart from those of other threads.
    cold_keys: u64,
    next_cold: u64,
    /// The next transaction number, and where those end that this thread has taken.
    numbers: (u64, u64),
    deadline: Instant,
    pub(super) seen: Seen,
}

impl<'s> LockThread<'s> {
    pub(super) fn new(cell: &'s Cell<'s>, scene: &'s Scene, number: usize) -> LockThread<'s> {
        LockThread {
            cell,
            scene,
            random: Random::new(1, number as u64),
            cold_keys: (number as u64 + 1) << 32,
            next_cold: 0,
            numbers: (0, 0),
            deadline: Instant::now() + LONGEST_WAIT,
            seen: Seen::default(),
        }
    }

    pub(super) fn transactions(&mut self, count: u64) -> Result<(), BenchError> {
        for _ in 0..count {
            let locks = self.cell.locks as u64;
            let first = if self.cell.hot {
                self.random.below(HOT_KEYS - locks + 1)
            } else {
                let first = self.next_cold;
                // A transaction's keys do not wrap around: they are taken in order.
                self.next_cold = if first + 2 * locks > COLD_KEYS { 0 } else { first + locks };
                self.cold_keys + first
            };
            let number = self.number();
            while !self.attempt(number, first)? {
                self.seen.aborts += 1;
                // Whom it gave way to may want this processor.
                thread::yield_now();
            }
            self.seen.transactions += 1;
            self.seen.locks += locks;
        }
        Ok(())
    }

    #[inline]
    fn number(&mut self) -> u64 {
        if self.numbers.0 == self.numbers.1 {
            let first = self.scene.numbers.fetch_add(NUMBERS_AT_A_TIME, Relaxed);
            self.numbers = (first, first + NUMBERS_AT_A_TIME);
            self.deadline = Instant::now() + LONGEST_WAIT;
        }
        self.numbers.0 += 1;
        self.numbers.0
    }

    /// One attempt at a transaction, which keeps its age; `false` if it gave way.
    #[inline]
    fn attempt(&mut self, number: u64, first: u64) -> Result<bool, BenchError> {
        let mut owner =
            self.scene.manager.begin(TxnId(number), Age::new(number, 0), None).map_err(failure)?;
        let wait = WaitPolicy { deadline: Some(self.deadline), ..WaitPolicy::default() };
        let mut shared = 0;
        for key in first..first + self.cell.locks as u64 {
            let exclusive = self.cell.mix.is_exclusive(key);
            let mode = if exclusive { KeyMode::XN } else { KeyMode::SN };
            match owner.acquire(TABLE, KeyRef::Key(&key.to_be_bytes()), mode, &wait) {
                Ok(()) => {}
                Err(LockError::Deadlock(_)) => {
                    self.give_back(owner, first, shared);
                    return Ok(false);
                }
                Err(error) => return Err(failure(error)),
            }
            self.seen.granted += 1;
            if self.cell.hot {
                let count = &self.scene.counts[key as usize];
                let seen = count.load(Relaxed);
                if exclusive {
                    count.store(seen + 1, Relaxed);
                    self.seen.exclusive += 1;
                } else {
                    shared += seen;
                }
            }
        }
        self.give_back(owner, first, shared);
        Ok(true)
    }

    /// Releases everything. `shared`: the sum of the counts of those keys, from `first`, that are shared.
    #[inline]
    pub(super) fn give_back(&mut self, mut owner: LockOwner, first: u64, shared: u64) {
        if self.cell.hot {
            let held = first..first + owner.lock_count() as u64;
            let counts = held.filter(|&key| !self.cell.mix.is_exclusive(key));
            let now: u64 = counts.map(|key| self.scene.counts[key as usize].load(Relaxed)).sum();
            self.seen.torn += u64::from(now != shared);
        }
        owner.release_all(None);
    }
}
