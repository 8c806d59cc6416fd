//! A flag for threads that work until the test is over.

use foreshore_env::sync::atomic::{AtomicBool, Ordering};

/// Tells threads to go on; see [`Running::guard`].
#[derive(Debug)]
pub struct Running(AtomicBool);

/// While it lives, the threads go on. A test that panics drops it, so that `thread::scope` does not wait for them for
/// ever.
#[derive(Debug)]
#[must_use = "dropped at once it ends the threads before they began"]
pub struct RunningGuard<'r>(&'r Running);

impl Default for Running {
    fn default() -> Running {
        Running(AtomicBool::new(true))
    }
}

impl Running {
    /// Whether to go on. True before there is a guard, so that threads may be spawned first.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// To be taken first of all inside of `thread::scope`, and dropped when the threads shall end.
    pub fn guard(&self) -> RunningGuard<'_> {
        RunningGuard(self)
    }
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}
