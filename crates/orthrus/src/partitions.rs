//! The threads together: starting them, giving them work, ending them.

mod end;
mod jobs;
mod wiring;

use std::{cell::Cell, io};

use foreshore_env::{
    CachePadded, hint,
    process::Owner,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    },
    thread, thread_local,
    time::Instant,
};

use crate::{
    bell::Bell,
    job::{Job, WaitsAt},
    mesh::{Counts, End},
    queue::Queue,
    report::{PartitionStats, Role, ThreadStats},
    roles::Roles,
};

/// The most threads of either kind.
pub const MAX_THREADS: usize = 256;
/// The least number of partitions in automatic mode, as far as there are threads for them: a thread can begin to
/// control only where there is a partition for it, and each partition that a footprint goes to costs a message.
const AUTOMATIC_PARTITIONS: usize = 8;

thread_local! {
    /// Whether this is one of these threads.
    static IS_MEMBER: Cell<bool> = const { Cell::new(false) };
}

/// How the threads are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionOptions {
    /// Threads that lock, each in its partition of the lock names: 1 to [`MAX_THREADS`]. In automatic mode at first;
    /// see [`PartitionOptions::partitions`].
    pub control_threads: usize,
    /// Threads that run transactions: 1 to [`MAX_THREADS`].
    pub execution_threads: usize,
    /// Whether threads go from one kind to the other, by how much there is to do: see [`Partitions::threads`].
    pub automatic: bool,
    /// Transactions that an execution thread has begun and not ended, at most; at least 1.
    pub window: usize,
    /// Jobs that wait to be begun, at most, for [`Partitions::try_submit`]; at least 1.
    pub queue: usize,
    /// Messages that a ring holds, rounded up to a power of two.
    pub ring_capacity: usize,
    /// Whether each thread stays on a processor of its own, as far as there are enough: see [`thread::pin`].
    pub pin_threads: bool,
}

/// Who counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Actor {
    /// A partition, whoever looks after it.
    Control(usize),
    /// A thread that runs transactions, among those that may.
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
    pub(crate) roles: Roles,
    /// Jobs that nobody has begun: one for each thread that may run them, so that these seldom meet.
    pub(crate) queues: Box<[CachePadded<Queue>]>,
    /// Of the partitions, then of those that may run transactions.
    counts: Box<[CachePadded<Counts>]>,
    /// One for each thread.
    bells: Box<[CachePadded<Bell>]>,
    /// Those that stay on one processor. Each is set by its thread, for whoever asks; no order.
    pinned: Box<[AtomicBool]>,
    /// Whose queue gets the next job. Relaxed: any will do.
    next: AtomicUsize,
    /// Jobs with a deadline that are in `queues`, or are about to be. Written by whoever puts and takes them, relaxed:
    /// fences lie between a job that is put and a sleep ([`Shared::ring_for_a_job`]), and a thread that is late by a
    /// turn is late by a turn.
    timed: CachePadded<AtomicUsize>,
    /// Deadlines are nanoseconds since then.
    began: Instant,
    /// The thread that is to die.
    #[cfg(test)]
    pub(crate) doomed: AtomicUsize,
    /// How often it was looked whether somebody's locks are free.
    #[cfg(test)]
    pub(crate) looks: AtomicUsize,
}

impl std::fmt::Debug for dyn Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Job")
    }
}

impl PartitionOptions {
    fn threads(&self) -> usize {
        self.control_threads + self.execution_threads
    }

    /// Partitions of the lock names: in automatic mode also the most threads that lock, if one is left to run
    /// transactions.
    pub fn partitions(&self) -> usize {
        let least = if self.automatic { AUTOMATIC_PARTITIONS.min(self.threads() - 1) } else { 1 };
        self.control_threads.max(least)
    }

    /// Threads that may run transactions.
    fn executions(&self) -> usize {
        self.threads() - self.first_execution()
    }

    /// Rings between them all: each takes its memory when the threads start.
    pub fn rings(&self) -> usize {
        let partitions = self.partitions();
        2 * partitions * self.executions() + partitions * (partitions - 1) / 2
    }

    /// The first thread that may run transactions.
    pub(crate) fn first_execution(&self) -> usize {
        if self.automatic { 0 } else { self.control_threads }
    }
}

impl Shared {
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(crate) fn options(&self) -> &PartitionOptions {
        &self.options
    }

    pub(crate) fn partitions(&self) -> usize {
        self.roles.partitions()
    }

    pub(crate) fn threads(&self) -> usize {
        self.bells.len()
    }

    pub(crate) fn counts(&self, actor: Actor) -> &Counts {
        match actor {
            Actor::Control(partition) => &self.counts[partition],
            Actor::Execution(number) => &self.counts[self.partitions() + number],
        }
    }

    /// The bell of a thread.
    pub(crate) fn bell(&self, thread: usize) -> &Bell {
        &self.bells[thread]
    }

    /// Rings for what was sent before.
    pub(crate) fn ring(&self, to: End) {
        fence(Ordering::SeqCst);
        self.ring_after_fence(to);
    }

    /// The same, for those who have had a fence since.
    pub(crate) fn ring_after_fence(&self, to: End) {
        let thread = match to {
            End::Partition(partition) => self.roles.owner(partition),
            End::Thread(thread) => thread,
        };
        self.bells[thread].ring_after_fence();
    }

    /// Rings for whoever looks after a partition in which somebody has waited for a lock that was given back.
    pub(crate) fn ring_restless(&self, partition: usize) {
        Bell::ring_restless(|| self.bell(self.roles.owner(partition)));
    }

    pub(crate) fn ring_all(&self) {
        for bell in &self.bells {
            bell.ring();
        }
    }

    /// Ends all threads, soon; what they have in hand is dropped, and so told of it.
    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        for queue in &self.queues {
            queue.clear();
        }
        self.ring_all();
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
    /// Who has the threads.
    owner: Owner,
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
            queue: options.queue.max(1),
            ..options
        };
        let (partitions, threads) = (options.partitions(), options.threads());
        let executions = options.executions();
        let shared = Arc::new(Shared {
            options,
            stopped: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            roles: Roles::new(partitions, options.control_threads, threads),
            queues: (0..executions).map(|_| CachePadded::default()).collect(),
            counts: (0..partitions + executions).map(|_| CachePadded::default()).collect(),
            bells: (0..threads).map(|_| CachePadded::default()).collect(),
            pinned: (0..threads).map(|_| AtomicBool::new(false)).collect(),
            next: AtomicUsize::new(0),
            timed: CachePadded::default(),
            began: Instant::now(),
            #[cfg(test)]
            doomed: AtomicUsize::new(usize::MAX),
            #[cfg(test)]
            looks: AtomicUsize::new(0),
        });
        let started = Partitions { shared: Arc::clone(&shared), owner: Owner::here() };
        for member in wiring::members(&shared) {
            let number = member.number;
            let role = if number < options.control_threads { "control" } else { "execute" };
            let name = if options.automatic { "partitions" } else { role };
            started.spawn(number, format!("foreshore-{name}-{number}"), move || member.run())?;
        }
        Ok(started)
    }

    fn spawn(&self, number: usize, name: String, life: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let fuse = Fuse(Arc::clone(&self.shared));
        let pinned = self.shared.options.pin_threads;
        thread::Builder::new().name(name).spawn(move || {
            let fuse = fuse;
            IS_MEMBER.set(true);
            hint::foreground();
            if pinned && thread::pin(number) {
                fuse.0.pinned[number].store(true, Ordering::Relaxed);
            }
            life();
        })?;
        Ok(())
    }

    /// Whether the calling thread is one of these, of this database or another. What waits here for a job may be what
    /// the job waits for.
    pub fn are_here() -> bool {
        IS_MEMBER.get()
    }

    /// Gives the threads a job, however many they have. After their end it is dropped.
    pub fn submit(&self, job: Box<dyn Job>) {
        self.shared.submit(job);
    }

    /// As [`Partitions::submit`], unless as many wait as may ([`PartitionOptions::queue`]): then the job comes back.
    ///
    /// # Errors
    /// Gives the job back.
    pub fn try_submit(&self, job: Box<dyn Job>) -> Result<(), Box<dyn Job>> {
        self.shared.try_submit(job)
    }

    /// Takes a job out that nobody has begun, and tells it so; whether there was one still. It is counted nowhere.
    pub fn withdraw(&self, waits_at: &WaitsAt) -> bool {
        let Some(mut job) = self.shared.withdraw(waits_at) else { return false };
        job.withdrawn();
        true
    }

    /// Lets so many threads control, in automatic mode, until it is decided anew; for tests.
    #[doc(hidden)]
    pub fn set_controllers(&self, controllers: usize) {
        if self.shared.options.automatic && self.shared.roles.set_controllers(controllers) {
            self.shared.ring_all();
        }
    }

    /// What each of the threads does, and has done.
    pub fn threads(&self) -> Vec<ThreadStats> {
        let Shared { options, roles, .. } = &*self.shared;
        let controllers = roles.controllers();
        (0..options.threads())
            .map(|thread| {
                let role = if thread < controllers { Role::Control } else { Role::Execution };
                let partitions = if role == Role::Control {
                    (thread..roles.partitions()).step_by(controllers).len()
                } else {
                    0
                };
                let done = thread.checked_sub(options.first_execution()).map_or(0, |number| {
                    self.shared.counts(Actor::Execution(number)).done.load(Ordering::Relaxed)
                });
                let pinned = self.shared.pinned[thread].load(Ordering::Relaxed);
                ThreadStats { role, partitions, done, pinned }
            })
            .collect()
    }

    /// Ends the threads, soon. Jobs that are not done are dropped.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Whether the threads were told to end, or one of them has died.
    pub fn has_stopped(&self) -> bool {
        self.shared.has_stopped()
    }

    /// Whether a thread of it has died, by a defect: then all have ended.
    pub fn is_poisoned(&self) -> bool {
        self.shared.poisoned.load(Ordering::Acquire)
    }

    /// What it has done so far.
    pub fn stats(&self) -> PartitionStats {
        let load = |counter: &foreshore_env::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let queued = self.shared.queues.iter().map(|queue| queue.len() as u64).sum();
        let (to_control, to_execution) = self.shared.roles.moves();
        let none = PartitionStats {
            queued,
            controllers: self.shared.roles.controllers() as u64,
            to_control,
            to_execution,
            ..PartitionStats::default()
        };
        self.shared.counts.iter().fold(none, |sum, counts| PartitionStats {
            done: sum.done + load(&counts.done),
            // A job that is begun is counted there before it is done, but the counts are not read at one moment.
            in_flight: (sum.in_flight + load(&counts.begun)).saturating_sub(load(&counts.done)),
            footprints: sum.footprints + load(&counts.footprints),
            visits: sum.visits + load(&counts.visits),
            messages: sum.messages + load(&counts.messages),
            releases: sum.releases + load(&counts.releases),
            rings_full: sum.rings_full + load(&counts.full),
            waits: sum.waits + load(&counts.waits),
            later: sum.later + load(&counts.later),
            ..sum
        })
    }
}

#[cfg(test)]
mod tests;
