//! Those in whose names one thread asks ([`LockOwner::ask`]), hundreds perhaps, one of whom goes on at a time.

use super::LockOwner;
use crate::deadlock::SlotSet;
use crate::slot::SlotId;

/// The places of owners that have asked for something.
#[derive(Clone, Debug, Default)]
pub struct Crowd(SlotSet);

impl LockOwner {
    /// Joins a crowd. By the thread that asks in the names of all of them.
    pub fn join(&self, crowd: &mut Crowd) {
        crowd.0.insert(self.slot);
    }

    /// Which of a crowd, this one or others of its lock manager, may have been answered since that was asked last. The
    /// time that this takes does not depend on how many there are.
    pub fn take_answered(&self, crowd: &Crowd) -> Crowd {
        Crowd(self.manager.slots.answered.take(&crowd.0))
    }

    /// Whether there is one; it stays to be taken.
    pub fn has_answered(&self, crowd: &Crowd) -> bool {
        self.manager.slots.answered.has_any(&crowd.0)
    }
}

impl Crowd {
    /// The owner at this place has left.
    pub fn remove(&mut self, place: usize) {
        self.0.remove(SlotId(place as u16));
    }

    /// Their [places](LockOwner::place).
    pub fn places(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(SlotId::index)
    }
}
