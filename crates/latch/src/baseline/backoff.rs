//! Test-and-test-and-set with exponential backoff (Böttcher et al. 2020, §4.5): the more often a waiter has found the
//! latch taken, the longer it stays away.

use super::{Latch, Leaving, Ttas, spin};

/// A spinlock that looks before it writes, and looks more and more rarely. Exclusive only; unfair.
#[derive(Debug, Default)]
pub struct TtasBackoff(Ttas);

#[cfg(not(foreshore_loom))]
const _: () = assert!(size_of::<TtasBackoff>() == 8);

impl TtasBackoff {
    #[cold]
    fn wait(&self) {
        spin::backing_off(|| self.0.try_enter().then_some(()));
    }
}

impl Latch for TtasBackoff {
    const SHARES: bool = false;
    const OPTIMISTIC: bool = false;

    #[inline]
    fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        if !self.0.try_enter() {
            self.wait();
        }
        let _leaving = Leaving(|| self.0.leave());
        change()
    }

    #[inline]
    fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        self.0.try_exclusive(change)
    }
}
