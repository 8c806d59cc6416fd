//! The comparison for people.

use std::{collections::BTreeMap, fmt::Write};

use super::result::{Comparison, EngineResult};

/// A table for each workload, and what the engines do not promise.
pub(super) fn text(comparison: &Comparison) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(&mut out, comparison);
    out
}

fn write_all(out: &mut String, comparison: &Comparison) -> std::fmt::Result {
    let Comparison { processors, rounds, seconds, durability, cache, .. } = comparison;
    writeln!(
        out,
        "{processors} processors, {rounds} rounds of {seconds} s in turn, {durability}, caches of {cache}; medians"
    )?;
    let mut workload = "";
    let mut threads = 0;
    for result in &comparison.results {
        if result.workload != workload {
            workload = result.workload;
            writeln!(out, "\n{workload}: bench {}", comparison.workloads[workload])?;
            let first = format!("{} is", comparison.results[0].engine);
            writeln!(
                out,
                "  {:>7}  {:<10}{:>12}{first:>15}{:>12}{:>10}{:>12}{:>11}{:>10}",
                "threads", "engine", "commits/s", "CPU µs", "aborts", "p99 µs", "max ms", "peak MiB"
            )?;
        } else if result.threads != threads {
            writeln!(out)?;
        }
        threads = result.threads;
        write_row(out, result)?;
    }
    let caveats: BTreeMap<(&str, &str), ()> = (comparison.results.iter())
        .flat_map(|result| result.caveats.iter().map(|caveat| ((result.engine, caveat.as_str()), ())))
        .collect();
    if !caveats.is_empty() {
        writeln!(out)?;
    }
    for (engine, caveat) in caveats.keys() {
        writeln!(out, "note on {engine}: {caveat}")?;
    }
    Ok(())
}

fn write_row(out: &mut String, result: &EngineResult) -> std::fmt::Result {
    let known = |value: Option<String>| value.unwrap_or_else(|| "?".to_owned());
    writeln!(
        out,
        "  {:>7}  {:<10}{:>12.0}{:>15}{:>12}{:>10}{:>12.1}{:>11.1}{:>10}",
        result.threads,
        result.engine,
        result.commits_per_s,
        known(result.first_engine_ratio.map(|ratio| format!("{ratio:.2} × it"))),
        known(result.cpu_us_per_commit.map(|cpu| format!("{cpu:.1}"))),
        format!("{:.2} %", result.abort_percent),
        result.p99_us,
        result.max_us / 1000.0,
        known(result.peak_memory_bytes.map(|bytes| (bytes >> 20).to_string())),
    )?;
    if result.given_up > 0 {
        writeln!(out, "           {} gave up {} transactions", result.engine, result.given_up)?;
    }
    if !result.consistent {
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
    use super::*;
    use crate::bench::compare::result::tests::results;

    pub(in super::super) fn comparison() -> Comparison {
        Comparison {
            experiment: "compare",
            version: "0",
            processors: 2,
            seconds: 3.0,
            rounds: 3,
            durability: "lazy",
            cache: "1GiB".to_owned(),
            workloads: BTreeMap::from([("tpcb", "tpcb --branches 20".to_owned())]),
            results: [1, 8].into_iter().flat_map(results).collect(),
        }
    }

    #[test]
    fn a_row_for_each_combination() {
        let mut comparison = comparison();
        comparison.results[0].consistent = false;
        let text = text(&comparison);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[2], ["tpcb:", "bench", "tpcb", "--branches", "20"]);
        assert_eq!(rows[4][..6], ["1", "foreshore", "200", "1.00", "×", "it"]);
        assert!(rows[6][0] == "INCONSISTENT:", "{text}");
        assert_eq!(
            rows[7],
            ["1", "redb", "75", "3.00", "×", "it", "15000.0", "1.00", "%", "20.0", "0.0", "0"]
        );
        assert!(text.contains("FAILED: the disk is full") && text.contains("gave up 3 transactions"));
        assert_eq!(text.matches("note on redb: it has no log").count(), 1);
    }
}
