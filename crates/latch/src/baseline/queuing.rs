//! A queuing reader-writer latch with local spinning, in the place of the paper's `tbb::queuing_rw_mutex` (Böttcher et al.
//! 2020, §3.2 and Table 2; after Krieger, Stumm, Unrau and Hanna, "A Fair Fast Scalable Reader-Writer Lock", 1993).
//!
//! It departs from Krieger et al., who keep readers in a doubly linked list so that they can leave in any order: here the
//! queue is an [`Mcs`] latch that everybody passes in the order of arrival, and readers inside are a count. A reader
//! counts itself at the head of the queue and leaves the queue at once; a writer stays at its head until it is done, and
//! first waits there for the count to fall to 0. All but the head spin on words of their own. The count makes it 16 bytes
//! instead of 8, and readers share its cache line; the proof is three lines.

use foreshore_env::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::mcs::{Mcs, Node};
use super::{Latch, Leaving, spin};

/// A reader-writer latch that serves in the order of arrival: neither readers nor writers starve.
#[derive(Debug, Default)]
pub struct QueuingRw {
    /// The order of arrival. A writer holds it for as long as it is inside, a reader to enter.
    order: Mcs,
    /// Readers inside. Raised by the holder of `order` only.
    readers: AtomicU64,
}

#[cfg(not(foreshore_loom))]
const _: () = assert!(size_of::<QueuingRw>() == 16);

impl QueuingRw {
    /// The holder of `order` counts itself as a reader and lets the next come.
    #[inline]
    fn admit(&self, node: &Node) {
        // Relaxed: who reads it next holds `order`, and acquires from `leave`.
        self.readers.fetch_add(1, Relaxed);
        self.order.leave(node);
    }

    #[inline]
    fn leave_shared(&self) {
        // Release: partner is the Acquire load of a writer. It waits for the end of this thread's reads.
        self.readers.fetch_sub(1, Release);
    }

    /// Whether all readers have left. Acquire: partner is the Release in `leave_shared`.
    #[inline]
    fn is_free_of_readers(&self) -> bool {
        self.readers.load(Acquire) == 0
    }
}

impl Latch for QueuingRw {
    const SHARES: bool = true;
    const OPTIMISTIC: bool = false;

    #[inline]
    fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        let node = Node::new();
        self.order.enter(&node);
        let _leaving = Leaving(|| self.order.leave(&node));
        if !self.is_free_of_readers() {
            spin::until(|| self.is_free_of_readers());
        }
        change()
    }

    #[inline]
    fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        let node = Node::new();
        if !self.order.try_enter(&node) {
            return None;
        }
        let _leaving = Leaving(|| self.order.leave(&node));
        self.is_free_of_readers().then(change)
    }

    #[inline]
    fn shared<R>(&self, read: impl FnOnce() -> R) -> R {
        let node = Node::new();
        self.order.enter(&node);
        self.admit(&node);
        let _leaving = Leaving(|| self.leave_shared());
        read()
    }

    #[inline]
    fn try_shared<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        let node = Node::new();
        if !self.order.try_enter(&node) {
            return None;
        }
        self.admit(&node);
        let _leaving = Leaving(|| self.leave_shared());
        Some(read())
    }
}
