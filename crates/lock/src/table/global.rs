//! The gallery: a lock table under one mutex, the baseline that latched buckets are measured against.

use foreshore_env::sync::Mutex;
use foreshore_latch::rank;

use super::QUEUE_RANK;
use super::queue::Queue;
use crate::name::LockName;

/// The same queues as on the road, so that a comparison shows the mutex and nothing else.
#[derive(Debug)]
pub(super) struct GlobalMutex {
    queues: Mutex<Box<[Queue]>>,
    shift: u32,
}

impl GlobalMutex {
    /// `buckets` is a power of two.
    pub(super) fn new(buckets: usize) -> GlobalMutex {
        let shift = u64::BITS - buckets.ilog2();
        GlobalMutex { queues: Mutex::new((0..buckets).map(|_| Queue::default()).collect()), shift }
    }

    #[inline]
    pub(super) fn alone<R>(&self, name: LockName, operation: impl FnOnce(&Queue) -> R) -> R {
        let bucket = name.bits().checked_shr(self.shift).unwrap_or(0) as usize;
        let _rank = rank::enter(QUEUE_RANK);
        let queues = self.queues.lock();
        operation(&queues[bucket])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.lock().iter().all(Queue::is_empty)
    }
}
