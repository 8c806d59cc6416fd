//! Databases that lie in memory.

use std::{path::Path, thread};

use foreshore::{Database, Error, Options, TableDefinition};

const COUNTS: TableDefinition<u32, u64> = TableDefinition::new("counts");
const NOTES: TableDefinition<u32, &[u8]> = TableDefinition::new("notes");
const COPIES: TableDefinition<u32, &[u8]> = TableDefinition::new("copies");

/// A pool and a log that are small for what is written: pages come and go, segments are used again, long values change,
/// and the file is cut. A backup has all of it.
#[test]
fn a_database_in_memory_does_what_others_do() {
    let options = Options {
        pool_bytes: 1 << 20,
        log_segment_bytes: 1 << 20,
        log_bytes: 8 << 20,
        log_buffer_bytes: 1 << 20,
        ..Options::default()
    };
    let db = Database::builder().options(options).open_in_memory().unwrap();
    let value = |round: u32, key: u32| vec![round as u8; if key.is_multiple_of(50) { 30_000 } else { 500 }];
    for round in 0..4 {
        thread::scope(|scope| {
            for part in 0..4 {
                let db = &db;
                scope.spawn(move || {
                    for key in (part..2000).step_by(4) {
                        db.transact(|tx| {
                            let count = tx.get_for_update(COUNTS, key % 7)?.unwrap_or(0);
                            tx.put(COUNTS, key % 7, count + 1)?;
                            tx.put(COPIES, key, &*value(round, key))?;
                            tx.put(NOTES, key, &*value(round, key))
                        })
                        .unwrap();
                    }
                });
            }
        });
    }
    assert!(db.stats().checkpoints > 0, "{:?}", db.stats());
    assert!(db.drop_table("copies").unwrap());
    db.compact().unwrap();
    assert!(db.verify().unwrap().is_sound());
    let home = tempfile::tempdir().unwrap();
    let copy = home.path().join("copy");
    db.backup(&copy).unwrap();
    let whole = |db: &Database| {
        db.read(|tx| {
            assert_eq!(tx.range(COUNTS, ..)?.map(|entry| entry.unwrap().1).sum::<u64>(), 8000);
            assert_eq!(tx.count_range(NOTES, ..)?, 2000);
            for note in tx.range(NOTES, ..)? {
                let (key, note) = note?;
                assert!(note == value(3, key), "{key}");
            }
            Ok(())
        })
        .unwrap();
    };
    whole(&db);
    db.close().unwrap();
    assert!(matches!(db.read(|tx| tx.count_range(NOTES, ..)), Err(Error::Closed { .. })));
    whole(&Database::open(copy).unwrap());
}

#[test]
fn a_database_in_memory_is_nowhere_else() {
    let (one, other) = (Database::in_memory().unwrap(), Database::in_memory().unwrap());
    one.transact(|tx| tx.put(COUNTS, 1, 1)).unwrap();
    assert_eq!(other.read(|tx| tx.get(COUNTS, 1)).unwrap(), None);
    assert_eq!(one.path(), Path::new("(in memory)"));
    assert!(!one.path().exists());
    drop(one);
    assert_eq!(Database::in_memory().unwrap().read(|tx| tx.get(COUNTS, 1)).unwrap(), None);
    // There is none that could be read.
    for builder in [Database::builder().read_only(true), Database::builder().create(false)] {
        let refused = builder.open_in_memory().unwrap_err();
        assert!(matches!(refused, Error::Io { .. }), "{refused}");
    }
    let wrong = Database::builder().pool_bytes(1).open_in_memory();
    assert!(matches!(wrong, Err(Error::InvalidOption { .. })), "{wrong:?}");
}
