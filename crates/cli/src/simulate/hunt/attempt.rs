//! Transactions that tried to commit, and what their clients were told of that.

use std::ops::Range;

use foreshore::{Durability, Error, TransactOptions};
use foreshore_env::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};
use foreshore_testkit::history::Op;

/// What a client was told of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// It is on the disk.
    Durable,
    /// It has happened, and reaches the disk soon.
    Lazy,
    /// It may have happened.
    Unknown,
    /// It is prepared, and nobody has decided about it.
    Prepared,
    /// It has happened, or is still prepared.
    Deciding,
    /// It has not happened, and may be prepared.
    Undone,
    /// It has not happened.
    Refused,
}

/// A transaction that tried to commit.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    /// Its place in the order of commits: drawn while it held all its locks.
    pub(super) position: u64,
    /// The place that it drew, and the next one to be drawn when its client had been told.
    pub(super) tried: Range<u64>,
    pub(super) ops: Vec<Op>,
    /// Its key in the ledger; one that only read has none.
    pub(super) row: Option<Vec<u8>>,
    pub(super) told: Told,
    /// The next place to be drawn when its client had been told the last time; the last of all if nobody looked.
    pub(super) known: u64,
}

impl Attempt {
    /// One whose client has just been told. `order`: of commits.
    pub(super) fn new(
        position: u64,
        ops: Vec<Op>,
        row: Option<Vec<u8>>,
        told: Told,
        order: &AtomicU64,
    ) -> Attempt {
        let known = order.load(Ordering::SeqCst);
        Attempt { position, tried: position..known, ops, row, told, known }
    }

    /// The client has been told that it is on the disk, after it had been told that it would be. Nobody looks when that
    /// was: a look would be a turn, and other seeds would not be what they were.
    pub(super) fn confirm(&mut self) {
        (self.told, self.known) = (Told::Durable, u64::MAX);
    }

    pub(super) fn name(&self) -> String {
        let row = self.row.as_ref().map(|row| String::from_utf8_lossy(row).into_owned());
        row.unwrap_or_else(|| format!("reader {}", self.position))
    }
}

/// What a transaction did that came to its end: see [`Attempt`].
#[derive(Debug)]
pub(super) struct Did {
    pub(super) position: u64,
    pub(super) ops: Vec<Op>,
    pub(super) row: Option<Vec<u8>>,
}

/// What a transaction that may run several times did in its last run, once it came to its end; and how it is to commit.
#[derive(Clone)]
pub(super) struct Run {
    /// Written by each run, read when all have ended.
    pub(super) last: Arc<Mutex<Option<Did>>>,
    pub(super) committed: Told,
    /// The next place in the order of commits.
    pub(super) order: Arc<AtomicU64>,
}

impl Run {
    /// What it did, if it came to its end; and what has just been told of its commit.
    pub(super) fn ended(&self, told: Told) -> Option<Attempt> {
        let last = self.last.lock().take();
        last.map(|did| Attempt::new(did.position, did.ops, did.row, told, &self.order))
    }
}

/// What a commit with these options promises.
pub(super) fn told(options: &TransactOptions) -> Told {
    if options.durability == Some(Durability::Sync) { Told::Durable } else { Told::Lazy }
}

/// What a failed commit says of itself.
pub(super) fn refusal(error: &Error) -> Told {
    if matches!(error, Error::OutcomeUnknown { .. }) { Told::Unknown } else { Told::Refused }
}

/// What a failed preparation says of itself.
pub(super) fn unprepared(error: &Error) -> Told {
    if matches!(error, Error::OutcomeUnknown { .. }) { Told::Undone } else { Told::Refused }
}
