//! The longest keys and values, and one more; how full pages get; what a cursor locks.

use std::ops::Bound;

use foreshore_base::{
    StorageError, TxnId,
    limits::{MAX_INLINE_VALUE_BYTES, MAX_KEY_BYTES, MAX_TREE_LEVELS, MAX_VALUE_BYTES, OVERFLOW_CHUNK_BYTES},
};
use foreshore_env::random::Xorshift;
use foreshore_latch::Patience;
use foreshore_wal::Urgency;

use super::support::{Locking, Rig, lock_manager, scan};
use crate::{Direction, Isolation, LockKind, NoLocks, TreeError, VerifyReport};

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

fn session() -> NoLocks {
    NoLocks::new(TxnId(1))
}

/// Keys of the greatest length that begin differently: no prefix helps, and a leaf holds one or two of them.
#[test]
fn the_longest_keys_and_values_fit_in_any_order() {
    let long = |number: u16| {
        let mut key = number.to_be_bytes().to_vec();
        key.resize(MAX_KEY_BYTES, number as u8);
        key
    };
    for (order, value_bytes) in
        [(0, MAX_INLINE_VALUE_BYTES), (1, 0), (2, MAX_INLINE_VALUE_BYTES), (2, 0), (2, 1000)]
    {
        let rig = Rig::new(usize::MAX);
        let mut numbers: Vec<u16> = (0..150).map(|number| number * 401).collect();
        let mut random = Xorshift::new(5);
        match order {
            0 => {}
            1 => numbers.reverse(),
            _ => numbers.sort_by_cached_key(|_| random.next_u64()),
        }
        let mut session = session();
        for number in &numbers {
            // Every other value begins short and grows.
            let first = if number % 2 == 0 { value_bytes } else { value_bytes / 3 };
            assert!(rig.tree.insert(&mut session, &long(*number), &vec![1; first]).unwrap());
        }
        for number in &numbers {
            assert!(rig.tree.update(&mut session, &long(*number), &vec![2; value_bytes]).unwrap());
        }
        let report = rig.verify();
        assert!(report.levels > 3, "{report:?}");
        let ascending = scan(&rig.tree, &mut session, ALL, Direction::Ascending).unwrap();
        let mut descending = scan(&rig.tree, &mut session, ALL, Direction::Descending).unwrap();
        descending.reverse();
        assert_eq!(ascending, descending);
        numbers.sort_unstable();
        assert!(
            ascending.iter().map(|(key, _)| key).eq(numbers
                .iter()
                .map(|number| long(*number))
                .collect::<Vec<_>>()
                .iter())
        );
        assert!(ascending.iter().all(|(_, value)| *value == vec![2; value_bytes]));
        // And all the way back to a single page.
        for number in &numbers {
            assert!(rig.tree.delete(&mut session, &long(*number)).unwrap());
        }
        for _ in 0..2 {
            for number in &numbers {
                rig.maintain(&mut session, &long(*number));
            }
        }
        let report = rig.verify();
        assert_eq!((report.pages, report.levels, report.ghosts), (1, 1, 0), "{report:?}");
    }
}

#[test]
fn one_byte_more_is_an_error() {
    let rig = Rig::new(usize::MAX);
    let mut session = session();
    let long = vec![0; MAX_KEY_BYTES + 1];
    let limit = |result: Result<bool, TreeError>| {
        assert!(matches!(result, Err(TreeError::Storage(StorageError::LimitExceeded { .. }))), "{result:?}");
    };
    limit(rig.tree.insert(&mut session, &long, b""));
    limit(rig.tree.put(&mut session, &long, b""));
    limit(rig.tree.delete(&mut session, &long));
    limit(rig.tree.put(&mut session, b"k", &vec![0; MAX_VALUE_BYTES + 1]));
    // A key that cannot exist is not there.
    assert!(rig.tree.get(&mut session, &long, Isolation::Serializable, |_| ()).unwrap().is_none());
    assert!(rig.tree.insert(&mut session, b"", b"").unwrap());
    assert_eq!(scan(&rig.tree, &mut session, ALL, Direction::Descending).unwrap(), [(vec![], vec![])]);
}

/// A tree that has as many levels as there may be works, and grows no further.
#[test]
fn a_tree_has_no_more_levels_than_it_may_have() {
    let rig = Rig::new(usize::MAX);
    let mut session = session();
    assert!(rig.tree.insert(&mut session, b"first", b"1").unwrap());
    for levels in 2..=MAX_TREE_LEVELS + 2 {
        let root = rig.env.pool.exclusive(rig.tree.root()).unwrap();
        match rig.tree.tree().grow(Patience::ENDLESS, root, Urgency::Work) {
            Ok(()) => assert!(levels <= MAX_TREE_LEVELS, "{levels} levels"),
            Err(StorageError::LimitExceeded { limit, got, .. }) => {
                assert!(levels > MAX_TREE_LEVELS, "{levels} levels");
                assert_eq!((limit, got), (MAX_TREE_LEVELS as u64, MAX_TREE_LEVELS as u64 + 1));
            }
            Err(error) => panic!("{levels} levels: {error}"),
        }
        let key = [levels as u8];
        assert!(rig.tree.insert(&mut session, &key, b"2").unwrap());
        assert!(rig.tree.get(&mut session, &key, Isolation::Serializable, |_| ()).unwrap().is_some());
        assert_eq!(rig.verify().levels, levels.min(MAX_TREE_LEVELS) as u64);
    }
    let all = scan(&rig.tree, &mut session, ALL, Direction::Descending).unwrap();
    assert_eq!(all.len(), MAX_TREE_LEVELS + 2);
}

/// An inner node has room for two children if the keys are as long as they may be, share nothing and come in no order,
/// and half of the nodes have one. Even so a tree of all pages that there may be is not too deep: its depth grows with
/// the logarithm.
#[test]
fn the_longest_keys_make_no_tree_that_is_too_deep() {
    let rig = Rig::with_frames(usize::MAX, 16_384);
    let mut session = session();
    let mut random = Xorshift::new(7);
    for _ in 0..2000 {
        let key: Vec<u8> = (0..MAX_KEY_BYTES / 8).flat_map(|_| random.next_u64().to_be_bytes()).collect();
        assert!(rig.tree.insert(&mut session, &key, b"").unwrap());
    }
    let report = rig.verify();
    let levels = report.levels as usize;
    assert!(levels * 2 < MAX_TREE_LEVELS, "{report:?}");
}

#[test]
fn long_values_live_in_chunks() {
    let rig = Rig::new(usize::MAX);
    let mut session = session();
    let lengths = [
        MAX_INLINE_VALUE_BYTES,
        MAX_INLINE_VALUE_BYTES + 1,
        2 * OVERFLOW_CHUNK_BYTES,
        2 * OVERFLOW_CHUNK_BYTES + 1,
        300_000,
    ];
    let value = |length: usize, seed: u8| (0..length).map(|at| (at % 251) as u8 ^ seed).collect::<Vec<u8>>();
    for (key, length) in (0..).zip(lengths) {
        assert!(rig.tree.insert(&mut session, &[key], &value(length, 1)).unwrap());
        assert!(!rig.tree.insert(&mut session, &[key], &value(length, 2)).unwrap());
    }
    assert!(!rig.tree.update(&mut session, b"none", &value(9_000, 1)).unwrap());
    assert_eq!(rig.verify().long_values, 4);
    let chunks = |rig: &Rig| {
        let mut report = VerifyReport::default();
        rig.overflow.verify(&mut report).unwrap();
        report.records
    };
    let expected: usize = lengths[1..].iter().map(|length| length.div_ceil(OVERFLOW_CHUNK_BYTES)).sum();
    assert_eq!(chunks(&rig) as usize, expected);
    for (key, length) in (0..).zip(lengths) {
        let got = rig.tree.get(&mut session, &[key], Isolation::Serializable, <[u8]>::to_vec).unwrap();
        assert_eq!(got.unwrap(), value(length, 1));
    }
    let all = scan(&rig.tree, &mut session, ALL, Direction::Descending).unwrap();
    assert!(all.iter().rev().zip(lengths).all(|((_, got), length)| *got == value(length, 1)));
    // Short over long, long over long, gone.
    assert!(rig.tree.put(&mut session, &[4], b"short").unwrap());
    assert!(rig.tree.update(&mut session, &[3], &value(5000, 9)).unwrap());
    assert!(rig.tree.delete(&mut session, &[2]).unwrap());
    assert!(rig.tree.delete(&mut session, &[1]).unwrap());
    assert_eq!(chunks(&rig) as usize, 5000_usize.div_ceil(OVERFLOW_CHUNK_BYTES));
    let got = rig.tree.get(&mut session, &[3], Isolation::Serializable, <[u8]>::to_vec).unwrap();
    assert_eq!(got.unwrap(), value(5000, 9));
    assert!(crate::BTree::last_overflow_id(&rig.env, rig.overflow.root()).unwrap() >= 5);
}

#[test]
fn pages_are_well_filled() {
    for (random_order, least_percent) in [(false, 90), (true, 60)] {
        let rig = Rig::new(usize::MAX);
        let mut numbers: Vec<u64> = (0..20_000).collect();
        if random_order {
            let mut random = Xorshift::new(3);
            numbers.sort_by_cached_key(|_| random.next_u64());
        }
        let mut session = session();
        for number in numbers {
            assert!(rig.tree.insert(&mut session, &number.to_be_bytes(), &[5; 100]).unwrap());
        }
        let report = rig.verify();
        let percent = report.bytes_used * 100 / (report.bytes_used + report.bytes_free);
        println!("random {random_order}: {percent} % of {} pages", report.pages);
        assert!(percent >= least_percent, "{percent} %");
        assert_eq!(report.foster_children, 0);
    }
}

/// Sixteen runs of ascending keys, all but the last in the middle of the table, turn by turn: the orders of districts,
/// the rows of devices.
#[test]
fn runs_of_ascending_keys_fill_their_leaves() {
    for a_turn in [1_u32, 7] {
        let rig = Rig::new(usize::MAX);
        let mut session = session();
        for turn in 0..2_000 / a_turn {
            for run in 0..16_u32 {
                for number in (turn * a_turn..).take(a_turn as usize) {
                    let key = [run.to_be_bytes(), number.to_be_bytes()].concat();
                    assert!(rig.tree.insert(&mut session, &key, &[5; 100]).unwrap());
                }
            }
        }
        let report = rig.verify();
        let percent = report.bytes_used * 100 / (report.bytes_used + report.bytes_free);
        println!("{a_turn} a turn: {percent} % of {} pages", report.pages);
        assert!(percent >= 85, "{percent} %");
    }
}

/// A cursor that is left early has locked little more than it gave, and one that is not has locked each key once.
#[test]
fn cursors_lock_what_they_give() {
    let rig = Rig::new(usize::MAX);
    for number in 0..1000_u32 {
        rig.tree.insert(&mut session(), &number.to_be_bytes(), b"v").unwrap();
    }
    let manager = lock_manager();
    for wanted in [1, 2, 5, 100, 1000] {
        let mut reader = Locking::begin(&manager, wanted as u64);
        let mut cursor =
            rig.tree.cursor(ALL, Direction::Ascending, LockKind::Shared, Isolation::Serializable);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for number in 0..wanted {
            assert!(cursor.next(&mut reader, &mut key, &mut value).unwrap());
            assert_eq!(key, (number as u32).to_be_bytes());
        }
        let locks = reader.owner.lock_count();
        assert!(locks > wanted && locks <= 2 * wanted + 12, "{locks} locks for {wanted} records");
    }
    let mut reader = Locking::begin(&manager, 9);
    let mut cursor = rig.tree.cursor(ALL, Direction::Ascending, LockKind::Shared, Isolation::ReadCommitted);
    let (mut key, mut value) = (Vec::new(), Vec::new());
    while cursor.next(&mut reader, &mut key, &mut value).unwrap() {}
    assert_eq!(reader.owner.lock_count(), 1000);
    assert!(!cursor.next(&mut reader, &mut key, &mut value).unwrap());
}

/// A cursor sees what its own transaction does ahead of it, and none of it twice.
#[test]
fn cursors_see_their_own_transaction() {
    for direction in [Direction::Ascending, Direction::Descending] {
        let rig = Rig::new(4);
        let mut session = session();
        for number in 0..100_u8 {
            rig.tree.insert(&mut session, &[number], b"old").unwrap();
        }
        let mut cursor = rig.tree.cursor(ALL, direction, LockKind::Exclusive, Isolation::Serializable);
        let ahead = |number: u8, by: u8| match direction {
            Direction::Ascending => number.checked_add(by).filter(|number| *number < 200),
            Direction::Descending => number.checked_sub(by),
        };
        let (mut key, mut value, mut seen) = (Vec::new(), Vec::new(), Vec::new());
        while cursor.next(&mut session, &mut key, &mut value).unwrap() {
            let number = key[0];
            seen.push((number, value.clone()));
            // The one just met goes; the next but one is new; the next changes.
            rig.tree.delete(&mut session, &[number]).unwrap();
            if let Some(next) = ahead(number, 2) {
                rig.tree.delete(&mut session, &[next]).unwrap();
            }
            if let Some(next) = ahead(number, 1) {
                rig.tree.put(&mut session, &[next], b"new").unwrap();
            }
        }
        let expected: Vec<(u8, Vec<u8>)> = match direction {
            Direction::Ascending => (0..200)
                .map(|number| (number, if number == 0 { b"old".to_vec() } else { b"new".to_vec() }))
                .collect(),
            Direction::Descending => (0..100)
                .rev()
                .map(|number| (number, if number == 99 { b"old".to_vec() } else { b"new".to_vec() }))
                .collect(),
        };
        assert_eq!(seen, expected);
        assert!(rig.contents().is_empty());
        rig.verify();
    }
}

/// A cursor reads ahead for its transaction to look, not to change what it has just been given: then it would read, and
/// lock, the same keys again and again.
#[test]
fn who_changes_each_record_that_it_meets_locks_few_at_a_time() {
    const ROWS: u64 = 2000;
    for direction in [Direction::Ascending, Direction::Descending] {
        let rig = Rig::new(usize::MAX);
        let mut session = session();
        for row in 0..ROWS {
            assert!(rig.tree.insert(&mut session, &row.to_be_bytes(), &[7; 60]).unwrap());
        }
        let mut session = Locking::begin(&lock_manager(), 2);
        let mut cursor = rig.tree.cursor(ALL, direction, LockKind::Exclusive, Isolation::Serializable);
        let (mut key, mut value, mut rows) = (Vec::new(), Vec::new(), 0);
        while cursor.next(&mut session, &mut key, &mut value).unwrap() {
            rows += 1;
            // The first half is looked at.
            if rows > ROWS / 2 {
                assert!(rig.tree.delete(&mut session, &key).unwrap());
            }
        }
        assert_eq!(rows, ROWS);
        assert!(session.acquires < 4 * ROWS as usize, "{} locks for {ROWS} records", session.acquires);
    }
}
