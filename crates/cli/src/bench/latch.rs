//! `foreshore bench latch`: latches under load, the road's and the gallery's in turn.

use std::{
    fmt::{self, Write},
    process::ExitCode,
};

use clap::Args;
use foreshore_bench::{
    BenchError, LatchMix, LatchOptions, LatchReport, LatchResult, MAX_LATCH_THREADS, Named, Subject,
    count_latch, measure_latches,
};
use foreshore_env::time::Duration;

use crate::{
    bench::{any_name, parse_measured, rounds::RoundsArgs},
    output::{CliError, counted, judged, line},
};

/// How long a combination is measured if nothing else is said; virtual time is dear.
const SECONDS: &str = if cfg!(foreshore_sim) { "0.001" } else { "0.3" };

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LatchArgs {
    /// The latch: a name, all, or none (what the loop costs without one; with one thread).
    #[arg(long, default_value = "all", value_name = "NAME", value_parser = parse_latch)]
    latch: Subjects,
    /// How many threads use the latch, one measurement for each number [default: 1,2,8; without a latch: 1].
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = parse_threads)]
    threads: Vec<usize>,
    /// What they do with it.
    #[arg(long, value_delimiter = ',', default_value = "read-only,write-only,mixed,contended",
          value_parser = any_name::<LatchMix>())]
    mix: Vec<LatchMix>,
    /// How long each combination is measured, all rounds together.
    #[arg(long, value_name = "S", default_value = SECONDS, value_parser = parse_measured)]
    pub(crate) seconds: Duration,
    /// Make this many acquisitions by one thread and measure nothing; for callgrind.
    #[arg(long, value_name = "N", conflicts_with_all = ["seconds", "rounds", "threads", "json"],
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) iterations: Option<u64>,
    /// Give each thread a processor of its own, to stay on, and measure how long a message takes between the first two.
    /// Only on Linux, and on simulated machines.
    #[arg(long, conflicts_with = "iterations")]
    bind: bool,
    #[command(flatten)]
    common: RoundsArgs,
}

impl LatchArgs {
    fn threads(&self) -> Vec<usize> {
        match (self.threads.is_empty(), self.latch.0.contains(&Subject::Nothing)) {
            (false, _) => self.threads.clone(),
            (true, true) => vec![1],
            (true, false) => vec![1, 2, 8],
        }
    }

    /// The most threads of a combination.
    #[cfg_attr(not(foreshore_sim), allow(dead_code, reason = "for simulated machines"))]
    pub(crate) fn most_threads(&self) -> usize {
        self.threads().into_iter().max().unwrap_or(1)
    }

    #[cfg_attr(not(foreshore_sim), allow(dead_code, reason = "for simulated machines"))]
    pub(crate) fn json(&self) -> bool {
        self.common.json
    }
}

const EXAMPLES: &str = "\
Examples:
  foreshore bench latch                                      all latches, 1, 2 and 8 threads, all mixes
  foreshore bench latch --latch hybrid --mix read-only --seconds 3
  foreshore bench latch --mix contended --threads 1,2,4,8,16,32,64,128
  foreshore bench latch --threads 2 --bind --json            two threads on two processors";

/// The latches of one name.
#[derive(Clone)]
struct Subjects(Vec<Subject>);

fn parse_latch(name: &str) -> Result<Subjects, BenchError> {
    Subject::named(name).map(Subjects)
}

fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads) if (1..=MAX_LATCH_THREADS).contains(&threads) => Ok(threads),
        _ => Err(format!("give numbers from 1 to {MAX_LATCH_THREADS}, such as 1,2,8")),
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &LatchArgs) -> Result<ExitCode, CliError> {
    if let Some(iterations) = args.iterations {
        for subject in &args.latch.0 {
            for mix in &args.mix {
                count_latch(*subject, *mix, iterations);
                line(format!("{} {}: {iterations} acquisitions", subject.name(), mix.name()))?;
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let report = measure(args)?;
    judged(args.common.print(&report, write_report), report.consistent)
}

/// Measures; gives the report.
pub(crate) fn measure(args: &LatchArgs) -> Result<LatchReport, BenchError> {
    let options = LatchOptions {
        subjects: args.latch.0.clone(),
        mixes: args.mix.clone(),
        threads: args.threads(),
        seconds: args.seconds,
        rounds: args.common.rounds(),
        bind: args.bind,
    };
    args.common.measure(|progress| measure_latches(&options, progress))
}

/// The report for people: a table for each mix, a line for each latch, a column for each number of threads.
pub(crate) fn write_report(out: &mut String, report: &LatchReport) -> fmt::Result {
    writeln!(
        out,
        "ns for an acquisition by a thread, waiting included (million acquisitions/s by all)\n\
         {} processors, {} rounds in turn, {} s each combination",
        report.processors, report.rounds, report.seconds
    )?;
    if let Some(cycles) = report.cycles_per_ns {
        let counted = if cfg!(foreshore_sim) { "" } else { "; instructions: scripts/latch-instructions" };
        writeln!(out, "a ns is {cycles:.2} cycles{counted}")?;
    }
    let least = report.results.iter().filter_map(|result| result.least_message_ns).reduce(f64::min);
    let most = report.results.iter().filter_map(|result| result.message_ns).reduce(f64::max);
    if let (Some(least), Some(most)) = (least, most) {
        let waited = report.results.iter().filter_map(|result| result.waited_percent).reduce(f64::max);
        let waited = waited.map_or(String::new(), |most| {
            format!("; one waited for its processor for {most:.1} % of the time")
        });
        writeln!(out, "threads are bound, a message takes {least:.0} to {most:.0} ns{waited}")?;
    }
    let mut mixes: Vec<&str> = report.results.iter().map(|result| result.mix).collect();
    mixes.dedup();
    for mix in mixes {
        let results: Vec<&LatchResult> = report.results.iter().filter(|result| result.mix == mix).collect();
        let mut threads: Vec<usize> = results.iter().map(|result| result.threads).collect();
        threads.dedup();
        write!(out, "\n  {mix:<20}{:>6}", "bytes")?;
        for threads in &threads {
            write!(out, "{:>22}", counted(threads, "thread", "threads"))?;
        }
        out.push('\n');
        for first in results.iter().filter(|result| result.threads == threads[0]) {
            write!(out, "  {:<20}{:>6}", first.latch, first.size_bytes)?;
            for result in results.iter().filter(|result| result.latch == first.latch) {
                let rate = result.acquisitions_per_s / 1e6;
                write!(out, "{:>12.1} ({rate:>7.2})", result.ns)?;
            }
            out.push('\n');
        }
    }
    for check in report.checks.iter().filter(|check| !check.holds) {
        let failure = check.first_failure.as_deref().unwrap_or_default();
        writeln!(out, "\nFAILS  {}: {} times; {failure}", check.name, check.failures)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::text::written;

    #[test]
    fn threads_are_parsed() {
        assert_eq!(parse_threads("128"), Ok(128));
        for wrong in ["0", "1025", "two", ""] {
            assert!(parse_threads(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_line_for_each_latch_and_a_column_for_each_number_of_threads() {
        let result = |latch, mix, threads, ns| LatchResult {
            latch,
            size_bytes: 16,
            mix,
            threads,
            acquisitions_per_s: threads as f64 * 1e9 / ns,
            ns,
            cycles: None,
            computed_ns: None,
            least_share_percent: 100.0,
            handovers_percent: None,
            message_ns: None,
            least_message_ns: None,
            waited_percent: None,
        };
        let report = LatchReport {
            experiment: "latch",
            version: "0",
            processors: 2,
            cycles_per_ns: Some(2.5),
            seconds: 1.0,
            rounds: 3,
            results: vec![
                result("hybrid", "read-only", 1, 4.0),
                result("tas", "read-only", 1, 20.0),
                result("hybrid", "read-only", 8, 32.0),
                result("tas", "read-only", 8, 400.0),
            ],
            consistent: true,
            checks: Vec::new(),
        };
        let text = written(|out| write_report(out, &report));
        let lines: Vec<Vec<&str>> =
            text.lines().skip(4).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["read-only", "bytes", "1", "thread", "8", "threads"]);
        assert_eq!(lines[1], ["hybrid", "16", "4.0", "(", "250.00)", "32.0", "(", "250.00)"]);
        assert_eq!(lines[2], ["tas", "16", "20.0", "(", "50.00)", "400.0", "(", "20.00)"]);
        assert_eq!(lines.len(), 3);
    }
}
