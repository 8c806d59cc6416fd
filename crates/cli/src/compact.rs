//! `foreshore compact` and `foreshore drop`.

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    process::ExitCode,
};

use foreshore::Database;
use foreshore_env::time::{Duration, Instant};
use indicatif::{HumanBytes, HumanCount, ProgressBar};
use serde::Serialize;

use crate::{
    bench::parse_seconds,
    dump::cell::escape,
    interruption::Interruption,
    output::{CliError, argument, counted, json_line, judged, line, shown_path},
    prepared::in_its_way,
    settings::Settings,
    verify::open_to_change,
};

/// Gives space back: merges leaves, moves pages from the end of the data file to free places before, and cuts the file.
///
/// A program that has the database open does the same with `Database::compact`, while it is used.
///
/// Ctrl-C ends it in good order: what was done stays done, the file is cut as far as pages have moved, and another
/// compaction does the rest. A second Ctrl-C ends it at once, as a crash would; nothing is lost by that either.
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

Exit status: 0 done, 1 the database is damaged, or pages of a dropped table cannot be freed, 2 it could not be done, or was interrupted.";

/// Drops a table with all its entries. They are gone for good.
///
/// Then its pages are freed. Ctrl-C ends that in good order, and a second one at once, as a crash would: the table
/// stays dropped, and whoever opens the database next frees the rest.
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
table cannot be freed (the table is gone all the same), 2 there is no such table, or it could not be dropped, or \
freeing its pages was interrupted (it is gone then).";

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
    /// It was stopped before it was done.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    interrupted: bool,
}

impl Outcome {
    /// What there is to tell at the end, just before the database is closed.
    fn new(
        db: &Database,
        directory: PathBuf,
        dropped: Option<String>,
        compacted: Option<Compacted>,
        interrupted: bool,
    ) -> Outcome {
        let stats = db.stats();
        Outcome {
            database: directory,
            dropped,
            compacted,
            dropped_left: stats.tables_dropped,
            drop_failures: stats.drop_failures,
            interrupted,
        }
    }

    /// What is told of it after an interruption.
    fn broken_off(&self) -> CliError {
        let dropped = self.dropped.as_ref().map(|table| {
            format!(
                "table {} is dropped; what is left of its pages is freed by the next opening",
                escape(table.as_bytes())
            )
        });
        let compacted = self.compacted.as_ref().map(|compacted| {
            format!(
                "{}, {} cut off the file: that stays",
                merged_and_moved(compacted.leaves_merged, compacted.pages_moved),
                pages_bytes(compacted.pages_before.saturating_sub(compacted.pages_after)),
            )
        });
        let mut done: Vec<String> = dropped.into_iter().chain(compacted).collect();
        done.push(format!("next: foreshore compact {}, which does the rest", argument(&self.database)));
        CliError::Partial { cause: Box::new(CliError::Interrupted), done: done.join("\n  ") }
    }
}

fn merged_and_moved(leaves: u64, pages: u64) -> String {
    let merged = counted(HumanCount(leaves), "leaf", "leaves");
    format!("{merged} merged, {} moved", counted(HumanCount(pages), "page", "pages"))
}

fn pages_bytes(pages: u64) -> HumanBytes {
    HumanBytes(pages * foreshore::limits::PAGE_BYTES as u64)
}

/// How long the pages of a dropped table are waited for before the database is closed; the next opening goes on with
/// them.
const REAPER_WAIT: Duration = Duration::from_secs(60);
const REAPER_LOOK: Duration = Duration::from_millis(2);

/// Runs `compact`.
pub(crate) fn run(args: CompactArgs) -> Result<ExitCode, CliError> {
    let db = open_to_change(&args.directory, &args.settings)?;
    let interruption = Interruption::listen()?;
    let (compacted, stopped) = compact(&db, !args.json && !args.quiet, &interruption)?;
    let outcome = Outcome::new(&db, args.directory, None, Some(compacted), stopped);
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
        let hint = format!("foreshore stat {} --quick", argument(&args.directory));
        return Err(CliError::no_such_table(&args.table, &args.directory, hint));
    }
    let shown = !args.json && !args.quiet;
    // Only now: until the table is dropped, an interruption ends the program, and it is not.
    let interruption = Interruption::listen()?;
    await_freeing(&db, shown, &interruption);
    let mut stopped = is_freeing(&db) && interruption.came();
    let mut compacted = None;
    if args.compact && !stopped {
        let (done, was_stopped) = compact(&db, shown, &interruption)?;
        (compacted, stopped) = (Some(done), was_stopped);
    }
    let outcome = Outcome::new(&db, args.directory, Some(args.table), compacted, stopped);
    db.close()?;
    tell(&outcome, args.json)
}

/// Waits until the pages of dropped tables are free, or it has taken long enough.
fn await_freeing(db: &Database, shown: bool, interruption: &Interruption) {
    let bar = spinner(shown);
    bar.set_message("freeing the pages of the table");
    let deadline = Instant::now() + REAPER_WAIT;
    while is_freeing(db) && !interruption.came() && Instant::now() < deadline {
        foreshore_env::thread::sleep(REAPER_LOOK);
        bar.tick();
    }
    bar.finish_and_clear();
}

fn spinner(shown: bool) -> ProgressBar {
    if shown && io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() }
}

/// Whether pages of dropped tables are still being freed; those that cannot be are not waited for.
fn is_freeing(db: &Database) -> bool {
    let stats = db.stats();
    stats.tables_dropped > stats.tables_stuck
}

/// What was done, and whether an interruption has stopped it.
fn compact(db: &Database, shown: bool, interruption: &Interruption) -> Result<(Compacted, bool), CliError> {
    let begin = Instant::now();
    let bar = spinner(shown);
    let mut stopped = false;
    let report = db.compact_with(|report| {
        bar.set_message(format!(
            "compacting: {}",
            merged_and_moved(report.leaves_merged, report.pages_moved)
        ));
        bar.tick();
        let flow = interruption.flow();
        stopped = flow.is_break();
        flow
    });
    bar.finish_and_clear();
    let report = report?;
    let compacted = Compacted {
        pages_before: report.pages_before,
        pages_after: report.pages_after,
        fragmented_bytes_before: report.fragmented_bytes_before,
        fragmented_bytes_after: report.fragmented_bytes_after,
        leaves_merged: report.leaves_merged,
        pages_moved: report.pages_moved,
        pages_left: report.pages_left,
        seconds: begin.elapsed().as_secs_f64(),
    };
    Ok((compacted, stopped))
}

/// Tells the outcome. Pages that cannot be freed are damaged, or the system does not read or write them.
fn tell(outcome: &Outcome, json: bool) -> Result<ExitCode, CliError> {
    if outcome.interrupted && outcome.drop_failures.is_empty() {
        return Err(outcome.broken_off());
    }
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
        line(format!(
            "{}: {} before, {} after; {} of it free before, {} after",
            outcome.database.display(),
            pages_bytes(compacted.pages_before),
            pages_bytes(compacted.pages_after),
            HumanBytes(compacted.fragmented_bytes_before),
            HumanBytes(compacted.fragmented_bytes_after),
        ))?;
        line(format!(
            "  {} in {:.1} s",
            merged_and_moved(compacted.leaves_merged, compacted.pages_moved),
            compacted.seconds
        ))?;
    }
    if outcome.interrupted {
        let database = argument(&outcome.database);
        line(format!("interrupted: next: foreshore compact {database}, which does the rest"))?;
    }
    for failure in &outcome.drop_failures {
        line(failure)?;
    }
    if !outcome.drop_failures.is_empty() {
        line(format!("  next: foreshore verify {}", argument(&outcome.database)))?;
    }
    let unfinished = outcome.dropped_left.saturating_sub(outcome.drop_failures.len() as u64);
    if unfinished > 0 {
        line(format!(
            "the pages of {} are not free yet: next: foreshore compact {}",
            counted(unfinished, "dropped table", "dropped tables"),
            argument(&outcome.database)
        ))?;
    }
    Ok(())
}
