//! Lightweight intent locks: Kimura et al. 2012, §3.2, Algorithms 3 and 4.
//!
//! For each table a handful of counters under a latch, and for each transaction a private list of what it holds: no
//! requests, no queue, the critical section is an addition. Where it departs from the paper:
//!
//! - Waiting is rare, and those who wait stand in a list in the order of their arrival. The list is the paper's
//!   announcement: a new request is not granted past an earlier waiter that it conflicts with. The paper prefers
//!   absolute locks instead, and so a stream of those starves intent locks; here neither starves the other.
//! - A thread that releases grants to the waiters and wakes those alone, so there is no version, no broadcast, and no
//!   timed wait.
//! - Waits are edges for the search for deadlocks (holders are found in what slots publish), so a cycle through intent
//!   locks is resolved at once, not after a time-out.

use foreshore_base::Lsn;
use foreshore_latch::{HybridLatch, rank};

use super::entries::{Entries, Tags};
use super::holders::Holders;
use super::waiters::Waiters;
use super::{EntryIndex, IntentHold, IntentMode};
use crate::slot::{SlotId, Slots, WaitWord};
use crate::table::{QUEUE_RANK, Wakes, Withdrawn};

/// The locks on one table.
#[derive(Debug, Default)]
struct Entry {
    /// Guards all fields but the tags.
    latch: HybridLatch,
    holders: Holders,
    waiters: Waiters,
    tags: Tags,
}

/// Intent locks, as said above.
#[derive(Debug)]
pub(crate) struct Lightweight {
    entries: Entries<Entry>,
}

impl Lightweight {
    pub(super) fn new() -> Lightweight {
        Lightweight { entries: Entries::new() }
    }

    /// Runs `operation` on an entry, alone.
    #[inline]
    fn alone<R>(&self, entry: EntryIndex, operation: impl FnOnce(&Entry) -> R) -> R {
        let entry = self.entries.get(entry);
        let _rank = rank::enter(QUEUE_RANK);
        let _guard = entry.latch.exclusive();
        operation(entry)
    }

    #[inline]
    pub(super) fn try_request(
        &self,
        slots: &Slots,
        index: EntryIndex,
        hold: IntentHold,
        wanted: IntentMode,
    ) -> Option<Lsn> {
        self.alone(index, |entry| entry.try_request(slots, index, hold, wanted))
    }

    pub(super) fn request(
        &self,
        slots: &Slots,
        index: EntryIndex,
        hold: IntentHold,
        wanted: IntentMode,
    ) -> Result<Lsn, WaitWord> {
        self.alone(index, |entry| {
            let granted = entry.try_request(slots, index, hold, wanted);
            granted.ok_or_else(|| entry.waiters.begin_wait(slots, index, hold, wanted))
        })
    }

    pub(super) fn withdraw(&self, slots: &Slots, index: EntryIndex, slot: SlotId) -> Withdrawn {
        let mut wakes = Wakes::default();
        let withdrawn = self.alone(index, |entry| {
            entry.waiters.end_wait(slots, slot, |left| entry.pass(slots, index, left, &mut wakes))
        });
        self.wake(slots, index, wakes);
        withdrawn
    }

    #[inline]
    pub(super) fn release(
        &self,
        slots: &Slots,
        slot: SlotId,
        kept: usize,
        held: impl Iterator<Item = (EntryIndex, IntentMode)>,
        tag: Option<Lsn>,
    ) {
        slots.get(slot).intents.truncate(kept);
        for (index, mode) in held {
            let mut wakes = Wakes::default();
            self.alone(index, |entry| {
                entry.holders.remove(mode);
                if let Some(tag) = tag {
                    entry.tags.leave(mode, tag);
                }
                if entry.waiters.count() > 0 {
                    entry.pass(slots, index, Some(slot), &mut wakes);
                }
            });
            if !wakes.is_empty() {
                self.wake(slots, index, wakes);
            }
        }
    }

    #[cold]
    fn wake(&self, slots: &Slots, index: EntryIndex, wakes: Wakes) {
        wakes.wake_all(slots, |wakes| self.alone(index, |entry| entry.pass(slots, index, None, wakes)));
    }

    pub(super) fn tag(&self, index: EntryIndex, mode: IntentMode) -> Lsn {
        self.entries.get(index).tags.tag(mode)
    }

    /// Runs `operation` on those who wait for an entry, under its latch.
    pub(super) fn with_waiters<R>(&self, index: EntryIndex, operation: impl FnOnce(&Waiters) -> R) -> R {
        self.alone(index, |entry| operation(&entry.waiters))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.iter().all(|entry| {
            let _rank = rank::enter(QUEUE_RANK);
            let _guard = entry.latch.shared();
            entry.waiters.count() == 0 && entry.holders.count() == 0
        })
    }
}

impl Entry {
    #[inline]
    fn try_request(
        &self,
        slots: &Slots,
        index: EntryIndex,
        hold: IntentHold,
        wanted: IntentMode,
    ) -> Option<Lsn> {
        let free = self.holders.allow(hold.held, wanted)
            && (hold.held.is_some() || self.waiters.count() == 0 || self.waiters.allow(wanted));
        free.then(|| {
            self.grant(slots, index, hold, wanted);
            if self.waiters.count() > 0 {
                self.waiters.announce(slots, hold.slot, wanted);
            }
            self.tags.tag(wanted)
        })
    }

    #[inline]
    fn grant(&self, slots: &Slots, index: EntryIndex, hold: IntentHold, wanted: IntentMode) {
        if let Some(held) = hold.held {
            self.holders.remove(held);
        }
        self.holders.add(wanted);
        slots.get(hold.slot).intents.set(hold.place, index, wanted);
    }

    #[cold]
    fn pass(&self, slots: &Slots, index: EntryIndex, left: Option<SlotId>, wakes: &mut Wakes) {
        self.waiters.pass(
            slots,
            left,
            wakes,
            |hold, wanted| self.holders.allow(hold.held, wanted),
            |hold, wanted| self.grant(slots, index, hold, wanted),
        );
    }
}
