//! Cycles of those who wait for each other: the exact walk that confirms a suspicion.
//!
//! # Why a confirmed cycle is one
//! LOCK-7. A transaction that waits releases nothing (LOCK-10). Let the walk find a cycle, then note nothing but its
//! members' wait words, then check every edge under its latch, then find the words unchanged. Each member has been in
//! one and the same wait from before the first check to after the last, since words never repeat (LOCK-4); so it has
//! neither released nor asked for anything, its request has not been granted, and two requests of one queue do not
//! change places. Every edge that was true once in that time was true all the time, in particular all of them at its
//! end.

use foreshore_base::limits::MAX_TRANSACTIONS;
use foreshore_env::sync::atomic::{Ordering::SeqCst, fence};
use foreshore_env::time::Instant;

use super::{DeadlockEdge, SlotSet};
use crate::manager::LockManager;
use crate::slot::{SlotId, Subject, WaitWord};

/// A waiter, and the wait that it is in.
#[derive(Clone, Copy)]
pub(super) struct Member {
    pub(super) slot: SlotId,
    pub(super) word: WaitWord,
}

impl Member {
    /// The wait that a slot is in, if it is.
    pub(super) fn of(manager: &LockManager, slot: SlotId) -> Option<Member> {
        let word = manager.slots.wait_of(slot).word();
        word.is_waiting().then_some(Member { slot, word })
    }

    /// Whom it waits for, while it is in its wait.
    pub(super) fn blockers(self, manager: &LockManager) -> Option<SlotSet> {
        self.blockers_seen(manager, |_| {})
    }

    /// As [`Member::blockers`]; `see` is called while none of them can go away.
    pub(super) fn blockers_seen(self, manager: &LockManager, see: impl FnOnce(&SlotSet)) -> Option<SlotSet> {
        let Member { slot, word } = self;
        match manager.slots.wait_of(slot).subject() {
            Subject::Key(request) => manager.table.blockers(&manager.slots, slot, word, request, see),
            Subject::Table(entry) => manager.intents.blockers(&manager.slots, slot, word, entry, see),
        }
    }

    /// Ends its wait by making it a victim. `false` if the wait has ended otherwise. `judge` is called before.
    pub(super) fn make_victim(self, manager: &LockManager, judge: impl FnOnce()) -> bool {
        let Member { slot, word } = self;
        match manager.slots.wait_of(slot).subject() {
            Subject::Key(request) => manager.table.make_victim(&manager.slots, slot, word, request, judge),
            Subject::Table(entry) => manager.intents.make_victim(&manager.slots, slot, word, entry, judge),
        }
    }
}

/// A shortest cycle through `me`, without those in `broken`, first seen edge by edge: `me`, whom it waits for, and so
/// on.
pub(super) fn find(manager: &LockManager, me: Member, broken: &SlotSet) -> Option<Vec<Member>> {
    let mut seen = broken.clone();
    seen.insert(me.slot);
    // Members in the order of their distance from `me`, each with the place of whoever waits for it.
    let mut members = vec![(me, 0)];
    let mut next = 0;
    while let Some(&(member, _)) = members.get(next) {
        let blockers = member.blockers(manager).unwrap_or_default();
        if blockers.contains(me.slot) {
            let mut cycle = Vec::with_capacity(members.len());
            let mut place = next;
            while place != 0 {
                cycle.push(members[place].0);
                place = members[place].1;
            }
            cycle.push(me);
            cycle.reverse();
            return Some(cycle);
        }
        while let Some(slot) = blockers.first_not_in(&seen) {
            seen.insert(slot);
            members.extend(Member::of(manager, slot).map(|member| (member, next)));
        }
        next += 1;
        debug_assert!(next <= MAX_TRANSACTIONS);
    }
    None
}

/// Whether all edges of a cycle are true at one moment: see the head of this file.
pub(super) fn stands(manager: &LockManager, cycle: &[Member]) -> bool {
    let successors = cycle.iter().cycle().skip(1);
    let edges = cycle.iter().zip(successors).all(|(&member, successor)| {
        member.blockers(manager).is_some_and(|blockers| blockers.contains(successor.slot))
    });
    fence(SeqCst);
    edges && cycle.iter().all(|member| manager.slots.wait_of(member.slot).word() == member.word)
}

/// A slot's wait, as people see it.
pub(crate) fn edge(manager: &LockManager, slot: SlotId) -> Option<DeadlockEdge> {
    let slot = manager.slots.get(slot);
    let (who, wait) = (slot.identity()?, slot.description()?);
    Some(DeadlockEdge {
        txn: who.txn,
        label: who.label,
        priority: who.age.priority(),
        begun_at: Some(who.begun_at),
        table: wait.table,
        key: wait.key,
        mode: wait.requested,
        held: wait.held,
        waited: Instant::now().saturating_duration_since(wait.since),
    })
}
