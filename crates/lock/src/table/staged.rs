//! The staged table: Jung, Han, Fekete, Heiser, Yeom, *A scalable lock manager for multicores*, SIGMOD 2013.
//!
//! A new request is appended beside the latch, as a claim; its owner then looks at those ahead of it, and either
//! confirms it or makes it obsolete. A release makes it obsolete and looks whether anybody waits. What is stored is
//! always ordered before what is read, so that of two who are in each other's way at least one sees the other
//! (LOCK-13). S1 to S7 are the paper's names for the places where that matters:
//!
//! | | store | then read | here |
//! | --- | --- | --- | --- |
//! | S1 | the claim, by the exchange of the tail | those ahead | `try_request` |
//! | S2 | a wish for more, a waiter | those who hold | `Queue::try_convert`, `Queue::convert` |
//! | S4 | that somebody waits | those in the way, once more | `Queue::begin_wait` |
//! | S6 | obsolete | whether anybody waits | `release`, `retract` |
//! | S3, S5, S7 | granted | – | under the latch, like all that has to do with waiting |
//!
//! Where this departs from the paper:
//!
//! - Its transactions wait and are woken under a mutex of the transaction. Here it is the latch of the bucket, taken by
//!   those who wait, who convert, and who release where somebody waits. So a wait word changes under one latch
//!   (LOCK-4), and the search for deadlocks and the views are those of the other tables.
//! - "All locks in the bucket" (A4) are those ahead of mine: read literally, two newcomers see each other and both
//!   wait.
//! - A claim is told from a grant, so that a waiter ahead of a claim need not count it.
//! - Where somebody waits already, a newcomer looks under the latch first: what cannot be granted is not appended.
//! - Requests are recycled by looks and not by transactions: `request/staging.rs`.

mod chain;
#[cfg(all(test, foreshore_loom))]
pub(super) mod models;
#[cfg(all(test, not(foreshore_loom)))]
mod tests;

use foreshore_base::Lsn;
use foreshore_env::sync::atomic::{Ordering::SeqCst, fence};
use foreshore_latch::{HybridLatch, rank};

use super::QUEUE_RANK;
use super::queue::{Change, Queue, View, obstructs};
use super::wakes::Wakes;
use crate::mode::KeyMode;
use crate::request::{Modes, RequestIndex, Requests};
use crate::slot::SlotId;
use chain::Chain;

/// How many obsolete requests in a chain make a newcomer clean it.
const CLEAN_AT: u32 = 6;

/// LOCK-13: what this thread has stored comes before what it reads from now on. Partner is the same of everybody else.
#[inline]
pub(super) fn order() {
    #[cfg(all(test, foreshore_loom))]
    if models::has(models::Fault::Fence) {
        return;
    }
    fence(SeqCst);
}

/// A bucket of the table, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Bucket {
    latch: HybridLatch,
    queue: Queue<Chain>,
}

impl Bucket {
    /// Runs `operation` while nobody waits, wakes, converts or cleans.
    pub(super) fn alone<R>(&self, operation: impl FnOnce(&Queue<Chain>) -> R) -> R {
        let _rank = rank::enter(QUEUE_RANK);
        let _guard = self.latch.exclusive();
        operation(&self.queue)
    }

    pub(super) fn beside<R>(&self, operation: impl FnOnce(&Queue<Chain>) -> R) -> R {
        let _rank = rank::enter(QUEUE_RANK);
        let _guard = self.latch.shared();
        operation(&self.queue)
    }

    /// Grants a new request if nobody is in its way; otherwise leaves nothing of consequence. Without a wake-up to owe,
    /// nobody's latch is touched.
    #[inline]
    pub(super) fn try_request(
        &self,
        view: &View<'_>,
        slot: SlotId,
        request: RequestIndex,
        mode: KeyMode,
        wakes: &mut Wakes,
    ) -> Option<Lsn> {
        let View { requests, name, .. } = *view;
        if self.queue.has_waiters() && self.is_refused(view, slot, mode) {
            requests.unlinked(request);
            return None;
        }
        let claimed = requests.get(request);
        claimed.set(name, slot, Modes::claim(mode));
        let staging = requests.staging();
        staging.begin_look(slot);
        let is_first = self.queue.list.push(requests, request);
        // S1. Partners: the fences of conversions and of other newcomers; and that of whoever recycles (LOCK-14).
        order();
        // The first has nobody ahead; a request that comes before it now would have to be linked before it.
        let ahead = (!is_first).then(|| {
            self.queue.list.look_ahead(requests, request, |other| {
                other.name() == name
                    && other.live_modes().is_some_and(|modes| obstructs(modes, true, mode, false).is_some())
            })
        });
        staging.end_look(slot);
        let (free, obsolete) = ahead.map_or((true, 0), |ahead| (ahead.free, ahead.obsolete));
        if !free {
            self.retract(view, slot, request, wakes);
        } else {
            claimed.set_modes(Modes::held(mode));
        }
        if obsolete >= CLEAN_AT {
            self.clean(view);
        }
        free.then(|| self.queue.tag())
    }

    #[cold]
    fn clean(&self, view: &View<'_>) {
        self.alone(|queue| queue.list.clean(view.requests));
    }

    /// Whether somebody is in the way, seen under the latch.
    #[cold]
    fn is_refused(&self, view: &View<'_>, slot: SlotId, mode: KeyMode) -> bool {
        let _rank = rank::enter(QUEUE_RANK);
        let _guard = self.latch.shared();
        let mut refused = false;
        let see = |_, _| refused = true;
        self.queue.obstacles(view.requests, view.name, slot, mode, false, see);
        refused
    }

    #[inline]
    pub(super) fn release(
        &self,
        view: &View<'_>,
        request: RequestIndex,
        tag: Option<Lsn>,
        wakes: &mut Wakes,
    ) {
        let released = view.requests.get(request);
        let slot = released.slot();
        self.queue.leave_tag(released, tag);
        released.make_obsolete();
        // S6. Partner is the fence of `Queue::begin_wait`.
        order();
        if self.queue.has_waiters() {
            self.pass(view, slot, wakes);
        }
    }

    /// A claim that was not free: a thread that has come to wait because of it goes on.
    #[cold]
    fn retract(&self, view: &View<'_>, slot: SlotId, request: RequestIndex, wakes: &mut Wakes) {
        view.requests.get(request).make_obsolete();
        #[cfg(all(test, foreshore_loom))]
        if models::has(models::Fault::Pass) {
            return;
        }
        // S6.
        order();
        if self.queue.has_waiters() {
            self.pass(view, slot, wakes);
        }
    }

    #[cold]
    fn pass(&self, view: &View<'_>, slot: SlotId, wakes: &mut Wakes) {
        self.alone(|queue| queue.pass(view, Change::Left(slot), wakes));
    }
    /// Whether nothing is linked.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.list.is_bare()
    }

    #[inline]
    pub(super) fn tag(&self) -> Lsn {
        self.queue.tag()
    }

    /// Unlinks everything obsolete, but for tails behind requests of consequence.
    pub(super) fn sweep(&self, requests: &Requests) {
        if !self.is_empty() {
            self.alone(|queue| queue.list.clean(requests));
        }
    }

    /// How many requests are linked.
    #[cfg(all(test, not(foreshore_loom)))]
    fn length(&self, requests: &Requests) -> usize {
        self.beside(|queue| queue.list.length(requests))
    }
}
