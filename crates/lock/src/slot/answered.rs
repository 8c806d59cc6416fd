//! Whose waits were answered that nobody sleeps for: a thread that looks after hundreds of them
//! ([`LockOwner::ask`](crate::LockOwner::ask)) does not have to look at each.

use foreshore_env::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Relaxed, Release},
};

use foreshore_latch::parking;

use super::{SLOTS, SlotId, Slots, Wait};
use crate::deadlock::SlotSet;

/// A bit for each slot.
#[derive(Debug, Default)]
pub(crate) struct Answered(
    /// Set by whoever has ended the wait of a slot, when its wait word says so; Release, so that whoever takes the bit
    /// away, with Acquire, sees the word. Whoever goes to sleep looks behind a fence, and whoever has set it and rings
    /// does that behind one, so one of them sees the other. A bit may be one of an earlier wait: it says only that it
    /// is worth a look.
    [AtomicU64; SLOTS.div_ceil(64)],
);

impl Answered {
    /// The wait of a slot was ended.
    fn note(&self, slot: SlotId) {
        self.0[slot.index() / 64].fetch_or(1 << (slot.index() % 64), Release);
    }

    /// Whether one of these was.
    pub(crate) fn has_any(&self, of: &SlotSet) -> bool {
        self.0.iter().zip(of.words()).any(|(word, of)| word.load(Relaxed) & of != 0)
    }

    /// Which of these were, since they were taken last.
    pub(crate) fn take(&self, of: &SlotSet) -> SlotSet {
        let mut taken = SlotSet::default();
        for ((word, of), taken) in self.0.iter().zip(of.words()).zip(taken.words_mut()) {
            // Looking first leaves the line shared where there is nothing to do.
            if word.load(Relaxed) & of != 0 {
                *taken = word.fetch_and(!of, AcqRel) & of;
            }
        }
        taken
    }
}

impl Wait {
    /// Whether nobody will sleep for the wait that the owner is about to begin.
    pub(crate) fn announce(&self, asked: bool) {
        self.asked.store(asked, Relaxed);
    }
}

impl Slots {
    /// LOCK-5: after the wait of a slot was ended, and not under the latch: wakes its owner, or notes it for whoever
    /// asks in its name.
    pub(crate) fn wake(&self, slot: SlotId) {
        let wait = self.wait_of(slot);
        if wait.asked.load(Relaxed) {
            self.answered.note(slot);
        } else {
            parking::unpark_one(wait.address(), |_| {});
        }
    }
}
