//! How the requests of a bucket are linked: what queues need of it, and the list of the tables whose every operation has a
//! bucket for itself.

use std::fmt::Debug;
use std::ops::ControlFlow;

use foreshore_env::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::request::{Request, RequestIndex, Requests};

/// A list of requests in the order of their arrival. All operations are under the latch of the bucket.
pub(super) trait List: Debug + Default {
    /// Whether requests come and go beside the latch as well.
    const STAGED: bool;

    /// Whether nothing is linked. May be asked without the latch, as a hint.
    fn is_bare(&self) -> bool;

    /// Visits the requests that are of consequence, oldest first.
    fn each<'r>(&self, requests: &'r Requests, see: impl FnMut(&'r Request) -> ControlFlow<()>);

    /// Puts a request at the end.
    fn append(&self, requests: &Requests, index: RequestIndex);

    /// Takes a request out.
    fn remove(&self, requests: &Requests, request: &Request);
}

/// A list linked both ways.
#[derive(Debug)]
pub(super) struct Linked {
    /// The oldest request. Guarded by the latch of the bucket; also read optimistically.
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
        RequestIndex(self.head.load(Relaxed))
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
            self.head.store(next.0, Relaxed);
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
    fn is_bare(&self) -> bool {
        self.head() == RequestIndex::NONE
    }

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
