//! What the fuzzer runs. Each function takes any bytes and must come back: with whatever result, but without a panic,
//! an endless loop, or memory without bounds. `tests/corpus.rs` runs them, on a stable compiler, over the committed
//! corpus and over mutations of it.

use std::path::PathBuf;

mod exercise;
mod files;
mod keys;

use exercise::exercise;
use files::Case;

/// A function that takes any bytes.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// Makes a damaged database of them, which is then used.
    Files(fn(&[u8]) -> Case),
    /// Does with them what there is to do.
    Bytes(fn(&[u8])),
}

/// All targets, by the names of their corpora in `fuzz/corpus`.
const TARGETS: [(&str, Target); 8] = [
    ("page", Target::Files(files::page)),
    ("log_record", Target::Files(files::log_record)),
    ("log_kinds", Target::Files(files::log_kinds)),
    ("log_segment", Target::Files(files::log_segment)),
    ("page_and_log", Target::Files(files::page_and_log)),
    ("control", Target::Files(files::control)),
    ("open", Target::Files(files::open)),
    ("key", Target::Bytes(keys::key)),
];

fn target(name: &str) -> Target {
    TARGETS.iter().find(|(known, _)| *known == name).expect("the name of a target").1
}

/// The names of all targets.
pub fn names() -> impl Iterator<Item = &'static str> {
    TARGETS.iter().map(|(name, _)| *name)
}

/// Runs the target of this name.
///
/// # Panics
/// When there is none; and wherever the engine does, which is what it is run for.
pub fn run(name: &str, data: &[u8]) {
    match target(name) {
        Target::Files(damage) => drop(exercise(&damage(data).disk)),
        Target::Bytes(run) => run(data),
    }
}

/// A file of a sample, and what a target makes of it.
#[derive(Clone, Debug)]
pub struct Change {
    /// The file.
    pub file: PathBuf,
    /// What was in it.
    pub before: Vec<u8>,
    /// What is in it.
    pub after: Vec<u8>,
}

/// The files that the target of this name changes if it is given these bytes, before anybody opens the database; `None`
/// for one that has to do with no files.
///
/// # Panics
/// When there is no such target.
pub fn changes(name: &str, data: &[u8]) -> Option<Vec<Change>> {
    let Target::Files(damage) = target(name) else { return None };
    let Case { template, disk } = damage(data);
    let before = &template.sample.disk;
    let changes = before.files().into_iter().map(|file| Change {
        before: before.read_file(&file).expect("a file of the sample"),
        after: disk.read_file(&file).expect("a file of its copy"),
        file,
    });
    Some(changes.filter(|change| change.before != change.after).collect())
}
