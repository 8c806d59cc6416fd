//! The lock table: who holds and who wants which name. The seam between its implementations.
//!
//! The contract, which the tests beside this file check over every implementation, is that of the operations below.

mod buckets;
mod check;
mod guarded;
mod holds;
mod latched;
mod list;
mod look;
mod queue;
mod staged;
mod wakes;

use std::ops::Range;

use foreshore_base::Lsn;
use foreshore_env::hint;
use foreshore_latch::rank::Rank;

use crate::deadlock::SlotSet;
use crate::error::{LockError, LockMode};
use crate::mode::KeyMode;
use crate::name::{LockName, Places};
use crate::options::{LockOptions, LockTableKind};
#[cfg(all(test, not(foreshore_loom)))]
use crate::request::Modes;
use crate::request::{FreeRequests, RequestIndex, Requests};
use crate::slot::{SlotId, Slots, WaitWord};
use buckets::Buckets;
use guarded::Guarded;
pub(crate) use look::SeenRequest;
pub(crate) use queue::obstructs;
use queue::{Change, View};
pub(crate) use wakes::Wakes;

/// The latches of lock queues and intent locks in the latch order: they are taken under page latches, and nothing is
/// taken under them.
pub(crate) const QUEUE_RANK: Rank = Rank(60_000);

/// A lock table.
#[derive(Debug)]
pub(crate) struct LockTable {
    requests: Requests,
    queues: Queues,
}

#[derive(Debug)]
enum Queues {
    Latched(Buckets<latched::Bucket>),
    Guarded(Guarded),
    Staged(Buckets<staged::Bucket>),
}

/// Runs an operation on the queue of a name, alone: nobody else is under its latch.
macro_rules! alone {
    ($table:expr, $name:expr, |$queue:ident| $operation:expr) => {
        match &$table.queues {
            Queues::Latched(latched) => latched.of($name).alone(|$queue| {
                let result = $operation;
                $queue.check_state(&$table.requests, $name);
                result
            }),
            Queues::Guarded(guarded) => guarded.alone($name, |$queue| {
                let result = $operation;
                $queue.check_state(&$table.requests, $name);
                result
            }),
            Queues::Staged(staged) => staged.of($name).alone(|$queue| {
                let result = $operation;
                $queue.check_count(&$table.requests, $name);
                result
            }),
        }
    };
}

/// Runs an operation on the queue of a name while nobody changes it; in the staged table, while nobody waits, wakes or
/// converts.
macro_rules! beside {
    ($table:expr, $name:expr, |$queue:ident| $operation:expr) => {
        match &$table.queues {
            Queues::Latched(latched) => latched.of($name).beside(|$queue| $operation),
            Queues::Guarded(guarded) => guarded.alone($name, |$queue| $operation),
            Queues::Staged(staged) => staged.of($name).beside(|$queue| $operation),
        }
    };
}

/// What became of a request that was taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Withdrawn {
    /// The request had been granted before: it stands.
    Granted,
    /// The request is gone; its owner was made a victim.
    Victim,
    /// The request is gone, and nothing else has happened to its owner.
    Gone,
}

impl LockTable {
    pub(crate) fn new(options: &LockOptions) -> LockTable {
        let buckets = options.buckets.clamp(1, 1 << 28).next_power_of_two();
        let places = Places::new(buckets, options.partitions);
        let queues = match options.table {
            LockTableKind::Latched => Queues::Latched(Buckets::new(places)),
            LockTableKind::GlobalMutex => Queues::Guarded(Guarded::by_mutex(places)),
            LockTableKind::GlobalMcs => Queues::Guarded(Guarded::by_mcs(places)),
            LockTableKind::AlwaysLatched => Queues::Guarded(Guarded::by_latches(places)),
            LockTableKind::Staged => Queues::Staged(Buckets::new(places)),
        };
        let staged = matches!(queues, Queues::Staged(_)).then_some(buckets);
        LockTable { requests: Requests::new(options.max_locks, staged), queues }
    }

    #[inline]
    pub(crate) fn requests(&self) -> &Requests {
        &self.requests
    }

    /// A request for a slot that holds so many locks.
    #[inline]
    pub(crate) fn take_request(
        &self,
        free: &mut FreeRequests,
        held: usize,
    ) -> Result<RequestIndex, LockError> {
        free.take(&self.requests, held, |buckets| self.sweep(buckets))
    }

    /// Whether a request can be used again when it has been released.
    #[inline]
    pub(crate) fn reuses_requests(&self) -> bool {
        !self.requests.is_staged()
    }

    /// Takes everything obsolete out of some buckets of the staged table.
    fn sweep(&self, buckets: Range<usize>) {
        if let Queues::Staged(staged) = &self.queues {
            staged.all()[buckets].iter().for_each(|bucket| bucket.sweep(&self.requests));
        }
    }

    /// Work of the pre-allocator of the staged table.
    #[cfg(not(foreshore_loom))]
    pub(crate) fn replenish(&self) {
        self.requests.replenish(|buckets| self.sweep(buckets));
    }

    fn view<'a>(&'a self, slots: &'a Slots, name: LockName) -> View<'a> {
        View { requests: &self.requests, slots, name }
    }

    /// Puts a new request into the queue if it can be granted at once, and returns the queue's tag; otherwise leaves
    /// nothing. The staged table has used the request up nevertheless.
    #[inline]
    pub(crate) fn try_request(
        &self,
        slots: &Slots,
        name: LockName,
        slot: SlotId,
        request: RequestIndex,
        mode: KeyMode,
    ) -> Option<Lsn> {
        let requests = &self.requests;
        match &self.queues {
            Queues::Latched(latched) => latched.of(name).try_request(requests, name, slot, request, mode),
            Queues::Guarded(guarded) => guarded.alone(name, |queue| {
                let granted = queue.try_request(requests, name, slot, request, mode);
                queue.check_state(requests, name);
                granted
            }),
            Queues::Staged(staged) => {
                let mut wakes = Wakes::default();
                let view = self.view(slots, name);
                let granted = staged.of(name).try_request(&view, slot, request, mode, &mut wakes);
                if !wakes.is_empty() {
                    self.wake(slots, name, wakes);
                }
                granted
            }
        }
    }

    /// Strengthens a granted request to `mode`, which covers its own, if that can be granted at once; returns the tag.
    pub(crate) fn try_convert(
        &self,
        slots: &Slots,
        name: LockName,
        request: RequestIndex,
        mode: KeyMode,
    ) -> Option<Lsn> {
        alone!(self, name, |queue| queue.try_convert(&self.view(slots, name), request, mode))
    }

    /// Puts a new request into the queue: granted at once (`Ok`), or its owner begins a wait.
    pub(crate) fn request(
        &self,
        slots: &Slots,
        name: LockName,
        slot: SlotId,
        request: RequestIndex,
        mode: KeyMode,
    ) -> Result<Lsn, WaitWord> {
        alone!(self, name, |queue| queue.request(&self.view(slots, name), slot, request, mode))
    }

    /// As [`LockTable::try_convert`], but the owner begins a wait if need be.
    pub(crate) fn convert(
        &self,
        slots: &Slots,
        name: LockName,
        request: RequestIndex,
        mode: KeyMode,
    ) -> Result<Lsn, WaitWord> {
        alone!(self, name, |queue| queue.convert(&self.view(slots, name), request, mode))
    }

    /// Ends a wait, however it stands (LOCK-6). If the request was not granted, it is as before the wait, and the
    /// thread that waited for it goes on.
    pub(crate) fn withdraw(&self, slots: &Slots, name: LockName, request: RequestIndex) -> Withdrawn {
        let mut wakes = Wakes::default();
        let withdrawn =
            alone!(self, name, |queue| queue.withdraw(&self.view(slots, name), request, &mut wakes));
        self.wake(slots, name, wakes);
        withdrawn
    }

    /// Takes a granted request out of the queue. With a tag, an exclusive one leaves it behind (LOCK-9). Whether that
    /// has ended somebody's wait.
    #[inline]
    pub(crate) fn release(
        &self,
        slots: &Slots,
        name: LockName,
        request: RequestIndex,
        tag: Option<Lsn>,
    ) -> bool {
        let mut wakes = Wakes::default();
        let view = self.view(slots, name);
        match &self.queues {
            Queues::Latched(latched) => latched.of(name).release(&view, request, tag, &mut wakes),
            Queues::Guarded(guarded) => guarded.alone(name, |queue| {
                queue.release(&view, request, tag, &mut wakes);
                queue.check_state(&self.requests, name);
            }),
            Queues::Staged(staged) => staged.of(name).release(&view, request, tag, &mut wakes),
        }
        let awaited = !wakes.is_empty();
        if awaited {
            self.wake(slots, name, wakes);
        }
        awaited
    }

    #[cold]
    fn wake(&self, slots: &Slots, name: LockName, wakes: Wakes) {
        wakes.wake_all(slots, |wakes| {
            alone!(self, name, |queue| queue.pass(&self.view(slots, name), Change::Nothing, wakes));
        });
    }

    /// Whether a new request of `slot`, or with `converts` a stronger one, could be granted at once.
    pub(crate) fn check(&self, name: LockName, slot: SlotId, mode: KeyMode, converts: bool) -> bool {
        if self.is_bucket_empty(name) {
            return true;
        }
        let mut free = true;
        beside!(self, name, |queue| {
            queue.obstacles(&self.requests, name, slot, mode, converts, |_, _| free = false);
        });
        free
    }

    /// Whether this request is alone in its bucket, as far as that can be told without writing.
    #[inline]
    pub(crate) fn is_alone(&self, name: LockName, request: RequestIndex) -> bool {
        match &self.queues {
            Queues::Latched(latched) => latched.of(name).is_alone(&self.requests, request),
            Queues::Guarded(_) | Queues::Staged(_) => false,
        }
    }

    /// Has the place of a name come from memory.
    #[inline]
    pub(crate) fn prefetch(&self, name: LockName) {
        match &self.queues {
            Queues::Latched(latched) => hint::prefetch(latched.of(name), hint::Access::Read),
            Queues::Staged(staged) => hint::prefetch(staged.of(name), hint::Access::Read),
            Queues::Guarded(_) => {}
        }
    }

    /// Whether anybody holds or wants the name.
    pub(crate) fn is_requested(&self, name: LockName) -> bool {
        let mut any = false;
        if !self.is_bucket_empty(name) {
            beside!(self, name, |queue| queue.each(&self.requests, name, |_| any = true));
        }
        any
    }

    /// Whether nobody holds or wants any name of the bucket, as far as that can be told without writing.
    #[inline]
    fn is_bucket_empty(&self, name: LockName) -> bool {
        match &self.queues {
            Queues::Latched(latched) => latched.of(name).is_empty(),
            Queues::Guarded(_) => false,
            Queues::Staged(staged) => staged.of(name).is_empty(),
        }
    }

    /// The tag that early releases left where the name is, if nobody holds or wants any name there. The emptiness is
    /// read first, by an acquire: the thread that left the place empty had raised the tag before (LOCK-9).
    #[inline]
    pub(crate) fn probe(&self, name: LockName) -> Option<Lsn> {
        self.is_bucket_empty(name).then(|| self.tag(name))
    }

    /// The tag that early releases left where the name is.
    pub(crate) fn tag(&self, name: LockName) -> Lsn {
        match &self.queues {
            Queues::Latched(latched) => latched.of(name).tag(),
            Queues::Guarded(guarded) => guarded.alone(name, |queue| queue.tag()),
            Queues::Staged(staged) => staged.of(name).tag(),
        }
    }

    /// If `slot` is still in the wait `word`, for this request: whom it waits for. `see` is called under the latch.
    pub(crate) fn blockers(
        &self,
        slots: &Slots,
        slot: SlotId,
        word: WaitWord,
        request: RequestIndex,
        see: impl FnOnce(&SlotSet),
    ) -> Option<SlotSet> {
        // While the slot is in that wait the request keeps its name; if it is not, the name is of no consequence.
        let request = self.requests.get(request);
        let name = request.name();
        beside!(self, name, |queue| {
            let waits = slots.wait_of(slot).word() == word;
            waits.then(|| {
                let blockers = queue.blockers(&self.requests, name, request);
                see(&blockers);
                blockers
            })
        })
    }

    /// Makes `slot` a victim if it is still in the wait `word`, for this request.
    pub(crate) fn make_victim(
        &self,
        slots: &Slots,
        slot: SlotId,
        word: WaitWord,
        request: RequestIndex,
        judge: impl FnOnce(),
    ) -> bool {
        let name = self.requests.get(request).name();
        alone!(self, name, |_queue| slots.wait_of(slot).make_victim(word, judge))
    }

    /// Who is in the way of a wish of `slot`, which may be in the queue already; `converts`: as holder of another mode.
    pub(crate) fn holders(
        &self,
        name: LockName,
        slot: SlotId,
        wish: KeyMode,
        converts: bool,
    ) -> Vec<(SlotId, LockMode)> {
        let mut holders = Vec::new();
        beside!(self, name, |queue| {
            let see = |other, mode| holders.push((other, LockMode::of(mode)));
            queue.obstacles(&self.requests, name, slot, wish, converts, see);
        });
        holders
    }

    /// Whether there is no request at all.
    pub(crate) fn is_empty(&self) -> bool {
        let requests = &self.requests;
        match &self.queues {
            Queues::Latched(latched) => latched
                .all()
                .iter()
                .all(|bucket| bucket.is_empty() || bucket.beside(|queue| queue.is_empty(requests))),
            Queues::Guarded(guarded) => (0..guarded.places())
                .all(|place| guarded.alone_in_place(place, |queue| queue.is_empty(requests))),
            Queues::Staged(staged) => staged
                .all()
                .iter()
                .all(|bucket| bucket.is_empty() || bucket.beside(|queue| queue.is_empty(requests))),
        }
    }

    /// Calls `see` with slot and modes of every request on a name, in the order of the queue.
    #[cfg(all(test, not(foreshore_loom)))]
    pub(crate) fn requests_on(&self, name: LockName) -> Vec<(SlotId, Modes)> {
        let mut seen = Vec::new();
        beside!(self, name, |queue| {
            queue.each(&self.requests, name, |request| seen.push((request.slot(), request.modes())));
        });
        seen
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
