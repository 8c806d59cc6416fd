//! Rollback: the records of a transaction backwards, each undone by key and compensated (ARIES).
//!
//! TXN-4: a compensation record says where undo goes on, before the record that it compensates. So undo that was
//! interrupted, by a crash or by the next rollback of the same transaction, never undoes anything twice.
//!
//! TXN-5: compensation and end records use the part of the log that ordinary records may not touch, so a rollback never
//! fails for want of log, and it waits for frames and latches for longer than others do. If it fails for any other
//! reason, changes without a commit stay in the pages: the database is poisoned, and undone when it is opened again.
//!
//! TXN-39: nobody sees what was not undone. Its locks stay for ever, in a database that has stopped or is closed; a
//! transaction that waits for them learns that instead ([`crate::life`]). And no such page counts as settled
//! ([`crate::settled`]).
//!
//! While a database is being closed, rollbacks go on until its log is closed, and that is after the last checkpoint
//! has looked at the table of transactions. So a transaction that could not be undone any more is one that the
//! checkpoint has recorded as open, or that recovery finds behind the redo horizon.

use std::io;

use foreshore_base::{Lsn, PageId, Result, StorageError, TableId};
use foreshore_btree::TxnChain;
use foreshore_env::sabotage::{Fault, planted};
use foreshore_wal::{BackwardReader, RecordHeader, Urgency};

use crate::{
    core::Core,
    error::TxnError,
    records::{self, Owner},
    stats::Event,
    transaction::TxnSession,
};

/// How often a change is undone anew that did not get a frame or a latch, each of them within the time for which
/// anybody may wait.
const UNDO_TRIES: u32 = 10;

/// Undoes all of a transaction's changes; its locks may go then, unless that fails (TXN-39). Gives its end record, if
/// it needed one and nobody else has ended it.
pub(crate) fn undo_all(session: &mut TxnSession) -> Result<Option<Lsn>> {
    let result = if session.keep_to_itself() {
        let result = undo_with_end(session);
        // In a closed database it is one of those that were cut off, and close may not have counted them yet.
        if !matches!(result, Err(StorageError::Closed)) {
            session.release_slot();
        }
        session.core().stats.count(Event::Rollback);
        if let Ok(Some(end)) = result {
            session.core().note_log_growth(end);
        }
        result
    } else {
        Ok(None)
    };
    if result.is_ok() {
        session.purge_written();
    }
    result
}

impl TxnSession {
    /// TXN-39: keeps the locks for ever if what was done under them may still be there, and says whether. Somebody else
    /// who undid it (TXN-35) has stopped the database if that failed.
    pub(crate) fn abandon_unless_undone<T>(&mut self, undone: &Result<T>) -> bool {
        let may_be_there = self.has_records() && (undone.is_err() || self.core().check_open().is_err());
        if may_be_there {
            self.owner.abandon();
        }
        may_be_there
    }
}

fn undo_with_end(session: &mut TxnSession) -> Result<Option<Lsn>> {
    if !session.has_records() {
        return Ok(None);
    }
    session.announce_change()?;
    undo_announced(session, Lsn::ZERO)?;
    session.announce_change()?;
    let ended = session.append_last(records::END).map(Some);
    settle(session.core(), ended)
}

/// Undoes the changes that a transaction logged after `until`.
pub(crate) fn undo_back_to(session: &mut TxnSession, until: Lsn) -> Result<(), TxnError> {
    let ignored = planted(Fault::SavepointIgnored) && until > Lsn::ZERO;
    if session.chain.last <= until || ignored {
        return Ok(());
    }
    session.begin_change()?;
    // What was deleted comes back.
    session.barren.forget();
    undo_announced(session, until)?;
    session.long_values.take_back(until);
    if session.first_unnamed_loss > until {
        session.first_unnamed_loss = Lsn::ZERO;
    }
    Ok(())
}

/// The change was announced, and ends here.
fn undo_announced(session: &mut TxnSession, until: Lsn) -> Result<()> {
    let engine = session.engine.clone();
    let core = engine.core();
    let mut undo = Undo::new(core);
    let mut next = session.chain.last;
    let undone = loop {
        if next <= until {
            break Ok(());
        }
        match undo.one(&mut session.chain, next) {
            Ok(earlier) => next = earlier,
            Err(error) => break Err(error),
        }
        session.advance_change();
    };
    session.end_change();
    settle(core, undone)
}

/// Undoes a chain to its beginning and appends its end record; `noted` is told of every record. By somebody who is not
/// its owner, or has none.
pub(crate) fn undo_chain(core: &Core, chain: &mut TxnChain, noted: &mut dyn FnMut(&TxnChain)) -> Result<()> {
    let mut undo = Undo::new(core);
    let mut next = chain.last;
    while next > Lsn::ZERO {
        next = undo.one(chain, next)?;
        noted(chain);
    }
    core.log.append(Urgency::Ending, chain.txn, chain.last, records::END, &[]).map(drop)
}

/// Poisons the database if undo has failed; but a closed log has nobody to stop (TXN-5).
pub(crate) fn settle<T>(core: &Core, result: Result<T>) -> Result<T> {
    match &result {
        Ok(_) | Err(StorageError::Poisoned { .. } | StorageError::Closed) => {}
        Err(error) => core.log.poison(&format!("a rollback failed: {error}")),
    }
    result
}

/// Undoes records, those of several transactions as they lie among each other in the log.
pub(crate) struct Undo<'c> {
    core: &'c Core,
    reader: BackwardReader<'c>,
    payload: Vec<u8>,
}

impl<'c> Undo<'c> {
    pub(crate) fn new(core: &'c Core) -> Undo<'c> {
        Undo { core, reader: core.log.backward(), payload: Vec::new() }
    }

    /// Undoes the record at `lsn`, the next one to be undone in a chain; gives the one after it. The chain may come
    /// from a damaged log: every step leads to a smaller LSN, so it ends.
    pub(crate) fn one(&mut self, chain: &mut TxnChain, lsn: Lsn) -> Result<Lsn> {
        let header = self.reader.read(lsn, &mut self.payload)?;
        if header.txn != chain.txn {
            let detail =
                format!("a record of transaction {} in the chain of transaction {}", header.txn, chain.txn);
            return Err(StorageError::corrupt_log(lsn, detail));
        }
        let earlier = match records::owner(header.kind) {
            Owner::Pages => header.prev,
            Owner::Btree => undo_in_tree(self.core, chain, &header, &self.payload)?,
            Owner::Txn => match header.kind {
                records::TREE_CREATION => {
                    undo_tree_creation(self.core, chain, &header, &self.payload)?;
                    header.prev
                }
                records::TREE_DROPPED => records::decode_tree_dropped(&header, &self.payload)?.0,
                records::COMMIT | records::END => {
                    let detail = "a transaction that has ended cannot be undone";
                    return Err(StorageError::corrupt_log(lsn, detail));
                }
                _ => header.prev,
            },
        };
        if earlier >= lsn {
            return Err(StorageError::corrupt_log(lsn, format!("the record refers forward, to {earlier}")));
        }
        Ok(earlier)
    }
}

fn undo_in_tree(core: &Core, chain: &mut TxnChain, header: &RecordHeader, payload: &[u8]) -> Result<Lsn> {
    if let Some(next) = foreshore_btree::undo_next(header, payload)
        && !planted(Fault::CompensationUndone)
    {
        return Ok(next);
    }
    if foreshore_btree::is_undoable(header.kind) {
        let roots = |table| core.catalog.root(table);
        patiently(core, || foreshore_btree::undo(&core.trees, &roots, header, payload, chain))?;
    }
    Ok(header.prev)
}

/// Undoes a change, and tries again where it got no frame or no latch: a rollback that fails stops the database. A try
/// that failed so has changed nothing, or a part that undo passes over the next time. While the log is open and its
/// disk stands still tries do not count: that holds up everybody, and those who have the latches may wait for room in
/// the log. Else there are [`UNDO_TRIES`] more: nobody holds a frame or a latch for longer.
fn patiently<T>(core: &Core, mut undo: impl FnMut() -> Result<T>) -> Result<T> {
    let mut tries = 0;
    loop {
        let durable = core.log.durable();
        let undone = undo();
        let stalled = match &undone {
            Err(StorageError::PoolExhausted { stalled, .. }) => *stalled,
            Err(StorageError::Io { source, .. }) if source.kind() == io::ErrorKind::TimedOut => {
                !core.pool.has_log_room(Urgency::Work) && core.log.durable() == durable
            }
            _ => return undone,
        };
        tries += u32::from(!stalled);
        if tries > UNDO_TRIES || core.log.poisoned().is_some() {
            return undone;
        }
    }
}

/// Frees the root of a tree whose creation did not commit (TXN-11). Between the announcement and the end of the log
/// there is at most one record that created it; nobody else has ever seen the tree.
fn undo_tree_creation(
    core: &Core,
    chain: &mut TxnChain,
    header: &RecordHeader,
    payload: &[u8],
) -> Result<()> {
    let table = records::decode_tree_creation(header, payload)?;
    let root = find_created_root(core, table, header.lsn)?;
    let freeing = root.map(|root| patiently(core, || core.pool.free_page(root))).transpose()?;
    let dropped = records::encode_tree_dropped(header.prev, root.unwrap_or(PageId::NONE));
    let (txn, last) = (chain.txn, chain.last);
    chain.last = core.log.append(Urgency::Ending, txn, last, records::TREE_DROPPED, &[&dropped])?;
    if let Some(freeing) = freeing {
        freeing.commit(chain.last);
    }
    Ok(())
}

fn find_created_root(core: &Core, table: TableId, from: Lsn) -> Result<Option<PageId>> {
    let mut reader = core.log.reader(from);
    let mut payload = Vec::new();
    while let Some(header) = reader.next(&mut payload)? {
        match foreshore_btree::created_root(header.kind, &payload) {
            Some((created, root)) if created == table => return Ok(Some(root)),
            _ => {}
        }
    }
    Ok(None)
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use std::path::Path;

    use foreshore_base::TxnId;
    use foreshore_env::{
        disk::Disk,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        thread,
        time::{Duration, Instant},
    };
    use foreshore_testkit::FaultyDisk;
    use foreshore_wal::RecordKind;

    use super::*;
    use crate::{BeginOptions, Engine, EngineOptions};

    /// A rollback that got no frame within ten seconds, because the log's disk stood still, stopped the database.
    #[test]
    fn what_is_undone_waits_while_the_disk_stands_still_and_not_for_ever_for_others() {
        let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
        let engine = Engine::open(disk, Path::new("db"), &EngineOptions::default()).unwrap();
        let core = engine.core();
        let mut left = 5 * UNDO_TRIES;
        let mut fails = |stalled| {
            left = left.saturating_sub(1);
            if left > 0 { Err(StorageError::PoolExhausted { frames: 8, stalled }) } else { Ok(()) }
        };
        patiently(core, || fails(true)).unwrap();
        let mut tries = 0;
        let undone = patiently(core, || -> Result<()> {
            tries += 1;
            Err(StorageError::PoolExhausted { frames: 8, stalled: false })
        });
        assert!(matches!(undone, Err(StorageError::PoolExhausted { .. })));
        assert_eq!(tries, UNDO_TRIES + 1);
        core.log.poison("the disk has failed");
        let undone: Result<()> =
            patiently(core, || Err(StorageError::PoolExhausted { frames: 8, stalled: true }));
        assert!(undone.is_err(), "nobody waits for a disk that has failed");
    }

    /// A transaction that ended while the log was being closed was not undone, and counted nowhere.
    #[test]
    fn who_ends_beside_a_close_and_is_not_undone_was_cut_off() {
        let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
        let engine = Engine::open(disk, Path::new("db"), &EngineOptions::default()).unwrap();
        let table = engine.create_table("table", b"").unwrap();
        let mut txn = engine.begin(BeginOptions::default()).unwrap();
        txn.put(&table, b"key", b"value").unwrap();
        engine.core().log.close().unwrap();
        let ended = txn.rollback();
        assert!(matches!(ended, Err(TxnError::Storage(StorageError::Closed))), "{ended:?}");
        // Its last checkpoint finds the log closed.
        let _ = engine.close();
        assert_eq!(engine.stats().cut_off, 1);
    }

    /// Nor for a latch: whoever had it may have waited for room in the log, and each minute of that was held against
    /// the rollback.
    #[test]
    fn a_latch_is_waited_for_while_the_log_stands_still() {
        let disk = FaultyDisk::new();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let engine = Engine::open(shared, Path::new("db"), &EngineOptions::default()).unwrap();
        let core = engine.core();
        let mut tries = 0;
        let mut fails_until = |last| {
            tries += 1;
            let timed_out = || io::Error::from(io::ErrorKind::TimedOut);
            let failed = || Err(StorageError::io("wait for a latch in", "data")(timed_out()));
            if tries < last { failed() } else { Ok(()) }
        };
        let happens = |done: &dyn Fn() -> bool| {
            let begun = Instant::now();
            while !done() && begun.elapsed() < Duration::from_secs(60) {
                thread::sleep(Duration::from_millis(1));
            }
            done()
        };
        let is_over = AtomicBool::new(false);
        disk.hold_syncs(true);
        let (is_full, undone) = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let kind = RecordKind(200);
                    core.log.append(Urgency::Work, TxnId(1 << 40), Lsn::ZERO, kind, &[&[0; 64]]).unwrap();
                }
            });
            // No spare segment is made while nothing is synced.
            let stands_still = || {
                let tail = core.log.tail();
                thread::sleep(Duration::from_millis(100));
                !core.pool.has_log_room(Urgency::Work) && core.log.tail() == tail
            };
            let is_full = happens(&stands_still);
            let undone = patiently(core, || fails_until(5 * UNDO_TRIES));
            is_over.store(true, Ordering::Relaxed);
            disk.hold_syncs(false);
            (is_full, undone)
        });
        assert!(is_full, "the log has room");
        undone.unwrap();
        assert!(happens(&|| core.pool.has_log_room(Urgency::Work)));
        patiently(core, || fails_until(u32::MAX)).unwrap_err();
        assert_eq!(tries, 6 * UNDO_TRIES + 1, "somebody holds a latch for longer than anybody should");
    }
}
