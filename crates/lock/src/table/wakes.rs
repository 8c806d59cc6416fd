//! Wake-ups that are owed.

use crate::slot::{SlotId, Slots};
#[cfg(all(test, foreshore_loom))]
use crate::wait::models;

/// Wake-ups in one step.
const WAKES: usize = 14;

/// Transactions whose waits were ended under a latch, to be woken when it is released.
#[derive(Default)]
pub(crate) struct Wakes {
    slots: [u16; WAKES],
    count: u16,
}

impl Wakes {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        usize::from(self.count) == WAKES
    }

    /// There is room.
    pub(crate) fn add(&mut self, slot: SlotId) {
        self.slots[usize::from(self.count)] = slot.0;
        self.count += 1;
    }

    /// LOCK-5: wakes those whose waits were ended, not under the latch; `pass` ends more waits under it, if they were
    /// too many for one step.
    pub(crate) fn wake_all(mut self, slots: &Slots, mut pass: impl FnMut(&mut Wakes)) {
        loop {
            self.wake(slots);
            if !self.is_full() {
                return;
            }
            self = Wakes::default();
            pass(&mut self);
        }
    }

    fn wake(&self, slots: &Slots) {
        #[cfg(all(test, foreshore_loom))]
        if models::has(models::Fault::Grant) {
            return;
        }
        for &slot in &self.slots[..usize::from(self.count)] {
            slots.wake(SlotId(slot));
        }
    }
}
