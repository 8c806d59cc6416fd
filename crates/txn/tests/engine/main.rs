//! The engine as its users see it, on a disk that fails, tears and forgets.
#![cfg(not(foreshore_loom))]

mod backup;
mod compact;
mod crash;
mod disk_full;
mod drop;
mod early_release;
mod escalation;
mod faults;
mod finger;
mod log_crowd;
mod log_full;
mod log_space;
mod matrix;
mod model;
mod opening;
mod pipelines;
mod prepared;
mod probe;
mod read_only;
mod rename;
mod restart;
mod salvage;
mod skip_locked;
mod threads;
mod transactions;
mod unlocked;
mod verify;

use std::{
    ops::{Bound, ControlFlow},
    path::Path,
};

use foreshore_base::{Result, StorageError};
use foreshore_env::{
    disk::Disk,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use foreshore_testkit::FaultyDisk;
use foreshore_txn::{
    BeginOptions, Direction, Durability, Engine, EngineOptions, LockKind, LockOptions, LogOptions,
    PoolOptions, TableInfo, Txn, TxnError,
};

/// Keys and values, in order.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// All of a database: table and key to value.
type Content = std::collections::BTreeMap<(String, Vec<u8>), Vec<u8>>;

fn directory() -> &'static Path {
    Path::new("/db")
}

/// Everything small: nodes split and merge all the time, pages are evicted dirty, segments are changed often. And
/// quiet: no thread in the background writes anything that nobody asked for.
fn tiny() -> EngineOptions {
    EngineOptions {
        log: LogOptions {
            segment_bytes: 128 << 10,
            buffer_bytes: 256 << 10,
            flush_interval: Duration::from_secs(3600),
            ..LogOptions::default()
        },
        pool: PoolOptions { bytes: 24 * 8192, cleaners: 0, read_ahead: 0, ..PoolOptions::default() },
        // Many tests open hundreds of engines.
        locks: LockOptions { buckets: 1 << 10, ..LockOptions::default() },
        node_capacity: 4,
        ..EngineOptions::default()
    }
}

/// What is told of progress and stops nothing.
fn go_on<T>(_: T) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn open_with(disk: &FaultyDisk, options: &EngineOptions) -> Result<Arc<Engine>> {
    Engine::open(Arc::new(disk.clone()) as Arc<dyn Disk>, directory(), options)
}

fn open(disk: &FaultyDisk) -> Result<Arc<Engine>> {
    open_with(disk, &tiny())
}

fn begin(engine: &Arc<Engine>) -> Txn {
    engine.begin(BeginOptions::default()).unwrap()
}

/// The value of a key, in a transaction.
fn get(txn: &mut Txn, table: &TableInfo, key: &[u8]) -> Result<Option<Vec<u8>>, TxnError> {
    txn.get(table, key, <[u8]>::to_vec)
}

/// Writes one key in a transaction of its own.
fn put(engine: &Arc<Engine>, table: &TableInfo, key: &[u8], value: &[u8]) {
    let mut txn = begin(engine);
    txn.put(table, key, value).unwrap();
    txn.commit(Durability::Sync).unwrap();
}

/// Reads a whole table, in the direction of its keys.
fn scan(txn: &mut Txn, table: &TableInfo) -> Result<Entries, TxnError> {
    let whole = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = txn.cursor(table, whole, Direction::Ascending, LockKind::Shared)?;
    let (mut key, mut value, mut entries) = (Vec::new(), Vec::new(), Vec::new());
    while txn.next(&mut cursor, &mut key, &mut value)? {
        entries.push((key.clone(), value.clone()));
    }
    Ok(entries)
}

/// Reads everything.
fn read_all(engine: &Arc<Engine>) -> Result<Content, TxnError> {
    let mut content = Content::new();
    let mut txn = engine.begin(BeginOptions::default())?;
    for table in engine.tables()? {
        for (key, value) in scan(&mut txn, &table)? {
            content.insert((table.name().to_owned(), key), value);
        }
    }
    txn.commit(Durability::Sync)?;
    Ok(content)
}

/// Says what is wrong with a database that nobody is using.
fn soundness(engine: &Arc<Engine>) -> Result<(), String> {
    let report = engine.verify().map_err(|error| format!("verify: {error}"))?;
    if !report.is_sound() {
        return Err(format!("{:#?}", report.problems));
    }
    // On a full disk the reaper comes again and again, for moments.
    let begun = Instant::now();
    while report.locks_held && !engine.locks().is_empty() {
        if begun.elapsed() > Duration::from_secs(20) {
            return Err("locks are left".to_owned());
        }
        thread::sleep(Duration::from_millis(1));
    }
    engine.pool().verify_quiescent()?;
    match engine.stats().writers_open {
        0 => Ok(()),
        open => Err(format!("{open} transactions are open")),
    }
}

/// Asserts that nothing at all is wrong with a database that nobody is using.
fn assert_sound(engine: &Arc<Engine>, context: &str) {
    soundness(engine).unwrap_or_else(|problem| panic!("{context}: {problem}"));
}

fn is_poisoned<T>(result: &Result<T, TxnError>) -> bool {
    matches!(result, Err(TxnError::Storage(StorageError::Poisoned { .. }) | TxnError::OutcomeUnknown { .. }))
}
