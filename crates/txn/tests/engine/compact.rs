//! Compacting: space comes back while the database is used, and no crash loses or leaks a page.

use std::{collections::BTreeMap, ops::ControlFlow};

use foreshore_base::PageId;
use foreshore_env::{
    disk::Disk,
    random::Xorshift,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use foreshore_testkit::{CrashMode, FaultyDisk, Running};
use foreshore_txn::{CompactReport, Durability, Engine, EngineOptions, IntentMode, PoolOptions, TableInfo};

use crate::{
    assert_sound, begin, directory, get, go_on, open, open_with, probe::Probe, read_all, scan, tiny,
};

/// Small nodes, and frames enough that nothing is written but by checkpoints.
fn roomy() -> EngineOptions {
    EngineOptions { pool: PoolOptions { bytes: 1024 * 8192, ..tiny().pool }, ..tiny() }
}

fn compact(engine: &Arc<Engine>) -> CompactReport {
    let report = engine.compact(&mut go_on).unwrap();
    assert_eq!(report.pages_after, engine.pool().page_count());
    assert_eq!(report.fragmented_bytes_after, engine.pool().free_page_count().unwrap() * 8192);
    report
}

fn fill(engine: &Arc<Engine>, name: &str, rows: std::ops::Range<u32>) -> TableInfo {
    let table = engine.create_table(name, b"").unwrap();
    for row in rows {
        let mut txn = begin(engine);
        let length = if row % 50 == 7 { 9000 } else { 40 };
        txn.put(&table, &row.to_be_bytes(), &vec![row as u8; length]).unwrap();
        txn.commit(Durability::Lazy).unwrap();
    }
    table
}

fn delete(engine: &Arc<Engine>, table: &TableInfo, rows: impl Iterator<Item = u32>) {
    for row in rows {
        let mut txn = begin(engine);
        assert!(txn.delete(table, &row.to_be_bytes()).unwrap());
        txn.commit(Durability::Lazy).unwrap();
    }
    // Of deletes that are not durable the names are kept.
    let mut txn = begin(engine);
    txn.put(table, b"last", b"").unwrap();
    txn.commit(Durability::Sync).unwrap();
}

/// The file's length on the disk, in pages.
fn file_pages(disk: &FaultyDisk) -> u64 {
    let data = disk.files().into_iter().find(|path| path.ends_with("data")).unwrap();
    disk.read_file(&data).unwrap().len() as u64 / 8192
}

#[test]
fn what_was_deleted_gives_its_space_back() {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &roomy()).unwrap();
    let first = fill(&engine, "first", 0..900);
    let second = fill(&engine, "second", 0..600);
    delete(&engine, &first, (0..900).filter(|row| row % 9 != 0));
    let content = read_all(&engine).unwrap();
    let report = compact(&engine);
    assert!(report.pages_moved > 50 && report.pages_left == 0, "{report:?}");
    assert!(report.pages_after * 10 < report.pages_before * 8, "{report:?}");
    let CompactReport { fragmented_bytes_before: before, fragmented_bytes_after: after, .. } = report;
    assert!(after < before && after < 64 * 8192, "{report:?}");
    assert_eq!(file_pages(&disk), report.pages_after);
    assert!(read_all(&engine).unwrap() == content);
    assert_sound(&engine, "compacted");
    // Again: there is little left to do.
    let again = compact(&engine);
    assert!(again.pages_after <= report.pages_after && again.pages_moved < report.pages_moved, "{again:?}");
    // The file grows again, over what was cut off.
    delete(&engine, &second, 0..100);
    fill(&engine, "third", 0..1500);
    assert!(engine.pool().page_count() > report.pages_before, "{report:?}");
    let content = read_all(&engine).unwrap();
    assert_sound(&engine, "grown again");
    engine.close().unwrap();
    let engine = open(&disk).unwrap();
    assert!(read_all(&engine).unwrap() == content);
    assert_sound(&engine, "opened again");
}

/// At its first step, among leaves, and among pages that move: what was done stays, nothing else is, the file is cut.
#[test]
fn a_compaction_that_is_stopped_has_done_what_it_has_done() {
    let engine = open_with(&FaultyDisk::new(), &roomy()).unwrap();
    let table = fill(&engine, "table", 0..1500);
    delete(&engine, &table, (0..1500).filter(|row| row % 9 != 0));
    let content = read_all(&engine).unwrap();
    let stopped_when = |enough: fn(CompactReport) -> bool| {
        let mut steps_beyond = 0;
        let report = engine.compact(&mut |report| {
            steps_beyond += u32::from(enough(report));
            if enough(report) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(steps_beyond, 1);
        assert!(read_all(&engine).unwrap() == content);
        assert_sound(&engine, "stopped");
        report.unwrap()
    };
    let nothing = stopped_when(|_| true);
    assert_eq!((nothing.leaves_merged, nothing.pages_moved), (0, 0));
    let merged = stopped_when(|report| report.leaves_merged > 0);
    assert_eq!((merged.pages_moved, merged.pages_after), (0, nothing.pages_before));
    let moved = stopped_when(|report| report.pages_moved > 0);
    assert!(moved.pages_after < moved.pages_before, "{moved:?}");
}

/// Leaves that are two fifths full become fewer, though nobody who deleted there thought them empty enough.
#[test]
fn sparse_leaves_are_merged() {
    let engine =
        open_with(&FaultyDisk::new(), &EngineOptions { node_capacity: usize::MAX, ..roomy() }).unwrap();
    let table = engine.create_table("table", b"").unwrap();
    let mut txn = begin(&engine);
    for row in 0..4000_u32 {
        txn.put(&table, &row.to_be_bytes(), &[row as u8; 150]).unwrap();
    }
    txn.commit(Durability::Sync).unwrap();
    let mut txn = begin(&engine);
    for row in (0..4000_u32).filter(|row| row % 5 > 1) {
        assert!(txn.delete(&table, &row.to_be_bytes()).unwrap());
    }
    txn.commit(Durability::Sync).unwrap();
    let content = read_all(&engine).unwrap();
    let report = compact(&engine);
    assert!(report.leaves_merged > 25 && report.pages_left == 0, "{report:?}");
    assert!(report.pages_after * 10 < report.pages_before * 9, "{report:?}");
    assert!(read_all(&engine).unwrap() == content);
    assert_sound(&engine, "merged");
}

/// The root of a table that was made last lies at the end of the file.
#[test]
fn a_root_moves_unless_its_table_is_used() {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &roomy()).unwrap();
    fill(&engine, "large", 0..1500);
    let last = fill(&engine, "last", 0..100);
    assert!(engine.drop_table("large").unwrap());
    let mut user = begin(&engine);
    assert!(get(&mut user, &last, &5_u32.to_be_bytes()).unwrap().is_some());
    let held = compact(&engine);
    assert!(held.pages_left >= 1 && held.pages_moved > 10, "{held:?}");
    assert!(get(&mut user, &last, &6_u32.to_be_bytes()).unwrap().is_some());
    user.commit(Durability::Sync).unwrap();
    let content = read_all(&engine).unwrap();
    let freed = compact(&engine);
    assert!(freed.pages_left == 0 && freed.pages_moved >= 1, "{freed:?}");
    assert!(freed.pages_after < held.pages_after && freed.pages_after <= 96, "{held:?}, {freed:?}");
    assert!(read_all(&engine).unwrap() == content);
    assert_sound(&engine, "with a root that has moved");
    // The handle of before is good, and so are drops and crashes.
    let mut txn = begin(&engine);
    txn.put(&last, b"key", b"value").unwrap();
    txn.commit(Durability::Sync).unwrap();
    let crashed = open(&disk.after_crash(CrashMode::DropUnsynced)).unwrap();
    assert_sound(&crashed, "after a crash");
    let mut txn = begin(&crashed);
    let again = crashed.table("last").unwrap().unwrap();
    assert_eq!(get(&mut txn, &again, b"key").unwrap().as_deref(), Some(&b"value"[..]));
    txn.commit(Durability::Sync).unwrap();
    assert!(engine.drop_table("last").unwrap());
    compact(&engine);
    assert_eq!(engine.stats().tables_dropped, 0);
    assert_sound(&engine, "dropped");
}

/// A table that somebody has for himself, and a check: both are waited for, or left alone, and neither is disturbed.
#[test]
fn a_locked_table_stays_where_it_is() {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &roomy()).unwrap();
    let low = fill(&engine, "low", 0..800);
    let high = fill(&engine, "high", 0..300);
    delete(&engine, &low, 0..750);
    let mut owner = begin(&engine);
    owner.lock_table(&high, IntentMode::X).unwrap();
    let report = compact(&engine);
    assert!(report.pages_left > 50, "{report:?}");
    owner.put(&high, &1_u32.to_be_bytes(), b"changed").unwrap();
    owner.commit(Durability::Sync).unwrap();
    let report = compact(&engine);
    assert!(report.pages_left == 0 && report.pages_after < report.pages_before, "{report:?}");
    assert_sound(&engine, "at the end");
}

/// A crash at every change of the disk, during a compaction and after it: nothing is lost, nothing leaks.
#[test]
fn a_crash_during_a_compaction_changes_nothing() {
    let disk = FaultyDisk::new();
    disk.create_directory(directory()).unwrap();
    disk.sync_directory(std::path::Path::new("/")).unwrap();
    let watching = Arc::new(AtomicBool::new(false));
    let images = Arc::new(Mutex::new(Vec::new()));
    let (for_probe, kept, snapshots) = (Arc::clone(&watching), Arc::clone(&images), disk.clone());
    let probe = Probe::new(
        disk,
        Box::new(move |change| {
            if for_probe.load(Ordering::SeqCst) {
                // One of them at each change: one after another, all of them at each stage.
                let modes = [CrashMode::DropUnsynced, CrashMode::KeepAll, CrashMode::TornRandom(change)];
                let mode = modes[change as usize % modes.len()];
                kept.lock().push((change, mode, snapshots.after_crash(mode)));
            }
        }),
    );
    // Few frames: pages are evicted, and so written, all the time.
    let engine = Engine::open(Arc::new(probe) as Arc<dyn Disk>, directory(), &tiny()).unwrap();
    let first = fill(&engine, "first", 0..260);
    fill(&engine, "second", 0..90);
    fill(&engine, "third", 0..3);
    delete(&engine, &first, (0..260).filter(|row| row % 8 != 0));
    let content = read_all(&engine).unwrap();
    engine.checkpoint().unwrap();
    watching.store(true, Ordering::SeqCst);
    let report = compact(&engine);
    assert!(report.pages_moved > 20 && report.pages_after < report.pages_before, "{report:?}");
    engine.checkpoint().unwrap();
    watching.store(false, Ordering::SeqCst);
    // A root was among them.
    assert_eq!(report.pages_left, 0, "{report:?}");
    engine.close().unwrap();

    let images = std::mem::take(&mut *images.lock());
    assert!(images.len() > 100, "only {} crashes", images.len());
    let (mut long, mut short) = (0, 0);
    for (change, mode, disk) in images {
        let context = format!("change {change}, {mode:?}");
        let engine = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_sound(&engine, &context);
        assert!(read_all(&engine).unwrap() == content, "{context}");
        if engine.pool().page_count() < report.pages_before {
            short += 1
        } else {
            long += 1
        }
        // It goes on from there, over what was cut off, and may crash again.
        if change % 10 == 0 {
            fill(&engine, "fourth", 0..100);
            assert_sound(&engine, &context);
            let content = read_all(&engine).unwrap();
            engine.log().flush(foreshore_base::Lsn(engine.log().tail().0 - 1)).unwrap();
            let again = open(&disk.after_crash(CrashMode::TornRandom(change))).unwrap();
            assert!(read_all(&again).unwrap() == content, "{context}, and again");
            assert_sound(&again, &context);
        }
        engine.close().unwrap_or_else(|error| panic!("{context}: close: {error}"));
    }
    assert!(long > 0 && short > 0, "{long} with the whole file, {short} with a part of it");
}

/// Writers, readers and scans go on while the database is compacted again and again.
#[test]
fn a_database_is_compacted_while_it_is_used() {
    const THREADS: u64 = 3;
    const KEYS: u64 = 400;
    let disk = FaultyDisk::new();
    let engine =
        open_with(&disk, &EngineOptions { pool: PoolOptions { cleaners: 1, ..roomy().pool }, ..roomy() })
            .unwrap();
    let table = fill(&engine, "table", 0..0);
    let other = fill(&engine, "other", 0..500);
    delete(&engine, &other, std::iter::empty());
    let running = Running::default();
    let (moved, models) = thread::scope(|scope| {
        let guard = running.guard();
        let writers: Vec<_> = (0..THREADS)
            .map(|writer| {
                let (engine, table, running) = (&engine, &table, &running);
                scope.spawn(move || {
                    let mut random = Xorshift::new(writer + 1);
                    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
                    let mut round = 0;
                    while running.is_on() {
                        round += 1;
                        // Waves: many keys, then few.
                        let wave = if round / 400 % 2 == 0 { 8 } else { 2 };
                        let key = [writer.to_be_bytes(), random.below(KEYS).to_be_bytes()].concat();
                        let mut txn = begin(engine);
                        if random.below(10) < wave {
                            let value = vec![round as u8; random.below(200) as usize];
                            txn.put(table, &key, &value).unwrap();
                            model.insert(key.clone(), value);
                        } else {
                            assert_eq!(txn.delete(table, &key).unwrap(), model.remove(&key).is_some());
                        }
                        assert_eq!(get(&mut txn, table, &key).unwrap(), model.get(&key).cloned());
                        txn.commit(Durability::Lazy).unwrap();
                    }
                    model
                })
            })
            .collect();
        let scanner = scope.spawn(|| {
            while running.is_on() {
                let mut txn = begin(&engine);
                assert_eq!(scan(&mut txn, &other).unwrap().len(), 501);
                txn.commit(Durability::Sync).unwrap();
            }
        });
        let (start, mut moved, mut rounds) = (Instant::now(), 0, 0);
        let is_enough = |moved| start.elapsed() >= Duration::from_millis(1500) && moved > 20;
        while rounds < 5 || (!is_enough(moved) && start.elapsed() < Duration::from_secs(120)) {
            // Others change the counts of pages meanwhile, so nothing is compared here.
            moved += engine.compact(&mut go_on).unwrap().pages_moved;
            rounds += 1;
        }
        drop(guard);
        scanner.join().unwrap();
        let models: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        (moved, models)
    });
    assert!(moved > 20, "{moved} pages moved");
    let expected: BTreeMap<_, _> = models.into_iter().flatten().collect();
    let mut txn = begin(&engine);
    let found: BTreeMap<_, _> = scan(&mut txn, &table).unwrap().into_iter().collect();
    assert!(found == expected);
    txn.commit(Durability::Sync).unwrap();
    assert_sound(&engine, "at the end");
    let report = compact(&engine);
    assert!(report.fragmented_bytes_after < 64 * 8192, "{report:?}");
    let mut pages: Vec<PageId> = Vec::new();
    engine.pool().visit_allocated(&mut |page| pages.push(page)).unwrap();
    assert!(pages.iter().all(|page| u64::from(page.0) < report.pages_after));
    engine.close().unwrap();
    let engine = open(&disk).unwrap();
    assert_sound(&engine, "opened again");
}
