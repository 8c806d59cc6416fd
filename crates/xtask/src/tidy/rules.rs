//! A numbered rule that is cited (LOCK-3) is written down, once, in the README of its crate.

use std::collections::BTreeMap;

use super::Problem;
use crate::repository::Repository;

/// Prefixes of rules, and whose they are.
const OWNERS: [(&str, &str); 13] = [
    ("BASE", "base"),
    ("ENV", "env"),
    ("LATCH", "latch"),
    ("LOCK", "lock"),
    ("WAL", "wal"),
    ("PAGE", "pages"),
    ("BTREE", "btree"),
    ("TXN", "txn"),
    ("ORTHRUS", "orthrus"),
    ("DB", "foreshore"),
    ("TESTKIT", "testkit"),
    ("BENCH", "bench"),
    ("EXPERIMENT", "experiment"),
];

pub(super) fn check(repository: &Repository, problems: &mut Vec<Problem>) {
    let written = written(repository, problems);
    let mut check_text = |path: &str, number: usize, text: &str| {
        for rule in citations(text) {
            let owner = owner(&rule).unwrap_or_default();
            // A README that is missing is one problem, not one for each citation.
            let has_readme =
                repository.crates.iter().any(|krate| krate.name == owner && krate.readme.is_some());
            if has_readme && !written.contains_key(&rule) {
                let message = format!(
                    "{rule} is not a rule of crates/{owner}/README.md; write it down there, or correct the number"
                );
                problems.push(Problem::new(path, number, message));
            }
        }
    };
    for source in repository.sources() {
        // This crate's own sources cite rules as examples.
        if !source.path.starts_with("crates/xtask/") {
            for (number, line) in source.numbered() {
                check_text(&source.path, number, &line.comment);
            }
        }
    }
    let readmes = repository.crates.iter().filter_map(|krate| krate.readme.as_ref());
    for document in readmes.chain(&repository.documents) {
        for (index, line) in document.text.lines().enumerate() {
            check_text(&document.path, index + 1, line);
        }
    }
}

/// The rules that are written down, each with its line: entries of lists or tables, or headings.
fn written(repository: &Repository, problems: &mut Vec<Problem>) -> BTreeMap<String, usize> {
    let mut written = BTreeMap::new();
    for krate in &repository.crates {
        let Some(readme) = &krate.readme else { continue };
        for (index, line) in readme.text.lines().enumerate() {
            let entry = line.trim_start_matches(|character: char| {
                " -*#|.".contains(character) || character.is_ascii_digit()
            });
            let is_entry = entry.len() < line.len();
            let Some(rule) =
                citations(entry).into_iter().next().filter(|rule| is_entry && entry.starts_with(rule))
            else {
                continue;
            };
            if owner(&rule) != Some(&krate.name) {
                continue;
            }
            if let Some(first) = written.insert(rule.clone(), index + 1) {
                let message = format!(
                    "{rule} is written down in line {first} already; give one of them another number"
                );
                problems.push(Problem::new(&readme.path, index + 1, message));
            }
        }
    }
    written
}

/// The crate whose rule this is.
fn owner(rule: &str) -> Option<&'static str> {
    let prefix = rule.split_once('-')?.0;
    OWNERS.iter().find(|(known, _)| *known == prefix).map(|(_, owner)| *owner)
}

/// The rules that a text names: `LOCK-3`, also in `LOCK-3a`, not in `BLOCK-3` or `LOCK-3-4`.
fn citations(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in text
        .split(|character: char| !character.is_ascii_alphanumeric() && character != '-' && character != '_')
    {
        let Some((prefix, number)) = word.split_once('-') else { continue };
        let digits = number.trim_end_matches(|character: char| character.is_ascii_lowercase());
        if OWNERS.iter().any(|(known, _)| *known == prefix)
            && !digits.is_empty()
            && digits.bytes().all(|byte| byte.is_ascii_digit())
        {
            found.push(word.to_string());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::citations;

    #[test]
    fn citations_are_whole_words() {
        assert_eq!(citations("see LOCK-3, (WAL-12): PAGE-1."), ["LOCK-3", "WAL-12", "PAGE-1"]);
        assert!(citations("BLOCK-3 UTF-8 LOCK-x LOCK- lock-3 LOCK-3-4").is_empty());
    }
}
