//! `foreshore prepared`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use foreshore::{Database, Error, PreparedTransaction, limits::MAX_GLOBAL_ID_BYTES};
use foreshore_env::time::unix_seconds;
use serde::Serialize;

use crate::{
    output::{CliError, argument, counted, json_line, line, shown_path, utc},
    settings::Settings,
    verify::{open_to_change, open_to_look},
};

/// Lists the prepared transactions of a database (two-phase commit), or decides about one of them.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PreparedArgs {
    /// The database.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Commit the transaction of this global id.
    #[arg(long, value_name = "ID", conflicts_with = "rollback")]
    commit: Option<String>,
    /// Roll the transaction of this global id back.
    #[arg(long, value_name = "ID")]
    rollback: Option<String>,
    #[command(flatten)]
    settings: Settings,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
An id that is not text is shown, and given, as hex:00ff…

Examples:
  foreshore prepared bank.foreshore
  foreshore prepared bank.foreshore --commit 'transfer 17'
  foreshore prepared bank.foreshore --rollback hex:00ff --json

Exit status: 0 done, 1 the database is damaged, 2 it could not be done.";

#[derive(Serialize)]
struct Outcome {
    #[serde(serialize_with = "shown_path")]
    database: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    committed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rolled_back: Option<String>,
    /// Those that are still prepared.
    prepared: Vec<Prepared>,
}

#[derive(Serialize)]
struct Prepared {
    id: String,
    transaction: u64,
    prepared_at_unix_seconds: u64,
    locks: usize,
    tables: usize,
    log_bytes: u64,
}

/// Runs the subcommand.
pub(crate) fn run(args: PreparedArgs) -> Result<ExitCode, CliError> {
    let db = if args.commit.is_some() || args.rollback.is_some() {
        open_to_change(&args.directory, &args.settings)?
    } else {
        open_to_look(&args.directory, &args.settings)?
    };
    if let Some(id) = &args.commit {
        let id = parse(id)?;
        db.commit_prepared(&id).map_err(|error| undecided(error, &id, &args.directory))?;
    }
    if let Some(id) = &args.rollback {
        let id = parse(id)?;
        db.rollback_prepared(&id).map_err(|error| undecided(error, &id, &args.directory))?;
    }
    let prepared = list(&db)?;
    db.close()?;
    let Outcome { database, committed, rolled_back, prepared } =
        Outcome { database: args.directory, committed: args.commit, rolled_back: args.rollback, prepared };
    if args.json {
        json_line(&Outcome { database, committed, rolled_back, prepared })?;
        return Ok(ExitCode::SUCCESS);
    }
    for (id, what) in [(committed, "is committed"), (rolled_back, "is rolled back")] {
        if let Some(id) = id {
            line(format!("{id} {what}"))?;
        }
    }
    let now = unix_seconds();
    for Prepared { id, transaction, prepared_at_unix_seconds, locks, tables, log_bytes } in &prepared {
        let (date, age) = (utc(*prepared_at_unix_seconds), now.saturating_sub(*prepared_at_unix_seconds));
        line(format!(
            "{id}: transaction {transaction}, prepared at {date} ({age} s ago), \
             holds {}, {} and {} of the log",
            counted(locks, "lock on a key", "locks on keys"),
            counted(tables, "whole table", "whole tables"),
            counted(log_bytes, "byte", "bytes")
        ))?;
    }
    line(match prepared.len() {
        0 => "no transaction is prepared".to_owned(),
        count => counted(count, "transaction is prepared", "transactions are prepared"),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What to tell of a decision that came to nothing.
fn undecided(error: Error, id: &[u8], directory: &Path) -> CliError {
    match error {
        Error::UnknownGlobalId { .. } => CliError::Retold {
            code: error.code(),
            message: format!("no transaction is prepared under {:?}", PreparedTransaction::show_id(id)),
            hint: format!("`foreshore prepared {}` lists those that are", argument(directory)),
        },
        error => error.into(),
    }
}

fn list(db: &Database) -> Result<Vec<Prepared>, CliError> {
    let tail = db.stats().log_tail;
    let shown = db.prepared()?.into_iter().map(|prepared| Prepared {
        id: prepared.shown_id(),
        transaction: prepared.txn.0,
        prepared_at_unix_seconds: prepared.prepared_at_unix_seconds,
        locks: prepared.locks,
        tables: prepared.tables,
        log_bytes: tail.saturating_sub(prepared.log_from.0),
    });
    Ok(shown.collect())
}

/// What to tell of work on a table that has failed. If it waited in vain for a lock, or would have, a prepared
/// transaction has it: no other program has the database open.
pub(crate) fn in_its_way(error: Error, table: &str, directory: &Path) -> CliError {
    match error {
        Error::LockTimeout(_) | Error::WouldBlock(_) => CliError::Retold {
            code: error.code(),
            message: format!("table {table:?} is in use: {error}"),
            hint: format!("commit or roll back what `foreshore prepared {}` lists", argument(directory)),
        },
        error => error.into(),
    }
}

const HEX: &str = "hex:";

/// An id as [`PreparedTransaction::shown_id`] gives it, that a transaction can have been prepared under.
fn parse(text: &str) -> Result<Vec<u8>, CliError> {
    let id = decode(text)?;
    if !(1..=MAX_GLOBAL_ID_BYTES).contains(&id.len()) {
        return Err(CliError::usage(
            format!("an id has 1 to {MAX_GLOBAL_ID_BYTES} bytes, not {}", id.len()),
            "without --commit and --rollback the ids are listed: give one of them",
        ));
    }
    Ok(id)
}

fn decode(text: &str) -> Result<Vec<u8>, CliError> {
    let Some(digits) = text.strip_prefix(HEX) else { return Ok(text.as_bytes().to_vec()) };
    let bytes = digits.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok().filter(|_| pair.bytes().all(|digit| digit.is_ascii_hexdigit()))
    });
    bytes.collect::<Option<_>>().ok_or_else(|| {
        CliError::usage(
            format!("{text:?} is not an id"),
            "give two hexadecimal digits for each byte after hex:",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_are_no_text_are_read() {
        assert_eq!(parse("transfer 17").unwrap(), b"transfer 17");
        assert_eq!(parse("hex:ff00").unwrap(), b"\xff\0");
        for wrong in ["hex:0", "hex:0g", "hex:+1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ids_have_their_length() {
        let most = "x".repeat(MAX_GLOBAL_ID_BYTES);
        assert_eq!(parse(&most).unwrap(), most.as_bytes());
        for (wrong, bytes) in
            [("", 0), ("hex:", 0), (&*format!("{most}x"), 201), (&format!("hex:{}", "00".repeat(201)), 201)]
        {
            let said = parse(wrong).unwrap_err().to_string();
            assert!(said.contains(&format!("an id has 1 to 200 bytes, not {bytes}")), "{said}");
        }
    }
}
