//! The comparison for people: piece by piece, as it goes.

use std::{
    collections::BTreeSet,
    fmt::{self, Write},
};

use super::result::{Comparison, EngineResult};
use crate::bench::text::written;

/// What all runs have in common, and how each engine is set.
pub(super) fn head(comparison: &Comparison) -> String {
    let Comparison { processors, rounds, seconds, warm_up_seconds, durability, cache, settings, .. } =
        comparison;
    written(|out| {
        writeln!(
            out,
            "{processors} processors, {rounds} rounds of {seconds} s in turn, each after a warm-up of \
             {warm_up_seconds} s, {durability}, caches of {cache}; medians"
        )?;
        settings.iter().try_for_each(|(engine, settings)| match settings[..] {
            [] => writeln!(out, "  {engine}: as it comes"),
            _ => writeln!(out, "  {engine}: {}", settings.join(" ")),
        })
    })
}

/// The results that nobody has been told of: those of a workload by one number of threads. They have a heading if they
/// are its first.
pub(super) fn newest(comparison: &Comparison) -> String {
    let (before, newest) = comparison.results.split_at(comparison.told);
    let Some(EngineResult { workload, .. }) = newest.first() else { return String::new() };
    let begun = before.last().is_some_and(|result| result.workload == *workload);
    written(|out| {
        if begun { writeln!(out) } else { write_heading(out, comparison, workload) }?;
        newest.iter().try_for_each(|result| write_row(out, result))
    })
}

/// What is left to tell when a comparison is interrupted: of the combination that is measured, and what stands below
/// all results.
pub(super) fn broken_off(comparison: &Comparison) -> String {
    if comparison.results.is_empty() {
        return String::new();
    }
    let below = match comparison.results[comparison.told..].iter().map(|result| result.rounds.len()).max() {
        Some(had) => format!("interrupted: the last results are of {had} of {} rounds", comparison.rounds),
        None => "interrupted: what was to come is missing".to_owned(),
    };
    format!("{}{}\n{below}", newest(comparison), notes(comparison))
}

/// What the engines do not promise.
pub(super) fn notes(comparison: &Comparison) -> String {
    let caveats: BTreeSet<(&str, &str)> = (comparison.results.iter())
        .flat_map(|result| result.caveats.iter().map(|caveat| (result.engine, caveat.as_str())))
        .collect();
    caveats.iter().map(|(engine, caveat)| format!("\nnote on {engine}: {caveat}")).collect()
}

fn write_heading(out: &mut String, comparison: &Comparison, workload: &str) -> fmt::Result {
    writeln!(out, "\n{workload}: bench {}", comparison.workloads[workload])?;
    let first = format!("{} is", comparison.results[0].engine);
    writeln!(
        out,
        "  {:>7}  {:<10}{:>12}{first:>15}{:>12}{:>10}{:>11}{:>12}{:>11}{:>10}",
        "threads", "engine", "commits/s", "CPU µs", "aborts", "mean µs", "p99 µs", "max ms", "peak MiB"
    )
}

fn write_row(out: &mut String, result: &EngineResult) -> fmt::Result {
    let known = |value: Option<String>| value.unwrap_or_else(|| "?".to_owned());
    let any = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
    writeln!(
        out,
        "  {:>7}  {:<10}{:>12}{:>15}{:>12}{:>10}{:>11}{:>12}{:>11}{:>10}",
        result.threads,
        result.engine,
        result.commits_per_s.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}")),
        known(result.first_engine_ratio.map(|ratio| format!("{ratio:.2} × it"))),
        known(result.cpu_us_per_commit.map(|cpu| format!("{cpu:.1}"))),
        result.abort_percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.2} %")),
        any(result.mean_us),
        any(result.p99_us),
        any(result.max_us.map(|us| us / 1000.0)),
        known(result.peak_memory_bytes.map(|bytes| (bytes >> 20).to_string())),
    )?;
    if result.given_up > 0 {
        writeln!(out, "           {} gave up {} transactions", result.engine, result.given_up)?;
    }
    if result.consistent == Some(false) {
        writeln!(
            out,
            "           INCONSISTENT: checks of {} failed; run it by itself to see which",
            result.engine
        )?;
    }
    if let Some(failure) = &result.failure {
        writeln!(out, "           FAILED: {failure}")?;
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bench::compare::result::tests::{results, without_rounds};

    pub(in super::super) fn comparison() -> Comparison {
        Comparison {
            experiment: "compare",
            version: "0",
            commit: "0123456789ab",
            processors: 2,
            seconds: 3.0,
            warm_up_seconds: 1.0,
            rounds: 3,
            seed: 1,
            durability: "lazy",
            cache: "1GiB".to_owned(),
            settings: BTreeMap::from([
                ("foreshore", vec!["pool_bytes=1GiB".to_owned(), "reads=unlocked".to_owned()]),
                ("redb", Vec::new()),
            ]),
            workloads: BTreeMap::from([("tpcb", "tpcb --branches 20".to_owned())]),
            partial: false,
            told: 0,
            results: [1, 8].into_iter().flat_map(results).collect(),
        }
    }

    /// A figure is worth nothing without it, and it was in the JSON alone.
    #[test]
    fn the_head_says_how_each_side_is_set() {
        let head = head(&comparison());
        let lines: Vec<&str> = head.lines().collect();
        let first = "2 processors, 3 rounds of 3 s in turn, each after a warm-up of 1 s, lazy, caches of 1GiB; medians";
        assert_eq!(lines, [first, "  foreshore: pool_bytes=1GiB reads=unlocked", "  redb: as it comes"]);
    }

    #[test]
    fn what_is_broken_off_says_so() {
        let comparison = comparison();
        let told = |told| broken_off(&Comparison { told, ..comparison.clone() });
        assert!(told(2).starts_with("\n        8  foreshore"), "{}", told(2));
        assert!(
            told(2)
                .ends_with("note on redb: it has no log\ninterrupted: the last results are of 3 of 3 rounds")
        );
        assert!(
            told(4).ends_with("redb: it has no log\ninterrupted: what was to come is missing"),
            "{}",
            told(4)
        );
        assert_eq!(broken_off(&Comparison { results: Vec::new(), ..comparison.clone() }), "");
    }

    #[test]
    fn what_never_ran_has_no_figures() {
        let mut comparison = comparison();
        comparison.results = vec![without_rounds()];
        let text = newest(&comparison);
        let row: Vec<&str> = text.lines().nth(3).unwrap().split_whitespace().collect();
        assert_eq!(row, ["1", "redb", "-", "?", "?", "-", "-", "-", "-", "?"]);
        assert!(text.contains("FAILED: no") && !text.contains("INCONSISTENT"), "{text}");
    }

    #[test]
    fn a_row_for_each_combination() {
        let mut comparison = comparison();
        let of_eight = comparison.results.split_off(comparison.results.len() / 2);
        comparison.results[0].consistent = Some(false);
        let text = newest(&comparison);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["tpcb:", "bench", "tpcb", "--branches", "20"]);
        assert_eq!(rows[3][..6], ["1", "foreshore", "200", "1.00", "×", "it"]);
        assert!(rows[5][0] == "INCONSISTENT:", "{text}");
        assert_eq!(
            rows[6],
            ["1", "redb", "75", "3.00", "×", "it", "15000.0", "1.00", "%", "13333.3", "20.0", "0.0", "0"]
        );
        let nothing =
            EngineResult { mean_us: None, p99_us: None, max_us: None, ..comparison.results[0].clone() };
        let nothing = newest(&Comparison { results: vec![nothing], ..self::comparison() });
        let row: Vec<&str> = nothing.lines().nth(3).unwrap().split_whitespace().collect();
        assert_eq!(row[8..], ["%", "-", "-", "-", "0"], "{nothing}");

        comparison.told = comparison.results.len();
        comparison.results.extend(of_eight);
        let text = newest(&comparison);
        let first: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(first[..3], ["8", "foreshore", "200"]);
        assert!(!text.contains("tpcb") && !text.contains("INCONSISTENT"), "{text}");
        assert_eq!(notes(&comparison).matches("note on redb: it has no log").count(), 1);
    }
}
