//! Deciding about prepared transactions.

use foreshore_txn::PreparedTransaction;

use super::Database;
use crate::error::{Error, Result};

impl Database {
    /// Transactions that were prepared ([`Transaction::prepare`](crate::Transaction::prepare)) and about which nobody
    /// has decided, the oldest first. They keep their locks and the log.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Poisoned`] or [`Error::Forked`], if the database can no longer be used here.
    pub fn prepared(&self) -> Result<Vec<PreparedTransaction>> {
        self.inner.engine.prepared().map_err(|error| self.inner.error(error))
    }

    /// Commits a prepared transaction, durably.
    ///
    /// # Errors
    /// [`Error::UnknownGlobalId`], also when somebody has decided about it already; [`Error::GlobalIdBusy`] while
    /// somebody prepares it, or decides about it; [`Error::ReadOnly`], [`Error::Closed`], [`Error::Poisoned`],
    /// [`Error::Forked`]. Nothing has changed then. After [`Error::OutcomeUnknown`] it is committed or still prepared,
    /// which shows when the database is opened again.
    pub fn commit_prepared(&self, global_id: impl AsRef<[u8]>) -> Result<()> {
        let decided = self.engine().commit_prepared(global_id.as_ref());
        decided.map_err(|error| Error::from_txn(error, &self.inner.path))
    }

    /// Rolls a prepared transaction back, durably.
    ///
    /// # Errors
    /// As [`Database::commit_prepared`]; after [`Error::OutcomeUnknown`] it is rolled back or still prepared, which
    /// shows when the database is opened again.
    pub fn rollback_prepared(&self, global_id: impl AsRef<[u8]>) -> Result<()> {
        let decided = self.engine().rollback_prepared(global_id.as_ref());
        decided.map_err(|error| Error::from_txn(error, &self.inner.path))
    }
}
