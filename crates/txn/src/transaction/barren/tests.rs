use std::{collections::BTreeMap, path::Path};

use foreshore_btree::{Append, LockKind};
use foreshore_env::{disk::Disk, sync::Arc};
use foreshore_lock::LockError;
use foreshore_testkit::FaultyDisk;

use super::*;
use crate::{BeginOptions, Durability, Engine, EngineOptions, TableInfo, Txn, TxnError};

const EVERYTHING: (Near<'static>, Near<'static>) = (Bound::Unbounded, Bound::Unbounded);

fn open() -> (Arc<Engine>, TableInfo) {
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
    let engine = Engine::open(disk, Path::new("db"), &EngineOptions::default()).unwrap();
    let table = engine.create_table("table", b"").unwrap();
    (engine, table)
}

fn begin(engine: &Arc<Engine>) -> Txn {
    engine.begin(BeginOptions::default()).unwrap()
}

fn begins(txn: &Txn, table: &TableInfo, direction: Direction, near: Near<'_>) -> Bound<Vec<u8>> {
    let mut near = near.map(<[u8]>::to_vec);
    txn.session.barren.move_on(table.id(), direction, &mut near);
    near
}

fn fill(engine: &Arc<Engine>, table: &TableInfo, keys: impl IntoIterator<Item = u32>) {
    let mut txn = begin(engine);
    keys.into_iter().for_each(|key| assert!(!txn.put(table, &key.to_be_bytes(), b"value").unwrap()));
    txn.commit(Durability::Lazy).unwrap();
}

fn next(
    txn: &mut Txn,
    table: &TableInfo,
    range: (Near<'_>, Near<'_>),
    direction: Direction,
    kind: LockKind,
) -> Option<Vec<u8>> {
    let mut cursor = txn.cursor(table, range, direction, kind).unwrap();
    let (mut key, mut value) = (Vec::new(), Vec::new());
    txn.next(&mut cursor, &mut key, &mut value).unwrap().then_some(key)
}

/// Each look for the first entry passed over all that the transaction had deleted before.
#[test]
fn who_takes_the_first_of_what_is_left_passes_each_once() {
    let (engine, table) = open();
    for direction in [Direction::Ascending, Direction::Descending] {
        fill(&engine, &table, 0..1000);
        let mut txn = begin(&engine);
        let mut taken: Vec<Vec<u8>> = Vec::new();
        while let Some(key) = next(&mut txn, &table, EVERYTHING, direction, LockKind::Exclusive) {
            let begins = begins(&txn, &table, direction, Bound::Unbounded);
            assert!(
                taken.last().is_none_or(|last| !comes_to(direction, as_slice(&begins), last)),
                "{}",
                taken.len()
            );
            assert!(txn.delete(&table, &key).unwrap());
            taken.push(key);
        }
        assert_eq!(taken.len(), 1000);
        txn.commit(Durability::Sync).unwrap();
    }
    engine.close().unwrap();
}

/// What came back before all that was deleted had the next look pass over all of it once more.
#[test]
fn what_comes_back_parts_a_stretch_and_leaves_its_rest() {
    // More than there are stretches.
    const BACK: u32 = 40;
    let (engine, table) = open();
    for direction in [Direction::Ascending, Direction::Descending] {
        let place = |number: u32| match direction {
            Direction::Ascending => number,
            Direction::Descending => u32::MAX - number,
        };
        fill(&engine, &table, (100..300).map(place));
        let mut txn = begin(&engine);
        let (mut taken, mut farthest) = (0, 0);
        while let Some(key) = next(&mut txn, &table, EVERYTHING, direction, LockKind::Exclusive) {
            assert!(txn.delete(&table, &key).unwrap());
            let number = place(u32::from_be_bytes(key.try_into().unwrap()));
            taken += 1;
            if number < 100 {
                continue;
            }
            for back in (1..=BACK).rev() {
                assert!(!txn.put(&table, &place(back).to_be_bytes(), b"back").unwrap());
            }
            if farthest > 0 {
                // Behind the last of what came back.
                let begins = begins(&txn, &table, direction, Bound::Excluded(&place(BACK).to_be_bytes()));
                assert!(!comes_to(direction, as_slice(&begins), &place(farthest).to_be_bytes()), "{number}");
            }
            farthest = number;
        }
        assert_eq!(taken, 200 * (1 + BACK));
        txn.commit(Durability::Sync).unwrap();
    }
    engine.close().unwrap();
}

/// What a scan passes over stays locked: nobody adds anything there, before the first entry or between two.
#[test]
fn others_add_nothing_where_a_transaction_has_found_nothing() {
    let (engine, table) = open();
    fill(&engine, &table, (10..20).map(|key| 2 * key));
    let mut txn = begin(&engine);
    for _ in 0..5 {
        let key = next(&mut txn, &table, EVERYTHING, Direction::Ascending, LockKind::Shared).unwrap();
        assert!(txn.delete(&table, &key).unwrap());
    }
    next(&mut txn, &table, EVERYTHING, Direction::Ascending, LockKind::Shared).unwrap();
    for key in [0_u32, 19, 20, 21, 28, 29] {
        let mut other = begin(&engine);
        other.set_no_wait(true);
        let added = other.insert(&table, &key.to_be_bytes(), b"other");
        assert!(matches!(added, Err(TxnError::Lock(LockError::WouldBlock(_)))), "{key}: {added:?}");
        other.rollback().unwrap();
    }
    txn.rollback().unwrap();
    engine.close().unwrap();
}

/// Whatever the transaction does itself, and takes back, its scans see what is there.
#[test]
fn scans_see_what_their_own_transaction_does() {
    const KEYS: u64 = 40;
    let mut state = 7_u64;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let (engine, table) = open();
    let mut passed = 0;
    for round in 0..200 {
        let mut model: BTreeMap<Vec<u8>, ()> = BTreeMap::new();
        let mut txn = begin(&engine);
        while let Some(key) = next(&mut txn, &table, EVERYTHING, Direction::Ascending, LockKind::Shared) {
            txn.delete(&table, &key).unwrap();
        }
        txn.commit(Durability::Lazy).unwrap();
        let mut txn = begin(&engine);
        (0..KEYS as u32).for_each(|key| {
            txn.put(&table, &key.to_be_bytes(), b"value").unwrap();
            model.insert(key.to_be_bytes().to_vec(), ());
        });
        txn.commit(Durability::Lazy).unwrap();
        let mut txn = begin(&engine);
        let mut savepoint = None;
        for step in 0..120 {
            let key = (below(KEYS + 10) as u32).to_be_bytes();
            match below(12) {
                0 => {
                    txn.put(&table, &key, b"other").unwrap();
                    model.insert(key.to_vec(), ());
                }
                1 if below(4) == 0 => savepoint = Some((txn.savepoint().unwrap(), model.clone())),
                2 if below(4) == 0 => {
                    if let Some((savepoint, before)) = savepoint.take() {
                        txn.rollback_to(savepoint).unwrap();
                        model = before;
                    }
                }
                3 if below(8) == 0 => {
                    let key = (KEYS as u32 + 10 + step).to_be_bytes();
                    // Not behind what was deleted in an earlier round, say.
                    if matches!(txn.append(&table, &[(key, b"appended")]).unwrap(), Append::Done) {
                        model.insert(key.to_vec(), ());
                    }
                }
                _ => {
                    let direction = [Direction::Ascending, Direction::Descending][below(2) as usize];
                    let near = match below(6) {
                        0 => Bound::Included(&key[..]),
                        1 => Bound::Excluded(&key[..]),
                        _ => Bound::Unbounded,
                    };
                    let range = match direction {
                        Direction::Ascending => (near, Bound::Unbounded),
                        Direction::Descending => (Bound::Unbounded, near),
                    };
                    passed += u32::from(as_slice(&begins(&txn, &table, direction, near)) != near);
                    // What is added before its first step is in its way.
                    let mut cursor = txn.cursor(&table, range, direction, LockKind::Exclusive).unwrap();
                    if below(4) == 0 {
                        let key = (below(KEYS) as u32).to_be_bytes();
                        txn.put(&table, &key, b"other").unwrap();
                        model.insert(key.to_vec(), ());
                    }
                    let (mut found, mut value) = (Vec::new(), Vec::new());
                    let found = txn.next(&mut cursor, &mut found, &mut value).unwrap().then_some(found);
                    let mut there = model.keys().filter(|key| comes_to(direction, near, key));
                    let expected = match direction {
                        Direction::Ascending => there.next(),
                        Direction::Descending => there.next_back(),
                    };
                    assert_eq!(found.as_ref(), expected, "round {round}, step {step}: {range:?}");
                    if let Some(key) = found.filter(|_| below(8) > 0) {
                        txn.delete(&table, &key).unwrap();
                        model.remove(&key);
                    }
                }
            }
        }
        txn.commit(Durability::Lazy).unwrap();
    }
    assert!(passed > 1000, "{passed}");
    engine.close().unwrap();
}
