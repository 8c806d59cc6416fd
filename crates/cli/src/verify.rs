//! `foreshore verify`.

use std::process::ExitCode;

use crate::output::CliError;

/// Checks every tree, the free space and the log of a database.
#[derive(clap::Args)]
pub(crate) struct VerifyArgs {}

#[allow(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "the shape that all subcommands share"
)]
pub(crate) fn run(_args: VerifyArgs) -> Result<ExitCode, CliError> {
    Err(CliError::Other("not in this build".to_owned()))
}
