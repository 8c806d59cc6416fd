//! Clients whose transactions are drawn by the threads of the engine that run them.

use foreshore_env::{
    CachePadded,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use super::{Measured, PHASE_MEASURE, PHASE_STOP, RunOptions, Shared, StopOthers, Tally};
use crate::{
    BenchError,
    engine::{Attempts, Client, Failure, Outcome, Server, Serving},
    workload::{Worker, Workload},
};

/// What all clients have in common.
struct Common {
    shared: Arc<Shared>,
    /// Commits of each client. Written by it, read by the main thread for the live figure. Relaxed.
    progress: Box<[CachePadded<AtomicU64>]>,
    /// What those that have ended have counted, and the first failure.
    counted: Mutex<(Vec<Tally>, Option<Failure>)>,
}

/// One of them.
struct Drawn {
    worker: Box<dyn Worker>,
    number: usize,
    common: Arc<Common>,
    tally: Tally,
    /// Of the transaction that was drawn last: its kind, when it was drawn, and in which phase.
    kind: usize,
    begin: Instant,
    phase: u8,
    commits: u64,
}

impl Client for Drawn {
    fn draw(&mut self) -> bool {
        self.phase = self.common.shared.phase.load(Ordering::Relaxed);
        if self.phase == PHASE_STOP {
            return false;
        }
        self.kind = self.worker.next();
        self.begin = Instant::now();
        true
    }

    fn worker(&mut self) -> &mut dyn Worker {
        self.worker.as_mut()
    }

    fn ended(&mut self, outcome: Result<Outcome, Failure>, attempts: &Attempts) {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(failure) => {
                self.common.counted.lock().1.get_or_insert(failure);
                return drop(StopOthers(&self.common.shared));
            }
        };
        let latency = self.begin.elapsed();
        let phase = self.common.shared.phase.load(Ordering::Relaxed);
        let measured = self.phase == PHASE_MEASURE && phase == PHASE_MEASURE;
        if matches!(outcome, Outcome::Committed) {
            self.worker.committed();
            self.commits += 1;
            self.tally.all_commits[self.kind] += 1;
            self.common.progress[self.number].store(self.commits, Ordering::Relaxed);
        }
        if measured {
            self.tally.measured.count(self.kind, &outcome, attempts, latency);
        } else if self.phase == PHASE_MEASURE {
            self.tally.measured.attempts.add(attempts);
        }
        if phase == PHASE_STOP {
            self.tally.still_ran(self.begin);
        }
    }
}

impl Drop for Drawn {
    fn drop(&mut self) {
        let none = Tally::new(Measured::none());
        self.common.counted.lock().0.push(std::mem::replace(&mut self.tally, none));
        // Whatever the reason: a run with fewer of them than it reports would be a false figure.
        drop(StopOthers(&self.common.shared));
    }
}

/// All of them, being served.
pub(super) struct Served {
    common: Arc<Common>,
    serving: Box<dyn Serving>,
}

impl Served {
    /// Lets the engine draw from as many clients as it wants to have, until the phase says stop.
    pub(super) fn start(
        server: &dyn Server,
        workload: &dyn Workload,
        options: &RunOptions,
        shared: &Arc<Shared>,
    ) -> Result<Served, BenchError> {
        let (places, kinds) = (server.places(), workload.kinds().len());
        let common = Arc::new(Common {
            shared: Arc::clone(shared),
            progress: (0..places).map(|_| CachePadded::default()).collect(),
            counted: Mutex::new((Vec::with_capacity(places), None)),
        });
        let client = |number| -> Result<Box<dyn Client>, BenchError> {
            Ok(Box::new(Drawn {
                worker: workload.worker(number, places, options.seed),
                number,
                common: Arc::clone(&common),
                tally: Tally::new(Measured::coarse(kinds)?),
                kind: 0,
                begin: Instant::now(),
                phase: PHASE_STOP,
                commits: 0,
            }))
        };
        let clients = (0..places).map(client).collect::<Result<_, _>>()?;
        let serving = server.serve(clients)?;
        Ok(Served { common, serving })
    }

    /// Commits so far.
    pub(super) fn commits(&self) -> u64 {
        self.common.progress.iter().map(|commits| commits.load(Ordering::Relaxed)).sum()
    }

    /// Waits for the last of them.
    pub(super) fn end(self) -> Result<Vec<Tally>, BenchError> {
        let ended = self.serving.wait();
        let (tallies, failure) = std::mem::take(&mut *self.common.counted.lock());
        match failure {
            Some(failure) => Err(failure.into()),
            None => Ok(ended.map(|()| tallies)?),
        }
    }
}
