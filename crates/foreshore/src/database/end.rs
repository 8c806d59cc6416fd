//! How a database ends, in the process that has opened it and in a fork of that.

use foreshore_base::StorageError;

use super::{Database, Inner};
use crate::error::Result;

impl Database {
    /// Closes the database for all clones: makes every commit durable, lazy ones too, and writes what the next opening
    /// would have to recover. What is called later and needs it fails with [`Error::Closed`](crate::Error::Closed),
    /// and so do waits for locks. [`Database::stats`] goes on: `cut_off` says how many transactions had written and
    /// were still open. The next opening undoes them. Tickets and pipelines still tell what is durable.
    ///
    /// The memory for pages, and files that are open, are given back when the last clone is dropped, and with it the
    /// last transaction, [`Pipeline`](crate::Pipeline) and [`CommitTicket`](crate::CommitTicket).
    ///
    /// Called by a future where that is woken because a commit is durable, this returns at once, and the database is
    /// closed a moment later. A second call waits for that, and gets the disk's error.
    ///
    /// # Errors
    /// Of the disk; [`Error::Forked`](crate::Error::Forked), and nothing happens, in a fork of the process that opened
    /// it.
    pub fn close(&self) -> Result<()> {
        self.inner.check_process()?;
        self.inner.stop_partitions();
        let closed = self.inner.engine.close();
        // Those that somebody has started meanwhile; nobody starts any from now on.
        self.inner.stop_partitions();
        closed.map_err(|error| self.inner.error(error))
    }
}

impl Inner {
    fn stop_partitions(&self) {
        drop(self.starts_partitions.lock());
        if let Some(partitions) = self.partitions.get() {
            partitions.stop();
        }
    }

    /// Fails in a fork, before anything is asked for that waits for others.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.engine.is_forked() { Err(self.error(StorageError::Forked)) } else { Ok(()) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(partitions) = self.partitions.get().filter(|partitions| !partitions.is_forked()) {
            partitions.stop();
        }
        // Nobody is left to tell. What was not written is in the log; the next opening recovers it.
        let _ = self.engine.close();
    }
}
