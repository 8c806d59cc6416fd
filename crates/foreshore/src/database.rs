//! An open database.

pub(crate) mod builder;
mod end;
mod partition;
mod prepared;
mod tables;
mod verify;

use std::{
    fmt,
    panic::Location,
    path::{Path, PathBuf},
};

use foreshore_base::StorageError;
use foreshore_env::{
    StripedArc,
    sync::{Arc, Mutex, OnceLock},
    time::Instant,
};
use foreshore_orthrus::Partitions;
use foreshore_txn::{Engine, LogRetention, Txn, TxnError};

use crate::{
    admission::Admission,
    error::{Error, Result},
    log_turn::LogTurns,
    options::Options,
    pipeline::Pipeline,
    plan::{Execution, Plan, Planner, Steps},
    report::Stats,
    table::{TableCache, TableDescription},
    transact::{self, PlaceQueue, Session, TransactOptions},
    transaction::Transaction,
};
use builder::Builder;

/// An open database. Clones share it: give each thread its own clone. It is closed when the last clone and the last
/// transaction are gone, or by [`Database::close`], which alone can tell that something went wrong then: call it, or
/// [`Database::flush`], behind lazy or pipelined commits. What is never closed is recovered by the next opening.
#[derive(Clone)]
pub struct Database {
    inner: Arc<StripedArc<Inner>>,
}

/// What all clones and transactions share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) engine: StripedArc<Engine>,
    pub(crate) tables: TableCache,
    options: Options,
    /// What lets transactions in, unless the options say that nothing does.
    pub(crate) admission: Option<Admission>,
    pub(crate) log_turns: LogTurns,
    pub(crate) place_queue: PlaceQueue,
    pub(crate) path: PathBuf,
    /// The threads of partitioned execution, from their first transaction on: every submission looks, so it is no
    /// mutex.
    pub(crate) partitions: OnceLock<Arc<Partitions>>,
    /// Held while they are started, and by whoever closes until they are.
    pub(crate) starts_partitions: Mutex<()>,
}

impl Inner {
    pub(crate) fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    #[cold]
    pub(crate) fn error(&self, error: StorageError) -> Error {
        Error::from_storage(error, &self.path)
    }
}

impl Database {
    /// Opens the database in a directory, which it makes when it is absent or empty. A database that was not closed in
    /// good order is recovered: what was committed is there, and of the rest nothing.
    ///
    /// One process at a time may have it open for writing, once: [`Error::AlreadyOpen`] otherwise. A fork of it has
    /// not: it gets [`Error::Forked`] for whatever it tries, and the process itself goes on unharmed. Anything that is
    /// not a database is left as it is: [`Error::NotADatabase`].
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open(directory: impl AsRef<Path>) -> Result<Database> {
        Database::builder().open(directory)
    }

    /// A database that lies in memory, for tests and for what need not be kept: see [`Builder::open_in_memory`].
    ///
    /// ```
    /// # use foreshore::{Database, TableDefinition};
    /// # const ACCOUNTS: TableDefinition<&str, i64> = TableDefinition::new("accounts");
    /// let db = Database::in_memory()?;
    /// db.transact(|tx| tx.put(ACCOUNTS, "alice", 10))?;
    /// assert_eq!(db.read(|tx| tx.get(ACCOUNTS, "alice"))?, Some(10));
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Builder::open_in_memory`].
    pub fn in_memory() -> Result<Database> {
        Database::builder().open_in_memory()
    }

    /// For more than the default [`Options`].
    ///
    /// ```
    /// # use foreshore::Database;
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Database::builder().pool_bytes(16 << 20).set("durability", "lazy")?.open(directory.path())?;
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Runs a transaction: calls `body`, and commits when it returns `Ok`, durably when this returns. When `body`
    /// fails or panics, everything it did is undone. When the transaction was the victim of a deadlock, it runs again
    /// (see [`TransactOptions::retries`]), in its old place in the order of age, so that its turn comes.
    ///
    /// So `body` may run several times: let it do nothing outside of the transaction that may not happen twice.
    ///
    /// A transaction that `body` begins on its own thread is another one, which commits or fails by itself, and waits
    /// for the locks of the outer one as for anybody's: nobody gives those back before it has ended, and nobody sees
    /// that. So each of its waits for a lock ends after 10 s ([`Error::LockTimeout`]), also where it is one of another
    /// database, unless options say when; the error says where that limit is from
    /// ([`within_body`](crate::RefusedLock::within_body)).
    ///
    /// ```
    /// # use foreshore::{Database, Error, TableDefinition};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// const ACCOUNTS: TableDefinition<&str, i64> = TableDefinition::new("accounts");
    ///
    /// let result = db.transact(|tx| {
    ///     let balance = tx.get_for_update(ACCOUNTS, "alice")?.unwrap_or(0) - 10;
    ///     if balance < 0 {
    ///         return Err(Error::application("alice has not enough"));
    ///     }
    ///     tx.put(ACCOUNTS, "alice", balance)?;
    ///     Ok(balance)
    /// });
    /// assert!(matches!(result, Err(Error::Application(_))));
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// # Errors
    /// What `body` fails with; [`Error::RetriesExhausted`] if it was a victim too often, or at its deadline, and
    /// [`Error::LockTimeout`] if it was refused a wait for as long as it may last; what
    /// [`Database::begin`] and [`Transaction::commit`] fail with. [`Error::TooManyTransactions`] comes when it has
    /// waited for one to end, for 10 s or until the deadline, to have a place itself or for a table that `body` makes,
    /// which takes one of its own; at once with [`TransactOptions::no_wait`], and in a [`Pipeline`] for itself. After
    /// any but [`Error::OutcomeUnknown`] nothing of it is committed.
    #[track_caller]
    pub fn transact<R>(&self, body: impl FnMut(&mut Transaction) -> Result<R>) -> Result<R> {
        self.transact_with(&TransactOptions::default(), body)
    }

    /// [`Database::transact`] with a deadline, another durability or isolation, and so on.
    ///
    /// # Errors
    /// As [`Database::transact`].
    #[track_caller]
    pub fn transact_with<R>(
        &self,
        options: &TransactOptions,
        body: impl FnMut(&mut Transaction) -> Result<R>,
    ) -> Result<R> {
        let planner = self.planner(options);
        let committed =
            transact::run(Session::Alone(self), options, planner, body, Transaction::commit_in_place);
        committed.map(|(result, ())| result)
    }

    /// A transaction whose locks are asked for before it runs: see [`Plan`].
    ///
    /// ```
    /// # use foreshore::{Database, TableDefinition};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// const STOCK: TableDefinition<u32, u32> = TableDefinition::new("stock");
    /// const ORDERS: TableDefinition<u64, u32> = TableDefinition::new("orders");
    ///
    /// let order = db.plan().write(STOCK, 7).read_range(ORDERS, ..).run(|tx| {
    ///     let next = tx.last(ORDERS)?.map_or(0, |(order, _)| order + 1);
    ///     let left = tx.get(STOCK, 7)?.unwrap_or(100) - 1;
    ///     tx.put(STOCK, 7, left)?;
    ///     tx.put(ORDERS, next, 7)?;
    ///     Ok(next)
    /// })?;
    /// # assert_eq!(order, 0);
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    pub fn plan(&self) -> Plan<'_> {
        Plan::new(self)
    }

    /// Begins a transaction, to be ended by [`Transaction::commit`] or [`Transaction::rollback`].
    ///
    /// While it is open it holds the locks of everything that it touched: a transaction that waits for a person, or for
    /// another thread that waits for it, makes everybody wait. A second transaction that its thread begins meanwhile
    /// may wait for a lock of the first. No detector sees that the same thread has to end both, nor a cycle that goes
    /// through two databases: without a deadline or a lock timeout such a wait lasts for ever.
    ///
    /// Nobody runs it again after a deadlock ([`Error::is_retryable`]). Whoever does hands its age on: work that begins
    /// as the youngest each time may give way for ever. As here, without [`ReadMode::Hybrid`](crate::ReadMode::Hybrid):
    ///
    /// ```
    /// # use foreshore::{Database, Error, Result, TableDefinition, TransactOptions, Transaction};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// # const STOCK: TableDefinition<u32, u32> = TableDefinition::new("stock");
    /// # let statements = |tx: &mut Transaction| tx.put(STOCK, 7, 1);
    /// let mut options = TransactOptions::default();
    /// loop {
    ///     let mut tx = db.begin_with(&options)?;
    ///     options.age = Some(tx.age());
    ///     match statements(&mut tx) {
    ///         Ok(_) => break tx.commit()?,
    ///         Err(error) if error.is_retryable() => tx.rollback()?,
    ///         Err(error) => return Err(error),
    ///     }
    /// }
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooManyTransactions`], at once, or, in a database that runs submitted transactions, if that many are
    /// open for a tenth of a second; or the database is closed, has stopped, or belongs to another process
    /// ([`Error::Closed`], [`Error::Poisoned`], [`Error::Forked`]).
    #[track_caller]
    pub fn begin(&self) -> Result<Transaction> {
        self.begin_with(&TransactOptions::default())
    }

    /// [`Database::begin`] with a deadline, a label, and so on.
    ///
    /// # Errors
    /// As [`Database::begin`].
    #[track_caller]
    pub fn begin_with(&self, options: &TransactOptions) -> Result<Transaction> {
        let (reads, deadline) = (options.read_mode.unwrap_or_default(), options.deadline_from_now());
        let at = Location::caller();
        let begin = || Session::Alone(self).begin(options, reads, deadline, None, at);
        match begin() {
            Err(Error::TooManyTransactions { .. }) if !options.no_wait => {
                self.begin_when_locks_are_back(deadline, begin)
            }
            begun => begun,
        }
    }

    /// Sets up a transaction that has just begun, alone or in a pipeline.
    pub(crate) fn begun(
        &self,
        begun: Result<Txn, TxnError>,
        options: &TransactOptions,
        deadline: Option<Instant>,
    ) -> Result<Transaction> {
        let inner = &self.inner;
        let txn = begun.map_err(|error| Error::from_operation(error, inner))?;
        let durability = options.durability.unwrap_or(inner.options.durability);
        let database = inner.handle(txn.place());
        let mut tx = Transaction::new(txn, database, durability);
        tx.set_up(options, &inner.options, deadline);
        Ok(tx)
    }

    /// What plans the transactions of these options, if they are planned.
    pub(crate) fn planner(&self, options: &TransactOptions) -> Option<Planner<'static>> {
        match options.execution.unwrap_or(self.inner.options.execution) {
            Execution::Dynamic => None,
            Execution::Planned => Some(Planner::new(Steps::default())),
        }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.inner.engine.whole()
    }

    /// A session whose transactions do not wait for the disk: see [`Pipeline`].
    pub fn pipeline(&self) -> Pipeline {
        Pipeline::new(self.clone(), self.engine().pipeline())
    }

    /// Makes a table whose types are known by their names only, or does nothing when it is there with these types: for
    /// tools, which use it through [`TableDefinition::encoded`](crate::TableDefinition::encoded). Where others have
    /// locked what it needs, it waits, and where it has to give way to them, it tries again, for as long as that takes.
    ///
    /// # Errors
    /// [`Error::TypeMismatch`] if it is there with other types; [`Error::LimitExceeded`] for the name, for the names of
    /// the types, or if there are as many tables as there may be; [`Error::ReadOnly`]; [`Error::LockTimeout`] within
    /// the body of a transaction, which may have locked what this one needs; [`Error::OutcomeUnknown`] if the log fails
    /// between the commit and its confirmation; as any transaction that writes, [`Error::LogFull`], [`Error::LogHeld`],
    /// [`Error::DiskFull`], [`Error::LimitExceeded`] if the data file is as large as it may be,
    /// [`Error::TooManyTransactions`], [`Error::PoolExhausted`], [`Error::Corrupted`], [`Error::Io`],
    /// [`Error::Closed`], [`Error::Poisoned`], [`Error::Forked`].
    pub fn create_table(&self, name: &str, key_type: &str, value_type: &str) -> Result<TableDescription> {
        self.inner.named_table(name, (key_type, value_type), None).map(|info| TableDescription::of(&info))
    }

    /// Counters since the database was opened, and sizes as they are. All are 0 in a fork of the process that opened
    /// it.
    pub fn stats(&self) -> Stats {
        if self.engine().is_forked() {
            return Stats::default();
        }
        Stats::of(
            &self.inner.engine.stats(),
            self.inner.admission.as_ref(),
            self.partition_threads(),
            self.partition_stats(),
        )
    }

    /// What holds the log: what must end, or be written, before it can be shortened. Empty in a fork of the process
    /// that opened the database.
    pub fn log_retention(&self) -> LogRetention {
        if self.engine().is_forked() {
            return LogRetention::default();
        }
        self.inner.engine.log_retention()
    }

    /// Makes durable what has been committed so far: every commit that has returned when this is called, a
    /// [`Durability::Lazy`](crate::Durability::Lazy) or pipelined one too, survives any crash when this returns. Waits
    /// for one sync of the log, or for none if all of it is durable; others go on.
    ///
    /// ```
    /// # use foreshore::{Database, Durability, TableDefinition, TransactOptions};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// const EVENTS: TableDefinition<u64, &str> = TableDefinition::new("events");
    ///
    /// let lazy = TransactOptions { durability: Some(Durability::Lazy), ..TransactOptions::default() };
    /// for number in 0..1000 {
    ///     db.transact_with(&lazy, |tx| tx.put(EVENTS, number, "seen"))?;
    /// }
    /// db.flush()?; // all of them are on the disk
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the log cannot be written, or has failed before: the database has stopped.
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn flush(&self) -> Result<()> {
        self.inner.engine.flush().map_err(|error| self.inner.error(error))
    }

    /// Writes changed pages, so that the log can be shortened and the next opening has less to do. Made by itself now
    /// and then; see [`Options::checkpoint_bytes`].
    ///
    /// # Errors
    /// [`Error::LogFull`] while open transactions need more of the log than work may fill
    /// ([`LogRetention::work_bytes`](crate::LogRetention::work_bytes)): what is left is kept for their rollbacks, and
    /// they have to end first. [`Error::ReadOnly`], [`Error::Closed`], [`Error::Forked`]; or of the disk, and if the
    /// log cannot be written the database stops ([`Error::Poisoned`]).
    pub fn checkpoint(&self) -> Result<()> {
        let taken = self.inner.engine.checkpoint();
        taken.map_err(|error| Error::from_operation(error.into(), &self.inner))
    }

    /// The directory, as it was named when the database was opened; `(in memory)` if it has none.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// The options that it was opened with.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("path", &self.inner.path).finish_non_exhaustive()
    }
}
