//! What is told when a program has the database open that a subcommand needs: the library's words are for that program,
//! not for a shell.

use foreshore::Error;

use crate::{Command, output::CliError};

/// A subcommand that opens somebody's database.
pub(crate) struct Tried {
    /// As it is typed.
    command: &'static str,
    /// What the program that has the database open can do in its place.
    instead: &'static str,
}

impl Tried {
    /// `None`: a subcommand that has databases of its own, or none.
    pub(crate) fn of(command: &Command) -> Option<Tried> {
        let (command, instead) = match command {
            Command::Bench(_)
            | Command::Simulate(_)
            | Command::Experiment(_)
            | Command::Report(_)
            | Command::Torture(_)
            | Command::Completions(_) => return None,
            Command::Verify(_) => ("verify", "check it by Database::verify"),
            Command::Backup(_) => ("backup", "copy it by Database::backup"),
            Command::Salvage(_) => ("salvage", "read what can be read of it"),
            Command::Stat(_) => ("stat", "tell the same by Database::tables and Database::stats"),
            Command::Dump(_) => ("dump", "copy it by Database::backup, and the copy can be dumped at once"),
            Command::Load(_) => ("load", "write the entries"),
            Command::Prepared(_) => {
                ("prepared", "decide by Database::commit_prepared and Database::rollback_prepared")
            }
            Command::Compact(_) => ("compact", "compact it by Database::compact"),
            Command::Drop(_) => ("drop", "drop the table by Database::drop_table"),
            Command::Rename(_) => ("rename", "rename the table by Database::rename_table"),
            Command::Script(_) => ("script", "run the transactions"),
        };
        Some(Tried { command, instead })
    }

    /// The error as it is told at a shell.
    pub(crate) fn retell(&self, error: CliError) -> CliError {
        match error {
            CliError::Database(ref cause @ Error::AlreadyOpen { ref path }) => CliError::Retold {
                code: cause.code(),
                message: format!(
                    "{} is open in another program, so `foreshore {}` cannot use it",
                    path.display(),
                    self.command
                ),
                hint: format!(
                    "try again when that program has closed it; meanwhile a program that has it open for writing can {}",
                    self.instead
                ),
            },
            error => error,
        }
    }
}
