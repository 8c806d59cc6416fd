//! Dropping a table: the transaction that takes its name away, in a time that does not depend on how large it is. The
//! [reaper](crate::reaper) frees the pages later.
//!
//! TXN-15: the drop holds the table exclusively, and its own row, until it is durable and the table says that it is
//! dropped; so whoever locks the table later is told. In the same transaction the row under the name goes and one of
//! the dropped table comes: after a crash the table is there as a whole, or its pages are to be freed.

use foreshore_base::{PageId, StorageError, TableId};
use foreshore_btree::{Session, TreeError};
use foreshore_env::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use foreshore_lock::IntentMode;

use super::{
    Catalog, TableInfo,
    alone::{alone, commit_then, lock_name},
    encode_row,
};
use crate::{
    engine::Engine,
    error::TxnError,
    transaction::{Txn, TxnSession},
};

/// What the key of a dropped table begins with: no text does.
const DROPPED: u8 = u8::MAX;

/// A dropped table that still has pages.
#[derive(Clone, Debug)]
pub(crate) struct Dropped {
    /// What it was called; empty in rows of versions that did not note it.
    pub(crate) name: String,
    pub(crate) root: PageId,
    /// Why its pages cannot be freed. The next opening tries again.
    pub(crate) failure: Option<String>,
}

fn dropped_key(table: TableId) -> [u8; 5] {
    let [a, b, c, d] = table.0.to_be_bytes();
    [DROPPED, a, b, c, d]
}

/// The dropped table whose row has this key.
pub(crate) fn dropped_table(key: &[u8]) -> Option<TableId> {
    match *key {
        [DROPPED, a, b, c, d] => Some(TableId(u32::from_be_bytes([a, b, c, d]))),
        _ => None,
    }
}

/// Drops the table of this name; false if there is none. A transaction of its own, durable when this returns. `wait`:
/// for those who use the table; a transaction of the caller's own would let it wait for ever.
pub(crate) fn drop_table(engine: &Arc<Engine>, name: &str, wait: Duration) -> Result<bool, TxnError> {
    alone(engine, "drop table", wait, |txn| try_drop_table(txn, name))
}

fn try_drop_table(mut txn: Txn, name: &str) -> Result<bool, TxnError> {
    let engine = txn.session.engine.clone();
    let core = engine.core();
    lock_name(&mut txn, name)?;
    let Some(table) = core.catalog.get(name) else {
        txn.rollback()?;
        return Ok(false);
    };
    txn.session.enter(table.id(), IntentMode::X)?;
    txn.change_once(|session| replace_row(session, &table))?;
    commit_then(txn, |catalog| catalog.set_dropped(&table))?;
    core.growth.ask_reaper();
    Ok(true)
}

/// Takes the row under the table's name away, and adds the one that says whose pages are to be freed.
fn replace_row(session: &mut TxnSession, table: &TableInfo) -> Result<(), TreeError> {
    let engine = session.engine.clone();
    let catalog = &engine.core().catalog;
    let row = encode_row(table.id(), table.tree().root(), table.name().as_bytes());
    if catalog.tree.delete(session, table.name().as_bytes())?
        && catalog.tree.insert(session, &dropped_key(table.id()), &row)?
    {
        return Ok(());
    }
    let detail = format!("the rows of table {:?} are not as they were when they were read", table.name());
    Err(StorageError::corrupt_page(catalog.tree.root(), detail).into())
}

impl Catalog {
    fn set_dropped(&self, table: &TableInfo) {
        let mut tables = self.tables.lock();
        table.0.gone.store(true, Ordering::Relaxed);
        tables.by_name.remove(table.name());
        tables.by_id.remove(&table.id());
        let (name, root) = (table.name().to_owned(), table.tree().root());
        tables.dropped.insert(table.id(), Dropped { name, root, failure: None });
    }

    /// Dropped tables that still have pages.
    pub(crate) fn dropped(&self) -> Vec<(TableId, Dropped)> {
        self.tables.lock().dropped.iter().map(|(table, dropped)| (*table, dropped.clone())).collect()
    }

    /// A dropped table whose pages may be freed, and its root.
    pub(crate) fn next_dropped(&self) -> Option<(TableId, PageId)> {
        let tables = self.tables.lock();
        let mut free = tables.dropped.iter().filter(|(_, dropped)| dropped.failure.is_none());
        free.next().map(|(table, dropped)| (*table, dropped.root))
    }

    /// The pages of a dropped table cannot be freed: it stands in no other's way from now on.
    pub(crate) fn set_stuck(&self, table: TableId, failure: String) {
        if let Some(dropped) = self.tables.lock().dropped.get_mut(&table) {
            dropped.failure = Some(failure);
        }
    }

    /// Takes the row of a dropped table away: it has no pages left.
    pub(crate) fn delete_dropped(&self, session: &mut impl Session, table: TableId) -> Result<(), TreeError> {
        self.tree.delete(session, &dropped_key(table)).map(drop)
    }

    /// The row is gone.
    pub(crate) fn forget_dropped(&self, table: TableId) {
        self.tables.lock().dropped.remove(&table);
    }
}
