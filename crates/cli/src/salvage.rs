//! `foreshore salvage`.

mod target;

use std::{
    io::{self, IsTerminal, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::ExitCode,
};

use foreshore::{KeyGap, Salvage, SalvageSource};
use foreshore_env::disk::{Disk, RealDisk};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::Value as Json;

use crate::{
    dump::cell::{Kind, escape},
    output::{CliError, counted, json_line, judged, line, printable, shown_path},
    under_way::{UnderWay, stdout_is_a_file},
};
use target::{Place, Target};

/// Saves what can be read of a damaged database, into a new one or as JSON lines.
///
/// Nothing of the damaged database changes. If it can be recovered, it is, in memory; if its control file is gone, a
/// new one is made from the log; else what can be read of the log is repeated on its pages; if nothing helps, they are
/// taken as the file has them. Then every leaf that can be read is saved, whatever became of the pages above it, and
/// what is lost is listed: pages, ranges of keys, and values.
///
/// While it is at work, and if it is interrupted, what it writes is called TO.incomplete.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SalvageArgs {
    /// The damaged database.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Where to: a directory that is absent or empty; with --jsonl a file that is absent, or - for standard output.
    #[arg(value_name = "TO")]
    target: PathBuf,
    /// Write JSON lines, as `dump` does and `load` reads, instead of a new database.
    #[arg(long)]
    jsonl: bool,
    /// Report in one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  foreshore salvage bank.foreshore bank.saved
  foreshore salvage bank.foreshore saved.jsonl --jsonl     to look at it, or to load parts of it
  foreshore salvage bank.foreshore - --jsonl | gzip > saved.gz     the report goes to standard error then
  foreshore salvage bank.foreshore bank.saved --json | jq '.tables[].lost'

Keys in the report are written as `dump` writes them: numbers and text as such, all others as text with \\xNN for a byte that is no
printable character, and bytes that are no key of the table's type, such as a part of a character, as {\"bytes\":\"...\"}. A range of
keys goes from its first key (from) to the one before which it ends (to); where it is open, that field is missing.

What was at the end of the log's last file and is zeros now leaves no trace and is not reported.

Exit status: 0 everything that is there was saved, 1 something was lost, 2 it could not be done, or nobody read it to the end.";

/// Lost ranges and values of a table that the text names; --json has all.
const MOST_NAMED: usize = 5;

#[derive(Serialize)]
struct Outcome {
    #[serde(serialize_with = "shown_path")]
    database: PathBuf,
    /// None: standard output.
    target: Option<String>,
    /// "recovered", "rebuilt", "repeated" or "pages".
    source: &'static str,
    /// Why it could not simply be opened.
    failure: Option<String>,
    /// Why the log was not repeated to its end.
    log_damage: Option<String>,
    complete: bool,
    /// Whether all tables are named here.
    catalog_complete: bool,
    undecided: u64,
    rows: u64,
    damaged_pages: u64,
    /// Pages that were read though the file calls them free.
    pages_called_free: u64,
    pages: Vec<Page>,
    tables: Vec<Table>,
}

#[derive(Serialize)]
struct Page {
    page: u64,
    reason: String,
}

#[derive(Serialize)]
struct Table {
    table: String,
    rows: u64,
    /// Whether name and types are those that it had.
    named: bool,
    lost: Vec<Gap>,
    values_lost: Vec<Json>,
    #[serde(skip)]
    keys: Kind,
}

#[derive(Serialize)]
struct Gap {
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Json>,
}

/// Runs the subcommand.
pub(crate) fn run(args: &SalvageArgs) -> Result<ExitCode, CliError> {
    let to_stdout = to_stdout(args);
    if to_stdout && args.json {
        return Err(CliError::usage(
            "records and report cannot both go to standard output",
            "name a file instead of -, or leave out --json",
        ));
    }
    if !args.jsonl && args.target == Path::new("-") {
        return Err(CliError::usage(
            "a database cannot go to standard output",
            "add --jsonl, or name a directory (./- if it is to be called so)",
        ));
    }
    // Where this cannot be told, opening the one or making the other says why.
    if !to_stdout && matches!(RealDisk.lies_in(&args.target, &args.directory), Ok(true)) {
        return Err(CliError::usage(
            format!("{} lies in the damaged database, which must not change", args.target.display()),
            "name a place beside it",
        ));
    }
    let place = Place::choose(&args.target, args.jsonl, &args.directory)?;
    let salvage = look(args)?;
    let shown = !args.json && (!to_stdout || stdout_is_a_file());
    let tables = place.fill(|target| save(&salvage, target, shown)).map_err(nobody_reads)?;
    let outcome = outcome(args, &salvage, tables);
    let printed = if args.json {
        json_line(&outcome)
    } else {
        let text = text(&outcome);
        if to_stdout {
            // Standard error may be closed; the records are what counts.
            let _ = writeln!(io::stderr().lock(), "{}", printable(&text));
            Ok(())
        } else {
            line(text)
        }
    };
    judged(printed, outcome.complete)
}

fn to_stdout(args: &SalvageArgs) -> bool {
    args.jsonl && args.target == Path::new("-")
}

/// Writes all tables; what is to be said of them.
fn save(salvage: &Salvage, target: &mut Target, shown: bool) -> Result<Vec<Table>, CliError> {
    let mut tables = Vec::new();
    let found = salvage.tables();
    if found.is_empty() {
        target.save_nothing()?;
    }
    let left = (0..found.len() as u64).rev();
    let under_way = UnderWay::show(shown, String::new);
    for (table, tables_left) in found.into_iter().zip(left) {
        under_way.tell(&format!("saving {}", escape(table.name.as_bytes())));
        let rows = target.save(salvage, &table, tables_left)?;
        let keys = Kind::of(table.types.as_ref().map_or("bytes", |(key, _)| key));
        tables.push(Table {
            rows: rows.rows,
            named: table.types.is_some(),
            lost: table.lost.iter().map(|lost| gap(keys, lost)).collect(),
            values_lost: rows.values_lost.iter().map(|key| keys.key_to_json(key)).collect(),
            keys,
            table: table.name,
        });
    }
    Ok(tables)
}

/// Records that nobody has read are not saved: elsewhere a reader that went away is no error.
fn nobody_reads(error: CliError) -> CliError {
    match error {
        error if error.is_closed_pipe() => CliError::usage(
            "not everything was saved: whoever read standard output has stopped",
            "read it to its end, or name a file",
        ),
        error => error,
    }
}

/// Opens the damaged database, with a bar on a terminal.
fn look(args: &SalvageArgs) -> Result<Salvage, CliError> {
    let shown = !args.json && io::stderr().is_terminal();
    let bar = if shown { ProgressBar::new(0) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("  looking at pages {bar:40} {pos} of {len}, {eta} left")
    {
        bar.set_style(style);
    }
    let opened = Salvage::open_with(&args.directory, |progress| {
        bar.set_length(progress.total_pages);
        bar.set_position(progress.done_pages);
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    Ok(opened?)
}

fn gap(keys: Kind, gap: &KeyGap) -> Gap {
    let bound = |key: &[u8]| keys.bound_to_json(key);
    Gap { from: (!gap.low.is_empty()).then(|| bound(&gap.low)), to: gap.high.as_deref().map(bound) }
}

fn outcome(args: &SalvageArgs, salvage: &Salvage, tables: Vec<Table>) -> Outcome {
    let (pages, damaged_pages) = salvage.damaged_pages();
    let whole = |table: &Table| table.named && table.lost.is_empty() && table.values_lost.is_empty();
    Outcome {
        database: args.directory.clone(),
        target: (!to_stdout(args)).then(|| args.target.display().to_string()),
        source: match salvage.source() {
            SalvageSource::Recovered => "recovered",
            SalvageSource::Rebuilt => "rebuilt",
            SalvageSource::Repeated => "repeated",
            SalvageSource::Pages => "pages",
        },
        failure: salvage.failure(),
        log_damage: salvage.log_damage(),
        catalog_complete: salvage.catalog_is_complete(),
        pages_called_free: salvage.pages_called_free(),
        complete: salvage.catalog_is_complete()
            && matches!(salvage.source(), SalvageSource::Recovered | SalvageSource::Rebuilt)
            && tables.iter().all(whole),
        undecided: salvage.undecided(),
        rows: tables.iter().map(|table| table.rows).sum(),
        damaged_pages,
        pages: pages.into_iter().map(|(page, reason)| Page { page, reason }).collect(),
        tables,
    }
}

/// What came of it, for people.
fn text(outcome: &Outcome) -> String {
    let mut lines = Vec::new();
    tell_source(&mut lines, outcome);
    let Outcome { pages, damaged_pages, pages_called_free, undecided, rows, tables, target, .. } = outcome;
    lines.extend(
        pages.iter().take(MOST_NAMED).map(|Page { page, reason }| format!("page {page} is lost: {reason}")),
    );
    more(&mut lines, *damaged_pages as usize, pages.len(), ["page", "pages"]);
    if *pages_called_free > 0 {
        let were = counted(*pages_called_free, "page was", "pages were");
        lines.push(format!("{were} read that the file calls free and that are in use"));
    }
    if !outcome.catalog_complete {
        lines.push(
            "the catalogue cannot be read to its end: names of tables are lost, or empty tables".to_owned(),
        );
    }
    tables.iter().for_each(|table| tell_table(&mut lines, table));
    if *undecided > 0 {
        lines.push(format!(
            "what {} wrote, about which nobody has decided, is among what was saved",
            counted(*undecided, "prepared transaction", "prepared transactions")
        ));
    }
    let verdict =
        if outcome.complete { "everything that is there was saved" } else { "not everything was saved" };
    let place = match target {
        Some(target) => format!("are in {target}"),
        None => "were written to standard output".to_owned(),
    };
    let (rows, tables) = (counted(rows, "record", "records"), counted(tables.len(), "table", "tables"));
    lines.push(format!("{verdict}: {rows} of {tables} {place}"));
    lines.join("\n")
}

/// From what the records were read, and why.
fn tell_source(lines: &mut Vec<String>, outcome: &Outcome) {
    const UNCOMMITTED: &str = "what was not committed may be among what was saved";
    lines.extend(outcome.failure.as_ref().map(|failure| format!("it could not be opened: {failure}")));
    match outcome.source {
        "rebuilt" => {
            lines.push("its control file was rebuilt in memory, and it was recovered with that".to_owned());
        }
        "repeated" => {
            lines.push(match &outcome.log_damage {
                Some(damage) => {
                    format!("what can be read of its log was repeated on its pages, until: {damage}")
                }
                None => "its log was repeated on its pages".to_owned(),
            });
            lines.push(UNCOMMITTED.to_owned());
        }
        "pages" => lines.push(format!(
            "its pages were used as they are in the file: what only the log has is lost, and {UNCOMMITTED}"
        )),
        _ => {}
    }
}

/// What was saved of a table, and what was not.
fn tell_table(lines: &mut Vec<String>, table: &Table) {
    let rows = counted(table.rows, "record", "records");
    lines.push(format!("{}: {rows} saved", escape(table.table.as_bytes())));
    let key = |key| shown(table.keys, key);
    lines.extend(table.lost.iter().take(MOST_NAMED).map(|gap| {
        let from = gap.from.as_ref().map_or("the first".to_owned(), key);
        let to = gap.to.as_ref().map_or("the end".to_owned(), |to| format!("before {}", key(to)));
        format!("  lost: keys from {from} to {to}")
    }));
    more(lines, table.lost.len(), table.lost.len(), ["range of keys", "ranges of keys"]);
    let values = table.values_lost.iter().take(MOST_NAMED);
    lines.extend(values.map(|lost| format!("  lost: the value of {}", key(lost))));
    more(lines, table.values_lost.len(), table.values_lost.len(), ["value", "values"]);
}

/// A key for people: bytes in quotation marks, with the escapes that they have already, everything else as in JSON.
fn shown(keys: Kind, key: &Json) -> String {
    let escaped = match keys {
        Kind::Bytes => key.as_str(),
        _ => key.get("bytes").and_then(Json::as_str),
    };
    escaped.map_or_else(|| key.to_string(), |bytes| format!("\"{}\"", bytes.replace('"', "\\x22")))
}

/// How many there are beyond those that were named; `known`: so many are in the JSON object.
fn more(lines: &mut Vec<String>, count: usize, known: usize, [one, many]: [&str; 2]) {
    if count > MOST_NAMED {
        let names = if known < count { format!("the first {known} of all") } else { "them".to_owned() };
        let more = counted(count - MOST_NAMED, &format!("more {one}"), &format!("more {many}"));
        lines.push(format!("  and {more}; --json names {names}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_names_are_promised_than_there_are() {
        let mut told = Vec::new();
        for (count, known) in [(5, 5), (6, 6), (13_824, 1000)] {
            more(&mut told, count, known, ["page", "pages"]);
        }
        let expected = [
            "  and 1 more page; --json names them",
            "  and 13819 more pages; --json names the first 1000 of all",
        ];
        assert_eq!(told, expected);
    }
}
