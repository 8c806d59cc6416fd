//! Opening a database with options.

use std::path::Path;

use foreshore_base::StorageError;
use foreshore_env::{
    StripedArc,
    disk::{Disk, RealDisk},
    sync::{Arc, Mutex, OnceLock},
};
use foreshore_txn::{Engine, EngineOptions, RecoveryObserver, RecoveryProgress};

use super::{Database, Inner, partition::Partition};
use crate::{
    admission::Admission,
    error::{Error, Result},
    log_turn::LogTurns,
    options::Options,
    table::TableCache,
    transact::PlaceQueue,
};

/// The path of a database that has no directory.
const IN_MEMORY: &str = "(in memory)";

/// Opens a database with other than the default options. Made by [`Database::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    options: Options,
    disk: Arc<dyn Disk>,
    recovery_observer: Option<RecoveryObserver>,
    pub(super) partition: Option<Partition>,
}

impl Builder {
    pub(super) fn new() -> Builder {
        Builder {
            options: Options::default(),
            disk: Arc::new(RealDisk),
            recovery_observer: None,
            partition: None,
        }
    }

    /// Replaces all options.
    #[must_use]
    pub fn options(mut self, options: Options) -> Builder {
        self.options = options;
        self
    }

    /// Sets one option by its name, from text: see [`Options::set`].
    ///
    /// # Errors
    /// As [`Options::set`].
    pub fn set(mut self, name: &str, value: &str) -> Result<Builder> {
        self.options.set(name, value)?;
        Ok(self)
    }

    /// Whether to make the database when the directory is absent or empty.
    #[must_use]
    pub fn create(mut self, create: bool) -> Builder {
        self.options.create = create;
        self
    }

    /// Whether to open it only to be read: see [`Options::read_only`].
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Builder {
        self.options.read_only = read_only;
        self
    }

    /// Memory for pages, in bytes.
    #[must_use]
    pub fn pool_bytes(mut self, bytes: usize) -> Builder {
        self.options.pool_bytes = bytes;
        self
    }

    /// Calls `observe` while a database that was not closed in good order is recovered: at the beginning and the end of
    /// each phase, and now and then in between. It runs in the thread that opens, and recovery waits for it.
    #[must_use]
    pub fn on_recovery(mut self, observe: impl Fn(RecoveryProgress) + Send + Sync + 'static) -> Builder {
        self.recovery_observer = Some(RecoveryObserver::new(observe));
        self
    }

    /// Puts another disk under the database; for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Builder {
        self.disk = disk;
        self
    }

    /// Opens the database in this directory. A relative path is used as it is for as long as the database is open: a
    /// process that changes its working directory meanwhile should give an absolute one. If the path leads elsewhere,
    /// the database stops ([`Error::Poisoned`]) when its log next needs a file, as it does when somebody moves or
    /// replaces its directory.
    ///
    /// # Errors
    /// - [`Error::InvalidOption`]: options have values that are not allowed, alone or together, or there is less memory
    ///   than [`Options::pool_bytes`] says.
    /// - [`Error::AlreadyOpen`]: a process has it open, this one or another, or makes a backup there.
    /// - [`Error::NotADatabase`]: what is there is something else, or a backup that was not finished. With a control
    ///   file, a data file and a segment of a log it is a database, and a file that does not look like one of its own
    ///   is damaged.
    /// - [`Error::UpgradeRequired`]: it is in a format that this version does not read.
    /// - [`Error::Corrupted`]: a file is missing, or what has to be read to open and recover it is damaged.
    /// - [`Error::DiskFull`], [`Error::Io`]: the system refuses something. Also [`Error::Io`] if there is no database
    ///   and none is to be made ([`Options::create`], [`Options::read_only`]), and if a recovery for
    ///   [`Options::read_only`] would change more than fits in the memory that it may take.
    /// - [`Error::LogFull`], [`Error::PoolExhausted`]: there is less log, or memory for pages, than the recovery needs.
    /// - [`Error::Poisoned`]: the log failed during the recovery.
    pub fn open(self, directory: impl AsRef<Path>) -> Result<Database> {
        let (disk, path) = (Arc::clone(&self.disk), directory.as_ref());
        self.options.check(|| Engine::log_segment_bytes(&*disk, path))?;
        self.open_by(path, |options| Engine::open(disk, path, options))
    }

    /// Makes a database that lies in memory, for tests and for what need not be kept: nothing of it is left when its
    /// last clone is dropped. It takes up to [`Options::log_bytes`] for its log, and memory for its data beside that
    /// for the pool. Commits wait for no disk. [`Database::backup`] copies it to a directory.
    ///
    /// # Errors
    /// As [`Builder::open`] where there is no database, but [`Error::DiskFull`].
    pub fn open_in_memory(self) -> Result<Database> {
        let (disk, name) = (Arc::clone(&self.disk), Path::new(IN_MEMORY));
        self.options.check(|| None)?;
        self.open_by(name, |options| Engine::open_in_memory(disk, name, options))
    }

    fn open_by(
        self,
        path: &Path,
        open: impl FnOnce(&EngineOptions) -> Result<Arc<Engine>, StorageError>,
    ) -> Result<Database> {
        let mut options =
            EngineOptions { recovery_observer: self.recovery_observer, ..self.options.engine() };
        options.locks.partitioner =
            self.partition.map(|partition| partition.among(self.options.partitions().partitions()));
        let engine = open(&options).map_err(|error| Error::from_storage(error, path))?;
        let inner = Inner {
            engine: StripedArc::new(engine),
            tables: TableCache::new(),
            admission: (self.options.admission_control).then(|| Admission::new(self.options.deadlock_policy)),
            log_turns: LogTurns::default(),
            place_queue: PlaceQueue::default(),
            options: self.options,
            path: path.to_owned(),
            partitions: OnceLock::new(),
            starts_partitions: Mutex::new(()),
        };
        Ok(Database { inner: Arc::new(StripedArc::new(Arc::new(inner))) })
    }
}
