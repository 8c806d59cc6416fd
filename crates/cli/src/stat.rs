//! `foreshore stat`.

use std::process::ExitCode;

use crate::output::CliError;

/// Shows tables, sizes and counters of a database.
#[derive(clap::Args)]
pub(crate) struct StatArgs {}

#[allow(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "the shape that all subcommands share"
)]
pub(crate) fn run(_args: StatArgs) -> Result<ExitCode, CliError> {
    Err(CliError::Other("not in this build".to_owned()))
}
