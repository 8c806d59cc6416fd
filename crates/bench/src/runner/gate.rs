//! How threads begin together, and end: a thousand of them take a while to be made.

use foreshore_env::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use crate::BenchError;

/// Where threads wait until all of them are there. Closed at first.
#[derive(Default)]
pub(super) struct Gate {
    /// Written by whoever opens it, read by whoever wants to pass. Relaxed: it carries no data.
    open: AtomicBool,
}

impl Gate {
    /// Lets these threads pass; a thread that comes later passes, too.
    pub(super) fn open<'t>(&self, threads: impl Iterator<Item = &'t thread::Thread>) {
        self.open.store(true, Ordering::Relaxed);
        threads.for_each(thread::Thread::unpark);
    }

    /// Waits until it is open.
    pub(super) fn pass(&self) {
        while !self.open.load(Ordering::Relaxed) {
            thread::park();
        }
    }
}

/// Waits for all threads; a panic in one of them goes on here, the first failure is returned.
pub(super) fn join_all<T, E: Into<BenchError>>(
    threads: Vec<thread::ScopedJoinHandle<'_, Result<T, E>>>,
) -> Result<Vec<T>, BenchError> {
    let results: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
    results
        .into_iter()
        .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(Into::into))
        .collect()
}
