//! The lock tables that there are to choose from.

use foreshore_txn::LockTableKind;

/// The implementations of the lock table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockTable {
    /// A latch for each bucket.
    #[default]
    Latched,
    /// One mutex for everything: a baseline to measure against.
    GlobalMutex,
    /// The same behind one queue of spinning threads (MCS): another.
    GlobalMcs,
    /// A latch for each bucket, which whoever comes or goes takes, readers too: another.
    AlwaysLatched,
    /// Jung et al. 2013: lock requests come and go without latches, and are recycled in bulk.
    Staged,
}

impl From<LockTable> for LockTableKind {
    fn from(table: LockTable) -> LockTableKind {
        match table {
            LockTable::Latched => LockTableKind::Latched,
            LockTable::GlobalMutex => LockTableKind::GlobalMutex,
            LockTable::GlobalMcs => LockTableKind::GlobalMcs,
            LockTable::AlwaysLatched => LockTableKind::AlwaysLatched,
            LockTable::Staged => LockTableKind::Staged,
        }
    }
}
