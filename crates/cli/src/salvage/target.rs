//! Where what is saved goes. Until it is whole, it has another name.

use std::{
    ffi::OsString,
    fmt::Display,
    fs,
    io::{self, BufWriter, Write},
    ops::ControlFlow,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
};

use foreshore::{Database, Salvage, SalvageTable, SalvagedRows};
use foreshore_env::{
    disk::{Disk, DiskFile, OpenMode, RealDisk},
    sync::Arc,
};
use serde_json::Value;

use crate::{
    dump::{cell::Kind, write_end, write_entry, write_header, write_no_tables},
    load::sink::Sink,
    output::CliError,
};

/// Entries that are committed at a time.
const BATCH_ENTRIES: usize = 1000;
/// The end of the name of what is not whole yet.
const INCOMPLETE: &str = ".incomplete";

/// Where a database, or a file, shall be when it is whole.
pub(super) enum Place {
    /// Whatever standard output leads to.
    Stdout,
    Named {
        whole: PathBuf,
        /// Its name until then.
        part: PathBuf,
        /// A file of JSON lines.
        lines: bool,
    },
}

impl Place {
    /// The place that was named, at which there is nothing yet; but a directory may be there, empty. The damaged
    /// database may have the name that it has until it is whole: nobody is told to remove that.
    pub(super) fn choose(target: &Path, lines: bool, damaged: &Path) -> Result<Place, CliError> {
        if lines && target == Path::new("-") {
            return if leads_nowhere() {
                Err(CliError::usage(
                    "standard output is closed or leads nowhere, and nothing would be saved",
                    "name a file instead of -",
                ))
            } else {
                Ok(Place::Stdout)
            };
        }
        let whole = new_place(target, lines)?;
        let Some(name) = whole.file_name() else {
            return Err(CliError::usage(format!("{} names nothing", target.display()), "name a new place"));
        };
        let mut part = OsString::from(name);
        part.push(INCOMPLETE);
        let part = whole.with_file_name(part);
        refuse_taken(&part, damaged)?;
        Ok(Place::Named { whole, part, lines })
    }

    /// Lets it be filled, and gives it its name.
    pub(super) fn fill<R>(
        &self,
        fill: impl FnOnce(&mut Target) -> Result<R, CliError>,
    ) -> Result<R, CliError> {
        let Place::Named { whole, part, lines } = self else {
            let mut target = Target::lines(Box::new(io::stdout()), "standard output");
            let filled = fill(&mut target)?;
            target.finish()?;
            return Ok(filled);
        };
        let left = |cause: CliError, done: String| {
            if fs::symlink_metadata(part).is_err() {
                return cause;
            }
            CliError::Partial { cause: Box::new(cause), done }
        };
        let filled = fill_part(part, *lines, fill).map_err(|cause| {
            let part = part.display();
            left(cause, format!("what was saved until then is in {part}; remove it before you try again"))
        })?;
        // Whatever fails now, everything is saved.
        if *lines && fs::symlink_metadata(whole).is_ok() {
            let text = format!("{} was created meanwhile", whole.display());
            return Err(CliError::usage(text, format!("{} is whole: give it another name", part.display())));
        }
        give_name(part, whole)
            .map_err(|cause| left(cause, format!("{} is whole: give it its name", part.display())))?;
        Ok(filled)
    }
}

/// The path of a file that is not there, or of a directory that is absent or empty.
fn new_place(target: &Path, lines: bool) -> Result<PathBuf, CliError> {
    let trouble = |error: io::Error| match error.kind() {
        io::ErrorKind::NotADirectory if !lines => CliError::usage(
            format!("{} is not a directory", target.display()),
            "name a directory that is absent or empty",
        ),
        _ => CliError::io(format!("use {}", target.display()))(error),
    };
    match fs::symlink_metadata(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(target.to_owned()),
        Err(error) => return Err(trouble(error)),
        Ok(_) if lines => {
            return Err(CliError::usage(
                format!("{} is there already, and is not written over", target.display()),
                "name a file that is absent",
            ));
        }
        Ok(_) => {}
    }
    if fs::read_dir(target).map_err(trouble)?.next().is_some() {
        return Err(CliError::usage(
            format!(
                "{} is not empty, and what is saved must not be mixed with other things",
                target.display()
            ),
            "name a directory that is absent or empty",
        ));
    }
    // A link to it stays.
    let whole = fs::canonicalize(target).map_err(trouble)?;
    if std::env::current_dir().is_ok_and(|current| current == whole) {
        return Err(CliError::usage(
            "you are in that directory, which would be replaced by another",
            "name a directory that is absent",
        ));
    }
    Ok(whole)
}

/// Refuses the name that something has already that shall be the name of what is saved, until that is whole.
fn refuse_taken(part: &Path, damaged: &Path) -> Result<(), CliError> {
    if matches!(RealDisk.lies_in(part, damaged), Ok(true)) {
        return Err(CliError::usage(
            format!(
                "{} is the damaged database, and what is saved has that name until it is whole",
                part.display()
            ),
            "name another place",
        ));
    }
    if fs::symlink_metadata(part).is_ok() {
        return Err(CliError::usage(
            format!(
                "{} exists: a salvage that was interrupted has left it, or one is running",
                part.display()
            ),
            "if none is running, remove it and try again, or name another place",
        ));
    }
    Ok(())
}

/// Makes what is to be saved, lets it be filled, and sees to it that it is durable.
fn fill_part<R>(
    part: &Path,
    lines: bool,
    fill: impl FnOnce(&mut Target) -> Result<R, CliError>,
) -> Result<R, CliError> {
    let mut target = if lines { new_file(part)? } else { Target::Database(Database::open(part)?) };
    let filled = fill(&mut target)?;
    target.finish()?;
    Ok(filled)
}

fn give_name(part: &Path, whole: &Path) -> Result<(), CliError> {
    let named = RealDisk.rename(part, whole).and_then(|()| {
        let parent = whole.parent().filter(|parent| !parent.as_os_str().is_empty());
        RealDisk.sync_directory(parent.unwrap_or(Path::new(".")))
    });
    named.map_err(CliError::io(format!("call what is saved {}", whole.display())))
}

/// Whether standard output is the null device: that is also what a closed one has become when the program begins.
fn leads_nowhere() -> bool {
    #[allow(clippy::disallowed_types, reason = "standard output, of which nothing is read or written here")]
    let out = io::stdout().as_fd().try_clone_to_owned().map(fs::File::from);
    let device = |found: io::Result<fs::Metadata>| found.ok().map(|found| found.rdev()).filter(|id| *id != 0);
    let null = device(fs::metadata("/dev/null"));
    null.is_some() && device(out.and_then(|out| out.metadata())) == null
}

/// A new file, for its owner alone: the records may be secret.
fn new_file(path: &Path) -> Result<Target, CliError> {
    let file = RealDisk.open(path, OpenMode::CreateNew);
    let file = file.map_err(CliError::io(format!("make the file {}", path.display())))?;
    Ok(Target::lines(Box::new(NewFile { file, end: 0 }), path.display()))
}

/// A file that is written from its beginning to its end.
struct NewFile {
    file: Arc<dyn DiskFile>,
    end: u64,
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}

/// Where records go.
pub(super) enum Target {
    Database(Database),
    Lines {
        out: BufWriter<Box<dyn Write>>,
        /// What is attempted with each write.
        action: String,
    },
}

impl Target {
    fn lines(out: Box<dyn Write>, name: impl Display) -> Target {
        Target::Lines { out: BufWriter::with_capacity(64 << 10, out), action: format!("write to {name}") }
    }

    /// Writes that there are no tables.
    pub(super) fn save_nothing(&mut self) -> Result<(), CliError> {
        match self {
            Target::Database(_) => Ok(()),
            Target::Lines { out, action } => write_no_tables(out).map_err(CliError::io(action.clone())),
        }
    }

    /// Writes what can be read of a table, behind which so many others are left.
    pub(super) fn save(
        &mut self,
        salvage: &Salvage,
        table: &SalvageTable,
        tables_left: u64,
    ) -> Result<SalvagedRows, CliError> {
        let (key_type, value_type) = match &table.types {
            Some((key, value)) => (key.as_str(), value.as_str()),
            None => ("bytes", "bytes"),
        };
        let mut failure = None;
        let mut note = |result: Result<(), CliError>| match result {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        };
        let rows = match self {
            Target::Database(db) => {
                let mut sink = Sink::new(|| Ok(db.clone()), BATCH_ENTRIES, true);
                sink.begin_table(&table.name, key_type, value_type)?;
                let mut number = 0;
                let rows = salvage.rows(table, |key, value| {
                    number += 1;
                    note(sink.entry(number, key.to_vec(), value.to_vec()))
                })?;
                sink.finish()?;
                rows
            }
            Target::Lines { out, action } => {
                let failed = |source| CliError::Io { action: action.clone(), source };
                write_header(out, &table.name, key_type, value_type).map_err(failed)?;
                let (keys, values) = (Kind::of(key_type), Kind::of(value_type));
                let json = |key: &[u8], value: &[u8]| -> (Value, Value) {
                    (keys.key_to_json(key), values.value_to_json(value))
                };
                let rows = salvage.rows(table, |key, value| {
                    let (key, value) = json(key, value);
                    note(write_entry(out, key, value).map_err(failed))
                })?;
                if failure.is_none() {
                    write_end(out, &table.name, rows.rows, tables_left).map_err(failed)?;
                }
                rows
            }
        };
        failure.map_or(Ok(rows), Err)
    }

    /// Sees to it that what was written is durable.
    fn finish(self) -> Result<(), CliError> {
        match self {
            Target::Database(db) => Ok(db.close()?),
            Target::Lines { mut out, action } => out.flush().map_err(CliError::io(action)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody is told to remove what is all that could be saved.
    #[test]
    fn what_is_whole_and_has_no_name_yet_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for lines in [false, true] {
            let place = Place::choose(&path("saved"), lines, &path("db")).unwrap();
            let failed = place.fill(|_| -> Result<(), CliError> { Err(CliError::Other("full".to_owned())) });
            let said = failed.unwrap_err().to_string();
            assert!(said.ends_with("saved.incomplete; remove it before you try again"), "{said}");
            let part = path("saved.incomplete");
            if lines {
                fs::remove_file(part).unwrap()
            } else {
                fs::remove_dir_all(part).unwrap()
            }

            // Something else takes the name.
            let failed = place.fill(|_| {
                fs::create_dir(path("saved")).and_then(|()| fs::write(path("saved/letter"), "dear")).unwrap();
                Ok(())
            });
            let said = failed.unwrap_err().to_string();
            assert!(said.contains("saved.incomplete is whole: give it "), "{said}");
            assert!(!said.contains("remove") && path("saved.incomplete").exists(), "{said}");
            fs::remove_dir_all(path("saved")).unwrap();
            let part = path("saved.incomplete");
            if lines { fs::remove_file(part).unwrap() } else { fs::remove_dir_all(part).unwrap() }
        }
    }
}
