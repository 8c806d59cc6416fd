//! The result of a run. As JSON its field names are stable: programs read them.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::{engine::AbortCounts, workload::Check};

/// Latencies of committed transactions in microseconds, retries included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Half were at most this.
    pub p50: f64,
    /// 99 of a hundred were at most this.
    pub p99: f64,
    /// All were at most this; in [`Report::latency_us`] also the age of those that were not over when the measured time
    /// was.
    pub max: f64,
}

impl Latency {
    /// From a histogram of nanoseconds, which is not empty.
    pub fn of(histogram: &Histogram<u64>) -> Latency {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Latency { p50: at(0.5), p99: at(0.99), max: histogram.max() as f64 / 1000.0 }
    }
}

/// One kind of transaction of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KindReport {
    /// Commits while measured.
    pub commits: u64,
    /// Their latencies.
    pub latency_us: Latency,
}

impl From<(u64, Latency)> for KindReport {
    fn from((commits, latency_us): (u64, Latency)) -> KindReport {
        KindReport { commits, latency_us }
    }
}

/// The result of a run. What a run measured covers the measured time only; the checks cover everything.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The engine's name.
    pub engine: String,
    /// The workload's name.
    pub workload: String,
    /// The version of this program.
    pub version: String,
    /// The seed of all inputs.
    pub seed: u64,
    /// Threads that ran transactions.
    pub threads: usize,
    /// How long was measured.
    pub seconds: f64,
    /// Transactions that began, and were committed, while measured: those of `latency_us`.
    pub commits: u64,
    /// Commits that ended while measured, whenever their transactions began.
    pub ended: u64,
    /// These for each second. Without those that began earlier, long transactions and short runs would look slower than
    /// they are.
    pub commits_per_s: f64,
    /// Commits that one flush of the log made durable, on average over the whole run; `None` if the engine has no log,
    /// or did not flush it.
    pub commits_per_flush: Option<f64>,
    /// Processor time of all threads of the process for each of `ended`, in microseconds;
    /// `None` where the system does not tell.
    pub cpu_us_per_commit: Option<f64>,
    /// The most memory that the process had until the checks began, in bytes; `None` where the system does not tell.
    pub peak_memory_bytes: Option<u64>,
    /// What the engine does not promise although the run asks for it.
    pub caveats: Vec<String>,
    /// Transactions rolled back by the workload's wish.
    pub user_rollbacks: u64,
    /// Attempts that the engine aborted, by cause.
    pub aborts: AbortCounts,
    /// Attempts after an aborted one.
    pub retries: u64,
    /// Transactions that were aborted as often as the engine retries, and given up.
    pub given_up: u64,
    /// Latencies of all kinds of transactions together; `None` if there are no `commits`.
    pub latency_us: Option<Latency>,
    /// How old the oldest transaction was that ran when the measured time was over; `None` if none did.
    pub oldest_running_us: Option<f64>,
    /// The kinds that committed at least one transaction.
    pub by_kind: BTreeMap<String, KindReport>,
    /// Whether all checks hold.
    pub consistent: bool,
    /// What was checked at the end.
    pub checks: Vec<Check>,
    /// What shaped the run.
    pub options: BTreeMap<String, serde_json::Value>,
    /// The engine's own counters at the end.
    pub counters: BTreeMap<String, u64>,
    /// How long loading took.
    pub load_seconds: f64,
    /// How long checking took.
    pub check_seconds: f64,
}
