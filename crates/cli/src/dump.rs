//! `foreshore dump`.

pub(crate) mod cell;

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
    process::ExitCode,
};

use foreshore::{Database, Direction, TableDefinition, TableDescription, TableLock, TransactOptions};
use serde::Serialize;
use serde_json::Value;

use crate::{
    output::{CliError, argument},
    prepared::in_its_way,
    settings::Settings,
    under_way::{UnderWay, stdout_is_a_file},
    verify::{PATIENCE, open_to_look},
};
use cell::{Kind, escape};

/// Writes tables as JSON lines, which `load` reads.
///
/// Each table begins with a line that names it and its types; each entry is one line with its key and value. Behind its
/// entries a line says that this was all of the table, how many entries it has, and how many tables follow: `load`
/// refuses a dump that ends before, or has another number of them. Of a database without tables one line says that.
///
/// Numbers, truth values and strings are written as such; whole numbers that need more than 64 bits as strings of
/// digits. Of all other types the bytes are written, as text in which \xNN stands for a byte that is no printable
/// character and \\ for a backslash, and so are floats that are no number or infinite: {"bytes":"…"}.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DumpArgs {
    /// The database.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The table [default: all of them].
    #[arg(value_name = "TABLE")]
    table: Option<String>,
    #[command(flatten)]
    settings: Settings,
    /// Accepted because every subcommand takes it: the output is always JSON.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = r#"Examples:
  foreshore dump bank.foreshore                      all tables
  foreshore dump bank.foreshore accounts | head      streams: ends as soon as the reader does
  foreshore dump old.foreshore | foreshore load new.foreshore - --format jsonl

Output:
  {"table":"accounts","key_type":"str","value_type":"i64","ends":true}
  {"key":"alice","value":10}
  {"end":"accounts","entries":1,"tables_left":0}

Exit status: 0 everything was written, or nobody read on; 1 the database is damaged; 2 it could not be done."#;

/// The line before the entries of a table.
#[derive(Serialize)]
struct Header<'t> {
    table: &'t str,
    key_type: &'t str,
    value_type: &'t str,
    /// A line with the table's [`End`] follows its entries.
    ends: bool,
}

#[derive(Serialize)]
struct Entry {
    key: Value,
    value: Value,
}

/// The line behind the entries of a table.
#[derive(Serialize)]
struct End<'t> {
    end: &'t str,
    entries: u64,
    tables_left: u64,
}

/// The only line of a dump without tables: one that was cut off has less.
#[derive(Serialize)]
struct NoTables {
    tables: u64,
}

/// What was attempted when it fails.
const TO_STDOUT: &str = "write to standard output";

/// Runs the subcommand.
pub(crate) fn run(args: DumpArgs) -> Result<ExitCode, CliError> {
    let db = open_to_look(&args.directory, &args.settings)?;
    let tables = match args.table {
        None => db.tables()?,
        // The others are not looked at, however many there are.
        Some(wanted) => vec![db.table(&wanted)?.ok_or_else(|| {
            let hint = format!("`foreshore stat {}` shows those that there are", argument(&args.directory));
            CliError::no_such_table(&wanted, &args.directory, hint)
        })?],
    };
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    if tables.is_empty() {
        write_no_tables(&mut out).map_err(CliError::io(TO_STDOUT))?;
    }
    let under_way = UnderWay::reading(&db, stdout_is_a_file());
    for (table, tables_left) in tables.iter().zip((0..tables.len() as u64).rev()) {
        under_way.tell(&format!("writing {}", escape(table.name.as_bytes())));
        dump_table(&db, table, tables_left, &mut out)?;
    }
    out.flush().map_err(CliError::io(TO_STDOUT))?;
    drop(under_way);
    db.close()?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a table, behind which so many others are left.
pub(crate) fn dump_table(
    db: &Database,
    table: &TableDescription,
    tables_left: u64,
    out: &mut impl Write,
) -> Result<(), CliError> {
    let TableDescription { name, key_type, value_type, .. } = table;
    let failed = |source| CliError::Io { action: TO_STDOUT.to_owned(), source };
    write_header(out, name, key_type, value_type).map_err(failed)?;
    let (keys, values) = (Kind::of(key_type), Kind::of(value_type));
    // Step by step and not by `transact`: what was written to a pipe cannot be written again.
    let mut tx = db.begin_with(&TransactOptions {
        label: Some("dump".into()),
        lock_timeout: Some(PATIENCE),
        ..TransactOptions::default()
    })?;
    let table = TableDefinition::encoded(name);
    let mut entries = 0;
    tx.lock_table(table, TableLock::Shared).map_err(|error| in_its_way(error, name, db.path()))?;
    let mut cursor = tx.cursor(table, .., Direction::Ascending)?;
    while let Some((key, value)) = cursor.next_encoded(&mut tx)? {
        write_entry(out, keys.key_to_json(key), values.value_to_json(value)).map_err(failed)?;
        entries += 1;
    }
    tx.commit()?;
    write_end(out, name, entries, tables_left).map_err(failed)
}

/// The line before the entries of a table.
pub(crate) fn write_header(
    out: &mut impl Write,
    table: &str,
    key_type: &str,
    value_type: &str,
) -> io::Result<()> {
    write_line(out, &Header { table, key_type, value_type, ends: true })
}

/// The line of an entry.
pub(crate) fn write_entry(out: &mut impl Write, key: Value, value: Value) -> io::Result<()> {
    write_line(out, &Entry { key, value })
}

/// The line behind the entries of a table: how many there were, and how many tables follow.
pub(crate) fn write_end(out: &mut impl Write, table: &str, entries: u64, tables_left: u64) -> io::Result<()> {
    write_line(out, &End { end: table, entries, tables_left })
}

/// The line that says that there are no tables.
pub(crate) fn write_no_tables(out: &mut impl Write) -> io::Result<()> {
    write_line(out, &NoTables { tables: 0 })
}

fn write_line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}
