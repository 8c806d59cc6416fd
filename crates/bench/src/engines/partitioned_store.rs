//! The partitioned store, to measure against: one spin latch for each partition, no locks (H-Store; Ren, Faleiro, Abadi
//! 2016, §4.3).
//!
//! A transaction takes the latches of all its partitions, in ascending order, before it begins, and gives them back
//! when it has committed. What it runs on is the engine as it is, without its locks. The paper's store also keeps the
//! partitions in indexes of their own: `--split` does that.

use foreshore_env::{
    CachePadded,
    hint::spin_loop,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Relaxed, Release},
    },
    thread,
};

use super::Partitioning;
use crate::workload::Worker;

/// Looks at a latch before the others are let run: whoever has it may not be running.
const LOOKS: u32 = 1000;

/// The latches.
#[derive(Debug)]
pub(super) struct PartitionedStore {
    partitioning: Partitioning,
    /// Each is set by whoever has the partition: taken with acquire, given back with release.
    latches: Box<[CachePadded<AtomicBool>]>,
}

/// Partitions that a transaction has; given back on drop, a panic included.
pub(super) struct Taken<'s> {
    store: &'s PartitionedStore,
    /// Ascending.
    partitions: Vec<usize>,
}

impl PartitionedStore {
    pub(super) fn new(partitioning: Partitioning) -> PartitionedStore {
        let latches = (0..partitioning.count.max(1)).map(|_| CachePadded::default()).collect();
        PartitionedStore { partitioning, latches }
    }

    /// Takes what the transaction that a worker has drawn will touch; everything, if it cannot tell. Nobody waits in a
    /// cycle: all ascend.
    pub(super) fn take(&self, worker: &dyn Worker) -> Taken<'_> {
        let of = self.partitioning.of;
        let mut partitions = Vec::new();
        let known = worker.foresee(&mut |table, key, _| {
            if !of.everywhere.contains(&table) {
                partitions.push((of.of)(key) % self.latches.len());
            }
        });
        if !known {
            partitions = (0..self.latches.len()).collect();
        }
        partitions.sort_unstable();
        partitions.dedup();
        let mut taken = Taken { store: self, partitions: Vec::with_capacity(partitions.len()) };
        for partition in partitions {
            self.latch(partition);
            taken.partitions.push(partition);
        }
        taken
    }

    fn latch(&self, partition: usize) {
        let latch = &self.latches[partition];
        let mut looks = 0;
        while latch.load(Relaxed) || latch.swap(true, Acquire) {
            looks += 1;
            if looks % LOOKS == 0 {
                thread::yield_now();
            } else {
                spin_loop();
            }
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for &partition in &self.partitions {
            self.store.latches[partition].store(false, Release);
        }
    }
}
