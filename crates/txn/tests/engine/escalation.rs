//! TXN-16: many locks on keys become one on their table, if that is free.

use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::{AtomicU64, Ordering};
use foreshore_env::thread;
use foreshore_testkit::FaultyDisk;
use foreshore_txn::{
    Durability, Engine, EngineOptions, IntentMode, LatchMode, LockError, LockKind, TableInfo, Txn, TxnError,
};

use super::{assert_sound, begin, get, open_with, put, scan, tiny};

const LIMIT: usize = 200;

fn engine(escalation_locks: usize, escalation_bytes: usize) -> (Arc<Engine>, TableInfo) {
    engine_with(EngineOptions { escalation_locks, escalation_bytes, ..tiny() })
}

fn engine_with(options: EngineOptions) -> (Arc<Engine>, TableInfo) {
    let options = EngineOptions { node_capacity: usize::MAX, ..options };
    let engine = open_with(&FaultyDisk::new(), &options).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    (engine, table)
}

fn write(txn: &mut Txn, table: &TableInfo, keys: std::ops::Range<u32>) -> Result<(), TxnError> {
    keys.into_iter().try_for_each(|key| txn.put(table, &key.to_be_bytes(), b"value").map(|_| ()))
}

fn is_refused<T>(result: &Result<T, TxnError>) -> bool {
    matches!(result, Err(TxnError::Lock(LockError::WouldBlock(_))))
}

/// Locks on keys that this transaction gave back at its end.
fn locks_of(engine: &Arc<Engine>, work: impl FnOnce(&mut Txn)) -> u64 {
    let before = engine.stats().locks.released;
    let mut txn = begin(engine);
    work(&mut txn);
    txn.commit(Durability::Lazy).unwrap();
    engine.stats().locks.released - before
}

#[test]
fn a_writer_of_many_keys_locks_the_table_and_a_reader_shares_it() {
    let (engine, table) = engine(LIMIT, 0);
    let locks = locks_of(&engine, |txn| {
        write(txn, &table, 0..1000).unwrap();
        let mut other = begin(&engine);
        other.set_no_wait(true);
        assert!(is_refused(&get(&mut other, &table, b"elsewhere")), "the table is the writer's");
    });
    assert_eq!(locks, LIMIT as u64);
    let locks = locks_of(&engine, |txn| {
        assert_eq!(scan(txn, &table).unwrap().len(), 1000);
        let mut other = begin(&engine);
        other.set_no_wait(true);
        assert!(is_refused(&other.put(&table, b"elsewhere", b"")), "nobody writes");
        assert!(get(&mut other, &table, &7u32.to_be_bytes()).unwrap().is_some(), "everybody reads");
    });
    assert_eq!(locks, LIMIT as u64 + 1, "one of them is the other's");
    let stats = engine.stats().locks;
    assert_eq!((stats.escalations, stats.escalations_refused), (2, 0));
    assert_sound(&engine, "after escalations");
}

/// Who writes most of what he locks gets the table for himself; who only reads most of it shares it.
#[test]
fn the_lock_on_the_table_is_for_what_most_locks_are_for() {
    for (writes_of_ten, excludes) in [(6, true), (4, false)] {
        let (engine, table) = engine(LIMIT, 0);
        let mut txn = begin(&engine);
        write(&mut txn, &table, 0..1000).unwrap();
        txn.commit(Durability::Lazy).unwrap();
        let mut txn = begin(&engine);
        for key in 0..LIMIT as u32 {
            if key % 10 < writes_of_ten {
                write(&mut txn, &table, key..key + 1).unwrap();
            } else {
                get(&mut txn, &table, &key.to_be_bytes()).unwrap().unwrap();
            }
        }
        let mut other = begin(&engine);
        other.set_no_wait(true);
        let read = get(&mut other, &table, &999_u32.to_be_bytes());
        assert_eq!(is_refused(&read), excludes, "{writes_of_ten} of ten: {read:?}");
        assert_eq!(engine.stats().locks.escalations, 2);
    }
}

/// The limits are exact, the small ones too.
#[test]
fn so_many_locks_and_not_one_more() {
    for limit in [1, 2, 63, 64, 65] {
        for (locks, bytes) in [(limit, 0), (0, 72 * limit), (0, 72 * limit - 71)] {
            let (engine, table) = engine(locks, bytes);
            let other = engine.create_table("other", b"").unwrap();
            let locks = locks_of(&engine, |txn| write(txn, &table, 0..100).unwrap());
            assert_eq!(locks, limit as u64, "{bytes} bytes");
            // Those on other tables count for the bytes only.
            let locks = locks_of(&engine, |txn| {
                write(txn, &other, 0..1).unwrap();
                write(txn, &table, 0..100).unwrap();
            });
            let others = if bytes == 0 { 1 } else { u64::from(limit == 1) };
            assert_eq!(locks, limit as u64 + others, "{bytes} bytes");
            assert_sound(&engine, "after escalations");
        }
    }
}

/// A larger table that somebody is in keeps no other one from being locked.
#[test]
fn a_table_that_is_due_is_not_passed_over_for_a_larger_one() {
    let (engine, larger) = engine(LIMIT, 0);
    let due = engine.create_table("due", b"").unwrap();
    put(&engine, &larger, b"read", b"value");
    let mut reader = begin(&engine);
    get(&mut reader, &larger, b"read").unwrap().unwrap();
    let mut txn = begin(&engine);
    write(&mut txn, &larger, 0..LIMIT as u32 + 100).unwrap();
    write(&mut txn, &due, 0..LIMIT as u32).unwrap();
    let stats = engine.stats().locks;
    assert_eq!((stats.escalations, stats.escalations_refused), (1, 1));
    let mut other = begin(&engine);
    other.set_no_wait(true);
    assert!(is_refused(&get(&mut other, &due, b"elsewhere")), "the table is the writer's");
    assert!(get(&mut other, &larger, b"read").unwrap().is_some());
}

/// However leaves are latched: a scan's locks are counted where they are granted, and at most one batch of them is held
/// when the lock on the table is.
#[test]
fn readers_escalate_in_all_latch_modes() {
    let modes =
        [LatchMode::Hybrid, LatchMode::Optimistic, LatchMode::AlwaysShared, LatchMode::AlwaysExclusive];
    for latch_mode in modes {
        let (engine, table) = engine_with(EngineOptions { escalation_locks: LIMIT, latch_mode, ..tiny() });
        let mut txn = begin(&engine);
        write(&mut txn, &table, 0..1000).unwrap();
        txn.commit(Durability::Lazy).unwrap();
        let scanned = locks_of(&engine, |txn| assert_eq!(scan(txn, &table).unwrap().len(), 1000));
        let holds = matches!(latch_mode, LatchMode::AlwaysShared | LatchMode::AlwaysExclusive);
        let batch = if holds { 66 } else { 1 };
        assert!((LIMIT..LIMIT + batch).contains(&(scanned as usize)), "{latch_mode:?}: {scanned}");
        let read = locks_of(&engine, |txn| {
            for key in 0..1000_u32 {
                assert!(get(txn, &table, &key.to_be_bytes()).unwrap().is_some());
            }
        });
        assert_eq!(read, LIMIT as u64, "{latch_mode:?}");
        assert_eq!(engine.stats().locks.escalations, 3, "{latch_mode:?}");
        assert_sound(&engine, "after readers");
    }
}

#[test]
fn who_is_in_the_way_keeps_it_to_locks_on_keys() {
    let (engine, table) = engine(LIMIT, 0);
    put(&engine, &table, b"somebody's", b"1");
    let mut other = begin(&engine);
    other.put(&table, b"somebody's", b"2").unwrap();
    let locks = locks_of(&engine, |txn| {
        txn.set_no_wait(true);
        write(txn, &table, 0..2 * LIMIT as u32 - 50).unwrap();
        assert_eq!(engine.stats().locks.escalations_refused, 1, "refused once, and not asked again yet");
        other.put(&table, b"another of its own", b"3").unwrap();
        // With the other gone it succeeds, at twice as many.
        other.rollback().unwrap();
        write(txn, &table, 2 * LIMIT as u32..1000).unwrap();
        assert_eq!(engine.stats().locks.escalations, 1);
    });
    assert_eq!(locks, 2 * LIMIT as u64 + 2, "two of them are the other's");
    assert_sound(&engine, "after a refusal");
}

/// A planned transaction never escalated while it ran: one that met more beside its plan than it may have locks failed,
/// where one without a plan did not.
#[test]
fn locks_beside_a_plan_become_one_on_the_table_too() {
    let (engine, table) = engine(LIMIT, 0);
    let follow = |txn: &mut Txn| {
        txn.begin_reconnaissance();
        txn.foresee(&table, b"planned", LockKind::Shared).unwrap();
        let footprint = txn.end_reconnaissance();
        txn.follow(footprint).unwrap();
    };
    let locks = locks_of(&engine, |txn| {
        follow(txn);
        write(txn, &table, 0..1000).unwrap();
    });
    assert_eq!(locks, LIMIT as u64 + 1);
    let locks = locks_of(&engine, |txn| {
        follow(txn);
        assert_eq!(scan(txn, &table).unwrap().len(), 1000);
    });
    assert_eq!(locks, LIMIT as u64 + 1);
    // Nor does it wait for the table.
    let mut reader = begin(&engine);
    get(&mut reader, &table, b"elsewhere").unwrap();
    let locks = locks_of(&engine, |txn| {
        follow(txn);
        write(txn, &table, 0..1000).unwrap();
        assert!(!txn.has_missed());
    });
    assert_eq!(locks, 1001);
    reader.commit(Durability::Lazy).unwrap();
    assert!(engine.locks().is_empty());
}

/// Two that both could escalate, and both are in each other's way: nobody waits, nobody gives way.
#[test]
fn escalations_deadlock_with_nobody() {
    let (engine, table) = engine(LIMIT, 0);
    let entered = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..3u32 {
            let (engine, table, entered) = (&engine, &table, &entered);
            scope.spawn(move || {
                let mut txn = begin(engine);
                write(&mut txn, table, number * 10_000..number * 10_000 + 1).unwrap();
                entered.fetch_add(1, Ordering::SeqCst);
                while entered.load(Ordering::SeqCst) < 3 {
                    thread::yield_now();
                }
                write(&mut txn, table, number * 10_000..number * 10_000 + 900).unwrap();
                entered.fetch_add(1, Ordering::SeqCst);
                while entered.load(Ordering::SeqCst) < 6 {
                    thread::yield_now();
                }
                txn.commit(Durability::Lazy).unwrap();
            });
        }
    });
    let stats = engine.stats().locks;
    assert_eq!((stats.escalations, stats.deadlocks), (0, 0));
    assert!(stats.escalations_refused >= 6, "{stats:?}");
    assert_sound(&engine, "after three writers");
}

#[test]
fn a_savepoint_gives_no_lock_back_and_bytes_count_too() {
    let (engine, table) = engine(0, 72 * LIMIT);
    let mut txn = begin(&engine);
    let here = txn.savepoint().unwrap();
    write(&mut txn, &table, 0..500).unwrap();
    assert_eq!(engine.stats().locks.escalations, 1, "by bytes");
    txn.rollback_to(here).unwrap();
    let mut other = begin(&engine);
    other.set_no_wait(true);
    assert!(is_refused(&get(&mut other, &table, b"anything")), "the lock on the table stays");
    txn.rollback().unwrap();
    assert_eq!(get(&mut other, &table, &3u32.to_be_bytes()).unwrap(), None);
    drop(other);
    // Never means never.
    let (engine, table) = self::engine(0, 0);
    assert_eq!(locks_of(&engine, |txn| write(txn, &table, 0..1000).unwrap()), 1000);
    assert_eq!(engine.stats().locks.escalations, 0);
}

/// Readers of most of a table who change some of it: SIX, beside which others read keys.
#[test]
fn a_reader_that_writes_a_little_lets_others_read() {
    let (engine, table) = engine(LIMIT, 0);
    let mut txn = begin(&engine);
    write(&mut txn, &table, 0..600).unwrap();
    txn.commit(Durability::Lazy).unwrap();
    let mut txn = begin(&engine);
    write(&mut txn, &table, 0..20).unwrap();
    scan(&mut txn, &table).unwrap();
    assert_eq!(engine.stats().locks.escalations, 2);
    let mut other = begin(&engine);
    other.set_no_wait(true);
    assert!(get(&mut other, &table, &300u32.to_be_bytes()).unwrap().is_some());
    assert!(is_refused(&get(&mut other, &table, &3u32.to_be_bytes())), "what was changed is locked");
    assert!(is_refused(&other.lock_table(&table, IntentMode::IX)));
    drop((txn, other));
    assert_sound(&engine, "after SIX");
}

/// A reader that had escalated, and then wrote, was tried for with what it had: that was counted, saved no lock, and
/// the next try came when there were twice as many again.
#[test]
fn a_reader_that_then_writes_as_much_is_tried_for_again() {
    let (engine, table) = engine(LIMIT, 0);
    let keys = LIMIT as u32;
    let mut txn = begin(&engine);
    write(&mut txn, &table, 0..keys).unwrap();
    txn.commit(Durability::Lazy).unwrap();
    let before = engine.stats().locks.escalations;
    let mut txn = begin(&engine);
    (0..keys).for_each(|key| _ = get(&mut txn, &table, &key.to_be_bytes()).unwrap());
    write(&mut txn, &table, 10_000..10_000 + keys - 1).unwrap();
    assert_eq!(engine.stats().locks.escalations - before, 1, "to read");
    write(&mut txn, &table, 20_000..20_001).unwrap();
    assert_eq!(engine.stats().locks.escalations - before, 2, "to write");
    let mut other = begin(&engine);
    other.set_no_wait(true);
    assert!(is_refused(&get(&mut other, &table, b"elsewhere")));
}

/// A table that it has as a whole already is not tried for again in place of one that would save locks.
#[test]
fn a_table_that_is_locked_already_is_not_tried_for_when_the_bytes_are_full() {
    let (engine, whole) = engine(100, 72 * 200);
    let (second, third) = (engine.create_table("b", b"").unwrap(), engine.create_table("c", b"").unwrap());
    let mut txn = begin(&engine);
    write(&mut txn, &whole, 0..150).unwrap();
    assert_eq!(engine.stats().locks.escalations, 1);
    write(&mut txn, &second, 0..60).unwrap();
    write(&mut txn, &third, 0..40).unwrap();
    let before = engine.stats().locks.escalations;
    let mut other = begin(&engine);
    other.set_no_wait(true);
    assert!(
        is_refused(&get(&mut other, &second, b"elsewhere")),
        "{before} escalations are told of, and not of the second"
    );
}

/// Where no table would save locks, the volume, which has none on keys, is not locked in their place.
#[test]
fn the_volume_is_not_tried_for_when_the_bytes_are_full() {
    let (engine, first) = engine(100, 72 * 250);
    let [second, third] = ["b", "c"].map(|name| engine.create_table(name, b"").unwrap());
    let mut txn = begin(&engine);
    write(&mut txn, &first, 0..200).unwrap();
    write(&mut txn, &second, 0..200).unwrap();
    txn.commit(Durability::Lazy).unwrap();
    let before = engine.stats().locks.escalations;
    let mut txn = begin(&engine);
    for table in [&first, &second] {
        (0..100_u32).for_each(|key| _ = get(&mut txn, table, &key.to_be_bytes()).unwrap());
    }
    write(&mut txn, &first, 100..160).unwrap();
    assert_eq!(engine.stats().locks.escalations - before, 2, "both tables, and nothing above them");
    let mut other = begin(&engine);
    other.set_no_wait(true);
    other.put(&third, b"key", b"value").unwrap();
}
