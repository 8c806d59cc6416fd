//! The road: a hybrid latch for each bucket, held for the list operation only.

use foreshore_base::Lsn;
use foreshore_latch::{HybridLatch, rank};

use super::QUEUE_RANK;
use super::list::{Linked, List};
use super::queue::Queue;
use crate::name::LockName;

/// A bucket, two to a cache line.
#[derive(Debug, Default)]
#[repr(align(32))]
struct Bucket {
    latch: HybridLatch,
    /// Guarded by the latch; emptiness and tag are also read without it.
    queue: Queue<Linked>,
}

#[cfg(not(foreshore_loom))]
const _: () = assert!(size_of::<Bucket>() == 32);

/// Buckets, chosen by the upper bits of a name.
#[derive(Debug)]
pub(super) struct Latched {
    buckets: Box<[Bucket]>,
    shift: u32,
}

impl Latched {
    /// `buckets` is a power of two.
    pub(super) fn new(buckets: usize) -> Latched {
        let shift = u64::BITS - buckets.ilog2();
        Latched { buckets: (0..buckets).map(|_| Bucket::default()).collect(), shift }
    }

    /// The number of a name's bucket.
    #[inline]
    pub(super) fn place(&self, name: LockName) -> usize {
        name.place(self.shift)
    }

    pub(super) fn places(&self) -> usize {
        self.buckets.len()
    }

    #[inline]
    fn bucket(&self, name: LockName) -> &Bucket {
        &self.buckets[self.place(name)]
    }

    #[inline]
    pub(super) fn alone<R>(&self, name: LockName, operation: impl FnOnce(&Queue<Linked>) -> R) -> R {
        let bucket = self.bucket(name);
        let _rank = rank::enter(QUEUE_RANK);
        let _guard = bucket.latch.exclusive();
        operation(&bucket.queue)
    }

    pub(super) fn beside<R>(&self, name: LockName, operation: impl FnOnce(&Queue<Linked>) -> R) -> R {
        self.beside_place(self.place(name), operation)
    }

    pub(super) fn beside_place<R>(&self, place: usize, operation: impl FnOnce(&Queue<Linked>) -> R) -> R {
        let bucket = &self.buckets[place];
        let _rank = rank::enter(QUEUE_RANK);
        let _guard = bucket.latch.shared();
        operation(&bucket.queue)
    }

    /// An optimistic read; `false` when in doubt.
    #[inline]
    pub(super) fn is_bucket_empty(&self, name: LockName) -> bool {
        self.is_place_empty(self.place(name))
    }

    /// As [`Latched::is_bucket_empty`].
    #[inline]
    pub(super) fn is_place_empty(&self, place: usize) -> bool {
        let bucket = &self.buckets[place];
        let Some(version) = bucket.latch.optimistic() else { return false };
        bucket.queue.list.is_bare() && bucket.latch.validate(version)
    }

    /// Tags only grow, and one that matters was stored before the caller could know that it does.
    #[inline]
    pub(super) fn tag(&self, name: LockName) -> Lsn {
        self.bucket(name).queue.tag()
    }
}
