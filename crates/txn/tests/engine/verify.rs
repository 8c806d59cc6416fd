//! Checking a database that is read meanwhile.

use foreshore_env::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use foreshore_testkit::FaultyDisk;
use foreshore_txn::{Durability, EngineOptions, PoolOptions};

use crate::{begin, open_with, read_all, scan, tiny};

/// Whoever scans purges what was deleted and merges leaves on the way, and no lock of a reader keeps the check from
/// meeting a page that has just gone.
#[test]
fn readers_that_tidy_are_no_damage() {
    let options = EngineOptions { pool: PoolOptions { bytes: 4096 * 8192, ..tiny().pool }, ..tiny() };
    let engine = open_with(&FaultyDisk::new(), &options).unwrap();
    let table = engine.create_table("table", b"").unwrap();
    for _ in 0..30 {
        for put in [true, false] {
            let mut txn = begin(&engine);
            for row in 0..1500_u32 {
                if put {
                    txn.put(&table, &row.to_be_bytes(), b"value").unwrap();
                } else {
                    txn.delete(&table, &row.to_be_bytes()).unwrap();
                }
            }
            txn.commit(Durability::Sync).unwrap();
        }
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    assert!(read_all(&engine).unwrap().is_empty());
                }
            });
            let report = engine.verify();
            over.store(true, Ordering::Relaxed);
            assert_eq!(report.unwrap().problems, [""; 0]);
        });
    }
}

/// Who has tidied a table once and reads on has nothing to do with a check that begins then.
#[test]
fn a_reader_that_has_tidied_holds_up_no_check() {
    let engine = open_with(&FaultyDisk::new(), &tiny()).unwrap();
    let table = engine.create_table("table", b"").unwrap();
    for put in [true, false] {
        let mut txn = begin(&engine);
        for row in 0..200_u32 {
            if put {
                txn.put(&table, &row.to_be_bytes(), b"value").unwrap();
            } else {
                txn.delete(&table, &row.to_be_bytes()).unwrap();
            }
        }
        txn.commit(Durability::Sync).unwrap();
    }
    let pages = || {
        let report = engine.verify_within(Duration::from_secs(1)).unwrap();
        assert_eq!(report.problems, [""; 0]);
        report.trees.pages
    };
    let before = pages();
    let mut reader = begin(&engine);
    assert!(scan(&mut reader, &table).unwrap().is_empty());
    assert!(pages() < before, "it tidied");
    reader.commit(Durability::Sync).unwrap();
}
