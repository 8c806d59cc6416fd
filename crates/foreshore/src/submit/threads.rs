//! The threads that run what is submitted.

use foreshore_env::sync::Arc;
use foreshore_orthrus::{PartitionStats, Partitions, ThreadStats};

use crate::{
    database::Database,
    error::{Error, Result},
};

impl Database {
    /// The threads of partitioned execution.
    pub(crate) fn partitions(&self) -> Result<&Arc<Partitions>> {
        let inner = self.inner();
        inner.engine.check_open().map_err(|error| inner.error(error))?;
        match inner.partitions.get() {
            Some(partitions) => Ok(partitions),
            None => self.start_partitions(),
        }
    }

    #[cold]
    fn start_partitions(&self) -> Result<&Arc<Partitions>> {
        let inner = self.inner();
        let _alone = inner.starts_partitions.lock();
        if let Some(partitions) = inner.partitions.get() {
            return Ok(partitions);
        }
        // Whoever closes it looks for threads after that, too.
        inner.engine.check_open().map_err(|error| inner.error(error))?;
        let started = Partitions::start(self.options().partitions()).map_err(|source| Error::Io {
            action: "start the threads of partitioned execution of".to_owned(),
            path: self.path().to_path_buf(),
            source,
        })?;
        Ok(inner.partitions.get_or_init(|| Arc::new(started)))
    }

    /// What each of these threads does, and has done.
    pub(crate) fn partition_threads(&self) -> Vec<ThreadStats> {
        self.inner().partitions.get().map(|partitions| partitions.threads()).unwrap_or_default()
    }

    /// Lets this many of these threads lock, until that is decided again; for tests.
    #[doc(hidden)]
    pub fn set_control_threads(&self, threads: usize) {
        if let Some(partitions) = self.inner().partitions.get() {
            partitions.set_controllers(threads);
        }
    }

    /// What all of them have done.
    pub(crate) fn partition_stats(&self) -> PartitionStats {
        self.inner().partitions.get().map(|partitions| partitions.stats()).unwrap_or_default()
    }
}
