//! A transaction.

mod append;
mod asker;
mod coding;
mod end;
mod many;
mod ranges;
mod savepoints;
mod waiting;

use std::borrow::Borrow;

use foreshore_base::{TxnId, key::Key};
use foreshore_env::{Handle, sync::Arc};
use foreshore_txn::{CancelToken, TableInfo, Txn, TxnError};

use crate::{
    Durability, Isolation,
    database::Inner,
    error::{Error, Result},
    table::{Recent, TableDefinition, TableLock, undecodable},
    value::Value,
    view::DeadlockView,
};

pub(crate) use asker::Asker;
use coding::encoded_value;
pub(crate) use coding::{check_length, encoded_key};
pub use savepoints::Savepoint;
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
/// # Errors of every operation
/// Every operation that reads or writes may wait for locks, and may fail with what is listed here; each says what else
/// it fails with. An operation that fails has changed nothing.
///
/// After these the transaction can only be rolled back, and nothing of it is committed:
/// - [`Error::Deadlock`]: it would have had to wait for a lock, or waited for one, and had to give way, as
///   [`Options::deadlock_policy`](crate::Options::deadlock_policy) says. Later operations give
///   [`Error::TransactionFailed`].
/// - [`Error::PlanMiss`], of a planned transaction: it touched what is not in its plan while others have it locked.
///   Later operations give [`Error::TransactionFailed`].
/// - [`Error::StaleReads`], under [`ReadMode::Hybrid`](crate::ReadMode::Hybrid): others have changed what it has read
///   without locks. Later operations give [`Error::TransactionFailed`].
/// - [`Error::LogHeld`], under [`LogFullPolicy::EndOldest`](crate::LogFullPolicy::EndOldest): the log is full, and it
///   was ended because it needs most of it. Later operations give the same.
/// - [`Error::Cancelled`]: somebody has used its [`CancelHandle`]. Later operations give the same.
///
/// After these it may go on:
/// - [`Error::LockTimeout`]: it waited for a lock, for a page that others work on, or for room in memory, until its
///   deadline ([`Transaction::set_deadline`]); or for a lock as long as one wait may take
///   ([`Transaction::set_lock_timeout`]).
/// - [`Error::WouldBlock`]: it would have had to wait for a lock, and is not to ([`Transaction::set_no_wait`]).
/// - [`Error::TooManyLocks`]: it has as many as one transaction may have, or all together have as many as there may be
///   ([`Options::max_locks_per_transaction`](crate::Options::max_locks_per_transaction),
///   [`Options::max_locks`](crate::Options::max_locks)).
/// - [`Error::PartitionerPanicked`]: the caller's partitioner did, when it was asked about a key.
/// - [`Error::NoSuchTable`]: the table was dropped meanwhile; or there is none, and none is made, because the database
///   was opened read-only or [`TableDefinition::encoded`] does not say of which types.
/// - [`Error::TypeMismatch`]: the table has other types.
/// - [`Error::PoolExhausted`]: for ten seconds there was no room in memory for a page.
/// - [`Error::Corrupted`], [`Error::Io`]: a page that is needed is damaged, or cannot be read.
///
/// The first use of a table makes it, by a transaction of its own that writes and commits durably. The operation then
/// fails with what that fails with, too, and this transaction may go on: [`Error::LimitExceeded`] for the name, for the
/// names of the types, or because there are as many tables as there may be; [`Error::TooManyTransactions`], if that
/// many are open for ten seconds, or until the deadline (at once with [`Transaction::set_no_wait`], and where all of
/// them wait to make tables); those above; [`Error::LogFull`] and [`Error::DiskFull`]; and [`Error::OutcomeUnknown`] if
/// the log fails before it is known whether the table is there.
///
/// After these nobody can use the database any more, or not in this process: [`Error::Closed`], [`Error::Poisoned`],
/// [`Error::Forked`].
///
/// # Errors of every change
/// An operation that writes fails with these besides, and the transaction may go on:
/// - [`Error::ReadOnly`]: the database was opened to be read.
/// - [`Error::LogFull`]: open transactions need as much of the log as work may fill, and for a second, or until the
///   deadline, nobody has made room; at once with [`Transaction::set_no_wait`], and where this transaction needs most
///   of it.
/// - [`Error::DiskFull`]: there is no space for the data file or the log to grow.
/// - [`Error::LimitExceeded`]: the data file, or the tree of the table, is as large as it may be
///   ([`limits`](crate::limits)).
#[derive(Debug)]
pub struct Transaction {
    // Before `database`: rolled back while the database is surely there.
    asker: Asker,
    database: Handle<Inner>,
    durability: Durability,
    /// Whoever asked for a [`CancelHandle`] may have used it.
    cancel: Option<CancelToken>,
    /// Where the last operation found its table.
    recent: Option<Recent>,
    /// Scratch for the key of the operation at hand.
    key: Vec<u8>,
    /// Scratch for the value of the operation at hand.
    value: Vec<u8>,
}

/// When a transaction began, or the one in whose place it did; the smaller of two counts as the older. That of a reader
/// without locks ([`ReadMode::Hybrid`](crate::ReadMode::Hybrid)) may be smaller than those of some that began before
/// it. Made by [`Transaction::age`].
///
/// It says something among the transactions of its database until that is closed, and is no secret and no lock: any
/// number of transactions may have it. Those that get it though they are no repetition only make others give way more
/// often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionAge(pub(crate) u64);

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
            asker: Asker { txn, victim: None, within_body: false },
            database,
            durability,
            cancel: None,
            recent: None,
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Reads a value.
    ///
    /// # Errors
    /// Those of [every operation](Transaction#errors-of-every-operation); [`Error::KeyTooLong`]; [`Error::Undecodable`]
    /// if what is stored is no `V`.
    #[inline]
    pub fn get<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        key: K,
    ) -> Result<Option<V::Owned>> {
        let found = self.get_with(table, key, |bytes| V::decode(bytes))?;
        found.transpose().map_err(|error| undecodable(table.name(), error.expected))
    }

    /// Whether a key is there, without reading its value: one of more than 1,792 bytes lies beside its row, and stays
    /// there. Locks as [`Transaction::get`] does.
    ///
    /// # Errors
    /// Those of [every operation](Transaction#errors-of-every-operation); [`Error::KeyTooLong`].
    pub fn contains_key<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        key: K,
    ) -> Result<bool> {
        self.on_key(&table, &key, |txn, table, key| txn.contains(table, key))
    }

    /// Reads a value that this transaction is going to change: takes at once the lock that the change will need. Two
    /// transactions that read a record and then write it with `get` deadlock; with `get_for_update` the second waits.
    /// So it is with a key that is not there and that both are going to add.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    #[inline]
    pub fn get_for_update<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        key: K,
    ) -> Result<Option<V::Owned>> {
        let found = self.get_for_update_with(table, key, |bytes| V::decode(bytes))?;
        found.transpose().map_err(|error| undecodable(table.name(), error.expected))
    }

    /// Reads a value in place: `read` gets its encoded bytes, which for a table of byte values are the value. It may be
    /// called several times; the result of the last call counts.
    ///
    /// # Errors
    /// Those of [every operation](Transaction#errors-of-every-operation); [`Error::KeyTooLong`].
    #[inline]
    pub fn get_with<K: Key, V: Value, R>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        key: K,
        read: impl FnMut(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.on_key(&table, &key, |txn, table, key| txn.get(table, key, read))
    }

    /// [`Transaction::get_for_update`] in place, as [`Transaction::get_with`].
    ///
    /// # Errors
    /// As [`Transaction::get_with`].
    #[inline]
    pub fn get_for_update_with<K: Key, V: Value, R>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        key: K,
        read: impl FnMut(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.on_key(&table, &key, |txn, table, key| txn.get_for_update(table, key, read))
    }

    /// Writes a value, whether or not the key is there; tells whether it was.
    ///
    /// The value is given as it is or by reference: a `String` for a table of `&str` as `text.as_str()`, a `Vec<u8>`
    /// for one of `&[u8]` as `bytes.as_slice()`. As keys, `&text` and `&bytes` do.
    ///
    /// # Errors
    /// Those of [every operation](Transaction#errors-of-every-operation) and of [every
    /// change](Transaction#errors-of-every-change); [`Error::KeyTooLong`], [`Error::ValueTooLong`].
    #[inline]
    pub fn put<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        key: K,
        value: impl Borrow<V>,
    ) -> Result<bool> {
        self.write(table, &key, value.borrow(), Txn::put)
    }

    /// Adds a key that is not there. Not a map's insert: what is there stays, and false is returned; to overwrite, use
    /// [`Transaction::put`].
    ///
    /// # Errors
    /// As [`Transaction::put`].
    #[inline]
    pub fn insert<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        key: K,
        value: impl Borrow<V>,
    ) -> Result<bool> {
        self.write(table, &key, value.borrow(), Txn::insert)
    }

    /// Overwrites the value of a key that is there. What is not there is not added, and false is returned; to add it,
    /// use [`Transaction::put`].
    ///
    /// # Errors
    /// As [`Transaction::put`].
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
        let Transaction { asker, database, recent, key: key_scratch, value: value_scratch, .. } = self;
        let (key, value) = (encoded_key(key, key_scratch)?, encoded_value(value, value_scratch)?);
        asker.on(database, recent, &table, |txn, table| operation(txn, table, key, value))
    }

    /// Removes a key; tells whether it was there.
    ///
    /// # Errors
    /// Those of [every operation](Transaction#errors-of-every-operation) and of [every
    /// change](Transaction#errors-of-every-change); [`Error::KeyTooLong`].
    #[inline]
    pub fn delete<K: Key, V: Value>(&mut self, table: TableDefinition<'_, K, V>, key: K) -> Result<bool> {
        self.on_key(&table, &key, |txn, table, key| txn.delete(table, key))
    }

    /// Locks a whole table: for a transaction that touches much of it, cheaper than a lock on every key.
    ///
    /// # Errors
    /// Those of [every operation](Transaction#errors-of-every-operation).
    pub fn lock_table<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        lock: TableLock,
    ) -> Result<()> {
        self.on(&table, |txn, table| txn.lock_table(table, lock.mode()))
    }

    /// The isolation of the operations that follow; a cursor keeps that under which it was made.
    pub fn set_isolation(&mut self, isolation: Isolation) {
        self.asker.txn.set_isolation(isolation);
    }

    /// Its number. Numbers ascend in the order in which transactions began, but for those of readers without locks
    /// ([`ReadMode::Hybrid`](crate::ReadMode::Hybrid)), and are not used again while the database is open.
    pub fn id(&self) -> TxnId {
        self.asker.txn.id()
    }

    /// Its age, for [`TransactOptions::age`](crate::TransactOptions::age) of the transaction that begins the same work
    /// again.
    pub fn age(&self) -> TransactionAge {
        TransactionAge(self.asker.txn.age())
    }

    pub(crate) fn take_victim(&mut self) -> Option<Arc<DeadlockView>> {
        self.asker.victim.take()
    }

    /// What [`Cursor`](crate::Cursor) needs.
    pub(crate) fn txn(&mut self) -> &mut Txn {
        &mut self.asker.txn
    }

    /// Runs an operation on a table.
    #[inline]
    pub(crate) fn on<K: Key, V: Value, R>(
        &mut self,
        table: &TableDefinition<'_, K, V>,
        operation: impl FnOnce(&mut Txn, &TableInfo) -> Result<R, TxnError>,
    ) -> Result<R> {
        self.asker.on(&self.database, &mut self.recent, table, operation)
    }

    /// The same, on a key of it.
    #[inline]
    fn on_key<K: Key, V: Value, R>(
        &mut self,
        table: &TableDefinition<'_, K, V>,
        key: &K,
        operation: impl FnOnce(&mut Txn, &TableInfo, &[u8]) -> Result<R, TxnError>,
    ) -> Result<R> {
        let Transaction { asker, database, recent, key: scratch, .. } = self;
        let key = encoded_key(key, scratch)?;
        asker.on(database, recent, table, |txn, table| operation(txn, table, key))
    }

    /// A table by its name and types, made if it is not there.
    pub(crate) fn named_table(&mut self, name: &str, types: (&str, &str)) -> Result<TableInfo> {
        self.database.named_table(name, types, Some(&mut self.asker))
    }

    /// For an operation that has nothing to do: whether another one would be refused.
    pub(crate) fn check_usable(&mut self) -> Result<()> {
        self.asker.check_usable(&self.database)
    }

    #[cold]
    pub(crate) fn fail(&mut self, error: TxnError) -> Error {
        self.asker.fail(&self.database, error)
    }
}
