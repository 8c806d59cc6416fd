//! What a comparison of commits came to.

use serde::Serialize;

use super::{Cell, Tried};
use crate::bench::rounds;

/// All of it, as JSON.
#[derive(Serialize)]
pub(crate) struct Outcome {
    pub(super) workload: &'static str,
    pub(super) version: &'static str,
    pub(super) threads: u16,
    pub(super) durability: &'static str,
    pub(super) rounds: u16,
    pub(super) seconds: f64,
    pub(super) branches: u32,
    pub(super) accounts_per_branch: u32,
    /// Whether it was interrupted: what would have come is missing, and of the last rows some rounds may be.
    pub(super) partial: bool,
    pub(super) consistent: bool,
    /// So many rows people have been told of.
    #[serde(skip)]
    pub(super) told: usize,
    pub(super) rows: Vec<Row>,
}

/// One side in one cell.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(super) log_latency: String,
    pub(super) zipf: f64,
    pub(super) read_ratio: f64,
    pub(super) side: String,
    /// Over all rounds: how much the figures rest on.
    pub(super) commits: u64,
    /// The median of the rounds, and the extremes.
    pub(super) commits_per_s: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    /// How many times as fast as the first side: the median of the rounds in which both sides had their turn, and the
    /// first one committed something. `None` if it never did.
    pub(super) ratio: Option<f64>,
    /// Victims of deadlocks for a thousand commits, over all rounds.
    pub(super) deadlocks_per_1000: f64,
    pub(super) commits_per_flush: f64,
    pub(super) consistent: bool,
}

impl Row {
    /// What the rounds of a side have come to, beside those of the first side.
    pub(super) fn of(cell: Cell<'_>, side: &str, reports: &[Tried], first: &[Tried]) -> Row {
        let speeds =
            |reports: &[Tried]| -> Vec<f64> { reports.iter().map(|report| report.commits_per_s).collect() };
        let own = speeds(reports);
        let ratio = ratio(&own, &speeds(first));
        let commits: u64 = reports.iter().map(|report| report.commits).sum();
        let deadlocks: u64 = reports.iter().map(|report| report.deadlocks).sum();
        Row {
            log_latency: cell.log_latency.to_owned(),
            zipf: cell.zipf,
            read_ratio: cell.read_ratio,
            side: side.to_owned(),
            commits,
            least: own.iter().copied().fold(f64::INFINITY, f64::min),
            most: own.iter().copied().fold(0.0, f64::max),
            commits_per_s: median(own),
            ratio,
            deadlocks_per_1000: 1000.0 * deadlocks as f64 / commits.max(1) as f64,
            commits_per_flush: median(reports.iter().filter_map(|it| it.commits_per_flush).collect()),
            consistent: reports.iter().all(|report| report.consistent),
        }
    }
}

/// The median of the rounds in which the first side committed something: beside nothing nobody is so many times as
/// fast.
fn ratio(own: &[f64], first: &[f64]) -> Option<f64> {
    let ratios = own.iter().zip(first).filter(|(_, first)| **first > 0.0);
    rounds::median(ratios.map(|(own, first)| own / first))
}

fn median(figures: Vec<f64>) -> f64 {
    rounds::median(figures.into_iter()).unwrap_or(0.0)
}

/// What people have not been told yet.
pub(super) fn newest(outcome: &Outcome) -> String {
    outcome.rows.iter().skip(outcome.told).map(|row| text(row) + "\n").collect()
}

/// The line of a side for people.
pub(super) fn text(row: &Row) -> String {
    let Row { log_latency, zipf, read_ratio, side, commits_per_s, least, most, ratio, .. } = row;
    let Row { deadlocks_per_1000, commits_per_flush, consistent, .. } = row;
    format!(
        "  {log_latency:>10}{zipf:>6}{:>6.0}%  {side:<22}{commits_per_s:>12.0}{least:>10.0}{most:>10.0}{:>8}\
         {deadlocks_per_1000:>16.1}{commits_per_flush:>15.1}{}",
        read_ratio * 100.0,
        ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}x")),
        if *consistent { "" } else { "  INCONSISTENT" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_counts() {
        assert_eq!(median(vec![3.0, 1.0, 2.0, 7.0]), 2.5);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(Vec::new()), 0.0);
    }

    #[test]
    fn beside_nothing_nobody_is_faster() {
        assert_eq!(ratio(&[0.0, 6.0, 8.0], &[0.0, 2.0, 2.0]), Some(3.5));
        assert_eq!(ratio(&[7.0, 0.0], &[0.0, 0.0]), None);
    }
}
