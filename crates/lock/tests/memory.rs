//! What a slot keeps of a transaction with many locks: little, also where they were given back in parts.
#![cfg(not(any(foreshore_sim, foreshore_loom)))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use foreshore_base::{TableId, TxnId};
use foreshore_lock::{Age, KeyMode, KeyRef, LockManager, LockOptions, WaitPolicy};

/// Bytes in use.
static BYTES: AtomicIsize = AtomicIsize::new(0);

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: everything is the system allocator's; counting touches a plain counter.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise is the same.
        unsafe { System.dealloc(block, layout) };
    }
}

#[test]
fn a_slot_keeps_little() {
    const LOCKS: usize = 1 << 20;
    let options =
        LockOptions { max_locks: LOCKS, max_locks_per_transaction: LOCKS, ..LockOptions::default() };
    let manager = LockManager::new(&options);
    let no_wait = WaitPolicy { no_wait: true, ..WaitPolicy::default() };
    let kept = [false, true].map(|parts| {
        // Open at a time, so that each has a slot of its own.
        let owners = 1..=8;
        let mut owners: Vec<_> =
            owners.map(|number| manager.begin(TxnId(number), Age::new(number, 0), None).unwrap()).collect();
        for owner in &mut owners {
            let number = owner.txn().0;
            for key in 0..90_000_u64 {
                let key = (key | number << 40).to_be_bytes();
                owner.acquire(TableId(16), KeyRef::Key(&key), KeyMode::XN, &no_wait).unwrap();
            }
            if parts {
                let before = BYTES.load(Ordering::Relaxed);
                owner.release_some(|name| name.partition(2) == 0, None);
                owner.release_some(|name| name.partition(2) == 1, None);
                // The list of requests that come back grows by four bytes for each; a copy of the list of locks would
                // take 2 MiB.
                let taken = BYTES.load(Ordering::Relaxed) - before;
                assert!(taken < 1 << 20, "to give locks back takes {taken} bytes");
            }
            owner.release_all(None);
        }
        drop(owners);
        // Requests stay, once they were allocated.
        BYTES.load(Ordering::Relaxed)
    });
    assert!(kept[1] - kept[0] < 1 << 20, "{} bytes more are kept", kept[1] - kept[0]);
}
