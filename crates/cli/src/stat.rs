//! `foreshore stat`.

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode};

use foreshore::{
    Database, Direction, LogHold, TableDefinition, TableDescription, TableLock, TransactOptions,
};
use serde::Serialize;

use crate::{
    dump::cell::escape,
    output::{CliError, json_line, line, shown_path},
    prepared::in_its_way,
    settings::Settings,
    under_way::UnderWay,
    verify::{PATIENCE, open_to_look},
};

/// Shows the tables of a database, its sizes, and what opening it took.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatArgs {
    /// The database.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Do not count the entries of the tables, which reads all of them.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    settings: Settings,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  foreshore stat bank.foreshore
  foreshore stat bank.foreshore --quick
  foreshore stat bank.foreshore --json | jq '.tables[] | {name, entries}'

Exit status: 0 done, 1 the database is damaged, 2 it could not be done.";

#[derive(Serialize)]
struct Outcome {
    #[serde(serialize_with = "shown_path")]
    database: PathBuf,
    tables: Vec<Table>,
    counters: BTreeMap<&'static str, u64>,
    log: Retention,
}

/// Who holds the log.
#[derive(Serialize)]
struct Retention {
    used_bytes: u64,
    work_bytes: u64,
    capacity_bytes: u64,
    holders: Vec<Hold>,
}

#[derive(Serialize)]
struct Hold {
    holder: String,
    held_bytes: u64,
}

#[derive(Serialize)]
struct Table {
    name: String,
    key_type: String,
    value_type: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    content: Option<Content>,
}

/// What is in a table.
#[derive(Default, Serialize)]
pub(crate) struct Content {
    pub(crate) entries: u64,
    key_bytes: u64,
    value_bytes: u64,
}

/// Runs the subcommand.
pub(crate) fn run(args: StatArgs) -> Result<ExitCode, CliError> {
    let db = open_to_look(&args.directory, &args.settings)?;
    // Before the tables are gone through, which counts as well.
    let counters = db.stats().entries().collect();
    let log = retention(&db);
    let mut tables = Vec::new();
    let under_way = UnderWay::reading(&db, !args.json && !args.quick);
    for TableDescription { name, key_type, value_type, .. } in db.tables()? {
        let content = if args.quick {
            None
        } else {
            under_way.tell(&format!("counting the entries of {}", escape(name.as_bytes())));
            Some(measure(&db, &name)?)
        };
        tables.push(Table { name, key_type, value_type, content });
    }
    drop(under_way);
    db.close()?;
    let outcome = Outcome { database: args.directory, tables, counters, log };
    if args.json {
        json_line(&outcome)?
    } else {
        print(&outcome)?
    }
    Ok(ExitCode::SUCCESS)
}

fn retention(db: &Database) -> Retention {
    let retention = db.log_retention();
    let hold = |hold: &LogHold| Hold { holder: hold.holder.to_string(), held_bytes: hold.held_bytes };
    Retention {
        used_bytes: retention.used_bytes,
        work_bytes: retention.work_bytes,
        capacity_bytes: retention.capacity_bytes,
        holders: retention.holders.iter().map(hold).collect(),
    }
}

/// Counts the entries of a table.
pub(crate) fn measure(db: &Database, name: &str) -> Result<Content, CliError> {
    let table = TableDefinition::encoded(name);
    let mut content = Content::default();
    let options = TransactOptions { lock_timeout: Some(PATIENCE), ..TransactOptions::default() };
    db.transact_with(&options, |tx| {
        content = Content::default();
        tx.lock_table(table, TableLock::Shared)?;
        let mut cursor = tx.cursor(table, .., Direction::Ascending)?;
        while let Some((key, value)) = cursor.next_encoded(tx)? {
            content.entries += 1;
            content.key_bytes += key.len() as u64;
            content.value_bytes += value.len() as u64;
        }
        Ok(())
    })
    .map_err(|error| in_its_way(error, name, db.path()))?;
    Ok(content)
}

fn print(outcome: &Outcome) -> Result<(), CliError> {
    line(outcome.database.display().to_string())?;
    let width =
        outcome.tables.iter().map(|table| escape(table.name.as_bytes()).chars().count()).max().unwrap_or(0);
    for Table { name, key_type, value_type, content } in &outcome.tables {
        // Names may have anything in them, what steers a terminal included.
        let (name, types) = (escape(name.as_bytes()), format!("{key_type} → {value_type}"));
        let types = escape(types.as_bytes());
        match content {
            None => line(format!("  {name:width$}  {types}"))?,
            Some(Content { entries, key_bytes, value_bytes }) => line(format!(
                "  {name:width$}  {entries:>12} entries  {key_bytes:>14} + {value_bytes:>14} bytes  {types}"
            ))?,
        }
    }
    if outcome.tables.is_empty() {
        line("  no tables")?;
    }
    let contents = outcome.tables.iter().filter_map(|table| table.content.as_ref());
    let rows: u64 = contents.map(|content| content.key_bytes + content.value_bytes).sum();
    let counter = |name| outcome.counters.get(name).copied().unwrap_or(0);
    if rows > 0 {
        let file = counter("pages") * foreshore::limits::PAGE_BYTES as u64;
        let free = counter("fragmented_bytes");
        line(format!(
            "  the data file: {file} bytes, {free} of them in free pages, {rows} in keys and values"
        ))?;
    }
    for (name, value) in &outcome.counters {
        line(format!("  {name:32} {value:>16}"))?;
    }
    let Retention { used_bytes, work_bytes, capacity_bytes, holders } = &outcome.log;
    line(format!("  log: {used_bytes} bytes needed, changes may fill {work_bytes} of {capacity_bytes}"))?;
    for Hold { holder, held_bytes } in holders {
        line(format!("    {held_bytes:>16} bytes held by {}", escape(holder.as_bytes())))?;
    }
    Ok(())
}
