//! Where jobs wait until somebody begins them.

use std::collections::VecDeque;

use foreshore_env::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use crate::job::Job;

/// Transactions that nobody has begun. There are as many queues as threads that run them, so that these seldom meet.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) jobs: Mutex<VecDeque<Box<dyn Job>>>,
    /// How many there are, for those who only look. Changed under the mutex.
    pub(crate) count: AtomicUsize,
}

impl Queue {
    /// The first.
    pub(crate) fn take(&self) -> Option<Box<dyn Job>> {
        let mut jobs = self.jobs.lock();
        let job = jobs.pop_front();
        self.count.store(jobs.len(), Ordering::SeqCst);
        job
    }

    /// Whether there is none, as far as can be told by looking.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Drops all: each tells so.
    pub(crate) fn clear(&self) {
        let jobs = std::mem::take(&mut *self.jobs.lock());
        self.count.store(0, Ordering::SeqCst);
        drop(jobs);
    }
}
