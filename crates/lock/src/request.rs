//! Lock requests, and where they come from: every slot has a segment of its own, and borrows more when it holds many
//! locks. In steady state a lock allocates nothing, and a released request is warm in the cache of who takes it next.
//!
//! Requests are linked into queues by number and made of atomics, accessed Relaxed under the latch of their queue
//! (LOCK-1): plain moves in machine code, and no undefined behaviour by construction.

use foreshore_base::limits::MAX_TRANSACTIONS;
use foreshore_env::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use foreshore_env::sync::{Mutex, OnceLock};

use crate::error::LockError;
use crate::mode::Mode;
use crate::name::LockName;
use crate::options::OWN_REQUESTS;
use crate::slot::SlotId;

/// Requests in a segment.
const SEGMENT: usize = OWN_REQUESTS;

/// The number of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestIndex(pub(crate) u32);

impl RequestIndex {
    /// No request.
    pub(crate) const NONE: RequestIndex = RequestIndex(u32::MAX);
}

/// The modes of a request. It is granted when both are equal; a conversion that waits has both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Modes {
    /// What its owner may rely on; N for a new request that waits.
    pub(crate) granted: Mode,
    /// What its owner wants. Covers `granted`.
    pub(crate) requested: Mode,
}

impl Modes {
    pub(crate) fn is_waiting(self) -> bool {
        self.granted != self.requested
    }
}

/// A request: one transaction's lock on one name, granted or waiting. All fields are guarded by the latch of the queue
/// that it is in, and belong to its owner while it is in none.
#[derive(Debug, Default)]
#[repr(align(32))]
pub(crate) struct Request {
    name: AtomicU64,
    next: AtomicU32,
    previous: AtomicU32,
    /// The slot of its owner. Constant while it is in a queue.
    slot: AtomicU32,
    /// Granted mode | requested mode × 256.
    modes: AtomicU32,
}

const _: () = assert!(size_of::<Request>() == 32);

impl Request {
    #[inline]
    pub(crate) fn set(&self, name: LockName, slot: SlotId, modes: Modes) {
        self.name.store(name.bits(), Relaxed);
        self.slot.store(u32::from(slot.0), Relaxed);
        self.set_modes(modes);
    }

    #[inline]
    pub(crate) fn name(&self) -> LockName {
        LockName::from_bits(self.name.load(Relaxed))
    }

    #[inline]
    pub(crate) fn slot(&self) -> SlotId {
        SlotId(self.slot.load(Relaxed) as u16)
    }

    #[inline]
    pub(crate) fn modes(&self) -> Modes {
        let [granted, requested, ..] = self.modes.load(Relaxed).to_le_bytes();
        Modes { granted: Mode::from_bits(granted), requested: Mode::from_bits(requested) }
    }

    #[inline]
    pub(crate) fn set_modes(&self, modes: Modes) {
        self.modes.store(u32::from_le_bytes([modes.granted.bits(), modes.requested.bits(), 0, 0]), Relaxed);
    }

    #[inline]
    pub(crate) fn next(&self) -> RequestIndex {
        RequestIndex(self.next.load(Relaxed))
    }

    #[inline]
    pub(crate) fn set_next(&self, next: RequestIndex) {
        self.next.store(next.0, Relaxed);
    }

    #[inline]
    pub(crate) fn previous(&self) -> RequestIndex {
        RequestIndex(self.previous.load(Relaxed))
    }

    #[inline]
    pub(crate) fn set_previous(&self, previous: RequestIndex) {
        self.previous.store(previous.0, Relaxed);
    }
}

/// All requests of a lock manager, in segments that are allocated once and live as long as it does.
#[derive(Debug)]
pub(crate) struct Requests {
    /// The first [`MAX_TRANSACTIONS`] belong to the slots, one each; the others are borrowed.
    segments: Box<[OnceLock<Box<[Request]>>]>,
    spare: Mutex<Spare>,
    /// The limit that [`LockError::TooManyLocks`] reports when nothing is left to borrow.
    limit: usize,
}

/// Segments that nobody has borrowed.
#[derive(Debug)]
struct Spare {
    returned: Vec<u32>,
    /// From here on they have never been used.
    fresh: u32,
}

impl Requests {
    pub(crate) fn new(max_locks: usize) -> Requests {
        // Numbers are 32 bits; the last is NONE.
        let borrowed = max_locks.div_ceil(SEGMENT).min(u32::MAX as usize / SEGMENT - MAX_TRANSACTIONS);
        Requests {
            segments: (0..MAX_TRANSACTIONS + borrowed).map(|_| OnceLock::new()).collect(),
            spare: Mutex::new(Spare { returned: Vec::new(), fresh: MAX_TRANSACTIONS as u32 }),
            limit: max_locks,
        }
    }

    /// A request that has been taken at some time.
    #[inline]
    pub(crate) fn get(&self, request: RequestIndex) -> &Request {
        let segment = self.segments[request.0 as usize / SEGMENT].get();
        &segment.expect("a request in use has its segment")[request.0 as usize % SEGMENT]
    }

    fn make(&self, segment: u32) {
        let make = || (0..SEGMENT).map(|_| Request::default()).collect();
        self.segments[segment as usize].get_or_init(make);
    }

    fn borrow(&self) -> Option<u32> {
        let mut spare = self.spare.lock();
        if let Some(segment) = spare.returned.pop() {
            return Some(segment);
        }
        let fresh = spare.fresh;
        ((fresh as usize) < self.segments.len()).then(|| {
            spare.fresh += 1;
            fresh
        })
    }
}

/// The requests of a slot that are in no queue.
#[derive(Debug)]
pub(crate) struct FreeRequests {
    slot: SlotId,
    free: Vec<RequestIndex>,
    borrowed: Vec<u32>,
}

impl FreeRequests {
    pub(crate) fn new(slot: SlotId) -> FreeRequests {
        FreeRequests { slot, free: Vec::new(), borrowed: Vec::new() }
    }

    #[inline]
    pub(crate) fn take(&mut self, requests: &Requests, held: usize) -> Result<RequestIndex, LockError> {
        match self.free.pop() {
            Some(request) => Ok(request),
            None => self.refill(requests, held),
        }
    }

    #[inline]
    pub(crate) fn give(&mut self, request: RequestIndex) {
        self.free.push(request);
    }

    /// Gets a segment: the slot's own if it has not been touched yet, when nothing is held.
    #[cold]
    fn refill(&mut self, requests: &Requests, held: usize) -> Result<RequestIndex, LockError> {
        let segment = if held == 0 {
            u32::from(self.slot.0)
        } else {
            let segment = requests.borrow().ok_or(LockError::TooManyLocks { limit: requests.limit })?;
            self.borrowed.push(segment);
            segment
        };
        requests.make(segment);
        let first = segment * SEGMENT as u32;
        self.free.extend((first + 1..first + SEGMENT as u32).rev().map(RequestIndex));
        Ok(RequestIndex(first))
    }

    /// All requests have been given back: returns what was borrowed.
    #[inline]
    pub(crate) fn settle(&mut self, requests: &Requests) {
        if !self.borrowed.is_empty() {
            self.return_borrowed(requests);
        }
    }

    #[cold]
    fn return_borrowed(&mut self, requests: &Requests) {
        requests.spare.lock().returned.append(&mut self.borrowed);
        let first = u32::from(self.slot.0) * SEGMENT as u32;
        self.free.clear();
        self.free.shrink_to(SEGMENT);
        self.free.extend((first..first + SEGMENT as u32).rev().map(RequestIndex));
    }
}
