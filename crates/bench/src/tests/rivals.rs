//! Every rival of this build runs what Foreshore runs, by the same contract.

use std::{
    ops::{Bound::Unbounded, ControlFlow},
    path::Path,
};

use foreshore_env::{thread, time::Duration};

use super::{contract, transact, workloads};
use crate::{
    Attempts, Durability, Engine, EngineKind, EngineOptions, Length, Order, Outcome, RunOptions, Silent,
    Stop, TableIndex, Tpcb, Workload, engines, run,
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
            EngineKind::Fjall => &[&[], &[("transactions", "single_writer")]],
            EngineKind::Lmdb => &[&[], &[("write_map", "true")]],
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

/// A body that only reads sees one state, whatever is committed meanwhile, and cannot write.
#[test]
fn readers_see_a_snapshot_and_cannot_write() {
    let (table, value) = (TableIndex(0), b"before".to_vec());
    for rival in rivals() {
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
