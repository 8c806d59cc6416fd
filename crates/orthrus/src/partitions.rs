//! The threads together: starting them, giving them work, ending them.

use std::{
    collections::{HashMap, VecDeque},
    io,
};

use foreshore_env::{
    CachePadded,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use crate::{
    bell::Bell,
    control::Control,
    execution::Execution,
    job::Job,
    mesh::{Counts, channel},
};

/// The most threads of either kind.
pub const MAX_THREADS: usize = 256;

/// How the threads are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionOptions {
    /// Threads that lock, one for each partition of the lock names: 1 to [`MAX_THREADS`].
    pub control_threads: usize,
    /// Threads that run transactions: 1 to [`MAX_THREADS`].
    pub execution_threads: usize,
    /// Transactions that an execution thread has begun and not ended, at most; at least 1.
    pub window: usize,
    /// Messages that a ring holds, rounded up to a power of two.
    pub ring_capacity: usize,
}

/// What the threads have done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionStats {
    /// Transactions that were done, whatever came of them.
    pub done: u64,
    /// Messages that carried a footprint: for each time that its locks were asked for, one more than it has partitions.
    pub messages: u64,
    /// Messages that carried locks to be given back: one for each partition.
    pub releases: u64,
    /// Messages that found their ring full and waited at their sender.
    pub rings_full: u64,
    /// Locks that were not free when they were asked for.
    pub waits: u64,
    /// Transactions that had to begin again a little later, because a table was locked or a deadlock was resolved.
    pub later: u64,
}

/// A thread, as counts are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Member {
    Control(usize),
    Execution(usize),
}

/// What all threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    options: PartitionOptions,
    /// Set once, by whoever ends them, or dies among them (ORTHRUS-4).
    stopped: AtomicBool,
    /// A thread has died.
    poisoned: AtomicBool,
    jobs: Mutex<VecDeque<Box<dyn Job>>>,
    /// How many there are, for those who only look. Changed under the mutex.
    job_count: AtomicUsize,
    /// Of the control threads, then of the execution threads.
    counts: Box<[CachePadded<Counts>]>,
    bells: Box<[Arc<Bell>]>,
    /// The execution thread that is woken for the next job.
    next: AtomicUsize,
}

impl std::fmt::Debug for dyn Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Job")
    }
}

impl Shared {
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(crate) fn partitions(&self) -> usize {
        self.options.control_threads
    }

    pub(crate) fn window(&self) -> usize {
        self.options.window
    }

    pub(crate) fn counts(&self, member: Member) -> &Counts {
        match member {
            Member::Control(partition) => &self.counts[partition],
            Member::Execution(thread) => &self.counts[self.options.control_threads + thread],
        }
    }

    pub(crate) fn has_jobs(&self) -> bool {
        self.job_count.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn take_job(&self) -> Option<Box<dyn Job>> {
        if !self.has_jobs() {
            return None;
        }
        let mut jobs = self.jobs.lock();
        let job = jobs.pop_front();
        self.job_count.store(jobs.len(), Ordering::SeqCst);
        job
    }

    /// Ends all threads, soon; what they have in hand is dropped, and so told of it.
    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let jobs = std::mem::take(&mut *self.jobs.lock());
        self.job_count.store(0, Ordering::SeqCst);
        drop(jobs);
        for bell in &self.bells {
            bell.ring();
        }
    }
}

/// Stops all when its thread dies.
struct Fuse(Arc<Shared>);

impl Drop for Fuse {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.poisoned.store(true, Ordering::Release);
            self.0.stop();
        }
    }
}

/// The threads. Dropping it ends them, without waiting for them.
#[derive(Debug)]
pub struct Partitions {
    shared: Arc<Shared>,
}

impl Partitions {
    /// Starts the threads.
    ///
    /// # Errors
    /// What the system says when it has no more threads; those that were started end.
    ///
    /// # Panics
    /// Never; options out of their limits are brought into them.
    pub fn start(options: PartitionOptions) -> io::Result<Partitions> {
        let options = PartitionOptions {
            control_threads: options.control_threads.clamp(1, MAX_THREADS),
            execution_threads: options.execution_threads.clamp(1, MAX_THREADS),
            window: options.window.max(1),
            ..options
        };
        let (controls, executions) = (options.control_threads, options.execution_threads);
        let bells: Vec<Arc<Bell>> = (0..controls + executions).map(|_| Arc::default()).collect();
        let shared = Arc::new(Shared {
            options,
            stopped: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            jobs: Mutex::new(VecDeque::new()),
            job_count: AtomicUsize::new(0),
            counts: (0..controls + executions).map(|_| CachePadded::default()).collect(),
            bells: bells.clone().into_boxed_slice(),
            next: AtomicUsize::new(0),
        });
        let started = Partitions { shared: Arc::clone(&shared) };
        let mut orders: Vec<Vec<_>> = (0..controls).map(|_| Vec::new()).collect();
        let mut answers: Vec<Vec<_>> = (0..executions).map(|_| Vec::new()).collect();
        let mut to_controls = |from: std::ops::Range<usize>| -> Vec<_> {
            from.map(|partition| {
                let (outbox, receiver) = channel(options.ring_capacity, &bells[partition]);
                orders[partition].push(receiver);
                outbox
            })
            .collect()
        };
        let higher: Vec<Vec<_>> =
            (0..controls).map(|partition| to_controls(partition + 1..controls)).collect();
        let to_all: Vec<Vec<_>> = (0..executions).map(|_| to_controls(0..controls)).collect();
        let mut to_executions: Vec<Vec<_>> = Vec::new();
        for _ in 0..controls {
            to_executions.push(
                (0..executions)
                    .map(|thread| {
                        let (outbox, receiver) = channel(options.ring_capacity, &bells[controls + thread]);
                        answers[thread].push(receiver);
                        outbox
                    })
                    .collect(),
            );
        }
        for (partition, ((orders, higher), answers)) in
            orders.into_iter().zip(higher).zip(to_executions).enumerate()
        {
            let bell = Arc::clone(&bells[partition]);
            let shared = Arc::clone(&shared);
            let control = Control { partition, shared, bell, orders, higher, answers, waiting: Vec::new() };
            started.spawn(format!("foreshore-control-{partition}"), move || control.run())?;
        }
        for (thread, (orders, answers)) in to_all.into_iter().zip(answers).enumerate() {
            let execution = Execution {
                thread,
                shared: Arc::clone(&shared),
                bell: Arc::clone(&bells[controls + thread]),
                answers,
                orders,
                away: HashMap::new(),
                later: VecDeque::new(),
                next_number: 0,
            };
            started.spawn(format!("foreshore-execute-{thread}"), move || execution.run())?;
        }
        Ok(started)
    }

    fn spawn(&self, name: String, life: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let fuse = Fuse(Arc::clone(&self.shared));
        thread::Builder::new().name(name).spawn(move || {
            let _fuse = fuse;
            life();
        })?;
        Ok(())
    }

    /// Gives the threads a job. After their end it is dropped.
    pub fn submit(&self, job: Box<dyn Job>) {
        let shared = &self.shared;
        {
            let mut jobs = shared.jobs.lock();
            // Under the mutex: a stop that comes later takes the job out.
            if shared.has_stopped() {
                drop(jobs);
                return;
            }
            jobs.push_back(job);
            shared.job_count.store(jobs.len(), Ordering::SeqCst);
        }
        let PartitionOptions { control_threads, execution_threads, .. } = shared.options;
        // One that sleeps is enough; those that are awake look by themselves.
        let first = shared.next.fetch_add(1, Ordering::Relaxed);
        let _woken = (0..execution_threads).any(|offset| {
            shared.bells[control_threads + first.wrapping_add(offset) % execution_threads].ring()
        });
    }

    /// Ends the threads, soon. Jobs that are not done are dropped.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Whether a thread of it has died, by a defect: then all have ended.
    pub fn is_poisoned(&self) -> bool {
        self.shared.poisoned.load(Ordering::Acquire)
    }

    /// What it has done so far.
    pub fn stats(&self) -> PartitionStats {
        let load = |counter: &foreshore_env::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        self.shared.counts.iter().fold(PartitionStats::default(), |sum, counts| PartitionStats {
            done: sum.done + load(&counts.done),
            messages: sum.messages + load(&counts.messages),
            releases: sum.releases + load(&counts.releases),
            rings_full: sum.rings_full + load(&counts.full),
            waits: sum.waits + load(&counts.waits),
            later: sum.later + load(&counts.later),
        })
    }
}

impl Drop for Partitions {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests;
