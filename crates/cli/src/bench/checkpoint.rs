//! `foreshore bench checkpoint`: what checkpoints do to the latency of commits.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use foreshore_bench::{
    BenchError, CheckpointOptions, CheckpointReport, EngineKind, Length, RunOptions, TailLatency, engines,
    measure_checkpoints,
};
use foreshore_env::time::Duration;

use super::{
    WorkloadArgs, parse_seconds,
    progress::Progress,
    text::{write_failures, write_verdict, written},
};
use crate::{
    directory::Directory,
    output::{CliError, counted, json_line, judged, line},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CheckpointArgs {
    /// How often the workload is run without and with checkpoints, `--seconds` each; which comes first takes turns.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds from the end of a checkpoint to the beginning of the next.
    #[arg(long, value_name = "S", default_value = "1", value_parser = parse_seconds)]
    rest: Duration,
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Subcommand)]
enum Workload {
    #[command(flatten)]
    Of(WorkloadArgs),
}

const EXAMPLES: &str = "\
Examples:
  foreshore bench checkpoint tpcb                               3 rounds of 10 s without and 10 s with checkpoints
  foreshore bench checkpoint --rest 0 --rounds 5 tpcb --seconds 4   one checkpoint after another
  foreshore bench checkpoint tpcc --set pool_bytes=512MiB --json

The engine takes no checkpoints by itself, unless --set says so. There is no warm-up.";

/// So that the engine takes none by itself; what the user sets comes later, and counts.
const NO_OWN_CHECKPOINTS: [(&str, &str); 3] =
    [("log_bytes", "64GiB"), ("checkpoint_bytes", "8GiB"), ("recovery_target", "0s")];

/// Runs the subcommand.
pub(super) fn run(args: CheckpointArgs) -> Result<ExitCode, CliError> {
    let Workload::Of(workload) = args.workload;
    let (workload, common) = workload.into_parts()?;
    if common.engine != EngineKind::Foreshore {
        return Err(CliError::usage("only foreshore takes checkpoints", "leave out --engine"));
    }
    if common.warm_up.is_some() {
        return Err(CliError::usage("there is no warm-up here", "leave out --warm-up"));
    }
    let Length::Time { measured, .. } = common.length() else {
        return Err(CliError::usage(
            "checkpoints are measured for a time",
            "give --seconds, not --iterations",
        ));
    };
    let directory = Directory::choose(common.dir.as_deref(), "bench")?;
    directory.end_when_interrupted(common.json)?;
    let own = NO_OWN_CHECKPOINTS.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut engine = common.engine_options(workload.as_ref(), directory.path())?;
    engine.settings.splice(0..0, own);
    let engine = engines::open(common.engine, &workload.tables(), &engine)?;
    let length = Length::Time { warm_up: Duration::ZERO, measured };
    let options = CheckpointOptions {
        run: RunOptions { threads: common.threads(), length, seed: common.seed },
        rounds: args.rounds,
        rest: args.rest,
    };
    let progress = Progress::new(!common.json && !common.quiet);
    let measured = measure_checkpoints(engine.as_ref(), workload.as_ref(), &options, &progress);
    progress.finish();
    let report = measured?;
    engine.close().map_err(BenchError::from)?;
    let printed = if common.json { json_line(&report) } else { line(text(&report).trim_end()) };
    judged(printed, report.consistent)
}

fn text(report: &CheckpointReport) -> String {
    let row = |name: &str, side: &TailLatency| {
        let TailLatency { transactions, p50, p99, p999, max } = side;
        format!("  {name:<10}{transactions:>14}{p50:>12.0}{p99:>12.0}{p999:>12.0}{max:>12.0}\n")
    };
    let mut out = format!("{}, {}\n\n", report.workload, counted(report.threads, "thread", "threads"));
    out +=
        &format!("  {:<10}{:>14}{:>12}{:>12}{:>12}{:>12}\n", "µs", "commits", "p50", "p99", "p99.9", "max");
    out += &row("without", &report.without);
    out += &row("between", &report.between);
    out += &row("during", &report.during);
    out += &format!("\n  p99.9 during checkpoints: {:.2} times that without\n", report.p999_ratio);
    out += &format!(
        "  {} checkpoints of {:.0} ms and {:.0} pages each",
        report.checkpoints, report.checkpoint_ms, report.checkpoint_pages
    );
    if report.own_checkpoints > 0 {
        out += &format!("\n  the engine took {} by itself in the halves without", report.own_checkpoints);
    }
    out += "\n\n";
    out += &written(|out| {
        write_failures(out, "", &report.checks)?;
        write_verdict(out, report.checks.len(), report.consistent)
    });
    out
}
