//! Chores of the repository: `cargo xtask tidy` checks what compiler, rustfmt and clippy cannot see.

mod repository;
mod source;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use repository::Repository;

const USAGE: &str = "\
usage: cargo xtask tidy             check the house rules; exit status 1 if any is broken
       cargo xtask tidy --shrink    lower crates/xtask/ratchet.txt to the present sizes first";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["tidy"] => tidy(false),
        ["tidy", "--shrink"] => tidy(true),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn tidy(shrink: bool) -> ExitCode {
    let root = root();
    let result = Repository::read(&root).and_then(|mut repository| {
        if shrink {
            tidy::sizes::shrink(&root, &mut repository)?;
        }
        Ok(repository)
    });
    let repository = match result {
        Ok(repository) => repository,
        Err(error) => {
            eprintln!("tidy: {error}");
            return ExitCode::from(2);
        }
    };
    let problems = tidy::check(&repository);
    for problem in &problems {
        eprintln!("{problem}");
    }
    if problems.is_empty() {
        println!(
            "tidy: {} crates, {} source files, all in order",
            repository.crates.len(),
            repository.sources().count()
        );
        ExitCode::SUCCESS
    } else {
        eprintln!("tidy: {} problems", problems.len());
        ExitCode::FAILURE
    }
}

/// The workspace's folder: two above this package.
fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    package.ancestors().nth(2).unwrap_or(Path::new(".")).to_path_buf()
}
