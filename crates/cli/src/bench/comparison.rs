//! What the subcommands share that compare variants of the engine: their options, and the report for people.

#[cfg(foreshore_sim)]
use foreshore_bench::Length;
#[cfg(foreshore_sim)]
use std::path::Path;
use std::{
    fmt::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use foreshore_bench::{
    BenchError, ComparisonOptions, ComparisonReport, ComparisonRow, Durability, EngineOptions, Isolation,
    Observer, Variant, Workload, compare,
};
use foreshore_env::time::Duration;
use serde::Serialize;

use crate::{
    bench::{
        any_name, names, parse_measured, parse_seconds, parse_setting,
        progress::Progress,
        rounds::ROUNDS,
        standing::Standing,
        text::{UNCHECKED, write_failures, write_verdict, written},
    },
    directory::Directory,
    output::{CliError, json_line, judged, line},
};

/// How long a combination is measured, and runs before, if nothing else is said; virtual time is dear.
const SECONDS: &str = if cfg!(foreshore_sim) { "0.02" } else { "3" };
const WARM_UP: &str = if cfg!(foreshore_sim) { "0.005" } else { "0.2" };
/// A simulated machine has a core for each thread, if it is not told otherwise.
const THREADS: &str = if cfg!(foreshore_sim) { "1,2,8,32" } else { "1,2,8,32,128,500" };

/// How variants are compared, whatever they are.
#[derive(Args)]
pub(crate) struct ComparisonArgs {
    /// Numbers of threads, each measured by itself.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = THREADS,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
    /// How long each combination is measured, all rounds together [simulated: 0.02].
    #[arg(long, value_name = "S", default_value = SECONDS, value_parser = parse_measured)]
    seconds: Duration,
    /// Rounds in turn; the median counts [simulated: 1].
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// How long to run before measuring, in each round [simulated: 0.005].
    #[arg(long, value_name = "S", default_value = WARM_UP, value_parser = parse_seconds)]
    warm_up: Duration,
    /// What a commit waits for: the disk, or nothing.
    #[arg(long, default_value = "lazy", value_parser = names::<Durability>(&["sync", "lazy"]))]
    durability: Durability,
    /// The isolation of the transactions.
    #[arg(long, default_value = "serializable",
          value_parser = any_name::<Isolation>())]
    isolation: Isolation,
    /// An option of the engine for all of them, with its unit: `--set pool_bytes=1GiB`. May be repeated.
    #[arg(long = "set", value_name = "OPTION=VALUE", value_parser = parse_setting)]
    settings: Vec<(String, String)>,
    /// A new directory for the databases, which are kept [default: a temporary one, removed afterwards].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The seed of all random inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object, on the last line of the output, and nothing else.
    #[arg(long)]
    json: bool,
    /// Show no progress.
    #[arg(long)]
    quiet: bool,
}

impl ComparisonArgs {
    /// The value that was set for an option of the engine.
    pub(super) fn setting(&self, option: &str) -> Option<&str> {
        let set = self.settings.iter().rev().find(|(name, _)| name == option);
        set.map(|(_, value)| value.as_str())
    }

    pub(crate) fn most_threads(&self) -> usize {
        self.threads.iter().copied().max().map_or(1, usize::from)
    }

    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Where the databases are to be, if that was said.
    #[cfg(foreshore_sim)]
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// How long one variant runs with all numbers of threads.
    #[cfg(foreshore_sim)]
    pub(crate) fn length(&self) -> Length {
        let of_all = |each: Duration| each.saturating_mul(self.threads.len() as u32);
        Length::Time {
            warm_up: of_all(self.warm_up * u32::from(self.rounds)),
            measured: of_all(self.seconds),
        }
    }

    /// What everything random follows from.
    #[cfg(foreshore_sim)]
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Compares the variants, on databases in `directory`.
    pub(super) fn compare(
        &self,
        experiment: &str,
        workload: &dyn Workload,
        variants: Vec<Variant>,
        directory: PathBuf,
        observer: &dyn Observer,
    ) -> Result<ComparisonReport, BenchError> {
        let options = ComparisonOptions {
            variants,
            threads: self.threads.iter().copied().map(usize::from).collect(),
            rounds: usize::from(self.rounds),
            measured: self.seconds,
            warm_up: self.warm_up,
            seed: self.seed,
            engine: EngineOptions {
                directory,
                durability: self.durability,
                isolation: self.isolation,
                settings: self.settings.clone(),
                ..EngineOptions::default()
            },
        };
        compare(experiment, workload, &options, observer)
    }
}

/// Variants under a workload, on whatever machine.
pub(crate) struct SideBySide<'a> {
    pub(super) experiment: &'static str,
    pub(super) workload: Box<dyn Workload>,
    pub(super) variants: Vec<Variant>,
    pub(super) args: &'a ComparisonArgs,
}

impl SideBySide<'_> {
    /// Compares them on this machine, and prints what came of it.
    pub(super) fn run(self) -> Result<ExitCode, CliError> {
        run(self.experiment, self.workload.as_ref(), self.variants, self.args)
    }

    /// How they are compared.
    #[cfg(foreshore_sim)]
    pub(crate) fn args(&self) -> &ComparisonArgs {
        self.args
    }

    /// Compares them in the world that the caller is in.
    #[cfg(foreshore_sim)]
    pub(crate) fn measure(&self, observer: &dyn Observer) -> Result<ComparisonReport, BenchError> {
        let SideBySide { experiment, workload, variants, args } = self;
        args.compare(experiment, workload.as_ref(), variants.clone(), "/bench".into(), observer)
    }
}

/// Compares the variants and prints what came of it.
pub(super) fn run(
    experiment: &str,
    workload: &dyn Workload,
    variants: Vec<Variant>,
    args: &ComparisonArgs,
) -> Result<ExitCode, CliError> {
    print(&measure(experiment, workload, variants, args, |report| report, text)?, args)
}

/// Prints what came of a comparison.
pub(crate) fn print(report: &ComparisonReport, args: &ComparisonArgs) -> Result<ExitCode, CliError> {
    let printed = if args.json { json_line(report) } else { line(text(report).trim_end()) };
    judged(printed, report.consistent != Some(false))
}

/// Compares the variants; gives what `outcome` makes of the report. An interruption tells what there is, for people as
/// `text` has it.
pub(super) fn measure<R: Serialize + Send + 'static>(
    experiment: &str,
    workload: &dyn Workload,
    variants: Vec<Variant>,
    args: &ComparisonArgs,
    outcome: fn(ComparisonReport) -> R,
    text: fn(&R) -> String,
) -> Result<R, CliError> {
    let (directory, standing) = (Directory::choose(args.dir.as_deref(), "bench")?, Standing::default());
    let (broken_off, json) = (standing.clone(), args.json);
    let tell = move |error: &CliError| broken_off.interrupted(error, json, text);
    directory.end_when_interrupted_after(|| (), tell)?;
    let progress = Progress::new(!args.json && !args.quiet);
    let observer = Keeper { progress: &progress, keep: &|report| standing.keep(outcome(report)) };
    let result = args.compare(experiment, workload, variants, directory.path().to_owned(), &observer);
    progress.finish();
    // What fails because an interruption has removed the directory takes nothing from what that tells.
    let report = result?;
    standing.end();
    Ok(outcome(report))
}

/// Shows progress, and keeps what is known.
struct Keeper<'k> {
    progress: &'k Progress,
    keep: &'k dyn Fn(ComparisonReport),
}

impl Observer for Keeper<'_> {
    fn loading(&self, rows: u64, of: u64) {
        self.progress.loading(rows, of);
    }

    fn running(&self, elapsed: Duration, of: Duration, commits: u64) {
        self.progress.running(elapsed, of, commits);
    }

    fn compared(&self, so_far: &dyn Fn() -> ComparisonReport) {
        (self.keep)(so_far());
    }

    fn checking(&self) {
        self.progress.checking();
    }
}

/// The report for people: a line for each number of threads and variant.
fn text(report: &ComparisonReport) -> String {
    written(|out| write_report(out, report))
}

fn write_report(out: &mut String, report: &ComparisonReport) -> fmt::Result {
    let options: Vec<String> = (report.options.iter())
        .map(|(name, value)| {
            format!("{name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        })
        .collect();
    writeln!(
        out,
        "{}: {} processors, {} s each, in {} rounds",
        report.experiment, report.processors, report.seconds, report.rounds
    )?;
    writeln!(out, "  {}\n", options.join(" "))?;
    let mut kinds: Vec<&str> =
        report.results.iter().flat_map(|row| row.by_kind.keys().map(String::as_str)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let width = report.results.iter().map(|row| row.variant.len()).max().unwrap_or(0).max(7);
    write!(
        out,
        "  {:>7}  {:<width$}{:>12}{:>9}{:>12}{:>9}{:>6}{:>9}",
        "threads", "variant", "commits/s", "of peak", "/s computed", "of peak", "busy", "aborts"
    )?;
    write!(out, "{:>10}{:>10}{:>10}{:>10}", "waits", "deadlocks", "refuted", "precaut.")?;
    for kind in &kinds {
        write!(out, "{:>26}", format!("{kind} p50, p99 µs"))?;
    }
    out.push('\n');
    for row in &report.results {
        let ComparisonRow { variant, threads, commits_per_s, of_peak, abort_ratio, .. } = row;
        write!(out, "  {threads:>7}  {variant:<width$}{commits_per_s:>12.0}")?;
        write!(out, "{:>8.0}%", of_peak * 100.0)?;
        match (row.commits_per_computed_s, row.computed_of_peak, row.processors_busy) {
            (Some(rate), Some(of_peak), Some(busy)) => {
                write!(out, "{rate:>12.0}{:>8.0}%{busy:>6.2}", of_peak * 100.0)?;
            }
            _ => write!(out, "{:>27}", "–")?,
        }
        write!(out, "{:>8.2}%", abort_ratio * 100.0)?;
        for name in ["lock_waits", "deadlocks", "deadlock_suspicions_refuted", "deadlock_precautions"] {
            write!(out, "{:>10}", row.counters.get(name).copied().unwrap_or(0))?;
        }
        for kind in &kinds {
            match row.by_kind.get(*kind) {
                Some(kind) => write!(out, "{:>15.1}{:>11.1}", kind.latency_us.p50, kind.latency_us.p99)?,
                None => write!(out, "{:>26}", "–")?,
            }
        }
        out.push('\n');
    }
    out.push('\n');
    for variant in &report.checks {
        write_failures(out, &format!("{}: ", variant.variant), &variant.checks)?;
    }
    let checks = report.checks.iter().map(|variant| variant.checks.len()).sum();
    match report.consistent {
        Some(consistent) => write_verdict(out, checks, consistent),
        None => writeln!(out, "{UNCHECKED}"),
    }
}
