//! Attributes that switch something off say why.

use super::Problem;
use crate::repository::Repository;
use crate::source::Source;

pub(super) fn check(repository: &Repository, problems: &mut Vec<Problem>) {
    for krate in &repository.crates {
        for source in &krate.sources {
            for index in 0..source.lines.len() {
                check_ignore(source, index, problems);
                // `env` is the one crate whose business is what the others are forbidden.
                if krate.name != "env" {
                    check_allow(source, index, problems);
                }
            }
        }
    }
}

/// An ignored test names the command that runs it, in its reason or in the comment above it.
fn check_ignore(source: &Source, index: usize, problems: &mut Vec<Problem>) {
    if !source.lines[index].code.contains("#[ignore") {
        return;
    }
    let is_command = |text: &str| text.contains("cargo ") || text.contains("scripts/");
    let above = source.lines[..index].iter().rev().take_while(|line| {
        let code = line.code.trim();
        code.is_empty() && !line.comment.is_empty() || code.starts_with("#[")
    });
    let below = source.lines[index + 1..].iter().take_while(|line| line.code.trim().starts_with("#["));
    let own = &source.lines[index];
    if !is_command(&own.raw) && !above.chain(below).any(|line| is_command(&line.raw)) {
        let message =
            "ignored, and nobody knows how to run it; name the command in the comment above (`cargo test …`)";
        problems.push(Problem::new(&source.path, index + 1, message));
    }
}

/// `allow` and `expect` carry a `reason`.
fn check_allow(source: &Source, index: usize, problems: &mut Vec<Problem>) {
    let code = &source.lines[index].code;
    for (begin, attribute) in ["#[allow(", "#![allow(", "#[expect(", "#![expect("]
        .iter()
        .filter_map(|attribute| Some((code.find(attribute)?, attribute)))
    {
        if !source.code_until(index, begin, ']').contains("reason =") {
            let name = attribute.trim_end_matches('(').trim_start_matches(['#', '!', '[']);
            let message =
                format!("#[{name}] without a reason; add `reason = \"…\"`, or repair what it hides");
            problems.push(Problem::new(&source.path, index + 1, message));
        }
    }
}
