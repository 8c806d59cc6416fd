//! Many threads at the same time, checkpoints among them.

use std::collections::BTreeMap;

use foreshore_base::StorageError;
use foreshore_env::{
    random::Xorshift,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};
use foreshore_testkit::{CrashMode, FaultyDisk, Running};
use foreshore_txn::{BeginOptions, Durability, Engine, EngineOptions, LockError, TableInfo, Txn, TxnError};

use crate::{assert_sound, begin, get, open, open_with, put, read_all, tiny};

const ACCOUNTS: u64 = 30;
const START: u64 = 1000;

fn amount(txn: &mut Txn, table: &TableInfo, account: u64) -> Result<u64, TxnError> {
    let value = txn.get_for_update(table, &account.to_be_bytes(), <[u8]>::to_vec)?.expect("an account");
    Ok(u64::from_le_bytes(value[..8].try_into().unwrap()))
}

/// Moves money, and counts in the thread's own row.
fn transfer(
    txn: &mut Txn,
    table: &TableInfo,
    random: &mut Xorshift,
    thread: u64,
    count: u64,
) -> Result<(), TxnError> {
    let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
    let moved = random.below(10);
    let left = amount(txn, table, from)?.saturating_sub(moved);
    let taken = amount(txn, table, from)? - left;
    txn.put(table, &from.to_be_bytes(), &left.to_le_bytes())?;
    let savepoint = txn.savepoint()?;
    txn.put(table, &to.to_be_bytes(), &[0xFF; 8])?;
    txn.rollback_to(savepoint)?;
    let sum = amount(txn, table, to)? + taken;
    txn.put(table, &to.to_be_bytes(), &sum.to_le_bytes())?;
    txn.put(table, &(1_000_000 + thread).to_be_bytes(), &count.to_le_bytes())?;
    Ok(())
}

/// Runs a transaction until it commits, at its first age. `None` when the disk is gone.
fn with_retries(engine: &Arc<Engine>, mut work: impl FnMut(&mut Txn) -> Result<(), TxnError>) -> Option<()> {
    let mut age = None;
    loop {
        let mut txn = engine.begin(BeginOptions { age, ..BeginOptions::default() }).ok()?;
        age = Some(txn.age());
        match work(&mut txn) {
            Ok(()) => return txn.commit(Durability::Sync).ok().map(|_| ()),
            Err(TxnError::Lock(LockError::Deadlock(_))) => {}
            Err(TxnError::Storage(StorageError::Io { .. } | StorageError::Poisoned { .. })) => return None,
            Err(error) => panic!("{error}"),
        }
    }
}

fn check_bank(engine: &Arc<Engine>, acknowledged: &BTreeMap<u64, u64>, context: &str) {
    let content = read_all(engine).unwrap();
    let number = |value: &[u8]| u64::from_le_bytes(value[..8].try_into().unwrap());
    let accounts = |range: std::ops::Range<u64>| {
        content.iter().filter_map(move |((_, key), value)| {
            let key = u64::from_be_bytes(key[..8].try_into().unwrap());
            range.contains(&key).then(|| (key, number(value)))
        })
    };
    let sum: u64 = accounts(0..ACCOUNTS).map(|(_, amount)| amount).sum();
    assert_eq!(sum, ACCOUNTS * START, "{context}");
    let counts: BTreeMap<u64, u64> = accounts(1_000_000..2_000_000).collect();
    for (thread, count) in acknowledged {
        let found = counts.get(&(1_000_000 + thread)).copied().unwrap_or(0);
        assert!(found == *count || found == count + 1, "{context}: thread {thread}: {found}, not {count}");
    }
    assert_sound(engine, context);
}

/// Threads work, checkpoints run, the power fails at some moment: nothing acknowledged is lost.
#[test]
fn the_power_fails_among_many_threads() {
    for round in 0..6 {
        let disk = FaultyDisk::new();
        let options = EngineOptions { checkpoint_bytes: 64 << 10, ..tiny() };
        let engine = open_with(&disk, &options).unwrap();
        let table = engine.create_table("bank", b"").unwrap();
        for account in 0..ACCOUNTS {
            put(&engine, &table, &account.to_be_bytes(), &START.to_le_bytes());
        }
        disk.crash_at(disk.counts().operations + 200 + round * 97);
        let acknowledged = Mutex::new(BTreeMap::new());
        thread::scope(|scope| {
            for number in 0..6 {
                let (engine, table, acknowledged) = (&engine, &table, &acknowledged);
                scope.spawn(move || {
                    let mut random = Xorshift::new(number + 1);
                    for count in 1.. {
                        let done =
                            with_retries(engine, |txn| transfer(txn, table, &mut random, number, count));
                        if done.is_none() {
                            return;
                        }
                        acknowledged.lock().insert(number, count);
                    }
                });
            }
        });
        engine.close().unwrap_err();
        let acknowledged = acknowledged.lock().clone();
        for mode in [CrashMode::DropUnsynced, CrashMode::KeepAll, CrashMode::TornRandom(round)] {
            let left = open(&disk.after_crash(mode)).unwrap();
            check_bank(&left, &acknowledged, &format!("round {round}, {mode:?}"));
        }
    }
}

/// The same without a crash, with more threads than cores, and with checkpoints one after another.
#[test]
fn checkpoints_stop_nobody() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = engine.create_table("bank", b"").unwrap();
    for account in 0..ACCOUNTS {
        put(&engine, &table, &account.to_be_bytes(), &START.to_le_bytes());
    }
    let running = Running::default();
    thread::scope(|scope| {
        let _guard = running.guard();
        scope.spawn(|| {
            while running.is_on() {
                engine.checkpoint().unwrap();
            }
        });
        let workers: Vec<_> = (0..16)
            .map(|number| {
                let (engine, table) = (&engine, &table);
                scope.spawn(move || {
                    let mut random = Xorshift::new(number + 100);
                    for count in 1..=25 {
                        with_retries(engine, |txn| transfer(txn, table, &mut random, number, count)).unwrap();
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
    });
    let acknowledged = (0..16).map(|thread| (thread, 25)).collect();
    check_bank(&engine, &acknowledged, "running");
    let left = open(&disk.after_crash(CrashMode::DropUnsynced)).unwrap();
    check_bank(&left, &acknowledged, "after a crash");
}

#[test]
fn concurrent_creators_of_a_table_agree() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let made = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for thread in 0..8 {
            let (engine, made) = (&engine, &made);
            scope.spawn(move || {
                for number in 0..10 {
                    let name = format!("table {}", (number + thread) % 10);
                    let table = engine.create_table(&name, b"").unwrap();
                    put(engine, &table, &[thread], b"x");
                    made.lock().push((name, table.id()));
                }
            });
        }
    });
    let ids: BTreeMap<_, _> = made.lock().iter().cloned().collect();
    assert_eq!(ids.len(), 10);
    assert!(made.lock().iter().all(|(name, id)| ids[name] == *id));
    assert_sound(&engine, "created");
    let left = open(&disk.after_crash(CrashMode::DropUnsynced)).unwrap();
    assert_eq!(left.tables().unwrap().len(), 10);
    assert_eq!(read_all(&left).unwrap().len(), 80);
    assert_sound(&left, "recovered");
}

/// Close while threads work: they get errors, it gets its end, and what was acknowledged is there.
#[test]
fn closing_does_not_hang() {
    for round in 0..8 {
        let disk = FaultyDisk::new();
        let engine = open(&disk).unwrap();
        let table = engine.create_table("t", b"").unwrap();
        let acknowledged = Mutex::new(BTreeMap::new());
        thread::scope(|scope| {
            for number in 0..4_u8 {
                let (engine, table, acknowledged) = (&engine, &table, &acknowledged);
                scope.spawn(move || {
                    for count in 0_u32.. {
                        let Ok(mut txn) = engine.begin(BeginOptions::default()) else { return };
                        let done = txn
                            .put(table, &[number], &count.to_be_bytes())
                            .and_then(|_| txn.commit(Durability::Sync));
                        match done {
                            Ok(_) => drop(acknowledged.lock().insert(number, count)),
                            Err(TxnError::Storage(StorageError::Closed)) => return,
                            Err(TxnError::OutcomeUnknown { .. }) => return,
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            thread::sleep(Duration::from_millis(5 + round * 3));
            engine.close().unwrap();
        });
        let engine = open(&disk).unwrap();
        let table = engine.table("t").unwrap().unwrap();
        let mut txn = begin(&engine);
        for (number, count) in acknowledged.lock().iter() {
            let found = get(&mut txn, &table, &[*number]).unwrap().unwrap();
            assert!(u32::from_be_bytes(found[..].try_into().unwrap()) >= *count);
        }
        drop(txn);
        assert_sound(&engine, "closed and opened");
    }
}

/// More transactions than there may be: a typed error, and room again when one has ended.
#[test]
fn open_transactions_are_limited() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let mut open_ones = Vec::new();
    let error = loop {
        match engine.begin(BeginOptions::default()) {
            Ok(mut txn) => {
                txn.put(&table, &(open_ones.len() as u32).to_be_bytes(), b"x").unwrap();
                open_ones.push(txn);
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, TxnError::Lock(LockError::TooManyTransactions { .. })), "{error}");
    assert_eq!(open_ones.len(), foreshore_base::limits::MAX_TRANSACTIONS);
    engine.checkpoint().unwrap();
    open_ones.pop().unwrap().commit(Durability::Sync).unwrap();
    put(&engine, &table, b"one more", b"x");
    drop(open_ones);
    assert_eq!(read_all(&engine).unwrap().len(), 2);
    assert_sound(&engine, "many");
}
