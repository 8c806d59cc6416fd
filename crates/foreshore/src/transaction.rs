//! A transaction.

mod append;
mod end;
mod many;
mod ranges;
mod waiting;

use std::borrow::Borrow;

use foreshore_base::{
    key::Key,
    limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES},
};
use foreshore_env::{Handle, sync::Arc};
use foreshore_txn::{CancelToken, TableInfo, Txn, TxnError};

use crate::{
    Durability, Isolation,
    database::Inner,
    error::{Error, Result, Victim},
    table::{Recent, TableDefinition, TableLock, undecodable},
    value::{Value, ValueDecodeError},
};

pub(crate) use ranges::encode_bound;
pub use waiting::CancelHandle;

/// A transaction: everything it did happens at its commit, or nothing does. Dropped without a commit, also by a panic,
/// it is rolled back.
///
/// Made by [`Database::begin`](crate::Database::begin), or lent by [`Database::transact`](crate::Database::transact),
/// which also commits it. It may move to another thread, but is used by one at a time.
///
/// # What is promised
/// Under [`Isolation::Serializable`], committed transactions behave as if they had run one after another, scans
/// included. What a transaction has read is guaranteed only once its commit has returned under
/// [`Durability::Sync`]: before, and under the others, it may have seen the changes of a transaction whose commit is
/// still on its way to the disk.
///
/// # Waiting
/// Every operation that reads or writes may wait for a lock. The wait ends when the lock is granted, with
/// [`Error::Deadlock`] if this transaction was chosen to break a cycle, at the deadline
/// ([`Transaction::set_deadline`]) with [`Error::LockTimeout`], or with [`Error::Cancelled`]. An operation that fails has
/// changed nothing, and the transaction may go on; but a deadlock's victim can only be rolled back (later operations
/// give [`Error::TransactionFailed`]).
#[derive(Debug)]
pub struct Transaction {
    // Before `database`: rolled back while the database is surely there.
    txn: Txn,
    database: Handle<Inner>,
    durability: Durability,
    /// Whoever asked for a [`CancelHandle`] may have used it.
    cancel: Option<CancelToken>,
    /// Whether a deadlock ended this transaction, whatever the caller made of that error.
    victim: Option<Arc<Victim>>,
    /// Where the last operation found its table.
    recent: Option<Recent>,
    /// Scratch for the key of the operation at hand.
    key: Vec<u8>,
    /// Scratch for the value of the operation at hand.
    value: Vec<u8>,
}

/// A place in a transaction to which it can be rolled back. Made by [`Transaction::savepoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint(foreshore_txn::Savepoint);

/// A key in the order-preserving encoding, refused when it is too long (DB-2, DB-7).
pub(crate) fn encode_key<K: Key>(key: &K, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    key.encode(out);
    if out.len() > MAX_KEY_BYTES { Err(Error::key_too_long(out.len())) } else { Ok(()) }
}

fn encode_value<V: Value>(value: &V, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    value.encode(out);
    if out.len() > MAX_VALUE_BYTES { Err(Error::value_too_long(out.len())) } else { Ok(()) }
}

pub(crate) fn decode_value<V: Value>(table: &TableInfo, bytes: &[u8]) -> Result<V::Owned> {
    V::decode(bytes).map_err(|error| undecodable(table, error.expected.into_owned()))
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "keys go in by value, so that literals, `&String` and `&Vec<u8>` can be given as they are"
)]
impl Transaction {
    /// Whether its commit waits for the disk.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.durability == Durability::Sync
    }

    pub(crate) fn new(txn: Txn, database: Handle<Inner>, durability: Durability) -> Transaction {
        Transaction {
            txn,
            database,
            durability,
            cancel: None,
            victim: None,
            recent: None,
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Reads a value.
    #[inline]
    pub fn get<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        key: K,
    ) -> Result<Option<V::Owned>> {
        let found = self.get_with(table, key, |bytes| V::decode(bytes))?;
        self.decoded(table.name(), found)
    }

    /// Reads a value that this transaction is going to change: takes at once the lock that the change will need. Two
    /// transactions that read a record and then write it with `get` deadlock; with `get_for_update` the second waits.
    /// So it is with a key that is not there and that both are going to add.
    #[inline]
    pub fn get_for_update<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        key: K,
    ) -> Result<Option<V::Owned>> {
        let found = self.get_for_update_with(table, key, |bytes| V::decode(bytes))?;
        self.decoded(table.name(), found)
    }

    /// Reads a value in place: `read` gets its encoded bytes, which for a table of byte values are the value. It may be
    /// called several times; the result of the last call counts.
    #[inline]
    pub fn get_with<K: Key, V: Value, R>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        key: K,
        read: impl FnMut(&[u8]) -> R,
    ) -> Result<Option<R>> {
        encode_key(&key, &mut self.key)?;
        let table =
            self.database.table_again(&table, asker(&mut self.txn, &mut self.victim), &mut self.recent)?;
        self.txn
            .get(&table.info, &self.key, read)
            .map_err(|error| fail(&self.database, &mut self.victim, error))
    }

    /// [`Transaction::get_for_update`] in place, as [`Transaction::get_with`].
    #[inline]
    pub fn get_for_update_with<K: Key, V: Value, R>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        key: K,
        read: impl FnMut(&[u8]) -> R,
    ) -> Result<Option<R>> {
        encode_key(&key, &mut self.key)?;
        let table =
            self.database.table_again(&table, asker(&mut self.txn, &mut self.victim), &mut self.recent)?;
        self.txn
            .get_for_update(&table.info, &self.key, read)
            .map_err(|error| fail(&self.database, &mut self.victim, error))
    }

    #[inline]
    fn decoded<T>(&self, table: &str, found: Option<Result<T, ValueDecodeError>>) -> Result<Option<T>> {
        match found {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(error)) => {
                Err(Error::Undecodable { table: table.to_owned(), expected: error.expected.into_owned() })
            }
        }
    }

    /// Writes a value, whether or not the key is there; tells whether it was.
    #[inline]
    pub fn put<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        key: K,
        value: impl Borrow<V>,
    ) -> Result<bool> {
        self.write(table, &key, value.borrow(), Txn::put)
    }

    /// Writes a value under a key that is not there. False, and no change, when it is.
    #[inline]
    pub fn insert<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        key: K,
        value: impl Borrow<V>,
    ) -> Result<bool> {
        self.write(table, &key, value.borrow(), Txn::insert)
    }

    /// Writes a value under a key that is there. False, and no change, when it is not.
    #[inline]
    pub fn update<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        key: K,
        value: impl Borrow<V>,
    ) -> Result<bool> {
        self.write(table, &key, value.borrow(), Txn::update)
    }

    #[inline]
    fn write<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        key: &K,
        value: &V,
        operation: impl FnOnce(&mut Txn, &TableInfo, &[u8], &[u8]) -> Result<bool, TxnError>,
    ) -> Result<bool> {
        encode_key(key, &mut self.key)?;
        encode_value(value, &mut self.value)?;
        let table =
            self.database.table_again(&table, asker(&mut self.txn, &mut self.victim), &mut self.recent)?;
        operation(&mut self.txn, &table.info, &self.key, &self.value)
            .map_err(|error| fail(&self.database, &mut self.victim, error))
    }

    /// Removes a key; tells whether it was there.
    #[inline]
    pub fn delete<K: Key, V: Value>(&mut self, table: TableDefinition<'_, K, V>, key: K) -> Result<bool> {
        encode_key(&key, &mut self.key)?;
        let table =
            self.database.table_again(&table, asker(&mut self.txn, &mut self.victim), &mut self.recent)?;
        self.txn.delete(&table.info, &self.key).map_err(|error| fail(&self.database, &mut self.victim, error))
    }

    /// Locks a whole table: for a transaction that touches much of it, cheaper than a lock on every key.
    pub fn lock_table<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        lock: TableLock,
    ) -> Result<()> {
        let table =
            self.database.table_again(&table, asker(&mut self.txn, &mut self.victim), &mut self.recent)?;
        self.txn
            .lock_table(&table.info, lock.mode())
            .map_err(|error| fail(&self.database, &mut self.victim, error))
    }

    /// Marks this place, so that what comes after it can be undone alone.
    ///
    /// ```
    /// # use foreshore::{Database, TableDefinition};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// # const STOCK: TableDefinition<&str, u32> = TableDefinition::new("stock");
    /// let count = db.transact(|tx| {
    ///     tx.put(STOCK, "apple", 1)?;
    ///     let before = tx.savepoint()?;
    ///     tx.put(STOCK, "apple", 2)?;
    ///     tx.rollback_to(before)?;
    ///     tx.get(STOCK, "apple")
    /// })?;
    /// assert_eq!(count, Some(1));
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    pub fn savepoint(&mut self) -> Result<Savepoint> {
        let savepoint = self.txn.savepoint().map_err(|error| self.fail(error))?;
        Ok(Savepoint(savepoint))
    }

    /// Undoes everything since a savepoint. The savepoint stays; those after it are gone. Locks are kept.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.txn.rollback_to(savepoint.0).map_err(|error| self.fail(error))
    }

    /// The isolation of the operations that follow.
    pub fn set_isolation(&mut self, isolation: Isolation) {
        self.txn.set_isolation(isolation);
    }

    /// Its number. Numbers ascend in the order in which transactions began, and are not used again while the database is open.
    pub fn id(&self) -> u64 {
        self.txn.id().0
    }

    pub(crate) fn age(&self) -> u64 {
        self.txn.age()
    }

    pub(crate) fn take_victim(&mut self) -> Option<Arc<Victim>> {
        self.victim.take()
    }

    /// What [`Cursor`](crate::Cursor) needs.
    pub(crate) fn txn(&mut self) -> &mut Txn {
        &mut self.txn
    }

    #[cold]
    pub(crate) fn fail(&mut self, error: TxnError) -> Error {
        fail(&self.database, &mut self.victim, error)
    }
}

/// A transaction that needs a table.
pub(crate) struct Asker<'t> {
    pub(crate) txn: &'t mut Txn,
    /// The deadlock that it was the victim of.
    pub(crate) victim: &'t mut Option<Arc<Victim>>,
}

fn asker<'t>(txn: &'t mut Txn, victim: &'t mut Option<Arc<Victim>>) -> Option<Asker<'t>> {
    Some(Asker { txn, victim })
}

/// Remembers a deadlock, and makes the caller's error of it.
#[cold]
pub(crate) fn fail(database: &Inner, victim: &mut Option<Arc<Victim>>, error: TxnError) -> Error {
    match Error::from_operation(error, database) {
        Error::Deadlock(report) => Error::Deadlock(Arc::clone(victim.insert(report))),
        error => error,
    }
}
