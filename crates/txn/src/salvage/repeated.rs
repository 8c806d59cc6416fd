//! A database that cannot be recovered, with what its log says repeated on its pages as far as the log can be read.
//! Nobody is rolled back: a transaction that was still open where the log breaks off may have committed behind that.
//!
//! Less is needed for this than for recovery: of the control file only the place where redo begins, or else a
//! checkpoint in the log (`salvage/control.rs`); no catalogue, no tree, and no log from before the redo horizon. Pages
//! that are newer than what is left of the log are as good as others, and a page that cannot be read stays lost alone.

use std::path::Path;

use foreshore_base::{Lsn, Result, StorageError};
use foreshore_btree::TreeEnv;
use foreshore_env::{disk::Disk, sync::Arc};
use foreshore_pages::{BufferPool, PoolOptions};
use foreshore_wal::Log;

use super::pages::Lock;
use crate::{
    engine::{DATA, LOG},
    options::EngineOptions,
    recovery,
};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Repeated {
    pub(super) pool: Arc<BufferPool>,
    log: Arc<Log>,
    /// Why the log ends where it does, if that is not its end.
    pub(super) log_damage: Option<StorageError>,
    _lock: Option<Lock>,
}

impl Repeated {
    /// Repeats on `overlay` what can be repeated from `redo` on.
    ///
    /// # Errors
    /// When there is nothing to repeat, or what there is does not fit the pages.
    pub(super) fn open(
        overlay: &Arc<dyn Disk>,
        directory: &Path,
        options: &EngineOptions,
        database_id: u64,
        redo: Lsn,
    ) -> Result<Repeated> {
        let log_directory = directory.join(LOG);
        let (log, log_damage) =
            Log::open_damaged(Arc::clone(overlay), &log_directory, database_id, redo, &options.log)?;
        let pool = PoolOptions { salvage: true, transient: true, ..options.pool.clone() };
        let pool = BufferPool::open(overlay, &directory.join(DATA), Arc::clone(&log), &pool)?;
        let repeated = Repeated { pool, log, log_damage, _lock: None };
        repeated.repeat(redo, options)?;
        Ok(repeated)
    }

    /// Keeps a lock as long as itself.
    pub(super) fn locked(mut self, lock: Option<Lock>) -> Repeated {
        self._lock = lock;
        self
    }

    fn repeat(&self, redo: Lsn, options: &EngineOptions) -> Result<()> {
        let swept = self.pool.opened_horizon();
        if swept < redo {
            let detail = format!("the data file knows checkpoints up to {swept}, not that of {redo}");
            return Err(StorageError::corrupt_log(redo, detail));
        }
        self.pool.set_redo_horizon(redo);
        let (pool, log) = (Arc::clone(&self.pool), Arc::clone(&self.log));
        let trees = TreeEnv::new(pool, log, options.node_capacity, options.latch_mode);
        let (mut reader, mut payload) = (self.log.reader(redo), Vec::new());
        while let Some(header) = reader.next(&mut payload)? {
            recovery::redo(&self.pool, &trees, &header, &payload)?;
        }
        Ok(())
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        self.pool.close();
        // It was written to in memory alone.
        let _ = self.log.close();
    }
}
