//! Whether a database holds what was promised: every acknowledged commit, whole, and nothing that contradicts it.

use foreshore_bench::{Engine, Workload, engines::ForeshoreEngine};
use serde::Serialize;

use super::ledger::{self, Page};

/// Problems of which the text is kept.
const MOST_PROBLEMS: usize = 20;

/// What was found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Findings {
    /// Acknowledged commits that were looked for.
    pub(crate) commits_checked: u64,
    /// Commits that were there though nobody could be told of them any more.
    pub(crate) unreported_kept: u64,
    /// Acknowledged commits that were not there.
    pub(crate) losses: u64,
    /// All that was wrong: losses, damage, conditions that do not hold, errors that should not be, hangs.
    pub(crate) problems: Vec<String>,
}

impl Findings {
    /// Nothing was wrong.
    pub(crate) fn is_empty(&self) -> bool {
        self.losses == 0 && self.problems.is_empty()
    }

    /// Nothing was wrong, because no commit was looked for.
    pub(crate) fn has_checked_nothing(&self) -> bool {
        self.is_empty() && self.commits_checked == 0
    }

    pub(crate) fn problem(&mut self, text: String) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(text);
        }
    }
}

/// Compares a database with what each thread was promised, and closes it. Gives the ledger as it is, if it can be read.
pub(crate) fn examine(
    engine: &ForeshoreEngine,
    workload: &dyn Workload,
    promised: &[u64],
    found: &mut Findings,
) -> Option<Vec<Page>> {
    match engine.database().verify() {
        Ok(report) => report.problems.into_iter().for_each(|problem| found.problem(problem)),
        Err(error) => found.problem(format!("the database could not be verified: {error}")),
    }
    let ledger = match ledger::read(engine, workload, promised.len()) {
        Ok(ledger) => ledger,
        Err(failure) => {
            found.problem(format!("the ledger cannot be read: {failure}"));
            return None;
        }
    };
    compare(promised, &ledger, found);
    let mut kinds = vec![0; workload.kinds().len()];
    for page in &ledger {
        kinds.iter_mut().zip(&page.kinds).for_each(|(sum, count)| *sum += count);
    }
    match workload.check(engine, Some(&kinds)) {
        Ok(checks) => {
            for check in checks.iter().filter(|check| !check.holds) {
                let first = check.first_failure.as_deref().unwrap_or("?");
                found.problem(format!("does not hold: {} ({first})", check.name));
            }
        }
        Err(failure) => found.problem(format!("the conditions cannot be checked: {failure}")),
    }
    if let Err(failure) = engine.close() {
        found.problem(format!("the database cannot be closed: {failure}"));
    }
    Some(ledger)
}

/// Each thread's page says what it was promised, and at most one commit more.
fn compare(promised: &[u64], ledger: &[Page], found: &mut Findings) {
    for (thread, (promised, page)) in promised.iter().zip(ledger).enumerate() {
        match page.commits.checked_sub(*promised) {
            Some(0) => {}
            Some(1) => found.unreported_kept += 1,
            Some(_) => found.problem(format!(
                "thread {thread} told of {promised} commits, but {} are there: more than one was not told of",
                page.commits
            )),
            None => {
                found.losses += promised - page.commits;
                found.problem(format!(
                    "LOST: thread {thread} was promised {promised} commits, {} are there",
                    page.commits
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_commits_nothing_is_checked() {
        let mut found = Findings::default();
        assert!(found.has_checked_nothing());
        found.commits_checked = 1;
        assert!(!found.has_checked_nothing());
        let mut problem = Findings::default();
        problem.problem("a child died by itself".to_owned());
        assert!(!problem.has_checked_nothing(), "it is found out all the same");
    }

    #[test]
    fn a_lost_commit_is_a_loss_and_one_more_is_not() {
        for (there, passed, losses, unreported) in [
            ([5, 3], true, 0, 0),
            ([6, 4], true, 0, 2),
            ([4, 3], false, 1, 0),
            ([5, 2], false, 1, 0),
            ([0, 0], false, 8, 0),
            ([7, 3], false, 0, 0),
        ] {
            let mut found = Findings::default();
            let ledger = there.map(|commits| Page { commits, kinds: vec![commits] });
            compare(&[5, 3], &ledger, &mut found);
            let seen = (found.is_empty(), found.losses, found.unreported_kept);
            assert_eq!(seen, (passed, losses, unreported), "{there:?}");
        }
    }
}
