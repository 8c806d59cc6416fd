//! Dropping tables: the name goes at once, the pages soon after, and no crash loses or leaks one.

use foreshore_base::{PageId, StorageError};
use foreshore_env::{
    disk::Disk,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_txn::{Durability, Engine, EngineOptions, IntentMode, LockError, TableInfo, TxnError};

use crate::{assert_sound, begin, directory, get, go_on, open, open_with, probe::Probe, put, scan, tiny};

/// Waits until the pages of all dropped tables are free.
fn reaped(engine: &Arc<Engine>) {
    let start = Instant::now();
    while engine.stats().tables_dropped > 0 {
        assert!(start.elapsed() < Duration::from_secs(120), "{:?}", engine.stats());
        thread::sleep(Duration::from_millis(1));
    }
}

fn allocated(engine: &Engine) -> Vec<PageId> {
    let mut pages = Vec::new();
    engine.pool().visit_allocated(&mut |page| pages.push(page)).unwrap();
    pages
}

/// A table of short and long values.
pub(crate) fn fill(engine: &Arc<Engine>, name: &str, rows: u32) -> TableInfo {
    let table = engine.create_table(name, b"").unwrap();
    let mut txn = begin(engine);
    for row in 0..rows {
        let length = if row % 10 == 3 { 20_000 } else { 40 };
        txn.put(&table, &row.to_be_bytes(), &vec![row as u8; length]).unwrap();
        if row % 7 == 0 {
            txn.delete(&table, &(row / 2).to_be_bytes()).unwrap();
        }
    }
    txn.commit(Durability::Sync).unwrap();
    table
}

#[test]
fn a_dropped_table_gives_all_its_pages_back() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let kept = fill(&engine, "kept", 60);
    // Both rows that the catalogue will have had, so that its tree is as large as it will be.
    fill(&engine, "dropped", 0);
    assert!(engine.drop_table("dropped").unwrap());
    reaped(&engine);
    let before = allocated(&engine).len();
    for round in 0..3 {
        let table = fill(&engine, "dropped", 200);
        assert!(allocated(&engine).len() > before + 40);
        assert!(engine.drop_table("dropped").unwrap());
        assert!(!engine.drop_table("dropped").unwrap(), "twice");
        assert!(engine.table("dropped").unwrap().is_none() && table.is_gone());
        // Sound while it is being taken apart, and after.
        assert_sound_with_users(&engine);
        reaped(&engine);
        assert_sound(&engine, "at the end");
        // The overflow table keeps a few nearly empty nodes: more where the check came between, for whose sake ghosts
        // had to stay. What no tree has stays allocated in a compaction, too.
        if allocated(&engine).len() > before + 8 {
            engine.compact(&mut go_on).unwrap();
        }
        assert!(
            allocated(&engine).len() <= before + 8,
            "round {round}: {} of {before}",
            allocated(&engine).len()
        );
    }
    let mut txn = begin(&engine);
    assert!(scan(&mut txn, &kept).unwrap().len() > 30);
    txn.commit(Durability::Sync).unwrap();
    engine.close().unwrap();
    let engine = open(&disk).unwrap();
    assert!(engine.table("dropped").unwrap().is_none() && engine.table("kept").unwrap().is_some());
    assert_sound(&engine, "opened again");
}

/// Who waits for a drop whose commit cannot be flushed, because the disk has failed, is told that, and not that the
/// catalog is damaged.
#[test]
fn a_drop_behind_one_that_cannot_be_flushed_is_told_why() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = fill(&engine, "table", 20);
    let mut user = begin(&engine);
    assert!(get(&mut user, &table, &5_u32.to_be_bytes()).unwrap().is_some());
    thread::scope(|scope| {
        let wait_for = |waiters: usize| {
            let start = Instant::now();
            while engine.locks().waiters().len() < waiters {
                assert!(start.elapsed() < Duration::from_secs(120), "{waiters} do not wait");
                thread::sleep(Duration::from_millis(1));
            }
        };
        let first = scope.spawn(|| engine.drop_table("table"));
        wait_for(1);
        let second = scope.spawn(|| engine.drop_table("table"));
        wait_for(2);
        disk.crash();
        user.rollback().unwrap();
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        // The flusher may come before the commit, and fail.
        let known = matches!(
            first,
            Err(TxnError::OutcomeUnknown { .. } | TxnError::Storage(StorageError::Poisoned { .. }))
        );
        assert!(known, "{first:?}");
        assert!(matches!(second, Err(TxnError::Storage(StorageError::Poisoned { .. }))), "{second:?}");
    });
    assert!(!table.is_gone());
}

#[test]
fn a_drop_waits_for_those_who_use_the_table() {
    let engine = open(&FaultyDisk::new()).unwrap();
    let table = fill(&engine, "table", 20);
    let mut user = begin(&engine);
    assert!(get(&mut user, &table, &5_u32.to_be_bytes()).unwrap().is_some());
    thread::scope(|scope| {
        let drop = scope.spawn(|| engine.drop_table("table").unwrap());
        let start = Instant::now();
        while engine.locks().waiters().is_empty() {
            assert!(start.elapsed() < Duration::from_secs(120), "it does not wait");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!drop.is_finished() && !table.is_gone());
        // Who comes now waits behind it, and is told.
        let late = scope.spawn(|| get(&mut begin(&engine), &table, &5_u32.to_be_bytes()));
        thread::sleep(Duration::from_millis(20));
        assert!(get(&mut user, &table, &6_u32.to_be_bytes()).unwrap().is_some());
        user.commit(Durability::Sync).unwrap();
        assert!(drop.join().unwrap());
        let late = late.join().unwrap();
        assert!(matches!(&late, Err(TxnError::TableGone { name }) if name == "table"), "{late:?}");
    });
    let mut txn = begin(&engine);
    for result in [
        txn.insert(&table, b"key", b"value").map(drop),
        txn.lock_table(&table, IntentMode::S),
        txn.delete(&table, b"key").map(drop),
        scan(&mut txn, &table).map(drop),
    ] {
        assert!(matches!(result, Err(TxnError::TableGone { .. })), "{result:?}");
    }
    // A table of that name is another table.
    let again = engine.create_table("table", b"").unwrap();
    assert!(again.id() != table.id() && !again.is_gone());
    assert!(scan(&mut txn, &again).unwrap().is_empty());
    txn.commit(Durability::Sync).unwrap();
    reaped(&engine);
    assert_sound(&engine, "at the end");
}

/// A check locks the volume; the reaper neither waits for it for ever, nor forgets its work.
#[test]
fn the_reaper_lets_others_have_the_volume() {
    let engine = open(&FaultyDisk::new()).unwrap();
    fill(&engine, "table", 100);
    let mut reader = begin(&engine);
    let other = engine.create_table("other", b"").unwrap();
    reader.lock_table(&other, IntentMode::S).unwrap();
    assert!(engine.drop_table("table").unwrap());
    for _ in 0..20 {
        assert_sound_with_users(&engine);
    }
    reader.commit(Durability::Sync).unwrap();
    reaped(&engine);
    assert_sound(&engine, "at the end");
}

fn assert_sound_with_users(engine: &Arc<Engine>) {
    match engine.verify_within(Duration::from_secs(5)) {
        Ok(report) => assert!(report.is_sound(), "{:#?}", report.problems),
        Err(error) => assert!(matches!(error, TxnError::Lock(LockError::Timeout(_))), "{error}"),
    }
}

/// A log that cannot grow: the reaper has checkpoints made, and goes on.
#[test]
fn a_table_larger_than_the_log_is_freed() {
    let mut options = tiny();
    options.log.capacity_bytes = 1 << 20;
    let engine = open_with(&FaultyDisk::new(), &options).unwrap();
    let table = engine.create_table("table", b"").unwrap();
    for part in 0..150_u32 {
        let mut txn = begin(&engine);
        for row in 0..20_u32 {
            txn.put(&table, &(part * 20 + row).to_be_bytes(), &[7; 600]).unwrap();
        }
        txn.commit(Durability::Lazy).unwrap();
    }
    let before = allocated(&engine).len();
    assert!(engine.drop_table("table").unwrap());
    reaped(&engine);
    assert!(before > 700 && allocated(&engine).len() < 20, "{before} to {}", allocated(&engine).len());
    assert_sound(&engine, "at the end");
}

/// Nor do the long values of one leaf fit the log, and hardly one alone with the images of its pages: the reaper undid
/// what it had deleted of them, and began anew, for ever.
#[test]
fn long_values_of_a_leaf_that_are_larger_than_the_log_are_freed() {
    let mut options = EngineOptions { node_capacity: usize::MAX, ..tiny() };
    options.log.capacity_bytes = 1 << 20;
    let engine = open_with(&FaultyDisk::new(), &options).unwrap();
    let table = engine.create_table("table", b"").unwrap();
    for row in 0..6_u32 {
        engine.checkpoint().unwrap();
        put(&engine, &table, &row.to_be_bytes(), &[7; 180_000]);
    }
    let before = allocated(&engine).len();
    assert!(engine.drop_table("table").unwrap());
    assert_sound_with_users(&engine);
    reaped(&engine);
    // In so short a log there was not always room for the ghosts.
    engine.compact(&mut go_on).unwrap();
    assert!(before > 150 && allocated(&engine).len() < 20, "{before} to {}", allocated(&engine).len());
    assert_sound(&engine, "at the end");
}

/// A crash at every change of the disk, from before the drop to after the last page is freed: the table is there as a
/// whole or not at all, and in the end no page is lost.
#[test]
fn a_crash_leaves_a_whole_table_or_free_pages() {
    let disk = FaultyDisk::new();
    disk.create_directory(directory()).unwrap();
    disk.sync_directory(std::path::Path::new("/")).unwrap();
    // 0: it is there; 1: perhaps; 2: it is gone.
    let stage = Arc::new(AtomicU64::new(u64::MAX));
    let images = Arc::new(Mutex::new(Vec::new()));
    let (for_probe, kept, snapshots) = (Arc::clone(&stage), Arc::clone(&images), disk.clone());
    let probe = Probe::new(
        disk,
        Box::new(move |change| {
            let stage = for_probe.load(Ordering::SeqCst);
            if stage != u64::MAX {
                let mode = [CrashMode::DropUnsynced, CrashMode::KeepAll, CrashMode::TornRandom(change)];
                for mode in mode {
                    kept.lock().push((stage, change, mode, snapshots.after_crash(mode)));
                }
            }
        }),
    );
    let engine = Engine::open(Arc::new(probe) as Arc<dyn Disk>, directory(), &tiny()).unwrap();
    let other = fill(&engine, "other", 30);
    fill(&engine, "table", 120);
    engine.checkpoint().unwrap();
    stage.store(1, Ordering::SeqCst);
    assert!(engine.drop_table("table").unwrap());
    stage.store(2, Ordering::SeqCst);
    reaped(&engine);
    // Pages of the dropped table are used again, and a checkpoint falls in between.
    engine.checkpoint().unwrap();
    let mut txn = begin(&engine);
    for row in 0..200_u32 {
        txn.put(&other, &row.to_be_bytes(), &[9; 300]).unwrap();
    }
    txn.commit(Durability::Sync).unwrap();
    stage.store(u64::MAX, Ordering::SeqCst);
    engine.close().unwrap();

    let images = std::mem::take(&mut *images.lock());
    assert!(images.len() > 100, "only {} crashes", images.len());
    let (mut whole, mut gone) = (0, 0);
    for (stage, change, mode, disk) in images {
        let context = format!("stage {stage}, change {change}, {mode:?}");
        // The reaper of the first opening is interrupted again.
        let engine = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_sound_with_users(&engine);
        engine.close().unwrap();
        let engine = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
        match engine.table("table").unwrap() {
            Some(table) => {
                whole += 1;
                assert_eq!(stage, 1, "{context}");
                let mut txn = begin(&engine);
                let rows = scan(&mut txn, &table).unwrap();
                assert!(rows.len() > 90 && rows.iter().all(|(key, value)| key[3] == value[0]), "{context}");
                txn.commit(Durability::Sync).unwrap();
                assert!(engine.drop_table("table").unwrap(), "{context}");
            }
            None => gone += 1,
        }
        reaped(&engine);
        assert_sound(&engine, &context);
        engine.close().unwrap();
    }
    assert!(whole > 0 && gone > 0, "{whole} whole, {gone} gone");
}

/// One bad page keeps the space of its own table, and of no other; the reason is told, and the next opening tries
/// again.
#[test]
fn a_damaged_page_keeps_the_pages_of_its_own_table_only() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let bad = fill(&engine, "bad", 300);
    fill(&engine, "good", 300);
    let before = allocated(&engine).len();
    engine.close().unwrap();
    drop(engine);
    // A leaf of the bad table: the header of a page has table id, level and kind from byte 16 on.
    let data = directory().join("data");
    let bytes = disk.read_file(&data).unwrap();
    let [a, b, c, d] = bad.id().0.to_le_bytes();
    let is_leaf = |page: &usize| bytes[page * 8192 + 16..].starts_with(&[a, b, c, d, 0, 3]);
    let damaged = (2..bytes.len() / 8192).filter(is_leaf).nth(3).unwrap();
    disk.flip_bit(&data, damaged as u64 * 8192 + 4000, 2);
    for round in 0..2 {
        let engine = open(&disk).unwrap();
        if round == 0 {
            assert!(engine.drop_table("bad").unwrap());
            assert!(engine.drop_table("good").unwrap());
        }
        let start = Instant::now();
        while engine.stats().tables_dropped > 1 || engine.stats().tables_stuck.is_empty() {
            assert!(start.elapsed() < Duration::from_secs(120), "{:?}", engine.stats());
            thread::sleep(Duration::from_millis(1));
        }
        let [stuck] = &engine.stats().tables_stuck[..] else { panic!("{:?}", engine.stats()) };
        assert_eq!((stuck.table, &*stuck.name), (bad.id(), "bad"), "round {round}");
        assert!(stuck.failure.contains(&damaged.to_string()), "{}", stuck.failure);
        assert!(allocated(&engine).len() + 40 < before, "the good table's pages are free");
        let report = engine.verify().unwrap();
        assert!(report.problems.iter().any(|problem| problem.contains(&damaged.to_string())));
        let report = engine.compact(&mut go_on).unwrap();
        assert_eq!(report.dropped_left, 1);
        // Others are dropped and freed as ever.
        fill(&engine, "more", 50);
        assert!(engine.drop_table("more").unwrap());
        while engine.stats().tables_dropped > 1 {
            assert!(start.elapsed() < Duration::from_secs(120), "{:?}", engine.stats());
            thread::sleep(Duration::from_millis(1));
        }
        engine.close().unwrap();
    }
}
