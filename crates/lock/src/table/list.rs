//! How the requests of a bucket are linked: what queues need of it, and the list of the tables whose every operation
//! has a bucket for itself.

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
    fn remove(&self, requests: &Requests, index: RequestIndex);

    /// A request is about to want more than it has.
    fn doubt(&self) {}
}

/// Of the head word: the list is changed under the latch only.
const GUARDED: u32 = 1 << 31;
/// Of the head word: all requests are granted, and none has anything exclusively, so that a thread that wants to share
/// need look at none of them. The other bits are the number of the first request.
const SHARED: u32 = 1 << 30;

/// A list linked one way. What is shared comes and goes at its head, and there, as long as nobody guards the list,
/// beside the latch, in one step each; so does an exclusive request that is alone. Requests come and go by turns: those
/// of others that stand still in the midst of their transactions, and are in no cache, stay behind the head and are not
/// touched.
///
/// ```text
///   nobody ⇄ one, exclusive               beside the latch, by their owners: `enter`, `leave`
///      ⇅           │
///   one, shared ⇄ two, shared ⇄ …
///      │           │
///      ▼           ▼
///   guarded ⇄ guarded, requests           under the latch: `guard` first, `open` when nobody is left
/// ```
///
/// The request that follows another changes only while the list is guarded, and a list that has been guarded is not
/// opened before all have left. So who has read its own link and finds itself at the head of an open list leaves by
/// what it read.
#[derive(Debug)]
pub(super) struct Linked {
    /// The head word, see above. While it is not guarded it changes by exchanges: AcqRel and Release, so that a thread
    /// that comes sees what one that went has done, and one that guards sees the requests that it finds; partner is the
    /// Acquire of both. While it is guarded, it is guarded by the latch. SeqCst, where somebody comes, guards, or asks
    /// whether nobody is there: LOCK-17.
    head: AtomicU32,
}

impl Default for Linked {
    fn default() -> Linked {
        Linked { head: AtomicU32::new(RequestIndex::NONE.0) }
    }
}

/// The number in a head word.
#[inline]
fn number(head: u32) -> RequestIndex {
    RequestIndex(head & !(GUARDED | SHARED))
}

/// The head word of an open list.
#[inline]
fn open_head(first: RequestIndex, shared: bool) -> u32 {
    first.0 | if shared && first != RequestIndex::NONE { SHARED } else { 0 }
}

impl Linked {
    #[inline]
    pub(super) fn head(&self) -> RequestIndex {
        number(self.head.load(Relaxed))
    }

    /// Whether there is nobody, at this moment. Beside the latch.
    #[inline]
    pub(super) fn is_open_and_bare(&self) -> bool {
        self.head.load(SeqCst) == RequestIndex::NONE.0
    }

    /// Puts a request that has been set at the head, if the list is open and nobody is there or all are `shared`.
    /// Beside the latch; `false`: the latch is needed.
    #[inline]
    pub(super) fn enter(&self, request: &Request, index: RequestIndex, shared: bool) -> bool {
        let comes = SeqCst;
        #[cfg(all(test, foreshore_loom))]
        let comes = models::weakened(models::Fault::Comes, comes);
        let mut head = self.head.load(Relaxed);
        while self.admits(head, shared) {
            request.set_next(number(head));
            match self.head.compare_exchange_weak(head, open_head(index, shared), comes, Relaxed) {
                Ok(_) => return true,
                Err(now) => head = now,
            }
        }
        false
    }

    /// Whether [`Linked::enter`] may succeed.
    #[inline]
    pub(super) fn may_enter(&self, shared: bool) -> bool {
        self.admits(self.head.load(Relaxed), shared)
    }

    #[inline]
    fn admits(&self, head: u32, shared: bool) -> bool {
        head == RequestIndex::NONE.0 || shared && head & (GUARDED | SHARED) == SHARED
    }

    /// Whether a request is the first of an open list, so that its owner may take it out beside the latch. SeqCst as
    /// every answer to LOCK-17.
    #[inline]
    pub(super) fn is_first(&self, index: RequestIndex) -> bool {
        self.head.load(SeqCst) & !SHARED == index.0
    }

    /// Takes a request out that is the first. Beside the latch, by its owner; `false`: the latch is needed.
    #[inline]
    pub(super) fn leave(&self, request: &Request, index: RequestIndex) -> bool {
        let goes = Release;
        #[cfg(all(test, foreshore_loom))]
        let goes = models::weakened(models::Fault::Goes, goes);
        let head = self.head.load(Relaxed);
        let next = open_head(request.next(), true);
        head & !SHARED == index.0 && self.head.compare_exchange(head, next, goes, Relaxed).is_ok()
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
        let guards = SeqCst;
        #[cfg(all(test, foreshore_loom))]
        let guards = models::weakened(models::Fault::Guards, guards);
        if self.head.load(guards) & GUARDED == 0 {
            self.head.fetch_or(GUARDED, guards);
        }
    }

    /// If nobody is left: the next may come beside the latch. By who has the latch exclusively, after everything else.
    #[inline]
    pub(super) fn open(&self) {
        let head = self.head.load(Relaxed);
        if head & GUARDED != 0 && number(head) == RequestIndex::NONE {
            self.head.store(RequestIndex::NONE.0, Release);
        }
    }

    /// Whether all requests are granted and shared, as far as that is known. Under the latch.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.head.load(Relaxed) & SHARED != 0
    }

    /// Puts a request at the head of a list of which all are shared, as it is.
    #[inline]
    pub(super) fn put_first(&self, request: &Request, index: RequestIndex) {
        request.set_next(self.head());
        self.head.store(index.0 | GUARDED | SHARED, Relaxed);
    }

    /// Puts a request at the end, where `last` is the last one. `shared`: all are, and this one.
    #[inline]
    pub(super) fn append_after(
        &self,
        requests: &Requests,
        last: RequestIndex,
        index: RequestIndex,
        shared: bool,
    ) {
        requests.get(index).set_next(RequestIndex::NONE);
        let first = if last == RequestIndex::NONE {
            index
        } else {
            requests.get(last).set_next(index);
            self.head()
        };
        self.head.store(first.0 | GUARDED | if shared { SHARED } else { 0 }, Relaxed);
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
        self.append_after(requests, last, index, false);
    }

    #[inline]
    fn remove(&self, requests: &Requests, index: RequestIndex) {
        let next = requests.get(index).next();
        let head = self.head.load(Relaxed);
        let mut at = number(head);
        if at == index {
            return self.head.store(next.0 | GUARDED | head & SHARED, Relaxed);
        }
        loop {
            let request = requests.get(at);
            at = request.next();
            if at == index {
                return request.set_next(next);
            }
        }
    }

    #[inline]
    fn doubt(&self) {
        #[cfg(all(test, foreshore_loom))]
        if models::has(models::Fault::Doubt) {
            return;
        }
        self.head.store(self.head.load(Relaxed) & !SHARED, Relaxed);
    }
}
