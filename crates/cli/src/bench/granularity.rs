//! `foreshore bench granularity`: latches that guard few tuples and many, under scans and updates.

use std::{
    fmt::{self, Write},
    process::ExitCode,
};

use clap::Args;
#[cfg(foreshore_sim)]
use foreshore_bench::BenchError;
use foreshore_bench::{GranularityOptions, GranularityReport, LatchKind, Subject, measure_granularity};
use foreshore_env::time::Duration;

use crate::{
    bench::{parse_measured, rounds::RoundsArgs, text::write_failures},
    output::{CliError, counted, judged},
};

/// Virtual time is dear, and so are tuples there.
const SECONDS: &str = if cfg!(foreshore_sim) { "0.0001" } else { "0.3" };
const TUPLES: usize = if cfg!(foreshore_sim) { 200_000 } else { 1_000_000 };

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GranularityArgs {
    /// The latches, by the names that `bench latch` has for them.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = parse_latch,
          default_value = "optimistic,hybrid,spin_rw,std_rwlock,std_mutex")]
    latch: Vec<LatchKind>,
    /// Tuples of the table.
    #[arg(long, value_name = "N", default_value_t = TUPLES)]
    tuples: usize,
    /// Tuples that a latch guards, one measurement for each number.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "10,100,1000,10000")]
    per_latch: Vec<usize>,
    /// Percent of the touched tuples that are updated; the others are scanned.
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',', default_value = "0,1,10")]
    writes: Vec<u32>,
    /// Threads.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// How long each combination is measured, all rounds together.
    #[arg(long, value_name = "S", default_value = SECONDS, value_parser = parse_measured)]
    pub(crate) seconds: Duration,
    /// The seed of the updates.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    common: RoundsArgs,
}

const EXAMPLES: &str = "\
Examples:
  foreshore bench granularity                                10 to 10,000 tuples for a latch; 0, 1 and 10 % updates
  foreshore bench granularity --latch hybrid,std_rwlock --per-latch 1000 --writes 10 --threads 2

Exit status: 0, or 1 if updates were lost, or 2 for wrong usage.";

fn parse_latch(name: &str) -> Result<LatchKind, String> {
    match Subject::named(name).map_err(|error| error.to_string())?.as_slice() {
        [Subject::Latch(kind)] => Ok(*kind),
        _ => Err(format!("{name} is not one latch: give names, such as hybrid,std_rwlock")),
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &GranularityArgs) -> Result<ExitCode, CliError> {
    args.print(&args.common.measure(|progress| measure_granularity(&args.options(), progress))?)
}

impl GranularityArgs {
    fn options(&self) -> GranularityOptions {
        GranularityOptions {
            latches: self.latch.clone(),
            tuples: self.tuples,
            per_latch: self.per_latch.clone(),
            writes: self.writes.clone(),
            threads: usize::from(self.threads),
            seconds: self.seconds,
            rounds: self.common.rounds(),
            seed: self.seed,
        }
    }

    /// Measures in the world that the caller is in.
    #[cfg(foreshore_sim)]
    pub(crate) fn measure(&self) -> Result<GranularityReport, BenchError> {
        measure_granularity(&self.options(), &mut |_, _| ())
    }

    /// What everything random follows from.
    #[cfg(foreshore_sim)]
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    #[cfg(foreshore_sim)]
    pub(crate) fn threads(&self) -> usize {
        usize::from(self.threads)
    }

    /// Whether it is to be told to programs.
    pub(crate) fn json(&self) -> bool {
        self.common.json
    }

    /// Prints what came of it.
    pub(crate) fn print(&self, report: &GranularityReport) -> Result<ExitCode, CliError> {
        judged(self.common.print(report, write_report), report.consistent)
    }
}

/// The report for people: a table for each share of writes, a line for each latch, a column for each granularity.
fn write_report(out: &mut String, report: &GranularityReport) -> fmt::Result {
    writeln!(
        out,
        "million tuples/s read or updated by {} on {}, of a table of {}",
        counted(report.threads, "thread", "threads"),
        counted(report.processors, "processor", "processors"),
        report.tuples
    )?;
    let mut shares: Vec<u32> = report.results.iter().map(|result| result.writes).collect();
    shares.dedup();
    for writes in shares {
        let results: Vec<_> = report.results.iter().filter(|result| result.writes == writes).collect();
        let mut columns: Vec<usize> = results.iter().map(|result| result.per_latch).collect();
        columns.dedup();
        write!(out, "\n  {:<24}", format!("{writes} % updates, tuples/latch"))?;
        for per_latch in &columns {
            write!(out, "{per_latch:>12}")?;
        }
        out.push('\n');
        for first in results.iter().filter(|result| result.per_latch == columns[0]) {
            write!(out, "  {:<24}", first.latch)?;
            for result in results.iter().filter(|result| result.latch == first.latch) {
                write!(out, "{:>12.1}", result.tuples_per_s / 1e6)?;
            }
            out.push('\n');
        }
    }
    write_failures(out, "", &report.checks)
}
