//! `foreshore bench memory`: what single accesses to memory take.

use std::{
    fmt::{self, Write},
    process::ExitCode,
};

use clap::Args;
use foreshore_bench::{BenchError, MemoryPlan, MemoryReport, measure_memory};

use crate::{bench::rounds::RoundsArgs, output::CliError};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MemoryArgs {
    /// Kinds of access whose names contain this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    access: String,
    /// KiB of the lines among which accesses are made: of a core's own caches, of the last one, and more.
    #[arg(long, value_name = "KIB,…", value_delimiter = ',', default_value = "256,4096,131072")]
    kib: Vec<usize>,
    /// Give two threads a processor each, to stay on. Only on Linux, and on simulated machines.
    #[arg(long)]
    bind: bool,
    #[command(flatten)]
    common: RoundsArgs,
}

const EXAMPLES: &str = "\
Examples:
  foreshore bench memory                                     all kinds of access, among 256 KiB, 4 and 128 MiB
  foreshore bench memory --access 'load of any line' --kib 32,1024 --rounds 9
  foreshore bench memory --access 'hand over' --bind --json  how long a line takes from one processor to another";

impl MemoryArgs {
    /// Measures in the world that the caller is in.
    pub(crate) fn measure(&self) -> Result<MemoryReport, BenchError> {
        let plan = MemoryPlan {
            rounds: self.common.rounds(),
            access: self.access.clone(),
            kib: self.kib.clone(),
            bind: self.bind,
        };
        self.common.measure(|progress| measure_memory(&plan, progress))
    }

    /// Whether it is to be told to programs.
    pub(crate) fn json(&self) -> bool {
        self.common.json
    }

    /// Prints what came of it.
    pub(crate) fn print(&self, report: &MemoryReport) -> Result<ExitCode, CliError> {
        self.common.print(report, write_report)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &MemoryArgs) -> Result<ExitCode, CliError> {
    args.print(&args.measure()?)
}

/// The report for people: a line for each kind of access.
fn write_report(out: &mut String, report: &MemoryReport) -> fmt::Result {
    writeln!(out, "ns for an access; {} processors, {} rounds", report.processors, report.rounds)?;
    writeln!(out, "{:<52}{:>12}{:>12}", "", "least", "median")?;
    for result in &report.results {
        let among = result.kib.map_or(String::new(), |kib| format!(", among {kib} KiB"));
        let name = format!("{}{among}", result.access);
        writeln!(out, "  {name:<50}{:>12.2}{:>12.2}", result.least_ns, result.ns)?;
    }
    Ok(())
}
