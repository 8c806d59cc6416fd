//! The checks. Each looks at the whole repository and says where a rule is broken and what to do next.

mod attributes;
mod door;
mod levels;
mod pages;
mod places;
mod rules;
pub(crate) mod sizes;
mod widths;
mod words;

use std::fmt;

use crate::repository::Repository;

/// A broken rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    path: String,
    /// From 1; 0 for the whole file.
    line: usize,
    /// What is wrong, and after a semicolon what to do.
    message: String,
}

impl Problem {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Problem {
        Problem { path: path.to_string(), line, message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Everything that is wrong, by place.
pub(crate) fn check(repository: &Repository) -> Vec<Problem> {
    let mut problems = Vec::new();
    for check in [
        levels::check,
        sizes::check,
        door::check,
        words::check,
        pages::check,
        widths::check,
        places::check,
        attributes::check,
        rules::check,
    ] {
        check(repository, &mut problems);
    }
    problems.sort();
    problems
}

#[cfg(test)]
mod tests;
