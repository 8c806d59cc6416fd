//! Where jobs wait until somebody begins them, or their deadlines pass.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
};

use foreshore_env::sync::{
    Mutex,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use crate::job::Job;

/// No deadline, in nanoseconds.
pub(crate) const NEVER: u64 = u64::MAX;

/// Jobs, for all threads that run transactions.
#[derive(Debug)]
pub(crate) struct Queue {
    jobs: Mutex<Jobs>,
    /// How many there are, for those who only look. Changed under the mutex. Relaxed: whoever has put a job rings
    /// behind a fence, and whoever goes to sleep looks behind one ([`Bell`](crate::bell::Bell)), so one of them sees
    /// the other. All others look by chance, and what they see they ask for under the mutex.
    count: AtomicUsize,
    /// The first of their deadlines, or [`NEVER`], likewise.
    earliest: AtomicU64,
}

/// Guarded by the mutex of [`Queue::jobs`].
#[derive(Debug, Default)]
struct Jobs {
    /// By number, in the order in which they came, each with its deadline.
    line: BTreeMap<u64, (Box<dyn Job>, u64)>,
    /// Deadlines and numbers of those that have one.
    deadlines: BTreeSet<(u64, u64)>,
    /// The last number that was given.
    last: u64,
}

impl Jobs {
    /// Takes out the one of this number, if it still waits.
    fn remove(&mut self, number: u64) -> Option<Box<dyn Job>> {
        let (job, deadline) = self.line.remove(&number)?;
        if deadline != NEVER {
            self.deadlines.remove(&(deadline, number));
        }
        Some(job)
    }
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { jobs: Mutex::default(), count: AtomicUsize::new(0), earliest: AtomicU64::new(NEVER) }
    }
}

impl Queue {
    /// Puts a job at the end, unless it is `closed`; whether it did. It drops it then. `deadline`: when it is overdue;
    /// `own`: the number of this queue. Gives it back where there are `most` already.
    pub(crate) fn put(
        &self,
        own: usize,
        job: Box<dyn Job>,
        deadline: u64,
        most: usize,
        closed: impl FnOnce() -> bool,
    ) -> Result<bool, Box<dyn Job>> {
        let mut jobs = self.jobs.lock();
        // Under the mutex: a thread that closes it later takes the job out.
        if closed() {
            drop(jobs);
            return Ok(false);
        }
        if jobs.line.len() >= most {
            return Err(job);
        }
        jobs.last += 1;
        let number = jobs.last;
        if let Some(waits_at) = job.waits_at() {
            waits_at.set(own, number);
        }
        jobs.line.insert(number, (job, deadline));
        if deadline != NEVER {
            jobs.deadlines.insert((deadline, number));
        }
        self.publish(&jobs);
        Ok(true)
    }

    /// The first.
    pub(crate) fn take(&self) -> Option<Box<dyn Job>> {
        let mut jobs = self.jobs.lock();
        let first = *jobs.line.first_key_value()?.0;
        let job = jobs.remove(first)?;
        self.publish(&jobs);
        Some(job)
    }

    /// The one of this number, if it still waits.
    pub(crate) fn withdraw(&self, number: u64) -> Option<Box<dyn Job>> {
        let mut jobs = self.jobs.lock();
        let job = jobs.remove(number)?;
        self.publish(&jobs);
        Some(job)
    }

    /// The one whose deadline passes first, if it has passed by `now`.
    pub(crate) fn take_overdue(&self, now: u64) -> Option<Box<dyn Job>> {
        if self.earliest() > now {
            return None;
        }
        let mut jobs = self.jobs.lock();
        let (_, first) = jobs.deadlines.first().copied().filter(|(deadline, _)| *deadline <= now)?;
        let job = jobs.remove(first)?;
        self.publish(&jobs);
        Some(job)
    }

    /// Tells those who only look.
    fn publish(&self, jobs: &Jobs) {
        let earliest = jobs.deadlines.first().map_or(NEVER, |(deadline, _)| *deadline);
        if self.earliest() != earliest {
            self.earliest.store(earliest, Ordering::Relaxed);
        }
        self.count.store(jobs.line.len(), Ordering::Relaxed);
    }

    /// When the first of them is overdue, as far as can be told by looking.
    pub(crate) fn earliest(&self) -> u64 {
        self.earliest.load(Ordering::Relaxed)
    }

    /// How many there are, likewise.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there is none, likewise.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all: each tells so.
    pub(crate) fn clear(&self) {
        let mut jobs = self.jobs.lock();
        let line = std::mem::take(&mut jobs.line);
        jobs.deadlines.clear();
        self.publish(&jobs);
        drop(jobs);
        line.into_values().for_each(|(job, _)| discard(job));
    }
}

/// Drops a job where all end. What panics in a destructor of the caller's keeps the others from nothing, nor does it
/// meet another panic.
pub(crate) fn discard(job: Box<dyn Job>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(job))) {
        // Its own destructor may be the next.
        std::mem::forget(panic);
    }
}
