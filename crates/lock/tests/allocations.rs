//! In steady state locks allocate nothing: neither those on keys nor those on tables, nor what is asked and refused.
#![cfg(not(any(foreshore_sim, foreshore_loom)))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use foreshore_base::{TableId, TxnId};
use foreshore_env::sync::Arc;
use foreshore_env::thread_local;
use foreshore_lock::{
    Age, IntentLockKind, IntentMode, KeyMode, KeyRef, LockManager, LockOptions, LockTableKind, WaitPolicy,
};

thread_local! {
    /// Allocations of this thread.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count() {
    // A thread that is being taken down is not counted.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: everything is the system allocator's; counting touches a plain cell.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the same.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is the same.
        unsafe { System.realloc(block, layout, size) }
    }
}

const NO_WAIT: WaitPolicy<'static> =
    WaitPolicy { deadline: None, timeout: None, no_wait: true, cancel: None };

/// Locks of all kinds, conversions, checks, and what is refused.
fn transaction(manager: &Arc<LockManager>, txn: u64, first: u64, locks: u64) {
    let mut owner = manager.begin(TxnId(txn), Age::new(txn, 0), None).unwrap();
    for table in [u32::MAX, 16, 17] {
        owner.intent(TableId(table), IntentMode::IS, &NO_WAIT).unwrap();
        owner.intent(TableId(table), IntentMode::IX, &NO_WAIT).unwrap();
    }
    for number in first..first + locks {
        let bytes = number.to_be_bytes();
        let key = KeyRef::Key(&bytes);
        owner.acquire(TableId(16), key, KeyMode::S, &NO_WAIT).unwrap();
        if number % 2 == 0 {
            owner.acquire(TableId(16), key, KeyMode::XS, &NO_WAIT).unwrap();
        }
        assert!(owner.check(TableId(17), key, KeyMode::NX));
    }
    assert!(!owner.try_acquire(TableId(16), KeyRef::Key(b"taken"), KeyMode::S).unwrap());
}

/// Transactions before those that count, and those.
const ROUNDS: u64 = 200;

/// Allocations of so many transactions.
fn allocations(manager: &Arc<LockManager>, rounds: u64, locks: u64) -> u64 {
    let before = ALLOCATIONS.get();
    for round in 0..rounds {
        transaction(manager, round, round % 10 * locks, locks);
    }
    ALLOCATIONS.get() - before
}

#[test]
fn locks_allocate_nothing_in_steady_state() {
    for table in LockTableKind::ALL {
        for intents in IntentLockKind::ALL {
            for keep_notes in [false, true] {
                // Few buckets, so that the staged table soon has all the memory that it needs.
                let options =
                    LockOptions { buckets: 1 << 10, table, intents, keep_notes, ..LockOptions::default() };
                let manager = LockManager::new(&options);
                let mut other = manager.begin(TxnId(9999), Age::new(9999, 0), None).unwrap();
                other.acquire(TableId(16), KeyRef::Key(b"taken"), KeyMode::X, &NO_WAIT).unwrap();
                for locks in [20, 600] {
                    let first = allocations(&manager, ROUNDS, locks);
                    assert!(first > 0, "what is needed is made once, and seen here");
                    // The staged table's owners help themselves while the thread that recycles is behind; soon there is
                    // enough of everything.
                    let batches = if options.table == LockTableKind::Staged { 100 } else { 1 };
                    let steady = (0..batches).any(|_| allocations(&manager, ROUNDS, locks) == 0);
                    assert!(steady, "{locks} locks, {options:?}");
                }
            }
        }
    }
}
