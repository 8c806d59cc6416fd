//! The hybrid latch of Böttcher, Leis, Giceva, Neumann and Kemper, "Scalable and Robust Latches for Database Systems",
//! DaMoN 2020, §2.3 and §3.4.
//!
//! It departs from the paper's Listing 2 where that is wrong under a weak memory model (a release fence after the
//! exclusive acquisition; an acquire fence before validation, and the word loaded before the version), wakes one waiter
//! at a time instead of all, and hands the latch over to a waiter that keeps losing. README.md has the arguments.
//!
//! # The word
//!
//! | bits | name | meaning |
//! | --- | --- | --- |
//! | 0 | `EXCLUSIVE` | one thread holds the latch exclusively |
//! | 1 | `PARKED` | threads sleep in the parking lot, or are about to look whether they must |
//! | 2 | `WAKING` | a thread was woken and has not entered or gone back to sleep yet |
//! | 3–63 | sharers | how many threads hold the latch shared |
//!
//! ```text
//!              shared                     exclusive
//!   ┌─────────────────────────┐ ┌───────────────────────────┐
//!   ▼                         │ │                           ▼
//! sharers > 0 ──── last ───▶  free  ◀──── release ──── EXCLUSIVE
//!   ▲     leaves                                            │
//!   └───────────────────── downgrade ───────────────────────┘
//!
//! flags, beside any of these states:
//!   —      ──▶ PARKED   by a waiter, only while the latch is held
//!   PARKED ──▶ WAKING   by whoever leaves, in the step that frees the latch; PARKED stays if more sleep
//!   PARKED ──▶ held     by whoever leaves, if the first sleeper has lost too many races: it is given the latch
//!   PARKED ──▶ —        by whoever leaves or gives up, if nobody sleeps
//!   WAKING ──▶ —        by the woken thread, as it enters, or while the latch is held before it sleeps again
//! ```
//!
//! Two states never occur (LATCH-3, LATCH-4): `EXCLUSIVE` beside sharers, and free with `PARKED` but without `WAKING`.
//! The second is what makes wake-ups impossible to lose: a free latch with sleepers has somebody under way to it.

#[cfg(all(test, foreshore_loom))]
pub(crate) mod faulty;
mod guard;
mod wait;

use std::fmt;

use foreshore_env::sabotage::{Fault, planted};
use foreshore_env::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};
use foreshore_env::time::Instant;

pub use guard::{ExclusiveGuard, SharedGuard};

const EXCLUSIVE: u64 = 1;
const PARKED: u64 = 1 << 1;
const WAKING: u64 = 1 << 2;
const SHARER: u64 = 1 << 3;
const HOLDERS: u64 = !(PARKED | WAKING);

/// How often what the latch guards has been changed. Versions only grow, and never start anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version(u64);

impl Version {
    /// Whether `next` came of this one by a single exclusive holder.
    #[inline]
    pub fn precedes(self, next: Version) -> bool {
        self.0 + 1 == next.0
    }
}

/// Why a wait ended without the latch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitEnded {
    /// The deadline passed.
    Deadline,
    /// The caller's `look` answered that waiting has no point any more.
    GaveUp,
}

/// What a thread wants of the latch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// To read beside other readers.
    Shared,
    /// To be alone.
    Exclusive,
}

/// A reader-writer latch with a version: 16 bytes, no queue inside, waiting in the [parking lot](crate::parking).
///
/// - *Optimistic*: [`optimistic`](Self::optimistic), read, [`validate`](Self::validate). Writes nothing. What was read
///   may be nonsense until it is validated; it has to be read through relaxed atomics.
/// - *Shared* and *exclusive*: guards; dropping one releases. The exclusive guard's release raises the version.
///
/// A thread that holds a latch shared must not ask for it again with [`shared`](Self::shared): somebody who waits to be
/// alone holds newcomers off, and the thread would wait for itself. [`try_shared`](Self::try_shared) and
/// [`shared_if`](Self::shared_if) do not look at who waits and are safe there (LATCH-7).
pub struct HybridLatch {
    /// Who holds the latch and whether anybody sleeps; bits above. Read and written by everybody.
    word: AtomicU64,
    /// Written by the exclusive holder only (LATCH-1), read by everybody.
    version: AtomicU64,
}

#[cfg(not(foreshore_loom))]
const _: () = assert!(size_of::<HybridLatch>() == 16);

impl HybridLatch {
    /// A free latch.
    #[cfg(not(foreshore_loom))]
    pub const fn new() -> HybridLatch {
        HybridLatch { word: AtomicU64::new(0), version: AtomicU64::new(0) }
    }

    /// A free latch.
    #[cfg(foreshore_loom)]
    pub fn new() -> HybridLatch {
        HybridLatch { word: AtomicU64::new(0), version: AtomicU64::new(0) }
    }

    /// Begins an optimistic read: the version to validate afterwards, `None` while somebody is changing the content.
    #[inline]
    pub fn optimistic(&self) -> Option<Version> {
        // Relaxed: this only spares a read that would be in vain. `validate` decides, by the word as it is then.
        if self.word.load(Relaxed) & EXCLUSIVE != 0 {
            return None;
        }
        // Acquire: partner is the Release store in `raise_version`. All changes that the version counts are seen.
        Some(Version(self.version.load(Acquire)))
    }

    /// Whether nothing changed since [`optimistic`](Self::optimistic) gave this version, so that all that was read in
    /// between is true.
    #[inline]
    pub fn validate(&self, version: Version) -> bool {
        // Partner is the release fence in `exclusive_guard`. If any read before this fence saw a writer's store, the
        // load below sees that writer's EXCLUSIVE or something newer (LATCH-2).
        fence(Acquire);
        // Acquire at least: partner is the release of `release_exclusive` and `leave`. If that writer has left already,
        // its version is seen by the next load, which must not move up; a Relaxed load here would allow that. SeqCst
        // for LATCH-10.
        self.word.load(SeqCst) & EXCLUSIVE == 0 && self.version.load(Relaxed) == version.0
    }

    /// Whether somebody holds the latch exclusively at this moment. A hint: it may be over by the time of the answer.
    #[inline]
    pub fn is_exclusive(&self) -> bool {
        self.word.load(Relaxed) & EXCLUSIVE != 0
    }

    /// Waits until the latch can be held shared. For short waits that nobody needs to cancel.
    #[inline]
    pub fn shared(&self) -> SharedGuard<'_> {
        if !self.enter_shared_fast() {
            self.wait_always(Wish::Shared);
        }
        SharedGuard::new(self)
    }

    /// Waits until the latch can be held exclusively. For short waits that nobody needs to cancel.
    #[inline]
    pub fn exclusive(&self) -> ExclusiveGuard<'_> {
        if !self.enter_exclusive_fast() {
            self.wait_always(Wish::Exclusive);
        }
        self.exclusive_guard()
    }

    /// As [`shared`](Self::shared), until `deadline` at the latest, and only while `look`, which is asked when the wait
    /// begins and then about every 10 ms, answers `true`. A latch that is free is taken even if the deadline has
    /// passed.
    #[inline]
    pub fn shared_until(
        &self,
        deadline: Option<Instant>,
        look: &mut dyn FnMut() -> bool,
    ) -> Result<SharedGuard<'_>, WaitEnded> {
        if !self.enter_shared_fast() {
            self.wait(Wish::Shared, deadline, Some(look))?;
        }
        Ok(SharedGuard::new(self))
    }

    /// As [`exclusive`](Self::exclusive), with the ends of [`shared_until`](Self::shared_until).
    #[inline]
    pub fn exclusive_until(
        &self,
        deadline: Option<Instant>,
        look: &mut dyn FnMut() -> bool,
    ) -> Result<ExclusiveGuard<'_>, WaitEnded> {
        if !self.enter_exclusive_fast() {
            self.wait(Wish::Exclusive, deadline, Some(look))?;
        }
        Ok(self.exclusive_guard())
    }

    /// Shared, if that needs no waiting and passes nobody who waits: one attempt, as [`shared`](Self::shared) begins.
    #[inline]
    pub fn shared_now(&self) -> Option<SharedGuard<'_>> {
        self.enter_shared_fast().then(|| SharedGuard::new(self))
    }

    /// Shared, unless somebody holds the latch exclusively. Does not look at who waits.
    #[inline]
    pub fn try_shared(&self) -> Option<SharedGuard<'_>> {
        self.enter_unless_held(Wish::Shared).then(|| SharedGuard::new(self))
    }

    /// Exclusive, unless anybody holds the latch.
    #[inline]
    pub fn try_exclusive(&self) -> Option<ExclusiveGuard<'_>> {
        self.enter_unless_held(Wish::Exclusive).then(|| self.exclusive_guard())
    }

    /// From an optimistic read to exclusive, without waiting: only if nobody holds the latch and nothing changed since.
    /// Success validates all that was read under `version`.
    #[inline]
    pub fn upgrade(&self, version: Version) -> Option<ExclusiveGuard<'_>> {
        // A look before the leap keeps hopeless upgrades from writing to the latch.
        let stale = self.version.load(Relaxed) != version.0 && !planted(Fault::UpgradeUnvalidated);
        if stale || !self.enter_unless_held(Wish::Exclusive) {
            return None;
        }
        // The holder alone writes the version, so this is the last word. No fence is needed for what was read before: a
        // writer whose store was seen either left before this thread entered, which the Acquire of entering shows, or
        // entered after this thread will have left, and then its store could not have been seen.
        let found = Version(self.version.load(Relaxed));
        if found != version && !planted(Fault::UpgradeUnvalidated) {
            self.release_exclusive();
            return None;
        }
        Some(self.guard_at(found))
    }

    /// From an optimistic read to shared, without waiting: only if nobody holds the latch exclusively and nothing
    /// changed since. Success validates all that was read under `version`.
    #[inline]
    pub fn shared_if(&self, version: Version) -> Option<SharedGuard<'_>> {
        if self.version.load(Relaxed) != version.0 {
            return None;
        }
        let guard = self.try_shared()?;
        // As in `upgrade`: no writer can be inside.
        (guard.version() == version).then_some(guard)
    }

    /// One attempt to share. Holds off where somebody sleeps: it may be a writer, whom a stream of sharers would
    /// starve.
    #[inline]
    fn enter_shared_fast(&self) -> bool {
        let word = self.word.load(Relaxed);
        // Acquire: partner is the release of `release_exclusive` and `leave`.
        word & (EXCLUSIVE | PARKED) == 0
            && self.word.compare_exchange_weak(word, word + SHARER, Acquire, Relaxed).is_ok()
    }

    /// One attempt to be alone, for the common case that the latch has no state at all.
    #[inline]
    fn enter_exclusive_fast(&self) -> bool {
        // Acquire at least: partners are the releases of `release_exclusive`, `release_shared` and `leave`. SeqCst for
        // LATCH-10.
        self.word.compare_exchange(0, EXCLUSIVE, SeqCst, Relaxed).is_ok()
    }

    /// Enters unless a holder is in the way.
    #[inline]
    fn enter_unless_held(&self, wish: Wish) -> bool {
        let mut word = self.word.load(Relaxed);
        while wish.may_enter(word) {
            // As in `enter_exclusive_fast`.
            match self.word.compare_exchange_weak(word, word + wish.unit(), SeqCst, Relaxed) {
                Ok(_) => return true,
                Err(newer) => word = newer,
            }
        }
        false
    }

    /// The guard of a thread that has just entered exclusively, by whichever way.
    #[inline]
    fn exclusive_guard(&self) -> ExclusiveGuard<'_> {
        // Relaxed: only exclusive holders write it, and entering has shown the last one's value.
        self.guard_at(Version(self.version.load(Relaxed)))
    }

    /// As [`HybridLatch::exclusive_guard`], for whoever has looked at the version.
    #[inline]
    fn guard_at(&self, version: Version) -> ExclusiveGuard<'_> {
        // Partner is the acquire fence in `validate`: a thread that sees any store that this thread is about to make
        // also sees EXCLUSIVE. Without it that store may become visible before EXCLUSIVE does (LATCH-2).
        fence(Release);
        ExclusiveGuard::new(self, version)
    }

    /// The exclusive holder declares that the content has changed: the version is one more than it found. Before it
    /// leaves, never after (LATCH-1).
    #[inline]
    fn raise_version(&self, version: Version) {
        // Release: partner is the Acquire load in `optimistic`.
        self.version.store(version.0, Release);
    }

    /// The exclusive holder leaves.
    #[inline]
    fn release_exclusive(&self) {
        // Release: partners are the acquiring loads and exchanges of whoever looks or enters next.
        if self.word.compare_exchange(EXCLUSIVE, 0, Release, Relaxed).is_err() {
            self.leave(EXCLUSIVE, 0);
        }
    }

    /// One of the sharers leaves.
    #[inline]
    fn release_shared(&self) {
        let word = self.word.load(Relaxed);
        // Release: partner is the Acquire with which a writer enters. It waits for the end of this thread's reads.
        if word & PARKED != 0
            || self.word.compare_exchange_weak(word, word - SHARER, Release, Relaxed).is_err()
        {
            self.leave(SHARER, 0);
        }
    }
}

impl Default for HybridLatch {
    fn default() -> HybridLatch {
        HybridLatch::new()
    }
}

impl fmt::Debug for HybridLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.load(Relaxed);
        f.debug_struct("HybridLatch")
            .field("exclusive", &(word & EXCLUSIVE != 0))
            .field("sharers", &(word / SHARER))
            .field("parked", &(word & PARKED != 0))
            .field("waking", &(word & WAKING != 0))
            .field("version", &self.version.load(Relaxed))
            .finish()
    }
}

impl Wish {
    /// What a holder adds to the word.
    #[inline]
    fn unit(self) -> u64 {
        match self {
            Wish::Shared => SHARER,
            Wish::Exclusive => EXCLUSIVE,
        }
    }

    /// Whether the holders leave room for this wish.
    #[inline]
    fn may_enter(self, word: u64) -> bool {
        match self {
            Wish::Shared => word & EXCLUSIVE == 0,
            Wish::Exclusive => word & HOLDERS == 0,
        }
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
