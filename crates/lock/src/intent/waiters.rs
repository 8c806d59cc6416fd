//! Those who wait for an entry: a list in the order of arrival, which is also the announcement of absolute requests. A
//! new request is not granted past an earlier waiter that it conflicts with.

use foreshore_env::sync::Mutex;
use foreshore_env::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::{EntryIndex, IntentHold, IntentMode};
use crate::deadlock::SlotSet;
use crate::error::LockMode;
use crate::slot::{SlotId, Slots, Subject, WaitWord};
use crate::table::{Wakes, Withdrawn};

/// A transaction that waits for an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) hold: IntentHold,
    /// What it wants; covers what it holds.
    pub(super) wanted: IntentMode,
}

/// The waiters of an entry, oldest first. Guarded by the latch of the entry; the mutex is never contended.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// The length of `list`, for a look without the mutex.
    count: AtomicU32,
    list: Mutex<Vec<Waiter>>,
}

impl Waiters {
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Whether no waiter conflicts with a newcomer.
    #[inline]
    pub(super) fn allow(&self, wanted: IntentMode) -> bool {
        self.count() == 0 || self.list.lock().iter().all(|waiter| waiter.wanted.compatible(wanted))
    }

    /// Begins the wait of somebody who cannot be granted what it wants.
    pub(super) fn begin_wait(
        &self,
        slots: &Slots,
        index: EntryIndex,
        hold: IntentHold,
        wanted: IntentMode,
    ) -> WaitWord {
        let waiter = Waiter { hold, wanted };
        let blockers = self.blockers(slots, index, &waiter);
        let mut list = self.list.lock();
        list.push(waiter);
        self.count.store(list.len() as u32, Relaxed);
        slots.wait_of(hold.slot).begin(Subject::Table(index), &blockers)
    }

    /// Ends the wait of a slot, however it stands (LOCK-6). If it was not granted, `pass` grants to the others what can
    /// be granted; it is told who has gone, unless that one stays as a holder.
    pub(super) fn end_wait(
        &self,
        slots: &Slots,
        slot: SlotId,
        pass: impl FnOnce(Option<SlotId>),
    ) -> Withdrawn {
        let wait = slots.wait_of(slot);
        let word = wait.word();
        wait.leave();
        if word.is_granted() {
            return Withdrawn::Granted;
        }
        let holds = self.remove(slot).is_some_and(|waiter| waiter.hold.held.is_some());
        pass((!holds).then_some(slot));
        if word.is_victim() { Withdrawn::Victim } else { Withdrawn::Gone }
    }

    /// Takes a waiter off the list.
    fn remove(&self, slot: SlotId) -> Option<Waiter> {
        let mut list = self.list.lock();
        let place = list.iter().position(|waiter| waiter.hold.slot == slot);
        let removed = place.map(|place| list.remove(place));
        self.count.store(list.len() as u32, Relaxed);
        removed
    }

    /// LOCK-11: somebody holds a mode now that may be in the way of those who wait.
    pub(super) fn announce(&self, slots: &Slots, slot: SlotId, granted: IntentMode) {
        if self.count() > 0 {
            announce(slots, &self.list.lock(), slot, granted);
        }
    }

    /// Grants to waiters what can be granted, conversions first, then oldest first. `left` has neither a lock nor a
    /// wish here any more. `free` says whether the holders allow a wish, `grant` makes a waiter a holder. Stops
    /// granting when `wakes` is full.
    #[cold]
    pub(super) fn pass(
        &self,
        slots: &Slots,
        left: Option<SlotId>,
        wakes: &mut Wakes,
        free: impl Fn(IntentHold, IntentMode) -> bool,
        grant: impl Fn(IntentHold, IntentMode),
    ) {
        let mut list = self.list.lock();
        if let Some(left) = left {
            list.iter().for_each(|waiter| slots.wait_of(waiter.hold.slot).digest().remove(left));
        }
        for conversions in [true, false] {
            // Modes that those before want, and that were not free for a newcomer: nor are they for the next one, since
            // there are only more holders now. To ask may be a look at all transactions.
            let (mut before, mut refused) = (0, 0);
            let mut place = 0;
            while let Some(&Waiter { hold, wanted }) = list.get(place) {
                let wait = slots.wait_of(hold.slot);
                let may_pass = hold.held.is_some() == conversions
                    && (conversions || before & wanted.conflicts() == 0 && refused & wanted.bit() == 0)
                    && wait.word().is_waiting()
                    && !wakes.is_full();
                if may_pass && free(hold, wanted) {
                    list.remove(place);
                    self.count.store(list.len() as u32, Relaxed);
                    grant(hold, wanted);
                    announce(slots, &list, hold.slot, wanted);
                    wait.grant();
                    wakes.add(hold.slot);
                    continue;
                }
                before |= wanted.bit();
                refused |= if may_pass && !conversions { wanted.bit() } else { 0 };
                place += 1;
            }
        }
    }

    /// Whom a waiter, or somebody who is about to become one, waits for.
    pub(super) fn blockers(&self, slots: &Slots, index: EntryIndex, waiter: &Waiter) -> SlotSet {
        let mut blockers = SlotSet::default();
        self.obstacles(slots, index, waiter, |other, _| blockers.insert(other));
        blockers
    }

    /// Whom the waiter of this slot waits for, if it is still in the wait `word`; `see` is called with them.
    pub(super) fn blockers_of(
        &self,
        slots: &Slots,
        index: EntryIndex,
        slot: SlotId,
        word: WaitWord,
        see: impl FnOnce(&SlotSet),
    ) -> Option<SlotSet> {
        let waiter = self.list.lock().iter().find(|waiter| waiter.hold.slot == slot).copied()?;
        let blockers = self.blockers(slots, index, &waiter);
        (slots.wait_of(slot).word() == word).then(|| {
            see(&blockers);
            blockers
        })
    }

    /// Who is in the way of a waiter, and how: for errors and views.
    pub(super) fn holders(
        &self,
        slots: &Slots,
        index: EntryIndex,
        waiter: &Waiter,
    ) -> Vec<(SlotId, LockMode)> {
        let mut holders = Vec::new();
        self.obstacles(slots, index, waiter, |other, mode| holders.push((other, LockMode::Table(mode))));
        holders
    }

    /// Visits those who are in the way of a waiter, with the mode that conflicts. A waiter that is not in the list
    /// stands behind everybody.
    pub(super) fn obstacles(
        &self,
        slots: &Slots,
        index: EntryIndex,
        waiter: &Waiter,
        mut see: impl FnMut(SlotId, IntentMode),
    ) {
        let Waiter { hold, wanted } = *waiter;
        if hold.held.is_none() {
            let list = self.list.lock();
            let before = list.iter().take_while(|before| before.hold.slot != hold.slot);
            for before in before.filter(|before| !before.wanted.compatible(wanted)) {
                see(before.hold.slot, before.wanted);
            }
        }
        holders(slots, index, hold.slot, wanted, see);
    }
}

fn announce(slots: &Slots, waiters: &[Waiter], slot: SlotId, granted: IntentMode) {
    for waiter in waiters.iter().filter(|waiter| !waiter.wanted.compatible(granted)) {
        slots.wait_of(waiter.hold.slot).digest().insert(slot);
    }
}

/// Visits those but `slot` who have published a lock that conflicts with `wanted`.
pub(super) fn holders(
    slots: &Slots,
    index: EntryIndex,
    slot: SlotId,
    wanted: IntentMode,
    mut see: impl FnMut(SlotId, IntentMode),
) {
    for (other, published) in slots.used() {
        if other != slot
            && let Some(mode) = published.intents.find(index)
            && !mode.compatible(wanted)
        {
            see(other, mode);
        }
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use std::cell::Cell;

    use foreshore_base::TableId;

    use super::*;

    /// How often the holders are asked, with so many waiters for each of these modes in turn, none of whom is granted
    /// anything.
    fn asked(wanted: &[(Option<IntentMode>, IntentMode)]) -> u32 {
        let (slots, waiters, index) = (Slots::new(), Waiters::default(), EntryIndex::of(TableId(16)));
        for (slot, &(held, wanted)) in (0..).zip(wanted.iter().cycle()).take(30 * wanted.len()) {
            waiters.begin_wait(&slots, index, IntentHold { slot: SlotId(slot), place: 0, held }, wanted);
        }
        let asked = Cell::new(0);
        let free = |_: IntentHold, _| {
            asked.set(asked.get() + 1);
            false
        };
        waiters.pass(&slots, None, &mut Wakes::default(), free, |_, _| unreachable!("nothing is free"));
        asked.get()
    }

    /// To ask is to look at all transactions, and each that ends asks: 500 who ended while as many waited for the whole
    /// of their table took a second, under its latch.
    #[test]
    fn holders_are_asked_once_for_all_who_want_the_same() {
        use IntentMode::{IS, IX, S, X};
        assert_eq!(asked(&[(None, S)]), 1);
        assert_eq!(asked(&[(None, X)]), 1);
        assert_eq!(asked(&[(None, IS), (None, S)]), 2);
        assert_eq!(asked(&[(None, IX), (None, X)]), 1, "X stands behind IX");
        // Each of those has something that is in nobody's way but the others'.
        assert_eq!(asked(&[(Some(IX), X)]), 30);
    }
}
