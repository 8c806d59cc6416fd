//! A log that is full in the middle of what takes several records: a table is made or dropped, a transaction prepared,
//! the database compacted. It is done, or nothing of it is there; and it can be done when there is room again.

use std::collections::BTreeSet;

use foreshore_env::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_txn::{Durability, Engine, EngineOptions, LogFullPolicy, LogOptions, TableInfo, Txn, TxnError};

use crate::{Content, StorageError, assert_sound, begin, go_on, open_with, read_all, tiny};

/// Nobody waits for room that the oldest transaction has: it does not go.
fn small_log() -> EngineOptions {
    let log = LogOptions { capacity_bytes: 12 * (128 << 10), ..tiny().log };
    EngineOptions { log, log_full: LogFullPolicy::Throttle, ..tiny() }
}

/// Tables, and what is in them.
type State = (BTreeSet<String>, Content);

fn state(engine: &Arc<Engine>) -> State {
    let tables = engine.tables().unwrap().iter().map(|table| table.name().to_owned()).collect();
    (tables, read_all(engine).unwrap())
}

fn fill(engine: &Arc<Engine>, name: &str, rows: u32) -> TableInfo {
    let table = engine.create_table(name, b"").unwrap();
    let mut txn = begin(engine);
    (0..rows).for_each(|row| _ = txn.put(&table, &row.to_be_bytes(), &[row as u8; 100]).unwrap());
    txn.commit(Durability::Sync).unwrap();
    table
}

/// A database with something to drop, something to compact, and one table for who fills the log.
fn made(disk: &FaultyDisk) -> (Arc<Engine>, TableInfo) {
    let engine = open_with(disk, &small_log()).unwrap();
    let filler = fill(&engine, "filler", 3);
    fill(&engine, "dropped", 20);
    let sparse = fill(&engine, "sparse", 200);
    let mut txn = begin(&engine);
    (0..200_u32).filter(|row| row % 8 != 0).for_each(|row| {
        assert!(txn.delete(&sparse, &row.to_be_bytes()).unwrap());
    });
    txn.commit(Durability::Sync).unwrap();
    engine.checkpoint().unwrap();
    (engine, filler)
}

fn room(engine: &Engine) -> u64 {
    let log = engine.log_retention();
    log.work_bytes.saturating_sub(log.used_bytes)
}

/// A transaction that leaves no more of the log than this, where a checkpoint makes no room.
fn one_that_leaves(left: u64, engine: &Arc<Engine>, filler: &TableInfo) -> Txn {
    let mut old = begin(engine);
    old.put(filler, &0_u32.to_be_bytes(), b"the log's first record").unwrap();
    engine.checkpoint().unwrap();
    // A value of each length has its own key, so that the records are as long as they seem.
    for (key, length) in [(0_u32, 700), (1, 100), (2, 1)] {
        for number in (0..=u8::MAX).cycle() {
            if room(engine) <= left + 3 * length {
                break;
            }
            if let Err(error) = old.put(filler, &key.to_be_bytes(), &vec![number; length as usize]) {
                assert!(is_log_full(&error));
                break;
            }
        }
    }
    old
}

/// Also that the pages of what was dropped become free.
fn assert_sound_and_free(engine: &Arc<Engine>, context: &str) {
    let begun = Instant::now();
    while engine.stats().tables_dropped > 0 {
        assert!(begun.elapsed() < Duration::from_secs(120), "{context}: {:?}", engine.stats());
        thread::sleep(Duration::from_millis(1));
    }
    assert_sound(engine, context);
}

fn is_log_full(error: &TxnError) -> bool {
    assert!(matches!(error, TxnError::Storage(StorageError::LogFull { .. })), "{error}");
    true
}

/// At every measure of room: `begun` before the log is filled, `go_on` when it is, and again when it is not. Gives how
/// often it had no room.
fn at_every_room<T>(
    name: &str,
    rooms: impl Iterator<Item = u64>,
    begun: impl Fn(&Arc<Engine>) -> T,
    go_on: impl Fn(&Arc<Engine>, T) -> Result<(), TxnError>,
    done: impl Fn(&mut State),
) {
    let (mut refused, mut went_on) = (0, 0);
    for left in rooms {
        let context = format!("{name}, {left} bytes");
        let disk = FaultyDisk::new();
        let (engine, filler) = made(&disk);
        let mut expected = state(&engine);
        let work = begun(&engine);
        let old = one_that_leaves(left, &engine, &filler);
        let result = go_on(&engine, work);
        match &result {
            Ok(()) => {
                went_on += 1;
                done(&mut expected);
            }
            Err(error) => refused += u32::from(is_log_full(error)),
        }
        for mode in [CrashMode::DropUnsynced, CrashMode::KeepAll, CrashMode::TornRandom(left)] {
            let engine = open_with(&disk.after_crash(mode), &small_log()).unwrap();
            assert!(state(&engine) == expected, "{context}, {mode:?}: recovered something else");
            assert_sound_and_free(&engine, &context);
        }
        old.rollback().unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(state(&engine) == expected, "{context}: something else");
        assert_sound_and_free(&engine, &context);
        if result.is_err() {
            let work = begun(&engine);
            go_on(&engine, work).unwrap_or_else(|error| panic!("{context}, with room: {error}"));
            done(&mut expected);
            assert!(state(&engine) == expected, "{context}: something else, with room");
            assert_sound_and_free(&engine, &context);
        }
    }
    assert!(refused > 3 && went_on > 3, "{name}: refused {refused} times, went on {went_on} times");
}

#[test]
fn a_table_is_made_or_not() {
    let make = |engine: &Arc<Engine>, ()| engine.create_table("made", &[7; 300]).map(drop);
    let rooms = (0..25).map(|step| step * step * 20);
    at_every_room("make", rooms, |_| (), make, |state| _ = state.0.insert("made".to_owned()));
}

#[test]
fn a_table_is_dropped_or_not() {
    let gone = |state: &mut State| {
        state.0.remove("dropped");
        state.1.retain(|(table, _), _| table != "dropped");
    };
    let drop_it = |engine: &Arc<Engine>, ()| engine.drop_table("dropped").map(|there| assert!(there));
    at_every_room("drop", (0..25).map(|step| step * 20), |_| (), drop_it, gone);
}

#[test]
fn a_compaction_goes_as_far_as_the_log() {
    let compact = |engine: &Arc<Engine>, ()| engine.compact(&mut go_on).map(drop);
    at_every_room("compact", (0..25).map(|step| step * step * 150), |_| (), compact, |_| {});
}

#[test]
fn a_transaction_is_prepared_or_rolled_back() {
    let begun = |engine: &Arc<Engine>| {
        let table = engine.table("sparse").unwrap().unwrap();
        let mut txn = begin(engine);
        (0..300_u32).for_each(|row| _ = txn.put(&table, &row.to_be_bytes(), b"prepared").unwrap());
        txn.set_no_wait(true);
        txn
    };
    let prepare_and_commit = |engine: &Arc<Engine>, txn: Txn| {
        txn.prepare(b"id")?;
        // What ends work has room.
        engine.commit_prepared(b"id").unwrap();
        Ok(())
    };
    let done = |state: &mut State| {
        for row in 0..300_u32 {
            state.1.insert(("sparse".to_owned(), row.to_be_bytes().to_vec()), b"prepared".to_vec());
        }
    };
    at_every_room("prepare", (0..25).map(|step| step * step * 30), begun, prepare_and_commit, done);
}

/// It took a checkpoint five times a second, each from what is kept for rollbacks, for as long as somebody held a full
/// log.
#[test]
fn the_reaper_takes_no_checkpoint_that_shortens_nothing() {
    let disk = FaultyDisk::new();
    let (engine, filler) = made(&disk);
    let old = one_that_leaves(460, &engine, &filler);
    assert!(engine.drop_table("dropped").unwrap());
    thread::sleep(Duration::from_millis(300));
    let taken = engine.stats().checkpoints;
    let used = engine.log_retention().used_bytes;
    thread::sleep(Duration::from_secs(2));
    assert_eq!(engine.stats().tables_dropped, 1, "there is no room for its pages to be freed");
    assert!(engine.stats().checkpoints <= taken + 1, "{} to {taken}", engine.stats().checkpoints);
    assert!(engine.log_retention().used_bytes <= used + 500, "of what is for rollbacks");
    old.rollback().unwrap();
    assert_sound_and_free(&engine, "after the rollback");
}
