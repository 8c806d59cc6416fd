//! Going through a range.

use std::{
    borrow::Cow,
    marker::PhantomData,
    ops::{Bound, ControlFlow, RangeBounds},
};

use foreshore_base::{
    bounds,
    key::{self, Key, KeyPrefix, Prefix},
};
use foreshore_txn::{Direction, LockKind, TableInfo, Txn, TxnCursor, TxnError};

use crate::{
    error::{Error, Result},
    read::ReadTransaction,
    table::undecodable,
    transaction::{Transaction, check_length, encoded_key},
    value::Value,
};

/// A range of keys of type `K`: one of the standard library's ([`RangeBounds`]), or a [`Prefix`]. `By` says which of
/// the two it is, and is inferred.
///
/// ```
/// # use foreshore::{Database, TableDefinition};
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = Database::open(directory.path())?;
/// use foreshore::Prefix;
///
/// const READINGS: TableDefinition<(&str, u64), f64> = TableDefinition::new("readings by place and second");
/// # db.transact(|tx| {
/// #     for (place, second) in [("harbour", 1), ("harbour", 9), ("harbour east", 4), ("shore", 3)] {
/// #         tx.put(READINGS, (place, second), 17.5)?;
/// #     }
/// #     Ok(())
/// # })?;
/// db.read(|tx| {
///     assert_eq!(tx.count_range(READINGS, Prefix(("harbour",)))?, 2); // of this place
///     assert_eq!(tx.count_range(READINGS, Prefix((Prefix("harbour"),)))?, 3); // of places that begin so
///     assert_eq!(tx.count_range(READINGS, ("harbour", 5)..=("harbour", u64::MAX))?, 1);
///     let newest = tx.range(READINGS, Prefix(("harbour",)))?.next_back().transpose()?;
///     assert_eq!(newest, Some((("harbour".to_owned(), 9), 17.5)));
///     Ok(())
/// })?;
/// # Ok::<(), foreshore::Error>(())
/// ```
pub trait KeyRange<K, By>: in_bytes::KeyRange<K, By> {}

impl<K, By, R: in_bytes::KeyRange<K, By>> KeyRange<K, By> for R {}

mod in_bytes {
    use super::{Bound, Key, KeyPrefix, Prefix, RangeBounds, Result, check_length, encoded_key, key};

    type Encoded<'r> = (Bound<&'r [u8]>, Bound<&'r [u8]>);

    #[derive(Debug)]
    pub struct ByBounds;

    #[derive(Debug)]
    pub struct ByPrefix;

    #[diagnostic::on_unimplemented(
        message = "`{Self}` is no range of keys of type `{K}`",
        note = "give two bounds of that type, as `low..high`, or a `Prefix` of it: `Prefix(\"text\")`, `Prefix((field,))`"
    )]
    pub trait KeyRange<K, By> {
        /// Its encoded bounds, in `low` and `high` if they are nowhere yet.
        fn encode<'r>(&'r self, low: &'r mut Vec<u8>, high: &'r mut Vec<u8>) -> Result<Encoded<'r>>
        where
            K: 'r;
    }

    #[inline]
    fn encoded_bound<'k, K: Key>(bound: Bound<&'k K>, scratch: &'k mut Vec<u8>) -> Result<Bound<&'k [u8]>> {
        Ok(match bound {
            Bound::Included(key) => Bound::Included(encoded_key(key, scratch)?),
            Bound::Excluded(key) => Bound::Excluded(encoded_key(key, scratch)?),
            Bound::Unbounded => Bound::Unbounded,
        })
    }

    impl<K: Key, R: RangeBounds<K>> KeyRange<K, ByBounds> for R {
        #[inline]
        fn encode<'r>(&'r self, low: &'r mut Vec<u8>, high: &'r mut Vec<u8>) -> Result<Encoded<'r>>
        where
            K: 'r,
        {
            Ok((encoded_bound(self.start_bound(), low)?, encoded_bound(self.end_bound(), high)?))
        }
    }

    impl<K: Key, P: KeyPrefix<K>> KeyRange<K, ByPrefix> for Prefix<P> {
        fn encode<'r>(&'r self, low: &'r mut Vec<u8>, high: &'r mut Vec<u8>) -> Result<Encoded<'r>>
        where
            K: 'r,
        {
            low.clear();
            self.0.encode(low);
            check_length(low)?;
            high.clear();
            high.extend_from_slice(low);
            let end = if key::succeed(high) { Bound::Excluded(&**high) } else { Bound::Unbounded };
            Ok((Bound::Included(low), end))
        }
    }
}

/// The encoded bounds of a range, to be kept. On the way they may lie in `low` and `high`.
pub(crate) fn encode<K, By>(
    range: &impl KeyRange<K, By>,
    low: &mut Vec<u8>,
    high: &mut Vec<u8>,
) -> Result<Bounds> {
    let (low, high) = range.encode(low, high)?;
    Ok((low.map(<[u8]>::to_vec), high.map(<[u8]>::to_vec)))
}

/// Encoded bounds of a range.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn as_slices((low, high): &Bounds) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (bounds::as_slice(low), bounds::as_slice(high))
}

/// Calls `visit` with the encoded entries of a range until it breaks off.
#[inline]
pub(crate) fn visit(
    txn: &mut Txn,
    table: &TableInfo,
    bounds: (Bound<&[u8]>, Bound<&[u8]>),
    direction: Direction,
    mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<(), TxnError> {
    if bounds::is_empty(bounds) {
        return txn.check_usable();
    }
    let mut position = txn.cursor(table, bounds, direction, LockKind::Shared)?;
    while let Some(flow) = txn.visit(&mut position, &mut visit)? {
        if flow.is_break() {
            break;
        }
    }
    Ok(())
}

/// A transaction with which a [`Cursor`] goes on: [`Transaction`] or [`ReadTransaction`].
pub trait Reads: sealed::Reads {}

impl<R: sealed::Reads> Reads for R {}

mod sealed {
    use super::{ReadTransaction, Transaction};

    pub trait Reads {
        fn transaction(&mut self) -> &mut Transaction;
    }

    impl Reads for Transaction {
        #[inline]
        fn transaction(&mut self) -> &mut Transaction {
            self
        }
    }

    impl Reads for ReadTransaction<'_> {
        #[inline]
        fn transaction(&mut self) -> &mut Transaction {
            self.tx
        }
    }
}

/// A position in a range of a table. Made by [`Transaction::cursor`] or [`ReadTransaction::cursor`], and used with the
/// same transaction.
///
/// Each step gives the first entry behind the one before, with what its transaction has written meanwhile. Several
/// entries are read at a time: what others write behind the last one given, where no lock keeps them from it, may be
/// met or not. At the end of the range it stays there, whatever is added. After an error it stands where it stood, but
/// for [`Error::Undecodable`]: then it stands on that entry, and the next step passes it.
#[derive(Debug)]
pub struct Cursor<K, V> {
    table: TableInfo,
    /// `None` when the range is empty.
    position: Option<TxnCursor>,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value> Cursor<K, V> {
    pub(crate) fn new(
        tx: &mut Transaction,
        table: TableInfo,
        bounds: &Bounds,
        direction: Direction,
        lock: LockKind,
    ) -> Result<Cursor<K, V>> {
        let position = if bounds::is_empty(as_slices(bounds)) {
            tx.check_usable()?;
            None
        } else {
            let cursor = tx.txn().cursor(&table, as_slices(bounds), direction, lock);
            Some(cursor.map_err(|error| tx.fail(error))?)
        };
        Ok(Cursor { table, position, types: PhantomData })
    }

    pub(crate) fn skip_locked(self) -> Cursor<K, V> {
        Cursor { position: self.position.map(TxnCursor::skip_locked), ..self }
    }

    /// The next entry; `None` at the end of the range.
    ///
    /// # Errors
    /// Those of [every operation](Transaction#errors-of-every-operation); [`Error::NotOfThisTransaction`] if another
    /// one has made the cursor, or this one in the first run of its body, which finds out what it touches;
    /// [`Error::Undecodable`] if what is stored is no `K` or no `V`.
    pub fn next(&mut self, tx: &mut impl Reads) -> Result<Option<(K::Owned, V::Owned)>> {
        let Some((key, value)) = self.step(tx.transaction())?.then(|| self.entry()) else { return Ok(None) };
        let key = K::decode(key).map_err(|error| self.undecodable(error.expected))?;
        Ok(Some((key, V::decode(value).map_err(|error| self.undecodable(error.expected))?)))
    }

    /// The next entry, encoded.
    ///
    /// # Errors
    /// As [`Cursor::next`], but for [`Error::Undecodable`].
    #[inline]
    pub fn next_encoded(&mut self, tx: &mut impl Reads) -> Result<Option<(&[u8], &[u8])>> {
        Ok(self.step(tx.transaction())?.then(|| self.entry()))
    }

    /// The key of the next entry; `None` at the end of the range. As [`Cursor::next`], but that the value is not
    /// decoded, and not read if it lies beside its row (those of more than 1,792 bytes do): to count entries, to find
    /// one by its key, to delete. [`Transaction::get`] reads the value of one that matters; under
    /// [`Isolation::Serializable`](crate::Isolation::Serializable) it is still there.
    ///
    /// ```
    /// # use foreshore::{Database, Direction, TableDefinition};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// const IMAGES: TableDefinition<&str, &[u8]> = TableDefinition::new("images");
    /// # let image = &[7; 5000][..];
    /// # db.transact(|tx| ["a", "b", "c"].iter().try_for_each(|name| tx.put(IMAGES, *name, image).map(drop)))?;
    /// let images = db.read(|tx| {
    ///     let (mut cursor, mut count) = (tx.cursor(IMAGES, .., Direction::Ascending)?, 0);
    ///     while cursor.next_key(tx)?.is_some() {
    ///         count += 1;
    ///     }
    ///     Ok(count)
    /// })?;
    /// assert_eq!(images, 3);
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Cursor::next`].
    pub fn next_key(&mut self, tx: &mut impl Reads) -> Result<Option<K::Owned>> {
        let Some(key) = self.next_key_encoded(tx)? else { return Ok(None) };
        let decoded = K::decode(key);
        decoded.map(Some).map_err(|error| self.undecodable(error.expected))
    }

    /// The key of the next entry, encoded.
    ///
    /// # Errors
    /// As [`Cursor::next`], but for [`Error::Undecodable`].
    #[inline]
    pub fn next_key_encoded(&mut self, tx: &mut impl Reads) -> Result<Option<&[u8]>> {
        let tx = tx.transaction();
        let Some(position) = &mut self.position else { return tx.check_usable().map(|()| None) };
        let found = tx.txn().advance_key(position).map_err(|error| tx.fail(error))?;
        Ok(found.then(|| self.key()))
    }

    #[inline]
    fn step(&mut self, tx: &mut Transaction) -> Result<bool> {
        let Some(position) = &mut self.position else { return tx.check_usable().map(|()| false) };
        tx.txn().advance(position).map_err(|error| tx.fail(error))
    }

    /// The encoded entry where it stands, as long as it stands there.
    #[inline]
    fn entry(&self) -> (&[u8], &[u8]) {
        self.position.as_ref().map_or((&[], &[]), |position| (position.key(), position.value()))
    }

    /// The encoded key of the last entry that it gave; empty if there is none.
    fn key(&self) -> &[u8] {
        self.entry().0
    }

    #[cold]
    fn undecodable(&self, expected: Cow<'static, str>) -> Error {
        undecodable(self.table.name(), expected)
    }
}

/// The entries of a range, from both ends. Made by [`Transaction::range`]. After an error it is at its end.
#[derive(Debug)]
pub struct Range<'t, K, V> {
    tx: &'t mut Transaction,
    table: TableInfo,
    bounds: Bounds,
    /// Going up, from the first call of `next`.
    front: Option<Cursor<K, V>>,
    /// Going down, from the first call of `next_back`.
    back: Option<Cursor<K, V>>,
    done: bool,
}

impl<'t, K: Key, V: Value> Range<'t, K, V> {
    pub(crate) fn new(tx: &'t mut Transaction, table: TableInfo, bounds: Bounds) -> Range<'t, K, V> {
        Range { tx, table, bounds, front: None, back: None, done: false }
    }

    fn next_from(&mut self, direction: Direction) -> Option<Result<(K::Owned, V::Owned)>> {
        if self.done {
            return None;
        }
        let entry = self.step(direction).transpose();
        self.done = !matches!(entry, Some(Ok(_)));
        entry
    }

    fn step(&mut self, direction: Direction) -> Result<Option<(K::Owned, V::Owned)>> {
        let (near, far) = match direction {
            Direction::Ascending => (&mut self.front, &self.back),
            Direction::Descending => (&mut self.back, &self.front),
        };
        let cursor = match near {
            Some(cursor) => cursor,
            None => {
                let table = self.table.clone();
                near.insert(Cursor::new(self.tx, table, &self.bounds, direction, LockKind::Shared)?)
            }
        };
        let entry = cursor.next(self.tx)?;
        // The ends have met when one comes to what the other gave last.
        let met = far.as_ref().is_some_and(|far| match direction {
            Direction::Ascending => cursor.key() >= far.key(),
            Direction::Descending => cursor.key() <= far.key(),
        });
        Ok(entry.filter(|_| !met))
    }
}

impl<K: Key, V: Value> Iterator for Range<'_, K, V> {
    type Item = Result<(K::Owned, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_from(Direction::Ascending)
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for Range<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_from(Direction::Descending)
    }
}

impl<K: Key, V: Value> std::iter::FusedIterator for Range<'_, K, V> {}
