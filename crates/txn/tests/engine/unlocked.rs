//! Reads without locks, one case after another: what they see, what makes them stale, and what does not (READ-1 to
//! READ-7).

use std::ops::Bound;

use foreshore_env::sync::Arc;
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_txn::{
    Direction, Durability, Engine, EngineOptions, LockError, LockKind, LockOptions, ReadMode, TableInfo, Txn,
    TxnError,
};

use crate::{assert_sound, begin, get, open_with, put, scan, tiny};

const KEYS: u32 = 60;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// A table with every other key, four to a leaf.
fn filled(options: &EngineOptions) -> (FaultyDisk, Arc<Engine>, TableInfo) {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, options).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    for number in (0..KEYS).step_by(2) {
        put(&engine, &table, &key(number), b"old");
    }
    (disk, engine, table)
}

fn tiny_filled() -> (FaultyDisk, Arc<Engine>, TableInfo) {
    filled(&tiny())
}

fn reader(engine: &Arc<Engine>) -> Txn {
    let mut txn = begin(engine);
    txn.set_read_mode(ReadMode::Hybrid);
    txn
}

fn is_stale<T>(result: &Result<T, TxnError>) -> bool {
    matches!(result, Err(TxnError::Lock(LockError::StaleReads)))
}

/// Locks on keys that were ever taken.
fn locked(engine: &Arc<Engine>) -> u64 {
    engine.stats().locks.released
}

/// Changes a table in a transaction of its own.
fn change(engine: &Arc<Engine>, change: impl FnOnce(&mut Txn)) {
    let mut txn = begin(engine);
    change(&mut txn);
    txn.commit(Durability::Sync).unwrap();
}

fn range(txn: &mut Txn, table: &TableInfo, low: u32, high: u32) -> Result<usize, TxnError> {
    let (low, high) = (key(low), key(high));
    let range = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
    let mut cursor = txn.cursor(table, range, Direction::Ascending, LockKind::Shared)?;
    let (mut key, mut value, mut count) = (Vec::new(), Vec::new(), 0);
    while txn.next(&mut cursor, &mut key, &mut value)? {
        count += 1;
    }
    Ok(count)
}

#[test]
fn what_nobody_changes_is_read_without_locks() {
    let (_disk, engine, table) = tiny_filled();
    let before = locked(&engine);
    let mut txn = reader(&engine);
    assert_eq!(get(&mut txn, &table, &key(4)).unwrap().unwrap(), b"old");
    assert_eq!(get(&mut txn, &table, &key(5)).unwrap(), None);
    assert_eq!(scan(&mut txn, &table).unwrap().len(), 30);
    txn.commit(Durability::Sync).unwrap();
    assert_eq!(locked(&engine), before);
    assert_eq!((engine.stats().stale_reads, engine.stats().unlocked_fallbacks), (0, 0));
    assert_sound(&engine, "after reads");
}

/// Every change of what was read is noticed: with the next read of another leaf, or at the commit.
#[test]
fn a_change_of_what_was_read_is_noticed() {
    type Read = fn(&mut Txn, &TableInfo);
    type Write = fn(&mut Txn, &TableInfo);
    let reads: [(&str, Read); 5] = [
        ("a key", |txn, table| drop(get(txn, table, &key(20)).unwrap())),
        ("an absent key", |txn, table| assert_eq!(get(txn, table, &key(21)).unwrap(), None)),
        ("an empty range", |txn, table| assert_eq!(range(txn, table, 21, 22).unwrap(), 0)),
        ("a range over leaves", |txn, table| _ = range(txn, table, 10, 30).unwrap()),
        ("all", |txn, table| drop(scan(txn, table).unwrap())),
    ];
    let writes: [(&str, Write); 4] = [
        ("an update", |txn, table| _ = txn.put(table, &key(20), b"new").unwrap()),
        ("a deletion", |txn, table| _ = txn.delete(table, &key(20)).unwrap()),
        ("an insertion", |txn, table| _ = txn.insert(table, &key(21), b"new").unwrap()),
        ("insertions that split", |txn, table| {
            for number in [17, 19, 21, 23, 25] {
                txn.insert(table, &key(number), b"new").unwrap();
            }
        }),
    ];
    for (what, read) in reads {
        for (how, write) in writes {
            for at_commit in [false, true] {
                let (_disk, engine, table) = tiny_filled();
                let mut txn = reader(&engine);
                read(&mut txn, &table);
                change(&engine, |txn| write(txn, &table));
                let outcome = if at_commit {
                    txn.commit(Durability::Sync).map(|_| ())
                } else {
                    let read = get(&mut txn, &table, &key(50)).map(|_| ());
                    assert!(txn.has_stale_reads());
                    assert!(matches!(get(&mut txn, &table, &key(50)), Err(TxnError::Failed)));
                    txn.rollback().unwrap();
                    read
                };
                assert!(is_stale(&outcome), "{what}, {how}: {outcome:?}");
                assert_eq!(engine.stats().stale_reads, 1);
                assert_sound(&engine, what);
            }
        }
    }
}

#[test]
fn changes_elsewhere_do_not_matter() {
    let (_disk, engine, table) = tiny_filled();
    let mut txn = reader(&engine);
    assert_eq!(range(&mut txn, &table, 10, 20).unwrap(), 5);
    change(&engine, |txn| _ = txn.put(&table, &key(50), b"new").unwrap());
    assert_eq!(get(&mut txn, &table, &key(50)).unwrap().unwrap(), b"new");
    txn.commit(Durability::Sync).unwrap();
    assert_sound(&engine, "after");
}

/// READ-2: not before its writer has committed, and not after it has rolled back.
#[test]
fn what_is_not_committed_is_not_read() {
    for finish in [Txn::rollback, |txn: Txn| txn.commit(Durability::Sync).map(drop)] {
        let (_disk, engine, table) = tiny_filled();
        let mut writer = begin(&engine);
        writer.put(&table, &key(20), b"new").unwrap();
        writer.delete(&table, &key(22)).unwrap();
        writer.insert(&table, &key(23), b"new").unwrap();
        let mut txn = reader(&engine);
        txn.set_no_wait(true);
        for number in [20, 22, 23] {
            let read = get(&mut txn, &table, &key(number));
            assert!(matches!(read, Err(TxnError::Lock(LockError::WouldBlock(_)))), "{number}: {read:?}");
        }
        let scanned = scan(&mut txn, &table);
        assert!(matches!(scanned, Err(TxnError::Lock(LockError::WouldBlock(_)))), "{scanned:?}");
        finish(writer).unwrap();
        txn.rollback().unwrap();
        let mut txn = reader(&engine);
        let expected =
            if get(&mut begin(&engine), &table, &key(23)).unwrap().is_some() { "new" } else { "old" };
        assert_eq!(get(&mut txn, &table, &key(20)).unwrap().unwrap(), expected.as_bytes());
        assert_eq!(scan(&mut txn, &table).unwrap().len(), 30);
        txn.commit(Durability::Sync).unwrap();
        assert_sound(&engine, expected);
    }
}

/// What validation costs has an end: behind so many leaves a reader locks what it reads.
#[test]
fn of_very_many_leaves_the_last_are_locked() {
    let engine = open_with(&FaultyDisk::new(), &tiny()).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    for first in (0..3000).step_by(100) {
        change(&engine, |txn| {
            (first..first + 100).for_each(|number| _ = txn.put(&table, &key(number), b"old").unwrap());
        });
    }
    let before = locked(&engine);
    let mut txn = reader(&engine);
    assert_eq!(range(&mut txn, &table, 0, 300).unwrap(), 300);
    assert_eq!(engine.stats().unlocked_fallbacks, 0);
    assert_eq!(scan(&mut txn, &table).unwrap().len(), 3000);
    txn.commit(Durability::Sync).unwrap();
    assert_eq!((engine.stats().unlocked_fallbacks, engine.stats().stale_reads), (1, 0), "one transaction");
    let taken = locked(&engine) - before;
    assert!(
        (1000..3000).contains(&taken),
        "{taken} locks: none on what lies in the first 256 leaves, of four records each"
    );
}

/// READ-3: on a settled page nobody is asked who has locked what. Here all names share one place, so that asking is of
/// no use.
#[test]
fn a_settled_page_needs_no_look_at_the_locks() {
    let locks = LockOptions { buckets: 1, ..LockOptions::default() };
    let (_disk, engine, table) = filled(&EngineOptions { locks, ..tiny() });
    // Whoever meets a page that is not settled looks how far the log is.
    get(&mut reader(&engine), &table, &key(0)).unwrap();
    let mut writer = begin(&engine);
    writer.put(&table, &key(50), b"new").unwrap();
    let before = locked(&engine);
    let mut txn = reader(&engine);
    assert_eq!(range(&mut txn, &table, 0, 40).unwrap(), 20);
    txn.commit(Durability::Sync).unwrap();
    assert_eq!(locked(&engine), before, "all of it was durable before the writer began");
    // The writer's page is not settled before it has ended.
    let mut txn = reader(&engine);
    txn.set_no_wait(true);
    let read = get(&mut txn, &table, &key(50));
    assert!(matches!(read, Err(TxnError::Lock(LockError::WouldBlock(_)))), "{read:?}");
    txn.rollback().unwrap();
    writer.rollback().unwrap();
}

/// READ-5: what the transaction changes itself does not make its reads stale; what others change before it does.
#[test]
fn own_changes_are_followed() {
    let (_disk, engine, table) = tiny_filled();
    let mut txn = reader(&engine);
    assert_eq!(get(&mut txn, &table, &key(20)).unwrap().unwrap(), b"old");
    txn.put(&table, &key(20), b"new").unwrap();
    txn.put(&table, &key(20), b"newer").unwrap();
    assert_eq!(get(&mut txn, &table, &key(20)).unwrap().unwrap(), b"newer");
    txn.commit(Durability::Sync).unwrap();
    assert_eq!(engine.stats().stale_reads, 0);

    let mut txn = reader(&engine);
    assert_eq!(get(&mut txn, &table, &key(20)).unwrap().unwrap(), b"newer");
    change(&engine, |txn| _ = txn.put(&table, &key(20), b"by another").unwrap());
    txn.put(&table, &key(20), b"lost update").unwrap();
    let outcome = txn.commit(Durability::Sync);
    assert!(is_stale(&outcome), "{outcome:?}");
    let mut txn = begin(&engine);
    assert_eq!(get(&mut txn, &table, &key(20)).unwrap().unwrap(), b"by another");
    txn.rollback().unwrap();
    assert_sound(&engine, "after the loser");
}

/// READ-4: what is read under a lock is seen only beside what still is as it was.
#[test]
fn reads_under_locks_stand_beside_the_others() {
    let (_disk, engine, table) = tiny_filled();
    let mut txn = reader(&engine);
    assert_eq!(get(&mut txn, &table, &key(10)).unwrap().unwrap(), b"old");
    // From here on it locks what it reads.
    txn.put(&table, &key(30), b"own").unwrap();
    change(&engine, |txn| {
        txn.put(&table, &key(10), b"new").unwrap();
        txn.put(&table, &key(50), b"new").unwrap();
    });
    let read = get(&mut txn, &table, &key(50));
    assert!(is_stale(&read), "{read:?}");
    txn.rollback().unwrap();

    let mut txn = reader(&engine);
    assert_eq!(get(&mut txn, &table, &key(10)).unwrap().unwrap(), b"new");
    txn.put(&table, &key(30), b"own").unwrap();
    change(&engine, |txn| _ = txn.put(&table, &key(10), b"newer").unwrap());
    let read = range(&mut txn, &table, 40, 60);
    assert!(is_stale(&read), "{read:?}");
    txn.rollback().unwrap();
}

/// READ-4: two transactions that read what the other writes: one of them fails.
#[test]
fn write_skew_is_refused() {
    let (_disk, engine, table) = tiny_filled();
    let (mut one, mut other) = (reader(&engine), reader(&engine));
    assert_eq!(get(&mut one, &table, &key(10)).unwrap().unwrap(), b"old");
    assert_eq!(get(&mut other, &table, &key(50)).unwrap().unwrap(), b"old");
    one.put(&table, &key(50), b"by one").unwrap();
    other.put(&table, &key(10), b"by other").unwrap();
    let outcome = one.commit(Durability::Sync);
    assert!(is_stale(&outcome), "{outcome:?}");
    // What the other had read was changed, and changed back: the page is not as it was, so it fails as well.
    let outcome = other.commit(Durability::Sync);
    assert!(is_stale(&outcome), "{outcome:?}");
}

/// READ-6: a page that was evicted and read again is as it was, and one that is not in the pool is not known to be.
#[test]
fn an_evicted_page_may_be_as_it_was() {
    for comes_back in [true, false] {
        let (_disk, engine, table) = tiny_filled();
        let other = engine.create_table("other", b"").unwrap();
        for number in 0..400 {
            put(&engine, &other, &key(number), &[1; 1000]);
        }
        engine.checkpoint().unwrap();
        let mut txn = reader(&engine);
        assert_eq!(get(&mut txn, &table, &key(20)).unwrap().unwrap(), b"old");
        // 24 frames are in the pool.
        assert_eq!(scan(&mut begin(&engine), &other).unwrap().len(), 400);
        if comes_back {
            get(&mut begin(&engine), &table, &key(20)).unwrap();
        }
        // Something has to have been written, or nothing can have changed.
        change(&engine, |txn| _ = txn.put(&other, &key(1), b"new").unwrap());
        let outcome = txn.commit(Durability::Sync);
        assert_eq!(is_stale(&outcome), !comes_back, "{outcome:?}");
    }
}

/// Prepared transactions have their locks after a restart, and their pages are not settled.
#[test]
fn what_a_prepared_transaction_has_written_is_not_read_after_a_restart() {
    let (disk, engine, table) = tiny_filled();
    let mut txn = begin(&engine);
    txn.put(&table, &key(20), b"prepared").unwrap();
    txn.prepare(b"id").unwrap();
    drop(engine);
    for decided in [false, true] {
        let engine = open_with(&disk.after_crash(CrashMode::DropUnsynced), &tiny()).unwrap();
        let table = engine.table("t").unwrap().unwrap();
        if decided {
            engine.commit_prepared(b"id").unwrap();
        }
        let mut txn = reader(&engine);
        txn.set_no_wait(true);
        let read = get(&mut txn, &table, &key(20));
        if decided {
            assert_eq!(read.unwrap().unwrap(), b"prepared");
        } else {
            assert!(matches!(read, Err(TxnError::Lock(LockError::WouldBlock(_)))), "{read:?}");
        }
        txn.rollback().unwrap();
    }
}

/// A table where reads fail often is locked at once, and after a while tried again.
#[test]
fn a_table_where_reads_fail_is_locked() {
    let (_disk, engine, table) = tiny_filled();
    // Whether the reader locked, and whether it failed.
    let attempt = |interfere: bool| {
        let before = locked(&engine);
        let mut txn = reader(&engine);
        get(&mut txn, &table, &key(20)).unwrap();
        let mut writer = begin(&engine);
        writer.set_no_wait(true);
        if interfere && writer.put(&table, &key(20), b"new").is_ok() {
            writer.put(&table, &key(20), b"newer").unwrap();
            writer.commit(Durability::Sync).unwrap();
            return (false, is_stale(&txn.commit(Durability::Sync)));
        }
        writer.rollback().unwrap();
        let stale = is_stale(&txn.commit(Durability::Sync));
        (locked(&engine) > before, stale)
    };
    let failures = (0..100).map(|_| attempt(true)).filter(|(_, stale)| *stale).count();
    assert!((2..20).contains(&failures), "{failures} of 100 failed");
    let fallbacks = engine.stats().unlocked_fallbacks;
    assert_eq!(fallbacks, 100 - failures as u64, "the others locked");
    // Nobody is in the way any more.
    let locked = (0..2000).map(|_| attempt(false)).filter(|(locked, _)| *locked).count();
    assert!(locked < 1500, "{locked} of 2000 locked");
    assert_eq!(engine.stats().unlocked_fallbacks - fallbacks, locked as u64);
    assert_eq!(attempt(false), (false, false));
}

/// The first record, or the last one, of a table from which all was deleted: a reader cleans up what it comes by, but
/// for the leaves that it has to find as they were, and the next ones have little to pass.
#[test]
fn who_passes_what_was_deleted_cleans_up() {
    let ways = [Direction::Ascending, Direction::Descending]
        .into_iter()
        .flat_map(|direction| [(direction, 50_000, usize::MAX), (direction, 5000, 12)]);
    for (direction, rows, node_capacity) in ways {
        let options = EngineOptions { node_capacity, ..EngineOptions::default() };
        let engine = open_with(&FaultyDisk::new(), &options).unwrap();
        let table = engine.create_table("t", b"").unwrap();
        change(&engine, |txn| {
            (0..rows).for_each(|row| assert!(txn.insert(&table, &key(row), &[7; 100]).unwrap()));
        });
        change(&engine, |txn| {
            let whole = (Bound::Unbounded, Bound::Unbounded);
            let mut cursor = txn.cursor(&table, whole, Direction::Ascending, LockKind::Exclusive).unwrap();
            let (mut key, mut value) = (Vec::new(), Vec::new());
            while txn.next(&mut cursor, &mut key, &mut value).unwrap() {
                assert!(txn.delete(&table, &key).unwrap());
            }
        });
        let mut costs = Vec::new();
        for _ in 0..4 {
            let before = locked(&engine);
            let mut txn = reader(&engine);
            let whole = (Bound::Unbounded, Bound::Unbounded);
            let mut cursor = txn.cursor(&table, whole, direction, LockKind::Shared).unwrap();
            assert!(!txn.advance(&mut cursor).unwrap());
            txn.commit(Durability::Sync).unwrap();
            costs.push(locked(&engine) - before);
        }
        let report = engine.verify().unwrap();
        assert!(costs.iter().sum::<u64>() < 100, "{costs:?}");
        assert!(report.trees.ghosts < 100 && report.trees.pages < 12, "{report:?}");
        assert_eq!(engine.stats().stale_reads, 0);
    }
}

/// No read shows what never was beside those before it, one under a lock neither, even if it fails.
#[test]
fn what_is_read_under_a_lock_is_shown_only_beside_what_was_read_before() {
    let long = |first: u8| vec![first; 3000];
    type Read = fn(&mut Txn, &TableInfo, &mut Vec<u8>) -> Result<(), TxnError>;
    let reads: [(&str, Read); 4] = [
        ("get", |txn, table, seen| txn.get(table, &key(50), |value| seen.push(value[0])).map(drop)),
        ("get for update", |txn, table, seen| {
            txn.get_for_update(table, &key(50), |value| seen.push(value[0])).map(drop)
        }),
        ("get many", |txn, table, seen| {
            let each = |_: usize, value: Option<&[u8]>| seen.extend(value.map(|value| value[0]));
            txn.get_many(table, &[key(50)], LockKind::Shared, each)
        }),
        ("get many of what is deleted", |txn, table, seen| {
            let each = |_: usize, value: Option<&[u8]>| seen.push(value.map_or(0, |value| value[0]));
            txn.get_many(table, &[key(5)], LockKind::Exclusive, each)
        }),
    ];
    for (what, read) in reads {
        let (_disk, engine, table) = tiny_filled();
        change(&engine, |txn| _ = txn.put(&table, &key(50), &long(b'o')).unwrap());
        let mut txn = reader(&engine);
        assert_eq!(get(&mut txn, &table, &key(4)).unwrap().unwrap(), b"old");
        change(&engine, |txn| {
            txn.put(&table, &key(4), b"new").unwrap();
            txn.put(&table, &key(50), &long(b'n')).unwrap();
            txn.delete(&table, &key(5)).unwrap();
        });
        let mut seen = Vec::new();
        assert!(is_stale(&read(&mut txn, &table, &mut seen)), "{what}");
        assert_eq!(seen, [0_u8; 0], "{what}: the new value was shown beside the old one");
    }
}
