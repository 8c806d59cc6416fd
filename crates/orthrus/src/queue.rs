//! Where jobs wait until somebody begins them.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
};

use foreshore_env::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use crate::job::Job;

/// Jobs, for all threads that run transactions or for one of them.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) jobs: Mutex<VecDeque<Box<dyn Job>>>,
    /// How many there are, for those who only look. Changed under the mutex.
    pub(crate) count: AtomicUsize,
}

impl Queue {
    /// Puts a job at the end, unless it is `closed`; whether it did. It drops it then.
    pub(crate) fn put(&self, job: Box<dyn Job>, closed: impl FnOnce() -> bool) -> bool {
        let mut jobs = self.jobs.lock();
        // Under the mutex: who closes it later takes the job out.
        if closed() {
            drop(jobs);
            return false;
        }
        jobs.push_back(job);
        self.count.store(jobs.len(), Ordering::SeqCst);
        true
    }

    /// The first.
    pub(crate) fn take(&self) -> Option<Box<dyn Job>> {
        let mut jobs = self.jobs.lock();
        let job = jobs.pop_front();
        self.count.store(jobs.len(), Ordering::SeqCst);
        job
    }

    /// How many there are, as far as can be told by looking.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there is none, likewise.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all: each tells so.
    pub(crate) fn clear(&self) {
        let jobs = std::mem::take(&mut *self.jobs.lock());
        self.count.store(0, Ordering::SeqCst);
        jobs.into_iter().for_each(discard);
    }
}

/// Drops a job where all end. What panics in a destructor of the caller's keeps the others from nothing, nor does it meet another
/// panic.
pub(crate) fn discard(job: Box<dyn Job>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(job))) {
        // Its own destructor may be the next.
        std::mem::forget(panic);
    }
}
