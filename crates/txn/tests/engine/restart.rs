//! How long a recovery takes, and what is told about it.

use std::mem;

use foreshore_env::{
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};
use foreshore_testkit::CrashMode;
use foreshore_txn::{RecoveryObserver, RecoveryPhase, RecoveryProgress};

use super::*;

/// Writes about so many bytes of log, a thousand at a time.
fn write_log(engine: &Arc<Engine>, table: &TableInfo, bytes: u64) {
    let until = engine.stats().log_tail + bytes;
    for number in 0_u32.. {
        if engine.stats().log_tail >= until {
            return;
        }
        put(engine, table, &(number % 50).to_be_bytes(), &number.to_be_bytes().repeat(250));
    }
}

fn options(recovery_target: Duration) -> EngineOptions {
    let pool = PoolOptions { bytes: 8 << 20, ..tiny().pool };
    EngineOptions { recovery_target, pool, node_capacity: usize::MAX, ..tiny() }
}

/// With a target, checkpoints come as often as it needs, and the log that a crash leaves to recovery is as short.
#[test]
fn a_recovery_target_takes_checkpoints_as_often_as_it_needs() {
    let target = Duration::from_millis(10);
    let left_by = |recovery_target| {
        let disk = FaultyDisk::new();
        let engine = open_with(&disk, &options(recovery_target)).unwrap();
        let table = engine.create_table("t", b"").unwrap();
        let before = engine.stats().checkpoints;
        write_log(&engine, &table, 3 << 20);
        // The checkpointer is a thread that has to get its turn, and gets few on a busy machine: then there is more to
        // do.
        let deadline = Instant::now() + Duration::from_secs(120);
        let estimate = || engine.stats().recovery_estimate;
        while !recovery_target.is_zero()
            && (estimate() > recovery_target || engine.stats().checkpoints - before <= 3)
        {
            assert!(Instant::now() < deadline, "{:?}", engine.stats());
            if estimate() <= recovery_target {
                write_log(&engine, &table, 1 << 20);
            }
            thread::sleep(Duration::from_millis(1));
        }
        let (estimate, checkpoints) = (engine.stats().recovery_estimate, engine.stats().checkpoints - before);
        let again = open_with(&disk.after_crash(CrashMode::DropUnsynced), &tiny()).unwrap();
        let report = again.stats().recovery;
        (estimate, checkpoints, report.log_end.0 - report.redo_from.0)
    };
    let (estimate, checkpoints, bytes) = left_by(Duration::ZERO);
    assert!(checkpoints == 0 && bytes > 3 << 20 && estimate > target, "{checkpoints} {bytes} {estimate:?}");
    let (estimate, checkpoints, bytes) = left_by(target);
    assert!(checkpoints > 3 && bytes < 1 << 20 && estimate <= target, "{checkpoints} {bytes} {estimate:?}");
}

/// What a large transaction had done before the last checkpoint was undone: that tells nothing of the log behind it.
#[test]
fn what_is_undone_is_no_redo() {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &options(Duration::from_secs(30))).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let mut loser = begin(&engine);
    for number in 0..20_000_u32 {
        loser.put(&table, &number.to_be_bytes(), b"value").unwrap();
    }
    engine.checkpoint().unwrap();
    // Unless this thread loses its processor.
    let is_told = |_| {
        let again = open_with(&disk.after_crash(CrashMode::DropUnsynced), &tiny()).unwrap();
        let report = again.stats().recovery;
        assert_eq!(report.records_undone, 20_000);
        report.redo_duration < report.duration / 4
    };
    assert!((0..10).any(is_told));
}

/// The whole pages that the first changes after a checkpoint log ask for no other one, which would have all pages
/// logged again.
#[test]
fn images_of_pages_ask_for_no_checkpoint() {
    const GROWTH: u64 = 512 << 10;
    let disk = FaultyDisk::new();
    let options = EngineOptions { checkpoint_bytes: GROWTH, ..options(Duration::ZERO) };
    let engine = open_with(&disk, &options).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    // A page has few large rows, and a small one between them.
    for number in 0_u64..800 {
        let value: &[u8] = if number % 4 == 0 { &[7; 8] } else { &[7; 1500] };
        put(&engine, &table, &number.to_be_bytes(), value);
    }
    engine.checkpoint().unwrap();
    let before = engine.stats();
    for number in (0_u64..800).step_by(4) {
        put(&engine, &table, &number.to_be_bytes(), &[8; 8]);
    }
    // Time to take one, if it was asked for.
    thread::sleep(Duration::from_millis(300));
    let stats = engine.stats();
    let (grown, images) =
        (stats.log_tail - before.log_tail, stats.pool.image_bytes - before.pool.image_bytes);
    assert!(grown > 3 * GROWTH / 2 && grown - images < GROWTH / 2, "{grown} {images}");
    assert_eq!(stats.checkpoints, before.checkpoints, "{grown} {images}");
    let deadline = Instant::now() + Duration::from_secs(120);
    write_log(&engine, &table, GROWTH);
    while engine.stats().checkpoints == before.checkpoints {
        assert!(Instant::now() < deadline, "{:?}", engine.stats());
        thread::sleep(Duration::from_millis(1));
    }
}

/// Nobody was told how much log a rollback had left: no checkpoint came of transactions that all roll back, and
/// recovery had all of the log to read that work may fill.
#[test]
fn what_is_rolled_back_asks_for_checkpoints_too() {
    const GROWTH: u64 = 512 << 10;
    let disk = FaultyDisk::new();
    let options = EngineOptions { checkpoint_bytes: GROWTH, ..options(Duration::ZERO) };
    let engine = open_with(&disk, &options).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    engine.checkpoint().unwrap();
    let before = engine.stats();
    while engine.stats().log_tail < before.log_tail + 3 * GROWTH {
        let mut txn = begin(&engine);
        (0..10_u8).for_each(|row| _ = txn.put(&table, &[row], &[7; 500]).unwrap());
        txn.rollback().unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(120);
    while engine.stats().checkpoints == before.checkpoints {
        assert!(Instant::now() < deadline, "{:?}", engine.stats());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn recovery_tells_how_far_it_is() {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &options(Duration::ZERO)).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let losers: Vec<Txn> = (0..3_u8)
        .map(|number| {
            let mut txn = begin(&engine);
            txn.put(&table, &[b'l', number], b"lost").unwrap();
            txn
        })
        .collect();
    write_log(&engine, &table, 4 << 20);
    let left = disk.after_crash(CrashMode::KeepAll);
    drop(losers);

    let told = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&told);
    let observer = RecoveryObserver::new(move |progress| note.lock().push(progress));
    let options = EngineOptions { recovery_observer: Some(observer), ..options(Duration::ZERO) };
    let engine = open_with(&left, &options).unwrap();
    assert_eq!(engine.stats().recovery.losers, 3);
    let told = told.lock();
    let of =
        |phase| told.iter().filter(|told| told.phase == phase).copied().collect::<Vec<RecoveryProgress>>();
    let (redo, undo) = (of(RecoveryPhase::Redo), of(RecoveryPhase::Undo));
    assert_eq!([&redo[..], &undo].concat(), *told, "one after the other");
    for phase in [&redo, &undo] {
        assert!(phase.iter().all(|told| told.total == phase[0].total), "{phase:?}");
        assert!(phase.is_sorted_by(|one, next| one.done < next.done), "{phase:?}");
        assert!(phase[0].done == 0 && phase.last().is_some_and(|last| last.done == last.total), "{phase:?}");
    }
    assert!(redo.len() > 4, "now and then: {redo:?}");
    assert_eq!(undo.len(), 4, "the beginning, and each loser");
    assert_sound(&engine, "observed");
}

/// Every opening was told of as a recovery, also of a database that had been closed in good order.
#[test]
fn what_was_closed_in_order_is_not_called_recovered() {
    let disk = FaultyDisk::new();
    let told_of = || {
        let told = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&told);
        let observer = RecoveryObserver::new(move |progress| note.lock().push(progress));
        let engine =
            open_with(&disk, &EngineOptions { recovery_observer: Some(observer), ..tiny() }).unwrap();
        (engine, move || mem::take(&mut *told.lock()))
    };
    let (engine, _) = told_of();
    let table = engine.create_table("t", b"").unwrap();
    put(&engine, &table, b"kept", b"kept");
    engine.close().unwrap();
    drop(engine);
    let (engine, told) = told_of();
    assert!(engine.stats().recovery.clean && told().is_empty());
    // Closed with a transaction that has written: that is undone.
    let mut txn = begin(&engine);
    txn.put(&engine.table("t").unwrap().unwrap(), b"lost", b"lost").unwrap();
    engine.close().unwrap();
    drop((txn, engine));
    let (engine, told) = told_of();
    let told: Vec<RecoveryPhase> = told().iter().map(|told| told.phase).collect();
    assert!(!engine.stats().recovery.clean);
    assert_eq!(told, [RecoveryPhase::Redo, RecoveryPhase::Redo, RecoveryPhase::Undo, RecoveryPhase::Undo]);
}

/// What was committed lazily survives a crash once somebody has asked for that, and not before: nothing else flushes
/// this log.
#[test]
fn what_is_flushed_survives() {
    let disk = FaultyDisk::new();
    let log = LogOptions { flush_interval: Duration::from_secs(24 * 3600), ..tiny().log };
    let engine = open_with(&disk, &EngineOptions { log, ..tiny() }).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let commit = |key: &[u8]| {
        let mut txn = begin(&engine);
        txn.put(&table, key, b"value").unwrap();
        txn.commit(Durability::Lazy).unwrap();
    };
    let survives = |key: &[u8]| {
        let engine = open(&disk.after_crash(CrashMode::DropUnsynced)).unwrap();
        get(&mut begin(&engine), &engine.table("t").unwrap().unwrap(), key).unwrap().is_some()
    };
    engine.flush().unwrap();
    commit(b"flushed");
    assert!(!survives(b"flushed"));
    engine.flush().unwrap();
    assert!(survives(b"flushed"));
    // Twice in a row, and of what begins after it.
    engine.flush().unwrap();
    commit(b"later");
    assert!(survives(b"flushed") && !survives(b"later"));
    engine.close().unwrap();
    assert!(matches!(engine.flush(), Err(StorageError::Closed)));
}

/// What a crash leaves can be undone in a log for which a smaller limit is set now: an opening with less than was made
/// under the old one found no room for it, and the database could not be opened.
#[test]
fn a_smaller_log_still_takes_back_what_a_larger_one_has() {
    let larger = LogOptions { capacity_bytes: 16 << 20, ..tiny().log };
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &EngineOptions { log: larger.clone(), ..tiny() }).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    put(&engine, &table, b"kept", b"kept");
    let expected = read_all(&engine).unwrap();
    let mut txn = begin(&engine);
    let begun = engine.stats().log_tail;
    for number in 0_u64.. {
        if engine.stats().log_tail > begun + (5 << 20) {
            break;
        }
        txn.put(&table, &(number % 2000).to_be_bytes(), &[number as u8; 900]).unwrap();
    }
    // Durable, all of it.
    put(&engine, &table, b"kept", b"kept");
    let left = disk.after_crash(CrashMode::KeepAll);
    drop(txn);
    for capacity_bytes in [1 << 20, 4 << 20] {
        let left = left.after_crash(CrashMode::KeepAll);
        let smaller = EngineOptions { log: LogOptions { capacity_bytes, ..larger.clone() }, ..tiny() };
        let engine = open_with(&left, &smaller).unwrap();
        assert_eq!((engine.stats().recovery.losers, read_all(&engine).unwrap()), (1, expected.clone()));
        assert_sound(&engine, "undone");
        engine.close().unwrap();
        // Then the limit is what it says.
        let engine = open_with(&left, &smaller).unwrap();
        assert_eq!(engine.log().capacity_bytes(), capacity_bytes);
    }
}
