//! Where the database of a run lies: in a directory that the user names, or in a temporary one.

use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process,
};

use foreshore_env::{
    random,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{file, output::CliError};

/// The exit status of a program that was interrupted, as shells have it.
pub(crate) const INTERRUPTED: i32 = 130;
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
    /// Whoever looks into the directory and whoever removes it agree by this on who came first.
    fate: Arc<Mutex<Fate>>,
}

/// What becomes of a directory when the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is removed.
    Temporary,
    /// It stays, as the user has named it.
    Named,
    /// It stays: something was found.
    Evidence,
    /// An interruption has begun to remove it.
    Ending,
}

impl Fate {
    /// That something was found in the directory; whether that was before anything of it was removed.
    fn found(&mut self) -> bool {
        if matches!(*self, Fate::Temporary | Fate::Named) {
            *self = Fate::Evidence;
        }
        *self != Fate::Ending
    }

    /// That an interruption ends the program, which may remove the directory only if this gives [`Fate::Ending`].
    fn interrupted(&mut self) -> Fate {
        if *self == Fate::Temporary {
            *self = Fate::Ending;
        }
        *self
    }
}

impl Directory {
    fn new(path: PathBuf, fate: Fate) -> Directory {
        Directory { path, fate: Arc::new(Mutex::new(fate)) }
    }

    /// The chosen directory, which must be absent or empty; or a temporary one, named after what it is for.
    pub(crate) fn choose(chosen: Option<&Path>, purpose: &str) -> Result<Directory, CliError> {
        let Some(path) = chosen else {
            let name = format!("foreshore-{purpose}-{}-{:016x}", process::id(), random::seed());
            return Ok(Directory::new(std::env::temp_dir().join(name), Fate::Temporary));
        };
        let complaint = match fs::read_dir(path).map(|mut entries| entries.next().is_some()) {
            Ok(true) => Some(format!("is not empty, and {purpose} loads its own data")),
            Ok(false) => None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                Some("is not a directory".to_owned())
            }
            Err(error) => return Err(CliError::io(format!("use the directory {}", path.display()))(error)),
        };
        if let Some(complaint) = complaint {
            return Err(CliError::usage(
                format!("{} {complaint}", path.display()),
                "name a new directory, or leave out --dir for a temporary one",
            ));
        }
        Ok(Directory::new(path.to_owned(), Fate::Named))
    }

    /// A new temporary directory in `parent` or in the system's; it is made at once.
    pub(crate) fn beneath(parent: Option<&Path>, purpose: &str) -> Result<Directory, CliError> {
        let name = format!("foreshore-{purpose}-{}-{:016x}", process::id(), random::seed());
        let path = parent.map_or_else(std::env::temp_dir, Path::to_owned).join(name);
        file::make_directory(&path)?;
        Ok(Directory::new(path, Fate::Temporary))
    }

    /// As [`end_when_interrupted`]. A temporary directory is removed before, unless it holds what was found; of any
    /// other it is said that it is left.
    pub(crate) fn end_when_interrupted(&self, json: bool) -> Result<(), CliError> {
        self.end_when_interrupted_after(|| (), reporting(json))
    }

    /// The same, when `end` has ended who works in the directory; `tell` tells it.
    pub(crate) fn end_when_interrupted_after(
        &self,
        mut end: impl FnMut() + Send + 'static,
        tell: impl FnMut(&CliError) + Clone + Send + 'static,
    ) -> Result<(), CliError> {
        let (path, fate) = (self.path.clone(), Arc::clone(&self.fate));
        let tidy = move || {
            end();
            interrupted_in(&path, &fate)
        };
        end_when_interrupted_after(tidy, tell)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory that is there when the program has ended.
    pub(crate) fn kept(&self) -> Option<&Path> {
        matches!(*self.fate.lock(), Fate::Named | Fate::Evidence).then_some(self.path.as_path())
    }

    /// Keeps a temporary directory, too, as evidence of what was found: no interruption removes it from now on. If one
    /// has begun to, what was found may be that alone: then this does not return, and the program ends.
    pub(crate) fn keep(&self) {
        if self.fate.lock().found() {
            return;
        }
        loop {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Lets an interruption (Ctrl-C, a request to terminate, or a hangup, also where that was to be ignored) end the
/// program with an error, which is an object, too, for a program (`json`). Once in a program.
pub(crate) fn end_when_interrupted(json: bool) -> Result<(), CliError> {
    end_when_interrupted_after(|| CliError::Interrupted, reporting(json))
}

/// Tells what fails as all subcommands do.
fn reporting(json: bool) -> impl FnMut(&CliError) + Clone + Send + 'static {
    move |error| {
        error.report(json);
    }
}

/// `tidy`: what is done before; it gives what is told.
fn end_when_interrupted_after(
    mut tidy: impl FnMut() -> CliError + Send + 'static,
    tell: impl FnMut(&CliError) + Clone + Send + 'static,
) -> Result<(), CliError> {
    ctrlc::set_handler(move || {
        // Release; the partner is the load by whoever ends the program meanwhile.
        INTERRUPTION.store(true, Ordering::Release);
        let (told, mut tell) = (tidy(), tell.clone());
        let tell = move || {
            if io::stderr().is_terminal() {
                // The line of a progress bar ends here. If nobody can read it, nobody misses it.
                let _ = writeln!(io::stderr().lock());
            }
            tell(&told);
        };
        // Whoever reads it may have stopped to, with somebody else in the middle of a line. Without a thread nobody is
        // told: the status says it.
        let telling = thread::Builder::new().spawn(tell);
        let begun = Instant::now();
        while telling.as_ref().is_ok_and(|telling| !telling.is_finished()) && begun.elapsed() < TELLING {
            thread::sleep(Duration::from_millis(1));
        }
        // Whoever was about to open what was removed has made it anew.
        let _ = tidy();
        process::exit(INTERRUPTED);
    })
    .map_err(|error| CliError::Other(format!("cannot listen for Ctrl-C: {error}")))
}

impl Drop for Directory {
    fn drop(&mut self) {
        if *self.fate.lock() == Fate::Temporary {
            remove(&self.path);
        }
    }
}

/// What an interruption does with a directory, and tells of it.
fn interrupted_in(path: &Path, fate: &Mutex<Fate>) -> CliError {
    // The lock is released before anything is removed: from now on nothing that is found counts.
    let fate = fate.lock().interrupted();
    let left = |done| CliError::Partial { cause: Box::new(CliError::Interrupted), done };
    match fate {
        Fate::Temporary | Fate::Ending => {
            remove(path);
            CliError::Interrupted
        }
        Fate::Named => {
            left(format!("what is in {} stays there; remove it before the next run", path.display()))
        }
        Fate::Evidence if path.exists() => {
            left(format!("something was found; what there is of the evidence stays in {}", path.display()))
        }
        Fate::Evidence => left("something was found".to_owned()),
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
        let directory = Directory::choose(None, "test").unwrap();
        fs::create_dir(directory.path()).unwrap();
        directory.keep();
        let path = directory.kept().unwrap().to_owned();
        drop(directory);
        assert!(path.exists());
        fs::remove_dir(path).unwrap();
    }

    #[test]
    fn an_interruption_after_a_finding_leaves_the_evidence() {
        let directory = Directory::choose(None, "test").unwrap();
        fs::create_dir(directory.path()).unwrap();
        directory.keep();
        let told = interrupted_in(&directory.path, &directory.fate).to_string();
        let path = directory.kept().unwrap();
        assert!(path.exists() && told.contains(&format!("stays in {}", path.display())), "{told}");
        fs::remove_dir(path).unwrap();
    }

    #[test]
    fn what_is_found_after_an_interruption_does_not_count() {
        let directory = Directory::choose(None, "test").unwrap();
        fs::create_dir(directory.path()).unwrap();
        let told = interrupted_in(&directory.path, &directory.fate);
        assert!(matches!(told, CliError::Interrupted) && !directory.path.exists());
        assert!(!directory.fate.lock().found() && directory.kept().is_none());
        let named = Directory::choose(Some(directory.path()), "test").unwrap();
        assert!(matches!(interrupted_in(&named.path, &named.fate), CliError::Partial { .. }));
        assert!(named.fate.lock().found(), "nothing of it was removed");
    }
}
