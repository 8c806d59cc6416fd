//! Finger search: between a read and the write that follows it, others change the leaf that the read found.

use std::{collections::BTreeMap, ops::Bound};

use foreshore_lock::LockError;
use foreshore_testkit::FaultyDisk;
use foreshore_txn::{Direction, Durability, LockKind, TxnError};

use crate::{assert_sound, begin, get, open, put, read_all};

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// With four records to a node every few keys split a leaf, and every few deleted ones merge two.
#[test]
fn a_leaf_that_splits_or_merges_between_read_and_write_misleads_nobody() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let mut expected = BTreeMap::new();
    for number in (0..400).step_by(10) {
        put(&engine, &table, &key(number), b"old");
        expected.insert(key(number), b"old".to_vec());
    }
    for number in (0..400).step_by(10) {
        let mut txn = begin(&engine);
        assert!(txn.get_for_update(&table, &key(number), |_| ()).unwrap().is_some());
        // Splits on one side, merges on the other: the key that was read stays, its leaf does not.
        for near in 1..9 {
            put(&engine, &table, &key(number + near), b"new");
            expected.insert(key(number + near), b"new".to_vec());
        }
        let mut other = begin(&engine);
        for far in number.saturating_sub(39)..number {
            if other.delete(&table, &key(far)).unwrap() {
                assert!(expected.remove(&key(far)).is_some());
            }
        }
        other.commit(Durability::Sync).unwrap();
        txn.put(&table, &key(number), b"mine").unwrap();
        // Of the same table, and mostly in another leaf.
        txn.put(&table, &key(number + 9), b"mine").unwrap();
        assert_eq!(get(&mut txn, &table, &key(number)).unwrap().as_deref(), Some(&b"mine"[..]));
        txn.commit(Durability::Sync).unwrap();
        expected.insert(key(number), b"mine".to_vec());
        expected.insert(key(number + 9), b"mine".to_vec());
    }
    let found: BTreeMap<_, _> =
        read_all(&engine).unwrap().into_iter().map(|((_, key), value)| (key, value)).collect();
    let expected: BTreeMap<_, _> = expected.into_iter().map(|(key, value)| (key.to_vec(), value)).collect();
    assert_eq!(found, expected);
    assert_sound(&engine, "fingers");
}

/// A transaction that adds one key behind another has the lock on the key below the gap at hand. Whether others have
/// the gap it asks all the same.
#[test]
fn a_key_behind_the_last_one_waits_for_whoever_has_read_the_gap() {
    let engine = open(&FaultyDisk::new()).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let mut writer = begin(&engine);
    writer.set_no_wait(true);
    for last in (0..100).step_by(10) {
        assert!(writer.insert(&table, &key(last), b"value").unwrap());
        assert!(writer.insert(&table, &key(last + 1), b"value").unwrap());
        let mut reader = begin(&engine);
        let (low, high) = (key(last + 1), key(last + 9));
        let gap = (Bound::Excluded(&low[..]), Bound::Excluded(&high[..]));
        let mut cursor = reader.cursor(&table, gap, Direction::Ascending, LockKind::Shared).unwrap();
        assert!(!reader.next(&mut cursor, &mut Vec::new(), &mut Vec::new()).unwrap());
        let refused = writer.insert(&table, &key(last + 5), b"value");
        assert!(matches!(refused, Err(TxnError::Lock(LockError::WouldBlock(_)))), "{last}: {refused:?}");
        reader.commit(Durability::Sync).unwrap();
        assert!(writer.insert(&table, &key(last + 5), b"value").unwrap());
    }
    writer.commit(Durability::Sync).unwrap();
    assert_sound(&engine, "keys behind one another");
}

/// The finger is on the key before the last when ghosts are taken away under the latch: in its slot is another key
/// then.
#[test]
fn a_purge_moves_what_the_finger_is_on() {
    let engine = open(&FaultyDisk::new()).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    for number in [10, 30, 40] {
        put(&engine, &table, &key(number), b"old");
    }
    let mut other = begin(&engine);
    assert!(other.delete(&table, &key(10)).unwrap());
    other.commit(Durability::Sync).unwrap();
    let mut writer = begin(&engine);
    assert!(writer.insert(&table, &key(20), b"value").unwrap());
    assert!(writer.insert(&table, &key(35), b"value").unwrap());
    writer.commit(Durability::Sync).unwrap();
    assert_sound(&engine, "a purge below the finger");
}
