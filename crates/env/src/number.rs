//! Numbers that only have to differ.

// Of no world: a model or a simulation has nothing to see here.
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that no other call in this process gets.
pub fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
