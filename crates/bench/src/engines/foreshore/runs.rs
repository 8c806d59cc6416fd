//! What came of running a body.

use super::{Txn, facade, facade_error, failure};
use crate::engine::{AbortCause, Attempts, Body, Failure, Outcome, Stop};
use facade::{Error, ReadMode};

/// What a body did in all the runs of one transaction.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// Runs before the first that counts.
    rehearsals: u64,
    runs: u64,
    misses: u64,
    /// How the last run read.
    mode: Option<ReadMode>,
    stale: u64,
    wants_rollback: bool,
}

impl Runs {
    /// None yet; so many will not count.
    pub(super) fn after(rehearsals: u64) -> Runs {
        Runs { rehearsals, ..Runs::default() }
    }

    /// Runs the body once.
    pub(super) fn run(&mut self, txn: &mut Txn<'_>, body: &mut Body<'_>) -> facade::Result<()> {
        self.runs += 1;
        self.wants_rollback = false;
        // Stale reads are the only reason for which the facade goes over to locks.
        let before = self.mode.replace(txn.tx.read_mode());
        self.stale += u64::from(before == Some(ReadMode::Hybrid) && self.mode == Some(ReadMode::Locking));
        match body(txn) {
            Ok(()) => Ok(()),
            Err(Stop::Rollback) => {
                self.wants_rollback = true;
                Err(Error::application("rolled back by the workload"))
            }
            Err(Stop::Failed(failure)) => {
                self.misses += u64::from(failure.cause == AbortCause::PlanMiss);
                Err(facade_error(failure))
            }
        }
    }

    /// What the transaction came to.
    pub(super) fn outcome(
        &self,
        attempts: &mut Attempts,
        result: facade::Result<()>,
    ) -> Result<Outcome, Failure> {
        let retries = self.runs.saturating_sub(1 + self.rehearsals);
        if retries > 0 {
            // Deadlocks, misses and stale reads are the only aborts after which the facade runs a transaction again. (Who falls
            // victim while it gets the locks of its plan was not running; the engine's counters have it.)
            attempts.aborts.deadlock += retries.saturating_sub(self.misses + self.stale);
            attempts.aborts.plan_miss += self.misses;
            attempts.aborts.conflict += self.stale;
            attempts.retries += retries;
        }
        match result {
            Ok(()) => Ok(Outcome::Committed),
            Err(Error::Application(_)) if self.wants_rollback => Ok(Outcome::RolledBack),
            Err(error) => {
                let failure = failure(error);
                attempts.aborts.count(failure.cause);
                if failure.cause == AbortCause::Other { Err(failure) } else { Ok(Outcome::GaveUp(failure)) }
            }
        }
    }
}
