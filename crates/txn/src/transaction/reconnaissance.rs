//! Reconnaissance: a transaction runs without locks and without effect, so that its footprint is known (optimistic lock
//! location prediction, Ren et al. 2016, §3.2, after Thomson et al. 2012).
//!
//! What it reads may be uncommitted, and parts of it of different moments, but each value is one that was there: leaves
//! are read under versions. What it writes is kept beside the trees, where its own reads find it, and is then
//! forgotten.

mod writes;

use std::ops::Bound;

use foreshore_base::{TableId, bounds};
use foreshore_btree::{Append, Cursor, Direction, Isolation, LockKind, Session};
use foreshore_lock::{IntentMode, KeyMode, KeyRef, LockError};

use super::{Txn, TxnCursor, planned::Protocol, session::TxnSession};
use crate::{catalog::TableInfo, error::TxnError, footprint::Footprint};
use writes::Writes;

/// What a reconnaissance may keep of what it would write. One that comes to that, or to more locks than a transaction
/// may have, ends there with what it knows: the run meets the rest beside its plan.
pub(super) const RECONNAISSANCE_BYTES: usize = 16 << 20;

/// A transaction's reconnaissance.
#[derive(Debug, Default)]
pub(crate) struct Reconnaissance {
    pub(crate) footprint: Footprint,
    pub(super) writes: Writes,
}

impl Reconnaissance {
    /// Whether it goes on, where a transaction has so many locks at most.
    pub(super) fn check_room(&self, most_locks: usize) -> Result<(), LockError> {
        let is_full = self.writes.bytes() > RECONNAISSANCE_BYTES || self.footprint.is_beyond(most_locks);
        if is_full { Err(LockError::PlanMiss) } else { Ok(()) }
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

impl<'v> Wish<'v> {
    /// What is to be the value.
    #[inline]
    pub(super) fn value(&self) -> Option<&'v [u8]> {
        match *self {
            Wish::Insert(value) | Wish::Put(value) | Wish::Update(value) => Some(value),
            Wish::Delete => None,
        }
    }
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
    /// The key that the tree has next, if it was asked: its cursor stands there.
    ahead: Option<Vec<u8>>,
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
        (bounds::as_slice(&self.low), bounds::as_slice(&self.high))
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
            LockKind::Shared => (IntentMode::IS, KeyMode::SN),
            LockKind::Exclusive => (IntentMode::IX, KeyMode::XN),
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
                let found = table.tree().contains(&mut self.session, key, isolation);
                found.map_err(|error| self.note(error.into()))?
            }
        };
        let (value, done) = match wish {
            Wish::Insert(value) => (Some(value), !existed),
            Wish::Put(value) => (Some(value), true),
            Wish::Update(value) => (Some(value), existed),
            Wish::Delete => (None, existed),
        };
        if done {
            self.lock(|session| session.acquire(table.id(), KeyRef::Key(key), KeyMode::XN))?;
            self.note_written(table, key, value)?;
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
        if order == Append::Done {
            for (key, value) in entries {
                self.note_written(table, key.as_ref(), Some(value.as_ref()))?;
            }
        }
        Ok(order)
    }

    fn note_written(&mut self, table: &TableInfo, key: &[u8], value: Option<&[u8]>) -> Result<(), TxnError> {
        self.lock(|session| {
            let most_locks = session.core().locks.max_locks_per_transaction();
            let Some(reconnaissance) = session.reconnaissance() else { return Ok(()) };
            reconnaissance.check_room(most_locks)?;
            reconnaissance.writes.set(table.id(), key, value);
            Ok(())
        })
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

    /// [`Txn::advance`] in reconnaissance, or [`Txn::advance_key`] without the `value`: what was written stands before
    /// what the tree has.
    #[cold]
    pub(super) fn advance_ahead(&mut self, cursor: &mut TxnCursor, value: bool) -> Result<bool, TxnError> {
        let TxnCursor { cursor, merged: Some(merged), .. } = cursor else { return Ok(false) };
        merged.over = merged.over || !self.step_ahead(cursor, merged, value)?;
        Ok(!merged.over)
    }

    fn step_ahead(
        &mut self,
        cursor: &mut Cursor,
        merged: &mut Merged,
        value: bool,
    ) -> Result<bool, TxnError> {
        loop {
            self.look_further(cursor, merged)?;
            // `BTreeMap::range` would panic.
            if bounds::is_empty(merged.bounds()) {
                return Ok(false);
            }
            let Some(reconnaissance) = self.session.reconnaissance() else { return Ok(false) };
            let written = reconnaissance.writes.next(merged.table, merged.bounds(), merged.direction);
            let written_first = match (&written, &merged.ahead) {
                (None, None) => return Ok(false),
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some((written, _)), Some(read)) => match merged.direction {
                    Direction::Ascending => *written <= read.as_slice(),
                    Direction::Descending => *written >= read.as_slice(),
                },
            };
            if let (true, Some((written, new))) = (written_first, written) {
                let key = written.to_vec();
                if merged.ahead.as_ref().is_some_and(|read| *read == key) {
                    merged.ahead = None;
                }
                merged.pass(key.clone());
                if let Some(new) = new {
                    (merged.key, merged.value) = (key, if value { new.to_vec() } else { Vec::new() });
                    return Ok(true);
                }
            } else if merged.ahead.is_some() {
                merged.value.clear();
                if value {
                    let read = cursor.read_value(&mut self.session);
                    read.map_err(|error| self.note(error.into()))?;
                    merged.value.extend_from_slice(cursor.value());
                }
                merged.key = merged.ahead.take().unwrap_or_default();
                merged.pass(merged.key.clone());
                return Ok(true);
            }
        }
    }

    fn look_further(&mut self, cursor: &mut Cursor, merged: &mut Merged) -> Result<(), TxnError> {
        if merged.ahead.is_none() && !merged.ended {
            let found = cursor.advance_key(&mut self.session);
            if found.map_err(|error| self.note(error.into()))? {
                merged.ahead = Some(cursor.key().to_vec());
            } else {
                merged.ended = true;
            }
        }
        Ok(())
    }
}
