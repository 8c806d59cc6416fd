//! The ticket spinlock with proportional backoff (Mellor-Crummey and Scott 1991; Böttcher et al. 2020, §3.3): a thread
//! that comes draws a number, and waits the longer between two looks the more are before it.

use foreshore_env::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use super::spin::Spin;
use super::{Latch, Leaving};

/// Pauses for each thread before the waiter: the least that a critical section takes, because who looks too late delays
/// everybody behind.
const PAUSES_PER_TURN: u32 = 8;
/// Pauses between two looks at most.
const MAX_PAUSES: u32 = 1 << 10;

/// A spinlock that serves in the order of arrival. Exclusive only; fair.
#[derive(Debug, Default)]
pub struct Ticket {
    /// The number of the next to come. Raised by everybody who waits; numbers wrap around.
    next: AtomicU32,
    /// The number of the holder, or of the thread that may enter. Written by the holder only.
    serving: AtomicU32,
}

#[cfg(not(foreshore_loom))]
const _: () = assert!(size_of::<Ticket>() == 8);

impl Ticket {
    #[inline]
    fn enter(&self) {
        // Relaxed: the number alone gives nothing; entering is the load of `serving`.
        let number = self.next.fetch_add(1, Relaxed);
        // Acquire: partner is the Release in `leave`.
        let serving = self.serving.load(Acquire);
        if serving != number {
            self.wait(number, serving);
        }
    }

    #[cold]
    fn wait(&self, number: u32, mut serving: u32) {
        let mut spin = Spin::default();
        while serving != number {
            let before = number.wrapping_sub(serving);
            spin.pause(before.saturating_mul(PAUSES_PER_TURN).min(MAX_PAUSES));
            // Acquire: partner is the Release in `leave`.
            serving = self.serving.load(Acquire);
        }
    }

    #[inline]
    fn leave(&self) {
        // Relaxed: only the holder, this thread, writes it.
        let number = self.serving.load(Relaxed);
        self.serving.store(number.wrapping_add(1), Release);
    }
}

impl Latch for Ticket {
    const SHARES: bool = false;
    const OPTIMISTIC: bool = false;

    #[inline]
    fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        self.enter();
        let _leaving = Leaving(|| self.leave());
        change()
    }

    #[inline]
    fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        // Acquire: partner is the Release in `leave`. Numbers that are served have been drawn, so if the next number is
        // the one served, nobody holds it.
        let serving = self.serving.load(Acquire);
        self.next.compare_exchange(serving, serving.wrapping_add(1), Relaxed, Relaxed).ok()?;
        let _leaving = Leaving(|| self.leave());
        Some(change())
    }
}
