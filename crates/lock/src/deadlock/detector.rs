//! The seam between the policies, and what they share: confirming a suspicion, choosing a victim, telling about it.

use std::cmp::Reverse;

use foreshore_env::sabotage::{Fault, planted};
use foreshore_env::sync::{Arc, Mutex};
use foreshore_env::time::{Duration, Instant, unix_seconds};

use super::baseline::{Ages, Propagated, WaitForGraph, Wound};
use super::cycle::{self, Member};
use super::history::History;
use super::{DeadlockReport, SlotSet, VictimReason, dreadlocks};
use crate::error::LockMode;
use crate::manager::LockManager;
use crate::options::{DeadlockPolicy, DigestKind, LockOptions, VictimPolicy};
use crate::slot::{SlotId, WaitWord};
use crate::stats::WaitCounters;
use crate::view::BlockerView;
#[cfg(all(test, foreshore_loom))]
use crate::wait::models;

/// Looks for deadlocks on behalf of waiters.
#[derive(Debug)]
pub(crate) struct Detector {
    strategy: Strategy,
    /// Whether a suspicion has to be confirmed.
    confirms: bool,
    victims: VictimPolicy,
    /// Held while a cycle is confirmed and resolved, so that one cycle has one victim. Queue latches are taken under
    /// it.
    resolving: Mutex<()>,
    /// Of everybody who gave way, for whatever reason.
    history: History,
}

/// How many of those in the way of somebody who gives way without a cycle its report names.
const BLOCKERS: usize = 8;

/// How deadlocks are found or prevented.
#[derive(Debug)]
enum Strategy {
    Dreadlocks,
    Propagated(Propagated),
    Graph(WaitForGraph),
    Ages(Ages),
    Timeout(Duration),
    NoWait,
}

/// What a waiter does between two looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// Sleeps until it is woken. The waiter has seen all that there is to see, and whoever closes a cycle looks itself.
    Sleep,
    /// Sleeps until it is woken, but no longer than a nap.
    Nap,
    /// Stays awake, and looks again soon.
    Spin,
}

impl Detector {
    pub(crate) fn new(options: &LockOptions) -> Detector {
        let strategy = match (options.deadlock, options.digests) {
            (DeadlockPolicy::Dreadlocks, DigestKind::Exact) => Strategy::Dreadlocks,
            (
                policy @ (DeadlockPolicy::Dreadlocks
                | DeadlockPolicy::DreadlocksSpin
                | DeadlockPolicy::DreadlocksSleep
                | DeadlockPolicy::DreadlocksHybrid),
                digests,
            ) => Strategy::Propagated(Propagated::new(policy, digests)),
            (DeadlockPolicy::WaitForGraph, _) => Strategy::Graph(WaitForGraph::new()),
            (DeadlockPolicy::WaitDie, _) => Strategy::Ages(Ages::wait_die()),
            (DeadlockPolicy::WoundWait, _) => Strategy::Ages(Ages::wound_wait()),
            (DeadlockPolicy::Timeout, _) => Strategy::Timeout(options.deadlock_timeout),
            (DeadlockPolicy::NoWait, _) => Strategy::NoWait,
        };
        Detector {
            strategy,
            confirms: options.confirm_deadlocks,
            victims: options.victim,
            resolving: Mutex::new(()),
            history: History::new(options.history),
        }
    }

    pub(crate) fn history(&self) -> Vec<Arc<DeadlockReport>> {
        self.history.all()
    }

    /// Whether nobody may wait.
    pub(crate) fn refuses_waits(&self) -> bool {
        matches!(self.strategy, Strategy::NoWait)
    }

    /// What a transaction is told that would have to wait for `holders` and may not. Its wish has been described.
    #[cold]
    pub(crate) fn refuse(
        &self,
        manager: &LockManager,
        slot: SlotId,
        holders: &[(SlotId, LockMode)],
    ) -> Arc<DeadlockReport> {
        WaitCounters::add(&manager.counters.precautions);
        let blockers = manager.holding(&holders[..holders.len().min(BLOCKERS)]);
        let report = Arc::new(precaution(manager, slot, VictimReason::NoWait, blockers));
        self.history.remember(&report);
        report
    }

    /// Resolves the deadlock that a waiter is in or could come to be in, if the policy sees one. `again`: not for the
    /// first time in this wait, which began at `began`.
    pub(crate) fn look(
        &self,
        manager: &LockManager,
        slot: SlotId,
        word: WaitWord,
        began: Instant,
        again: bool,
    ) -> Pause {
        if planted(Fault::DeadlockUnseen) {
            return Pause::Nap;
        }
        let me = Member { slot, word };
        let (suspects, pause) = match &self.strategy {
            Strategy::Dreadlocks => {
                let suspects = dreadlocks::suspects(manager, me, again);
                // What cannot be confirmed yet is looked for again. An intent that stands in the way for a moment
                // closes no cycle: it sees this wait, and goes (LOCK-11).
                (suspects, if suspects { Pause::Nap } else { Pause::Sleep })
            }
            Strategy::Propagated(propagated) => (propagated.suspects(manager, me), propagated.pause(manager)),
            Strategy::Graph(graph) => (graph.suspects(manager, me), Pause::Nap),
            Strategy::Ages(ages) => {
                ages.look(manager, me, &mut |wound| self.wound(manager, wound));
                (false, Pause::Nap)
            }
            Strategy::Timeout(longest) => {
                if began.elapsed() >= *longest {
                    self.wound(manager, Wound { member: me, reason: VictimReason::TimedOut });
                }
                (false, Pause::Nap)
            }
            Strategy::NoWait => (false, Pause::Nap),
        };
        if suspects {
            if self.confirms {
                self.confirm(manager, me);
            } else {
                self.wound(manager, Wound { member: me, reason: VictimReason::Suspicion });
            }
        }
        pause
    }

    /// Whether the policy says how its waiters wait: the paper's do.
    pub(crate) fn waits_in_its_own_way(&self) -> bool {
        matches!(self.strategy, Strategy::Propagated(_))
    }

    /// The wait of a slot is over, by its owner: what a policy has published about it goes.
    pub(crate) fn leave(&self, slot: SlotId) {
        match &self.strategy {
            Strategy::Propagated(propagated) => propagated.clear(slot),
            Strategy::Graph(graph) => graph.clear(slot),
            Strategy::Dreadlocks | Strategy::Ages(_) | Strategy::Timeout(_) | Strategy::NoWait => {}
        }
    }

    /// Walks the graph of who waits for whom, and if that shows cycles through `me`, breaks all of them: where many
    /// have locked what `me` wants, and wait for what it has, these are many, and it goes on when the last is broken.
    /// If it has to give way in one of them, nobody else has to.
    #[cold]
    fn confirm(&self, manager: &LockManager, me: Member) {
        let _resolving = self.resolving.lock();
        let (mut broken, mut cycles) = (SlotSet::default(), Vec::new());
        while let Some(cycle) = cycle::find(manager, me, &broken)
            && cycle::stands(manager, &cycle)
            && let Some(victim) = self.choose(manager, &cycle)
        {
            if victim.slot == me.slot {
                cycles.clear();
            }
            broken.insert(victim.slot);
            cycles.push((victim, cycle));
            // The paper's waiters look for one, and look again.
            if victim.slot == me.slot || self.waits_in_its_own_way() {
                break;
            }
        }
        let mut resolved = false;
        for (victim, cycle) in cycles {
            // LOCK-7: somebody may have gone meanwhile for another reason.
            resolved |= cycle::stands(manager, &cycle) && self.resolve(manager, victim, &cycle);
        }
        if !resolved {
            WaitCounters::add(&manager.counters.suspicions_refuted);
        }
    }

    /// Who gives way of a cycle: one of the lowest priority (LOCK-18).
    fn choose(&self, manager: &LockManager, cycle: &[Member]) -> Option<Member> {
        let age = |member: &Member| {
            let slot = manager.slots.get(member.slot);
            (slot.age(), slot.txn())
        };
        let completed = |member: &Member| manager.slots.get(member.slot).completed();
        let priority = |member: &Member| manager.slots.get(member.slot).age().priority();
        let lowest = cycle.iter().map(priority).min();
        let members = cycle.iter().filter(|member| Some(priority(member)) == lowest);
        let victim = match self.victims {
            VictimPolicy::Youngest => members.max_by_key(|member| age(member)),
            VictimPolicy::ShortestPipeline => {
                members.max_by_key(|member| (Reverse(completed(member)), age(member)))
            }
            VictimPolicy::LongestPipeline => members.max_by_key(|member| (completed(member), age(member))),
        };
        victim.copied()
    }

    /// Makes a member the victim. `false` if its wait has ended meanwhile, and with it the deadlock.
    fn resolve(&self, manager: &LockManager, victim: Member, cycle: &[Member]) -> bool {
        let report = Arc::new(DeadlockReport {
            cycle: cycle.iter().filter_map(|member| cycle::edge(manager, member.slot)).collect(),
            victim: manager.slots.get(victim.slot).txn(),
            reason: VictimReason::Deadlock,
            older: None,
            blockers: Vec::new(),
            at_unix_seconds: unix_seconds(),
        });
        let made = end(manager, victim, &report);
        if made {
            WaitCounters::add(&manager.counters.deadlocks);
            self.history.remember(&report);
        }
        made
    }

    /// Makes a waiter a victim without a confirmed cycle.
    #[cold]
    fn wound(&self, manager: &LockManager, wound: Wound) {
        let Wound { member, reason } = wound;
        let blockers = manager.in_the_way(member.slot, member.word, BLOCKERS);
        let report = Arc::new(precaution(manager, member.slot, reason, blockers));
        if end(manager, member, &report) {
            WaitCounters::add(&manager.counters.precautions);
            self.history.remember(&report);
        }
    }
}

/// Ends the wait of a victim and tells it why. `false` if the wait has ended otherwise.
fn end(manager: &LockManager, victim: Member, report: &Arc<DeadlockReport>) -> bool {
    let made = victim.make_victim(manager, || manager.slots.get(victim.slot).judge(Arc::clone(report)));
    #[cfg(all(test, foreshore_loom))]
    if models::has(models::Fault::Victim) {
        return made;
    }
    if made {
        manager.slots.wake(victim.slot);
    }
    made
}

/// A report about somebody who gives way although nobody knows of a cycle.
fn precaution(
    manager: &LockManager,
    slot: SlotId,
    reason: VictimReason,
    blockers: Vec<BlockerView>,
) -> DeadlockReport {
    DeadlockReport {
        cycle: cycle::edge(manager, slot).into_iter().collect(),
        victim: manager.slots.get(slot).txn(),
        reason,
        older: reason.older().map(|older| manager.view_of_transaction(older)),
        blockers,
        at_unix_seconds: unix_seconds(),
    }
}
