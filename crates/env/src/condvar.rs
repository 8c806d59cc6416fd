//! The condition variable of the real world.
#![allow(clippy::disallowed_types)]

use std::sync;

use crate::{
    sync::{
        MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

/// A condition variable for [`Mutex`](crate::sync::Mutex). Who notifies calls the system only if somebody waits, which
/// the one of `std` does always.
#[derive(Debug, Default)]
pub struct Condvar {
    condvar: sync::Condvar,
    /// How many wait. It grows while its waiter has the mutex. Whoever notifies has locked that once since he changed
    /// what is waited for: before the waiter did, who then saw the change, or after him, and then he sees the waiter
    /// here.
    waiting: AtomicU32,
}

impl Condvar {
    /// A condition variable that nobody waits for.
    pub const fn new() -> Condvar {
        Condvar { condvar: sync::Condvar::new(), waiting: AtomicU32::new(0) }
    }

    /// Unlocks, sleeps until notified (or woken for no reason), locks again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = self.condvar.wait(guard).unwrap_or_else(sync::PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// As [`Condvar::wait`], but returns at `deadline` at the latest.
    pub fn wait_until<'a, T>(&self, guard: MutexGuard<'a, T>, deadline: Instant) -> MutexGuard<'a, T> {
        let timeout = deadline.saturating_duration_since(Instant::now());
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let (guard, _) =
            self.condvar.wait_timeout(guard, timeout).unwrap_or_else(sync::PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// Wakes one waiter. What it waits for has changed under the mutex, or before the caller locked that once.
    pub fn notify_one(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.condvar.notify_one();
        }
    }

    /// Wakes all waiters. What they wait for has changed under the mutex, or before the caller locked that once.
    pub fn notify_all(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.condvar.notify_all();
        }
    }
}
