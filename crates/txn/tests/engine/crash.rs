//! A crash at every change of the disk, of a workload, of the making of a database, and of the recovery from a crash.
//!
//! `FORESHORE_CRASH=full` takes an hour and goes over more workloads and deeper; all of it would take days.

use std::collections::BTreeSet;

use foreshore_env::{
    disk::Disk,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_txn::{Engine, EngineOptions, PoolOptions, TxnError};

use crate::{
    assert_sound, directory,
    model::{Plan, Promises, Workload, is_of_the_disk},
    open, open_with,
    probe::Probe,
    read_all, tiny,
};

/// How many crashes are tried.
#[derive(Clone, Copy)]
struct Effort {
    /// Workloads, each of another seed.
    seeds: u64,
    /// Of the crashes of a workload, one in so many is followed by crashes of its recovery …
    recovery_stride: u64,
    /// … at one in so many of its changes …
    nested_stride: u64,
    /// … and of the recovery from those, if it goes so deep.
    depth: usize,
}

fn effort() -> Effort {
    match std::env::var("FORESHORE_CRASH").as_deref() {
        Ok("full") => Effort { seeds: 12, recovery_stride: 7, nested_stride: 5, depth: 2 },
        _ => Effort { seeds: 2, recovery_stride: 43, nested_stride: 3, depth: 2 },
    }
}

fn modes(change: u64) -> [CrashMode; 3] {
    [CrashMode::DropUnsynced, CrashMode::KeepAll, CrashMode::TornRandom(change)]
}

/// Crashes looked at, for the figures in the output.
static CRASHES: AtomicU64 = AtomicU64::new(0);

/// Opens what a crash has left, and compares it with what was promised. Then the same for a crash of that recovery.
fn check(disk: &FaultyDisk, promises: &Promises, context: &str, depth: usize, stride: u64) {
    CRASHES.fetch_add(1, Ordering::Relaxed);
    if depth > 0 {
        let (promises, context) = (promises.clone(), context.to_owned());
        let watched = disk.after_crash(CrashMode::KeepAll);
        let snapshots = watched.clone();
        let probe = Probe::new(
            watched,
            Box::new(move |change| {
                if change % stride == 0 {
                    for mode in modes(change) {
                        let context = format!("{context}, then at change {change} of recovery, {mode:?}");
                        check(&snapshots.after_crash(mode), &promises, &context, depth - 1, stride * 7);
                    }
                }
            }),
        );
        // Only its recovery is of interest here.
        let engine = Engine::open(Arc::new(probe) as Arc<dyn Disk>, directory(), &tiny());
        drop(engine);
    }
    compare(disk, &tiny(), promises, context);
}

fn compare(disk: &FaultyDisk, options: &EngineOptions, promises: &Promises, context: &str) {
    let engine = open_with(disk, options).unwrap_or_else(|error| panic!("{context}: open: {error}"));
    let tables: BTreeSet<_> = engine.tables().unwrap().iter().map(|table| table.name().to_owned()).collect();
    let found = read_all(&engine).unwrap_or_else(|error| panic!("{context}: read: {error}"));
    promises.check(&tables, &found).unwrap_or_else(|broken| panic!("{context}: {broken}"));
    assert_sound(&engine, context);
    engine.close().unwrap_or_else(|error| panic!("{context}: close: {error}"));
}

/// Runs a workload on a watched disk and looks at the crash before every change.
fn crash_everywhere(plan: Plan, effort: Effort) -> (u64, u64) {
    let disk = FaultyDisk::new();
    disk.create_directory(directory()).unwrap();
    disk.sync_directory(std::path::Path::new("/")).unwrap();
    let promises = Arc::new(Mutex::new(Promises::default()));
    let (for_probe, snapshots) = (Arc::clone(&promises), disk.clone());
    let probe = Probe::new(
        disk,
        Box::new(move |change| {
            // Under the mutex: nothing is acknowledged between the look at the promises and the look at the disk.
            let promises = for_probe.lock();
            let left = modes(change).map(|mode| (mode, snapshots.after_crash(mode)));
            let promises = { promises.clone() };
            for (mode, left) in left {
                let deep = change % effort.recovery_stride == 0;
                let context = format!("{plan:?}, crash at change {change}, {mode:?}");
                let depth = if deep { effort.depth } else { 0 };
                check(&left, &promises, &context, depth, effort.nested_stride);
            }
        }),
    );
    let engine = Engine::open(Arc::new(probe.clone()) as Arc<dyn Disk>, directory(), &tiny()).unwrap();
    let mut workload = Workload::new(&engine, &promises, plan);
    workload.run().unwrap();
    let commits = workload.commits;
    assert_eq!(workload.appended > 4, plan.appends, "{} appends", workload.appended);
    workload.abandon();
    engine.close().unwrap();
    (commits, probe.changes())
}

fn plans(seeds: u64) -> impl Iterator<Item = Plan> {
    (1..=seeds).map(|seed| Plan {
        seed,
        steps: 1400,
        checkpoint_every: 60,
        long_values: seed % 2 == 0,
        appends: seed % 2 == 1,
    })
}

/// The main thing: nothing acknowledged is lost, nothing half done is there, wherever the power fails, also while it recovers
/// from a power failure.
#[test]
fn a_crash_at_every_change_leaves_exactly_what_was_acknowledged() {
    let effort = effort();
    for plan in plans(effort.seeds) {
        let (commits, changes) = crash_everywhere(plan, effort);
        assert!(
            commits > 100 && changes > 300,
            "{commits} commits, {changes} changes: too small to prove much"
        );
        println!("seed {}: {commits} commits, {changes} changes of the disk", plan.seed);
    }
    println!("{} crashes", CRASHES.load(Ordering::Relaxed));
}

/// The same from the other side: the disk dies under a running engine, which must notice, stop and let go.
#[test]
fn an_engine_whose_disk_dies_stops_and_loses_nothing() {
    let plan = Plan { seed: 77, steps: 700, checkpoint_every: 60, long_values: true, appends: false };
    let run = |crash_at: Option<u64>| {
        let disk = FaultyDisk::new();
        disk.create_directory(directory()).unwrap();
        disk.sync_directory(std::path::Path::new("/")).unwrap();
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
    let stride = if effort().seeds > 2 { 1 } else { 9 };
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
    let plan = Plan { seed: 5, steps: 1500, checkpoint_every: 400, long_values: true, appends: false };
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

/// RELIABILITY's case 30: recovery of a recovered database finds nothing to do.
#[test]
fn a_second_recovery_has_nothing_to_do() {
    let plan = Plan { seed: 9, steps: 600, checkpoint_every: 200, long_values: false, appends: false };
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
    let plan = Plan { seed: 3, steps: 300, checkpoint_every: 100, long_values: false, appends: false };
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

/// TXN-10, at every change that making a database takes.
#[test]
fn a_crash_while_a_database_is_made_leaves_something_that_opens() {
    for parent_synced in [false, true] {
        let disk = FaultyDisk::new();
        if parent_synced {
            disk.create_directory(directory()).unwrap();
            disk.sync_directory(std::path::Path::new("/")).unwrap();
        }
        let snapshots = disk.clone();
        let probe = Probe::new(
            disk,
            Box::new(move |change| {
                let torn = (0..6).map(|seed| CrashMode::TornRandom(seed * 1000 + change));
                for mode in [CrashMode::DropUnsynced, CrashMode::KeepAll].into_iter().chain(torn) {
                    let left = snapshots.after_crash(mode);
                    let depth = usize::from(mode == CrashMode::TornRandom(change));
                    check(
                        &left,
                        &Promises::default(),
                        &format!("making, change {change}, {mode:?}"),
                        depth,
                        2,
                    );
                }
            }),
        );
        let engine: Result<_, TxnError> =
            Engine::open(Arc::new(probe.clone()) as Arc<dyn Disk>, directory(), &tiny()).map_err(Into::into);
        engine.unwrap().close().unwrap();
        assert!(probe.changes() > 20, "{}", probe.changes());
    }
}
