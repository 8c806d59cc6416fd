//! Locks that outlive their transaction: in a pipeline until the flush, in the hands of whoever prepared it, over a
//! restart.

use std::panic::Location;

use foreshore_base::{Lsn, TxnId};
use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::Ordering::Relaxed;

use super::LockOwner;
use super::held::HeldLock;
use crate::age::Age;
use crate::error::LockError;
use crate::mode::KeyMode;
use crate::name::LockName;
use crate::slot::Identity;

impl LockOwner {
    /// Moves the locks, and a wait that was asked for, to a new owner of the same slot, for whom they are held from now
    /// on. This one holds nothing any more, and must only be dropped.
    #[must_use]
    pub fn hand_over(&mut self) -> LockOwner {
        LockOwner {
            manager: self.manager.clone(),
            slot: self.slot,
            txn: self.txn,
            state: self.state.take(),
            asked: self.asked.take(),
        }
    }

    /// [`LockOwner::release_all`], if there is anything left.
    pub fn release_rest(&mut self, tag: Option<Lsn>) {
        let state = self.state();
        // Released once more, an inherited intent lock would be one that a transaction did not need.
        if !state.released || state.held.len() > 0 || !state.intents.is_empty() {
            self.release_all(tag);
        }
    }

    /// Leaves the locks in everybody's way for ever, and the transaction's place with them: what they protect must not
    /// be seen. For a database that has stopped, whose waits end otherwise ([`crate::Lifeline`]). This owner must only
    /// be dropped.
    pub fn abandon(&mut self) {
        self.stop_asking();
        self.state = None;
    }

    /// What reports and views call the transaction from now on.
    pub fn relabel(&mut self, label: Arc<str>) {
        self.manager.slots.get(self.slot).relabel(label);
    }

    /// Nobody will end this transaction for as long as there is its lock manager: a transaction that would have to wait
    /// for it is refused at once, as if by [`WaitPolicy::no_wait`](crate::WaitPolicy::no_wait). To be called before
    /// anybody asks for a lock that it has.
    pub fn stay(&mut self) {
        self.manager.slots.get(self.slot).stay();
        self.manager.somebody_stays.store(true, Relaxed);
    }

    /// Goes on as the next transaction of a pipeline, with the locks that the ones before it have left. `completed`:
    /// how many they are, for [`VictimPolicy::ShortestPipeline`](crate::VictimPolicy::ShortestPipeline). Reports name
    /// the call `begun_at`.
    pub fn renew(
        &mut self,
        txn: TxnId,
        age: Age,
        label: Option<Arc<str>>,
        completed: u32,
        begun_at: &'static Location<'static>,
    ) {
        self.txn = txn;
        let state = self.state_mut();
        (state.max_tag, state.released, state.waited) = (Lsn::ZERO, false, false);
        let identity = Identity { begun_at, ..Identity::new(txn, age, label) };
        self.manager.slots.get(self.slot).renew(identity, completed);
    }

    /// Takes a lock that the transaction held before a restart, by its name, before anybody else can have one. Each
    /// name once. However many they are: they were granted under other limits, perhaps, than the manager has
    /// ([`LockOptions::max_locks_per_transaction`](crate::LockOptions::max_locks_per_transaction)).
    ///
    /// # Errors
    /// `TooManyLocks` if those of all transactions are in use; `WouldBlock` if somebody is in the way all the same.
    pub fn restore(&mut self, name: LockName, mode: KeyMode) -> Result<(), LockError> {
        let (manager, slot, state) = self.parts();
        let held = state.requests_in_use();
        let request = manager.table.take_request(&mut state.free, held)?;
        match manager.table.try_request(&manager.slots, name, slot, request, mode) {
            Some(_) => {
                state.held.push(HeldLock::new(name, request, mode));
                Ok(())
            }
            None => {
                state.free.give(manager.table.requests(), request);
                Err(LockError::WouldBlock(Box::default()))
            }
        }
    }

    /// Releases the locks under which nothing can have been changed, of a transaction that asks for no more (S-ELR,
    /// Kimura et al. 2012, §5.1). Those that announce or allow a change stay.
    pub fn release_shared(&mut self) {
        let kept = self.state().held.kept();
        if self.state().held.as_slice()[kept..].iter().any(|lock| !lock.mode.is_exclusive()) {
            self.release_chosen(kept, |lock| !lock.mode.is_exclusive(), None, |_| {});
        }
        let (manager, slot, state) = self.parts();
        state.held.keep();
        state.release_reading_intents(manager, slot);
    }
}
