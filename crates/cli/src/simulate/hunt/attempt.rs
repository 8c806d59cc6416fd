//! Transactions that tried to commit, and what their clients were told of that.

use foreshore::{Durability, Error, TransactOptions};
use foreshore_env::sync::{Arc, Mutex};
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
#[derive(Debug)]
pub(super) struct Attempt {
    /// Its place in the order of commits: drawn while it held all its locks.
    pub(super) position: u64,
    pub(super) ops: Vec<Op>,
    /// Its key in the ledger; one that only read has none.
    pub(super) row: Option<Vec<u8>>,
    pub(super) told: Told,
}

impl Attempt {
    pub(super) fn name(&self) -> String {
        let row = self.row.as_ref().map(|row| String::from_utf8_lossy(row).into_owned());
        row.unwrap_or_else(|| format!("reader {}", self.position))
    }
}

/// What a transaction that may run several times did in its last run, once it came to its end; and how it is to commit.
#[derive(Clone)]
pub(super) struct Run {
    /// Written by each run, read when all have ended.
    pub(super) last: Arc<Mutex<Option<Attempt>>>,
    pub(super) committed: Told,
}

impl Run {
    /// What it did, if it came to its end; and what was told of its commit.
    pub(super) fn ended(&self, told: Told) -> Option<Attempt> {
        let last = self.last.lock().take();
        last.map(|attempt| Attempt { told, ..attempt })
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
