//! Sleeping and waking: on a futex, or until a time.

use std::{cmp::Reverse, panic::Location};

use super::{END_OF_TIME, Kernel, Sleep, Slept, ThreadNumber};
use crate::sim::{arena, scheduler::Spent};

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
        if let Some(until) = until {
            let timer = Reverse((until.min(END_OF_TIME), current, thread.sleeps));
            arena::outside(|| self.timers.push(timer));
            self.next_timer = None;
        }
        if let Some(futex) = futex {
            arena::outside(|| self.futexes.entry(futex).or_default().push_back(current));
        }
    }

    /// Wakes up to `most` threads that sleep on a futex, in order of arrival; gives how many.
    pub(in crate::sim) fn wake_some(&mut self, futex: usize, most: usize) -> usize {
        for woken in 0..most {
            let Some(queue) = self.futexes.get_mut(&futex) else { return woken };
            let sleeper = queue.pop_front();
            if queue.is_empty() {
                self.futexes.remove(&futex);
            }
            if let Some(thread) = sleeper {
                self.spend(Spent::System, self.scheduler.costs().futex_wake);
                self.wake(thread, self.clock);
            }
        }
        most
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
        while let Some(&Reverse((time, number, sleep))) = self.timers.peek() {
            let thread = &self.threads[number];
            if thread.sleep.is_some() && thread.sleeps == sleep {
                return Some(time);
            }
            self.timers.pop();
        }
        None
    }

    /// Wakes the next sleeper with a timer.
    pub(super) fn fire(&mut self) {
        if let Some(Reverse((time, number, _))) = self.timers.pop() {
            let futex = self.threads[number].sleep.as_ref().and_then(|sleep| sleep.futex);
            if let Some(futex) = futex
                && let Some(queue) = self.futexes.get_mut(&futex)
            {
                queue.retain(|&other| other != number);
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
