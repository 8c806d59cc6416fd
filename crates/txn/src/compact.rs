//! Compacting a database while it is used: leaves that fit one page are merged, others that have room are filled from
//! their neighbours, pages at the end of the data file move to free ones before, and the file is cut.
//!
//! All of it is done by system transactions, a page each, in slices: during a slice the volume is locked as by a
//! writer, so that a check of the database sees no page go, and the tables as by a reader, so that none is dropped.
//! What others have in use is left where it is; the report says how much that is. Nobody waits for a compaction, but
//! for a moment those who use a table whose root moves.

use std::{collections::BTreeMap, ops::ControlFlow};

use foreshore_base::{PageId, StorageError, TableId, limits::PAGE_BYTES};
use foreshore_btree::{BTree, Relocated, Session, TreeError};
use foreshore_env::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use foreshore_lock::{IntentMode, KeyMode, KeyRef, LockError};
use foreshore_pages::Compaction;

use crate::{
    catalog::{ROOT_OFFSET, TableInfo},
    core::Core,
    engine::Engine,
    error::TxnError,
    insist::insist,
    options::Durability,
    transaction::{Txn, Waiting},
};

/// Leaves or pages of a slice.
const SLICE: usize = 256;
/// How long a slice waits for the volume, for latches and for room in the log.
const SLICE_WAIT: Duration = Duration::from_secs(60);
/// How long the move of a root waits until nobody uses its table; a thread that comes meanwhile waits behind it.
const ROOT_WAIT: Duration = Duration::from_millis(200);
/// How long the pages of dropped tables are waited for: they are freed in the background.
const REAPER_WAIT: Duration = Duration::from_secs(10);
const REAPER_LOOK: Duration = Duration::from_millis(2);

/// What a compaction has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactReport {
    /// Pages in the data file before.
    pub pages_before: u64,
    /// Pages in the data file now; 0 until the end.
    pub pages_after: u64,
    /// Bytes of the data file that held nothing, before.
    pub fragmented_bytes_before: u64,
    /// Bytes of the data file that hold nothing now; 0 until the end.
    pub fragmented_bytes_after: u64,
    /// Leaves that were merged into their neighbours.
    pub leaves_merged: u64,
    /// Pages that moved.
    pub pages_moved: u64,
    /// Pages that should have moved and did not, because somebody used their table.
    pub pages_left: u64,
    /// Dropped tables whose pages were not free when it ended, and so could not be used: the counters of the database
    /// say of how many they cannot be freed; of the others they are a little later.
    pub dropped_left: u64,
}

/// Compacts the database; `progress` is told after each slice, and while dropped tables are waited for, and may stop
/// it.
pub(crate) fn compact(
    engine: &Arc<Engine>,
    progress: &mut dyn FnMut(CompactReport) -> ControlFlow<()>,
) -> Result<CompactReport, TxnError> {
    let core = engine.core();
    let _one_at_a_time = core.file_end.compact(&core.life)?;
    let free = || core.pool.free_page_count().map(|pages| pages * PAGE_BYTES as u64);
    let report = CompactReport {
        pages_before: core.pool.page_count(),
        fragmented_bytes_before: free()?,
        ..CompactReport::default()
    };
    let mut work = Work { engine, report, progress, stopped: false };
    work.await_reaper()?;
    work.merge_leaves()?;
    work.move_pages()?;
    work.report.pages_after = core.pool.page_count();
    work.report.fragmented_bytes_after = free()?;
    work.report.dropped_left = core.catalog.dropped().len() as u64;
    Ok(work.report)
}

struct Work<'e> {
    engine: &'e Arc<Engine>,
    report: CompactReport,
    progress: &'e mut dyn FnMut(CompactReport) -> ControlFlow<()>,
    /// Nothing more is merged or moved.
    stopped: bool,
}

impl<'e> Work<'e> {
    fn core(&self) -> &'e Core {
        self.engine.core()
    }

    /// Waits until the pages of dropped tables are free, but for those that cannot be freed, and not for ever: the
    /// report says how many are left.
    fn await_reaper(&mut self) -> Result<(), TxnError> {
        let core = self.core();
        let deadline = Instant::now() + REAPER_WAIT;
        while !self.stopped && core.catalog.next_dropped().is_some() && Instant::now() < deadline {
            core.check_open()?;
            core.growth.ask_reaper();
            thread::sleep(REAPER_LOOK);
            self.tell();
        }
        Ok(())
    }

    /// Tells how far it is, and learns whether it is to go on.
    fn tell(&mut self) {
        self.stopped |= (self.progress)(self.report).is_break();
    }

    /// A transaction that changes no row. It has the volume as a writer has it, and waits for no table.
    fn slice(&self) -> Result<Txn, TxnError> {
        let waiting = Waiting { deadline: Some(Instant::now() + SLICE_WAIT), ..Waiting::default() };
        insist("compact", &waiting, |begin| {
            let mut txn = self.engine.begin(begin)?;
            txn.session.waiting = waiting.clone();
            txn.session.intent(TableId::VOLUME, IntentMode::IX)?;
            txn.set_no_wait(true);
            Ok(txn)
        })
    }

    fn end(&mut self, txn: Txn) -> Result<(), TxnError> {
        txn.commit(Durability::Lazy)?;
        let core = self.core();
        core.note_log_growth(core.log.tail());
        self.tell();
        Ok(())
    }

    fn merge_leaves(&mut self) -> Result<(), TxnError> {
        let core = self.core();
        if self.stopped {
            return Ok(());
        }
        self.merge_leaves_of(core.catalog.tree(), None)?;
        // BTREE-14: of long values only what is settled is purged, and perhaps nobody has asked lately how far that is.
        core.settled.settle(&core.life, &core.log, &core.transactions)?;
        self.merge_leaves_of(&core.long_values(), None)?;
        for table in core.catalog.all() {
            self.merge_leaves_of(table.tree(), Some(&table))?;
        }
        Ok(())
    }

    /// Walks over a tree, unless it is a table that a transaction has for itself.
    fn merge_leaves_of(&mut self, tree: &BTree, table: Option<&TableInfo>) -> Result<(), TxnError> {
        let mut from = None;
        while !self.stopped {
            let mut txn = self.slice()?;
            if !enter(&mut txn, tree.table(), table)? {
                return self.end(txn);
            }
            let condensed = tree.condense(&txn.session, from.as_deref(), SLICE);
            self.report.leaves_merged += condensed.as_ref().map_or(0, |condensed| condensed.merged);
            self.end(txn)?;
            match condensed {
                Ok(condensed) => {
                    from = condensed.next;
                    if from.is_none() {
                        break;
                    }
                }
                Err(error) => self.make_room(error)?,
            }
        }
        Ok(())
    }

    /// After a full log: a checkpoint has made room, or the error stands. Any other error stands; a wait that was over
    /// is told as one for a lock.
    fn make_room(&self, error: StorageError) -> Result<(), TxnError> {
        match error {
            StorageError::LogFull { .. } if self.core().shorten_log()? => Ok(()),
            error => Err(TreeError::from(error).into()),
        }
    }

    fn move_pages(&mut self) -> Result<(), TxnError> {
        let core = self.core();
        if self.stopped {
            return Ok(());
        }
        if !core.may_checkpoint() {
            // Nothing could be cut at the end.
            return Err(core.log.full().into());
        }
        let length = core.pool.least_page_count()?;
        let Some(mut compaction) = core.pool.begin_compaction(length) else { return Ok(()) };
        let tables: BTreeMap<TableId, TableInfo> =
            core.catalog.all().into_iter().map(|table| (table.id(), table)).collect();
        let mut roots = Vec::new();
        let pages = compaction.pages_above()?;
        for slice in pages.chunks(SLICE) {
            if self.stopped {
                break;
            }
            let mut txn = self.slice()?;
            for page in slice {
                match self.move_page(&mut txn, &mut compaction, &tables, *page)? {
                    Some(Relocated::To(_)) => self.report.pages_moved += 1,
                    Some(Relocated::Root) => roots.push(*page),
                    // Freed meanwhile, or not.
                    Some(Relocated::NotFound) => {
                        self.report.pages_left += u64::from(core.pool.is_allocated(*page)?)
                    }
                    Some(Relocated::NoRoom) | None => self.report.pages_left += 1,
                }
            }
            self.end(txn)?;
        }
        self.move_roots(&mut compaction, &tables, &roots)?;
        // Here nobody is called: a backup that waits does so for a checkpoint.
        let _cut = core.file_end.cut(&core.life)?;
        let end = compaction.choose_end()?;
        core.checkpoint()?;
        compaction.cut(end)?;
        Ok(())
    }

    /// Moves a page of whatever tree; `None`: of none that is known, or that may be entered.
    fn move_page(
        &self,
        txn: &mut Txn,
        compaction: &mut Compaction<'_>,
        tables: &BTreeMap<TableId, TableInfo>,
        page: PageId,
    ) -> Result<Option<Relocated>, TxnError> {
        let core = self.core();
        let owner = match core.pool.shared(page) {
            Ok(page) => page.view().table(),
            // Freed meanwhile, perhaps never written.
            Err(StorageError::Corrupted { .. }) if !core.pool.is_allocated(page)? => {
                return Ok(Some(Relocated::NotFound));
            }
            Err(error) => return Err(error.into()),
        };
        let table = tables.get(&owner);
        let tree = match (owner, table) {
            (TableId::CATALOG, _) => core.catalog.tree().clone(),
            (TableId::OVERFLOW, _) => core.long_values(),
            (_, Some(table)) => table.tree().clone(),
            (_, None) => return Ok(None),
        };
        if !enter(txn, owner, table)? {
            return Ok(None);
        }
        loop {
            match tree.relocate(&txn.session, compaction, page) {
                Ok(relocated) => return Ok(Some(relocated)),
                Err(error) => self.make_room(error)?,
            }
        }
    }

    /// Moves the roots that were met: only here they move.
    fn move_roots(
        &mut self,
        compaction: &mut Compaction<'_>,
        tables: &BTreeMap<TableId, TableInfo>,
        roots: &[PageId],
    ) -> Result<(), TxnError> {
        let by_root: BTreeMap<PageId, &TableInfo> =
            tables.values().map(|table| (table.tree().root(), table)).collect();
        for root in roots {
            if self.stopped {
                break;
            }
            let moved = match by_root.get(root) {
                Some(table) => self.move_root(compaction, table)?,
                None => false,
            };
            self.report.pages_moved += u64::from(moved);
            self.report.pages_left += u64::from(!moved);
        }
        Ok(())
    }

    /// Moves the root of a table, as one who drops the table would lock it; false: somebody uses it, or is in the way.
    fn move_root(&mut self, compaction: &mut Compaction<'_>, table: &TableInfo) -> Result<bool, TxnError> {
        let core = self.core();
        let mut txn = self.slice()?;
        txn.set_no_wait(false);
        txn.set_deadline(Some(Instant::now() + ROOT_WAIT));
        let key = table.name().as_bytes();
        let session = &mut txn.session;
        let locked = session
            .enter(TableId::CATALOG, IntentMode::IX)
            .and_then(|()| session.acquire(TableId::CATALOG, KeyRef::Key(key), KeyMode::XN))
            .and_then(|()| session.enter(table.id(), IntentMode::X));
        if refused(locked)? || table.is_gone() {
            txn.rollback()?;
            return Ok(false);
        }
        let moved = loop {
            let rows = (core.catalog.tree(), key, ROOT_OFFSET);
            match table.tree().relocate_root(&txn.session, compaction, rows) {
                Ok(moved) => break moved,
                // A latch, or room in the log, was not to be had in that time: the table is not kept from others for
                // it.
                Err(StorageError::WaitEnded { .. }) => {
                    txn.rollback()?;
                    return Ok(false);
                }
                Err(error) => self.make_room(error)?,
            }
        };
        self.end(txn)?;
        Ok(matches!(moved, Relocated::To(_)))
    }
}

/// Locks a table as a reader; false: a transaction has it for itself, or it is gone.
fn enter(txn: &mut Txn, id: TableId, table: Option<&TableInfo>) -> Result<bool, TxnError> {
    // Of long values no table is locked: a transaction that has locked what refers to them has them.
    if id == TableId::OVERFLOW {
        return Ok(true);
    }
    let locked = txn.session.enter(id, IntentMode::IS);
    Ok(!refused(locked)? && !table.is_some_and(TableInfo::is_gone))
}

/// Whether somebody stands in the way.
fn refused(locked: Result<(), LockError>) -> Result<bool, TxnError> {
    match locked {
        Ok(()) => Ok(false),
        Err(LockError::WouldBlock(_) | LockError::Timeout(_) | LockError::Deadlock(_)) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use foreshore_base::{Lsn, TxnId};
    use foreshore_env::disk::Disk;
    use foreshore_testkit::FaultyDisk;
    use foreshore_wal::{RecordKind, Urgency};

    use super::*;
    use crate::{BeginOptions, EngineOptions};

    /// It was told as an error without a name, and without a next step.
    #[test]
    fn a_wait_for_room_in_the_log_that_is_over_is_a_time_out() {
        let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
        let engine = Engine::open(disk, Path::new("db"), &EngineOptions::default()).unwrap();
        let work = Work {
            engine: &engine,
            report: CompactReport::default(),
            progress: &mut |_| ControlFlow::Continue(()),
            stopped: false,
        };
        let ended = work.make_room(StorageError::WaitEnded { page: PageId(1), cancelled: false });
        assert!(matches!(ended, Err(TxnError::Lock(LockError::Timeout(_)))), "{ended:?}");
        engine.close().unwrap();
    }

    /// It lasted ten seconds, whoever wanted to stop it.
    #[test]
    fn a_wait_for_dropped_tables_can_be_stopped() {
        let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
        let engine = Engine::open(disk, Path::new("db"), &EngineOptions::default()).unwrap();
        let holder = loop {
            let table = engine.create_table("table", b"").unwrap();
            let mut txn = engine.begin(BeginOptions::default()).unwrap();
            for row in 0..4000_u32 {
                txn.put(&table, &row.to_be_bytes(), &[7; 1000]).unwrap();
            }
            txn.commit(Durability::Lazy).unwrap();
            assert!(engine.drop_table("table").unwrap());
            // As a check has it: the reaper cannot go on. Perhaps it has come to its end before.
            let mut holder = engine.begin(BeginOptions::default()).unwrap();
            holder.session.intent(TableId::VOLUME, IntentMode::S).unwrap();
            if engine.core().catalog.next_dropped().is_some() {
                break holder;
            }
        };
        let begun = Instant::now();
        let report = engine.compact(&mut |_| ControlFlow::Break(())).unwrap();
        assert!(begun.elapsed() < REAPER_WAIT / 2, "{:?}", begun.elapsed());
        assert_eq!((report.dropped_left, report.leaves_merged, report.pages_moved), (1, 0, 0));
        drop(holder);
        engine.close().unwrap();
    }

    /// A compaction that found no room in the log for a root ended there, with all other pages moved and nothing cut.
    #[test]
    fn a_root_for_which_the_log_has_no_room_stays_where_it_is() {
        let disk = FaultyDisk::new();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let engine = Engine::open(shared, Path::new("db"), &EngineOptions::default()).unwrap();
        let table = engine.create_table("table", b"").unwrap();
        let core = engine.core();
        let mut compaction = core.pool.begin_compaction(0).unwrap();
        // No spare segment is made while nothing is synced.
        disk.hold_syncs(true);
        let mut full_since = Instant::now();
        while full_since.elapsed() < Duration::from_millis(100) {
            if core.pool.has_log_room(Urgency::Work) {
                core.log.append(Urgency::Work, TxnId(1), Lsn::ZERO, RecordKind(200), &[&[0; 64]]).unwrap();
                full_since = Instant::now();
            }
            thread::sleep(Duration::ZERO);
        }
        let mut work = Work {
            engine: &engine,
            report: CompactReport::default(),
            progress: &mut |_| ControlFlow::Continue(()),
            stopped: false,
        };
        let moved = work.move_root(&mut compaction, &table);
        disk.hold_syncs(false);
        assert!(matches!(moved, Ok(false)), "{moved:?}");
        drop(compaction);
        engine.close().unwrap();
    }
}
