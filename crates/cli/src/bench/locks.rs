//! `foreshore bench locks`: the lock manager alone, lock tables and policies in turn.

use std::{
    fmt::{self, Write},
    process::ExitCode,
};

use clap::Args;
use foreshore_bench::{
    BenchError, LockMix, LockVariant, LocksOptions, LocksReport, LocksResult, Named, count_locks,
    measure_locks,
};
use foreshore_env::time::Duration;

use crate::{
    bench::{
        any_name, parse_measured,
        rounds::RoundsArgs,
        text::{write_failures, write_verdict},
    },
    output::{CliError, counted, judged, line},
};

/// How long a combination is measured if nothing else is said; virtual time is dear.
const SECONDS: &str = if cfg!(foreshore_sim) { "0.001" } else { "0.3" };

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LocksArgs {
    /// Lock tables to compare.
    #[arg(
        long,
        value_name = "TABLE,…",
        value_delimiter = ',',
        default_value = "latched,staged,global_mutex"
    )]
    lock_tables: Vec<String>,
    /// Policies against deadlocks to compare, as the option deadlock_policy has them.
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',', default_value = "dreadlocks")]
    policies: Vec<String>,
    /// Locks of a transaction.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,10,100")]
    locks: Vec<usize>,
    /// Shared locks, exclusive ones, or every fifth exclusive.
    #[arg(long, value_delimiter = ',', default_value = "s,x,mixed",
          value_parser = any_name::<LockMix>())]
    mix: Vec<LockMix>,
    /// Only keys that all threads use.
    #[arg(long, conflicts_with = "cold")]
    hot: bool,
    /// Only keys that no other thread uses, each used once in a million times.
    #[arg(long)]
    cold: bool,
    /// Numbers of threads, each measured by itself.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,8",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
    /// How long each combination is measured, all rounds together [simulated: 0.001].
    #[arg(long, value_name = "S", default_value = SECONDS, value_parser = parse_measured)]
    pub(crate) seconds: Duration,
    /// Run this many transactions of one thread and measure nothing; for callgrind.
    #[arg(long, value_name = "N", conflicts_with_all = ["seconds", "rounds", "threads", "json"],
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) iterations: Option<u64>,
    #[command(flatten)]
    common: RoundsArgs,
}

const EXAMPLES: &str = "\
Examples:
  foreshore bench locks                                            all tables, 1, 10 and 100 locks, 1, 2 and 8 threads
  foreshore bench locks --locks 10 --mix x --hot --threads 1,2,32,500
  foreshore bench locks --lock-tables latched --policies dreadlocks,wait_for_graph,wait_die,wound_wait --hot";

impl LocksArgs {
    fn variants(&self) -> Result<Vec<LockVariant>, BenchError> {
        let tables = self.lock_tables.iter();
        tables
            .flat_map(|table| self.policies.iter().map(|policy| LockVariant::named(table, policy)))
            .collect()
    }

    fn hot(&self) -> Vec<bool> {
        match (self.hot, self.cold) {
            (true, _) => vec![true],
            (_, true) => vec![false],
            _ => vec![true, false],
        }
    }

    fn options(&self) -> Result<LocksOptions, BenchError> {
        Ok(LocksOptions {
            variants: self.variants()?,
            locks: self.locks.clone(),
            mixes: self.mix.clone(),
            hot: self.hot(),
            threads: self.threads.iter().copied().map(usize::from).collect(),
            seconds: self.seconds,
            rounds: self.common.rounds(),
        })
    }

    /// The most threads of a combination.
    #[cfg(foreshore_sim)]
    pub(crate) fn most_threads(&self) -> usize {
        self.threads.iter().copied().max().map_or(1, usize::from)
    }

    /// Measures in the world that the caller is in.
    pub(crate) fn measure(&self) -> Result<LocksReport, BenchError> {
        let options = self.options()?;
        self.common.measure(|progress| measure_locks(&options, progress))
    }

    /// Whether it is to be told to programs.
    pub(crate) fn json(&self) -> bool {
        self.common.json
    }

    /// Prints what came of it.
    pub(crate) fn print(&self, report: &LocksReport) -> Result<ExitCode, CliError> {
        judged(self.common.print(report, write_report), report.consistent)
    }
}

/// Runs the subcommand.
pub(super) fn run(args: &LocksArgs) -> Result<ExitCode, CliError> {
    match args.iterations {
        Some(transactions) => count(&args.options()?, transactions),
        None => args.print(&args.measure()?),
    }
}

fn count(options: &LocksOptions, transactions: u64) -> Result<ExitCode, CliError> {
    for variant in &options.variants {
        for &hot in &options.hot {
            for &mix in &options.mixes {
                for &locks in &options.locks {
                    let counted = count_locks(variant, (mix, hot, locks), transactions)?;
                    let keys = if hot { "hot" } else { "cold" };
                    line(format!("{variant}: {counted} {keys} {} locks by {locks}", mix.name()))?;
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The report for people: a table for each mix, kind of keys and number of locks; a line for each variant.
fn write_report(out: &mut String, report: &LocksReport) -> fmt::Result {
    writeln!(
        out,
        "ns computed for a lock, by all threads together (million locks/s by all)\n\
         {} processors, {} rounds in turn, {} s each combination",
        report.processors, report.rounds, report.seconds
    )?;
    let load = |result: &LocksResult| (result.keys, result.mix, result.locks);
    let name = |result: &LocksResult| format!("{}, {}", result.table, result.policy);
    let first = report.results.first().map_or(0, |result| result.threads);
    let width = report.results.iter().map(|result| name(result).len()).max().unwrap_or(0);
    let mut loads: Vec<_> = report.results.iter().map(load).collect();
    loads.truncate(report.results.iter().filter(|result| result.threads == first).count());
    loads.dedup();
    for wanted in loads {
        let (keys, mix, locks) = wanted;
        let results: Vec<&LocksResult> =
            report.results.iter().filter(|result| load(result) == wanted).collect();
        let mut threads: Vec<usize> = results.iter().map(|result| result.threads).collect();
        threads.dedup();
        write!(out, "\n  {:<width$}", format!("{locks} {mix}, {keys}"))?;
        for threads in &threads {
            write!(out, "{:>22}", counted(threads, "thread", "threads"))?;
        }
        writeln!(out, "{:>10}", "aborts")?;
        for line in results.iter().filter(|result| result.threads == first) {
            write!(out, "  {:<width$}", name(line))?;
            let own = results.iter().filter(|result| name(result) == name(line));
            let mut aborts: f64 = 0.0;
            for result in own {
                write!(
                    out,
                    "{:>12.1} ({:>7.2})",
                    result.computed_ns.unwrap_or(result.ns),
                    result.locks_per_s / 1e6
                )?;
                aborts = aborts.max(result.abort_ratio);
            }
            writeln!(out, "{:>9.2}%", aborts * 100.0)?;
        }
    }
    out.push('\n');
    write_failures(out, "", &report.checks)?;
    write_verdict(out, report.checks.len(), report.consistent)
}
