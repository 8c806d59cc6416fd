//! Cursors that pass over what others have locked.

use std::{collections::BTreeSet, ops::Bound};

use foreshore_env::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use foreshore_testkit::FaultyDisk;
use foreshore_txn::{
    BeginOptions, Direction, Durability, Engine, EngineOptions, LatchMode, LockKind, TableInfo, Txn,
    TxnCursor, TxnError,
};

use crate::{assert_sound, begin, open, open_with, put, tiny};

fn key(number: u8) -> [u8; 1] {
    [number]
}

fn skipping(txn: &mut Txn, table: &TableInfo, direction: Direction) -> TxnCursor {
    let whole = (Bound::Unbounded, Bound::Unbounded);
    txn.cursor(table, whole, direction, LockKind::Exclusive).unwrap().skip_locked()
}

/// The numbers of all that such a cursor gives, in its order. It never waits.
fn rest(txn: &mut Txn, cursor: &mut TxnCursor) -> Result<Vec<u8>, TxnError> {
    txn.set_no_wait(true);
    let mut numbers = Vec::new();
    while txn.advance(cursor)? {
        numbers.push(cursor.key()[0]);
    }
    txn.set_no_wait(false);
    Ok(numbers)
}

fn all(txn: &mut Txn, table: &TableInfo, direction: Direction) -> Vec<u8> {
    let mut cursor = skipping(txn, table, direction);
    let mut numbers = rest(txn, &mut cursor).unwrap();
    assert!(match direction {
        Direction::Ascending => numbers.is_sorted(),
        Direction::Descending => numbers.iter().rev().is_sorted(),
    });
    numbers.sort_unstable();
    numbers
}

/// Records 0, 2, … 118.
fn table(options: &EngineOptions) -> (Arc<Engine>, TableInfo) {
    let engine = open_with(&FaultyDisk::new(), options).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    (0..60).for_each(|number| put(&engine, &table, &key(2 * number), b"value"));
    (engine, table)
}

#[test]
fn what_others_have_locked_is_passed_over() {
    // In leaves of four, and in one leaf, of which only some are looked at together.
    for (latch_mode, node_capacity) in [
        (LatchMode::Hybrid, 4),
        (LatchMode::Hybrid, usize::MAX),
        (LatchMode::AlwaysShared, 4),
        (LatchMode::AlwaysShared, usize::MAX),
    ] {
        for direction in [Direction::Ascending, Direction::Descending] {
            let (engine, table) = table(&EngineOptions { latch_mode, node_capacity, ..tiny() });
            let mut other = begin(&engine);
            // Read, read to be changed, changed, deleted, inserted, and a run of more than is looked at together.
            let locked = [0, 6, 10, 14].into_iter();
            let locked: BTreeSet<u8> = locked.chain((40..100).step_by(2)).chain([118]).collect();
            other.get(&table, &key(0), |_| ()).unwrap().unwrap();
            other.get_for_update(&table, &key(6), |_| ()).unwrap().unwrap();
            other.put(&table, &key(10), b"changed").unwrap();
            other.delete(&table, &key(14)).unwrap();
            other.insert(&table, &key(15), b"new").unwrap();
            for number in locked.range(40..) {
                other.get_for_update(&table, &key(*number), |_| ()).unwrap().unwrap();
            }
            let free: Vec<_> =
                (0..60).map(|number| 2 * number).filter(|number| !locked.contains(number)).collect();

            let mut first = begin(&engine);
            assert_eq!(all(&mut first, &table, direction), free, "{latch_mode:?} {direction:?}");
            // What it has itself is free.
            assert_eq!(all(&mut first, &table, direction), free);
            // Nothing is locked but what it gave: neither what was passed over nor any gap.
            other.set_no_wait(true);
            other.put(&table, &key(6), b"again").unwrap();
            for number in [1, 25, 61, 117, 119] {
                assert!(other.insert(&table, &key(number), b"new").unwrap());
            }
            assert!(other.put(&table, &key(2), b"not yet").is_err());
            assert_eq!(all(&mut begin(&engine), &table, direction), [0_u8; 0]);
            other.rollback().unwrap();
            // What is given back is found again, what was deleted too, and not what was inserted.
            assert_eq!(all(&mut begin(&engine), &table, direction), Vec::from_iter(locked));
            first.rollback().unwrap();
            assert_sound(&engine, "at the end");
        }
    }
}

/// One step locks one record, also where many are free.
#[test]
fn no_more_is_locked_than_is_given() {
    let (engine, table) = table(&tiny());
    let mut txns: Vec<_> = (0..60).map(|_| begin(&engine)).collect();
    for (number, txn) in (0..).zip(&mut txns) {
        let mut cursor = skipping(txn, &table, Direction::Ascending);
        txn.set_no_wait(true);
        assert!(txn.advance(&mut cursor).unwrap());
        assert_eq!(cursor.key(), key(2 * number));
        // It has changed what it got, and goes on behind it.
        txn.set_no_wait(false);
        txn.delete(&table, &key(2 * number)).unwrap();
        assert_eq!(cursor.value(), b"value");
    }
    let mut late = begin(&engine);
    assert_eq!(all(&mut late, &table, Direction::Ascending), [0_u8; 0]);
    for (number, txn) in txns.into_iter().enumerate() {
        match number % 2 {
            0 => drop(txn.commit(Durability::Lazy).unwrap()),
            _ => txn.rollback().unwrap(),
        }
    }
    let left: Vec<u8> = (0..30).map(|number| 4 * number + 2).collect();
    assert_eq!(all(&mut late, &table, Direction::Descending), left);
    late.commit(Durability::Sync).unwrap();
    assert_sound(&engine, "at the end");
}

/// Workers who all hold an entry while they work, some of whom fail: each entry is done once.
#[test]
fn a_queue_is_emptied_by_many_at_a_time() {
    const WORKERS: usize = 6;
    const JOBS: u16 = 300;
    let engine = open(&FaultyDisk::new()).unwrap();
    let table = engine.create_table("jobs", b"").unwrap();
    (0..JOBS).for_each(|job| put(&engine, &table, &job.to_be_bytes(), b"to do"));
    let (together, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (engine, table, together, done) = (&engine, &table, &together, &done);
            scope.spawn(move || {
                let begun = Instant::now();
                for round in 0.. {
                    let mut txn = engine.begin(BeginOptions::default()).unwrap();
                    let mut cursor = skipping(&mut txn, table, Direction::Ascending);
                    if !txn.advance(&mut cursor).unwrap() {
                        // Perhaps others have the last ones, and will fail.
                        let is_over = done.lock().len() == usize::from(JOBS);
                        assert!(is_over || begun.elapsed() < Duration::from_secs(60));
                        if is_over {
                            break;
                        }
                        thread::yield_now();
                        continue;
                    }
                    if round == 0 {
                        // Nobody waits for anybody: all get here, each with an entry.
                        together.fetch_add(1, Ordering::Relaxed);
                        while together.load(Ordering::Relaxed) < WORKERS {
                            assert!(begun.elapsed() < Duration::from_secs(60));
                            thread::yield_now();
                        }
                    }
                    let job = cursor.key().to_vec();
                    assert!(txn.delete(table, &job).unwrap());
                    if (round + worker).is_multiple_of(5) {
                        txn.rollback().unwrap();
                        continue;
                    }
                    txn.commit(Durability::Lazy).unwrap();
                    done.lock().push(job);
                }
            });
        }
    });
    let mut done = done.into_inner();
    done.sort_unstable();
    assert_eq!(done, (0..JOBS).map(|job| job.to_be_bytes().to_vec()).collect::<Vec<_>>());
    assert_sound(&engine, "at the end");
}
