//! Backups of a database that is in use.

use std::{ops::ControlFlow, path::Path};

use foreshore_txn::{BackupProgress, BackupReport};

use crate::{
    database::Database,
    error::{Error, Result},
};

impl Database {
    /// Makes a copy of the database in a directory that is absent or empty, while others read and write; durable when
    /// this returns. The copy is a database like any other: it has all that was committed durably before this was
    /// called, and what was committed up to some moment before it returns. Neither readers nor writers wait for it. It
    /// begins with a checkpoint, or, where [`Database::checkpoint`] is refused because the log is full, at the one
    /// before.
    ///
    /// ```
    /// # use foreshore::Database;
    /// # let home = tempfile::tempdir().unwrap();
    /// # let db = Database::open(home.path().join("bank"))?;
    /// let copy = home.path().join("bank of today");
    /// db.backup(&copy)?;
    /// assert!(Database::open(&copy)?.verify()?.is_sound());
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BackupStopped`] if it kept more than a quarter of what the log may hold
    /// ([`LogRetention::capacity_bytes`](crate::LogRetention::capacity_bytes)), beyond what others need, or so much
    /// that others had no room;
    /// [`Error::Corrupted`] if a page is damaged, or a record of the log; [`Error::Io`] if the target lies in the
    /// database itself, under whatever name, or is not empty, or somebody else is making something there;
    /// [`Error::Busy`] if a compaction cuts the file for a minute; [`Error::DiskFull`]; [`Error::Closed`],
    /// [`Error::Poisoned`], [`Error::Forked`]. After any error the target is no database, and says so when it is
    /// opened, unless hardly anything could be made there: no file but `LOCK`. After one that came before the first
    /// page was copied, the same target can be tried again.
    pub fn backup(&self, target: impl AsRef<Path>) -> Result<BackupReport> {
        self.backup_with(target, |_| ControlFlow::Continue(()))
    }

    /// As [`Database::backup`]; `progress` is called after every piece, and may stop the backup.
    ///
    /// # Errors
    /// As [`Database::backup`]; [`Error::BackupStopped`] if `progress` stops it.
    pub fn backup_with(
        &self,
        target: impl AsRef<Path>,
        mut progress: impl FnMut(BackupProgress) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        let made = self.engine().backup(target.as_ref(), &mut progress);
        made.map_err(|error| Error::from_txn(error, self.path()))
    }
}
