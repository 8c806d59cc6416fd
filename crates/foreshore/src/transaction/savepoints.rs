//! Places in a transaction to which it can go back.

use super::Transaction;
use crate::error::Result;

/// A place in a transaction to which it can be rolled back. Made by [`Transaction::savepoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint(foreshore_txn::Savepoint);

impl Transaction {
    /// Marks this place, so that what comes after it can be undone alone.
    ///
    /// A transaction has 65,536 savepoints at most: whoever makes one for each statement gives it back with
    /// [`Transaction::release`] when the statement has succeeded.
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
    ///
    /// # Errors
    /// [`Error::LimitExceeded`](crate::Error::LimitExceeded) if there are 65,536 savepoints;
    /// [`Error::TransactionFailed`](crate::Error::TransactionFailed), [`Error::LogHeld`](crate::Error::LogHeld) or
    /// [`Error::Cancelled`](crate::Error::Cancelled) if the transaction can only be rolled back;
    /// [`Error::Closed`](crate::Error::Closed), [`Error::Poisoned`](crate::Error::Poisoned) or
    /// [`Error::Forked`](crate::Error::Forked) if the database can no longer be used here.
    pub fn savepoint(&mut self) -> Result<Savepoint> {
        let savepoint = self.asker.txn.savepoint().map_err(|error| self.fail(error))?;
        Ok(Savepoint(savepoint))
    }

    /// Undoes everything since a savepoint. The savepoint stays; those after it are gone. Locks are kept.
    ///
    /// # Errors
    /// [`Error::NotOfThisTransaction`](crate::Error::NotOfThisTransaction) if the savepoint is of another one, was
    /// released, or was undone by a rollback to an earlier one;
    /// [`Error::TransactionFailed`](crate::Error::TransactionFailed), [`Error::LogHeld`](crate::Error::LogHeld) or
    /// [`Error::Cancelled`](crate::Error::Cancelled) if the transaction can only be rolled back;
    /// [`Error::Closed`](crate::Error::Closed), [`Error::Poisoned`](crate::Error::Poisoned) or
    /// [`Error::Forked`](crate::Error::Forked) if the database can no longer be used here. If undoing fails, with
    /// [`Error::Corrupted`](crate::Error::Corrupted) or [`Error::Io`](crate::Error::Io) for one, the database stops.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.asker.txn.rollback_to(savepoint.0).map_err(|error| self.fail(error))
    }

    /// Gives a savepoint up, and those that were made after it, and keeps what was done since: from now on that can
    /// only be undone together with what came before. (`RELEASE SAVEPOINT` of SQL.)
    ///
    /// # Errors
    /// As [`Transaction::rollback_to`]; but nothing is undone that could fail.
    pub fn release(&mut self, savepoint: Savepoint) -> Result<()> {
        self.asker.txn.release(savepoint.0).map_err(|error| self.fail(error))
    }
}
