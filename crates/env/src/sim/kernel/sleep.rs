//! Sleeping and waking: on a futex, or until a time.

use std::{cmp::Reverse, collections::VecDeque, panic::Location};

use super::{END_OF_TIME, Kernel, Slept, ThreadNumber};
use crate::sim::arena;

/// What a thread sleeps on.
pub(super) struct Sleep {
    /// The address of its futex; `None` for a sleep until a time.
    futex: Option<usize>,
    pub(super) at: &'static Location<'static>,
    /// The clock when it lay down.
    since: u64,
}

/// A thread in one of its sleeps: what was to end that wakes it from no later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::sim) struct Sleeper {
    thread: ThreadNumber,
    /// Which of its sleeps, as it counts them.
    sleep: u64,
}

impl Kernel {
    pub(in crate::sim) fn lie_down(
        &mut self,
        futex: Option<usize>,
        until: Option<u64>,
        at: &'static Location<'static>,
    ) {
        let current = self.current;
        let thread = &mut self.threads[current];
        thread.sleep = Some(Sleep { futex, at, since: self.clock });
        thread.sleeps += 1;
        let sleeper = Sleeper { thread: current, sleep: thread.sleeps };
        if let Some(until) = until {
            let timer = Reverse((until.min(END_OF_TIME), sleeper));
            arena::outside(|| self.timers.push(timer));
            self.next_timer = None;
        }
        if let Some(futex) = futex {
            arena::outside(|| self.futexes.entry(futex).or_default().push_back(sleeper));
        }
    }

    /// Takes up to `most` threads that sleep on a futex from its queue, in order of arrival. Each sleeps on until
    /// [`Kernel::wake_sleeper`], or until its time.
    pub(in crate::sim) fn take_sleepers(&mut self, futex: usize, most: usize) -> VecDeque<Sleeper> {
        arena::outside(|| {
            let Some(mut sleepers) = self.futexes.remove(&futex) else { return VecDeque::new() };
            if sleepers.len() > most {
                let others = sleepers.split_off(most);
                self.futexes.insert(futex, others);
            }
            sleepers
        })
    }

    /// Makes it ready, unless its time has come meanwhile.
    pub(in crate::sim) fn wake_sleeper(&mut self, sleeper: Sleeper) {
        if self.sleeps_still(sleeper) {
            self.wake(sleeper.thread, self.clock);
        }
    }

    fn sleeps_still(&self, sleeper: Sleeper) -> bool {
        let thread = &self.threads[sleeper.thread];
        thread.sleep.is_some() && thread.sleeps == sleeper.sleep
    }

    /// Makes a sleeping thread ready.
    pub(super) fn wake(&mut self, number: ThreadNumber, now: u64) {
        self.next_timer = None;
        if let Some(sleep) = self.threads[number].sleep.take() {
            let place = (sleep.at.file(), sleep.at.line());
            let (count, time) = arena::outside(|| self.slept.entry(place).or_default());
            *count += 1;
            *time += now.saturating_sub(sleep.since.max(self.counted_from));
        }
        arena::outside(|| self.scheduler.ready(number, now));
        self.look_around();
    }

    /// When the next sleeper wakes up by itself.
    #[inline]
    pub(super) fn next_timer(&mut self) -> Option<u64> {
        match self.next_timer {
            Some(timer) => timer,
            None => {
                let timer = self.first_timer();
                self.next_timer = Some(timer);
                timer
            }
        }
    }

    /// The same, looked up; forgets timers of sleeps that are over.
    fn first_timer(&mut self) -> Option<u64> {
        while let Some(&Reverse((time, sleeper))) = self.timers.peek() {
            if self.sleeps_still(sleeper) {
                return Some(time);
            }
            self.timers.pop();
        }
        None
    }

    /// Wakes the next sleeper with a timer.
    pub(super) fn fire(&mut self) {
        if let Some(Reverse((time, sleeper))) = self.timers.pop() {
            let number = sleeper.thread;
            let futex = self.threads[number].sleep.as_ref().and_then(|sleep| sleep.futex);
            if let Some(futex) = futex
                && let Some(queue) = self.futexes.get_mut(&futex)
            {
                queue.retain(|&other| other != sleeper);
                if queue.is_empty() {
                    self.futexes.remove(&futex);
                }
            }
            self.wake(number, time);
        }
    }

    /// Counts sleeps, and what comes to its end, from here on.
    pub(in crate::sim) fn count_anew(&mut self) {
        self.slept.clear();
        self.lasted.clear();
        self.counted_from = self.clock;
    }

    /// Where threads slept since counting began, the longest first.
    pub(in crate::sim) fn sleeps(&self) -> Vec<Slept> {
        let place = |(file, line): &(&str, u32)| format!("{file}:{line}");
        let mut sleeps: Vec<Slept> = (self.slept.iter())
            .map(|(at, &(count, time_ps))| Slept { place: place(at), count, time_ps })
            .collect();
        sleeps.sort_by(|a, b| b.time_ps.cmp(&a.time_ps).then_with(|| a.place.cmp(&b.place)));
        sleeps
    }
}
