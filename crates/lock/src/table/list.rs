//! How the requests of a bucket are linked: what queues need of it, and the list of the tables whose every operation has a
//! bucket for itself.

use std::fmt::Debug;
use std::ops::ControlFlow;

use foreshore_env::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

#[cfg(all(test, foreshore_loom))]
use super::latched::models;
use crate::request::{Request, RequestIndex, Requests};

/// A list of requests in the order of their arrival. All operations are under the latch of the bucket.
pub(super) trait List: Debug + Default {
    /// Whether requests come and go beside the latch as well.
    const STAGED: bool;

    /// Visits the requests that are of consequence, oldest first.
    fn each<'r>(&self, requests: &'r Requests, see: impl FnMut(&'r Request) -> ControlFlow<()>);

    /// Puts a request at the end.
    fn append(&self, requests: &Requests, index: RequestIndex);

    /// Takes a request out.
    fn remove(&self, requests: &Requests, request: &Request);
}

/// Of the head word: the list is changed under the latch only. The other bits are the number of the oldest request.
const GUARDED: u32 = 1 << 31;

/// A list linked both ways. One request that is alone in it can come and go beside the latch, in one step each.
///
/// ```text
///   nobody ⇄ one request          beside the latch, by its owner: `enter_alone`, `leave_alone`
///      │ ▲        │
///      ▼ │        ▼
///   guarded, nobody ⇄ guarded, requests          under the latch: `guard` first, `open` when nobody is left
/// ```
#[derive(Debug)]
pub(super) struct Linked {
    /// The head word, see above. While it is not guarded it changes by exchanges: AcqRel and Release, so that who comes
    /// sees what who went has done, and who guards sees the request that it finds; partner is the Acquire of both. While
    /// it is guarded, it is guarded by the latch. SeqCst, where somebody comes, guards, or asks whether nobody is there:
    /// LOCK-17.
    head: AtomicU32,
}

impl Default for Linked {
    fn default() -> Linked {
        Linked { head: AtomicU32::new(RequestIndex::NONE.0) }
    }
}

impl Linked {
    #[inline]
    pub(super) fn head(&self) -> RequestIndex {
        RequestIndex(self.head.load(Relaxed) & !GUARDED)
    }

    /// Whether there is nobody, at this moment. Beside the latch.
    #[inline]
    pub(super) fn is_open_and_bare(&self) -> bool {
        self.head.load(SeqCst) == RequestIndex::NONE.0
    }

    /// Puts a request, which is linked to nobody, into an empty list. Beside the latch; `false`: the list is not empty, or
    /// somebody is about to change it.
    #[inline]
    pub(super) fn enter_alone(&self, index: RequestIndex) -> bool {
        self.head.compare_exchange(RequestIndex::NONE.0, index.0, SeqCst, Relaxed).is_ok()
    }

    /// Whether a request is alone in the list and its owner may take it out beside the latch.
    #[inline]
    pub(super) fn is_alone(&self, index: RequestIndex) -> bool {
        self.head.load(Acquire) == index.0
    }

    /// Takes a request out that is alone. Beside the latch, by its owner; `false`: the latch is needed.
    #[inline]
    pub(super) fn leave_alone(&self, index: RequestIndex) -> bool {
        self.head.compare_exchange(index.0, RequestIndex::NONE.0, Release, Relaxed).is_ok()
    }

    /// Whether the latch guards the list.
    #[inline]
    pub(super) fn is_guarded(&self) -> bool {
        self.head.load(Acquire) & GUARDED != 0
    }

    /// From now on the list is changed under the latch only. By who has the latch exclusively, before anything else.
    #[inline]
    pub(super) fn guard(&self) {
        #[cfg(all(test, foreshore_loom))]
        if models::has(models::Fault::Guard) {
            return;
        }
        if self.head.load(SeqCst) & GUARDED == 0 {
            self.head.fetch_or(GUARDED, SeqCst);
        }
    }

    /// If nobody is left: the next may come beside the latch. By who has the latch exclusively, after everything else.
    #[inline]
    pub(super) fn open(&self) {
        if self.head.load(Relaxed) == RequestIndex::NONE.0 | GUARDED {
            self.head.store(RequestIndex::NONE.0, Release);
        }
    }

    /// Puts a request at the end, where `last` is the last one.
    #[inline]
    pub(super) fn append_after(&self, requests: &Requests, last: RequestIndex, index: RequestIndex) {
        let request = requests.get(index);
        request.set_previous(last);
        request.set_next(RequestIndex::NONE);
        self.follow(requests, last, index);
    }

    /// Lets `next` follow `previous`, or stand at the head.
    #[inline]
    fn follow(&self, requests: &Requests, previous: RequestIndex, next: RequestIndex) {
        if previous == RequestIndex::NONE {
            self.head.store(next.0 | GUARDED, Relaxed);
        } else {
            requests.get(previous).set_next(next);
        }
    }

    /// That the first `most` requests are linked both ways.
    pub(super) fn check_links(&self, requests: &Requests, most: usize) {
        let (mut previous, mut next) = (RequestIndex::NONE, self.head());
        for _ in 0..most {
            if next == RequestIndex::NONE {
                return;
            }
            let request = requests.get(next);
            assert_eq!(request.previous(), previous, "the list is linked both ways");
            (previous, next) = (next, request.next());
        }
    }
}

impl List for Linked {
    const STAGED: bool = false;

    #[inline]
    fn each<'r>(&self, requests: &'r Requests, mut see: impl FnMut(&'r Request) -> ControlFlow<()>) {
        let mut index = self.head();
        while index != RequestIndex::NONE {
            let request = requests.get(index);
            if see(request).is_break() {
                return;
            }
            index = request.next();
        }
    }

    fn append(&self, requests: &Requests, index: RequestIndex) {
        let (mut last, mut next) = (RequestIndex::NONE, self.head());
        while next != RequestIndex::NONE {
            (last, next) = (next, requests.get(next).next());
        }
        self.append_after(requests, last, index);
    }

    #[inline]
    fn remove(&self, requests: &Requests, request: &Request) {
        let (previous, next) = (request.previous(), request.next());
        self.follow(requests, previous, next);
        if next != RequestIndex::NONE {
            requests.get(next).set_previous(previous);
        }
    }
}
