//! `foreshore load`.

mod ends;
mod input;
mod object;
pub(crate) mod sink;
pub(crate) mod source;

use std::{
    fs,
    io::{self, BufReader, IsTerminal, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use foreshore::{Database, Options, limits::MAX_TABLE_NAME_BYTES};
use foreshore_env::time::{Duration, Instant};
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::{
    dump::cell::escape,
    output::{CliError, counted, json_line, line, printable, shown_path},
    recovery,
    settings::Settings,
};
use input::Input;
use sink::Sink;
use source::{Columns, Form};

/// Reads entries from CSV, TSV or JSON lines, or from what `dump` wrote, into a database, which is made if need be.
///
/// Of CSV and TSV, with a header line, one column is the key; the value is a JSON object of all other columns, or one
/// of them (--value-column). Of JSON lines, one field is the key; the value is the line, or one of its fields: the text
/// of a string, and of anything else, null too, what stands in the file. What `dump` wrote brings its tables and types
/// with it; where a table's first line says that an end follows ("ends":true), as `dump` writes it, an input without
/// that end, or with another number of entries than it names, is refused: it was cut off.
///
/// Entries are committed in batches. When a line cannot be read, the error names it, and all entries of the lines
/// before it were loaded. After any other failure, such as a full disk, a dump that is not whole, or Ctrl-C, the error
/// says how many were, and the line of the last one. Of entries with one key, which --replace takes, the last one is in
/// the database. An input that is refused at its first entry makes no database, and no table. A second Ctrl-C ends it
/// at once, as a crash would.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LoadArgs {
    /// The database.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The file; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The table [default: the file's name up to its first dot; a dump names its own].
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// The file's format [default: by the end of its name].
    #[arg(long, value_enum)]
    format: Option<Form>,
    /// The column or field that is the key [default: the first column; for JSON lines it must be given].
    #[arg(long, value_name = "NAME")]
    key_column: Option<String>,
    /// The type of the keys, which decides their order [default: str]. Those of `bytes` are written as `dump` writes
    /// them: \xNN stands for a byte, and \\ for a backslash.
    #[arg(long, value_name = "TYPE",
          value_parser = [
              "str", "u8", "u16", "u32", "u64", "u128", "i8", "i16", "i32", "i64", "i128", "bool", "bytes"
          ])]
    key_type: Option<String>,
    /// The column or field that is the value.
    #[arg(long, value_name = "NAME")]
    value_column: Option<String>,
    /// Overwrite entries that exist already, instead of stopping at them.
    #[arg(long)]
    replace: bool,
    /// How many entries are committed together.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch: u32,
    #[command(flatten)]
    settings: Settings,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Show no progress.
    #[arg(long)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  foreshore load shop.foreshore customers.csv --key-column id --key-type u64
  foreshore load shop.foreshore words.tsv --table words --value-column meaning
  foreshore load shop.foreshore events.jsonl --key-column timestamp --key-type i64
  foreshore dump old.foreshore | foreshore load new.foreshore - --format jsonl

Exit status: 0 everything was loaded, 1 the database is damaged, 2 not everything was loaded.";

#[derive(Serialize)]
struct Outcome {
    #[serde(serialize_with = "shown_path")]
    database: PathBuf,
    entries: u64,
    tables: Vec<String>,
    bytes: u64,
    seconds: f64,
}

/// Runs the subcommand.
pub(crate) fn run(args: LoadArgs) -> Result<ExitCode, CliError> {
    let form = form(&args)?;
    // Before the database is made: a file that is not there makes none.
    let (source, length) = input::open(&args.file)?;
    let options = args.settings.over(Options::default())?;
    let opened = || recovery::open(Database::builder().options(options.clone()), &args.directory);
    let was_there = args.directory.join("control").exists();
    let mut sink = Sink::new(opened, args.batch as usize, args.replace);
    if is_something_at(&args.directory) {
        // If it cannot be opened, that is told before anything is read.
        sink.database()?;
    }

    let begin = Instant::now();
    let progress = Progress::new(length, !args.json && !args.quiet);
    let columns = Columns {
        table: args.table.clone(),
        default_table: table_name(&args.file),
        key: args.key_column.clone(),
        key_type: args.key_type.clone(),
        value: args.value_column.clone(),
    };
    let input = Input::new(source)?;
    let interruption = input.interruption();
    let reader = BufReader::with_capacity(1 << 18, progress.watch(input));
    let read = source::read(form, reader, &columns, &mut sink).map_err(|error| match error {
        // What the database has to say is more than that.
        error if error.is_from_the_database() => error,
        _ if interruption.came() => CliError::Interrupted,
        error => error,
    });
    // What came before a bad line is kept, as promised.
    let kept = if read.is_ok() { sink.finish() } else { sink.flush() };
    progress.finish();
    let made = sink.has_opened() && !was_there;
    let closed = if sink.has_opened() { sink.database()?.close() } else { Ok(()) };
    let there = (sink.entries(), sink.last_line());
    if let Err(error) = first_failure(read, kept, closed.map_err(CliError::from), there) {
        if made && sink.entries() == 0 {
            // Standard error may be closed, and nobody misses it then.
            let made = format!("{} was made, and has no entries", args.directory.display());
            let _ = writeln!(io::stderr().lock(), "{}", printable(&made));
        }
        return Err(error);
    }

    let (entries, tables) = (sink.entries(), sink.tables());
    drop(sink);
    let outcome = Outcome {
        entries,
        tables,
        bytes: progress.bytes(),
        seconds: begin.elapsed().as_secs_f64(),
        database: args.directory,
    };
    if args.json {
        json_line(&outcome)?
    } else {
        print(&outcome)?
    }
    Ok(ExitCode::SUCCESS)
}

/// What is told of reading all entries, committing what was collected, and making that durable.
///
/// Of two lines that cannot be taken the earlier one counts, which was found when the entries before the later one were
/// committed. And before both whatever is in the way of what would be said of the entries before a line. `there`: how
/// many entries were committed, and the line of the last one.
fn first_failure(
    read: Result<(), CliError>,
    kept: Result<(), CliError>,
    closed: Result<(), CliError>,
    there: (u64, u64),
) -> Result<(), CliError> {
    let of_a_line = |result: &Result<(), CliError>| matches!(result, Err(CliError::Line { .. }));
    let durable = closed.is_ok();
    let told = if of_a_line(&kept) { closed.and(kept) } else { kept.and(closed) };
    let (entries, last) = there;
    match told.and(read) {
        Err(CliError::Line { line, complaint, .. }) => {
            Err(CliError::Line { line, complaint, entries: Some(entries) })
        }
        Err(cause)
            if entries == 0
                && durable
                && (cause.is_from_the_database()
                    || matches!(cause, CliError::IncompleteDump(_) | CliError::Interrupted)) =>
        {
            Err(CliError::Partial {
                cause: Box::new(cause),
                done: "no entry of it is in the database".to_owned(),
            })
        }
        Err(cause) if entries > 0 => Err(CliError::Partial {
            cause: Box::new(cause),
            done: if durable {
                format!(
                    "{} loaded, up to line {last}; load what is behind it, or everything again with --replace",
                    counted(entries, "entry was", "entries were")
                )
            } else {
                format!(
                    "how many of {}, up to line {last}, were loaded is not certain; load everything again with --replace",
                    counted(entries, "entry", "entries")
                )
            },
        }),
        other => other,
    }
}

fn form(args: &LoadArgs) -> Result<Form, CliError> {
    if let Some(form) = args.format {
        return Ok(form);
    }
    let extension = args.file.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    match extension.as_deref() {
        Some("csv") => Ok(Form::Csv),
        Some("tsv" | "tab") => Ok(Form::Tsv),
        Some("jsonl" | "ndjson" | "json") => Ok(Form::Jsonl),
        _ => Err(CliError::usage(
            format!("the name of {} does not tell its format", args.file.display()),
            "add --format csv, --format tsv or --format jsonl",
        )),
    }
}

fn table_name(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let stem = name.split('.').next()?;
    (!stem.is_empty() && stem != "-" && stem.len() <= MAX_TABLE_NAME_BYTES).then(|| stem.to_owned())
}

/// Whether a directory has something in it, or something else is there.
fn is_something_at(path: &Path) -> bool {
    match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Shows on standard error how much of the input was read.
struct Progress(ProgressBar);

impl Progress {
    fn new(length: Option<u64>, shown: bool) -> Progress {
        if !shown || !io::stderr().is_terminal() {
            return Progress(ProgressBar::hidden());
        }
        let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        // A constant of this file; were it wrong, the bar would be plain.
        if let Ok(style) =
            ProgressStyle::with_template("loading {bar:40} {bytes} of {total_bytes}, {binary_bytes_per_sec}")
        {
            bar.set_style(style);
        }
        Progress(bar)
    }

    fn watch(&self, input: Input) -> impl Read {
        self.0.wrap_read(input)
    }

    fn bytes(&self) -> u64 {
        self.0.position()
    }

    fn finish(&self) {
        self.0.finish_and_clear();
    }
}

fn print(outcome: &Outcome) -> Result<(), CliError> {
    let Outcome { database, entries, tables, bytes, seconds } = outcome;
    // Names may have anything in them.
    let names: Vec<String> = tables.iter().map(|name| escape(name.as_bytes())).collect();
    let tables = if names.is_empty() { "no table".to_owned() } else { names.join(", ") };
    line(format!(
        "{} into {} of {}: {} in {:.1} s, {} entries/s",
        counted(HumanCount(*entries), "entry", "entries"),
        tables,
        database.display(),
        HumanBytes(*bytes),
        seconds,
        HumanCount((*entries as f64 / Duration::from_secs_f64(*seconds).as_secs_f64().max(1e-9)) as u64),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_said_to_be_there_if_they_are() {
        let line = |line| Err(CliError::Line { line, complaint: "no number".to_owned(), entries: None });
        let full = || Err(CliError::Other("the disk is full".to_owned()));
        let told = |read, kept, closed, entries| {
            first_failure(read, kept, closed, (entries, 6)).unwrap_err().to_string()
        };
        let there = "\n  all entries before that line were loaded";
        assert_eq!(told(line(7), Ok(()), Ok(()), 5), format!("line 7: no number{there}"));
        assert_eq!(
            told(line(2), Ok(()), Ok(()), 0),
            "line 2: no number\n  nothing was loaded: there is no entry before that line"
        );
        assert_eq!(told(line(7), line(4), Ok(()), 2), format!("line 4: no number{there}"));
        assert_eq!(told(Ok(()), line(4), Ok(()), 2), format!("line 4: no number{there}"));
        // Where it is durable, how far it came; where not, that nobody knows.
        let durable = "the disk is full\n  5 entries were loaded, up to line 6; \
                       load what is behind it, or everything again with --replace";
        assert_eq!(told(line(7), full(), Ok(()), 5), durable);
        assert_eq!(told(full(), Ok(()), Ok(()), 5), durable);
        for kept in [Ok(()), line(4), full()] {
            let told = told(line(7), kept, full(), 5);
            assert!(told.starts_with("the disk is full\n  how many of 5 entries, up to line 6,"), "{told}");
        }
        assert_eq!(told(full(), full(), full(), 0), "the disk is full");
        assert!(first_failure(Ok(()), Ok(()), Ok(()), (0, 0)).is_ok());
    }
}
