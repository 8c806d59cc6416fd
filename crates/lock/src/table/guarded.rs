//! The gallery: the road's queues behind other guards, so that a comparison shows the guard and nothing else. One mutex
//! for all (MySQL's lock system in Jung et al. 2013); one MCS latch, in whose queue threads spin (Shore-MT with MCS
//! locks, ibid. §5.2.3); and a latch for each bucket that whoever comes or goes takes, sharers too (the two-phase
//! locking of Ren et al. 2016, §4).

use foreshore_env::sync::Mutex;
use foreshore_latch::baseline::{Latch, Mcs};
use foreshore_latch::{HybridLatch, rank};

use super::QUEUE_RANK;
use super::list::Linked;
use super::queue::Queue;
use crate::name::{LockName, Places};

/// Queues, and who guards them.
#[derive(Debug)]
pub(super) struct Guarded {
    guard: Guard,
    places: Places,
}

#[derive(Debug)]
enum Guard {
    Mutex(Mutex<Box<[Queue<Linked>]>>),
    /// The queues are guarded by the latch.
    Mcs(Box<Mcs>, Box<[Queue<Linked>]>),
    Each(Box<[Bucket]>),
}

/// As on the road, two to a cache line.
#[derive(Debug, Default)]
#[repr(align(32))]
struct Bucket {
    latch: HybridLatch,
    /// Guarded by the latch.
    queue: Queue<Linked>,
}

impl Guarded {
    /// Under one mutex.
    pub(super) fn by_mutex(places: Places) -> Guarded {
        Guarded::new(places, Guard::Mutex(Mutex::new(all(places.count()))))
    }

    /// Under one MCS latch.
    pub(super) fn by_mcs(places: Places) -> Guarded {
        Guarded::new(places, Guard::Mcs(Box::default(), all(places.count())))
    }

    /// Each queue under a latch of its own.
    pub(super) fn by_latches(places: Places) -> Guarded {
        Guarded::new(places, Guard::Each(all(places.count())))
    }

    fn new(places: Places, guard: Guard) -> Guarded {
        Guarded { guard, places }
    }

    /// The number of a name's queue.
    #[inline]
    pub(super) fn place(&self, name: LockName) -> usize {
        self.places.of(name)
    }

    pub(super) fn places(&self) -> usize {
        self.places.count()
    }

    #[inline]
    pub(super) fn alone<R>(&self, name: LockName, operation: impl FnOnce(&Queue<Linked>) -> R) -> R {
        self.alone_in_place(self.place(name), operation)
    }

    #[inline]
    pub(super) fn alone_in_place<R>(&self, place: usize, operation: impl FnOnce(&Queue<Linked>) -> R) -> R {
        let _rank = rank::enter(QUEUE_RANK);
        match &self.guard {
            Guard::Mutex(queues) => operation(&queues.lock()[place]),
            Guard::Mcs(latch, queues) => latch.exclusive(|| operation(&queues[place])),
            Guard::Each(buckets) => {
                let Bucket { latch, queue } = &buckets[place];
                let _guard = latch.exclusive();
                operation(queue)
            }
        }
    }
}

fn all<T: Default>(count: usize) -> Box<[T]> {
    (0..count).map(|_| T::default()).collect()
}
