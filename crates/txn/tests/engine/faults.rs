//! Disks that fail while the engine goes on: errors of sync and write, no space, a full log, torn pages.

use std::{collections::BTreeMap, path::PathBuf};

use foreshore_base::StorageError;
use foreshore_env::sync::Mutex;
use foreshore_testkit::{CrashMode, FaultyDisk, disk::Counts};
use foreshore_txn::{Durability, Engine, EngineOptions, LogOptions, TxnError};

use crate::{
    assert_sound, begin, directory, get, is_poisoned,
    model::{Plan, Promises, Workload},
    open, open_with, put, read_all, scan, tiny,
};

const PLAN: Plan =
    Plan { seed: 21, steps: 1200, checkpoint_every: 50, long_values: true, appends: false, pipelined: false };

/// Runs the workload on a disk prepared by `fault`, crashes, and compares with what was promised.
fn survive(context: &str, fault: impl FnOnce(&FaultyDisk)) -> Result<(), TxnError> {
    let disk = FaultyDisk::new();
    let promises = Mutex::new(Promises::default());
    let engine = open(&disk).unwrap();
    fault(&disk);
    let mut workload = Workload::new(&engine, &promises, PLAN);
    let result = workload.run();
    if let Err(error) = &result
        && engine.log().poisoned().is_some()
    {
        let error = error.to_string();
        assert!(is_poisoned(&engine.begin(Default::default())), "{context}: after {error}");
        assert!(matches!(engine.checkpoint(), Err(StorageError::Poisoned { .. })), "{context}");
        assert!(matches!(engine.create_table("more", b""), Err(TxnError::Storage(_))), "{context}");
        assert!(engine.close().is_err(), "{context}: what could not be written was not");
    }
    workload.abandon();
    engine.close().ok();
    let promises = promises.lock().clone();
    for mode in [CrashMode::DropUnsynced, CrashMode::KeepAll, CrashMode::TornRandom(5)] {
        let left = disk.after_crash(mode);
        let engine = open(&left).unwrap_or_else(|error| panic!("{context}, {mode:?}: {error}"));
        let tables = engine.tables().unwrap().iter().map(|table| table.name().to_owned()).collect();
        let found = read_all(&engine).unwrap();
        promises.check(&tables, &found).unwrap_or_else(|broken| panic!("{context}, {mode:?}: {broken}"));
        assert_sound(&engine, context);
    }
    result
}

/// How often the workload uses a disk that does not fail.
fn usage() -> Counts {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let before = disk.counts();
    let promises = Mutex::new(Promises::default());
    Workload::new(&engine, &promises, PLAN).run().unwrap();
    let after = disk.counts();
    Counts { syncs: after.syncs - before.syncs, writes: after.writes - before.writes, ..after }
}

/// Some numbers of so many operations. Those in the background come sooner or later, so none is among them that a
/// workload might end before.
fn spread_over(operations: u64) -> impl Iterator<Item = u64> {
    let last = operations * 9 / 10;
    (1..=last).step_by((last / 40) as usize)
}

/// A failed sync is final, though later ones would succeed.
#[test]
fn a_failed_sync_poisons_and_loses_nothing_acknowledged() {
    let syncs = usage().syncs;
    let (mut tried, mut poisoned) = (0, 0);
    for number in spread_over(syncs) {
        let result = survive(&format!("sync {number} fails"), |disk| {
            disk.fail_sync(disk.counts().syncs + number);
        });
        tried += 1;
        poisoned += u32::from(result.is_err());
    }
    assert!(tried >= 40 && poisoned == tried, "{poisoned} of {tried}");
}

#[test]
fn a_failed_write_poisons_and_loses_nothing_acknowledged() {
    let writes = usage().writes;
    let (mut tried, mut poisoned) = (0, 0);
    for number in spread_over(writes) {
        let result = survive(&format!("write {number} fails"), |disk| {
            disk.fail_write(disk.counts().writes + number);
        });
        tried += 1;
        poisoned += u32::from(result.is_err());
    }
    assert!(tried >= 40 && poisoned == tried, "{poisoned} of {tried}");
}

/// The disk is full after some more blocks, in work.
#[test]
fn a_full_disk_is_an_error_and_loses_nothing_acknowledged() {
    let mut failed = 0;
    for blocks in (0..100).step_by(4) {
        let result = survive(&format!("{blocks} blocks are left"), |disk| {
            disk.set_free_space(Some(blocks * 4096));
        });
        failed += u32::from(result.is_err());
    }
    assert!(failed > 5, "{failed}");
}

#[test]
fn a_full_disk_while_a_database_is_made_leaves_something_that_opens() {
    let mut failed = 0;
    for blocks in 0..120 {
        let disk = FaultyDisk::new();
        disk.set_free_space(Some(blocks * 4096));
        match open(&disk) {
            Ok(engine) => drop(engine),
            Err(error) => {
                assert!(matches!(error, StorageError::Io { .. } | StorageError::Poisoned { .. }), "{error}");
                failed += 1;
            }
        }
        disk.set_free_space(None);
        assert_sound(&open(&disk).unwrap(), &format!("{blocks} blocks"));
    }
    assert!(failed > 30, "{failed}");
}

/// Whichever sectors of a page were written when the power failed.
#[test]
fn torn_pages_are_repaired_by_their_images() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    for round in 0..6_u8 {
        for number in 0..150_u32 {
            put(&engine, &table, &number.to_be_bytes(), &[round; 300]);
        }
        if round == 2 {
            engine.checkpoint().unwrap();
        }
    }
    let expected = read_all(&engine).unwrap();
    let stats = engine.pool().stats();
    assert!(stats.dirty_evictions + stats.helped_writes > 20, "pages must have been written to be torn");
    for seed in 0..200 {
        let left = disk.after_crash(CrashMode::TornRandom(seed));
        let engine = open(&left).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(read_all(&engine).unwrap(), expected, "seed {seed}");
        assert_sound(&engine, &format!("seed {seed}"));
    }
}

/// A page that rots on the disk is an error for whoever needs it, not the end of everything.
#[test]
fn a_damaged_page_is_reported_and_the_rest_goes_on() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let (table, other) = (engine.create_table("t", b"").unwrap(), engine.create_table("u", b"").unwrap());
    for number in 0..400_u32 {
        put(&engine, &table, &number.to_be_bytes(), &[1; 200]);
    }
    put(&engine, &other, b"key", b"value");
    engine.close().unwrap();
    drop(engine);
    let data: PathBuf = directory().join("data");
    let pages = disk.read_file(&data).unwrap().len() / 8192;
    let mut damaged = 0;
    for page in 2..pages {
        let disk = disk.after_crash(CrashMode::KeepAll);
        disk.flip_bit(&data, page as u64 * 8192 + 100, 3);
        let Ok(engine) = open(&disk) else { continue };
        let table = engine.table("t").unwrap().unwrap();
        let mut txn = begin(&engine);
        match scan(&mut txn, &table) {
            Ok(_) => continue,
            Err(TxnError::Storage(StorageError::Corrupted { .. })) => damaged += 1,
            Err(error) => panic!("page {page}: {error}"),
        }
        let other = engine.table("u").unwrap().unwrap();
        txn.put(&other, b"key", b"new").unwrap();
        txn.commit(Durability::Sync).unwrap();
        assert!(!engine.verify().unwrap().is_sound(), "page {page}");
    }
    assert!(damaged > 10, "{damaged}");
}

/// Options with a log that fills quickly.
fn small_log() -> EngineOptions {
    let log = LogOptions { capacity_bytes: 2 << 20, ..tiny().log };
    EngineOptions { log, ..tiny() }
}

/// Fills the log until it is refused; gives the error.
fn fill(engine: &std::sync::Arc<Engine>, txn: &mut foreshore_txn::Txn) -> TxnError {
    let table = engine.table("t").unwrap().unwrap();
    for number in 0..1_000_000_u32 {
        if let Err(error) = txn.put(&table, &(number % 500).to_be_bytes(), &[number as u8; 500]) {
            return error;
        }
    }
    panic!("the log never got full");
}

/// TXN-5.
#[test]
fn a_transaction_that_fills_the_log_is_refused_and_can_roll_back() {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &small_log()).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    put(&engine, &table, b"before", b"value");
    for attempt in 0..4 {
        let mut txn = begin(&engine);
        let savepoint = txn.savepoint().unwrap();
        let error = fill(&engine, &mut txn);
        assert!(matches!(error, TxnError::Storage(StorageError::LogFull { .. })), "{error}");
        match attempt {
            0 => txn.rollback().unwrap(),
            1 => drop(txn),
            2 => {
                txn.rollback_to(savepoint).unwrap();
                txn.rollback().unwrap();
            }
            _ => {
                // The commit record has its place in the reserve.
                txn.commit(Durability::Sync).unwrap();
            }
        }
        // What the log held for it is free again.
        put(&engine, &table, b"after", &[attempt]);
        let mut reader = begin(&engine);
        assert_eq!(get(&mut reader, &table, b"before").unwrap().unwrap(), b"value");
        assert_eq!(scan(&mut reader, &table).unwrap().len() > 10, attempt == 3, "attempt {attempt}");
        drop(reader);
    }
    assert_sound(&engine, "after four full logs");
}

/// An idle transaction that has written holds the log: others get a typed error, and go on when it has ended.
#[test]
fn an_old_transaction_pins_the_log_until_it_ends() {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &small_log()).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let mut old = begin(&engine);
    old.put(&table, b"old", b"value").unwrap();
    let mut refused = None;
    for number in 0..20_000_u32 {
        let mut txn = begin(&engine);
        match txn.put(&table, &(number % 100).to_be_bytes(), &number.to_be_bytes().repeat(100)) {
            Ok(_) => txn.commit(Durability::Lazy).map(|_| ()).unwrap(),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    let error = refused.expect("the log gets full");
    assert!(matches!(error, TxnError::Storage(StorageError::LogFull { .. })), "{error}");
    assert!(engine.log().poisoned().is_none());
    old.rollback().unwrap();
    for number in 0..2000_u32 {
        put(&engine, &table, &(number % 100).to_be_bytes(), &number.to_be_bytes().repeat(100));
    }
    assert_sound(&engine, "after the old one has ended");
}

/// Checkpoints in the background keep the log short though nobody asks for any.
#[test]
fn the_background_keeps_the_log_short() {
    let disk = FaultyDisk::new();
    let options = EngineOptions { checkpoint_bytes: 100_000, ..tiny() };
    let engine = open_with(&disk, &options).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    for number in 0..6000_u32 {
        let mut txn = begin(&engine);
        txn.put(&table, &(number % 100).to_be_bytes(), &number.to_be_bytes().repeat(100)).unwrap();
        txn.commit(if number % 64 == 0 { Durability::Sync } else { Durability::Lazy }).unwrap();
    }
    let stats = engine.stats();
    assert!(stats.checkpoints > 5, "{stats:?}");
    assert!(stats.log_used_bytes < 2 << 20, "{stats:?}");
    assert_eq!(stats.checkpoint_failure, None);
    let segments =
        disk.files().iter().filter(|path| path.extension().is_some_and(|kind| kind == "log")).count();
    assert!(segments < 20, "{segments} segments");
}

/// A failed commit has one of three outcomes, and says which it knows.
#[test]
fn a_commit_whose_flush_fails_is_of_unknown_outcome() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    put(&engine, &table, b"before", b"value");
    let mut txn = begin(&engine);
    txn.put(&table, b"one", b"value").unwrap();
    txn.put(&table, b"other", b"value").unwrap();
    disk.fail_next_sync_of("log");
    let error = txn.commit(Durability::Sync).unwrap_err();
    assert!(matches!(error, TxnError::OutcomeUnknown { .. }), "{error}");
    assert!(!error.is_retryable());
    let mut found = Vec::new();
    for mode in [CrashMode::DropUnsynced, CrashMode::KeepAll] {
        let left = disk.after_crash(mode);
        found.push(read_all(&open(&left).unwrap()).unwrap().len());
    }
    assert!(found.iter().all(|rows| *rows == 1 || *rows == 3), "all or nothing: {found:?}");
}

/// An operation that fails in the middle, here between two chunks of a long value, leaves no trace; the rest of its
/// transaction stands.
#[test]
fn an_operation_that_fails_leaves_no_trace() {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &small_log()).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    put(&engine, &table, &0_u32.to_be_bytes(), b"old");
    for round in 0..3_u8 {
        let mut txn = begin(&engine);
        let mut expected = BTreeMap::new();
        let mut numbers = 0..10_000_u32;
        let error = loop {
            let number = numbers.next().expect("the log gets full");
            let key = (number % 50).to_be_bytes();
            let value = vec![round ^ number as u8; 5000 + 700 * number as usize % 40_000];
            match txn.put(&table, &key, &value) {
                Ok(_) => drop(expected.insert(key.to_vec(), value)),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, TxnError::Storage(StorageError::LogFull { .. })), "{error}");
        let found: BTreeMap<_, _> = scan(&mut txn, &table).unwrap().into_iter().collect();
        assert!(found == expected, "round {round}: the transaction does not see what it wrote");
        txn.delete(&table, b"nothing").unwrap();
        txn.commit(Durability::Sync).unwrap();
        let left = open(&disk.after_crash(CrashMode::DropUnsynced)).unwrap();
        assert_eq!(
            read_all(&left).unwrap().into_values().collect::<Vec<_>>(),
            expected.into_values().collect::<Vec<_>>()
        );
        assert_sound(&left, "recovered");
        let (mut reader, mut keys) = (begin(&engine), Vec::new());
        keys.extend(scan(&mut reader, &table).unwrap().into_iter().map(|(key, _)| key));
        reader.commit(Durability::Sync).unwrap();
        for key in keys {
            let mut txn = begin(&engine);
            txn.delete(&table, &key).unwrap();
            txn.commit(Durability::Lazy).unwrap();
        }
        assert_sound(&engine, "emptied");
    }
}

/// Recovery meets the faults, not the work: it fails with an error, and the next one, on a sound disk, succeeds.
#[test]
fn recovery_on_a_failing_disk_can_be_repeated() {
    let disk = FaultyDisk::new();
    let promises = Mutex::new(Promises::default());
    let engine = open(&disk).unwrap();
    let mut workload = Workload::new(&engine, &promises, PLAN);
    workload.run().unwrap();
    let left = disk.after_crash(CrashMode::DropUnsynced);
    workload.abandon();
    let promises = promises.lock().clone();
    let usage = {
        let disk = left.after_crash(CrashMode::KeepAll);
        open(&disk).unwrap();
        disk.counts()
    };
    let mut failed = 0;
    let mut attempt = |context: String, fault: &dyn Fn(&FaultyDisk), heal: &dyn Fn(&FaultyDisk)| {
        let disk = left.after_crash(CrashMode::KeepAll);
        fault(&disk);
        failed += u32::from(open(&disk).and_then(|engine| engine.close()).is_err());
        heal(&disk);
        for mode in [CrashMode::DropUnsynced, CrashMode::KeepAll, CrashMode::TornRandom(3)] {
            let engine =
                open(&disk.after_crash(mode)).unwrap_or_else(|error| panic!("{context}, {mode:?}: {error}"));
            let tables = engine.tables().unwrap().iter().map(|table| table.name().to_owned()).collect();
            let found = read_all(&engine).unwrap();
            promises.check(&tables, &found).unwrap_or_else(|broken| panic!("{context}, {mode:?}: {broken}"));
            assert_sound(&engine, &context);
        }
    };
    for number in 1..=usage.syncs {
        attempt(format!("sync {number}"), &|disk| disk.fail_sync(number), &|_| ());
    }
    for number in 1..=usage.writes {
        attempt(format!("write {number}"), &|disk| disk.fail_write(number), &|_| ());
    }
    for blocks in 0..12 {
        let fault = move |disk: &FaultyDisk| disk.set_free_space(Some(blocks * 4096));
        attempt(format!("{blocks} blocks"), &fault, &|disk| disk.set_free_space(None));
    }
    assert!(u64::from(failed) >= usage.syncs + usage.writes, "{failed} of {usage:?}");
}
