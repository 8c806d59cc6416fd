//! What all subcommands share: the error that ends the program, and printing that survives a closed pipe.

use std::{
    borrow::Cow,
    error::Error,
    fmt::Display,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use foreshore_bench::BenchError;
use serde::{Serialize, Serializer};

/// The exit status when a check failed or damage was found.
pub(crate) const CHECK_FAILED: u8 = 1;
/// The exit status when the program was used wrongly or could not do its work.
pub(crate) const TROUBLE: u8 = 2;

/// Why a subcommand could not do its work. Printed with what to do next; exit status 1 for damage and data that
/// a benchmark has lost, 2 for everything else.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The arguments do not make sense together.
    #[error("{message}\n  next: {hint}")]
    Usage {
        /// What is wrong.
        message: String,
        /// What to type instead.
        hint: String,
    },
    /// The database failed.
    #[error(transparent)]
    Database(#[from] foreshore::Error),
    /// The database failed, or would have, and what a program would do next is not what the user does.
    #[error("{message}\n  next: {hint}")]
    Retold {
        /// The code of its error.
        code: &'static str,
        /// What went wrong.
        message: String,
        /// What to type.
        hint: String,
    },
    /// A benchmark failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// A file or a pipe failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was attempted, as a verb phrase.
        action: String,
        /// The cause.
        source: io::Error,
    },
    /// A line of the input cannot be taken.
    #[error("line {line}: {complaint}{}", kept(*.entries))]
    Line {
        /// The line.
        line: u64,
        /// What is wrong with it.
        complaint: String,
        /// Entries before it that were loaded, if that is known.
        entries: Option<u64>,
    },
    /// A dump promises more than came.
    #[error("the dump is not whole: {0}\n  next: dump it again")]
    IncompleteDump(String),
    /// The user has ended the program.
    #[error("interrupted")]
    Interrupted,
    /// The work was broken off when some of it had been done.
    #[error("{cause}\n  {done}")]
    Partial {
        /// What was in the way.
        #[source]
        cause: Box<CliError>,
        /// What was done, and what to do with the rest.
        done: String,
    },
    /// Anything else, described.
    #[error("{0}")]
    Other(String),
}

/// What became of the entries before a line that could not be taken.
fn kept(entries: Option<u64>) -> &'static str {
    match entries {
        None => "",
        Some(0) => "\n  nothing was loaded: there is no entry before that line",
        Some(_) => "\n  all entries before that line were loaded",
    }
}

impl CliError {
    /// A [`CliError::Usage`] from its parts.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> CliError {
        CliError::Usage { message: message.into(), hint: hint.into() }
    }

    /// There is no such table in the database, where `hint` says how to see which there are.
    pub(crate) fn no_such_table(table: &str, database: &Path, hint: String) -> CliError {
        let code = foreshore::Error::NoSuchTable { table: table.to_owned() }.code();
        let message = format!("there is no table {table:?} in {}", database.display());
        CliError::Retold { code, message, hint }
    }

    /// A [`CliError::Io`] from its parts; for `map_err`.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> CliError {
        let action = action.into();
        move |source| CliError::Io { action, source }
    }

    /// Whether the database has failed, or would have.
    pub(crate) fn is_from_the_database(&self) -> bool {
        matches!(self, CliError::Database(_) | CliError::Retold { .. })
    }

    /// A word for programs.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            CliError::Usage { .. } => "usage",
            CliError::Bench(BenchError::Unknown { .. } | BenchError::Invalid(_)) => "usage",
            _ if self.is_wrong_option() => "usage",
            _ if self.is_failed_check() => "inconsistent",
            CliError::Bench(BenchError::Thread { .. }) => "io",
            CliError::Bench(_) | CliError::Database(_) => {
                self.of_the_database().map_or("bench", foreshore::Error::code)
            }
            CliError::Retold { code, .. } => code,
            CliError::Io { .. } => "io",
            CliError::Partial { cause, .. } => cause.code(),
            CliError::Line { .. } => "bad_line",
            CliError::IncompleteDump(_) => "incomplete_dump",
            CliError::Interrupted => "interrupted",
            CliError::Other(_) => "other",
        }
    }

    /// The database that is damaged, if that is the cause.
    fn damaged(&self) -> Option<&Path> {
        let cause: Option<&(dyn Error + 'static)> = match self {
            CliError::Database(error) => Some(error),
            // It speaks for its cause, and so does its chain.
            CliError::Bench(BenchError::Engine(failure)) => Some(&*failure.source),
            CliError::Partial { cause, .. } => return cause.damaged(),
            _ => self.source(),
        };
        cause.and_then(damaged)
    }

    /// Whether a benchmark has found what no run of it can have left.
    fn is_failed_check(&self) -> bool {
        matches!(self, CliError::Bench(BenchError::Engine(failure)) if failure.is_inconsistent())
    }

    /// Whether it is damage, or a failed check.
    pub(crate) fn is_finding(&self) -> bool {
        self.damaged().is_some() || self.is_failed_check()
    }

    /// The database's error, also where a benchmark met it.
    pub(crate) fn of_the_database(&self) -> Option<&foreshore::Error> {
        match self {
            CliError::Database(error) => Some(error),
            CliError::Bench(BenchError::Engine(failure)) => failure.source.downcast_ref(),
            _ => None,
        }
    }

    /// Whether an option of the database was given (`--set`) that there is not, or a value that it does not take.
    fn is_wrong_option(&self) -> bool {
        let error = self.of_the_database();
        matches!(error, Some(foreshore::Error::UnknownOption { .. } | foreshore::Error::InvalidOption { .. }))
    }

    /// What to do about a failure of the system, where its kind tells.
    fn next_step(&self) -> Option<&'static str> {
        let source = match self {
            CliError::Bench(BenchError::Thread { .. }) => return Some(AFTER_TOO_MANY),
            CliError::Io { action, source }
                if source.kind() == io::ErrorKind::WouldBlock && action.starts_with("start ") =>
            {
                return Some(AFTER_TOO_MANY);
            }
            CliError::Io { source, .. } => source,
            CliError::Partial { cause, .. } => return cause.next_step(),
            _ => return None,
        };
        Some(match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
                "check the path"
            }
            io::ErrorKind::PermissionDenied => "obtain permission, or run as a user who has it",
            io::ErrorKind::AlreadyExists => "name another place",
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                "make room there, and try again"
            }
            _ => return None,
        })
    }

    /// Whether a reader has gone away.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, CliError::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Prints the error with its causes to standard error, and for a program (`json`) as an object to standard output,
    /// too. A reader that went away is no error.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        if self.is_closed_pipe() {
            return ExitCode::SUCCESS;
        }
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let line = error.to_string();
            if !text.contains(&line) {
                text.push_str(&format!("\n  because: {line}"));
            }
            cause = error.source();
        }
        if let Some(path) = self.damaged().filter(|_| !text.contains("foreshore salvage")) {
            text.push_str(&format!("\n  next: {}", after_damage(path)));
        }
        if let Some(step) = self.next_step() {
            text.push_str(&format!("\n  next: {step}"));
        }
        // Standard error may be closed; there is nobody left to tell then.
        let _ = writeln!(io::stderr().lock(), "error: {}", printable(&text));
        if json {
            let line = if let CliError::Line { line, .. } = self { Some(*line) } else { None };
            let _ = json_failure(self.code(), &text, line);
        }
        ExitCode::from(if self.is_finding() { CHECK_FAILED } else { TROUBLE })
    }
}

/// What to do where the system starts no more threads and processes.
const AFTER_TOO_MANY: &str =
    "take fewer threads, or have more allowed (`ulimit -u`; also `ulimit -v`: each has a stack)";

/// The database whose damage is this error, or behind it.
pub(crate) fn damaged<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e Path> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(foreshore::Error::Corrupted { path, .. }) = error.downcast_ref() {
            return Some(path);
        }
        cause = error.source();
    }
    None
}

/// What to do about a damaged database.
pub(crate) fn after_damage(database: &Path) -> String {
    format!("restore a backup, or save what can be read: foreshore salvage {} NEW_DIR", argument(database))
}

/// A path as the argument of a command that is to be typed, or copied: as it is where a shell takes it so.
pub(crate) fn argument(path: &Path) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "/._-+:,@%=".contains(character);
    let shown = path.display().to_string();
    // What begins with a dash would be an option.
    let before = if shown.starts_with('-') { "./" } else { "" };
    if !shown.is_empty() && shown.chars().all(is_plain) {
        format!("{before}{shown}")
    } else {
        format!("'{before}{}'", shown.replace('\'', r"'\''"))
    }
}

/// Prints why something failed as programs read it, and at which line of the input, if it was one.
pub(crate) fn json_failure(code: &str, message: &str, line: Option<u64>) -> Result<(), CliError> {
    let mut error = serde_json::json!({ "code": code, "message": message });
    if let Some(line) = line {
        error["line"] = line.into();
    }
    json_line(&serde_json::json!({ "error": error }))
}

/// What another process of this program says, on the last line of its output, that it has failed of, if it has: a word
/// for programs, and in a sentence.
pub(crate) fn refusal(last: &str) -> Option<(String, String)> {
    let report: serde_json::Value = serde_json::from_str(last).ok()?;
    let said = |what: &str| report["error"][what].as_str().map(str::to_owned);
    Some((said("code").unwrap_or_default(), said("message")?))
}

/// The exit status of work that is done, when its outcome is printed: whoever prints knows it before, and a reader that
/// has gone away changes nothing. Nor does an output that takes nothing, as on a full disk, hide what was found.
pub(crate) fn told(printed: Result<(), CliError>, status: ExitCode) -> Result<ExitCode, CliError> {
    match printed {
        Err(error) if error.is_closed_pipe() => Ok(status),
        Err(error) if status != ExitCode::SUCCESS => {
            let cause = Box::new(error);
            let done = "not all is well, as the exit status says: run it again to see what it is".to_owned();
            CliError::Partial { cause, done }.report(false);
            Ok(status)
        }
        printed => printed.map(|()| status),
    }
}

/// As [`told`], of a check.
pub(crate) fn judged(printed: Result<(), CliError>, passed: bool) -> Result<ExitCode, CliError> {
    told(printed, if passed { ExitCode::SUCCESS } else { ExitCode::from(CHECK_FAILED) })
}

/// Text for a terminal, which takes orders from control characters: they are `\xNN` in it, but for ends of lines.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let is_order = |character: char| character.is_control() && character != '\n';
    if !text.contains(is_order) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    for character in text.chars() {
        if is_order(character) {
            shown.push_str(&format!("\\x{:02x}", u32::from(character)));
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// So many of what has these names where it is one, and where not: "1 entry", "2 entries".
pub(crate) fn counted(count: impl Display, one: &str, many: &str) -> String {
    let count = count.to_string();
    let noun = if count == "1" { one } else { many };
    format!("{count} {noun}")
}

/// Prints lines to standard output, as [`printable`] has them; an error, not a panic, when the reader is gone.
pub(crate) fn line(text: impl AsRef<str>) -> Result<(), CliError> {
    writeln!(io::stdout().lock(), "{}", printable(text.as_ref()))
        .map_err(CliError::io("write to standard output"))
}

/// Prints a value as JSON on one line.
pub(crate) fn json_line(value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string(value).map_err(|error| CliError::Other(error.to_string()))?;
    line(escaped(text))
}

/// JSON without control characters: `serde_json` leaves some of them in its strings as they are.
fn escaped(json: String) -> String {
    if !json.contains(char::is_control) {
        return json;
    }
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_control() {
            text.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            text.push(character);
        }
    }
    text
}

/// A path in JSON, as people are shown it: not every path is text. For `serialize_with`.
pub(crate) fn shown_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// A time as people read it: date and time of day in UTC, as ISO 8601 has them.
pub(crate) fn utc(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    // Years begin in March, so that the day that some of them have more is their last; 400 years are 146,097 days.
    let since_march_of_0 = days + 719_468;
    let (era, day) = (since_march_of_0 / 146_097, since_march_of_0 % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * day + 2) / 153;
    let day = day - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = 400 * era + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use foreshore_bench::{AbortCause, Failure};

    use super::*;

    #[test]
    fn control_characters_give_no_orders() {
        for (text, shown) in [
            ("größer\n  next: all", "größer\n  next: all"),
            ("a\u{1b}[31m\u{7}\r\t\u{9b}b\0", r"a\x1b[31m\x07\x0d\x09\x9bb\x00"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    /// Who copied a command out of an error about "my shop" was told that there is no "my".
    #[test]
    fn a_path_in_a_command_is_one_argument() {
        for (path, shown) in [
            ("shop.foreshore", "shop.foreshore"),
            ("/größe/a-b_1@2", "/größe/a-b_1@2"),
            ("my shop", "'my shop'"),
            ("$(ls); *", "'$(ls); *'"),
            ("~", "'~'"),
            ("bob's", r"'bob'\''s'"),
            ("-rf", "./-rf"),
            ("-r f", "'./-r f'"),
            ("", "''"),
        ] {
            assert_eq!(argument(Path::new(path)), shown);
        }
        assert!(after_damage(Path::new("my shop")).contains("foreshore salvage 'my shop' NEW_DIR"));
    }

    #[test]
    fn one_is_no_number_of_many() {
        let entries = [0, 1, 2, 11].map(|count| counted(count, "entry", "entries"));
        assert_eq!(entries, ["0 entries", "1 entry", "2 entries", "11 entries"]);
    }

    #[test]
    fn json_has_no_control_characters_and_stays_what_it_is() {
        let json = serde_json::json!({ "a\u{7f}": "\n\u{80}ö\u{9f}\\" });
        let text = escaped(json.to_string());
        assert!(!text.contains(char::is_control), "{text:?}");
        assert_eq!(text.parse::<serde_json::Value>().unwrap(), json, "{text}");
    }

    #[test]
    fn a_wrong_option_is_wrong_usage_whoever_meets_it() {
        for (name, value) in [("no_such", "1"), ("pool_bytes", "many")] {
            let error = || foreshore::Options::default().set(name, value).unwrap_err();
            assert_eq!(CliError::from(error()).code(), "usage", "{name}");
            let failure = Failure { cause: AbortCause::Other, source: Box::new(error()) };
            assert_eq!(CliError::Bench(failure.into()).code(), "usage", "{name}");
        }
    }

    #[test]
    fn what_a_benchmark_has_lost_is_a_failed_check() {
        let lost = CliError::Bench(Failure::inconsistent("teller has lost row 4").into());
        assert_eq!((lost.code(), lost.report(false)), ("inconsistent", ExitCode::from(CHECK_FAILED)));
        let failed = CliError::Bench(Failure::fatal("the disk is gone").into());
        assert_eq!((failed.code(), failed.report(false)), ("bench", ExitCode::from(TROUBLE)));
    }

    #[test]
    fn one_cause_has_one_code_whoever_meets_it() {
        let full = || foreshore::Error::DiskFull {
            action: "write".to_owned(),
            path: "db/data".into(),
            reason: "no space left".to_owned(),
        };
        let failure = Failure { cause: AbortCause::Other, source: Box::new(full()) };
        assert_eq!(CliError::from(full()).code(), "disk_full");
        assert_eq!(CliError::Bench(failure.into()).code(), "disk_full");
    }

    #[test]
    fn a_reader_that_has_gone_away_changes_no_status() {
        let failed = |kind: io::ErrorKind| Err(CliError::io("write to standard output")(kind.into()));
        for passed in [true, false] {
            let status = if passed { ExitCode::SUCCESS } else { ExitCode::from(CHECK_FAILED) };
            assert_eq!(judged(Ok(()), passed).unwrap(), status);
            assert_eq!(judged(failed(io::ErrorKind::BrokenPipe), passed).unwrap(), status);
        }
        judged(failed(io::ErrorKind::StorageFull), true).unwrap_err();
    }

    #[test]
    fn an_output_that_is_full_does_not_hide_what_was_found() {
        let full = Err(CliError::io("write to standard output")(io::ErrorKind::StorageFull.into()));
        assert_eq!(judged(full, false).unwrap(), ExitCode::from(CHECK_FAILED));
    }

    #[test]
    fn damage_is_found_behind_other_errors() {
        let corrupted = || foreshore::Error::Corrupted {
            path: "db".into(),
            site: foreshore::CorruptionSite::File("db/data".into()),
            detail: "it is torn".to_owned(),
        };
        let failure = |source: Box<dyn Error + Send + Sync>| {
            CliError::Bench(BenchError::Engine(Failure { cause: AbortCause::Other, source }))
        };
        let partial =
            |cause: CliError| CliError::Partial { cause: Box::new(cause), done: "it ran a while".to_owned() };
        let (status, trouble) = (ExitCode::from(CHECK_FAILED), ExitCode::from(TROUBLE));
        assert_eq!(CliError::from(corrupted()).report(false), status);
        assert_eq!(failure(Box::new(corrupted())).report(false), status);
        assert_eq!(partial(failure(Box::new(corrupted()))).report(false), status);
        assert_eq!(failure("the disk is full".into()).report(false), trouble);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_795_370_219, "2026-11-22T17:56:59Z"),
            (4_102_444_799, "2099-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), date);
        }
    }
}
