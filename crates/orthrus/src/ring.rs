//! A ring between one thread that sends and one that receives.
//!
//! Ren, Faleiro, Abadi 2016 (ORTHRUS), §3.1: threads of different roles talk through queues with a single producer and
//! a single consumer, so that a message costs two cache misses and no atomic read-modify-write.
//!
//! ```text
//! head, tail: counts that only grow, and wrap; head ≤ tail ≤ head + capacity
//!   place of a count: count modulo capacity (a power of two, so that wrapping does not matter)
//!   head..tail are full, owned by the receiver; the others are empty, owned by the sender
//! ```
//!
//! A sender that finds no room may sleep. It says so first ([`Sender::await_room`]), sets a fence, and looks once more;
//! the receiver takes something, sets a fence, and looks whether somebody said so. One of them sees the other.

use foreshore_env::{
    CachePadded,
    cell::UnsafeCell,
    sabotage::{Fault, planted},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

/// What both ends share.
#[derive(Debug)]
struct Shared<T> {
    places: Box<[UnsafeCell<Option<T>>]>,
    /// Messages ever received. Written by the receiver, with release; read by the sender, with acquire: a thread that
    /// sees a place given free also sees that it is empty.
    head: CachePadded<AtomicUsize>,
    sent: CachePadded<Sent>,
}

/// What the sender writes and the receiver reads, in one line.
#[derive(Debug)]
struct Sent {
    /// Messages ever sent. Written by the sender, with release; read by the receiver, with acquire: a thread that sees
    /// a message counted also sees the message.
    tail: AtomicUsize,
    /// Whether the sender waits for room. Written by it, and a fence follows; read by the receiver, after a fence. No
    /// order beside the fences: it carries no data.
    waits: AtomicBool,
}

// SAFETY: a place is accessed by one end at a time (above), and what is in it moves from one thread to the other.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn place(&self, count: usize) -> &UnsafeCell<Option<T>> {
        &self.places[count & (self.places.len() - 1)]
    }
}

/// The end that sends.
#[derive(Debug)]
pub(crate) struct Sender<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    /// No newer than the true one.
    head: usize,
}

/// The end that receives.
#[derive(Debug)]
pub(crate) struct Receiver<T> {
    shared: Arc<Shared<T>>,
    head: usize,
    /// No newer than the true one.
    tail: usize,
}

/// A ring with places for `capacity` messages, rounded up to a power of two.
pub(crate) fn ring<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    starting_at(capacity, 0)
}

/// The same, after so many messages.
fn starting_at<T>(capacity: usize, count: usize) -> (Sender<T>, Receiver<T>) {
    let capacity = capacity.max(1).next_power_of_two();
    let shared = Arc::new(Shared {
        places: (0..capacity).map(|_| UnsafeCell::new(None)).collect(),
        head: CachePadded::new(AtomicUsize::new(count)),
        sent: CachePadded::new(Sent { tail: AtomicUsize::new(count), waits: AtomicBool::new(false) }),
    });
    let sender = Sender { shared: Arc::clone(&shared), tail: count, head: count };
    (sender, Receiver { shared, head: count, tail: count })
}

impl<T> Sender<T> {
    /// Sends a message, or gives it back when the ring is full. Never waits.
    pub(crate) fn send(&mut self, message: T) -> Result<(), T> {
        if !self.has_room() {
            return Err(message);
        }
        let place = self.shared.place(self.tail);
        self.tail = self.tail.wrapping_add(1);
        if planted(Fault::RingToldEarly) {
            self.shared.sent.tail.store(self.tail, Release);
        }
        place.with_mut(|place| {
            // SAFETY: the place is empty, so it belongs to the only sender, which has `&mut self`.
            unsafe { *place = Some(message) }
        });
        self.shared.sent.tail.store(self.tail, Release);
        Ok(())
    }

    /// Whether a message would be taken.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.tail.wrapping_sub(self.head) == self.shared.places.len() {
            self.head = self.shared.head.load(Acquire);
        }
        self.tail.wrapping_sub(self.head) < self.shared.places.len()
    }

    /// Says whether it waits for room. A thread that is about to sleep sets a fence then, and looks again.
    pub(crate) fn await_room(&mut self, waits: bool) {
        self.shared.sent.waits.store(waits, Relaxed);
    }
}

impl<T> Receiver<T> {
    /// The next message, if there is one. Never waits.
    pub(crate) fn receive(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let message = self.shared.place(self.head).with_mut(|place| {
            // SAFETY: the place is full, so it belongs to the only receiver, which has `&mut self`.
            unsafe { (*place).take() }
        });
        self.head = self.head.wrapping_add(1);
        self.shared.head.store(self.head, Release);
        message
    }

    /// Whether there is no message.
    pub(crate) fn is_empty(&mut self) -> bool {
        if self.head == self.tail {
            self.tail = self.shared.sent.tail.load(Acquire);
        }
        self.head == self.tail
    }

    /// Whether the sender waits for room and is to be woken. After a fence that follows what was received.
    pub(crate) fn is_awaited(&self) -> bool {
        self.shared.sent.waits.load(Relaxed)
    }
}

#[cfg(test)]
mod tests;
