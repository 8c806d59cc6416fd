//! Reading several keys at a time.

use foreshore_base::key::Key;
use foreshore_txn::{KEYS_TOGETHER, LockKind};

use super::{Transaction, check_length};
use crate::{
    error::Result,
    table::{TableDefinition, undecodable},
    value::{Value, ValueDecodeError},
};

impl Transaction {
    /// Reads several values: as [`Transaction::get`] of one key after the other, but that it waits for memory, or for
    /// the disk, for many keys at the same time. Worth its while from two keys on, where a table is larger than the
    /// processor's caches. Values come in the order of their keys, which need not be sorted.
    ///
    /// ```
    /// # use foreshore::{Database, TableDefinition};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// const STOCK: TableDefinition<&str, u32> = TableDefinition::new("stock");
    /// let counts = db.transact(|tx| {
    ///     tx.put(STOCK, "apple", 3)?;
    ///     tx.put(STOCK, "cherry", 7)?;
    ///     tx.get_many(STOCK, ["cherry", "banana", "apple"])
    /// })?;
    /// assert_eq!(counts, [Some(7), None, Some(3)]);
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [every operation](Transaction#errors-of-every-operation);
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong);
    /// [`Error::Undecodable`](crate::Error::Undecodable) if what is stored is no `V`.
    pub fn get_many<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<V::Owned>>> {
        self.decode_many(table, keys, LockKind::Shared)
    }

    /// As [`Transaction::get_many`], with the locks that changes of these records will need, as
    /// [`Transaction::get_for_update`]. They are taken in the order of the keys: transactions that all give theirs
    /// sorted do not deadlock by them.
    ///
    /// # Errors
    /// As [`Transaction::get_many`].
    pub fn get_many_for_update<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<V::Owned>>> {
        self.decode_many(table, keys, LockKind::Exclusive)
    }

    /// [`Transaction::get_many`] in place: `read` gets the number of each key, from 0, and its encoded value, or
    /// `None`, once and in this order. What it was given counts once the call has succeeded.
    ///
    /// # Errors
    /// Those of [every operation](Transaction#errors-of-every-operation);
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong).
    pub fn get_many_with<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        keys: impl IntoIterator<Item = K>,
        read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.read_many(table, keys, LockKind::Shared, read)
    }

    /// [`Transaction::get_many_for_update`] in place, as [`Transaction::get_many_with`].
    ///
    /// # Errors
    /// As [`Transaction::get_many_with`].
    pub fn get_many_for_update_with<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        keys: impl IntoIterator<Item = K>,
        read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.read_many(table, keys, LockKind::Exclusive, read)
    }

    fn decode_many<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        keys: impl IntoIterator<Item = K>,
        kind: LockKind,
    ) -> Result<Vec<Option<V::Owned>>> {
        let keys = keys.into_iter();
        let mut values: Vec<Result<Option<V::Owned>, ValueDecodeError>> =
            Vec::with_capacity(keys.size_hint().0.min(KEYS_TOGETHER));
        let read = |_, value: Option<&[u8]>| values.push(value.map(V::decode).transpose());
        self.read_many(table, keys, kind, read)?;
        let values = values.into_iter();
        values.map(|value| value.map_err(|error| undecodable(table.name(), error.expected))).collect()
    }

    fn read_many<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        keys: impl IntoIterator<Item = K>,
        kind: LockKind,
        mut read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let Transaction { asker, database, recent, key: scratch, .. } = self;
        let (mut keys, mut done) = (keys.into_iter().fuse(), 0);
        loop {
            scratch.clear();
            let (mut ends, mut count) = ([0; KEYS_TOGETHER], 0);
            for (end, key) in ends.iter_mut().zip(keys.by_ref()) {
                let start = scratch.len();
                key.encode(scratch);
                *end = scratch.len();
                check_length(&scratch[start..])?;
                count += 1;
            }
            let table = database.table(&table, asker, recent)?;
            if count == 0 {
                return asker.check_usable(database);
            }
            let (mut encoded, mut start) = ([&[][..]; KEYS_TOGETHER], 0);
            for (key, end) in encoded.iter_mut().zip(&ends[..count]) {
                *key = &scratch[start..*end];
                start = *end;
            }
            let read = |number, value: Option<&[u8]>| read(done + number, value);
            let found = asker.txn.get_many(&table.info, &encoded[..count], kind, read);
            found.map_err(|error| asker.fail(database, error))?;
            done += count;
        }
    }
}
