//! Locks on tables and the volume, as a transaction asks for them.

use foreshore_base::{Lsn, TableId};

use super::wish::Wish;
use super::{LockOwner, OwnerState};
use crate::error::LockError;
use crate::intent::{EntryIndex, Heritage, InTable, Inherited, IntentHold, IntentLocks, IntentMode};
use crate::manager::LockManager;
use crate::mode::KeyMode;
use crate::name::LockName;
use crate::request::RequestIndex;
use crate::slot::SlotId;
use crate::stats::WaitCounters;
use crate::wait::WaitPolicy;

/// An intent lock that a transaction holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldIntent {
    pub(super) entry: EntryIndex,
    pub(super) mode: IntentMode,
    /// Its request, for the kinds that have one.
    request: RequestIndex,
}

/// An intent lock that is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coarse {
    entry: EntryIndex,
    /// The place in the list of held locks of the one that is held on this table already.
    place: Option<usize>,
    /// Covers what is held.
    wanted: IntentMode,
}

/// What came of an attempt to lock a table without waiting.
enum Attempt {
    /// It holds this.
    Held(IntentMode),
    /// Somebody is in the way.
    Blocked(Coarse, Wish),
}

impl LockOwner {
    /// Locks a table, or announces locks on its keys. What is held already is added to: IX and S make SIX. Gives what
    /// it holds then.
    ///
    /// Whatever the error, the transaction holds what it held before. Must not be called under a latch.
    pub fn intent(
        &mut self,
        table: TableId,
        mode: IntentMode,
        wait: &WaitPolicy<'_>,
    ) -> Result<IntentMode, LockError> {
        let (coarse, wish) = match self.attempt_intent(table, mode)? {
            Attempt::Held(held) => return Ok(held),
            Attempt::Blocked(coarse, wish) => (coarse, wish),
        };
        let outcome = wish.wait(&self.manager, self.slot, table, None, wait);
        self.settle_intent(coarse, wish, outcome)?;
        Ok(coarse.wanted)
    }

    /// As [`LockOwner::intent`], but comes back when it would wait, as [`LockOwner::ask`] does.
    pub fn ask_intent(
        &mut self,
        table: TableId,
        mode: IntentMode,
        wait: &WaitPolicy<'_>,
    ) -> Result<bool, LockError> {
        match self.attempt_intent(table, mode)? {
            Attempt::Held(_) => Ok(true),
            Attempt::Blocked(coarse, wish) => self.begin_asking(wish, Some(coarse), table, None, wait),
        }
    }

    /// Takes an intent lock if it is free; else says what to wait for.
    fn attempt_intent(&mut self, table: TableId, mode: IntentMode) -> Result<Attempt, LockError> {
        let entry = EntryIndex::of(table);
        let state = self.state();
        let place = state.place_of(entry);
        let held = place.map(|place| state.intents[place].mode);
        if let Some(held) = held.filter(|held| held.covers(mode)) {
            return Ok(Attempt::Held(held));
        }
        let wanted = held.map_or(mode, |held| held.join(mode));
        let coarse = Coarse { entry, place, wanted };
        let (manager, slot, state) = self.parts();
        let blocked = match &manager.intents {
            IntentLocks::Lightweight(_) | IntentLocks::Private(_) => {
                let hold = IntentHold { slot, place: place.unwrap_or(state.intents.len()), held };
                match manager.intents.try_request(&manager.slots, entry, hold, wanted) {
                    Some(tag) => {
                        state.enter(coarse, RequestIndex::NONE, tag);
                        None
                    }
                    None => Some(Wish::Table { entry, hold, wanted }),
                }
            }
            IntentLocks::InTable(_) => state.attempt_in_table(manager, slot, coarse)?,
            IntentLocks::Inherited(inherited) => state.inherit(manager, inherited, slot, coarse)?,
        };
        Ok(match blocked {
            None => Attempt::Held(wanted),
            Some(wish) => Attempt::Blocked(coarse, wish),
        })
    }

    /// Takes note of how a wait for an intent lock has ended.
    #[cold]
    pub(super) fn settle_intent(
        &mut self,
        coarse: Coarse,
        wish: Wish,
        outcome: Result<Lsn, LockError>,
    ) -> Result<(), LockError> {
        let (manager, slot, state) = self.parts();
        if let (IntentLocks::Inherited(inherited), true) = (&manager.intents, coarse.wanted.is_absolute()) {
            inherited.renounce(coarse.entry);
        }
        match (wish, outcome) {
            (Wish::Table { .. }, Ok(tag)) => state.enter(coarse, RequestIndex::NONE, tag),
            (Wish::New { request, .. } | Wish::More { request, .. }, Ok(_)) => {
                state.enter_in_table(manager, slot, coarse, request);
            }
            (Wish::New { request, .. }, Err(error)) => {
                state.end_of_intent(manager, request);
                return Err(error);
            }
            (Wish::Table { .. } | Wish::More { .. }, Err(error)) => return Err(error),
        }
        Ok(())
    }

    /// Locks a table in place of more locks on its keys, if that is free at this moment; never waits, and so is never
    /// part of a deadlock. `false`: somebody is in the way. Allowed only where [`LockOwner::intent`] is.
    pub fn escalate(&mut self, table: TableId, mode: IntentMode) -> bool {
        let wait = WaitPolicy { no_wait: true, ..WaitPolicy::default() };
        let escalated = self.intent(table, mode, &wait).is_ok();
        let counters = &self.manager.counters;
        WaitCounters::add(if escalated { &counters.escalations } else { &counters.escalations_refused });
        escalated
    }

    /// What it holds on a table.
    pub fn held_intent(&self, table: TableId) -> Option<IntentMode> {
        let entry = EntryIndex::of(table);
        let state = self.state();
        state.place_of(entry).map(|place| state.intents[place].mode)
    }
}

impl OwnerState {
    /// Where the intent lock on an entry is, if there is one.
    #[inline]
    fn place_of(&self, entry: EntryIndex) -> Option<usize> {
        self.places.place(&self.intents, entry, |held| held.entry)
    }

    /// An intent lock is granted.
    #[inline]
    fn enter(&mut self, coarse: Coarse, request: RequestIndex, tag: Lsn) {
        let Coarse { entry, place, wanted: mode } = coarse;
        self.max_tag = self.max_tag.max(tag);
        match place {
            Some(place) => self.intents[place].mode = mode,
            None => {
                self.intents.push(HeldIntent { entry, mode, request });
                self.places.note_last(&self.intents, |held| held.entry);
            }
        }
    }

    /// An intent lock is granted that is a request in the lock table. The bucket's tag is that of keys.
    fn enter_in_table(&mut self, manager: &LockManager, slot: SlotId, coarse: Coarse, request: RequestIndex) {
        let Coarse { entry, place, wanted } = coarse;
        let published = place.unwrap_or(self.intents.len());
        self.enter(coarse, request, manager.intents.tag(&manager.slots, entry, wanted));
        manager.slots.get(slot).intents.set(published, entry, wanted);
    }

    /// Asks the lock table. Gives what to wait for if it is not free.
    fn attempt_in_table(
        &mut self,
        manager: &LockManager,
        slot: SlotId,
        coarse: Coarse,
    ) -> Result<Option<Wish>, LockError> {
        let (name, wanted) = (manager.intent_name(coarse.entry), KeyMode::coarse(coarse.wanted));
        let request = match coarse.place.map(|place| self.intents[place]) {
            Some(HeldIntent { request, mode, .. }) => {
                if manager.table.try_convert(&manager.slots, name, request, wanted).is_none() {
                    return Ok(Some(Wish::More { name, request, held: KeyMode::coarse(mode), wanted }));
                }
                request
            }
            None => {
                let request = self.take_for_intent(manager)?;
                if manager.table.try_request(&manager.slots, name, slot, request, wanted).is_none() {
                    self.end_of_intent(manager, request);
                    let request = self.take_for_intent(manager)?;
                    return Ok(Some(Wish::New { name, request, wanted }));
                }
                request
            }
        };
        self.enter_in_table(manager, slot, coarse, request);
        Ok(None)
    }

    /// Takes over what the last transaction of the slot has left, or asks.
    fn inherit(
        &mut self,
        manager: &LockManager,
        inherited: &Inherited,
        slot: SlotId,
        coarse: Coarse,
    ) -> Result<Option<Wish>, LockError> {
        let Coarse { entry, place, wanted } = coarse;
        if place.is_none()
            && let Heritage::Mine(mode, request) = inherited.take(slot, entry)
        {
            if mode == wanted {
                self.enter_in_table(manager, slot, coarse, request);
                return Ok(None);
            }
            // More than is wanted would be in the way of others.
            manager.table.release(&manager.slots, manager.intent_name(entry), request, None);
            self.end_of_intent(manager, request);
        }
        if !wanted.is_absolute() {
            return self.attempt_in_table(manager, slot, coarse);
        }
        inherited.announce(&manager.slots, &manager.table, entry, wanted);
        let asked = self.attempt_in_table(manager, slot, coarse);
        if !matches!(asked, Ok(Some(_))) {
            inherited.renounce(entry);
        }
        asked
    }

    /// Gives all intent locks back.
    #[inline]
    pub(super) fn release_intents(&mut self, manager: &LockManager, slot: SlotId, tag: Option<Lsn>) {
        match &manager.intents {
            IntentLocks::Lightweight(_) | IntentLocks::Private(_) => {
                if !self.intents.is_empty() {
                    let held = self.intents.iter().rev().map(|held| (held.entry, held.mode));
                    manager.intents.release(&manager.slots, slot, 0, held, tag);
                    self.intents.clear();
                }
            }
            IntentLocks::InTable(in_table) => {
                manager.slots.get(slot).intents.truncate(0);
                self.release_in_table(in_table, manager, tag);
            }
            IntentLocks::Inherited(inherited) => {
                manager.slots.get(slot).intents.truncate(0);
                self.release_to_heirs(inherited, manager, slot, tag);
            }
        }
        self.places.note_all(&self.intents, |held| held.entry);
    }

    /// Gives back the intent locks that neither are nor announce a change. Those that stay move together, in the list
    /// and where the slot publishes them.
    pub(super) fn release_reading_intents(&mut self, manager: &LockManager, slot: SlotId) {
        let unmoved = self.intents.iter().take_while(|held| held.mode.writes()).count();
        let released: Vec<HeldIntent> = self.intents.extract_if(.., |held| !held.mode.writes()).collect();
        for (place, held) in self.intents.iter().enumerate().skip(unmoved) {
            manager.intents.relocate(&manager.slots, slot, place, held.entry, held.mode);
        }
        self.places.note_all(&self.intents, |held| held.entry);
        let kept = self.intents.len();
        if manager.intents.are_in_table() {
            manager.slots.get(slot).intents.truncate(kept);
            for held in released {
                let name = manager.intent_name(held.entry);
                manager.table.release(&manager.slots, name, held.request, None);
                self.end_of_intent(manager, held.request);
            }
        } else if !released.is_empty() {
            let released = released.iter().map(|held| (held.entry, held.mode));
            manager.intents.release(&manager.slots, slot, kept, released, None);
        }
    }

    fn release_in_table(&mut self, in_table: &InTable, manager: &LockManager, tag: Option<Lsn>) {
        while let Some(HeldIntent { entry, mode, request }) = self.intents.pop() {
            if let Some(tag) = tag {
                in_table.tags(entry).leave(mode, tag);
            }
            manager.table.release(&manager.slots, manager.intent_name(entry), request, None);
            self.end_of_intent(manager, request);
        }
    }

    fn release_to_heirs(
        &mut self,
        inherited: &Inherited,
        manager: &LockManager,
        slot: SlotId,
        tag: Option<Lsn>,
    ) {
        // What nobody has taken over, this transaction did not need.
        let release = |name: LockName, request| manager.table.release(&manager.slots, name, request, None);
        inherited.collect(slot, |request, name| {
            if let Some(name) = name {
                release(name, request);
            }
            self.end_of_intent(manager, request);
        });
        // Borrowed requests cannot stay behind: they are given back as a whole.
        let may_leave = self.free.borrowed.is_empty();
        while let Some(HeldIntent { entry, mode, request }) = self.intents.pop() {
            if let Some(tag) = tag {
                inherited.tags(entry).leave(mode, tag);
            }
            let name = manager.intent_name(entry);
            let leave = may_leave && !mode.is_absolute();
            if !(leave && inherited.leave(slot, entry, mode, name, request)) {
                release(name, request);
                self.end_of_intent(manager, request);
            }
        }
    }

    fn take_for_intent(&mut self, manager: &LockManager) -> Result<RequestIndex, LockError> {
        let held = self.requests_in_use();
        let request = manager.table.take_request(&mut self.free, held)?;
        self.intent_requests += 1;
        Ok(request)
    }

    /// A request for an intent lock was released, or is of a failed attempt.
    fn end_of_intent(&mut self, manager: &LockManager, request: RequestIndex) {
        self.intent_requests -= 1;
        self.free.give(manager.table.requests(), request);
    }
}
