//! Dreadlocks: Koskinen and Herlihy 2008, as Kimura et al. 2012, §4.2 and Algorithm 5, adapt them to lock queues.
//!
//! Every waiter has a digest on its own cache lines: whom it waits for. Who finds itself in the digests of those it waits
//! for is in a circle. Nothing is spent by those who never wait. Where this departs from the paper:
//!
//! - A digest names whom its owner waits for directly, and the looker takes the closure itself. The paper's digests hold
//!   the closure, one step more with every look: with 10 ms of sleep between two looks a circle of eight would take 80 ms.
//!   Here the last waiter of a circle sees all of it at once.
//! - The digest of a sleeper gets out of date when somebody leaves its queue. The paper's backoff has the releaser flag it
//!   as outdated, and looks pass it by until its owner wakes; circles through it are found that much later. The
//!   releaser here takes itself out of the digest, which is one bit where the flag was one, and it stays true.
//! - Digests are exact, and fingerprints are those of transactions (their slots), not of threads.
//! - A circle of digests is a suspicion. Before anybody is made a victim it is confirmed under the latches, and all
//!   detectors agree on the victim, because only one at a time confirms and resolves.
//!
//! # Why a confirmed circle is one
//! LOCK-7. A transaction that waits releases nothing (LOCK-10). Let the walk find a circle, then note nothing but its members' wait
//! words, then check every edge under its latch, then find the words unchanged. Each member has been in one and the same
//! wait from before the first check to after the last, since words never repeat (LOCK-4); so it has neither released nor
//! asked for anything, its request has not been granted, and two requests of one queue do not change places. Every edge
//! that was true once in that time was true all the time, in particular all of them at its end.
//!
//! # Why no circle is missed
//! LOCK-11: while its owner waits, a digest has everybody in it who is in its owner's way. It is stored under the latch as the
//! wait begins. After that somebody new gets into the way only as a holder that wants or gets more, who adds itself
//! (`announce`), or as one that is granted what a conversion conflicts with, and the granter adds it (`pass`). Of a
//! circle's members consider the last that fenced after its wait began. The digests of all others were stored before
//! their fences, so it sees them; whoever was added later to one of them had been granted something, and so was running
//! and began its own wait, with its own fence, after that.

use std::collections::VecDeque;

use foreshore_base::limits::MAX_TRANSACTIONS;
use foreshore_env::sync::atomic::{Ordering::SeqCst, fence};
use foreshore_env::sync::{Arc, Mutex};
use foreshore_env::time::{Instant, unix_seconds};
use foreshore_latch::parking;

use super::{DeadlockEdge, DeadlockReport, SlotSet};
use crate::manager::LockManager;
use crate::options::{DeadlockPolicy, LockOptions, VictimPolicy};
use crate::slot::{SlotId, Subject, WaitWord};
use crate::stats::WaitCounters;

/// Looks for deadlocks on behalf of waiters.
#[derive(Debug)]
pub(crate) struct Detector {
    policy: DeadlockPolicy,
    victims: VictimPolicy,
    history_limit: usize,
    /// Held while a circle is confirmed and resolved, so that one circle has one victim. Queue latches are taken under it.
    resolving: Mutex<()>,
    /// The newest reports, oldest first.
    history: Mutex<VecDeque<Arc<DeadlockReport>>>,
}

/// A member of a circle, and the wait that it is in.
#[derive(Clone, Copy)]
struct Member {
    slot: SlotId,
    word: WaitWord,
}

impl Detector {
    pub(crate) fn new(options: &LockOptions) -> Detector {
        Detector {
            policy: options.deadlock,
            victims: options.victim,
            history_limit: options.history,
            resolving: Mutex::new(()),
            history: Mutex::new(VecDeque::new()),
        }
    }

    pub(crate) fn history(&self) -> Vec<Arc<DeadlockReport>> {
        self.history.lock().iter().cloned().collect()
    }

    /// Resolves the deadlock that a waiter is in, if it is. `again`: not for the first time in this wait.
    pub(crate) fn look(&self, manager: &LockManager, slot: SlotId, word: WaitWord, again: bool) {
        if self.policy == DeadlockPolicy::Timeout {
            return;
        }
        if again {
            refresh(manager, Member { slot, word });
        }
        // Partner is the same fence of every other waiter: of two that store and then read, one sees the other.
        fence(SeqCst);
        let (mut reached, mut visited) = (SlotSet::default(), SlotSet::default());
        manager.slots.wait_of(slot).union_into(&mut reached);
        while let Some(next) = reached.first_not_in(&visited) {
            if next == slot {
                self.confirm(manager, Member { slot, word });
                return;
            }
            visited.insert(next);
            manager.slots.wait_of(next).union_into(&mut reached);
        }
    }

    /// Walks the graph of who waits for whom, and if that shows a circle through `me`, makes one of it a victim.
    #[cold]
    fn confirm(&self, manager: &LockManager, me: Member) {
        let _resolving = self.resolving.lock();
        let confirmed = find_cycle(manager, me).filter(|cycle| stands(manager, cycle));
        let resolved = confirmed.is_some_and(|cycle| self.resolve(manager, &cycle));
        if !resolved {
            WaitCounters::add(&manager.counters.suspicions_refuted);
        }
    }

    /// Makes a member the victim. `false` if its wait has ended meanwhile, and with it the deadlock.
    fn resolve(&self, manager: &LockManager, cycle: &[Member]) -> bool {
        let victim = match self.victims {
            VictimPolicy::Youngest => cycle.iter().max_by_key(|member| {
                let slot = manager.slots.get(member.slot);
                (slot.age(), slot.txn())
            }),
        };
        let Some(&victim) = victim else { return false };
        let slot = manager.slots.get(victim.slot);
        let report = Arc::new(report(manager, cycle, victim));
        let wait = manager.slots.wait_of(victim.slot);
        let judge = || slot.judge(Arc::clone(&report));
        let made = match wait.subject() {
            Subject::Key(request) => {
                manager.table.make_victim(&manager.slots, victim.slot, victim.word, request, judge)
            }
            Subject::Table(entry) => {
                manager.intents.make_victim(&manager.slots, victim.slot, victim.word, entry, judge)
            }
        };
        if made {
            WaitCounters::add(&manager.counters.deadlocks);
            self.remember(report);
            parking::unpark_one(wait.address(), |_| {});
        }
        made
    }

    fn remember(&self, report: Arc<DeadlockReport>) {
        let mut history = self.history.lock();
        history.push_back(report);
        while history.len() > self.history_limit {
            history.pop_front();
        }
    }
}

/// Takes the digest of a waiter anew. It is true already (LOCK-11); should it ever not be, a deadlock would last for a nap,
/// not for ever.
fn refresh(manager: &LockManager, me: Member) {
    blockers_seen(manager, me, |blockers| {
        let wait = manager.slots.wait_of(me.slot);
        let mut digest = SlotSet::default();
        wait.union_into(&mut digest);
        debug_assert!(blockers.first_not_in(&digest).is_none(), "LOCK-11: a digest lacks somebody");
        wait.digest().store(blockers);
    });
}

/// Whom a member waits for, while it is in its wait.
fn blockers(manager: &LockManager, member: Member) -> Option<SlotSet> {
    blockers_seen(manager, member, |_| {})
}

fn blockers_seen(manager: &LockManager, member: Member, see: impl FnOnce(&SlotSet)) -> Option<SlotSet> {
    let Member { slot, word } = member;
    match manager.slots.wait_of(slot).subject() {
        Subject::Key(request) => manager.table.blockers(&manager.slots, slot, word, request, see),
        Subject::Table(entry) => manager.intents.blockers(&manager.slots, slot, word, entry, see),
    }
}

/// A shortest circle through `me`, first seen edge by edge: `me`, whom it waits for, and so on.
fn find_cycle(manager: &LockManager, me: Member) -> Option<Vec<Member>> {
    let mut seen = SlotSet::default();
    seen.insert(me.slot);
    // Members in the order of their distance from `me`, each with the place of who waits for it.
    let mut members = vec![(me, 0)];
    let mut next = 0;
    while let Some(&(member, _)) = members.get(next) {
        let blockers = blockers(manager, member).unwrap_or_default();
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
            let word = manager.slots.wait_of(slot).word();
            if word.is_waiting() {
                members.push((Member { slot, word }, next));
            }
        }
        next += 1;
        debug_assert!(next <= MAX_TRANSACTIONS);
    }
    None
}

/// Whether all edges of a circle are true at one moment: see the head of this file.
fn stands(manager: &LockManager, cycle: &[Member]) -> bool {
    let successors = cycle.iter().cycle().skip(1);
    let edges = cycle.iter().zip(successors).all(|(&member, successor)| {
        blockers(manager, member).is_some_and(|blockers| blockers.contains(successor.slot))
    });
    fence(SeqCst);
    edges && cycle.iter().all(|member| manager.slots.wait_of(member.slot).word() == member.word)
}

fn report(manager: &LockManager, cycle: &[Member], victim: Member) -> DeadlockReport {
    DeadlockReport {
        cycle: cycle.iter().filter_map(|member| edge(manager, member.slot)).collect(),
        victim: manager.slots.get(victim.slot).txn(),
        at_unix_seconds: unix_seconds(),
    }
}

/// A slot's wait, as people see it.
fn edge(manager: &LockManager, slot: SlotId) -> Option<DeadlockEdge> {
    let slot = manager.slots.get(slot);
    let wait = slot.description()?;
    Some(DeadlockEdge {
        txn: slot.txn(),
        label: slot.label(),
        table: wait.table,
        key: wait.key,
        mode: wait.requested,
        held: wait.held,
        waited: Instant::now().saturating_duration_since(wait.since),
    })
}

/// Everybody who waits, one after another.
pub(crate) fn waiting(manager: &LockManager) -> Vec<DeadlockEdge> {
    let waits = |slot: &SlotId| manager.slots.wait_of(*slot).word().is_waiting();
    manager.slots.used().map(|(slot, _)| slot).filter(waits).filter_map(|slot| edge(manager, slot)).collect()
}
