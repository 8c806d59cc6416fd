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
    deadlocks: u64,
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
                self.deadlocks += u64::from(failure.cause == AbortCause::Deadlock);
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
            // Beside victims, misses and stale reads the facade runs those again who had filled the log together, or
            // found no room in it. (Who falls victim while it gets the locks of its plan was not running; the engine's
            // counters have it.)
            let others = retries.saturating_sub(self.misses + self.stale);
            // The last run may have ended in a deadlock, too, and is none that was run again.
            let deadlocks = self.deadlocks.min(others);
            attempts.aborts.deadlock += deadlocks;
            attempts.aborts.other += others - deadlocks;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_run_again_for_want_of_log_is_no_victim() {
        let mut attempts = Attempts::default();
        let runs = Runs { rehearsals: 1, runs: 7, deadlocks: 2, stale: 1, ..Runs::default() };
        assert!(matches!(runs.outcome(&mut attempts, Ok(())), Ok(Outcome::Committed)));
        let aborts = attempts.aborts;
        assert_eq!((aborts.deadlock, aborts.conflict, aborts.other, attempts.retries), (2, 1, 2, 5));
        assert_eq!(aborts.total(), attempts.retries);
    }

    #[test]
    fn a_victim_that_is_given_up_counts_once() {
        let mut attempts = Attempts::default();
        let runs = Runs { runs: 3, deadlocks: 3, ..Runs::default() };
        // Whatever the last error is, it is counted beside the runs.
        let outcome = runs.outcome(&mut attempts, Err(Error::PlanMiss));
        assert!(matches!(outcome, Ok(Outcome::GaveUp(_))));
        let aborts = attempts.aborts;
        assert_eq!((aborts.deadlock, aborts.plan_miss, aborts.other), (2, 1, 0));
    }
}
