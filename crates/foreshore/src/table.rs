//! Tables, as the caller names them and as the catalogue has them.

pub(crate) mod types;

use std::{borrow::Cow, fmt, marker::PhantomData};

use foreshore_base::{TableId, key::Key, limits::MAX_TABLE_NAME_BYTES};
use foreshore_env::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering},
};
use foreshore_txn::{IntentMode, TableInfo, Txn};

use crate::{
    database::Inner,
    error::{Error, Result},
    value::Value,
};

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
/// A table is made, empty, when it is first used, be it to read: durably, by a transaction of its own, so that it stays if the
/// transaction that used it is rolled back. Its types are stored with it: using it with others is [`Error::TypeMismatch`].
pub struct TableDefinition<'n, K, V> {
    name: &'n str,
    encoded: bool,
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

    /// The same table, with keys and values that own what they are made of: `String` in place of `&str`, `Vec<u8>` of `&[u8]`.
    /// For [`Transaction::append`](crate::Transaction::append) with rows that are made on the way.
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
    /// definition never makes a table; writing bytes that are no encoding of the table's types makes its typed readers
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

/// How many tables are remembered; those after them are looked up in the catalogue each time.
const REMEMBERED: usize = 512;
/// At how many places a table may be remembered.
const PROBES: usize = 8;

/// Tables that were opened before, so that an operation finds its table without taking a lock or a latch. The entry of
/// a table that was dropped stays, and is passed over.
#[derive(Debug)]
pub(crate) struct TableCache {
    /// Each written once, under its `OnceLock`. An entry stands at the first place of its name that was free when it
    /// was written.
    entries: Box<[OnceLock<CachedTable>]>,
}

#[derive(Debug)]
pub(crate) struct CachedTable {
    pub(crate) info: TableInfo,
    key_type: String,
    value_type: String,
    /// What [`types_of`] said of the types that were first found to be the table's, 0 before, so that the usual check compares no
    /// text. Written by whoever finds that, relaxed: it orders nothing.
    types: AtomicUsize,
}

impl Clone for CachedTable {
    fn clone(&self) -> CachedTable {
        CachedTable {
            info: self.info.clone(),
            key_type: self.key_type.clone(),
            value_type: self.value_type.clone(),
            types: AtomicUsize::new(self.types.load(Ordering::Relaxed)),
        }
    }
}

impl CachedTable {
    fn new(info: TableInfo) -> CachedTable {
        let (key_type, value_type) = types::split(info.meta());
        CachedTable { info, key_type, value_type, types: AtomicUsize::new(0) }
    }

    /// Whether it has this name, and still is there.
    #[inline]
    fn is(&self, name: &str) -> bool {
        self.info.name() == name && !self.info.is_dropped()
    }

    #[inline]
    fn check<K: Key, V: Value>(&self, definition: &TableDefinition<'_, K, V>) -> Result<()> {
        let known = self.types.load(Ordering::Relaxed) == types_of::<K, V>();
        if known || definition.encoded { Ok(()) } else { self.check_names::<K, V>() }
    }

    #[cold]
    fn check_names<K: Key, V: Value>(&self) -> Result<()> {
        let (key_type, value_type) = names::<K, V>();
        if types::are_same_keys(&self.key_type, &key_type) && self.value_type == value_type {
            // Once: a program may have several functions for one type, and whoever used them in turn would write here for each
            // operation, and all others would have to fetch the line.
            if self.types.load(Ordering::Relaxed) == 0 {
                self.types.store(types_of::<K, V>(), Ordering::Relaxed);
            }
            return Ok(());
        }
        let stored = (&*self.key_type, &*self.value_type);
        Err(mismatch(self.info.name(), stored, (&key_type, &value_type)))
    }
}

fn names<K: Key, V: Value>() -> (Cow<'static, str>, Cow<'static, str>) {
    (K::type_name(), V::type_name())
}

/// A number that only types of the same names have: the address of the function that gives them, of which a program may have several.
#[inline]
fn types_of<K: Key, V: Value>() -> usize {
    names::<K, V> as fn() -> (Cow<'static, str>, Cow<'static, str>) as usize
}

/// The upper half into the lower one: of a product the upper bits depend on all of both factors.
#[inline]
fn mix(word: u64) -> u64 {
    let mixed = (word ^ 0xCBF2_9CE4_8422_2325).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 32
}

impl TableCache {
    pub(crate) fn new() -> TableCache {
        TableCache { entries: (0..REMEMBERED).map(|_| OnceLock::new()).collect() }
    }

    /// Where to look for a name: a multiplicative hash, eight bytes at a time, the last of which may have been taken already.
    #[inline]
    fn places(name: &str) -> impl Iterator<Item = usize> {
        let bytes = name.as_bytes();
        let hash = match bytes.last_chunk() {
            None => bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
            Some(last) => {
                let (words, _) = bytes[..bytes.len() - 1].as_chunks::<8>();
                let words = words.iter().map(|word| u64::from_le_bytes(*word));
                words.fold(u64::from_le_bytes(*last), |hash, word| mix(hash) ^ word)
            }
        };
        let hash = mix(hash);
        (0..PROBES).map(move |probe| (hash as usize + probe) % REMEMBERED)
    }

    /// The table of this name, and where it is remembered.
    #[inline]
    fn find(&self, name: &str) -> Option<(usize, &CachedTable)> {
        for place in TableCache::places(name) {
            let table = self.entries[place].get()?;
            if table.is(name) {
                return Some((place, table));
            }
        }
        None
    }

    /// A table that was used, by its id: for messages.
    pub(crate) fn by_id(&self, id: TableId) -> Option<&TableInfo> {
        self.entries.iter().filter_map(OnceLock::get).map(|table| &table.info).find(|info| info.id() == id)
    }

    fn remember(&self, table: CachedTable) -> Cow<'_, CachedTable> {
        for place in TableCache::places(table.info.name()) {
            let entry = self.entries[place].get_or_init(|| table.clone());
            if entry.is(table.info.name()) {
                return Cow::Borrowed(entry);
            }
        }
        Cow::Owned(table)
    }
}

/// Where an operation found its table, and by which types: the next one on it by the same finds it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recent {
    place: usize,
    /// See [`types_of`].
    types: usize,
    /// Nobody looked at the types.
    encoded: bool,
}

impl Recent {
    #[inline]
    fn new<K: Key, V: Value>(place: usize, definition: &TableDefinition<'_, K, V>) -> Recent {
        Recent { place, types: types_of::<K, V>(), encoded: definition.encoded }
    }
}

impl Inner {
    /// The table of a definition, made if it is not there, for `asker` if there is one. A table is made even when it is only read: a transaction
    /// that found it absent would have nothing to lock against somebody who makes and fills it (DB-1).
    #[inline]
    pub(crate) fn table<K: Key, V: Value>(
        &self,
        definition: &TableDefinition<'_, K, V>,
        asker: Option<&Txn>,
    ) -> Result<Cow<'_, CachedTable>> {
        self.table_again(definition, asker, &mut None)
    }

    /// The same for somebody who keeps in mind what it found.
    #[inline]
    pub(crate) fn table_again<K: Key, V: Value>(
        &self,
        definition: &TableDefinition<'_, K, V>,
        asker: Option<&Txn>,
        recent: &mut Option<Recent>,
    ) -> Result<Cow<'_, CachedTable>> {
        if let Some(last) = *recent
            && last == Recent::new(last.place, definition)
            && let Some(table) = self.tables.entries[last.place].get()
            && table.is(definition.name)
        {
            return Ok(Cow::Borrowed(table));
        }
        let (place, table) = match self.tables.find(definition.name) {
            Some((place, table)) => (Some(place), Cow::Borrowed(table)),
            None => (None, self.open_table(definition, asker)?),
        };
        table.check(definition)?;
        *recent = place.map(|place| Recent::new(place, definition));
        Ok(table)
    }

    #[cold]
    fn open_table<K: Key, V: Value>(
        &self,
        definition: &TableDefinition<'_, K, V>,
        asker: Option<&Txn>,
    ) -> Result<Cow<'_, CachedTable>> {
        let name = definition.name;
        let info = match self.engine.table(name).map_err(|error| self.error(error))? {
            Some(info) => info,
            // Nobody makes it while it is read: there is nothing to lock against.
            None if definition.encoded || self.is_read_only() => {
                return Err(Error::NoSuchTable { table: name.to_owned() });
            }
            None => self.make_table(name, &types::join(&K::type_name(), &V::type_name()), asker)?,
        };
        Ok(self.tables.remember(CachedTable::new(info)))
    }

    fn make_table(&self, name: &str, meta: &str, asker: Option<&Txn>) -> Result<TableInfo> {
        if name.is_empty() || name.len() > MAX_TABLE_NAME_BYTES {
            return Err(Error::LimitExceeded {
                what: "the length of a table's name in bytes, at least 1,",
                limit: MAX_TABLE_NAME_BYTES as u64,
                got: name.len() as u64,
            });
        }
        let made = match asker {
            Some(txn) => txn.create_table(name, meta.as_bytes()),
            None => self.engine.create_table(name, meta.as_bytes()),
        };
        made.map_err(|error| Error::from_operation(error, self))
    }

    pub(crate) fn create_table(
        &self,
        name: &str,
        key_type: &str,
        value_type: &str,
    ) -> Result<TableDescription> {
        let info = match self.engine.table(name).map_err(|error| self.error(error))? {
            Some(info) => info,
            None => self.make_table(name, &types::join(key_type, value_type), None)?,
        };
        let table = TableDescription::of(&info);
        if types::are_same_keys(&table.key_type, key_type) && table.value_type == value_type {
            return Ok(table);
        }
        Err(mismatch(name, (&table.key_type, &table.value_type), (key_type, value_type)))
    }
}

#[cold]
fn mismatch(table: &str, stored: (&str, &str), asked: (&str, &str)) -> Error {
    let types = |(key, value): (&str, &str)| format!("{key} → {value}");
    Error::TypeMismatch { table: table.to_owned(), stored: types(stored), asked: types(asked) }
}

#[cold]
pub(crate) fn undecodable(table: &TableInfo, expected: String) -> Error {
    Error::Undecodable { table: table.name().to_owned(), expected }
}

/// How [`Transaction::lock_table`](crate::Transaction::lock_table) locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableLock {
    /// Keys are going to be locked for reading: keeps others from locking the table exclusively. Every read does this by
    /// itself.
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
