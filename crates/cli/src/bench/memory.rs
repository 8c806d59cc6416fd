//! `foreshore bench memory`: what single accesses to memory take.

use std::{fmt::Write, process::ExitCode};

use clap::Args;
use foreshore_bench::{BenchError, MemoryReport, measure_memory};

use crate::{bench::rounds::RoundsArgs, output::CliError};

#[derive(Args)]
pub(crate) struct MemoryArgs {
    #[command(flatten)]
    common: RoundsArgs,
}

impl MemoryArgs {
    /// Measures in the world that the caller is in.
    pub(crate) fn measure(&self) -> Result<MemoryReport, BenchError> {
        self.common.measure(|progress| measure_memory(self.common.rounds(), progress))
    }

    /// Whether it is to be told to programs.
    #[cfg(foreshore_sim)]
    pub(crate) fn json(&self) -> bool {
        self.common.json
    }

    /// Prints what came of it.
    pub(crate) fn print(&self, report: &MemoryReport) -> Result<ExitCode, CliError> {
        self.common.print(report, text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &MemoryArgs) -> Result<ExitCode, CliError> {
    args.print(&args.measure()?)
}

/// The report for people: a line for each kind of access.
fn text(report: &MemoryReport) -> String {
    let mut out = format!("ns for an access; {} processors, {} rounds\n", report.processors, report.rounds);
    let _ = writeln!(out, "{:<52}{:>12}{:>12}", "", "least", "median");
    for result in &report.results {
        let among = result.kib.map_or(String::new(), |kib| format!(", among {kib} KiB"));
        let name = format!("{}{among}", result.access);
        let _ = writeln!(out, "  {name:<50}{:>12.2}{:>12.2}", result.least_ns, result.ns);
    }
    out
}
