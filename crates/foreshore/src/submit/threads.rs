//! The threads that run what is submitted.

use foreshore_env::{
    sync::Arc,
    thread,
    time::{Duration, Instant, earlier},
};
use foreshore_orthrus::{PartitionStats, Partitions, ThreadStats};

use crate::{
    database::Database,
    error::{Error, Result},
};

/// How long the locks of what has committed may be on their way back to the threads that lock, for whoever wants one of
/// its places: where these have no processor for so long, nobody is helped by a longer wait.
const RETURN: Duration = Duration::from_millis(100);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(1);

impl Database {
    /// What `begin` gives that has found as many transactions open as may be. Beside partitioned execution many of these
    /// may have committed, and keep their places until their locks are back.
    #[cold]
    pub(crate) fn begin_when_locks_are_back<T>(
        &self,
        deadline: Option<Instant>,
        mut begin: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let end = earlier(Instant::now() + RETURN, deadline);
        loop {
            let looks_again = self.inner().partitions.get().is_some() && Instant::now() < end;
            match begin() {
                Err(Error::TooManyTransactions { .. }) if looks_again => thread::sleep(LOOK_EVERY),
                begun => return begun,
            }
        }
    }

    /// The threads of partitioned execution.
    pub(crate) fn partitions(&self) -> Result<&Arc<Partitions>> {
        self.inner().check_process()?;
        match self.inner().partitions.get() {
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

    /// What partitioned execution has done since its first transaction: see [`Plan::submit`](crate::Plan::submit).
    /// Nothing, in a fork of the process.
    pub fn partition_stats(&self) -> PartitionStats {
        let partitions = self.inner().partitions.get().filter(|partitions| !partitions.is_forked());
        partitions.map(|partitions| partitions.stats()).unwrap_or_default()
    }
}
