//! What a holder of a latch holds.

use std::marker::PhantomData;
use std::mem;

use foreshore_env::hint::latched;
use foreshore_env::sabotage::{Fault, planted};
use foreshore_env::sync::atomic::Ordering::Relaxed;

use super::{EXCLUSIVE, HybridLatch, SHARER, Version};

/// A latch stays with the thread that took it.
type NotSend = PhantomData<*const ()>;

/// A latch held shared; dropping it releases.
#[must_use = "dropping the guard releases the latch"]
#[derive(Debug)]
pub struct SharedGuard<'a> {
    latch: &'a HybridLatch,
    thread: NotSend,
}

/// A latch held exclusively; dropping it raises the version and releases.
#[must_use = "dropping the guard releases the latch"]
#[derive(Debug)]
pub struct ExclusiveGuard<'a> {
    latch: &'a HybridLatch,
    /// What the version will be. Read on entering, when the line has just come: others may have it when the holder
    /// leaves, and a look before the store would fetch it twice.
    version: Version,
    thread: NotSend,
}

impl<'a> SharedGuard<'a> {
    /// For a thread that has entered as a sharer.
    #[inline]
    pub(super) fn new(latch: &'a HybridLatch) -> SharedGuard<'a> {
        latched();
        SharedGuard { latch, thread: PhantomData }
    }

    /// The version, which stands still as long as the guard lives.
    #[inline]
    pub fn version(&self) -> Version {
        // Relaxed: only exclusive holders write it, and entering has shown the last one's value.
        Version(self.latch.version.load(Relaxed))
    }
}

impl<'a> ExclusiveGuard<'a> {
    /// For a thread that has entered exclusively, and found `version`; `HybridLatch::exclusive_guard` sets the fence
    /// that belongs to it.
    #[inline]
    pub(super) fn new(latch: &'a HybridLatch, version: Version) -> ExclusiveGuard<'a> {
        latched();
        ExclusiveGuard { latch, version: Version(version.0 + 1), thread: PhantomData }
    }

    /// The version that optimistic readers will meet once this guard is released, until the next change.
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Ends the changes but keeps the content as it is: from exclusive to shared without a gap for another writer.
    #[inline]
    pub fn downgrade(self) -> SharedGuard<'a> {
        let (latch, version) = (self.latch, self.version);
        mem::forget(self);
        latch.raise_version(version);
        latch.leave(EXCLUSIVE, SHARER);
        SharedGuard::new(latch)
    }
}

impl Drop for SharedGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.latch.release_shared();
    }
}

impl Drop for ExclusiveGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if !planted(Fault::VersionNotRaised) {
            self.latch.raise_version(self.version);
        }
        self.latch.release_exclusive();
    }
}
