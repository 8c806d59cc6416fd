//! Lock requests, and where they come from: every slot has a segment of its own, and borrows more when it holds many
//! locks. In steady state a lock allocates nothing, and a released request is warm in the cache of whoever takes it
//! next.
//!
//! Requests are linked into queues by number and made of atomics, accessed under the latch of their queue (LOCK-1) or,
//! in the staged table, beside it (LOCK-13): plain moves in machine code, and no undefined behaviour by construction.
//!
//! The staged table uses a request once: what was released may still be linked, or be looked at by somebody on the way
//! past it. Its segments come back in bulk (`request/staging.rs`).

mod staging;

use std::ops::Range;

#[cfg(not(foreshore_loom))]
use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use foreshore_env::sync::{Mutex, OnceLock};

use crate::error::LockError;
#[cfg(not(foreshore_loom))]
use crate::manager::Signal;
use crate::mode::KeyMode;
use crate::name::LockName;
use crate::options::OWN_REQUESTS;
use crate::slot::{SLOTS, SlotId};
pub(crate) use staging::Staging;
use staging::{Emptiness, Link};

/// Requests in a segment.
pub(crate) const SEGMENT: usize = if cfg!(foreshore_loom) { 2 } else { OWN_REQUESTS };

/// Room for free requests that a slot keeps from one transaction to the next.
const KEPT: usize = 16 * SEGMENT;

/// The number of a request, of 30 bits: lists need two for themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestIndex(pub(crate) u32);

impl RequestIndex {
    /// No request.
    pub(crate) const NONE: RequestIndex = RequestIndex(u32::MAX >> 2);
}

/// The modes of a request. It is granted when both are equal; a conversion that waits has both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Modes {
    /// What its owner may rely on; N for a new request that waits.
    pub(crate) granted: KeyMode,
    /// What its owner wants. Covers `granted`.
    pub(crate) requested: KeyMode,
    /// It is new, in the queue, and its owner is looking whether anybody is in its way: it will be granted or go. Only
    /// in the staged table.
    pub(crate) claimed: bool,
}

impl Modes {
    #[inline]
    pub(crate) fn new(granted: KeyMode, requested: KeyMode) -> Modes {
        Modes { granted, requested, claimed: false }
    }

    /// Granted.
    #[inline]
    pub(crate) fn held(mode: KeyMode) -> Modes {
        Modes::new(mode, mode)
    }

    #[inline]
    pub(crate) fn claim(requested: KeyMode) -> Modes {
        Modes { granted: KeyMode::N, requested, claimed: true }
    }

    pub(crate) fn is_waiting(self) -> bool {
        self.granted != self.requested && !self.claimed
    }

    /// Granted, and nothing exclusively.
    pub(crate) fn is_shared(self) -> bool {
        self.granted == self.requested && !self.granted.is_exclusive() && !self.claimed
    }

    /// What must be taken to be granted by whoever may be granted past it: a claim may have looked already.
    #[inline]
    pub(crate) fn standing(self) -> KeyMode {
        if self.claimed { self.requested } else { self.granted }
    }
}

/// Of the state word: the request is a claim.
const CLAIMED: u32 = 1 << 16;
/// Of the state word: the request is of no consequence any more; it may still be linked.
const OBSOLETE: u32 = 1 << 17;

/// A request: one transaction's lock on one name, granted or waiting.
///
/// ```text
/// state word:  obsolete (bit 17) | claimed (bit 16) | requested mode (8 bits) | granted mode (8 bits)
///
///   claimed ──▶ granted ◀──▶ granted, wants more        (conversions: under the latch of the queue)
///      │  waiting ──▲ │
///      │      │       │
///      └──────┴───────┴──▶ obsolete
/// ```
///
/// All fields are guarded by the latch of the queue that it is in, and belong to its owner while it is in none. In the
/// staged table the owner writes the words of its claims and grants beside the latch, and links it likewise (LOCK-13).
#[derive(Debug, Default)]
#[repr(align(32))]
pub(crate) struct Request {
    name: AtomicU64,
    next: AtomicU32,
    /// The slot of its owner. Constant while it is in a queue.
    slot: AtomicU32,
    /// See above. Stored with Release; partners are the Acquire loads of those who find a lock free and go on to what
    /// it protects.
    state: AtomicU32,
}

#[cfg(not(foreshore_loom))]
const _: () = assert!(size_of::<Request>() == 32);

impl Request {
    #[inline]
    pub(crate) fn set(&self, name: LockName, slot: SlotId, modes: Modes) {
        // A thread that reads it sees, too, that the owner's last wait is over.
        self.name.store(name.bits(), Release);
        self.slot.store(u32::from(slot.0), Relaxed);
        self.set_modes(modes);
    }

    #[inline]
    pub(crate) fn name(&self) -> LockName {
        LockName::from_bits(self.name.load(Acquire))
    }

    #[inline]
    pub(crate) fn slot(&self) -> SlotId {
        SlotId(self.slot.load(Relaxed) as u16)
    }

    #[inline]
    pub(crate) fn modes(&self) -> Modes {
        Request::decode(self.state.load(Acquire))
    }

    /// The modes of a request that is not obsolete.
    #[inline]
    pub(crate) fn live_modes(&self) -> Option<Modes> {
        let state = self.state.load(Acquire);
        (state & OBSOLETE == 0).then(|| Request::decode(state))
    }

    fn decode(state: u32) -> Modes {
        let [granted, requested, ..] = state.to_le_bytes();
        Modes {
            granted: KeyMode::from_bits(granted),
            requested: KeyMode::from_bits(requested),
            claimed: state & CLAIMED != 0,
        }
    }

    #[inline]
    pub(crate) fn set_modes(&self, modes: Modes) {
        let bits = u32::from_le_bytes([modes.granted.bits(), modes.requested.bits(), 0, 0]);
        self.state.store(if modes.claimed { bits | CLAIMED } else { bits }, Release);
    }

    #[inline]
    pub(crate) fn is_obsolete(&self) -> bool {
        self.state.load(Acquire) & OBSOLETE != 0
    }

    /// After this, it may be unlinked and recycled by others at any time.
    #[inline]
    pub(crate) fn make_obsolete(&self) {
        self.state.store(OBSOLETE, Release);
    }

    /// Ready to be used again, long after it was unlinked.
    fn renew(&self) {
        self.state.store(0, Relaxed);
    }

    /// The next request, as somebody beside the latch sees it. Partner is [`Request::link`].
    #[inline]
    pub(crate) fn linked(&self) -> RequestIndex {
        RequestIndex(self.next.load(Acquire))
    }

    /// Lets `next` follow. Release: a thread that follows the link sees what was written to the request.
    #[inline]
    pub(crate) fn link(&self, next: RequestIndex) {
        self.next.store(next.0, Release);
    }

    #[inline]
    pub(crate) fn next(&self) -> RequestIndex {
        RequestIndex(self.next.load(Relaxed))
    }

    #[inline]
    pub(crate) fn set_next(&self, next: RequestIndex) {
        self.next.store(next.0, Relaxed);
    }
}

/// Requests that are allocated together.
#[derive(Debug)]
struct Segment {
    requests: [Request; SEGMENT],
    /// Which of them are out of use. Of the staged table, as what follows.
    emptiness: Emptiness,
    /// Its place in a stack of segments.
    link: Link,
}

/// All requests of a lock manager, in segments that are allocated once and live as long as it does.
#[derive(Debug)]
pub(crate) struct Requests {
    /// Unless staged, the first [`SLOTS`] belong to the slots, one each; the others are borrowed.
    segments: Box<[OnceLock<Box<Segment>>]>,
    spare: Mutex<Spare>,
    /// What [`LockError::TooManyLocks`] reports.
    limit: usize,
    staging: Option<Staging>,
}

/// Segments that nobody has borrowed; in the staged table shares of the limit.
#[derive(Debug)]
struct Spare {
    returned: Vec<u32>,
    /// From here on they have never been used.
    fresh: u32,
    end: u32,
}

impl Requests {
    /// `staged`: with so many buckets.
    pub(crate) fn new(max_locks: usize, staged: Option<usize>) -> Requests {
        // Numbers are 30 bits; the last is NONE. Staged, as many again are for what is on its way back.
        let most = (RequestIndex::NONE.0 as usize / SEGMENT) >> u32::from(staged.is_some());
        let shares = SLOTS + max_locks.div_ceil(SEGMENT).min(most - SLOTS);
        let segments = shares << u32::from(staged.is_some());
        Requests {
            segments: (0..segments).map(|_| OnceLock::new()).collect(),
            spare: Mutex::new(Spare { returned: vec![], fresh: SLOTS as u32, end: shares as u32 }),
            limit: (shares - SLOTS) * SEGMENT,
            staging: staged.map(|buckets| Staging::new(buckets, segments)),
        }
    }

    /// A request that has been taken at some time.
    #[inline]
    pub(crate) fn get(&self, request: RequestIndex) -> &Request {
        &self.segment(request.0 / SEGMENT as u32).requests[request.0 as usize % SEGMENT]
    }

    #[inline]
    fn segment(&self, segment: u32) -> &Segment {
        self.segments[segment as usize].get().expect("a request in use has its segment")
    }

    fn make(&self, segment: u32) {
        let make = || {
            let requests = std::array::from_fn(|_| Request::default());
            Box::new(Segment { requests, emptiness: Emptiness::default(), link: Link::default() })
        };
        self.segments[segment as usize].get_or_init(make);
    }

    fn borrow(&self) -> Option<u32> {
        let mut spare = self.spare.lock();
        if let Some(segment) = spare.returned.pop() {
            return Some(segment);
        }
        let fresh = spare.fresh;
        (fresh < spare.end).then(|| {
            spare.fresh += 1;
            fresh
        })
    }

    /// What belongs to the staged table, which alone may ask.
    #[inline]
    pub(crate) fn staging(&self) -> &Staging {
        self.staging.as_ref().expect("only the staged table asks")
    }

    /// How the pre-allocator of the staged table is woken.
    #[cfg(not(foreshore_loom))]
    pub(crate) fn signal(&self) -> Option<&Arc<Signal>> {
        self.staging.as_ref().map(Staging::signal)
    }

    pub(crate) fn is_staged(&self) -> bool {
        self.staging.is_some()
    }
}

/// The requests of a slot that are in no queue.
#[derive(Debug)]
pub(crate) struct FreeRequests {
    slot: SlotId,
    free: Vec<RequestIndex>,
    pub(crate) borrowed: Vec<u32>,
    /// How many locks the slot may hold without borrowing.
    allowance: usize,
}

impl FreeRequests {
    pub(crate) fn new(slot: SlotId) -> FreeRequests {
        FreeRequests { slot, free: Vec::new(), borrowed: Vec::new(), allowance: SEGMENT }
    }

    /// `held`: how many locks the slot holds. `sweep` is called with buckets when the staged table has nothing left.
    #[inline]
    pub(crate) fn take(
        &mut self,
        requests: &Requests,
        held: usize,
        sweep: impl Fn(Range<usize>),
    ) -> Result<RequestIndex, LockError> {
        if held < self.allowance
            && let Some(request) = self.free.pop()
        {
            return Ok(request);
        }
        self.refill(requests, held, sweep)
    }

    /// Gives back a request that was released, or is of a failed attempt. The staged table has used it up; that is
    /// known without a look at it, since whoever recycles requests may have made it another's by now.
    #[inline]
    pub(crate) fn give(&mut self, requests: &Requests, request: RequestIndex) {
        if !requests.is_staged() {
            self.free.push(request);
        }
    }

    /// As [`FreeRequests::give`], for whoever knows that the table does not use requests up.
    #[inline]
    pub(crate) fn give_released(&mut self, request: RequestIndex) {
        self.free.push(request);
    }

    /// Gets a segment: the slot's own if that has not been put into use yet.
    #[cold]
    fn refill(
        &mut self,
        requests: &Requests,
        held: usize,
        sweep: impl Fn(Range<usize>),
    ) -> Result<RequestIndex, LockError> {
        let exhausted = || LockError::TooManyLocks { limit: requests.limit };
        let mut segment = u32::from(self.slot.0);
        if held >= self.allowance {
            segment = requests.borrow().ok_or_else(exhausted)?;
            self.borrowed.push(segment);
            self.allowance += SEGMENT;
        }
        if requests.is_staged() {
            if let Some(request) = self.free.pop() {
                return Ok(request);
            }
            segment = requests.next_segment(sweep).ok_or_else(exhausted)?;
        } else {
            requests.make(segment);
        }
        let first = segment * SEGMENT as u32;
        self.free.extend((first + 1..first + SEGMENT as u32).rev().map(RequestIndex));
        Ok(RequestIndex(first))
    }

    /// All locks have been released: returns what was borrowed.
    #[inline]
    pub(crate) fn settle(&mut self, requests: &Requests) {
        if !self.borrowed.is_empty() {
            self.return_borrowed(requests);
        }
    }

    #[cold]
    fn return_borrowed(&mut self, requests: &Requests) {
        requests.spare.lock().returned.append(&mut self.borrowed);
        self.allowance = SEGMENT;
        if !requests.is_staged() {
            let first = u32::from(self.slot.0) * SEGMENT as u32;
            self.free.clear();
            self.free.shrink_to(KEPT);
            self.free.extend((first..first + SEGMENT as u32).rev().map(RequestIndex));
        }
    }
}
