//! Where threads wait until all of them are there: a thousand of them take a while to be made.

use foreshore_env::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// Closed at first.
#[derive(Default)]
pub(super) struct Gate {
    /// Written by who opens it, read by who wants to pass. Relaxed: it carries no data.
    open: AtomicBool,
}

impl Gate {
    /// Lets these threads pass; who comes later passes, too.
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
