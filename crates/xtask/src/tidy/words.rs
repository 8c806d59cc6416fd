//! Nothing is left for later in a remark: it is done, or an issue.

use super::Problem;
use crate::repository::Repository;

const WORDS: [&str; 4] = ["TODO", "FIXME", "XXX", "HACK"];

pub(super) fn check(repository: &Repository, problems: &mut Vec<Problem>) {
    for source in repository.sources() {
        for (number, line) in source.numbered() {
            check_line(&source.path, number, &line.comment, problems);
        }
    }
    let documents = repository.crates.iter().flat_map(|krate| krate.readme.iter().chain([&krate.manifest]));
    for document in documents.chain(&repository.documents) {
        for (index, line) in document.text.lines().enumerate() {
            check_line(&document.path, index + 1, line, problems);
        }
    }
}

fn check_line(path: &str, number: usize, text: &str, problems: &mut Vec<Problem>) {
    let mut words = text.split(|character: char| !character.is_alphanumeric() && character != '_');
    if let Some(word) = words.find(|word| WORDS.contains(word)) {
        let message = format!("{word} in a remark; do it now, or open an issue and remove the remark");
        problems.push(Problem::new(path, number, message));
    }
}
