//! Engines that run transactions on threads of their own.

use super::{Attempts, Failure, Outcome};
use crate::workload::Worker;

/// An engine that runs transactions on threads of its own.
pub trait Submitter: Sync {
    /// How many transactions a client gives it before it waits for the first; at least 1.
    fn in_flight(&self) -> usize;

    /// Takes the transaction that the worker has drawn, and does not wait for it.
    fn submit(&self, worker: Box<dyn Worker>) -> Result<Box<dyn Submission>, Failure>;
}

/// A transaction on its way.
pub trait Submission {
    /// Waits for its end.
    fn wait(self: Box<Self>) -> Result<Submitted, Failure>;
}

/// A transaction that was given to an engine's threads, and has ended.
pub struct Submitted {
    /// Who drew it, to draw another.
    pub worker: Box<dyn Worker>,
    /// How it ended.
    pub outcome: Outcome,
    /// What it took.
    pub attempts: Attempts,
}

/// An engine whose threads draw transactions themselves.
pub trait Server: Sync {
    /// How many of its threads draw transactions and run them.
    fn threads(&self) -> usize;

    /// From how many clients they should draw; at least 1.
    fn places(&self) -> usize;

    /// Lets them draw from these clients from now on, from each again when its transaction has ended, and run what they
    /// draw.
    fn serve(&self, clients: Vec<Box<dyn Client>>) -> Result<Box<dyn Serving>, Failure>;
}

/// Clients that are being served.
pub trait Serving {
    /// Waits until no client has any more transactions.
    fn wait(self: Box<Self>) -> Result<(), Failure>;
}

/// One from whom an engine's threads draw transactions, one after another. It is dropped when it has none left.
pub trait Client: Send {
    /// Draws the next transaction; false if there are no more.
    fn draw(&mut self) -> bool;

    /// Whose transaction it is.
    fn worker(&mut self) -> &mut dyn Worker;

    /// How it ended. `Err` is a failure after which the engine must not be expected to work.
    fn ended(&mut self, outcome: Result<Outcome, Failure>, attempts: &Attempts);
}
