//! What a comparison found. As JSON its field names are stable: programs read them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::child::Failed;
use crate::bench::rounds::median;

/// What one run told.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Round {
    pub(super) commits_per_s: f64,
    pub(super) cpu_us_per_commit: Option<f64>,
    pub(super) abort_percent: f64,
    pub(super) given_up: u64,
    /// None if nothing was committed.
    pub(super) p99_us: Option<f64>,
    /// Of all that were committed, or ran when the time was over.
    pub(super) max_us: Option<f64>,
    pub(super) peak_memory_bytes: Option<u64>,
    pub(super) consistent: bool,
    /// Those of the engine are beside all its rounds.
    #[serde(skip)]
    pub(super) caveats: Vec<String>,
}

/// The runs of an engine, up to the first that failed.
pub(super) struct Runs {
    pub(super) engine: &'static str,
    pub(super) rounds: Vec<Round>,
    pub(super) failure: Option<Failed>,
}

/// All results, and what shaped them.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) experiment: &'static str,
    pub(super) version: &'static str,
    /// That the program was built from.
    pub(super) commit: &'static str,
    pub(super) processors: usize,
    /// Measured of each run.
    pub(super) seconds: f64,
    pub(super) warm_up_seconds: f64,
    pub(super) rounds: u16,
    pub(super) seed: u64,
    pub(super) durability: &'static str,
    pub(super) cache: String,
    /// What each engine was told by `--set`, in this order: the last of a name counts.
    pub(super) settings: BTreeMap<&'static str, Vec<String>>,
    /// Each workload as `foreshore bench` is told it.
    pub(super) workloads: BTreeMap<&'static str, String>,
    /// Whether it was interrupted: what would have come is missing, and of the last combination some rounds may be.
    pub(super) partial: bool,
    /// So many results people have been told of: those of the combinations before the one that is measured.
    #[serde(skip)]
    pub(super) told: usize,
    /// By workload, threads, engine, in the order of the arguments.
    pub(super) results: Vec<EngineResult>,
}

/// An engine with a workload and a number of threads, over all rounds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct EngineResult {
    pub(super) workload: &'static str,
    pub(super) threads: u16,
    pub(super) engine: &'static str,
    /// The median; the least and the most are beside it. None if no run ended well.
    pub(super) commits_per_s: Option<f64>,
    pub(super) commits_per_s_least: Option<f64>,
    pub(super) commits_per_s_most: Option<f64>,
    /// How many times as fast the first engine is: the median of the rounds' ratios.
    pub(super) first_engine_ratio: Option<f64>,
    /// The median.
    pub(super) cpu_us_per_commit: Option<f64>,
    /// Of all attempts; the median.
    pub(super) abort_percent: Option<f64>,
    /// Transactions that were aborted as often as the engine retries, in all rounds.
    pub(super) given_up: u64,
    /// How long a thread has to wait for a commit on average: the threads by the throughput. In a closed loop few
    /// transactions that take long, while others are kept from beginning, do not show in the p99.
    pub(super) mean_us: Option<f64>,
    /// The median.
    pub(super) p99_us: Option<f64>,
    /// The longest of all rounds.
    pub(super) max_us: Option<f64>,
    /// The most of all rounds.
    pub(super) peak_memory_bytes: Option<u64>,
    /// Whether all checks held in all rounds, and no run met data that none can have left. None if no round told.
    pub(super) consistent: Option<bool>,
    /// What the engine does not promise.
    pub(super) caveats: Vec<String>,
    /// The figures of each round, in turn.
    pub(super) rounds: Vec<Round>,
    /// Why a run failed; the figures are those of the runs before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
}

/// The results of engines that took turns.
pub(super) fn of(workload: &'static str, threads: u16, engines: &[Runs]) -> Vec<EngineResult> {
    let first = engines.first().map_or(&[][..], |runs| &runs.rounds);
    let result = |Runs { engine, rounds, failure }: &Runs| {
        let rates = || rounds.iter().map(|round| round.commits_per_s);
        let ratios = first.iter().zip(rounds).filter(|(_, round)| round.commits_per_s > 0.0);
        let commits_per_s = median(rates());
        EngineResult {
            workload,
            threads,
            engine,
            commits_per_s,
            commits_per_s_least: rates().min_by(f64::total_cmp),
            commits_per_s_most: rates().max_by(f64::total_cmp),
            first_engine_ratio: median(
                ratios.map(|(first, round)| first.commits_per_s / round.commits_per_s),
            ),
            cpu_us_per_commit: median(rounds.iter().filter_map(|round| round.cpu_us_per_commit)),
            abort_percent: median(rounds.iter().map(|round| round.abort_percent)),
            given_up: rounds.iter().map(|round| round.given_up).sum(),
            mean_us: commits_per_s.filter(|rate| *rate > 0.0).map(|rate| f64::from(threads) * 1e6 / rate),
            p99_us: median(rounds.iter().filter_map(|round| round.p99_us)),
            max_us: rounds.iter().filter_map(|round| round.max_us).max_by(f64::total_cmp),
            peak_memory_bytes: rounds.iter().filter_map(|round| round.peak_memory_bytes).max(),
            consistent: match failure {
                Some(Failed { is_loss: true, .. }) => Some(false),
                _ => (!rounds.is_empty()).then(|| rounds.iter().all(|round| round.consistent)),
            },
            caveats: rounds.first().map(|round| round.caveats.clone()).unwrap_or_default(),
            rounds: rounds.clone(),
            failure: failure.as_ref().map(|failed| failed.why.clone()),
        }
    };
    engines.iter().map(result).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn round(commits_per_s: f64, max_us: f64) -> Round {
        Round {
            commits_per_s,
            cpu_us_per_commit: Some(1e6 / commits_per_s),
            abort_percent: 1.0,
            given_up: 1,
            p99_us: Some(20.0),
            max_us: Some(max_us),
            peak_memory_bytes: Some(max_us as u64),
            consistent: true,
            caveats: vec!["it has no log".to_owned()],
        }
    }

    /// Two engines, one of which failed in its third round.
    pub(in super::super) fn results(threads: u16) -> Vec<EngineResult> {
        let runs = |engine, rounds| Runs { engine, rounds, failure: None };
        let first = vec![round(100.0, 7.0), round(400.0, 9.0), round(200.0, 8.0)];
        let second = vec![round(50.0, 1.0), round(100.0, 2.0)];
        let failure = Some("the disk is full".to_owned().into());
        of("tpcb", threads, &[runs("foreshore", first), Runs { failure, ..runs("redb", second) }])
    }

    /// An engine that failed in its first round.
    pub(in super::super) fn without_rounds() -> EngineResult {
        let failure = Some("no".to_owned().into());
        of("tpcb", 1, &[Runs { engine: "redb", rounds: vec![], failure }]).remove(0)
    }

    /// It stood there with 0 commits/s, and as consistent.
    #[test]
    fn what_never_ran_has_no_figures_in_json() {
        let json = serde_json::to_value(without_rounds()).unwrap();
        let figures = [
            "commits_per_s",
            "commits_per_s_least",
            "commits_per_s_most",
            "abort_percent",
            "first_engine_ratio",
            "mean_us",
            "p99_us",
            "max_us",
            "consistent",
        ];
        for name in figures {
            assert!(json[name].is_null() && json.get(name).is_some(), "{name}: {json}");
        }
        assert_eq!(json["failure"], "no");
    }

    /// It was a failure like any other, and the rounds before it were consistent.
    #[test]
    fn a_run_that_met_a_loss_is_inconsistent() {
        let lost = Failed { why: "stock has lost row 7".to_owned(), is_loss: true };
        let runs = Runs { engine: "redb", rounds: vec![round(100.0, 7.0)], failure: Some(lost) };
        let result = of("tpcc", 1, &[runs]).remove(0);
        assert_eq!(
            (result.consistent, result.failure.as_deref()),
            (Some(false), Some("stock has lost row 7"))
        );
    }

    #[test]
    fn medians_and_paired_ratios() {
        let results = results(2);
        let [first, second] = &results[..] else { panic!("{results:?}") };
        assert_eq!((first.commits_per_s, first.max_us, first.given_up), (Some(200.0), Some(9.0), 3));
        assert_eq!((first.consistent, first.abort_percent), (Some(true), Some(1.0)));
        assert_eq!((first.mean_us, first.rounds.len()), (Some(10_000.0), 3));
        assert_eq!(first.first_engine_ratio, Some(1.0));
        assert_eq!((second.commits_per_s, second.first_engine_ratio), (Some(75.0), Some(3.0)));
        assert_eq!((second.commits_per_s_least, second.commits_per_s_most), (Some(50.0), Some(100.0)));
        assert!(second.failure.is_some());
        assert_eq!(median([].into_iter()), None);
    }
}
