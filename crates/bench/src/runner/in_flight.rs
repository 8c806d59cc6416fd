//! The loop of a client whose transactions run on threads of the engine: it has several on their way, and waits for the
//! oldest.

use std::collections::VecDeque;

use foreshore_env::{
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use super::{Measured, PHASE_MEASURE, PHASE_STOP, RunOptions, Shared, Tally};
use crate::{
    BenchError,
    engine::{Outcome, Submission, Submitted, Submitter},
    workload::{Worker, Workload},
};

/// A transaction on its way.
struct Running {
    submission: Box<dyn Submission>,
    kind: usize,
    begin: Instant,
    /// In which phase it was given away.
    phase: u8,
}

/// What a client has on its way, oldest first.
pub(super) struct InFlight<'e> {
    submitter: &'e dyn Submitter,
    running: VecDeque<Running>,
    /// Those who draw the transactions, while none of theirs is on its way.
    idle: Vec<Box<dyn Worker>>,
}

/// One that has ended.
struct Ended {
    kind: usize,
    begin: Instant,
    phase: u8,
    submitted: Submitted,
}

impl<'e> InFlight<'e> {
    /// For one of the clients of a run. Each transaction on its way has a worker of its own.
    pub(super) fn new(
        submitter: &'e dyn Submitter,
        workload: &dyn Workload,
        client: usize,
        options: &RunOptions,
    ) -> InFlight<'e> {
        let each = submitter.in_flight().max(1);
        let workers = options.threads * each;
        let idle =
            (0..each).map(|number| workload.worker(client * each + number, workers, options.seed)).collect();
        InFlight { submitter, running: VecDeque::with_capacity(each), idle }
    }

    /// Gives transactions away, up to `most`; how many.
    fn fill(&mut self, most: u64, phase: u8) -> Result<u64, BenchError> {
        let mut given = 0;
        while given < most
            && let Some(mut worker) = self.idle.pop()
        {
            let kind = worker.next();
            let begin = Instant::now();
            let submission = self.submitter.submit(worker)?;
            self.running.push_back(Running { submission, kind, begin, phase });
            given += 1;
        }
        Ok(given)
    }

    /// Waits for the oldest, if there is one.
    fn oldest(&mut self) -> Result<Option<Ended>, BenchError> {
        let Some(Running { submission, kind, begin, phase }) = self.running.pop_front() else {
            return Ok(None);
        };
        let mut submitted = submission.wait()?;
        if matches!(submitted.outcome, Outcome::Committed) {
            submitted.worker.committed();
        }
        Ok(Some(Ended { kind, begin, phase, submitted }))
    }

    /// Takes back who drew it.
    fn take_back(&mut self, ended: Ended) {
        self.idle.push(ended.submitted.worker);
    }

    /// Works until the phase says stop, and then waits for all that is on its way. As measured counts what was given
    /// away and came back while measured.
    pub(super) fn work(
        mut self,
        kinds: usize,
        shared: &Shared,
        progress: &AtomicU64,
    ) -> Result<Tally, BenchError> {
        let mut tally = Tally::new(Measured::new(kinds)?);
        let mut unmeasured = Measured::new(kinds)?;
        let mut commits = 0;
        loop {
            let phase = shared.phase.load(Ordering::Relaxed);
            if phase != PHASE_STOP {
                self.fill(u64::MAX, phase)?;
            }
            let Some(ended) = self.oldest()? else { break };
            let latency = ended.begin.elapsed();
            let phase = shared.phase.load(Ordering::Relaxed);
            let measured = ended.phase == PHASE_MEASURE && phase == PHASE_MEASURE;
            let counts = if measured { &mut tally.measured } else { &mut unmeasured };
            if matches!(ended.submitted.outcome, Outcome::Committed) {
                commits += 1;
                tally.all_commits[ended.kind] += 1;
                progress.store(commits, Ordering::Relaxed);
            }
            counts.count(ended.kind, &ended.submitted.outcome, &ended.submitted.attempts, latency);
            if ended.phase == PHASE_MEASURE && !measured {
                tally.measured.attempts.add(&ended.submitted.attempts);
            }
            if phase == PHASE_STOP {
                tally.still_ran(ended.begin);
            }
            self.take_back(ended);
        }
        Ok(tally)
    }

    /// Runs so many transactions.
    pub(super) fn iterate(&mut self, count: u64, mut measured: Measured) -> Result<Measured, BenchError> {
        let mut left = count;
        loop {
            left -= self.fill(left, PHASE_MEASURE)?;
            let Some(ended) = self.oldest()? else { return Ok(measured) };
            let Submitted { outcome, attempts, .. } = &ended.submitted;
            measured.count(ended.kind, outcome, attempts, ended.begin.elapsed());
            self.take_back(ended);
        }
    }
}
