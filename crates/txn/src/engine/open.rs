//! Opening a database, and making one so that a crash leaves either a database or something that the next opening makes
//! anew.
//!
//! | file | content |
//! | --- | --- |
//! | `LOCK` | held by whoever has the database open, as the control file is |
//! | `control` | the control file; with it the database is complete |
//! | `control.new` | the control file of a database in the making |
//! | `control.backup` | the control file of a copy in the making: no database |
//! | `data` | pages |
//! | `log/` | segments of the log |
//!
//! TXN-10: making a database begins with a durable `control.new` and ends by renaming it to `control`. Data and log
//! without `control` are thrown away only if `control.new` says that they are ours and half-made.

mod damage;

use std::{
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use foreshore_base::{Result, StorageError, TableId, limits::MAX_TRANSACTIONS};
use foreshore_btree::{BTree, TreeEnv};
use foreshore_env::{
    StripedArc,
    disk::Disk,
    number, random,
    sync::{Arc, Mutex, atomic::AtomicUsize},
};
use foreshore_lock::{LockManager, LockOptions};
use foreshore_pages::{BufferPool, PoolOptions};
use foreshore_wal::Log;

use self::damage::{SALVAGE, missing};
use crate::{
    backup::Pins,
    catalog::{Catalog, Makers},
    checkpoint::{Growth, Target},
    committer::Committer,
    control::{Control, ControlFile},
    core::Core,
    file_end::FileEnd,
    life::Life,
    options::{EngineOptions, MAX_PIPELINE_LENGTH},
    prepared::PreparedTable,
    recovery::{self, RecoveryReport},
    settled::Settled,
    stats::Counters,
    table::TxnTable,
    transaction::{StaleReadCounters, Unpurged},
};

pub(crate) const LOCK: &str = "LOCK";
pub(crate) const CONTROL: &str = "control";
pub(super) const CONTROL_NEW: &str = "control.new";
pub(crate) const CONTROL_BACKUP: &str = "control.backup";
pub(crate) const DATA: &str = "data";
pub(crate) const LOG: &str = "log";

/// An engine without its threads.
pub(super) struct Opened {
    pub(super) core: Core,
    pub(super) lock: Box<dyn Send + Sync>,
}

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Nothing.
    Nothing,
    /// An empty directory, or one with a database in the making.
    Beginning,
    /// A database.
    Database,
}

/// Where things are.
struct Place<'a> {
    disk: &'a Arc<dyn Disk>,
    directory: &'a Path,
    options: &'a EngineOptions,
}

pub(super) fn open(disk: &Arc<dyn Disk>, directory: &Path, options: &EngineOptions) -> Result<Opened> {
    let place = Place { disk, directory, options };
    place.open().map_err(|error| place.judge(error))
}

/// Makes the name of a database's directory durable. It may lie where one may write and not read; then that is for
/// whoever arranged it so (TXN-40).
pub(crate) fn sync_parent(disk: &dyn Disk, directory: &Path) -> Result<()> {
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    match disk.sync_directory(parent.unwrap_or(Path::new("."))) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        result => result.map_err(StorageError::io("sync the directory of", directory)),
    }
}

impl Place<'_> {
    fn open(&self) -> Result<Opened> {
        // Before anything is made, so that nothing is made in a stranger's directory.
        let found = self.look()?;
        if found != Found::Database && (!self.options.create || self.options.read_only) {
            let absent = io::Error::new(ErrorKind::NotFound, "there is no database at this path");
            return Err(StorageError::io("open the database", self.directory)(absent));
        }
        if found == Found::Nothing {
            self.make_directory()?;
        }
        let lock = self.lock(LOCK)?;
        // Again: until now somebody else may have been making it.
        let (core, control) = if self.look()? == Found::Database {
            let control = self.lock(CONTROL)?;
            (self.open_existing()?, control)
        } else {
            (self.create()?, self.lock(CONTROL)?)
        };
        Ok(Opened { core, lock: Box::new((lock, control)) })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The control file is locked as well as the file that is there for it: without that one, which a copy may lack and
    /// which a reader does not make, there would be nothing to lock.
    fn lock(&self, name: &str) -> Result<Box<dyn Send + Sync>> {
        let path = self.path(name);
        let lock = self.disk.lock(&path).map_err(StorageError::io("lock", &path))?;
        lock.ok_or_else(|| StorageError::AlreadyOpen { path: self.directory.to_owned() })
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.disk.exists(path).map_err(StorageError::io("look for", path))
    }

    fn sync(&self, directory: &Path) -> Result<()> {
        self.disk.sync_directory(directory).map_err(StorageError::io("sync", directory))
    }

    fn stranger(&self, detail: impl Into<String>) -> StorageError {
        StorageError::NotADatabase { path: self.directory.to_owned(), detail: detail.into() }
    }

    fn look(&self) -> Result<Found> {
        // The user may name a link; below the directory there are none.
        let paths = match self.disk.list(&self.directory.join("")) {
            Ok(paths) => paths,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                return Err(self.stranger("it is a file, not a directory"));
            }
            Err(error) => return Err(StorageError::io("list", self.directory)(error)),
        };
        let names: Vec<_> = paths.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        let has = |name| names.contains(&name);
        // With the control file a database is complete, whatever lies beside it.
        for name in if has(CONTROL) { [CONTROL].as_slice() } else { &[CONTROL_NEW] } {
            if has(name) && !ControlFile::may_be_ours(&**self.disk, &self.path(name))? {
                return Err(self.stranger(format!("`{name}` does not begin with the magic number")));
            }
        }
        if has(CONTROL) {
            return Ok(Found::Database);
        }
        if has(CONTROL_BACKUP) {
            // Whoever makes it has it locked.
            if matches!(self.disk.lock_shared(&self.path(LOCK)), Ok(None)) {
                return Err(StorageError::AlreadyOpen { path: self.directory.to_owned() });
            }
            return Err(self.stranger("it is a backup that was not finished; remove it, and make another"));
        }
        let known = [LOCK, CONTROL_NEW, DATA, LOG];
        if names.len() != paths.len() || !names.iter().all(|name| known.contains(name)) {
            return Err(self.stranger("it has no control file, but other files"));
        }
        if !has(CONTROL_NEW) && has(DATA) && has(LOG) {
            return Err(missing(self.path(CONTROL), "and with it the place of the last checkpoint", SALVAGE));
        }
        if !has(CONTROL_NEW) && (has(DATA) || has(LOG)) {
            return Err(self.stranger("it has no control file, but other files"));
        }
        Ok(Found::Beginning)
    }

    fn make_directory(&self) -> Result<()> {
        self.disk.create_directory(self.directory).map_err(StorageError::io("make", self.directory))
    }

    /// Makes a database where there is none, or half of one. The lock is held.
    fn create(&self) -> Result<Core> {
        sync_parent(&**self.disk, self.directory)?;
        self.throw_away_the_half()?;
        let new = self.path(CONTROL_NEW);
        let content = Control::new(random::seed());
        let mut control = ControlFile::create(&**self.disk, &new, content)?;
        self.sync(self.directory)?;

        let log_directory = self.path(LOG);
        self.disk.create_directory(&log_directory).map_err(StorageError::io("make", &log_directory))?;
        self.sync(self.directory)?;
        let disk = || Arc::clone(self.disk);
        let log = Log::create(disk(), &log_directory, content.database_id, &self.options.log)?;
        let pool = BufferPool::create(self.disk, &self.path(DATA), Arc::clone(&log), &self.options.pool)?;
        let below = Below { log, pool, complete: false };
        let trees = self.trees(&below);
        let catalog = BTree::create(&trees, TableId::CATALOG)?;
        let overflow = BTree::create(&trees, TableId::OVERFLOW)?;
        control.set_roots(catalog.root(), overflow.root());
        trees.set_overflow(&overflow);
        let known = Known { next_txn: 1, prepared_locks: 0, recovery: RecoveryReport::default() };
        let core = self.assemble(&below, trees, catalog, control, known);
        core.checkpoint()?;

        core.control.lock().rename(&**self.disk, &self.path(CONTROL))?;
        self.sync(self.directory)?;
        below.keep();
        Ok(core)
    }

    /// Removes what an interrupted making has left. `control.new` stays, to say so until it is written anew.
    fn throw_away_the_half(&self) -> Result<()> {
        let (log_directory, data) = (self.path(LOG), self.path(DATA));
        if self.exists(&log_directory)? {
            let paths = self.disk.list(&log_directory).map_err(StorageError::io("list", &log_directory))?;
            for path in paths {
                self.disk.remove(&path).map_err(StorageError::io("remove", &path))?;
            }
            self.sync(&log_directory)?;
        }
        if self.exists(&data)? {
            self.disk.remove(&data).map_err(StorageError::io("remove", &data))?;
        }
        self.sync(self.directory)
    }

    /// Opens a complete database and recovers it. The lock is held.
    fn open_existing(&self) -> Result<Core> {
        let mut control = ControlFile::open(&**self.disk, &self.path(CONTROL))?;
        // TXN-40: before anything is built on them.
        self.sync(self.directory)?;
        control.write_again()?;
        let content = control.content();
        for (name, lost, more) in [
            (DATA, "and with it all that the log does not have any more", ""),
            (LOG, "and with it what was committed since the last checkpoint", SALVAGE),
        ] {
            let path = self.path(name);
            if !self.exists(&path)? {
                return Err(missing(path, lost, more));
            }
        }
        let disk = || Arc::clone(self.disk);
        let log =
            Log::open(disk(), &self.path(LOG), content.database_id, content.log_from, &self.options.log)?;
        let pool = PoolOptions { transient: self.options.read_only, ..self.options.pool.clone() };
        let pool = match BufferPool::open(self.disk, &self.path(DATA), Arc::clone(&log), &pool) {
            Ok(pool) => pool,
            Err(error) => {
                // The error that counts is the first.
                let _ = log.close();
                return Err(error);
            }
        };
        let below = Below { log, pool, complete: false };
        let swept = below.pool.opened_horizon();
        if swept < content.redo {
            let detail = format!(
                "it is an older copy: it knows checkpoints up to {swept}, not that of {}",
                content.redo
            );
            return Err(StorageError::corrupt_file(self.path(DATA), detail));
        }
        control.upgrade()?;
        let trees = self.trees(&below);
        trees.set_overflow(&BTree::open(&trees, TableId::OVERFLOW, content.overflow_root));
        let observer = self.options.recovery_observer.as_ref();
        let history = recovery::repeat_history(&below.log, &below.pool, &trees, &content, observer)?;
        let catalog = BTree::open(&trees, TableId::CATALOG, content.catalog_root);
        let known = Known {
            next_txn: history.next_txn,
            prepared_locks: history.prepared_locks(&below.log)?,
            recovery: history.report(),
        };
        let mut core = self.assemble(&below, trees, catalog, control, known);
        recovery::undo_losers(&mut core, history, observer)?;
        core.growth.set_target(self.target(&core.log, &core.recovery));
        below.keep();
        Ok(core)
    }

    fn target(&self, log: &Log, recovery: &RecoveryReport) -> Target {
        let options = self.options;
        // Whatever of it is images: appends are refused at three eighths of the capacity, and the log cannot be
        // shortened before a checkpoint is complete.
        let most = log.capacity_bytes() / 8;
        Target::new(options.checkpoint_bytes, most, options.recovery_target, recovery)
    }

    fn trees(&self, below: &Below) -> Arc<TreeEnv> {
        let trees = TreeEnv::new(
            Arc::clone(&below.pool),
            Arc::clone(&below.log),
            self.options.node_capacity,
            self.options.latch_mode,
        );
        if self.options.read_only {
            // TXN-32.
            trees.rest();
        }
        trees
    }

    fn assemble(
        &self,
        below: &Below,
        trees: Arc<TreeEnv>,
        catalog: BTree,
        control: ControlFile,
        Known { next_txn, prepared_locks, recovery }: Known,
    ) -> Core {
        let content = control.content();
        let life = Life::new(&below.log);
        let locks = LockOptions {
            seed: content.database_id,
            lifeline: Some(life.lifeline()),
            // What others have under this limit is not less for them; nor do they count for that of a transaction.
            max_locks: self.options.locks.max_locks.saturating_add(prepared_locks),
            ..self.options.locks.clone()
        };
        let options = EngineOptions {
            recovery_observer: None,
            pipeline_length: self.options.pipeline_length.clamp(1, MAX_PIPELINE_LENGTH),
            ..self.options.clone()
        };
        Core {
            number: number::next(),
            options,
            log: Arc::clone(&below.log),
            pool: Arc::clone(&below.pool),
            trees,
            locks: StripedArc::new(LockManager::new(&locks)),
            transactions: TxnTable::new(MAX_TRANSACTIONS, next_txn),
            catalog: Catalog::new(catalog, content.overflow_root),
            makers: Makers::default(),
            growth: Growth::new(self.target(&below.log, &recovery), content.redo),
            committer: Committer::default(),
            backups: Pins::default(),
            prepared: PreparedTable::default(),
            control: Mutex::new(control),
            file_end: FileEnd::default(),
            stats: Counters::new(),
            recovery,
            settled: Settled::new(),
            stale_reads: StaleReadCounters::new(),
            unpurged: Unpurged::default(),
            cut_off: AtomicUsize::new(0),
            life,
        }
    }
}

/// What is known of the transactions that there were.
struct Known {
    next_txn: u64,
    /// Locks that prepared ones get back.
    prepared_locks: usize,
    recovery: RecoveryReport,
}

/// Log and pool while the rest is being opened: their threads are stopped if that fails.
struct Below {
    log: Arc<Log>,
    pool: Arc<BufferPool>,
    complete: bool,
}

impl Below {
    /// Opening has succeeded.
    fn keep(mut self) {
        self.complete = true;
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        if !self.complete {
            self.pool.close();
            // The error that counts is the one that led here.
            let _ = self.log.close();
        }
    }
}
