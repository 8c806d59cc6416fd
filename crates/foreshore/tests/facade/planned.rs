//! Planned transactions: declared, and found out by reconnaissance.

use std::{
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use foreshore::{
    Database, DeadlockPolicy, Direction, Durability, Error, Execution, LockTarget, LockView, Options, Result,
    TableDefinition, TableLock, TransactOptions, Transaction,
};
use foreshore_env::random::Xorshift;
use foreshore_testkit::FaultyDisk;

const NUMBERS: TableDefinition<u32, u64> = TableDefinition::new("numbers");
/// How long a test waits for what is to happen, on the slowest machine.
const FAR: Duration = Duration::from_secs(120);
const OTHERS: TableDefinition<u32, u64> = TableDefinition::new("others");

fn open(set: &[(&str, &str)]) -> Database {
    open_locking(set, true)
}

fn open_locking(set: &[(&str, &str)], locking: bool) -> Database {
    let mut options = Options { pool_bytes: 2 << 20, node_capacity: 4, locking, ..Options::default() };
    set.iter().for_each(|(name, value)| options.set(name, value).unwrap());
    Database::builder().options(options).disk(Arc::new(FaultyDisk::new())).open("/db").unwrap()
}

/// With the numbers 0 to `count` - 1 in the table.
fn filled(set: &[(&str, &str)], count: u32) -> Database {
    let db = open(set);
    db.transact(|tx| (0..count).try_for_each(|key| tx.put(NUMBERS, key, 100).map(drop))).unwrap();
    db
}

fn planned() -> TransactOptions {
    TransactOptions { execution: Some(Execution::Planned), ..TransactOptions::default() }
}

fn contents(db: &Database) -> Vec<(u32, u64)> {
    db.transact(|tx| tx.range(NUMBERS, ..)?.collect()).unwrap()
}

/// Nobody holds or waits for anything.
fn assert_at_rest(db: &Database) {
    assert_lets_in(db, &TransactOptions { no_wait: true, ..TransactOptions::default() });
}

/// The whole table can be had by these options.
fn assert_lets_in(db: &Database, options: &TransactOptions) {
    let mut check = db.begin_with(options).unwrap();
    check.lock_table(NUMBERS, TableLock::Exclusive).unwrap();
    check.rollback().unwrap();
    assert!(db.verify().unwrap().is_sound());
}

#[test]
fn reconnaissance_has_no_effect_and_the_run_that_follows_has() {
    let db = filled(&[], 3);
    let mut seen = Vec::new();
    let before = db.stats();
    let result = db.transact_with(&planned(), |tx| {
        // As others see it at this moment: nothing of the run is visible while it lasts.
        let value = tx.get(NUMBERS, 1)?.unwrap();
        seen.push(value);
        tx.put(NUMBERS, 1, value + 1)?;
        tx.get(NUMBERS, 1)
    });
    assert_eq!(result.unwrap(), Some(101), "its own write, in either run");
    assert_eq!(seen, [100, 100], "once for the footprint, once in earnest");
    let after = db.stats();
    assert_eq!((after.commits, after.rollbacks), (before.commits + 1, before.rollbacks));
    assert_eq!(after.plan_misses, 0);
    assert_eq!(contents(&db), [(0, 100), (1, 101), (2, 100)]);
    assert_at_rest(&db);
}

/// What a step of a random transaction gave.
type Seen = Vec<String>;

fn random_step(tx: &mut Transaction, random: &mut Xorshift, seen: &mut Seen) -> Result<()> {
    let key = random.below(24) as u32;
    let value = random.below(1000);
    let answer = match random.below(9) {
        0 => format!("get {key}: {:?}", tx.get(NUMBERS, key)?),
        1 => format!("for update {key}: {:?}", tx.get_for_update(NUMBERS, key)?),
        2 => format!("put {key}: {}", tx.put(NUMBERS, key, value)?),
        3 => format!("insert {key}: {}", tx.insert(NUMBERS, key, value)?),
        4 => format!("update {key}: {}", tx.update(NUMBERS, key, value)?),
        5 => format!("delete {key}: {}", tx.delete(NUMBERS, key)?),
        6 => {
            let low = random.below(24) as u32;
            format!("remove {low}..: {}", tx.remove_range(NUMBERS, low..low + 2)?)
        }
        _ => {
            let bound = |random: &mut Xorshift| match random.below(3) {
                0 => Bound::Unbounded,
                1 => Bound::Included(random.below(24) as u32),
                _ => Bound::Excluded(random.below(24) as u32),
            };
            let bounds = (bound(random), bound(random));
            let up = random.below(2) == 0;
            let direction = if up { Direction::Ascending } else { Direction::Descending };
            let mut cursor = tx.cursor(NUMBERS, bounds, direction)?;
            let mut found = Vec::new();
            loop {
                let (key, value) = if random.below(4) == 0 {
                    let Some(key) = cursor.next_key(tx)? else { break };
                    (key, 0)
                } else {
                    let Some(entry) = cursor.next(tx)? else { break };
                    entry
                };
                found.push((key, value));
                // Writes under the cursor: behind it, under it, before it.
                if random.below(4) == 0 {
                    let near = (key + random.below(5) as u32).saturating_sub(2);
                    match random.below(2) {
                        0 => tx.put(NUMBERS, near, value + 1)?,
                        _ => tx.delete(NUMBERS, near)?,
                    };
                }
                if found.len() > 40 {
                    break;
                }
            }
            format!("{bounds:?} {direction:?}: {found:?}")
        }
    };
    seen.push(answer);
    Ok(())
}

/// Alone in the database, reconnaissance sees what the run sees: its own writes too, in every kind of operation, under
/// cursors and behind savepoints.
#[test]
fn reconnaissance_gives_the_answers_of_the_run() {
    let db = filled(&[], 12);
    for seed in 1..=300 {
        let mut runs: Vec<Seen> = Vec::new();
        db.transact_with(&planned(), |tx| {
            let mut random = Xorshift::new(seed);
            let mut seen = Vec::new();
            let mut savepoints = Vec::new();
            for _ in 0..12 {
                match random.below(8) {
                    0 => savepoints.push(tx.savepoint()?),
                    1 if !savepoints.is_empty() => {
                        let place = random.below(savepoints.len() as u64) as usize;
                        if random.below(3) == 0 {
                            tx.release(savepoints[place])?;
                            savepoints.truncate(place);
                        } else {
                            tx.rollback_to(savepoints[place])?;
                            savepoints.truncate(place + 1);
                        }
                    }
                    _ => random_step(tx, &mut random, &mut seen)?,
                }
            }
            runs.push(seen);
            Ok(())
        })
        .unwrap();
        assert_eq!(runs.len(), 2, "seed {seed}");
        assert_eq!(runs[0], runs[1], "seed {seed}");
    }
    assert_eq!(db.stats().plan_misses, 0);
    assert_at_rest(&db);
}

#[test]
fn bulk_loads_and_long_values_are_foreseen_too() {
    const BLOBS: TableDefinition<u32, &[u8]> = TableDefinition::new("blobs");
    let db = open(&[]);
    let long = vec![7; 20_000];
    for round in 0..3u32 {
        let mut lengths = Vec::new();
        db.transact_with(&planned(), |tx| {
            lengths.push(tx.get(BLOBS, 1)?.map(|value| value.len()));
            tx.put(BLOBS, 1, &long[..10_000 + round as usize])?;
            lengths.push(tx.get(BLOBS, 1)?.map(|value| value.len()));
            tx.put(BLOBS, 2 + round, &long[..])
        })
        .unwrap();
        assert_eq!(lengths[..2], lengths[2..], "round {round}");
    }
    assert_eq!(db.stats().plan_misses, 0);
    assert!(db.verify().unwrap().is_sound());
}

#[test]
fn an_error_or_a_panic_of_reconnaissance_counts_for_nothing() {
    let db = filled(&[], 2);
    let mut runs = 0;
    let result = db.transact_with(&planned(), |tx| {
        runs += 1;
        tx.put(NUMBERS, 0, 1)?;
        if runs == 1 { Err(Error::application("an inconsistent view")) } else { Ok(runs) }
    });
    assert_eq!(result.unwrap(), 2);
    let mut runs = 0;
    let result = db.transact_with(&planned(), |tx| {
        runs += 1;
        tx.put(NUMBERS, 1, 2)?;
        assert!(runs > 1, "an inconsistent view");
        Ok(runs)
    });
    assert_eq!(result.unwrap(), 2);
    assert_eq!(contents(&db), [(0, 1), (1, 2)]);
    // Under locks they count.
    let result: Result<()> = db.transact_with(&planned(), |tx| {
        tx.put(NUMBERS, 0, 9)?;
        Err(Error::application("no"))
    });
    assert!(matches!(result, Err(Error::Application(_))));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        db.transact_with(&planned(), |tx| -> Result<()> {
            tx.put(NUMBERS, 1, 9)?;
            panic!("always");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(contents(&db), [(0, 1), (1, 2)]);
    assert_at_rest(&db);
}

/// A key that somebody puts into a planned range after that was looked at, and before its locks are granted, splits a
/// gap. From the grant on the part below it is locked, and the part above from when it has been read; and what is read
/// twice is the same.
#[test]
fn a_planned_range_is_locked_as_it_was_found_and_then_as_it_is_read() {
    for submits in [false, true] {
        let db = open(&[]);
        db.transact(|tx| {
            tx.put(OTHERS, 1, 1)?;
            [10, 20].into_iter().try_for_each(|key| tx.put(NUMBERS, key, 1).map(drop))
        })
        .unwrap();
        let mut gate = db.begin().unwrap();
        gate.lock_table(OTHERS, TableLock::Exclusive).unwrap();
        let (tell, told) = mpsc::channel();
        let (let_on, may_go_on) = mpsc::channel();
        let body = move |tx: &mut Transaction| {
            tell.send(()).unwrap();
            may_go_on.recv().unwrap();
            let read = |tx: &mut Transaction| {
                tx.range(NUMBERS, ..)?.map(|entry| entry.map(|(key, _)| key)).collect::<Result<Vec<u32>>>()
            };
            let first = read(tx)?;
            tell.send(()).unwrap();
            may_go_on.recv().unwrap();
            assert_eq!(read(tx)?, first);
            Ok(first)
        };
        let runs = thread::spawn({
            let db = db.clone();
            move || {
                let plan = db.plan().read_range(NUMBERS, ..).lock_table(OTHERS, TableLock::Shared);
                if submits { plan.submit(body)?.wait() } else { plan.run(body) }
            }
        });
        // It has looked, and waits for the other table.
        let begun = Instant::now();
        while db.waits_for().waits.is_empty() {
            assert!(begun.elapsed() < FAR);
            thread::sleep(Duration::from_millis(1));
        }
        db.transact(|tx| tx.put(NUMBERS, 15, 1)).unwrap();
        gate.commit().unwrap();
        let goes_in = |key: u32| {
            let no_wait = TransactOptions { no_wait: true, ..TransactOptions::default() };
            let mut tx = db.begin_with(&no_wait).unwrap();
            tx.insert(NUMBERS, key, 1).is_ok_and(|_| tx.commit().is_ok())
        };
        told.recv().unwrap();
        assert_eq!([5, 12, 17, 25].map(goes_in), [false, false, true, false], "{submits}");
        let_on.send(()).unwrap();
        told.recv().unwrap();
        assert_eq!([5, 12, 16, 19, 25].map(goes_in), [false; 5], "{submits}");
        let_on.send(()).unwrap();
        assert_eq!(runs.join().unwrap().unwrap(), [10, 15, 17, 20], "{submits}");
        // What was submitted gives its locks back behind the result.
        let patience = TransactOptions { deadline: Some(FAR), ..TransactOptions::default() };
        if submits { assert_lets_in(&db, &patience) } else { assert_at_rest(&db) }
    }
}

/// DB-8: it was a victim where it was to make a table, and that decided the run.
#[test]
fn a_victim_in_reconnaissance_is_none_in_the_run() {
    let disk = FaultyDisk::new();
    let options = Options { deadlock_policy: DeadlockPolicy::NoWait, ..Options::default() };
    let db = Database::builder().options(options).disk(Arc::new(disk.clone())).open("/db").unwrap();
    thread::scope(|scope| {
        disk.hold_syncs(true);
        scope.spawn(|| db.create_table("numbers", "u32", "u64").unwrap());
        // It has locked the name of the table, and will wait for the disk.
        let is_of_a_key =
            |lock: &LockView| !matches!(lock.target, LockTarget::Database | LockTarget::Table { .. });
        let begun = Instant::now();
        while !db.locks().locks.iter().any(is_of_a_key) {
            assert!(begun.elapsed() < FAR, "it locks no name");
            thread::sleep(Duration::from_millis(1));
        }
        let (mut runs, mut victims) = (0, 0);
        let options = TransactOptions { retries: 0, durability: Some(Durability::Lazy), ..planned() };
        let result = db.transact_with(&options, |tx| {
            runs += 1;
            if runs == 2 {
                disk.hold_syncs(false);
                while db.tables().unwrap().is_empty() {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            let put = tx.put(NUMBERS, 1, 1);
            victims += u32::from(matches!(put, Err(Error::Deadlock(_))));
            put
        });
        disk.hold_syncs(false);
        assert!(matches!(result, Ok(false)), "{result:?}");
        assert_eq!((runs, victims), (2, 1));
    });
}

#[test]
fn what_reconnaissance_set_is_as_the_options_say_in_the_run() {
    let db = filled(&[], 2);
    let holder = {
        let mut tx = db.begin().unwrap();
        tx.put(NUMBERS, 0, 5).unwrap();
        tx
    };
    let options = TransactOptions { deadline: Some(Duration::from_millis(50)), ..planned() };
    // Without the reset the run would be refused at once, and would have no deadline.
    let result = db.transact_with(&options, |tx| {
        tx.set_deadline(None);
        tx.set_no_wait(true);
        tx.get(NUMBERS, 0)
    });
    assert!(matches!(result, Err(Error::LockTimeout(_))), "{result:?}");
    let refused = TransactOptions { no_wait: true, ..planned() };
    let result = db.transact_with(&refused, |tx| tx.get(NUMBERS, 0));
    assert!(matches!(result, Err(Error::WouldBlock(_))), "{result:?}");
    holder.rollback().unwrap();
    assert_at_rest(&db);
}

/// It goes through what was written beside the trees, too, and there is nothing of that in the run: it would seem to be
/// at its end.
#[test]
fn a_cursor_of_reconnaissance_is_none_of_the_run() {
    let db = filled(&[], 5);
    let mut kept = None;
    let mut runs = 0;
    let result = db.transact_with(&planned(), |tx| {
        runs += 1;
        let mut cursor = match kept.take() {
            Some(cursor) => cursor,
            None => tx.cursor(NUMBERS, .., Direction::Ascending)?,
        };
        let found = cursor.next(tx)?;
        kept = Some(cursor);
        Ok(found)
    });
    assert!(matches!(result, Err(Error::NotOfThisTransaction { what: "cursor" })), "{result:?}");
    assert_eq!(runs, 2);
    assert_at_rest(&db);
}

/// A cursor that had come to its end went on when something was written behind it, in reconnaissance alone: a body that
/// works through what its cursor gives, adds to it and asks again, ended everywhere else and never there.
#[test]
fn a_cursor_that_has_ended_stays_there() {
    for (execution, direction) in [Execution::Dynamic, Execution::Planned]
        .into_iter()
        .flat_map(|execution| [Direction::Ascending, Direction::Descending].map(|way| (execution, way)))
    {
        let db = open(&[]);
        db.transact(|tx| tx.put(NUMBERS, 1000, 1)).unwrap();
        let options = TransactOptions { execution: Some(execution), ..TransactOptions::default() };
        let mut most = 0;
        let result = db.transact_with(&options, |tx| {
            let mut cursor = tx.cursor(NUMBERS, .., direction)?;
            let (mut work, mut steps) = (Vec::new(), 0);
            loop {
                while let Some((key, _)) = cursor.next(tx)? {
                    work.push(key);
                }
                let Some(key) = work.pop() else { return Ok(()) };
                steps += 1;
                most = most.max(steps);
                if steps == 500 {
                    return Err(Error::application("it does not end"));
                }
                tx.put(NUMBERS, if direction == Direction::Ascending { key + 1 } else { key - 1 }, 1)?;
            }
        });
        result.unwrap();
        assert_eq!(most, 1, "{execution:?}, {direction:?}");
    }
}

#[test]
fn the_option_of_the_database_is_followed() {
    let db = filled(&[("execution", "planned")], 1);
    for (options, expected) in [(TransactOptions::default(), 2), (lazily(Execution::Dynamic), 1)] {
        let mut runs = 0;
        db.transact_with(&options, |_| {
            runs += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(runs, expected);
    }
}

#[test]
fn a_planned_transaction_can_be_cancelled_while_it_waits_for_its_locks() {
    let db = filled(&[], 2);
    let mut holder = db.begin().unwrap();
    holder.put(NUMBERS, 0, 5).unwrap();
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let waiting = scope.spawn({
            let db = &db;
            move || {
                db.transact_with(&planned(), |tx| {
                    sender.send(tx.cancel_handle()).unwrap();
                    tx.put(NUMBERS, 0, 6)
                })
            }
        });
        receiver.recv().unwrap().cancel();
        let result = waiting.join().unwrap();
        assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    });
    holder.rollback().unwrap();
    assert_at_rest(&db);
}

#[test]
fn a_declared_plan_runs_once_and_locks_first() {
    let db = filled(&[], 6);
    let mut runs = 0;
    let sum = db
        .plan()
        .read(NUMBERS, 0)
        .write(NUMBERS, 1)
        .read_range(NUMBERS, 2..4)
        .write_range(NUMBERS, 4..)
        .lock_table(OTHERS, TableLock::Shared)
        .run(|tx| {
            runs += 1;
            // Everything is locked already: others are refused.
            let others = db.begin_with(&TransactOptions { no_wait: true, ..TransactOptions::default() });
            let mut others = others?;
            assert!(others.get(NUMBERS, 3).is_ok());
            for key in [0, 1, 2, 3, 4, 5] {
                assert!(matches!(others.put(NUMBERS, key, 0), Err(Error::WouldBlock(_))), "{key}");
            }
            assert!(matches!(others.get(NUMBERS, 5), Err(Error::WouldBlock(_))));
            assert!(matches!(others.insert(NUMBERS, 9, 0), Err(Error::WouldBlock(_))), "a phantom");
            assert!(matches!(others.put(OTHERS, 9, 0), Err(Error::WouldBlock(_))));
            others.rollback()?;
            tx.put(NUMBERS, 1, 7)?;
            tx.delete(NUMBERS, 5)?;
            tx.range(NUMBERS, ..)?.map(|entry| entry.map(|(_, value)| value)).sum::<Result<u64>>()
        })
        .unwrap();
    assert_eq!((runs, sum), (1, 407));
    assert_eq!(db.stats().plan_misses, 0);
    let too_long = vec![0; 5000];
    const BYTES: TableDefinition<&[u8], u64> = TableDefinition::new("bytes");
    let result = db.plan().write(NUMBERS, 1).write(BYTES, &too_long).read(NUMBERS, 2).run(|_| Ok(()));
    assert!(matches!(result, Err(Error::KeyTooLong { .. })), "{result:?}");
    assert_at_rest(&db);
}

/// More tables than a plan goes through one by one; some of them are not there yet.
#[test]
fn a_plan_names_many_tables() {
    let db = open(&[]);
    let names: Vec<String> = (0..100).map(|table| format!("table {table}")).collect();
    let table = |number: usize| TableDefinition::<u32, u64>::new(&names[number]);
    let there = (0..100).filter(|number| number % 3 > 0);
    db.transact(|tx| there.clone().try_for_each(|number| tx.put(table(number), 1, 1).map(drop))).unwrap();
    let mut plan = db.plan();
    for number in (0..100).chain((0..100).rev()) {
        plan = plan.write(table(number), 1).read(TableDefinition::<u32, u64>::new(&names[number]), 2);
    }
    let mut runs = 0;
    plan.run(|tx| {
        runs += 1;
        // Nobody else comes to any of them.
        for number in 0..100 {
            let mut other = db.begin()?;
            other.set_no_wait(true);
            assert!(matches!(other.put(table(number), 1, 0), Err(Error::WouldBlock(_))), "{number}");
            tx.put(table(number), 1, number as u64)?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!((runs, db.stats().plan_misses), (1, 0));
    let stored = db.read(|tx| (0..100).map(|number| tx.get(table(number), 1)).collect::<Result<Vec<_>>>());
    assert_eq!(stored.unwrap(), (0..100).map(Some).collect::<Vec<_>>());
}

#[test]
fn a_plan_that_is_too_small_is_completed_with_what_is_free() {
    let db = filled(&[], 6);
    let mut runs = 0;
    db.plan()
        .read(NUMBERS, 0)
        .run(|tx| {
            runs += 1;
            tx.put(NUMBERS, 0, 1)?;
            tx.put(NUMBERS, 40, 1)?;
            tx.put(OTHERS, 1, 1)?;
            tx.range(NUMBERS, ..)?.count();
            Ok(())
        })
        .unwrap();
    assert_eq!((runs, db.stats().plan_misses), (1, 0));
    assert_eq!(contents(&db).len(), 7);
    assert_at_rest(&db);
}

/// A key that comes between reconnaissance and run, and is not committed when the run meets it: a miss, not an anomaly.
#[test]
fn a_key_that_appears_after_reconnaissance_is_met_as_a_miss() {
    let db = filled(&[], 4);
    let (mut runs, mut inserter) = (0, None);
    let found: Vec<(u32, u64)> = db
        .transact_with(&planned(), |tx| {
            runs += 1;
            let found = tx.range(NUMBERS, 0..20)?.collect::<Result<Vec<_>>>();
            match runs {
                1 => {
                    assert_eq!(found.as_ref().unwrap().len(), 4);
                    let other = inserter.insert(db.begin()?);
                    other.put(NUMBERS, 10, 1)?;
                }
                2 => {
                    assert!(matches!(found, Err(Error::PlanMiss)), "{found:?}");
                    inserter.take().unwrap().commit()?;
                }
                _ => {}
            }
            found
        })
        .unwrap();
    assert_eq!(found.last(), Some(&(10, 1)), "the phantom is seen, committed");
    assert_eq!((runs, db.stats().plan_misses, db.stats().plan_fallbacks), (3, 1, 0));
    assert_at_rest(&db);
}

/// Once the locks are granted, nobody comes into the gaps of the plan, nor does what reconnaissance saw go away.
#[test]
fn gaps_belong_to_the_footprint() {
    let db = filled(&[], 4);
    db.transact(|tx| tx.delete(NUMBERS, 2)).unwrap();
    let mut runs = 0;
    db.transact_with(&planned(), |tx| {
        runs += 1;
        if runs == 2 {
            let refused = TransactOptions { no_wait: true, ..TransactOptions::default() };
            for key in [2, 7] {
                let mut other = db.begin_with(&refused)?;
                let inserted = other.insert(NUMBERS, key, 0);
                assert!(matches!(inserted, Err(Error::WouldBlock(_))), "{key}: {inserted:?}");
            }
        }
        assert_eq!(tx.get(NUMBERS, 2)?, None);
        assert_eq!(tx.range(NUMBERS, 3..)?.count(), 1);
        Ok(())
    })
    .unwrap();
    assert_eq!((runs, db.stats().plan_misses), (2, 0));
    assert_at_rest(&db);
}

/// The body makes nothing of its error: the miss counts all the same.
#[test]
fn a_miss_that_the_body_swallows_is_a_miss() {
    let db = filled(&[], 4);
    let mut holder = Some(db.begin().unwrap());
    holder.as_mut().unwrap().put(NUMBERS, 3, 7).unwrap();
    let mut runs = 0;
    let value = db
        .plan()
        .read(NUMBERS, 0)
        .run(|tx| {
            runs += 1;
            let value = tx.get(NUMBERS, 3);
            if runs == 1 {
                assert!(matches!(value, Err(Error::PlanMiss)), "{value:?}");
                assert!(matches!(tx.get(NUMBERS, 1), Err(Error::TransactionFailed)));
                holder.take().unwrap().commit()?;
            }
            Ok(value.unwrap_or(None))
        })
        .unwrap();
    assert_eq!((runs, value), (2, Some(7)));
    assert_at_rest(&db);
}

/// A body that touches something else each time never has the right plan. It comes to its end with whole tables, one
/// miss for each that it had not met before.
#[test]
fn a_body_that_no_plan_fits_ends_with_whole_tables() {
    let db = filled(&[], 30);
    db.transact(|tx| tx.put(OTHERS, 0, 0)).unwrap();
    let mut holders: Vec<Option<Transaction>> = (0..9)
        .map(|number| {
            let mut holder = db.begin().unwrap();
            let table = if number < 8 { NUMBERS } else { OTHERS };
            holder.put(table, number, 5).unwrap();
            Some(holder)
        })
        .collect();
    let mut runs = 0;
    let value = db
        .plan()
        .read(NUMBERS, 20)
        .run(|tx| {
            runs += 1;
            let value = if runs <= 8 { tx.get(NUMBERS, runs - 1) } else { tx.get(OTHERS, 8) };
            if let Some(holder) = holders.get_mut(runs as usize - 1) {
                assert!(matches!(value, Err(Error::PlanMiss)), "run {runs}: {value:?}");
                holder.take().unwrap().commit()?;
            } else {
                let mut other =
                    db.begin_with(&TransactOptions { no_wait: true, ..TransactOptions::default() })?;
                for table in [NUMBERS, OTHERS] {
                    assert!(matches!(other.get(table, 25), Err(Error::WouldBlock(_))));
                }
            }
            value
        })
        .unwrap();
    assert_eq!((runs, value), (10, Some(5)));
    assert_eq!((db.stats().plan_misses, db.stats().plan_fallbacks), (9, 1));
    assert_at_rest(&db);
}

/// Moves one from one number to another, in whatever order they come.
fn transfer(tx: &mut Transaction, random: &mut Xorshift, keys: u64) -> Result<()> {
    for change in [u64::MAX, 1] {
        let key = random.below(keys) as u32;
        let value = tx.get(NUMBERS, key)?.unwrap_or(0);
        thread::yield_now();
        tx.put(NUMBERS, key, value.wrapping_add(change))?;
    }
    Ok(())
}

/// Runs `body` in `threads` threads, each `rounds` times, and counts those that ended well.
fn storm(threads: u64, rounds: u64, body: impl Fn(u64, &mut Xorshift) -> Result<()> + Sync) -> u64 {
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..threads {
            let (done, body) = (&done, &body);
            scope.spawn(move || {
                let mut random = Xorshift::new((thread + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
                for _ in 0..rounds {
                    body(thread, &mut random).unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    done.into_inner()
}

fn lazily(execution: Execution) -> TransactOptions {
    TransactOptions {
        execution: Some(execution),
        durability: Some(Durability::Lazy),
        ..TransactOptions::default()
    }
}

/// TXN-17: no cycle closes, under any policy against deadlocks, in either table. The same storm without plans has them.
#[test]
fn planned_transactions_do_not_deadlock() {
    const KEYS: u64 = 4;
    let sum = |db: &Database| contents(db).iter().fold(0, |sum: u64, (_, value)| sum.wrapping_add(*value));
    let run = |db: &Database, execution| {
        storm(6, 60, |_, random| {
            let state = random.clone();
            random.next_u64();
            db.transact_with(&lazily(execution), |tx| transfer(tx, &mut state.clone(), KEYS))
        })
    };
    for (table, policy) in
        [("latched", "dreadlocks"), ("staged", "wait_for_graph"), ("global_mutex", "dreadlocks_sleep")]
    {
        let db = filled(&[("lock_table", table), ("deadlock_policy", policy)], KEYS as u32);
        // Until they have met: on a busy machine they may run one after another.
        let begun = Instant::now();
        loop {
            assert_eq!(run(&db, Execution::Planned), 360);
            if db.stats().lock_waits > 0 || begun.elapsed() > FAR {
                break;
            }
        }
        let stats = db.stats();
        assert_eq!((stats.deadlocks, stats.deadlock_precautions), (0, 0), "{table}, {policy}");
        assert_eq!(sum(&db), 100 * KEYS);
        assert!(stats.lock_waits > 0, "they met");
        assert_at_rest(&db);
    }
    let db = filled(&[], KEYS as u32);
    let begun = Instant::now();
    while db.stats().deadlocks == 0 {
        assert!(begun.elapsed() < FAR, "a storm without deadlocks proves nothing");
        run(&db, Execution::Dynamic);
    }
}

/// Policies that refuse to wait as a precaution have planned transactions run again; they end.
#[test]
fn planned_transactions_end_under_every_policy() {
    for policy in ["wait_die", "wound_wait", "no_wait", "timeout"] {
        let db = filled(&[("deadlock_policy", policy), ("deadlock_timeout", "100ms")], 6);
        let done = storm(4, 30, |_, random| {
            let state = random.clone();
            random.next_u64();
            db.transact_with(&lazily(Execution::Planned), |tx| transfer(tx, &mut state.clone(), 6))
        });
        assert_eq!(done, 120, "{policy}");
        assert_at_rest(&db);
    }
}

/// Each transaction counts the entries and adds one under their number: any phantom would make two of the same number,
/// and the second would find its key taken. Planned, declared and dynamic ones at the same time. How often that
/// happened.
fn count_up(db: &Database) -> u64 {
    let phantoms = AtomicU64::new(0);
    // The table is there: making it is not what this is about.
    db.transact(|tx| tx.get(NUMBERS, 0)).unwrap();
    storm(6, 20, |thread, _| {
        let body = |tx: &mut Transaction| {
            let count = tx.range(NUMBERS, ..)?.count() as u32;
            thread::yield_now();
            tx.insert(NUMBERS, count, 0)
        };
        let inserted = match thread % 3 {
            0 => db.transact_with(&lazily(Execution::Planned), body),
            1 => db.plan().read_range(NUMBERS, ..).options(lazily(Execution::Dynamic)).run(body),
            _ => db.transact_with(&lazily(Execution::Dynamic), body),
        };
        phantoms.fetch_add(u64::from(!inserted?), Ordering::Relaxed);
        Ok(())
    });
    phantoms.into_inner()
}

#[test]
fn no_phantom_comes_between_transactions_of_different_executions() {
    let db = open(&[]);
    assert_eq!(count_up(&db), 0);
    let numbers: Vec<u32> = contents(&db).into_iter().map(|(key, _)| key).collect();
    assert_eq!(numbers, (0..120).collect::<Vec<_>>());
    assert_at_rest(&db);
    let begun = Instant::now();
    while count_up(&open_locking(&[], false)) == 0 {
        assert!(begun.elapsed() < FAR, "without locks there must be phantoms, or this proves nothing");
    }
}

/// Write skew over two tables: whoever finds the sum positive takes one. It never becomes negative.
#[test]
fn no_write_skew_comes_between_transactions_of_different_executions() {
    let db = filled(&[], 2);
    let taken = AtomicU64::new(0);
    storm(6, 50, |thread, random| {
        let key = random.below(2) as u32;
        let execution = if thread % 2 == 0 { Execution::Planned } else { Execution::Dynamic };
        let took = db.transact_with(&lazily(execution), |tx| {
            let values = [tx.get(NUMBERS, 0)?.unwrap() as i64, tx.get(NUMBERS, 1)?.unwrap() as i64];
            thread::yield_now();
            if values[0] + values[1] <= 0 {
                return Ok(false);
            }
            tx.put(NUMBERS, key, (values[key as usize] - 1) as u64)?;
            Ok(true)
        })?;
        taken.fetch_add(u64::from(took), Ordering::Relaxed);
        Ok(())
    });
    let left: i64 = contents(&db).iter().map(|(_, value)| *value as i64).sum();
    assert_eq!((left, taken.into_inner()), (0, 200), "300 tried, 200 were there");
    assert_at_rest(&db);
}

#[test]
fn a_pipeline_runs_planned_transactions_too() {
    for release in ["shared_and_exclusive", "shared", "off"] {
        let db = filled(&[("early_lock_release", release)], 3);
        storm(3, 20, |_, _| {
            let mut pipeline = db.pipeline();
            let mut tickets = Vec::new();
            for key in 0..3 {
                let (_, ticket) = pipeline.transact_with(&planned(), |tx| {
                    let value = tx.get(NUMBERS, key)?.unwrap();
                    tx.put(NUMBERS, key, value + 1)
                })?;
                tickets.push(ticket);
            }
            tickets.iter().try_for_each(foreshore::CommitTicket::wait)
        });
        assert_eq!(contents(&db), [(0, 160), (1, 160), (2, 160)], "{release}");
        // What is not released early is given back behind the tickets.
        let patient = TransactOptions { deadline: Some(FAR), ..TransactOptions::default() };
        db.transact_with(&patient, |tx| tx.lock_table(NUMBERS, TableLock::Exclusive)).unwrap();
        assert_at_rest(&db);
    }
}

/// Many keys of one table are locked as the table, in their order, before the run.
#[test]
fn a_large_footprint_locks_the_table() {
    let db = filled(&[("escalation_locks", "100")], 300);
    let mut runs = 0;
    db.transact_with(&planned(), |tx| {
        runs += 1;
        if runs == 2 {
            let refused = TransactOptions { no_wait: true, ..TransactOptions::default() };
            let mut other = db.begin_with(&refused)?;
            assert!(matches!(other.put(NUMBERS, 1000, 0), Err(Error::WouldBlock(_))));
        }
        tx.range(NUMBERS, ..)?.try_for_each(|entry| entry.map(drop))
    })
    .unwrap();
    assert_eq!(runs, 2);
    assert_at_rest(&db);
}

/// A transaction that a body puts aside in its reconnaissance, another in its place, has done nothing, and does not say
/// that it has.
#[test]
fn a_transaction_that_was_taken_out_of_its_plan_cannot_commit() {
    let db = filled(&[], 4);
    let planned = TransactOptions { execution: Some(Execution::Planned), ..TransactOptions::default() };
    let mut kept = None;
    let mut others = Vec::new();
    db.transact_with(&planned, |tx| {
        if kept.is_none() {
            kept = Some(std::mem::replace(tx, db.begin()?));
        }
        others.push(tx.get(NUMBERS, 0)?);
        Ok(())
    })
    .unwrap();
    let mut kept = kept.unwrap();
    let done = kept.put(NUMBERS, 1, 1).and_then(|_| kept.commit());
    assert!(done.is_err());
    assert_eq!(db.transact(|tx| tx.get(NUMBERS, 1)).unwrap(), Some(100));
    assert!(others.iter().all(|found| *found == Some(100)));
}

/// Nor does one that comes back into its place, in the run: that was told that all was committed, and nothing was.
#[test]
fn a_transaction_that_comes_back_from_its_reconnaissance_cannot_commit() {
    let db = filled(&[], 4);
    for submitted in [false, true] {
        let (own, mut kept) = (db.clone(), None);
        let mut runs = 0;
        let body = move |tx: &mut Transaction| {
            runs += 1;
            if runs == 1 {
                kept = Some(std::mem::replace(tx, own.begin()?));
            } else if let Some(kept) = kept.take() {
                *tx = kept;
            }
            tx.put(NUMBERS, 1, 1).map(drop)
        };
        let done = match submitted {
            true => db.plan().submit(body).unwrap().wait(),
            false => db.transact_with(&planned(), body),
        };
        assert!(matches!(done, Err(Error::TransactionFailed)), "{done:?}");
        assert_eq!(db.transact(|tx| tx.get(NUMBERS, 1)).unwrap(), Some(100));
    }
}

/// What was named and forgotten is nothing to a plan: a table that was dropped since was made again, or the plan failed
/// for want of it.
#[test]
fn a_table_that_a_plan_has_forgotten_stays_dropped() {
    for encoded in [false, true] {
        let db = filled(&[], 3);
        let plan = match encoded {
            true => db.plan().read(TableDefinition::encoded("numbers"), &b"key"[..]),
            false => db.plan().write(NUMBERS, 1),
        };
        let plan = plan.by_reconnaissance().write(OTHERS, 1);
        db.drop_table("numbers").unwrap();
        plan.run(|tx| tx.put(OTHERS, 1, 1).map(drop)).unwrap();
        let names: Vec<_> = db.tables().unwrap().into_iter().map(|table| table.name).collect();
        assert_eq!(names, ["others"]);
    }
}

/// One that was never there was made, and one that was dropped failed.
#[test]
fn a_table_that_was_dropped_since_it_was_named_is_made() {
    let db = filled(&[], 3);
    let plan = db.plan().write(NUMBERS, 1);
    db.drop_table("numbers").unwrap();
    plan.run(|tx| tx.put(NUMBERS, 1, 5).map(drop)).unwrap();
    let found = db.transact(|tx| Ok([tx.get(NUMBERS, 0)?, tx.get(NUMBERS, 1)?])).unwrap();
    assert_eq!(found, [None, Some(5)]);
}

/// It was made, too, though such a definition never makes one; one that is there again serves, whatever its types.
#[test]
fn a_table_without_types_that_was_dropped_since_it_was_named_is_not_made() {
    let db = filled(&[], 3);
    let [gone, again] = [(); 2].map(|()| db.plan().read(TableDefinition::encoded("numbers"), &b"key"[..]));
    db.drop_table("numbers").unwrap();
    assert!(matches!(gone.run(|_| Ok(())), Err(Error::NoSuchTable { .. })));
    assert!(db.tables().unwrap().is_empty());
    db.create_table("numbers", "str", "bytes").unwrap();
    again.run(|_| Ok(())).unwrap();
}

/// A first run read whole values to find out what is locked with their keys; so did the look of a plan at its ranges.
#[test]
fn a_first_run_reads_no_values_that_nobody_wants() {
    const VALUES: TableDefinition<u32, &[u8]> = TableDefinition::new("values");
    const COUNT: u32 = 20;
    let db = open(&[]);
    let value = vec![7; 400_000];
    (0..COUNT).for_each(|key| db.transact(|tx| tx.put(VALUES, key, &value[..]).map(drop)).unwrap());
    let through = |tx: &mut Transaction| {
        let mut cursor = tx.cursor(VALUES, .., Direction::Ascending)?;
        let mut count = 0;
        while cursor.next_key(tx)?.is_some() {
            count += 1;
        }
        Ok(count)
    };
    let loads = |work: &dyn Fn() -> u32| {
        let before = db.stats();
        assert_eq!(work(), COUNT);
        let after = db.stats();
        after.pool_loads + after.pool_read_ahead - before.pool_loads - before.pool_read_ahead
    };
    let found_out = loads(&|| db.transact_with(&planned(), through).unwrap());
    let declared = loads(&|| db.plan().read_range(VALUES, ..).run(through).unwrap());
    assert!(found_out < 20 && declared < 20, "{found_out} {declared}");
}

/// A first run kept in memory whatever the body wrote, without a limit.
#[test]
fn a_first_run_that_writes_too_much_ends_early_and_the_run_does_the_rest() {
    const VALUES: TableDefinition<u32, &[u8]> = TableDefinition::new("values");
    let db = open(&[("log_bytes", "512MiB")]);
    let value = vec![7; 500_000];
    let mut runs = Vec::new();
    let result = db.transact_with(&planned(), |tx| {
        runs.push(0);
        for key in 0..100 {
            tx.put(VALUES, key, &value[..])?;
            *runs.last_mut().unwrap() += 1;
        }
        Ok(())
    });
    result.unwrap();
    assert!(runs.len() == 2 && (30..40).contains(&runs[0]) && runs[1] == 100, "{runs:?}");
    // What a plan names is not so limited, but for the locks that it may have.
    let db = open(&[("max_locks_per_transaction", "1000"), ("escalation_locks", "0")]);
    for part in 0..6 {
        let mut keys = part * 500..(part + 1) * 500;
        db.transact(|tx| keys.try_for_each(|key| tx.put(NUMBERS, key, 100).map(drop))).unwrap();
    }
    let refused = db.plan().read_range(NUMBERS, ..).run(|tx| Ok(tx.range(NUMBERS, ..)?.count()));
    assert!(matches!(refused, Err(Error::TooManyLocks { limit: 1000, .. })), "{refused:?}");
    let mut seen = Vec::new();
    let refused = db.transact_with(&planned(), |tx| {
        let mut cursor = tx.cursor(NUMBERS, .., Direction::Ascending)?;
        seen.push(0);
        while cursor.next(tx)?.is_some() {
            *seen.last_mut().unwrap() += 1;
        }
        Ok(())
    });
    assert!(matches!(refused, Err(Error::TooManyLocks { limit: 1000, .. })), "{refused:?}");
    assert!(seen.len() == 1 && (500..2900).contains(&seen[0]), "{seen:?}");
    assert_at_rest(&db);
}
