//! Going through a range of a table.

use std::ops::{Bound, ControlFlow};

use foreshore_base::TxnId;
use foreshore_btree::{Cursor, Direction, LockKind, TreeError};
use foreshore_lock::IntentMode;

use super::{Txn, reconnaissance::Merged, session::TxnSession};
use crate::{catalog::TableInfo, error::TxnError};

/// A position in a range of a table, used through [`Txn::advance`]. It holds no latch between two calls.
#[derive(Debug)]
pub struct TxnCursor {
    txn: TxnId,
    pub(super) cursor: Cursor,
    /// In reconnaissance.
    pub(super) merged: Option<Box<Merged>>,
}

impl TxnCursor {
    /// From here on it waits for no lock on a key: see [`Cursor::skip_locked`]. In reconnaissance, where nothing is
    /// locked, nothing is passed over, and the run waits for all that is met there.
    #[must_use]
    pub fn skip_locked(self) -> TxnCursor {
        TxnCursor { cursor: self.cursor.skip_locked(), ..self }
    }

    /// The key of the entry where it stands; empty before the first one.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.merged.as_ref().map_or(self.cursor.key(), |merged| merged.key())
    }

    /// The value of the entry where it stands, until it is moved.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.merged.as_ref().map_or(self.cursor.value(), |merged| merged.value())
    }
}

impl Txn {
    /// A cursor over a range, before its first entry.
    pub fn cursor(
        &mut self,
        table: &TableInfo,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        locks: LockKind,
    ) -> Result<TxnCursor, TxnError> {
        let intent = match locks {
            LockKind::Shared => IntentMode::IS,
            LockKind::Exclusive => IntentMode::IX,
        };
        self.enter(table, intent)?;
        let cursor = table.tree().cursor(range, direction, locks, self.isolation);
        Ok(TxnCursor { txn: self.id(), cursor, merged: self.merged(table, range, direction) })
    }

    /// Moves a cursor of this transaction on and copies the entry; `false` at the end of the range.
    pub fn next(
        &mut self,
        cursor: &mut TxnCursor,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<bool, TxnError> {
        let found = self.advance(cursor)?;
        if found {
            key.clear();
            key.extend_from_slice(cursor.key());
            value.clear();
            value.extend_from_slice(cursor.value());
        }
        Ok(found)
    }

    /// As [`Txn::next`], for whoever looks at the entry where it lies.
    #[inline]
    pub fn advance(&mut self, cursor: &mut TxnCursor) -> Result<bool, TxnError> {
        self.advance_by(cursor, Cursor::advance, true)
    }

    /// As [`Txn::advance`], for whoever looks at the key alone: see [`Cursor::advance_key`].
    #[inline]
    pub fn advance_key(&mut self, cursor: &mut TxnCursor) -> Result<bool, TxnError> {
        self.advance_by(cursor, Cursor::advance_key, false)
    }

    #[inline(always)]
    fn advance_by(
        &mut self,
        cursor: &mut TxnCursor,
        advance: impl FnOnce(&mut Cursor, &mut TxnSession) -> Result<bool, TreeError>,
        value: bool,
    ) -> Result<bool, TxnError> {
        self.check_usable()?;
        // Transactions of two databases may have the same number.
        if cursor.txn != self.id() || !cursor.cursor.is_of(&self.session.core().trees) {
            return Err(TxnError::ForeignCursor);
        }
        // And so have the reconnaissance of a transaction and its run.
        match (cursor.merged.is_some(), self.session.reconnaissance().is_some()) {
            (false, false) => {}
            (true, true) => return self.advance_ahead(cursor, value),
            _ => return Err(TxnError::ForeignCursor),
        }
        let result = advance(&mut cursor.cursor, &mut self.session);
        self.read_beside(result)
    }

    /// Moves a cursor of this transaction on, and calls `visit` with the key and value of the entry, and of entries
    /// behind it, until it breaks off. `None` at the end of the range; else whether `visit` broke off, and if not,
    /// there may be more.
    #[inline]
    pub fn visit(
        &mut self,
        cursor: &mut TxnCursor,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<Option<ControlFlow<()>>, TxnError> {
        if !self.advance(cursor)? {
            return Ok(None);
        }
        if cursor.merged.is_some() {
            return Ok(Some(visit(cursor.key(), cursor.value())));
        }
        // All of it was read at once, and stands beside what was read before (READ-4).
        Ok(Some(cursor.cursor.visit(visit)))
    }
}
