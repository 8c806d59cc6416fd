//! Every rival of this build runs what Foreshore runs, by the same contract.

mod lazy;

use std::{
    mem,
    ops::{Bound::Unbounded, ControlFlow},
    path::Path,
};

use foreshore_env::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use super::{contract, transact, workloads};
use crate::{
    Attempts, Durability, Engine, EngineKind, EngineOptions, EngineTxn, Failure, Length, Named, Order,
    Outcome, RunOptions, Silent, Stop, TableIndex, Tpcb, Workload, engines, run,
};

const SHORT: Length =
    Length::Time { warm_up: Duration::from_millis(10), measured: Duration::from_millis(80) };

type Rival = (EngineKind, Vec<(String, String)>);

/// The rivals of this build, each in every way that it can be opened.
fn rivals() -> Vec<Rival> {
    let mut rivals = Vec::new();
    for kind in EngineKind::built() {
        let ways: &[&[(&str, &str)]] = match kind {
            EngineKind::Foreshore | EngineKind::BTreeMap => continue,
            EngineKind::Fjall => &[&[], &[("transactions", "single_writer")], &[("lazy", "write")]],
            EngineKind::Rocksdb => &[&[], &[("lazy", "write")]],
            EngineKind::Lmdb => &[&[], &[("write_map", "true")]],
            EngineKind::Bdb => &[&[], &[("reads", "snapshots")], &[("lazy", "write")]],
            _ => &[&[]],
        };
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        rivals.extend(ways.iter().map(|settings| (kind, settings.iter().map(own).collect())));
    }
    rivals
}

fn open(
    (kind, settings): &Rival,
    directory: &Path,
    tables: &[String],
    durability: Durability,
) -> Box<dyn Engine> {
    let options = EngineOptions {
        directory: directory.to_owned(),
        durability,
        settings: settings.clone(),
        ..EngineOptions::default()
    };
    engines::open(*kind, tables, &options).unwrap()
}

#[test]
fn rivals_keep_the_contract() {
    for rival in rivals() {
        for durability in [Durability::Sync, Durability::Lazy] {
            let directory = tempfile::tempdir().unwrap();
            let engine = open(&rival, directory.path(), &["table".to_owned()], durability);
            assert_eq!(engine.name(), rival.0.name());
            let risks_the_map = rival.1.iter().any(|(name, _)| name == "write_map");
            let says_so = engine.caveats().iter().any(|caveat| caveat.contains("stray pointer"));
            assert_eq!(says_so, risks_the_map, "{rival:?}");
            contract(engine.as_ref());
            engine.close().unwrap();
        }
    }
}

/// All workloads, on the rivals of this kind.
fn run_all(kind: EngineKind) {
    for rival in rivals().iter().filter(|rival| rival.0 == kind) {
        let mut commits = 0;
        for workload in workloads() {
            let directory = tempfile::tempdir().unwrap();
            let tables = workload.tables();
            let engine = open(rival, directory.path(), &tables, Durability::Lazy);
            let options = RunOptions { threads: 3, length: SHORT, seed: 5 };
            let report = run(engine.as_ref(), workload.as_ref(), &options, &Silent).unwrap();
            assert!(report.consistent, "{} {}: {:#?}", report.engine, report.workload, report.checks);
            assert_eq!((report.given_up, report.aborts.total()), (0, report.retries));
            commits += report.commits;
            engine.close().unwrap();
            drop(engine);
            // It has written what it said.
            let engine = open(rival, directory.path(), &tables, Durability::Lazy);
            let checks = workload.check(engine.as_ref(), None).unwrap();
            assert!(checks.iter().all(|check| check.holds), "{} reopened: {checks:#?}", engine.name());
        }
        assert!(commits > 100, "{} committed {commits}", kind.name());
    }
}

#[cfg(feature = "redb")]
#[test]
fn every_workload_runs_and_is_consistent_on_redb() {
    run_all(EngineKind::Redb);
}

#[cfg(feature = "fjall")]
#[test]
fn every_workload_runs_and_is_consistent_on_fjall() {
    run_all(EngineKind::Fjall);
}

#[cfg(feature = "lmdb")]
#[test]
fn every_workload_runs_and_is_consistent_on_lmdb() {
    run_all(EngineKind::Lmdb);
}

#[cfg(feature = "sqlite")]
#[test]
fn every_workload_runs_and_is_consistent_on_sqlite() {
    run_all(EngineKind::Sqlite);
}

#[cfg(feature = "rocksdb")]
#[test]
fn every_workload_runs_and_is_consistent_on_rocksdb() {
    run_all(EngineKind::Rocksdb);
}

#[cfg(feature = "bdb")]
#[test]
fn every_workload_runs_and_is_consistent_on_bdb() {
    run_all(EngineKind::Bdb);
}

/// Many threads and few rows: whoever lost an update would be caught by the sums.
#[test]
fn rivals_are_consistent_under_contention() {
    for rival in rivals() {
        let workload = Tpcb::new(1, 10, 0).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let engine = open(&rival, directory.path(), &workload.tables(), Durability::Lazy);
        let measured = Duration::from_millis(200);
        let length = Length::Time { warm_up: Duration::ZERO, measured };
        let options = RunOptions { threads: 8, length, seed: 5 };
        let report = run(engine.as_ref(), &workload, &options, &Silent).unwrap();
        assert!(report.consistent, "{}: {:#?}", report.engine, report.checks);
        assert!(report.commits > 0, "{}", report.engine);
    }
}

/// Whether bodies that only read keep those who write away, instead of reading a snapshot.
fn reads_lock((kind, settings): &Rival) -> bool {
    *kind == EngineKind::Bdb && settings.iter().all(|(name, _)| name != "reads")
}

/// A body that only reads sees one state, whatever is committed meanwhile, and cannot write.
#[test]
fn readers_see_a_snapshot_and_cannot_write() {
    let (table, value) = (TableIndex(0), b"before".to_vec());
    for rival in rivals() {
        if reads_lock(&rival) {
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        let engine = open(&rival, directory.path(), &["table".to_owned()], Durability::Lazy);
        let engine = engine.as_ref();
        transact(engine, |txn| Ok(txn.put(table, b"k", &value)?));
        let read = engine.read(&mut Attempts::default(), &mut |txn| {
            let mut seen = Vec::new();
            assert!(txn.get(table, b"k", &mut seen)? && seen == value);
            thread::scope(|scope| {
                let write = || transact(engine, |txn| Ok(txn.put(table, b"k", b"after")?));
                assert!(matches!(scope.spawn(write).join().unwrap(), Outcome::Committed));
            });
            assert!(txn.get(table, b"k", &mut seen)? && seen == value, "{} shows two states", engine.name());
            Ok(())
        });
        assert!(matches!(read, Ok(Outcome::Committed)));
        let write = engine.read(&mut Attempts::default(), &mut |txn| Ok(txn.put(table, b"k", b"never")?));
        assert!(write.is_err_and(|failure| failure.to_string().contains("only reads")));
        let mut seen = Vec::new();
        let wish = engine.read(&mut Attempts::default(), &mut |txn| {
            txn.scan(table, (Unbounded, Unbounded), Order::Ascending, &mut |_, value| {
                seen = value.to_vec();
                ControlFlow::Continue(())
            })?;
            Err(Stop::Rollback)
        });
        assert!(matches!(wish, Ok(Outcome::RolledBack)) && seen == b"after");
    }
}

/// Values longer than a page, and keys of all lengths that every rival takes, are read as they were written, from both
/// ends.
#[test]
fn large_records_come_back_whole() {
    let table = TableIndex(0);
    let record = |number: usize| (vec![number as u8; 1 + 16 * number], vec![b'v'; number * 1500]);
    for rival in rivals() {
        let directory = tempfile::tempdir().unwrap();
        let engine = open(&rival, directory.path(), &["table".to_owned()], Durability::Lazy);
        let engine = engine.as_ref();
        transact(engine, |txn| {
            for number in 1..=20 {
                let (key, value) = record(number);
                assert!(txn.insert(table, &key, &value)?);
            }
            Ok(())
        });
        transact(engine, |txn| {
            let mut seen = Vec::new();
            for number in 1..=20 {
                let (key, value) = record(number);
                assert!(txn.get(table, &key, &mut seen)? && seen == value, "{}", engine.name());
            }
            for order in [Order::Ascending, Order::Descending] {
                let mut records = Vec::new();
                txn.scan(table, (Unbounded, Unbounded), order, &mut |key, value| {
                    records.push((key.to_vec(), value.to_vec()));
                    ControlFlow::Continue(())
                })?;
                if order == Order::Descending {
                    records.reverse();
                }
                assert!(records.iter().cloned().eq((1..=20).map(record)), "{} {order:?}", engine.name());
            }
            Ok(())
        });
    }
}

/// The rivals that lock while transactions run beside each other.
fn locking() -> impl Iterator<Item = Rival> {
    rivals().into_iter().filter(|rival| matches!(rival.0, EngineKind::Rocksdb | EngineKind::Bdb))
}

/// Two transactions read two rows, and each then writes one of them: only one may do so, and the other sees what it
/// did.
#[test]
fn what_was_read_is_locked_and_a_victim_runs_again() {
    let table = TableIndex(0);
    for rival in locking() {
        let directory = tempfile::tempdir().unwrap();
        let engine = open(&rival, directory.path(), &["table".to_owned()], Durability::Lazy);
        let engine = engine.as_ref();
        transact(engine, |txn| {
            txn.put(table, b"x", b"1")?;
            Ok(txn.put(table, b"y", b"1")?)
        });
        let have_read = AtomicU64::new(0);
        // Takes its own row away while both are there.
        let take = |own: &[u8]| {
            let mut attempts = Attempts::default();
            let mut is_first = true;
            let outcome = engine.transact(&mut attempts, &mut |txn| {
                let mut value = Vec::new();
                let both = txn.get(table, b"x", &mut value)? && txn.get(table, b"y", &mut value)?;
                if mem::take(&mut is_first) {
                    have_read.fetch_add(1, Ordering::SeqCst);
                    while have_read.load(Ordering::SeqCst) < 2 {
                        thread::sleep(Duration::from_millis(1));
                    }
                }
                if both {
                    assert!(txn.delete(table, own)?);
                }
                Ok(())
            });
            assert!(matches!(outcome, Ok(Outcome::Committed)));
            attempts
        };
        let mut attempts = take_both(take);
        assert!(attempts.aborts.deadlock >= 1, "{}: {attempts:?}", engine.name());
        assert_eq!(attempts.aborts.total(), attempts.retries);
        attempts.aborts.deadlock = 0;
        assert_eq!(attempts.aborts.total(), 0, "{}", engine.name());
        assert_eq!(keys(engine, table), 1, "{}: both saw both", engine.name());
    }
}

fn take_both(take: impl Fn(&[u8]) -> Attempts + Sync) -> Attempts {
    thread::scope(|scope| {
        let other = scope.spawn(|| take(b"y"));
        let mut attempts = take(b"x");
        attempts.add(&other.join().unwrap());
        attempts
    })
}

/// How many records a table has.
fn keys(engine: &dyn Engine, table: TableIndex) -> usize {
    let mut keys = 0;
    transact(engine, |txn| {
        keys = count(txn, table)?;
        Ok(())
    });
    keys
}

fn count(txn: &mut dyn EngineTxn, table: TableIndex) -> Result<usize, Failure> {
    let mut keys = 0;
    txn.scan(table, (Unbounded, Unbounded), Order::Ascending, &mut |_, _| {
        keys += 1;
        ControlFlow::Continue(())
    })?;
    Ok(keys)
}

/// A range that is read twice: only where the caveats say so has it got a new record.
#[test]
fn phantoms_are_where_the_caveats_say() {
    let table = TableIndex(0);
    for rival in locking() {
        let directory = tempfile::tempdir().unwrap();
        let engine = open(&rival, directory.path(), &["table".to_owned()], Durability::Lazy);
        let engine = engine.as_ref();
        transact(engine, |txn| Ok(txn.put(table, b"a", b"1")?));
        let has_phantoms = engine.caveats().iter().any(|caveat| caveat.contains("phantom"));
        let inserted = AtomicU64::new(0);
        let insert = || {
            transact(engine, |txn| Ok(txn.put(table, b"b", b"2")?));
            inserted.store(1, Ordering::SeqCst);
        };
        let is_inserted = || inserted.load(Ordering::SeqCst) == 1;
        thread::scope(|scope| {
            let mut writer = None;
            transact(engine, |txn| {
                assert_eq!(count(txn, table)?, 1);
                writer.get_or_insert_with(|| scope.spawn(insert));
                let waits = if has_phantoms { 60_000 } else { 100 };
                for _ in 0..waits {
                    if is_inserted() {
                        break;
                    }
                    thread::sleep(Duration::from_millis(1));
                }
                assert_eq!(is_inserted(), has_phantoms, "{}", engine.name());
                assert_eq!(count(txn, table)?, 1 + usize::from(has_phantoms), "{}", engine.name());
                Ok(())
            });
        });
        assert_eq!(keys(engine, table), 2);
    }
}
