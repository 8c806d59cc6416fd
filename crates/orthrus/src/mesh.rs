//! The rings between all threads.
//!
//! Each pair has a ring in each direction that is used: from every execution thread to every control thread, back, and from
//! a control thread to those of higher partitions. A message that finds its ring full waits at its sender, in an [`Outbox`];
//! the sender goes on. So no thread ever waits for another one's ring, and circles of full rings cannot close, whatever
//! their capacity (ORTHRUS-2).

use std::collections::VecDeque;

use foreshore_env::{
    sabotage::{Fault, planted},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
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
    Lock { parted: Box<Parted>, from: Sign },
    /// Give these back.
    Release(Box<Parted>),
}

/// Whose locks they are: an execution thread, and a number there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sign {
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
    /// Transactions that were to be begun again later, because a table was locked or a deadlock had to be resolved.
    pub(crate) later: AtomicU64,
}

/// Adds one. By the thread whose count it is.
pub(crate) fn count(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

/// To whom a ring leads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
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
    to: Target,
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
        sent
    }

    /// Whether something waits for room.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// A ring with its ends.
pub(crate) fn channel<T>(capacity: usize, to: Target) -> (Outbox<T>, Receiver<T>) {
    let (ring, receiver) = ring::ring(capacity);
    (Outbox { ring, waiting: VecDeque::new(), to }, receiver)
}
