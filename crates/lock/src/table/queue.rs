//! The queue of a bucket: requests in the order of their arrival, several names mixed.
//!
//! Who is in the way of whom is said once, in [`obstructs`]; granting, waiting and the search for deadlocks all ask it.

use std::ops::ControlFlow;

use foreshore_base::Lsn;
use foreshore_env::sabotage::{Fault, planted};
use foreshore_env::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::Withdrawn;
use super::holds::Holds;
#[cfg(all(test, foreshore_loom))]
use super::latched::models;
use super::list::{Linked, List};
use super::staged::order;
use super::wakes::Wakes;
use crate::deadlock::SlotSet;
use crate::mode::KeyMode;
use crate::name::LockName;
use crate::request::{Modes, Request, RequestIndex, Requests};
use crate::slot::{SlotId, Slots, Subject, WaitWord};
#[cfg(all(test, foreshore_loom))]
use crate::wait::models as waits;

/// A list of requests. All fields but as noted are guarded by the latch of the bucket, and accessed Relaxed under it.
#[derive(Debug, Default)]
pub(super) struct Queue<L> {
    pub(super) list: L,
    /// How many of the requests wait. In the staged table also read beside the latch, by whoever may have set them
    /// free.
    waiting: AtomicU32,
    /// The highest commit LSN of a transaction that released an exclusive lock here before it was durable. Never
    /// lowered, and as long-lived as the table. Written with Release; read with Acquire by everybody.
    tag: AtomicU64,
}

/// What the operations that involve others need: the requests, the slots, and the name in question.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) requests: &'a Requests,
    pub(super) slots: &'a Slots,
    pub(super) name: LockName,
}

/// What happened to a queue before its waiters are looked at again.
#[derive(Clone, Copy)]
pub(super) enum Change {
    /// A request of this slot left.
    Left(SlotId),
    /// A holder wants no longer more than it has.
    Contented,
    /// Nothing: there is more to grant than one step allowed.
    Nothing,
}

/// Whether `other` is in the way of a wish, and with which mode (LOCK-2; Kimura et al. 2012, Alg. 5).
///
/// A new request counts those before it with what they want and those behind it with what they have. A conversion
/// counts everybody with what they have: it has priority over those that hold nothing yet, and two conversions are in
/// each other's way only if they must be.
#[inline]
pub(crate) fn obstructs(other: Modes, stands_before: bool, wish: KeyMode, converts: bool) -> Option<KeyMode> {
    if converts && planted(Fault::ConversionUnchecked) {
        return None;
    }
    let counted = match (converts, stands_before) {
        (true, _) => other.standing(),
        (false, true) => other.requested,
        (false, false) => other.granted,
    };
    (!counted.compatible(wish)).then_some(counted)
}

impl<L: List> Queue<L> {
    #[inline]
    pub(super) fn tag(&self) -> Lsn {
        Lsn(self.tag.load(Acquire))
    }

    /// Whether anybody waits, as somebody beside the latch asks who may have set them free. The caller has fenced;
    /// partner is the fence of `begin_wait`.
    #[inline]
    pub(super) fn has_waiters(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// How many wait. Under the latch.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(Relaxed)
    }

    /// Under the latch, before who is in the way is looked at.
    fn one_more_waits(&self) {
        self.waiting.store(self.waiting.load(Relaxed) + 1, Relaxed);
    }

    /// Under the latch: a request is granted, or withdrawn.
    fn one_less_waits(&self) {
        self.waiting.store(self.waiting.load(Relaxed) - 1, Relaxed);
    }

    /// LOCK-9: an exclusive request that goes before its commit is durable leaves the commit's LSN. Called before
    /// anybody can be granted what is released: under the latch, or beside it before the request is seen to be gone.
    #[inline]
    pub(super) fn leave_tag(&self, released: &Request, tag: Option<Lsn>) {
        if let Some(tag) = tag
            && released.modes().granted.is_exclusive()
        {
            self.raise_tag(tag);
        }
    }

    /// Others may do so at the same time, beside the latch. Release: partner is the Acquire in `tag`.
    fn raise_tag(&self, tag: Lsn) {
        if self.tag.load(Relaxed) < tag.0 {
            #[cfg(all(test, foreshore_loom))]
            if models::has(models::Fault::Tag) {
                return self.tag.store(tag.0, Release);
            }
            self.tag.fetch_max(tag.0, Release);
        }
    }

    /// Whether there is no request that is of any consequence.
    pub(super) fn is_empty(&self, requests: &Requests) -> bool {
        let mut empty = true;
        self.list.each(requests, |_| {
            empty = false;
            ControlFlow::Break(())
        });
        empty
    }

    /// Visits the requests on a name, oldest first.
    #[inline]
    pub(super) fn each<'r>(&self, requests: &'r Requests, name: LockName, mut see: impl FnMut(&'r Request)) {
        self.list.each(requests, |request| {
            if request.name() == name {
                see(request);
            }
            ControlFlow::Continue(())
        });
    }

    /// Visits those who are in the way of a wish of `slot`, with the mode that conflicts. A transaction that is not in
    /// the queue stands behind everybody.
    pub(super) fn obstacles(
        &self,
        requests: &Requests,
        name: LockName,
        slot: SlotId,
        wish: KeyMode,
        converts: bool,
        mut see: impl FnMut(SlotId, KeyMode),
    ) {
        let mut before = true;
        self.each(requests, name, |other| {
            if other.slot() == slot {
                before = false;
            } else if let Some(mode) = obstructs(other.modes(), before, wish, converts) {
                see(other.slot(), mode);
            }
        });
    }

    /// Of the staged table: what is stored is ordered before what is read (LOCK-13).
    fn announce_first(&self) {
        if L::STAGED {
            order();
        }
    }

    pub(super) fn try_convert(&self, view: &View<'_>, request: RequestIndex, mode: KeyMode) -> Option<Lsn> {
        let mut free = true;
        let converted = view.requests.get(request);
        let before = converted.modes();
        self.list.doubt();
        // S2: newcomers beside the latch see the wish, or are seen here.
        converted.set_modes(Modes { requested: mode, ..before });
        self.announce_first();
        self.obstacles(view.requests, view.name, converted.slot(), mode, true, |_, _| free = false);
        if !free {
            converted.set_modes(before);
            return None;
        }
        converted.set_modes(Modes::held(mode));
        self.announce(view, converted);
        Some(self.tag())
    }

    pub(super) fn request(
        &self,
        view: &View<'_>,
        slot: SlotId,
        request: RequestIndex,
        mode: KeyMode,
    ) -> Result<Lsn, WaitWord> {
        view.requests.get(request).set(view.name, slot, Modes::new(KeyMode::N, mode));
        self.list.append(view.requests, request);
        self.begin_wait(view, request)
    }

    pub(super) fn convert(
        &self,
        view: &View<'_>,
        request: RequestIndex,
        mode: KeyMode,
    ) -> Result<Lsn, WaitWord> {
        if let Some(tag) = self.try_convert(view, request, mode) {
            return Ok(tag);
        }
        let converted = view.requests.get(request);
        converted.set_modes(Modes { requested: mode, ..converted.modes() });
        self.announce(view, converted);
        self.begin_wait(view, request)
    }

    /// Begins the wait of a request that is in the queue, unless nobody is in its way: then it is granted.
    fn begin_wait(&self, view: &View<'_>, request: RequestIndex) -> Result<Lsn, WaitWord> {
        self.one_more_waits();
        // S4: a thread that releases beside the latch sees the waiter, or is seen here to have released.
        self.announce_first();
        let waiter = view.requests.get(request);
        let blockers = self.blockers(view.requests, view.name, waiter);
        if blockers == SlotSet::default() {
            let before = waiter.modes();
            waiter.set_modes(Modes::held(before.requested));
            self.one_less_waits();
            if before.granted != KeyMode::N {
                self.announce(view, waiter);
            }
            return Ok(self.tag());
        }
        Err(view.slots.wait_of(waiter.slot()).begin(Subject::Key(request), &blockers))
    }

    /// Whom a waiting request waits for.
    pub(super) fn blockers(&self, requests: &Requests, name: LockName, request: &Request) -> SlotSet {
        let Modes { granted, requested, .. } = request.modes();
        let mut blockers = SlotSet::default();
        let see = |other, _| blockers.insert(other);
        self.obstacles(requests, name, request.slot(), requested, granted != KeyMode::N, see);
        blockers
    }

    /// LOCK-11: a holder wants more, or has got more past those who wait, and may be in their way now.
    #[cold]
    fn announce(&self, view: &View<'_>, converted: &Request) {
        if self.waiting.load(Relaxed) == 0 {
            return;
        }
        let mut before = false;
        self.each(view.requests, view.name, |other| {
            let wish = other.modes();
            if other.slot() == converted.slot() {
                before = true;
            } else if wish.is_waiting()
                && obstructs(converted.modes(), before, wish.requested, wish.granted != KeyMode::N).is_some()
            {
                view.slots.wait_of(other.slot()).digest().insert(converted.slot());
            }
        });
    }

    pub(super) fn withdraw(&self, view: &View<'_>, request: RequestIndex, wakes: &mut Wakes) -> Withdrawn {
        let withdrawn = view.requests.get(request);
        let wait = view.slots.wait_of(withdrawn.slot());
        let word = wait.word();
        wait.leave();
        if word.is_granted() {
            return Withdrawn::Granted;
        }
        self.one_less_waits();
        let granted = withdrawn.modes().granted;
        if granted == KeyMode::N {
            // Before it may be recycled.
            let slot = withdrawn.slot();
            self.list.remove(view.requests, request);
            let unnoticed = planted(Fault::WithdrawalUnnoticed);
            #[cfg(all(test, foreshore_loom))]
            let unnoticed = unnoticed || waits::has(waits::Fault::Withdrawal);
            if !unnoticed {
                self.pass(view, Change::Left(slot), wakes);
            }
        } else {
            withdrawn.set_modes(Modes::held(granted));
            self.pass(view, Change::Contented, wakes);
        }
        if word.is_victim() { Withdrawn::Victim } else { Withdrawn::Gone }
    }

    /// Grants what can be granted on a name, conversions first, then oldest first, and brings the digests of those who
    /// wait on up to date. Stops granting when `wakes` is full.
    #[cold]
    pub(super) fn pass(&self, view: &View<'_>, change: Change, wakes: &mut Wakes) {
        let mut holds = Holds::default();
        self.each(view.requests, view.name, |request| holds.add(request.modes().standing()));
        self.each(view.requests, view.name, |request| {
            let modes = request.modes();
            if modes.granted != KeyMode::N && modes.is_waiting() {
                self.grant_if(view, request, holds.without(modes.granted).joined(), &mut holds, wakes);
            }
        });
        // What those before want, joined.
        let mut wanted = KeyMode::N;
        self.each(view.requests, view.name, |request| {
            let modes = request.modes();
            if modes.granted == KeyMode::N {
                self.grant_if(view, request, wanted.join(holds.joined()), &mut holds, wakes);
            }
            wanted = wanted.join(modes.requested);
        });
        self.each(view.requests, view.name, |request| {
            let modes = request.modes();
            if modes.is_waiting() {
                let digest = view.slots.wait_of(request.slot()).digest();
                match change {
                    // A new request gets no new obstacles by grants to others like it: those before it counted with
                    // what they wanted, those behind it are granted only what does not conflict with it. Conversions
                    // have announced themselves.
                    Change::Left(slot) if modes.granted == KeyMode::N => digest.remove(slot),
                    Change::Nothing if modes.granted == KeyMode::N => {}
                    _ => digest.store(&self.blockers(view.requests, view.name, request)),
                }
            }
        });
    }

    /// Grants a request, if it still waits and what is in its way is compatible.
    fn grant_if(
        &self,
        view: &View<'_>,
        request: &Request,
        in_the_way: KeyMode,
        holds: &mut Holds,
        wakes: &mut Wakes,
    ) {
        let modes = request.modes();
        let wait = view.slots.wait_of(request.slot());
        // A victim that has not left yet is no waiter any more.
        let waits = modes.is_waiting() && wait.word().is_waiting();
        if waits && !wakes.is_full() && in_the_way.compatible(modes.requested) {
            *holds = holds.without(modes.granted);
            holds.add(modes.requested);
            request.set_modes(Modes::held(modes.requested));
            self.one_less_waits();
            if modes.granted != KeyMode::N {
                self.announce(view, request);
            }
            wait.grant();
            wakes.add(request.slot());
        }
    }
}

impl Queue<Linked> {
    /// Puts a new request into the queue if it can be granted at once.
    #[inline]
    pub(super) fn try_request(
        &self,
        requests: &Requests,
        name: LockName,
        slot: SlotId,
        request: RequestIndex,
        mode: KeyMode,
    ) -> Option<Lsn> {
        let newcomer = requests.get(request);
        let mut shared = !mode.is_exclusive();
        if shared && self.list.is_shared() {
            newcomer.set(name, slot, Modes::held(mode));
            self.list.put_first(newcomer, request);
            return Some(self.tag());
        }
        let (mut last, mut next) = (RequestIndex::NONE, self.list.head());
        while next != RequestIndex::NONE {
            let other = requests.get(next);
            let modes = other.modes();
            if other.name() == name && obstructs(modes, true, mode, false).is_some() {
                return None;
            }
            shared &= modes.is_shared();
            (last, next) = (next, other.next());
        }
        newcomer.set(name, slot, Modes::held(mode));
        self.list.append_after(requests, last, request, shared);
        Some(self.tag())
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
        self.list.remove(view.requests, request);
        self.leave_tag(released, tag);
        if self.waiting.load(Relaxed) > 0 {
            self.pass(view, Change::Left(released.slot()), wakes);
        }
    }
}
