//! What was prepared before the database was opened, with its locks.

use std::collections::BTreeMap;

use foreshore_base::{Lsn, Result, StorageError, TableId, TxnId};
use foreshore_btree::TxnChain;
use foreshore_env::sync::Arc;
use foreshore_lock::{Age, IntentMode, LockError, LockOwner, WaitPolicy};
use foreshore_wal::Log;

use super::{
    NO_NAME, Prepared,
    description::{label, shown},
    is_whole, known_name,
};
use crate::{
    core::Core,
    records::{self, LoggedLock, Prepare},
    transaction::LongValues,
};

/// What the log says of a prepared transaction.
struct Logged {
    prepare: Prepare,
    locks: Vec<LoggedLock>,
}

impl Logged {
    /// Of a transaction without an end, whose newest record is at `last`; `None`: it is not prepared.
    fn read(log: &Log, txn: TxnId, last: Lsn) -> Result<Option<Logged>> {
        let mut payload = Vec::new();
        let header = log.read(last, &mut payload)?;
        if header.kind != records::PREPARE || header.txn != txn {
            return Ok(None);
        }
        let prepare = Prepare::decode(&header, &payload)?;
        let mut locks = Vec::new();
        let mut next = header.prev;
        for _ in 0..prepare.pieces {
            let header = log.read(next, &mut payload)?;
            if header.txn != txn {
                let detail = "the locks of a prepared transaction are another's";
                return Err(StorageError::corrupt_log(next, detail));
            }
            records::decode_locks(&header, &payload, &mut locks)?;
            next = header.prev;
        }
        Ok(Some(Logged { prepare, locks }))
    }
}

/// How many locks the prepared ones of these transactions have, which have no end: their newest records are named.
/// Those on tables, too: they may be requests in the lock table like others.
pub(crate) fn count_locks(log: &Log, open: &BTreeMap<TxnId, Lsn>) -> Result<usize> {
    let mut locks = 0;
    for (&txn, &last) in open {
        locks += Logged::read(log, txn, last)?.map_or(0, |logged| logged.locks.len());
    }
    Ok(locks)
}

/// Whether a transaction without an end, whose newest record is at `last`, is prepared; if so, takes it back with its
/// locks. Before anybody else is there.
pub(crate) fn restore(core: &Core, txn: TxnId, last: Lsn) -> Result<bool> {
    let Some(Logged { prepare, locks }) = Logged::read(&core.log, txn, last)? else { return Ok(false) };
    let id = shown(&prepare.global_id);
    // A partitioner may be another one than it was.
    let names_hold = prepare.known_name != NO_NAME && known_name(core) == prepare.known_name;
    let label = if names_hold { label(&prepare.global_id) } else { Arc::from("prepared transactions") };
    let begun = core.locks.whole().begin(txn, Age::new(txn.0, 0), Some(label));
    let mut owner = Some(begun.map_err(|error| not_restored(&id, &error))?);
    let mut nameless = core.prepared.nameless.lock();
    if !names_hold {
        nameless.extend(owner.take());
    }
    let mut tables = 0;
    if core.options.locking {
        let owner = owner.as_mut().unwrap_or_else(|| &mut nameless[0]);
        for lock in locks {
            tables += usize::from(matches!(
                lock,
                LoggedLock::Table(table, mode)
                    if is_whole(table, mode) || (!names_hold && table != TableId::VOLUME)
            ));
            take(owner, lock, names_hold).map_err(|error| not_restored(&id, &error))?;
        }
    }
    if core.options.read_only {
        // TXN-32.
        owner.as_mut().unwrap_or_else(|| &mut nameless[0]).stay();
    }
    let first = if prepare.first == Lsn::ZERO { last } else { prepare.first };
    let slot = core.transactions.claim(txn, first)?;
    core.transactions.end_change(slot, last);
    let chain = TxnChain { txn, first, last };
    core.prepared.reserve(&prepare.global_id).map_err(|error| {
        StorageError::corrupt_log(last, format!("a prepared transaction cannot be taken back: {error}"))
    })?;
    core.prepared.put(
        &prepare.global_id,
        Prepared { owner, chain, slot, first, at: prepare.at, tables, long_values: LongValues::default() },
    );
    Ok(true)
}

/// Takes a lock that was held before the restart. If names mean something else now, the locks on tables stand for those
/// on keys.
fn take(owner: &mut LockOwner, lock: LoggedLock, names_hold: bool) -> Result<(), LockError> {
    let at_once = WaitPolicy { no_wait: true, ..WaitPolicy::default() };
    match lock {
        LoggedLock::Key(name, mode) if names_hold => owner.restore(name, mode),
        LoggedLock::Key(..) => Ok(()),
        LoggedLock::Table(table, _) if !names_hold && table != TableId::VOLUME => {
            owner.intent(table, IntentMode::X, &at_once).map(drop)
        }
        LoggedLock::Table(table, mode) => owner.intent(table, mode, &at_once).map(drop),
    }
}

fn not_restored(id: &str, error: &LockError) -> StorageError {
    StorageError::Poisoned {
        cause: format!("the prepared transaction {id} does not get its locks back: {error}"),
    }
}
