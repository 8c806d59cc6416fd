//! `foreshore rename`.

use std::{path::PathBuf, process::ExitCode};

use foreshore::Error;
use foreshore_env::time::Duration;
use serde::Serialize;

use crate::{
    bench::parse_seconds,
    dump::cell::escape,
    output::{CliError, argument, json_line, line, shown_path},
    prepared::in_its_way,
    settings::Settings,
    verify::open_to_change,
};

/// Gives a table another name. Its entries and their types stay.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RenameArgs {
    /// The database.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The table.
    #[arg(value_name = "TABLE")]
    table: String,
    /// Its new name, which no table has.
    #[arg(value_name = "NAME")]
    name: String,
    /// How long to wait for a prepared transaction that has locked the table.
    #[arg(long, value_name = "S", default_value = "2", value_parser = parse_seconds)]
    wait: Duration,
    #[command(flatten)]
    settings: Settings,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  foreshore rename bank.foreshore history 'history until 2025'
  foreshore drop bank.foreshore balances && foreshore rename bank.foreshore 'new balances' balances

Exit status: 0 the table has its new name, 2 there is no such table, or one has that name, or it could not be done.";

#[derive(Serialize)]
struct Renamed {
    #[serde(serialize_with = "shown_path")]
    database: PathBuf,
    renamed: String,
    name: String,
}

/// Runs it.
pub(crate) fn run(args: RenameArgs) -> Result<ExitCode, CliError> {
    let RenameArgs { directory, table, name, wait, settings, json } = args;
    let db = open_to_change(&directory, &settings)?;
    db.rename_table_within(&table, &name, wait).map_err(|error| match error {
        Error::NoSuchTable { .. } => {
            let hint = format!("foreshore stat {} --quick", argument(&directory));
            CliError::no_such_table(&table, &directory, hint)
        }
        error => in_its_way(error, &table, &directory),
    })?;
    db.close()?;
    let renamed = Renamed { database: directory, renamed: table, name };
    if json { json_line(&renamed) } else { print(&renamed) }.map(|()| ExitCode::SUCCESS)
}

fn print(Renamed { database, renamed, name }: &Renamed) -> Result<(), CliError> {
    // Names may have anything in them.
    let (renamed, name) = (escape(renamed.as_bytes()), escape(name.as_bytes()));
    line(format!("table {renamed} of {} is called {name} now", database.display()))
}
