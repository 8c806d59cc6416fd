//! What the threads work at.

use foreshore_txn::{LockError, Parted};

/// A transaction on its way. Execution threads call it, one at a time; between two calls its locks may be away. Dropped
/// before [`Next::Done`], it must tell whoever waits for it that it will not be done.
pub trait Job: Send {
    /// Does what can be done without locks.
    fn begin(&mut self) -> Next;

    /// Its locks are back, granted or not: goes on.
    fn locked(&mut self, parted: Box<Parted>, outcome: Result<(), LockError>) -> Next;
}

/// What a job wants next.
#[derive(Debug)]
pub enum Next {
    /// These locks.
    Locks(Box<Parted>),
    /// To begin again a little later.
    Later,
    /// Nothing; it may leave locks to be given back.
    Done(Option<Box<Parted>>),
    /// To begin again, as another transaction; this one has ended, and may leave locks to be given back.
    Again(Option<Box<Parted>>),
}
