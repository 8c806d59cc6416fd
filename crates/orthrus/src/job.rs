//! What the threads work at.

use foreshore_env::time::{Duration, Instant};
use foreshore_txn::{LockError, Parted};

/// A transaction on its way. Execution threads call it, one at a time; between two calls its locks may be away. Dropped
/// before [`Next::Done`], it must tell whoever waits for it that it will not be done.
pub trait Job: Send {
    /// Until when it waits to be begun, if nobody has room for it before: [`Job::overdue`] ends it then. Asked where it
    /// enters a queue. `None`: it waits for as long as it takes.
    fn deadline(&self) -> Option<Instant> {
        None
    }

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
