//! The rings between all threads.
//!
//! Each pair has a ring in each direction that is used: from every execution thread to every control thread, back, and
//! from a control thread to those of higher partitions. A message that finds its ring full waits at its sender, in an
//! [`Outbox`]; the sender goes on. So no thread ever waits for another one's ring, and cycles of full rings cannot
//! close, whatever their capacity (ORTHRUS-2). A sender that has nothing else to do sleeps, and is woken by whoever
//! makes room ([`Inbox`]).

use std::collections::VecDeque;

use foreshore_env::{
    sabotage::{Fault, planted},
    sync::atomic::{
        AtomicU64,
        Ordering::{Relaxed, SeqCst},
        fence,
    },
};
use foreshore_txn::{LockError, Parted};

use crate::{
    partitions::Shared,
    ring::{self, Receiver, Sender},
};

/// What is sent to a control thread.
#[derive(Debug)]
pub(crate) enum Order {
    /// Ask for these locks.
    Lock { parted: Box<Parted>, from: Origin },
    /// Give these back.
    Release(Box<Parted>),
}

/// Where locks come from, and go back to: an execution thread, and the number of the transaction there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) thread: usize,
    pub(crate) number: u64,
}

/// What is sent back to an execution thread.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) number: u64,
    pub(crate) parted: Box<Parted>,
    pub(crate) outcome: Result<(), LockError>,
}

/// What a thread counts. Written by it alone, read by whoever asks; no order.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Transactions that were begun, each once.
    pub(crate) begun: AtomicU64,
    /// Footprints whose locks were asked for.
    pub(crate) footprints: AtomicU64,
    /// Footprints that came to a partition, and went on from there.
    pub(crate) visits: AtomicU64,
    /// Messages on the way to granted locks.
    pub(crate) messages: AtomicU64,
    /// Messages that give locks back.
    pub(crate) releases: AtomicU64,
    /// Messages that found their ring full.
    pub(crate) full: AtomicU64,
    /// Locks that were not free at once.
    pub(crate) waits: AtomicU64,
    /// Transactions that were done.
    pub(crate) done: AtomicU64,
    /// How often a transaction was put off, because a table was locked or a deadlock had to be resolved.
    pub(crate) later: AtomicU64,
    /// Jobs that it has, as of its last turn.
    pub(crate) in_hand: AtomicU64,
}

/// Adds one. By the thread whose count it is.
pub(crate) fn count(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

/// Who is at an end of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// Whoever looks after this partition.
    Partition(usize),
    /// The thread of this number.
    Thread(usize),
}

/// The sending end of a ring, and what did not fit.
#[derive(Debug)]
pub(crate) struct Outbox<T> {
    ring: Sender<T>,
    waiting: VecDeque<T>,
    /// The receiver has been told that something waits.
    announced: bool,
    to: End,
}

/// The receiving end of a ring.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    ring: Receiver<T>,
    /// Something was received, and the sender may wait for that.
    made_room: bool,
    from: End,
}

impl<T> Outbox<T> {
    /// Sends a message, now or when there is room, in order.
    pub(crate) fn send(&mut self, message: T, shared: &Shared, counts: &Counts) {
        self.flush(shared);
        let refused = if self.waiting.is_empty() { self.ring.send(message).err() } else { Some(message) };
        match refused {
            None => shared.ring(self.to),
            Some(message) => {
                count(&counts.full);
                if !planted(Fault::FullRingForgets) {
                    self.waiting.push_back(message);
                }
            }
        }
    }

    /// Sends what waits, as far as there is room; whether anything was sent.
    pub(crate) fn flush(&mut self, shared: &Shared) -> bool {
        let mut sent = false;
        while let Some(message) = self.waiting.pop_front() {
            if let Err(message) = self.ring.send(message) {
                self.waiting.push_front(message);
                break;
            }
            sent = true;
        }
        if sent {
            shared.ring(self.to);
        }
        if self.announced && self.waiting.is_empty() {
            self.announced = false;
            self.ring.await_room(false);
        }
        sent
    }

    /// Whether a message would be on its way at once.
    pub(crate) fn has_room(&mut self, shared: &Shared) -> bool {
        self.flush(shared);
        self.waiting.is_empty() && self.ring.has_room()
    }

    /// Before its thread goes to sleep: whoever makes room for what waits is to wake it. A fence follows, then
    /// [`Outbox::can_send`].
    pub(crate) fn announce(&mut self) {
        if !self.announced && !self.waiting.is_empty() {
            self.announced = true;
            self.ring.await_room(true);
        }
    }

    /// Whether something waits for which there is room.
    pub(crate) fn can_send(&mut self) -> bool {
        !self.waiting.is_empty() && self.ring.has_room()
    }
}

impl<T> Inbox<T> {
    /// The next message, if there is one. [`tell_of_room`] follows, some time.
    pub(crate) fn receive(&mut self) -> Option<T> {
        let message = self.ring.receive();
        self.made_room |= message.is_some();
        message
    }

    /// Whether there is no message.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.ring.is_empty()
    }
}

/// Wakes those who sleep until there is room where something has been received.
pub(crate) fn tell_of_room<T>(inboxes: &mut [Inbox<T>], shared: &Shared) {
    // After what was received, before it is looked who waits: see the module `ring`.
    fence(SeqCst);
    for inbox in inboxes {
        if std::mem::take(&mut inbox.made_room) && inbox.ring.is_awaited() {
            shared.ring_after_fence(inbox.from);
        }
    }
}

/// A ring with its ends.
pub(crate) fn channel<T>(capacity: usize, from: End, to: End) -> (Outbox<T>, Inbox<T>) {
    let (ring, receiver) = ring::ring(capacity);
    let outbox = Outbox { ring, waiting: VecDeque::new(), announced: false, to };
    (outbox, Inbox { ring: receiver, made_room: false, from })
}
