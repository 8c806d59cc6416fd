//! Runs a workload on an engine: loads it, warms up, measures, checks.

mod drawn;
mod gate;
mod in_flight;
mod load;
mod measured;
mod told;

use foreshore_env::{
    CachePadded,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    BenchError,
    engine::{Attempts, Engine, Outcome, Session, session},
    observer::Observer,
    report::Report,
    rounds::{Span, Stopwatch},
    threads::start_all,
    usage,
    workload::{Worker, Workload, check},
};
use drawn::Served;
use gate::{Gate, join_all};
use in_flight::InFlight;
pub use load::load;
pub(crate) use measured::Measured;
use measured::Tally;
use told::{Checked, commits_per_flush, report};

/// How often the main thread looks up from its sleep to tell the observer, and to see whether a worker failed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a run takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// So much time, after a warm-up.
    Time {
        /// Not measured, but checked.
        warm_up: Duration,
        /// Measured.
        measured: Duration,
    },
    /// So many transactions by one thread, after a tenth as many to warm up: for instruction counts.
    Iterations(u64),
}

/// How a workload is run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Threads that run transactions.
    pub threads: usize,
    /// How long.
    pub length: Length,
    /// Everything random follows from it.
    pub seed: u64,
}

/// What all threads of a run look at.
struct Shared {
    /// One of the `PHASE_` constants; written by the main thread, and by a worker that fails; read by all. Relaxed:
    /// it carries no data with it.
    phase: AtomicU8,
}

const PHASE_WARM_UP: u8 = 0;
const PHASE_MEASURE: u8 = 1;
const PHASE_STOP: u8 = 2;

/// Stops the others when a worker ends for whatever reason, a panic included: a run with fewer workers than it reports
/// would be a false figure.
struct StopOthers<'s>(&'s Shared);

impl Drop for StopOthers<'_> {
    fn drop(&mut self) {
        self.0.phase.store(PHASE_STOP, Ordering::Relaxed);
    }
}

/// Loads the workload, runs it, and checks it. The report lacks what only the caller knows: see [`Report`].
pub fn run(
    engine: &dyn Engine,
    workload: &dyn Workload,
    options: &RunOptions,
    observer: &dyn Observer,
) -> Result<Report, BenchError> {
    if options.threads == 0 {
        return Err(BenchError::invalid("at least one thread must run"));
    }
    let begin = Instant::now();
    load(engine, workload, options.threads, options.seed, observer)?;
    engine.settle()?;
    let load_seconds = begin.elapsed().as_secs_f64();

    let before = engine.counters();
    let sample = sample(engine, workload, options, observer)?;
    let commits_per_flush = commits_per_flush(&before, &engine.counters());
    let peak_memory_bytes = usage::peak_memory_bytes();
    observer.checking();
    let begin = Instant::now();
    let checks = check(workload, engine, Some(&sample.all_commits))?;
    let check_seconds = begin.elapsed().as_secs_f64();
    let checked = Checked { checks, load_seconds, check_seconds };
    let mut report = report(engine, workload, options, &sample, checked);
    report.commits_per_flush = commits_per_flush;
    report.peak_memory_bytes = peak_memory_bytes;
    Ok(report)
}

/// What threads did with a loaded workload.
pub(crate) struct Sample {
    /// The measured time.
    pub(crate) span: Span,
    /// Commits that ended then, also of transactions that began before: with hundreds of threads those are not few, and
    /// as many are under way at its end.
    pub(crate) ended: u64,
    /// The age of the oldest transaction that ran at the end of the measured time.
    pub(crate) oldest_running: Option<Duration>,
    /// Commits of every kind, warm-up included.
    pub(crate) all_commits: Vec<u64>,
    pub(crate) measured: Measured,
}

/// Runs a workload that is loaded, and neither loads nor checks it.
pub(crate) fn sample(
    engine: &dyn Engine,
    workload: &dyn Workload,
    options: &RunOptions,
    observer: &dyn Observer,
) -> Result<Sample, BenchError> {
    let Ran { span, ended, until, tallies } = match options.length {
        Length::Time { warm_up, measured } => {
            run_for_time(engine, workload, options, (warm_up, measured), observer)?
        }
        Length::Iterations(count) => run_iterations(engine, workload, options, count, observer)?,
    };
    let kinds = workload.kinds().len();
    let (mut all_commits, mut measured) = (vec![0; kinds], Measured::new(kinds)?);
    for tally in &tallies {
        measured.add(&tally.measured)?;
        for (sum, commits) in all_commits.iter_mut().zip(&tally.all_commits) {
            *sum += commits;
        }
    }
    let since = tallies.iter().filter_map(|tally| tally.running_since).min();
    let oldest_running = since.zip(until).map(|(since, until)| until.saturating_duration_since(since));
    Ok(Sample { span, ended, oldest_running, all_commits, measured })
}

/// What came of running for a while.
struct Ran {
    span: Span,
    ended: u64,
    /// When the measured time was over, if others can have run on.
    until: Option<Instant>,
    tallies: Vec<Tally>,
}

fn run_for_time(
    engine: &dyn Engine,
    workload: &dyn Workload,
    options: &RunOptions,
    (warm_up, measured): (Duration, Duration),
    observer: &dyn Observer,
) -> Result<Ran, BenchError> {
    let shared = &Arc::new(Shared { phase: AtomicU8::new(PHASE_WARM_UP) });
    let gate = &Gate::default();
    // Written by its worker, read by the main thread for the live figure. Relaxed.
    let progress: Vec<CachePadded<AtomicU64>> =
        (0..options.threads).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
    thread::scope(|scope| {
        let served =
            engine.server().map(|server| Served::start(server, workload, options, shared)).transpose()?;
        let clients = if served.is_some() { &[][..] } else { &progress[..] };
        let client = |number: usize| {
            let progress = &clients[number];
            move || -> Result<Tally, BenchError> {
                let _stop_others = StopOthers(shared);
                gate.pass();
                if let Some(submitter) = engine.submitter() {
                    let in_flight = InFlight::new(submitter, workload, number, options);
                    return in_flight.work(workload.kinds().len(), shared, progress);
                }
                let mut worker = workload.worker(number, options.threads, options.seed);
                work(engine, worker.as_mut(), workload.kinds().len(), shared, progress)
            }
        };
        let workers = start_all(scope, clients.len(), client, |waiting| {
            shared.phase.store(PHASE_STOP, Ordering::Relaxed);
            gate.open(waiting.iter().map(thread::ScopedJoinHandle::thread));
        })?;
        let commits = || -> u64 {
            let theirs = served.as_ref().map_or(0, Served::commits);
            theirs + progress.iter().map(|commits| commits.load(Ordering::Relaxed)).sum::<u64>()
        };
        gate.open(workers.iter().map(thread::ScopedJoinHandle::thread));
        let start = Instant::now();
        let wait_until = |deadline: Instant| {
            while Instant::now() < deadline && shared.phase.load(Ordering::Relaxed) != PHASE_STOP {
                observer.running(start.elapsed(), warm_up + measured, commits());
                thread::sleep(deadline.saturating_duration_since(Instant::now()).min(LOOK_EVERY));
            }
        };
        wait_until(start + warm_up);
        // Not if a worker has stopped the run already.
        let _ =
            shared.phase.compare_exchange(PHASE_WARM_UP, PHASE_MEASURE, Ordering::Relaxed, Ordering::Relaxed);
        let (watch, begin, before) = (Stopwatch::start(), Instant::now(), commits());
        wait_until(begin + measured);
        shared.phase.store(PHASE_STOP, Ordering::Relaxed);
        let (span, ended, until) = (watch.read(), commits() - before, Some(Instant::now()));
        observer.measured();
        let tallies = match served {
            Some(served) => served.end()?,
            None => join_all(workers)?,
        };
        Ok(Ran { span, ended, until, tallies })
    })
}

/// One worker's loop until the phase says stop. A transaction counts as measured when it began and ended measured; its
/// aborts do when it began so, or else they would not be seen where hardly anything ends.
fn work(
    engine: &dyn Engine,
    worker: &mut dyn Worker,
    kinds: usize,
    shared: &Shared,
    progress: &AtomicU64,
) -> Result<Tally, BenchError> {
    let session = &mut *session(engine);
    let mut tally = Tally::new(Measured::new(kinds)?);
    let mut unmeasured = Measured::new(kinds)?;
    let mut commits = 0;
    let mut phase = shared.phase.load(Ordering::Relaxed);
    let mut begin = Instant::now();
    while phase != PHASE_STOP {
        let mut attempts = Attempts::default();
        let (kind, outcome) = one(session, worker, &mut attempts)?;
        let end = Instant::now();
        let phase_now = shared.phase.load(Ordering::Relaxed);
        let measured = phase == PHASE_MEASURE && phase_now == PHASE_MEASURE;
        let counts = if measured { &mut tally.measured } else { &mut unmeasured };
        if matches!(outcome, Outcome::Committed) {
            commits += 1;
            tally.all_commits[kind] += 1;
            progress.store(commits, Ordering::Relaxed);
        }
        counts.count(kind, &outcome, &attempts, end.saturating_duration_since(begin));
        if phase == PHASE_MEASURE && !measured {
            tally.measured.attempts.add(&attempts);
        }
        if phase_now == PHASE_STOP {
            tally.still_ran(begin);
        }
        phase = phase_now;
        begin = end;
    }
    session.finish()?;
    Ok(tally)
}

/// One transaction, to its end.
#[inline]
fn one(
    session: &mut dyn Session,
    worker: &mut dyn Worker,
    attempts: &mut Attempts,
) -> Result<(usize, Outcome), BenchError> {
    let kind = worker.next();
    let outcome = session.run(attempts, worker)?;
    if matches!(outcome, Outcome::Committed) {
        worker.committed();
    }
    Ok((kind, outcome))
}

fn run_iterations(
    engine: &dyn Engine,
    workload: &dyn Workload,
    options: &RunOptions,
    count: u64,
    observer: &dyn Observer,
) -> Result<Ran, BenchError> {
    if options.threads != 1 {
        return Err(BenchError::invalid(
            "a run of a number of iterations has one thread; leave out --threads",
        ));
    }
    let kinds = workload.kinds().len();
    if engine.server().is_some() {
        return Err(BenchError::invalid("who counts transactions draws them; leave out --drawn-by engine"));
    }
    if let Some(submitter) = engine.submitter() {
        let mut in_flight = InFlight::new(submitter, workload, 0, options);
        let warm_up = in_flight.iterate(count / 10, Measured::new(kinds)?)?;
        observer.running(Duration::ZERO, Duration::ZERO, 0);
        let watch = Stopwatch::start();
        let measured = in_flight.iterate(count, Measured::new(kinds)?)?;
        let span = watch.read();
        observer.measured();
        return Ok(counted(span, &warm_up, measured));
    }
    let mut worker = workload.worker(0, 1, options.seed);
    let session = &mut *session(engine);
    let warm_up = iterate(session, worker.as_mut(), count / 10, Measured::new(kinds)?)?;
    observer.running(Duration::ZERO, Duration::ZERO, 0);
    let watch = Stopwatch::start();
    let measured = measured_iterations(session, worker.as_mut(), count, Measured::new(kinds)?)?;
    let span = watch.read();
    observer.measured();
    session.finish()?;
    Ok(counted(span, &warm_up, measured))
}

/// What one thread's iterations come to.
fn counted(span: Span, warm_up: &Measured, measured: Measured) -> Ran {
    let ended = measured.commits.iter().sum();
    let all_commits =
        warm_up.commits.iter().zip(&measured.commits).map(|(first, second)| first + second).collect();
    let tally = Tally { all_commits, ..Tally::new(measured) };
    Ran { span, ended, until: None, tallies: vec![tally] }
}

/// The measured part of a run of iterations. A function of its own, never inlined: `callgrind --toggle-collect` counts
/// what happens inside of it (see the crate's README).
#[inline(never)]
fn measured_iterations(
    session: &mut dyn Session,
    worker: &mut dyn Worker,
    count: u64,
    measured: Measured,
) -> Result<Measured, BenchError> {
    iterate(session, worker, count, measured)
}

fn iterate(
    session: &mut dyn Session,
    worker: &mut dyn Worker,
    count: u64,
    mut measured: Measured,
) -> Result<Measured, BenchError> {
    for _ in 0..count {
        let mut attempts = Attempts::default();
        let begin = Instant::now();
        let (kind, outcome) = one(session, worker, &mut attempts)?;
        measured.count(kind, &outcome, &attempts, begin.elapsed());
    }
    Ok(measured)
}
