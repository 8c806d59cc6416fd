//! Nothing in the engine goes past `env` to atomics, threads, time or files.

use super::Problem;
use super::levels::{Part, part};
use crate::repository::Repository;
use crate::source::Source;

/// Paths behind the door, and where they are found instead.
const DOOR: [(&str, &str); 8] = [
    ("std::sync", "foreshore_env::sync"),
    ("core::sync", "foreshore_env::sync"),
    ("std::thread", "foreshore_env::thread"),
    ("std::time", "foreshore_env::time"),
    ("core::time", "foreshore_env::time"),
    ("std::fs", "foreshore_env::disk"),
    ("std::hint::spin_loop", "foreshore_env::hint::spin_loop"),
    ("std::cell::UnsafeCell", "foreshore_env::cell::UnsafeCell"),
];

pub(super) fn check(repository: &Repository, problems: &mut Vec<Problem>) {
    for krate in &repository.crates {
        if krate.name != "env" && matches!(part(&krate.name), Some(Part::Engine(_))) {
            // Examples show programs of users, who have no door.
            for source in krate.sources.iter().filter(|source| !source.path.contains("/examples/")) {
                check_source(source, problems);
            }
        }
    }
}

fn check_source(source: &Source, problems: &mut Vec<Problem>) {
    let mut imports_thread_local = false;
    let mut thread_local = None;
    for (index, line) in source.lines.iter().enumerate() {
        if line.is_test {
            continue;
        }
        let mut paths = Vec::new();
        if let Some(begin) = import(&line.code) {
            paths = expand(&source.code_until(index, begin, ';'));
        }
        imports_thread_local |= paths.iter().any(|path| path == "foreshore_env::thread_local");
        if thread_local.is_none() && contains_path(&line.code, "thread_local!") {
            thread_local = Some(index + 1);
        }
        for (path, instead) in DOOR {
            let imported =
                paths.iter().any(|import| import == path || import.starts_with(&format!("{path}::")));
            if imported || contains_path(&line.code, path) {
                let message = format!("{path} lies behind the door; take it from {instead}");
                problems.push(Problem::new(&source.path, index + 1, message));
            }
        }
    }
    if let Some(line) = thread_local
        && !imports_thread_local
    {
        let message = "std's thread_local! lies behind the door; import foreshore_env::thread_local";
        problems.push(Problem::new(&source.path, line, message));
    }
}

/// The column behind `use` in a line that begins an import.
fn import(code: &str) -> Option<usize> {
    let begin = code.find("use ")?;
    let before = code[..begin].trim();
    (before.is_empty() || before == "pub" || before.starts_with("pub(")).then_some(begin + "use ".len())
}

/// All paths of an import: `a::{b, c::{d, e as f}};` gives `a::b`, `a::c::d`, `a::c::e`.
fn expand(tree: &str) -> Vec<String> {
    let mut paths = Vec::new();
    // Path prefixes of the open braces; the last one is that of the part being read.
    let mut prefixes = vec![String::new()];
    let mut current = String::new();
    for character in tree.chars() {
        match character {
            '{' => prefixes.push(std::mem::take(&mut current)),
            ',' | '}' | ';' => {
                let name = current.split(" as ").next().unwrap_or("").trim();
                if !name.is_empty() {
                    paths.push((prefixes.concat() + name).trim_end_matches("::self").to_string());
                }
                current.clear();
                if character == '}' && prefixes.len() > 1 {
                    prefixes.pop();
                }
            }
            ' ' if current.is_empty() => {}
            _ => current.push(character),
        }
    }
    paths
}

/// Whether a path is named, and not merely the end or the beginning of another one.
fn contains_path(code: &str, path: &str) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    code.match_indices(path).any(|(place, _)| {
        let before = code[..place].chars().next_back();
        let after = code[place + path.len()..].chars().next();
        let begins = !before.is_some_and(|before| is_word(before) || before == ':')
            || code[..place].trim_end().ends_with(" ::");
        begins && !after.is_some_and(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::{contains_path, expand};

    #[test]
    fn imports_are_expanded() {
        assert_eq!(expand("std::fs;"), ["std::fs"]);
        assert_eq!(
            expand("std::{fs, sync::{Arc as A, atomic::*}};"),
            ["std::fs", "std::sync::Arc", "std::sync::atomic::*"]
        );
        assert_eq!(expand("std::thread::{self, spawn, };"), ["std::thread", "std::thread::spawn"]);
    }

    #[test]
    fn paths_are_whole() {
        assert!(contains_path("let a = std::fs::read(x);", "std::fs"));
        assert!(contains_path("f(std::thread)", "std::thread"));
        assert!(!contains_path("std::thread_local", "std::thread"));
        assert!(!contains_path("my_std::fs", "std::fs"));
        assert!(!contains_path("other::std::fs", "std::fs"));
    }
}
