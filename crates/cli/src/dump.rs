//! `foreshore dump`.

use std::process::ExitCode;

use crate::output::CliError;

/// Writes a table as JSON lines.
#[derive(clap::Args)]
pub(crate) struct DumpArgs {}

#[allow(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "the shape that all subcommands share"
)]
pub(crate) fn run(_args: DumpArgs) -> Result<ExitCode, CliError> {
    Err(CliError::Other("not in this build".to_owned()))
}
