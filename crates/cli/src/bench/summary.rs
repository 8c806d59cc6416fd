//! The report for people.

use std::{
    fmt::{self, Write},
    path::Path,
};

use foreshore_bench::{Latency, Report};

use crate::{
    bench::text::written,
    output::{CliError, argument, counted, line},
};

/// Prints the report; `kept` is where the database stays.
pub(crate) fn print(report: &Report, kept: Option<&Path>) -> Result<(), CliError> {
    line(text(report, kept))
}

fn text(report: &Report, kept: Option<&Path>) -> String {
    written(|out| write_report(out, report, kept)).trim_end().to_owned()
}

fn write_report(out: &mut String, report: &Report, kept: Option<&Path>) -> fmt::Result {
    write_head(out, report)?;
    write_figures(out, report)?;
    write_latencies(out, report)?;
    write_partitions(out, report)?;
    write_pool(out, report)?;
    write_space(out, report)?;
    write_checks(out, report)?;
    if let Some(directory) = kept {
        writeln!(
            out,
            "the database stays in {}; look inside with: foreshore stat {}",
            directory.display(),
            argument(directory)
        )?;
    }
    Ok(())
}

/// What was run.
fn write_head(out: &mut String, report: &Report) -> fmt::Result {
    let options: Vec<String> =
        report.options.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect();
    writeln!(
        out,
        "{} on {}, {}, {:.1} s, seed {}",
        report.workload,
        report.engine,
        counted(report.threads, "thread", "threads"),
        report.seconds,
        report.seed
    )?;
    writeln!(out, "  {}\n", options.join(" "))
}

/// A line for each figure of the whole run.
fn write_figures(out: &mut String, report: &Report) -> fmt::Result {
    figure(out, "commits/s", &grouped(report.commits_per_s.round() as u64), None)?;
    figure(out, "commits", &grouped(report.ended), None)?;
    if let Some(commits) = report.commits_per_flush {
        figure(out, "commits per flush", &format!("{commits:.1}"), None)?;
    }
    if let Some(cpu) = report.cpu_us_per_commit {
        let remark = "µs of all processors, background threads included";
        figure(out, "CPU per commit", &format!("{cpu:.1}"), Some(remark))?;
    }
    if let Some(bytes) = report.peak_memory_bytes {
        figure(out, "peak memory", &grouped(bytes >> 20), Some("MiB"))?;
    }
    if report.user_rollbacks > 0 {
        figure(out, "user rollbacks", &grouped(report.user_rollbacks), Some("as the workload demands"))?;
    }
    figure(out, "aborts", &grouped(report.aborts.total()), Some(&causes(report)))?;
    if report.given_up > 0 {
        let remark = "aborted as often as the engine retries";
        figure(out, "given up", &grouped(report.given_up), Some(remark))?;
    }
    writeln!(out)
}

fn figure(out: &mut String, name: &str, value: &str, remark: Option<&str>) -> fmt::Result {
    write!(out, "  {name:<18}{value:>14}")?;
    if let Some(remark) = remark {
        write!(out, "  {remark}")?;
    }
    writeln!(out)
}

/// A table of latencies, a line for each kind of transaction if there are several, and one for all.
fn write_latencies(out: &mut String, report: &Report) -> fmt::Result {
    writeln!(out, "  {:<18}{:>14}{:>12}{:>12}{:>12}", "latency, µs", "commits", "p50", "p99", "max")?;
    let mut row = |name: &str, commits: u64, latency: Option<&Latency>| {
        write!(out, "  {name:<18}{:>14}", grouped(commits))?;
        match latency {
            Some(Latency { p50, p99, max }) => writeln!(out, "{p50:>12.1}{p99:>12.1}{max:>12.1}"),
            None => writeln!(out, "{:>12}{:>12}{:>12}", "-", "-", "-"),
        }
    };
    if report.by_kind.len() > 1 {
        for (name, kind) in &report.by_kind {
            row(name, kind.commits, Some(&kind.latency_us))?;
        }
    }
    row("all", report.commits, report.latency_us.as_ref())?;
    writeln!(out)
}

/// What the checks have found, what the engine does not promise, and the verdict.
fn write_checks(out: &mut String, report: &Report) -> fmt::Result {
    writeln!(out, "  loaded in {:.1} s, checked in {:.1} s", report.load_seconds, report.check_seconds)?;
    for check in &report.checks {
        let verdict = if check.holds { "holds" } else { "FAILS" };
        writeln!(out, "  {verdict}  {} ({} examined)", check.name, grouped(check.examined))?;
        if let Some(failure) = &check.first_failure {
            writeln!(out, "         {} times; first: {failure}", grouped(check.failures))?;
        }
    }
    writeln!(out)?;
    for caveat in &report.caveats {
        writeln!(out, "note: {caveat}")?;
    }
    match report.checks.iter().filter(|check| !check.holds).count() {
        0 => writeln!(out, "consistent: all {} checks hold", report.checks.len()),
        failed => writeln!(out, "INCONSISTENT: {failed} of {} checks fail", report.checks.len()),
    }
}

fn causes(report: &Report) -> String {
    let aborts = &report.aborts;
    let causes = [
        (aborts.deadlock, "deadlock"),
        (aborts.lock_timeout, "lock time-out"),
        (aborts.would_block, "would block"),
        (aborts.plan_miss, "plan miss"),
        (aborts.conflict, "conflict"),
        (aborts.other, "other"),
    ];
    let parts: Vec<String> = causes
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, cause)| format!("{cause} {}", grouped(count)))
        .collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("{}; {} retries", parts.join(", "), grouped(report.retries)),
    }
}

/// What the threads of partitioned execution did since the beginning, if they did anything.
fn write_partitions(out: &mut String, report: &Report) -> fmt::Result {
    let counter = |name: &str| report.counters.get(name).copied().unwrap_or(0);
    let footprints = counter("partitioned_footprints");
    if footprints == 0 {
        return Ok(());
    }
    let each = |name: &str| counter(name) as f64 / footprints as f64;
    writeln!(
        out,
        "  partitions: {:.2} for each footprint, {:.2} messages there and {:.2} to give back; {} found a full queue; {} locks waited for",
        each("partitioned_visits"),
        each("partitioned_messages"),
        each("partitioned_releases"),
        grouped(counter("partitioned_queues_full")),
        grouped(counter("partitioned_waits")),
    )
}

/// How often free space was looked for since the database was opened: rarely, because threads put pages aside (Shore-MT
/// §7.7 has 95 % fewer checks).
fn write_space(out: &mut String, report: &Report) -> fmt::Result {
    let counter = |name: &str| report.counters.get(name).copied().unwrap_or(0);
    let (allocations, searches) = (counter("page_allocations"), counter("page_searches"));
    if allocations == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "  space: {} allocated, {} for free ones ({:.2} %)",
        counted(grouped(allocations), "page", "pages"),
        counted(grouped(searches), "search", "searches"),
        searches as f64 * 100.0 / allocations as f64
    )
}

/// What the buffer pool did since it was opened, if it was too small for everything: dirty pages should be evicted
/// rarely.
fn write_pool(out: &mut String, report: &Report) -> fmt::Result {
    let counter = |name: &str| report.counters.get(name).copied().unwrap_or(0);
    let (evictions, dirty) = (counter("pool_evictions"), counter("pool_dirty_evictions"));
    if evictions == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "  pool: {} pages read when they were needed, {} ahead of scans; {} evicted, {} of them dirty ({:.2} %); \
         {} written by helpers of the cleaner",
        grouped(counter("pool_loads")),
        grouped(counter("pool_read_ahead")),
        grouped(evictions),
        grouped(dirty),
        dirty as f64 * 100.0 / evictions as f64,
        grouped(counter("pool_helped_writes"))
    )
}

/// A JSON value without the quotes of a string.
fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A number with a comma after each thousand.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use foreshore_bench::Check;

    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn a_failed_check_is_shown_with_its_figures() {
        let mut check = Check::new("1: W_YTD = sum(D_YTD)");
        check.expect_equal(&|| "warehouse 3".to_owned(), ("W_YTD", 5), ("sum(D_YTD)", 7));
        let report = Report {
            engine: "foreshore".to_owned(),
            workload: "tpcc".to_owned(),
            version: "0".to_owned(),
            seed: 1,
            threads: 2,
            seconds: 1.0,
            commits: 12_345,
            ended: 12_345,
            commits_per_s: 12_345.0,
            commits_per_flush: Some(7.25),
            cpu_us_per_commit: Some(12.34),
            peak_memory_bytes: Some(3 << 20),
            caveats: vec!["it has no log".to_owned()],
            user_rollbacks: 0,
            aborts: Default::default(),
            retries: 0,
            given_up: 0,
            latency_us: None,
            oldest_running_us: None,
            by_kind: Default::default(),
            consistent: false,
            checks: vec![check],
            options: Default::default(),
            counters: [
                ("pool_evictions", 1000),
                ("pool_dirty_evictions", 5),
                ("pool_helped_writes", 40),
                ("pool_loads", 2000),
                ("page_allocations", 4000),
                ("page_searches", 100),
            ]
            .map(|(name, count)| (name.to_owned(), count))
            .into(),
            load_seconds: 0.0,
            check_seconds: 0.0,
        };
        let text = text(&report, None);
        for part in [
            "12,345",
            "commits per flush            7.2",
            "CPU per commit              12.3",
            "peak memory                    3",
            "all                       12,345           -           -           -",
            "note: it has no log",
            "2,000 pages read when they were needed, 0 ahead of scans; 1,000 evicted, 5 of them dirty (0.50 %); 40 written by helpers of the cleaner",
            "4,000 pages allocated, 100 searches for free ones (2.50 %)",
            "FAILS  1: W_YTD",
            "warehouse 3: W_YTD = 5, but sum(D_YTD) = 7",
            "INCONSISTENT: 1 of 1",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
    }
}
