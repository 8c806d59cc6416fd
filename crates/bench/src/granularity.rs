//! How many tuples a latch should guard (Böttcher et al. 2020, §4.2 and figure 7): a table of numbers in memory,
//! scanned from end to end by all threads, with updates of single tuples among the scans.
//!
//! The paper does not say what its share of writes is a share of; here it is one of the tuples that are touched. A scan
//! reads a latch's tuples as cheaply as the latch can ([`Latch::read`]); an update takes the latch exclusively.

use foreshore_env::{
    CachePadded,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};
use foreshore_latch::baseline::{Latch, LatchKind, Visit};
use serde::Serialize;

use crate::{
    BenchError, Check,
    random::Random,
    rounds::{check_rounds, in_turns, median, run_together},
};

/// Most tuples of a table: 128 MiB.
pub const MAX_TUPLES: usize = 1 << 24;
/// Threads warm up for this part of the time.
const WARM_UP_PART: u32 = 4;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct GranularityOptions {
    /// The latches.
    pub latches: Vec<LatchKind>,
    /// Tuples of the table.
    pub tuples: usize,
    /// Tuples that a latch guards.
    pub per_latch: Vec<usize>,
    /// Of a hundred tuples that are touched so many are updated, below 100.
    pub writes: Vec<u32>,
    /// Threads.
    pub threads: usize,
    /// How long each combination is measured, all rounds together.
    pub seconds: Duration,
    /// Rounds; the median counts.
    pub rounds: usize,
    /// The seed of the updates.
    pub seed: u64,
}

/// What one combination showed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GranularityResult {
    /// The latch.
    pub latch: &'static str,
    /// Tuples that each latch guarded.
    pub per_latch: usize,
    /// Of a hundred tuples so many were updated.
    pub writes: u32,
    /// Tuples that were read or updated in a second, by all threads together: the median of the rounds.
    pub tuples_per_s: f64,
}

/// Measurements of granularity. As JSON its field names are stable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GranularityReport {
    /// `granularity`.
    pub experiment: &'static str,
    /// The version of this program.
    pub version: &'static str,
    /// Threads that can run at the same time.
    pub processors: usize,
    /// Threads that ran.
    pub threads: usize,
    /// Tuples of the table.
    pub tuples: usize,
    /// How long each combination was measured, in seconds.
    pub seconds: f64,
    /// In so many rounds.
    pub rounds: usize,
    /// For each share of writes, number of tuples and latch.
    pub results: Vec<GranularityResult>,
    /// Whether all checks hold.
    pub consistent: bool,
    /// What was checked.
    pub checks: Vec<Check>,
}

/// Measures all combinations. `progress` is told how many rounds are done, of how many.
///
/// # Errors
///
/// Options that make no sense.
pub fn measure_granularity(
    options: &GranularityOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<GranularityReport, BenchError> {
    check(options)?;
    let mut cells = Vec::new();
    for &writes in &options.writes {
        for &per_latch in &options.per_latch {
            cells.extend(options.latches.iter().map(|latch| (*latch, per_latch, writes, Vec::new())));
        }
    }
    let span = options.seconds / options.rounds as u32;
    let mut updates = Check::new("the table holds as many updates as were made");
    in_turns(&mut cells, options.rounds, progress, |(latch, per_latch, writes, rounds)| {
        let round = Round {
            tuples: options.tuples,
            per_latch: *per_latch,
            writes: *writes,
            threads: options.threads,
            span,
            seed: options.seed,
        };
        let outcome = latch.visit(round)?;
        let place = || format!("{latch}, {per_latch} tuples for a latch");
        updates.expect_equal(&place, ("held", outcome.held as i64), ("made", outcome.made as i64));
        rounds.push(outcome.tuples_per_s);
        Ok(())
    })?;
    let results = cells.into_iter().map(|(latch, per_latch, writes, rounds)| GranularityResult {
        latch: latch.name(),
        per_latch,
        writes,
        tuples_per_s: median(rounds),
    });
    Ok(GranularityReport {
        experiment: "granularity",
        version: env!("CARGO_PKG_VERSION"),
        processors: thread::available_parallelism(),
        threads: options.threads,
        tuples: options.tuples,
        seconds: options.seconds.as_secs_f64(),
        rounds: options.rounds,
        results: results.collect(),
        consistent: updates.holds,
        checks: vec![updates],
    })
}

fn check(options: &GranularityOptions) -> Result<(), BenchError> {
    check_rounds(options.rounds, options.seconds, &[options.threads])?;
    let tuples = options.tuples;
    if !(1..=MAX_TUPLES).contains(&tuples) {
        return Err(BenchError::invalid(format!(
            "a table of {tuples} tuples cannot be measured; give 1 to {MAX_TUPLES}"
        )));
    }
    if let Some(per_latch) = options.per_latch.iter().find(|per_latch| !(1..=tuples).contains(*per_latch)) {
        return Err(BenchError::invalid(format!(
            "a latch cannot guard {per_latch} tuples of a table of {tuples}; give 1 to {tuples}"
        )));
    }
    match options.writes.iter().find(|writes| **writes >= 100) {
        Some(writes) => {
            Err(BenchError::invalid(format!("{writes} of a hundred tuples leave no scan; give 0 to 99")))
        }
        None => Ok(()),
    }
}

/// The table: tuples in a row, and a latch for so many of them each.
struct Table<L> {
    /// Each on lines of its own: what is measured is how much one guards, not who its neighbour is.
    latches: Vec<CachePadded<L>>,
    /// Guarded by the latches; relaxed, because optimistic readers race with writers.
    tuples: Vec<AtomicU64>,
    per_latch: usize,
}

impl<L: Latch> Table<L> {
    fn new(tuples: usize, per_latch: usize) -> Table<L> {
        let latches = (0..tuples.div_ceil(per_latch)).map(|_| CachePadded::default()).collect();
        Table { latches, tuples: (0..tuples).map(|_| AtomicU64::new(0)).collect(), per_latch }
    }

    /// Reads what a latch guards; gives the sum, and how many it is.
    fn scan(&self, latch: usize) -> (u64, usize) {
        let begin = latch * self.per_latch;
        let tuples = &self.tuples[begin..self.tuples.len().min(begin + self.per_latch)];
        let sum = || tuples.iter().fold(0, |sum: u64, tuple| sum.wrapping_add(tuple.load(Ordering::Relaxed)));
        (self.latches[latch].read(sum), tuples.len())
    }

    fn update(&self, tuple: usize) {
        self.latches[tuple / self.per_latch].exclusive(|| {
            let value = self.tuples[tuple].load(Ordering::Relaxed);
            self.tuples[tuple].store(value + 1, Ordering::Relaxed);
        });
    }
}

/// Threads use a table for a while.
struct Round {
    tuples: usize,
    per_latch: usize,
    writes: u32,
    threads: usize,
    span: Duration,
    seed: u64,
}

/// What a round showed.
struct Outcome {
    tuples_per_s: f64,
    /// The updates that the table holds, and those that were made.
    held: u64,
    made: u64,
}

impl Visit for Round {
    type Output = Result<Outcome, BenchError>;

    fn visit<L: Latch>(self) -> Result<Outcome, BenchError> {
        let table = Table::<L>::new(self.tuples, self.per_latch);
        let (counts, span) =
            run_together(self.threads, (self.span / WARM_UP_PART, self.span), |number, clock| {
                let mut random = Random::new(self.seed, number as u64);
                // Threads begin at different places, as scans that come at different times do.
                let mut latch = table.latches.len() * number / self.threads;
                let (mut measured, mut made) = (0_u64, 0_u64);
                // Hundredths of updates that are due: for each tuple scanned `writes` of so many.
                let (mut due, each) = (0, u64::from(100 - self.writes));
                let mut sum = 0_u64;
                // What began while it was measured counts.
                'time: while let Some(mut counts) = clock.goes_on() {
                    let (seen, scanned) = table.scan(latch);
                    sum = sum.wrapping_add(seen);
                    measured += if counts { scanned as u64 } else { 0 };
                    latch = (latch + 1) % table.latches.len();
                    due += scanned as u64 * u64::from(self.writes);
                    while due >= each {
                        table.update(random.below(self.tuples as u64) as usize);
                        due -= each;
                        made += 1;
                        measured += u64::from(counts);
                        match clock.goes_on() {
                            Some(goes_on) => counts = goes_on,
                            None => break 'time,
                        }
                    }
                }
                std::hint::black_box(sum);
                Ok((measured, made))
            })?;
        Ok(Outcome {
            tuples_per_s: counts.iter().map(|(measured, _)| measured).sum::<u64>() as f64
                / span.elapsed.as_secs_f64(),
            held: table.tuples.iter().map(|tuple| tuple.load(Ordering::Relaxed)).sum(),
            made: counts.iter().map(|(_, made)| made).sum(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::until_enough;
    fn options(seconds: Duration) -> GranularityOptions {
        GranularityOptions {
            latches: LatchKind::ALL.to_vec(),
            tuples: 250,
            per_latch: vec![1, 100, 250],
            writes: vec![0, 10],
            threads: 3,
            seconds,
            rounds: 2,
            seed: 7,
        }
    }

    #[test]
    fn all_latches_are_measured_at_all_granularities() {
        let measure = |seconds| {
            let mut rounds = 0;
            let told = &mut |done, total| {
                rounds += 1;
                assert_eq!((done, total), (rounds, 2 * 3 * 2 * LatchKind::ALL.len()));
            };
            (measure_granularity(&options(seconds), told).unwrap(), rounds)
        };
        let (report, rounds) = until_enough(Duration::from_millis(4), measure, |(report, _)| {
            report.results.iter().all(|result| result.tuples_per_s > 0.0)
        });
        assert!(report.consistent, "{:?}", report.checks);
        assert_eq!(report.results.len(), rounds / 2);
        assert!(report.results.iter().all(|result| result.tuples_per_s > 0.0), "{:?}", report.results);
    }

    #[test]
    fn a_latch_guards_its_tuples_and_no_others() {
        let table = Table::<foreshore_latch::HybridLatch>::new(11, 5);
        table.update(7);
        table.update(10);
        table.update(10);
        let scans: Vec<_> = (0..table.latches.len()).map(|latch| table.scan(latch)).collect();
        assert_eq!(scans, [(0, 5), (1, 5), (2, 1)]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let wrong: [fn(&mut GranularityOptions); 6] = [
            |options| options.tuples = 0,
            |options| options.per_latch = vec![251],
            |options| options.per_latch = vec![0],
            |options| options.writes = vec![100],
            |options| options.threads = 0,
            |options| options.rounds = 0,
        ];
        for change in wrong {
            let mut options = options(Duration::from_millis(4));
            change(&mut options);
            assert!(measure_granularity(&options, &mut |_, _| ()).is_err(), "{options:?}");
        }
    }
}
