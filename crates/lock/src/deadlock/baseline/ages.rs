//! Wait-die and wound-wait (Rosenkrantz, Stearns and Lewis 1978): nobody looks for a cycle, because none can last.
//!
//! | policy | who is older than somebody in its way | who is younger |
//! | --- | --- | --- |
//! | wait-die | waits | gives way |
//! | wound-wait | wounds the younger | waits |
//!
//! Under wait-die everybody waits for younger ones, under wound-wait for older ones; around a cycle neither is
//! possible. A request that stands before a waiter in a queue counts like a holder. Somebody may get into the way of a
//! waiter later (a conversion that is granted past it): that is seen at its next look, after a nap at most, and so a
//! cycle lasts no longer. A transaction that is run again keeps its age, so it is the oldest in the end, and nobody
//! makes it give way.
//!
//! Here a wound takes effect when the wounded one waits, at once if it does already. One that never waits again is in
//! no cycle and ends soon; killing it at its next step, as the paper has it, would cost its work and a look at shared
//! memory with every lock.

use foreshore_base::TxnId;
use foreshore_base::limits::MAX_TRANSACTIONS;
use foreshore_env::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    fence,
};

use super::super::VictimReason;
use super::super::cycle::Member;
use crate::age::Age;
use crate::manager::LockManager;
use crate::slot::SlotId;

/// Who has to give way, and why.
#[derive(Clone, Copy)]
pub(in crate::deadlock) struct Wound {
    pub(in crate::deadlock) member: Member,
    pub(in crate::deadlock) reason: VictimReason,
}

/// Either policy.
#[derive(Debug)]
pub(in crate::deadlock) enum Ages {
    WaitDie,
    /// The wounds of every slot.
    WoundWait(Box<[Mark]>),
}

/// A wound. Written by everybody, read by the owner of the slot, Relaxed; the fences in `look` order it with wait
/// words.
#[derive(Debug, Default)]
pub(in crate::deadlock) struct Mark {
    /// The wounded transaction plus one: its slot may have another one by now. 0: none.
    wounded: AtomicU64,
    /// By whom, for reports.
    by: AtomicU64,
}

impl Ages {
    pub(in crate::deadlock) fn wait_die() -> Ages {
        Ages::WaitDie
    }

    pub(in crate::deadlock) fn wound_wait() -> Ages {
        Ages::WoundWait((0..MAX_TRANSACTIONS).map(|_| Mark::default()).collect())
    }

    /// Calls `wound` for those who have to give way because of a waiter: for the waiter itself, or others that wait.
    pub(in crate::deadlock) fn look(&self, manager: &LockManager, me: Member, wound: &mut dyn FnMut(Wound)) {
        match self {
            Ages::WaitDie => {
                let mut oldest = (Age::YOUNGEST, TxnId(u64::MAX));
                see_ages(manager, me, |_, age| oldest = oldest.min(age));
                if oldest < age_of(manager, me.slot) {
                    wound(Wound { member: me, reason: VictimReason::YoungerThan(oldest.1) });
                }
            }
            Ages::WoundWait(marks) => {
                let mine = age_of(manager, me.slot);
                let mut younger = Vec::new();
                see_ages(manager, me, |slot, age| {
                    if age > mine {
                        younger.push((slot, age.1));
                    }
                });
                for &(slot, txn) in &younger {
                    let mark = &marks[slot.index()];
                    mark.by.store(mine.1.0, Relaxed);
                    mark.wounded.store(txn.0.wrapping_add(1), Relaxed);
                }
                // Partner is the same fence of whoever is wounded: of a wound and a wait that begin at a time, one is
                // seen.
                fence(SeqCst);
                for (slot, txn) in younger {
                    if let Some(member) = Member::of(manager, slot)
                        && manager.slots.get(slot).txn() == txn
                    {
                        wound(Wound { member, reason: VictimReason::WoundedBy(mine.1) });
                    }
                }
                let mark = &marks[me.slot.index()];
                if mark.wounded.load(Relaxed) == mine.1.0.wrapping_add(1) {
                    let by = TxnId(mark.by.load(Relaxed));
                    wound(Wound { member: me, reason: VictimReason::WoundedBy(by) });
                }
            }
        }
    }
}

/// Calls `see` for everybody in the way of a waiter.
fn see_ages(manager: &LockManager, me: Member, mut see: impl FnMut(SlotId, (Age, TxnId))) {
    me.blockers_seen(manager, |blockers| {
        blockers.iter().for_each(|slot| see(slot, age_of(manager, slot)));
    });
}

/// Smaller is older. No two are equal.
fn age_of(manager: &LockManager, slot: SlotId) -> (Age, TxnId) {
    let slot = manager.slots.get(slot);
    (slot.age(), slot.txn())
}
