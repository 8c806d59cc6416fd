//! Variants of the engine beside each other: the same workload, by several numbers of threads, in turn.
//!
//! Every variant has a database of its own, loaded once. A round runs every number of threads on every variant for a
//! while, one after the other and in another order than the round before ([`turns`]), so that whatever else the machine
//! does befalls them alike; the median of the rounds counts. At the end every database is checked against all that was
//! committed.

mod part;
mod rows;

use std::collections::BTreeMap;

use foreshore_env::{
    disk::{Disk, RealDisk},
    thread,
    time::Duration,
};
use part::Part;
use rows::rows;
use serde::Serialize;

use crate::{
    BenchError, EngineOptions, Length, Observer, RunOptions,
    engine::{AbortCounts, Engine},
    engines::ForeshoreEngine,
    random::mix,
    report::KindReport,
    rounds::{Span, turns},
    runner::{Measured, Sample, load, sample},
    workload::{Check, Workload, check},
};

/// Counters of the engine whose growth is reported with every result.
const COUNTERS: [&str; 5] =
    ["locks_released", "lock_waits", "deadlocks", "deadlock_suspicions_refuted", "deadlock_precautions"];

/// One of those that are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// What it is called in the report.
    pub name: String,
    /// The options of the engine that make it what it is; they go before those of all.
    pub settings: Vec<(String, String)>,
    /// False: every lock is granted to everybody. A control, for workloads whose checks hold all the same.
    pub locking: bool,
}

impl Variant {
    /// One that differs from others by one option.
    pub fn of(option: &str, value: &str) -> Variant {
        let settings = vec![(option.to_owned(), value.to_owned())];
        Variant { name: value.to_owned(), settings, locking: true }
    }

    /// The control of this name: nothing is locked, so what is lost with more threads is not lost to locks.
    pub fn without_locks(name: &str) -> Variant {
        Variant { name: name.to_owned(), settings: Vec::new(), locking: false }
    }
}

/// How variants are compared.
#[derive(Clone, Debug)]
pub struct ComparisonOptions {
    /// The variants.
    pub variants: Vec<Variant>,
    /// The numbers of threads.
    pub threads: Vec<usize>,
    /// Rounds; the median counts.
    pub rounds: usize,
    /// How long each combination is measured, all rounds together.
    pub measured: Duration,
    /// How long it runs before, in each round.
    pub warm_up: Duration,
    /// Everything random follows from it.
    pub seed: u64,
    /// What the variants have in common. Each has a directory of its own in this one's.
    pub engine: EngineOptions,
}

/// What one variant did with one number of threads, all rounds together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparisonRow {
    /// The variant.
    pub variant: String,
    /// Threads that ran transactions.
    pub threads: usize,
    /// Commits that ended in a second: the median of the rounds.
    pub commits_per_s: f64,
    /// The same, relative to the variant's highest over all numbers of threads: 1 there.
    pub of_peak: f64,
    /// The commits per second of each round.
    pub rounds_per_s: Vec<f64>,
    /// For each second that threads computed, waits and background threads included: what a machine that is busy with
    /// other things can still tell. The median of the rounds; `None` where nobody counts.
    pub commits_per_computed_s: Option<f64>,
    /// The same, relative to the variant's highest.
    pub computed_of_peak: Option<f64>,
    /// Processors that were busy with it, on average.
    pub processors_busy: Option<f64>,
    /// Transactions that began and ended while measured.
    pub commits: u64,
    /// Commits that ended while measured, whenever their transactions began.
    pub ended: u64,
    /// Attempts that the engine aborted meanwhile, by cause.
    pub aborts: AbortCounts,
    /// The share of these in all attempts: in themselves and `ended`.
    pub abort_ratio: f64,
    /// Transactions that were aborted as often as the engine retries, and given up.
    pub given_up: u64,
    /// Latencies of the kinds that committed at least one transaction, retries included.
    pub by_kind: BTreeMap<String, KindReport>,
    /// By how much counters of the engine have grown, warm-up included.
    pub counters: BTreeMap<String, u64>,
    /// Commits meanwhile, warm-up included.
    pub counted_commits: u64,
}

/// What was checked of one variant's database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VariantChecks {
    /// The variant.
    pub variant: String,
    /// The checks.
    pub checks: Vec<Check>,
}

/// A comparison. As JSON its field names are stable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparisonReport {
    /// Which comparison it is.
    pub experiment: String,
    /// The version of this program.
    pub version: &'static str,
    /// Threads that can run at the same time.
    pub processors: usize,
    /// How long each combination was measured, in seconds.
    pub seconds: f64,
    /// In so many rounds.
    pub rounds: usize,
    /// What shaped the workload, and what the variants have in common.
    pub options: BTreeMap<String, serde_json::Value>,
    /// Whether it is not over: what would have come is missing, and nothing was checked.
    pub partial: bool,
    /// For each number of threads and variant.
    pub results: Vec<ComparisonRow>,
    /// Whether all checks hold; `None` if nothing was checked yet.
    pub consistent: Option<bool>,
    /// What was checked.
    pub checks: Vec<VariantChecks>,
}

/// A variant, its database, and what was committed there.
struct Contender<'v> {
    variant: &'v Variant,
    engine: Box<dyn Engine>,
    /// By kind, since the load.
    commits: Vec<u64>,
    /// One for each number of threads.
    series: Vec<Series>,
}

/// A variant with a number of threads.
struct Series {
    rounds_per_s: Vec<f64>,
    rounds_per_computed_s: Vec<f64>,
    elapsed: Duration,
    computed: Duration,
    ended: u64,
    measured: Measured,
    counters: BTreeMap<String, u64>,
    counted_commits: u64,
}

/// Loads the workload into a database for every variant, runs it on each in turn, and checks them. The workload must
/// keep no books of its own: it is the same for all.
pub fn compare(
    experiment: &str,
    workload: &dyn Workload,
    options: &ComparisonOptions,
    observer: &dyn Observer,
) -> Result<ComparisonReport, BenchError> {
    check_options(options)?;
    let mut contenders = open_all(workload, options, observer)?;
    run_all(experiment, workload, options, observer, &mut contenders)?;
    observer.checking();
    let mut checks = Vec::new();
    for contender in &contenders {
        let checked = check(workload, contender.engine.as_ref(), Some(&contender.commits))?;
        checks.push(VariantChecks { variant: contender.variant.name.clone(), checks: checked });
        contender.engine.close()?;
    }
    Ok(report(experiment, workload, options, &contenders, Some(checks)))
}

/// The report of all rounds until now. `checks`: what was checked, when they are over.
fn report(
    experiment: &str,
    workload: &dyn Workload,
    options: &ComparisonOptions,
    contenders: &[Contender<'_>],
    checks: Option<Vec<VariantChecks>>,
) -> ComparisonReport {
    let mut described = workload.options();
    described.extend(shared(options).describe());
    let all_hold = |checks: &Vec<VariantChecks>| {
        checks.iter().flat_map(|variant| &variant.checks).all(|check| check.holds)
    };
    ComparisonReport {
        experiment: experiment.to_owned(),
        version: env!("CARGO_PKG_VERSION"),
        processors: thread::available_parallelism(),
        seconds: options.measured.as_secs_f64(),
        rounds: options.rounds,
        options: described,
        partial: checks.is_none(),
        results: rows(workload, options, contenders),
        consistent: checks.as_ref().map(all_hold),
        checks: checks.unwrap_or_default(),
    }
}

fn check_options(options: &ComparisonOptions) -> Result<(), BenchError> {
    if options.rounds == 0 || options.measured.is_zero() {
        return Err(BenchError::invalid("a comparison takes some time and at least one round"));
    }
    if options.variants.is_empty() || options.threads.is_empty() || options.threads.contains(&0) {
        return Err(BenchError::invalid("a comparison takes at least one variant and one thread"));
    }
    let names: Vec<&str> = options.variants.iter().map(|variant| variant.name.as_str()).collect();
    if let Some(twice) = names.iter().enumerate().find(|(place, name)| names[..*place].contains(name)) {
        return Err(BenchError::invalid(format!("{} is to be compared with itself", twice.1)));
    }
    // What is set holds for all: it may not make another variant of one.
    for (name, value) in &options.engine.settings {
        let other = |variant: &&Variant| variant.settings.iter().any(|own| own.0 == *name && own.1 != *value);
        if let Some(variant) = options.variants.iter().find(other) {
            let variant = &variant.name;
            return Err(BenchError::invalid(format!(
                "{name}={value} would make something else of {variant}; leave it out"
            )));
        }
    }
    Ok(())
}

/// What the engines of all variants are opened with: first what holds unless it is set otherwise. What the variants do
/// with victims is to be seen, not how admission spares them.
fn shared(options: &ComparisonOptions) -> EngineOptions {
    let mut shared = options.engine.clone();
    shared.settings.insert(0, ("admission_control".to_owned(), "false".to_owned()));
    shared
}

fn open_all<'v>(
    workload: &dyn Workload,
    options: &'v ComparisonOptions,
    observer: &dyn Observer,
) -> Result<Vec<Contender<'v>>, BenchError> {
    let home = &options.engine.directory;
    RealDisk.create_directory(home).map_err(|error| BenchError::io("make the directory", home, error))?;
    let kinds = workload.kinds().len();
    let mut contenders = Vec::new();
    for (number, variant) in options.variants.iter().enumerate() {
        let mut engine_options = shared(options);
        engine_options.directory.push(&variant.name);
        engine_options.settings.splice(1..1, variant.settings.iter().cloned());
        let engine: Box<dyn Engine> =
            Box::new(ForeshoreEngine::open_with(&workload.tables(), &engine_options, variant.locking)?);
        let rows = workload.load_rows();
        let total = rows * options.variants.len() as u64;
        let part =
            Part { observer, rows: (number as u64 * rows, total), time: (Duration::ZERO, Duration::ZERO) };
        load(engine.as_ref(), workload, thread::available_parallelism(), options.seed, &part)?;
        engine.settle()?;
        let empty = || -> Result<Series, BenchError> {
            Ok(Series {
                rounds_per_s: Vec::new(),
                rounds_per_computed_s: Vec::new(),
                elapsed: Duration::ZERO,
                computed: Duration::ZERO,
                measured: Measured::new(kinds)?,
                counters: COUNTERS.iter().map(|name| ((*name).to_owned(), 0)).collect(),
                ended: 0,
                counted_commits: 0,
            })
        };
        let series = options.threads.iter().map(|_| empty()).collect::<Result<_, _>>()?;
        contenders.push(Contender { variant, engine, commits: vec![0; kinds], series });
    }
    Ok(contenders)
}

fn run_all(
    experiment: &str,
    workload: &dyn Workload,
    options: &ComparisonOptions,
    observer: &dyn Observer,
    contenders: &mut [Contender<'_>],
) -> Result<(), BenchError> {
    let measured = options.measured / options.rounds as u32;
    let length = Length::Time { warm_up: options.warm_up, measured };
    let runs = options.rounds * options.threads.len() * contenders.len();
    let total = (options.warm_up + measured) * runs as u32;
    let mut run = 0;
    for round in 0..options.rounds {
        for (place, &threads) in options.threads.iter().enumerate() {
            for turn in turns(contenders.len(), round) {
                let contender = &mut contenders[turn];
                let before = (options.warm_up + measured) * run;
                let part = Part { observer, rows: (0, 0), time: (before, total) };
                run += 1;
                // Others each time, or a run would repeat the keys of the one before.
                let seed = mix(options.seed.wrapping_add(u64::from(run)));
                let run_options = RunOptions { threads, length, seed };
                let counters = contender.engine.counters();
                let sample = sample(contender.engine.as_ref(), workload, &run_options, &part)?;
                contender.add(place, &sample, &counters)?;
            }
            observer.compared(&|| report(experiment, workload, options, contenders, None));
        }
    }
    Ok(())
}

impl Contender<'_> {
    /// Adds a round; `before` are the counters at its beginning.
    fn add(
        &mut self,
        place: usize,
        sample: &Sample,
        before: &BTreeMap<String, u64>,
    ) -> Result<(), BenchError> {
        for (sum, commits) in self.commits.iter_mut().zip(&sample.all_commits) {
            *sum += commits;
        }
        let series = &mut self.series[place];
        let (Span { elapsed, computed }, ended) = (sample.span, sample.ended);
        series.rounds_per_s.push(ended as f64 / elapsed.as_secs_f64());
        if let Some(computed) = computed {
            series.rounds_per_computed_s.push(ended as f64 / computed.as_secs_f64());
            series.computed += computed;
        }
        series.elapsed += elapsed;
        series.ended += ended;
        series.counted_commits += sample.all_commits.iter().sum::<u64>();
        series.measured.add(&sample.measured)?;
        let after = self.engine.counters();
        for (name, grown) in &mut series.counters {
            let of = |counters: &BTreeMap<String, u64>| counters.get(name).copied().unwrap_or(0);
            *grown += of(&after).saturating_sub(of(before));
        }
        Ok(())
    }
}
