//! More processes of this program: its file, and that they end with who has started them.

use std::{
    env, fs,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
// It waits outside of all simulations.
#[cfg(foreshore_sim)]
use std::thread;

#[cfg(not(foreshore_sim))]
use foreshore_env::thread;

/// In the environment of a process that is to end with who has started it.
pub(crate) const LEASHED: &str = "FORESHORE_ENDS_WITH_ITS_INPUT";

/// Where Linux has the file that a process runs, whatever has become of its name.
const RUNNING: &str = "/proc/self/exe";

/// This program, for another process of it: its file as it is called, unless that is gone or another one by now. What
/// takes hours goes on as it began where the program is built anew meanwhile.
pub(crate) fn program() -> io::Result<PathBuf> {
    let named = env::current_exe()?;
    Ok(running_unless(&named).map_or(named, Path::to_owned))
}

/// The file that runs, if the system has it apart and this one is not it.
fn running_unless(named: &Path) -> Option<&'static Path> {
    let running = Path::new(RUNNING);
    let file = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let own = file(running)?;
    (file(named) != Some(own)).then_some(running)
}

/// Lets a process of this program end when the pipe that it gets as its standard input does: with whoever keeps that,
/// however he ends. A signal that is sent to him alone, as by a supervisor, does not come to it.
pub(crate) fn leash(command: &mut Command) -> &mut Command {
    command.env(LEASHED, "1").stdin(Stdio::piped())
}

/// Ends this process with who has started it, if he asks for that.
pub(crate) fn end_with_parent() -> io::Result<()> {
    if env::var_os(LEASHED).is_none() {
        return Ok(());
    }
    let await_parent = || {
        // Nothing is ever written there.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(i32::from(crate::output::TROUBLE));
    };
    thread::Builder::new().spawn(await_parent).map(drop)
}

#[cfg(all(test, target_os = "linux", not(foreshore_sim)))]
mod tests {
    use super::*;

    #[test]
    fn what_runs_is_found_also_where_its_name_is_gone_or_another_s() {
        let directory = tempfile::tempdir().unwrap();
        let other = directory.path().join("foreshore");
        assert_eq!(running_unless(&other), Some(Path::new(RUNNING)));
        fs::write(&other, "another").unwrap();
        assert_eq!(running_unless(&other), Some(Path::new(RUNNING)));
        assert_eq!(running_unless(&env::current_exe().unwrap()), None);
        assert_eq!(program().unwrap(), env::current_exe().unwrap());
    }
}
