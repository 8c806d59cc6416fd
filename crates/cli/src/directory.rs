//! Where the database of a run lies: in a directory that the user names, or in a temporary one.

use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process,
};

use foreshore_env::{
    random,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{file, output::CliError};

/// The exit status of a program that was interrupted, as shells have it.
const INTERRUPTED: i32 = 130;
/// How long an interrupted program tries to say so.
const TELLING: Duration = Duration::from_secs(1);

/// Whether the program is being ended by an interruption. Written by the thread that does so.
static INTERRUPTION: AtomicBool = AtomicBool::new(false);

/// Waits for the end of the program if it was interrupted: what fails then, fails because its directory is gone.
pub(crate) fn await_interruption() {
    while INTERRUPTION.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(10));
    }
}

/// An empty directory. A temporary one is removed when it is dropped, or when the program is interrupted.
pub(crate) struct Directory {
    path: PathBuf,
    temporary: bool,
}

impl Directory {
    /// The chosen directory, which must be absent or empty; or a temporary one, named after what it is for.
    pub(crate) fn choose(chosen: Option<&Path>, purpose: &str) -> Result<Directory, CliError> {
        let Some(path) = chosen else {
            let name = format!("foreshore-{purpose}-{}-{:016x}", process::id(), random::seed());
            return Ok(Directory { path: std::env::temp_dir().join(name), temporary: true });
        };
        let occupied = match fs::read_dir(path) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(CliError::io(format!("use the directory {}", path.display()))(error)),
        };
        if occupied {
            return Err(CliError::usage(
                format!("{} is not empty, and {purpose} loads its own data", path.display()),
                "name a new directory, or leave out --dir for a temporary one",
            ));
        }
        Ok(Directory { path: path.to_owned(), temporary: false })
    }

    /// A new temporary directory in `parent` or in the system's; it is made at once.
    pub(crate) fn beneath(parent: Option<&Path>, purpose: &str) -> Result<Directory, CliError> {
        let name = format!("foreshore-{purpose}-{}-{:016x}", process::id(), random::seed());
        let path = parent.map_or_else(std::env::temp_dir, Path::to_owned).join(name);
        file::make_directory(&path)?;
        Ok(Directory { path, temporary: true })
    }

    /// As [`end_when_interrupted`]. A temporary directory is removed before; of another one it is said that it is left.
    pub(crate) fn end_when_interrupted(&self, json: bool) -> Result<(), CliError> {
        let (path, temporary) = (self.path.clone(), self.temporary);
        end_when_interrupted_after(json, move || {
            if temporary {
                remove(&path);
            }
            (!temporary).then(|| path.clone())
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory that is there when the program has ended.
    pub(crate) fn kept(&self) -> Option<&Path> {
        (!self.temporary).then_some(self.path.as_path())
    }

    /// Keeps a temporary directory, too.
    pub(crate) fn keep(&mut self) {
        self.temporary = false;
    }
}

/// Lets an interruption (Ctrl-C, a request to terminate, or a hangup, also where that was to be ignored) end the
/// program with an error, which is an object, too, for a program (`json`). Once in a program.
pub(crate) fn end_when_interrupted(json: bool) -> Result<(), CliError> {
    end_when_interrupted_after(json, || None)
}

/// `tidy`: what is done before; it gives the directory that is left.
fn end_when_interrupted_after(
    json: bool,
    mut tidy: impl FnMut() -> Option<PathBuf> + Send + 'static,
) -> Result<(), CliError> {
    ctrlc::set_handler(move || {
        // Release; the partner is the load by whoever ends the program meanwhile.
        INTERRUPTION.store(true, Ordering::Release);
        let left = tidy();
        let telling = thread::spawn(move || {
            if io::stderr().is_terminal() {
                // The line of a progress bar ends here. If nobody can read it, nobody misses it.
                let _ = writeln!(io::stderr().lock());
            }
            interrupted(left.as_ref()).report(json);
        });
        // Whoever reads it may have stopped to, with somebody else in the middle of a line.
        let begun = Instant::now();
        while !telling.is_finished() && begun.elapsed() < TELLING {
            thread::sleep(Duration::from_millis(1));
        }
        process::exit(INTERRUPTED);
    })
    .map_err(|error| CliError::Other(format!("cannot listen for Ctrl-C: {error}")))
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.temporary {
            remove(&self.path);
        }
    }
}

/// What is told of an interruption that leaves this directory.
fn interrupted(left: Option<&PathBuf>) -> CliError {
    match left {
        Some(path) => CliError::Partial {
            cause: Box::new(CliError::Interrupted),
            done: format!("what is in {} stays there; remove it before the next run", path.display()),
        },
        None => CliError::Interrupted,
    }
}

/// Removes what is there. Somebody may still be making files in it: a few attempts.
fn remove(path: &Path) {
    for _ in 0..10 {
        if !fs::remove_dir_all(path).is_err_and(|error| error.kind() == io::ErrorKind::DirectoryNotEmpty) {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_directory_is_removed_and_an_occupied_one_refused() {
        let directory = Directory::choose(None, "test").unwrap();
        let path = directory.path.clone();
        fs::create_dir(&path).unwrap();
        fs::write(path.join("data"), "x").unwrap();
        let occupied = Directory::choose(Some(&path), "test");
        assert!(matches!(occupied, Err(CliError::Usage { .. })));
        drop(directory);
        assert!(!path.exists());
        let absent = Directory::choose(Some(&path), "test").unwrap();
        assert_eq!(absent.kept(), Some(path.as_path()));
    }

    #[test]
    fn a_temporary_directory_may_be_kept() {
        let mut directory = Directory::choose(None, "test").unwrap();
        fs::create_dir(directory.path()).unwrap();
        directory.keep();
        let path = directory.kept().unwrap().to_owned();
        drop(directory);
        assert!(path.exists());
        fs::remove_dir(path).unwrap();
    }
}
