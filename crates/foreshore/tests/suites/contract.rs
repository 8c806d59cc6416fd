//! What the facade promises to one user at a time, in every way in which transactions run.

use std::{
    ops::{Bound, ControlFlow, RangeBounds},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use foreshore::{
    Database, Direction, Durability, Error, LogHolder, Options, Prefix, TableDefinition, TableLock,
    TransactOptions, Transaction,
    limits::{MAX_KEY_BYTES, MAX_TABLE_NAME_BYTES, MAX_VALUE_BYTES},
};
use tempfile::TempDir;

use crate::ways::Way;

const NUMBERS: TableDefinition<u32, &str> = TableDefinition::new("numbers");
const BYTES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("bytes");

fn open() -> (TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let db = Database::open(directory.path().join("db")).unwrap();
    (directory, db)
}

fn filled() -> (TempDir, Database) {
    let (directory, db) = open();
    db.transact(|tx| {
        for (number, name) in [(1, "one"), (2, "two"), (3, "three"), (5, "five"), (8, "eight")] {
            tx.put(NUMBERS, number, name)?;
        }
        Ok(())
    })
    .unwrap();
    (directory, db)
}

fn keys(db: &Database) -> Vec<u32> {
    db.transact(|tx| tx.range(NUMBERS, ..)?.map(|entry| entry.map(|(key, _)| key)).collect()).unwrap()
}

#[test]
fn types_may_cross_threads() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    fn sent<T: Send + 'static>() {}
    shared::<Database>();
    shared::<TransactOptions>();
    shared::<foreshore::CancelHandle>();
    shared::<Options>();
    shared::<foreshore::DeadlockView>();
    shared::<foreshore::LockList>();
    shared::<foreshore::LogRetention>();
    sent::<foreshore::Builder>();
    sent::<foreshore::Pipeline>();
    sent::<foreshore::CommitTicket>();
    sent::<foreshore::Submitted<String>>();
    sent::<foreshore::Salvage>();
    sent::<Transaction>();
    sent::<Error>();
    sent::<foreshore::Cursor<&str, i64>>();
    fn is_sync<T: Sync>() {}
    is_sync::<Error>();
}

#[test]
fn single_records() {
    for way in Way::ALL {
        let (_directory, db) = filled();
        let found: Vec<(u32, String)> = way
            .run(&db, |tx| {
                assert_eq!(tx.get(NUMBERS, 2)?.as_deref(), Some("two"));
                assert_eq!(tx.get(NUMBERS, 4)?, None);
                assert_eq!(tx.get_for_update(NUMBERS, 3)?.as_deref(), Some("three"));
                assert_eq!(tx.get_with(NUMBERS, 3, <[u8]>::len)?, Some(5));
                let many = tx.get_many(NUMBERS, [3, 4, 2, 3])?;
                assert_eq!(
                    many,
                    [Some("three"), None, Some("two"), Some("three")].map(|v| v.map(str::to_owned))
                );
                assert_eq!(tx.get_many_for_update(NUMBERS, [1; 40])?, vec![Some("one".to_owned()); 40]);
                assert!(!tx.insert(NUMBERS, 2, "deux")?, "the key is there");
                assert!(tx.insert(NUMBERS, 4, "four")?);
                assert!(!tx.put(NUMBERS, 6, "six")?, "the key was not there");
                assert!(tx.put(NUMBERS, 6, "sechs")?, "the key was there");
                assert!(!tx.update(NUMBERS, 7, "seven")?);
                assert!(tx.update(NUMBERS, 2, "deux")?);
                assert!(tx.delete(NUMBERS, 1)?);
                assert!(!tx.delete(NUMBERS, 1)?);
                tx.range(NUMBERS, ..)?.collect()
            })
            .unwrap();
        let expected = [(2, "deux"), (3, "three"), (4, "four"), (5, "five"), (6, "sechs"), (8, "eight")];
        assert!(found.iter().map(|(key, value)| (*key, value.as_str())).eq(expected), "{way:?}: {found:?}");
        assert_eq!(keys(&db), [2, 3, 4, 5, 6, 8]);
    }
}

#[test]
fn strings_need_not_live_for_ever() {
    const NAMES: TableDefinition<&str, &str> = TableDefinition::new("names");
    for way in Way::ALL {
        let (_directory, db) = open();
        let (key, value) = (String::from("key"), String::from("value"));
        way.run(&db, move |tx| {
            tx.put(NAMES, &key, value.as_str())?;
            assert_eq!(tx.get(NAMES, key.as_str())?, Some(value.clone()));
            let low = key[..1].to_owned();
            assert_eq!(tx.range(NAMES, low.as_str()..)?.count(), 1);
            let bytes = vec![1_u8; 3];
            tx.put(BYTES, &bytes, &bytes[..])
        })
        .unwrap();
    }
}

#[test]
fn ranges_from_both_ends_with_every_bound() {
    for way in Way::ALL {
        let (_directory, db) = filled();
        way.run(&db, every_range).unwrap();
    }
}

fn every_range(tx: &mut Transaction) -> Result<(), Error> {
    let all = [1_u32, 2, 3, 5, 8];
    let bounds = |key: u32| [Bound::Unbounded, Bound::Included(key), Bound::Excluded(key)];
    let inside = |key: u32, low: Bound<u32>, high: Bound<u32>| {
        (match low {
            Bound::Unbounded => true,
            Bound::Included(low) => key >= low,
            Bound::Excluded(low) => key > low,
        }) && (match high {
            Bound::Unbounded => true,
            Bound::Included(high) => key <= high,
            Bound::Excluded(high) => key < high,
        })
    };
    let mut ranges = 0;
    for low in (0..=9).flat_map(bounds) {
        for high in (0..=9).flat_map(bounds) {
            let expected: Vec<u32> = all.into_iter().filter(|&key| inside(key, low, high)).collect();
            let up: Vec<u32> =
                tx.range(NUMBERS, (low, high)).unwrap().map(|entry| entry.unwrap().0).collect();
            assert_eq!(up, expected, "{low:?} {high:?}");
            let mut down: Vec<u32> =
                tx.range(NUMBERS, (low, high)).unwrap().rev().map(|entry| entry.unwrap().0).collect();
            down.reverse();
            assert_eq!(down, expected, "{low:?} {high:?} descending");
            // From both ends at once, beginning with either, until they meet.
            for mut from_front in [true, false] {
                let mut range = tx.range(NUMBERS, (low, high)).unwrap();
                let mut both = Vec::new();
                while let Some(entry) = if from_front { range.next() } else { range.next_back() } {
                    both.push(entry.unwrap().0);
                    from_front = !from_front;
                }
                assert!(range.next().is_none() && range.next_back().is_none());
                both.sort_unstable();
                assert_eq!(both, expected, "{low:?} {high:?} from both ends");
            }
            ranges += 1;
        }
    }
    assert_eq!(ranges, 900);
    assert_eq!(tx.first(NUMBERS).unwrap(), Some((1, "one".to_owned())));
    assert_eq!(tx.last(NUMBERS).unwrap(), Some((8, "eight".to_owned())));
    assert_eq!(tx.first(BYTES).unwrap(), None);
    Ok(())
}

#[test]
fn a_cursor_lets_its_transaction_write() {
    for way in Way::ALL {
        let (_directory, db) = filled();
        way.run(&db, |tx| {
            let mut cursor = tx.cursor_for_update(NUMBERS, 2..=5, Direction::Descending)?;
            let mut seen = Vec::new();
            while let Some((key, _)) = cursor.next(tx)? {
                seen.push(key);
                tx.delete(NUMBERS, key)?;
                tx.put(NUMBERS, key + 100, "moved")?;
            }
            assert_eq!(seen, [5, 3, 2]);
            assert_eq!(cursor.next(tx)?, None);
            Ok(())
        })
        .unwrap();
        assert_eq!(keys(&db), [1, 8, 102, 103, 105], "{way:?}");
    }
}

#[test]
fn a_scan_can_be_broken_off() {
    for way in Way::ALL {
        let (_directory, db) = filled();
        let seen = way.run(&db, |tx| {
            let mut seen = Vec::new();
            tx.scan(NUMBERS, .., Direction::Descending, |key, value| {
                seen.push((key.to_vec(), value.to_vec()));
                if seen.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            Ok(seen)
        });
        let expected = [(vec![0, 0, 0, 8], b"eight".to_vec()), (vec![0, 0, 0, 5], b"five".to_vec())];
        assert_eq!(seen.unwrap(), expected, "{way:?}");
    }
}

/// With keys alone, and with keys and entries in turn; of what the transaction itself has changed, too.
#[test]
fn keys_come_without_their_values() {
    for way in Way::ALL {
        let (_directory, db) = filled();
        db.transact(|tx| tx.put(NUMBERS, 3, "three".repeat(20_000).as_str())).unwrap();
        let seen = way.run(&db, |tx| {
            tx.delete(NUMBERS, 2)?;
            assert!(tx.contains_key(NUMBERS, 1)? && tx.contains_key(NUMBERS, 3)?);
            assert!(!tx.contains_key(NUMBERS, 2)? && !tx.contains_key(NUMBERS, 4)?);
            let mut cursor = tx.cursor(NUMBERS, .., Direction::Descending)?;
            let mut seen = vec![cursor.next_key(tx)?];
            assert_eq!(cursor.next(tx)?, Some((5, "five".to_owned())));
            seen.push(cursor.next_key(tx)?);
            assert_eq!(cursor.next_key_encoded(tx)?, Some(&[0, 0, 0, 1][..]));
            seen.push(cursor.next_key(tx)?);
            let mut cursor = tx.cursor(NUMBERS, 2.., Direction::Ascending)?;
            assert_eq!(cursor.next(tx)?.map(|(key, value)| (key, value.len())), Some((3, 100_000)));
            Ok(seen)
        });
        assert_eq!(seen.unwrap(), [Some(8), Some(3), None], "{way:?}");
    }
}

#[test]
fn a_range_is_removed() {
    for way in Way::ALL {
        let (_directory, db) = filled();
        assert_eq!(way.run(&db, |tx| tx.remove_range(NUMBERS, 2..8)).unwrap(), 3);
        assert_eq!(keys(&db), [1, 8]);
        assert_eq!(way.run(&db, |tx| tx.remove_range(NUMBERS, ..)).unwrap(), 2);
        assert_eq!(way.run(&db, |tx| tx.remove_range(NUMBERS, ..)).unwrap(), 0);
    }
}

#[test]
fn the_first_keys_of_a_range_are_removed() {
    for way in Way::ALL {
        let (_directory, db) = filled();
        assert_eq!(way.run(&db, |tx| tx.remove_at_most(NUMBERS, 2.., 0)).unwrap(), 0);
        assert_eq!(way.run(&db, |tx| tx.remove_at_most(NUMBERS, 2.., 2)).unwrap(), 2);
        assert_eq!(keys(&db), [1, 5, 8], "{way:?}");
        assert_eq!(way.run(&db, |tx| tx.remove_at_most(NUMBERS, 2.., 3)).unwrap(), 2);
        assert_eq!(keys(&db), [1], "{way:?}");
    }
}

/// Whatever the standard library calls a range.
fn within(db: &Database, range: impl RangeBounds<u32> + Clone) -> u64 {
    db.read(|tx| tx.count_range(NUMBERS, range.clone())).unwrap()
}

/// Of what the transaction itself has changed, too; and values that lie beside their rows are not read.
#[test]
fn keys_of_a_range_are_counted() {
    for way in Way::ALL {
        let (_directory, db) = filled();
        db.transact(|tx| tx.put(NUMBERS, 5, "five".repeat(20_000).as_str())).unwrap();
        let counts = way.run(&db, |tx| {
            tx.delete(NUMBERS, 2)?;
            tx.put(NUMBERS, 4, "four")?;
            Ok([
                tx.count_range(NUMBERS, ..)?,
                tx.count_range(NUMBERS, 2..=5)?,
                tx.count_range(NUMBERS, 6..8)?,
                tx.count_range(NUMBERS, (Bound::Excluded(5), Bound::Excluded(5)))?,
            ])
        });
        assert_eq!(counts.unwrap(), [5, 3, 0, 0], "{way:?}");
        assert_eq!(db.read(|tx| tx.count_range(NUMBERS, 3..)).unwrap(), 4);
        assert_eq!([within(&db, 3..5), within(&db, ..=3), within(&db, ..)], [2, 2, 5]);
    }
}

const VISITS: TableDefinition<(&str, u8, &str), u32> = TableDefinition::new("visits");

fn visitors(tx: &mut Transaction) -> Result<[Vec<u32>; 6], Error> {
    let owner = "al".to_owned() + "ice"; // what is asked for need not live for ever
    let mut found = [const { Vec::new() }; 6];
    let mut note =
        |place: usize, entry: Result<(_, u32), Error>| entry.map(|(_, value)| found[place].push(value));
    tx.range(VISITS, Prefix((owner.as_str(),)))?.try_for_each(|entry| note(0, entry))?;
    tx.range(VISITS, Prefix((&owner[..], 7)))?.rev().try_for_each(|entry| note(1, entry))?;
    tx.range(VISITS, Prefix((&owner[..], 7, Prefix("ga"))))?.try_for_each(|entry| note(2, entry))?;
    tx.range(VISITS, Prefix((Prefix("al"),)))?.try_for_each(|entry| note(3, entry))?;
    let mut cursor = tx.cursor(VISITS.owned(), Prefix((Prefix(""),)), Direction::Descending)?;
    while let Some(entry) = cursor.next(tx)? {
        note(4, Ok(entry))?;
    }
    tx.scan(VISITS, Prefix(("alice\0",)), Direction::Ascending, |_, value| {
        found[5].extend(value.iter().map(|byte| u32::from(*byte)).max());
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

#[test]
fn keys_that_begin_alike_are_a_range() {
    for way in Way::ALL {
        let (_directory, db) = open();
        db.transact(|tx| {
            let keys = [
                ("al", 9, "z"),
                ("alice", 0, ""),
                ("alice", 7, "garden"),
                ("alice", 7, "gate"),
                ("alice", 7, "house"),
                ("alice", 255, "\u{10FFFF}"),
                ("alice\0", 7, "ga"),
                ("alice b", 7, "ga"),
                ("bob", 7, "ga"),
            ];
            keys.iter().zip(0..).try_for_each(|(key, number)| tx.put(VISITS, *key, number).map(drop))
        })
        .unwrap();
        let found = way.run(&db, visitors).unwrap();
        assert_eq!(found[0], [1, 2, 3, 4, 5], "{way:?}");
        assert_eq!(found[1], [4, 3, 2], "{way:?}");
        assert_eq!(found[2], [2, 3], "{way:?}");
        assert_eq!(found[3], [0, 1, 2, 3, 4, 5, 6, 7], "{way:?}");
        assert_eq!(found[4], [8, 7, 6, 5, 4, 3, 2, 1, 0], "{way:?}");
        assert_eq!(found[5], [6], "{way:?}");
        assert_eq!(way.run(&db, |tx| tx.remove_range(VISITS, Prefix(("alice", 7)))).unwrap(), 3, "{way:?}");
        assert_eq!(way.run(&db, |tx| tx.count_range(VISITS, Prefix(("alice",)))).unwrap(), 2, "{way:?}");
        assert_eq!(db.read(|tx| tx.count_range(VISITS, Prefix((Prefix("b"),)))).unwrap(), 1);
    }
}

/// The range of a prefix ends before the next one, whose keys others may have; and one of which nothing lies behind has
/// no end.
#[test]
fn a_plan_names_keys_that_begin_alike() {
    let (_directory, db) = open();
    let bytes = |tx: &mut Transaction, key: &[u8]| tx.put(BYTES, key, &b""[..]);
    db.transact(|tx| {
        [&[1][..], &[1, 255], &[2], &[255, 255], &[255, 255, 3]]
            .iter()
            .try_for_each(|key| bytes(tx, key).map(drop))
    })
    .unwrap();
    let mut other = db.begin().unwrap();
    other.get_for_update(BYTES, &[2][..]).unwrap();
    let no_wait = TransactOptions { no_wait: true, ..TransactOptions::default() };
    let plan =
        db.plan().options(no_wait).read_range(BYTES, Prefix(&[1][..])).write_range(BYTES, Prefix(&[255][..]));
    let found = plan.run(|tx| {
        Ok((tx.count_range(BYTES, Prefix(&[1][..]))?, tx.remove_range(BYTES, Prefix(&[255][..]))?))
    });
    assert_eq!(found.unwrap(), (2, 2));
}

#[test]
fn savepoints_nest() {
    for way in Way::ALL {
        let (_directory, db) = filled();
        let mut other = db.begin().unwrap();
        other.savepoint().unwrap();
        let foreign = way.run(&db, |tx| {
            let outer = tx.savepoint()?;
            tx.delete(NUMBERS, 1)?;
            let inner = tx.savepoint()?;
            tx.put(NUMBERS, 2, "changed")?;
            tx.put(NUMBERS, 9, "new")?;
            tx.rollback_to(inner)?;
            assert_eq!(tx.get(NUMBERS, 2)?.as_deref(), Some("two"));
            assert_eq!(tx.get(NUMBERS, 1)?, None);
            tx.put(NUMBERS, 10, "ten")?;
            tx.rollback_to(inner)?;
            assert_eq!(tx.get(NUMBERS, 10)?, None, "a savepoint can be used again");
            tx.rollback_to(outer)?;
            assert!(matches!(tx.rollback_to(inner), Err(Error::NotOfThisTransaction { .. })));
            tx.put(NUMBERS, 4, "four")?;
            Ok(outer)
        });
        assert!(matches!(other.rollback_to(foreign.unwrap()), Err(Error::NotOfThisTransaction { .. })));
        assert_eq!(keys(&db), [1, 2, 3, 4, 5, 8], "{way:?}");
    }
}

/// A savepoint that was released is gone, with those after it, and stays gone when there is another one in its place;
/// what was done stays, and goes with an earlier one.
#[test]
fn savepoints_can_be_released() {
    for way in Way::ALL {
        let (_directory, db) = filled();
        let mut other = db.begin().unwrap();
        let foreign = other.savepoint().unwrap();
        way.run(&db, move |tx| {
            let is_gone = |result: foreshore::Result<()>| {
                matches!(result, Err(Error::NotOfThisTransaction { what: "savepoint" }))
            };
            let outer = tx.savepoint()?;
            tx.delete(NUMBERS, 1)?;
            let inner = tx.savepoint()?;
            tx.put(NUMBERS, 9, "nine")?;
            let innermost = tx.savepoint()?;
            tx.release(inner)?;
            assert!(is_gone(tx.release(inner)) && is_gone(tx.rollback_to(inner)));
            assert!(is_gone(tx.release(innermost)) && is_gone(tx.rollback_to(innermost)));
            assert!(is_gone(tx.release(foreign)));
            assert_eq!(tx.get(NUMBERS, 9)?.as_deref(), Some("nine"));
            let again = tx.savepoint()?;
            let _same_place = tx.savepoint()?;
            assert!(is_gone(tx.release(inner)) && is_gone(tx.rollback_to(innermost)));
            tx.rollback_to(outer)?;
            assert!(is_gone(tx.release(again)), "it was undone");
            assert_eq!(tx.get(NUMBERS, 9)?, None);
            assert_eq!(tx.get(NUMBERS, 1)?.as_deref(), Some("one"));
            tx.put(NUMBERS, 4, "four")?;
            tx.release(outer)?;
            assert!(is_gone(tx.rollback_to(outer)));
            Ok(())
        })
        .unwrap();
        other.release(foreign).unwrap();
        drop(other);
        assert_eq!(keys(&db), [1, 2, 3, 4, 5, 8], "{way:?}");
    }
}

/// The transactions of two databases have the same ids.
#[test]
fn a_savepoint_of_another_database_is_refused() {
    let ((_here, one), (_there, two)) = (filled(), filled());
    let (mut a, mut b) = (one.begin().unwrap(), two.begin().unwrap());
    assert_eq!(a.id(), b.id());
    let (of_a, of_b) = (a.savepoint().unwrap(), b.savepoint().unwrap());
    b.put(NUMBERS, 4, "four").unwrap();
    assert!(matches!(b.rollback_to(of_a), Err(Error::NotOfThisTransaction { .. })));
    assert_eq!(b.get(NUMBERS, 4).unwrap().as_deref(), Some("four"));
    b.rollback_to(of_b).unwrap();
    a.rollback_to(of_a).unwrap();
    b.commit().unwrap();
    assert_eq!(keys(&two), [1, 2, 3, 5, 8]);
}

#[test]
fn what_is_dropped_rolled_back_or_panics_leaves_no_trace() {
    let (_directory, db) = filled();
    let spoil = |tx: &mut Transaction| {
        tx.delete(NUMBERS, 1).unwrap();
        tx.put(NUMBERS, 2, "changed").unwrap();
        tx.put(NUMBERS, 4, "new").unwrap();
    };
    let mut tx = db.begin().unwrap();
    spoil(&mut tx);
    drop(tx);
    assert_eq!(keys(&db), [1, 2, 3, 5, 8]);

    let mut tx = db.begin().unwrap();
    spoil(&mut tx);
    tx.rollback().unwrap();
    assert_eq!(keys(&db), [1, 2, 3, 5, 8]);

    for way in Way::ALL {
        let panic = catch_unwind(AssertUnwindSafe(|| {
            way.run(&db, move |tx| {
                spoil(tx);
                panic!("the application's own");
                #[allow(unreachable_code, reason = "gives the closure its type")]
                Ok(())
            })
        }))
        .unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"the application's own"), "{way:?}");
        assert_eq!(keys(&db), [1, 2, 3, 5, 8]);

        let result: Result<(), _> = way.run(&db, move |tx| {
            spoil(tx);
            Err(Error::application("no"))
        });
        assert!(matches!(result, Err(Error::Application(error)) if error.to_string() == "no"));
        assert_eq!(keys(&db), [1, 2, 3, 5, 8]);
        let two = way.run(&db, |tx| tx.get(NUMBERS, 2)).unwrap();
        assert_eq!(two.as_deref(), Some("two"));
    }
}

#[test]
fn a_table_is_opened_with_its_own_types_only() {
    for way in Way::ALL {
        let (_directory, db) = filled();
        way.run(&db, types_are_compared).unwrap();
    }
}

fn types_are_compared(tx: &mut Transaction) -> Result<(), Error> {
    const OTHER_KEY: TableDefinition<u64, &str> = TableDefinition::new("numbers");
    const OTHER_VALUE: TableDefinition<u32, &[u8]> = TableDefinition::new("numbers");
    let error = tx.get(OTHER_KEY, 1).unwrap_err();
    assert!(matches!(&error, Error::TypeMismatch { table, .. } if table == "numbers"), "{error}");
    assert!(error.to_string().contains("u32") && error.to_string().contains("u64"), "{error}");
    let error = tx.put(OTHER_VALUE, 1, &b"x"[..]).unwrap_err();
    assert!(matches!(&error, Error::TypeMismatch { .. }), "{error}");
    assert_eq!(tx.get(NUMBERS, 1)?.as_deref(), Some("one"), "the transaction goes on");
    // Whatever was asked for just before.
    const BYTES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("numbers");
    const ENCODED: TableDefinition<&[u8], &[u8]> = TableDefinition::encoded("numbers");
    for _ in 0..2 {
        assert!(tx.get(NUMBERS, 1)?.is_some());
        assert!(matches!(tx.get(OTHER_KEY, 1), Err(Error::TypeMismatch { .. })));
        assert_eq!(tx.get(ENCODED, &1_u32.to_be_bytes()[..])?.as_deref(), Some(&b"one"[..]));
        assert!(matches!(tx.get(BYTES, &[0, 0, 0, 1][..]), Err(Error::TypeMismatch { .. })));
        assert!(matches!(tx.get(OTHER_VALUE, 1), Err(Error::TypeMismatch { .. })));
    }

    let encoded = TableDefinition::encoded("numbers");
    assert_eq!(tx.get(encoded, &[0, 0, 0, 1])?, Some(b"one".to_vec()));
    tx.put(encoded, &[0, 0, 0, 1], &b"\xFF"[..])?;
    let error = tx.get(NUMBERS, 1).unwrap_err();
    assert!(matches!(&error, Error::Undecodable { .. }), "{error}");
    tx.put(encoded, &[0, 0, 0, 0, 0], &b"fine"[..])?;
    let errors = tx.range(NUMBERS, ..)?.filter(Result::is_err).count();
    assert_eq!(errors, 1, "the first failure ends the range");
    let error = tx.get(TableDefinition::encoded("no such"), &[]).unwrap_err();
    assert!(matches!(&error, Error::NoSuchTable { table } if table == "no such"), "{error}");
    Ok(())
}

#[test]
fn entries_are_appended_in_order() {
    for way in Way::ALL {
        append_entries(way);
    }
}

fn append_entries(way: Way) {
    const MOST: u32 = 30_000;
    fn names(first: u32) -> Vec<(u32, String)> {
        (9..MOST).map(|number| (first + number - 9, format!("name of {number}"))).collect()
    }
    fn entries(names: &[(u32, String)]) -> impl Iterator<Item = (u32, &str)> {
        names.iter().map(|(key, name)| (*key, name.as_str()))
    }
    let (directory, db) = filled();
    let appended = names(9);
    let count = appended.len() as u64;
    let result = way.run(&db, move |tx| {
        assert_eq!(tx.append(NUMBERS, entries(&appended))?, count);
        assert_eq!(tx.append(NUMBERS, std::iter::empty::<(u32, &str)>())?, 0);
        assert_eq!(tx.get(NUMBERS, 20_000)?.as_deref(), Some("name of 20000"));
        Err::<(), _>(Error::application("no"))
    });
    assert!(matches!(result, Err(Error::Application(_))), "{way:?}: {result:?}");
    assert_eq!(keys(&db), [1, 2, 3, 5, 8]);

    let unsorted = names(9);
    way.run(&db, move |tx| {
        tx.put(NUMBERS, 0, "before")?;
        // Late in the entries, after parts of them were written: nothing of them stays.
        let error = tx.append(NUMBERS, entries(&unsorted).chain([(7, "seven")])).unwrap_err();
        assert!(
            matches!(&error, Error::NotBehind { table, entry } if table == "numbers" && *entry == count),
            "{error}"
        );
        assert!(!error.is_retryable());
        assert_eq!(tx.range(NUMBERS, ..)?.count(), 6);
        let savepoint = tx.savepoint()?;
        // Ghosts of what was taken back may be in the way.
        tx.append(NUMBERS, [(50_000, "a"), (50_001, "b")])?;
        tx.rollback_to(savepoint)?;
        tx.append(NUMBERS, [(50_000, "c")])
    })
    .unwrap();
    assert_eq!(keys(&db), [0, 1, 2, 3, 5, 8, 50_000]);
    let behind = names(60_000);
    way.run(&db, move |tx| tx.append(NUMBERS, entries(&behind))).unwrap();
    assert!(db.verify().unwrap().is_sound());
    db.close().unwrap();
    let db = Database::open(directory.path().join("db")).unwrap();
    assert_eq!(keys(&db).len() as u64, 7 + count);
    assert!(db.verify().unwrap().is_sound());
}

/// What others have deleted was in the way as long as that was not durable; so was what a crash had taken back, beside
/// any lazy commit whose locks had their tags in the same place.
#[test]
fn what_is_deleted_is_in_no_append_s_way() {
    let directory = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(3600);
    let options = Options { flush_interval: hour, lock_buckets: 1, ..Options::default() };
    let db = Database::builder().options(options).open(directory.path().join("db")).unwrap();
    let lazy = TransactOptions { durability: Some(Durability::Lazy), ..TransactOptions::default() };
    db.transact(|tx| (1..9).try_for_each(|key| tx.put(NUMBERS, key, "one").map(drop))).unwrap();
    db.transact_with(&lazy, |tx| (5..9).try_for_each(|key| tx.delete(NUMBERS, key).map(drop))).unwrap();
    let before = db.stats().log_durable;
    // Who has no time left does not wait for the disk.
    let mut late = db.begin().unwrap();
    late.set_deadline(Some(Instant::now()));
    let error = late.append(NUMBERS, [(5, "a")]);
    assert!(matches!(error, Err(Error::NotBehind { .. })), "{error:?}");
    late.rollback().unwrap();
    assert_eq!(db.stats().log_durable, before);
    assert_eq!(db.transact_with(&lazy, |tx| tx.append(NUMBERS, [(5, "a"), (6, "b")])).unwrap(), 2);
    assert!(db.stats().log_durable > before, "the deletion was waited for");
    assert_eq!(keys(&db), [1, 2, 3, 4, 5, 6]);
    // Nor does anybody whom the disk cannot help.
    let before = db.stats().log_durable;
    for (entries, wrong) in [([(6, "a"), (7, "b"), (7, "c")], 0), ([(7, "a"), (7, "b"), (6, "c")], 1)] {
        let error = db.transact_with(&lazy, |tx| tx.append(NUMBERS, entries));
        assert!(matches!(error, Err(Error::NotBehind { entry, .. }) if entry == wrong), "{error:?}");
    }
    assert_eq!(db.stats().log_durable, before);
    // Its own, which may be taken back, is in the way.
    let error = db.transact(|tx| {
        tx.delete(NUMBERS, 6)?;
        tx.append(NUMBERS, [(6, "c")])
    });
    assert!(matches!(error, Err(Error::NotBehind { entry: 0, .. })), "{error:?}");
    assert!(db.verify().unwrap().is_sound());
}

#[test]
fn an_append_that_panics_adds_nothing() {
    const MOST: u32 = 80_000;
    for way in Way::ALL {
        let (_directory, db) = filled();
        way.run(&db, |tx| {
            tx.put(NUMBERS, 9, "nine")?;
            let rows =
                (10..MOST).map(|row| if row < MOST - 1 { (row, "row") } else { panic!("no such row") });
            assert!(catch_unwind(AssertUnwindSafe(|| tx.append(NUMBERS, rows))).is_err());
            assert_eq!(tx.range(NUMBERS, ..)?.count(), 6);
            tx.append(NUMBERS, [(MOST, "last")])
        })
        .unwrap();
        assert_eq!(keys(&db), [1, 2, 3, 5, 8, 9, MOST], "{way:?}");
        assert!(db.verify().unwrap().is_sound());
    }
}

/// Rows that own what they are made of are the rows of those that borrow it, in keys of several fields, too.
#[test]
fn entries_are_made_while_they_are_appended() {
    const ROWS: TableDefinition<(&str, u32), Option<&[u8]>> = TableDefinition::new("rows");
    for way in Way::ALL {
        let (_directory, db) = open();
        way.run(&db, |tx| {
            let rows = (0..5000).map(|row| ((format!("part {}", row / 1000), row), Some(vec![7_u8; 50])));
            assert_eq!(tx.append(ROWS.owned(), rows)?, 5000);
            assert_eq!(tx.get(ROWS, ("part 3", 3456))?, Some(Some(vec![7; 50])));
            tx.append(BYTES.owned(), (0..5000).map(|row| (format!("{row:04}").into_bytes(), vec![b'x'; 100])))
        })
        .unwrap();
        assert_eq!(db.transact(|tx| tx.get(BYTES, b"4711")).unwrap(), Some(vec![b'x'; 100]), "{way:?}");
    }
}

/// Some iterators have more when they are asked once more.
#[test]
fn entries_and_keys_end_where_their_iterator_first_says_so() {
    for way in Way::ALL {
        let (_directory, db) = filled();
        way.run(&db, |tx| {
            let restarting = |last: u32| {
                let mut next = 10;
                std::iter::from_fn(move || {
                    let key = Some(next).filter(|key| *key != last && *key < last + 3);
                    next += 1;
                    key
                })
            };
            assert_eq!(tx.append(NUMBERS, restarting(13).map(|key| (key, "more")))?, 3);
            assert_eq!(tx.get_many(NUMBERS, restarting(14))?.iter().flatten().count(), 3);
            Ok(())
        })
        .unwrap();
        assert_eq!(keys(&db), [1, 2, 3, 5, 8, 10, 11, 12], "{way:?}");
    }
}

#[test]
fn a_renamed_table_is_used_by_its_new_name() {
    const RENAMED: TableDefinition<u32, &str> = TableDefinition::new("renamed");
    let (directory, db) = filled();
    // More often than a name has places where it is remembered.
    for way in Way::ALL.repeat(3) {
        let all =
            |definition| way.run(&db, move |tx| tx.range(definition, ..)?.collect::<Result<Vec<_>, _>>());
        let (numbers, names) = (all(NUMBERS).unwrap(), || db.tables().unwrap().into_iter().map(|it| it.name));
        assert_eq!(numbers.len(), 5);
        db.rename_table("numbers", "renamed").unwrap();
        assert!(names().eq(["renamed"]), "{way:?}");
        assert_eq!(all(RENAMED).unwrap(), numbers, "{way:?}");
        // A table of the old name is another one, also for who has used that name before.
        assert_eq!(all(NUMBERS).unwrap(), [], "{way:?}");
        for (to, expected) in
            [("numbers", "table_exists"), ("renamed", "table_exists"), ("", "limit_exceeded")]
        {
            let refused = db.rename_table("renamed", to).unwrap_err();
            assert_eq!(refused.code(), expected, "{refused}");
        }
        assert_eq!(db.rename_table("absent", "there").unwrap_err().code(), "no_such_table");
        assert!(names().eq(["numbers", "renamed"]), "{way:?}");
        // Its types stay.
        let typed: TableDefinition<&str, u64> = TableDefinition::new("renamed");
        assert_eq!(way.run(&db, move |tx| tx.get(typed, "one")).unwrap_err().code(), "type_mismatch");
        assert!(db.drop_table("numbers").unwrap());
        db.rename_table("renamed", "numbers").unwrap();
    }
    let mut user = db.begin().unwrap();
    user.put(NUMBERS, 13, "thirteen").unwrap();
    let refused = db.rename_table_within("numbers", "renamed", Duration::from_millis(20)).unwrap_err();
    assert_eq!(refused.code(), "lock_timeout", "{refused}");
    user.commit().unwrap();
    db.rename_table("numbers", "renamed").unwrap();
    assert!(db.verify().unwrap().is_sound());
    db.close().unwrap();
    assert_eq!(db.rename_table("renamed", "numbers").unwrap_err().code(), "closed");
    let db = Database::builder().read_only(true).open(directory.path().join("db")).unwrap();
    assert_eq!(db.read(|tx| tx.get(RENAMED, 13)).unwrap().as_deref(), Some("thirteen"));
    assert_eq!(db.rename_table("renamed", "numbers").unwrap_err().code(), "read_only");
}

#[test]
fn a_dropped_table_is_gone_and_its_name_is_free() {
    let (directory, db) = filled();
    assert!(!db.drop_table("no such table").unwrap());
    let mut user = db.begin().unwrap();
    assert_eq!(user.get(NUMBERS, 2).unwrap().as_deref(), Some("two"));
    user.commit().unwrap();
    // More often than a name has places where it is remembered.
    for round in 0..20 {
        assert!(db.drop_table("numbers").unwrap());
        assert!(!db.tables().unwrap().iter().any(|table| table.name == "numbers"));
        assert_eq!(db.table("numbers").unwrap(), None);
        assert!(!db.drop_table("numbers").unwrap());
        // With other types, as a new table.
        let again: TableDefinition<&str, u64> = TableDefinition::new("numbers");
        db.transact(|tx| {
            assert_eq!(tx.get(again, "one")?, None);
            tx.put(again, "one", round)
        })
        .unwrap();
        assert!(matches!(db.transact(|tx| tx.get(NUMBERS, 2)), Err(Error::TypeMismatch { .. })));
        assert_eq!(db.transact(|tx| tx.get(again, "one")).unwrap(), Some(round));
    }
    // What a dropped table gives back is seen, and used again.
    const ROWS: TableDefinition<u32, &[u8]> = TableDefinition::new("rows");
    let before = db.stats();
    let fill =
        || db.transact(|tx| tx.append(ROWS, (0..).zip([[7_u8; 1000]; 3000].iter().map(|row| &row[..]))));
    fill().unwrap();
    assert!(db.stats().pages - before.pages > 300);
    let full = db.stats();
    assert!(db.drop_table("rows").unwrap());
    let start = Instant::now();
    while db.stats().tables_dropped > 0 {
        assert!(start.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(1));
    }
    let dropped = db.stats();
    assert_eq!(dropped.pages, full.pages);
    assert!(dropped.fragmented_bytes > full.fragmented_bytes + 3_000_000, "{dropped:?}");
    fill().unwrap();
    assert_eq!(db.stats().pages, full.pages);
    assert!(db.verify().unwrap().is_sound());
    db.close().unwrap();
    let db = Database::open(directory.path().join("db")).unwrap();
    let again: TableDefinition<&str, u64> = TableDefinition::new("numbers");
    assert_eq!(db.transact(|tx| tx.get(again, "one")).unwrap(), Some(19));
    let start = Instant::now();
    while db.stats().tables_dropped > 0 {
        assert!(start.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(db.verify().unwrap().is_sound());
}

/// While somebody writes and somebody reads; the table's handles and the free space are good after it.
#[test]
fn a_database_gives_space_back_while_it_is_used() {
    const ROWS: TableDefinition<u32, &[u8]> = TableDefinition::new("rows");
    const LAST: TableDefinition<u32, u64> = TableDefinition::new("last");
    let (directory, db) = filled();
    db.transact(|tx| tx.append(ROWS, (0..).zip([[7_u8; 1000]; 4000].iter().map(|row| &row[..])))).unwrap();
    // Its root lies behind the rows.
    db.transact(|tx| tx.put(LAST, 0, 0)).unwrap();
    db.transact(|tx| {
        for row in (0..4000).filter(|row| row % 4 > 0) {
            tx.delete(ROWS, row)?;
        }
        Ok(())
    })
    .unwrap();
    let length = || std::fs::metadata(directory.path().join("db/data")).unwrap().len();
    let (before, fragmented) = (length(), db.stats().fragmented_bytes);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut count = 0;
            while !done.load(Ordering::Relaxed) {
                count += 1;
                db.transact(|tx| tx.put(LAST, count % 50, u64::from(count))).unwrap();
            }
        });
        let mut seen = 0;
        let report = db.compact_with(|report| {
            seen = report.pages_moved.max(seen);
            ControlFlow::Continue(())
        });
        let report = report.unwrap();
        assert!(report.pages_moved > 20 && seen > 0 && report.leaves_merged > 0, "{report:?}");
        assert_eq!((report.pages_before * 8192, report.fragmented_bytes_before), (before, fragmented));
        done.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    // With nobody there all of it goes.
    let report = db.compact().unwrap();
    assert!(report.pages_left == 0 && length() < before / 2, "{report:?}");
    assert_eq!(
        (report.pages_after * 8192, report.fragmented_bytes_after),
        (length(), db.stats().fragmented_bytes)
    );
    let check = |db: &Database| {
        db.transact(|tx| {
            let rows = tx.range(ROWS, ..)?.map(|entry| entry.map(|(row, value)| (row, value.len())));
            let rows: Vec<_> = rows.collect::<Result<_, _>>()?;
            assert!(rows.iter().copied().eq((0..4000).step_by(4).map(|row| (row, 1000))));
            assert!(tx.get(LAST, 1)?.is_some());
            Ok(())
        })
        .unwrap();
        assert!(db.verify().unwrap().is_sound());
    };
    check(&db);
    db.close().unwrap();
    assert!(matches!(db.compact(), Err(Error::Closed { .. })));
    check(&Database::open(directory.path().join("db")).unwrap());
}

#[test]
fn tables_are_listed() {
    let (_directory, db) = filled();
    const PAIRS: TableDefinition<u8, (f64, Option<&str>)> = TableDefinition::new("pairs");
    db.transact(|tx| tx.put(PAIRS, 1, (0.5, None))).unwrap();
    let tables = db.tables().unwrap();
    let described: Vec<_> =
        tables.iter().map(|table| (&*table.name, &*table.key_type, &*table.value_type)).collect();
    assert_eq!(described, [("numbers", "u32", "str"), ("pairs", "u8", "(f64, Option<str>)")]);
    for table in tables {
        assert_eq!(db.table(&table.name).unwrap(), Some(table));
    }
    assert_eq!((db.table("others").unwrap(), db.tables().unwrap().len()), (None, 2));
}

#[test]
fn limits_are_errors_that_change_nothing() {
    for way in Way::ALL {
        let (_directory, db) = open();
        way.run(&db, limits_are_kept).unwrap();
        way.run(&db, |tx| {
            let longest = vec![7; MAX_KEY_BYTES];
            assert_eq!(tx.get(BYTES, &longest)?, Some(longest.clone()));
            let largest = vec![9; MAX_VALUE_BYTES];
            assert!(tx.get(BYTES, b"large")? == Some(largest), "16 MiB come back as they were");
            assert_eq!(tx.get(BYTES, b"larger")?, None);
            tx.delete(BYTES, b"large")
        })
        .unwrap();
    }
}

fn limits_are_kept(tx: &mut Transaction) -> Result<(), Error> {
    let longest = vec![7; MAX_KEY_BYTES];
    tx.put(BYTES, &longest, &longest[..])?;
    let too_long = vec![7; MAX_KEY_BYTES + 1];
    let error = tx.put(BYTES, &too_long, &b""[..]).unwrap_err();
    assert!(matches!(error, Error::KeyTooLong { bytes, limit: MAX_KEY_BYTES } if bytes == too_long.len()));
    assert!(matches!(tx.get(BYTES, &vec![0; 3072]).unwrap_err(), Error::KeyTooLong { .. }));
    assert!(matches!(tx.range(BYTES, ..&too_long[..]).unwrap_err(), Error::KeyTooLong { .. }));
    assert!(matches!(tx.range(BYTES, Prefix(&too_long[..])).unwrap_err(), Error::KeyTooLong { .. }));
    assert_eq!(tx.count_range(BYTES, Prefix(&longest[..]))?, 1);

    tx.put(BYTES, b"large", &vec![9; MAX_VALUE_BYTES][..])?;
    let too_large = vec![9; MAX_VALUE_BYTES + 1];
    let error = tx.put(BYTES, b"larger", &too_large[..]).unwrap_err();
    assert!(matches!(error, Error::ValueTooLong { limit: MAX_VALUE_BYTES, .. }));

    let name = "n".repeat(MAX_TABLE_NAME_BYTES + 1);
    let error = tx.put(TableDefinition::<u8, u8>::new(&name), 1, 1).unwrap_err();
    assert!(matches!(error, Error::LimitExceeded { .. }), "{error}");
    tx.put(TableDefinition::<u8, u8>::new(&name[1..]), 1, 1)?;
    assert!(matches!(tx.put(TableDefinition::<u8, u8>::new(""), 1, 1), Err(Error::LimitExceeded { .. })));
    Ok(())
}

#[test]
fn a_closed_database_says_so() {
    let (_directory, db) = filled();
    let clone = db.clone();
    db.close().unwrap();
    for error in [
        clone.begin().unwrap_err(),
        clone.transact(|_| Ok(())).unwrap_err(),
        clone.checkpoint().unwrap_err(),
        clone.tables().unwrap_err(),
        clone.table("numbers").unwrap_err(),
    ] {
        assert!(matches!(&error, Error::Closed { path } if path == clone.path()), "{error}");
    }
    clone.close().unwrap();
}

#[test]
fn a_close_tells_how_many_transactions_it_cut_off() {
    let (_directory, db) = filled();
    let mut writer = db.begin().unwrap();
    writer.put(NUMBERS, 100, "lost").unwrap();
    let mut prepared = db.begin().unwrap();
    prepared.put(NUMBERS, 101, "kept").unwrap();
    prepared.prepare("kept").unwrap();
    let mut reader = db.begin().unwrap();
    reader.get(NUMBERS, 1).unwrap();
    assert_eq!(db.stats().cut_off, 0);
    db.close().unwrap();
    assert_eq!(db.stats().cut_off, 1, "one has lost its changes");
}

/// A transaction found the database closed, was rolled back, and its changes were there at the next opening: its
/// rollback was refused, and the last checkpoint did not know of it any more.
#[test]
fn what_is_rolled_back_while_the_database_is_closed_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let filling = vec![7; 1000];
    for round in 0..8 {
        let db = Database::builder().pool_bytes(8 << 20).open(&path).unwrap();
        let lazy = TransactOptions { durability: Some(Durability::Lazy), ..Default::default() };
        db.transact_with(&lazy, |tx| {
            tx.put(NUMBERS, 1, "old")?;
            // Many changed pages: closing takes its time.
            for key in 0..2000_u32 {
                tx.put(BYTES, &key.to_le_bytes()[..], &filling[..])?;
            }
            Ok(())
        })
        .unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(NUMBERS, 1, "new").unwrap();
        let closing = {
            let db = db.clone();
            std::thread::spawn(move || db.close())
        };
        let error = loop {
            match tx.get(NUMBERS, 2) {
                Ok(_) => std::thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Closed { .. }), "{error}");
        // Closed in the middle of it is as good: then the next opening undoes it.
        assert!(matches!(tx.rollback(), Ok(()) | Err(Error::Closed { .. })));
        closing.join().unwrap().unwrap();
        drop(db);
        let db = Database::open(&path).unwrap();
        let found = db.transact(|tx| tx.get(NUMBERS, 1)).unwrap();
        assert_eq!(found.as_deref(), Some("old"), "round {round}");
        assert!(db.verify().unwrap().is_sound());
        db.close().unwrap();
    }
}

/// What has nothing to do was done.
#[test]
fn a_cancelled_transaction_does_not_even_nothing() {
    const NOTHING: (Bound<u32>, Bound<u32>) = (Bound::Excluded(5), Bound::Excluded(5));
    let (_directory, db) = filled();
    let mut tx = db.begin().unwrap();
    let mut cursor = tx.cursor(NUMBERS, NOTHING, Direction::Ascending).unwrap();
    tx.cancel_handle().cancel();
    let results = [
        tx.get_many(NUMBERS, []).map(drop),
        tx.append(NUMBERS, [(0, ""); 0]).map(drop),
        tx.scan(NUMBERS, NOTHING, Direction::Ascending, |_, _| ControlFlow::Continue(())),
        tx.remove_range(NUMBERS, NOTHING).map(drop),
        tx.remove_at_most(NUMBERS, .., 0).map(drop),
        tx.count_range(NUMBERS, NOTHING).map(drop),
        tx.range(NUMBERS, NOTHING).and_then(|mut range| range.next().transpose()).map(drop),
        tx.cursor(NUMBERS, NOTHING, Direction::Descending).map(drop),
        cursor.next(&mut tx).map(drop),
    ];
    for (number, result) in results.into_iter().enumerate() {
        assert!(matches!(result, Err(Error::Cancelled)), "{number}: {result:?}");
    }
}

#[test]
fn a_deadline_beyond_all_clocks_is_none() {
    let (_directory, db) = filled();
    let options = TransactOptions { deadline: Some(Duration::MAX), ..Default::default() };
    for way in Way::ALL {
        let one = way.run_with(&db, &options, |tx| tx.get(NUMBERS, 1)).unwrap();
        assert_eq!(one.as_deref(), Some("one"), "{way:?}");
    }
    db.begin_with(&options).unwrap().commit().unwrap();
    assert!(db.verify_within(Duration::MAX).unwrap().is_sound());
}

#[test]
fn what_is_refused_makes_no_table() {
    let (_directory, db) = filled();
    let before = db.tables().unwrap().len();
    for way in Way::ALL {
        let (long_key, long_value) = (vec![0; MAX_KEY_BYTES + 1], vec![0; MAX_VALUE_BYTES + 1]);
        let key = long_key.clone();
        let in_many = key.clone();
        let appended = key.clone();
        assert!(way.run(&db, move |tx| tx.put(BYTES, &key[..], &[][..])).is_err());
        assert!(way.run(&db, move |tx| tx.get_many(BYTES, [&in_many[..]])).is_err());
        assert!(way.run(&db, move |tx| tx.append(BYTES, [(&appended[..], &[][..])])).is_err());
        assert!(way.run(&db, move |tx| tx.insert(BYTES, &[1][..], &long_value[..])).is_err());
        assert!(way.run(&db, move |tx| tx.get(BYTES, &long_key[..])).is_err());
        assert_eq!(db.tables().unwrap().len(), before, "{way:?}");
    }
}

#[test]
fn everything_is_there_when_it_is_opened_again() {
    let (directory, db) = filled();
    let path = db.path().to_owned();
    let large = "x".repeat(100_000);
    let lazy = TransactOptions { durability: Some(Durability::Lazy), ..TransactOptions::default() };
    db.transact_with(&lazy, |tx| tx.put(NUMBERS, 13, large.as_str())).unwrap();
    let mut open = db.begin().unwrap();
    open.put(NUMBERS, 99, "never committed").unwrap();
    drop((open, db));

    let absent = directory.path().join("absent");
    let error = Database::builder().create(false).open(&absent).unwrap_err();
    assert!(error.to_string().contains("absent"), "{error}");
    assert!(!absent.exists(), "nothing was made");

    let db = Database::builder().create(false).pool_bytes(1 << 20).open(&path).unwrap();
    assert_eq!(keys(&db), [1, 2, 3, 5, 8, 13]);
    let back = db.transact(|tx| tx.get(NUMBERS, 13)).unwrap();
    assert!(back.as_deref() == Some(&*large));
    assert!(db.verify().unwrap().is_sound());
}

#[test]
fn a_transaction_commits_as_it_was_told() {
    let (_directory, db) = filled();
    let options = TransactOptions {
        deadline: Some(Duration::from_secs(10)),
        lock_timeout: Some(Duration::from_secs(5)),
        durability: Some(Durability::Lazy),
        isolation: Some(foreshore::Isolation::ReadCommitted),
        read_mode: Some(foreshore::ReadMode::Hybrid),
        execution: None,
        label: Some("short".into()),
        no_wait: true,
        priority: 3,
        age: Some(db.begin().unwrap().age()),
        retries: 0,
    };
    // Each in a gap of its own: what locked the one before may be given back behind its result.
    let keys_of: [u32; Way::ALL.len()] = [4, 9, 10, 20, 0];
    for (way, key) in Way::ALL.into_iter().zip(keys_of) {
        way.run_with(&db, &options, move |tx| tx.put(NUMBERS, key, "new")).unwrap();
    }
    // Locks of a submitted transaction are given back behind its result.
    let mut tx = db.begin_with(&TransactOptions { no_wait: false, ..options }).unwrap();
    tx.lock_table(NUMBERS, TableLock::Exclusive).unwrap();
    tx.put(NUMBERS, 6, "six").unwrap();
    let id = tx.id();
    tx.commit_with(Durability::Sync).unwrap();
    assert!(db.begin().unwrap().id() > id);
    assert_eq!(keys(&db), [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 20]);
}

#[test]
fn a_cursor_belongs_to_its_transaction() {
    let (_directory, db) = filled();
    let (mut one, mut two) = (db.begin().unwrap(), db.begin().unwrap());
    let mut cursor = one.cursor(NUMBERS, .., Direction::Ascending).unwrap();
    assert!(matches!(cursor.next(&mut two), Err(Error::NotOfThisTransaction { what: "cursor" })));
    assert_eq!(cursor.next(&mut one).unwrap(), Some((1, "one".to_owned())));
    // Transactions of databases that are used alike have the same numbers.
    let (_elsewhere, other) = filled();
    let mut namesake = other.begin().unwrap();
    while namesake.id() < one.id() {
        namesake = other.begin().unwrap();
    }
    assert_eq!(namesake.id(), one.id());
    assert!(matches!(cursor.next(&mut namesake), Err(Error::NotOfThisTransaction { what: "cursor" })));
}

/// The catalogue has both names in one piece; the table was made, and could never be used.
#[test]
fn the_name_of_a_type_of_keys_has_one_line() {
    let (_directory, db) = open();
    let refused = db.create_table("lines", "one\ntwo", "u32");
    assert!(matches!(refused, Err(Error::LimitExceeded { limit: 1, got: 2, .. })), "{refused:?}");
    assert!(db.tables().unwrap().iter().all(|table| table.name != "lines"));
}

#[test]
fn wrong_options_are_refused_before_anything_is_touched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let error = Database::builder().pool_bytes(1).open(&path).unwrap_err();
    assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
    assert!(Database::builder().set("poolbytes", "1MiB").is_err());
    assert!(!path.exists());
    let options = Options { pool_bytes: 1 << 20, ..Options::default() };
    let db = Database::builder().options(options.clone()).open(&path).unwrap();
    assert_eq!(db.options(), &options);
}

/// A database was not to be opened with smaller limits than what is prepared was made under, and at a shell it could
/// not be told of others.
#[test]
fn what_is_prepared_gets_its_locks_back_whatever_the_limits() {
    let (directory, db) = open();
    let mut tx = db.begin().unwrap();
    for number in 0..1000 {
        tx.put(NUMBERS, number, "new").unwrap();
    }
    tx.prepare(b"one").unwrap();
    let locks = db.prepared().unwrap()[0].locks;
    db.close().unwrap();
    drop(db);
    for table in ["latched", "staged", "global_mutex"] {
        let limits = [
            ("lock_table", table),
            ("max_locks_per_transaction", "5"),
            ("max_locks", "256"),
            ("escalation_locks", "0"),
        ];
        let builder = limits
            .iter()
            .fold(Database::builder(), |builder, (name, value)| builder.set(name, value).unwrap());
        let db = builder.open(directory.path().join("db")).unwrap();
        assert_eq!(db.prepared().unwrap()[0].locks, locks, "{table:?}");
        // All of them; and others have what the limits say.
        let at_once = TransactOptions { no_wait: true, ..TransactOptions::default() };
        for number in [0, 500, 999] {
            let read = db.begin_with(&at_once).unwrap().get(NUMBERS, number);
            assert!(matches!(read, Err(Error::WouldBlock(_))), "{table:?}, {number}: {read:?}");
        }
        let mut tx = db.begin().unwrap();
        let taken = (2000..3000).take_while(|number| tx.get_for_update(NUMBERS, *number).is_ok()).count();
        assert!((1..=5).contains(&taken), "{table:?}: {taken}");
        drop(tx);
        db.close().unwrap();
    }
    let db = Database::open(directory.path().join("db")).unwrap();
    db.rollback_prepared(b"one").unwrap();
    assert!(keys(&db).is_empty());
}

/// What steers a terminal comes to no message as it is.
#[test]
fn messages_escape_what_others_have_chosen() {
    let (_directory, db) = filled();
    let options = TransactOptions { label: Some("pays\u{1b}[2J\n".into()), ..TransactOptions::default() };
    let mut tx = db.begin_with(&options).unwrap();
    tx.put(NUMBERS, 1, "uno").unwrap();
    let busy = TransactOptions { no_wait: true, ..TransactOptions::default() };
    let mut other = db.begin_with(&busy).unwrap();
    let mut is_told = |expected: &str| {
        let told = other.get(NUMBERS, 1).unwrap_err().to_string();
        assert!(told.contains(expected) && !told.contains(char::is_control), "{told}");
    };
    is_told("(pays\\u{1b}[2J\\n)");
    tx.prepare(b"one\n\0").unwrap();
    is_told("(prepared hex:6f6e650a00)");
    assert!(
        !db.log_retention().holders.iter().any(|hold| hold.holder.to_string().contains(char::is_control))
    );
}

#[test]
fn a_prepared_transaction_waits_for_a_decision_over_a_restart() {
    let (directory, db) = filled();
    for (key, id) in [(10, "one"), (11, "two")] {
        let mut tx = db.begin().unwrap();
        tx.put(NUMBERS, key, "new").unwrap();
        tx.prepare(id).unwrap();
    }
    // Who waits is told the same before a restart and after it.
    let refuse = |db: &Database, options: TransactOptions| {
        let refused = db.transact_with(&options, |tx| tx.get(NUMBERS, 11)).unwrap_err();
        let (Error::WouldBlock(lock) | Error::LockTimeout(lock)) = &refused else { panic!("{refused}") };
        assert_eq!(lock.prepared, [b"two"]);
        let told = refused.to_string();
        assert!(told.contains("(prepared two)") && told.contains("commit_prepared"), "{told}");
    };
    let refuses = |db: &Database| {
        refuse(db, TransactOptions { no_wait: true, ..TransactOptions::default() });
        refuse(db, TransactOptions { deadline: Some(Duration::ZERO), ..TransactOptions::default() });
    };
    refuses(&db);
    let prepare = |id: &[u8]| db.begin().unwrap().prepare(id).unwrap_err();
    assert!(matches!(prepare(b"one"), Error::GlobalIdInUse { id } if id == b"one"));
    assert!(matches!(prepare(b""), Error::InvalidGlobalId { bytes: 0, .. }));
    assert!(matches!(db.commit_prepared("three"), Err(Error::UnknownGlobalId { .. })));
    db.close().unwrap();
    assert!(matches!(db.prepared(), Err(Error::Closed { .. })));
    drop(db);

    let db = Database::open(directory.path().join("db")).unwrap();
    let prepared = db.prepared().unwrap();
    assert_eq!(prepared.iter().map(|one| &one.global_id[..]).collect::<Vec<_>>(), [b"one", b"two"]);
    assert_eq!(db.stats().prepared, 2);
    let retention = db.log_retention();
    let LogHolder::Prepared(holder) = &retention.holders[0].holder else { panic!("{retention:?}") };
    assert_eq!(holder, &prepared[0]);
    let told = retention.holders[0].holder.to_string();
    assert!(told.contains("prepared as \"one\" ") && told.ends_with(" s ago"), "{told}");
    refuses(&db);
    db.commit_prepared("one").unwrap();
    db.rollback_prepared("two").unwrap();
    assert!(matches!(db.rollback_prepared("one"), Err(Error::UnknownGlobalId { .. })));
    assert_eq!(keys(&db), [1, 2, 3, 5, 8, 10]);
}
