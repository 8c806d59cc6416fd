//! Two-phase commit, the participant's side: transactions that are ready to commit and wait for somebody's decision.
//!
//! ```text
//!            prepare                commit_prepared
//!   OPEN ----------------> PREPARED ----------------> committed
//!     |  (PREPARE durable)     |      (COMMIT durable)
//!     |                        +--------------------> rolled back
//!     +--> rolled back            rollback_prepared (END durable)
//! ```
//!
//! TXN-20: a transaction is prepared when its PREPARE record, and before it the names of all its exclusive locks, are
//! durable. From then on it is there after every restart, with these locks and before anybody else can have one, until
//! a decision is durable. Its shared locks go at prepare: it asks for no more.
//!
//! TXN-21: a global id stands for one transaction at a time, from before its PREPARE record until after its decision is
//! durable; so no restart ever finds two.
//!
//! The locks are logged by name, which is a hash. Should another version of this program hash differently, the logged
//! name of a known key tells, and the whole tables are locked instead, for all such transactions together.

mod description;
mod restore;

use std::{collections::BTreeMap, mem};

use foreshore_base::{Lsn, Result, StorageError, TableId, limits::MAX_GLOBAL_ID_BYTES};
use foreshore_btree::TxnChain;
use foreshore_env::{
    sync::{Arc, Mutex, MutexGuard},
    time::unix_seconds,
};
use foreshore_lock::{IntentMode, KeyRef, LockName, LockOwner};

use crate::{
    core::Core,
    engine::Engine,
    error::TxnError,
    options::EarlyLockRelease,
    records::{self, LoggedLock, Prepare},
    rollback,
    stats::Event,
    table::SlotNumber,
    transaction::{LOG_FULL_RETRIES, LongValues, Txn, TxnSession},
};

pub use description::PreparedTransaction;
use description::label;
pub(crate) use restore::{count_locks, restore};

/// A key whose name is logged, to know later whether names mean the same.
const KNOWN_KEY: KeyRef<'static> = KeyRef::Key(b"foreshore");
/// What is logged in its place when names may mean something else later.
const NO_NAME: LockName = LockName::from_bits(0);

/// A prepared transaction between its two phases.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// `None`: its locks have lost their names, and its owner waits among [`Nameless`].
    owner: Option<LockOwner>,
    chain: TxnChain,
    slot: SlotNumber,
    first: Lsn,
    at: u64,
    /// Tables that are locked as a whole.
    tables: usize,
    /// Long values that it has written or deleted, unless the database has been opened again since.
    long_values: LongValues,
}

/// An owner for each prepared transaction whose locks have lost their names. Several of them may have changed one
/// table, and none could lock that beside the others: the first owner locks it for all. It has no place of its own in
/// the lock table, where they may have all places. So whoever is decided about takes the last owner, and the tables go
/// with the last decision.
type Nameless = Vec<LockOwner>;

/// All prepared transactions, by their global ids.
#[derive(Debug, Default)]
pub(crate) struct PreparedTable {
    /// Guards the map; held for a look or an insertion. `None`: it is being prepared or decided about.
    by_id: Mutex<BTreeMap<Vec<u8>, Option<Box<Prepared>>>>,
    /// Its mutex is held during a decision about one of them, until that is durable: they are decided about one after
    /// the other. Whoever rolls the last one back lets the tables go at once, and what is read there then has no tag of
    /// an earlier commit.
    nameless: Mutex<Nameless>,
}

impl PreparedTable {
    /// Takes an id into use, for a transaction that is about to be prepared.
    fn reserve(&self, id: &[u8]) -> Result<(), TxnError> {
        if id.is_empty() || id.len() > MAX_GLOBAL_ID_BYTES {
            return Err(TxnError::InvalidGlobalId { bytes: id.len(), limit: MAX_GLOBAL_ID_BYTES });
        }
        let mut by_id = self.by_id.lock();
        if by_id.contains_key(id) {
            return Err(TxnError::GlobalIdInUse { id: id.to_vec() });
        }
        by_id.insert(id.to_vec(), None);
        Ok(())
    }

    fn forget(&self, id: &[u8]) {
        self.by_id.lock().remove(id);
    }

    fn put(&self, id: &[u8], prepared: Prepared) {
        self.by_id.lock().insert(id.to_vec(), Some(Box::new(prepared)));
    }

    /// Takes a transaction and its owner to decide about it; its id stays in use. With the guard if that owner was
    /// nameless.
    fn take(&self, id: &[u8]) -> Result<(Prepared, LockOwner, Option<MutexGuard<'_, Nameless>>), TxnError> {
        let taken = self.by_id.lock().get_mut(id).map(Option::take);
        let mut prepared = match taken {
            None => return Err(TxnError::UnknownGlobalId { id: id.to_vec() }),
            Some(None) => return Err(TxnError::GlobalIdBusy { id: id.to_vec() }),
            Some(Some(prepared)) => *prepared,
        };
        let mut nameless = prepared.owner.is_none().then(|| self.nameless.lock());
        let owner = prepared.owner.take().or_else(|| nameless.as_mut()?.pop());
        Ok((prepared, owner.expect("there is one for each"), nameless))
    }

    /// How many wait for a decision.
    pub(crate) fn len(&self) -> usize {
        self.by_id.lock().values().flatten().count()
    }

    /// Those that wait for a decision, the oldest first.
    pub(crate) fn list(&self) -> Vec<PreparedTransaction> {
        let by_id = self.by_id.lock();
        let shown = by_id.iter().filter_map(|(id, prepared)| {
            let prepared = prepared.as_ref()?;
            Some(PreparedTransaction {
                global_id: id.clone(),
                txn: prepared.chain.txn,
                prepared_at_unix_seconds: prepared.at,
                locks: prepared.owner.as_ref().map_or(0, LockOwner::lock_count),
                tables: prepared.tables,
                log_from: prepared.first,
            })
        });
        let mut list: Vec<_> = shown.collect();
        list.sort_by_key(|prepared| (prepared.prepared_at_unix_seconds, prepared.txn));
        list
    }
}

impl Txn {
    /// Makes the transaction ready to commit under this id, durably: from now on only [`Engine::commit_prepared`] or
    /// [`Engine::rollback_prepared`] ends it, by anybody and also after a restart. It keeps its exclusive locks, and
    /// the log from its first record on, so it should not be forgotten.
    ///
    /// # Errors
    /// [`TxnError::GlobalIdInUse`], [`TxnError::InvalidGlobalId`], or what befell the log. The transaction is rolled
    /// back then; after [`TxnError::OutcomeUnknown`] it may be found prepared when the database is opened again.
    pub fn prepare(mut self, global_id: &[u8]) -> Result<(), TxnError> {
        self.check_usable()?;
        self.session.check_has_run()?;
        self.validate_reads()?;
        let engine = self.session.engine.clone();
        let core = engine.core();
        core.check_writable()?;
        core.prepared.reserve(global_id)?;
        let at = unix_seconds();
        match self.log_prepare(global_id, at) {
            Ok(lsn) => {
                self.finished = true;
                self.session.owner.release_shared();
                let tables = self.session.intents().filter(|&(table, mode)| is_whole(table, mode)).count();
                self.session.owner.relabel(label(global_id));
                let prepared = self.session.suspend(at, tables);
                self.leave_pipeline(Some(lsn));
                core.prepared.put(global_id, prepared);
                Ok(())
            }
            Err(error) => {
                // Rolled back first: the id stays in use as long as the records may be found.
                drop(self);
                core.prepared.forget(global_id);
                Err(error)
            }
        }
    }

    /// Logs the locks, then the PREPARE record; returns when that is durable.
    fn log_prepare(&mut self, global_id: &[u8], at: u64) -> Result<Lsn, TxnError> {
        let tables = self.session.intents().filter(|(_, mode)| mode.writes());
        let tables = tables.map(|(table, mode)| LoggedLock::Table(table, mode));
        let keys = self.session.owner.held_names().filter(|(_, mode)| mode.is_exclusive());
        let locks: Vec<_> = tables.chain(keys.map(|(name, mode)| LoggedLock::Key(name, mode))).collect();
        let mut attempts = 0;
        let lsn = loop {
            self.session.begin_change()?;
            let logged = log_records(&mut self.session, &locks, global_id, at);
            if logged.is_ok() {
                // From here on only a decision ends it.
                self.session.keep_to_itself();
            }
            self.session.end_change();
            attempts += 1;
            match logged {
                Ok(lsn) => break lsn,
                // Records of the attempt stay in the chain, and mean nothing without the one that counts them.
                Err(StorageError::LogFull { .. })
                    if attempts <= LOG_FULL_RETRIES && self.session.wait_for_log_room()? => {}
                Err(error) => return Err(error.into()),
            }
        };
        let log = &self.session.core().log;
        log.flush(lsn).map_err(TxnError::unknown)?;
        Ok(lsn)
    }
}

fn log_records(session: &mut TxnSession, locks: &[LoggedLock], global_id: &[u8], at: u64) -> Result<Lsn> {
    let mut pieces = 0;
    for piece in locks.chunks(records::LOCKS_PER_RECORD) {
        session.append(records::PREPARE_LOCKS, &[&records::encode_locks(piece)])?;
        pieces += 1;
    }
    let known_name = known_name(session.core());
    let first = session.chain.first;
    let prepare = Prepare { at, first, known_name, pieces, global_id: global_id.to_vec() };
    session.append(records::PREPARE, &[&prepare.encode()])
}

impl TxnSession {
    /// Takes everything out that a prepared transaction keeps.
    fn suspend(&mut self, at: u64, tables: usize) -> Prepared {
        let slot = self.slot.take().expect("whoever has logged something has a slot");
        let (owner, chain) = (Some(self.owner.hand_over()), mem::take(&mut self.chain));
        let long_values = mem::take(&mut self.long_values);
        Prepared { owner, first: chain.first, chain, slot, at, tables, long_values }
    }

    fn resume(engine: &Arc<Engine>, prepared: &mut Prepared, owner: LockOwner) -> TxnSession {
        let mut session = TxnSession::new(Arc::clone(engine).into(), owner);
        session.chain = prepared.chain;
        session.slot = Some(prepared.slot);
        session.long_values = mem::take(&mut prepared.long_values);
        session.keep_to_itself();
        session
    }
}

impl Engine {
    /// Commits a prepared transaction, durably.
    ///
    /// # Errors
    /// [`TxnError::UnknownGlobalId`] if there is none, also because somebody has decided already;
    /// [`TxnError::GlobalIdBusy`] while somebody does; [`TxnError::OutcomeUnknown`] when the log failed in between.
    /// After any other error it is still prepared.
    pub fn commit_prepared(self: &Arc<Engine>, global_id: &[u8]) -> Result<(), TxnError> {
        let core = self.core();
        core.check_open()?;
        core.check_writable()?;
        let (mut prepared, owner, mut nameless) = core.prepared.take(global_id)?;
        let (at, tables) = (prepared.at, prepared.tables);
        let mut session = TxnSession::resume(self, &mut prepared, owner);
        let appended = session.announce_change().and_then(|_| session.append_last(records::COMMIT));
        let lsn = match appended {
            Ok(lsn) => lsn,
            Err(error) => {
                session.end_change();
                let mut prepared = session.suspend(at, tables);
                if let Some(nameless) = &mut nameless {
                    nameless.extend(prepared.owner.take());
                }
                core.prepared.put(global_id, prepared);
                return Err(error.into());
            }
        };
        session.release_slot();
        session.purge_deleted();
        if core.options.early_lock_release == EarlyLockRelease::SharedAndExclusive {
            session.owner.release_all(core.options.release_tags.then_some(lsn));
        }
        core.stats.count(Event::Commit);
        core.note_log_growth(lsn);
        let flushed = core.log.flush(lsn);
        session.owner.release_all(None);
        core.prepared.forget(global_id);
        flushed.map_err(TxnError::unknown)
    }

    /// Rolls a prepared transaction back, durably.
    ///
    /// # Errors
    /// As [`Engine::commit_prepared`]. A rollback that fails stops the database; it may be found prepared when that is
    /// opened again.
    pub fn rollback_prepared(self: &Arc<Engine>, global_id: &[u8]) -> Result<(), TxnError> {
        let core = self.core();
        core.check_open()?;
        core.check_writable()?;
        let (mut prepared, owner, _one_at_a_time) = core.prepared.take(global_id)?;
        let mut session = TxnSession::resume(self, &mut prepared, owner);
        let undone = rollback::undo_all(&mut session);
        let is_abandoned = session.abandon_unless_undone(&undone);
        // A crash before that takes the decision back, and there may be another one: nobody shall have seen this one.
        let flushed = undone.and_then(|end| end.map_or(Ok(()), |lsn| core.log.flush(lsn)));
        if !is_abandoned {
            session.owner.release_all(None);
        }
        // Where the log was closed it is prepared still, and none of those that were cut off.
        session.release_slot();
        core.prepared.forget(global_id);
        flushed.map_err(TxnError::unknown)
    }

    /// How many transactions are prepared.
    pub fn prepared_count(&self) -> usize {
        self.core().prepared.len()
    }

    /// The transactions that are prepared, the oldest first.
    pub fn prepared(&self) -> Result<Vec<PreparedTransaction>> {
        self.core().check_open()?;
        Ok(self.core().prepared.list())
    }
}

/// The name of the key that all names are judged by; [`NO_NAME`] if names may mean something else after a restart.
fn known_name(core: &Core) -> LockName {
    core.locks.lasting_name(TableId::CATALOG, KNOWN_KEY).unwrap_or(NO_NAME)
}

/// Whether a lock of this mode leaves nothing of the table to others that write.
fn is_whole(table: TableId, mode: IntentMode) -> bool {
    table != TableId::VOLUME && matches!(mode, IntentMode::SIX | IntentMode::X)
}
