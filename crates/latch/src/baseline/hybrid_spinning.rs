//! The hybrid latch of Böttcher et al. 2020, §2.3 and Listing 2, without a parking lot (Table 3: *hybrid locking*
//! beside the one with it): a reader-writer spinlock and a version. A thread that waits looks more and more rarely, as
//! for the [`OptimisticLatch`](super::OptimisticLatch).
//!
//! Nobody sleeps, so nobody is to be woken: while a writer is inside the word is its own, and it leaves with a store.
//! In the road's latch, whose word says who sleeps, it takes a change. The fences are that latch's
//! ([`HybridLatch`](crate::HybridLatch)).

use foreshore_env::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use super::{Latch, Leaving, spin};

const EXCLUSIVE: u64 = 1;
const SHARER: u64 = 2;

/// A reader-writer spinlock with a version. Unfair; a stream of sharers starves who wants to be alone.
#[derive(Debug, Default)]
pub struct HybridSpinning {
    /// Bit 0: held exclusively; the bits above: sharers. Written by everybody while it is not held exclusively, then by
    /// the holder.
    word: AtomicU64,
    /// Changes so far. Written by the exclusive holder, read by everybody.
    version: AtomicU64,
}

#[cfg(not(foreshore_loom))]
const _: () = assert!(size_of::<HybridSpinning>() == 16);

impl HybridSpinning {
    #[inline]
    fn try_enter(&self) -> Option<()> {
        // Acquire: partners are the Releases in `leave` and `leave_shared`. A look before the leap keeps failures from
        // writing.
        if self.word.load(Relaxed) != 0 || self.word.compare_exchange(0, EXCLUSIVE, Acquire, Relaxed).is_err()
        {
            return None;
        }
        // Partner is the acquire fence in `try_optimistic`: a thread that sees any store that this thread is about to
        // make also sees EXCLUSIVE or something newer.
        fence(Release);
        Some(())
    }

    #[inline]
    fn leave(&self) {
        // Relaxed: nobody else writes it.
        let version = self.version.load(Relaxed) + 1;
        // Release: partner is the Acquire load in `try_optimistic`. Before the word, never after.
        self.version.store(version, Release);
        // Release: partners are the Acquires of whoever looks or enters next.
        self.word.store(0, Release);
    }

    #[inline]
    fn try_enter_shared(&self) -> Option<()> {
        let word = self.word.load(Relaxed);
        // Acquire: partner is the Release in `leave`.
        let entered = word & EXCLUSIVE == 0
            && self.word.compare_exchange(word, word + SHARER, Acquire, Relaxed).is_ok();
        entered.then_some(())
    }

    #[inline]
    fn leave_shared(&self) {
        // Release: partner is the Acquire with which a writer enters. It waits for the end of this thread's reads.
        self.word.fetch_sub(SHARER, Release);
    }
}

impl Latch for HybridSpinning {
    const SHARES: bool = true;
    const OPTIMISTIC: bool = true;

    #[inline]
    fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        spin::backing_off(|| self.try_enter());
        let _leaving = Leaving(|| self.leave());
        change()
    }

    #[inline]
    fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        self.try_enter()?;
        let _leaving = Leaving(|| self.leave());
        Some(change())
    }

    #[inline]
    fn shared<R>(&self, read: impl FnOnce() -> R) -> R {
        spin::backing_off(|| self.try_enter_shared());
        let _leaving = Leaving(|| self.leave_shared());
        read()
    }

    #[inline]
    fn try_shared<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        self.try_enter_shared()?;
        let _leaving = Leaving(|| self.leave_shared());
        Some(read())
    }

    #[inline]
    fn try_optimistic<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        // Relaxed: this only spares a read that would be in vain.
        if self.word.load(Relaxed) & EXCLUSIVE != 0 {
            return None;
        }
        // Acquire: partner is the Release store of the version. All changes that it counts are seen.
        let version = self.version.load(Acquire);
        let seen = read();
        // Partner is the release fence in `try_enter`.
        fence(Acquire);
        // Acquire: if a writer has left already, its version is seen by the next load, which must not move up.
        let stands = self.word.load(Acquire) & EXCLUSIVE == 0 && self.version.load(Relaxed) == version;
        stands.then_some(seen)
    }
}
