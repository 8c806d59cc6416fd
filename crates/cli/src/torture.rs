//! `foreshore torture`.

use std::process::ExitCode;

use crate::output::CliError;

/// Kills a working process again and again and checks that nothing acknowledged was lost.
#[derive(clap::Args)]
pub(crate) struct TortureArgs {}

#[allow(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "the shape that all subcommands share"
)]
pub(crate) fn run(_args: TortureArgs) -> Result<ExitCode, CliError> {
    Err(CliError::Other("not in this build".to_owned()))
}
