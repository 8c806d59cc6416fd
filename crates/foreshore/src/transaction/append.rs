//! Appending many entries at a time.

use std::borrow::Borrow;

use foreshore_base::key::Key;
use foreshore_env::sync::Arc;

use super::{Transaction, encode_key, encode_value};
use crate::{
    error::{Error, Result},
    table::TableDefinition,
    value::Value,
};

/// How much [`Transaction::append`] writes at a time.
const APPEND_BYTES: usize = 256 << 10;
const APPEND_ENTRIES: usize = 4096;

impl Transaction {
    /// Adds entries behind all others of the table, in ascending order of their keys: the fast way to load a table. Pages
    /// are filled, and one record of the log stands for as many entries as a page takes. Locks the table exclusively.
    /// Returns how many there were.
    ///
    /// # Errors
    /// [`Error::NotBehind`] when the keys do not ascend or do not begin behind the table's last key (a key deleted a short
    /// while ago may still count). After that, as after any error, nothing was added.
    pub fn append<K: Key, V: Value, E: Borrow<V>>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        entries: impl IntoIterator<Item = (K, E)>,
    ) -> Result<u64> {
        let start = self.txn.position();
        let mut done = 0;
        let result = self.append_in_parts(table, entries.into_iter(), &mut done);
        if result.is_err() {
            self.txn.roll_back_to_position(start).map_err(|error| self.fail(error))?;
        }
        result.map(|()| done)
    }

    fn append_in_parts<K: Key, V: Value, E: Borrow<V>>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        mut entries: impl Iterator<Item = (K, E)>,
        done: &mut u64,
    ) -> Result<()> {
        let database = Arc::clone(&self.database);
        let table = database.table(&table)?;
        let mut part = Vec::new();
        loop {
            let mut bytes = 0;
            part.clear();
            for (key, value) in entries.by_ref() {
                let (mut encoded_key, mut encoded_value) = (Vec::new(), Vec::new());
                encode_key(&key, &mut encoded_key)?;
                encode_value(value.borrow(), &mut encoded_value)?;
                bytes += encoded_key.len() + encoded_value.len();
                part.push((encoded_key, encoded_value));
                if bytes >= APPEND_BYTES || part.len() >= APPEND_ENTRIES {
                    break;
                }
            }
            if part.is_empty() {
                return Ok(());
            }
            if !self.txn.append(&table.info, &part).map_err(|error| self.fail(error))? {
                // The first that is out of order in itself; else it is the first of the part that is not behind the table's.
                let unordered = part.windows(2).position(|pair| pair[0].0 >= pair[1].0);
                let entry = *done + unordered.map_or(0, |before| before as u64 + 1);
                return Err(Error::NotBehind { table: table.info.name().to_owned(), entry });
            }
            *done += part.len() as u64;
        }
    }
}
