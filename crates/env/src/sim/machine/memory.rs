//! What the core that runs does with memory, and beside it.

use std::{ops::Range, panic::Location};

use super::{Access, LineNumber, Machine, Spent, UNCHARGED};
use crate::sim::kernel::Touch;

impl Machine {
    #[inline]
    pub(in crate::sim) fn access(
        &mut self,
        clock: &mut u64,
        address: usize,
        touch: Touch,
        at: &'static Location<'static>,
    ) -> Access {
        let now = *clock;
        if !self.charging {
            self.directory.prepare(address);
            *clock += UNCHARGED;
            self.tally(Spent::Computing, UNCHARGED);
            return Access::default();
        }
        let cost = self.directory.access(self.here, now, address, touch, at);
        self.tally(Spent::Computing, cost.computing);
        self.tally(Spent::Memory, cost.waiting);
        *clock += cost.computing + cost.waiting;
        Access {
            booked: cost.booked.then_some(cost.line),
            waits: (cost.waiting > 0 && touch != Touch::Store).then_some(cost.line),
            disturbed: self.disturb(now),
        }
    }

    /// This core accesses this address, when its turn comes.
    #[inline]
    pub(in crate::sim) fn prefetch(&self, core: usize, address: usize) {
        self.directory.prefetch(core, address);
    }

    /// The core that runs asks for the line of an address.
    pub(in crate::sim) fn ask_for(&mut self, clock: u64, address: usize) {
        if self.charging {
            self.directory.ask_for(self.here, clock, address);
        }
    }

    pub(in crate::sim) fn arrive(
        &mut self,
        clock: &mut u64,
        line: LineNumber,
        touch: Touch,
        at: &'static Location<'static>,
    ) -> bool {
        let now = *clock;
        let waited = self.directory.arrive(self.here, now, line, touch, at);
        self.tally(Spent::Memory, waited);
        *clock += waited;
        self.disturb(now)
    }

    /// The core that runs changes a line now, and has waited: it may have gone to others meanwhile, who look at what it
    /// was, and are roused.
    pub(in crate::sim) fn takes_effect(&mut self, clock: u64, line: LineNumber) -> bool {
        self.directory.overtaken(self.here, line);
        self.disturb(clock)
    }

    /// A fence: how long it takes, from this clock on, until others see all that the core has stored which runs.
    pub(in crate::sim) fn fence(&mut self, clock: u64) -> u64 {
        if !self.charging {
            return 0;
        }
        self.directory.fence(self.here, clock)
    }

    /// There is new memory, of which no core has a line.
    pub(in crate::sim) fn gets_memory(&mut self, place: Range<usize>) {
        self.directory.gets_memory(place);
    }

    /// The core that runs has loaded a pointer.
    #[inline]
    pub(in crate::sim) fn learned(&mut self, pointer: usize) {
        self.directory.learned(self.here, pointer);
    }
}
