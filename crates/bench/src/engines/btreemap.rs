//! The first rival: a `BTreeMap` for each table, all under one mutex that a transaction holds from begin to end, with
//! an undo list so that it can be rolled back. Nothing is durable and nothing runs at the same time; it shows what
//! the workload itself costs.

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow},
};

use foreshore_env::sync::Mutex;

use crate::engine::{Attempts, Body, Engine, EngineTxn, Failure, Order, Outcome, Reader, TableIndex, Visit};

type Table = BTreeMap<Vec<u8>, Vec<u8>>;

/// See the module.
#[derive(Debug)]
pub struct BTreeMapEngine {
    tables: Mutex<Vec<Table>>,
}

impl BTreeMapEngine {
    /// An engine with this many empty tables.
    pub fn new(tables: usize) -> BTreeMapEngine {
        BTreeMapEngine { tables: Mutex::new(vec![Table::new(); tables]) }
    }
}

/// A transaction: the mutex is held by [`Engine::transact`]. What it changed is undone on drop unless it committed, so
/// that a panic in its body leaves nothing behind.
struct Txn<'t> {
    tables: &'t mut Vec<Table>,
    /// Table, key, and the value before the change; newest last.
    undo: Vec<(TableIndex, Vec<u8>, Option<Vec<u8>>)>,
}

impl Txn<'_> {
    fn table(&mut self, table: TableIndex) -> Result<&mut Table, Failure> {
        self.tables.get_mut(usize::from(table.0)).ok_or_else(|| Failure::no_table(table))
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        while let Some((table, key, before)) = self.undo.pop() {
            let table = &mut self.tables[usize::from(table.0)];
            match before {
                Some(value) => table.insert(key, value),
                None => table.remove(&key),
            };
        }
    }
}

impl Reader for Txn<'_> {
    fn get(&mut self, table: TableIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        let found = self.table(table)?.get(key);
        if let Some(found) = found {
            value.clear();
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn scan(
        &mut self,
        table: TableIndex,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        let table = self.table(table)?;
        if is_empty_range(low, high) {
            return Ok(());
        }
        let mut records = table.range::<[u8], _>((low, high));
        while let Some((key, value)) = match order {
            Order::Ascending => records.next(),
            Order::Descending => records.next_back(),
        } {
            if visit(key, value) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }
}

impl EngineTxn for Txn<'_> {
    fn insert(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<bool, Failure> {
        if self.table(table)?.contains_key(key) {
            return Ok(false);
        }
        self.put(table, key, value)?;
        Ok(true)
    }

    fn put(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        let before = self.table(table)?.insert(key.to_vec(), value.to_vec());
        self.undo.push((table, key.to_vec(), before));
        Ok(())
    }

    fn delete(&mut self, table: TableIndex, key: &[u8]) -> Result<bool, Failure> {
        let before = self.table(table)?.remove(key);
        let found = before.is_some();
        if found {
            self.undo.push((table, key.to_vec(), before));
        }
        Ok(found)
    }
}

/// Whether `BTreeMap::range` would panic.
pub(super) fn is_empty_range(low: Bound<&[u8]>, high: Bound<&[u8]>) -> bool {
    match (low, high) {
        (Bound::Excluded(low), Bound::Excluded(high)) => low >= high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => {
            low > high
        }
        _ => false,
    }
}

impl Engine for BTreeMapEngine {
    fn name(&self) -> &'static str {
        "btreemap"
    }

    fn transact(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        let mut tables = self.tables.lock();
        let mut txn = Txn { tables: &mut tables, undo: Vec::new() };
        let result = body(&mut txn);
        if result.is_ok() {
            txn.undo.clear();
        }
        attempts.ended(result)
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        let tables = self.tables.lock();
        BTreeMap::from([("records".to_owned(), tables.iter().map(|table| table.len() as u64).sum())])
    }

    fn caveats(&self) -> Vec<&'static str> {
        vec!["nothing is durable, whatever --durability says: the commits end with the process"]
    }
}
