//! How views see a lock table: one place after another, each as it is at one moment.

use foreshore_base::TxnId;

use super::{LockTable, Queue, Queues};
use crate::name::LockName;
use crate::request::{Modes, RequestIndex, Requests};
use crate::slot::{SlotId, Slots};

/// A request that was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenRequest {
    pub(crate) name: LockName,
    pub(crate) slot: SlotId,
    /// Whose it was: the slot may be another's since.
    pub(crate) txn: TxnId,
    pub(crate) modes: Modes,
}

impl LockTable {
    /// In how many places the requests are.
    pub(crate) fn places(&self) -> usize {
        match &self.queues {
            Queues::Latched(latched) => latched.places(),
            Queues::GlobalMutex(global) => global.places(),
        }
    }

    /// The place of a name.
    pub(crate) fn place(&self, name: LockName) -> usize {
        match &self.queues {
            Queues::Latched(latched) => latched.place(name),
            Queues::GlobalMutex(global) => global.place(name),
        }
    }

    /// Replaces `seen` by the requests in a place, those on one name in the order of its queue, all as they are at one
    /// moment. Whoever comes meanwhile waits for no more than the copying (LOCK-12).
    pub(crate) fn look(&self, slots: &Slots, place: usize, seen: &mut Vec<SeenRequest>) {
        loop {
            seen.clear();
            let all = |queue: &Queue| copy(queue, &self.requests, slots, seen);
            let complete = match &self.queues {
                Queues::Latched(latched) => latched.is_place_empty(place) || latched.beside_place(place, all),
                Queues::GlobalMutex(global) => global.alone_in_place(place, all),
            };
            if complete {
                return;
            }
            // Not under the latch (LOCK-5).
            seen.reserve_exact(2 * seen.len().max(16));
        }
    }
}

/// Copies the requests of a queue as far as `seen` has room; whether it had.
fn copy(queue: &Queue, requests: &Requests, slots: &Slots, seen: &mut Vec<SeenRequest>) -> bool {
    let mut index = queue.head();
    while index != RequestIndex::NONE {
        if seen.len() == seen.capacity() {
            return false;
        }
        let request = requests.get(index);
        let (name, slot, modes) = (request.name(), request.slot(), request.modes());
        seen.push(SeenRequest { name, slot, txn: slots.get(slot).txn(), modes });
        index = request.next();
    }
    true
}
