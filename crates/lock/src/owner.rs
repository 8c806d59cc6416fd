//! A transaction as the lock manager sees it: what it holds, and how it asks for more.

mod asked;
mod check;
mod coarse;
pub(crate) mod crowd;
mod held;
mod outlive;
mod wish;

use foreshore_base::{Lsn, Places, TableId, TxnId};
use foreshore_env::{Handle, sync::atomic::Ordering::Relaxed};

use crate::deadlock::KeyBytes;
use crate::error::LockError;
use crate::intent::EntryIndex;
use crate::manager::LockManager;
use crate::mode::KeyMode;
use crate::name::{KeyRef, LockName};
use crate::request::{FreeRequests, RequestIndex};
use crate::slot::SlotId;
use crate::wait::WaitPolicy;
use asked::Asked;
use coarse::HeldIntent;
use held::{HeldLock, HeldLocks};
use wish::Wish;

/// What a slot keeps for its owners, one after another.
#[derive(Debug)]
pub(crate) struct OwnerState {
    held: HeldLocks,
    free: FreeRequests,
    /// Intent locks held, at the places where the slot publishes them.
    intents: Vec<HeldIntent>,
    /// Where they are, by [`HeldIntent::entry`].
    places: Places<EntryIndex>,
    /// Requests in the lock table for intent locks, held or left to heirs.
    intent_requests: usize,
    /// The highest tag seen.
    max_tag: Lsn,
    /// Whether the transaction has released its locks. What its heirs are left is theirs then.
    released: bool,
    /// Whether a lock on a key was not free.
    waited: bool,
}

impl OwnerState {
    pub(crate) fn new(slot: SlotId) -> OwnerState {
        let (held, free) = (HeldLocks::new(), FreeRequests::new(slot));
        OwnerState {
            held,
            free,
            intents: Vec::with_capacity(8),
            places: Places::default(),
            intent_requests: 0,
            max_tag: Lsn::ZERO,
            released: false,
            waited: false,
        }
    }
}

/// The locks of one transaction. Only its transaction uses it; it may move between threads. Dropping it releases
/// everything.
#[derive(Debug)]
pub struct LockOwner {
    manager: Handle<LockManager>,
    slot: SlotId,
    txn: TxnId,
    /// `None` while it is dropped, and after it was handed over.
    state: Option<Box<OwnerState>>,
    /// What was asked for by [`LockOwner::ask`] and is not granted yet.
    asked: Option<Box<Asked>>,
}

impl LockOwner {
    pub(crate) fn new(
        manager: Handle<LockManager>,
        slot: SlotId,
        txn: TxnId,
        mut state: Box<OwnerState>,
    ) -> LockOwner {
        debug_assert!(state.held.len() == 0 && state.intents.is_empty(), "the last owner left locks");
        state.max_tag = Lsn::ZERO;
        (state.released, state.waited) = (false, false);
        LockOwner { manager, slot, txn, state: Some(state), asked: None }
    }

    #[inline]
    fn state(&self) -> &OwnerState {
        self.state.as_ref().expect("an owner has its state until it is dropped or handed over")
    }

    #[inline]
    fn state_mut(&mut self) -> &mut OwnerState {
        self.parts().2
    }

    /// What it asks, in whose name, and what that changes.
    #[inline]
    fn parts(&mut self) -> (&LockManager, SlotId, &mut OwnerState) {
        let LockOwner { manager, slot, state, .. } = self;
        let state = state.as_mut().expect("an owner has its state until it is dropped or handed over");
        (manager, *slot, state)
    }

    /// Which of the 1,024 places it has: most often that of the owner which its thread had before.
    pub fn place(&self) -> usize {
        self.slot.index()
    }

    /// The transaction.
    pub fn txn(&self) -> TxnId {
        self.txn
    }

    /// Whether a lock on a key was not free when it asked for it.
    pub fn has_waited(&self) -> bool {
        self.state().waited
    }

    /// How many locks on keys it holds.
    pub fn lock_count(&self) -> usize {
        self.state().held.len()
    }

    /// The highest tag seen by its acquisitions: a transaction that has only read waits until this LSN is durable
    /// before it tells anybody what it has read. Stays after [`LockOwner::release_all`].
    pub fn max_tag(&self) -> Lsn {
        self.state().max_tag
    }

    /// What it holds on a key: N if nothing.
    ///
    /// # Errors
    /// [`LockError::Partitioner`] only.
    #[inline]
    pub fn held(&self, table: TableId, key: KeyRef<'_>) -> Result<KeyMode, LockError> {
        let name = self.manager.name(table, key)?;
        Ok(self.state().held.of(name).map_or(KeyMode::N, |lock| lock.mode))
    }

    /// Whether [`LockOwner::acquire`] would have nothing to do: what is held covers `mode`. No access to shared memory.
    ///
    /// # Errors
    /// [`LockError::Partitioner`] only.
    #[inline]
    pub fn holds(&self, table: TableId, key: KeyRef<'_>, mode: KeyMode) -> Result<bool, LockError> {
        let mode = self.manager.key_ranges.widen(mode);
        Ok(self.held(table, key)?.covers(mode))
    }

    /// The locks on keys that it holds, in the order of their acquisition.
    pub fn held_names(&self) -> impl Iterator<Item = (LockName, KeyMode)> {
        self.state().held.as_slice().iter().map(|lock| (lock.name, lock.mode))
    }

    /// Has the place of a key's lock come from memory, if it is not near: the lock will be asked for soon. Does nothing
    /// with a partitioner, whose answers may take long.
    #[inline]
    pub fn prefetch_lock(&self, table: TableId, key: KeyRef<'_>) {
        self.manager.prefetch_lock(table, key);
    }

    /// Locks a key, the gap above it, or both, waiting as long as `wait` allows. What is held already is added to; a
    /// lock that is held in a mode that covers this one costs no access to shared memory.
    ///
    /// Whatever the error, the transaction holds what it held before. Must not be called under a latch. What is locked
    /// is the weakest mode of [`crate::LockOptions::key_ranges`] that covers `mode`.
    #[inline(always)]
    pub fn acquire(
        &mut self,
        table: TableId,
        key: KeyRef<'_>,
        mode: KeyMode,
        wait: &WaitPolicy<'_>,
    ) -> Result<(), LockError> {
        let name = self.manager.name(table, key)?;
        let mode = self.manager.key_ranges.widen(mode);
        let request = match self.attempt(table, key, name, mode)? {
            Attempt::Done => return Ok(()),
            Attempt::Blocked(request) => request,
        };
        self.acquire_slowly(table, key, name, mode, request, wait)
    }

    /// As [`LockOwner::acquire`], but never waits; `false` if that would be needed. Allowed under a latch.
    #[inline]
    pub fn try_acquire(&mut self, table: TableId, key: KeyRef<'_>, mode: KeyMode) -> Result<bool, LockError> {
        let mode = self.manager.key_ranges.widen(mode);
        match self.attempt(table, key, self.manager.name(table, key)?, mode)? {
            Attempt::Done => Ok(true),
            Attempt::Blocked(request) => {
                self.give_back(request);
                Ok(false)
            }
        }
    }

    /// Takes a lock if it is free.
    #[inline]
    fn attempt(
        &mut self,
        table: TableId,
        key: KeyRef<'_>,
        name: LockName,
        mode: KeyMode,
    ) -> Result<Attempt, LockError> {
        let (manager, slot, state) = self.parts();
        if let Some(place) = state.held.find(name) {
            let lock = state.held.get(place);
            if lock.mode.covers(mode) {
                return Ok(Attempt::Done);
            }
            return Ok(state.attempt_conversion(manager, place, mode));
        }
        if mode == KeyMode::N {
            return Ok(Attempt::Done);
        }
        if state.held.len() >= manager.max_locks_per_transaction {
            return Err(LockError::TooManyLocks { limit: manager.max_locks_per_transaction });
        }
        let held = state.requests_in_use();
        let request = manager.table.take_request(&mut state.free, held)?;
        match manager.table.try_request(&manager.slots, name, slot, request, mode) {
            Some(tag) => {
                state.max_tag = state.max_tag.max(tag);
                state.held.push(HeldLock::new(name, request, mode));
                if let Some(notes) = &manager.notes {
                    notes.write(slot, name, table, key);
                }
                Ok(Attempt::Done)
            }
            None => Ok(Attempt::Blocked(Some(request))),
        }
    }

    /// A request that was taken for an attempt and is in no queue.
    fn give_back(&mut self, request: Option<RequestIndex>) {
        if let Some(request) = request {
            let (manager, _, state) = self.parts();
            state.free.give(manager.table.requests(), request);
        }
    }

    /// The request of a failed attempt, or another if that was used up.
    fn usable(&mut self, request: RequestIndex) -> Result<RequestIndex, LockError> {
        let (manager, _, state) = self.parts();
        state.free.give(manager.table.requests(), request);
        let held = state.requests_in_use();
        manager.table.take_request(&mut state.free, held)
    }

    /// The rest of [`LockOwner::acquire`], after an attempt. `request`: for a new lock; none for a conversion.
    #[cold]
    fn acquire_slowly(
        &mut self,
        table: TableId,
        key: KeyRef<'_>,
        name: LockName,
        mode: KeyMode,
        request: Option<RequestIndex>,
        wait: &WaitPolicy<'_>,
    ) -> Result<(), LockError> {
        let Some(wish) = self.wish(name, mode, request)? else { return Ok(()) };
        self.state_mut().waited = true;
        let outcome = wish.wait(&self.manager, self.slot, table, KeyBytes::of(key), wait);
        self.settle(wish, outcome)?;
        self.note(wish, table, key);
        Ok(())
    }

    /// Writes down whose key a new lock is on, for those who look on.
    fn note(&self, wish: Wish, table: TableId, key: KeyRef<'_>) {
        if let (Some(notes), Wish::New { name, .. }) = (&self.manager.notes, wish) {
            notes.write(self.slot, name, table, key);
        }
    }

    /// What to wait for, after an attempt.
    fn wish(
        &mut self,
        name: LockName,
        mode: KeyMode,
        request: Option<RequestIndex>,
    ) -> Result<Option<Wish>, LockError> {
        let request = request.map(|request| self.usable(request)).transpose()?;
        let held = self.state().held.find(name).map(|place| self.state().held.get(place));
        let wanted = held.map_or(mode, |held| self.manager.key_ranges.widen(held.mode.join(mode)));
        Ok(match (request, held) {
            (Some(request), _) => Some(Wish::New { name, request, wanted }),
            (None, Some(held)) => Some(Wish::More { name, request: held.request, held: held.mode, wanted }),
            (None, None) => None,
        })
    }

    /// Takes note of how a wait for a lock on a key has ended.
    fn settle(&mut self, wish: Wish, outcome: Result<Lsn, LockError>) -> Result<(), LockError> {
        match (wish, outcome) {
            (Wish::New { name, request, wanted }, Ok(tag)) => {
                let state = self.state_mut();
                state.max_tag = state.max_tag.max(tag);
                state.held.push(HeldLock::new(name, request, wanted));
            }
            (Wish::More { name, wanted, .. }, Ok(tag)) => {
                let state = self.state_mut();
                state.max_tag = state.max_tag.max(tag);
                if let Some(place) = state.held.find(name) {
                    state.held.set_mode(place, wanted);
                }
            }
            (Wish::New { request, .. }, Err(error)) => {
                self.give_back(Some(request));
                return Err(error);
            }
            (Wish::More { .. } | Wish::Table { .. }, outcome) => {
                outcome?;
            }
        }
        Ok(())
    }

    /// Releases all locks: there is no way to release a chosen one (LOCK-10). With the LSN of the commit record: before
    /// that is durable (safe SX-ELR; Kimura et al. 2012, Alg. 7), and the LSN stays as a tag where something may have
    /// been changed.
    pub fn release_all(&mut self, tag: Option<Lsn>) {
        if self.asked.is_some() {
            self.stop_asking();
        }
        let (manager, slot, state) = self.parts();
        let published = manager.slots.get(slot);
        if state.held.len() > 0 {
            let reuses = manager.table.reuses_requests();
            for lock in state.held.as_slice().iter().rev() {
                let awaited = manager.table.release(&manager.slots, lock.name, lock.request, tag);
                lock.ended(awaited);
                if reuses {
                    state.free.give_released(lock.request);
                }
            }
            let released = published.released.load(Relaxed) + state.held.len() as u64;
            published.released.store(released, Relaxed);
            state.held.clear();
            if let Some(notes) = &manager.notes {
                notes.forget(slot);
            }
        } else if state.held.is_large() {
            // They were given back in parts.
            state.held.clear();
        }
        state.release_intents(manager, slot, tag);
        state.free.settle(manager.table.requests());
        state.released = true;
    }
}

impl OwnerState {
    /// Requests that are in queues.
    #[inline]
    fn requests_in_use(&self) -> usize {
        self.held.len() + self.intent_requests
    }

    #[cold]
    fn attempt_conversion(&mut self, manager: &LockManager, place: usize, mode: KeyMode) -> Attempt {
        let lock = self.held.get(place);
        // What two modes of a set make together need not be one.
        let wanted = manager.key_ranges.widen(lock.mode.join(mode));
        match manager.table.try_convert(&manager.slots, lock.name, lock.request, wanted) {
            Some(tag) => {
                self.max_tag = self.max_tag.max(tag);
                self.held.set_mode(place, wanted);
                Attempt::Done
            }
            None => Attempt::Blocked(None),
        }
    }
}

impl Drop for LockOwner {
    fn drop(&mut self) {
        if self.state.is_none() {
            return;
        }
        self.stop_asking();
        self.release_rest(None);
        if let Some(mut state) = self.state.take() {
            state.free.settle(self.manager.table.requests());
            self.manager.slots.release(self.slot, state);
        }
    }
}

/// What came of an attempt to lock without waiting.
enum Attempt {
    /// The lock is held.
    Done,
    /// Somebody is in the way. For a new lock the request that was taken for it, in no queue.
    Blocked(Option<RequestIndex>),
}
