//! A thread that would wake the flusher and wait for it is the flusher itself, for one batch, if that sleeps.
//!
//! A thread that commits alone would wait for two wake-ups besides the sync, which take a third of its time on a good
//! disk. The thread that leads makes everything durable that is there, and wakes those that waited meanwhile, as the
//! flusher does. If some wait for the next batch when its own is over, the flusher goes on, so nobody flushes for
//! others more than once; as long as somebody always waits, that thread does it all.
//!
//! Before a batch those that the last one served are waited for (`gather.rs`). The thread that comes first sleeps until
//! that moment is over, and leads then; but if the last one to come finds it asleep, that one leads.

use std::mem;

use foreshore_env::{sync::MutexGuard, time::Instant};

use super::{
    Core,
    wait::{Stop, Waiting},
};

/// What a thread does that waits for a batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn {
    /// It makes the batch durable.
    Lead,
    /// That, at this time, unless somebody has begun meanwhile.
    LeadAt(Instant),
    /// Others do.
    Wait,
}

/// Until when somebody waits for others before which batch.
pub(super) type Gatherer = Option<(u64, Instant)>;

impl Waiting {
    /// Whose turn it is; asked by somebody without a deadline who has come to wait for the next batch, or for the
    /// running one.
    pub(super) fn turn(&mut self, gatherer: &mut Gatherer) -> Turn {
        if !self.flusher_sleeps || self.is_led || self.stop != Stop::No {
            return Turn::Wait;
        }
        // No batch is running.
        let next = self.batch + 1;
        if self.gathering.is_on() {
            return match gatherer {
                _ if !self.gathering.lacks_some(next) => Turn::Lead,
                Some((batch, due)) if *batch == next && Instant::now() < *due => Turn::LeadAt(*due),
                Some((batch, _)) if *batch == next => Turn::Lead,
                _ => Turn::Wait,
            };
        }
        let Some(patience) = self.gathering.begin(next) else { return Turn::Lead };
        let due = Instant::now() + patience;
        *gatherer = Some((next, due));
        Turn::LeadAt(due)
    }
}

/// The thread that leads, until it is done with it: also by a panic.
pub(super) struct Leader<'a> {
    pub(super) core: &'a Core,
    pub(super) is_done: bool,
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.core.poison("a thread that flushed the log died");
        }
        let mut waiting = self.core.waiting.lock();
        waiting.is_led = false;
        let is_wanted = waiting.requested > self.core.durable() || waiting.batch_wanted;
        if mem::take(&mut waiting.is_held_up) || is_wanted || waiting.stop != Stop::No {
            self.core.wake_flusher(&mut waiting);
        }
    }
}

impl Core {
    /// Makes a batch durable, in the flusher's place.
    pub(super) fn lead<'a>(&'a self, mut waiting: MutexGuard<'a, Waiting>) -> MutexGuard<'a, Waiting> {
        waiting.is_led = true;
        drop(waiting);
        let mut leader = Leader { core: self, is_done: false };
        if let Err(error) = self.flusher.lock().sync_batch(self) {
            // As where the flusher itself fails (WAL-8).
            self.poison(&error.to_string());
        }
        self.look_after_space();
        leader.is_done = true;
        drop(leader);
        self.waiting.lock()
    }
}
