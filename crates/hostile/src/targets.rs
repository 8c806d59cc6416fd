//! What the fuzzer runs. Each function takes any bytes and must come back: with whatever result, but without a panic,
//! an endless loop, or memory without bounds. `tests/corpus.rs` runs them, on a stable compiler, over the committed
//! corpus and over mutations of it.

mod files;
mod keys;

/// A function that takes any bytes.
pub type Target = fn(&[u8]);

/// All targets, by the names of their corpora in `fuzz/corpus`.
pub const TARGETS: [(&str, Target); 6] = [
    ("page", files::page),
    ("log_record", files::log_record),
    ("log_segment", files::log_segment),
    ("control", files::control),
    ("open", files::open),
    ("key", keys::key),
];

/// Runs the target of this name.
///
/// # Panics
/// When there is none; and wherever the engine does, which is what it is run for.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    target.expect("the name of a target").1(data);
}
