//! TXN-20 and TXN-21 at every change of the disk, recoveries from a crash included.

use foreshore_env::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use super::*;
use crate::{crash::is_full, probe::Probe};

/// How far a transaction has been promised to have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Preparing,
    Prepared,
    Deciding(Decision),
    Decided(Decision),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Commit,
    Rollback,
}

/// States that were looked at.
static CRASHES: AtomicU64 = AtomicU64::new(0);

/// Transactions, and of how many crashes one is followed by crashes of the recovery: of the quick run in the gate and
/// of the one on demand (`FORESHORE_CRASH=full`).
const QUICK: (usize, u64) = (4, 23);
const FULL: (usize, u64) = (12, 5);

fn modes(change: u64) -> [CrashMode; 3] {
    [CrashMode::DropUnsynced, CrashMode::KeepAll, CrashMode::TornRandom(change)]
}

/// Opens what a crash has left, looks at each transaction, decides about those that are prepared. First the same for
/// crashes of that recovery.
fn check(disk: &FaultyDisk, phases: &[Phase], context: &str, depth: usize) {
    CRASHES.fetch_add(1, Ordering::Relaxed);
    if depth > 0 {
        let (phases, context) = (phases.to_vec(), context.to_owned());
        let watched = disk.after_crash(CrashMode::KeepAll);
        let snapshots = watched.clone();
        let probe = Probe::new(
            watched,
            Box::new(move |change| {
                if change.is_multiple_of(5) {
                    for mode in modes(change) {
                        let context = format!("{context}, then at change {change} of recovery, {mode:?}");
                        check(&snapshots.after_crash(mode), &phases, &context, depth - 1);
                    }
                }
            }),
        );
        drop(Engine::open(Arc::new(probe) as Arc<dyn Disk>, directory(), &tiny()));
    }
    let engine = open(disk).unwrap_or_else(|error| panic!("{context}: open: {error}"));
    let table = engine.table("t").unwrap().unwrap();
    let prepared = ids(&engine);
    for (number, &phase) in phases.iter().enumerate() {
        let context = format!("{context}: transaction {number}, {phase:?}");
        let found = prepared.contains(&id(number));
        match phase {
            Phase::Open | Phase::Decided(_) => assert!(!found, "{context}"),
            Phase::Prepared => assert!(found, "{context}"),
            Phase::Preparing | Phase::Deciding(_) => {}
        }
        assert_eq!(is_locked(&engine, &table, number), found, "{context}");
        let expected = if found {
            let commits = number % 2 == 0;
            let decide = if commits { Engine::commit_prepared } else { Engine::rollback_prepared };
            decide(&engine, &id(number)).unwrap_or_else(|error| panic!("{context}: {error}"));
            commits
        } else {
            matches!(phase, Phase::Deciding(Decision::Commit) | Phase::Decided(Decision::Commit))
        };
        assert_eq!(is_done(&engine, &table, number), expected, "{context}");
    }
    assert_sound(&engine, context);
    engine.close().unwrap_or_else(|error| panic!("{context}: close: {error}"));
}

#[test]
fn a_crash_at_every_change_leaves_each_transaction_where_it_was_promised() {
    let (transactions, nested_every) = if is_full() { FULL } else { QUICK };
    for release in [EarlyLockRelease::SharedAndExclusive, EarlyLockRelease::Off] {
        let disk = FaultyDisk::new();
        let phases = Arc::new(Mutex::new(Vec::new()));
        let (for_probe, snapshots) = (Arc::clone(&phases), disk.clone());
        let probe = Probe::new(
            disk,
            Box::new(move |change| {
                // Under the mutex: nothing is promised between the look at the promises and the look at the disk.
                let phases = for_probe.lock();
                if phases.is_empty() {
                    return;
                }
                let left = modes(change).map(|mode| (mode, snapshots.after_crash(mode)));
                let phases = phases.clone();
                for (mode, left) in left {
                    let depth = if change.is_multiple_of(nested_every) { 2 } else { 0 };
                    check(&left, &phases, &format!("crash at change {change}, {mode:?}"), depth);
                }
            }),
        );
        let options = EngineOptions { early_lock_release: release, ..tiny() };
        let engine = Engine::open(Arc::new(probe.clone()) as Arc<dyn Disk>, directory(), &options).unwrap();
        let table = engine.create_table("t", b"").unwrap();
        for number in 0..transactions {
            set_up(&engine, &table, number);
        }
        engine.checkpoint().unwrap();
        *phases.lock() = vec![Phase::Open; transactions];
        let set = |number: usize, phase| phases.lock()[number] = phase;
        for number in 0..transactions + 2 {
            if number < transactions {
                let mut txn = begin(&engine);
                work(&mut txn, &table, number);
                put(&engine, &table, b"beside it", &[number as u8; 1000]);
                set(number, Phase::Preparing);
                txn.prepare(&id(number)).unwrap();
                set(number, Phase::Prepared);
            }
            if number % 3 == 1 {
                engine.checkpoint().unwrap();
            }
            if number >= 2 {
                let number = number - 2;
                let decision = if number % 4 < 2 { Decision::Commit } else { Decision::Rollback };
                set(number, Phase::Deciding(decision));
                match decision {
                    Decision::Commit => engine.commit_prepared(&id(number)).unwrap(),
                    Decision::Rollback => engine.rollback_prepared(&id(number)).unwrap(),
                }
                set(number, Phase::Decided(decision));
            }
        }
        engine.close().unwrap();
    }
    let crashes = CRASHES.load(Ordering::Relaxed);
    println!("{crashes} crashes");
    assert!(crashes > 1000, "{crashes}: too few to prove much");
}
