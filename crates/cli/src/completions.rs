//! `foreshore completions`.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{
    Cli,
    output::{CliError, told},
};

/// Writes a script that lets a shell complete what is typed: subcommands, options, and their values.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
    /// Accepted because every subcommand takes it: the output is always the script.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  source <(foreshore completions bash)     for this shell; in ~/.bashrc for all that follow
  foreshore completions zsh > \"${fpath[1]}/_foreshore\"
  foreshore completions fish > ~/.config/fish/completions/foreshore.fish
  eval (foreshore completions elvish | slurp)
  foreshore completions powershell | Out-String | Invoke-Expression

Exit status: 0 the script was written, or nobody read on; 2 it could not be written.";

/// Runs the subcommand.
pub(crate) fn run(args: &CompletionsArgs) -> Result<ExitCode, CliError> {
    // In memory first: the generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "foreshore", &mut script);
    let mut out = io::stdout().lock();
    let written = out.write_all(&script).and_then(|()| out.flush());
    told(written.map_err(CliError::io("write to standard output")), ExitCode::SUCCESS)
}
