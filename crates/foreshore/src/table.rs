//! Tables, as the caller names them and as the catalogue has them.

mod cache;
pub(crate) mod types;

use std::{borrow::Cow, fmt, marker::PhantomData};

use foreshore_base::{key::Key, limits::MAX_TABLE_NAME_BYTES};
use foreshore_txn::{IntentMode, TableInfo};

use crate::{
    database::Inner,
    error::{Error, Result},
    nested,
    transaction::Asker,
    value::Value,
};
pub(crate) use cache::{Found, Recent, TableCache};

/// A table by its name and types; usually a constant.
///
/// ```
/// use foreshore::TableDefinition;
///
/// const BALANCES: TableDefinition<&str, i64> = TableDefinition::new("balances");
/// const ORDERS: TableDefinition<(u32, u64), (&str, f64)> = TableDefinition::new("orders");
/// const BLOBS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("blobs");
/// ```
///
/// A table is made, empty, when it is first used, be it to read: durably, by a transaction of its own, so that it stays
/// if the transaction that used it is rolled back. Its types are stored with it: using it with others is
/// [`Error::TypeMismatch`].
pub struct TableDefinition<'n, K, V> {
    name: &'n str,
    pub(crate) encoded: bool,
    /// Covariant in both: the types say what goes in and out, nothing is stored.
    types: PhantomData<fn() -> (K, V)>,
}

impl<'n, K, V> TableDefinition<'n, K, V> {
    /// A table with keys of type `K` and values of type `V`.
    pub const fn new(name: &'n str) -> TableDefinition<'n, K, V> {
        TableDefinition { name, encoded: false, types: PhantomData }
    }

    /// Its name.
    pub const fn name(&self) -> &'n str {
        self.name
    }

    /// This table, with keys and values that own what they are made of: `String` in place of `&str`, `Vec<u8>` of
    /// `&[u8]`. For [`Transaction::append`](crate::Transaction::append) with rows that are made on the way.
    pub const fn owned(&self) -> TableDefinition<'n, K::Owned, V::Owned>
    where
        K: Key<Owned: Key>,
        V: Value<Owned: Value>,
    {
        TableDefinition { name: self.name, encoded: self.encoded, types: PhantomData }
    }
}

impl<'n, 'b> TableDefinition<'n, &'b [u8], &'b [u8]> {
    /// The encoded keys and values of an existing table of any types: for tools, such as `foreshore dump`. Such a
    /// definition never makes a table; writing bytes that do not decode as the table's types makes its typed readers
    /// fail with [`Error::Undecodable`].
    pub const fn encoded(name: &'n str) -> TableDefinition<'n, &'b [u8], &'b [u8]> {
        TableDefinition { name, encoded: true, types: PhantomData }
    }
}

impl<K, V> Clone for TableDefinition<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for TableDefinition<'_, K, V> {}

impl<K, V> fmt::Debug for TableDefinition<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TableDefinition").field(&self.name).finish()
    }
}

/// A table as the catalogue has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableDescription {
    /// Its name.
    pub name: String,
    /// The type of its keys.
    pub key_type: String,
    /// The type of its values.
    pub value_type: String,
}

impl TableDescription {
    pub(crate) fn of(info: &TableInfo) -> TableDescription {
        let (key_type, value_type) = types::split(info.meta());
        TableDescription { name: info.name().to_owned(), key_type, value_type }
    }
}

impl Inner {
    /// The table of a definition, made if it is not there, for `asker`; `recent` keeps in mind what was found.
    /// A table is made even when it is only read: a transaction that found it absent would have nothing to lock against
    /// somebody who makes and fills it (DB-1).
    #[inline]
    pub(crate) fn table<K: Key, V: Value>(
        &self,
        definition: &TableDefinition<'_, K, V>,
        asker: &mut Asker,
        recent: &mut Option<Recent>,
    ) -> Result<Found<'_>> {
        if let Some(last) = *recent
            && last == Recent::new(last.table, definition)
            && let Some(table) = self.tables.get(last.table)
            && table.is(definition.name)
        {
            return Ok(Found::Remembered(table));
        }
        let (number, table) = match self.tables.find(definition.name) {
            Some((number, table)) => (Some(number), Found::Remembered(table)),
            None => (None, self.open_table(definition, asker)?),
        };
        table.check(definition)?;
        *recent = number.map(|number| Recent::new(number, definition));
        Ok(table)
    }

    #[cold]
    fn open_table<K: Key, V: Value>(
        &self,
        definition: &TableDefinition<'_, K, V>,
        asker: &mut Asker,
    ) -> Result<Found<'_>> {
        let name = definition.name;
        let info = match self.engine.table(name).map_err(|error| self.error(error))? {
            Some(info) => info,
            // Nobody makes it while it is read: there is nothing to lock against.
            None if definition.encoded || self.is_read_only() => {
                return Err(Error::NoSuchTable { table: name.to_owned() });
            }
            None => self.make_table(name, (&K::type_name(), &V::type_name()), Some(asker))?,
        };
        Ok(self.tables.remember(info))
    }

    /// The table of a definition, if it is there.
    ///
    /// # Errors
    /// What is wrong with the definition, or the name of a table that is not there and that it does not make.
    pub(crate) fn find_table<K: Key, V: Value>(
        &self,
        definition: &TableDefinition<'_, K, V>,
    ) -> Result<Option<Found<'_>>> {
        let name = definition.name;
        let table = match self.tables.find(name) {
            Some((_, table)) => Found::Remembered(table),
            None => match self.engine.table(name).map_err(|error| self.error(error))? {
                Some(info) => self.tables.remember(info),
                None if definition.encoded || self.is_read_only() => {
                    return Err(Error::NoSuchTable { table: name.to_owned() });
                }
                None => {
                    return meta_of(name, (&K::type_name(), &V::type_name())).map(|_| None);
                }
            },
        };
        table.check(definition)?;
        Ok(Some(table))
    }

    fn make_table(&self, name: &str, types: (&str, &str), asker: Option<&mut Asker>) -> Result<TableInfo> {
        let meta = meta_of(name, types)?;
        match asker {
            Some(asker) => {
                let made = asker.txn.create_table(name, meta.as_bytes());
                made.map_err(|error| asker.fail(self, error))
            }
            None => {
                let limit = nested::lock_timeout();
                let made = self.engine.whole().create_table_within(name, meta.as_bytes(), limit);
                let failed = made.map_err(|error| Error::from_operation(error, self));
                if limit.is_some() { failed.map_err(Error::within_body) } else { failed }
            }
        }
    }

    /// The table of this name and these types, made if it is not there, for `asker` if there is one.
    pub(crate) fn named_table(
        &self,
        name: &str,
        (key_type, value_type): (&str, &str),
        asker: Option<&mut Asker>,
    ) -> Result<TableInfo> {
        let info = match self.engine.table(name).map_err(|error| self.error(error))? {
            Some(info) => info,
            None => self.make_table(name, (key_type, value_type), asker)?,
        };
        let table = TableDescription::of(&info);
        if types::are_same_keys(&table.key_type, key_type) && table.value_type == value_type {
            return Ok(info);
        }
        Err(mismatch(name, (&table.key_type, &table.value_type), (key_type, value_type)))
    }
}

/// What the catalogue says of the types of a table that is about to be made.
///
/// # Errors
/// What is wrong with its name or the names of its types.
fn meta_of(name: &str, (key, value): (&str, &str)) -> Result<String> {
    check_name(name)?;
    // The catalogue has both in one piece, a line for the first.
    if key.contains('\n') {
        return Err(beyond("lines in the name of a type of keys", 1, key.split('\n').count()));
    }
    Ok(types::join(key, value))
}

/// # Errors
/// What keeps a table from having this name.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if (1..=MAX_TABLE_NAME_BYTES).contains(&name.len()) {
        return Ok(());
    }
    Err(beyond("length of a table's name in bytes, at least 1", MAX_TABLE_NAME_BYTES, name.len()))
}

fn beyond(what: &'static str, limit: usize, got: usize) -> Error {
    Error::LimitExceeded { what, limit: limit as u64, got: got as u64 }
}

#[cold]
fn mismatch(table: &str, stored: (&str, &str), asked: (&str, &str)) -> Error {
    let types = |(key, value): (&str, &str)| format!("{key} → {value}");
    Error::TypeMismatch { table: table.to_owned(), stored: types(stored), asked: types(asked) }
}

#[cold]
pub(crate) fn undecodable(table: &str, expected: Cow<'static, str>) -> Error {
    Error::Undecodable { table: table.to_owned(), expected: expected.into_owned() }
}

/// How [`Transaction::lock_table`](crate::Transaction::lock_table) locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableLock {
    /// Keys are going to be locked for reading: keeps others from locking the table exclusively. Every read does this
    /// by itself.
    IntentShared,
    /// Keys are going to be locked for changes: keeps others from locking the table. Every write does this by itself.
    IntentExclusive,
    /// Others may read.
    Shared,
    /// Others may read keys, and this transaction may change some: it reads without locks on keys, and locks those that
    /// it changes.
    SharedIntentExclusive,
    /// Others wait.
    Exclusive,
}

impl TableLock {
    pub(crate) fn mode(self) -> IntentMode {
        match self {
            TableLock::IntentShared => IntentMode::IS,
            TableLock::IntentExclusive => IntentMode::IX,
            TableLock::Shared => IntentMode::S,
            TableLock::SharedIntentExclusive => IntentMode::SIX,
            TableLock::Exclusive => IntentMode::X,
        }
    }
}
