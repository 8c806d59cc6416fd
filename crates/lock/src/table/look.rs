//! How views see a lock table: one place after another, each as it is at one moment.

use std::ops::ControlFlow;

use foreshore_base::TxnId;

use super::list::List;
use super::queue::Queue;
use super::{LockTable, Queues};
use crate::mode::KeyMode;
use crate::name::LockName;
use crate::request::{Modes, Requests};
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
    /// Whether somebody may be seen in the way of a wait who asks for a lock and has not got it: a claim that came when
    /// the wait had begun.
    pub(crate) fn shows_claims(&self) -> bool {
        matches!(self.queues, Queues::Staged(_))
    }

    /// In how many places the requests are.
    pub(crate) fn places(&self) -> usize {
        match &self.queues {
            Queues::Latched(latched) => latched.all().len(),
            Queues::Guarded(guarded) => guarded.places(),
            Queues::Staged(staged) => staged.all().len(),
        }
    }

    /// The place of a name.
    pub(crate) fn place(&self, name: LockName) -> usize {
        match &self.queues {
            Queues::Latched(latched) => latched.place(name),
            Queues::Guarded(guarded) => guarded.place(name),
            Queues::Staged(staged) => staged.place(name),
        }
    }

    /// Replaces `seen` by the requests in a place, those on one name in the order of its queue, all as they are at one
    /// moment. Whoever comes meanwhile waits for no more than the copying (LOCK-12).
    pub(crate) fn look(&self, slots: &Slots, place: usize, seen: &mut Vec<SeenRequest>) {
        loop {
            seen.clear();
            let requests = &self.requests;
            let complete = match &self.queues {
                Queues::Latched(latched) => {
                    let bucket = &latched.all()[place];
                    bucket.is_empty() || bucket.beside(|queue| copy(queue, requests, slots, seen))
                }
                Queues::Guarded(guarded) => {
                    guarded.alone_in_place(place, |queue| copy(queue, requests, slots, seen))
                }
                Queues::Staged(staged) => {
                    let bucket = &staged.all()[place];
                    bucket.is_empty() || bucket.beside(|queue| copy(queue, requests, slots, seen))
                }
            };
            if complete {
                return;
            }
            // Not under the latch (LOCK-5).
            seen.reserve_exact(2 * seen.len().max(16));
        }
    }
}

/// Copies the requests of a queue as far as `seen` has room; whether it had. Claims are not there yet.
fn copy<L: List>(queue: &Queue<L>, requests: &Requests, slots: &Slots, seen: &mut Vec<SeenRequest>) -> bool {
    let mut complete = true;
    queue.list.each(requests, |request| {
        if seen.len() == seen.capacity() {
            complete = false;
            return ControlFlow::Break(());
        }
        let (name, slot, modes) = (request.name(), request.slot(), request.modes());
        if modes.requested != KeyMode::N && !modes.claimed {
            seen.push(SeenRequest { name, slot, txn: slots.get(slot).txn(), modes });
        }
        ControlFlow::Continue(())
    });
    complete
}
