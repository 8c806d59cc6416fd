//! The locks of prepared transactions: which stay, which go, and which are there after a restart.

use std::ops::Bound;

use foreshore_base::limits::MAX_TRANSACTIONS;
use foreshore_env::time::{Duration, Instant};
use foreshore_txn::{
    BeginOptions, DeadlockPolicy, Direction, IntentLockKind, IntentMode, KeyRangeModes, LockKind,
    LockOptions, LockTableKind, Partitioner,
};

use super::*;

/// Whether a lock on the whole table is refused.
fn is_table_refused(engine: &Arc<Engine>, table: &TableInfo, mode: IntentMode) -> bool {
    let mut txn = begin(engine);
    txn.set_no_wait(true);
    match txn.lock_table(table, mode) {
        Ok(()) => false,
        Err(TxnError::Lock(LockError::WouldBlock(_))) => true,
        Err(error) => panic!("{error}"),
    }
}

fn is_insert_refused(engine: &Arc<Engine>, table: &TableInfo, key: &[u8]) -> bool {
    let mut txn = begin(engine);
    txn.set_no_wait(true);
    match txn.insert(table, key, b"") {
        Ok(inserted) => {
            assert!(inserted);
            false
        }
        Err(TxnError::Lock(LockError::WouldBlock(_))) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Every kind of lock table, of intent locks and of key-range modes, the others as usual.
fn all_kinds() -> Vec<LockOptions> {
    let tables = LockTableKind::ALL.map(|table| LockOptions { table, ..LockOptions::default() });
    let intents = IntentLockKind::ALL.map(|intents| LockOptions { intents, ..LockOptions::default() });
    let ranges = KeyRangeModes::ALL.map(|key_ranges| LockOptions { key_ranges, ..LockOptions::default() });
    [&tables[..], &intents, &ranges].concat()
}

/// Nobody is told what a rollback has left before that is durable: after a crash the transaction is prepared again, and
/// may commit.
#[test]
fn a_rollback_keeps_its_locks_until_it_is_durable() {
    for early_lock_release in [EarlyLockRelease::SharedAndExclusive, EarlyLockRelease::Off] {
        let disk = FaultyDisk::new();
        let engine = open_with(&disk, &EngineOptions { early_lock_release, ..tiny() }).unwrap();
        let table = engine.create_table("t", b"").unwrap();
        set_up(&engine, &table, 0);
        prepare(&engine, &table, 0);
        disk.hold_syncs(true);
        thread::scope(|scope| {
            let decision = scope.spawn(|| engine.rollback_prepared(&id(0)));
            let was_locked = (0..100).all(|_| {
                thread::sleep(Duration::from_millis(1));
                is_locked(&engine, &table, 0)
            });
            disk.hold_syncs(false);
            assert!(was_locked, "{early_lock_release:?}");
            decision.join().unwrap().unwrap();
        });
        assert!(!is_done(&engine, &table, 0));
    }
}

/// Tables that were only read are free, the others are not; and all are after the decision.
#[test]
fn table_locks_are_those_of_what_was_written() {
    for locks in all_kinds() {
        let options = EngineOptions { locks: locks.clone(), ..tiny() };
        let disk = FaultyDisk::new();
        let engine = open_with(&disk, &options).unwrap();
        let [read, written, whole] =
            ["read", "written", "whole"].map(|name| engine.create_table(name, b"").unwrap());
        let mut txn = begin(&engine);
        get(&mut txn, &read, b"key").unwrap();
        txn.put(&written, b"key", b"value").unwrap();
        txn.lock_table(&whole, IntentMode::X).unwrap();
        txn.prepare(b"id").unwrap();
        check_tables(&engine, &locks);
        engine.close().unwrap();
        let engine = open_with(&disk, &options).unwrap();
        check_tables(&engine, &locks);
        engine.commit_prepared(b"id").unwrap();
        for name in ["read", "written", "whole"] {
            let table = engine.table(name).unwrap().unwrap();
            assert!(!is_table_refused(&engine, &table, IntentMode::X), "{name}: {locks:?}");
        }
        assert_sound(&engine, &format!("{locks:?}"));
    }
}

fn check_tables(engine: &Arc<Engine>, locks: &LockOptions) {
    let [read, written, whole] =
        ["read", "written", "whole"].map(|name| engine.table(name).unwrap().unwrap());
    assert!(!is_table_refused(engine, &read, IntentMode::X), "{locks:?}");
    assert!(is_table_refused(engine, &written, IntentMode::S), "{locks:?}");
    assert!(!is_table_refused(engine, &written, IntentMode::IX), "{locks:?}");
    assert!(is_table_refused(engine, &whole, IntentMode::IS), "{locks:?}");
    assert_eq!(engine.prepared().unwrap()[0].tables, 1, "{locks:?}");
    let mut txn = begin(engine);
    txn.set_no_wait(true);
    assert!(get(&mut txn, &written, b"key").is_err(), "{locks:?}");
}

/// A lock on a table that stands for those on its keys comes back too.
#[test]
fn an_escalated_lock_survives_a_restart() {
    let options = EngineOptions { escalation_locks: 80, node_capacity: usize::MAX, ..tiny() };
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &options).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let mut txn = begin(&engine);
    for number in 0..300_u32 {
        txn.put(&table, &number.to_be_bytes(), b"x").unwrap();
    }
    txn.prepare(b"escalated").unwrap();
    assert!(engine.prepared().unwrap()[0].locks < 200 && engine.stats().locks.escalations == 1);
    let left = disk.after_crash(CrashMode::DropUnsynced);
    for decide in [Engine::commit_prepared, Engine::rollback_prepared] {
        let engine = open_with(&left.after_crash(CrashMode::KeepAll), &options).unwrap();
        let table = engine.table("t").unwrap().unwrap();
        // Neither of these keys has a lock of its own.
        for key in [290_u32, 1000] {
            let mut other = begin(&engine);
            other.set_no_wait(true);
            assert!(get(&mut other, &table, &key.to_be_bytes()).is_err(), "{key}");
        }
        decide(&engine, b"escalated").unwrap();
        put(&engine, &table, b"after", b"");
        assert_sound(&engine, "escalated");
    }
}

/// Where the names of keys mean something else after a restart, nothing that was locked is free: its whole table is
/// locked, until the last who has changed it is decided about.
#[test]
fn locks_survive_a_restart_with_another_partitioner() {
    let by_length = Partitioner::new(4, |key| key.len());
    let by_begin = Partitioner::new(3, |key| usize::from(key[0]));
    let pairs = [
        (None, Some(by_length.clone())),
        (Some(by_length.clone()), None),
        (Some(by_length.clone()), Some(by_begin)),
        (Some(by_length.clone()), Some(by_length)),
    ];
    for (before, after) in pairs {
        let with = |partitioner| {
            let locks = LockOptions { partitioner, ..LockOptions::default() };
            EngineOptions { locks, ..tiny() }
        };
        let disk = FaultyDisk::new();
        let engine = open_with(&disk, &with(before)).unwrap();
        let [read, written] = ["read", "written"].map(|name| engine.create_table(name, b"").unwrap());
        for number in [0, 1] {
            set_up(&engine, &written, number);
            let mut txn = begin(&engine);
            get(&mut txn, &read, b"key").unwrap();
            work(&mut txn, &written, number);
            txn.prepare(&id(number)).unwrap();
        }
        let left = disk.after_crash(CrashMode::DropUnsynced);
        for decide in [Engine::commit_prepared, Engine::rollback_prepared] {
            let engine = open_with(&left.after_crash(CrashMode::KeepAll), &with(after.clone())).unwrap();
            let [read, written] = ["read", "written"].map(|name| engine.table(name).unwrap().unwrap());
            for number in [0, 1] {
                assert!(is_locked(&engine, &written, 0) && is_locked(&engine, &written, 1));
                assert!(is_table_refused(&engine, &written, IntentMode::IS));
                assert!(!is_table_refused(&engine, &read, IntentMode::X));
                assert_eq!(engine.prepared().unwrap()[0].tables, 1);
                decide(&engine, &id(number)).unwrap();
            }
            assert!(!is_table_refused(&engine, &written, IntentMode::X));
            assert_eq!(is_done(&engine, &written, 0), is_done(&engine, &written, 1));
            assert_sound(&engine, "another partitioner");
        }
    }
}

/// As many as there are places for come back after a restart, also if their locks have lost their names and one of them
/// has to hold the table for all; and no decision needs a place.
#[test]
fn as_many_as_there_may_be_survive_a_restart() {
    for partitioner in [None, Some(Partitioner::new(4, |key| key.len()))] {
        let loses_names = partitioner.is_some();
        let disk = FaultyDisk::new();
        let engine = open(&disk).unwrap();
        let table = engine.create_table("t", b"").unwrap();
        let key = |number: usize| (number as u32).to_be_bytes();
        for number in 0..MAX_TRANSACTIONS {
            let mut txn = begin(&engine);
            txn.put(&table, &key(number), b"new").unwrap();
            txn.prepare(&id(number)).unwrap();
        }
        drop((table, engine));
        let locks = LockOptions { partitioner, ..LockOptions::default() };
        let engine = open_with(&disk, &EngineOptions { locks, ..tiny() }).unwrap();
        let table = engine.table("t").unwrap().unwrap();
        assert_eq!(engine.prepared().unwrap().len(), MAX_TRANSACTIONS);
        assert!(engine.begin(BeginOptions::default()).is_err());
        let decide = |number: usize| match number % 2 {
            0 => engine.commit_prepared(&id(number)).unwrap(),
            _ => engine.rollback_prepared(&id(number)).unwrap(),
        };
        // The oldest first: it was taken back first.
        decide(0);
        assert_eq!(is_table_refused(&engine, &table, IntentMode::IX), loses_names);
        thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || (1..MAX_TRANSACTIONS - 1).skip(thread).step_by(4).for_each(decide));
            }
        });
        let last = MAX_TRANSACTIONS - 1;
        assert_eq!(is_table_refused(&engine, &table, IntentMode::IX), loses_names);
        decide(last);
        assert!(!is_table_refused(&engine, &table, IntentMode::X));
        let mut txn = begin(&engine);
        for number in 0..MAX_TRANSACTIONS {
            let found = get(&mut txn, &table, &key(number)).unwrap().is_some();
            assert_eq!(found, number % 2 == 0, "{number}");
        }
        drop(txn);
        assert_sound(&engine, "as many as there may be");
    }
}

/// Locks on tables counted for the limit, where they are requests in the lock table: the database could not be opened.
#[test]
fn more_tables_than_there_may_be_locks_survive_a_restart() {
    const TABLES: usize = 800;
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let mut txn = begin(&engine);
    for number in 0..TABLES {
        let table = engine.create_table(&format!("t{number}"), b"").unwrap();
        txn.lock_table(&table, IntentMode::X).unwrap();
        txn.put(&table, b"key", b"value").unwrap();
    }
    txn.prepare(&id(0)).unwrap();
    drop(engine);
    for intents in IntentLockKind::ALL {
        let locks = LockOptions { intents, max_locks: 1, ..LockOptions::default() };
        let engine = open_with(&disk, &EngineOptions { locks, ..tiny() }).unwrap();
        assert_eq!(engine.prepared().unwrap().len(), 1, "{intents:?}");
        for number in [0, TABLES - 1] {
            let table = engine.table(&format!("t{number}")).unwrap().unwrap();
            assert!(is_table_refused(&engine, &table, IntentMode::IS), "{intents:?}");
        }
    }
    open(&disk).unwrap().commit_prepared(&id(0)).unwrap();
}

/// What was read for update stays as it was read: no key comes into the range, and none goes.
#[test]
fn exclusive_gaps_survive_a_restart() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    for key in [b"b", b"d", b"f"] {
        put(&engine, &table, key, b"old");
    }
    let mut txn = begin(&engine);
    let range = (Bound::Included(b"b".as_slice()), Bound::Included(b"d".as_slice()));
    let mut cursor = txn.cursor(&table, range, Direction::Ascending, LockKind::Exclusive).unwrap();
    let (mut key, mut value) = (Vec::new(), Vec::new());
    while txn.next(&mut cursor, &mut key, &mut value).unwrap() {}
    txn.prepare(b"range").unwrap();
    let left = disk.after_crash(CrashMode::DropUnsynced);
    for (restart, engine) in [(false, engine), (true, open(&left).unwrap())] {
        let table = engine.table("t").unwrap().unwrap();
        assert!(is_insert_refused(&engine, &table, b"c"), "restart: {restart}");
        assert!(!is_insert_refused(&engine, &table, b"g"), "restart: {restart}");
        engine.commit_prepared(b"range").unwrap();
        assert!(!is_insert_refused(&engine, &table, b"c"), "restart: {restart}");
        assert_sound(&engine, "gaps");
    }
}

/// Whoever waits for a prepared transaction gets on with its decision, or gives way itself: a prepared one never does.
#[test]
fn no_policy_touches_a_prepared_transaction() {
    for deadlock in DeadlockPolicy::ALL {
        for restart in [false, true] {
            let locks = LockOptions { deadlock, ..LockOptions::default() };
            let options = EngineOptions { locks, ..tiny() };
            let disk = FaultyDisk::new();
            let mut engine = open_with(&disk, &options).unwrap();
            let mut table = engine.create_table("t", b"").unwrap();
            set_up(&engine, &table, 0);
            prepare(&engine, &table, 0);
            if restart {
                drop((table, engine));
                engine = open_with(&disk, &options).unwrap();
                table = engine.table("t").unwrap().unwrap();
            }
            thread::scope(|scope| {
                // Older than the prepared one, and younger.
                let waiters = [0, u64::MAX].map(|age| {
                    let (engine, table) = (&engine, &table);
                    scope.spawn(move || {
                        let options = BeginOptions { age: Some(age), ..BeginOptions::default() };
                        let mut txn = engine.begin(options).unwrap();
                        txn.set_deadline(Some(Instant::now() + Duration::from_secs(120)));
                        get(&mut txn, table, &keys(0)[0])
                    })
                });
                thread::sleep(Duration::from_millis(15));
                engine.commit_prepared(&id(0)).unwrap();
                for waiter in waiters {
                    match waiter.join().unwrap() {
                        Ok(value) => assert_eq!(value.unwrap()[0], b'n', "{deadlock:?}"),
                        Err(TxnError::Lock(LockError::Deadlock(_))) if !deadlock.detects() => {}
                        Err(error) => panic!("{deadlock:?}: {error}"),
                    }
                }
            });
            assert!(is_done(&engine, &table, 0), "{deadlock:?}");
            assert_sound(&engine, &format!("{deadlock:?}"));
        }
    }
}

/// What was prepared is as important after a restart as it was before: whoever is more so waits for it (LOCK-18).
#[test]
fn a_restart_does_not_make_it_more_important() {
    let locks = LockOptions { deadlock: DeadlockPolicy::WaitDie, ..LockOptions::default() };
    let options = EngineOptions { locks, ..tiny() };
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &options).unwrap();
    let table = engine.create_table("table", b"").unwrap();
    let mut txn = begin(&engine);
    txn.put(&table, b"key", b"value").unwrap();
    txn.prepare(b"id").unwrap();
    engine.close().unwrap();
    let engine = open_with(&disk, &options).unwrap();
    let table = engine.table("table").unwrap().unwrap();
    for (priority, waits) in [(1, true), (0, false)] {
        let mut txn = engine.begin(BeginOptions { priority, ..BeginOptions::default() }).unwrap();
        txn.set_lock_timeout(Some(Duration::from_millis(30)));
        let error = get(&mut txn, &table, b"key").unwrap_err();
        let waited = matches!(error, TxnError::Lock(LockError::Timeout(_)));
        assert_eq!(waited, waits, "priority {priority}: {error}");
    }
    engine.rollback_prepared(b"id").unwrap();
}
