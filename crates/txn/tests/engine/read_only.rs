//! Databases that are opened to be read.

use std::path::{Path, PathBuf};

use foreshore_base::StorageError;
use foreshore_env::{
    disk::Disk,
    sync::{Arc, Mutex},
    time::Duration,
};
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_txn::{Durability, EngineOptions, TxnError};

use crate::{
    assert_sound, begin, directory,
    matrix::modes,
    model::{Plan, Promises, Workload},
    open, open_with, put, read_all, tiny,
};

fn read_only() -> EngineOptions {
    EngineOptions { read_only: true, ..tiny() }
}

/// All files with their bytes, and how often the disk was changed.
fn everything(disk: &FaultyDisk) -> (Vec<(PathBuf, Vec<u8>)>, u64) {
    let files = disk.files().into_iter().map(|path| (path.clone(), disk.read_file(&path).unwrap()));
    (files.collect(), disk.counts().operations)
}

fn made() -> FaultyDisk {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    (0..60_u32).for_each(|number| put(&engine, &table, &number.to_be_bytes(), &[7; 200]));
    engine.close().unwrap();
    disk
}

#[test]
fn reading_changes_nothing_and_writing_is_refused() {
    let disk = made();
    let before = everything(&disk);
    let engine = open_with(&disk, &read_only()).unwrap();
    assert_eq!(read_all(&engine).unwrap().len(), 60);
    assert_sound(&engine, "read");
    let refused = |result: Result<(), TxnError>| {
        assert!(matches!(result, Err(TxnError::Storage(StorageError::ReadOnly))), "{result:?}");
    };
    let table = engine.table("t").unwrap().unwrap();
    let mut txn = begin(&engine);
    refused(txn.put(&table, b"key", b"value").map(drop));
    refused(txn.insert(&table, b"key", b"value").map(drop));
    refused(txn.delete(&table, &3_u32.to_be_bytes()).map(drop));
    refused(txn.append(&table, &[(vec![255; 5], vec![1])]).map(drop));
    // A read is as good as ever, and so is the commit.
    assert!(txn.get(&table, &3_u32.to_be_bytes(), |_| ()).unwrap().is_some());
    txn.commit(Durability::Sync).unwrap();
    refused(engine.create_table("u", b"").map(drop));
    refused(engine.drop_table("t").map(drop));
    refused(engine.drop_table("u").map(drop));
    // It waited for whoever reads, and then for nothing.
    let mut reader = begin(&engine);
    assert!(reader.get(&table, &3_u32.to_be_bytes(), |_| ()).unwrap().is_some());
    refused(engine.drop_table_within("t", Duration::from_millis(300)).map(drop));
    reader.commit(Durability::Sync).unwrap();
    refused(engine.checkpoint().map_err(Into::into));
    engine.close().unwrap();
    assert_eq!(everything(&disk), before);
}

#[test]
fn readers_share_a_database_and_keep_writers_out() {
    let disk = made();
    let one = open_with(&disk, &read_only()).unwrap();
    let other = open_with(&disk, &read_only()).unwrap();
    assert!(matches!(open(&disk), Err(StorageError::AlreadyOpen { .. })));
    drop(one);
    assert!(matches!(open(&disk), Err(StorageError::AlreadyOpen { .. })));
    assert_eq!(read_all(&other).unwrap().len(), 60);
    other.close().unwrap();
    let writer = open(&disk).unwrap();
    assert!(matches!(open_with(&disk, &read_only()), Err(StorageError::AlreadyOpen { .. })));
    writer.close().unwrap();
}

#[test]
fn where_there_is_none_none_is_made() {
    let disk = FaultyDisk::new();
    assert!(matches!(open_with(&disk, &read_only()), Err(StorageError::Io { .. })));
    disk.create_directory(directory()).unwrap();
    let before = everything(&disk);
    assert!(matches!(open_with(&disk, &read_only()), Err(StorageError::Io { .. })));
    assert_eq!(everything(&disk), before);
}

/// After a crash, a reader sees what a writer would: recovery takes place in memory.
#[test]
fn what_a_crash_left_is_recovered_in_memory() {
    let plan = Plan { long_values: true, ..Plan::new(12, 900, 70) };
    let disk = FaultyDisk::new();
    disk.create_directory(directory()).unwrap();
    disk.sync_directory(Path::new("/")).unwrap();
    let promises = Arc::new(Mutex::new(Promises::default()));
    let engine = open(&disk).unwrap();
    let mut workload = Workload::new(&engine, &promises, plan);
    workload.run().unwrap();
    let promised = promises.lock().clone();
    for mode in modes(5) {
        let left = disk.after_crash(mode);
        let before = everything(&left);
        let reader = open_with(&left, &read_only()).unwrap();
        assert!(!reader.stats().recovery.clean, "{mode:?}");
        promised.examine(&reader).unwrap_or_else(|broken| panic!("{mode:?}: {broken}"));
        assert_sound(&reader, "recovered in memory");
        reader.close().unwrap();
        assert_eq!(everything(&left), before, "{mode:?}");
        // And a writer finds what it would have found before.
        let writer = open(&left).unwrap();
        promised.examine(&writer).unwrap();
        writer.close().unwrap();
    }
    workload.abandon();
}

#[test]
fn a_backup_is_made_by_a_reader() {
    let disk = made();
    let reader = open_with(&disk, &read_only()).unwrap();
    let target = Path::new("/copy");
    reader.backup(target, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    let before = read_all(&reader).unwrap();
    let left = disk.after_crash(CrashMode::DropUnsynced);
    let copy = foreshore_txn::Engine::open(Arc::new(left), target, &tiny()).unwrap();
    assert_eq!(read_all(&copy).unwrap(), before);
}

/// What waits for a decision goes on waiting: a reader sees that it is there, and decides nothing.
#[test]
fn a_reader_decides_about_no_prepared_transaction() {
    let disk = made();
    let engine = open(&disk).unwrap();
    let table = engine.table("t").unwrap().unwrap();
    let mut txn = begin(&engine);
    txn.put(&table, b"in doubt", b"value").unwrap();
    txn.prepare(b"id").unwrap();
    engine.close().unwrap();
    let before = everything(&disk);
    let reader = open_with(&disk, &read_only()).unwrap();
    assert_eq!(reader.prepared().unwrap().len(), 1);
    for refused in [reader.commit_prepared(b"id"), reader.rollback_prepared(b"id")] {
        assert!(matches!(refused, Err(TxnError::Storage(StorageError::ReadOnly))), "{refused:?}");
    }
    reader.close().unwrap();
    assert_eq!(everything(&disk), before);
    let writer = open(&disk).unwrap();
    writer.commit_prepared(b"id").unwrap();
    assert_eq!(read_all(&writer).unwrap().len(), 61);
}
