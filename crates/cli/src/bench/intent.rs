//! `foreshore bench intent`: intent locks alone, the kinds in turn.

use std::{
    fmt::{self, Write},
    process::ExitCode,
};

use clap::Args;
#[cfg(foreshore_sim)]
use foreshore_bench::BenchError;
use foreshore_bench::{IntentOptions, IntentReport, IntentResult, count_intents, measure_intents};

use crate::{
    bench::{
        rounds::RoundsArgs,
        text::{write_failures, write_verdict},
    },
    output::{CliError, counted, judged, line},
};

/// Transactions of a run, and the absolute locks during each, if nothing else is said. A million by 60 threads, in all
/// 16 combinations, are some twenty billion accesses to shared memory, of which a second simulates some fifteen
/// million. So few as are simulated show that it works, and what each thread does for the first time counts: for
/// figures give 1,000 for each thread, as experiment 3.2 does.
const TRANSACTIONS: u64 = if cfg!(foreshore_sim) { 10_000 } else { 1_000_000 };
const ABSOLUTE: &str = if cfg!(foreshore_sim) { "0,10,100,1000" } else { "0,100,1000,10000" };

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct IntentArgs {
    /// How intent locks are kept, as the option intent_locks has it.
    #[arg(
        long,
        value_name = "KIND,…",
        value_delimiter = ',',
        default_value = "in_table,inherited,lightweight,private"
    )]
    kind: Vec<String>,
    /// The lock table beneath in_table and inherited: latched, always_latched, staged, global_mutex or global_mcs.
    #[arg(long, value_name = "TABLE", default_value = "latched")]
    lock_table: String,
    /// Absolute locks during a run, each number measured by itself; at most a tenth of the transactions.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = ABSOLUTE)]
    absolute: Vec<u64>,
    /// Transactions of a run, by all threads together.
    #[arg(long, value_name = "N", default_value_t = TRANSACTIONS, value_parser = clap::value_parser!(u64).range(1..))]
    transactions: u64,
    /// Threads.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Run this many transactions of one thread, without absolute locks, and measure nothing; for callgrind.
    #[arg(long, value_name = "N", conflicts_with_all = ["absolute", "lock_table", "transactions", "rounds", "threads", "json"],
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) iterations: Option<u64>,
    #[command(flatten)]
    common: RoundsArgs,
}

const EXAMPLES: &str = "\
Examples:
  foreshore bench intent                                  all kinds, 60 threads, a million transactions each (10,000 if simulated:
                                                          for figures, --transactions 60000 --absolute 0,60)
  foreshore bench intent --kind private,lightweight --absolute 0 --threads 2
  foreshore bench intent --kind private --iterations 20000  for callgrind

A transaction locks the volume and four tables, those of every second thread with IX and the others with IS. ns computed: by all
threads, for a transaction.";

/// Runs the subcommand.
pub(super) fn run(args: &IntentArgs) -> Result<ExitCode, CliError> {
    if let Some(transactions) = args.iterations {
        for kind in &args.kind {
            count_intents(kind, transactions)?;
            line(format!("{kind}: {}", counted(transactions, "transaction", "transactions")))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    args.print(&args.common.measure(|progress| measure_intents(&args.options(), progress))?)
}

impl IntentArgs {
    fn options(&self) -> IntentOptions {
        IntentOptions {
            kinds: self.kind.clone(),
            table: self.lock_table.clone(),
            absolute: self.absolute.clone(),
            transactions: self.transactions,
            threads: usize::from(self.threads),
            rounds: self.common.rounds(),
        }
    }

    /// Measures in the world that the caller is in.
    #[cfg(foreshore_sim)]
    pub(crate) fn measure(&self) -> Result<IntentReport, BenchError> {
        measure_intents(&self.options(), &mut |_, _| ())
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
    pub(crate) fn print(&self, report: &IntentReport) -> Result<ExitCode, CliError> {
        judged(self.common.print(report, write_report), report.consistent)
    }
}

/// The report for people: a line for each number of absolute locks and kind.
fn write_report(out: &mut String, report: &IntentReport) -> fmt::Result {
    writeln!(
        out,
        "{} by {} on {}, {} in turn",
        counted(report.transactions, "transaction", "transactions"),
        counted(report.threads, "thread", "threads"),
        counted(report.processors, "processor", "processors"),
        counted(report.rounds, "round", "rounds")
    )?;
    writeln!(
        out,
        "\n  {:>10}  {:<12}{:>12}{:>18}{:>14}{:>10}",
        "absolute", "kind", "seconds", "transactions/s", "ns computed", "waits"
    )?;
    for result in &report.results {
        let IntentResult { kind, absolute, elapsed_s, transactions_per_s, waits, .. } = result;
        write!(out, "  {absolute:>10}  {kind:<12}{elapsed_s:>12.3}{transactions_per_s:>18.0}")?;
        match result.computed_ns {
            Some(ns) => write!(out, "{ns:>14.0}")?,
            None => write!(out, "{:>14}", "–")?,
        }
        writeln!(out, "{waits:>10}")?;
    }
    out.push('\n');
    write_failures(out, "", &report.checks)?;
    write_verdict(out, report.checks.len(), report.consistent)
}
