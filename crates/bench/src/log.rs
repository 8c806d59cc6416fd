//! Inserting into the log and nothing else: how much those who append get in each other's way.

mod void;

use std::path::PathBuf;

use foreshore::{LogInsert, Options};
use foreshore_base::{Lsn, StorageError, TxnId};
use foreshore_env::{
    disk::{Disk, RealDisk},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use foreshore_wal::{Log, LogOptions, MAX_PAYLOAD_BYTES, RecordKind, Urgency};
use serde::Serialize;

use crate::{BenchError, engine::Failure, rounds, threads::start_all};
use void::VoidDisk;

/// In how many turns each way is measured; the median counts.
const TURNS: u32 = 3;
/// Appends between two looks at the time.
const APPENDS_PER_LOOK: u64 = 64;
/// How often the log is told that nobody needs what is durable.
const RELEASE_EVERY: Duration = Duration::from_millis(5);
const SEGMENT_BYTES: u64 = 64 << 20;
const KIND: RecordKind = RecordKind(100);

/// What is measured.
#[derive(Clone, Debug)]
pub struct LogRun {
    /// The ways of inserting, side by side.
    pub inserts: Vec<LogInsert>,
    /// Bytes of a record, without its header.
    pub size: usize,
    /// Numbers of threads, one after another.
    pub threads: Vec<usize>,
    /// How long each way is measured with each number of threads.
    pub measured: Duration,
    /// In place of that so many records of each thread, once: for counting instructions.
    pub iterations: Option<u64>,
    /// A new directory for the log, or memory that forgets, so that no disk is measured.
    pub directory: Option<PathBuf>,
}

/// One way of inserting with one number of threads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogRow {
    /// The way of inserting.
    pub insert: String,
    /// Threads that appended.
    pub threads: usize,
    /// Records appended in a second by all of them.
    pub appends_per_s: f64,
    /// Bytes by which the log grew in a second.
    pub bytes_per_s: f64,
    /// Flushes of the log in a second.
    pub flushes_per_s: f64,
}

/// The name of a way of inserting, as the option `log_insert` has it.
pub fn log_insert_name(insert: LogInsert) -> String {
    Options { log_insert: insert, ..Options::default() }.get("log_insert").unwrap_or_default()
}

/// Measures. `row` is told of each row as soon as it is known.
pub fn run_log(run: &LogRun, mut row: impl FnMut(&LogRow)) -> Result<Vec<LogRow>, BenchError> {
    if run.size > MAX_PAYLOAD_BYTES {
        return Err(BenchError::invalid(format!("a record has at most {MAX_PAYLOAD_BYTES} bytes")));
    }
    if run.threads.contains(&0) {
        return Err(BenchError::invalid("at least one thread must append"));
    }
    let mut rows = Vec::new();
    for &threads in &run.threads {
        let mut turns: Vec<Vec<LogRow>> = vec![Vec::new(); run.inserts.len()];
        for round in 0..if run.iterations.is_some() { 1 } else { TURNS as usize } {
            for place in rounds::turns(run.inserts.len(), round) {
                turns[place].push(turn(run, run.inserts[place], threads)?);
            }
        }
        for mut turns in turns {
            turns.sort_by(|one, other| one.appends_per_s.total_cmp(&other.appends_per_s));
            let median = turns.swap_remove(turns.len() / 2);
            row(&median);
            rows.push(median);
        }
    }
    Ok(rows)
}

fn failure(error: StorageError) -> BenchError {
    match error {
        StorageError::Io { action, path, source } => BenchError::io(&action, &path, source),
        other => BenchError::Engine(Failure::fatal(other.to_string())),
    }
}

fn turn(run: &LogRun, insert: LogInsert, threads: usize) -> Result<LogRow, BenchError> {
    let (disk, directory): (Arc<dyn Disk>, _) = match &run.directory {
        Some(directory) => {
            RealDisk
                .create_directory(directory)
                .map_err(StorageError::io("make the directory", directory))
                .map_err(failure)?;
            (Arc::new(RealDisk), directory.join("log"))
        }
        None => (Arc::new(VoidDisk::default()), PathBuf::from("log")),
    };
    let options = LogOptions { insert, segment_bytes: SEGMENT_BYTES, ..LogOptions::default() };
    let log = Log::create(disk, &directory, 1, &options).map_err(failure)?;
    let stop = AtomicBool::new(false);
    let payload = vec![0xA5; run.size];
    let (tail, flushes, begin) = (log.tail(), log.flushes(), Instant::now());
    let appends = thread::scope(|scope| -> Result<u64, BenchError> {
        let worker = |number: usize| {
            let (log, stop, payload, txn) = (&log, &stop, &payload[..], TxnId(number as u64 + 1));
            move || match run.iterations {
                None => append_until(log, stop, txn, payload),
                Some(count) => measured_appends(log, count, txn, payload).map(|()| count),
            }
        };
        let workers = start_all(scope, threads, worker, |_| stop.store(true, Ordering::Relaxed))?;
        let turn = run.measured / TURNS;
        let mut released = Ok(());
        let is_over = || run.iterations.is_none() && begin.elapsed() >= turn;
        while released.is_ok() && !is_over() && !workers.iter().any(|worker| worker.is_finished()) {
            thread::sleep(RELEASE_EVERY.min(turn));
            released = log.release_before(log.durable());
        }
        stop.store(true, Ordering::Relaxed);
        let mut appends = 0;
        for worker in workers {
            let appended = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            appends += appended.map_err(failure)?;
        }
        released.map(|()| appends).map_err(failure)
    })?;
    let seconds = begin.elapsed().as_secs_f64();
    let each_second = |count: u64| count as f64 / seconds;
    let row = LogRow {
        insert: log_insert_name(insert),
        threads,
        appends_per_s: each_second(appends),
        bytes_per_s: each_second(log.tail().0 - tail.0),
        flushes_per_s: each_second(log.flushes() - flushes),
    };
    log.close().map_err(failure)?;
    Ok(row)
}

fn append_until(log: &Log, stop: &AtomicBool, txn: TxnId, payload: &[u8]) -> Result<u64, StorageError> {
    let mut appends = 0;
    // At least once, also when the time is over before this thread has begun.
    loop {
        for _ in 0..APPENDS_PER_LOOK {
            log.append(Urgency::Work, txn, Lsn::ZERO, KIND, &[payload])?;
        }
        appends += APPENDS_PER_LOOK;
        if stop.load(Ordering::Relaxed) {
            return Ok(appends);
        }
    }
}

/// Never inlined, so that its instructions can be counted by its name.
#[inline(never)]
fn measured_appends(log: &Log, count: u64, txn: TxnId, payload: &[u8]) -> Result<(), StorageError> {
    (0..count).try_for_each(|_| log.append(Urgency::Work, txn, Lsn::ZERO, KIND, &[payload]).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::until_enough;
    #[test]
    fn every_way_of_inserting_is_measured_with_every_number_of_threads() {
        let run = |measured| LogRun {
            inserts: LogInsert::ALL.to_vec(),
            size: 100,
            threads: vec![1, 4],
            measured,
            iterations: None,
            directory: None,
        };
        let shortest = Duration::from_millis(30);
        let measure = |measured| {
            let mut told = 0;
            (run_log(&run(measured), |_| told += 1).unwrap(), told)
        };
        let (rows, told) =
            until_enough(shortest, measure, |(rows, _)| rows.iter().all(|row| row.appends_per_s > 0.0));
        let run = run(shortest);
        assert_eq!((rows.len(), told), (8, 8));
        for row in &rows {
            // A record takes its header and what fills it up: 136 bytes, but for rounding.
            assert!(row.appends_per_s > 0.0 && row.bytes_per_s >= row.appends_per_s * 135.99, "{row:?}");
        }
        let counted = LogRun { iterations: Some(500), threads: vec![2], ..run.clone() };
        let rows = run_log(&counted, |_| ()).unwrap();
        assert_eq!(rows.len(), 4);
        assert!(rows.iter().all(|row| row.bytes_per_s >= row.appends_per_s * 135.99), "{rows:?}");
        for (wrong, threads) in [(MAX_PAYLOAD_BYTES + 1, 1), (10, 0)] {
            assert!(run_log(&LogRun { size: wrong, threads: vec![threads], ..run.clone() }, |_| ()).is_err());
        }
    }
}
