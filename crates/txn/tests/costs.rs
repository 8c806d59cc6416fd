//! What transactions cost, counted on the simulated machine: accesses to shared memory, latches, allocations, the same
//! in every run. The main paths stay within three percent of what they cost when the table below was made; reads
//! without locks change no shared memory and take no latch, however many records they read. Run by `RUSTFLAGS='--cfg
//! foreshore_sim' cargo test -p foreshore-txn --test costs --target-dir target/sim -- --nocapture`.
#![cfg(foreshore_sim)]

use std::{fmt::Write, ops::Bound, path::Path};

use foreshore_env::{
    StripedArc,
    disk::Disk,
    sim::{self, Device, Profile, Settings, Tally, World, simulate},
    sync::Arc,
    time::Duration,
};
use foreshore_testkit::FaultyDisk;
use foreshore_txn::{
    BeginOptions, Direction, Durability, Engine, EngineOptions, LockKind, LogOptions, ReadMode, TableInfo,
    Txn,
};

/// Records in each table.
const ROWS: u32 = 2000;
/// Transactions before those that are counted: what is made once has been made.
const WARM_UP: u32 = 32;
/// Transactions that are counted together.
const ROUNDS: u32 = 64;
/// By how much each count may differ from the table, in percent.
const TOLERANCE: u64 = 3;

/// What a transaction does, by its number.
type Work = fn(&mut Txn, &[TableInfo], u32);

/// What [`ROUNDS`] transactions cost. Who makes one dearer says why; who makes one cheaper puts the new counts here,
/// which the test prints.
#[rustfmt::skip]
const EXPECTED: [(&str, ReadMode, Work, Tally); 7] = [
    ("10 reads", ReadMode::Locking, read_keys, Tally { loads: 61210, stores: 3264, changes: 1920, fences: 192, latches: 0, mutexes: 128, allocations: 64 }),
    ("10 reads", ReadMode::Hybrid, read_keys, Tally { loads: 60186, stores: 640, changes: 640, fences: 192, latches: 0, mutexes: 128, allocations: 128 }),
    ("a scan of 100", ReadMode::Locking, scan, Tally { loads: 230809, stores: 33412, changes: 16994, fences: 192, latches: 0, mutexes: 128, allocations: 64 }),
    ("a scan of 100", ReadMode::Hybrid, scan, Tally { loads: 159172, stores: 640, changes: 640, fences: 192, latches: 0, mutexes: 128, allocations: 128 }),
    ("10 changes", ReadMode::Locking, modify_keys, Tally { loads: 103268, stores: 13056, changes: 4608, fences: 192, latches: 640, mutexes: 128, allocations: 704 }),
    ("TPC-B", ReadMode::Locking, tpcb, Tally { loads: 40054, stores: 7741, changes: 2304, fences: 384, latches: 256, mutexes: 128, allocations: 256 }),
    ("10 insertions", ReadMode::Locking, insert, Tally { loads: 53191, stores: 49901, changes: 4868, fences: 192, latches: 705, mutexes: 174, allocations: 226 }),
];

fn settings() -> Settings {
    let profile = Profile::named("westmere8x10").unwrap().clone();
    Settings {
        seed: 1,
        world: World::Machine { profile: Box::new(profile), cores: 2 },
        device: Device::named("plp").unwrap(),
        limit: Duration::from_secs(60),
    }
}

/// A key, scattered over the table by the transaction's number and that of the operation.
fn key(round: u32, operation: u32) -> [u8; 4] {
    ((round * 131 + operation * 197) % ROWS).to_be_bytes()
}

fn read_keys(txn: &mut Txn, tables: &[TableInfo], round: u32) {
    for operation in 0..10 {
        assert!(txn.get(&tables[0], &key(round, operation), |_| ()).unwrap().is_some());
    }
}

fn scan(txn: &mut Txn, tables: &[TableInfo], round: u32) {
    let low = (round * 131 % (ROWS - 100)).to_be_bytes();
    let range = (Bound::Included(&low[..]), Bound::Unbounded);
    let mut cursor = txn.cursor(&tables[0], range, Direction::Ascending, LockKind::Shared).unwrap();
    for _ in 0..100 {
        assert!(txn.advance(&mut cursor).unwrap());
    }
}

/// Reads a record and writes it with a counter that is one greater.
fn modify(txn: &mut Txn, table: &TableInfo, key: &[u8]) {
    let mut value = txn.get_for_update(table, key, <[u8]>::to_vec).unwrap().unwrap();
    value[0] = value[0].wrapping_add(1);
    assert!(txn.update(table, key, &value).unwrap());
}

fn modify_keys(txn: &mut Txn, tables: &[TableInfo], round: u32) {
    for operation in 0..10 {
        modify(txn, &tables[0], &key(round, operation));
    }
}

/// An account, a teller, a branch, and a line of the history.
fn tpcb(txn: &mut Txn, tables: &[TableInfo], round: u32) {
    modify(txn, &tables[0], &key(round, 0));
    modify(txn, &tables[1], &(round % 10).to_be_bytes());
    modify(txn, &tables[2], &0_u32.to_be_bytes());
    assert!(txn.insert(&tables[3], &(ROWS + round).to_be_bytes(), &[7; 50]).unwrap());
}

fn insert(txn: &mut Txn, tables: &[TableInfo], round: u32) {
    for number in 0..10 {
        assert!(txn.insert(&tables[3], &(ROWS + round * 10 + number).to_be_bytes(), &[7; 100]).unwrap());
    }
}

/// Counts something in an engine of its own, with four full tables, on a simulated machine.
fn simulated(count: impl Fn(&Arc<Engine>, &[TableInfo]) -> Tally) -> Tally {
    let simulated = simulate(&settings(), || {
        let log = LogOptions { flush_interval: Duration::from_secs(3600), ..LogOptions::default() };
        let options = EngineOptions { log, ..EngineOptions::default() };
        let disk = Arc::new(FaultyDisk::new()) as Arc<dyn Disk>;
        let engine = Engine::open(disk, Path::new("/db"), &options).unwrap();
        let tables = ["accounts", "tellers", "branches", "history"];
        let tables = tables.map(|name| engine.create_table(name, b"").unwrap());
        for table in &tables {
            let mut txn = engine.begin(BeginOptions::default()).unwrap();
            for number in 0..ROWS {
                txn.put(table, &number.to_be_bytes(), &[7; 100]).unwrap();
            }
            txn.commit(Durability::Sync).unwrap();
        }
        let cost = count(&engine, &tables);
        engine.close().unwrap();
        cost
    });
    simulated.unwrap().result
}

/// What transactions cost, begin and commit included, in steady state.
fn transactions(mode: ReadMode, work: Work) -> Tally {
    simulated(|engine, tables| {
        let engine = StripedArc::new(Arc::clone(engine));
        let run = |round| {
            let seldom_locks = mode == ReadMode::Hybrid;
            let options = BeginOptions { seldom_locks, ..BeginOptions::default() };
            let mut txn = Engine::begin_striped(&engine, options).unwrap();
            txn.set_read_mode(mode);
            work(&mut txn, tables, round);
            txn.commit(Durability::Lazy).unwrap();
        };
        (0..WARM_UP).for_each(run);
        let before = sim::tally().unwrap();
        (WARM_UP..WARM_UP + ROUNDS).for_each(run);
        sim::tally().unwrap() - before
    })
}

/// What reads cost between the begin of their transaction and its commit.
fn reads(mode: ReadMode, work: Work) -> Tally {
    simulated(|engine, tables| {
        let mut cost = Tally::default();
        for round in 0..20 {
            let mut txn = engine.begin(BeginOptions::default()).unwrap();
            txn.set_read_mode(mode);
            // The locks on table and volume are another matter.
            txn.get(&tables[0], &[0; 4], |_| ()).unwrap();
            let before = sim::tally().unwrap();
            work(&mut txn, tables, round);
            cost = sim::tally().unwrap() - before;
            txn.commit(Durability::Sync).unwrap();
        }
        cost
    })
}

fn fields(tally: &Tally) -> [(&'static str, u64); 7] {
    let Tally { loads, stores, changes, fences, latches, mutexes, allocations } = *tally;
    [
        ("loads", loads),
        ("stores", stores),
        ("changes", changes),
        ("fences", fences),
        ("latches", latches),
        ("mutexes", mutexes),
        ("allocations", allocations),
    ]
}

#[test]
fn the_main_paths_cost_what_they_did() {
    let mut table = String::new();
    let mut others = Vec::new();
    for (what, mode, work, expected) in EXPECTED {
        let counted = transactions(mode, work);
        writeln!(table, "{what}, {mode:?}: {counted:?}").unwrap();
        for ((field, counted), (_, expected)) in fields(&counted).into_iter().zip(fields(&expected)) {
            if counted.abs_diff(expected) * 100 > expected * TOLERANCE {
                others.push(format!("{what}, {mode:?}: {counted} {field} instead of {expected}"));
            }
        }
    }
    println!("{table}");
    assert!(
        others.is_empty(),
        "{ROUNDS} transactions cost another sum:\n{}\nall of them:\n{table}",
        others.join("\n")
    );
}

#[test]
fn reads_without_locks_change_no_shared_memory() {
    for (what, work) in [("10 reads", read_keys as Work), ("a scan of 100", scan)] {
        let unlocked = reads(ReadMode::Hybrid, work);
        let locked = reads(ReadMode::Locking, work);
        println!("{what}: {unlocked:?}, under locks {locked:?}");
        assert_eq!((unlocked.changes, unlocked.stores, unlocked.fences), (0, 0, 0), "{what}");
        assert_eq!((unlocked.latches, unlocked.mutexes), (0, 0), "{what}");
        // The measurement sees what there is.
        assert!(locked.changes >= 10, "{what}: {locked:?}");
    }
}
