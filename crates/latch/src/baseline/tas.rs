//! Test-and-set: the exclusive spinlock of Böttcher et al. 2020, Table 2, as plain as it can be. Each look is a write,
//! so waiters take the cache line from each other and from the holder. 64 bits, because the paper found a byte slower.

use foreshore_env::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::spin::Spin;
use super::{Latch, Leaving};

/// A test-and-set spinlock. Exclusive only; unfair.
#[derive(Debug, Default)]
pub struct Tas {
    /// 1: held. Written by whoever tries to enter and by the holder.
    word: AtomicU64,
}

#[cfg(not(foreshore_loom))]
const _: () = assert!(size_of::<Tas>() == 8);

impl Tas {
    /// Acquire: partner is the Release in `leave`.
    #[inline]
    fn try_enter(&self) -> bool {
        self.word.swap(1, Acquire) == 0
    }

    #[inline]
    fn leave(&self) {
        self.word.store(0, Release);
    }
}

impl Latch for Tas {
    const SHARES: bool = false;
    const OPTIMISTIC: bool = false;

    #[inline]
    fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        if !self.try_enter() {
            let mut spin = Spin::default();
            while !self.try_enter() {
                spin.pause(0);
            }
        }
        let _leaving = Leaving(|| self.leave());
        change()
    }

    #[inline]
    fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        // A look before the leap: a failed attempt of this kind need not disturb the holder.
        if self.word.load(Relaxed) != 0 || !self.try_enter() {
            return None;
        }
        let _leaving = Leaving(|| self.leave());
        Some(change())
    }
}
