//! Transactions one by one: savepoints, rollback, early lock release, tables, ends of all kinds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use foreshore_base::{Lsn, StorageError};
use foreshore_env::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_txn::{
    BeginOptions, Durability, Engine, EngineOptions, IntentMode, LockError, MAX_SAVEPOINTS, PoolOptions,
    TableInfo, Txn, TxnError,
};
use foreshore_wal::{RecordKind, Urgency};

use crate::{assert_sound, begin, get, open, open_with, put, read_all, scan, tiny};

fn engine() -> (FaultyDisk, Arc<Engine>, TableInfo) {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    (disk, engine, table)
}

#[test]
fn a_rollback_leaves_no_trace() {
    let (_, engine, table) = engine();
    for number in 0..40_u32 {
        put(&engine, &table, &number.to_be_bytes(), &[1; 50]);
    }
    let before = read_all(&engine).unwrap();
    let mut txn = begin(&engine);
    for number in 0..80_u32 {
        let key = number.to_be_bytes();
        match number % 4 {
            0 => drop(txn.delete(&table, &key).unwrap()),
            1 => drop(txn.put(&table, &key, &[2; 5000]).unwrap()),
            2 => drop(txn.update(&table, &key, b"short").unwrap()),
            _ => drop(txn.insert(&table, &key, &[3; 1500]).unwrap()),
        }
    }
    txn.rollback().unwrap();
    assert_eq!(read_all(&engine).unwrap(), before);
    assert_sound(&engine, "rolled back");
}

/// A rollback read the log's file once for each record, and so did recovery for each that it undid.
#[test]
fn what_is_undone_is_read_by_pieces() {
    let wide = EngineOptions {
        pool: PoolOptions { bytes: 8 << 20, ..tiny().pool },
        node_capacity: usize::MAX,
        ..tiny()
    };
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &wide).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let write = |txns: &mut [Txn], round: &[u8]| {
        for number in 0..3000_u32 {
            let txn = &mut txns[number as usize % 3];
            txn.put(&table, &number.to_be_bytes(), &[7; 50]).unwrap();
        }
        // With the log up to here in the file.
        put(&engine, &table, b"a key behind all others", round);
    };
    let mut txns = [begin(&engine), begin(&engine), begin(&engine)];
    write(&mut txns, b"first");
    let before = disk.counts().reads;
    txns.into_iter().for_each(|txn| txn.rollback().unwrap());
    let reads = disk.counts().reads - before;
    assert!(reads < 60, "{reads} reads of three rollbacks");

    let mut txns = [begin(&engine), begin(&engine), begin(&engine)];
    write(&mut txns, b"second");
    let left = disk.after_crash(CrashMode::KeepAll);
    drop(txns);
    let engine = open_with(&left, &wide).unwrap();
    let recovery = engine.stats().recovery;
    assert!(recovery.losers == 3 && recovery.records_undone >= 3000, "{recovery:?}");
    let reads = left.counts().reads;
    assert!(reads < 600, "{reads} reads of a recovery");
    assert_sound(&engine, "undone");
}

#[test]
fn savepoints_nest_and_can_be_used_again() {
    let (_, engine, table) = engine();
    let mut txn = begin(&engine);
    txn.put(&table, b"a", b"1").unwrap();
    let first = txn.savepoint().unwrap();
    txn.put(&table, b"b", b"2").unwrap();
    let second = txn.savepoint().unwrap();
    txn.put(&table, b"a", b"3").unwrap();
    txn.delete(&table, b"b").unwrap();
    txn.rollback_to(second).unwrap();
    assert_eq!(get(&mut txn, &table, b"a").unwrap().unwrap(), b"1");
    assert_eq!(get(&mut txn, &table, b"b").unwrap().unwrap(), b"2");
    txn.put(&table, b"c", b"4").unwrap();
    txn.rollback_to(second).unwrap();
    assert_eq!(get(&mut txn, &table, b"c").unwrap(), None);
    txn.rollback_to(first).unwrap();
    assert!(matches!(txn.rollback_to(second), Err(TxnError::InvalidSavepoint)));
    let mut other = begin(&engine);
    assert!(matches!(other.rollback_to(first), Err(TxnError::InvalidSavepoint)));
    other.rollback().unwrap();
    txn.put(&table, b"d", b"5").unwrap();
    txn.commit(Durability::Sync).unwrap();
    let content = read_all(&engine).unwrap();
    assert_eq!(content.into_iter().map(|((_, key), _)| key).collect::<Vec<_>>(), [b"a", b"d"]);
    assert_sound(&engine, "savepoints");
}

/// Rollback of what was partly rolled back, by a restart too.
#[test]
fn what_was_rolled_back_in_part_is_undone_once() {
    for end in 0..3 {
        let (disk, engine, table) = engine();
        put(&engine, &table, b"a", b"old");
        let mut txn = begin(&engine);
        txn.put(&table, b"a", b"1").unwrap();
        let savepoint = txn.savepoint().unwrap();
        for round in 0..5_u8 {
            txn.put(&table, b"a", &[round]).unwrap();
            txn.put(&table, &[b'x', round], b"new").unwrap();
            txn.delete(&table, b"a").unwrap();
            txn.rollback_to(savepoint).unwrap();
        }
        assert_eq!(get(&mut txn, &table, b"a").unwrap().unwrap(), b"1");
        txn.put(&table, b"b", b"2").unwrap();
        let engine = match end {
            0 => {
                txn.rollback().unwrap();
                engine
            }
            1 => {
                drop(txn);
                engine
            }
            _ => {
                engine.log().flush(Lsn(engine.log().tail().0 - 8)).ok();
                put(&engine, &table, b"c", b"flushes");
                let left = disk.after_crash(CrashMode::DropUnsynced);
                let engine = open(&left).unwrap();
                assert_eq!(engine.stats().recovery.losers, 1);
                let mut txn = begin(&engine);
                assert!(txn.delete(&table_of(&engine), b"c").unwrap());
                txn.commit(Durability::Sync).unwrap();
                engine
            }
        };
        let content = read_all(&engine).unwrap();
        assert_eq!(content.into_values().collect::<Vec<_>>(), [b"old"], "end {end}");
        assert_sound(&engine, "rolled back twice");
    }
}

fn table_of(engine: &Arc<Engine>) -> TableInfo {
    engine.table("t").unwrap().unwrap()
}

#[test]
fn savepoints_are_limited() {
    let (_, engine, _) = engine();
    let mut txn = begin(&engine);
    for _ in 0..MAX_SAVEPOINTS {
        txn.savepoint().unwrap();
    }
    assert!(matches!(txn.savepoint(), Err(TxnError::Storage(StorageError::LimitExceeded { .. }))));
}

#[test]
fn a_read_only_transaction_logs_nothing() {
    let (_, engine, table) = engine();
    put(&engine, &table, b"a", b"1");
    let tail = engine.log().tail();
    let mut txn = begin(&engine);
    get(&mut txn, &table, b"a").unwrap();
    assert!(!txn.insert(&table, b"a", b"2").unwrap());
    assert!(!txn.delete(&table, b"b").unwrap());
    assert!(txn.is_read_only());
    txn.commit(Durability::Sync).unwrap();
    let mut txn = begin(&engine);
    get(&mut txn, &table, b"a").unwrap();
    txn.rollback().unwrap();
    assert_eq!(engine.log().tail(), tail);
    let stats = engine.stats();
    assert_eq!((stats.read_only_commits, stats.rollbacks), (1, 1));
}

/// TXN-2, Kimura et al. 2012, Table 6: a reader of what is committed but not durable waits until it is.
#[test]
fn a_reader_waits_for_the_commits_that_it_saw() {
    let (disk, engine, table) = engine();
    put(&engine, &table, b"a", b"old");
    put(&engine, &table, b"gone", b"old");
    let look: [&dyn Fn(&mut Txn) -> bool; 4] = [
        &|txn| get(txn, &table, b"a").unwrap().unwrap() == b"new",
        &|txn| get(txn, &table, b"gone").unwrap().is_none(),
        &|txn| scan(txn, &table).unwrap().iter().any(|(_, value)| value == b"new"),
        &|txn| {
            txn.lock_table(&table, IntentMode::S).unwrap();
            get(txn, &table, b"a").unwrap().unwrap() == b"new"
        },
    ];
    for (index, look) in look.iter().enumerate() {
        let mut writer = begin(&engine);
        writer.put(&table, b"a", b"new").unwrap();
        writer.delete(&table, b"gone").unwrap();
        let written = writer.commit(Durability::Lazy).unwrap();
        assert!(!engine.log().is_durable(written));
        let mut reader = begin(&engine);
        assert!(look(&mut reader), "reader {index}");
        let seen = reader.commit(Durability::Sync).unwrap();
        assert!(seen >= written, "reader {index} did not see on what it depends");
        assert!(engine.log().is_durable(written), "reader {index}");
        let left = open(&disk.after_crash(CrashMode::DropUnsynced)).unwrap();
        assert!(look_again(&left, index), "reader {index}: what was answered is there after a crash");
        put(&engine, &table, b"a", b"old");
        put(&engine, &table, b"gone", b"old");
    }
}

fn look_again(engine: &Arc<Engine>, index: usize) -> bool {
    let table = table_of(engine);
    let mut txn = begin(engine);
    match index {
        1 => get(&mut txn, &table, b"gone").unwrap().is_none(),
        _ => get(&mut txn, &table, b"a").unwrap().unwrap() == b"new",
    }
}

/// The same for an absence that outlives its ghost (TXN-6).
#[test]
fn a_ghost_is_kept_until_its_delete_is_durable() {
    // Room for all pages: whose page leaves the pool makes the log durable.
    let pool = PoolOptions { bytes: 512 * 8192, ..tiny().pool };
    let engine = open_with(&FaultyDisk::new(), &EngineOptions { pool, ..tiny() }).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    for number in 0..30_u32 {
        put(&engine, &table, &number.to_be_bytes(), &[1; 20]);
    }
    for number in 0..30_u32 {
        let mut writer = begin(&engine);
        writer.delete(&table, &number.to_be_bytes()).unwrap();
        let written = writer.commit(Durability::Lazy).unwrap();
        // Whoever writes nearby would like to purge it.
        let mut busy = begin(&engine);
        for near in 0..8_u8 {
            let key = [number.to_be_bytes().as_slice(), &[near]].concat();
            busy.put(&table, &key, b"x").unwrap();
            busy.delete(&table, &key).unwrap();
        }
        busy.rollback().unwrap();
        let mut reader = begin(&engine);
        assert_eq!(get(&mut reader, &table, &number.to_be_bytes()).unwrap(), None);
        assert!(reader.commit(Durability::Sync).unwrap() >= written, "key {number}");
        assert!(engine.log().is_durable(written), "key {number}");
    }
}

#[test]
fn a_reader_of_durable_data_does_not_wait() {
    let (_, engine, table) = engine();
    put(&engine, &table, b"a", b"1");
    let flushes = engine.log().flushes();
    for _ in 0..10 {
        let mut reader = begin(&engine);
        get(&mut reader, &table, b"a").unwrap();
        reader.commit(Durability::Sync).unwrap();
    }
    assert_eq!(engine.log().flushes(), flushes);
}

#[test]
fn a_panic_of_the_user_rolls_back() {
    let (_, engine, table) = engine();
    put(&engine, &table, b"a", b"1");
    let for_closure = AssertUnwindSafe((Arc::clone(&engine), table.clone()));
    let result = catch_unwind(move || {
        let (engine, table) = &*for_closure;
        let mut txn = begin(engine);
        txn.put(table, b"a", b"2").unwrap();
        txn.get(table, b"a", |_| panic!("in the closure of a read")).unwrap();
    });
    assert!(result.is_err());
    assert_eq!(get(&mut begin(&engine), &table, b"a").unwrap().unwrap(), b"1");
    assert_sound(&engine, "after a panic");
}

#[test]
fn a_deadlock_victim_can_only_roll_back() {
    let (_, engine, table) = engine();
    put(&engine, &table, b"a", b"1");
    put(&engine, &table, b"b", b"1");
    let mut older = begin(&engine);
    let mut younger = begin(&engine);
    older.put(&table, b"a", b"2").unwrap();
    younger.put(&table, b"b", b"2").unwrap();
    let savepoint = younger.savepoint().unwrap();
    let other = {
        let table = table.clone();
        thread::spawn(move || {
            let result = older.put(&table, b"b", b"3").map(|_| ());
            (older, result)
        })
    };
    let error = younger.put(&table, b"a", b"3").unwrap_err();
    assert!(matches!(error, TxnError::Lock(LockError::Deadlock(_))), "{error}");
    assert!(error.is_retryable());
    for error in [
        younger.put(&table, b"c", b"3").unwrap_err(),
        get(&mut younger, &table, b"c").unwrap_err(),
        younger.rollback_to(savepoint).unwrap_err(),
        younger.savepoint().unwrap_err(),
    ] {
        assert!(matches!(error, TxnError::Failed), "{error}");
    }
    let age = younger.age();
    assert!(matches!(younger.commit(Durability::Sync), Err(TxnError::Failed)));
    let (older, result) = other.join().unwrap();
    result.unwrap();
    older.commit(Durability::Sync).unwrap();
    let again = engine.begin(BeginOptions { age: Some(age), ..BeginOptions::default() }).unwrap();
    assert_eq!(again.age(), age);
    drop(again);
    assert_sound(&engine, "after a deadlock");
}

#[test]
fn waits_end_by_deadline_refusal_and_cancellation() {
    let (_, engine, table) = engine();
    let mut holder = begin(&engine);
    holder.put(&table, b"a", b"1").unwrap();
    let mut txn = begin(&engine);
    txn.set_no_wait(true);
    let error = txn.put(&table, b"a", b"2").unwrap_err();
    assert!(matches!(error, TxnError::Lock(LockError::WouldBlock(_))), "{error}");
    txn.set_no_wait(false);
    txn.set_deadline(Some(Instant::now() + Duration::from_millis(30)));
    let error = txn.put(&table, b"a", b"2").unwrap_err();
    assert!(matches!(error, TxnError::Lock(LockError::Timeout(_))), "{error}");
    txn.set_deadline(None);
    txn.put(&table, b"b", b"2").unwrap();
    let token = txn.cancel_token();
    let canceller = thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        token.cancel();
    });
    let begun = Instant::now();
    let error = txn.put(&table, b"a", b"2").unwrap_err();
    assert!(matches!(error, TxnError::Lock(LockError::Cancelled)), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(120));
    canceller.join().unwrap();
    assert!(matches!(get(&mut txn, &table, b"z"), Err(TxnError::Lock(LockError::Cancelled))));
    txn.rollback().unwrap();
    holder.commit(Durability::Sync).unwrap();
    assert_sound(&engine, "after waits");
}

#[test]
fn a_lock_on_a_table_makes_key_locks_needless() {
    let (_, engine, table) = engine();
    let mut txn = begin(&engine);
    txn.lock_table(&table, IntentMode::X).unwrap();
    for number in 0..100_u32 {
        txn.put(&table, &number.to_be_bytes(), b"x").unwrap();
    }
    let mut other = begin(&engine);
    other.set_no_wait(true);
    for result in [
        get(&mut other, &table, b"a").map(|_| ()),
        other.put(&table, b"a", b"1").map(|_| ()),
        other.lock_table(&table, IntentMode::IS),
    ] {
        assert!(matches!(result, Err(TxnError::Lock(LockError::WouldBlock(_)))), "{result:?}");
    }
    txn.commit(Durability::Sync).unwrap();
    get(&mut other, &table, b"a").unwrap();
    let mut reader = begin(&engine);
    reader.lock_table(&table, IntentMode::S).unwrap();
    assert_eq!(scan(&mut reader, &table).unwrap().len(), 100);
    assert!(matches!(other.put(&table, b"a", b"1"), Err(TxnError::Lock(LockError::WouldBlock(_)))));
    drop((reader, other));
    assert_sound(&engine, "after table locks");
}

#[test]
fn a_cursor_of_another_transaction_is_refused() {
    let (_, engine, table) = engine();
    let (mut one, mut other) = (begin(&engine), begin(&engine));
    let whole = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    let direction = foreshore_txn::Direction::Descending;
    let mut cursor = one.cursor(&table, whole, direction, foreshore_txn::LockKind::Exclusive).unwrap();
    let error = other.next(&mut cursor, &mut Vec::new(), &mut Vec::new()).unwrap_err();
    assert!(matches!(error, TxnError::ForeignCursor));
    assert!(!one.next(&mut cursor, &mut Vec::new(), &mut Vec::new()).unwrap());
}

#[test]
fn ids_and_tables_survive_and_are_not_used_twice() {
    let (disk, engine, table) = engine();
    let mut seen = vec![table.id()];
    let last = begin(&engine).id();
    put(&engine, &table, b"a", b"1");
    drop(engine);
    for number in 0..3 {
        let engine = open(&disk).unwrap();
        assert!(begin(&engine).id() > last);
        let table = engine.create_table(&format!("u{number}"), b"").unwrap();
        assert!(!seen.contains(&table.id()));
        seen.push(table.id());
        assert_eq!(engine.create_table("t", b"other").unwrap().meta(), b"", "it was there");
    }
    let engine = open(&disk).unwrap();
    let names: Vec<_> = engine.tables().unwrap().iter().map(|table| table.name().to_owned()).collect();
    assert_eq!(names, ["t", "u0", "u1", "u2"]);
}

#[test]
fn names_and_descriptions_of_tables_are_limited() {
    let (_, engine, _) = engine();
    let long = "x".repeat(256);
    for (name, meta) in [(long.as_str(), 0), ("fits", 5000)] {
        let error = engine.create_table(name, &vec![0; meta]).unwrap_err();
        assert!(matches!(error, TxnError::Storage(StorageError::LimitExceeded { .. })), "{error}");
    }
    engine.create_table(&long[..255], &[0; 1700]).unwrap();
    assert_sound(&engine, "tables");
}

#[test]
fn keys_and_values_are_limited() {
    let (_, engine, table) = engine();
    let mut txn = begin(&engine);
    txn.put(&table, b"a", b"1").unwrap();
    let error = txn.put(&table, &[0; 3000], b"x").unwrap_err();
    assert!(matches!(error, TxnError::Storage(StorageError::LimitExceeded { .. })), "{error}");
    let error = txn.put(&table, b"b", &vec![0; (16 << 20) + 1]).unwrap_err();
    assert!(matches!(error, TxnError::Storage(StorageError::LimitExceeded { .. })), "{error}");
    txn.commit(Durability::Sync).unwrap();
    assert_eq!(read_all(&engine).unwrap().len(), 1);
}

/// A check waits until nobody writes, and says who does if that takes too long: the caller itself, perhaps.
#[test]
fn a_check_does_not_wait_for_ever() {
    let (_, engine, table) = engine();
    let mut txn = begin(&engine);
    txn.put(&table, b"a", b"1").unwrap();
    let error = engine.verify_within(Duration::from_millis(20)).unwrap_err();
    match error {
        TxnError::Lock(LockError::Timeout(holders)) => assert_eq!(holders[0].txn, txn.id()),
        error => panic!("{error}"),
    }
    txn.put(&table, b"b", b"2").unwrap();
    txn.commit(Durability::Sync).unwrap();
    assert_sound(&engine, "nobody writes");
}

/// What a check is for: a page that is in no tree and not free, a row that is gone, are found.
#[test]
fn a_check_finds_what_is_wrong() {
    let (_, engine, table) = engine();
    for number in 0..100_u32 {
        put(&engine, &table, &number.to_be_bytes(), &[1; 100]);
    }
    assert_sound(&engine, "before");
    let leaked = engine.pool().allocate(foreshore_base::PageId(1)).unwrap();
    let id = leaked.id();
    let kind = RecordKind(66);
    let lsn =
        engine.log().append(Urgency::Work, foreshore_base::TxnId::SYSTEM, Lsn::ZERO, kind, &[]).unwrap();
    drop(leaked.commit(lsn));
    let report = engine.verify().unwrap();
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    assert!(report.problems[0].contains(&format!("page {id} ")), "{:?}", report.problems);
}

/// A rollback that is complete is not done again by a restart.
#[test]
fn a_complete_rollback_is_known_as_such() {
    let (disk, engine, table) = engine();
    let mut txn = begin(&engine);
    txn.put(&table, b"a", b"1").unwrap();
    txn.rollback().unwrap();
    put(&engine, &table, b"b", b"flushes");
    let left = open(&disk.after_crash(CrashMode::DropUnsynced)).unwrap();
    let report = left.stats().recovery;
    assert_eq!((report.losers, report.records_undone), (0, 0), "{report:?}");
    assert!(begin(&left).id() >= begin(&engine).id(), "an id was used twice");
}
