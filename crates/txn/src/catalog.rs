//! The catalogue: table 0, from a table's name to where its tree is.
//!
//! | offset | bytes | value of a row |
//! | --- | --- | --- |
//! | 0 | 4 | table id |
//! | 4 | 4 | root page |
//! | 8 | … | what the facade wants to remember (the types) |
//!
//! The key is the name. All tables are also kept in memory, put there when their creation is durable.
//!
//! A dropped table (`catalog/drop.rs`) has a row too, until its pages are free: its key is the byte 255, with which no
//! name begins, and the table id, big-endian; in place of the facade's part it has the name, for reports.

mod alone;
mod drop;
mod place;
mod rename;

use std::{collections::BTreeMap, ops::Bound};

use foreshore_base::{
    Lsn, PageId, Result, StorageError, TableId, TxnId,
    limits::{MAX_INLINE_VALUE_BYTES, MAX_TABLE_NAME_BYTES, MAX_TABLE_TYPES_BYTES, MAX_TABLES},
};
use foreshore_btree::{BTree, Direction, Isolation, LockKind, NoLocks, Session, TreeEnv, TreeError};
use foreshore_env::{
    Handle,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};
use foreshore_lock::{IntentMode, KeyMode, KeyRef};

use self::{drop::Dropped, place::Begun};
pub(crate) use self::{
    drop::{drop_table, dropped_table},
    place::{Makers, is_for_a_place},
    rename::rename_table,
};
use crate::{
    engine::Engine,
    error::TxnError,
    options::BeginOptions,
    records::{self, Fields},
    stats::Event,
    transaction::{Txn, TxnSession, Waiting},
};

/// Where in a row the root's page id is.
pub(crate) const ROOT_OFFSET: usize = 4;
/// Bytes before the facade's part of a row.
const ROW_HEAD_BYTES: usize = 8;
const _: () = assert!(ROW_HEAD_BYTES + MAX_TABLE_TYPES_BYTES == MAX_INLINE_VALUE_BYTES);

/// A table. Cheap to clone; valid as long as its engine.
#[derive(Clone, Debug)]
pub struct TableInfo(Arc<Table>);

#[derive(Debug)]
struct Table {
    name: String,
    meta: Vec<u8>,
    tree: BTree,
    /// The table was dropped, or has another name. Set by who does that, which has the table locked exclusively, and
    /// read by whoever has locked it after; the lock orders them, so it is relaxed.
    gone: AtomicBool,
}

impl TableInfo {
    /// Its id.
    #[inline]
    pub fn id(&self) -> TableId {
        self.0.tree.table()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What [`Engine::create_table`] was given for it.
    pub fn meta(&self) -> &[u8] {
        &self.0.meta
    }

    /// A number that no other table has while there is a handle of this one: neither a copy in another database nor
    /// what was made anew under its name.
    #[inline]
    pub fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Whether there is no such table under this name any more: it was dropped, or renamed. Exact for whoever holds a
    /// lock on it.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.0.gone.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn tree(&self) -> &BTree {
        &self.0.tree
    }
}

/// All tables.
#[derive(Debug)]
pub(crate) struct Catalog {
    tree: BTree,
    overflow_root: PageId,
    /// The id that the next created table gets. Ids are never used twice, also not those of creations that failed.
    next_table: AtomicU32,
    tables: Mutex<Tables>,
}

/// Guarded by the mutex of [`Catalog::tables`].
#[derive(Debug, Default)]
struct Tables {
    by_name: BTreeMap<String, TableInfo>,
    by_id: BTreeMap<TableId, TableInfo>,
    /// Dropped tables that still have pages.
    dropped: BTreeMap<TableId, Dropped>,
}

impl Catalog {
    pub(crate) fn new(tree: BTree, overflow_root: PageId) -> Catalog {
        let next_table = AtomicU32::new(TableId::FIRST_USER.0);
        Catalog { tree, overflow_root, next_table, tables: Mutex::default() }
    }

    /// Reads all rows anew; no table that gets created later has an id below `next_table`. Only while nobody else is
    /// there. Rows of creations that recovery is going to undo may be among them.
    pub(crate) fn load(&self, trees: &Arc<TreeEnv>, next_table: u32) -> Result<()> {
        let whole = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor =
            self.tree.cursor(whole, Direction::Ascending, LockKind::Shared, Isolation::Serializable);
        let (mut session, mut name, mut row) = (NoLocks::new(TxnId::SYSTEM), Vec::new(), Vec::new());
        let mut tables = Tables::default();
        let mut next_table = next_table.max(TableId::FIRST_USER.0);
        while cursor.next(&mut session, &mut name, &mut row).map_err(without_locks)? {
            let damaged = |detail: &str| StorageError::corrupt_page(self.tree.root(), detail);
            if let Some(table) = dropped_table(&name) {
                let (_, root, name) =
                    decode_row(&row).ok_or_else(|| damaged("a row of a dropped table is too short"))?;
                let name = String::from_utf8_lossy(&name).into_owned();
                tables.dropped.insert(table, Dropped { name, root, failure: None });
                continue;
            }
            let name = String::from_utf8(name.clone())
                .map_err(|_| damaged("a table's name in the catalogue is not UTF-8"))?;
            let (table, root, meta) =
                decode_row(&row).ok_or_else(|| damaged("a row of the catalogue is too short"))?;
            if table < TableId::FIRST_USER || table == TableId::VOLUME || !root.is_some() {
                return Err(damaged("a row of the catalogue gives an impossible table or root"));
            }
            next_table = next_table.max(table.0.saturating_add(1));
            tables.add(TableInfo::new(name, meta, BTree::open(trees, table, root)));
        }
        self.next_table.store(next_table, Ordering::Relaxed);
        *self.tables.lock() = tables;
        Ok(())
    }

    /// The root of a table's tree.
    pub(crate) fn root(&self, table: TableId) -> Option<PageId> {
        match table {
            TableId::CATALOG => Some(self.tree.root()),
            TableId::OVERFLOW => Some(self.overflow_root),
            _ => self.tables.lock().by_id.get(&table).map(|table| table.tree().root()),
        }
    }

    pub(crate) fn next_table(&self) -> u32 {
        self.next_table.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self, name: &str) -> Option<TableInfo> {
        self.tables.lock().by_name.get(name).cloned()
    }

    pub(crate) fn by_id(&self, table: TableId) -> Option<TableInfo> {
        self.tables.lock().by_id.get(&table).cloned()
    }

    pub(crate) fn all(&self) -> Vec<TableInfo> {
        self.tables.lock().by_name.values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.tables.lock().by_name.len()
    }

    pub(crate) fn tree(&self) -> &BTree {
        &self.tree
    }

    pub(crate) fn overflow_root(&self) -> PageId {
        self.overflow_root
    }
}

impl Tables {
    fn add(&mut self, table: TableInfo) {
        self.by_id.insert(table.id(), table.clone());
        self.by_name.insert(table.name().to_owned(), table);
    }
}

impl TableInfo {
    fn new(name: String, meta: Vec<u8>, tree: BTree) -> TableInfo {
        TableInfo(Arc::new(Table { name, meta, tree, gone: AtomicBool::new(false) }))
    }
}

/// The label of whoever makes a table.
pub(crate) const MAKING: &str = "create table";

/// Makes a table, unless it is there. A transaction of its own, durable when this returns, and until then unseen by
/// anybody else. `begin`: how that begins; `has_volume`: a transaction that needs the table has locked the volume as a
/// writer, and keeps that meanwhile; `waiting`: how this one waits for locks.
pub(crate) fn create_table(
    engine: &Handle<Engine>,
    name: &str,
    meta: &[u8],
    begin: &BeginOptions,
    has_volume: bool,
    waiting: &Waiting,
) -> Result<TableInfo, TxnError> {
    let catalog = &engine.core().catalog;
    if let Some(table) = catalog.get(name) {
        return Ok(table);
    }
    limit("length of a table's name in bytes", MAX_TABLE_NAME_BYTES, name.len())?;
    limit("length of a table's description in bytes", MAX_TABLE_TYPES_BYTES, meta.len())?;
    limit("tables in a database", MAX_TABLES, catalog.len() + 1)?;
    let try_it = || {
        let mut txn = match place::begin(engine, begin, waiting, name)? {
            Begun::Maker(txn) => txn,
            Begun::Made(table) => return Ok(table),
        };
        txn.session.waiting = waiting.clone();
        try_create_table(*txn, name, meta, has_volume)
    };
    match try_it() {
        Err(TxnError::Storage(StorageError::LogFull { .. })) if engine.core().shorten_log()? => try_it(),
        created => created,
    }
}

fn try_create_table(mut txn: Txn, name: &str, meta: &[u8], has_volume: bool) -> Result<TableInfo, TxnError> {
    let engine = txn.session.engine.clone();
    let core = engine.core();
    if has_volume {
        txn.session.intent(TableId::CATALOG, IntentMode::IX)?;
    } else {
        txn.session.enter(TableId::CATALOG, IntentMode::IX)?;
    }
    txn.session.acquire(TableId::CATALOG, KeyRef::Key(name.as_bytes()), KeyMode::XN)?;
    // Whoever made it meanwhile put it into memory before giving up this lock.
    if let Some(table) = core.catalog.get(name) {
        txn.rollback()?;
        return Ok(table);
    }
    let table = draw_table_id(&core.catalog.next_table)?;
    let tree = txn.change_once(|session| add_tree(session, table, name, meta))?;
    let lsn = txn.append_commit()?;
    txn.finished = true;
    let created = TableInfo::new(name.to_owned(), meta.to_vec(), tree);
    durable_then_seen(&txn, lsn, &created)?;
    txn.session.owner.release_all(Some(lsn));
    core.stats.count(Event::Commit);
    Ok(created)
}

fn draw_table_id(next_table: &AtomicU32) -> Result<TableId> {
    // The last ids are spare: the highest stands for the volume.
    let last = u32::MAX - 16;
    let drawn = next_table
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| (next < last).then_some(next + 1));
    let limit = u64::from(last);
    drawn.map(TableId).map_err(|_| StorageError::beyond_limit("tables ever created", limit, limit + 1))
}

/// The tree and its row. The announcement comes first: if there is no commit, undo finds the root by it (TXN-11).
fn add_tree(session: &mut TxnSession, table: TableId, name: &str, meta: &[u8]) -> Result<BTree, TreeError> {
    session.append(records::TREE_CREATION, &[&records::encode_tree_creation(table)])?;
    let engine = session.engine.clone();
    let core = engine.core();
    let tree = BTree::create(&core.trees, table)?;
    let row = encode_row(table, tree.root(), meta);
    if core.catalog.tree.insert(session, name.as_bytes(), &row)? {
        Ok(tree)
    } else {
        let detail = format!("the catalogue has table {name:?}, which was not there when it was read");
        Err(StorageError::corrupt_page(core.catalog.tree.root(), detail).into())
    }
}

/// No early release here: nobody shall find a table that a crash may take back (TXN-11).
fn durable_then_seen(txn: &Txn, lsn: Lsn, table: &TableInfo) -> Result<(), TxnError> {
    let core = txn.session.core();
    core.log.flush(lsn).map_err(TxnError::unknown)?;
    core.catalog.tables.lock().add(table.clone());
    Ok(())
}

fn encode_row(table: TableId, root: PageId, meta: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(ROW_HEAD_BYTES + meta.len());
    row.extend_from_slice(&table.0.to_le_bytes());
    row.extend_from_slice(&root.0.to_le_bytes());
    row.extend_from_slice(meta);
    row
}

pub(crate) fn decode_row(row: &[u8]) -> Option<(TableId, PageId, Vec<u8>)> {
    let mut fields = Fields { rest: row };
    Some((TableId(fields.u32()?), PageId(fields.u32()?), fields.rest.to_vec()))
}

fn limit(what: &'static str, limit: usize, got: usize) -> Result<()> {
    if got <= limit { Ok(()) } else { Err(StorageError::beyond_limit(what, limit as u64, got as u64)) }
}

/// The error of an operation that asks for no locks.
pub(crate) fn without_locks(error: TreeError) -> StorageError {
    match error {
        TreeError::Storage(error) => error,
        TreeError::Lock(error) => {
            StorageError::Poisoned { cause: format!("a lock was refused where none is needed: {error}") }
        }
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    /// In more than four thousand million tables an id would come again.
    #[test]
    fn table_ids_end() {
        let next_table = AtomicU32::new(u32::MAX - 18);
        assert_eq!(draw_table_id(&next_table).unwrap(), TableId(u32::MAX - 18));
        assert_eq!(draw_table_id(&next_table).unwrap(), TableId(u32::MAX - 17));
        for _ in 0..2 {
            match draw_table_id(&next_table) {
                Err(StorageError::LimitExceeded { limit, .. }) => assert_eq!(limit, u64::from(u32::MAX - 16)),
                drawn => panic!("{drawn:?}"),
            }
        }
    }
}
