//! The engine: everything below the typed facade.

mod close;
mod open;

use std::{
    fmt,
    ops::ControlFlow,
    panic::Location,
    path::{Path, PathBuf},
};

use foreshore_base::{Lsn, Result, StorageError, TableId, limits::MAX_TABLE_NAME_BYTES};
use foreshore_env::{
    Handle, StripedArc,
    disk::{Disk, Overlay},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};
use foreshore_lock::{Age, LockManager};
use foreshore_pages::BufferPool;
use foreshore_wal::Log;

use crate::{
    backup::{Backup, BackupProgress, BackupReport},
    catalog::{self, TableInfo},
    checkpoint::run_checkpointer,
    committer::run_committer,
    compact::{self, CompactReport},
    core::Core,
    error::TxnError,
    insist::insist,
    options::{BeginOptions, EngineOptions},
    pipeline::Pipeline,
    retention::LogRetention,
    stats::EngineStats,
    transaction::{Txn, Waiting},
    verify::{self, VERIFY_WAIT, VerifyReport},
};

use close::{Running, Standing};
pub(crate) use open::{CONTROL, CONTROL_BACKUP, DATA, LOCK, LOG, sync_parent};

/// Memory for what differs from the files of a database that is open to be read.
pub const READ_ONLY_BYTES: u64 = 1 << 30;

/// How long a drop, or whoever renames a table, waits until nobody uses it.
pub const DROP_WAIT: Duration = Duration::from_secs(60);

/// An open database. Transactions keep it open; when the last user lets it go, it closes itself.
pub struct Engine {
    core: StripedArc<Core>,
    /// What closing has to end. Guarded by the mutex, which is held for the length of a close: a second one waits for
    /// the first.
    standing: Mutex<Standing>,
    /// Where the database is, or seems to be.
    disk: Arc<dyn Disk>,
    /// Where it is there.
    directory: PathBuf,
    /// Where its backups are made.
    backup_disk: Arc<dyn Disk>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("core", &self.core).finish_non_exhaustive()
    }
}

impl Engine {
    /// Opens the database in a directory, recovers it from a crash, or makes it when there is none (and the options say
    /// so). Whatever is no database of ours is left as it is.
    pub fn open(disk: Arc<dyn Disk>, directory: &Path, options: &EngineOptions) -> Result<Arc<Engine>> {
        let own = if options.read_only {
            Arc::new(Overlay::new(Arc::clone(&disk), options.read_only_bytes))
        } else {
            Arc::clone(&disk)
        };
        Engine::open_over(disk, own, directory, options)
    }

    /// Makes a database that lies in memory, and is gone when it is closed. Its backups are made on `disk`. `name`: its
    /// directory, in errors.
    pub fn open_in_memory(disk: Arc<dyn Disk>, name: &Path, options: &EngineOptions) -> Result<Arc<Engine>> {
        Engine::open_over(disk, Arc::new(Overlay::of_nothing()), name, options)
    }

    fn open_over(
        backup_disk: Arc<dyn Disk>,
        disk: Arc<dyn Disk>,
        directory: &Path,
        options: &EngineOptions,
    ) -> Result<Arc<Engine>> {
        let opened = open::open(&disk, directory, options)?;
        let core = Arc::new(opened.core);
        core.transactions.name_for_simulation();
        if !core.catalog.dropped().is_empty() && !core.options.read_only {
            core.growth.ask_reaper();
        }
        let start = |name: &str, life: fn(&Arc<Core>)| {
            let core = Arc::clone(&core);
            let thread = thread::Builder::new().name(format!("foreshore-{name}")).spawn(move || life(&core));
            thread.map_err(StorageError::io(format!("start the {name} thread of"), directory))
        };
        let started = start("checkpoint", run_checkpointer)
            .and_then(|checkpointer| Ok((checkpointer, start("commit", run_committer)?)));
        match started {
            Ok((checkpointer, committer)) => {
                let running = Running { checkpointer, committer, _lock: opened.lock };
                let directory = directory.to_owned();
                let core = StripedArc::new(core);
                let standing = Mutex::new(Standing::Open(running));
                Ok(Arc::new(Engine { core, standing, disk, directory, backup_disk }))
            }
            Err(error) => {
                // The error that counts is the first. A checkpointer that runs finds the engine closed.
                core.stop();
                let _ = core.shut_down();
                Err(error)
            }
        }
    }

    #[inline]
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// For what outlives transactions, without keeping the database open; counted at this place.
    pub(crate) fn share_core(&self, place: usize) -> Handle<Core> {
        self.core.handle(place)
    }

    /// A pipeline: a session whose transactions do not wait for their flushes.
    pub fn pipeline(self: &Arc<Engine>) -> Pipeline {
        Pipeline::new(Handle::alone(self))
    }

    /// Begins a transaction. Reports name the caller.
    #[track_caller]
    pub fn begin(self: &Arc<Engine>, options: BeginOptions) -> Result<Txn, TxnError> {
        self.begin_with(options, |_| Arc::clone(self).into())
    }

    /// As [`Engine::begin`] of `engine`, for many threads: the transaction's reference to it is counted where its slot
    /// is.
    #[inline]
    #[track_caller]
    pub fn begin_striped(engine: &StripedArc<Engine>, options: BeginOptions) -> Result<Txn, TxnError> {
        engine.begin_with(options, |place| engine.handle(place))
    }

    /// `handle` gives the reference to this engine for a transaction at that place.
    #[inline]
    #[track_caller]
    pub(crate) fn begin_with(
        &self,
        options: BeginOptions,
        handle: impl FnOnce(usize) -> Handle<Engine>,
    ) -> Result<Txn, TxnError> {
        self.core.check_open()?;
        let BeginOptions { age, priority, label, wanted_at, seldom_locks } = options;
        let transactions = &self.core.transactions;
        let identify = |place| {
            let txn = if seldom_locks { transactions.draw_at(place) } else { transactions.draw() };
            (txn, Age::new(age.unwrap_or(txn.0), priority))
        };
        let at = wanted_at.unwrap_or(Location::caller());
        let owner = LockManager::begin_striped(&self.core.locks, identify, label, at)?;
        let age = age.unwrap_or(owner.txn().0);
        Ok(Txn::new(handle(owner.place()), owner, age))
    }

    /// The table of this name. Costs a look into a map: keep what it gives.
    pub fn table(&self, name: &str) -> Result<Option<TableInfo>> {
        self.core.check_open()?;
        Ok(self.core.catalog.get(name))
    }

    /// The table of this name, made if it is not there, with `meta` as its description. Durable when this returns, by a
    /// transaction of its own. A table that is there already keeps its description: compare it.
    pub fn create_table(self: &Arc<Engine>, name: &str, meta: &[u8]) -> Result<TableInfo, TxnError> {
        self.create_table_within(name, meta, None)
    }

    /// [`Engine::create_table`], which waits for a lock no longer than `timeout`.
    pub fn create_table_within(
        self: &Arc<Engine>,
        name: &str,
        meta: &[u8],
        timeout: Option<Duration>,
    ) -> Result<TableInfo, TxnError> {
        self.core.check_open()?;
        let engine = Handle::from(Arc::clone(self));
        let waiting = Waiting { timeout, ..Waiting::default() };
        insist(catalog::MAKING, &waiting, |begin| {
            catalog::create_table(&engine, name, meta, &begin, false, &waiting)
        })
    }

    /// How large the log's segments are of the database in a directory, if there is one that says it. Opens no
    /// database.
    pub fn log_segment_bytes(disk: &dyn Disk, directory: &Path) -> Option<u64> {
        let has = |name| disk.exists(&directory.join(name)).unwrap_or(false);
        if has(open::CONTROL_NEW) && !has(CONTROL) {
            // In the making: that log is thrown away.
            return None;
        }
        Log::segment_bytes_in(disk, &directory.join(LOG)).ok()?
    }

    /// Drops the table of this name, durably, by a transaction of its own; false if there is none. Waits, at most
    /// [`DROP_WAIT`], until no transaction uses it. Its pages are freed in the background.
    pub fn drop_table(self: &Arc<Engine>, name: &str) -> Result<bool, TxnError> {
        self.drop_table_within(name, DROP_WAIT)
    }

    /// As [`Engine::drop_table`], with another limit to the wait.
    pub fn drop_table_within(self: &Arc<Engine>, name: &str, wait: Duration) -> Result<bool, TxnError> {
        self.core.check_open()?;
        // Before the wait: what reads would hold it up, and nothing could come of it.
        self.core.check_writable()?;
        catalog::drop_table(self, name, wait)
    }

    /// Gives the table `from` the name `to`, durably, by a transaction of its own. Waits, at most so long, until no
    /// transaction uses the table; handles of the table say that it is gone then.
    pub fn rename_table_within(
        self: &Arc<Engine>,
        from: &str,
        to: &str,
        wait: Duration,
    ) -> Result<(), TxnError> {
        self.core.check_open()?;
        self.core.check_writable()?;
        catalog::rename_table(self, from, to, wait)
    }

    /// All tables, by name.
    pub fn tables(&self) -> Result<Vec<TableInfo>> {
        self.core.check_open()?;
        Ok(self.core.catalog.all())
    }

    /// The table of this id. Of a closed engine, too: for messages.
    pub fn table_by_id(&self, table: TableId) -> Option<TableInfo> {
        self.core.catalog.by_id(table)
    }

    /// Makes durable whatever has been committed when this is called.
    pub fn flush(&self) -> Result<()> {
        self.core.check_open()?;
        // The end of the newest record, whoever's it is.
        self.core.log.flush(Lsn(self.core.log.tail().0 - 1))
    }

    /// Takes a checkpoint: recovery after a crash begins here then, and the log is shortened.
    ///
    /// # Errors
    /// `LogFull` while open transactions need more of the log than work may fill: what is left is kept for their
    /// rollbacks.
    pub fn checkpoint(&self) -> Result<()> {
        self.core.check_open()?;
        self.core.check_writable()?;
        self.core.checkpoint()
    }

    /// Makes a copy of the database in `target`, a directory that is absent, empty, or has what a backup has left that
    /// failed before its first page, while others go on; durable when this returns. It has all that was committed
    /// durably when this was called, and some of what was committed until it returns, as one state. `progress` is told
    /// now and then, and may break off.
    ///
    /// # Errors
    /// [`TxnError::BackupStopped`] when it was broken off, or kept more than a quarter of what the log may hold, beyond
    /// what others need, or kept so much that others had no room; `Corrupted` for a page that is, or a record of the
    /// log; `Io` of kind `InvalidInput` for a target in the database itself. What is in `target` after any error is no
    /// database, and says so, unless not even `control.backup` could be made.
    pub fn backup(
        &self,
        target: &Path,
        progress: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
    ) -> Result<BackupReport, TxnError> {
        let own = (&*self.disk, &*self.directory);
        Backup { core: &self.core, own, disk: &self.backup_disk, target, progress }.run()
    }

    /// Gives space back while the database is used: merges leaves, moves pages from the end of the data file to free
    /// ones before, and cuts the file. What others have in use stays where it is. `progress` is told after each of many
    /// small steps, and may stop it: what was done stays done, and once pages move, the file is cut as far as that
    /// goes. One at a time; a second one waits for the first, and for a backup that copies pages, a minute at most.
    ///
    /// # Errors
    /// [`TxnError::Busy`] after that minute, or at once if the thread that calls is itself in the other's `progress`.
    /// What was done until an error stays done, and is sound.
    pub fn compact(
        self: &Arc<Engine>,
        progress: &mut dyn FnMut(CompactReport) -> ControlFlow<()>,
    ) -> Result<CompactReport, TxnError> {
        self.core.check_open()?;
        self.core.check_writable()?;
        compact::compact(self, progress)
    }

    /// Checks everything that can be checked: trees, free space, the log. Waits until nobody is writing (at most
    /// [`VERIFY_WAIT`], then it fails with the names of those who are), and lets nobody write meanwhile.
    pub fn verify(self: &Arc<Engine>) -> Result<VerifyReport, TxnError> {
        self.verify_within(VERIFY_WAIT)
    }

    /// As [`Engine::verify`], with another limit to the wait.
    pub fn verify_within(self: &Arc<Engine>, wait: Duration) -> Result<VerifyReport, TxnError> {
        self.core.check_open()?;
        verify::verify(self, wait)
    }

    /// The engine in numbers.
    pub fn stats(&self) -> EngineStats {
        self.core.collect_stats()
    }

    /// Transactions committed since it was opened, readers too: cheaper than [`Engine::stats`].
    pub fn commits(&self) -> u64 {
        self.core.commits()
    }

    /// Who holds the log.
    pub fn log_retention(&self) -> LogRetention {
        self.core.log_retention()
    }

    /// Asks for a checkpoint that shortens the log, in the background; from where on the log is kept until then.
    pub fn ask_for_log_room(&self) -> Lsn {
        let low_water = self.core.log.low_water();
        self.core.growth.ask_room(low_water);
        low_water
    }

    /// The lock manager.
    pub fn locks(&self) -> &Arc<LockManager> {
        self.core.locks.whole()
    }

    /// The log.
    pub fn log(&self) -> &Arc<Log> {
        &self.core.log
    }

    /// The buffer pool.
    pub fn pool(&self) -> &Arc<BufferPool> {
        &self.core.pool
    }

    /// Whether anything can be done with it.
    ///
    /// # Errors
    /// The engine is closed, has stopped, or belongs to the process that this one is a fork of.
    pub fn check_open(&self) -> Result<()> {
        self.core.check_open()
    }

    /// Whether this process is a fork of the one that opened the database: nothing can be done with it here.
    pub fn is_forked(&self) -> bool {
        self.core.life.check_process().is_err()
    }
}

const _: () = assert!(MAX_TABLE_NAME_BYTES <= foreshore_base::limits::MAX_KEY_BYTES);
