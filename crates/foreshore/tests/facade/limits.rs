//! Every limit one below, at, and one above: a typed error above, and the engine goes on. What is limited below the
//! facade is tested there: bytes of the log (`bad_input.rs`), locks of all transactions (`lock`,
//! `tests/locks/basics.rs`), levels of a tree and records of a page (`btree`, `tests/limits.rs` and
//! `tests/hostile.rs`).

use std::{
    collections::HashMap, fmt::Debug, ops::RangeInclusive, os::unix::fs::MetadataExt, path::Path, sync::Arc,
};

use foreshore::{
    Database, Durability, Error, Options, Result, TableDefinition, TransactOptions,
    limits::{
        MAX_GLOBAL_ID_BYTES, MAX_INLINE_VALUE_BYTES, MAX_KEY_BYTES, MAX_TABLE_NAME_BYTES, MAX_TABLES,
        MAX_TRANSACTIONS, MAX_VALUE_BYTES, OVERFLOW_CHUNK_BYTES,
    },
};
use foreshore_env::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};
use foreshore_testkit::FaultyDisk;

const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");
const NUMBERS: TableDefinition<u64, u64> = TableDefinition::new("numbers");

fn open_with(options: Options) -> Database {
    Database::builder().options(options).disk(Arc::new(FaultyDisk::new())).open("/db").unwrap()
}

fn small() -> Options {
    Options { pool_bytes: 4 << 20, log_bytes: 256 << 20, durability: Durability::Lazy, ..Options::default() }
}

/// That the database does what it is there for, and is sound.
#[track_caller]
fn goes_on(db: &Database) {
    let before = db.transact(|tx| tx.get(NUMBERS, u64::MAX)).unwrap().unwrap_or(0);
    db.transact(|tx| tx.put(NUMBERS, u64::MAX, before + 1)).unwrap();
    assert_eq!(db.transact(|tx| tx.get(NUMBERS, u64::MAX)).unwrap(), Some(before + 1));
    assert!(db.verify().unwrap().is_sound());
}

/// One below, at, and one above.
fn around(limit: usize) -> RangeInclusive<usize> {
    limit - 1..=limit + 1
}

#[test]
fn keys() {
    let db = open_with(small());
    let mut tx = db.begin().unwrap();
    for length in around(MAX_KEY_BYTES) {
        let key = vec![7; length];
        // All ways in: whoever only asks is told, too.
        let results: [Result<()>; 5] = [
            tx.get(ROWS, &key).map(drop),
            tx.put(ROWS, &key, &b"value"[..]).map(drop),
            tx.insert(ROWS, &key, &b"value"[..]).map(drop),
            tx.update(ROWS, &key, &b"value"[..]).map(drop),
            tx.range(ROWS, key.as_slice()..).map(drop),
        ];
        for result in results {
            match (result, length > MAX_KEY_BYTES) {
                (Ok(()), false) => {}
                (Err(Error::KeyTooLong { .. }), true) => {}
                (result, _) => panic!("{length} bytes: {result:?}"),
            }
        }
    }
    // The transaction itself has not failed.
    tx.commit().unwrap();
    let found = db.transact(|tx| Ok(tx.range(ROWS, ..)?.count())).unwrap();
    assert_eq!(found, 2);
    goes_on(&db);
}

#[test]
fn values() {
    let db = open_with(small());
    let boundaries =
        [MAX_INLINE_VALUE_BYTES, OVERFLOW_CHUNK_BYTES, 2 * OVERFLOW_CHUNK_BYTES, MAX_VALUE_BYTES];
    for length in boundaries.into_iter().flat_map(around).chain([0]) {
        let value: Vec<u8> = (0..length).map(|index| index as u8).collect();
        let written = db.transact(|tx| tx.put(ROWS, b"key", value.as_slice()));
        match (written, length > MAX_VALUE_BYTES) {
            (Ok(_), false) => {
                let same = db.transact(|tx| tx.get_with(ROWS, b"key", |found| found == value));
                assert_eq!(same.unwrap(), Some(true), "{length} bytes");
            }
            (Err(Error::ValueTooLong { .. }), true) => {}
            (written, _) => panic!("{length} bytes: {written:?}"),
        }
    }
    goes_on(&db);
}

#[test]
fn names_and_types_of_tables() {
    let db = open_with(small());
    for length in around(MAX_TABLE_NAME_BYTES).chain([0, 1, 100_000]) {
        let name = "n".repeat(length);
        let made = db.transact(|tx| tx.put(TableDefinition::<u8, u8>::new(&name), 1, 1));
        match (made, (1..=MAX_TABLE_NAME_BYTES).contains(&length)) {
            (Ok(_), true) => {}
            (Err(Error::LimitExceeded { got, .. }), false) => assert_eq!(got, length as u64),
            (made, _) => panic!("{length} bytes: {made:?}"),
        }
    }
    // The names of the types, with what separates them.
    let longest = MAX_INLINE_VALUE_BYTES - 8;
    for length in around(longest) {
        let key_type = "k".repeat(length - 1 - "value".len());
        let made = db.create_table(&format!("types {length}"), &key_type, "value");
        match (made, length > longest) {
            (Ok(table), false) => assert_eq!(table.key_type, key_type),
            (Err(Error::LimitExceeded { limit, .. }), true) => assert_eq!(limit, longest as u64),
            (made, _) => panic!("{length} bytes: {made:?}"),
        }
    }
    goes_on(&db);
}

/// Takes some minutes: `cargo test --release -p foreshore --test facade -- --ignored as_many_tables`.
#[test]
#[ignore = "makes 65,536 tables: cargo test --release -p foreshore --test facade -- --ignored as_many_tables"]
fn as_many_tables_as_there_may_be() {
    let db = open_with(small());
    goes_on(&db);
    for number in 1..=MAX_TABLES {
        let made = db.create_table(&format!("table {number}"), "u8", "u8");
        match (made, number == MAX_TABLES) {
            (Ok(_), false) => {}
            (Err(Error::LimitExceeded { .. }), true) => {}
            (made, _) => panic!("{number}: {made:?}"),
        }
    }
    assert!(db.drop_table("table 77").unwrap());
    db.create_table("another", "u8", "u8").unwrap();
    goes_on(&db);
}

#[test]
fn global_ids() {
    let db = open_with(small());
    for length in around(MAX_GLOBAL_ID_BYTES).chain([0, 1]) {
        let id = "i".repeat(length);
        let mut tx = db.begin().unwrap();
        tx.put(NUMBERS, length as u64, 1).unwrap();
        match (tx.prepare(&id), (1..=MAX_GLOBAL_ID_BYTES).contains(&length)) {
            (Ok(_), true) => db.commit_prepared(&id).unwrap(),
            (Err(Error::InvalidGlobalId { bytes, .. }), false) => assert_eq!(bytes, length),
            (prepared, _) => panic!("{length} bytes: {:?}", prepared.map(drop)),
        }
    }
    let there = db.transact(|tx| Ok(tx.range(NUMBERS, ..)?.count())).unwrap();
    assert_eq!(there, 3, "what was not prepared was rolled back");
    goes_on(&db);
}

#[test]
fn savepoints() {
    const MOST: usize = 65_536;
    let db = open_with(small());
    let mut tx = db.begin().unwrap();
    tx.put(NUMBERS, 1, 1).unwrap();
    let first = tx.savepoint().unwrap();
    for number in 2..=MOST + 1 {
        match (tx.savepoint(), number > MOST) {
            (Ok(_), false) => {}
            (Err(Error::LimitExceeded { limit, .. }), true) => assert_eq!(limit, MOST as u64),
            (made, _) => panic!("savepoint {number}: {made:?}"),
        }
    }
    tx.put(NUMBERS, 2, 2).unwrap();
    tx.rollback_to(first).unwrap();
    tx.savepoint().unwrap();
    tx.release(first).unwrap();
    // One for each statement, which is given back.
    for _ in 0..200_000 {
        let before = tx.savepoint().unwrap();
        tx.release(before).unwrap();
    }
    tx.commit().unwrap();
    assert_eq!(db.transact(|tx| Ok(tx.range(NUMBERS, ..)?.count())).unwrap(), 1);
    goes_on(&db);
}

#[test]
fn locks_of_a_transaction() {
    const MOST: usize = 300;
    let db = open_with(Options { max_locks_per_transaction: MOST, ..small() });
    // A few transactions make the rows, each within the limit.
    for begin in (0..MOST as u64 + 1).step_by(50) {
        db.transact(|tx| (begin..begin + 50).try_for_each(|key| tx.put(NUMBERS, key, 0).map(drop))).unwrap();
    }
    for count in around(MOST) {
        // One lock for each row that is there, and no gaps.
        let result =
            db.transact(|tx| (0..count as u64).try_for_each(|key| tx.get_for_update(NUMBERS, key).map(drop)));
        match (result, count > MOST) {
            (Ok(()), false) => {}
            (Err(Error::TooManyLocks { limit }), true) => assert_eq!(limit, MOST),
            (result, _) => panic!("{count} locks: {result:?}"),
        }
    }
    goes_on(&db);
}

#[test]
fn transactions() {
    let db = open_with(small());
    // To make a table takes a transaction, too.
    goes_on(&db);
    let mut open = Vec::new();
    for number in 1..=MAX_TRANSACTIONS {
        open.push(db.begin().unwrap_or_else(|error| panic!("transaction {number}: {error}")));
    }
    let refused = db.begin().unwrap_err();
    assert!(
        matches!(refused, Error::TooManyTransactions { limit: MAX_TRANSACTIONS, prepared: 0 }),
        "{refused}"
    );
    // Those that are open work, and a place that is given back is taken.
    open[17].put(NUMBERS, 17, 17).unwrap();
    open.pop().unwrap().rollback().unwrap();
    open.push(db.begin().unwrap());
    assert!(db.begin().is_err());
    open.drain(..).for_each(|tx| tx.commit().unwrap());
    assert_eq!(db.transact(|tx| tx.get(NUMBERS, 17)).unwrap(), Some(17));
    goes_on(&db);
}

/// What runs in `transact` was refused at once, too, where more threads had transactions than there may be.
#[test]
fn transact_waits_for_a_place() {
    let db = open_with(small());
    goes_on(&db);
    let mut open: Vec<_> = (0..MAX_TRANSACTIONS).map(|_| db.begin().unwrap()).collect();
    let run = |options: &TransactOptions| db.transact_with(options, |tx| tx.put(NUMBERS, 17, 17));
    let since = Instant::now();
    let refused = run(&TransactOptions { no_wait: true, ..TransactOptions::default() }).unwrap_err();
    assert!(matches!(refused, Error::TooManyTransactions { .. }), "{refused}");
    let deadline = Duration::from_millis(300);
    let refused =
        run(&TransactOptions { deadline: Some(deadline), ..TransactOptions::default() }).unwrap_err();
    assert!(matches!(refused, Error::TooManyTransactions { .. }), "{refused}");
    assert!((deadline..Duration::from_secs(9)).contains(&since.elapsed()), "{:?}", since.elapsed());
    thread::scope(|scope| {
        let waits: Vec<_> = (0..48).map(|_| scope.spawn(|| run(&TransactOptions::default()))).collect();
        thread::sleep(Duration::from_millis(100));
        assert!(waits.iter().all(|thread| !thread.is_finished()));
        open.truncate(MAX_TRANSACTIONS - 1);
        assert!(waits.into_iter().all(|thread| thread.join().unwrap().is_ok()));
    });
    drop(open);
    goes_on(&db);
}

/// A table is made by a transaction of its own, which was refused at once where as many were open as there may be: the
/// first use of a table failed, in a transaction that had waited for its own place.
#[test]
fn who_makes_a_table_waits_for_a_place() {
    const WAIT: Duration = Duration::from_millis(300);
    let db = open_with(small());
    goes_on(&db);
    let mut open: Vec<_> = (1..MAX_TRANSACTIONS).map(|_| db.begin().unwrap()).collect();
    let uses = |table: &str, options: &TransactOptions| {
        let table = TableDefinition::<u64, u64>::new(table);
        db.transact_with(options, |tx| tx.put(table, 1, 1).map(drop))
    };
    let in_time = TransactOptions { deadline: Some(WAIT), ..TransactOptions::default() };
    let at_once = TransactOptions { no_wait: true, ..TransactOptions::default() };
    let refused_after = |options: &TransactOptions| {
        let since = Instant::now();
        let refused = uses("new", options).unwrap_err();
        assert!(matches!(refused, Error::TooManyTransactions { .. }), "{refused}");
        since.elapsed()
    };
    assert!(refused_after(&in_time) >= WAIT);
    // The machine may stand still for once, not each time.
    assert!((0..10).any(|_| refused_after(&at_once) < WAIT));
    // In whatever way it runs; and two that want one table need one place.
    thread::scope(|scope| {
        open.truncate(MAX_TRANSACTIONS - 3);
        let submitted =
            db.plan().submit(|tx| tx.put(TableDefinition::<u64, u64>::new("third"), 1, 1)).unwrap();
        let waits: Vec<_> =
            (0..2).map(|_| scope.spawn(|| uses("new", &TransactOptions::default()))).collect();
        let made = scope.spawn(|| db.create_table("other", "u64", "u64"));
        thread::sleep(Duration::from_millis(100));
        open.truncate(MAX_TRANSACTIONS - 4);
        assert!(waits.into_iter().all(|thread| thread.join().unwrap().is_ok()));
        made.join().unwrap().unwrap();
        assert!(!submitted.wait().unwrap());
    });
    drop(open);
    goes_on(&db);
}

/// All that are open wait to make a table each: nobody has a place for that, and the last one to come is told so.
#[test]
fn those_who_make_tables_do_not_all_wait_for_each_other() {
    let db = open_with(small());
    goes_on(&db);
    let count = MAX_TRANSACTIONS;
    let (open, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..count {
            let (db, open, refused) = (&db, &open, &refused);
            scope.spawn(move || {
                let mut tx = db.begin().unwrap();
                open.fetch_add(1, Ordering::SeqCst);
                while open.load(Ordering::SeqCst) < count {
                    thread::sleep(Duration::from_millis(1));
                }
                let name = format!("table {}", number % 5);
                match tx.put(TableDefinition::<u64, u64>::new(&name), number as u64, 0) {
                    Ok(_) => tx.commit().unwrap(),
                    Err(Error::TooManyTransactions { .. }) => drop(refused.fetch_add(1, Ordering::SeqCst)),
                    Err(error) => panic!("{error}"),
                }
            });
        }
    });
    // More where the machine is so slow that some have waited for ten seconds.
    assert!((1..count / 2).contains(&refused.load(Ordering::SeqCst)), "{refused:?}");
    goes_on(&db);
}

/// Those that are prepared have a place until somebody decides, over a restart too, and who is refused learns of them.
#[test]
fn transactions_that_are_prepared() {
    const PREPARED: usize = 7;
    let disk = FaultyDisk::new();
    let open = || Database::builder().options(small()).disk(Arc::new(disk.clone())).open("/db").unwrap();
    let db = open();
    goes_on(&db);
    for number in 0..PREPARED {
        let mut tx = db.begin().unwrap();
        tx.put(NUMBERS, 1000 + number as u64, 0).unwrap();
        tx.prepare(format!("{number}")).unwrap();
    }
    let full = |db: &Database, prepared: usize| {
        let mut open: Vec<_> = (prepared..MAX_TRANSACTIONS).map(|_| db.begin().unwrap()).collect();
        let refused = db.begin().unwrap_err();
        let told = matches!(refused, Error::TooManyTransactions { prepared: told, .. } if told == prepared);
        let text = refused.to_string();
        let next = text.contains(&format!("{prepared} of them are prepared"))
            && text.contains("after this program has closed the database, by `foreshore prepared`");
        assert!(told && next, "{text}");
        // A decision takes no place, and gives one back.
        db.rollback_prepared(format!("{}", prepared - 1)).unwrap();
        open.push(db.begin().unwrap());
        assert!(db.begin().is_err());
    };
    full(&db, PREPARED);
    db.close().unwrap();
    drop(db);
    full(&open(), PREPARED - 1);
}

/// Options with bounds: the last value that is refused and the first that is not, at either end.
#[test]
fn options() {
    let bounds: &[(&str, &[&str], &[&str])] = &[
        ("pool_bytes", &["0", "524287"], &["524288", "524289"]),
        ("log_segment_bytes", &["0", "262143", "268435457"], &["262144", "262145"]),
        ("log_bytes", &["0", "67108863"], &["67108864", "67108865"]),
        ("log_buffer_bytes", &["0", "262143", "262145", "131072", "2GiB"], &["262144", "524288"]),
        ("cleaners", &["0", "65"], &["1", "2", "63", "64"]),
        ("flush_interval", &["0s"], &["1us", "1ms"]),
        ("deadlock_timeout", &["0s"], &["1us"]),
        ("pipeline_length", &["0", "100001"], &["1", "2", "99999", "100000"]),
        ("control_threads", &["0", "257"], &["1", "2", "255", "256"]),
        ("execution_threads", &["0", "257"], &["1", "2", "255", "256"]),
        ("execution_window", &["0"], &["1", "2"]),
        ("submit_queue", &["0"], &["1", "2"]),
        ("ring_capacity", &["0", "65537"], &["1", "2", "65535", "65536"]),
        // What takes much memory is tried without a database: `options/check.rs`.
        ("lock_buckets", &["16777217"], &["0", "1", "2"]),
        ("max_locks_per_transaction", &["0"], &["20"]),
        ("max_locks", &["0"], &["1", "2"]),
    ];
    for (name, refused, fine) in bounds {
        for value in *refused {
            let disk = FaultyDisk::new();
            let builder = Database::builder().disk(Arc::new(disk.clone())).set(name, value);
            match builder.and_then(|builder| builder.open("/db")).unwrap_err() {
                Error::InvalidOption { name: told, .. } => assert_eq!(told, *name),
                error => panic!("{name} {value}: {error}"),
            }
            assert!(disk.files().is_empty(), "{name} {value}: nothing is made");
        }
        for value in *fine {
            let builder = Database::builder().options(small()).disk(Arc::new(FaultyDisk::new()));
            let db = builder.set(name, value).unwrap().open("/db");
            goes_on(&db.unwrap_or_else(|error| panic!("{name} {value}: {error}")));
        }
    }
}

/// A pool that no machine has memory for, and one of more frames than can be counted, which is found out before
/// anything is made.
#[test]
fn frames_of_the_pool() {
    const MOST: usize = (32_767 << 30) / 8192;
    for frames in around(MOST) {
        let disk = FaultyDisk::new();
        let open = |pool_bytes| {
            let builder = Database::builder().options(small()).disk(Arc::new(disk.clone()));
            builder.pool_bytes(pool_bytes).open("/db")
        };
        match open(frames * 8192) {
            Err(Error::InvalidOption { name, expected, .. }) => {
                assert_eq!(name, "pool_bytes");
                assert_eq!(expected.contains("32767GiB"), frames > MOST, "{expected}");
                assert!(frames <= MOST || disk.files().is_empty());
            }
            opened => panic!("{frames} frames: {opened:?}"),
        }
        goes_on(&open(4 << 20).unwrap());
    }
}

/// A text that is no value of an option, or a number that does not fit.
#[test]
fn values_of_options_that_are_none() {
    for name in Options::NAMES {
        for value in ["", "-1", "1e3", "18446744073709551616", "99999999999TiB", "\u{0}", "maybe", "１"] {
            let mut options = Options::default();
            let before = options.clone();
            match options.set(name, value) {
                Err(Error::InvalidOption { .. }) => {}
                result => panic!("{name} {value:?}: {result:?}"),
            }
            assert_eq!(options, before);
        }
    }
    assert!(matches!(Options::default().set("no_such_option", "1"), Err(Error::UnknownOption { .. })));
}

/// Deadlines and retries at their ends: nothing waits for ever, and nothing overflows.
#[test]
fn deadlines_and_retries() {
    use std::time::Duration;
    let db = open_with(small());
    for deadline in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let options = TransactOptions {
            deadline: Some(deadline),
            lock_timeout: Some(deadline),
            retries: u32::MAX,
            ..TransactOptions::default()
        };
        let result: Result<bool, Error> = db.transact_with(&options, |tx| tx.put(NUMBERS, 1, 1));
        assert!(succeeded_or_late(&result), "{deadline:?}: {result:?}");
    }
    goes_on(&db);
}

fn succeeded_or_late<T: Debug>(result: &Result<T>) -> bool {
    matches!(result, Ok(_) | Err(Error::LockTimeout(_)))
}

/// Bytes of all files of the database's log.
fn log_files(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory.join("log")).unwrap();
    // One may have gone between the two questions, or have another name by now.
    let files = files.filter_map(|file| file.unwrap().metadata().ok());
    files.map(|file| (file.ino(), file.len())).collect::<HashMap<_, _>>().into_values().sum()
}

/// A large log of small files stopped the database for good where the process may have no more files open.
#[test]
fn no_more_files_of_the_log_count_than_may_be_open() {
    const SEGMENT: u64 = 256 << 10;
    for (log_bytes, capacity) in
        [(512 * SEGMENT - 8, 512 * SEGMENT - 8), (512 * SEGMENT, 512 * SEGMENT), (4 << 30, 512 * SEGMENT)]
    {
        let options = Options { log_bytes, log_segment_bytes: SEGMENT, ..small() };
        let disk = Arc::new(FaultyDisk::new());
        let open =
            |options| Database::builder().options(options).disk(Arc::<FaultyDisk>::clone(&disk)).open("/db");
        let db = open(options.clone()).unwrap();
        assert_eq!(db.log_retention().capacity_bytes, capacity);
        db.close().unwrap();
        // Its segments are what they were made.
        let db = open(Options { log_segment_bytes: 4 * SEGMENT, ..options }).unwrap();
        assert_eq!(db.log_retention().capacity_bytes, capacity);
    }
}

/// How large they are was fixed when the database was made: the least log is four of its own, whatever the option says.
#[test]
fn a_small_log_opens_again_without_the_size_of_its_files() {
    const SEGMENT: u64 = 256 << 10;
    let disk = FaultyDisk::new();
    let open =
        |options: Options| Database::builder().options(options).disk(Arc::new(disk.clone())).open("/db");
    let of = |log_bytes, log_segment_bytes| Options { log_bytes, log_segment_bytes, ..small() };
    let usual = Options::default().log_segment_bytes;
    let first = open(of(4 * SEGMENT, usual)).unwrap_err().to_string();
    assert!(first.contains("log_segment_bytes"), "{first}");
    goes_on(&open(of(4 * SEGMENT, SEGMENT)).unwrap());
    for log_segment_bytes in [usual, SEGMENT, 2 * SEGMENT] {
        goes_on(&open(of(4 * SEGMENT, log_segment_bytes)).unwrap());
        let refused = open(of(4 * SEGMENT - 1, log_segment_bytes)).unwrap_err();
        assert!(matches!(&refused, Error::InvalidOption { name, .. } if name == "log_bytes"), "{refused}");
        let said = refused.to_string();
        assert_eq!(said.contains("was made"), log_segment_bytes > SEGMENT, "{said}");
    }
    // Those of a database that was never made are thrown away: they say nothing.
    let [made, half_made] = ["/db/control", "/db/control.new"].map(Path::new);
    foreshore_env::disk::Disk::rename(&disk, made, half_made).unwrap();
    let refused = open(of(4 * SEGMENT, usual)).unwrap_err();
    assert!(matches!(&refused, Error::InvalidOption { name, .. } if name == "log_bytes"), "{refused}");
    // Larger ones are no reason to refuse what was not refused before.
    let disk = FaultyDisk::new();
    let open =
        |options: Options| Database::builder().options(options).disk(Arc::new(disk.clone())).open("/db");
    goes_on(&open(of(64 * SEGMENT, 4 * SEGMENT)).unwrap());
    goes_on(&open(of(8 * SEGMENT, SEGMENT)).unwrap());
}

#[test]
fn files_of_the_log() {
    const SEGMENT: u64 = 256 << 10;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    // The others find more files than they may have.
    for log_bytes in [11 * SEGMENT, 4 * SEGMENT, 4 * SEGMENT + 4096] {
        let options = Options {
            pool_bytes: 1 << 20,
            log_bytes,
            log_segment_bytes: SEGMENT,
            log_buffer_bytes: SEGMENT as usize,
            durability: Durability::Lazy,
            ..Options::default()
        };
        let most = log_bytes.next_multiple_of(SEGMENT) + 2 * SEGMENT;
        let mut longest = 0;
        let mut look = || {
            // What is seen is of no one moment: one that has gone meanwhile may be there beside the one that came for
            // it.
            let mut bytes = log_files(&path);
            for _ in 0..20 {
                if bytes > most {
                    bytes = log_files(&path);
                }
            }
            assert!(bytes <= most, "{bytes} bytes of log files, with log_bytes {log_bytes}");
            longest = longest.max(bytes);
        };
        for opening in 0..3_u64 {
            let db = Database::builder().options(options.clone()).open(&path).unwrap();
            db.checkpoint().unwrap();
            for round in 0..150_u64 {
                db.transact(|tx| {
                    (0..100_u64).try_for_each(|row| {
                        tx.put(
                            ROWS,
                            &(row * 7919 % 1000).to_be_bytes()[..],
                            &round.to_be_bytes().repeat(100)[..],
                        )
                        .map(drop)
                    })
                })
                .unwrap();
                look();
            }
            // As full as it gets.
            let mut hungry = db.begin().unwrap();
            let error = (0..100_000_u64)
                .find_map(|row| {
                    let result = hungry.put(ROWS, &(row * 7919).to_be_bytes()[..], &[opening as u8; 900][..]);
                    if row % 50 == 0 {
                        look();
                    }
                    result.err()
                })
                .unwrap();
            assert!(matches!(error, Error::LogFull { .. }), "{error}");
            hungry.rollback().unwrap();
            look();
            db.close().unwrap();
            look();
        }
        assert!(longest > log_bytes / 2, "the log was never full: {longest} of {log_bytes}");
        let rounded = Options { log_segment_bytes: SEGMENT + 1, log_bytes: 5 * SEGMENT, ..options };
        let refused = Database::builder().options(rounded).open(directory.path().join("other")).unwrap_err();
        assert!(matches!(&refused, Error::InvalidOption { name, .. } if name == "log_bytes"), "{refused}");
    }
}
