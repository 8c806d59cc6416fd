//! Two-phase commit: what is prepared is there until somebody decides, wherever the power fails.

mod crash;
mod locks;

use foreshore_base::{StorageError, limits::MAX_GLOBAL_ID_BYTES};
use foreshore_env::{
    disk::Disk,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_txn::{
    Durability, EarlyLockRelease, Engine, EngineOptions, LockError, LogFullPolicy, LogHolder, LogOptions,
    TableInfo, Txn, TxnError,
};

use crate::{assert_sound, begin, directory, get, is_poisoned, open, open_with, put, tiny};

/// The keys of transaction `number`: one that it changes, one that it inserts, one that it deletes.
fn keys(number: usize) -> [Vec<u8>; 3] {
    ["changed", "inserted", "deleted"].map(|what| format!("{what} {number:03}").into_bytes())
}

fn set_up(engine: &Arc<Engine>, table: &TableInfo, number: usize) {
    let [changed, _, deleted] = keys(number);
    let mut txn = begin(engine);
    txn.put(table, &changed, b"old").unwrap();
    txn.put(table, &deleted, b"old").unwrap();
    txn.commit(Durability::Sync).unwrap();
}

fn work(txn: &mut Txn, table: &TableInfo, number: usize) {
    let [changed, inserted, deleted] = keys(number);
    let value = if number.is_multiple_of(3) { vec![b'n'; 5000] } else { b"new".to_vec() };
    txn.put(table, &changed, &value).unwrap();
    assert!(txn.insert(table, &inserted, b"new").unwrap());
    assert!(txn.delete(table, &deleted).unwrap());
}

fn id(number: usize) -> Vec<u8> {
    format!("global {number}").into_bytes()
}

/// Whether all of what a transaction did is there, or nothing; and nothing in between.
fn is_done(engine: &Arc<Engine>, table: &TableInfo, number: usize) -> bool {
    let mut txn = begin(engine);
    let [changed, inserted, deleted] =
        keys(number).map(|key| get(&mut txn, table, &key).unwrap().map(|value| value[0]));
    match (changed, inserted, deleted) {
        (Some(b'o'), None, Some(b'o')) => false,
        (Some(b'n'), Some(b'n'), None) => true,
        found => panic!("half of transaction {number}: {found:?}"),
    }
}

/// Whether each of its keys is locked, so that nobody can read what is not decided.
fn is_locked(engine: &Arc<Engine>, table: &TableInfo, number: usize) -> bool {
    let refused = keys(number).map(|key| {
        let mut txn = begin(engine);
        txn.set_no_wait(true);
        match get(&mut txn, table, &key) {
            Ok(_) => false,
            Err(TxnError::Lock(LockError::WouldBlock(_))) => true,
            Err(error) => panic!("{error}"),
        }
    });
    assert!(refused[0] == refused[1] && refused[1] == refused[2], "some are locked: {refused:?}");
    refused[0]
}

fn ids(engine: &Arc<Engine>) -> Vec<Vec<u8>> {
    engine.prepared().unwrap().into_iter().map(|prepared| prepared.global_id).collect()
}

fn made() -> (FaultyDisk, Arc<Engine>, TableInfo) {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    for number in 0..4 {
        set_up(&engine, &table, number);
    }
    (disk, engine, table)
}

fn prepare(engine: &Arc<Engine>, table: &TableInfo, number: usize) {
    let mut txn = begin(engine);
    work(&mut txn, table, number);
    txn.prepare(&id(number)).unwrap();
}

#[test]
fn both_phases_from_any_thread_and_after_any_restart() {
    let (disk, engine, table) = made();
    for number in 0..4 {
        prepare(&engine, &table, number);
    }
    let list = engine.prepared().unwrap();
    assert_eq!(ids(&engine), [id(0), id(1), id(2), id(3)]);
    assert!(list.iter().all(|prepared| prepared.locks >= 3 && prepared.prepared_at_unix_seconds > 0));
    assert!((0..4).all(|number| is_locked(&engine, &table, number)));
    assert_eq!(engine.stats().prepared, 4);
    thread::scope(|scope| {
        scope.spawn(|| engine.commit_prepared(&id(0)).unwrap());
        scope.spawn(|| engine.rollback_prepared(&id(1)).unwrap());
    });
    assert!(is_done(&engine, &table, 0) && !is_done(&engine, &table, 1));
    // Crash, then close in order: what is left is there both times.
    let left = disk.after_crash(CrashMode::DropUnsynced);
    engine.close().unwrap();
    for disk in [left, disk] {
        let engine = open(&disk).unwrap();
        assert_eq!(engine.stats().recovery.prepared, 2);
        assert_eq!(engine.stats().recovery.losers, 0);
        engine.close().unwrap();
        let engine = open(&disk).unwrap();
        let table = engine.table("t").unwrap().unwrap();
        let again = engine.prepared().unwrap();
        assert_eq!(again, list[2..], "with the same times, places and locks");
        assert!(is_locked(&engine, &table, 2) && is_locked(&engine, &table, 3));
        assert!(is_done(&engine, &table, 0) && !is_done(&engine, &table, 1));
        engine.commit_prepared(&id(2)).unwrap();
        engine.rollback_prepared(&id(3)).unwrap();
        assert!(is_done(&engine, &table, 2) && !is_done(&engine, &table, 3));
        assert_sound(&engine, "decided");
        engine.close().unwrap();
        let engine = open(&disk).unwrap();
        assert!(engine.stats().recovery.clean && engine.prepared().unwrap().is_empty());
    }
}

/// The only long value, of an id given after the last checkpoint, was deleted by a prepared transaction, and its ghosts
/// were purged: after a crash the next long value got the same id, and the rollback of the deletion met its chunks
/// ("cannot be taken back"), which stopped the database, or kept it from being opened again.
#[test]
fn a_long_value_deleted_by_a_prepared_transaction_keeps_its_id() {
    for bytes in [1_500, 2_500, 9_000] {
        let disk = FaultyDisk::new();
        let engine = open(&disk).unwrap();
        let table = engine.create_table("t", b"").unwrap();
        let value = vec![b'v'; 2_500];
        put(&engine, &table, b"deleted", &value);
        let mut txn = begin(&engine);
        assert!(txn.delete(&table, b"deleted").unwrap());
        txn.prepare(b"x").unwrap();

        let disk = disk.after_crash(CrashMode::DropUnsynced);
        drop(engine);
        let engine = open(&disk).unwrap();
        let table = engine.table("t").unwrap().unwrap();
        let other = vec![b'o'; bytes];
        put(&engine, &table, b"other", &other);
        engine.rollback_prepared(b"x").unwrap();
        for engine in [engine, open(&disk.after_crash(CrashMode::DropUnsynced)).unwrap()] {
            let table = engine.table("t").unwrap().unwrap();
            let mut txn = begin(&engine);
            assert_eq!(get(&mut txn, &table, b"deleted").unwrap(), Some(value.clone()), "{bytes}");
            assert_eq!(get(&mut txn, &table, b"other").unwrap(), Some(other.clone()), "{bytes}");
            txn.commit(Durability::Sync).unwrap();
            assert_sound(&engine, "rolled back");
        }
    }
}

#[test]
fn ids_are_checked() {
    let (_, engine, table) = made();
    for wrong in [vec![], vec![b'x'; MAX_GLOBAL_ID_BYTES + 1]] {
        let mut txn = begin(&engine);
        work(&mut txn, &table, 0);
        assert!(matches!(txn.prepare(&wrong), Err(TxnError::InvalidGlobalId { .. })));
        assert!(!is_done(&engine, &table, 0));
    }
    prepare(&engine, &table, 0);
    let mut txn = begin(&engine);
    work(&mut txn, &table, 1);
    assert!(matches!(txn.prepare(&id(0)), Err(TxnError::GlobalIdInUse { .. })));
    assert!(!is_done(&engine, &table, 1), "the second is rolled back");
    assert!(is_locked(&engine, &table, 0), "the first is as it was");
    for decision in [Engine::commit_prepared, Engine::rollback_prepared] {
        assert!(matches!(decision(&engine, &id(3)), Err(TxnError::UnknownGlobalId { .. })));
    }
    engine.commit_prepared(&id(0)).unwrap();
    for decision in [Engine::commit_prepared, Engine::rollback_prepared] {
        assert!(matches!(decision(&engine, &id(0)), Err(TxnError::UnknownGlobalId { .. })), "twice");
    }
    // The id is free again, and one of the longest kind is one.
    prepare(&engine, &table, 1);
    engine.rollback_prepared(&id(1)).unwrap();
    let mut txn = begin(&engine);
    work(&mut txn, &table, 1);
    let longest = vec![0xFF; MAX_GLOBAL_ID_BYTES];
    txn.prepare(&longest).unwrap();
    engine.commit_prepared(&longest).unwrap();
    assert_sound(&engine, "ids");
}

#[test]
fn one_decision_at_a_time() {
    let (disk, engine, table) = made();
    prepare(&engine, &table, 0);
    disk.hold_syncs(true);
    thread::scope(|scope| {
        let first = scope.spawn(|| engine.commit_prepared(&id(0)));
        while !engine.prepared().unwrap().is_empty() {
            thread::yield_now();
        }
        assert!(matches!(engine.rollback_prepared(&id(0)), Err(TxnError::GlobalIdBusy { .. })));
        let mut txn = begin(&engine);
        work(&mut txn, &table, 1);
        let taken = txn.prepare(&id(0));
        assert!(matches!(taken, Err(TxnError::GlobalIdInUse { .. })), "{taken:?}");
        disk.hold_syncs(false);
        first.join().unwrap().unwrap();
    });
    assert!(is_done(&engine, &table, 0));
    assert_sound(&engine, "one decision");
}

#[test]
fn shared_locks_go_at_prepare_and_exclusive_ones_do_not() {
    let (_, engine, table) = made();
    let mut txn = begin(&engine);
    let [read, _, _] = keys(1);
    get(&mut txn, &table, &read).unwrap();
    work(&mut txn, &table, 0);
    txn.prepare(b"one").unwrap();
    put(&engine, &table, &read, b"by another");
    assert!(is_locked(&engine, &table, 0));
    engine.commit_prepared(b"one").unwrap();
    assert_sound(&engine, "shared");
}

#[test]
fn a_reader_can_be_prepared_too() {
    let (disk, engine, table) = made();
    let mut txn = begin(&engine);
    get(&mut txn, &table, b"nothing").unwrap();
    txn.prepare(b"reader").unwrap();
    engine.close().unwrap();
    let engine = open(&disk).unwrap();
    assert_eq!(ids(&engine), [b"reader".to_vec()]);
    engine.commit_prepared(b"reader").unwrap();
    assert_sound(&engine, "reader");
}

#[test]
fn more_locks_than_fit_in_a_record_come_back() {
    let options = EngineOptions { node_capacity: usize::MAX, ..tiny() };
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &options).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let mut txn = begin(&engine);
    for number in 0..5000_u32 {
        txn.put(&table, &number.to_be_bytes(), b"x").unwrap();
    }
    txn.prepare(b"many").unwrap();
    let locks = engine.prepared().unwrap()[0].locks;
    drop(engine);
    let engine = open_with(&disk, &options).unwrap();
    let table = engine.table("t").unwrap().unwrap();
    assert_eq!(engine.prepared().unwrap()[0].locks, locks);
    // Who checks would wait for it, and is told so at once.
    assert!(matches!(engine.verify(), Err(TxnError::Busy { .. })));
    for number in (0..5000_u32).step_by(501) {
        let mut other = begin(&engine);
        other.set_no_wait(true);
        assert!(get(&mut other, &table, &number.to_be_bytes()).is_err(), "{number}");
    }
    engine.rollback_prepared(b"many").unwrap();
    let mut txn = begin(&engine);
    assert_eq!(get(&mut txn, &table, &7_u32.to_be_bytes()).unwrap(), None);
    drop(txn);
    assert_sound(&engine, "many locks");
}

/// Commits one small transaction after another; gives the error of the one that failed.
fn fill(engine: &Arc<Engine>, table: &TableInfo, transactions: u32) -> Option<TxnError> {
    (0..transactions).find_map(|number| {
        let mut txn = begin(engine);
        let value = number.to_be_bytes().repeat(375);
        let result = txn.put(table, b"filler", &value).and_then(|_| txn.commit(Durability::Lazy));
        result.err()
    })
}

#[test]
fn a_prepared_transaction_pins_the_log_and_says_so() {
    for log_full in LogFullPolicy::ALL {
        let log = LogOptions { capacity_bytes: 2 << 20, ..tiny().log };
        let options = EngineOptions { log, log_full, node_capacity: usize::MAX, ..tiny() };
        let disk = FaultyDisk::new();
        let engine = open_with(&disk, &options).unwrap();
        let table = engine.create_table("t", b"").unwrap();
        set_up(&engine, &table, 0);
        prepare(&engine, &table, 0);
        let full = fill(&engine, &table, 3000).expect("the log gets full");
        assert!(matches!(full, TxnError::Storage(StorageError::LogFull { .. })), "{full}");
        let pinned = |engine: &Engine| {
            let prepared = engine.prepared().unwrap().swap_remove(0);
            assert!(engine.log().low_water() <= prepared.log_from);
            let retention = engine.log_retention();
            let LogHolder::Prepared(holder) = &retention.holders[0].holder else { panic!("{retention:?}") };
            assert_eq!(holder, &prepared);
            assert_eq!(retention.holders[0].held_bytes, retention.used_bytes);
        };
        pinned(&engine);
        // Over a restart, with the log as full as it is.
        engine.close().unwrap();
        let engine = open_with(&disk, &options).unwrap();
        let table = engine.table("t").unwrap().unwrap();
        pinned(&engine);
        assert!(is_locked(&engine, &table, 0));
        engine.rollback_prepared(&id(0)).unwrap();
        assert!(!is_done(&engine, &table, 0));
        assert!(fill(&engine, &table, 3000).is_none(), "there is room again");
        assert_sound(&engine, "room again");
    }
}

/// What would not fit is rolled back, and its id is free.
#[test]
fn a_transaction_that_has_filled_the_log_cannot_be_prepared() {
    let log = LogOptions { capacity_bytes: 1 << 20, ..tiny().log };
    let options = EngineOptions { log, node_capacity: usize::MAX, ..tiny() };
    let engine = open_with(&FaultyDisk::new(), &options).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let mut txn = begin(&engine);
    let full = (0_u32..).find_map(|number| txn.put(&table, &number.to_be_bytes(), b"x").err()).unwrap();
    assert!(matches!(full, TxnError::Storage(StorageError::LogFull { .. })), "{full}");
    let full = txn.prepare(b"full").unwrap_err();
    assert!(matches!(full, TxnError::Storage(StorageError::LogFull { .. })), "{full}");
    let mut txn = begin(&engine);
    assert_eq!(get(&mut txn, &table, &0_u32.to_be_bytes()).unwrap(), None, "it is rolled back");
    txn.put(&table, b"another", b"").unwrap();
    txn.prepare(b"full").unwrap();
    engine.commit_prepared(b"full").unwrap();
    assert_sound(&engine, "prepared under the same id");
}

#[test]
fn a_cancelled_transaction_is_not_prepared() {
    let (_, engine, table) = made();
    let mut txn = begin(&engine);
    work(&mut txn, &table, 0);
    txn.cancel_token().cancel();
    assert!(matches!(txn.prepare(&id(0)), Err(TxnError::Lock(LockError::Cancelled))));
    assert!(!is_done(&engine, &table, 0) && ids(&engine).is_empty());
    assert_sound(&engine, "cancelled");
}

#[test]
fn a_log_that_fails_leaves_prepared_or_not() {
    for step in 0..3 {
        let (disk, engine, table) = made();
        if step > 0 {
            prepare(&engine, &table, 0);
        }
        disk.fail_next_sync_of("log");
        let result = match step {
            0 => {
                let mut txn = begin(&engine);
                work(&mut txn, &table, 0);
                txn.prepare(&id(0))
            }
            1 => engine.commit_prepared(&id(0)),
            _ => engine.rollback_prepared(&id(0)),
        };
        assert!(is_poisoned(&result), "{step}: {result:?}");
        assert!(engine.prepared().is_err());
        drop(engine);
        let engine = open(&disk.after_crash(CrashMode::DropUnsynced)).unwrap();
        let table = engine.table("t").unwrap().unwrap();
        assert_eq!(ids(&engine).len(), usize::from(step > 0), "{step}");
        if step > 0 {
            engine.commit_prepared(&id(0)).unwrap();
        }
        assert_eq!(is_done(&engine, &table, 0), step > 0);
        assert_sound(&engine, "after the failure");
    }
}

/// A log that is full to the last record, because `oldest` needs it from its beginning on, and a transaction whose
/// locks take more than is left, though not more than there is when `oldest` has ended.
fn full_log() -> (Arc<Engine>, [Txn; 2]) {
    let log = LogOptions { capacity_bytes: 2 << 20, ..tiny().log };
    let options = EngineOptions { log, node_capacity: usize::MAX, ..tiny() };
    let engine = open_with(&FaultyDisk::new(), &options).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let mut oldest = begin(&engine);
    oldest.put(&table, b"oldest", b"").unwrap();
    let mut number = 0_u8;
    let mut one_more = |bytes: usize| {
        // Another value than before: the same again logs nothing.
        number = number.wrapping_add(1);
        let mut txn = begin(&engine);
        txn.set_no_wait(true);
        let value = vec![number; bytes];
        let result = txn.put(&table, b"filler", &value).and_then(|_| txn.commit(Durability::Lazy));
        result.map(drop)
    };
    while engine.log_retention().used_bytes < engine.log_retention().work_bytes / 2 {
        one_more(900).unwrap();
    }
    let mut txn = begin(&engine);
    for key in 0..100_u32 {
        txn.put(&table, &key.to_be_bytes(), b"").unwrap();
    }
    for bytes in [900, 100, 1] {
        let full = (0..).find_map(|_| one_more(bytes).err()).unwrap();
        assert!(matches!(full, TxnError::Storage(StorageError::LogFull { .. })), "{full}");
    }
    (engine, [oldest, txn])
}

/// Prepares in another thread, and ends the transaction that is in its way after a while. Whether it has waited for
/// that; not if it came to it too late, or its patience was over, on a busy machine.
fn prepares_when_there_is_room() -> bool {
    let (engine, [oldest, txn]) = full_log();
    let (result, waited) = thread::scope(|scope| {
        let preparing = scope.spawn(|| {
            let begun = Instant::now();
            (txn.prepare(b"patient"), begun.elapsed())
        });
        thread::sleep(Duration::from_millis(100));
        oldest.rollback().unwrap();
        preparing.join().unwrap()
    });
    assert_eq!(engine.prepared().unwrap().len(), usize::from(result.is_ok()));
    if let Err(error) = &result {
        let too_late = matches!(error, TxnError::Storage(StorageError::LogFull { .. }));
        assert!(too_late && waited >= Duration::from_secs(1), "{error} after {waited:?}");
        return false;
    }
    engine.commit_prepared(b"patient").unwrap();
    assert_sound(&engine, "prepared after a while");
    waited >= Duration::from_millis(50)
}

#[test]
fn prepare_waits_for_room_in_the_log() {
    assert!((0..50).any(|_| prepares_when_there_is_room()), "it never had to wait");
}

/// Nobody makes room: it waits for a second, or until its deadline, or until it is cancelled, and is rolled back.
#[test]
fn prepare_does_not_wait_for_room_for_ever() {
    let refused = |wait: fn(&mut Txn)| {
        let (engine, [oldest, mut txn]) = full_log();
        wait(&mut txn);
        let begun = Instant::now();
        let error = txn.prepare(b"patient").unwrap_err();
        let waited = begun.elapsed();
        assert!(engine.prepared().unwrap().is_empty());
        oldest.rollback().unwrap();
        assert_sound(&engine, "not prepared");
        (error, waited)
    };
    let (error, waited) = refused(|_| {});
    assert!(matches!(error, TxnError::Storage(StorageError::LogFull { .. })), "{error}");
    assert!(waited >= Duration::from_secs(1), "{waited:?}");
    type Wait = fn(&mut Txn);
    let impatient: [(Wait, Duration); 2] = [
        (|txn| txn.set_no_wait(true), Duration::ZERO),
        (
            |txn| txn.set_deadline(Some(Instant::now() + Duration::from_millis(50))),
            // Of which it has used up some before it asks.
            Duration::from_millis(1),
        ),
    ];
    for (wait, least) in impatient {
        // On a busy machine, one of some.
        let is_soon = (0..20).any(|_| {
            let (error, waited) = refused(wait);
            assert!(matches!(error, TxnError::Storage(StorageError::LogFull { .. })), "{error}");
            waited >= least && waited < Duration::from_millis(900)
        });
        assert!(is_soon, "it waits for a second all the same");
    }
}
