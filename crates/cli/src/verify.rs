//! `foreshore verify`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use foreshore::{Database, Error, Options, VerifyReport};
use serde::Serialize;

use crate::{
    output::{CliError, after_damage, argument, counted, json_line, judged, line, shown_path},
    recovery,
    settings::Settings,
    under_way::UnderWay,
};

/// Checks everything in a database: pages, trees, free space and the log.
///
/// Reads every page, checks its checksum, the order of its keys, its fences and links, compares the free space with the
/// pages in use, and reads the log. Nothing on the disk changes: a database that was not closed in good order is
/// recovered in memory first.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct VerifyArgs {
    /// The database.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    settings: Settings,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// How long those who read or load tables wait for a lock: only a prepared transaction, about which nobody has decided,
/// can have some.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "\
Examples:
  foreshore verify bank.foreshore
  foreshore verify bank.foreshore --json | jq .problems

Of a damaged database `foreshore salvage` saves what can be read.

Exit status: 0 the database is sound, 1 it is damaged, 2 it could not be checked.";

#[derive(Serialize)]
struct Outcome {
    #[serde(serialize_with = "shown_path")]
    database: PathBuf,
    sound: bool,
    #[serde(flatten)]
    counts: Counts,
    problems: Vec<String>,
}

#[derive(Default, Serialize)]
struct Counts {
    tables: u64,
    pages: u64,
    pages_unreachable: u64,
    records: u64,
    ghosts: u64,
    log_records: u64,
    problems_dropped: u64,
}

impl Counts {
    fn of(report: &VerifyReport) -> Counts {
        Counts {
            tables: report.tables,
            pages: report.pages,
            pages_unreachable: report.pages_unreachable,
            records: report.records,
            ghosts: report.ghosts,
            log_records: report.log_records,
            problems_dropped: report.problems_dropped,
        }
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: VerifyArgs) -> Result<ExitCode, CliError> {
    let outcome = match check(&args) {
        Ok(report) => Outcome {
            sound: report.is_sound(),
            counts: Counts::of(&report),
            problems: report.problems,
            database: args.directory,
        },
        // So damaged that it cannot be opened, or gone through to the end.
        Err(CliError::Database(Error::Corrupted { site, detail, .. })) => Outcome {
            sound: false,
            counts: Counts::default(),
            problems: vec![format!("{site} is damaged: {detail}")],
            database: args.directory,
        },
        Err(error) => return Err(error),
    };
    let printed = if args.json { json_line(&outcome) } else { print(&outcome) };
    judged(printed, outcome.sound)
}

/// Memory for pages while a database is looked at: everything is read once, so more would not help.
const LOOKING_POOL_BYTES: usize = 32 << 20;

/// Opens a database that must be there, for one pass over it. Nothing of it changes.
pub(crate) fn open_to_look(directory: &Path, settings: &Settings) -> Result<Database, CliError> {
    let looking =
        Options { create: false, read_only: true, pool_bytes: LOOKING_POOL_BYTES, ..Options::default() };
    let options = settings.over_all_but_the_use(looking)?;
    Ok(recovery::open(Database::builder().options(options), directory)?)
}

/// Opens a database that must be there, to change it.
pub(crate) fn open_to_change(directory: &Path, settings: &Settings) -> Result<Database, CliError> {
    let options = settings.over_all_but_the_use(Options { create: false, ..Options::default() })?;
    Ok(recovery::open(Database::builder().options(options), directory)?)
}

fn check(args: &VerifyArgs) -> Result<VerifyReport, CliError> {
    let db = open_to_look(&args.directory, &args.settings)?;
    let under_way = UnderWay::reading(&db, !args.json);
    under_way.tell(&format!("checking {}", args.directory.display()));
    let checked = db.verify();
    drop(under_way);
    let report = match checked {
        // Nobody is here to decide.
        Err(error @ Error::Busy { .. }) => {
            let undecided = db.prepared()?.len();
            return Err(CliError::Retold {
                code: error.code(),
                message: format!(
                    "{} in the way of the check",
                    counted(undecided, "prepared transaction is", "prepared transactions are")
                ),
                hint: format!(
                    "commit or roll back what `foreshore prepared {}` lists",
                    argument(&args.directory)
                ),
            });
        }
        report => report?,
    };
    db.close()?;
    Ok(report)
}

fn print(outcome: &Outcome) -> Result<(), CliError> {
    let Outcome { database, sound, counts, problems } = outcome;
    if *sound {
        let Counts { tables, pages, records, ghosts, log_records, .. } = counts;
        return line(format!(
            "{} is sound: {}, {} and {} in {}, {}",
            database.display(),
            counted(tables, "table", "tables"),
            counted(records, "record", "records"),
            counted(ghosts, "ghost", "ghosts"),
            counted(pages, "page", "pages"),
            counted(log_records, "log record", "log records")
        ));
    }
    for problem in problems {
        // Names of tables are in it.
        line(problem.replace('\n', "\\x0a"))?;
    }
    let count = counted(problems.len() as u64 + counts.problems_dropped, "problem", "problems");
    line(format!("{} is damaged: {count}\n  next: {}", database.display(), after_damage(database)))
}

#[cfg(test)]
mod tests;
