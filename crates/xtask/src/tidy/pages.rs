//! Markdown is read as it stands, too: lines end in time, and tables stand by themselves.

use super::Problem;
use crate::repository::{Document, Repository};

/// Columns of a line, but for those of tables and of code.
const COLUMNS: usize = 120;

pub(super) fn check(repository: &Repository, problems: &mut Vec<Problem>) {
    let readmes = repository.crates.iter().flat_map(|krate| &krate.readme);
    let pages = readmes.chain(&repository.documents).filter(|document| document.path.ends_with(".md"));
    pages.for_each(|page| check_page(page, problems));
}

fn check_page(page: &Document, problems: &mut Vec<Problem>) {
    let is_row = |line: &str| line.trim_start().starts_with('|');
    let mut is_code = false;
    let mut before = "";
    for (index, line) in page.text.lines().enumerate() {
        let mut problem = |message| problems.push(Problem::new(&page.path, index + 1, message));
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            if !is_row(line) && line.chars().count() > COLUMNS {
                problem(format!("has more than {COLUMNS} columns; wrap the paragraph"));
            }
            if is_row(line) != is_row(before) && !line.is_empty() && !before.is_empty() {
                problem("joins a table and a paragraph; put an empty line between them".to_owned());
            }
        }
        before = line;
    }
}
