//! Tables in parts: each partition of the warehouses has tables of its own, and so indexes of its own (SPLIT; Ren,
//! Faleiro, Abadi 2016, §4.3). What transactions do is the same; each row goes to the part that its key names.
//!
//! Items are read by all and written by nobody: they stay in one table. Parts of partition 0 stand where the tables
//! stood before; those of the others follow, a partition after the other.

use super::{
    partition_of_key,
    schema::{ITEM, TABLES},
};
use crate::{
    engine::{Engine, EngineTxn, Failure, TableIndex},
    placed::Placed,
    row::TableSpec,
    workload::{Loader, VisitRow, visit_all},
};

/// Into how many parts the tables are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// At least 1; 1 is not divided.
    partitions: u16,
}

impl Split {
    /// Each table is one.
    pub(super) const NONE: Split = Split { partitions: 1 };

    /// A part for each of so many partitions.
    pub(super) fn into(partitions: u16) -> Split {
        Split { partitions: partitions.max(1) }
    }

    /// Names of the parts, each at its place.
    pub(super) fn tables(self) -> Vec<String> {
        let names = |partition: u16| {
            let divided = TABLES.iter().filter(move |table| partition == 0 || table.index != ITEM.index);
            divided.map(move |table| {
                if self.partitions == 1 || table.index == ITEM.index {
                    table.name.to_owned()
                } else {
                    format!("{}_{partition}", table.name)
                }
            })
        };
        (0..self.partitions).flat_map(names).collect()
    }

    /// The part of a table in a partition.
    fn part(self, table: TableIndex, partition: u16) -> TableIndex {
        if partition == 0 || table == ITEM.index {
            return table;
        }
        let (all, divided) = (TABLES.len() as u16, TABLES.len() as u16 - 1);
        let place = table.0 - u16::from(table.0 > ITEM.index.0);
        TableIndex(all + (partition - 1) * divided + place)
    }

    /// The parts of a table.
    pub(super) fn parts(self, table: TableIndex) -> impl Iterator<Item = TableIndex> {
        let count = if table == ITEM.index { 1 } else { self.partitions };
        (0..count).map(move |partition| self.part(table, partition))
    }

    /// The part in which the row of a key lies.
    pub(super) fn place(self, table: TableIndex, key: &[u8]) -> TableIndex {
        self.part(table, (partition_of_key(key) % usize::from(self.partitions)) as u16)
    }

    /// A transaction that finds each row in its part. Its ranges lie within a warehouse.
    pub(super) fn txn(self, txn: &mut dyn EngineTxn) -> impl EngineTxn + '_ {
        Placed::new(txn, move |table, key| Some(self.place(table, key?)))
    }
}

/// Loads rows into their parts.
pub(super) struct Rows<'r, 'l> {
    pub(super) loader: &'r mut Loader<'l>,
    pub(super) split: Split,
}

impl Rows<'_, '_> {
    pub(super) fn row(&mut self, table: TableIndex, key: &[u8], row: &[u8]) -> Result<(), Failure> {
        self.loader.row(self.split.place(table, key), key, row)
    }
}

/// An engine with tables in parts.
pub(super) struct Parts<'e> {
    pub(super) engine: &'e dyn Engine,
    pub(super) split: Split,
}

impl Parts<'_> {
    pub(super) fn visit_all(&self, table: &TableSpec, visit: &mut VisitRow<'_>) -> Result<(), Failure> {
        self.split.parts(table.index).try_for_each(|part| visit_all(self.engine, part, b"", visit))
    }
}
