//! The file of this program, to start more processes of it.

use std::{
    env, fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

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
