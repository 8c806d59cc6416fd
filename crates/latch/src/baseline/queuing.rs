//! The queuing reader-writer latch of Krieger, Stumm, Unrau and Hanna, "A Fair Fast Scalable Reader-Writer Lock", 1993,
//! which makes the one of Mellor-Crummey and Scott, 1991, a doubly linked list; `tbb::queuing_rw_mutex` of the paper
//! (Böttcher et al. 2020, §3.2 and Table 2) is of this kind. Everybody waits in the order of arrival, and spins on a
//! word of its own node, on its stack.
//!
//! ```text
//!                                                          tail
//!                                                           ▼
//!   reading ◀── prev, next ──▶ reading ◀── prev, next ──▶ writer that waits
//! ```
//!
//! A reader that finds a reader before it that reads does so, too; one that finds a reader that waits is let in by
//! that. The head's owner lets the node behind it go on when it leaves. A reader that is not the head leaves from the
//! middle of the list: it holds the node before its own, so that its owner stays, then its own, so that the reader
//! behind it does, and links the two.
//!
//! It departs from the paper twice. There a reader could be forgotten that arrived while the one before began to read;
//! here a reader that arrives writes that it is there in the step that looks at the state (`FOLLOWED`). And there a
//! reader touches the node before its own without knowing that it is still one; nodes on stacks do not allow that. So
//! it says so first, by a bit of `prev`, and a thread that takes `prev` away from a reader that has said so waits until
//! the reader has noticed. Everybody waits as `tbb`'s threads do.
//!
//! An attempt to share is refused beside readers: it could not look at the last node, which may go at any moment, and
//! whatever has a place in the queue has to wait for its turn.

#![expect(unsafe_code, reason = "the queue links nodes on the stacks of other threads")]

use std::ptr;

use foreshore_env::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use super::{Latch, Leaving, spin};

/// The node of somebody who wants to be alone: for good.
const WRITER: u8 = 0;
/// Of a reader that waits, and nobody has come behind it.
const READER: u8 = 1;
/// Of a reader that waits, with a reader behind it that it has to let in.
const FOLLOWED: u8 = 2;
/// Of a reader that reads.
const READING: u8 = 3;

/// The bit of `prev` by which a reader says that it touches that node.
const TOUCHED: usize = 1;

/// A reader-writer latch that serves in the order of arrival: neither readers nor writers starve.
#[derive(Debug)]
pub struct QueuingRw {
    /// The last node of the queue; null when the latch is free.
    tail: AtomicPtr<Node>,
}

#[cfg(not(foreshore_loom))]
const _: () = assert!(size_of::<QueuingRw>() == 8);

/// A thread's place in the queue.
#[derive(Debug)]
#[repr(align(64))]
struct Node {
    /// One of the four above. Written by the owner, and by a reader that arrives behind it.
    state: AtomicU8,
    /// Whether the owner need not wait any longer. Set by the thread before it.
    goes: AtomicBool,
    /// Held by the owner while it leaves, or by the reader behind it while that one does.
    held: AtomicBool,
    /// The node behind this one. Written by its owner, and by whoever holds this node.
    next: AtomicPtr<Node>,
    /// The node before a reader's, and the bit [`TOUCHED`]; null at the head. Taken away by the owner of the node
    /// before.
    prev: AtomicPtr<Node>,
}

impl Node {
    #[inline]
    fn new(state: u8) -> Node {
        Node {
            state: AtomicU8::new(state),
            goes: AtomicBool::new(false),
            held: AtomicBool::new(false),
            next: AtomicPtr::new(ptr::null_mut()),
            prev: AtomicPtr::new(ptr::null_mut()),
        }
    }

    #[inline]
    fn address(&self) -> *mut Node {
        ptr::from_ref(self).cast_mut()
    }

    /// Acquire: partner is the Release of [`Node::let_in`].
    #[inline]
    fn await_turn(&self) {
        spin::yielding(|| self.goes.load(Acquire));
    }

    /// Release: partner is the Acquire of [`Node::await_turn`].
    #[inline]
    fn let_in(&self) {
        self.goes.store(true, Release);
    }

    /// The node behind this one, whose owner has taken the tail and links itself if it has not yet.
    #[inline]
    fn await_next(&self) -> *mut Node {
        let mut next = ptr::null_mut();
        spin::yielding(|| {
            // Acquire: partner is the Release of the link.
            next = self.next.load(Acquire);
            !next.is_null()
        });
        next
    }

    #[inline]
    fn try_hold(&self) -> bool {
        // Acquire: partner is the Release in `release`.
        self.held.compare_exchange(false, true, Acquire, Relaxed).is_ok()
    }

    #[inline]
    fn hold(&self) {
        spin::yielding(|| !self.held.load(Relaxed) && self.try_hold());
    }

    #[inline]
    fn release(&self) {
        self.held.store(false, Release);
    }

    /// The reader `behind` gets another node before it than this one, which this thread holds. Afterwards it knows
    /// nothing of this one.
    #[inline]
    fn hand_over(&self, behind: &Node, before: *mut Node) {
        // AcqRel: partners are the accesses to `prev` of the reader behind.
        let was = behind.prev.swap(before, AcqRel);
        if was.addr() & TOUCHED != 0 {
            // It finds this node held, notices that its `prev` is another, and answers by releasing the node.
            spin::yielding(|| !self.held.load(Acquire));
        }
    }
}

impl Default for QueuingRw {
    fn default() -> QueuingRw {
        QueuingRw { tail: AtomicPtr::new(ptr::null_mut()) }
    }
}

impl QueuingRw {
    fn enter_exclusive(&self, node: &Node) {
        // AcqRel: releases the node's content to the successor; acquires the predecessor's node, and, if the latch was
        // free, what the last holder released as it left.
        let before = self.tail.swap(node.address(), AcqRel);
        if !before.is_null() {
            // SAFETY: this thread alone has learned of `before` as the tail, and its owner does not let it go before it
            // has seen the link.
            unsafe { &*before }.next.store(node.address(), Release);
            node.await_turn();
        }
    }

    fn leave_exclusive(&self, node: &Node) {
        if self.leaves_last(node, ptr::null_mut()) {
            return;
        }
        // SAFETY: the thread behind waits for this one, and its node stays meanwhile.
        let behind = unsafe { &*node.await_next() };
        behind.prev.store(ptr::null_mut(), Relaxed);
        behind.let_in();
    }

    fn enter_shared(&self, node: &Node) {
        // As in `enter_exclusive`.
        let before = self.tail.swap(node.address(), AcqRel);
        if !before.is_null() {
            node.prev.store(before, Relaxed);
            // SAFETY: as in `enter_exclusive`.
            let before = unsafe { &*before };
            // Acquire: partner is the Release below with which `before` begins to read.
            let found = before.state.compare_exchange(READER, FOLLOWED, AcqRel, Acquire);
            before.next.store(node.address(), Release);
            if found != Err(READING) {
                node.await_turn();
            }
        }
        // Release: partner is the Acquire above.
        if node.state.swap(READING, AcqRel) == FOLLOWED {
            // SAFETY: the reader behind waits for this thread, and its node stays meanwhile.
            unsafe { &*node.await_next() }.let_in();
        }
    }

    fn leave_shared(&self, node: &Node) {
        spin::yielding(|| {
            let before = node.prev.load(Acquire);
            if before.is_null() {
                self.leave_head(node);
                return true;
            }
            self.try_leave_middle(node, before)
        });
    }

    /// A reader leaves the head of the queue.
    fn leave_head(&self, node: &Node) {
        node.hold();
        if self.leaves_last(node, ptr::null_mut()) {
            return;
        }
        // SAFETY: a writer behind waits for this thread; a reader does not leave without holding this node, or having
        // been told of another.
        let behind = unsafe { &*node.await_next() };
        if behind.state.load(Relaxed) == WRITER {
            behind.let_in();
        } else {
            // It reads, or has been let in when this thread began to read.
            node.hand_over(behind, ptr::null_mut());
        }
    }

    /// A reader leaves from behind `before`, unless that one is about to leave.
    fn try_leave_middle(&self, node: &Node, before: *mut Node) -> bool {
        let touched = before.map_addr(|address| address | TOUCHED);
        if node.prev.compare_exchange(before, touched, AcqRel, Relaxed).is_err() {
            return false;
        }
        // SAFETY: its owner does not let it go before it has taken it out of this node's `prev`; then it sees the bit,
        // and waits until this thread has released the node.
        let before = unsafe { &*before };
        if !before.try_hold() {
            if node.prev.compare_exchange(touched, before.address(), AcqRel, Acquire).is_err() {
                before.release();
            }
            return false;
        }
        // Before this thread's node is no longer the tail: a thread that comes then links itself to `before`.
        before.next.store(ptr::null_mut(), Relaxed);
        node.hold();
        if !self.leaves_last(node, before.address()) {
            let behind = node.await_next();
            // A thread that arrives links itself to the tail only, and that is behind; so nobody else writes this.
            before.next.store(behind, Release);
            // SAFETY: as in `leave_head`; a writer waits for `before`, which this thread holds.
            let behind = unsafe { &*behind };
            if behind.state.load(Relaxed) != WRITER {
                node.hand_over(behind, before.address());
            }
        }
        before.release();
        true
    }

    /// Whether nobody was behind the node; then `before` is the last now.
    #[inline]
    fn leaves_last(&self, node: &Node, before: *mut Node) -> bool {
        // Release: partner is the Acquire of whoever enters next.
        node.next.load(Relaxed).is_null()
            && self.tail.compare_exchange(node.address(), before, AcqRel, Relaxed).is_ok()
    }

    /// Enters unless anybody is in the queue.
    #[inline]
    fn try_enter(&self, node: &Node) -> bool {
        // AcqRel as in `enter_exclusive`. A look before the leap keeps failures from writing.
        self.tail.load(Relaxed).is_null()
            && self.tail.compare_exchange(ptr::null_mut(), node.address(), AcqRel, Relaxed).is_ok()
    }
}

impl Latch for QueuingRw {
    const SHARES: bool = true;
    const ATTEMPTS_SHARE: bool = false;
    const OPTIMISTIC: bool = false;

    #[inline]
    fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        let node = Node::new(WRITER);
        self.enter_exclusive(&node);
        let _leaving = Leaving(|| self.leave_exclusive(&node));
        change()
    }

    #[inline]
    fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        let node = Node::new(WRITER);
        if !self.try_enter(&node) {
            return None;
        }
        let _leaving = Leaving(|| self.leave_exclusive(&node));
        Some(change())
    }

    #[inline]
    fn shared<R>(&self, read: impl FnOnce() -> R) -> R {
        let node = Node::new(READER);
        self.enter_shared(&node);
        let _leaving = Leaving(|| self.leave_shared(&node));
        read()
    }

    #[inline]
    fn try_shared<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        let node = Node::new(READING);
        if !self.try_enter(&node) {
            return None;
        }
        let _leaving = Leaving(|| self.leave_shared(&node));
        Some(read())
    }
}
