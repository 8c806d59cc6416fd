//! Pages that nobody needs are free again.

use std::fs;

use foreshore::{Database, Durability, Error, Options, Result, TableDefinition, Transaction};
use foreshore_env::{
    thread,
    time::{Duration, Instant},
};

const ROWS: TableDefinition<u32, &[u8]> = TableDefinition::new("rows");
const MOST: u64 = 4 << 20;

/// Bytes of the data file in use.
fn used(home: &tempfile::TempDir, db: &Database) -> u64 {
    fs::metadata(home.path().join("db/data")).unwrap().len() - db.stats().fragmented_bytes
}

fn repeated(work: impl Fn(&Database, &[u8])) {
    let home = tempfile::tempdir().unwrap();
    let db = Database::open(home.path().join("db")).unwrap();
    db.transact(|tx| tx.put(ROWS, 1, &[1][..]).map(drop)).unwrap();
    let value = vec![7; 256 << 10];
    for _ in 0..60 {
        work(&db, &value);
    }
    let used = used(&home, &db);
    assert!(used < MOST, "{used} bytes are in use");
    let report = db.verify().unwrap();
    assert!(report.is_sound(), "{report:?}");
    db.close().unwrap();
    drop(db);
    let db = Database::open(home.path().join("db")).unwrap();
    assert!(db.verify().unwrap().is_sound());
    assert_eq!(db.transact(|tx| tx.get(ROWS, 1)).unwrap().as_deref(), Some(&[1][..]));
}

/// 60 times 256 KiB stayed in use until a compaction.
#[test]
fn long_values_that_are_rolled_back_leave_their_pages() {
    repeated(|db, value| {
        let mut tx = db.begin().unwrap();
        tx.put(ROWS, 2, value).unwrap();
        tx.put(ROWS, 2, &value[1..]).unwrap();
        tx.rollback().unwrap();
    });
}

fn to_savepoint(tx: &mut Transaction, value: &[u8]) -> Result<()> {
    let before = tx.savepoint()?;
    tx.put(ROWS, 2, value)?;
    tx.rollback_to(before)?;
    tx.put(ROWS, 3, value)?;
    tx.rollback_to(before)?;
    tx.put(ROWS, 4, &[4][..]).map(drop)
}

#[test]
fn so_do_those_that_a_savepoint_takes_back() {
    repeated(|db, value| db.transact(|tx| to_savepoint(tx, value)).unwrap());
    repeated(|db, value| {
        let mut tx = db.begin().unwrap();
        to_savepoint(&mut tx, value).unwrap();
        tx.rollback().unwrap();
    });
    // What comes before the savepoint stays.
    repeated(|db, value| {
        db.transact(|tx| {
            tx.put(ROWS, 5, value)?;
            to_savepoint(tx, &value[1..])?;
            assert!(tx.get(ROWS, 5)?.as_deref() == Some(value));
            Ok(())
        })
        .unwrap();
        assert!(db.transact(|tx| tx.get(ROWS, 5)).unwrap().as_deref() == Some(value));
    });
}

/// The key is there already, or the rows do not ascend, when much has been written.
#[test]
fn so_do_those_of_a_change_that_fails() {
    repeated(|db, value| {
        let failed = db.transact(|tx| {
            let refused = tx.append(ROWS, [(10, value), (5, value)]);
            assert!(matches!(refused, Err(Error::NotBehind { .. })), "{refused:?}");
            tx.put(ROWS, 6, &[6][..]).map(drop)
        });
        failed.unwrap();
    });
}

/// Whoever decides takes back what somebody else has written.
#[test]
fn so_do_those_of_a_prepared_transaction() {
    repeated(|db, value| {
        let mut tx = db.begin().unwrap();
        tx.put(ROWS, 2, value).unwrap();
        tx.prepare("id").unwrap();
        db.rollback_prepared("id").unwrap();
    });
}

/// A log that has room for a few large values at a time.
fn with_a_small_log(home: &tempfile::TempDir) -> Database {
    let options = Options {
        log_segment_bytes: 256 << 10,
        log_bytes: 4 << 20,
        log_buffer_bytes: 256 << 10,
        pool_bytes: 8 << 20,
        durability: Durability::Lazy,
        ..Options::default()
    };
    Database::builder().options(options).open(home.path().join("db")).unwrap()
}

/// What was to leave its page while others took the last room of the log stayed in use until a compaction, so that a
/// file whose long values are changed all the time grew without end.
#[test]
fn long_values_leave_their_pages_though_the_log_is_full_now_and_then() {
    const WRITERS: u32 = 6;
    let home = tempfile::tempdir().unwrap();
    let db = with_a_small_log(&home);
    let end = Instant::now() + Duration::from_secs(120);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let db = &db;
            scope.spawn(move || {
                for round in 0..40 {
                    let value = vec![round as u8; 100 << 10];
                    // On a busy machine one of them may keep the others from their turns for longer than they wait.
                    while let Err(error) = db.transact(|tx| tx.put(ROWS, writer, value.as_slice())) {
                        assert!(matches!(error, Error::LogFull { .. }) && Instant::now() < end, "{error}");
                    }
                }
            });
        }
    });
    while used(&home, &db) >= MOST && Instant::now() < end {
        thread::sleep(Duration::from_millis(10));
    }
    let used = used(&home, &db);
    assert!(used < MOST, "{used} bytes are in use");
    assert!(db.verify().unwrap().is_sound());
    db.close().unwrap();
}

/// A leaf of long values that was emptied was not merged where somebody was in the way for a moment, or where it had a
/// foster child that nobody had adopted, and nobody came to it again: a file whose long values are changed by many grew
/// without end.
#[test]
fn long_values_leave_their_pages_though_many_overwrite_them() {
    const WRITERS: u32 = 16;
    let home = tempfile::tempdir().unwrap();
    let options = Options { pool_bytes: 64 << 20, durability: Durability::Lazy, ..Options::default() };
    let db = Database::builder().options(options).open(home.path().join("db")).unwrap();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let db = &db;
            scope.spawn(move || {
                for round in 0..600 {
                    let value = vec![round as u8; 100 << 10];
                    db.transact(|tx| tx.put(ROWS, writer, value.as_slice())).unwrap();
                }
            });
        }
    });
    let end = Instant::now() + Duration::from_secs(120);
    while used(&home, &db) >= MOST && Instant::now() < end {
        // Whoever purges looks at leaves that could not be merged before.
        db.transact(|tx| tx.put(ROWS, 0, [0; 100 << 10].as_slice())).unwrap();
        thread::sleep(Duration::from_millis(10));
    }
    let used = used(&home, &db);
    assert!(used < MOST, "{used} bytes are in use");
    db.close().unwrap();
}

/// A change that was refused half-way, because others had filled the log before it, lay in its own way when it was
/// tried again: one of twenty was refused for good, though each fits the log by itself.
#[test]
fn a_large_value_fits_a_log_that_others_have_filled_before() {
    const COUNTS: TableDefinition<u32, u32> = TableDefinition::new("counts");
    let home = tempfile::tempdir().unwrap();
    let db = with_a_small_log(&home);
    for round in 0..60_u32 {
        (0..round * 7 % 100).for_each(|row| {
            db.transact(|tx| tx.put(COUNTS, 1 + row, round)).unwrap();
        });
        let value = vec![round as u8; (256 << 10) - 1000 * (round as usize * 37 % 60)];
        let mut tx = db.begin().unwrap();
        tx.put(COUNTS, 0, round).unwrap();
        tx.put(ROWS, round % 3, value.as_slice()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        tx.commit().unwrap();
    }
    db.close().unwrap();
}
