//! What a plan names, in the order in which it was named.

use std::{borrow::Cow, ops::Range};

use foreshore_base::{Places, key::Key};
use foreshore_txn::{Direction, IntentMode, LockKind, TableInfo};

use crate::{
    database::Database,
    error::{Error, Result},
    range::{Bounds, Cursor},
    table::{Found, TableDefinition, TableDescription},
    transaction::{Transaction, check_length},
    value::Value,
};

/// See the module. Each table is here once, however many keys of it are named: its handle is counted, and the count is
/// a line that all threads have in common. Keys are encoded one behind another, so that a plan allocates no memory for
/// each.
#[derive(Debug, Default)]
pub(crate) struct Steps<'d> {
    tables: Vec<Table<'d>>,
    /// Where those are that were found, by [`Table::found`]. Those that are not there yet are looked for among all.
    places: Places<Option<(usize, bool)>>,
    bytes: Vec<u8>,
    steps: Vec<Step>,
}

/// A table of a plan.
#[derive(Debug)]
enum Table<'d> {
    Found {
        info: Cow<'d, TableInfo>,
        /// Whether it was named by [`TableDefinition::encoded`], which makes none.
        encoded: bool,
    },
    /// It is not there, and is made by the transaction that follows the plan, which waits as its options say.
    Absent { name: String, key_type: Cow<'static, str>, value_type: Cow<'static, str> },
}

impl Table<'_> {
    /// What it is found by, if it is there.
    fn found(&self) -> Option<(usize, bool)> {
        match self {
            Table::Found { info, encoded } => Some((info.identity(), *encoded)),
            Table::Absent { .. } => None,
        }
    }

    fn is_absent<K: Key, V: Value>(&self, table: &TableDefinition<'_, K, V>) -> bool {
        matches!(self, Table::Absent { name, key_type, value_type }
            if name == table.name() && *key_type == K::type_name() && *value_type == V::type_name())
    }

    fn into_owned(self) -> Table<'static> {
        match self {
            Table::Found { info, encoded } => Table::Found { info: Cow::Owned(info.into_owned()), encoded },
            Table::Absent { name, key_type, value_type } => Table::Absent { name, key_type, value_type },
        }
    }

    /// Makes it for a transaction, if it is not there, or no longer.
    fn resolve(&mut self, tx: &mut Transaction) -> Result<()> {
        let (table, encoded) = match self {
            Table::Absent { name, key_type, value_type } => {
                (tx.named_table(name, (key_type, value_type))?, false)
            }
            Table::Found { info, .. } if !info.is_gone() => return Ok(()),
            Table::Found { info, encoded: true } => {
                let definition = TableDefinition::encoded(info.name());
                (tx.on(&definition, |_, table| Ok(table.clone()))?, true)
            }
            Table::Found { info, encoded: false } => {
                let TableDescription { name, key_type, value_type } = TableDescription::of(info);
                (tx.named_table(&name, (&key_type, &value_type))?, false)
            }
        };
        *self = Table::Found { info: Cow::Owned(table), encoded };
        Ok(())
    }
}

/// A part of a plan; its table by its place.
#[derive(Debug)]
enum Step {
    /// The key by its place among the bytes.
    Key {
        table: usize,
        key: Range<usize>,
        kind: LockKind,
    },
    Range {
        table: usize,
        bounds: Bounds,
        kind: LockKind,
    },
    Table {
        table: usize,
        mode: IntentMode,
    },
}

impl Step {
    /// The place of its table.
    fn table(&self) -> usize {
        let (Step::Key { table, .. } | Step::Range { table, .. } | Step::Table { table, .. }) = self;
        *table
    }
}

/// Tables that are kept for another plan at most.
const KEPT_TABLES: usize = 16;

impl<'d> Steps<'d> {
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(super) fn add_key<K: Key, V: Value>(
        &mut self,
        database: &'d Database,
        table: &TableDefinition<'_, K, V>,
        key: &K,
        kind: LockKind,
    ) -> Result<()> {
        let start = self.bytes.len();
        key.encode(&mut self.bytes);
        check_length(&self.bytes[start..])?;
        let table = self.table(database, table)?;
        self.steps.push(Step::Key { table, key: start..self.bytes.len(), kind });
        Ok(())
    }

    pub(super) fn add_range<K: Key, V: Value>(
        &mut self,
        database: &'d Database,
        table: &TableDefinition<'_, K, V>,
        bounds: Bounds,
        kind: LockKind,
    ) -> Result<()> {
        let table = self.table(database, table)?;
        self.steps.push(Step::Range { table, bounds, kind });
        Ok(())
    }

    pub(super) fn add_table<K: Key, V: Value>(
        &mut self,
        database: &'d Database,
        table: &TableDefinition<'_, K, V>,
        mode: IntentMode,
    ) -> Result<()> {
        let table = self.table(database, table)?;
        self.steps.push(Step::Table { table, mode });
        Ok(())
    }

    /// The place of a table; borrowed from the cache of tables if it is there.
    fn table<K: Key, V: Value>(
        &mut self,
        database: &'d Database,
        table: &TableDefinition<'_, K, V>,
    ) -> Result<usize> {
        let found = database.inner().find_table(table)?;
        let place = match &found {
            Some(found) => {
                let found = Some((found.info.identity(), table.encoded));
                self.places.place(&self.tables, found, Table::found)
            }
            None => self.tables.iter().position(|known| known.is_absent(table)),
        };
        if let Some(place) = place {
            return Ok(place);
        }
        let found = found.map(|found| match found {
            Found::Remembered(cached) => Cow::Borrowed(&cached.info),
            Found::Alone(cached) => Cow::Owned(cached.info),
        });
        self.tables.push(match found {
            Some(info) => Table::Found { info, encoded: table.encoded },
            None => Table::Absent {
                name: table.name().to_owned(),
                key_type: K::type_name(),
                value_type: V::type_name(),
            },
        });
        self.places.note_last(&self.tables, Table::found);
        Ok(self.tables.len() - 1)
    }

    pub(crate) fn into_owned(self) -> Steps<'static> {
        let Steps { tables, places, bytes, steps } = self;
        let tables = tables.into_iter().map(Table::into_owned).collect();
        Steps { tables, places, bytes, steps }
    }

    /// Without steps, but with its memory and its tables, for another plan.
    pub(crate) fn emptied(mut self) -> Steps<'d> {
        self.tables.retain(|table| matches!(table, Table::Found { info, .. } if !info.is_gone()));
        self.tables.truncate(KEPT_TABLES);
        self.places.note_all(&self.tables, Table::found);
        self.bytes.clear();
        self.steps.clear();
        self
    }

    /// Tells a transaction in reconnaissance of everything.
    pub(super) fn foresee(&mut self, tx: &mut Transaction) -> Result<()> {
        // Not those that are here of an earlier plan only: they are nothing to this one, dropped or not.
        self.steps.iter().try_for_each(|step| self.tables[step.table()].resolve(tx))?;
        let info = |table: usize| match &self.tables[table] {
            Table::Found { info, .. } => info,
            Table::Absent { .. } => unreachable!("the tables of all steps were found or made"),
        };
        self.steps.iter().try_for_each(|step| {
            let foreseen = match step {
                Step::Key { table, key, kind } => {
                    tx.txn().foresee(info(*table), &self.bytes[key.clone()], *kind)
                }
                Step::Table { table, mode } => tx.txn().lock_table(info(*table), *mode),
                Step::Range { table, bounds, kind } => {
                    return foresee_range(tx, info(*table), bounds, *kind);
                }
            };
            foreseen.map_err(|error| tx.fail(error))
        })
    }
}

/// Goes through the range, so that the names of its keys and gaps are known; what lies beside the rows is not read.
fn foresee_range(tx: &mut Transaction, table: &TableInfo, bounds: &Bounds, kind: LockKind) -> Result<()> {
    let mut cursor = Cursor::<&[u8], &[u8]>::new(tx, table.clone(), bounds, Direction::Ascending, kind)?;
    loop {
        match cursor.next_key_encoded(tx) {
            Ok(Some(_)) => {}
            // What is damaged, and what is behind it, is for the run to find, if it comes to it.
            Ok(None) | Err(Error::Corrupted { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
