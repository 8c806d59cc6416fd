//! Where the simulating program is.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use foreshore_env::{sync::atomic::AtomicBool, time::Duration};

use super::process;
use crate::{
    COMMIT,
    output::{CliError, line},
};

/// Where `cargo sim` leaves it, in a checkout.
const PLACE: &str = "target/sim/release/foreshore";

/// The longest that a simulation of a moment takes.
const LONGEST: Duration = Duration::from_secs(60);

/// The simulating program.
pub(super) struct Simulator {
    pub(super) path: PathBuf,
    /// The commit that it is built from.
    pub(super) commit: String,
}

/// The program of `--simulator`, whatever it is built from; or that of the checkout that this is, which is built if it
/// is missing or not of the same sources as this program.
pub(super) fn find(named: Option<&Path>, tell: bool) -> Result<Simulator, CliError> {
    if let Some(path) = named {
        let program = path.canonicalize().map_err(CliError::io(format!("use {}", path.display())))?;
        return check(program);
    }
    let here = PathBuf::from(PLACE);
    let in_checkout =
        Path::new(".cargo/config.toml").is_file() && Path::new("crates/cli/Cargo.toml").is_file();
    // Else beside this program, whose folder is target/release or target/debug.
    let beside = || {
        env::current_exe().ok().and_then(|own| Some(own.parent()?.parent()?.join("sim/release/foreshore")))
    };
    let found = here.canonicalize().ok().or_else(|| beside()?.canonicalize().ok());
    let found = found.map(check).transpose()?;
    match found {
        Some(simulator) if simulator.commit == COMMIT => Ok(simulator),
        _ if in_checkout => build(&here, tell).and_then(same_commit),
        Some(simulator) => same_commit(simulator),
        None => Err(CliError::usage(
            "the simulating program is not here",
            "run this in a checkout of the repository, where `cargo sim --version` makes it; or name it: --simulator PATH",
        )),
    }
}

/// Refuses a program of other sources: its figures and those of this program would stand beside each other as if of
/// one.
fn same_commit(simulator: Simulator) -> Result<Simulator, CliError> {
    if simulator.commit == COMMIT {
        return Ok(simulator);
    }
    let Simulator { path, commit } = simulator;
    Err(CliError::usage(
        format!("{} is built from commit {commit}, this program from {COMMIT}", path.display()),
        "build both from one: cargo build --release, and cargo sim --version; or name the one that you mean: --simulator PATH",
    ))
}

/// Builds it in the checkout that is the working directory.
fn build(program: &Path, tell: bool) -> Result<Simulator, CliError> {
    if tell {
        line("building the simulating program: cargo sim --version")?;
    }
    let built = Command::new("cargo")
        .args(["sim", "--version"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|error| {
            CliError::usage(
                format!("cannot run cargo: {error}"),
                "install it, or name a program that simulates: --simulator PATH",
            )
        })?;
    match program.canonicalize() {
        Ok(program) if built.success() => check(program),
        _ => Err(CliError::usage(
            "the simulating program could not be built",
            "see what is wrong: cargo sim --version",
        )),
    }
}

/// Refuses a program that does not simulate.
fn check(path: PathBuf) -> Result<Simulator, CliError> {
    let words = ["simulate", "--seeds", "0", "--json"];
    let told = process::run(&path, &words, false, &env::temp_dir(), LONGEST, &AtomicBool::new(false));
    // One life and what came of it: any other program that ends well has not told that.
    let why = match told {
        Ok(ended) if ended.answer.pointer("/seed").is_some() => None,
        Ok(_) => Some("it told of something else".to_owned()),
        // What it would do next is not what the user does.
        Err(why) => Some(why.lines().next().unwrap_or_default().to_owned()),
    };
    if let Some(why) = why {
        return Err(CliError::usage(
            format!("{} does not simulate: {why}", path.display()),
            "name the program that `cargo sim --version` makes: target/sim/release/foreshore",
        ));
    }
    let version = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
    let version = version.map_err(CliError::io(format!("run {}", path.display())))?;
    let commit = commit_in(&String::from_utf8_lossy(&version.stdout)).to_owned();
    Ok(Simulator { path, commit })
}

/// The commit in what `--version` prints.
fn commit_in(version: &str) -> &str {
    let told = version.trim_end().rsplit_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    told.unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_is_told_by_the_version() {
        assert_eq!(commit_in("foreshore 0.1.0 (0123456789ab+89abcdef)\n"), "0123456789ab+89abcdef");
        assert_eq!(commit_in("foreshore 0.1.0\n"), "unknown");
    }

    #[test]
    fn a_program_of_other_sources_is_refused() {
        let simulator = |commit: &str| Simulator { path: PathBuf::from("sim"), commit: commit.to_owned() };
        assert!(same_commit(simulator(COMMIT)).is_ok());
        let refused = same_commit(simulator("0123456789ab")).err().map(|error| error.to_string());
        let told = refused.unwrap_or_default();
        assert!(told.contains("0123456789ab") && told.contains(COMMIT), "{told}");
    }
}
