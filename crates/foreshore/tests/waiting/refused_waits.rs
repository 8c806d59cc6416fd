//! Policies that refuse a wait, and have the transaction run again in its place (DB-12): for as long as it may wait.

use std::{
    thread,
    time::{Duration, Instant},
};

use foreshore::{Database, Error, Result, TableDefinition, TransactOptions, Transaction};

const TABLE: TableDefinition<u32, u64> = TableDefinition::new("numbers");
const REFUSING: [&str; 3] = ["wait_die", "no_wait", "timeout"];
const LIMIT: Duration = Duration::from_millis(200);
/// Much longer than a limit, much shorter than what nobody ends.
const SOON: Duration = Duration::from_secs(20);

fn open(settings: &[(&str, &str)]) -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let threads = [("control_threads", "1"), ("execution_threads", "2")];
    let builder = settings.iter().chain(&threads);
    let builder =
        builder.fold(Database::builder(), |builder, (name, value)| builder.set(name, value).unwrap());
    let db = builder.open(directory.path()).unwrap();
    db.transact(|tx| tx.put(TABLE, 1, 1)).unwrap();
    (directory, db)
}

fn put(tx: &mut Transaction) -> Result<()> {
    tx.put(TABLE, 1, 3).map(drop)
}

/// One that is run by `transact`, or submitted.
fn run(db: &Database, submitted: bool, options: &TransactOptions) -> Result<()> {
    match submitted {
        false => db.transact_with(options, put),
        true => db.plan().options(options.clone()).write(TABLE, 1).submit(put)?.wait(),
    }
}

/// Refused for more runs than `retries` are by default: they gave up after five seconds.
#[test]
fn whoever_sets_no_limit_gets_the_lock_in_the_end() {
    thread::scope(|scope| {
        for policy in ["wait_die", "no_wait"] {
            scope.spawn(move || {
                let (_directory, db) = open(&[("deadlock_policy", policy)]);
                let mut older = db.begin().unwrap();
                older.put(TABLE, 1, 2).unwrap();
                thread::scope(|scope| {
                    let runs = [false, true].map(|submitted| {
                        let db = &db;
                        scope.spawn(move || run(db, submitted, &TransactOptions::default()))
                    });
                    thread::sleep(Duration::from_millis(5800));
                    older.commit().unwrap();
                    for (submitted, run) in runs.into_iter().enumerate() {
                        let result = run.join().unwrap();
                        assert!(result.is_ok(), "{policy}, submitted: {submitted}: {result:?}");
                    }
                });
            });
        }
    });
}

/// `lock_timeout` was not looked at.
#[test]
fn a_limit_to_waits_holds_for_those_that_run_again() {
    for (policy, limit_of_database, submitted) in REFUSING.iter().flat_map(|policy| {
        [(policy, true, true), (policy, true, false), (policy, false, true), (policy, false, false)]
    }) {
        let of_database = if limit_of_database { "200ms" } else { "0s" };
        let (_directory, db) =
            open(&[("deadlock_policy", policy), ("deadlock_timeout", "30ms"), ("lock_timeout", of_database)]);
        let mut older = db.begin().unwrap();
        older.put(TABLE, 1, 2).unwrap();
        let lock_timeout = (!limit_of_database).then_some(LIMIT);
        let began = Instant::now();
        let result = run(&db, submitted, &TransactOptions { lock_timeout, ..TransactOptions::default() });
        let took = began.elapsed();
        let Err(Error::LockTimeout(refused)) = &result else { panic!("{policy}, {submitted}: {result:?}") };
        assert_eq!(refused.lock_timeout, Some(LIMIT), "{policy}");
        assert!((LIMIT..SOON).contains(&took), "{policy}, {submitted}: {took:?}");
        let text = result.unwrap_err().to_string();
        assert!(text.contains("numbers") && text.contains("lock_timeout (200 ms)"), "{policy}: {text}");
        older.rollback().unwrap();
        run(&db, submitted, &TransactOptions::default()).unwrap();
    }
}

/// Whoever wants fewer runs than the default has no more.
#[test]
fn few_retries_are_counted_whatever_the_reason() {
    for (policy, submitted) in REFUSING.iter().flat_map(|policy| [(policy, false), (policy, true)]) {
        let (_directory, db) = open(&[("deadlock_policy", policy), ("deadlock_timeout", "10ms")]);
        let mut older = db.begin().unwrap();
        older.put(TABLE, 1, 2).unwrap();
        let result = run(&db, submitted, &TransactOptions { retries: 3, ..TransactOptions::default() });
        let Err(Error::RetriesExhausted { attempts: 4, last }) = &result else {
            panic!("{policy}, submitted: {submitted}: {result:?}")
        };
        assert!(matches!(**last, Error::Deadlock(_)), "{last}");
    }
}
