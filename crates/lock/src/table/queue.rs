//! The queue of a bucket: a list of requests in the order of their arrival, several names mixed.
//!
//! Who is in the way of whom is said once, in [`obstructs`]; granting, waiting and the search for deadlocks all ask it.

use foreshore_base::Lsn;
use foreshore_env::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use foreshore_latch::parking;

use super::Withdrawn;
use crate::deadlock::SlotSet;
use crate::mode::Mode;
use crate::name::LockName;
use crate::request::{Modes, Request, RequestIndex, Requests};
use crate::slot::{SlotId, Slots, Subject, WaitWord};

/// A list of requests. All fields but as noted are guarded by the latch of the bucket, and accessed Relaxed under it.
#[derive(Debug)]
pub(super) struct Queue {
    /// The oldest request. Also read optimistically, to see an empty queue.
    head: AtomicU32,
    /// How many of the requests wait.
    waiting: AtomicU32,
    /// The highest commit LSN of a transaction that released an exclusive lock here before it was durable. Never lowered,
    /// and as long-lived as the table. Stored with Release under the latch; read with Acquire by everybody.
    tag: AtomicU64,
}

impl Default for Queue {
    fn default() -> Queue {
        let head = AtomicU32::new(RequestIndex::NONE.0);
        Queue { head, waiting: AtomicU32::new(0), tag: AtomicU64::new(0) }
    }
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
/// A new request counts those before it with what they want and those behind it with what they have. A conversion counts
/// everybody with what they have: it has priority over those that hold nothing yet, and two conversions are in each
/// other's way only if they must be.
#[inline]
pub(crate) fn obstructs(other: Modes, stands_before: bool, wish: Mode, converts: bool) -> Option<Mode> {
    let counted = if stands_before && !converts { other.requested } else { other.granted };
    (!counted.compatible(wish)).then_some(counted)
}

impl Queue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head() == RequestIndex::NONE
    }

    #[inline]
    pub(super) fn head(&self) -> RequestIndex {
        RequestIndex(self.head.load(Relaxed))
    }

    #[inline]
    pub(super) fn tag(&self) -> Lsn {
        Lsn(self.tag.load(Acquire))
    }

    /// Visits the requests on a name, oldest first.
    #[inline]
    pub(super) fn each<'r>(&self, requests: &'r Requests, name: LockName, mut see: impl FnMut(&'r Request)) {
        let mut index = self.head();
        while index != RequestIndex::NONE {
            let request = requests.get(index);
            // Before the visit, which may unlink it.
            let next = request.next();
            if request.name() == name {
                see(request);
            }
            index = next;
        }
    }

    /// Visits those who are in the way of a wish of `slot`, with the mode that conflicts. Who is not in the queue stands
    /// behind everybody.
    pub(super) fn obstacles(
        &self,
        requests: &Requests,
        name: LockName,
        slot: SlotId,
        wish: Mode,
        converts: bool,
        mut see: impl FnMut(SlotId, Mode),
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

    #[inline]
    pub(super) fn try_request(
        &self,
        requests: &Requests,
        name: LockName,
        slot: SlotId,
        request: RequestIndex,
        mode: Mode,
    ) -> Option<Lsn> {
        let (mut last, mut next) = (RequestIndex::NONE, self.head());
        while next != RequestIndex::NONE {
            let other = requests.get(next);
            if other.name() == name && obstructs(other.modes(), true, mode, false).is_some() {
                return None;
            }
            (last, next) = (next, other.next());
        }
        let added = requests.get(request);
        added.set(name, slot, Modes { granted: mode, requested: mode });
        self.append_after(requests, last, request, added);
        Some(self.tag())
    }

    pub(super) fn try_convert(&self, view: &View<'_>, request: RequestIndex, mode: Mode) -> Option<Lsn> {
        let mut free = true;
        let converted = view.requests.get(request);
        self.obstacles(view.requests, view.name, converted.slot(), mode, true, |_, _| free = false);
        free.then(|| {
            converted.set_modes(Modes { granted: mode, requested: mode });
            self.announce(view, converted);
            self.tag()
        })
    }

    pub(super) fn request(
        &self,
        view: &View<'_>,
        slot: SlotId,
        request: RequestIndex,
        mode: Mode,
    ) -> Result<Lsn, WaitWord> {
        if let Some(tag) = self.try_request(view.requests, view.name, slot, request, mode) {
            return Ok(tag);
        }
        let added = view.requests.get(request);
        added.set(view.name, slot, Modes { granted: Mode::N, requested: mode });
        let (mut last, mut next) = (RequestIndex::NONE, self.head());
        while next != RequestIndex::NONE {
            (last, next) = (next, view.requests.get(next).next());
        }
        self.append_after(view.requests, last, request, added);
        Err(self.begin_wait(view, slot, request))
    }

    pub(super) fn convert(
        &self,
        view: &View<'_>,
        request: RequestIndex,
        mode: Mode,
    ) -> Result<Lsn, WaitWord> {
        if let Some(tag) = self.try_convert(view, request, mode) {
            return Ok(tag);
        }
        let converted = view.requests.get(request);
        converted.set_modes(Modes { requested: mode, ..converted.modes() });
        self.announce(view, converted);
        Err(self.begin_wait(view, converted.slot(), request))
    }

    fn begin_wait(&self, view: &View<'_>, slot: SlotId, request: RequestIndex) -> WaitWord {
        self.waiting.store(self.waiting.load(Relaxed) + 1, Relaxed);
        let blockers = self.blockers(view.requests, view.name, view.requests.get(request));
        view.slots.wait_of(slot).begin(Subject::Key(request), &blockers)
    }

    /// Whom a waiting request waits for.
    pub(super) fn blockers(&self, requests: &Requests, name: LockName, request: &Request) -> SlotSet {
        let Modes { granted, requested } = request.modes();
        let mut blockers = SlotSet::default();
        let see = |other, _| blockers.insert(other);
        self.obstacles(requests, name, request.slot(), requested, granted != Mode::N, see);
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
                && obstructs(converted.modes(), before, wish.requested, wish.granted != Mode::N).is_some()
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
        self.waiting.store(self.waiting.load(Relaxed) - 1, Relaxed);
        let granted = withdrawn.modes().granted;
        if granted == Mode::N {
            self.unlink(view.requests, withdrawn);
            self.pass(view, Change::Left(withdrawn.slot()), wakes);
        } else {
            withdrawn.set_modes(Modes { granted, requested: granted });
            self.pass(view, Change::Contented, wakes);
        }
        if word.is_victim() { Withdrawn::Victim } else { Withdrawn::Gone }
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
        self.unlink(view.requests, released);
        if let Some(tag) = tag
            && released.modes().granted.is_exclusive()
        {
            // Release: partner is the Acquire in `tag`. Before anybody is granted what is released here.
            self.tag.store(self.tag.load(Relaxed).max(tag.0), Release);
        }
        if self.waiting.load(Relaxed) > 0 {
            self.pass(view, Change::Left(released.slot()), wakes);
        }
    }

    /// Grants what can be granted on a name, conversions first, then oldest first, and brings the digests of those who wait
    /// on up to date. Stops granting when `wakes` is full.
    #[cold]
    pub(super) fn pass(&self, view: &View<'_>, change: Change, wakes: &mut Wakes) {
        let mut holds = Holds::default();
        self.each(view.requests, view.name, |request| holds.add(request.modes().granted));
        self.each(view.requests, view.name, |request| {
            let modes = request.modes();
            if modes.granted != Mode::N {
                self.grant_if(view, request, holds.without(modes.granted).joined(), &mut holds, wakes);
            }
        });
        // What those before want, joined.
        let mut wanted = Mode::N;
        self.each(view.requests, view.name, |request| {
            let modes = request.modes();
            if modes.granted == Mode::N {
                self.grant_if(view, request, wanted.join(holds.joined()), &mut holds, wakes);
            }
            wanted = wanted.join(modes.requested);
        });
        self.each(view.requests, view.name, |request| {
            let modes = request.modes();
            if modes.is_waiting() {
                let digest = view.slots.wait_of(request.slot()).digest();
                match change {
                    // A new request gets no new obstacles by grants to others like it: those before it counted with what
                    // they wanted, those behind it are granted only what does not conflict with it. Conversions have
                    // announced themselves.
                    Change::Left(slot) if modes.granted == Mode::N => digest.remove(slot),
                    Change::Nothing if modes.granted == Mode::N => {}
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
        in_the_way: Mode,
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
            request.set_modes(Modes { granted: modes.requested, ..modes });
            self.waiting.store(self.waiting.load(Relaxed) - 1, Relaxed);
            if modes.granted != Mode::N {
                self.announce(view, request);
            }
            wait.grant();
            wakes.add(request.slot());
        }
    }

    /// Puts a request at the end, where `last` is the last one. Who appends has walked the list anyway.
    #[inline]
    fn append_after(&self, requests: &Requests, last: RequestIndex, index: RequestIndex, request: &Request) {
        request.set_previous(last);
        request.set_next(RequestIndex::NONE);
        self.link(requests, last, index);
    }

    #[inline]
    fn unlink(&self, requests: &Requests, request: &Request) {
        let (previous, next) = (request.previous(), request.next());
        self.link(requests, previous, next);
        if next != RequestIndex::NONE {
            requests.get(next).set_previous(previous);
        }
    }

    /// Lets `next` follow `previous`, or stand at the head.
    #[inline]
    fn link(&self, requests: &Requests, previous: RequestIndex, next: RequestIndex) {
        if previous == RequestIndex::NONE {
            self.head.store(next.0, Relaxed);
        } else {
            requests.get(previous).set_next(next);
        }
    }
}

/// Requests of a bucket that [`Queue::check_state`] looks at.
const CHECKED: usize = 48;

impl Queue {
    /// What must be true whenever the latch is released, in debug builds: LOCK-3 for the name, the links, the count.
    #[inline]
    pub(super) fn check_state(&self, requests: &Requests, name: LockName) {
        if cfg!(debug_assertions) {
            self.check_requests(requests, name);
        }
    }

    fn check_requests(&self, requests: &Requests, name: LockName) {
        let (mut previous, mut next) = (RequestIndex::NONE, self.head());
        let mut granted: Vec<Modes> = Vec::new();
        let (mut seen, mut waiting) = (0, 0);
        while next != RequestIndex::NONE && seen < CHECKED {
            let request = requests.get(next);
            let modes = request.modes();
            assert_eq!(request.previous(), previous, "the list is linked both ways");
            assert!(modes.requested.covers(modes.granted) && modes.requested != Mode::N, "{modes:?}");
            if request.name() == name {
                let fits = |other: &Modes| other.granted.compatible(modes.granted);
                assert!(granted.iter().all(fits), "LOCK-3: {modes:?} beside {granted:?}");
                granted.push(modes);
            }
            seen += 1;
            waiting += u32::from(modes.is_waiting());
            (previous, next) = (next, request.next());
        }
        let counted = self.waiting.load(Relaxed);
        assert!(
            waiting == counted || next != RequestIndex::NONE && waiting < counted,
            "{waiting} of {counted} wait"
        );
    }
}

/// How many hold each part of a name, shared or exclusively, so that a conversion's own share can be taken out.
#[derive(Clone, Copy, Default)]
struct Holds {
    /// Key locked, key exclusive, gap locked, gap exclusive: the bits of a mode.
    counts: [u32; 4],
}

impl Holds {
    fn add(&mut self, mode: Mode) {
        for (bit, count) in self.counts.iter_mut().enumerate() {
            *count += u32::from(mode.bits() >> bit & 1);
        }
    }

    fn without(mut self, mode: Mode) -> Holds {
        for (bit, count) in self.counts.iter_mut().enumerate() {
            *count -= u32::from(mode.bits() >> bit & 1);
        }
        self
    }

    fn joined(&self) -> Mode {
        let bits = self.counts.iter().enumerate().map(|(bit, &count)| u8::from(count > 0) << bit);
        Mode::from_bits(bits.sum())
    }
}

/// Wake-ups in one step.
const WAKES: usize = 14;

/// Transactions whose waits were ended under a latch, to be woken when it is released.
#[derive(Default)]
pub(crate) struct Wakes {
    slots: [u16; WAKES],
    count: u16,
}

impl Wakes {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        usize::from(self.count) == WAKES
    }

    /// There is room.
    pub(crate) fn add(&mut self, slot: SlotId) {
        self.slots[usize::from(self.count)] = slot.0;
        self.count += 1;
    }

    pub(crate) fn wake(&self, slots: &Slots) {
        for &slot in &self.slots[..usize::from(self.count)] {
            parking::unpark_one(slots.wait_of(SlotId(slot)).address(), |_| {});
        }
    }
}
