//! Where the simulating program is.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::output::{CliError, line};

/// Where `cargo sim` leaves it, in a checkout.
const PLACE: &str = "target/sim/release/foreshore";

/// The program of `--simulator`; or that of the checkout that this is, which is built if it is missing.
pub(super) fn find(named: Option<&Path>, tell: bool) -> Result<PathBuf, CliError> {
    if let Some(path) = named {
        let program = path.canonicalize().map_err(CliError::io(format!("use {}", path.display())))?;
        return check(program);
    }
    let here = PathBuf::from(PLACE);
    if let Ok(program) = here.canonicalize() {
        return check(program);
    }
    // Beside this program, whose folder is target/release or target/debug.
    let beside =
        env::current_exe().ok().and_then(|own| Some(own.parent()?.parent()?.join("sim/release/foreshore")));
    if let Some(program) = beside.and_then(|path| path.canonicalize().ok()) {
        return check(program);
    }
    if Path::new(".cargo/config.toml").is_file() && Path::new("crates/cli/Cargo.toml").is_file() {
        return build(&here, tell);
    }
    Err(CliError::usage(
        "the simulating program is not here",
        "run this in a checkout of the repository, where `cargo sim --version` makes it; or name it: --simulator PATH",
    ))
}

/// Builds it in the checkout that is the working directory.
fn build(program: &Path, tell: bool) -> Result<PathBuf, CliError> {
    if tell {
        line("building the simulating program: cargo sim --version")?;
    }
    let built = Command::new("cargo")
        .args(["sim", "--version"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(CliError::io("run cargo"))?;
    match program.canonicalize() {
        Ok(program) if built.success() => Ok(program),
        _ => Err(CliError::usage(
            "the simulating program could not be built",
            "see what is wrong: cargo sim --version",
        )),
    }
}

/// Refuses a program that does not simulate.
fn check(program: PathBuf) -> Result<PathBuf, CliError> {
    let told =
        Command::new(&program).args(["simulate", "--seeds", "0", "--json"]).stdin(Stdio::null()).output();
    let told = told.map_err(CliError::io(format!("run {}", program.display())))?;
    if told.status.success() {
        return Ok(program);
    }
    Err(CliError::usage(
        format!("{} does not simulate", program.display()),
        "name the program that `cargo sim --version` makes: target/sim/release/foreshore",
    ))
}
