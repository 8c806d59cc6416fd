//! A transaction as its owner uses it.

mod barren;
mod change;
mod company;
mod cursor;
mod escalation;
mod intents;
mod log_room;
mod long_values;
mod making;
mod parted;
mod planned;
mod reconnaissance;
mod savepoint;
mod session;
mod together;
mod unlocked;
mod waiting;

use foreshore_base::{Lsn, Result, StorageError, TxnId};
use foreshore_btree::{BTree, Isolation, TreeError};
use foreshore_env::{
    Handle,
    time::{Duration, Instant},
};
use foreshore_lock::{CancelToken, IntentMode, LockError, LockOwner};

use crate::{catalog::TableInfo, engine::Engine, error::TxnError, pipeline::Place, rollback};

pub use cursor::TxnCursor;
pub(crate) use long_values::{LongValues, PURGE_WAIT, Unpurged};
pub use parted::{Advance, Parted};
use reconnaissance::Wish;
use savepoint::Savepoints;
pub use savepoint::{MAX_SAVEPOINTS, Position, Savepoint};
pub(crate) use session::TxnSession;
pub(crate) use unlocked::StaleReadCounters;
pub(crate) use waiting::Waiting;

/// How often a change is tried again after a checkpoint has made room in the log.
pub(crate) const LOG_FULL_RETRIES: usize = 4;

/// A transaction. Dropping it rolls it back.
///
/// Every operation that fails leaves no trace of itself (its locks stay until the end). Values that a transaction reads
/// are guaranteed to be committed and durable only when its own [`Txn::commit`] with [`crate::Durability::Sync`] has
/// returned.
#[derive(Debug)]
pub struct Txn {
    pub(crate) session: TxnSession,
    age: u64,
    isolation: Isolation,
    /// Why it must be rolled back.
    failed: Option<Failure>,
    /// The transaction has done nothing yet, and its locks are away: other threads ask for them.
    away: bool,
    /// Nothing is left to do: its last record is written, its locks are gone.
    pub(crate) finished: bool,
    savepoints: Savepoints,
    making: making::Making,
    /// Its place in a pipeline, until it has ended.
    pub(crate) pipeline: Option<Place>,
}

/// What a transaction can only be rolled back after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// It had to give way in a deadlock.
    Victim,
    /// It has left its plan.
    PlanMiss,
    /// What it has read without locks was changed by others.
    StaleReads,
}

impl Txn {
    pub(crate) fn new(engine: Handle<Engine>, owner: LockOwner, age: u64) -> Txn {
        Txn {
            session: TxnSession::new(engine, owner),
            age,
            isolation: Isolation::Serializable,
            failed: None,
            away: false,
            finished: false,
            savepoints: Savepoints::default(),
            making: making::Making::default(),
            pipeline: None,
        }
    }

    pub(crate) fn in_pipeline(engine: Handle<Engine>, owner: LockOwner, age: u64, place: Place) -> Txn {
        let mut txn = Txn::new(engine, owner, age);
        txn.pipeline = Some(place);
        txn
    }

    /// Its id: ids grow in the order of `begin`, but for those of [`crate::BeginOptions::seldom_locks`].
    pub fn id(&self) -> TxnId {
        self.session.txn()
    }

    /// Its place among the transactions that are open, for handles that are counted there: most often that of the one
    /// which its thread had before.
    #[inline]
    pub fn place(&self) -> usize {
        self.session.owner.place()
    }

    /// Its age for the choice of deadlock victims: to be handed to [`crate::BeginOptions::age`] when it is run again.
    pub fn age(&self) -> u64 {
        self.age
    }

    /// How its reads are isolated from now on.
    pub fn set_isolation(&mut self, isolation: Isolation) {
        self.isolation = isolation;
    }

    /// How its reads are isolated.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Until when it waits for locks; no end by default (deadlocks are found).
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.session.waiting.deadline = deadline;
    }

    /// How long it waits for a lock; no limit by default.
    pub fn set_lock_timeout(&mut self, timeout: Option<Duration>) {
        self.session.waiting.timeout = timeout;
    }

    /// Whether it gets [`LockError::WouldBlock`] instead of waiting for a lock.
    pub fn set_no_wait(&mut self, no_wait: bool) {
        self.session.waiting.no_wait = no_wait;
    }

    /// A handle by which any thread can cancel it: operations, the commit among them, then give
    /// [`LockError::Cancelled`].
    pub fn cancel_token(&mut self) -> CancelToken {
        self.session.waiting.cancel.get_or_insert_with(CancelToken::new).clone()
    }

    /// Whether it has logged nothing, so that its commit writes nothing.
    pub fn is_read_only(&self) -> bool {
        !self.session.has_records()
    }

    /// Calls `read` with the value of a key, if it is there.
    #[inline]
    pub fn get<R>(
        &mut self,
        table: &TableInfo,
        key: &[u8],
        read: impl FnMut(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        if let Some(value) = self.written_ahead(table, key) {
            return Ok(value.as_deref().map(read));
        }
        let isolation = self.isolation;
        self.read(table, IntentMode::IS, |tree, session| tree.get(session, key, isolation, read))
    }

    /// Whether a key is there, for as long as [`Txn::get`] says so.
    pub fn contains(&mut self, table: &TableInfo, key: &[u8]) -> Result<bool, TxnError> {
        if let Some(value) = self.written_ahead(table, key) {
            return Ok(value.is_some());
        }
        let isolation = self.isolation;
        self.read(table, IntentMode::IS, |tree, session| tree.contains(session, key, isolation))
    }

    /// As [`Txn::get`], with the lock that a change of the key will need.
    pub fn get_for_update<R>(
        &mut self,
        table: &TableInfo,
        key: &[u8],
        read: impl FnMut(&[u8]) -> R,
    ) -> Result<Option<R>, TxnError> {
        if let Some(value) = self.written_ahead(table, key) {
            return Ok(value.as_deref().map(read));
        }
        let isolation = self.isolation;
        self.read(table, IntentMode::IX, |tree, session| tree.get_for_update(session, key, isolation, read))
    }

    /// Adds a key; `false` if it is there already.
    #[inline]
    pub fn insert(&mut self, table: &TableInfo, key: &[u8], value: &[u8]) -> Result<bool, TxnError> {
        self.change(table, key, Wish::Insert(value), |tree, session| tree.insert(session, key, value))
    }

    /// Adds a key or replaces its value; whether it was there.
    #[inline]
    pub fn put(&mut self, table: &TableInfo, key: &[u8], value: &[u8]) -> Result<bool, TxnError> {
        self.change(table, key, Wish::Put(value), |tree, session| tree.put(session, key, value))
    }

    /// Replaces the value of a key; `false` if it is not there.
    #[inline]
    pub fn update(&mut self, table: &TableInfo, key: &[u8], value: &[u8]) -> Result<bool, TxnError> {
        self.change(table, key, Wish::Update(value), |tree, session| tree.update(session, key, value))
    }

    /// Removes a key; `false` if it is not there.
    pub fn delete(&mut self, table: &TableInfo, key: &[u8]) -> Result<bool, TxnError> {
        self.change(table, key, Wish::Delete, |tree, session| tree.delete(session, key))
    }

    /// Locks a table as a whole.
    pub fn lock_table(&mut self, table: &TableInfo, mode: IntentMode) -> Result<(), TxnError> {
        self.enter(table, mode)
    }

    /// Undoes everything and gives all locks back.
    pub fn rollback(mut self) -> Result<(), TxnError> {
        self.rollback_in_place()
    }

    /// As [`Txn::rollback`], in the way of [`Txn::commit_in_place`].
    pub fn rollback_in_place(&mut self) -> Result<(), TxnError> {
        self.end_by_rollback().map_err(TxnError::from)
    }

    /// As [`Txn::rollback`], for all ways that lead here.
    fn end_by_rollback(&mut self) -> Result<()> {
        debug_assert!(!self.finished, "a transaction ends once");
        self.finished = true;
        if let Err(forked) = self.session.core().life.check_process() {
            // All of it is a copy of what the other process has, where it goes on.
            self.session.owner.abandon();
            self.pipeline = None;
            return Err(forked);
        }
        let result = rollback::undo_all(&mut self.session);
        if self.session.abandon_unless_undone(&result) {
            self.leave_pipeline(None);
            return result.map(drop);
        }
        let inherits = self.inherits();
        if inherits && self.failed.is_none() {
            self.leave_locks_to_pipeline(None);
            return result.map(drop);
        }
        // A deadlock's victim is in somebody's way with all that it holds, the locks of those before it in its pipeline
        // too: they are made durable first (Kimura et al. 2012, §4.3).
        if let (true, Some(place)) = (inherits, &self.pipeline) {
            // If that fails, the database has stopped, and locks protect nothing.
            let _ = self.session.core().log.flush(place.newest());
        }
        self.session.release_all(None);
        self.leave_pipeline(None);
        result.map(drop)
    }

    /// Rolls it back, if it has not ended.
    pub(crate) fn end_if_open(&mut self) {
        if !self.finished && !self.away {
            // Nobody asks how that went; a failure has poisoned the database.
            let _ = self.end_by_rollback();
        }
    }

    /// Makes sure of a lock on a table, which must still be there.
    #[inline]
    fn enter(&mut self, table: &TableInfo, intent: IntentMode) -> Result<(), TxnError> {
        self.check_usable()?;
        self.lock(|session| session.enter(table.id(), intent))?;
        if table.is_gone() {
            return Err(TxnError::TableGone { name: table.name().to_owned() });
        }
        Ok(())
    }

    /// One operation that changes nothing.
    #[inline]
    fn read<R>(
        &mut self,
        table: &TableInfo,
        intent: IntentMode,
        read: impl FnOnce(&BTree, &mut TxnSession) -> Result<R, TreeError>,
    ) -> Result<R, TxnError> {
        self.enter(table, intent)?;
        let result = read(table.tree(), &mut self.session);
        self.read_beside(result)
    }

    /// One operation that may change one key. `wish`: the same for reconnaissance.
    #[inline]
    fn change(
        &mut self,
        table: &TableInfo,
        key: &[u8],
        wish: Wish<'_>,
        change: impl Fn(&BTree, &mut TxnSession) -> Result<bool, TreeError>,
    ) -> Result<bool, TxnError> {
        if self.session.reconnaissance().is_some() {
            return self.write_ahead(table, key, wish);
        }
        self.make_room_ahead(wish.value().map_or(0, <[u8]>::len))?;
        self.change_in_tree(table, change)
    }

    /// One operation that may change something: done or, after an error, not begun.
    #[inline]
    fn change_in_tree<R>(
        &mut self,
        table: &TableInfo,
        change: impl Fn(&BTree, &mut TxnSession) -> Result<R, TreeError>,
    ) -> Result<R, TxnError> {
        self.enter(table, IntentMode::IX)?;
        if self.session.looks_for_company() {
            self.let_the_oldest_go_on()?;
        }
        let mut attempts = 0;
        loop {
            let before = self.session.chain.last;
            match self.change_once(|session| change(table.tree(), session)) {
                Ok(result) => return Ok(result),
                Err(error) => self.after_failed_change(error, before, &mut attempts)?,
            }
        }
    }

    /// Undoes what a failed change has done. Returns if it is worth another attempt: the log was full, and a checkpoint
    /// has made room.
    #[cold]
    fn after_failed_change(
        &mut self,
        error: TxnError,
        before: Lsn,
        attempts: &mut usize,
    ) -> Result<(), TxnError> {
        let is_full = matches!(error, TxnError::Storage(StorageError::LogFull { .. }));
        if self.session.chain.last != before {
            if is_full {
                self.session.note_refusal();
            }
            rollback::undo_back_to(&mut self.session, before)?;
        }
        *attempts += 1;
        if is_full && *attempts <= LOG_FULL_RETRIES && self.session.wait_for_log_room()? {
            return Ok(());
        }
        Err(self.note(error))
    }

    #[inline]
    fn lock(&mut self, lock: impl FnOnce(&mut TxnSession) -> Result<(), LockError>) -> Result<(), TxnError> {
        lock(&mut self.session).map_err(|error| self.note(error.into()))
    }

    /// Remembers an error after which only a rollback is possible.
    #[cold]
    pub(crate) fn note(&mut self, error: TxnError) -> TxnError {
        let failure = match &error {
            TxnError::Lock(LockError::Deadlock(_)) => Some(Failure::Victim),
            TxnError::Lock(LockError::PlanMiss) => Some(Failure::PlanMiss),
            TxnError::Lock(LockError::StaleReads) => Some(Failure::StaleReads),
            _ => None,
        };
        self.failed = self.failed.or(failure);
        error
    }

    /// Whether operations are allowed.
    #[inline]
    pub fn check_usable(&self) -> Result<(), TxnError> {
        if self.failed.is_some() || self.away {
            return Err(TxnError::Failed);
        }
        self.session.check_may_go_on()
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        self.end_if_open();
    }
}
