//! Every wait ends: granted, as a deadlock's victim, at its deadline, refused, or cancelled; and leaves nothing behind.

use std::{
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use foreshore::{
    Database, Direction, Error, RefusedLock, Result, TableDefinition, TableLock, TransactOptions, Transaction,
};

const TABLE: TableDefinition<u32, u32> = TableDefinition::new("table");

/// How long a wait may take to end when it should, on a loaded machine.
const SOON: Duration = Duration::from_secs(120);
const DEADLINE: Duration = Duration::from_millis(60);
/// How soon a wait ends that is cancelled.
const PROMISED: Duration = Duration::from_millis(20);

fn open() -> (tempfile::TempDir, Database) {
    open_with(&[])
}

fn open_with(settings: &[(&str, &str)]) -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let mut builder = Database::builder();
    for (name, value) in settings {
        builder = builder.set(name, value).unwrap();
    }
    let db = builder.open(directory.path().join("db")).unwrap();
    db.transact(|tx| (1..=5).try_for_each(|key| tx.put(TABLE, key * 10, key).map(|_| ()))).unwrap();
    (directory, db)
}

/// Runs a test over every lock table with every kind of intent locks, beside each other. `further`: other settings.
fn over_all_kinds(further: &[(&str, &str)], test: impl Fn(&Database) + Sync) {
    thread::scope(|scope| {
        for table in ["latched", "global_mutex", "staged"] {
            for intents in ["private", "lightweight", "in_table", "inherited"] {
                let test = &test;
                scope.spawn(move || {
                    let kinds = [("pool_bytes", "2MiB"), ("lock_table", table), ("intent_locks", intents)];
                    let (_directory, db) = open_with(&[&kinds, further].concat());
                    test(&db);
                    // What a failed assertion says does not name the kinds; this does.
                    println!("{table}, {intents}: as it should be");
                });
            }
        }
    });
}

fn until_somebody_waits(db: &Database) {
    let begun = Instant::now();
    while db.waits_for().waits.is_empty() {
        assert!(begun.elapsed() < SOON, "nobody waits");
        thread::yield_now();
    }
}

type Operation = fn(&mut Transaction) -> Result<()>;

/// Every operation that can wait. Each conflicts with a table that is locked as a whole.
const OPERATIONS: [(&str, Operation); 18] = [
    ("get", |tx| tx.get(TABLE, 20).map(|_| ())),
    ("get absent", |tx| tx.get(TABLE, 25).map(|_| ())),
    ("get_for_update", |tx| tx.get_for_update(TABLE, 20).map(|_| ())),
    ("get_with", |tx| tx.get_with(TABLE, 20, |_| ()).map(|_| ())),
    ("contains_key", |tx| tx.contains_key(TABLE, 20).map(|_| ())),
    ("next_key", |tx| tx.cursor(TABLE, .., Direction::Ascending)?.next_key(tx).map(|_| ())),
    ("put", |tx| tx.put(TABLE, 20, 0).map(|_| ())),
    ("put new", |tx| tx.put(TABLE, 25, 0).map(|_| ())),
    ("insert", |tx| tx.insert(TABLE, 25, 0).map(|_| ())),
    ("update", |tx| tx.update(TABLE, 20, 0).map(|_| ())),
    ("delete", |tx| tx.delete(TABLE, 20).map(|_| ())),
    ("range", |tx| tx.range(TABLE, ..)?.try_for_each(|entry| entry.map(|_| ()))),
    ("range descending", |tx| tx.range(TABLE, ..)?.rev().try_for_each(|entry| entry.map(|_| ()))),
    ("last", |tx| tx.last(TABLE).map(|_| ())),
    ("count_range", |tx| tx.count_range(TABLE, 10..30).map(|_| ())),
    ("remove_range", |tx| tx.remove_range(TABLE, 10..30).map(|_| ())),
    ("remove_at_most", |tx| tx.remove_at_most(TABLE, 10..30, 1).map(|_| ())),
    ("lock_table", |tx| tx.lock_table(TABLE, TableLock::Shared)),
];

/// What stands in the way: the table as a whole, or every key and gap of it. The last column: whether it is also in the
/// way of those who look for what is not there. The gaps are locked against new keys only, so it is not.
const OBSTACLES: [(&str, Operation, bool); 2] = [
    ("a table lock", |tx| tx.lock_table(TABLE, TableLock::Exclusive), true),
    ("key and gap locks", |tx| tx.remove_range(TABLE, ..).map(|_| ()), false),
];

/// The operations that an obstacle stops.
fn stopped(stops_absent: bool) -> impl Iterator<Item = (&'static str, Operation)> + Clone {
    OPERATIONS.into_iter().filter(move |(name, _)| stops_absent || *name != "get absent")
}

fn labelled(label: &str) -> TransactOptions {
    TransactOptions { label: Some(label.into()), ..TransactOptions::default() }
}

/// Nothing is left of anybody: the whole table can be locked at once.
fn assert_no_lock_is_left(db: &Database) {
    let mut tx = db.begin_with(&TransactOptions { no_wait: true, ..labelled("witness") }).unwrap();
    tx.lock_table(TABLE, TableLock::Exclusive).unwrap();
    tx.rollback().unwrap();
}

#[test]
fn at_its_deadline() {
    over_all_kinds(&[], waits_end_at_deadlines);
}

fn waits_end_at_deadlines(db: &Database) {
    for (obstacle, block, stops_absent) in OBSTACLES {
        let mut holder = db.begin_with(&labelled("holder")).unwrap();
        block(&mut holder).unwrap();
        for (name, operation) in stopped(stops_absent) {
            let options = TransactOptions { deadline: Some(DEADLINE), ..labelled("waiter") };
            let begin = Instant::now();
            let mut tx = db.begin_with(&options).unwrap();
            let error = operation(&mut tx).expect_err(name);
            let waited = begin.elapsed();
            let Error::LockTimeout(lock) = &error else { panic!("{name} behind {obstacle}: {error}") };
            assert!(!lock.blockers.is_empty(), "{name} behind {obstacle}");
            assert!(error.to_string().contains("holder"), "{error}");
            assert!(waited >= DEADLINE && waited < SOON, "{name} behind {obstacle}: {waited:?}");
            tx.rollback().unwrap();
        }
        holder.rollback().unwrap();
        assert_no_lock_is_left(db);
    }
    assert_eq!(db.transact(|tx| tx.range(TABLE, ..)?.collect::<Result<Vec<_>>>()).unwrap().len(), 5);
}

#[test]
fn at_once_when_it_may_not_wait_and_the_transaction_goes_on() {
    over_all_kinds(&[], nobody_waits_who_may_not);
}

fn nobody_waits_who_may_not(db: &Database) {
    for (obstacle, block, stops_absent) in OBSTACLES {
        let mut holder = db.begin_with(&labelled("holder")).unwrap();
        block(&mut holder).unwrap();
        let mut tx = db.begin().unwrap();
        tx.set_no_wait(true);
        for (name, operation) in stopped(stops_absent) {
            let error = operation(&mut tx).expect_err(name);
            assert!(matches!(error, Error::WouldBlock(_)), "{name} behind {obstacle}: {error}");
            assert!(!error.is_retryable());
        }
        holder.rollback().unwrap();
        for (name, operation) in OPERATIONS {
            operation(&mut tx).unwrap_or_else(|error| panic!("{name} after {obstacle}: {error}"));
        }
        tx.rollback().unwrap();
        assert_no_lock_is_left(db);
    }
}

#[test]
fn when_it_is_cancelled() {
    over_all_kinds(&[], waits_end_by_cancellation);
}

fn waits_end_by_cancellation(db: &Database) {
    for (obstacle, block, stops_absent) in OBSTACLES {
        let mut holder = db.begin_with(&labelled("holder")).unwrap();
        block(&mut holder).unwrap();
        let (mut best, begun) = (SOON, Instant::now());
        let all = || stopped(stops_absent);
        for (place, (name, operation)) in all().cycle().enumerate() {
            // The machine may be busy at some of them.
            if place >= all().count() && (best < PROMISED || begun.elapsed() > SOON) {
                break;
            }
            let mut tx = db.begin().unwrap();
            let handle = tx.cancel_handle();
            let (error, took) = thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let error = operation(&mut tx).expect_err(name);
                    (error, Instant::now())
                });
                thread::sleep(Duration::from_millis(20));
                assert!(!waiter.is_finished(), "{name} waits behind {obstacle}");
                let begin = Instant::now();
                handle.cancel();
                let (error, end) = waiter.join().unwrap();
                (error, end.saturating_duration_since(begin))
            });
            assert!(matches!(error, Error::Cancelled), "{name} behind {obstacle}: {error}");
            assert!(took < SOON, "{took:?}");
            best = best.min(took);
            assert!(handle.is_cancelled());
            assert!(matches!(tx.commit(), Err(Error::Cancelled)), "a cancelled transaction does not commit");
        }
        assert!(best < PROMISED, "{best:?} to cancel a wait behind {obstacle}");
        holder.rollback().unwrap();
        assert_no_lock_is_left(db);
    }
}

/// A limit for each wait, beside the deadline for all.
#[test]
fn each_wait_at_its_own_limit() {
    over_all_kinds(&[("lock_timeout", "40ms")], |db| {
        let mut holder = db.begin_with(&labelled("holder")).unwrap();
        holder.put(TABLE, 20, 0).unwrap();
        let waits_since = |begin: Instant, tx: &mut Transaction, least: u64| {
            let error = tx.get(TABLE, 20).unwrap_err();
            assert!(matches!(error, Error::LockTimeout(_)), "{error}");
            let waited = begin.elapsed();
            assert!(waited >= Duration::from_millis(least) && waited < SOON, "{waited:?} of {least} ms");
        };
        let waits = |tx: &mut Transaction, least: u64| waits_since(Instant::now(), tx, least);
        // As the database says, again and again.
        let mut tx = db.begin().unwrap();
        waits(&mut tx, 40);
        waits(&mut tx, 40);
        tx.rollback().unwrap();
        // As the transaction says.
        let own = Some(Duration::from_millis(80));
        let mut tx =
            db.begin_with(&TransactOptions { lock_timeout: own, ..TransactOptions::default() }).unwrap();
        waits(&mut tx, 80);
        tx.set_lock_timeout(Some(Duration::from_millis(5)));
        waits(&mut tx, 5);
        // Whichever comes first.
        tx.set_lock_timeout(Some(SOON));
        let begin = Instant::now();
        tx.set_deadline(Some(begin + Duration::from_millis(10)));
        waits_since(begin, &mut tx, 10);
        tx.set_deadline(None);
        tx.set_lock_timeout(None);
        thread::scope(|scope| {
            let waiter = scope.spawn(move || tx.get(TABLE, 20));
            thread::sleep(Duration::from_millis(50));
            assert!(!waiter.is_finished(), "without a limit it waits");
            holder.rollback().unwrap();
            assert_eq!(waiter.join().unwrap().unwrap(), Some(2));
        });
        assert_no_lock_is_left(db);
    });
}

/// Many locks on keys become one on their table, if nobody is in the way; else they go on.
#[test]
fn escalation_over_all_kinds() {
    over_all_kinds(&[("escalation_locks", "50")], |db| {
        let writes = |tx: &mut Transaction, keys: std::ops::Range<u32>| {
            keys.for_each(|key| assert!(!tx.put(TABLE, key * 10 + 1, key).unwrap()));
        };
        let other =
            || db.begin_with(&TransactOptions { no_wait: true, ..TransactOptions::default() }).unwrap();
        let mut reader = other();
        assert_eq!(reader.get(TABLE, 30).unwrap(), Some(3));
        let mut writer = db.begin().unwrap();
        writes(&mut writer, 10..400);
        let stats = db.stats();
        assert_eq!(stats.lock_escalations, 0, "a reader is in the way");
        assert!(stats.lock_escalations_refused > 0);
        assert_eq!(reader.get(TABLE, 40).unwrap(), Some(4), "and goes on");
        reader.rollback().unwrap();
        writes(&mut writer, 400..1200);
        assert_eq!(db.stats().lock_escalations, 1);
        let mut reader = other();
        assert!(matches!(reader.get(TABLE, 40), Err(Error::WouldBlock(_))), "all of the table is locked");
        reader.rollback().unwrap();
        // Who waits for the table is set free by the end.
        thread::scope(|scope| {
            let waiter = scope.spawn(|| db.transact(|tx| tx.get(TABLE, 40)));
            thread::sleep(Duration::from_millis(20));
            assert!(!waiter.is_finished());
            writer.rollback().unwrap();
            assert_eq!(waiter.join().unwrap().unwrap(), Some(4));
        });
        assert_no_lock_is_left(db);
    });
}

#[test]
fn a_deadline_ends_a_transact_as_a_whole() {
    let (_directory, db) = open();
    let mut holder = db.begin_with(&labelled("holder")).unwrap();
    holder.put(TABLE, 10, 0).unwrap();
    let mut runs = 0;
    let options = TransactOptions { deadline: Some(DEADLINE), ..TransactOptions::default() };
    let result = db.transact_with(&options, |tx| {
        runs += 1;
        tx.get(TABLE, 10)
    });
    assert!(matches!(result, Err(Error::LockTimeout(_))), "{result:?}");
    // DB-5.
    assert_eq!(runs, 1, "what has waited to its deadline is not run again");
}

/// Waits until two threads have come here.
fn meet(arrived: &AtomicU32) {
    arrived.fetch_add(1, Ordering::SeqCst);
    while arrived.load(Ordering::SeqCst) < 2 {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Two threads that take two keys in opposite order, and meet when each has its first.
fn clash(db: &Database) -> [Result<()>; 2] {
    let arrived = AtomicU32::new(0);
    thread::scope(|scope| {
        let threads = [(10, 20), (20, 10)].map(|(first, second)| {
            let arrived = &arrived;
            scope.spawn(move || {
                let mut tx = db.begin_with(&labelled(&format!("first {first}"))).unwrap();
                tx.put(TABLE, first, 100)?;
                meet(arrived);
                tx.put(TABLE, second, 100)?;
                tx.commit()
            })
        });
        threads.map(|thread| thread.join().unwrap())
    })
}

#[test]
fn with_a_deadlock_that_names_its_cycle() {
    let (_directory, db) = open();
    let results = clash(&db);
    let ([Ok(()), Err(error)] | [Err(error), Ok(())]) = results else { panic!("{results:?}") };
    assert!(error.is_retryable());
    let Error::Deadlock(report) = &error else { panic!("{error}") };
    assert_eq!(report.cycle.len(), 2);
    assert!(report.cycle.iter().any(|edge| edge.transaction.id == report.victim));
    let text = error.to_string();
    assert!(text.contains("first 10") && text.contains("first 20"), "{text}");
    let recent = db.deadlocks();
    assert_eq!(recent.last().map(|deadlock| deadlock.victim), Some(report.victim));
    assert_no_lock_is_left(&db);
}

#[test]
fn a_victim_can_only_be_rolled_back() {
    let (_directory, db) = open();
    let (tell, told) = mpsc::channel();
    let mut older = db.begin().unwrap();
    let mut younger = db.begin().unwrap();
    older.put(TABLE, 10, 1).unwrap();
    younger.put(TABLE, 20, 2).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            tell.send(()).unwrap();
            older.put(TABLE, 20, 1).unwrap();
            older.commit().unwrap();
        });
        told.recv().unwrap();
        let error = younger.put(TABLE, 10, 2).unwrap_err();
        assert!(matches!(error, Error::Deadlock(_)), "the younger gives way: {error}");
        assert!(matches!(younger.get(TABLE, 30), Err(Error::TransactionFailed)));
        assert!(younger.commit().is_err(), "nothing of it can be committed");
        waiter.join().unwrap();
    });
    assert_eq!(db.transact(|tx| tx.get(TABLE, 20)).unwrap(), Some(1));
    assert_no_lock_is_left(&db);
}

#[test]
fn transact_runs_a_victim_again_even_when_its_body_hides_the_error() {
    // DB-3.
    let (_directory, db) = open();
    for hides in [false, true] {
        let arrived = AtomicU32::new(0);
        let runs: Vec<u32> = thread::scope(|scope| {
            let threads: Vec<_> = [(10, 20), (20, 10)]
                .into_iter()
                .map(|(first, second)| {
                    let (arrived, db) = (&arrived, &db);
                    scope.spawn(move || {
                        let mut runs = 0;
                        db.transact(|tx| {
                            runs += 1;
                            let count = tx.get_for_update(TABLE, first)?.unwrap_or(0);
                            tx.put(TABLE, first, count + 100)?;
                            if runs == 1 {
                                meet(arrived);
                            }
                            let result = tx
                                .get_for_update(TABLE, second)
                                .and_then(|count| tx.put(TABLE, second, count.unwrap_or(0) + 100));
                            if hides { Ok(()) } else { result.map(|_| ()) }
                        })
                        .unwrap();
                        runs
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(runs.iter().sum::<u32>(), 3, "one of the two ran twice");
    }
    let counts = db.transact(|tx| Ok([tx.get(TABLE, 10)?, tx.get(TABLE, 20)?])).unwrap();
    assert_eq!(counts, [Some(401), Some(402)], "every increment is there");
}

#[test]
fn retries_are_bounded() {
    let (_directory, db) = open();
    let mut first = db.begin().unwrap();
    first.put(TABLE, 10, 0).unwrap();
    let (tell, told) = mpsc::channel::<()>();
    thread::scope(|scope| {
        // Without retries, and the younger of the two: it must give way, and give up.
        let second = scope.spawn(|| {
            let options = TransactOptions { retries: 0, ..TransactOptions::default() };
            db.transact_with(&options, |tx| {
                tx.put(TABLE, 20, 0)?;
                tell.send(()).unwrap();
                tx.put(TABLE, 10, 0)
            })
        });
        told.recv().unwrap();
        first.put(TABLE, 20, 1).unwrap();
        first.commit().unwrap();
        let error = second.join().unwrap().unwrap_err();
        let Error::RetriesExhausted { attempts: 1, last } = &error else { panic!("{error}") };
        assert!(matches!(**last, Error::Deadlock(_)));
    });
}

/// Neither sees it.
#[test]
fn a_cycle_through_two_databases_ends_at_a_limit() {
    let ((_one, one), (_two, two)) = (open(), open());
    let limited = TransactOptions { lock_timeout: Some(DEADLINE), ..TransactOptions::default() };
    let (mut first_here, mut first_there) = (one.begin().unwrap(), two.begin_with(&limited).unwrap());
    let (mut second_here, mut second_there) = (one.begin().unwrap(), two.begin().unwrap());
    first_here.put(TABLE, 20, 1).unwrap();
    second_there.put(TABLE, 20, 2).unwrap();
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            second_here.put(TABLE, 20, 2).unwrap();
            second_here.prepare("transfer").unwrap();
            second_there.prepare("transfer").unwrap();
        });
        let refused = first_there.put(TABLE, 20, 1);
        assert!(matches!(refused, Err(Error::LockTimeout(_))), "{refused:?}");
        first_there.rollback().unwrap();
        first_here.rollback().unwrap();
        second.join().unwrap();
    });
    assert_eq!([one.deadlocks().len(), two.deadlocks().len()], [0, 0]);
    for db in [one, two] {
        db.commit_prepared("transfer").unwrap();
        assert_eq!(db.transact(|tx| tx.get(TABLE, 20)).unwrap(), Some(2));
    }
}

/// Under a policy that lets nobody wait, a victim pauses and runs again until its deadline, however it runs, and no
/// longer.
#[test]
fn victims_run_again_until_their_deadline() {
    let (_directory, db) =
        open_with(&[("deadlock_policy", "no_wait"), ("control_threads", "1"), ("execution_threads", "1")]);
    let mut holder = db.begin().unwrap();
    holder.put(TABLE, 20, 0).unwrap();
    let body = |tx: &mut Transaction| tx.put(TABLE, 20, 1);
    for submitted in [false, true] {
        let mut deadline = DEADLINE;
        let runs = loop {
            let options = TransactOptions { deadline: Some(deadline), ..TransactOptions::default() };
            let began = Instant::now();
            let result = match submitted {
                false => db.transact_with(&options, body),
                true => db.plan().options(options).submit(body).unwrap().wait(),
            };
            let error = result.unwrap_err();
            let Error::RetriesExhausted { attempts, last } = &error else {
                panic!("submitted: {submitted}: {error}")
            };
            assert!(matches!(**last, Error::Deadlock(_)), "{last}");
            assert!((deadline..deadline + SOON).contains(&began.elapsed()), "submitted: {submitted}");
            // A busy machine may have had no time for more.
            if *attempts > 1 || deadline > SOON {
                break *attempts;
            }
            deadline *= 4;
        };
        assert!((2..=1000).contains(&runs), "submitted: {submitted}: {runs} runs");
    }
}

/// Who may have a table at the same time (Gray et al. 1976), and that a transaction that shares it may change keys.
#[test]
fn locks_on_tables_get_along_as_they_should() {
    over_all_kinds(&[], table_locks_get_along);
}

fn table_locks_get_along(db: &Database) {
    use TableLock::{Exclusive, IntentExclusive, IntentShared, Shared, SharedIntentExclusive};
    const LOCKS: [TableLock; 5] = [IntentShared, IntentExclusive, Shared, SharedIntentExclusive, Exclusive];
    const TOGETHER: [&str; 5] = ["++++-", "++---", "+-+--", "+----", "-----"];
    for (row, one) in LOCKS.into_iter().enumerate() {
        for (column, other) in LOCKS.into_iter().enumerate() {
            let mut first = db.begin().unwrap();
            first.lock_table(TABLE, one).unwrap();
            let mut second =
                db.begin_with(&TransactOptions { no_wait: true, ..TransactOptions::default() }).unwrap();
            let together = TOGETHER[row].as_bytes()[column] == b'+';
            assert_eq!(second.lock_table(TABLE, other).is_ok(), together, "{one:?} {other:?}");
        }
    }
    let mut both = db.begin().unwrap();
    both.lock_table(TABLE, SharedIntentExclusive).unwrap();
    both.put(TABLE, 20, 7).unwrap();
    let mut reader = db.begin_with(&TransactOptions { no_wait: true, ..TransactOptions::default() }).unwrap();
    assert!(reader.get(TABLE, 10).is_ok(), "others read what it has not changed");
    assert!(matches!(reader.get(TABLE, 20), Err(Error::WouldBlock(_))));
    assert!(matches!(reader.put(TABLE, 10, 1), Err(Error::WouldBlock(_))));
}

/// LOCK-18, for what begins by itself and what begins in a pipeline.
#[test]
fn the_less_important_gives_way_though_it_is_older() {
    let (_directory, db) = open();
    let important = TransactOptions { priority: 1, ..labelled("important") };
    let mut pipeline = db.pipeline();
    for piped in [false, true] {
        let mut older = db.begin().unwrap();
        let younger = if piped { pipeline.begin_with(&important) } else { db.begin_with(&important) };
        let mut younger = younger.unwrap();
        older.put(TABLE, 10, 1).unwrap();
        younger.put(TABLE, 20, 2).unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(move || older.put(TABLE, 20, 1).unwrap_err());
            younger.put(TABLE, 10, 2).unwrap();
            let error = waiter.join().unwrap();
            assert!(matches!(error, Error::Deadlock(_)), "{error}");
        });
        younger.commit().unwrap();
        assert_eq!(db.transact(|tx| tx.get(TABLE, 10)).unwrap(), Some(2));
    }
    pipeline.flush().unwrap();
    assert_no_lock_is_left(&db);
}

/// DB-4, for who begins again by itself: with the age of its first transaction it wins against those that began since,
/// and without it does not.
#[test]
fn what_is_begun_again_with_its_age_is_the_older_one() {
    let (_home, db) = open();
    for keeps_age in [true, false] {
        let first = db.begin().unwrap();
        let age = first.age();
        first.rollback().unwrap();
        let mut other = db.begin().unwrap();
        let options = TransactOptions { age: keeps_age.then_some(age), ..labelled("again") };
        let mut again = db.begin_with(&options).unwrap();
        assert_eq!((again.age() == age, again.age() < other.age()), (keeps_age, keeps_age));
        other.put(TABLE, 10, 1).unwrap();
        again.put(TABLE, 20, 2).unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(move || {
                let waited = other.put(TABLE, 20, 1);
                waited.and_then(|_| other.commit())
            });
            let waited = again.put(TABLE, 10, 2);
            let (winner, loser) = match waited {
                Ok(_) => (again.commit(), waiter.join().unwrap()),
                Err(error) => {
                    again.rollback().unwrap();
                    (waiter.join().unwrap(), Err(error))
                }
            };
            winner.unwrap();
            assert!(matches!(loser, Err(Error::Deadlock(_))), "{loser:?}");
        });
        let winner = if keeps_age { 2 } else { 1 };
        assert_eq!(db.transact(|tx| tx.get(TABLE, 10)).unwrap(), Some(winner));
    }
    // What `transact` runs again begins with it, too.
    let age = db.begin().unwrap().age();
    let options = TransactOptions { age: Some(age), ..TransactOptions::default() };
    assert_eq!(db.transact_with(&options, |tx| Ok(tx.age())).unwrap(), age);
    assert_eq!(db.plan().options(options).submit(|tx| Ok(tx.age())).unwrap().wait().unwrap(), age);
    assert_no_lock_is_left(&db);
}

/// DB-11: it waits for its own thread, and nobody sees that.
#[test]
fn a_transaction_within_the_body_of_another_does_not_wait_for_it_for_ever() {
    let (_home, db) = open();
    let inner = |limit: Option<Duration>| {
        let options = TransactOptions { lock_timeout: limit, ..TransactOptions::default() };
        let begun = Instant::now();
        let result = db.transact(|tx| {
            tx.put(TABLE, 10, 1)?;
            db.transact_with(&options, |inner| inner.put(TABLE, 10, 2))
        });
        let Err(Error::LockTimeout(lock)) = result else { panic!("{result:?}") };
        (begun.elapsed(), lock)
    };
    let (waited, lock) = inner(Some(DEADLINE));
    assert!(waited < Duration::from_secs(10));
    assert_eq!((lock.within_body, lock.lock_timeout), (false, Some(DEADLINE)));
    let (waited, lock) = inner(None);
    assert_eq!((lock.within_body, lock.lock_timeout), (true, Some(Duration::from_secs(10))));
    assert_advice_is_to_nest_nothing(lock);
    assert!(waited >= Duration::from_secs(10) && waited < SOON, "{waited:?}");
    // Behind it, and after a panic in a body, all is as before.
    let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = db.transact(|_| -> Result<()> { panic!("a body's") });
    }));
    broken.unwrap_err();
    let holder = db.begin().unwrap();
    thread::scope(|scope| {
        let mut holder = holder;
        holder.put(TABLE, 10, 3).unwrap();
        let waiter = scope.spawn(|| db.transact(|tx| tx.get(TABLE, 10)));
        thread::sleep(Duration::from_millis(100));
        holder.commit().unwrap();
        assert_eq!(waiter.join().unwrap().unwrap(), Some(3));
    });
}

/// To wait longer, as the error advised, would only have made it worse.
fn assert_advice_is_to_nest_nothing(lock: Box<RefusedLock>) {
    let said = Error::LockTimeout(lock).to_string();
    assert!(said.contains("in its way: transaction") && said.contains("not within its body"), "{said}");
    assert!(!said.contains("raise") && !said.contains("wait longer"), "{said}");
}

/// A table that is not there is made by a transaction of its own, which waited as if nobody had said how long.
#[test]
fn the_first_use_of_a_table_waits_no_longer_than_its_transaction() {
    const NEW: TableDefinition<u32, u32> = TableDefinition::new("new");
    let (_home, db) = open();
    let mut writer = db.begin().unwrap();
    writer.put(TABLE, 10, 1).unwrap();
    thread::scope(|scope| {
        // Whoever begins to write queues behind it.
        let check = scope.spawn(|| db.verify_within(SOON));
        until_somebody_waits(&db);
        let no_wait = TransactOptions { no_wait: true, ..TransactOptions::default() };
        let result = db.transact_with(&no_wait, |tx| tx.put(NEW, 1, 1));
        assert!(matches!(result, Err(Error::WouldBlock(_))), "{result:?}");
        let soon = TransactOptions { deadline: Some(DEADLINE), ..TransactOptions::default() };
        let result = db.transact_with(&soon, |tx| tx.put(NEW, 1, 1));
        assert!(matches!(result, Err(Error::LockTimeout(_))), "{result:?}");
        assert!(!check.is_finished(), "it waits for the writer");
        let mut cancelled = db.begin().unwrap();
        let handle = cancelled.cancel_handle();
        scope.spawn(move || {
            thread::sleep(DEADLINE);
            handle.cancel();
        });
        let result = cancelled.put(NEW, 1, 1);
        assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
        writer.commit().unwrap();
        assert!(check.join().unwrap().unwrap().is_sound());
    });
    db.transact(|tx| tx.put(NEW, 1, 1)).unwrap();
}

/// A plan that names it made it before anything was said about waiting, and nothing ended that.
#[test]
fn a_plan_with_a_new_table_waits_no_longer_than_its_transaction() {
    const NEW: TableDefinition<u32, u32> = TableDefinition::new("new");
    let (_home, db) = open();
    let mut writer = db.begin().unwrap();
    writer.put(TABLE, 10, 1).unwrap();
    thread::scope(|scope| {
        let check = scope.spawn(|| db.verify_within(SOON));
        until_somebody_waits(&db);
        let no_wait = TransactOptions { no_wait: true, ..TransactOptions::default() };
        let soon = TransactOptions { deadline: Some(DEADLINE), ..TransactOptions::default() };
        let limited = TransactOptions { lock_timeout: Some(DEADLINE), ..TransactOptions::default() };
        for options in [no_wait, soon, limited] {
            let plan = || db.plan().write(NEW, 1).write(NEW, 2).options(options.clone());
            let ran = plan().run(|tx| tx.put(NEW, 1, 1));
            let submitted = plan().submit(|tx| tx.put(NEW, 1, 1)).unwrap().wait();
            for result in [ran, submitted] {
                match result {
                    Err(Error::WouldBlock(_)) if options.no_wait => {}
                    Err(Error::LockTimeout(_)) if !options.no_wait => {}
                    result => panic!("{options:?}: {result:?}"),
                }
            }
        }
        assert!(!check.is_finished(), "it waits for the writer");
        writer.commit().unwrap();
        assert!(check.join().unwrap().unwrap().is_sound());
    });
    assert!(!db.plan().write(NEW, 1).run(|tx| tx.put(NEW, 1, 1)).unwrap());
    // Others make it, of other types, between a plan and its run.
    const LATER: TableDefinition<u32, u32> = TableDefinition::new("later");
    let plan = db.plan().write(LATER, 1);
    db.create_table("later", "u32", "u64").unwrap();
    assert!(matches!(plan.run(|tx| tx.put(NEW, 1, 1)), Err(Error::TypeMismatch { .. })));
}

/// What was removed before the lock that was refused stayed so, for a transaction that went on.
#[test]
fn a_range_is_removed_as_a_whole_or_not_at_all() {
    let (_home, db) = open();
    db.transact(|tx| (100..300).try_for_each(|key| tx.put(TABLE, key, key).map(drop))).unwrap();
    let mut holder = db.begin().unwrap();
    holder.put(TABLE, 250, 0).unwrap();
    let no_wait = TransactOptions { no_wait: true, ..TransactOptions::default() };
    let mut tx = db.begin_with(&no_wait).unwrap();
    tx.put(TABLE, 10, 11).unwrap();
    let refused = tx.remove_range(TABLE, 100..300);
    assert!(matches!(refused, Err(Error::WouldBlock(_))), "{refused:?}");
    tx.commit().unwrap();
    holder.rollback().unwrap();
    db.transact(|tx| {
        assert_eq!(tx.get(TABLE, 10)?, Some(11));
        assert_eq!(tx.range(TABLE, 100..300)?.count(), 200);
        Ok(())
    })
    .unwrap();
}

/// Both had locked the gap, and each waited at it for the other.
#[test]
fn the_second_who_is_to_add_a_key_waits_for_the_first() {
    over_all_kinds(&[], |db| {
        for round in 0..20 {
            // Keys of one gap, and one and the same.
            let keys = [1000 + round, 1000 + round + round % 2];
            let begun = AtomicU32::new(0);
            thread::scope(|scope| {
                for key in keys {
                    let begun = &begun;
                    scope.spawn(move || {
                        let mut tx = db.begin().unwrap();
                        begun.fetch_add(1, Ordering::SeqCst);
                        while begun.load(Ordering::SeqCst) < 2 {
                            thread::yield_now();
                        }
                        let found = tx.get_for_update(TABLE, key).unwrap().unwrap_or(0);
                        thread::yield_now();
                        tx.put(TABLE, key, found + 1).unwrap();
                        tx.commit().unwrap();
                    });
                }
            });
            let stored = |key| db.transact(|tx| tx.get(TABLE, key)).unwrap();
            let expected = if keys[0] == keys[1] { 2 } else { 1 };
            assert_eq!(keys.map(stored), [Some(expected); 2]);
            db.transact(|tx| tx.remove_range(TABLE, 1000..)).unwrap();
        }
        assert!(db.deadlocks().is_empty());
    });
}

/// It queued behind the check, which waited for its own transaction, and nobody saw that the two waited for each other.
#[test]
fn a_transaction_that_has_written_makes_a_table_beside_a_check_that_waits_for_it() {
    const NEW: TableDefinition<u32, u32> = TableDefinition::new("new");
    let (_home, db) = open();
    let mut writer = db.begin().unwrap();
    writer.put(TABLE, 10, 1).unwrap();
    thread::scope(|scope| {
        let check = scope.spawn(|| db.verify_within(SOON));
        until_somebody_waits(&db);
        let begun = Instant::now();
        writer.put(NEW, 1, 1).unwrap();
        assert!(begun.elapsed() < SOON / 4 && !check.is_finished());
        writer.commit().unwrap();
        assert!(check.join().unwrap().unwrap().is_sound());
    });
    assert_eq!(db.transact(|tx| tx.get(NEW, 1)).unwrap(), Some(1));
}

/// So it was with one that had read: what makes the table for it has to write.
#[test]
fn a_transaction_that_has_read_makes_a_table_beside_a_check_that_waits_for_it() {
    const NEW: TableDefinition<u32, u32> = TableDefinition::new("new");
    let (_home, db) = open();
    let mut reader = db.begin().unwrap();
    reader.get(TABLE, 10).unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| db.transact(|tx| tx.put(TABLE, 10, 1)));
        until_somebody_waits(&db);
        let check = scope.spawn(|| db.verify_within(SOON));
        while db.waits_for().waits.len() < 2 {
            thread::yield_now();
        }
        let begun = Instant::now();
        assert_eq!(reader.get(NEW, 1).unwrap(), None);
        assert!(begun.elapsed() < SOON / 4 && !check.is_finished());
        reader.commit().unwrap();
        writer.join().unwrap().unwrap();
        assert!(check.join().unwrap().unwrap().is_sound());
    });
}

const POLICIES: [&str; 5] = ["dreadlocks", "timeout", "wound_wait", "wait_die", "no_wait"];

/// Where whoever meets somebody gives way, they gave up at once.
#[test]
fn calls_with_a_transaction_of_their_own_wait_under_every_policy() {
    type Call = fn(&Database, Duration) -> Result<()>;
    let calls: [(&str, Call); 3] = [
        ("verify", |db, wait| db.verify_within(wait).map(|report| assert!(report.is_sound()))),
        ("compact", |db, _| db.compact().map(drop)),
        ("drop_table", |db, wait| db.drop_table_within("table", wait).map(|dropped| assert!(dropped))),
    ];
    for policy in POLICIES {
        let (_home, db) = open_with(&[("deadlock_policy", policy)]);
        for (name, call) in calls {
            let mut writer = db.begin().unwrap();
            writer.put(TABLE, 10, 1).unwrap();
            if name != "compact" {
                let refused = call(&db, DEADLINE).expect_err(name);
                let Error::LockTimeout(lock) = &refused else { panic!("{policy}, {name}: {refused}") };
                assert!(!lock.blockers.is_empty(), "{policy}, {name}: {refused}");
                assert!(lock.wait.is_some(), "{policy}, {name}: {refused}");
            }
            thread::scope(|scope| {
                let done = scope.spawn(|| call(&db, SOON));
                thread::sleep(DEADLINE);
                assert!(name == "compact" || !done.is_finished(), "{policy}, {name}");
                writer.commit().unwrap();
                done.join().unwrap().unwrap_or_else(|error| panic!("{policy}, {name}: {error}"));
            });
        }
        assert_no_lock_is_left(&db);
    }
}

/// Those that are made for nobody's transaction, for a plan among others.
#[test]
fn whoever_makes_the_same_table_waits_under_every_policy() {
    const THREADS: u32 = 4;
    for policy in POLICIES {
        let (_home, db) = open_with(&[("deadlock_policy", policy)]);
        for round in 0..12 {
            let name = format!("new {round}");
            let arrived = AtomicU32::new(0);
            thread::scope(|scope| {
                for number in 0..THREADS {
                    let (db, name, arrived) = (&db, &name, &arrived);
                    scope.spawn(move || {
                        let table: TableDefinition<u32, u32> = TableDefinition::new(name);
                        arrived.fetch_add(1, Ordering::SeqCst);
                        while arrived.load(Ordering::SeqCst) < THREADS {
                            thread::yield_now();
                        }
                        let made = match number % 2 {
                            0 => db.plan().write(table, number).run(|tx| tx.put(table, number, 1)).map(drop),
                            _ => db.create_table(name, "u32", "u32").map(drop),
                        };
                        made.unwrap_or_else(|error| panic!("{policy}, {round}: {error}"));
                    });
                }
            });
        }
    }
}

/// DB-11, for calls that wait a minute otherwise.
#[test]
fn a_drop_or_a_check_within_a_body_does_not_wait_for_it_for_a_minute() {
    let (_home, db) = open();
    let calls: [fn(&Database) -> Result<()>; 2] =
        [|db| db.drop_table("table").map(drop), |db| db.verify().map(drop)];
    for call in calls {
        let begun = Instant::now();
        let result = db.transact(|tx| {
            tx.put(TABLE, 10, 1)?;
            call(&db)
        });
        let Err(Error::LockTimeout(lock)) = result else { panic!("{result:?}") };
        assert!(lock.within_body && lock.lock_timeout.is_none());
        assert_advice_is_to_nest_nothing(lock);
        let waited = begun.elapsed();
        assert!(waited >= Duration::from_secs(10) && waited < Duration::from_secs(50), "{waited:?}");
    }
}
