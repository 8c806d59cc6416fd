//! Steps of the latch with a fault planted in each, for the models that must catch them. Not part of any build but
//! theirs.

use foreshore_env::sync::atomic::{
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use super::{EXCLUSIVE, HybridLatch, PARKED, SHARER, Version, Wish};
use crate::parking::{self, Wait};

impl Version {
    /// The version after so many changes.
    pub(crate) fn for_model(changes: u64) -> Version {
        Version(changes)
    }
}

impl HybridLatch {
    /// The word, once all threads have ended.
    pub(crate) fn word_for_model(&self) -> u64 {
        self.word.load(Acquire)
    }
}

pub(crate) fn raise_version(latch: &HybridLatch) {
    latch.raise_version(Version(latch.version.load(Relaxed) + 1));
}

pub(crate) fn release_without_version(latch: &HybridLatch) {
    latch.release_exclusive();
}

pub(crate) fn release_shared(latch: &HybridLatch) {
    latch.release_shared();
}

pub(crate) fn enter_without_fence(latch: &HybridLatch) -> bool {
    latch.enter_exclusive_fast()
}

pub(crate) fn validate_without_fence(latch: &HybridLatch, version: Version) -> bool {
    latch.word.load(Acquire) & EXCLUSIVE == 0 && latch.version.load(Relaxed) == version.0
}

pub(crate) fn validate_word_relaxed(latch: &HybridLatch, version: Version) -> bool {
    fence(Acquire);
    latch.word.load(Relaxed) & EXCLUSIVE == 0 && latch.version.load(Relaxed) == version.0
}

pub(crate) fn validate_version_only(latch: &HybridLatch, version: Version) -> bool {
    fence(Acquire);
    latch.version.load(Relaxed) == version.0
}

pub(crate) fn optimistic_relaxed(latch: &HybridLatch) -> Option<Version> {
    (latch.word.load(Relaxed) & EXCLUSIVE == 0).then(|| Version(latch.version.load(Relaxed)))
}

pub(crate) fn free_the_word(latch: &HybridLatch) {
    latch.word.swap(0, Release);
}

pub(crate) fn set_word_to_one_sharer(latch: &HybridLatch) {
    latch.word.swap(SHARER, Release);
}

pub(crate) fn release_relaxed(latch: &HybridLatch) {
    if latch.word.compare_exchange(EXCLUSIVE, 0, Relaxed, Relaxed).is_err() {
        latch.leave(EXCLUSIVE, 0);
    }
}

/// Waits to share, asleep whatever the word says by then.
pub(crate) fn wait_without_validation(latch: &HybridLatch) {
    loop {
        if latch.enter_unless_held(Wish::Shared) {
            return;
        }
        if latch.word.fetch_or(PARKED, Relaxed) & EXCLUSIVE != 0 {
            let wait = Wait { wish: Some(Wish::Shared), favoured: false, due: false };
            let _ = parking::park_for(latch.address(), wait, || true, None, Some(&mut || true));
        }
    }
}

/// Leaves as a sharer, deciding whether it was the last by what it saw before it left.
pub(crate) fn leave_by_an_old_look(latch: &HybridLatch) {
    let word = latch.word.load(Relaxed);
    if word == SHARER | PARKED {
        latch.leave(SHARER, 0);
    } else {
        latch.word.fetch_sub(SHARER, Release);
    }
}
