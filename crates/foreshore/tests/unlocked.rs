//! Reads without locks, as users of `transact` see them: not at all.

use std::cell::Cell;

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
