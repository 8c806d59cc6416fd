//! The world of loom: every interleaving of a small model, and every value that weak memory allows a load to see.
#![allow(clippy::disallowed_types)]

/// Shared-memory synchronization.
pub mod sync {
    // Reference counts are not what the models are about: loom's would be so many more steps, and cannot hold a `str`.
    pub use std::sync::{Arc, OnceLock, Weak};

    use super::time::Instant;

    /// Atomic types, fences and orderings.
    pub mod atomic {
        pub use loom::sync::atomic::{
            AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
        };
    }

    /// A mutex without poisoning.
    #[derive(Debug)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    /// Access to what a [`Mutex`] guards; unlocks on drop.
    pub type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

    impl<T> Mutex<T> {
        /// An unlocked mutex.
        pub fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        /// Waits for the mutex.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }

        /// The mutex if it is free.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Mutex<T> {
            Mutex::new(T::default())
        }
    }

    /// A reader-writer lock without poisoning.
    #[derive(Debug)]
    pub struct RwLock<T>(loom::sync::RwLock<T>);

    /// Access to what an [`RwLock`] guards, beside other readers; unlocks on drop.
    pub type RwLockReadGuard<'a, T> = loom::sync::RwLockReadGuard<'a, T>;

    /// Access alone to what an [`RwLock`] guards; unlocks on drop.
    pub type RwLockWriteGuard<'a, T> = loom::sync::RwLockWriteGuard<'a, T>;

    impl<T> RwLock<T> {
        /// An unlocked lock.
        pub fn new(value: T) -> RwLock<T> {
            RwLock(loom::sync::RwLock::new(value))
        }

        /// Waits until nobody writes.
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner)
        }

        /// Waits until nobody reads or writes.
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner)
        }

        /// Access for reading, unless somebody is in the way.
        pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
            self.0.try_read().ok()
        }

        /// Access for writing, unless somebody is in the way.
        pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
            self.0.try_write().ok()
        }
    }

    /// A condition variable for [`Mutex`].
    #[derive(Debug, Default)]
    pub struct Condvar(loom::sync::Condvar);

    impl Condvar {
        /// A condition variable that nobody waits for.
        pub fn new() -> Condvar {
            Condvar(loom::sync::Condvar::new())
        }

        /// Unlocks, sleeps until notified, locks again.
        pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner)
        }

        /// Loom has no time: as [`Condvar::wait`], so that a periodic look-around cannot hide a lost wake-up.
        pub fn wait_until<'a, T>(&self, guard: MutexGuard<'a, T>, _deadline: Instant) -> MutexGuard<'a, T> {
            self.wait(guard)
        }

        /// Wakes one waiter.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        /// Wakes all waiters.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

/// Interior mutability that loom watches.
pub mod cell {
    pub use loom::cell::UnsafeCell;
}

/// Threads.
pub mod thread {
    pub use std::thread::panicking;

    pub use loom::thread::{Builder, JoinHandle, Thread, current, park, spawn, yield_now};

    /// Loom has no time: lets the others run.
    pub fn sleep(_duration: std::time::Duration) {
        yield_now();
    }

    /// Models have few threads; every one may run.
    pub fn available_parallelism() -> usize {
        2
    }

    /// On how many processors the calling thread may run: unknown.
    pub fn processors() -> usize {
        0
    }

    /// Models have no processors.
    pub fn processor() -> Option<usize> {
        None
    }

    /// Models have no processors.
    pub fn pin(_number: usize) -> bool {
        false
    }
}

/// Time, which stands still.
pub mod time {
    pub use std::time::Duration;

    pub use crate::earlier::earlier;

    /// A moment; there is only one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Instant;

    impl Instant {
        /// The moment.
        pub fn now() -> Instant {
            Instant
        }

        /// Zero.
        pub fn elapsed(&self) -> Duration {
            Duration::ZERO
        }

        /// Zero.
        pub fn saturating_duration_since(&self, _earlier: Instant) -> Duration {
            Duration::ZERO
        }

        /// Zero.
        pub fn duration_since(&self, _earlier: Instant) -> Duration {
            Duration::ZERO
        }

        /// Zero.
        pub fn checked_add(&self, _duration: Duration) -> Option<Instant> {
            Some(Instant)
        }
    }

    impl std::ops::Add<Duration> for Instant {
        type Output = Instant;

        fn add(self, _duration: Duration) -> Instant {
            Instant
        }
    }

    /// Zero.
    pub fn unix_seconds() -> u64 {
        0
    }
}

/// Hints.
pub mod hint {
    /// How plain memory is touched.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Access {
        /// Read.
        Read,
        /// Written.
        Write,
    }

    /// Lets the others run: a spinning thread waits for one of them.
    pub fn spin_loop() {
        loom::thread::yield_now();
    }

    /// Looks until `done`, at most so many times, and lets the others run after each look in vain; whether it was done.
    pub fn spin_until(rounds: u64, mut done: impl FnMut() -> bool) -> bool {
        for _ in 0..rounds {
            if done() {
                return true;
            }
            spin_loop();
        }
        false
    }

    /// Nothing.
    pub fn charge<T: ?Sized>(_range: &T, _access: Access) {}

    /// Nothing.
    pub fn name<T>(_elements: &[T], _name: &'static str) {}

    /// Nothing.
    pub fn prefetch<T>(_place: &T, _access: Access) {}

    /// Nothing.
    pub fn huge_pages<T>(_elements: &[T]) {}

    /// Nothing.
    pub fn populate<T>(_elements: &[T]) {}

    /// Nothing.
    pub fn work(_units: u64) {}

    /// Nothing.
    pub fn latched() {}

    /// Nothing.
    pub fn foreground() {}

    /// Nothing.
    #[derive(Clone, Copy, Debug)]
    pub struct Mark;

    impl Mark {
        /// Nothing.
        pub fn now() -> Mark {
            Mark
        }

        /// Nothing.
        pub fn ends(self, _what: &'static str) {}
    }
}

#[doc(inline)]
pub use loom::thread_local;

/// A number that nobody foresees.
pub(crate) fn entropy() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
