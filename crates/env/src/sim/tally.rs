//! What a simulated thread has done to shared memory, counted exactly: what operations cost where nobody is in their
//! way, whatever the machine.

use std::ops::{Add, Sub};

use super::kernel::Touch;

/// Counts of one thread. The difference of two is what it did in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Loads of atomics.
    pub loads: u64,
    /// Stores to atomics.
    pub stores: u64,
    /// Read-modify-writes of atomics, whether they changed anything or not.
    pub changes: u64,
    /// Sequentially consistent fences. Weaker ones cost nothing on most machines.
    pub fences: u64,
    /// Latches acquired, as [`crate::hint::latched`] says.
    pub latches: u64,
    /// Mutexes of this crate acquired.
    pub mutexes: u64,
    /// Blocks of memory allocated, by all threads.
    pub allocations: u64,
}

impl Tally {
    #[inline]
    pub(super) fn touch(&mut self, touch: Touch) {
        match touch {
            Touch::Load => self.loads += 1,
            Touch::Store => self.stores += 1,
            Touch::Change => self.changes += 1,
        }
    }
}

impl Tally {
    /// Field by field.
    fn zip(self, other: Tally, combine: fn(u64, u64) -> u64) -> Tally {
        Tally {
            loads: combine(self.loads, other.loads),
            stores: combine(self.stores, other.stores),
            changes: combine(self.changes, other.changes),
            fences: combine(self.fences, other.fences),
            latches: combine(self.latches, other.latches),
            mutexes: combine(self.mutexes, other.mutexes),
            allocations: combine(self.allocations, other.allocations),
        }
    }
}

impl Add for Tally {
    type Output = Tally;

    fn add(self, other: Tally) -> Tally {
        self.zip(other, u64::add)
    }
}

impl Sub for Tally {
    type Output = Tally;

    fn sub(self, earlier: Tally) -> Tally {
        self.zip(earlier, u64::sub)
    }
}
