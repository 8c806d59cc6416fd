//! The lock manager: what all transactions share.

#[cfg(not(foreshore_loom))]
mod preallocator;

use std::panic::Location;

use foreshore_base::limits::MAX_TRANSACTIONS;
use foreshore_base::{Lsn, TableId, TxnId};
use foreshore_env::sync::Arc;
#[cfg(not(foreshore_loom))]
use foreshore_env::sync::OnceLock;
use foreshore_env::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use foreshore_env::thread::available_parallelism;
use foreshore_env::time::Duration;
use foreshore_env::{Handle, StripedArc};

use crate::age::Age;
use crate::deadlock::{DeadlockReport, Detector};
use crate::error::{Blocker, LockError, LockMode};
use crate::intent::{EntryIndex, IntentLocks};
use crate::lifeline::Lifeline;
use crate::name::{self, KeyRef, LockName};
use crate::options::{KeyRangeModes, LockOptions};
use crate::owner::LockOwner;
use crate::partitioner::Partitioner;
use crate::slot::{Identity, SlotId, Slots};
use crate::stats::{LockStats, WaitCounters};
use crate::table::LockTable;
use crate::view::Notes;
#[cfg(not(foreshore_loom))]
use preallocator::Preallocator;
#[cfg(not(foreshore_loom))]
pub(crate) use preallocator::Signal;

/// The locks of a database.
#[derive(Debug)]
pub struct LockManager {
    seed: u64,
    partitioner: Option<Partitioner>,
    pub(crate) lifeline: Option<Lifeline>,
    pub(crate) max_locks_per_transaction: usize,
    pub(crate) key_ranges: KeyRangeModes,
    /// Threads that can run at a time: whether spinning makes sense.
    pub(crate) processors: usize,
    /// Waiters that spin instead of sleeping. Written by themselves, read by each other; relaxed.
    pub(crate) spinners: AtomicUsize,
    pub(crate) slots: Slots,
    pub(crate) table: LockTable,
    pub(crate) intents: IntentLocks,
    pub(crate) detector: Detector,
    pub(crate) counters: WaitCounters,
    /// Whether anybody holds locks for good. Written before anybody waits; relaxed.
    pub(crate) somebody_stays: AtomicBool,
    /// If they are kept.
    pub(crate) notes: Option<Notes>,
    /// Of the staged table.
    #[cfg(not(foreshore_loom))]
    preallocator: OnceLock<Option<Preallocator>>,
}

impl LockManager {
    /// A lock manager without any locks.
    pub fn new(options: &LockOptions) -> Arc<LockManager> {
        let manager = Arc::new(LockManager {
            seed: options.seed,
            partitioner: options.partitioner.clone(),
            lifeline: options.lifeline.clone(),
            max_locks_per_transaction: options.max_locks_per_transaction,
            key_ranges: options.key_ranges,
            processors: available_parallelism(),
            spinners: AtomicUsize::new(0),
            slots: Slots::new(),
            table: LockTable::new(options),
            intents: IntentLocks::new(options),
            detector: Detector::new(options),
            counters: WaitCounters::default(),
            somebody_stays: AtomicBool::new(false),
            notes: options.keep_notes.then(Notes::new),
            #[cfg(not(foreshore_loom))]
            preallocator: OnceLock::new(),
        });
        #[cfg(not(foreshore_loom))]
        if let Some(signal) = manager.table.requests().signal() {
            let start = || Preallocator::start(Arc::downgrade(&manager), Arc::clone(signal));
            manager.preallocator.get_or_init(start);
        }
        manager
    }

    /// See [`LockOptions::max_locks_per_transaction`].
    pub fn max_locks_per_transaction(&self) -> usize {
        self.max_locks_per_transaction
    }

    /// The name under which a key is locked.
    ///
    /// # Errors
    /// [`LockError::Partitioner`] only.
    #[inline]
    pub fn name(&self, table: TableId, key: KeyRef<'_>) -> Result<LockName, LockError> {
        let name = name::name(self.seed, table, key);
        match &self.partitioner {
            None => Ok(name),
            Some(partitioner) => partitioner.place(name, table, key),
        }
    }

    /// See [`LockOwner::prefetch_lock`].
    #[inline]
    pub(crate) fn prefetch_lock(&self, table: TableId, key: KeyRef<'_>) {
        if self.partitioner.is_none() {
            self.table.prefetch(name::name(self.seed, table, key));
        }
    }

    /// As [`LockManager::name`], if that name means the same for as long as the seed is the same: where a partitioner
    /// has its part in it, another opening of the database may have another.
    pub fn lasting_name(&self, table: TableId, key: KeyRef<'_>) -> Option<LockName> {
        if self.partitioner.is_some() { None } else { self.name(table, key).ok() }
    }

    /// The name under which a table is locked, when it is locked in the lock table.
    #[inline]
    pub(crate) fn intent_name(&self, entry: EntryIndex) -> LockName {
        name::intent_name(self.seed, entry.0)
    }

    /// Gives a transaction its place. Older ones survive deadlocks. `label`: for reports, which also name the caller of
    /// this.
    #[track_caller]
    pub fn begin(
        self: &Arc<Self>,
        txn: TxnId,
        age: Age,
        label: Option<Arc<str>>,
    ) -> Result<LockOwner, LockError> {
        self.begin_with(|_| (txn, age), |_| Arc::clone(self).into(), label, Location::caller())
    }

    /// As [`LockManager::begin`] of `manager`, for many threads: the owner's reference to it is counted where its slot
    /// is, so that threads that begin at one time have no line of memory in common. `identify` is told the slot;
    /// reports name the call `begun_at`.
    #[inline]
    pub fn begin_striped(
        manager: &StripedArc<LockManager>,
        identify: impl FnOnce(usize) -> (TxnId, Age),
        label: Option<Arc<str>>,
        begun_at: &'static Location<'static>,
    ) -> Result<LockOwner, LockError> {
        manager.begin_with(identify, |place| manager.handle(place), label, begun_at)
    }

    #[inline]
    fn begin_with(
        &self,
        identify: impl FnOnce(usize) -> (TxnId, Age),
        handle: impl FnOnce(usize) -> Handle<LockManager>,
        label: Option<Arc<str>>,
        begun_at: &'static Location<'static>,
    ) -> Result<LockOwner, LockError> {
        let claimed = self.slots.claim(|slot| {
            let (txn, age) = identify(slot.index());
            Identity { begun_at, ..Identity::new(txn, age, label) }
        });
        let (slot, txn, state) = claimed.ok_or(LockError::TooManyTransactions { limit: MAX_TRANSACTIONS })?;
        Ok(LockOwner::new(handle(slot.index()), slot, txn, state))
    }

    /// Whether anybody holds, or waits for, a lock on this name. A key of which this is false, and of which nobody can
    /// learn meanwhile, may be purged. Of a key without a name it is true.
    pub fn has_requests(&self, table: TableId, key: KeyRef<'_>) -> bool {
        self.name(table, key).map_or(true, |name| self.table.is_requested(name))
    }

    /// The highest commit LSN of early releases where this name is: what is read under it may not be durable before
    /// that is. [`Lsn::ZERO`] if there was none; the highest LSN of all for a key without a name (LOCK-19).
    pub fn tag(&self, table: TableId, key: KeyRef<'_>) -> Lsn {
        self.name(table, key).map_or(Lsn(u64::MAX), |name| self.table.tag(name))
    }

    /// Whether nobody holds or wants a lock where this name is, and if so, the highest commit LSN of early releases
    /// there. Writes nothing to shared memory; `None` when in doubt: other names may share the place, and not every
    /// table can tell.
    ///
    /// Of somebody whose lock was granted before what the caller has seen of its changes (by an acquire), this sees the
    /// lock or, if that was released, the tag that it left.
    #[inline]
    pub fn probe(&self, table: TableId, key: KeyRef<'_>) -> Option<Lsn> {
        self.table.probe(self.name(table, key).ok()?)
    }

    /// The newest deadlocks, and waits that were ended lest they become part of one, oldest first:
    /// [`LockOptions::history`] of them at most.
    pub fn deadlocks(&self) -> Vec<Arc<DeadlockReport>> {
        self.detector.history()
    }

    /// For how long transactions have waited for locks by now, all together; those that still wait are not in it.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.counters.waited_ns.load(Relaxed))
    }

    /// What has happened so far.
    pub fn stats(&self) -> LockStats {
        let mut stats = LockStats::default();
        self.counters.fill(&mut stats);
        stats.released = self.slots.used().map(|(_, slot)| slot.released.load(Relaxed)).sum();
        stats
    }

    /// Whether there are no locks and nobody waits: what must hold when all transactions have ended.
    pub fn is_empty(&self) -> bool {
        self.intents.is_empty(&self.slots, &self.table) && self.table.is_empty()
    }

    /// Turns slots into what people know.
    #[cold]
    pub(crate) fn describe(&self, holders: Vec<(SlotId, LockMode)>) -> Vec<Blocker> {
        let describe = |(slot, mode)| {
            let slot = self.slots.get(slot);
            let (label, age) = slot.identity().map(|who| (who.label, who.age)).unzip();
            Blocker { txn: slot.txn(), label: label.flatten(), priority: age.map(Age::priority), mode }
        };
        holders.into_iter().map(describe).collect()
    }
}
