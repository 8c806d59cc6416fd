//! Transactions that only read, as their type says.

use std::ops::ControlFlow;

use foreshore_base::{TxnId, key::Key};
use foreshore_txn::Direction;

use crate::{
    ReadMode,
    database::Database,
    error::Result,
    range::{Cursor, KeyRange, Range},
    table::{TableDefinition, TableLock},
    transact::{self, Session, TransactOptions},
    transaction::{CancelHandle, Transaction},
    value::Value,
};

/// A transaction that has nothing to write with. Lent by [`Database::read`].
#[derive(Debug)]
pub struct ReadTransaction<'t> {
    pub(crate) tx: &'t mut Transaction,
}

impl Database {
    /// Runs `body` in a transaction that only reads: without locks on keys and gaps at first ([`ReadMode::Hybrid`]), so
    /// that it keeps no writer waiting and writes nothing that other threads read. If somebody has changed a page that
    /// it has read before it is done, it runs again, with locks, and then nothing is in its way but the wait for them.
    ///
    /// What it reads beyond some 2 MiB of leaves (256), values that do not fit a leaf (above 1,792 bytes), and tables
    /// in which it met many changes are locked as by any transaction, so that a long one keeps writers waiting, and may
    /// fail with [`Error::TooManyLocks`](crate::Error::TooManyLocks). Whoever is going to read most of a large table
    /// locks it first ([`ReadTransaction::lock_table`]).
    ///
    /// It is as serializable as one of [`Database::transact`]. What `body` was given belongs together, though not what
    /// it was given in two runs; what it returned is committed once this returns, and durable, and so guaranteed, if
    /// its durability is [`Durability::Sync`](crate::Durability::Sync). A table that is not there is made, as by any
    /// transaction, but in a database that was opened read-only: there it is
    /// [`Error::NoSuchTable`](crate::Error::NoSuchTable).
    ///
    /// ```
    /// # use foreshore::{Database, TableDefinition};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// const ACCOUNTS: TableDefinition<&str, i64> = TableDefinition::new("accounts");
    /// # db.transact(|tx| tx.put(ACCOUNTS, "alice", 10))?;
    ///
    /// let total: i64 = db.read(|tx| {
    ///     tx.range(ACCOUNTS, ..)?.map(|entry| entry.map(|(_, balance)| balance)).sum()
    /// })?;
    /// # assert_eq!(total, 10);
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Database::transact`].
    #[track_caller]
    pub fn read<R>(&self, body: impl FnMut(&mut ReadTransaction<'_>) -> Result<R>) -> Result<R> {
        self.read_with(&TransactOptions::default(), body)
    }

    /// [`Database::read`] with a deadline, and so on. [`TransactOptions::execution`] is of no effect: it is dynamic.
    ///
    /// # Errors
    /// As [`Database::read`].
    #[track_caller]
    pub fn read_with<R>(
        &self,
        options: &TransactOptions,
        mut body: impl FnMut(&mut ReadTransaction<'_>) -> Result<R>,
    ) -> Result<R> {
        let read_mode = Some(options.read_mode.unwrap_or(ReadMode::Hybrid));
        let options = TransactOptions { read_mode, ..options.clone() };
        let body = |tx: &mut Transaction| body(&mut ReadTransaction { tx });
        let committed =
            transact::run(Session::Alone(self), &options, None, body, Transaction::commit_in_place);
        committed.map(|(result, ())| result)
    }
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "keys go in by value, so that literals, `&String` and `&Vec<u8>` can be given as they are"
)]
impl ReadTransaction<'_> {
    /// As [`Transaction::get`].
    ///
    /// # Errors
    /// As [`Transaction::get`].
    #[inline]
    pub fn get<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        key: K,
    ) -> Result<Option<V::Owned>> {
        self.tx.get(table, key)
    }

    /// As [`Transaction::get_with`].
    ///
    /// # Errors
    /// As [`Transaction::get_with`].
    #[inline]
    pub fn get_with<K: Key, V: Value, R>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        key: K,
        read: impl FnMut(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.tx.get_with(table, key, read)
    }

    /// As [`Transaction::contains_key`].
    ///
    /// # Errors
    /// As [`Transaction::contains_key`].
    pub fn contains_key<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        key: K,
    ) -> Result<bool> {
        self.tx.contains_key(table, key)
    }

    /// As [`Transaction::get_many`].
    ///
    /// # Errors
    /// As [`Transaction::get_many`].
    pub fn get_many<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<V::Owned>>> {
        self.tx.get_many(table, keys)
    }

    /// As [`Transaction::get_many_with`].
    ///
    /// # Errors
    /// As [`Transaction::get_many_with`].
    pub fn get_many_with<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        keys: impl IntoIterator<Item = K>,
        read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.tx.get_many_with(table, keys, read)
    }

    /// As [`Transaction::range`].
    ///
    /// # Errors
    /// As [`Transaction::range`].
    pub fn range<K: Key, V: Value, By>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        range: impl KeyRange<K, By>,
    ) -> Result<Range<'_, K, V>> {
        self.tx.range(table, range)
    }

    /// As [`Transaction::cursor`], for one that reads elsewhere meanwhile, as here two tables side by side.
    ///
    /// ```
    /// # use foreshore::{Database, TableDefinition};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// use foreshore::Direction;
    ///
    /// const ORDERED: TableDefinition<u32, u32> = TableDefinition::new("ordered");
    /// const PAID: TableDefinition<u32, u32> = TableDefinition::new("paid");
    /// # db.transact(|tx| {
    /// #     (1..5).try_for_each(|order| tx.put(ORDERED, order, 10).map(drop))?;
    /// #     tx.put(PAID, 2, 10)?;
    /// #     tx.put(PAID, 4, 7)
    /// # })?;
    ///
    /// let unpaid = db.read(|tx| {
    ///     let mut ordered = tx.cursor(ORDERED, .., Direction::Ascending)?;
    ///     let mut paid = tx.cursor(PAID, .., Direction::Ascending)?;
    ///     let (mut unpaid, mut payment) = (Vec::new(), paid.next(tx)?);
    ///     while let Some((order, price)) = ordered.next(tx)? {
    ///         while payment.is_some_and(|(number, _)| number < order) {
    ///             payment = paid.next(tx)?;
    ///         }
    ///         if payment != Some((order, price)) {
    ///             unpaid.push(order);
    ///         }
    ///     }
    ///     Ok(unpaid)
    /// })?;
    /// assert_eq!(unpaid, [1, 3, 4]);
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::cursor`].
    pub fn cursor<K: Key, V: Value, By>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        range: impl KeyRange<K, By>,
        direction: Direction,
    ) -> Result<Cursor<K, V>> {
        self.tx.cursor(table, range, direction)
    }

    /// As [`Transaction::scan`].
    ///
    /// # Errors
    /// As [`Transaction::scan`].
    pub fn scan<K: Key, V: Value, By>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        range: impl KeyRange<K, By>,
        direction: Direction,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.tx.scan(table, range, direction, visit)
    }

    /// As [`Transaction::count_range`].
    ///
    /// # Errors
    /// As [`Transaction::count_range`].
    pub fn count_range<K: Key, V: Value, By>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        range: impl KeyRange<K, By>,
    ) -> Result<u64> {
        self.tx.count_range(table, range)
    }

    /// As [`Transaction::first`].
    ///
    /// # Errors
    /// As [`Transaction::first`].
    pub fn first<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
    ) -> Result<Option<(K::Owned, V::Owned)>> {
        self.tx.first(table)
    }

    /// As [`Transaction::last`].
    ///
    /// # Errors
    /// As [`Transaction::last`].
    pub fn last<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
    ) -> Result<Option<(K::Owned, V::Owned)>> {
        self.tx.last(table)
    }

    /// Locks a whole table as [`TableLock::Shared`] does: others may read it, and whoever would change it waits until
    /// this transaction has ended. From there on it reads with locks: of this table it needs none on keys, those of
    /// others it locks one by one. Call it before the first read, so that nothing that was read is changed while it
    /// waits for the table.
    ///
    /// # Errors
    /// As [`Transaction::lock_table`].
    pub fn lock_table<K: Key, V: Value>(&mut self, table: TableDefinition<'_, K, V>) -> Result<()> {
        self.tx.lock_table(table, TableLock::Shared)
    }

    /// A handle with which another thread can cancel this transaction, as [`Transaction::cancel_handle`]: where the
    /// body runs again, it has to ask for another one.
    pub fn cancel_handle(&mut self) -> CancelHandle {
        self.tx.cancel_handle()
    }

    /// As [`Transaction::id`].
    pub fn id(&self) -> TxnId {
        self.tx.id()
    }
}
