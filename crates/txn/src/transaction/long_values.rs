//! Long values whose chunks leave their pages when a transaction ends. No lock names a chunk, and nobody comes by where
//! they lie, so whoever has deleted them purges them, or has written them and takes that back (BTREE-14).
//!
//! TXN-43: all locks are held meanwhile, so the purge waits for latches and for room in the log for a moment
//! at most. What it had to leave the [reaper](crate::reaper) purges.

use std::mem;

use foreshore_base::Lsn;
use foreshore_env::{
    sync::Mutex,
    time::{Duration, Instant},
};

use super::{session::TxnSession, waiting::Waiting};

/// How long the end of a transaction waits for the latches of pages that its long values leave, and for room in the
/// log.
pub(crate) const PURGE_WAIT: Duration = Duration::from_millis(100);

/// Long values whose chunks wait for the reaper at most: 8 MiB of ids. What there is beyond is left to a compaction.
const MOST_UNPURGED: usize = 1 << 20;

/// Long values that are nobody's any more and whose chunks are still in their pages, by their ids. What of these is
/// there when the database is closed, or crashes, is left to a compaction.
#[derive(Debug, Default)]
pub(crate) struct Unpurged(Mutex<Vec<u64>>);

impl Unpurged {
    pub(crate) fn add(&self, mut ids: Vec<u64>) {
        let mut unpurged = self.0.lock();
        ids.truncate(MOST_UNPURGED - unpurged.len());
        unpurged.append(&mut ids);
    }

    /// Takes so many of them out, at most.
    pub(crate) fn take(&self, most: usize) -> Vec<u64> {
        let mut unpurged = self.0.lock();
        let rest = unpurged.len().saturating_sub(most);
        unpurged.split_off(rest)
    }
}

/// What a transaction knows of its long values, by their ids.
#[derive(Debug, Default)]
pub(crate) struct LongValues {
    /// Those that it has deleted, and its newest record before that. These ascend.
    deleted: Vec<(Lsn, u64)>,
    /// Those that it has written, and its newest record before that. These ascend.
    written: Vec<(Lsn, u64)>,
    /// Those that it has written and taken back since: nobody has them, whatever its end.
    taken_back: Vec<u64>,
}

impl LongValues {
    pub(super) fn delete(&mut self, before: Lsn, id: u64) {
        self.deleted.push((before, id));
    }

    pub(super) fn write(&mut self, before: Lsn, id: u64) {
        self.written.push((before, id));
    }

    /// The transaction has gone back to a record of its chain.
    pub(crate) fn take_back(&mut self, until: Lsn) {
        // Whoever has them still has them again.
        self.deleted.truncate(self.deleted.partition_point(|(before, _)| *before < until));
        let first = self.written.partition_point(|(before, _)| *before < until);
        self.taken_back.extend(self.written.drain(first..).map(|(_, id)| id));
    }

    /// Whether a commit leaves all chunks where they are.
    #[inline]
    pub(crate) fn stay(&self) -> bool {
        self.deleted.is_empty() && self.taken_back.is_empty()
    }
}

impl TxnSession {
    /// What is due between the commit's record and the end of its locks: long values that it has deleted leave their
    /// pages.
    #[inline]
    pub(crate) fn purge_deleted(&mut self) {
        if !self.long_values.stay() {
            let LongValues { deleted, taken_back, .. } = mem::take(&mut self.long_values);
            let deleted = deleted.into_iter().map(|(_, id)| id);
            self.purge_long_values(deleted.chain(taken_back).collect());
        }
    }

    /// What is due between the last record of a rollback and the end of its locks: long values that it has written
    /// leave their pages.
    #[inline]
    pub(crate) fn purge_written(&mut self) {
        self.long_values.take_back(Lsn::ZERO);
        if !self.long_values.taken_back.is_empty() {
            let LongValues { taken_back, .. } = mem::take(&mut self.long_values);
            self.purge_long_values(taken_back);
        }
    }

    #[cold]
    fn purge_long_values(&mut self, mut ids: Vec<u64>) {
        // The transaction is over: its own deadline says nothing about this.
        self.waiting = Waiting { deadline: Some(Instant::now() + PURGE_WAIT), ..Waiting::default() };
        let core = self.core();
        core.long_values().purge_long_values(self, &mut ids);
        core.leave_unpurged(ids);
        core.note_log_growth(core.log.tail());
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use std::path::Path;

    use foreshore_env::{
        disk::Disk,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        thread,
    };
    use foreshore_testkit::FaultyDisk;
    use foreshore_wal::Urgency;

    use super::*;
    use crate::{BeginOptions, Durability, Engine, EngineOptions, TableInfo, Txn, TxnError};

    const ROWS: u32 = 20;
    const LONG: [u8; 9000] = [1; 9000];

    fn begin(engine: &Arc<Engine>) -> Txn {
        engine.begin(BeginOptions::default()).unwrap()
    }

    fn fill(txn: &mut Txn, table: &TableInfo) {
        (0..ROWS).for_each(|key| assert!(!txn.put(table, &key.to_be_bytes(), &LONG).unwrap()));
    }

    fn happens(done: impl Fn() -> bool, within: Duration) -> bool {
        let begun = Instant::now();
        while !done() && begun.elapsed() < within {
            thread::sleep(Duration::from_millis(1));
        }
        done()
    }

    /// Ends a transaction that `before` has prepared, by `end`, while work has no room in the log. It hardly waits
    /// for that, and in the end no long value has a page.
    fn ends_without_room(
        before: impl FnOnce(&Arc<Engine>, &TableInfo) -> Txn,
        end: impl FnOnce(Txn) -> Result<(), TxnError> + Send,
    ) {
        let disk = FaultyDisk::new();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let engine = Engine::open(shared, Path::new("db"), &EngineOptions::default()).unwrap();
        let [table, filler] = ["table", "filler"].map(|name| engine.create_table(name, b"").unwrap());
        let txn = before(&engine, &table);
        disk.hold_syncs(true);
        let log = &engine.core().log;
        let has_room = || log.has_room(Urgency::Work, 64 << 10);
        let is_over = AtomicBool::new(false);
        let (is_full, ended) = thread::scope(|scope| {
            scope.spawn(|| {
                let mut txn = begin(&engine);
                for key in (0_u32..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    txn.put(&filler, &key.to_be_bytes(), &[0; 100]).unwrap();
                }
            });
            // No spare segment is made while nothing is synced.
            let stands_still = || {
                let tail = log.tail();
                thread::sleep(Duration::from_millis(100));
                !has_room() && log.tail() == tail
            };
            let is_full = happens(stands_still, Duration::from_secs(60));
            let ending = scope.spawn(|| end(txn));
            let ended = happens(|| ending.is_finished(), Duration::from_secs(5));
            is_over.store(true, Ordering::Relaxed);
            disk.hold_syncs(false);
            ending.join().unwrap().unwrap();
            (is_full, ended)
        });
        assert!(is_full && ended, "the log was full: {is_full}; it ended: {ended}");
        let long_values = engine.core().long_values();
        let pages = || {
            let mut pages = 0;
            // It fails while pages are given back.
            long_values.pages(&mut |_| pages += 1).map(|()| pages)
        };
        let few = || pages().is_ok_and(|pages| pages <= 2);
        assert!(happens(few, Duration::from_secs(60)), "{:?} pages of long values stay", pages());
        engine.close().unwrap();
    }

    /// A rollback waited for room in the log without end, with all of its locks, to tidy.
    #[test]
    fn a_rollback_of_long_values_waits_for_no_room_for_long() {
        let before = |engine: &Arc<Engine>, table: &TableInfo| {
            let mut txn = begin(engine);
            fill(&mut txn, table);
            txn
        };
        ends_without_room(before, Txn::rollback);
    }

    /// So did a commit that waits for nothing else.
    #[test]
    fn a_lazy_commit_that_deletes_long_values_waits_for_no_room_for_long() {
        let before = |engine: &Arc<Engine>, table: &TableInfo| {
            let mut txn = begin(engine);
            fill(&mut txn, table);
            txn.commit(Durability::Sync).unwrap();
            let mut txn = begin(engine);
            (0..ROWS).for_each(|key| assert!(txn.delete(table, &key.to_be_bytes()).unwrap()));
            txn
        };
        ends_without_room(before, |txn| txn.commit(Durability::Lazy).map(drop));
    }

    fn ghosts(engine: &Arc<Engine>) -> u64 {
        let mut report = foreshore_btree::VerifyReport::default();
        engine.core().long_values().examine(&mut report, &mut |_, _| Ok(()), &mut |_| {}).unwrap();
        report.ghosts
    }

    /// Whoever had deleted long values and taken that back left their ids to the reaper, which then purged them from
    /// under another transaction that had deleted them and could still take it back (BTREE-14). On a full disk it could
    /// not.
    #[test]
    fn a_deletion_that_was_taken_back_leaves_nothing_to_the_reaper() {
        let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
        let engine = Engine::open(disk, Path::new("db"), &EngineOptions::default()).unwrap();
        let table = engine.create_table("table", b"").unwrap();
        let delete = |txn: &mut Txn| {
            (0..ROWS).for_each(|key| assert!(txn.delete(&table, &key.to_be_bytes()).unwrap()));
        };
        let mut txn = begin(&engine);
        fill(&mut txn, &table);
        txn.commit(Durability::Sync).unwrap();
        // The end of a transaction cannot tidy at the moment, for whatever reason (TXN-43).
        let untidied = engine.core().trees.without_tidying();
        let mut first = begin(&engine);
        let savepoint = first.savepoint().unwrap();
        delete(&mut first);
        first.rollback_to(savepoint).unwrap();
        first.commit(Durability::Sync).unwrap();
        let mut second = begin(&engine);
        delete(&mut second);
        let deleted = ghosts(&engine);
        drop(untidied);
        assert!(!happens(|| ghosts(&engine) != deleted, Duration::from_secs(1)), "of {deleted}");
        second.rollback().unwrap();
        assert_eq!((deleted > u64::from(ROWS), ghosts(&engine)), (true, 0));
    }
}
