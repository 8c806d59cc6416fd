//! `foreshore bench constants`: what the papers chose, and this program has.

use std::process::ExitCode;

use clap::Args;
use foreshore_bench::constants;

use crate::output::{CliError, json_line, line};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConstantsArgs {
    /// Print one JSON object, on the last line of the output, and nothing else.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  foreshore bench constants
  foreshore bench constants --json

Nothing is measured. Options that can be set are in the documentation of `foreshore::Options`.";

/// Runs the subcommand.
pub(crate) fn run(args: &ConstantsArgs) -> Result<ExitCode, CliError> {
    let report = constants();
    if args.json {
        json_line(&report)?;
    } else {
        for constant in &report.results {
            let value = format!("{} {}", constant.value, constant.unit);
            line(format!("{:<52}{value:<22}{}", constant.name, constant.source))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
