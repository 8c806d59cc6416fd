//! Ranges of keys: iterators, cursors, scans.

use std::ops::ControlFlow;

use foreshore_base::key::Key;
use foreshore_txn::{Direction, LockKind};

use super::Transaction;
use crate::{
    error::Result,
    range::{self, Cursor, KeyRange, Range},
    table::TableDefinition,
    value::Value,
};

#[allow(clippy::needless_pass_by_value, reason = "ranges go in by value, as keys do")]
impl Transaction {
    /// The entries of a range in order: an iterator that can be walked from both ends.
    ///
    /// ```
    /// # use foreshore::{Database, TableDefinition};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// const STOCK: TableDefinition<&str, u32> = TableDefinition::new("stock");
    /// db.transact(|tx| {
    ///     for (name, count) in [("apple", 3), ("banana", 0), ("cherry", 7)] {
    ///         tx.put(STOCK, name, count)?;
    ///     }
    ///     let mut names = Vec::new();
    ///     for entry in tx.range(STOCK, "apple".."cherry")? {
    ///         let (name, _count) = entry?;
    ///         names.push(name);
    ///     }
    ///     assert_eq!(names, ["apple", "banana"]);
    ///     let last = tx.range(STOCK, ..)?.rev().next().transpose()?;
    ///     assert_eq!(last, Some(("cherry".to_string(), 7)));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// What lies between the entries that it gave is locked too: nobody can put a new key there before this transaction
    /// has ended (under [`Isolation::Serializable`](crate::Isolation::Serializable)).
    ///
    /// To go through the keys alone, without long values being read, use [`Transaction::cursor`] and
    /// [`Cursor::next_key`].
    ///
    /// The iterator borrows the transaction. To read something else, or to write, while going through a range,
    /// use [`Transaction::cursor`], as here, from an index to its rows:
    ///
    /// ```
    /// # use foreshore::{Database, TableDefinition};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// use foreshore::{Direction, Prefix};
    ///
    /// const PEOPLE: TableDefinition<u64, &str> = TableDefinition::new("people");
    /// const BY_CITY: TableDefinition<(&str, u64), ()> = TableDefinition::new("people by city");
    /// # db.transact(|tx| {
    /// #     for (number, name, city) in [(1, "Ada", "Bern"), (2, "Bob", "Basel"), (3, "Cem", "Bern")] {
    /// #         tx.put(PEOPLE, number, name)?;
    /// #         tx.put(BY_CITY, (city, number), ())?;
    /// #     }
    /// #     Ok(())
    /// # })?;
    ///
    /// let in_bern = db.read(|tx| {
    ///     let mut cursor = tx.cursor(BY_CITY, Prefix(("Bern",)), Direction::Ascending)?;
    ///     let mut names = Vec::new();
    ///     while let Some(((_city, number), ())) = cursor.next(tx)? {
    ///         names.extend(tx.get(PEOPLE, number)?);
    ///     }
    ///     Ok(names)
    /// })?;
    /// assert_eq!(in_bern, ["Ada", "Cem"]);
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [every operation](Transaction#errors-of-every-operation);
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong) for a bound. Each entry is a result as well, and fails as
    /// [`Cursor::next`] does; the iterator is at its end then.
    pub fn range<K: Key, V: Value, By>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        range: impl KeyRange<K, By>,
    ) -> Result<Range<'_, K, V>> {
        let bounds = range::encode(&range, &mut self.key, &mut self.value)?;
        let info = self.on(&table, |_, table| Ok(table.clone()))?;
        Ok(Range::new(self, info, bounds))
    }

    /// A position in a range that does not borrow the transaction, so that it can read and write between two steps,
    /// also what it has just met. From the low end upward, or down from the high end.
    ///
    /// ```
    /// # use foreshore::{Database, Direction, TableDefinition};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// # const STOCK: TableDefinition<&str, u32> = TableDefinition::new("stock");
    /// # db.transact(|tx| tx.put(STOCK, "apple", 0))?;
    /// db.transact(|tx| {
    ///     let mut cursor = tx.cursor(STOCK, .., Direction::Ascending)?;
    ///     while let Some((name, count)) = cursor.next(tx)? {
    ///         if count == 0 {
    ///             tx.delete(STOCK, &name)?;
    ///         }
    ///     }
    ///     Ok(())
    /// })?;
    /// # assert_eq!(db.transact(|tx| tx.get(STOCK, "apple"))?, None);
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [every operation](Transaction#errors-of-every-operation);
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong) for a bound.
    pub fn cursor<K: Key, V: Value, By>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        range: impl KeyRange<K, By>,
        direction: Direction,
    ) -> Result<Cursor<K, V>> {
        self.cursor_locking(table, range, direction, LockKind::Shared)
    }

    /// As [`Transaction::cursor`], for entries that this transaction is going to change: see
    /// [`Transaction::get_for_update`].
    ///
    /// # Errors
    /// As [`Transaction::cursor`].
    pub fn cursor_for_update<K: Key, V: Value, By>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        range: impl KeyRange<K, By>,
        direction: Direction,
    ) -> Result<Cursor<K, V>> {
        self.cursor_locking(table, range, direction, LockKind::Exclusive)
    }

    /// As [`Transaction::cursor_for_update`], but it waits for nobody: entries on which another transaction has a lock
    /// are passed over. For a queue of work, of which each worker takes the first entry that no other one has, and
    /// keeps it until its work is done; if that fails, others find it again. (`SKIP LOCKED` in SQL.)
    ///
    /// What it gives depends on who is at work, and is no view of the table: whatever the isolation, neither what it
    /// passes over is locked nor the gaps between (an entry beyond those that it gives may be, where others change its
    /// neighbours meanwhile). So at its end there may be entries that others have, or have just added, and such as come
    /// back because the deletes of others are rolled back, or lost in a crash. It does wait for locks on the table as a
    /// whole. Planned transactions ([`Execution::Planned`](crate::Execution::Planned)) have their locks before they
    /// run, and wait for them: it is of no use there.
    ///
    /// ```
    /// # use foreshore::{Database, Direction, TableDefinition};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// const JOBS: TableDefinition<u64, &str> = TableDefinition::new("jobs");
    /// # db.transact(|tx| { tx.put(JOBS, 1, "write")?; tx.put(JOBS, 2, "print") })?;
    /// # let other = std::cell::RefCell::new(db.begin()?);
    /// # other.borrow_mut().get_for_update(JOBS, 1)?;
    /// let done = db.transact(|tx| {
    ///     let mut jobs = tx.cursor_skip_locked(JOBS, .., Direction::Ascending)?;
    ///     let Some((id, job)) = jobs.next(tx)? else { return Ok(None) };
    ///     // … the work …
    ///     tx.delete(JOBS, id)?;
    ///     Ok(Some(job))
    /// })?;
    /// # assert_eq!(done.as_deref(), Some("print"));
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::cursor`].
    pub fn cursor_skip_locked<K: Key, V: Value, By>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        range: impl KeyRange<K, By>,
        direction: Direction,
    ) -> Result<Cursor<K, V>> {
        Ok(self.cursor_for_update(table, range, direction)?.skip_locked())
    }

    fn cursor_locking<K: Key, V: Value, By>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        range: impl KeyRange<K, By>,
        direction: Direction,
        lock: LockKind,
    ) -> Result<Cursor<K, V>> {
        let bounds = range::encode(&range, &mut self.key, &mut self.value)?;
        let info = self.on(&table, |_, table| Ok(table.clone()))?;
        Cursor::new(self, info, &bounds, direction, lock)
    }

    /// Calls `visit` with the encoded key and value of each entry of a range, without allocating for each of them,
    /// until it breaks off. For a table of byte keys and values, these are the keys and values.
    ///
    /// # Errors
    /// Those of [every operation](Transaction#errors-of-every-operation);
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong) for a bound. `visit` may have been called for some entries
    /// before.
    pub fn scan<K: Key, V: Value, By>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        range: impl KeyRange<K, By>,
        direction: Direction,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let Transaction { asker, database, recent, key: low, value: high, .. } = self;
        let bounds = range.encode(low, high)?;
        asker.on(database, recent, &table, |txn, table| range::visit(txn, table, bounds, direction, visit))
    }

    /// The entry with the lowest key. It is locked to be read: two transactions that take it so, and then change or
    /// delete it, deadlock. To change it, use [`Transaction::cursor_for_update`]; then the second waits, as with
    /// [`Transaction::get_for_update`].
    ///
    /// What a transaction deletes lies in its place until the transaction has ended. Its next look for the first entry
    /// goes past that without a look at each entry, unless it has taken something back since; but not under another
    /// isolation than [`Isolation::Serializable`](crate::Isolation::Serializable), nor with
    /// [`Transaction::cursor_skip_locked`], where each look goes past it: there, who takes many entries takes them from
    /// one cursor.
    ///
    /// ```
    /// # use foreshore::{Database, TableDefinition};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// use foreshore::Direction;
    ///
    /// const JOBS: TableDefinition<u64, &str> = TableDefinition::new("jobs");
    /// # db.transact(|tx| tx.put(JOBS, 7, "sweep"))?;
    ///
    /// let job = db.transact(|tx| {
    ///     let first = tx.cursor_for_update(JOBS, .., Direction::Ascending)?.next(tx)?;
    ///     if let Some((number, _)) = &first {
    ///         tx.delete(JOBS, *number)?;
    ///     }
    ///     Ok(first)
    /// })?;
    /// # assert_eq!(job, Some((7, "sweep".to_owned())));
    /// # assert_eq!(db.transact(|tx| tx.first(JOBS))?, None);
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [every operation](Transaction#errors-of-every-operation);
    /// [`Error::Undecodable`](crate::Error::Undecodable) if what is stored is no `K` or no `V`.
    pub fn first<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
    ) -> Result<Option<(K::Owned, V::Owned)>> {
        self.cursor(table, .., Direction::Ascending)?.next(self)
    }

    /// The entry with the highest key; to change it, use [`Transaction::cursor_for_update`] with
    /// [`Direction::Descending`], as explained at [`Transaction::first`].
    ///
    /// # Errors
    /// As [`Transaction::first`].
    pub fn last<K: Key, V: Value>(
        &mut self,
        table: TableDefinition<'_, K, V>,
    ) -> Result<Option<(K::Owned, V::Owned)>> {
        self.cursor(table, .., Direction::Descending)?.next(self)
    }

    /// How many keys a range has. Goes through all of them, and locks them as [`Transaction::range`] does; no value is
    /// read that lies beside its row.
    ///
    /// # Errors
    /// As [`Transaction::cursor`].
    pub fn count_range<K: Key, V: Value, By>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        range: impl KeyRange<K, By>,
    ) -> Result<u64> {
        let (mut cursor, mut count) = (self.cursor(table, range, Direction::Ascending)?, 0);
        while cursor.next_key_encoded(self)?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// Removes every key of a range; tells how many there were. If it fails, none is removed. The gaps at both ends of
    /// the range are locked, too: who inserts into one of them waits until this transaction has ended. A range of many
    /// keys goes in short transactions by [`Transaction::remove_at_most`].
    ///
    /// # Errors
    /// Those of [every operation](Transaction#errors-of-every-operation) and of [every
    /// change](Transaction#errors-of-every-change); [`Error::KeyTooLong`](crate::Error::KeyTooLong) for a bound. If
    /// undoing what was removed fails, with [`Error::Corrupted`](crate::Error::Corrupted) or
    /// [`Error::Io`](crate::Error::Io) for one, the database stops.
    pub fn remove_range<K: Key, V: Value, By>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        range: impl KeyRange<K, By>,
    ) -> Result<u64> {
        self.remove_at_most(table, range, u64::MAX)
    }

    /// Removes the first keys of a range, `most` of them if there are so many; tells how many there were. If it fails,
    /// none is removed. So a range of any size goes in transactions that fit the log and keep nobody waiting for long:
    ///
    /// ```
    /// # use foreshore::{Database, TableDefinition};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// const EVENTS: TableDefinition<u64, &str> = TableDefinition::new("events by second");
    /// # db.transact(|tx| (0..2500).try_for_each(|second| tx.put(EVENTS, second, "seen").map(drop)))?;
    /// while db.transact(|tx| tx.remove_at_most(EVENTS, ..2400, 1000))? == 1000 {}
    /// # assert_eq!(db.transact(|tx| tx.count_range(EVENTS, ..))?, 100);
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// It locks no more than what it removes, the gap behind that, and perhaps the next key, with its gap. (A first run
    /// that finds out what is to be locked reads some dozens of keys more, and these are locked, too.)
    ///
    /// # Errors
    /// As [`Transaction::remove_range`].
    pub fn remove_at_most<K: Key, V: Value, By>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        range: impl KeyRange<K, By>,
        most: u64,
    ) -> Result<u64> {
        let start = self.asker.txn.position();
        let removed = self.remove_each(table, range, most);
        if removed.is_err() {
            self.asker.txn.roll_back_to_position(start).map_err(|error| self.fail(error))?;
        }
        removed
    }

    fn remove_each<K: Key, V: Value, By>(
        &mut self,
        table: TableDefinition<'_, K, V>,
        range: impl KeyRange<K, By>,
        most: u64,
    ) -> Result<u64> {
        let mut cursor = self.cursor_for_update(table, range, Direction::Ascending)?;
        let mut removed = 0;
        while removed < most
            && let Some(key) = cursor.next_key_encoded(self)?
        {
            removed += u64::from(self.on(&table, |txn, table| txn.delete(table, key))?);
        }
        Ok(removed)
    }
}
