//! Places in a transaction to which it can go back.

use foreshore_base::{Lsn, StorageError, TxnId};

use super::Txn;
use crate::{error::TxnError, rollback};

/// Savepoints that a transaction can have at a time.
pub const MAX_SAVEPOINTS: usize = 65_536;

/// A place in a transaction to which it can go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    /// Other engines have transactions of the same ids.
    engine: u64,
    txn: TxnId,
    number: u64,
}

/// The savepoints of a transaction.
#[derive(Debug, Default)]
pub(super) struct Savepoints {
    /// Number and place of those that are there, oldest first.
    there: Vec<(u64, Lsn)>,
    /// How many were ever made: none gets the number of another, which may be gone.
    made: u64,
}

impl Savepoints {
    pub(super) fn clear(&mut self) {
        self.there.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.there.is_empty()
    }
}

/// How far a transaction had come. Made by [`Txn::position`].
#[derive(Clone, Copy, Debug)]
pub struct Position(Lsn);

impl Txn {
    /// Marks this place.
    pub fn savepoint(&mut self) -> Result<Savepoint, TxnError> {
        self.check_usable()?;
        let lsn = self.position().0;
        let Savepoints { there, made } = &mut self.savepoints;
        if there.len() == MAX_SAVEPOINTS {
            let limit = MAX_SAVEPOINTS as u64;
            return Err(StorageError::beyond_limit("savepoints of a transaction", limit, limit + 1).into());
        }
        let number = *made;
        there.push((number, lsn));
        *made += 1;
        Ok(Savepoint { engine: self.session.core().number, txn: self.id(), number })
    }

    /// Undoes everything since a savepoint. The savepoint stays, those made after it end. No lock is released.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), TxnError> {
        let (index, lsn) = self.find(savepoint)?;
        self.undo_back_to(lsn)?;
        self.savepoints.there.truncate(index + 1);
        Ok(())
    }

    /// Ends a savepoint and those made after it, and keeps what was done since.
    pub fn release(&mut self, savepoint: Savepoint) -> Result<(), TxnError> {
        let (index, _) = self.find(savepoint)?;
        self.savepoints.there.truncate(index);
        Ok(())
    }

    /// The index and the place of a savepoint of this transaction.
    fn find(&self, savepoint: Savepoint) -> Result<(usize, Lsn), TxnError> {
        self.check_usable()?;
        let is_own = savepoint.engine == self.session.core().number && savepoint.txn == self.id();
        let there = &self.savepoints.there;
        match there.binary_search_by_key(&savepoint.number, |(number, _)| *number) {
            Ok(index) if is_own => Ok((index, there[index].1)),
            _ => Err(TxnError::InvalidSavepoint),
        }
    }

    /// Where the transaction is, for [`Txn::roll_back_to_position`]: a savepoint that need not be kept.
    pub fn position(&mut self) -> Position {
        Position(match self.session.reconnaissance() {
            Some(reconnaissance) => reconnaissance.writes.mark(),
            None => self.session.chain.last,
        })
    }

    /// Undoes everything since a position of this transaction. Savepoints made since then end.
    pub fn roll_back_to_position(&mut self, position: Position) -> Result<(), TxnError> {
        self.savepoints.there.retain(|(_, lsn)| *lsn <= position.0);
        self.undo_back_to(position.0)
    }

    fn undo_back_to(&mut self, place: Lsn) -> Result<(), TxnError> {
        match self.session.reconnaissance() {
            Some(reconnaissance) => reconnaissance.writes.back_to(place),
            None => rollback::undo_back_to(&mut self.session, place)?,
        }
        Ok(())
    }
}
