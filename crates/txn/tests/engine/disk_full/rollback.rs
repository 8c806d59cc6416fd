//! BTREE-16: no rollback needs a page. What transactions have taken out of leaves has room there, although others have
//! used all that there was beside it, and the disk is full: by a rollback, to a savepoint, after a crash, and after a
//! crash of what was prepared.

use super::*;

/// So many that they lie in more than fifty leaves.
const ROWS: u32 = 400;
const TRANSACTIONS: u32 = 10_000;

type Loss = fn(&mut Txn, &TableInfo, &[u8]);

/// Ways to take bytes out of the leaf of a key, and to put others there.
const LOSSES: [(&str, Loss); 5] = [
    ("a shorter value", |txn, table, key| txn.put(table, key, b"").map(drop).unwrap()),
    ("values of all lengths", |txn, table, key| {
        for length in [900, 300, 301, 0, 128, 700, 1, 999, 256, 2] {
            txn.put(table, key, &vec![3; length]).unwrap();
        }
    }),
    ("a delete", |txn, table, key| assert!(txn.delete(table, key).unwrap())),
    ("a ghost that is filled", |txn, table, key| {
        for length in [10, 500, 0] {
            assert!(txn.delete(table, key).unwrap());
            assert!(txn.insert(table, key, &vec![4; length]).unwrap());
        }
    }),
    ("a long value", |txn, table, key| {
        txn.put(table, key, &[5; 9000]).unwrap();
        txn.put(table, key, b"short").unwrap();
        txn.put(table, key, &[6; 4500]).unwrap();
    }),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Rollback,
    Savepoint,
    Crash,
    Prepared,
}

#[test]
fn on_a_full_disk_no_rollback_needs_a_page() {
    thread::scope(|scope| {
        for (what, loss) in LOSSES {
            // Most of the time they wait for the log, which asks the disk again.
            scope.spawn(move || {
                for end in [End::Rollback, End::Savepoint, End::Crash, End::Prepared] {
                    for (transactions, whole_table) in [(1, false), (7, false), (1, true)] {
                        // It may be the log that has no space first: that depends on how far the maker of spares has
                        // come.
                        let begun = Instant::now();
                        while !takes_back(what, loss, end, transactions, whole_table) {
                            assert!(
                                begun.elapsed() < PATIENCE,
                                "the data file never was what could not grow"
                            );
                        }
                    }
                }
            });
        }
    });
}

fn row(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Some of them are long.
fn value_of(number: u32) -> Vec<u8> {
    vec![number as u8; if number.is_multiple_of(8) { 6000 } else { 1000 }]
}

/// With space for some of the log ahead of what is in it: so it is the data file that cannot grow.
fn open_ahead(disk: &FaultyDisk) -> Arc<Engine> {
    let options = options();
    let log = LogOptions { buffer_bytes: 4 << 20, ..options.log };
    open_with(disk, &EngineOptions { log, ..options }).unwrap()
}

/// A database with all rows.
fn with_rows(disk: &FaultyDisk, value_of: fn(u32) -> Vec<u8>) -> (Arc<Engine>, TableInfo) {
    let engine = open_ahead(disk);
    engine.create_table("other", b"").unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let mut txn = begin(&engine);
    (0..ROWS).for_each(|number| assert!(!txn.put(&table, &row(number), &value_of(number)).unwrap()));
    txn.commit(Durability::Sync).unwrap();
    (engine, table)
}

/// Puts records between all rows, for as long as there is room for one in the data file; gives what is there then.
/// `None`: it was the log that had no space.
fn fill(engine: &Arc<Engine>, name: &str) -> Option<Content> {
    let (table, mut added) = (engine.table(name).unwrap().unwrap(), Content::new());
    for round in 0..=u8::MAX {
        let before = added.len();
        for number in 0..ROWS {
            let (key, value) = ([&row(number)[..], &[round]].concat(), vec![round; 400]);
            let mut txn = begin(engine);
            match txn.insert(&table, &key, &value).and_then(|_| txn.commit(Durability::Lazy)) {
                Ok(_) => drop(added.insert((name.to_owned(), key), value)),
                Err(TxnError::Storage(StorageError::Io { source, .. }))
                    if source.kind() == io::ErrorKind::StorageFull => {}
                Err(TxnError::Storage(StorageError::LogFull { .. })) => return None,
                Err(other) => panic!("{other}"),
            }
        }
        if added.len() == before {
            return Some(added);
        }
    }
    panic!("there is room for ever");
}

fn allocations(engine: &Engine) -> u64 {
    engine.pool().stats().allocations
}

fn takes_back(what: &str, loss: Loss, end: End, transactions: u32, whole_table: bool) -> bool {
    let context = format!("{what}, {end:?}, {transactions} transactions, whole table: {whole_table}");
    let disk = FaultyDisk::new();
    let (mut engine, table) = with_rows(&disk, value_of);
    let mut expected = committed(&engine, &context);
    let mut open: Vec<_> = (0..transactions).map(|_| begin(&engine)).collect();
    let mut places = Vec::new();
    for (number, txn) in (ROWS..).zip(&mut open) {
        if whole_table {
            txn.lock_table(&table, IntentMode::X).unwrap();
        }
        if end == End::Savepoint {
            txn.put(&table, &row(number), b"before").unwrap();
            expected.insert(("t".to_owned(), row(number).to_vec()), b"before".to_vec());
            places.push(txn.savepoint().unwrap());
        }
    }
    // Of each leaf something is lost by each of them.
    for number in 0..ROWS {
        loss(&mut open[(number % transactions) as usize], &table, &row(number));
    }
    disk.set_free_space(Some(0));
    if end == End::Prepared {
        for (number, txn) in (0..).zip(open.drain(..)) {
            txn.prepare(&row(number)).unwrap();
        }
    }
    // Nobody else comes into a table that is locked; a page that is free is taken all the same.
    let filled = if whole_table { "other" } else { "t" };
    if end != End::Prepared {
        let Some(added) = fill(&engine, filled) else { return false };
        expected.extend(added);
    }
    if matches!(end, End::Crash | End::Prepared) {
        engine.log().flush(Lsn(engine.log().tail().0 - 8)).ok();
        let left = after_crash(&disk, CrashMode::KeepAll, 0);
        open.clear();
        engine = open_ahead(&left);
    }
    let losers = if end == End::Crash { u64::from(transactions) } else { 0 };
    assert_eq!(engine.stats().recovery.losers, losers, "{context}");
    if end == End::Prepared {
        let Some(added) = fill(&engine, filled) else { return false };
        expected.extend(added);
    }
    // A crash's rollbacks were while it was opened.
    let before = if end == End::Crash { 0 } else { allocations(&engine) };
    for (number, mut txn) in (0..).zip(open) {
        match places.get(number) {
            Some(place) => {
                txn.rollback_to(*place).unwrap_or_else(|error| panic!("{context}: {error}"));
                txn.commit(Durability::Lazy).map(drop)
            }
            None => txn.rollback(),
        }
        .unwrap_or_else(|error| panic!("{context}: {error}"));
    }
    if end == End::Prepared {
        for number in 0..transactions {
            engine.rollback_prepared(&row(number)).unwrap_or_else(|error| panic!("{context}: {error}"));
        }
    }
    assert_eq!(allocations(&engine), before, "{context}: a rollback took pages");
    assert!(committed(&engine, &context) == expected, "{context}: rolled back to something else");
    assert_sound(&engine, &context);
    true
}

/// What is kept for a rollback is refused to others, with the error of a full disk, and is theirs when there will be
/// none.
#[test]
fn what_a_rollback_may_need_is_others_after_the_commit() {
    assert!((0..50).any(|_| is_others_after_the_commit()), "the log always had no space first");
}

/// False: the log had no space before the data file had none.
fn is_others_after_the_commit() -> bool {
    let disk = FaultyDisk::new();
    let (engine, table) = with_rows(&disk, |_| vec![1; 1000]);
    let mut open = begin(&engine);
    (0..ROWS).for_each(|number| assert!(open.put(&table, &row(number), b"").unwrap()));
    disk.set_free_space(Some(0));
    if fill(&engine, "t").is_none() {
        return false;
    }
    let later = |number| {
        let mut txn = begin(&engine);
        let key = [&row(number)[..], b"later"].concat();
        txn.insert(&table, &key, &[9; 700]).and_then(|_| txn.commit(Durability::Sync))
    };
    let is_log_full = |error: &TxnError| matches!(error, TxnError::Storage(StorageError::LogFull { .. }));
    for number in 0..ROWS {
        let error = later(number).unwrap_err();
        if is_log_full(&error) {
            return false;
        }
        assert!(is_no_space(&error));
    }
    open.commit(Durability::Sync).unwrap();
    let ends: Vec<_> = (0..ROWS).map(later).collect();
    assert_sound(&engine, "after");
    // Not all: where nodes were split meanwhile, some belong to leaves in which no value has become shorter.
    let added = ends.iter().filter(|end| end.is_ok()).count();
    let is_full = ends.iter().any(|end| end.as_ref().is_err_and(is_log_full));
    assert!(is_full || added > ROWS as usize / 2, "{added} of {ROWS}");
    !is_full
}

/// Nothing stays behind, whatever becomes of those who shorten values: the pages are the same in the end, and have the
/// same room.
#[test]
fn nothing_is_kept_for_rollbacks_for_ever() {
    let disk = FaultyDisk::new();
    let (engine, table) = with_rows(&disk, value_of);
    let used = |engine: &Engine| engine.stats().pages - engine.stats().pages_free;
    let pages = used(&engine);
    for round in 0..TRANSACTIONS {
        let mut txn = begin(&engine);
        let here = txn.savepoint().unwrap();
        for number in [1, 3, 5] {
            let key = row((round * number * 8 + number) % ROWS);
            txn.put(&table, &key, &vec![round as u8; (round * 37 % 1000) as usize]).unwrap();
        }
        match round % 3 {
            0 => txn.rollback().unwrap(),
            1 => txn.rollback_to(here).and_then(|()| txn.commit(Durability::Lazy)).map(drop).unwrap(),
            _ => drop(txn.commit(Durability::Lazy).unwrap()),
        }
    }
    assert_eq!(used(&engine), pages);
    let mut txn = begin(&engine);
    for number in (0..ROWS).filter(|number| !number.is_multiple_of(8)) {
        txn.put(&table, &row(number), &value_of(number)).unwrap();
    }
    txn.commit(Durability::Sync).unwrap();
    assert_eq!(used(&engine), pages, "leaves have less room than they had");
    assert_sound(&engine, "at the end");
}
