//! The road: a hybrid latch for each bucket, held for the list operation only; and where a request is alone in its
//! bucket, or beside others that share, no latch at all: it comes by one exchange of the list's head and goes by
//! another ([`Linked`]).

use foreshore_base::Lsn;
use foreshore_latch::{HybridLatch, rank};

use super::QUEUE_RANK;
use super::list::Linked;
use super::queue::{Queue, View};
use super::wakes::Wakes;
use crate::mode::KeyMode;
use crate::name::LockName;
use crate::request::{Modes, RequestIndex, Requests};
use crate::slot::SlotId;

/// A bucket of the table, two to a cache line.
#[derive(Debug, Default)]
#[repr(align(32))]
pub(super) struct Bucket {
    latch: HybridLatch,
    /// Guarded by the latch, but for the tag, and the head of a list that is open.
    queue: Queue<Linked>,
}

#[cfg(not(foreshore_loom))]
const _: () = assert!(size_of::<Bucket>() == 32);

impl Bucket {
    #[inline]
    pub(super) fn alone<R>(&self, operation: impl FnOnce(&Queue<Linked>) -> R) -> R {
        let _rank = rank::enter(QUEUE_RANK);
        self.change(operation)
    }

    #[inline]
    fn change<R>(&self, operation: impl FnOnce(&Queue<Linked>) -> R) -> R {
        let _guard = self.latch.exclusive();
        self.queue.list.guard();
        let result = operation(&self.queue);
        self.queue.list.open();
        result
    }

    pub(super) fn beside<R>(&self, operation: impl FnOnce(&Queue<Linked>) -> R) -> R {
        let _rank = rank::enter(QUEUE_RANK);
        {
            let _guard = self.latch.shared();
            if self.queue.list.is_guarded() {
                return operation(&self.queue);
            }
        }
        self.change(operation)
    }

    /// Puts a new request into the queue if it can be granted at once; beside the latch where the bucket is empty, or
    /// all in it share.
    #[inline]
    pub(super) fn try_request(
        &self,
        requests: &Requests,
        name: LockName,
        slot: SlotId,
        request: RequestIndex,
        mode: KeyMode,
    ) -> Option<Lsn> {
        let list = &self.queue.list;
        let shared = !mode.is_exclusive();
        if list.may_enter(shared) {
            let newcomer = requests.get(request);
            newcomer.set(name, slot, Modes::held(mode));
            if list.enter(newcomer, request, shared) {
                return Some(self.queue.tag());
            }
        }
        self.alone(|queue| {
            let granted = queue.try_request(requests, name, slot, request, mode);
            queue.check_state(requests, name);
            granted
        })
    }

    /// Takes a granted request out of the queue; beside the latch if it is alone in the bucket, or the first of those
    /// that share.
    #[inline]
    pub(super) fn release(
        &self,
        view: &View<'_>,
        request: RequestIndex,
        tag: Option<Lsn>,
        wakes: &mut Wakes,
    ) {
        let list = &self.queue.list;
        if list.is_first(request) {
            let released = view.requests.get(request);
            self.queue.leave_tag(released, tag);
            if list.leave(released, request) {
                return;
            }
        }
        self.alone(|queue| {
            queue.release(view, request, tag, wakes);
            queue.check_state(view.requests, view.name);
        });
    }

    /// Whether there is no request. Without the latch; `false` when in doubt.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.list.is_open_and_bare()
    }

    /// Whether a granted request is alone here. Without the latch; `false` when in doubt.
    #[inline]
    pub(super) fn is_alone(&self, requests: &Requests, request: RequestIndex) -> bool {
        self.queue.list.is_first(request) && requests.get(request).next() == RequestIndex::NONE
    }

    /// Tags only grow, and one that matters was stored before the caller could know that it does.
    #[inline]
    pub(super) fn tag(&self) -> Lsn {
        self.queue.tag()
    }
}

#[cfg(all(test, foreshore_loom))]
pub(super) mod models;
