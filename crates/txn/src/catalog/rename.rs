//! Renaming a table: its row gets another key. Its tree, and the id that locks and records of the log name it by, stay.
//!
//! As a drop it holds the table exclusively until it is durable and old handles say that there is no table of that name
//! any more (TXN-15): whoever waited for the table looks for it again. The new row comes before the old one goes, so
//! that whatever a crash leaves, undo finds the tree of each record.

use foreshore_base::{StorageError, limits::MAX_TABLE_NAME_BYTES};
use foreshore_btree::TreeError;
use foreshore_env::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use foreshore_lock::IntentMode;

use super::{
    Catalog, TableInfo,
    alone::{alone, commit_then, lock_name},
    encode_row, limit,
};
use crate::{
    engine::Engine,
    error::TxnError,
    transaction::{Txn, TxnSession},
};

/// Gives the table `from` the name `to`. A transaction of its own, durable when this returns. `wait`: for those who use
/// the table; a transaction of the caller's own would let it wait for ever.
pub(crate) fn rename_table(
    engine: &Arc<Engine>,
    from: &str,
    to: &str,
    wait: Duration,
) -> Result<(), TxnError> {
    limit("length of a table's name in bytes", MAX_TABLE_NAME_BYTES, to.len())?;
    alone(engine, "rename table", wait, |txn| try_rename_table(txn, from, to))
}

fn try_rename_table(mut txn: Txn, from: &str, to: &str) -> Result<(), TxnError> {
    let engine = txn.session.engine.clone();
    let catalog = &engine.core().catalog;
    lock_name(&mut txn, from)?;
    let Some(table) = catalog.get(from) else {
        txn.rollback()?;
        return Err(TxnError::TableGone { name: from.to_owned() });
    };
    // Before the other name: who uses the table may be about to make one of that name, and waits for it where no cycle
    // shows.
    txn.session.enter(table.id(), IntentMode::X)?;
    lock_name(&mut txn, to)?;
    if catalog.get(to).is_some() {
        txn.rollback()?;
        return Err(TxnError::TableExists { name: to.to_owned() });
    }
    txn.change_once(|session| move_row(session, &table, to))?;
    commit_then(txn, |catalog| catalog.set_renamed(&table, to))
}

fn move_row(session: &mut TxnSession, table: &TableInfo, to: &str) -> Result<(), TreeError> {
    let engine = session.engine.clone();
    let tree = &engine.core().catalog.tree;
    let row = encode_row(table.id(), table.tree().root(), table.meta());
    if tree.insert(session, to.as_bytes(), &row)? && tree.delete(session, table.name().as_bytes())? {
        return Ok(());
    }
    let detail =
        format!("the rows of tables {:?} and {to:?} are not as they were when they were read", table.name());
    Err(StorageError::corrupt_page(tree.root(), detail).into())
}

impl Catalog {
    fn set_renamed(&self, table: &TableInfo, to: &str) {
        let mut tables = self.tables.lock();
        table.0.gone.store(true, Ordering::Relaxed);
        tables.by_name.remove(table.name());
        tables.add(TableInfo::new(to.to_owned(), table.meta().to_owned(), table.tree().clone()));
    }
}
