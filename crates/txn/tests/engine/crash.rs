//! A crash at every change of the disk, of several workloads, of the making of a database, and of the recovery from a
//! crash: see [`crate::matrix`].
//!
//! `FORESHORE_CRASH=full` runs ten workloads of each kind instead of one.

use std::{collections::BTreeSet, path::Path};

use foreshore_env::{
    disk::Disk,
    sync::{Arc, Mutex},
};
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_txn::{Engine, EngineOptions, PoolOptions};

use crate::{
    directory,
    matrix::{Examine, Explorer, modes, open_and_examine},
    model::{Plan, Promises, Workload, is_of_the_disk},
    open,
    probe::Probe,
    read_all, tiny,
};

/// The states that each of the matrices below looks at, at least; with `FORESHORE_CRASH=full` [`FULL_EFFORT`] times as
/// many.
const STATES: [u64; 5] = [1000, 750, 650, 700, 500];
const _: () = assert!(STATES[0] + STATES[1] + STATES[2] + STATES[3] + STATES[4] >= 2000);

/// How many workloads of each kind `FORESHORE_CRASH=full` runs.
const FULL_EFFORT: u64 = 10;

pub(crate) fn is_full() -> bool {
    std::env::var("FORESHORE_CRASH").is_ok_and(|effort| effort == "full")
}

/// How many times as much is tried when everything is.
fn effort() -> u64 {
    if is_full() { FULL_EFFORT } else { 1 }
}

/// A disk with the durable directory that is to hold the database.
fn disk_with_directory() -> FaultyDisk {
    let disk = FaultyDisk::new();
    disk.create_directory(directory()).unwrap();
    disk.sync_directory(Path::new("/")).unwrap();
    disk
}

fn compare(disk: &FaultyDisk, options: &EngineOptions, promises: &Promises, context: &str) {
    open_and_examine(disk, options, |engine| promises.examine(engine))
        .unwrap_or_else(|problem| panic!("{context}: {problem}"));
}

/// Runs a workload on a watched disk, and looks at the crash before every change. From the first commit on, `prepare`
/// may have done something to the disk. Gives how many appends there were.
fn crash_everywhere(explorer: &Arc<Explorer>, plan: Plan, prepare: impl FnOnce(&FaultyDisk)) -> u64 {
    let disk = disk_with_directory();
    let promises = Arc::new(Mutex::new(Promises::default()));
    let (for_probe, snapshots, explores) = (Arc::clone(&promises), disk.clone(), Arc::clone(explorer));
    let probe = Probe::new(
        disk.clone(),
        Box::new(move |change| {
            // Under the mutex: nothing is acknowledged between the look at the promises and the look at the disk.
            let promises = for_probe.lock();
            let left = modes(change).map(|mode| (mode, snapshots.after_crash(mode)));
            let promised = promises.clone();
            drop(promises);
            let examine: Arc<Examine> = Arc::new(move |engine| promised.examine(engine));
            explores.crash(left, &examine, &format!("{plan:?}, crash at change {change}"));
        }),
    );
    let engine = Engine::open(Arc::new(probe) as Arc<dyn Disk>, directory(), &tiny()).unwrap();
    let mut workload = Workload::new(&engine, &promises, plan);
    prepare(&disk);
    workload.run().unwrap();
    let (commits, appended) = (workload.commits, workload.appended);
    workload.abandon();
    engine.close().unwrap();
    assert!(commits > 15, "{commits} commits are too few to prove much");
    appended
}

/// Asserts that nothing was lost or came back, in as many states as promised.
fn conclude(explorer: &Explorer, matrix: usize) {
    let failures = explorer.failures();
    assert!(failures.is_empty(), "{failures:#?}");
    let states = explorer.states();
    let total: u64 = states.iter().sum();
    println!("{total} states, by interrupted recoveries {states:?}: nothing lost, nothing resurrected");
    assert!(total >= STATES[matrix] * effort(), "only {total} states");
    assert!(states.iter().all(|&count| count >= 20), "not all depths were reached: {states:?}");
}

/// The main thing: nothing acknowledged is lost, nothing half done is there, wherever the power fails, also while it
/// recovers from a power failure, and from one of those.
fn matrix(matrix: usize, plan: impl Fn(u64) -> Plan) {
    let explorer = Arc::default();
    let appended: u64 = (1..=effort()).map(|seed| crash_everywhere(&explorer, plan(seed), |_| {})).sum();
    assert_eq!(appended > 0, plan(1).appends, "{appended} appends");
    conclude(&explorer, matrix);
}

#[test]
fn a_crash_at_every_change_leaves_exactly_what_was_acknowledged() {
    matrix(0, |seed| Plan::new(seed, 250, 30));
}

#[test]
fn the_same_with_long_values() {
    matrix(1, |seed| Plan { long_values: true, ..Plan::new(100 + seed, 250, 40) });
}

#[test]
fn the_same_with_many_keys_at_a_time() {
    matrix(2, |seed| Plan { appends: true, ..Plan::new(200 + seed, 250, 40) });
}

#[test]
fn the_same_with_pipelined_commits() {
    matrix(3, |seed| Plan { pipelined: true, ..Plan::new(300 + seed, 300, 40) });
}

/// TXN-10, at every change that making a database takes.
#[test]
fn a_crash_while_a_database_is_made_leaves_something_that_opens() {
    let explorer: Arc<Explorer> = Arc::default();
    for round in 0..2 * effort() {
        let disk = if round % 2 == 0 { FaultyDisk::new() } else { disk_with_directory() };
        let (snapshots, explores) = (disk.clone(), Arc::clone(&explorer));
        let examine: Arc<Examine> = Arc::new(|engine| Promises::default().examine(engine));
        let probe = Probe::new(
            disk,
            Box::new(move |change| {
                let left = modes(change + 1000 * round).map(|mode| (mode, snapshots.after_crash(mode)));
                explores.crash(left, &examine, &format!("making, round {round}, crash at change {change}"));
            }),
        );
        let engine = Engine::open(Arc::new(probe.clone()) as Arc<dyn Disk>, directory(), &tiny()).unwrap();
        engine.close().unwrap();
        assert!(probe.changes() > 20, "{}", probe.changes());
    }
    conclude(&explorer, 4);
}

/// What the matrix is worth: on a disk that lies about its syncs it must find losses. Of the log: commits are gone. Of
/// the pages: the log that would bring them back has been let go.
#[test]
fn a_disk_that_forgets_what_it_synced_is_found_out() {
    for liar in ["log", "data"] {
        let explorer = Arc::default();
        let liar = directory().join(liar);
        crash_everywhere(&explorer, Plan::new(3, 200, 20), |disk| disk.lie_about_syncs(Some(&liar)));
        let failures = explorer.failures();
        assert!(!failures.is_empty(), "{}: {:?} states, and no failure", liar.display(), explorer.states());
        println!("{}: {}", liar.display(), failures[0]);
    }
}

/// The same from the other side: the disk dies under a running engine, which must notice, stop and let go.
#[test]
fn an_engine_whose_disk_dies_stops_and_loses_nothing() {
    let plan = Plan { long_values: true, ..Plan::new(77, 700, 60) };
    let run = |crash_at: Option<u64>| {
        let disk = disk_with_directory();
        let promises = Mutex::new(Promises::default());
        let engine = open(&disk).unwrap();
        if let Some(number) = crash_at {
            disk.crash_at(disk.counts().operations + number);
        }
        let before = disk.counts().operations;
        let mut workload = Workload::new(&engine, &promises, plan);
        let result = workload.run();
        workload.abandon();
        let closed = engine.close();
        let promises = promises.lock().clone();
        (disk.clone(), promises, result, closed.is_ok(), disk.counts().operations - before)
    };
    let (_, _, result, closed, operations) = run(None);
    assert!(result.is_ok() && closed);
    let stride = if is_full() { 1 } else { 9 };
    for number in (1..operations).step_by(stride) {
        let (disk, promises, result, _, _) = run(Some(number));
        let context = format!("{plan:?}, the disk dies at operation {number}");
        if let Err(error) = &result {
            assert!(is_of_the_disk(error), "{context}: {error}");
        }
        for mode in modes(number) {
            compare(&disk.after_crash(mode), &tiny(), &promises, &format!("{context}, {mode:?}"));
        }
    }
}

/// A database made by one size of everything is opened by another.
#[test]
fn recovery_works_with_another_pool_and_other_nodes() {
    let plan = Plan { long_values: true, ..Plan::new(5, 1500, 400) };
    let disk = FaultyDisk::new();
    disk.create_directory(directory()).unwrap();
    let promises = Mutex::new(Promises::default());
    let engine = open(&disk).unwrap();
    let mut workload = Workload::new(&engine, &promises, plan);
    workload.run().unwrap();
    let left = disk.after_crash(CrashMode::KeepAll);
    workload.abandon();
    let promises = promises.lock().clone();
    for frames in [8, 100, 5000] {
        for node_capacity in [3, 5, usize::MAX] {
            let pool = PoolOptions { bytes: frames * 8192, ..tiny().pool };
            let options = EngineOptions { pool, node_capacity, ..tiny() };
            compare(&left.after_crash(CrashMode::KeepAll), &options, &promises, &format!("{frames} frames"));
        }
    }
}

/// Recovery of a recovered database finds nothing to do.
#[test]
fn a_second_recovery_has_nothing_to_do() {
    let plan = Plan::new(9, 600, 200);
    let disk = FaultyDisk::new();
    disk.create_directory(directory()).unwrap();
    let promises = Mutex::new(Promises::default());
    let engine = open(&disk).unwrap();
    let mut workload = Workload::new(&engine, &promises, plan);
    workload.run().unwrap();
    let left = disk.after_crash(CrashMode::KeepAll);
    workload.abandon();

    let first = open(&left).unwrap();
    let report = first.stats().recovery;
    assert!(!report.clean && report.losers > 0 && report.records_undone > 0, "{report:?}");
    let left = left.after_crash(CrashMode::DropUnsynced);
    let second = open(&left).unwrap();
    let report = second.stats().recovery;
    assert_eq!((report.losers, report.records_undone), (0, 0), "{report:?}");
    second.close().unwrap();
    let third = open(&left).unwrap();
    assert!(third.stats().recovery.clean);
    assert_eq!(read_all(&third).unwrap(), read_all(&first).unwrap());
}

/// The test above could not fail without this: a database that has lost a commit is noticed.
#[test]
fn a_lost_commit_is_noticed() {
    let plan = Plan::new(3, 300, 100);
    let disk = FaultyDisk::new();
    disk.create_directory(directory()).unwrap();
    let promises = Mutex::new(Promises::default());
    let engine = open(&disk).unwrap();
    let mut workload = Workload::new(&engine, &promises, plan);
    workload.run().unwrap();
    workload.abandon();
    let tables: BTreeSet<_> = engine.tables().unwrap().iter().map(|table| table.name().to_owned()).collect();
    let found = read_all(&engine).unwrap();
    let promises = promises.lock().clone();
    promises.check(&tables, &found).unwrap();
    let mut lost = found.clone();
    lost.pop_first();
    promises.check(&tables, &lost).unwrap_err();
    let mut half = found.clone();
    half.insert(("t0".to_owned(), b"k000".to_vec()), b"from nowhere".to_vec());
    promises.check(&tables, &half).unwrap_err();
    promises.check(&BTreeSet::new(), &found).unwrap_err();
}
