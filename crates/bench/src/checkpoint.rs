//! What checkpoints do to the latency of commits: the same workload with and without them, in turn.

use foreshore_env::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;

use crate::{
    BenchError,
    engine::{Attempts, Body, Engine, Failure, Outcome},
    observer::Observer,
    random::mix,
    runner::{self, Length, RunOptions},
    threads::start,
    workload::{Check, Worker, Workload, check},
};

/// Latencies above this are recorded as this.
const LONGEST_LATENCY_NS: u64 = 3_600_000_000_000;

/// How long a rest goes on when the run has ended, at most.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How checkpoints are measured.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointOptions {
    /// Threads, length and seed. The length is that of one half of a round: without checkpoints, or with them.
    pub run: RunOptions,
    /// How often both halves are run.
    pub rounds: u32,
    /// From the end of a checkpoint to the beginning of the next.
    pub rest: Duration,
}

/// Latencies of transactions in microseconds, retries included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TailLatency {
    /// How many there were.
    pub transactions: u64,
    /// Half took at most this.
    pub p50: f64,
    /// 99 of a hundred took at most this.
    pub p99: f64,
    /// 999 of a thousand took at most this.
    pub p999: f64,
    /// All took at most this.
    pub max: f64,
}

/// What checkpoints do to latency.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointReport {
    /// The workload's name.
    pub workload: String,
    /// Threads that ran transactions.
    pub threads: usize,
    /// In the halves without checkpoints.
    pub without: TailLatency,
    /// In the other halves, while there was none.
    pub between: TailLatency,
    /// While there was one, for a part of the transaction at least.
    pub during: TailLatency,
    /// `during` to `without`, of the 99.9th percentiles.
    pub p999_ratio: f64,
    /// Checkpoints that were taken.
    pub checkpoints: u64,
    /// How long one took on average, in milliseconds.
    pub checkpoint_ms: f64,
    /// Pages that they wrote, on average; 0 if the engine does not tell.
    pub checkpoint_pages: f64,
    /// Checkpoints that the engine took by itself in the halves without: with these the comparison says less.
    pub own_checkpoints: u64,
    /// Whether all checks hold.
    pub consistent: bool,
    /// What was checked at the end.
    pub checks: Vec<Check>,
}

/// Loads a workload and measures it: see [`CheckpointReport`]. The engine should be told to take no checkpoints by
/// itself.
pub fn measure_checkpoints(
    engine: &dyn Engine,
    workload: &dyn Workload,
    options: &CheckpointOptions,
    observer: &dyn Observer,
) -> Result<CheckpointReport, BenchError> {
    if options.rounds == 0 || options.run.threads == 0 {
        return Err(BenchError::invalid("at least one round and one thread must run"));
    }
    if matches!(options.run.length, Length::Iterations(_)) {
        return Err(BenchError::invalid(
            "checkpoints are measured for a time, not for a number of transactions",
        ));
    }
    if engine.submitter().is_some() || engine.session().is_some() {
        return Err(BenchError::invalid(
            "checkpoints are measured beside transactions whose threads run and await them: no --execution partitioned, no \
             --durability pipelined",
        ));
    }
    runner::load(engine, workload, options.run.threads, options.run.seed, observer)?;
    let watched = Watched::new(engine)?;
    let (mut checkpoints, mut taking, mut pages, mut own) = (0, Duration::ZERO, 0, 0);
    let mut commits = vec![0; workload.kinds().len()];
    for half in 0..2 * u64::from(options.rounds) {
        // Other inputs, or a half would insert what the one before has inserted.
        let run = RunOptions { seed: mix(options.run.seed.wrapping_add(half)), ..options.run };
        engine.settle()?;
        // Without and with, with and without: neither comes always after the other.
        let sample = if matches!(half % 4, 0 | 3) {
            let before = counter(engine, "checkpoints");
            watched.side.store(Side::Without as u64, Ordering::Relaxed);
            let sample = runner::sample(&watched, workload, &run, observer)?;
            own += counter(engine, "checkpoints") - before;
            sample
        } else {
            let before = counter(engine, "pool_sweep_writes");
            watched.side.store(Side::Between as u64, Ordering::Relaxed);
            let stop = AtomicBool::new(false);
            let (sampled, taken) = thread::scope(|scope| -> Result<_, BenchError> {
                let taker = start(scope, "the thread that takes checkpoints", || {
                    watched.take_checkpoints(&stop, options.rest)
                })?;
                let sampled = runner::sample(&watched, workload, &run, observer);
                stop.store(true, Ordering::Relaxed);
                let taken = taker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                Ok((sampled?, taken?))
            })?;
            checkpoints += taken.0;
            taking += taken.1;
            pages += counter(engine, "pool_sweep_writes") - before;
            sampled
        };
        commits.iter_mut().zip(&sample.all_commits).for_each(|(sum, commits)| *sum += commits);
    }
    observer.checking();
    let checks = check(workload, engine, Some(&commits))?;
    let [without, between, during] = watched.latencies();
    let each = |sum: f64| if checkpoints > 0 { sum / checkpoints as f64 } else { 0.0 };
    Ok(CheckpointReport {
        workload: workload.name().to_owned(),
        threads: options.run.threads,
        without,
        between,
        during,
        p999_ratio: if without.p999 > 0.0 { during.p999 / without.p999 } else { 0.0 },
        checkpoints,
        checkpoint_ms: each(taking.as_secs_f64() * 1000.0),
        checkpoint_pages: each(pages as f64),
        own_checkpoints: own,
        consistent: checks.iter().all(|check| check.holds),
        checks,
    })
}

fn counter(engine: &dyn Engine, name: &str) -> u64 {
    engine.counters().get(name).copied().unwrap_or(0)
}

/// What a transaction met.
#[derive(Clone, Copy, Debug)]
enum Side {
    Without,
    Between,
    During,
}

/// An engine whose transactions are timed by what they met.
struct Watched<'e> {
    engine: &'e dyn Engine,
    /// [`Side::Without`] or [`Side::Between`]. Relaxed: written between two runs.
    side: AtomicU64,
    /// Odd while a checkpoint is taken; grows. Relaxed: a transaction at the very edge may count for either side.
    checkpoints: AtomicU64,
    /// In nanoseconds, by side. Guarded by the mutex, held for one record.
    latency: Mutex<[Histogram<u64>; 3]>,
}

impl<'e> Watched<'e> {
    fn new(engine: &'e dyn Engine) -> Result<Watched<'e>, BenchError> {
        let histogram = || {
            Histogram::new_with_bounds(1, LONGEST_LATENCY_NS, 3)
                .map_err(|error| Failure::fatal(format!("cannot make a latency histogram: {error}")))
        };
        Ok(Watched {
            engine,
            side: AtomicU64::new(Side::Without as u64),
            checkpoints: AtomicU64::new(0),
            latency: Mutex::new([histogram()?, histogram()?, histogram()?]),
        })
    }

    /// Takes checkpoints until it is to stop; gives how many, and how long they took together.
    fn take_checkpoints(&self, stop: &AtomicBool, rest: Duration) -> Result<(u64, Duration), BenchError> {
        let (mut count, mut taking) = (0, Duration::ZERO);
        while !stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            self.checkpoints.fetch_add(1, Ordering::Relaxed);
            let taken = self.engine.settle();
            self.checkpoints.fetch_add(1, Ordering::Relaxed);
            taken?;
            count += 1;
            taking += begun.elapsed();
            let rested = Instant::now();
            while rested.elapsed() < rest && !stop.load(Ordering::Relaxed) {
                thread::sleep(rest.saturating_sub(rested.elapsed()).min(LOOK_EVERY));
            }
        }
        Ok((count, taking))
    }

    fn latencies(&self) -> [TailLatency; 3] {
        let latency = self.latency.lock();
        [Side::Without, Side::Between, Side::During].map(|side| {
            let histogram = &latency[side as usize];
            let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
            TailLatency {
                transactions: histogram.len(),
                p50: at(0.5),
                p99: at(0.99),
                p999: at(0.999),
                max: histogram.max() as f64 / 1000.0,
            }
        })
    }
}

impl Engine for Watched<'_> {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn transact(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.timed(|engine| engine.transact(attempts, body))
    }

    fn run(&self, attempts: &mut Attempts, worker: &mut dyn Worker) -> Result<Outcome, Failure> {
        self.timed(|engine| engine.run(attempts, worker))
    }

    fn read(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.timed(|engine| engine.read(attempts, body))
    }

    fn settle(&self) -> Result<(), Failure> {
        self.engine.settle()
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        self.engine.counters()
    }

    fn close(&self) -> Result<(), Failure> {
        self.engine.close()
    }
}

impl Watched<'_> {
    /// Runs a transaction, and takes down how long it took and what it met.
    fn timed(
        &self,
        transact: impl FnOnce(&dyn Engine) -> Result<Outcome, Failure>,
    ) -> Result<Outcome, Failure> {
        let before = self.checkpoints.load(Ordering::Relaxed);
        let begun = Instant::now();
        let outcome = transact(self.engine)?;
        let took = begun.elapsed();
        let after = self.checkpoints.load(Ordering::Relaxed);
        if matches!(outcome, Outcome::Committed) {
            let met = before % 2 == 1 || after != before;
            let side = if met { Side::During as usize } else { self.side.load(Ordering::Relaxed) as usize };
            let took = took.as_nanos().min(u128::from(LONGEST_LATENCY_NS)) as u64;
            self.latency.lock()[side].saturating_record(took);
        }
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        EngineKind, EngineOptions, Silent, TableIndex, Tpcb, engines, engines::BTreeMapEngine,
        tests::until_enough, visit_all,
    };

    /// The half with checkpoints drew what the half without had drawn, and found each key of its history taken.
    #[test]
    fn no_half_repeats_another() {
        let workload = Tpcb::new(2, 1000, 0).unwrap();
        let engine = BTreeMapEngine::new(4);
        let length = Length::Time { warm_up: Duration::ZERO, measured: Duration::from_millis(30) };
        let run = RunOptions { threads: 2, length, seed: 1 };
        let options = CheckpointOptions { run, rounds: 2, rest: Duration::from_millis(5) };
        let report = measure_checkpoints(&engine, &workload, &options, &Silent).unwrap();
        assert!(report.consistent && report.checks.len() == 4, "{:?}", report.checks);
        // Of the history, which comes last: the number of each transaction, and what it did.
        let (mut drawn, mut rows) = (BTreeSet::new(), 0);
        visit_all(&engine, TableIndex(3), b"", &mut |key, row| {
            rows += 1;
            drawn.insert((key[8..].to_vec(), row[..20].to_vec()));
            Ok(())
        })
        .unwrap();
        assert!(rows > 100 && drawn.len() == rows, "{} of {rows} are different", drawn.len());
    }

    #[test]
    fn transactions_are_told_apart_by_what_they_met() {
        let directory = tempfile::tempdir().unwrap();
        let options = EngineOptions { directory: directory.path().join("db"), ..EngineOptions::default() };
        let workload = Tpcb::new(1, 1000, 0).unwrap();
        let engine = engines::open(EngineKind::Foreshore, &workload.tables(), &options).unwrap();
        let options = |measured| {
            let length = Length::Time { warm_up: Duration::ZERO, measured };
            let run = RunOptions { threads: 2, length, seed: 1 };
            CheckpointOptions { run, rounds: 2, rest: Duration::from_millis(5) }
        };
        let measure = |measured| {
            let directory = tempfile::tempdir().unwrap();
            let options = options(measured);
            let engine_options =
                EngineOptions { directory: directory.path().join("db"), ..EngineOptions::default() };
            let engine = engines::open(EngineKind::Foreshore, &workload.tables(), &engine_options).unwrap();
            let report = measure_checkpoints(engine.as_ref(), &workload, &options, &Silent).unwrap();
            engine.close().unwrap();
            report
        };
        // On a slow disk nothing may be committed in so short a time.
        let shortest = Duration::from_millis(150);
        let report = until_enough(shortest, measure, |report| {
            [&report.without, &report.between, &report.during].into_iter().all(|side| side.transactions > 0)
        });
        let options = options(shortest);
        let run = options.run;
        for side in [report.without, report.between, report.during] {
            assert!(side.transactions > 0, "{report:?}");
            assert!(side.p50 <= side.p99 && side.p99 <= side.p999 && side.p999 <= side.max, "{report:?}");
        }
        assert!(report.checkpoints >= 2 && report.own_checkpoints == 0 && report.checkpoint_ms > 0.0);
        let by_count =
            CheckpointOptions { run: RunOptions { length: Length::Iterations(5), ..run }, ..options };
        assert!(measure_checkpoints(engine.as_ref(), &workload, &by_count, &Silent).is_err());
        engine.close().unwrap();
    }
}
