//! Several large transactions at once, each of which would fit the log alone.

use foreshore_env::{
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Instant,
};
use foreshore_txn::LogFullPolicy;

use super::*;

/// Bytes of a value.
const VALUE: usize = 1000;
/// Most writers, and more rows than one of them can write.
const WRITERS: u32 = 8;
const ROWS: u32 = 10_000;

fn crowded_log(log_full: LogFullPolicy) -> EngineOptions {
    let log = LogOptions { capacity_bytes: 16 * (128 << 10), ..tiny().log };
    EngineOptions { log, log_full, node_capacity: usize::MAX, ..tiny() }
}

/// A database with the last row of each writer: nobody appends to the table, so all need as much log for a row.
fn open_crowded(policy: LogFullPolicy) -> (Arc<Engine>, TableInfo) {
    let engine = open_with(&FaultyDisk::new(), &crowded_log(policy)).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    for thread in 1..=WRITERS {
        put(&engine, &table, &key(thread, ROWS), b"");
    }
    (engine, table)
}

fn key(thread: u32, row: u32) -> [u8; 4] {
    (thread * (ROWS + 1) + row).to_be_bytes()
}

/// Rows that one transaction can write when it is alone.
fn rows_alone(policy: LogFullPolicy) -> u32 {
    let (engine, table) = open_crowded(policy);
    let mut txn = begin(&engine);
    let rows = (0..ROWS).find(|&row| txn.put(&table, &key(1, row), &[1; VALUE]).is_err()).unwrap();
    assert!(!txn.was_crowded());
    rows
}

/// Whether one of so many transactions of so many rows each has committed, and the longest that one change took.
fn one_of_many_commits(policy: LogFullPolicy, threads: u32, rows: u32) -> (bool, Duration) {
    let (engine, table) = open_crowded(policy);
    let have_begun = AtomicU32::new(0);
    let write = |thread: u32| {
        let (mut txn, mut longest) = (begin(&engine), Duration::ZERO);
        for row in 0..rows {
            let begun = Instant::now();
            let result = txn.put(&table, &key(thread, row), &[thread as u8; VALUE]);
            longest = longest.max(begun.elapsed());
            if let Err(error) = result {
                let full = matches!(error, TxnError::Storage(StorageError::LogFull { .. }));
                assert!(full || matches!(error, TxnError::LogHeld), "{error}");
                assert!(txn.was_crowded(), "it would have fitted alone");
                return (false, longest);
            }
            if row == 0 {
                have_begun.fetch_add(1, Ordering::Relaxed);
                while have_begun.load(Ordering::Relaxed) < threads {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
        (txn.commit(Durability::Lazy).is_ok(), longest)
    };
    let ends: Vec<_> = thread::scope(|scope| {
        let writers: Vec<_> = (1..=threads).map(|thread| scope.spawn(move || write(thread))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let committed = ends.iter().filter(|end| end.0).count();
    let mut reader = begin(&engine);
    let found = scan(&mut reader, &table).unwrap().len();
    assert_eq!(found, WRITERS as usize + committed * rows as usize);
    drop(reader);
    assert_sound(&engine, "after the crowd");
    (committed > 0, ends.into_iter().map(|end| end.1).max().unwrap())
}

/// Who has written a few rows waits for nobody, and does not even look who else writes.
#[test]
fn who_has_written_little_has_no_company() {
    for policy in LogFullPolicy::ALL {
        let (engine, table) = open_crowded(policy);
        let (mut older, mut txn) = (begin(&engine), begin(&engine));
        older.put(&table, &key(1, 0), &[1; VALUE]).unwrap();
        for row in 0..5 {
            txn.put(&table, &key(2, row), &[1; VALUE]).unwrap();
        }
        assert!(!txn.was_crowded(), "{policy:?}");
        txn.commit(Durability::Lazy).unwrap();
        older.commit(Durability::Lazy).unwrap();
    }
}

/// 128 threads that inserted a thousand rows at a time all looked for company all the time, because the others had
/// filled the log meanwhile, and let each other go on: half as many transactions a second.
#[test]
fn who_is_small_beside_many_others_has_no_company_either() {
    for policy in LogFullPolicy::ALL {
        let rows = rows_alone(policy) / 6;
        let (engine, table) = open_crowded(policy);
        let (mut older, mut txn, mut large) = (begin(&engine), begin(&engine), begin(&engine));
        older.put(&table, &key(1, 0), &[1; VALUE]).unwrap();
        txn.put(&table, &key(2, 0), &[1; VALUE]).unwrap();
        for row in 0..rows {
            large.put(&table, &key(3, row), &[1; VALUE]).unwrap();
        }
        assert!(large.was_crowded(), "{policy:?}");
        large.commit(Durability::Lazy).unwrap();
        for row in 1..3 {
            txn.put(&table, &key(2, row), &[1; VALUE]).unwrap();
        }
        assert!(!txn.was_crowded(), "{policy:?}");
        txn.commit(Durability::Lazy).unwrap();
        older.commit(Durability::Lazy).unwrap();
    }
}

/// On a busy machine one of eight looked for company when the seven others had ended, and was told that it had been
/// alone.
#[test]
fn who_has_ended_before_the_first_look_was_company_too() {
    for policy in LogFullPolicy::ALL {
        let rows = rows_alone(policy);
        let (engine, table) = open_crowded(policy);
        let (mut txn, mut other) = (begin(&engine), begin(&engine));
        txn.put(&table, &key(1, 0), &[1; VALUE]).unwrap();
        for row in 0..rows / 2 {
            other.put(&table, &key(2, row), &[1; VALUE]).unwrap();
        }
        other.commit(Durability::Lazy).unwrap();
        let fits = (1..rows).find(|&row| txn.put(&table, &key(1, row), &[1; VALUE]).is_err());
        assert!(fits.is_some() && txn.was_crowded(), "{policy:?}: {fits:?} of {rows}");
    }
}

/// TXN-38: from some size on the younger ones let the oldest go on, so one of them comes to its end. Until then all
/// write: here a sixteenth of the room together, and each a hundred and twenty-eighth in records of its own, which
/// bring 2.6 times as much with images and splits. So seven others take a fifth of the room, and two a ninth less a
/// little.
#[test]
fn of_several_transactions_that_each_fit_alone_one_commits() {
    for policy in LogFullPolicy::ALL {
        let alone = rows_alone(policy);
        for (threads, percents) in [(2, [60, 90]), (3, [60, 88]), (WRITERS, [60, 78])] {
            for percent in percents {
                // Nobody waits for a second for one that does not get on: if the oldest stood still for so long on a
                // busy machine, once more.
                let mut tries = 0;
                loop {
                    let (committed, longest) = one_of_many_commits(policy, threads, alone * percent / 100);
                    if committed {
                        break;
                    }
                    tries += 1;
                    let context = format!("{policy:?}, {threads} threads, {percent} %");
                    assert!(longest >= Duration::from_secs(1) && tries < 50, "{context}: {longest:?}");
                }
            }
        }
    }
}
