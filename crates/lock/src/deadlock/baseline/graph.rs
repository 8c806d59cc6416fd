//! A wait-for graph in partitions, one for each slot, as Ren et al. 2016, §4.1, keep it: the edges that go out from a
//! slot stand in its own partition under its own mutex, and a thread that looks for a cycle takes one mutex after
//! another.
//!
//! Edges are taken anew with every look of their owner. In between they may be out of date in both directions: a cycle
//! of stale edges is refuted when it is confirmed, and an edge that came to a sleeper is seen after its nap.

use foreshore_base::limits::MAX_TRANSACTIONS;
use foreshore_env::CachePadded;
use foreshore_env::sync::Mutex;

use super::super::SlotSet;
use super::super::cycle::Member;
use crate::manager::LockManager;
use crate::slot::SlotId;

/// The graph.
#[derive(Debug)]
pub(in crate::deadlock) struct WaitForGraph {
    /// Whom each slot waits for; written by its owner. One mutex is held at a time, and no latch is taken under it.
    partitions: Box<[CachePadded<Mutex<SlotSet>>]>,
}

impl WaitForGraph {
    pub(in crate::deadlock) fn new() -> WaitForGraph {
        WaitForGraph { partitions: (0..MAX_TRANSACTIONS).map(|_| CachePadded::default()).collect() }
    }

    /// Whether the graph shows a cycle through `me`, after `me` has published its edges.
    ///
    /// Of two that publish and then read each other's partition, the later to take a mutex sees the other.
    pub(in crate::deadlock) fn suspects(&self, manager: &LockManager, me: Member) -> bool {
        let Some(mut reached) = me.blockers(manager) else { return false };
        *self.partitions[me.slot.index()].lock() = reached.clone();
        let mut visited = SlotSet::default();
        while let Some(next) = reached.first_not_in(&visited) {
            if next == me.slot {
                return true;
            }
            visited.insert(next);
            reached.union(&self.partitions[next.index()].lock());
        }
        false
    }

    pub(in crate::deadlock) fn clear(&self, slot: SlotId) {
        *self.partitions[slot.index()].lock() = SlotSet::default();
    }
}
