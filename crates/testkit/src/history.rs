//! A recorder of what transactions did and saw, and a checker that replays them one after another.
//!
//! An engine that is strictly serializable by locking has a commit order. Replaying the transactions in that order on
//! a `BTreeMap` must give every operation the result that it had; any other result is an [`Anomaly`].
//!
//! A transaction that changed nothing may have no place of its own in the commit order. It is recorded with its
//! [`Position::Between`] two places, and must fit the state at one of them.

mod checker;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, ops::Bound};

use foreshore_env::sync::Mutex;

/// The tables of a database, by number and key.
pub type State = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

/// One step of a transaction, with what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read a key.
    Get {
        /// The table.
        table: u32,
        /// The key.
        key: Vec<u8>,
        /// The value that was seen.
        result: Option<Vec<u8>>,
    },
    /// Look whether a key is there.
    Contains {
        /// The table.
        table: u32,
        /// The key.
        key: Vec<u8>,
        /// Whether it was.
        present: bool,
    },
    /// Read a range.
    Scan {
        /// The table.
        table: u32,
        /// Where the range begins.
        low: Bound<Vec<u8>>,
        /// Where the range ends.
        high: Bound<Vec<u8>>,
        /// From the high end down.
        descending: bool,
        /// Whether the scan went on to the end of the range: if not, it saw only the first `result.len()` entries.
        complete: bool,
        /// What was seen, in order.
        result: Vec<(Vec<u8>, Vec<u8>)>,
    },
    /// As [`Op::Scan`], without the values.
    Keys {
        /// The table.
        table: u32,
        /// Where the range begins.
        low: Bound<Vec<u8>>,
        /// Where the range ends.
        high: Bound<Vec<u8>>,
        /// From the high end down.
        descending: bool,
        /// Whether it went on to the end of the range.
        complete: bool,
        /// What was seen, in order.
        result: Vec<Vec<u8>>,
    },
    /// Take what nobody else has locked of a range.
    Skip {
        /// The table.
        table: u32,
        /// Where the range begins.
        low: Bound<Vec<u8>>,
        /// Where the range ends.
        high: Bound<Vec<u8>>,
        /// From the high end down.
        descending: bool,
        /// Whether it went on to the end of the range: if not, nothing is known of what lies behind the last entry.
        complete: bool,
        /// What was got, in order, and is locked since.
        result: Vec<(Vec<u8>, Vec<u8>)>,
    },
    /// Write a key that must not be there.
    Insert {
        /// The table.
        table: u32,
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// Whether it was written: false when the key was there.
        inserted: bool,
    },
    /// Write a key, there or not.
    Put {
        /// The table.
        table: u32,
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// Whether the key was there before.
        existed: bool,
    },
    /// Write a key that must be there.
    Update {
        /// The table.
        table: u32,
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// Whether it was written: false when the key was not there.
        updated: bool,
    },
    /// Remove a key.
    Delete {
        /// The table.
        table: u32,
        /// The key.
        key: Vec<u8>,
        /// Whether the key was there.
        existed: bool,
    },
    /// Remove the first keys of a range.
    RemoveRange {
        /// The table.
        table: u32,
        /// Where the range begins.
        low: Bound<Vec<u8>>,
        /// Where the range ends.
        high: Bound<Vec<u8>>,
        /// The most that are removed.
        most: u64,
        /// How many were.
        removed: u64,
    },
    /// Mark this place. Savepoints are numbered from 0 in the order of their making.
    Savepoint,
    /// Undo everything since a savepoint of this transaction; the savepoint stays, those after it are gone (their
    /// numbers are not used again).
    RollbackTo(usize),
    /// Give up a savepoint of this transaction, and those after it; what was done stays.
    Release(usize),
}

/// Where a transaction stands in the serial order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Position {
    /// At this place: its commit LSN, or a number drawn while it held its locks. No two transactions share one.
    At(u64),
    /// It wrote nothing, and saw the state after all transactions up to some place in `after..=before`. Strict
    /// serializability asks for `after` = the newest place that was acknowledged when it began, and `before` = the
    /// newest place that was given out when it ended.
    Between {
        /// The earliest place.
        after: u64,
        /// The last place.
        before: u64,
    },
}

/// A result that no serial run in the recorded order gives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{label} at {position:?}, operation {index} ({op}): the serial order gives {expected}")]
pub struct Anomaly {
    /// The transaction, as its recorder named it.
    pub label: String,
    /// Where it stands.
    pub position: Position,
    /// Which of its operations, from 0.
    pub index: usize,
    /// The operation, with the result that it had.
    pub op: String,
    /// The result in the serial order.
    pub expected: String,
}

/// One committed transaction.
#[derive(Clone, Debug)]
struct Entry {
    label: String,
    position: Position,
    ops: Vec<Op>,
}

/// Committed transactions, recorded from any thread.
#[derive(Debug, Default)]
pub struct History {
    /// Guarded by the mutex; in no order.
    entries: Mutex<Vec<Entry>>,
}

impl History {
    /// An empty history.
    pub fn new() -> History {
        History::default()
    }

    /// Records a committed transaction that has a place of its own: its commit LSN, or a sequence number drawn while
    /// it held its locks.
    pub fn record(&self, position: u64, ops: Vec<Op>) {
        self.record_as(format_args!("transaction {position}"), Position::At(position), ops);
    }

    /// Records a committed transaction that wrote nothing and saw the state at some place in `after..=before`.
    pub fn record_between(&self, after: u64, before: u64, ops: Vec<Op>) {
        let position = Position::Between { after, before };
        self.record_as(format_args!("reader {after}..={before}"), position, ops);
    }

    /// Records a committed transaction under a name of the caller's.
    pub fn record_as(&self, label: impl fmt::Display, position: Position, ops: Vec<Op>) {
        let entry = Entry { label: label.to_string(), position, ops };
        self.entries.lock().push(entry);
    }

    /// How many transactions are recorded.
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Whether nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks every recorded result, beginning with empty tables.
    pub fn replay(&self) -> Result<(), Anomaly> {
        self.replay_onto(State::new()).map(|_| ())
    }

    /// As [`History::replay`], beginning with these tables; gives the tables at the end, to be compared with the
    /// engine's.
    pub fn replay_onto(&self, state: State) -> Result<State, Anomaly> {
        checker::replay(&self.entries.lock(), state)
    }
}
