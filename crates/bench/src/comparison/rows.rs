//! The rows of a comparison, out of what its rounds have given.

use super::{ComparisonOptions, ComparisonRow, Contender, Series};
use crate::{
    report::{KindReport, Latency},
    rounds::median,
    workload::Workload,
};

/// What each variant did with each number of threads that it has had a round of.
pub(super) fn rows(
    workload: &dyn Workload,
    options: &ComparisonOptions,
    contenders: &[Contender<'_>],
) -> Vec<ComparisonRow> {
    let mut rows = Vec::new();
    for (place, &threads) in options.threads.iter().enumerate() {
        for Contender { variant, series, .. } in contenders {
            let own = &series[place];
            if own.rounds_per_s.is_empty() {
                continue;
            }
            let (commits_per_s, of_peak) = median_of_peak(series, place, |series| &series.rounds_per_s);
            let counted = !own.rounds_per_computed_s.is_empty();
            let computed =
                counted.then(|| median_of_peak(series, place, |series| &series.rounds_per_computed_s));
            let measured = &own.measured;
            let kinds = workload.kinds().iter().zip(&measured.commits).zip(&measured.latency);
            let commits: u64 = measured.commits.iter().sum();
            let aborts = measured.attempts.aborts;
            let attempts = own.ended + aborts.total();
            rows.push(ComparisonRow {
                variant: variant.name.clone(),
                threads,
                commits_per_s,
                of_peak,
                rounds_per_s: own.rounds_per_s.clone(),
                commits_per_computed_s: computed.map(|(rate, _)| rate),
                computed_of_peak: computed.map(|(_, of_peak)| of_peak),
                processors_busy: counted.then(|| own.computed.as_secs_f64() / own.elapsed.as_secs_f64()),
                commits,
                ended: own.ended,
                aborts,
                abort_ratio: aborts.total() as f64 / attempts.max(1) as f64,
                given_up: measured.given_up,
                by_kind: kinds
                    .filter(|((_, commits), _)| **commits > 0)
                    .map(|((name, commits), latency)| {
                        ((*name).to_owned(), KindReport::from((*commits, Latency::of(latency))))
                    })
                    .collect(),
                counters: own.counters.clone(),
                counted_commits: own.counted_commits,
            });
        }
    }
    rows
}

/// The median of the rounds with this number of threads, and its relation to the highest of all.
fn median_of_peak(series: &[Series], place: usize, rounds: impl Fn(&Series) -> &Vec<f64>) -> (f64, f64) {
    let rate = |series: &Series| median(rounds(series).clone());
    let begun = series.iter().filter(|series| !rounds(series).is_empty());
    let (own, peak) = (rate(&series[place]), begun.map(rate).fold(0.0, f64::max));
    (own, if peak > 0.0 { own / peak } else { 0.0 })
}
