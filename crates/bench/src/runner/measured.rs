//! What threads count while they run transactions.

use hdrhistogram::Histogram;

use crate::{
    BenchError,
    engine::{Attempts, Failure, Outcome},
};
use foreshore_env::time::{Duration, Instant};

/// Latencies above this are recorded as this.
const LONGEST_LATENCY_NS: u64 = 3_600_000_000_000;

/// What one thread has seen.
pub(super) struct Tally {
    /// Commits since the start of the run, warm-up included, by kind: the checks need them all.
    pub(super) all_commits: Vec<u64>,
    pub(super) measured: Measured,
    /// When the oldest transaction began that had not ended when the phase said stop.
    pub(super) running_since: Option<Instant>,
}

impl Tally {
    pub(super) fn new(measured: Measured) -> Tally {
        Tally { all_commits: vec![0; measured.commits.len()], measured, running_since: None }
    }

    /// A transaction that began then was seen to end behind the measured time.
    #[cold]
    pub(super) fn still_ran(&mut self, begin: Instant) {
        self.running_since = Some(self.running_since.map_or(begin, |oldest| oldest.min(begin)));
    }
}

/// What is counted while measured: transactions that began and ended then.
pub(crate) struct Measured {
    /// In nanoseconds, by kind.
    pub(crate) latency: Vec<Histogram<u64>>,
    /// By kind.
    pub(crate) commits: Vec<u64>,
    pub(crate) user_rollbacks: u64,
    pub(crate) given_up: u64,
    pub(crate) attempts: Attempts,
}

impl Measured {
    pub(crate) fn new(kinds: usize) -> Result<Measured, BenchError> {
        Measured::with_digits(kinds, 3)
    }

    /// The same, with latencies that are exact to a percent, in a tenth of the memory: for hundreds of clients.
    pub(super) fn coarse(kinds: usize) -> Result<Measured, BenchError> {
        Measured::with_digits(kinds, 2)
    }

    fn with_digits(kinds: usize, digits: u8) -> Result<Measured, BenchError> {
        let histogram = || {
            Histogram::new_with_bounds(1, LONGEST_LATENCY_NS, digits)
                .map_err(|error| Failure::fatal(format!("cannot make a latency histogram: {error}")))
        };
        let latency = (0..kinds).map(|_| histogram()).collect::<Result<_, Failure>>()?;
        Ok(Measured { latency, commits: vec![0; kinds], ..Measured::none() })
    }

    /// Of no kinds.
    pub(super) fn none() -> Measured {
        Measured {
            latency: Vec::new(),
            commits: Vec::new(),
            user_rollbacks: 0,
            given_up: 0,
            attempts: Attempts::default(),
        }
    }

    pub(crate) fn add(&mut self, other: &Measured) -> Result<(), BenchError> {
        for (mine, theirs) in self.latency.iter_mut().zip(&other.latency) {
            mine.add(theirs).map_err(|error| Failure::fatal(format!("cannot add latencies: {error}")))?;
        }
        for (mine, theirs) in self.commits.iter_mut().zip(&other.commits) {
            *mine += theirs;
        }
        self.user_rollbacks += other.user_rollbacks;
        self.given_up += other.given_up;
        self.attempts.add(&other.attempts);
        Ok(())
    }

    #[inline]
    pub(super) fn count(&mut self, kind: usize, outcome: &Outcome, attempts: &Attempts, latency: Duration) {
        match outcome {
            Outcome::Committed => {
                self.commits[kind] += 1;
                self.latency[kind]
                    .saturating_record(latency.as_nanos().min(u128::from(LONGEST_LATENCY_NS)) as u64);
            }
            Outcome::RolledBack => self.user_rollbacks += 1,
            Outcome::GaveUp(_) => self.given_up += 1,
        }
        if attempts.aborts.total() > 0 {
            self.attempts.add(attempts);
        }
    }
}
