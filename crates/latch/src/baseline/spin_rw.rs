//! A reader-writer spinlock in one word, after `tbb::spin_rw_mutex`, which Böttcher et al. 2020 measure (Table 2).
//!
//! | bits | name | meaning |
//! | --- | --- | --- |
//! | 0 | `WRITER` | one thread is alone inside |
//! | 1 | `PENDING` | a writer waits: readers hold off |
//! | 2–63 | readers | how many are inside, or have entered beside a writer and are about to step back |
//!
//! A thread that waits does so as `tbb`'s waiters do.
//!
//! `PENDING` belongs to nobody: whichever writer enters clears it, and writers that still wait set it again.

use foreshore_env::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::{Latch, Leaving, spin};

const WRITER: u64 = 1;
const PENDING: u64 = 1 << 1;
const READER: u64 = 1 << 2;

/// A reader-writer spinlock. Writers are preferred; unfair among each other.
#[derive(Debug, Default)]
pub struct SpinRw {
    /// Bits above. Written by everybody.
    word: AtomicU64,
}

#[cfg(not(foreshore_loom))]
const _: () = assert!(size_of::<SpinRw>() == 8);

impl SpinRw {
    #[inline]
    fn try_enter_shared(&self) -> bool {
        if self.word.load(Relaxed) & (WRITER | PENDING) != 0 {
            return false;
        }
        // Acquire: partner is the Release in `leave_exclusive`.
        if self.word.fetch_add(READER, Acquire) & WRITER == 0 {
            return true;
        }
        // A writer was faster. Relaxed: this thread has read nothing.
        self.word.fetch_sub(READER, Relaxed);
        false
    }

    #[inline]
    fn try_enter_exclusive(&self) -> bool {
        let word = self.word.load(Relaxed);
        word & !PENDING == 0 && self.enter_exclusive(word)
    }

    /// Enters if the word, which says that nobody is inside, still stands.
    #[inline]
    fn enter_exclusive(&self, word: u64) -> bool {
        // Acquire: partners are the Releases in `leave_exclusive` and `leave_shared`.
        self.word.compare_exchange(word, WRITER, Acquire, Relaxed).is_ok()
    }

    #[cold]
    fn wait_exclusive(&self) {
        spin::yielding(|| {
            let word = self.word.load(Relaxed);
            if word & !PENDING == 0 {
                return self.enter_exclusive(word);
            }
            if word & PENDING == 0 {
                self.word.fetch_or(PENDING, Relaxed);
            }
            false
        });
    }

    #[cold]
    fn wait_shared(&self) {
        spin::yielding(|| self.try_enter_shared());
    }

    #[inline]
    fn leave_exclusive(&self) {
        // Leaves PENDING and readers that are about to step back.
        self.word.fetch_and(!WRITER, Release);
    }

    #[inline]
    fn leave_shared(&self) {
        self.word.fetch_sub(READER, Release);
    }
}

impl Latch for SpinRw {
    const SHARES: bool = true;
    const OPTIMISTIC: bool = false;

    #[inline]
    fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        if !self.try_enter_exclusive() {
            self.wait_exclusive();
        }
        let _leaving = Leaving(|| self.leave_exclusive());
        change()
    }

    #[inline]
    fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        if !self.try_enter_exclusive() {
            return None;
        }
        let _leaving = Leaving(|| self.leave_exclusive());
        Some(change())
    }

    #[inline]
    fn shared<R>(&self, read: impl FnOnce() -> R) -> R {
        if !self.try_enter_shared() {
            self.wait_shared();
        }
        let _leaving = Leaving(|| self.leave_shared());
        read()
    }

    #[inline]
    fn try_shared<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        if !self.try_enter_shared() {
            return None;
        }
        let _leaving = Leaving(|| self.leave_shared());
        Some(read())
    }
}
