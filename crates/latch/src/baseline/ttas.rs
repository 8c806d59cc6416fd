//! Test-and-test-and-set (Böttcher et al. 2020, §3.1): a waiter reads until the latch looks free, so that its cache
//! line stays shared meanwhile, and pauses between two looks.

use foreshore_env::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::{Latch, Leaving, spin};

/// A spinlock that looks before it writes. Exclusive only; unfair.
#[derive(Debug, Default)]
pub struct Ttas {
    /// 1: held. Written by whoever has seen it free and by the holder.
    word: AtomicU64,
}

#[cfg(not(foreshore_loom))]
const _: () = assert!(size_of::<Ttas>() == 8);

impl Ttas {
    /// Acquire: partner is the Release in `leave`.
    #[inline]
    pub(super) fn try_enter(&self) -> bool {
        self.word.load(Relaxed) == 0 && self.word.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    #[inline]
    pub(super) fn leave(&self) {
        self.word.store(0, Release);
    }
}

impl Latch for Ttas {
    const SHARES: bool = false;
    const OPTIMISTIC: bool = false;

    #[inline]
    fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        if !self.try_enter() {
            spin::until(|| self.try_enter());
        }
        let _leaving = Leaving(|| self.leave());
        change()
    }

    #[inline]
    fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        if !self.try_enter() {
            return None;
        }
        let _leaving = Leaving(|| self.leave());
        Some(change())
    }
}
