//! Restart: analysis and redo in one pass forward, undo in one pass backward (ARIES).
//!
//! Redo repeats history by page LSN, whatever became of the transactions. Analysis learns on the way who was open at
//! the end: the losers. Undo takes their records one by one, the newest of all losers first, and logs what it does as
//! any rollback does; so a crash in the middle is one more restart, which redoes the compensation and goes on where it
//! stopped (TXN-4).
//!
//! A transaction that was open and had been prepared is no loser: it gets its locks back, and waits for its decision
//! (TXN-20).
//!
//! Nothing else here needs locks: nobody else is there, and undo touches only what a loser had locked exclusively when
//! it died (locks are given back after the commit record, TXN-2).

mod progress;

use std::{
    collections::{BTreeMap, BinaryHeap},
    mem,
};

use foreshore_base::{Lsn, Result, StorageError, TxnId};
use foreshore_btree::{BTree, TreeEnv, TxnChain};
use foreshore_env::{
    sabotage::{Fault, planted},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use foreshore_pages::BufferPool;
use foreshore_wal::{Log, RecordHeader, Urgency};

use crate::{
    control::Control,
    core::Core,
    prepared,
    records::{self, Checkpoint, Owner},
    rollback::Undo,
};

use progress::Reports;
pub use progress::{RecoveryObserver, RecoveryPhase, RecoveryProgress};

/// What opening a database took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// It had been closed in order: there was nothing to do.
    pub clean: bool,
    /// Where redo started.
    pub redo_from: Lsn,
    /// Where the log ended.
    pub log_end: Lsn,
    /// Records read.
    pub records_read: u64,
    /// Transactions that were prepared and wait for a decision.
    pub prepared: u64,
    /// Transactions that were open and had to be undone.
    pub losers: u64,
    /// Records undone.
    pub records_undone: u64,
    /// How long it took.
    pub duration: Duration,
    /// How long redo took of that, and its share of the checkpoint behind it, by how many records were read and undone.
    pub redo_duration: Duration,
}

/// What the pass forward has learned.
#[derive(Debug)]
pub(crate) struct History {
    /// Transactions without an end, and their newest records.
    losers: BTreeMap<TxnId, Lsn>,
    /// Larger than every transaction id in the log.
    pub(crate) next_txn: u64,
    next_table: u32,
    /// No long value has had a larger id, as far as checkpoint and log say.
    last_overflow: u64,
    report: RecoveryReport,
    begun: Instant,
}

impl History {
    fn new(checkpoint: &Checkpoint) -> History {
        History {
            losers: checkpoint.open.iter().map(|open| (open.txn, open.last)).collect(),
            next_txn: checkpoint.next_txn,
            next_table: checkpoint.next_table,
            last_overflow: checkpoint.last_overflow,
            report: RecoveryReport::default(),
            begun: Instant::now(),
        }
    }

    pub(crate) fn report(&self) -> RecoveryReport {
        self.report
    }

    /// How many locks undo gives back to prepared transactions.
    pub(crate) fn prepared_locks(&self, log: &Log) -> Result<usize> {
        prepared::count_locks(log, &self.losers)
    }

    /// Analysis of one record.
    fn note(&mut self, header: &RecordHeader, payload: &[u8]) -> Result<()> {
        self.report.records_read += 1;
        if header.txn == TxnId::SYSTEM {
            return Ok(());
        }
        self.next_txn = self.next_txn.max(header.txn.0 + 1);
        match header.kind {
            records::COMMIT | records::END => {
                self.losers.remove(&header.txn);
            }
            _ => {
                let last = self.losers.entry(header.txn).or_insert(header.lsn);
                *last = header.lsn.max(*last);
            }
        }
        if header.kind == records::TREE_CREATION {
            let table = records::decode_tree_creation(header, payload)?;
            self.next_table = self.next_table.max(table.0.saturating_add(1));
        }
        // Of one that was given after the checkpoint, and deleted, nothing may be left but what a reaper still has of
        // its table.
        if let Some(id) = foreshore_btree::inserted_long_value(header.kind, payload) {
            self.last_overflow = self.last_overflow.max(id);
        }
        Ok(())
    }
}

/// Analysis and redo.
pub(crate) fn repeat_history(
    log: &Log,
    pool: &BufferPool,
    trees: &TreeEnv,
    control: &Control,
    observer: Option<&RecoveryObserver>,
) -> Result<History> {
    let mut payload = Vec::new();
    let header = log.read(control.checkpoint, &mut payload)?;
    let checkpoint = Checkpoint::decode(&header, &payload)?;
    if checkpoint.redo != control.redo || checkpoint.analysis < control.log_from {
        let detail = "the checkpoint record contradicts the control file";
        return Err(StorageError::corrupt_log(control.checkpoint, detail));
    }
    pool.set_redo_horizon(checkpoint.redo);
    // Nobody has used it since it was closed in order, as far as one can tell.
    let mut clean = control.clean;
    if !clean {
        pool.fill_holes()?;
    }
    let mut history = History::new(&checkpoint);
    let mut reader = log.reader(checkpoint.analysis);
    let length = log.tail().0.saturating_sub(checkpoint.analysis.0);
    // Of a recovery only: nobody is told of the checkpoint that ends a log which was closed in order.
    let mut reports = Reports::begin(observer.filter(|_| !clean), RecoveryPhase::Redo, length);
    let mut redo_begun = None;
    while let Some(header) = reader.next(&mut payload)? {
        reports.at(checkpoint.analysis, header.lsn);
        // A transaction that had begun to write before it was closed may have written beside the last checkpoint.
        let at_rest = header.lsn < checkpoint.redo || header.lsn == control.checkpoint;
        if clean && !at_rest {
            clean = false;
            pool.fill_holes()?;
            reports = Reports::begin(observer, RecoveryPhase::Redo, length);
        }
        history.note(&header, &payload)?;
        if header.lsn >= checkpoint.redo {
            redo_begun.get_or_insert_with(Instant::now);
            redo(pool, trees, &header, &payload)?;
        }
    }
    reports.end();
    pool.finish_redo()?;
    history.report.redo_duration = redo_begun.map(|begun| begun.elapsed()).unwrap_or_default();
    history.report.clean = clean;
    history.report.redo_from = checkpoint.redo;
    history.report.log_end = log.tail();
    Ok(history)
}

/// Applies a record to the pages that do not show it yet.
pub(crate) fn redo(pool: &BufferPool, trees: &TreeEnv, header: &RecordHeader, payload: &[u8]) -> Result<()> {
    match records::owner(header.kind) {
        Owner::Pages => {
            if !pool.redo_record(header, payload)? {
                return Err(unknown(header));
            }
        }
        Owner::Btree => foreshore_btree::redo(trees, header, payload)?,
        Owner::Txn => match header.kind {
            records::TREE_DROPPED => {
                let (_, root) = records::decode_tree_dropped(header, payload)?;
                if root.is_some() {
                    pool.redo_free(root, header.lsn)?;
                }
            }
            records::COMMIT
            | records::END
            | records::CHECKPOINT
            | records::TREE_CREATION
            | records::PREPARE
            | records::PREPARE_LOCKS => {}
            _ => return Err(unknown(header)),
        },
    }
    Ok(())
}

fn unknown(header: &RecordHeader) -> StorageError {
    StorageError::corrupt_log(header.lsn, format!("a record of kind {} is not known", header.kind.0))
}

/// Undo, and a checkpoint after it, if it may be taken (TXN-42).
pub(crate) fn undo_losers(
    core: &mut Core,
    mut history: History,
    observer: Option<&RecoveryObserver>,
) -> Result<()> {
    // What a loser has deleted, in the catalog too, stays until it is undone (BTREE-14).
    let trees = Arc::clone(&core.trees);
    let at_rest = trees.without_tidying();
    core.catalog.load(&core.trees, history.next_table)?;
    // Before anything is undone: what stands under their locks stays (TXN-20).
    for (txn, last) in mem::take(&mut history.losers) {
        if !planted(Fault::PreparedUndone) && prepared::restore(core, txn, last)? {
            history.report.prepared += 1;
        } else {
            history.losers.insert(txn, last);
        }
    }
    if !history.losers.is_empty() && !planted(Fault::LosersKept) {
        history.report.losers = history.losers.len() as u64;
        let mut reports = Reports::begin(observer, RecoveryPhase::Undo, history.report.losers);
        history.report.records_undone = undo(core, &history.losers, &mut reports)?;
        reports.end();
        // Without the tables whose creation was among them.
        core.catalog.load(&core.trees, history.next_table)?;
    }
    drop(at_rest);
    let overflow_root = core.catalog.overflow_root();
    let newest = BTree::last_overflow_id(&core.trees, overflow_root)?.max(history.last_overflow);
    if newest >= records::MOST_LONG_VALUES {
        return Err(StorageError::corrupt_page(overflow_root, format!("no long value has the id {newest}")));
    }
    core.trees.next_overflow.store(newest, Ordering::Relaxed);
    if !history.report.clean {
        let begun = Instant::now();
        // Unless a prepared transaction needs too much of the log.
        core.try_checkpoint()?;
        // It has written what was redone and what was undone.
        let (read, undone) = (history.report.records_read as f64, history.report.records_undone as f64);
        history.report.redo_duration += begun.elapsed().mul_f64(read / (read + undone).max(1.0));
    }
    history.report.duration = history.begun.elapsed();
    core.recovery = history.report;
    Ok(())
}

/// Undoes the newest record of all losers, again and again; gives how many it undid.
fn undo(core: &Core, losers: &BTreeMap<TxnId, Lsn>, reports: &mut Reports<'_>) -> Result<u64> {
    let mut chains: BTreeMap<TxnId, TxnChain> =
        losers.iter().map(|(&txn, &last)| (txn, TxnChain { txn, first: Lsn::ZERO, last })).collect();
    let mut next: BinaryHeap<(Lsn, TxnId)> = losers.iter().map(|(&txn, &last)| (last, txn)).collect();
    let (mut undo, mut undone) = (Undo::new(core), 0);
    while let Some((lsn, txn)) = next.pop() {
        let Some(chain) = chains.get_mut(&txn) else { continue };
        let earlier = undo.one(chain, lsn)?;
        undone += 1;
        if earlier > Lsn::ZERO {
            next.push((earlier, txn));
        } else {
            core.log.append(Urgency::Ending, txn, chain.last, records::END, &[])?;
            reports.one_more();
        }
    }
    Ok(undone)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use foreshore_env::disk::Disk;
    use foreshore_testkit::{CrashMode, FaultyDisk};

    use super::*;
    use crate::{BeginOptions, Durability, Engine, EngineOptions};

    /// An id is not given twice, though nothing in the database has it any more: a reaper might still know it.
    #[test]
    fn ids_of_long_values_outlive_them() {
        let open = |disk: &FaultyDisk| {
            let disk: Arc<dyn Disk> = Arc::new(disk.clone());
            Engine::open(disk, Path::new("db"), &EngineOptions::default()).unwrap()
        };
        let disk = FaultyDisk::new();
        let engine = open(&disk);
        let table = engine.create_table("table", &[]).unwrap();
        for round in 0..3 {
            let mut txn = engine.begin(BeginOptions::default()).unwrap();
            txn.put(&table, b"key", &[round; 9000]).unwrap();
            txn.commit(Durability::Sync).unwrap();
        }
        let mut txn = engine.begin(BeginOptions::default()).unwrap();
        assert!(txn.delete(&table, b"key").unwrap());
        txn.commit(Durability::Sync).unwrap();
        let given = engine.core().trees.next_overflow.load(Ordering::Relaxed);
        let root = engine.core().catalog.overflow_root();
        assert!(given >= 3 && BTree::last_overflow_id(&engine.core().trees, root).unwrap() < given);
        let again = open(&disk.after_crash(CrashMode::DropUnsynced));
        assert!(again.core().trees.next_overflow.load(Ordering::Relaxed) >= given);
    }
}
