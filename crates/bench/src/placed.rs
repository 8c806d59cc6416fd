//! Transactions of a workload whose tables stand elsewhere.

use std::ops::Bound;

use crate::engine::{EngineTxn, Failure, Order, Reader, TableIndex, Visit};

/// A transaction that takes each row from the table where `place` says that it lies, given the table and the key as its
/// user names them. Of a range that is the lower end; without one the key is `None`, and `None` as an answer means that
/// the range lies in several tables.
pub struct Placed<'t, P> {
    txn: &'t mut dyn EngineTxn,
    place: P,
}

impl<'t, P: Fn(TableIndex, Option<&[u8]>) -> Option<TableIndex>> Placed<'t, P> {
    /// The engine's transaction, as one whose rows lie there.
    pub fn new(txn: &'t mut dyn EngineTxn, place: P) -> Placed<'t, P> {
        Placed { txn, place }
    }

    fn table(&self, table: TableIndex, key: Option<&[u8]>) -> Result<TableIndex, Failure> {
        (self.place)(table, key).ok_or_else(|| Failure::fatal("a range lies in several tables"))
    }
}

impl<P: Fn(TableIndex, Option<&[u8]>) -> Option<TableIndex>> Reader for Placed<'_, P> {
    fn get(&mut self, table: TableIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        self.txn.get(self.table(table, Some(key))?, key, value)
    }

    fn scan(
        &mut self,
        table: TableIndex,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        let low = match range.0 {
            Bound::Included(low) | Bound::Excluded(low) => Some(low),
            Bound::Unbounded => None,
        };
        self.txn.scan(self.table(table, low)?, range, order, visit)
    }
}

impl<P: Fn(TableIndex, Option<&[u8]>) -> Option<TableIndex>> EngineTxn for Placed<'_, P> {
    fn number(&self) -> Option<u64> {
        self.txn.number()
    }

    fn get_for_update(
        &mut self,
        table: TableIndex,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        self.txn.get_for_update(self.table(table, Some(key))?, key, value)
    }

    fn insert(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<bool, Failure> {
        self.txn.insert(self.table(table, Some(key))?, key, value)
    }

    fn put(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.txn.put(self.table(table, Some(key))?, key, value)
    }

    fn delete(&mut self, table: TableIndex, key: &[u8]) -> Result<bool, Failure> {
        self.txn.delete(self.table(table, Some(key))?, key)
    }
}
