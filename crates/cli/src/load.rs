//! `foreshore load`.

use std::process::ExitCode;

use crate::output::CliError;

/// Reads rows from CSV, TSV or JSON lines into a database.
#[derive(clap::Args)]
pub(crate) struct LoadArgs {}

#[allow(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "the shape that all subcommands share"
)]
pub(crate) fn run(_args: LoadArgs) -> Result<ExitCode, CliError> {
    Err(CliError::Other("not in this build".to_owned()))
}
