//! Files stay small: 400 lines without their tests as a rule, 800 at most. What lies between is listed in the ratchet
//! with its size, and may only shrink.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

use super::Problem;
use crate::repository::{RATCHET, Repository};

const USUAL: usize = 400;
const LARGEST: usize = 800;

pub(super) fn check(repository: &Repository, problems: &mut Vec<Problem>) {
    let (listed, mut wrong) = parse(&repository.ratchet);
    problems.append(&mut wrong);
    for source in repository.sources() {
        let size = source.size();
        match listed.get(source.path.as_str()) {
            _ if size > LARGEST => {
                let message = format!("{size} lines without tests, more than {LARGEST}; split it");
                problems.push(Problem::new(&source.path, 0, message));
            }
            Some(&(limit, _)) if size > limit => {
                let message = format!(
                    "has grown from {limit} to {size} lines without tests; split it, or make room in it"
                );
                problems.push(Problem::new(&source.path, 0, message));
            }
            Some(&(limit, line)) if size < limit => {
                let message =
                    format!("{} has shrunk to {size} lines; run `cargo xtask tidy --shrink`", source.path);
                problems.push(Problem::new(RATCHET, line, message));
            }
            None if size > USUAL => {
                let advice = format!(
                    "split it, or, if that makes it worse, add `{} {size}` to {RATCHET}",
                    source.path
                );
                problems.push(Problem::new(&source.path, 0, format!("{size} lines without tests; {advice}")));
            }
            _ => {}
        }
    }
    for (path, (_, line)) in listed {
        if !repository.sources().any(|source| source.path == path) {
            let message = format!("{path} is gone; run `cargo xtask tidy --shrink`");
            problems.push(Problem::new(RATCHET, line, message));
        }
    }
}

/// Lowers the ratchet to the present sizes. Adds nothing and raises nothing.
pub(crate) fn shrink(root: &Path, repository: &mut Repository) -> io::Result<()> {
    repository.ratchet = shrunk(repository);
    fs::write(root.join(RATCHET), &repository.ratchet)
}

/// The ratchet as small as the files allow.
fn shrunk(repository: &Repository) -> String {
    let (listed, _) = parse(&repository.ratchet);
    let comments = repository.ratchet.lines().take_while(|line| line.starts_with('#'));
    let mut text = comments.fold(String::new(), |text, line| text + line + "\n");
    for (path, (limit, _)) in listed {
        if let Some(source) = repository.sources().find(|source| source.path == path)
            && source.size() > USUAL
        {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{path} {}", limit.min(source.size()));
        }
    }
    text
}

/// The listed files with limit and line number, and what cannot be read.
fn parse(ratchet: &str) -> (BTreeMap<&str, (usize, usize)>, Vec<Problem>) {
    let mut listed = BTreeMap::new();
    let mut problems = Vec::new();
    for (index, line) in ratchet.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.rsplit_once(' ').and_then(|(path, limit)| Some((path, limit.parse().ok()?))) {
            Some((path, limit)) => {
                listed.insert(path, (limit, index + 1));
            }
            None => problems.push(Problem::new(RATCHET, index + 1, "not understood; write `path lines`")),
        }
    }
    (listed, problems)
}

#[cfg(test)]
mod tests {
    use super::shrunk;
    use crate::tidy::tests::repository;

    #[test]
    fn shrinking_lowers_and_removes_but_never_adds_or_raises() {
        let lines = |count| "fn f() {}\n".repeat(count);
        let mut repository = repository(&[
            ("crates/lock/src/shrunk.rs", &lines(500)),
            ("crates/lock/src/grown.rs", &lines(700)),
            ("crates/lock/src/small.rs", &lines(400)),
            ("crates/lock/src/new.rs", &lines(401)),
        ]);
        repository.ratchet = "# head\n".to_string();
        for (name, limit) in [("gone", 450), ("grown", 600), ("shrunk", 600), ("small", 450)] {
            repository.ratchet += &format!("crates/lock/src/{name}.rs {limit}\n");
        }
        let expected = "# head\ncrates/lock/src/grown.rs 600\ncrates/lock/src/shrunk.rs 500\n";
        assert_eq!(shrunk(&repository), expected);
    }
}
