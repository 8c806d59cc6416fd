//! Which thread gets which job, and what becomes of one that nobody gets in time.

use std::ops::Range;

use foreshore_env::{
    sync::atomic::{Ordering, fence},
    time::{Duration, Instant},
};

use super::{Actor, Shared};
use crate::{
    job::{Job, WaitsAt},
    queue::NEVER,
};

impl Shared {
    pub(crate) fn has_jobs(&self) -> bool {
        self.queues.iter().any(|queue| !queue.is_empty())
    }

    /// A job: of this queue, or of the one behind it, and so on. Whoever takes jobs goes through all queues in turn: a
    /// thread without room keeps nobody waiting.
    pub(crate) fn take_job(&self, from: usize) -> Option<Box<dyn Job>> {
        let queues = self.queues.len();
        (0..queues).find_map(|offset| {
            let queue = &self.queues[(from + offset) % queues];
            // Late or not: a thread that sees none is rung for.
            if queue.is_empty() {
                return None;
            }
            queue.take().inspect(|job| self.note_taken(&**job))
        })
    }

    /// A job was taken out of a queue.
    fn note_taken(&self, job: &dyn Job) {
        if self.deadline_of(job) != NEVER {
            self.timed.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Until when it is to be begun; [`NEVER`] if that lies beyond what a queue can count, too.
    fn deadline_of(&self, job: &dyn Job) -> u64 {
        job.deadline().map_or(NEVER, |deadline| self.since_began(deadline))
    }

    /// Those that run transactions now, of those that may.
    fn executing(&self) -> Range<usize> {
        // In automatic mode the first ones control.
        let first = if self.options.automatic { self.roles.controllers() } else { 0 };
        first.min(self.queues.len() - 1)..self.queues.len()
    }

    /// Gives a job that repeats itself to the thread that has the fewest, if that has room, and fewer by two than
    /// thread `from`, which has so many `in_hand` with this one; else gives it back. It goes through the queue of that
    /// thread: if this is in the middle of a long body, it takes nothing, and whoever has room does. Lines of others
    /// are read, and none is written where all have as many.
    pub(crate) fn hand_over(&self, job: Box<dyn Job>, from: usize, in_hand: u64) -> Option<Box<dyn Job>> {
        let has = |number: usize| {
            let counts = self.counts(Actor::Execution(number));
            counts.in_hand.load(Ordering::Relaxed) + self.queues[number].len() as u64
        };
        let others = self.executing().filter(|number| *number != from);
        let fewest = others.map(|number| (has(number), number)).min();
        let Some((_, number)) =
            fewest.filter(|(has, _)| has + 2 <= in_hand && *has < self.options.window as u64)
        else {
            return Some(job);
        };
        self.put(number, job, usize::MAX).err()
    }

    /// Puts a job into somebody's queue and wakes whoever may take it; after the end it is dropped.
    pub(crate) fn submit(&self, job: Box<dyn Job>) {
        let put = self.submit_within(job, usize::MAX);
        debug_assert!(put.is_ok(), "there is no limit");
    }

    /// As [`Shared::submit`], unless there are as many jobs as may be: then it comes back.
    pub(super) fn try_submit(&self, job: Box<dyn Job>) -> Result<(), Box<dyn Job>> {
        self.submit_within(job, self.options.queue)
    }

    fn submit_within(&self, job: Box<dyn Job>, most: usize) -> Result<(), Box<dyn Job>> {
        let queues = self.queues.len();
        let from = self.next.fetch_add(1, Ordering::Relaxed);
        let mut refused = job;
        for offset in 0..queues {
            let number = from.wrapping_add(offset) % queues;
            // What is allowed is dealt out to all queues, whoever executes now: else those of threads that control by
            // now would keep what they were allowed before.
            let share = most / queues + usize::from(number < most % queues);
            match self.put(number, refused, share) {
                Ok(()) => return Ok(()),
                Err(job) => refused = job,
            }
        }
        Err(refused)
    }

    /// Puts a job into this queue and wakes whoever may take it; after the end it is dropped. Gives it back if there
    /// are so many already.
    fn put(&self, number: usize, job: Box<dyn Job>, most: usize) -> Result<(), Box<dyn Job>> {
        let deadline = self.deadline_of(&*job);
        let is_timed = deadline != NEVER;
        if is_timed {
            self.timed.fetch_add(1, Ordering::Relaxed);
        }
        let put = self.queues[number].put(number, job, deadline, most, || self.has_stopped());
        if !matches!(put, Ok(true)) {
            if is_timed {
                self.timed.fetch_sub(1, Ordering::Relaxed);
            }
        } else if !self.ring_for_a_job(self.options.first_execution() + number) && is_timed {
            self.ring_for_a_deadline();
        }
        put.map(drop)
    }

    /// Wakes one that sleeps and has room for a job that was put into a queue before, from this thread on, if there is
    /// one; those that are awake look by themselves.
    pub(crate) fn ring_for_a_job(&self, from: usize) -> bool {
        fence(Ordering::SeqCst);
        let first = self.options.first_execution();
        let bells = &self.bells[first..];
        (0..bells.len()).any(|offset| bells[(from - first + offset) % bells.len()].ring_hungry_after_fence())
    }

    /// Wakes one that sleeps without room, after a fence: it did not know of the newest deadline. One that is awake
    /// looks by itself.
    fn ring_for_a_deadline(&self) {
        let first = self.options.first_execution();
        let _woken = self.executing().any(|number| self.bells[first + number].ring_after_fence());
    }

    /// Takes out a job that nobody has begun, if there is one still.
    pub(super) fn withdraw(&self, waits_at: &WaitsAt) -> Option<Box<dyn Job>> {
        let (queue, number) = waits_at.get();
        self.queues.get(queue)?.withdraw(number).inspect(|job| self.note_taken(&**job))
    }

    /// A job that nobody has begun and whose deadline has passed.
    pub(crate) fn take_overdue(&self) -> Option<Box<dyn Job>> {
        if self.timed.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let now = self.since_began(Instant::now());
        let job = self.queues.iter().find_map(|queue| queue.take_overdue(now))?;
        self.timed.fetch_sub(1, Ordering::Relaxed);
        Some(job)
    }

    /// When a job that nobody has begun is overdue.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        if self.timed.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let earliest =
            self.queues.iter().map(|queue| queue.earliest()).min().filter(|first| *first != NEVER)?;
        self.began.checked_add(Duration::from_nanos(earliest))
    }

    /// In nanoseconds; for 500 years.
    fn since_began(&self, when: Instant) -> u64 {
        u64::try_from(when.saturating_duration_since(self.began).as_nanos()).unwrap_or(NEVER)
    }
}
