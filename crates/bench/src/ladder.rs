//! The ladder of Shore-MT (Johnson et al. 2009, §7 and figure 7): the engine on the record insertion benchmark, from
//! one mutex around everything that is shared to what the engine is, a step at a time. Each step is a set of options,
//! which it adds to those of the steps before.
//!
//! Departures: pins and their pin-if-pinned (§6.2.1), malloc (§7.4), the pool of lock requests (§7.5), the hand of the
//! clock (§7.6) and the checkpoint's list (§7.7) have no step here, because the engine has nothing that could be worse
//! in the same way. The last step is what came after the paper.

use serde::Serialize;

use crate::comparison::{ComparisonReport, Variant};

/// A step: what it changes, and what the paper says of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Its name, the paper's but for the last.
    pub name: &'static str,
    /// Where the paper has it.
    pub section: &'static str,
    /// The options that it changes.
    pub changes: &'static [(&'static str, &'static str)],
    /// Throughput relative to the step before, as the paper's text has it: by 1 thread, by 32. `None`: it gives no
    /// number.
    pub paper_of_step_before: (Option<f64>, Option<f64>),
}

/// The steps, from the lowest.
pub const STEPS: [Step; 8] = [
    Step {
        name: "baseline",
        section: "7.1",
        changes: &[
            ("translation", "global_mutex"),
            ("transit", "one_list"),
            ("latch_mode", "always_shared"),
            ("free_space", "global_mutex"),
            ("log_insert", "mutex"),
            ("lock_table", "global_mutex"),
            ("intent_locks", "in_table"),
        ],
        paper_of_step_before: (None, None),
    },
    Step {
        name: "bpool1",
        section: "7.2: a mutex for each bucket",
        changes: &[("translation", "bucketed")],
        paper_of_step_before: (Some(2.0), Some(5.0)),
    },
    Step {
        name: "caching",
        section: "7.3: no mutex held while a latch is awaited",
        changes: &[("free_space", "uncached")],
        paper_of_step_before: (Some(1.0), Some(2.0)),
    },
    Step {
        name: "log",
        section: "7.4: inserts serialize to claim space only; cuckoo hashing",
        changes: &[("log_insert", "compare_exchange"), ("translation", "cuckoo")],
        paper_of_step_before: (None, Some(2.0)),
    },
    Step {
        name: "lock",
        section: "7.5: a latch for each bucket",
        changes: &[("lock_table", "latched")],
        paper_of_step_before: (None, None),
    },
    Step {
        name: "bpool2",
        section: "7.6: 128 lists of pages in transit",
        changes: &[("transit", "many_lists")],
        paper_of_step_before: (None, None),
    },
    Step {
        name: "final",
        section: "7.7: extents cached by threads, fewer searches of the lock table",
        changes: &[("free_space", "cached"), ("intent_locks", "private")],
        paper_of_step_before: (None, None),
    },
    Step {
        name: "road",
        section: "after the paper: array translation, optimistic latches, arriving pages in their frames, an addition at the \
                  log's tail",
        changes: &[
            ("translation", "page_table"),
            ("transit", "in_frame"),
            ("latch_mode", "hybrid"),
            ("log_insert", "fetch_add"),
        ],
        paper_of_step_before: (None, None),
    },
];

/// The options of a step and of those before it, each once.
pub fn settings(step: usize) -> Vec<(String, String)> {
    let mut settings: Vec<(String, String)> = Vec::new();
    for (option, value) in STEPS.iter().take(step + 1).flat_map(|step| step.changes) {
        settings.retain(|(name, _)| name != option);
        settings.push(((*option).to_owned(), (*value).to_owned()));
    }
    settings
}

/// The steps as variants to compare.
pub fn variants() -> Vec<Variant> {
    let variant = |(number, step): (usize, &Step)| Variant {
        name: step.name.to_owned(),
        settings: settings(number),
        locking: true,
    };
    STEPS.iter().enumerate().map(variant).collect()
}

/// A step with a number of threads, beside the others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LadderRow {
    /// The step.
    pub step: &'static str,
    /// Threads that ran transactions.
    pub threads: usize,
    /// Commits in a second, of all threads together.
    pub commits_per_s: f64,
    /// Transactions that began and ended while it was measured: how much that rests on.
    pub commits: u64,
    /// Relative to the lowest step that was run, with as many threads.
    pub of_baseline: f64,
    /// Relative to the step before that was run, with as many threads; 1 for the lowest.
    pub of_step_before: f64,
    /// Relative to the same step with the fewest threads: 1 there.
    pub scaled: f64,
    /// The paper's figure for `of_step_before`, by 1 thread or by 32, if no step is left out between the two.
    pub paper_of_step_before: Option<f64>,
}

/// The steps of a comparison beside each other, those of one number of threads together.
pub fn climb(report: &ComparisonReport) -> Vec<LadderRow> {
    let found = |step: &str, threads: usize| {
        report.results.iter().find(|row| row.variant == step && row.threads == threads)
    };
    let rate = |step: &str, threads: usize| found(step, threads).map(|row| row.commits_per_s);
    let ratio =
        |one: f64, other: Option<f64>| other.filter(|other| *other > 0.0).map_or(0.0, |other| one / other);
    let mut counts: Vec<usize> = report.results.iter().map(|row| row.threads).collect();
    counts.sort_unstable();
    counts.dedup();
    let mut rows = Vec::new();
    for &threads in &counts {
        let lowest = STEPS.iter().find_map(|step| rate(step.name, threads));
        let mut before = None;
        for (number, step) in STEPS.iter().enumerate() {
            let Some(row) = found(step.name, threads) else { continue };
            let commits_per_s = row.commits_per_s;
            // The paper has each step beside the one before, which may be left out here.
            let is_next = number > 0 && found(STEPS[number - 1].name, threads).is_some();
            rows.push(LadderRow {
                step: step.name,
                threads,
                commits_per_s,
                commits: row.commits,
                of_baseline: ratio(commits_per_s, lowest),
                of_step_before: ratio(commits_per_s, before.or(Some(commits_per_s))),
                scaled: ratio(commits_per_s, rate(step.name, counts[0])),
                paper_of_step_before: match threads {
                    _ if !is_next => None,
                    1 => step.paper_of_step_before.0,
                    32 => step.paper_of_step_before.1,
                    _ => None,
                },
            });
            before = Some(commits_per_s);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{comparison::ComparisonRow, engine::AbortCounts};

    fn report(steps: &[&str]) -> ComparisonReport {
        let row = |step: &&str| ComparisonRow {
            variant: (*step).to_owned(),
            threads: 1,
            commits_per_s: 10.0,
            of_peak: 1.0,
            rounds_per_s: vec![10.0],
            commits_per_computed_s: None,
            computed_of_peak: None,
            processors_busy: None,
            commits: 10,
            ended: 10,
            aborts: AbortCounts::default(),
            abort_ratio: 0.0,
            given_up: 0,
            by_kind: BTreeMap::new(),
            counters: BTreeMap::new(),
            counted_commits: 10,
        };
        ComparisonReport {
            experiment: "ladder".to_owned(),
            version: "0",
            processors: 1,
            seconds: 1.0,
            rounds: 1,
            options: BTreeMap::new(),
            partial: false,
            results: steps.iter().map(row).collect(),
            consistent: Some(true),
            checks: Vec::new(),
        }
    }

    #[test]
    fn the_paper_has_each_step_beside_the_one_before() {
        let papers = |steps: &[&str]| -> Vec<Option<f64>> {
            climb(&report(steps)).iter().map(|row| row.paper_of_step_before).collect()
        };
        assert_eq!(papers(&["baseline", "bpool1", "caching"]), [None, Some(2.0), Some(1.0)]);
        assert_eq!(papers(&["baseline", "caching"]), [None, None]);
        assert_eq!(papers(&["bpool1", "caching"]), [None, Some(1.0)]);
    }

    #[test]
    fn the_lowest_step_changes_everything_and_the_highest_nothing() {
        let defaults = foreshore::Options::default();
        let names = |number| {
            settings(number).into_iter().map(|(name, _)| name).collect::<std::collections::BTreeSet<_>>()
        };
        for (number, step) in STEPS.iter().enumerate() {
            assert_eq!(names(number), names(0), "{}", step.name);
            let mut options = defaults.clone();
            for (name, value) in settings(number) {
                options.set(&name, &value).unwrap();
            }
            assert_eq!(options == defaults, number == STEPS.len() - 1, "{}", step.name);
        }
        for (name, value) in settings(0) {
            assert_ne!(defaults.get(&name), Some(value), "{name}");
        }
    }
}
