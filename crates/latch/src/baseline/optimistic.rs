//! The optimistic latch of Böttcher et al. 2020, §2.1 and Listing 1: a version whose lowest bit says that somebody
//! changes the content. There is no shared mode: a reader that keeps failing has to be alone.
//!
//! The paper does not say how a thread that wants to change something waits for this latch. Here it looks more and more
//! rarely, which §4.5 finds to be the best way to spin.
//!
//! It departs from the listing by the fences that a weak memory model asks for, as the
//! [`HybridLatch`](crate::HybridLatch) does; with one word for both, the order of two loads is no question here.

use foreshore_env::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use super::{Latch, Leaving, spin};

const LOCKED: u64 = 1;
/// What a change adds to the word, from free to free.
const CHANGE: u64 = 2;

/// A version and a spinlock in one word. Optimistic or exclusive; unfair.
#[derive(Debug, Default)]
pub struct OptimisticLatch {
    /// Bit 0: held; the bits above: changes so far. Written by the holder, and by whoever enters.
    word: AtomicU64,
}

#[cfg(not(foreshore_loom))]
const _: () = assert!(size_of::<OptimisticLatch>() == 8);

impl OptimisticLatch {
    /// What the word is while this thread holds the latch.
    #[inline]
    fn try_enter(&self) -> Option<u64> {
        let word = self.word.load(Relaxed);
        // Acquire: partner is the Release in `leave`.
        if word & LOCKED != 0 || self.word.compare_exchange(word, word | LOCKED, Acquire, Relaxed).is_err() {
            return None;
        }
        // Partner is the acquire fence in `try_optimistic`: a thread that sees any store that this thread is about to
        // make also sees LOCKED or something newer.
        fence(Release);
        Some(word | LOCKED)
    }

    #[cold]
    fn wait(&self) -> u64 {
        spin::backing_off(|| self.try_enter())
    }

    #[inline]
    fn leave(&self, word: u64) {
        // Release: partners are the Acquires of whoever reads or enters next.
        self.word.store(word - LOCKED + CHANGE, Release);
    }
}

impl Latch for OptimisticLatch {
    const SHARES: bool = false;
    const OPTIMISTIC: bool = true;

    #[inline]
    fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        let word = self.try_enter().unwrap_or_else(|| self.wait());
        let _leaving = Leaving(|| self.leave(word));
        change()
    }

    #[inline]
    fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        let word = self.try_enter()?;
        let _leaving = Leaving(|| self.leave(word));
        Some(change())
    }

    #[inline]
    fn try_optimistic<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        // Acquire: partner is the Release in `leave`. All changes that the version counts are seen.
        let before = self.word.load(Acquire);
        if before & LOCKED != 0 {
            return None;
        }
        let seen = read();
        // Partner is the release fence in `try_enter`.
        fence(Acquire);
        (self.word.load(Relaxed) == before).then_some(seen)
    }
}
