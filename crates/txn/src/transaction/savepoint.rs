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
    index: usize,
    lsn: Lsn,
}

/// How far a transaction had come. Made by [`Txn::position`].
#[derive(Clone, Copy, Debug)]
pub struct Position(Lsn);

impl Txn {
    /// Marks this place.
    pub fn savepoint(&mut self) -> Result<Savepoint, TxnError> {
        self.check_usable()?;
        let (index, lsn) = (self.savepoints.len(), self.position().0);
        if index == MAX_SAVEPOINTS {
            let limit = MAX_SAVEPOINTS as u64;
            return Err(StorageError::LimitExceeded {
                what: "savepoints of a transaction",
                limit,
                got: limit + 1,
            }
            .into());
        }
        self.savepoints.push(lsn);
        Ok(Savepoint { engine: self.session.core().number, txn: self.id(), index, lsn })
    }

    /// Undoes everything since a savepoint. The savepoint stays, those made after it end. No lock is released.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), TxnError> {
        self.check_usable()?;
        let is_own = savepoint.engine == self.session.core().number && savepoint.txn == self.id();
        if !is_own || self.savepoints.get(savepoint.index) != Some(&savepoint.lsn) {
            return Err(TxnError::InvalidSavepoint);
        }
        self.undo_back_to(savepoint.lsn)?;
        self.savepoints.truncate(savepoint.index + 1);
        Ok(())
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
        self.savepoints.retain(|lsn| *lsn <= position.0);
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
