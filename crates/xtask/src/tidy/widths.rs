//! What rustfmt leaves alone: comments, code that it cannot break, and white space at the ends of lines of other files.

use super::Problem;
use crate::{
    repository::{Document, Repository},
    source::Line,
};

const COLUMNS: usize = 120;

pub(super) fn check(repository: &Repository, problems: &mut Vec<Problem>) {
    for source in repository.sources() {
        // Tables that somebody has laid out.
        let laid_out = source.lines.iter().any(|line| line.code.contains("rustfmt::skip"));
        for (number, line) in source.numbered() {
            if width(line) > COLUMNS && !(laid_out && line.comment.is_empty()) {
                problems.push(Problem::new(&source.path, number, too_wide()));
            }
        }
    }
    let of_crates = repository.crates.iter().flat_map(|krate| krate.readme.iter().chain([&krate.manifest]));
    of_crates.chain(&repository.documents).for_each(|document| check_document(document, problems));
}

fn too_wide() -> String {
    format!("has more than {COLUMNS} columns; break it")
}

/// Columns of a line, but for what stands in strings; 0 where a comment cannot be broken: a row of a table, a link.
fn width(line: &Line) -> usize {
    let comment = line.comment.trim_start_matches(['/', '!']).trim();
    if line.code.trim().is_empty() {
        let is_comment = !comment.is_empty() && !comment.starts_with('|') && comment.contains(' ');
        return if is_comment { line.raw.chars().count() } else { 0 };
    }
    line.code.chars().count() + line.comment.chars().count()
}

fn check_document(document: &Document, problems: &mut Vec<Problem>) {
    let is_script = ["scripts/", ".ci/"].iter().any(|folder| document.path.starts_with(folder));
    for (index, line) in document.text.lines().enumerate() {
        let mut problem = |message: String| problems.push(Problem::new(&document.path, index + 1, message));
        if line.ends_with([' ', '\t']) {
            problem("ends in white space; remove it".to_owned());
        }
        if is_script && line.trim_start().starts_with('#') && line.chars().count() > COLUMNS {
            problem(too_wide());
        }
    }
}
