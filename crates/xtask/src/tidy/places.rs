//! Files are where a stranger looks for them.

use super::Problem;
use crate::repository::Repository;

pub(super) fn check(repository: &Repository, problems: &mut Vec<Problem>) {
    for source in repository.sources() {
        // A module shared by integration tests has to be `tests/x/mod.rs`, or it would be a test by itself.
        if source.path.ends_with("/mod.rs") && !source.path.contains("/tests/") {
            problems.push(Problem::new(
                &source.path,
                0,
                "is a mod.rs; name it after its folder, beside the folder",
            ));
        }
    }
    for krate in &repository.crates {
        if krate.is_library() && krate.readme.is_none() {
            let message = "missing; every library has one: purpose, papers, differences, structures and their guards, rules, algorithm, odd cases, tests";
            problems.push(Problem::new(&format!("crates/{}/README.md", krate.name), 0, message));
        }
    }
}
