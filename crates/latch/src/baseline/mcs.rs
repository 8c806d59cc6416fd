//! The queuing spinlock of Mellor-Crummey and Scott, "Algorithms for Scalable Synchronization on Shared-Memory
//! Multiprocessors", 1991 (Böttcher et al. 2020, §3.2, figure 4): each waiter spins on a word of its own, on its stack.
//!
//! ```text
//! tail ──────────────────────────────┐
//!                                    ▼
//!   holder ── next ──▶ waiter ── next ──▶ last waiter
//! ```
//!
//! A node belongs to the thread that enters; others know it while it is the tail or the tail's predecessor. A thread
//! leaves when either the tail was its own node still, so that nobody has learned of it, or its successor has linked
//! itself and will not touch the node again. Only then its node may go.

#![expect(unsafe_code, reason = "the queue links nodes on the stacks of other threads")]

use std::ptr;

use foreshore_env::sync::atomic::{
    AtomicBool, AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use super::{Latch, Leaving, spin};

/// A spinlock whose waiters form a queue and spin locally. Exclusive only; fair.
#[derive(Debug)]
pub struct Mcs {
    /// The last node of the queue; null when the latch is free. Exchanged by everybody who enters.
    tail: AtomicPtr<Node>,
}

#[cfg(not(foreshore_loom))]
const _: () = assert!(size_of::<Mcs>() == 8);

/// A thread's place in the queue.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Node {
    /// The node behind this one. Written once, by the thread that owns that node.
    next: AtomicPtr<Node>,
    /// Whether the thread has to wait. Cleared by the thread before it.
    waiting: AtomicBool,
}

impl Node {
    #[inline]
    pub(super) fn new() -> Node {
        Node { next: AtomicPtr::new(ptr::null_mut()), waiting: AtomicBool::new(true) }
    }

    #[inline]
    fn address(&self) -> *mut Node {
        ptr::from_ref(self).cast_mut()
    }
}

impl Default for Mcs {
    fn default() -> Mcs {
        Mcs { tail: AtomicPtr::new(ptr::null_mut()) }
    }
}

impl Mcs {
    /// Waits until `node` is at the head of the queue. It must be new, stay where it is, and [`leave`](Self::leave).
    #[inline]
    pub(super) fn enter(&self, node: &Node) {
        // AcqRel: releases the node's content to the successor; acquires the predecessor's node, and, if the latch was
        // free, what the last holder released in `leave`.
        let before = self.tail.swap(node.address(), AcqRel);
        if !before.is_null() {
            self.wait(node, before);
        }
    }

    #[cold]
    fn wait(&self, node: &Node, before: *mut Node) {
        // SAFETY: this thread alone has learned of `before` as the tail, and its owner does not let it go before it has
        // seen the link that is made here, once (`leave`).
        let before = unsafe { &*before };
        // Release: partner is the Acquire in `leave`. `before` is not touched afterwards.
        before.next.store(node.address(), Release);
        // Acquire: partner is the Release in `leave`.
        spin::until(|| !node.waiting.load(Acquire));
    }

    /// As [`enter`](Self::enter), unless anybody is in the queue.
    #[inline]
    pub(super) fn try_enter(&self, node: &Node) -> bool {
        // AcqRel as in `enter`. A look before the leap keeps failures from writing.
        self.tail.load(Relaxed).is_null()
            && self.tail.compare_exchange(ptr::null_mut(), node.address(), AcqRel, Relaxed).is_ok()
    }

    /// Gives the head of the queue to the node behind `node`.
    #[inline]
    pub(super) fn leave(&self, node: &Node) {
        // Acquire: partner is the Release of the link, so that the successor's node is seen whole.
        let mut next = node.next.load(Acquire);
        if next.is_null() {
            // Release: partner is the Acquire of whoever enters next.
            if self.tail.compare_exchange(node.address(), ptr::null_mut(), Release, Relaxed).is_ok() {
                return;
            }
            next = self.await_link(node);
        }
        // SAFETY: the successor waits for its flag, which only this thread clears, below; until then its node stays.
        let next = unsafe { &*next };
        // Release: partner is the Acquire of the waiting successor.
        next.waiting.store(false, Release);
    }

    /// Somebody has taken the tail and not linked itself yet.
    #[cold]
    fn await_link(&self, node: &Node) -> *mut Node {
        let mut next = ptr::null_mut();
        spin::until(|| {
            // Acquire as in `leave`.
            next = node.next.load(Acquire);
            !next.is_null()
        });
        next
    }
}

impl Latch for Mcs {
    const SHARES: bool = false;
    const OPTIMISTIC: bool = false;

    #[inline]
    fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        let node = Node::new();
        self.enter(&node);
        let _leaving = Leaving(|| self.leave(&node));
        change()
    }

    #[inline]
    fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        let node = Node::new();
        if !self.try_enter(&node) {
            return None;
        }
        let _leaving = Leaving(|| self.leave(&node));
        Some(change())
    }
}
