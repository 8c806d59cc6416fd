//! Locks on tables and the volume, as a transaction asks for them.

use foreshore_base::{Lsn, TableId};

use super::wish::Wish;
use super::{LockOwner, OwnerState};
use crate::error::LockError;
use crate::intent::{EntryIndex, Heritage, InTable, Inherited, IntentHold, IntentLocks, IntentMode};
use crate::manager::LockManager;
use crate::mode::Mode;
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

impl LockOwner {
    /// Locks a table, or announces locks on its keys. What is held already is added to: IX and S make SIX.
    ///
    /// Whatever the error, the transaction holds what it held before. Must not be called under a latch.
    pub fn intent(
        &mut self,
        table: TableId,
        mode: IntentMode,
        wait: &WaitPolicy<'_>,
    ) -> Result<(), LockError> {
        let entry = EntryIndex::of(table);
        let intents = &self.state().intents;
        let place = intents.iter().position(|held| held.entry == entry);
        let held = place.map(|place| intents[place].mode);
        if held.is_some_and(|held| held.covers(mode)) {
            return Ok(());
        }
        let wanted = held.map_or(mode, |held| held.join(mode));
        let LockOwner { manager, slot, state, .. } = self;
        let state = state.as_mut().expect("an owner has its state until it is dropped");
        let asker = Asker { manager, slot: *slot, table, entry, wait };
        let request = match &manager.intents {
            IntentLocks::Lightweight(_) | IntentLocks::Private(_) => {
                let hold = IntentHold { slot: *slot, place: place.unwrap_or(state.intents.len()), held };
                let tag = match manager.intents.try_request(&manager.slots, entry, hold, wanted) {
                    Some(tag) => tag,
                    None => Wish::Table { entry, hold, wanted }.wait(manager, *slot, table, None, wait)?,
                };
                state.max_tag = state.max_tag.max(tag);
                RequestIndex::NONE
            }
            IntentLocks::InTable(_) => asker.ask(state, place, wanted)?,
            IntentLocks::Inherited(inherited) => asker.inherit(inherited, state, place, wanted)?,
        };
        if manager.intents.are_in_table() {
            manager.slots.get(*slot).intents.set(place.unwrap_or(state.intents.len()), entry, wanted);
        }
        match place {
            Some(place) => state.intents[place].mode = wanted,
            None => state.intents.push(HeldIntent { entry, mode: wanted, request }),
        }
        Ok(())
    }

    /// Locks a table in place of more locks on its keys, if that is free at this moment; never waits, and so is never part of
    /// a deadlock. `false`: somebody is in the way. Allowed only where [`LockOwner::intent`] is.
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
        self.state().intents.iter().find(|held| held.entry == entry).map(|held| held.mode)
    }
}

/// Who asks for an intent lock, and for which.
struct Asker<'a> {
    manager: &'a LockManager,
    slot: SlotId,
    table: TableId,
    entry: EntryIndex,
    wait: &'a WaitPolicy<'a>,
}

impl Asker<'_> {
    /// Asks the lock table. `place`: of what is held already.
    fn ask(
        &self,
        state: &mut OwnerState,
        place: Option<usize>,
        wanted: IntentMode,
    ) -> Result<RequestIndex, LockError> {
        let Asker { manager, slot, table, entry, wait } = *self;
        let (name, mode) = (manager.intent_name(entry), Mode::coarse(wanted));
        let request = match place.map(|place| state.intents[place]) {
            Some(HeldIntent { request, mode: held, .. }) => {
                if manager.table.try_convert(&manager.slots, name, request, mode).is_none() {
                    let wish = Wish::More { name, request, held: Mode::coarse(held), wanted: mode };
                    wish.wait(manager, slot, table, None, wait)?;
                }
                request
            }
            None => {
                let request = state.take_for_intent(manager)?;
                if manager.table.try_request(&manager.slots, name, slot, request, mode).is_some() {
                    request
                } else {
                    state.end_of_intent(manager, request);
                    let request = state.take_for_intent(manager)?;
                    let wish = Wish::New { name, request, wanted: mode };
                    if let Err(error) = wish.wait(manager, slot, table, None, wait) {
                        state.end_of_intent(manager, request);
                        return Err(error);
                    }
                    request
                }
            }
        };
        // The bucket's tag is that of keys.
        state.max_tag = state.max_tag.max(manager.intents.tag(&manager.slots, entry, wanted));
        Ok(request)
    }

    /// Takes over what the last transaction of the slot has left, or asks.
    fn inherit(
        &self,
        inherited: &Inherited,
        state: &mut OwnerState,
        place: Option<usize>,
        wanted: IntentMode,
    ) -> Result<RequestIndex, LockError> {
        let Asker { manager, slot, entry, .. } = *self;
        if place.is_none()
            && let Heritage::Mine(mode, request) = inherited.take(slot, entry)
        {
            if mode == wanted {
                state.max_tag = state.max_tag.max(manager.intents.tag(&manager.slots, entry, wanted));
                return Ok(request);
            }
            // More than is wanted would be in the way of others.
            manager.table.release(&manager.slots, manager.intent_name(entry), request, None);
            state.end_of_intent(manager, request);
        }
        if !wanted.is_absolute() {
            return self.ask(state, place, wanted);
        }
        inherited.announce(&manager.slots, &manager.table, entry, wanted);
        let asked = self.ask(state, place, wanted);
        inherited.renounce(entry);
        asked
    }
}

impl OwnerState {
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
    }

    /// Gives back the intent locks that neither are nor announce a change. Those that stay move together, in the list and where
    /// the slot publishes them.
    pub(super) fn release_reading_intents(&mut self, manager: &LockManager, slot: SlotId) {
        let unmoved = self.intents.iter().take_while(|held| held.mode.writes()).count();
        let released: Vec<HeldIntent> = self.intents.extract_if(.., |held| !held.mode.writes()).collect();
        for (place, held) in self.intents.iter().enumerate().skip(unmoved) {
            manager.intents.relocate(&manager.slots, slot, place, held.entry, held.mode);
        }
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
        inherited.collect(slot, true, |request, name| {
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
