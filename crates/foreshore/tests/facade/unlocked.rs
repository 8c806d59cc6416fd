//! Reads without locks, as users of `transact` see them: not at all.

use std::{
    cell::Cell,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use foreshore::{Database, Error, Execution, Options, ReadMode, TableDefinition, TransactOptions};

const NUMBERS: TableDefinition<u32, u64> = TableDefinition::new("numbers");

fn open(read_mode: ReadMode) -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { read_mode, node_capacity: 4, ..Options::default() };
    let db = Database::builder().options(options).open(directory.path()).unwrap();
    db.transact(|tx| (0..40).try_for_each(|key| tx.put(NUMBERS, key, 0).map(|_| ()))).unwrap();
    (directory, db)
}

fn sum(tx: &mut foreshore::Transaction) -> foreshore::Result<u64> {
    tx.range(NUMBERS, ..)?.map(|entry| entry.map(|(_, value)| value)).sum()
}

/// Runs a reader that is disturbed once, after its first read; gives how often it ran, and what it saw in the end.
fn disturbed(db: &Database, options: &TransactOptions) -> (u32, u64) {
    let runs = Cell::new(0);
    let seen = db.transact_with(options, |tx| {
        runs.set(runs.get() + 1);
        tx.get(NUMBERS, 3)?;
        if runs.get() == 1 {
            // The first run has no locks that would be in the way.
            let writer = TransactOptions { no_wait: true, ..TransactOptions::default() };
            db.transact_with(&writer, |tx| {
                tx.put(NUMBERS, 3, 1)?;
                tx.put(NUMBERS, 39, 1)
            })?;
        }
        sum(tx)
    });
    (runs.get(), seen.unwrap())
}

#[test]
fn a_reader_that_was_disturbed_runs_again_with_locks() {
    let (_directory, db) = open(ReadMode::Hybrid);
    assert_eq!(disturbed(&db, &TransactOptions::default()), (2, 2));
    let stats = db.stats();
    assert_eq!((stats.stale_reads, stats.deadlocks), (1, 0));
}

#[test]
fn it_is_no_attempt_of_those_that_are_counted() {
    let (_directory, db) = open(ReadMode::Locking);
    let options =
        TransactOptions { retries: 0, read_mode: Some(ReadMode::Hybrid), ..TransactOptions::default() };
    assert_eq!(disturbed(&db, &options), (2, 2));
}

/// The error is not for the body to judge: whatever it makes of it, the transaction runs again.
#[test]
fn a_body_may_swallow_the_error() {
    let (_directory, db) = open(ReadMode::Hybrid);
    let mut runs = 0;
    let seen = db
        .transact(|tx| {
            runs += 1;
            tx.get(NUMBERS, 3)?;
            if runs == 1 {
                db.transact(|tx| tx.put(NUMBERS, 3, 7))?;
            }
            Ok(tx.get(NUMBERS, 20).ok().and(tx.get(NUMBERS, 3)?))
        })
        .unwrap();
    assert_eq!((runs, seen), (2, Some(7)));
}

#[test]
fn locking_readers_and_planned_ones_are_in_the_way_of_writers() {
    for options in [
        TransactOptions { read_mode: Some(ReadMode::Locking), ..TransactOptions::default() },
        TransactOptions { execution: Some(Execution::Planned), ..TransactOptions::default() },
    ] {
        let (_directory, db) = open(ReadMode::Hybrid);
        let writer = TransactOptions { no_wait: true, ..TransactOptions::default() };
        let refused = db.transact_with(&options, |tx| {
            sum(tx)?;
            // Reconnaissance has no locks, but it is the last run that counts.
            Ok(db.transact_with(&writer, |tx| tx.put(NUMBERS, 3, 1)).is_err())
        });
        assert!(refused.unwrap());
        assert_eq!(db.stats().stale_reads, 0);
    }
}

/// Step by step, who asks for it gets the error.
#[test]
fn who_begins_a_transaction_without_locks_is_told() {
    let (_directory, db) = open(ReadMode::Hybrid);
    let mut tx = db.begin().unwrap();
    assert_eq!(tx.get(NUMBERS, 3).unwrap(), Some(0));
    let writer = TransactOptions { no_wait: true, ..TransactOptions::default() };
    let refused = db.transact_with(&writer, |tx| tx.put(NUMBERS, 3, 1));
    assert!(matches!(refused, Err(Error::WouldBlock(_))), "by default it locks: {refused:?}");
    tx.rollback().unwrap();

    let options = TransactOptions { read_mode: Some(ReadMode::Hybrid), ..TransactOptions::default() };
    let mut tx = db.begin_with(&options).unwrap();
    assert_eq!(tx.get(NUMBERS, 3).unwrap(), Some(0));
    db.transact_with(&writer, |tx| tx.put(NUMBERS, 3, 1)).unwrap();
    let error = tx.commit().unwrap_err();
    assert!(matches!(error, Error::StaleReads) && error.is_retryable(), "{error}");
    assert_eq!(error.code(), "stale_reads");
}

/// A writer that does not wait gets by a reader that has read what it writes; who reads under locks is in its way.
#[test]
fn readers_that_cannot_write_are_in_nobodys_way() {
    let (_directory, db) = open(ReadMode::Locking);
    let writer = TransactOptions { no_wait: true, ..TransactOptions::default() };
    let mut runs = 0;
    let (before, after) = db
        .read(|tx| {
            runs += 1;
            let before = tx.get(NUMBERS, 3)?;
            if runs == 1 {
                db.transact_with(&writer, |tx| tx.put(NUMBERS, 3, 5))?;
            }
            Ok((before, tx.get(NUMBERS, 3)?))
        })
        .unwrap();
    // The first run saw both states, and does not count.
    assert_eq!((runs, before, after), (2, Some(5), Some(5)));

    let locking = TransactOptions { read_mode: Some(ReadMode::Locking), ..TransactOptions::default() };
    let refused = db
        .read_with(&locking, |tx| {
            tx.get(NUMBERS, 3)?;
            Ok(db.transact_with(&writer, |tx| tx.put(NUMBERS, 3, 6)))
        })
        .unwrap();
    assert!(matches!(refused, Err(Error::WouldBlock(_))), "{refused:?}");
}

#[test]
fn readers_that_cannot_write_see_what_others_do() {
    let (_directory, db) = open(ReadMode::Locking);
    db.transact(|tx| tx.put(NUMBERS, 7, 9)).unwrap();
    let seen = db
        .read(|tx| {
            let mut scanned = 0;
            tx.scan(NUMBERS, .., foreshore::Direction::Descending, |_, _| {
                scanned += 1;
                std::ops::ControlFlow::Continue(())
            })?;
            let summed: u64 =
                tx.range(NUMBERS, 5..10)?.map(|entry| entry.map(|(_, value)| value)).sum::<Result<_, _>>()?;
            Ok((
                tx.first(NUMBERS)?,
                tx.last(NUMBERS)?,
                tx.get_with(NUMBERS, 7, <[u8]>::len)?,
                scanned,
                summed,
            ))
        })
        .unwrap();
    assert_eq!(seen, (Some((0, 0)), Some((39, 0)), Some(8), 40, 9));
    // What fails in it fails.
    let error = db.read(|_| Err::<(), _>(Error::Application("no".into()))).unwrap_err();
    assert!(matches!(error, Error::Application(_)));
}

/// Behind 256 leaves it locks keys, and where the locks run out it can follow the advice of the error.
#[test]
fn readers_that_cannot_write_can_lock_a_table() {
    const ROWS: u32 = 4000;
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        node_capacity: 4,
        max_locks_per_transaction: 500,
        escalation_locks: 0,
        ..Options::default()
    };
    let db = Database::builder().options(options).open(directory.path()).unwrap();
    db.transact(|tx| tx.append(NUMBERS, (0..ROWS).map(|key| (key, 1)))).unwrap();
    let sum = |tx: &mut foreshore::ReadTransaction<'_>| -> foreshore::Result<u64> {
        tx.range(NUMBERS, ..)?.map(|entry| entry.map(|(_, value)| value)).sum()
    };
    assert!(matches!(db.read(sum), Err(Error::TooManyLocks { .. })));
    let before = db.stats().locks_released;
    let mut runs = 0;
    let seen = db.read(|tx| {
        runs += 1;
        tx.lock_table(NUMBERS)?;
        let no_wait = TransactOptions { no_wait: true, ..TransactOptions::default() };
        let refused = db.transact_with(&no_wait, |tx| tx.put(NUMBERS, 7, 2));
        assert!(matches!(refused, Err(Error::WouldBlock(_))), "{refused:?}");
        assert_eq!(db.transact_with(&no_wait, |tx| tx.get(NUMBERS, 7)).unwrap(), Some(1), "others read");
        sum(tx)
    });
    assert_eq!((runs, seen.unwrap()), (1, u64::from(ROWS)));
    assert!(db.stats().locks_released - before < 10, "locks on keys");
    db.transact(|tx| tx.put(NUMBERS, 7, 2)).unwrap();
}

/// Whoever locks in any case is numbered as it comes, also where others read without locks by default: with a number of
/// a block that was drawn long before, it counted as older than those that had begun before it, and made them give way.
#[test]
fn whoever_locks_in_any_case_is_numbered_as_it_comes() {
    let (_home, db) = open(ReadMode::Hybrid);
    let mut ages = Vec::new();
    for _ in 0..3 {
        ages.push(db.begin().unwrap().age());
        ages.push(db.plan().run(|tx| Ok(tx.age())).unwrap());
        ages.push(db.plan().submit(|tx| Ok(tx.age())).unwrap().wait().unwrap());
    }
    assert!(ages.is_sorted_by(|earlier, later| earlier < later), "{ages:?}");
}

/// It could be given a deadline, and nobody could end it before.
#[test]
fn a_reader_that_waits_can_be_cancelled() {
    let (_directory, db) = open(ReadMode::Locking);
    let mut writer = db.begin().unwrap();
    writer.put(NUMBERS, 3, 1).unwrap();
    let (sender, receiver) = mpsc::channel();
    let read = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            db.read(|tx| {
                sender.send(tx.cancel_handle()).unwrap();
                tx.get(NUMBERS, 3)
            })
        });
        let handle = receiver.recv().unwrap();
        let (begun, mut waits) = (Instant::now(), false);
        while !waits && begun.elapsed() < Duration::from_secs(60) {
            thread::yield_now();
            waits = !db.waits_for().waits.is_empty();
        }
        handle.cancel();
        let read = reader.join().unwrap();
        assert!(waits, "nobody waits");
        read
    });
    assert!(matches!(read, Err(Error::Cancelled)), "{read:?}");
    writer.commit().unwrap();
    assert_eq!(db.read(|tx| tx.get(NUMBERS, 3)).unwrap(), Some(1));
}
