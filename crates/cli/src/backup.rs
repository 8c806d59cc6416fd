//! `foreshore backup`.

use std::{
    io::{ErrorKind, IsTerminal},
    path::{Path, PathBuf},
    process::ExitCode,
};

use foreshore::{BackupReport, Error};
use foreshore_env::time::Instant;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::{
    interruption::Interruption,
    output::{CliError, argument, counted, json_line, line, shown_path},
    settings::Settings,
    verify::open_to_look,
};

/// Copies a database that no program has open for writing; a program copies its own by `Database::backup`, while it
/// writes.
///
/// Every page's checksum is checked on the way. Nothing of the original changes, and the copy opens like any database:
/// what was not closed in good order is recovered then. Until it is complete, the copy is no database and says so when
/// it is opened, also after Ctrl-C; a second one ends it at once.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BackupArgs {
    /// The database.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The copy: a directory that is absent or empty.
    #[arg(value_name = "TO")]
    target: PathBuf,
    #[command(flatten)]
    settings: Settings,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  foreshore backup bank.foreshore /mnt/safe/bank.monday
  foreshore backup bank.foreshore bank.copy --json && foreshore verify bank.copy
  foreshore backup /mnt/safe/bank.monday bank.foreshore   restores a lost one

Exit status: 0 the copy is complete and durable, 1 the original is damaged, 2 it could not be made.";

#[derive(Serialize)]
struct Outcome {
    #[serde(serialize_with = "shown_path")]
    database: PathBuf,
    #[serde(serialize_with = "shown_path")]
    backup: PathBuf,
    pages: u64,
    log_bytes: u64,
    end_lsn: u64,
    seconds: f64,
}

/// Runs the subcommand.
pub(crate) fn run(args: BackupArgs) -> Result<ExitCode, CliError> {
    let begun = Instant::now();
    let BackupReport { pages, log_bytes, end, .. } = copy(&args)?;
    let seconds = begun.elapsed().as_secs_f64();
    let outcome =
        Outcome { database: args.directory, backup: args.target, pages, log_bytes, end_lsn: end.0, seconds };
    if args.json {
        json_line(&outcome)?;
    } else {
        let (from, to) = (outcome.database.display(), outcome.backup.display());
        line(format!(
            "{from} is copied to {to}: {}, {} of the log, as of LSN {end}, in {seconds:.1} s",
            counted(pages, "page", "pages"),
            counted(log_bytes, "byte", "bytes")
        ))?;
        line(format!("next: foreshore verify {}", argument(&outcome.backup)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What to tell of a backup that failed. A place where something is, is named once. On a full disk it cannot go on, as
/// one's own work could: what it has copied is in the way of the next.
fn not_made(error: Error, target: &Path) -> CliError {
    let another = "name a directory that is absent or empty";
    let no_place = match &error {
        Error::Io { action, path, source } => match source.kind() {
            ErrorKind::AlreadyExists => {
                Some(("is not empty, and a backup needs a directory of its own", another))
            }
            ErrorKind::NotADirectory => Some(("is not a directory", another)),
            ErrorKind::InvalidInput if path == target && action == "make" => {
                Some(("is a symbolic link that leads nowhere", another))
            }
            ErrorKind::InvalidInput if path == target => {
                Some(("lies in the database that is copied", "name a place beside it"))
            }
            _ => None,
        },
        _ => None,
    };
    if let Some((complaint, hint)) = no_place {
        return CliError::usage(format!("{} {complaint}", target.display()), hint);
    }
    match &error {
        Error::DiskFull { action, path, reason } => CliError::Retold {
            code: error.code(),
            message: format!("the disk is full: cannot {action} {}: {reason}", path.display()),
            hint: format!(
                "make room there, remove what is left of {}, and start again; or name a place that has room",
                target.display()
            ),
        },
        _ => error.into(),
    }
}

fn copy(args: &BackupArgs) -> Result<BackupReport, CliError> {
    let db = open_to_look(&args.directory, &args.settings)?;
    // What it leaves when it is interrupted says that it is no database, as after any failure.
    let interruption = Interruption::listen()?;
    let shown = !args.json && std::io::stderr().is_terminal();
    let bar = if shown { ProgressBar::new(0) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("  copying {bar:40} {bytes} of {total_bytes}, {eta} left")
    {
        bar.set_style(style);
    }
    let made = db.backup_with(&args.target, |progress| {
        bar.set_length(progress.total_bytes);
        bar.set_position(progress.done_bytes);
        interruption.flow()
    });
    bar.finish_and_clear();
    let report = made.map_err(|error| not_made(error, &args.target))?;
    db.close()?;
    Ok(report)
}
