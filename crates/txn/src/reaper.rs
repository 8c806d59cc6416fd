//! The reaper: frees the pages of dropped tables, and of long values that the ends of their transactions had to leave,
//! on the checkpointer's thread, a slice at a time.
//!
//! Each page is freed by a system transaction, which takes the pointer to it out of the tree; so a crash, or the end of
//! the engine, interrupts nothing, and the next opening goes on. The row of the dropped table goes last. Between the
//! freeing of the root and that, the root's page may belong to somebody else; the tree tells (table ids are never used
//! twice).
//!
//! During a slice the volume is locked as by any writer, so that a check of the database sees no page go.

use foreshore_base::{Lsn, PageId, Result, StorageError, TableId, TxnId};
use foreshore_btree::{BTree, Patience, Reaped, Session, TreeError, TxnChain};
use foreshore_env::{
    sync::Arc,
    time::{Duration, Instant},
};
use foreshore_lock::{Age, IntentMode, KeyMode, KeyRef, LockError, LockOwner, WaitPolicy};
use foreshore_wal::Urgency;

use crate::{
    catalog::without_locks,
    core::Core,
    records,
    rollback::{self, settle},
    transaction::PURGE_WAIT,
};

/// Steps of a slice: pages that are freed, or parts of long values that are deleted.
const SLICE: usize = 256;
/// Bytes of the log that a part of a purge needs: the images of a few pages.
const PURGE_BYTES: u64 = 64 << 10;
/// How long the reaper waits for the volume, before it looks whether it is to stop.
const LOCK_WAIT: Duration = Duration::from_millis(100);

/// Works until nothing is left that can be freed, somebody wants a checkpoint, or the engine closes. False: it could
/// not go on and should try again after a while. A table with a damaged page is left, and the reason noted.
pub(crate) fn run(core: &Core) -> Result<bool> {
    let purged = purge_left(core);
    while let Some((table, root)) = core.catalog.next_dropped() {
        if core.life.is_closed() {
            return Ok(true);
        }
        if core.growth.is_wanted() {
            core.growth.ask_reaper();
            return Ok(true);
        }
        match slice(core, table, root) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(StorageError::LogFull { .. }) => {
                if !core.shorten_log()? {
                    return Ok(false);
                }
            }
            // Too many transactions are open.
            Err(StorageError::LimitExceeded { .. }) => return Ok(false),
            // The pages of the others can be freed all the same.
            Err(error @ (StorageError::Corrupted { .. } | StorageError::Io { .. })) => {
                core.check_open()?;
                core.catalog.set_stuck(table, error.to_string());
            }
            Err(error) => return Err(error),
        }
        core.note_log_growth(core.log.tail());
    }
    Ok(purged)
}

/// Purges the chunks of long values that were left to it (TXN-43), until somebody wants a checkpoint, or the engine
/// closes. False: perhaps some are still left, because it was interrupted so, the pages or the log's room were not to
/// be had, or somebody has the volume.
fn purge_left(core: &Core) -> bool {
    while !core.life.is_closed() && !core.growth.is_wanted() {
        let mut ids = core.unpurged.take(SLICE);
        if ids.is_empty() {
            return true;
        }
        let txn = core.transactions.draw();
        if let Some(_volume) = enter(core, txn) {
            let mut session = Alone::new(txn);
            session.discarded = ids;
            ids = purge(core, session);
        }
        let is_left = !ids.is_empty();
        core.unpurged.add(ids);
        core.note_log_growth(core.log.tail());
        // Nobody else may come who makes room in a log that is full.
        let is_full = || core.log.used_bytes() + PURGE_BYTES > core.log.work_bytes();
        if is_left && !(is_full() && core.shorten_log().is_ok_and(|shorter| shorter)) {
            return false;
        }
    }
    false
}

/// False: somebody has the volume.
fn slice(core: &Core, table: TableId, root: PageId) -> Result<bool> {
    let txn = core.transactions.draw();
    let Some(_volume) = enter(core, txn) else { return Ok(false) };
    let tree = BTree::open(&core.trees, table, root);
    let (mut cleared, mut steps) = (PageId::NONE, 0);
    while steps < SLICE {
        steps += 1;
        match tree.reap(cleared)? {
            Reaped::Page => {}
            Reaped::LongValues { leaf, references } => {
                for reference in references {
                    if !delete_long_value(core, &tree, &reference, &mut steps)? {
                        return Ok(true);
                    }
                }
                cleared = leaf;
            }
            Reaped::Gone => {
                in_transaction(core, |session| core.catalog.delete_dropped(session, table))?;
                core.catalog.forget_dropped(table);
                break;
            }
        }
    }
    Ok(true)
}

/// Deletes a long value part by part; false: the slice is over first. What is left of it is found again, and each slice
/// deletes something.
fn delete_long_value(core: &Core, tree: &BTree, reference: &[u8], steps: &mut usize) -> Result<bool> {
    let mut left = None;
    loop {
        left = in_transaction(core, |session| tree.delete_long_value(session, reference, left))?;
        if left.is_none() {
            return Ok(true);
        }
        *steps += 1;
        if *steps >= SLICE || core.growth.is_wanted() {
            return Ok(false);
        }
    }
}

/// The volume, as a writer has it; given back on drop.
fn enter(core: &Core, txn: TxnId) -> Option<LockOwner> {
    // Nobody gives way to housekeeping.
    let mut owner =
        core.locks.whole().begin(txn, Age::new(txn.0, i8::MIN), Some(Arc::from("reaper"))).ok()?;
    let wait = WaitPolicy { timeout: Some(LOCK_WAIT), ..WaitPolicy::default() };
    owner.intent(TableId::VOLUME, IntentMode::IX, &wait).ok()?;
    Some(owner)
}

/// Runs a change of rows that nobody else can touch, as a transaction of its own: all of it or nothing.
fn in_transaction<R>(
    core: &Core,
    change: impl FnOnce(&mut Alone) -> std::result::Result<R, TreeError>,
) -> Result<R> {
    let mut session = Alone::new(core.transactions.draw());
    // Announced from its first record to its last (TXN-3).
    let tail = core.log.tail();
    let slot = core.transactions.claim(session.chain.txn, tail)?;
    core.transactions.begin_change(slot, tail);
    let result = change(&mut session).map_err(without_locks);
    // Stopped before the slot is free: nothing counts as settled then that was not undone (TXN-39).
    let ended = settle(core, end(core, &mut session.chain, result.is_ok()));
    core.transactions.release(slot);
    ended?;
    if result.is_ok() {
        core.leave_unpurged(purge(core, session));
    }
    core.note_log_growth(core.log.tail());
    result
}

/// Purges the long values that a session has deleted, as the end of a transaction does; gives those that are left.
fn purge(core: &Core, mut session: Alone) -> Vec<u64> {
    let mut ids = std::mem::take(&mut session.discarded);
    session.deadline = Some(Instant::now() + PURGE_WAIT);
    core.long_values().purge_long_values(&session, &mut ids);
    ids
}

fn end(core: &Core, chain: &mut TxnChain, commit: bool) -> Result<()> {
    if chain.last == Lsn::ZERO {
        return Ok(());
    }
    if !commit {
        return rollback::undo_chain(core, chain, &mut |_| {});
    }
    core.log.append(Urgency::Ending, chain.txn, chain.last, records::COMMIT, &[]).map(drop)
}

/// A session for rows that nobody else knows of. It purges no ghosts: those beside may be under others' locks.
struct Alone {
    chain: TxnChain,
    /// Long values that it has deleted.
    discarded: Vec<u64>,
    /// Until when it waits for a latch, or for room in the log; `None`: as long as it takes.
    deadline: Option<Instant>,
}

impl Alone {
    fn new(txn: TxnId) -> Alone {
        Alone { chain: TxnChain::new(txn), discarded: Vec::new(), deadline: None }
    }
}

impl Session for Alone {
    fn acquire(&mut self, _: TableId, _: KeyRef<'_>, _: KeyMode) -> std::result::Result<(), LockError> {
        Ok(())
    }

    fn try_acquire(&mut self, _: TableId, _: KeyRef<'_>, _: KeyMode) -> std::result::Result<bool, LockError> {
        Ok(true)
    }

    fn held(&self, _: TableId, _: KeyRef<'_>) -> std::result::Result<KeyMode, LockError> {
        Ok(KeyMode::X)
    }

    fn held_and_check(
        &self,
        _: TableId,
        _: KeyRef<'_>,
        _: KeyMode,
    ) -> std::result::Result<(KeyMode, bool), LockError> {
        Ok((KeyMode::X, true))
    }

    fn has_requests(&self, table: TableId, _: KeyRef<'_>) -> bool {
        table != TableId::OVERFLOW
    }

    fn may_purge(&self, _: TableId, _: Lsn) -> bool {
        false
    }

    fn note_discarded(&mut self, long_value: u64) {
        self.discarded.push(long_value);
    }

    fn patience(&self) -> Patience<'_> {
        Patience { deadline: self.deadline, cancelled: None }
    }

    fn chain(&mut self) -> &mut TxnChain {
        &mut self.chain
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use foreshore_env::{disk::Disk, thread};
    use foreshore_lock::{DeadlockPolicy, LockManager, LockOptions};
    use foreshore_testkit::FaultyDisk;

    use super::*;
    use crate::{Engine, EngineOptions};

    const WAIT: WaitPolicy<'static> =
        WaitPolicy { deadline: None, timeout: None, no_wait: false, cancel: None };
    const TABLE: TableId = TableId::FIRST_USER;
    const KEY: KeyRef<'static> = KeyRef::Key(b"key");

    fn until_waiting(locks: &LockManager, txn: TxnId) {
        let limit = Instant::now() + Duration::from_secs(120);
        while !locks.waiters().iter().any(|(waiter, _)| *waiter == txn) {
            assert!(Instant::now() < limit, "transaction {txn} does not come to wait");
            thread::yield_now();
        }
    }

    /// Where ages decide, everybody is older than the reaper: whatever begins later and however unimportant it is.
    #[test]
    fn nobody_gives_way_to_housekeeping() {
        for deadlock in [DeadlockPolicy::WaitDie, DeadlockPolicy::WoundWait] {
            let options = EngineOptions {
                locks: LockOptions { deadlock, ..LockOptions::default() },
                ..EngineOptions::default()
            };
            let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
            let engine = Engine::open(disk, Path::new("db"), &options).unwrap();
            let core = engine.core();
            let begin = |priority| {
                let txn = core.transactions.draw();
                core.locks.whole().begin(txn, Age::new(txn.0, priority), None).unwrap()
            };
            // A transaction that wants the volume for itself while the reaper works waits for it.
            let reaper = enter(core, core.transactions.draw()).expect("nobody is in its way");
            let mut user = begin(-127);
            thread::scope(|scope| {
                let id = user.txn();
                let user = scope.spawn(move || user.intent(TableId::VOLUME, IntentMode::S, &WAIT));
                until_waiting(&core.locks, id);
                drop(reaper);
                user.join().unwrap().unwrap_or_else(|error| panic!("{deadlock:?}: {error}"));
            });
            // A transaction that has it, and waits for another, goes on when the reaper has come and gone in vain.
            let mut holder = begin(-128);
            holder.acquire(TABLE, KEY, KeyMode::X, &WAIT).unwrap();
            let mut user = begin(-127);
            user.intent(TableId::VOLUME, IntentMode::S, &WAIT).unwrap();
            thread::scope(|scope| {
                let id = user.txn();
                let user = scope.spawn(move || user.acquire(TABLE, KEY, KeyMode::X, &WAIT));
                until_waiting(&core.locks, id);
                assert!(enter(core, core.transactions.draw()).is_none(), "{deadlock:?}");
                drop(holder);
                user.join().unwrap().unwrap_or_else(|error| panic!("{deadlock:?}: {error}"));
            });
            assert!(core.locks.is_empty());
            engine.close().unwrap();
        }
    }
}
