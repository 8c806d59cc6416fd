//! What a comparison of commits came to.

use serde::Serialize;

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
    pub(super) consistent: bool,
    pub(super) rows: Vec<Row>,
}

/// One side in one cell.
#[derive(Debug, Serialize)]
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
