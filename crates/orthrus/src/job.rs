//! What the threads work at.

use foreshore_env::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};
use foreshore_txn::{LockError, Parted};

/// A transaction on its way. Execution threads call it, one at a time; between two calls its locks may be away. Dropped
/// before [`Next::Done`], it must tell whoever waits for it that it will not be done.
pub trait Job: Send {
    /// Until when it waits to be begun, if nobody has room for it before: [`Job::overdue`] ends it then. Asked where it
    /// enters a queue. `None`: it waits for as long as it takes.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Where it is told where it waits to be begun, so that it can be taken out again.
    fn waits_at(&self) -> Option<&WaitsAt> {
        None
    }

    /// It was taken out, and nobody will begin it.
    fn withdrawn(&mut self) {}

    /// Its deadline has passed, and nobody has begun it: ends. Whether it is to begin all the same, as another
    /// transaction.
    fn overdue(&mut self) -> bool {
        false
    }

    /// Does what can be done without locks.
    fn begin(&mut self) -> Next;

    /// Its locks are back, granted or not: goes on.
    fn locked(&mut self, parted: Box<Parted>, outcome: Result<(), LockError>) -> Next;

    /// Its locks are on their way back to where they came from ([`Next::Release`]): does what is left to do.
    fn released(&mut self) -> Next {
        Next::Done
    }
}

/// What a job wants next.
#[derive(Debug)]
pub enum Next {
    /// These locks.
    Locks(Box<Parted>),
    /// To begin again after so long.
    Later(Duration),
    /// To give these locks back: others wait for them. Then it goes on.
    Release {
        /// The locks.
        parted: Box<Parted>,
        /// Whether the transaction has ended: [`Next::Done`] or [`Next::Again`] follows.
        ends: bool,
    },
    /// Nothing.
    Done,
    /// To begin again, as another transaction; this one has ended.
    Again,
}

/// Where a job waits to be begun: see [`Partitions::withdraw`](crate::Partitions::withdraw).
#[derive(Debug, Default)]
pub struct WaitsAt(
    /// Its queue and the number that it has there, which no other job has had or gets; 0: in none. Written under the
    /// mutex of the queue; relaxed: who asks looks under that mutex if it is so.
    AtomicU64,
);

/// The bits of a number.
const NUMBER_BITS: u32 = 48;

impl WaitsAt {
    pub(crate) fn set(&self, queue: usize, number: u64) {
        self.0.store((queue as u64) << NUMBER_BITS | number, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> (usize, u64) {
        let word = self.0.load(Ordering::Relaxed);
        ((word >> NUMBER_BITS) as usize, word & ((1 << NUMBER_BITS) - 1))
    }
}
