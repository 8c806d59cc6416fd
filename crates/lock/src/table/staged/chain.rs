//! The list of the staged table: Jung et al. 2013, Figures 4 and 5.
//!
//! A thread that appends exchanges the tail and then links its predecessor to itself; one that walks waits for a link
//! that is not there yet. A released request stays where it is, obsolete, until somebody cleans the chain; it keeps its
//! own link, so a thread that stands on it finds the way on.
//!
//! Where this departs from the paper: its `next_pointer_update` lets everybody skip over obsolete requests at any time,
//! and an obsolete tail may be cut off while somebody links behind it. Here one cleans at a time,
//! under the latch of the bucket, and the tail goes only if nobody has exchanged it.

use std::ops::ControlFlow;

use foreshore_env::hint::spin_loop;
use foreshore_env::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use foreshore_env::thread::yield_now;

use crate::request::{Request, RequestIndex, Requests};
use crate::table::list::List;

/// Looks for a link between yields: a thread that is about to set it has it set within a few instructions, unless it
/// has been descheduled.
const LOOKS: u32 = if cfg!(foreshore_loom) { 0 } else { 100 };

/// A chain of requests, obsolete ones among them.
#[derive(Debug)]
pub(in crate::table) struct Chain {
    /// The first request; NONE while its link is owed. Stored with Release, by whoever appends to an empty chain, and
    /// by whoever cleans. Acquire: a thread that comes to a request sees what was written to it.
    head: AtomicU32,
    /// The last request that was appended; NONE: the chain is empty. AcqRel: an exchange sees what its predecessor has
    /// written, and what an emptied chain has gone through; SeqCst where a request comes, and where emptiness is asked
    /// for: LOCK-17.
    tail: AtomicU32,
}

impl Default for Chain {
    fn default() -> Chain {
        let none = || AtomicU32::new(RequestIndex::NONE.0);
        Chain { head: none(), tail: none() }
    }
}

/// What somebody saw ahead of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ahead {
    /// Nobody objected.
    pub(super) free: bool,
    /// Requests that are of no consequence any more.
    pub(super) obsolete: u32,
}

impl Chain {
    /// Whether nothing is linked. May be asked beside the latch, as a hint.
    #[inline]
    pub(super) fn is_bare(&self) -> bool {
        self.last() == RequestIndex::NONE
    }

    /// S1: appends a request; whether the chain was empty. Beside the latch.
    #[inline]
    pub(super) fn push(&self, requests: &Requests, index: RequestIndex) -> bool {
        requests.get(index).set_next(RequestIndex::NONE);
        let last = RequestIndex(self.tail.swap(index.0, SeqCst));
        if last == RequestIndex::NONE {
            self.head.store(index.0, Release);
            true
        } else {
            // Nobody recycles `last` before it has a link.
            requests.get(last).link(index);
            false
        }
    }

    /// Looks at everything before `end`, which is in the chain and not obsolete, until `object` does. Beside the latch,
    /// while nothing is recycled (LOCK-14). May call `object` more than once with the same request.
    #[inline]
    pub(super) fn look_ahead(
        &self,
        requests: &Requests,
        end: RequestIndex,
        mut object: impl FnMut(&Request) -> bool,
    ) -> Ahead {
        let mut obsolete = 0;
        let mut first = self.first();
        let mut at = first;
        while at != end {
            let request = requests.get(at);
            if request.is_obsolete() {
                obsolete += 1;
            } else if object(request) {
                return Ahead { free: false, obsolete };
            }
            let mut pause = Pause::default();
            at = loop {
                let next = request.linked();
                if next != RequestIndex::NONE {
                    break next;
                }
                // Either its link is owed, or it was the tail when the chain was emptied: then the head has changed,
                // and what is ahead of `end` now can be reached from there.
                if self.head.load(Acquire) != first.0 {
                    first = self.first();
                    break first;
                }
                pause.pause();
            };
        }
        Ahead { free: true, obsolete }
    }

    /// The head of a chain that is not empty.
    #[inline]
    fn first(&self) -> RequestIndex {
        let mut pause = Pause::default();
        loop {
            let head = RequestIndex(self.head.load(Acquire));
            if head != RequestIndex::NONE {
                return head;
            }
            pause.pause();
        }
    }

    fn last(&self) -> RequestIndex {
        RequestIndex(self.tail.load(SeqCst))
    }

    /// The request after one that is not the last. Under the latch.
    fn after(request: &Request) -> RequestIndex {
        let mut pause = Pause::default();
        loop {
            let next = request.linked();
            if next != RequestIndex::NONE {
                return next;
            }
            pause.pause();
        }
    }

    /// Visits all requests that are linked now. Under the latch, which is what keeps them where they are.
    fn visit<'r>(&self, requests: &'r Requests, mut see: impl FnMut(&'r Request) -> ControlFlow<()>) {
        let last = self.last();
        if last == RequestIndex::NONE {
            return;
        }
        let mut at = self.first();
        loop {
            let request = requests.get(at);
            if see(request).is_break() || at == last {
                return;
            }
            at = Chain::after(request);
        }
    }

    /// Unlinks what is obsolete. Under the exclusive latch. An obsolete tail behind requests of consequence stays.
    pub(super) fn clean(&self, requests: &Requests) {
        let last = self.last();
        if last == RequestIndex::NONE {
            return;
        }
        let mut kept: Option<&Request> = None;
        let mut at = self.first();
        while at != last {
            let request = requests.get(at);
            let next = Chain::after(request);
            if request.is_obsolete() {
                match kept {
                    Some(kept) => kept.link(next),
                    None => self.head.store(next.0, Release),
                }
                requests.unlinked(at);
            } else {
                kept = Some(request);
            }
            at = next;
        }
        if kept.is_none() && requests.get(last).is_obsolete() {
            // Before the tail is given up: then the head belongs to whoever appends next. Meanwhile a walker finds no
            // head and waits.
            self.head.store(RequestIndex::NONE.0, Relaxed);
            if self.tail.compare_exchange(last.0, RequestIndex::NONE.0, AcqRel, Relaxed).is_ok() {
                requests.unlinked(last);
            } else {
                self.head.store(last.0, Release);
            }
        }
    }

    /// How many requests are linked.
    #[cfg(all(test, not(foreshore_loom)))]
    pub(super) fn length(&self, requests: &Requests) -> usize {
        let mut length = 0;
        self.visit(requests, |_| {
            length += 1;
            ControlFlow::Continue(())
        });
        length
    }
}

impl List for Chain {
    const STAGED: bool = true;

    fn each<'r>(&self, requests: &'r Requests, mut see: impl FnMut(&'r Request) -> ControlFlow<()>) {
        self.visit(
            requests,
            |request| {
                if request.is_obsolete() { ControlFlow::Continue(()) } else { see(request) }
            },
        );
    }

    /// Cleans first: where many wait, nobody else comes along to do it.
    fn append(&self, requests: &Requests, index: RequestIndex) {
        self.clean(requests);
        self.push(requests, index);
    }

    fn remove(&self, requests: &Requests, index: RequestIndex) {
        requests.get(index).make_obsolete();
    }
}

/// Waits for somebody who is between two instructions, and may have been descheduled there.
#[derive(Default)]
struct Pause {
    looks: u32,
}

impl Pause {
    #[cfg_attr(foreshore_loom, expect(clippy::absurd_extreme_comparisons, reason = "models do not spin"))]
    fn pause(&mut self) {
        self.looks += 1;
        if self.looks <= LOOKS {
            spin_loop();
        } else {
            yield_now();
        }
    }
}
