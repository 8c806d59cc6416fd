//! `foreshore compact` and `foreshore drop`.

use std::{io, io::IsTerminal, ops::ControlFlow, path::PathBuf, process::ExitCode};

use foreshore::Database;
use foreshore_env::time::{Duration, Instant};
use indicatif::{HumanBytes, HumanCount, ProgressBar};
use serde::Serialize;

use crate::{
    bench::parse_seconds,
    dump::cell::escape,
    output::{CliError, json_line, judged, line, shown_path},
    prepared::in_its_way,
    settings::Settings,
    verify::open_to_change,
};

/// Gives space back: merges leaves, moves pages from the end of the data file to free places before, and cuts the file.
///
/// A program that has the database open does the same with `Database::compact`, while it is used.
#[derive(clap::Args)]
#[command(after_help = COMPACT_EXAMPLES)]
pub(crate) struct CompactArgs {
    /// The database.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    settings: Settings,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Show no progress.
    #[arg(long)]
    quiet: bool,
}

const COMPACT_EXAMPLES: &str = "\
Examples:
  foreshore compact bank.foreshore
  foreshore stat bank.foreshore --quick --json | jq .counters.fragmented_bytes    what is free now; about 3 % of a large file stays free
  foreshore compact bank.foreshore --json | jq .fragmented_bytes_after

Exit status: 0 done, 1 the database is damaged, or pages of a dropped table cannot be freed, 2 it could not be done.";

/// Drops a table with all its entries. They are gone for good.
#[derive(clap::Args)]
#[command(after_help = DROP_EXAMPLES)]
pub(crate) struct DropArgs {
    /// The database.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The table.
    #[arg(value_name = "TABLE")]
    table: String,
    /// How long to wait for a prepared transaction that has locked the table.
    #[arg(long, value_name = "S", default_value = "2", value_parser = parse_seconds)]
    wait: Duration,
    /// Give the space back to the file system, too, as `compact` does.
    #[arg(long)]
    compact: bool,
    #[command(flatten)]
    settings: Settings,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Show no progress.
    #[arg(long)]
    quiet: bool,
}

const DROP_EXAMPLES: &str = "\
Examples:
  foreshore drop bank.foreshore history
  foreshore drop bank.foreshore history --compact

Exit status: 0 the table is gone, 1 the database is damaged, or pages of a dropped
table cannot be freed (the table is gone all the same), 2 there is no such table, or it could not be dropped.";

#[derive(Serialize)]
struct Compacted {
    pages_before: u64,
    pages_after: u64,
    fragmented_bytes_before: u64,
    fragmented_bytes_after: u64,
    leaves_merged: u64,
    pages_moved: u64,
    pages_left: u64,
    seconds: f64,
}

#[derive(Serialize)]
struct Outcome {
    #[serde(serialize_with = "shown_path")]
    database: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    compacted: Option<Compacted>,
    /// Dropped tables, this one or earlier ones, whose pages were not free when the program ended.
    dropped_left: u64,
    /// Why the pages of some of them cannot be freed.
    drop_failures: Vec<String>,
}

impl Outcome {
    /// What there is to tell at the end, just before the database is closed.
    fn new(
        db: &Database,
        directory: PathBuf,
        dropped: Option<String>,
        compacted: Option<Compacted>,
    ) -> Outcome {
        let stats = db.stats();
        Outcome {
            database: directory,
            dropped,
            compacted,
            dropped_left: stats.tables_dropped,
            drop_failures: stats.drop_failures,
        }
    }
}

/// How long the pages of a dropped table are waited for before the database is closed; the next opening goes on with
/// them.
const REAPER_WAIT: Duration = Duration::from_secs(60);
const REAPER_LOOK: Duration = Duration::from_millis(2);

/// Runs `compact`.
pub(crate) fn run(args: CompactArgs) -> Result<ExitCode, CliError> {
    let db = open_to_change(&args.directory, &args.settings)?;
    let compacted = compact(&db, !args.json && !args.quiet)?;
    let outcome = Outcome::new(&db, args.directory, None, Some(compacted));
    db.close()?;
    tell(&outcome, args.json)
}

/// Runs `drop`.
pub(crate) fn run_drop(args: DropArgs) -> Result<ExitCode, CliError> {
    let db = open_to_change(&args.directory, &args.settings)?;
    let dropped = db
        .drop_table_within(&args.table, args.wait)
        .map_err(|error| in_its_way(error, &args.table, &args.directory))?;
    if !dropped {
        let hint = format!("foreshore stat {} --quick", args.directory.display());
        return Err(CliError::no_such_table(&args.table, &args.directory, hint));
    }
    let deadline = Instant::now() + REAPER_WAIT;
    while is_freeing(&db) && Instant::now() < deadline {
        foreshore_env::thread::sleep(REAPER_LOOK);
    }
    let compacted = if args.compact { Some(compact(&db, !args.json && !args.quiet)?) } else { None };
    let outcome = Outcome::new(&db, args.directory, Some(args.table), compacted);
    db.close()?;
    tell(&outcome, args.json)
}

/// Whether pages of dropped tables are still being freed; those that cannot be are not waited for.
fn is_freeing(db: &Database) -> bool {
    let stats = db.stats();
    stats.tables_dropped > stats.tables_stuck
}

fn compact(db: &Database, shown: bool) -> Result<Compacted, CliError> {
    let begin = Instant::now();
    let bar =
        if shown && io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    let report = db.compact_with(|report| {
        bar.set_message(format!(
            "compacting: {} leaves merged, {} pages moved",
            HumanCount(report.leaves_merged),
            HumanCount(report.pages_moved)
        ));
        bar.tick();
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    let report = report?;
    Ok(Compacted {
        pages_before: report.pages_before,
        pages_after: report.pages_after,
        fragmented_bytes_before: report.fragmented_bytes_before,
        fragmented_bytes_after: report.fragmented_bytes_after,
        leaves_merged: report.leaves_merged,
        pages_moved: report.pages_moved,
        pages_left: report.pages_left,
        seconds: begin.elapsed().as_secs_f64(),
    })
}

/// Tells the outcome. Pages that cannot be freed are damaged, or the system does not read or write them.
fn tell(outcome: &Outcome, json: bool) -> Result<ExitCode, CliError> {
    let printed = if json { json_line(outcome) } else { print(outcome) };
    judged(printed, outcome.drop_failures.is_empty())
}

fn print(outcome: &Outcome) -> Result<(), CliError> {
    if let Some(table) = &outcome.dropped {
        // Names may have anything in them.
        let table = escape(table.as_bytes());
        line(format!("table {table} of {} is dropped", outcome.database.display()))?;
    }
    if let Some(compacted) = &outcome.compacted {
        let bytes = |pages: u64| HumanBytes(pages * foreshore::limits::PAGE_BYTES as u64);
        line(format!(
            "{}: {} before, {} after; {} of it free before, {} after",
            outcome.database.display(),
            bytes(compacted.pages_before),
            bytes(compacted.pages_after),
            HumanBytes(compacted.fragmented_bytes_before),
            HumanBytes(compacted.fragmented_bytes_after),
        ))?;
        line(format!(
            "  {} leaves merged, {} pages moved in {:.1} s",
            HumanCount(compacted.leaves_merged),
            HumanCount(compacted.pages_moved),
            compacted.seconds
        ))?;
    }
    for failure in &outcome.drop_failures {
        line(failure)?;
    }
    if !outcome.drop_failures.is_empty() {
        line(format!("  next: foreshore verify {}", outcome.database.display()))?;
    }
    let unfinished = outcome.dropped_left.saturating_sub(outcome.drop_failures.len() as u64);
    if unfinished > 0 {
        line(format!(
            "the pages of {unfinished} dropped tables are not free yet: next: foreshore compact {}",
            outcome.database.display()
        ))?;
    }
    Ok(())
}
