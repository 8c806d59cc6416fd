//! The gallery: a lock table under one mutex, the baseline that latched buckets are measured against.

use foreshore_env::sync::Mutex;
use foreshore_latch::rank;

use super::QUEUE_RANK;
use super::list::Linked;
use super::queue::Queue;
use crate::name::LockName;

/// The same queues as on the road, so that a comparison shows the mutex and nothing else.
#[derive(Debug)]
pub(super) struct GlobalMutex {
    queues: Mutex<Box<[Queue<Linked>]>>,
    places: usize,
    shift: u32,
}

impl GlobalMutex {
    /// `buckets` is a power of two.
    pub(super) fn new(buckets: usize) -> GlobalMutex {
        let shift = u64::BITS - buckets.ilog2();
        let queues = (0..buckets).map(|_| Queue::default()).collect();
        GlobalMutex { queues: Mutex::new(queues), places: buckets, shift }
    }

    /// The number of a name's queue.
    #[inline]
    pub(super) fn place(&self, name: LockName) -> usize {
        name.place(self.shift)
    }

    pub(super) fn places(&self) -> usize {
        self.places
    }

    #[inline]
    pub(super) fn alone<R>(&self, name: LockName, operation: impl FnOnce(&Queue<Linked>) -> R) -> R {
        self.alone_in_place(self.place(name), operation)
    }

    #[inline]
    pub(super) fn alone_in_place<R>(&self, place: usize, operation: impl FnOnce(&Queue<Linked>) -> R) -> R {
        let _rank = rank::enter(QUEUE_RANK);
        let queues = self.queues.lock();
        operation(&queues[place])
    }
}
