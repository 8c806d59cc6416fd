//! Dreadlocks: Koskinen and Herlihy 2008, as Kimura et al. 2012, §4.2 and Algorithm 5, adapt them to lock queues.
//!
//! Every waiter has a digest on its own cache lines: whom it waits for. A transaction that finds itself in the digests
//! of those it waits for is in a cycle. Nothing is spent by those who never wait. Where this departs from the paper:
//!
//! - A digest names whom its owner waits for directly, and the looker takes the closure itself. The paper's digests
//!   hold the closure, one step more with every look: with 10 ms of sleep between two looks a cycle of eight would take
//!   80 ms. Here the last waiter of a cycle sees all of it at once.
//! - The digest of a sleeper gets out of date when somebody leaves its queue. The paper's backoff has the releaser flag
//!   it as outdated, and looks pass it by until its owner wakes; cycles through it are found that much later. The
//!   releaser here takes itself out of the digest, which is one bit where the flag was one, and it stays true.
//! - Digests are exact, and fingerprints are those of transactions (their slots), not of threads.
//! - A cycle of digests is a suspicion. Before anybody is made a victim it is confirmed under the latches, and all
//!   detectors agree on the victim, because only one at a time confirms and resolves.
//!
//! The algorithm as it is printed is in `baseline/propagated.rs`.
//!
//! # Why no cycle is missed
//! LOCK-11: while its owner waits, a digest has everybody in it who is in its owner's way. It is stored under the latch
//! as the wait begins. After that somebody new gets into the way only as a holder that wants or gets more, which adds
//! itself (`announce`), or as one that is granted what a conversion conflicts with, and the granter adds it (`pass`).
//! Of a cycle's members consider the last that fenced after its wait began. The digests of all others were stored
//! before their fences, so it sees them; whoever was added later to one of them had been granted something, and so was
//! running and began its own wait, with its own fence, after that.

use foreshore_env::sync::atomic::{Ordering::SeqCst, fence};

use super::SlotSet;
use super::cycle::Member;
use crate::manager::LockManager;
#[cfg(all(test, foreshore_loom))]
use crate::wait::models;

/// Whether the digests show a cycle through `me`. `again`: not for the first time in this wait.
pub(super) fn suspects(manager: &LockManager, me: Member, again: bool) -> bool {
    if again {
        refresh(manager, me);
    }
    // Partner is the same fence of every other waiter: of two that store and then read, one sees the other.
    let seen = SeqCst;
    #[cfg(all(test, foreshore_loom))]
    let seen = models::weakened(models::Fault::Fence, seen);
    fence(seen);
    let (mut reached, mut visited) = (SlotSet::default(), SlotSet::default());
    manager.slots.wait_of(me.slot).union_into(&mut reached);
    while let Some(next) = reached.first_not_in(&visited) {
        if next == me.slot {
            return true;
        }
        visited.insert(next);
        manager.slots.wait_of(next).union_into(&mut reached);
    }
    false
}

/// Takes the digest of a waiter anew. It is true already (LOCK-11); should it ever not be, a deadlock would last until
/// somebody in it looks again, not for ever.
fn refresh(manager: &LockManager, me: Member) {
    me.blockers_seen(manager, |blockers| {
        let wait = manager.slots.wait_of(me.slot);
        let mut digest = SlotSet::default();
        wait.union_into(&mut digest);
        // A request that stands in the way for a moment, sees this wait, and goes.
        let passer_by = manager.table.shows_claims() || manager.intents.shows_passers_by(wait.subject());
        debug_assert!(
            blockers.first_not_in(&digest).is_none() || passer_by,
            "LOCK-11: a digest lacks somebody"
        );
        wait.digest().store(blockers);
    });
}
