//! Leaves whose last record was deleted when its ghost could not go yet, and to which no delete comes any more; and of
//! the overflow table, those that are empty and could not be merged at once. Those that are not in the pool when they
//! are looked at are left to a compaction.

use std::collections::VecDeque;

use foreshore_base::TableId;
use foreshore_env::sync::Mutex;

/// How many of them are kept in mind, of all tables: those beyond are left to a compaction, the oldest first. So those
/// of dropped tables go, too.
const MOST: usize = 4096;

/// Of the newest ones so many are looked at before another is added, which may be one of them: a leaf whose only record
/// comes and goes, or one that others were merged with.
const LATELY: usize = 8;

/// Those of all tables, in the order in which they were deserted or looked at last, by their low fences, of which the
/// first leaf of a tree has none. Hints: what is there now may be another leaf. Guarded by the mutex, which is taken
/// under no latch.
#[derive(Debug, Default)]
pub(crate) struct Deserted(Mutex<VecDeque<(TableId, Option<Vec<u8>>)>>);

impl Deserted {
    pub(crate) fn add(&self, table: TableId, low: Option<Vec<u8>>) {
        let leaf = (table, low);
        let mut leaves = self.0.lock();
        if leaves.iter().rev().take(LATELY).any(|other| *other == leaf) {
            return;
        }
        if leaves.len() == MOST {
            leaves.pop_front();
        }
        leaves.push_back(leaf);
    }

    /// Takes out the one of a table that has been here for longest; whoever finds that it has to stay adds it anew.
    pub(crate) fn take(&self, table: TableId) -> Option<Option<Vec<u8>>> {
        let mut leaves = self.0.lock();
        let place = leaves.iter().position(|(other, _)| *other == table)?;
        leaves.remove(place).map(|(_, low)| low)
    }
}
