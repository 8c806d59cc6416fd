//! Appending many entries at a time.

use std::borrow::Borrow;

use foreshore_base::key::Key;
use foreshore_txn::{Append, Position};

use super::{Transaction, encoded_key, encoded_value};
use crate::{
    error::{Error, Result},
    table::TableDefinition,
    value::Value,
};

/// How much [`Transaction::append`] writes at a time.
const APPEND_BYTES: usize = 256 << 10;
const APPEND_ENTRIES: usize = 4096;

impl Transaction {
    /// Adds entries behind all others of the table, in ascending order of their keys: the fast way to load a table.
    /// Pages are filled, and one record of the log stands for as many entries as a page takes. Locks the table
    /// exclusively. Returns how many there were.
    ///
    /// Entries that are made on the way own their text and bytes: [`TableDefinition::owned`] takes such.
    ///
    /// ```
    /// # use foreshore::{Database, TableDefinition};
    /// const NAMES: TableDefinition<&str, &[u8]> = TableDefinition::new("names");
    ///
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// let rows = (0..10_000).map(|row| (format!("name {row:06}"), vec![7_u8; 100]));
    /// let count = db.transact(|tx| tx.append(NAMES.owned(), rows.clone()))?;
    /// assert_eq!(count, 10_000);
    /// assert_eq!(db.read(|tx| tx.get(NAMES, "name 000042"))?, Some(vec![7; 100]));
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [every operation](Transaction#errors-of-every-operation) and of [every
    /// change](Transaction#errors-of-every-change); [`Error::KeyTooLong`], [`Error::ValueTooLong`];
    /// [`Error::NotBehind`] when the keys do not ascend or do not begin behind the table's last key (one that this
    /// transaction has deleted counts, too, and one whose deletion by others is not durable before this one's
    /// deadline). After that, as after any error or a panic of `entries`, nothing was added.
    pub fn append<K: Key, V: Value, E: Borrow<V>>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        entries: impl IntoIterator<Item = (K, E)>,
    ) -> Result<u64> {
        let start = self.asker.txn.position();
        let mut appending = Appending { tx: self, start: Some(start), done: 0 };
        let result = appending.add_all(table, entries.into_iter().fuse());
        let count = appending.done;
        if result.is_ok() {
            appending.start = None;
        }
        appending.end()?;
        result.map(|()| count)
    }
}

/// A call of [`Transaction::append`]. Unwound, it takes back what it has added.
struct Appending<'t> {
    tx: &'t mut Transaction,
    /// What came later is taken back, unless it is to stay.
    start: Option<Position>,
    done: u64,
}

impl Appending<'_> {
    fn end(&mut self) -> Result<()> {
        match self.start.take() {
            Some(start) => {
                self.tx.asker.txn.roll_back_to_position(start).map_err(|error| self.tx.fail(error))
            }
            None => Ok(()),
        }
    }

    fn add_all<K: Key, V: Value, E: Borrow<V>>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        mut entries: impl Iterator<Item = (K, E)>,
    ) -> Result<()> {
        // Keys and values in one piece; of each pair, where its key ends and where its value does.
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        loop {
            bytes.clear();
            ends.clear();
            for (key, value) in entries.by_ref() {
                let key = encoded_key(&key, &mut self.tx.key)?;
                let value = encoded_value(value.borrow(), &mut self.tx.value)?;
                bytes.extend_from_slice(key);
                let key_end = bytes.len();
                bytes.extend_from_slice(value);
                ends.push((key_end, bytes.len()));
                if bytes.len() >= APPEND_BYTES || ends.len() >= APPEND_ENTRIES {
                    break;
                }
            }
            let table = self.tx.on(&table, |_, table| Ok(table.clone()))?;
            if ends.is_empty() {
                return self.tx.check_usable();
            }
            let mut start = 0;
            let pairs = ends.iter().map(|&(key_end, end)| {
                let begin = std::mem::replace(&mut start, end);
                (&bytes[begin..key_end], &bytes[key_end..end])
            });
            let part: Vec<_> = pairs.collect();
            let ended = self.tx.asker.txn.append(&table, &part);
            if let Append::NotBehind { entry, .. } = ended.map_err(|error| self.tx.fail(error))? {
                let (table, entry) = (table.name().to_owned(), self.done + entry as u64);
                return Err(Error::NotBehind { table, entry });
            }
            self.done += part.len() as u64;
        }
    }
}

impl Drop for Appending<'_> {
    fn drop(&mut self) {
        // A failure stops the database, so that the next operation tells.
        let _ = self.end();
    }
}
