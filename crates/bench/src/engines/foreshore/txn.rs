//! A transaction of the facade, as workloads see it.

use std::ops::{Bound, ControlFlow};

use super::{
    definition,
    errors::failure,
    facade::{self, Direction, TableDefinition, Transaction},
};
use crate::{
    engine::{EngineTxn, Failure, Order, Reader, TableIndex, Visit, VisitMany},
    row::KeyBytes,
};

pub(super) struct Txn<'t> {
    pub(super) tx: &'t mut Transaction,
    pub(super) tables: &'t [String],
}

impl<'t> Txn<'t> {
    #[inline]
    fn table<'b>(&self, table: TableIndex) -> Result<TableDefinition<'t, &'b [u8], &'b [u8]>, Failure> {
        match self.tables.get(usize::from(table.0)) {
            Some(name) => Ok(definition(name)),
            None => Err(Failure::no_table(table)),
        }
    }
}

/// Replaces the content of `value`; may be called several times for one read.
fn copy_into(value: &mut Vec<u8>) -> impl FnMut(&[u8]) {
    |bytes| {
        value.clear();
        value.extend_from_slice(bytes);
    }
}

impl Reader for Txn<'_> {
    fn get(&mut self, table: TableIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        let table = self.table(table)?;
        self.tx.get_with(table, key, copy_into(value)).map(|found| found.is_some()).map_err(failure)
    }

    fn scan(
        &mut self,
        table: TableIndex,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        let table = self.table(table)?;
        let direction = match order {
            Order::Ascending => Direction::Ascending,
            Order::Descending => Direction::Descending,
        };
        self.tx
            .scan(table, range, direction, |key, value| -> ControlFlow<()> { visit(key, value) })
            .map_err(failure)
    }
}

impl EngineTxn for Txn<'_> {
    fn number(&self) -> Option<u64> {
        Some(self.tx.id().0)
    }

    fn get_many(
        &mut self,
        table: TableIndex,
        keys: &[KeyBytes],
        for_update: bool,
        _: &mut Vec<u8>,
        visit: &mut VisitMany<'_>,
    ) -> Result<(), Failure> {
        let (table, keys) = (self.table(table)?, keys.iter().map(|key| &**key));
        let read = match for_update {
            true => self.tx.get_many_for_update_with(table, keys, visit),
            false => self.tx.get_many_with(table, keys, visit),
        };
        read.map_err(failure)
    }

    fn get_for_update(
        &mut self,
        table: TableIndex,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        let table = self.table(table)?;
        self.tx
            .get_for_update_with(table, key, copy_into(value))
            .map(|found| found.is_some())
            .map_err(failure)
    }

    fn insert(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<bool, Failure> {
        let table = self.table(table)?;
        self.tx.insert(table, key, value).map_err(failure)
    }

    fn append(&mut self, table: TableIndex, keys: &[KeyBytes], value: &[u8]) -> Result<bool, Failure> {
        let table = self.table(table)?;
        match self.tx.append(table, keys.iter().map(|key| (&**key, value))) {
            Ok(_) => Ok(true),
            Err(facade::Error::NotBehind { .. }) => Ok(false),
            Err(error) => Err(failure(error)),
        }
    }

    fn put(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        let table = self.table(table)?;
        self.tx.put(table, key, value).map(|_| ()).map_err(failure)
    }

    fn delete(&mut self, table: TableIndex, key: &[u8]) -> Result<bool, Failure> {
        let table = self.table(table)?;
        self.tx.delete(table, key).map_err(failure)
    }
}
