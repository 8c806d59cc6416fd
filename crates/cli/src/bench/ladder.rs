//! `foreshore bench ladder`: the steps that made Shore-MT scale, each as a set of options, under record insertion.

use std::{
    fmt::{self, Write},
    process::ExitCode,
};

use clap::Args;
use foreshore_bench::{
    BenchError, ComparisonReport, Insert, Variant,
    ladder::{LadderRow, STEPS, Step, climb, settings, variants},
};
use serde::Serialize;

use crate::{
    bench::{
        comparison::{self, ComparisonArgs},
        text::{UNCHECKED, written},
    },
    output::{CliError, json_line, judged, line},
};

#[derive(Args)]
#[command(after_help = EXAMPLES, mut_arg("threads", |threads| threads.default_value("1,2,8,32")))]
pub(crate) struct LadderArgs {
    /// Records in a transaction.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    commit_every: u32,
    /// Bytes of a record.
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    value_bytes: u32,
    /// Steps to compare [default: all].
    #[arg(long, value_name = "STEP,…", value_delimiter = ',',
          value_parser = ["baseline", "bpool1", "caching", "log", "lock", "bpool2", "final", "road"])]
    steps: Vec<String>,
    #[command(flatten)]
    pub(crate) comparison: ComparisonArgs,
}

const EXAMPLES: &str = "\
Examples:
  foreshore bench ladder                                  every thread inserts into a table of its own; eight steps
  foreshore bench ladder --threads 1,2 --seconds 6 --rounds 6 --json
  foreshore bench ladder --steps baseline,road --threads 2
  cargo sim simulate bench ladder --profile niagara32 --cores 32 --threads 1,8,32 --commit-every 100
                                                          on a simulated machine like the paper's

of before: commits/s relative to the step before. paper: the same in the text of Johnson et al. 2009, §7, by 1 and 32
threads, where it has a number. scaled: relative to the fewest threads.

Interrupted, it prints what was measured until then: with --json there is \"partial\":true, beside the error.";

/// What came of it, step by step.
#[derive(Serialize)]
pub(crate) struct Outcome {
    #[serde(flatten)]
    comparison: ComparisonReport,
    steps: &'static [Step],
    ladder: Vec<LadderRow>,
}

/// The steps of a comparison.
pub(crate) fn outcome(comparison: ComparisonReport) -> Outcome {
    let ladder = climb(&comparison);
    Outcome { comparison, steps: &STEPS, ladder }
}

/// Runs the subcommand.
pub(super) fn run(args: &LadderArgs) -> Result<ExitCode, CliError> {
    let (workload, variants) = (args.workload()?, args.variants());
    print(args, &comparison::measure("ladder", &workload, variants, &args.comparison, outcome, text)?)
}

impl LadderArgs {
    fn workload(&self) -> Result<Insert, BenchError> {
        Insert::new(self.comparison.most_threads(), self.commit_every, self.value_bytes)
    }

    fn variants(&self) -> Vec<Variant> {
        let wanted = |name: &str| self.steps.is_empty() || self.steps.iter().any(|step| step == name);
        variants().into_iter().filter(|variant| wanted(&variant.name)).collect()
    }

    /// Measures in the world that the caller is in.
    #[cfg(foreshore_sim)]
    pub(crate) fn measure(
        &self,
        observer: &dyn foreshore_bench::Observer,
    ) -> Result<ComparisonReport, BenchError> {
        self.comparison.compare("ladder", &self.workload()?, self.variants(), "/bench".into(), observer)
    }
}

/// Prints what came of it.
pub(crate) fn print(args: &LadderArgs, outcome: &Outcome) -> Result<ExitCode, CliError> {
    let printed = if args.comparison.json() { json_line(outcome) } else { line(text(outcome).trim_end()) };
    judged(printed, outcome.comparison.consistent != Some(false))
}

fn text(outcome: &Outcome) -> String {
    written(|out| write_report(out, &outcome.comparison, &outcome.ladder))
}

fn write_report(out: &mut String, report: &ComparisonReport, ladder: &[LadderRow]) -> fmt::Result {
    writeln!(
        out,
        "ladder: {} processors, {} s each, in {} rounds\n",
        report.processors, report.seconds, report.rounds
    )?;
    writeln!(
        out,
        "  {:>7}  {:<9}{:>12}{:>13}{:>11}{:>8}{:>9}",
        "threads", "step", "commits/s", "of lowest", "of before", "paper", "scaled"
    )?;
    for row in ladder {
        let paper = row.paper_of_step_before.map_or_else(String::new, |ratio| format!("{ratio:.1}"));
        writeln!(
            out,
            "  {:>7}  {:<9}{:>12.1}{:>13.2}{:>11.2}{paper:>8}{:>9.2}",
            row.threads, row.step, row.commits_per_s, row.of_baseline, row.of_step_before, row.scaled
        )?;
    }
    out.push('\n');
    for (number, step) in
        STEPS.iter().enumerate().filter(|(_, step)| ladder.iter().any(|row| row.step == step.name))
    {
        let options: Vec<String> =
            settings(number).iter().map(|(name, value)| format!("{name}={value}")).collect();
        writeln!(out, "  {:<9} §{}\n            {}", step.name, step.section, options.join(" "))?;
    }
    let checks = report.checks.iter().map(|variant| variant.checks.len()).sum::<usize>();
    match report.consistent {
        None => writeln!(out, "\n  {UNCHECKED}"),
        Some(true) => writeln!(out, "\n  consistent: all {checks} checks hold"),
        Some(false) => {
            let failures = report.checks.iter().flat_map(|variant| {
                let failed = variant.checks.iter().filter(|check| !check.holds);
                failed.map(|check| format!("{}: {}", variant.variant, check.name))
            });
            writeln!(out, "\n  NOT consistent: {}", failures.collect::<Vec<_>>().join("; "))
        }
    }
}
