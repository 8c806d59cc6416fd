//! Tables that were used before, so that an operation finds its table without a lock or a latch.

use std::{borrow::Cow, ops::Deref};

use foreshore_base::{TableId, key::Key};
use foreshore_env::sync::{
    Mutex, OnceLock,
    atomic::{AtomicU32, AtomicUsize, Ordering},
};
use foreshore_txn::TableInfo;

use super::{TableDefinition, mismatch, types};
use crate::{error::Result, value::Value};

/// Places for names.
const PLACES: usize = 4096;
/// At how many of them a name may be.
const PROBES: usize = 8;
/// Tables in a chunk, which gets its memory when it is needed.
const CHUNK: usize = 256;
/// In all, 262,144 tables are remembered, dropped ones too, and renamed ones by each name; those after them are looked
/// up in the catalogue each time.
const CHUNKS: usize = 1024;

/// See the [module](self). What was dropped, or renamed, is still remembered, because somebody may be looking at it,
/// but its place goes to the next table that needs one, which may have the same name.
#[derive(Debug)]
pub(crate) struct TableCache {
    /// Which table is at a place, counted from 1. 0: none; a place that had one is never without again, so that a
    /// search may end there. Written under the mutex below, with release: whoever loads the number, with acquire, finds
    /// the table.
    places: Box<[AtomicU32]>,
    tables: Box<[OnceLock<Chunk>; CHUNKS]>,
    /// How many tables there are.
    remembered: Mutex<u32>,
}

type Chunk = Box<[OnceLock<CachedTable>; CHUNK]>;

#[derive(Debug)]
pub(crate) struct CachedTable {
    pub(crate) info: TableInfo,
    key_type: String,
    value_type: String,
    /// What [`types_of`] said of the types that were first found to be the table's, 0 before, so that the usual check
    /// compares no text. Written by whoever finds that, relaxed: it orders nothing.
    types: AtomicUsize,
}

/// A table that was looked for.
#[derive(Debug)]
pub(crate) enum Found<'t> {
    Remembered(&'t CachedTable),
    /// There was no place for it.
    Alone(Box<CachedTable>),
}

impl Deref for Found<'_> {
    type Target = CachedTable;

    #[inline]
    fn deref(&self) -> &CachedTable {
        match self {
            Found::Remembered(table) => table,
            Found::Alone(table) => table,
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
    pub(super) fn is(&self, name: &str) -> bool {
        self.info.name() == name && !self.info.is_gone()
    }

    #[inline]
    pub(super) fn check<K: Key, V: Value>(&self, definition: &TableDefinition<'_, K, V>) -> Result<()> {
        let known = self.types.load(Ordering::Relaxed) == types_of::<K, V>();
        if known || definition.encoded { Ok(()) } else { self.check_names::<K, V>() }
    }

    #[cold]
    fn check_names<K: Key, V: Value>(&self) -> Result<()> {
        let (key_type, value_type) = names::<K, V>();
        if types::are_same_keys(&self.key_type, &key_type) && self.value_type == value_type {
            // Once: a program may have several functions for one type, and whoever used them in turn would write here
            // for each operation, and all others would have to fetch the line.
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

/// A number that only types of the same names have: the address of the function that gives them, of which a program may
/// have several.
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

/// The last eight bytes, or all of fewer, as a number.
#[inline]
fn last_word(bytes: &[u8]) -> u64 {
    if let Some(last) = bytes.last_chunk() {
        return u64::from_le_bytes(*last);
    }
    // The first and the last four, which overlap: no loop.
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            let shift = (bytes.len() - 4) * 8;
            u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << shift
        }
        _ => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// Where to look for a name: a multiplicative hash, eight bytes at a time, the last of which may have been taken
/// already.
#[inline]
fn places(name: &str) -> impl Iterator<Item = usize> {
    let bytes = name.as_bytes();
    let (words, _) = bytes[..bytes.len().saturating_sub(1)].as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let hash = words.fold(last_word(bytes), |hash, word| mix(hash) ^ word);
    let hash = mix(hash);
    (0..PROBES).map(move |probe| (hash as usize + probe) % PLACES)
}

impl TableCache {
    pub(crate) fn new() -> TableCache {
        TableCache {
            places: (0..PLACES).map(|_| AtomicU32::new(0)).collect(),
            tables: Box::new([const { OnceLock::new() }; CHUNKS]),
            remembered: Mutex::new(0),
        }
    }

    /// A table by its number.
    #[inline]
    pub(super) fn get(&self, table: usize) -> Option<&CachedTable> {
        self.tables.get(table / CHUNK)?.get()?[table % CHUNK].get()
    }

    /// The table of this name, and its number.
    #[inline]
    pub(super) fn find(&self, name: &str) -> Option<(usize, &CachedTable)> {
        for place in places(name) {
            let number = self.places[place].load(Ordering::Acquire).checked_sub(1)? as usize;
            let table = self.get(number)?;
            if table.is(name) {
                return Some((number, table));
            }
        }
        None
    }

    /// A table that was used, by its id: for messages.
    pub(crate) fn by_id(&self, id: TableId) -> Option<&TableInfo> {
        let remembered = *self.remembered.lock() as usize;
        let tables = (0..remembered).filter_map(|number| self.get(number));
        tables.map(|table| &table.info).find(|info| info.id() == id)
    }

    #[cold]
    pub(super) fn remember(&self, info: TableInfo) -> Found<'_> {
        let is_free = |place: &usize| match self.places[*place].load(Ordering::Relaxed).checked_sub(1) {
            Some(number) => self.get(number as usize).is_none_or(|table| table.info.is_gone()),
            None => true,
        };
        // Whoever finds no place finds none each time: without the mutex.
        if !places(info.name()).any(|place| is_free(&place)) {
            return Found::Alone(Box::new(CachedTable::new(info)));
        }
        let mut remembered = self.remembered.lock();
        if let Some((_, table)) = self.find(info.name()) {
            return Found::Remembered(table);
        }
        let number = *remembered as usize;
        let place = places(info.name()).find(is_free);
        let table = CachedTable::new(info);
        let (Some(place), Some(tables)) = (place, self.tables.get(number / CHUNK)) else {
            return Found::Alone(Box::new(table));
        };
        let tables = tables.get_or_init(|| Box::new([const { OnceLock::new() }; CHUNK]));
        let table = tables[number % CHUNK].get_or_init(|| table);
        *remembered += 1;
        self.places[place].store(*remembered, Ordering::Release);
        Found::Remembered(table)
    }
}

/// Where an operation found its table, and by which types: the next one on it by the same finds it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recent {
    /// The number of the table in the cache.
    pub(super) table: usize,
    /// See [`types_of`].
    types: usize,
    /// Nobody looked at the types.
    encoded: bool,
}

impl Recent {
    #[inline]
    pub(super) fn new<K: Key, V: Value>(table: usize, definition: &TableDefinition<'_, K, V>) -> Recent {
        Recent { table, types: types_of::<K, V>(), encoded: definition.encoded }
    }
}

#[cfg(test)]
mod tests {
    use foreshore_env::thread;

    use super::*;
    use crate::Database;

    /// Dropped tables kept their places: the ninth table of a name was looked up in the catalogue for each operation.
    #[test]
    fn a_table_is_remembered_however_often_its_name_was_used() {
        const TABLE: TableDefinition<u32, u32> = TableDefinition::new("table");
        let home = tempfile::tempdir().unwrap();
        let db = Database::builder().set("durability", "lazy").unwrap().open(home.path()).unwrap();
        let cache = &db.inner().tables;
        for round in 0..CHUNK as u32 + 20 {
            thread::scope(|scope| {
                for key in 0..2 {
                    let db = &db;
                    scope.spawn(move || db.transact(|tx| tx.put(TABLE, key, round)).unwrap());
                }
            });
            let (number, table) = cache.find("table").unwrap();
            assert_eq!(number, round as usize);
            assert_eq!(cache.by_id(table.info.id()).unwrap().identity(), table.info.identity());
            assert!(db.drop_table("table").unwrap());
            assert!(cache.find("table").is_none());
        }
    }
}
