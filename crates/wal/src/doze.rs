//! The long sleep of a flusher that has nothing left to do, and how an append ends it.
//!
//! An append must find out at the price of a look whether it has to wake somebody. The order of the two looks comes
//! from the log's tail (WAL-12): the flusher says that it dozes, then looks at the tail by a read-modify-write. A claim
//! that this look does not see comes after it in the tail's order, and has so acquired that the flusher dozes. A claim
//! that it does see keeps the flusher awake.

use foreshore_env::{
    CachePadded,
    sync::atomic::{AtomicBool, Ordering},
};

/// Whether the flusher dozes.
#[derive(Debug, Default)]
pub(crate) struct Doze {
    /// Set by the flusher, cleared by it or by the one who wakes it. Relaxed: ordered by the log's tail.
    on: CachePadded<AtomicBool>,
}

impl Doze {
    /// The flusher is about to doze; it looks at the tail next.
    pub(crate) fn begin(&self) {
        self.on.store(true, Ordering::Relaxed);
    }

    /// Whether the flusher dozes; asked after a claim.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Ends it; whether the flusher dozed.
    pub(crate) fn end(&self) -> bool {
        self.on.swap(false, Ordering::Relaxed)
    }
}
