//! Reconnaissance: a transaction runs without locks and without effect, so that its footprint is known (optimistic lock
//! location prediction, Ren et al. 2016, §3.2, after Thomson et al. 2012).
//!
//! What it reads may be uncommitted, and parts of it of different moments, but each value is one that was there: leaves
//! are read under versions. What it writes is kept beside the trees, where its own reads find it, and is then
//! forgotten.

use std::{collections::BTreeMap, ops::Bound};

use foreshore_base::{Lsn, TableId};
use foreshore_btree::{Append, Cursor, Direction, Isolation, LockKind, Session};
use foreshore_lock::{IntentMode, KeyRef, Mode};

use super::{Txn, TxnCursor, planned::Protocol, session::TxnSession};
use crate::{catalog::TableInfo, error::TxnError, footprint::Footprint};

/// A transaction's reconnaissance.
#[derive(Debug, Default)]
pub(crate) struct Reconnaissance {
    pub(crate) footprint: Footprint,
    pub(super) writes: Writes,
}

/// What was written.
#[derive(Debug, Default)]
pub(super) struct Writes {
    values: BTreeMap<(TableId, Vec<u8>), Written>,
    /// What was replaced by the first write to each place since a mark, oldest first.
    replaced: Vec<Replaced>,
    /// How many these were at the last mark; `None`: nobody can want anything back.
    marked: Option<usize>,
}

#[derive(Debug)]
struct Written {
    /// `None`: it was deleted.
    value: Option<Vec<u8>>,
    /// How many were in [`Writes::replaced`] when the last one of this place was; 0: none is.
    replaced: usize,
}

#[derive(Debug)]
struct Replaced {
    place: (TableId, Vec<u8>),
    /// `None`: nothing had been written there.
    before: Option<Written>,
}

impl Writes {
    fn set(&mut self, table: TableId, key: &[u8], value: Option<&[u8]>) {
        let (place, value) = ((table, key.to_vec()), value.map(<[u8]>::to_vec));
        let before = self.values.get_mut(&place);
        let replaced = before.as_ref().map_or(0, |before| before.replaced);
        if self.marked.is_some_and(|marked| replaced <= marked) {
            let replaced = self.replaced.len() + 1;
            let before = self.values.insert(place.clone(), Written { value, replaced });
            self.replaced.push(Replaced { place, before });
        } else if let Some(before) = before {
            before.value = value;
        } else {
            self.values.insert(place, Written { value, replaced });
        }
    }

    fn get(&self, table: TableId, key: &[u8]) -> Option<Option<&[u8]>> {
        // The map's key is owned, so a look needs one too; reconnaissance is not in a hurry.
        self.values.get(&(table, key.to_vec())).map(|written| written.value.as_deref())
    }

    /// How far it has come, as a savepoint names it.
    pub(super) fn mark(&mut self) -> Lsn {
        let mark = self.replaced.len();
        self.marked = Some(mark);
        Lsn(mark as u64)
    }

    /// Takes back what was written since a mark.
    pub(super) fn back_to(&mut self, mark: Lsn) {
        while self.replaced.len() as u64 > mark.0 {
            let Some(Replaced { place, before }) = self.replaced.pop() else { return };
            match before {
                Some(written) => self.values.insert(place, written),
                None => self.values.remove(&place),
            };
        }
        self.marked = self.marked.map(|marked| marked.min(self.replaced.len()));
    }

    /// The next key that was written, in the range and behind the near bound.
    fn next(
        &self,
        table: TableId,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Option<(&[u8], Option<&[u8]>)> {
        let place = |key: &[u8]| (table, key.to_vec());
        let low = match low {
            Bound::Unbounded => Bound::Included(place(&[])),
            bound => bound.map(place),
        };
        let high = match high {
            Bound::Unbounded => Bound::Excluded((TableId(table.0.saturating_add(1)), Vec::new())),
            bound => bound.map(place),
        };
        let mut range = self.values.range((low, high));
        let found = match direction {
            Direction::Ascending => range.next(),
            Direction::Descending => range.next_back(),
        };
        found.map(|((_, key), written)| (key.as_slice(), written.value.as_deref()))
    }
}

/// What a change wants of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish<'v> {
    Insert(&'v [u8]),
    Put(&'v [u8]),
    Update(&'v [u8]),
    Delete,
}

/// A cursor's way through a tree and through what was written beside it.
#[derive(Debug)]
pub(super) struct Merged {
    table: TableId,
    direction: Direction,
    /// The near bound moves.
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    /// Where it stands.
    key: Vec<u8>,
    value: Vec<u8>,
    /// What the tree has next, if it was asked.
    ahead: Option<(Vec<u8>, Vec<u8>)>,
    /// The tree has no more.
    ended: bool,
    /// The cursor has said that it is at its end, and stays there, whatever is written behind it.
    over: bool,
}

impl Merged {
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(super) fn value(&self) -> &[u8] {
        &self.value
    }

    fn pass(&mut self, key: Vec<u8>) {
        match self.direction {
            Direction::Ascending => self.low = Bound::Excluded(key),
            Direction::Descending => self.high = Bound::Excluded(key),
        }
    }

    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.low.as_ref().map(Vec::as_slice), self.high.as_ref().map(Vec::as_slice))
    }

    /// Whether the range behind the near bound can have keys: `BTreeMap::range` panics where it cannot.
    fn is_empty(&self) -> bool {
        match self.bounds() {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(low), Bound::Included(high)) => low > high,
            (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => {
                low >= high
            }
        }
    }
}

impl TxnSession {
    /// Whoever was taken out of its plan in the middle of its reconnaissance has changed nothing: that is no commit.
    #[inline]
    pub(crate) fn check_has_run(&self) -> Result<(), TxnError> {
        if matches!(self.protocol, Protocol::Reconnaissance(_)) { Err(TxnError::Failed) } else { Ok(()) }
    }

    #[inline]
    pub(super) fn reconnaissance(&mut self) -> Option<&mut Reconnaissance> {
        match &mut self.protocol {
            Protocol::Reconnaissance(reconnaissance) => Some(reconnaissance),
            Protocol::Dynamic | Protocol::Planned(_) => None,
        }
    }
}

impl Txn {
    /// Begins reconnaissance, in a transaction that has done nothing yet: until [`Txn::end_reconnaissance`] it takes no
    /// lock and changes nothing, but records what it would.
    ///
    /// What it reads need not fit together. Whatever is concluded from it, an error above all, counts for nothing.
    pub fn begin_reconnaissance(&mut self) {
        debug_assert!(self.is_read_only() && self.savepoints.is_empty());
        self.session.protocol = Protocol::Reconnaissance(Box::default());
    }

    /// In reconnaissance: expects that a key will be read or, exclusively, written, without looking at it.
    pub fn foresee(&mut self, table: &TableInfo, key: &[u8], kind: LockKind) -> Result<(), TxnError> {
        let (intent, mode) = match kind {
            LockKind::Shared => (IntentMode::IS, Mode::SN),
            LockKind::Exclusive => (IntentMode::IX, Mode::XN),
        };
        self.enter(table, intent)?;
        self.lock(|session| session.acquire(table.id(), KeyRef::Key(key), mode))
    }

    /// What reconnaissance has written under a key, if it has.
    #[inline]
    pub(super) fn written_ahead(&mut self, table: &TableInfo, key: &[u8]) -> Option<Option<Vec<u8>>> {
        let reconnaissance = self.session.reconnaissance()?;
        reconnaissance.writes.get(table.id(), key).map(|value| value.map(<[u8]>::to_vec))
    }

    /// A change in reconnaissance: records what it needs, and gives what it would have given. (Insert: whether it was
    /// done; else whether the key was there.)
    #[cold]
    pub(super) fn write_ahead(
        &mut self,
        table: &TableInfo,
        key: &[u8],
        wish: Wish<'_>,
    ) -> Result<bool, TxnError> {
        self.enter(table, IntentMode::IX)?;
        let existed = match self.written_ahead(table, key) {
            Some(value) => value.is_some(),
            None => {
                // As the tree does: an absence on which nothing is added stays so; one that ends leaves its gap alone.
                let isolation = match wish {
                    Wish::Insert(_) | Wish::Put(_) => Isolation::RepeatableRead,
                    Wish::Update(_) | Wish::Delete => Isolation::Serializable,
                };
                let found = table.tree().get(&mut self.session, key, isolation, |_| ());
                found.map_err(|error| self.note(error.into()))?.is_some()
            }
        };
        let (value, done) = match wish {
            Wish::Insert(value) => (Some(value), !existed),
            Wish::Put(value) => (Some(value), true),
            Wish::Update(value) => (Some(value), existed),
            Wish::Delete => (None, existed),
        };
        if done {
            self.lock(|session| session.acquire(table.id(), KeyRef::Key(key), Mode::XN))?;
            if let Some(reconnaissance) = self.session.reconnaissance() {
                reconnaissance.writes.set(table.id(), key, value);
            }
        }
        Ok(if matches!(wish, Wish::Insert(_)) { done } else { existed })
    }

    /// [`Txn::append`] in reconnaissance, which has locked the table.
    #[cold]
    pub(super) fn append_ahead<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        table: &TableInfo,
        entries: &[(K, V)],
    ) -> Result<Append, TxnError> {
        let everything = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = self.cursor(table, everything, Direction::Descending, LockKind::Shared)?;
        let (mut last, mut value) = (Vec::new(), Vec::new());
        let is_behind = |last: &[u8]| entries.first().is_none_or(|(key, _)| last < key.as_ref());
        if self.next(&mut cursor, &mut last, &mut value)? && !is_behind(&last) {
            return Ok(Append::NotBehind { entry: 0, of_ghost: false });
        }
        let order = Append::by_order(entries);
        if let (Append::Done, Some(reconnaissance)) = (order, self.session.reconnaissance()) {
            for (key, value) in entries {
                reconnaissance.writes.set(table.id(), key.as_ref(), Some(value.as_ref()));
            }
        }
        Ok(order)
    }

    /// What a cursor of reconnaissance needs beside its way through the tree.
    pub(super) fn merged(
        &mut self,
        table: &TableInfo,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Option<Box<Merged>> {
        self.session.reconnaissance()?;
        let (low, high) = (low.map(<[u8]>::to_vec), high.map(<[u8]>::to_vec));
        let (key, value) = (Vec::new(), Vec::new());
        let table = table.id();
        Some(Box::new(Merged {
            table,
            direction,
            low,
            high,
            key,
            value,
            ahead: None,
            ended: false,
            over: false,
        }))
    }

    /// [`Txn::advance`] in reconnaissance: what was written stands before what the tree has.
    #[cold]
    pub(super) fn advance_ahead(&mut self, cursor: &mut TxnCursor) -> Result<bool, TxnError> {
        let TxnCursor { cursor, merged: Some(merged), .. } = cursor else { return Ok(false) };
        merged.over = merged.over || !self.step_ahead(cursor, merged)?;
        Ok(!merged.over)
    }

    fn step_ahead(&mut self, cursor: &mut Cursor, merged: &mut Merged) -> Result<bool, TxnError> {
        loop {
            self.look_further(cursor, merged)?;
            if merged.is_empty() {
                return Ok(false);
            }
            let Some(reconnaissance) = self.session.reconnaissance() else { return Ok(false) };
            let written = reconnaissance.writes.next(merged.table, merged.bounds(), merged.direction);
            let written_first = match (&written, &merged.ahead) {
                (None, None) => return Ok(false),
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some((written, _)), Some((read, _))) => match merged.direction {
                    Direction::Ascending => *written <= read.as_slice(),
                    Direction::Descending => *written >= read.as_slice(),
                },
            };
            if let (true, Some((written, new))) = (written_first, written) {
                let key = written.to_vec();
                if merged.ahead.as_ref().is_some_and(|(read, _)| *read == key) {
                    merged.ahead = None;
                }
                merged.pass(key.clone());
                if let Some(new) = new {
                    (merged.key, merged.value) = (key, new.to_vec());
                    return Ok(true);
                }
            } else if let Some((read, found)) = merged.ahead.take() {
                merged.pass(read.clone());
                (merged.key, merged.value) = (read, found);
                return Ok(true);
            }
        }
    }

    fn look_further(&mut self, cursor: &mut Cursor, merged: &mut Merged) -> Result<(), TxnError> {
        if merged.ahead.is_none() && !merged.ended {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            let found = cursor.next(&mut self.session, &mut key, &mut value);
            if found.map_err(|error| self.note(error.into()))? {
                merged.ahead = Some((key, value));
            } else {
                merged.ended = true;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use foreshore_env::random::Xorshift;

    use super::*;

    const TABLE: TableId = TableId::FIRST_USER;

    /// What every write replaced was kept, though nobody could want it back: a body that counts one record up a million
    /// times took a gigabyte.
    #[test]
    fn what_nobody_can_want_back_is_not_kept() {
        let mut writes = Writes::default();
        let write = |writes: &mut Writes| (0..100_u8).for_each(|n| writes.set(TABLE, b"key", Some(&[n])));
        write(&mut writes);
        assert_eq!(writes.replaced.len(), 0);
        let mark = writes.mark();
        write(&mut writes);
        assert_eq!(writes.replaced.len(), 1);
        writes.back_to(mark);
        assert_eq!(writes.get(TABLE, b"key"), Some(Some(&[99][..])));
    }

    /// Against copies of all that was written at each mark.
    #[test]
    fn marks_are_come_back_to() {
        let mut random = Xorshift::new(7);
        for _ in 0..500 {
            let (mut writes, mut model, mut marks) = (Writes::default(), BTreeMap::new(), Vec::new());
            for number in 0..40_u8 {
                let key = [random.below(3) as u8];
                match random.below(8) {
                    0 => marks.push((writes.mark(), model.clone())),
                    1 if !marks.is_empty() => {
                        marks.truncate(random.below(marks.len() as u64) as usize + 1);
                        let (mark, then) = marks.last().expect("there is one");
                        writes.back_to(*mark);
                        model.clone_from(then);
                    }
                    2 => {
                        writes.set(TABLE, &key, None);
                        model.insert(key, None);
                    }
                    _ => {
                        writes.set(TABLE, &key, Some(&[number]));
                        model.insert(key, Some([number]));
                    }
                }
                for key in 0..3 {
                    let expected = model.get(&[key]).map(|value| value.as_ref().map(<[u8; 1]>::as_slice));
                    assert_eq!(writes.get(TABLE, &[key]), expected);
                }
            }
        }
    }
}
