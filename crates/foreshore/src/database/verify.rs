//! Checking a database.

use foreshore_env::time::Duration;
use foreshore_txn::VERIFY_WAIT;

use super::Database;
use crate::{
    error::{Error, Result},
    nested,
    report::VerifyReport,
};

impl Database {
    /// Checks everything that is stored: every page's checksum, every tree's order, fences and links, the free space
    /// against the pages in use, and the log. Waits until nobody writes, a minute at most, or 10 s within the body of a
    /// transaction, and lets nobody write meanwhile. Damage is in the report; an error means that the check could not
    /// be finished.
    ///
    /// # Errors
    /// [`Error::LockTimeout`], with those who write, when they do not end: a transaction of the same thread, too.
    /// [`Error::Busy`], at once, if prepared transactions wait for a decision when it begins (one that is prepared
    /// later is waited for, as those who write), or if a compaction cuts the file for a minute; what
    /// [`Database::begin`] fails with; [`Error::PoolExhausted`], and [`Error::Io`] if a file cannot be read.
    pub fn verify(&self) -> Result<VerifyReport> {
        nested::at_most(VERIFY_WAIT, |wait| self.verify_within(wait))
    }

    /// [`Database::verify`] with another limit to the wait for those who write. New writers wait behind it as long.
    ///
    /// # Errors
    /// As [`Database::verify`].
    pub fn verify_within(&self, wait: Duration) -> Result<VerifyReport> {
        let report = self.engine().verify_within(wait);
        Ok(VerifyReport::of(report.map_err(|error| Error::from_operation(error, &self.inner))?))
    }
}
