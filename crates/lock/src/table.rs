//! The lock table: who holds and who wants which name. The seam between its implementations.
//!
//! The contract, which the tests beside this file check over every implementation, is that of the operations below.

mod global;
mod latched;
mod look;
mod queue;

use foreshore_base::Lsn;
use foreshore_latch::rank::Rank;

use crate::deadlock::SlotSet;
use crate::error::LockMode;
use crate::mode::Mode;
use crate::name::LockName;
use crate::options::{LockOptions, LockTableKind};
#[cfg(test)]
use crate::request::Modes;
use crate::request::{RequestIndex, Requests};
use crate::slot::{SlotId, Slots, WaitWord};
use global::GlobalMutex;
use latched::Latched;
pub(crate) use look::SeenRequest;
use queue::{Change, Queue, View};
pub(crate) use queue::{Wakes, obstructs};

/// The latches of lock queues and intent locks in the latch order: they are taken under page latches, and nothing is taken
/// under them.
pub(crate) const QUEUE_RANK: Rank = Rank(60_000);

/// A lock table.
#[derive(Debug)]
pub(crate) struct LockTable {
    requests: Requests,
    queues: Queues,
}

#[derive(Debug)]
enum Queues {
    Latched(Latched),
    GlobalMutex(GlobalMutex),
}

/// What became of a request that was taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Withdrawn {
    /// It had been granted before: it stands.
    Granted,
    /// It is gone; its owner was made a victim.
    Victim,
    /// It is gone.
    Gone,
}

impl LockTable {
    pub(crate) fn new(options: &LockOptions) -> LockTable {
        let buckets = options.buckets.clamp(1, 1 << 28).next_power_of_two();
        let queues = match options.table {
            LockTableKind::Latched => Queues::Latched(Latched::new(buckets)),
            LockTableKind::GlobalMutex => Queues::GlobalMutex(GlobalMutex::new(buckets)),
        };
        LockTable { requests: Requests::new(options.max_locks), queues }
    }

    #[inline]
    pub(crate) fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Runs `operation` on the queue of a name, alone.
    #[inline]
    fn alone<R>(&self, name: LockName, operation: impl FnOnce(&Queue) -> R) -> R {
        let checked = |queue: &Queue| {
            let result = operation(queue);
            queue.check_state(&self.requests, name);
            result
        };
        match &self.queues {
            Queues::Latched(latched) => latched.alone(name, checked),
            Queues::GlobalMutex(global) => global.alone(name, checked),
        }
    }

    /// Runs `operation` on the queue of a name while nobody changes it.
    fn beside<R>(&self, name: LockName, operation: impl FnOnce(&Queue) -> R) -> R {
        match &self.queues {
            Queues::Latched(latched) => latched.beside(name, operation),
            Queues::GlobalMutex(global) => global.alone(name, operation),
        }
    }

    fn view<'a>(&'a self, slots: &'a Slots, name: LockName) -> View<'a> {
        View { requests: &self.requests, slots, name }
    }

    /// Puts a new request into the queue if it can be granted at once, and returns the queue's tag; otherwise leaves
    /// nothing.
    #[inline]
    pub(crate) fn try_request(
        &self,
        name: LockName,
        slot: SlotId,
        request: RequestIndex,
        mode: Mode,
    ) -> Option<Lsn> {
        self.alone(name, |queue| queue.try_request(&self.requests, name, slot, request, mode))
    }

    /// Strengthens a granted request to `mode`, which covers its own, if that can be granted at once; returns the tag.
    pub(crate) fn try_convert(
        &self,
        slots: &Slots,
        name: LockName,
        request: RequestIndex,
        mode: Mode,
    ) -> Option<Lsn> {
        self.alone(name, |queue| queue.try_convert(&self.view(slots, name), request, mode))
    }

    /// Puts a new request into the queue: granted at once (`Ok`), or its owner begins a wait.
    pub(crate) fn request(
        &self,
        slots: &Slots,
        name: LockName,
        slot: SlotId,
        request: RequestIndex,
        mode: Mode,
    ) -> Result<Lsn, WaitWord> {
        self.alone(name, |queue| queue.request(&self.view(slots, name), slot, request, mode))
    }

    /// As [`LockTable::try_convert`], but the owner begins a wait if need be.
    pub(crate) fn convert(
        &self,
        slots: &Slots,
        name: LockName,
        request: RequestIndex,
        mode: Mode,
    ) -> Result<Lsn, WaitWord> {
        self.alone(name, |queue| queue.convert(&self.view(slots, name), request, mode))
    }

    /// Ends a wait, however it stands (LOCK-6). If the request was not granted, it is as before the wait, and who waited
    /// for it goes on.
    pub(crate) fn withdraw(&self, slots: &Slots, name: LockName, request: RequestIndex) -> Withdrawn {
        let mut wakes = Wakes::default();
        let withdrawn =
            self.alone(name, |queue| queue.withdraw(&self.view(slots, name), request, &mut wakes));
        self.wake(slots, name, wakes);
        withdrawn
    }

    /// Takes a granted request out of the queue. With a tag, an exclusive one leaves it behind (LOCK-9).
    #[inline]
    pub(crate) fn release(&self, slots: &Slots, name: LockName, request: RequestIndex, tag: Option<Lsn>) {
        let mut wakes = Wakes::default();
        self.alone(name, |queue| queue.release(&self.view(slots, name), request, tag, &mut wakes));
        if !wakes.is_empty() {
            self.wake(slots, name, wakes);
        }
    }

    /// LOCK-5: wakes those whose waits were ended, not under the latch, and looks for more if they were too many for one step.
    #[cold]
    fn wake(&self, slots: &Slots, name: LockName, mut wakes: Wakes) {
        loop {
            let more = wakes.is_full();
            wakes.wake(slots);
            if !more {
                return;
            }
            wakes = Wakes::default();
            self.alone(name, |queue| queue.pass(&self.view(slots, name), Change::Nothing, &mut wakes));
        }
    }

    /// Whether a new request of `slot`, or with `converts` a stronger one, could be granted at once.
    pub(crate) fn check(&self, name: LockName, slot: SlotId, mode: Mode, converts: bool) -> bool {
        if self.is_bucket_empty(name) {
            return true;
        }
        let mut free = true;
        self.beside(name, |queue| {
            queue.obstacles(&self.requests, name, slot, mode, converts, |_, _| free = false);
        });
        free
    }

    /// Whether anybody holds or wants the name.
    pub(crate) fn is_requested(&self, name: LockName) -> bool {
        let mut any = false;
        if !self.is_bucket_empty(name) {
            self.beside(name, |queue| queue.each(&self.requests, name, |_| any = true));
        }
        any
    }

    /// Whether nobody holds or wants any name of the bucket, as far as that can be told without writing.
    #[inline]
    fn is_bucket_empty(&self, name: LockName) -> bool {
        match &self.queues {
            Queues::Latched(latched) => latched.is_bucket_empty(name),
            Queues::GlobalMutex(_) => false,
        }
    }

    /// The tag that early releases left where the name is.
    pub(crate) fn tag(&self, name: LockName) -> Lsn {
        match &self.queues {
            Queues::Latched(latched) => latched.tag(name),
            Queues::GlobalMutex(global) => global.alone(name, Queue::tag),
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
        self.beside(name, |queue| {
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
        self.alone(name, |_| {
            let waits = slots.wait_of(slot).word() == word;
            if waits {
                judge();
                slots.wait_of(slot).make_victim();
            }
            waits
        })
    }

    /// Who is in the way of a wish of `slot`, which may be in the queue already; `converts`: as holder of another mode.
    pub(crate) fn holders(
        &self,
        name: LockName,
        slot: SlotId,
        wish: Mode,
        converts: bool,
    ) -> Vec<(SlotId, LockMode)> {
        let mut holders = Vec::new();
        self.beside(name, |queue| {
            let see = |other, mode| holders.push((other, LockMode::Key(mode)));
            queue.obstacles(&self.requests, name, slot, wish, converts, see);
        });
        holders
    }

    /// Whether there is no request at all.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.queues {
            Queues::Latched(latched) => latched.is_empty(),
            Queues::GlobalMutex(global) => global.is_empty(),
        }
    }

    /// Calls `see` with slot and modes of every request on a name, in the order of the queue.
    #[cfg(test)]
    pub(crate) fn requests_on(&self, name: LockName) -> Vec<(SlotId, Modes)> {
        let mut seen = Vec::new();
        self.beside(name, |queue| {
            queue.each(&self.requests, name, |request| seen.push((request.slot(), request.modes())));
        });
        seen
    }
}

#[cfg(test)]
mod tests;
