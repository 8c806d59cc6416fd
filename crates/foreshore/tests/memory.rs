//! Memory stays within what the options say, also with many threads and with a transaction that is open all the time.
//!
//! By itself with 64 threads, for about two seconds. With 500, for half a minute:
//!
//! ```text
//! FORESHORE_MEMORY=full cargo test --release -p foreshore --test memory -- --nocapture
//! ```

use std::{
    fs,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use foreshore::{Database, Durability, Error, Options, TableDefinition};

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("table");
/// Twice as much as the pool holds.
const ROWS: u64 = 32_000;
const ROW_BYTES: usize = 1000;
/// Locks that the idle transaction has.
const IDLE_LOCKS: u64 = 5_000;

/// Bytes of a lock, as the options say.
const LOCK_BYTES: u64 = 72;
/// Locks that each of the transactions that there may be is sure of.
const SURE_LOCKS: u64 = 256 * foreshore::limits::MAX_TRANSACTIONS as u64;
/// What a thread may take: its stack, buffers of its transaction, and what the allocator keeps for it.
const THREAD_BYTES: u64 = 192 << 10;
/// The program itself, and everything that is of a fixed size.
const FIXED_BYTES: u64 = 24 << 20;

fn options() -> Options {
    Options {
        pool_bytes: 16 << 20,
        max_locks: 100_000,
        lock_buckets: 1 << 16,
        durability: Durability::Lazy,
        ..Options::default()
    }
}

/// What all of it may take at most.
fn budget(options: &Options, threads: u64) -> u64 {
    let locks = LOCK_BYTES * (SURE_LOCKS + options.max_locks as u64) + 32 * options.lock_buckets as u64;
    (options.pool_bytes + options.log_buffer_bytes) as u64 + locks + threads * THREAD_BYTES + FIXED_BYTES
}

/// A line of `/proc/self/status` in bytes.
fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// How long the slowest machine may take for a few transactions of each thread.
const FAR: Duration = Duration::from_secs(120);

/// Whoever asks for it has the pool's memory from the beginning, and nobody else.
#[test]
#[cfg(target_os = "linux")]
fn a_pool_gets_its_memory_when_it_is_asked_to() {
    for prefault in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { pool_bytes: 256 << 20, prefault, ..options() };
        let before = status("VmRSS");
        let db = Database::builder().options(options.clone()).open(directory.path().join("db")).unwrap();
        let grown = status("VmRSS").saturating_sub(before);
        // What the last one had may go meanwhile; it is little.
        let (least, most) = if prefault { (240 << 20, u64::MAX) } else { (0, 64 << 20) };
        assert!((least..most).contains(&grown), "prefault={prefault}: {} MiB", grown >> 20);
        // It can be used all the same.
        db.transact(|tx| tx.put(TABLE, 1, &[1; ROW_BYTES][..]).map(drop)).unwrap();
        db.close().unwrap();
    }
}

/// Set for the process in which it is measured, where nothing else takes memory.
const CHILD: &str = "FORESHORE_TEST_MEMORY";

#[test]
fn memory_is_bounded_with_an_idle_old_transaction() {
    let full = std::env::var("FORESHORE_MEMORY").is_ok_and(|value| value == "full");
    let (threads, phase) =
        if full { (500, Duration::from_secs(15)) } else { (64, Duration::from_millis(700)) };
    if let Some(path) = std::env::var_os(CHILD) {
        return measure(Path::new(&path), threads, phase);
    }
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["memory_is_bounded_with_an_idle_old_transaction", "--exact", "--nocapture"])
        .env(CHILD, directory.path().join("db"))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said} {}", String::from_utf8_lossy(&output.stderr));
    print!("{said}");
    assert!(said.contains("peak"), "{said}");
}

fn measure(path: &Path, threads: u64, phase: Duration) {
    let options = options();
    let db = Database::builder().options(options.clone()).open(path).unwrap();
    for begin in (0..ROWS).step_by(500) {
        db.transact(|tx| {
            (begin..begin + 500).try_for_each(|key| tx.put(TABLE, key, &[1; ROW_BYTES][..]).map(drop))
        })
        .unwrap();
    }
    // It reads much, writes a little, and stays.
    let mut idle = db.begin().unwrap();
    for key in 0..IDLE_LOCKS {
        idle.get(TABLE, key).unwrap();
    }
    idle.put(TABLE, 0, &[2; ROW_BYTES][..]).unwrap();

    let (running, done) = (AtomicBool::new(true), AtomicU64::new(0));
    let (first, second) = thread::scope(|scope| {
        for number in 0..threads {
            let (db, running, done) = (&db, &running, &done);
            scope.spawn(move || {
                let mut round = number;
                while running.load(Ordering::Relaxed) {
                    round += threads;
                    match db.transact(|tx| work(tx, round)) {
                        Ok(()) => _ = done.fetch_add(1, Ordering::Relaxed),
                        Err(Error::RetriesExhausted { .. } | Error::LogFull { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        // Until all had their turns, on a slow machine.
        let busy_for = |transactions| {
            let begun = Instant::now();
            thread::sleep(phase);
            while done.load(Ordering::Relaxed) < transactions && begun.elapsed() < FAR {
                thread::sleep(Duration::from_millis(10));
            }
        };
        busy_for(5 * threads);
        let first = status("VmRSS");
        busy_for(10 * threads);
        let second = status("VmRSS");
        running.store(false, Ordering::Relaxed);
        (first, second)
    });
    let (peak, budget) = (status("VmHWM"), budget(&options, threads));
    let done = done.into_inner();
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "{threads} threads, {done} transactions: {:.1} MiB half-way, {:.1} MiB at the end, peak {:.1} MiB of {:.1} MiB",
        mebibytes(first),
        mebibytes(second),
        mebibytes(peak),
        mebibytes(budget),
    );
    assert!(done > threads, "{done} transactions are no load");
    assert!(peak <= budget, "a peak of {peak} bytes, where {budget} are configured");
    assert!(second <= first + (12 << 20), "memory grows: from {first} to {second} bytes");
    assert_eq!(idle.get(TABLE, 0).unwrap().unwrap()[0], 2);
    idle.commit().unwrap();
    db.close().unwrap();
}

/// Some reads, a range, and writes, beside what the idle transaction has.
fn work(tx: &mut foreshore::Transaction, round: u64) -> foreshore::Result<()> {
    let place = |number: u64| IDLE_LOCKS + 10 + (round * 7919 + number * 104_729) % (ROWS - IDLE_LOCKS - 200);
    for number in 0..4 {
        tx.get(TABLE, place(number))?;
    }
    let begin = place(5);
    for entry in tx.range(TABLE, begin..begin + 30)? {
        entry?;
    }
    let mut keys = [place(6), place(7)];
    keys.sort_unstable();
    keys.into_iter().try_for_each(|key| tx.put(TABLE, key, &[round as u8; ROW_BYTES][..]).map(drop))
}
