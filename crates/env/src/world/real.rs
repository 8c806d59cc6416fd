//! The real world: `std`, at no cost.
#![allow(clippy::disallowed_types)]

/// Shared-memory synchronization.
pub mod sync {
    use std::sync;
    pub use std::sync::{Arc, OnceLock, Weak};

    pub use crate::condvar::Condvar;

    /// Atomic types, fences and orderings.
    pub mod atomic {
        pub use std::sync::atomic::{
            AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
        };
    }

    /// A mutex without poisoning: what a panic may leave behind is for its owner to say, by other means.
    #[derive(Debug, Default)]
    pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

    /// Access to what a [`Mutex`] guards; unlocks on drop.
    pub type MutexGuard<'a, T> = sync::MutexGuard<'a, T>;

    impl<T> Mutex<T> {
        /// An unlocked mutex.
        pub const fn new(value: T) -> Mutex<T> {
            Mutex(sync::Mutex::new(value))
        }

        /// The value, without locking.
        pub fn into_inner(self) -> T {
            self.0.into_inner().unwrap_or_else(sync::PoisonError::into_inner)
        }
    }

    impl<T: ?Sized> Mutex<T> {
        /// Waits for the mutex.
        #[inline]
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(sync::PoisonError::into_inner)
        }

        /// The mutex if it is free.
        #[inline]
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Some(guard),
                Err(sync::TryLockError::Poisoned(poison)) => Some(poison.into_inner()),
                Err(sync::TryLockError::WouldBlock) => None,
            }
        }
    }

    /// A reader-writer lock without poisoning, for ways that are seldom gone, and to measure against; elsewhere the
    /// engine waits for latches.
    #[derive(Debug, Default)]
    pub struct RwLock<T>(sync::RwLock<T>);

    /// Access to what an [`RwLock`] guards, beside other readers; unlocks on drop.
    pub type RwLockReadGuard<'a, T> = sync::RwLockReadGuard<'a, T>;

    /// Access alone to what an [`RwLock`] guards; unlocks on drop.
    pub type RwLockWriteGuard<'a, T> = sync::RwLockWriteGuard<'a, T>;

    impl<T> RwLock<T> {
        /// An unlocked lock.
        pub const fn new(value: T) -> RwLock<T> {
            RwLock(sync::RwLock::new(value))
        }

        /// Waits until nobody writes.
        #[inline]
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(sync::PoisonError::into_inner)
        }

        /// Waits until nobody reads or writes.
        #[inline]
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(sync::PoisonError::into_inner)
        }

        /// Access for reading, unless somebody is in the way.
        #[inline]
        pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
            match self.0.try_read() {
                Ok(guard) => Some(guard),
                Err(sync::TryLockError::Poisoned(poison)) => Some(poison.into_inner()),
                Err(sync::TryLockError::WouldBlock) => None,
            }
        }

        /// Access for writing, unless somebody is in the way.
        #[inline]
        pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
            match self.0.try_write() {
                Ok(guard) => Some(guard),
                Err(sync::TryLockError::Poisoned(poison)) => Some(poison.into_inner()),
                Err(sync::TryLockError::WouldBlock) => None,
            }
        }
    }
}

/// Interior mutability that the checkers can watch.
pub mod cell {
    /// A cell whose accesses are announced, so that loom can check them. What guards the content is the owner's to say.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// A cell with this content.
        pub const fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        /// Gives a pointer for reading. The pointer must not be used after `f` returns.
        #[inline]
        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// Gives a pointer for writing. The pointer must not be used after `f` returns.
        #[inline]
        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

/// Threads.
pub mod thread {
    pub use std::thread::{
        Builder, JoinHandle, Scope, ScopedJoinHandle, Thread, current, panicking, park, scope, sleep, spawn,
        yield_now,
    };

    use super::sync::OnceLock;

    /// How many threads can run at the same time; 1 if that is unknown. The system answers for the thread that asks, so
    /// it is asked once, and before [`pin`] keeps a thread on one processor.
    pub fn available_parallelism() -> usize {
        static FOUND: OnceLock<usize> = OnceLock::new();
        *FOUND.get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
    }

    /// On how many processors the calling thread may run; 0 if that is unknown.
    pub fn processors() -> usize {
        #[cfg(target_os = "linux")]
        return rustix::thread::sched_getaffinity(None).map_or(0, |allowed| allowed.count() as usize);
        #[cfg(not(target_os = "linux"))]
        0
    }

    /// The processor that the calling thread runs on, and may have left by the time that the caller looks at it; `None`
    /// where nobody knows.
    #[inline]
    pub fn processor() -> Option<usize> {
        #[cfg(target_os = "linux")]
        return Some(rustix::thread::sched_getcpu());
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// Keeps the calling thread on one processor: the one of this number, modulo how many there are, among those that
    /// it may run on. Whether it did: elsewhere than on Linux, or where the system does not allow it, nothing changes.
    pub fn pin(number: usize) -> bool {
        #[cfg(target_os = "linux")]
        {
            use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

            let _ = available_parallelism();
            let Ok(allowed) = sched_getaffinity(None) else { return false };
            let mut processors = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
            let place = number % (allowed.count() as usize).max(1);
            let Some(processor) = processors.nth(place) else { return false };
            let mut one = CpuSet::new();
            one.set(processor);
            sched_setaffinity(None, &one).is_ok()
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = number;
            false
        }
    }
}

/// Time.
pub mod time {
    pub use std::time::{Duration, Instant};

    pub use crate::earlier::earlier;

    /// Seconds since 1970, for labels that people read; no logic may depend on it.
    pub fn unix_seconds() -> u64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    /// How long the threads of this program have computed by now, all together, the system's work for them included;
    /// for measurements. `None` where nobody counts.
    pub fn computed() -> Option<Duration> {
        clock(rustix::time::ClockId::ProcessCPUTime)
    }

    /// How long this thread has computed by now, the system's work for it included. `None` where nobody counts.
    pub fn computed_here() -> Option<Duration> {
        clock(rustix::time::ClockId::ThreadCPUTime)
    }

    fn clock(which: rustix::time::ClockId) -> Option<Duration> {
        let time = rustix::time::clock_gettime(which);
        Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
    }
}

/// Hints to the processor and to the simulator.
pub mod hint {
    pub use std::hint::spin_loop;

    /// Looks until `done`, at most so many times, with a pause after each look in vain; whether it was done. Waits that
    /// are written so cost the simulator nothing while nothing changes.
    #[inline]
    pub fn spin_until(rounds: u64, mut done: impl FnMut() -> bool) -> bool {
        for _ in 0..rounds {
            if done() {
                return true;
            }
            spin_loop();
        }
        false
    }

    /// How plain memory is touched.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Access {
        /// Read.
        Read,
        /// Written.
        Write,
    }

    /// Tells the simulator that plain memory was touched. Nothing in the real world.
    #[inline(always)]
    pub fn charge<T: ?Sized>(_range: &T, _access: Access) {}

    /// Tells the simulator what lies at these places, for its list of hot lines: `elements`, each called `name`.
    /// Nothing in the real world.
    #[inline(always)]
    pub fn name<T>(_elements: &[T], _name: &'static str) {}

    /// Asks the processor to fetch the cache line of `place`, to be read or written, so that several misses overlap.
    /// x86-64 only; on the simulated machine the line is under way from then on.
    #[inline(always)]
    pub fn prefetch<T>(place: &T, access: Access) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::{
                asm,
                x86_64::{_MM_HINT_T0, _mm_prefetch},
            };
            let place = std::ptr::from_ref(place).cast();
            match access {
                // SAFETY: x86-64 has SSE, and a prefetch changes nothing that a program could see.
                Access::Read => unsafe { _mm_prefetch::<_MM_HINT_T0>(place) },
                // `_MM_HINT_ET0` becomes a prefetch to read, unless the build is for processors that are sure to have
                // this instruction; those of 64 bits that lack it do nothing.
                // SAFETY: as above.
                Access::Write => unsafe {
                    asm!("prefetchw [{}]", in(reg) place, options(readonly, nostack, preserves_flags));
                },
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (place, access);
    }

    /// Has the system give memory to `elements` now, which they would get when they are touched, one interruption after
    /// the other. Their content stays. Linux only; a refusal is of no consequence.
    pub fn populate<T>(elements: &[T]) {
        #[cfg(target_os = "linux")]
        advise(elements, rustix::mm::Advice::LinuxPopulateWrite);
        #[cfg(not(target_os = "linux"))]
        let _ = elements;
    }

    /// Asks the system to back `elements` with huge pages as they are touched: random reads of a large piece of memory
    /// then miss the TLB less. Linux only, and only if transparent huge pages are on, be it for those who ask.
    pub fn huge_pages<T>(elements: &[T]) {
        #[cfg(target_os = "linux")]
        advise(elements, rustix::mm::Advice::LinuxHugepage);
        #[cfg(not(target_os = "linux"))]
        let _ = elements;
    }

    /// Gives the system a piece of advice that does not change what memory holds.
    #[cfg(target_os = "linux")]
    fn advise<T>(elements: &[T], advice: rustix::mm::Advice) {
        let start = elements.as_ptr().cast::<u8>();
        // Advice is for whole pages of memory.
        let skipped = start.align_offset(rustix::param::page_size());
        if let Some(bytes) = size_of_val(elements).checked_sub(skipped) {
            let start = start.wrapping_add(skipped).cast_mut().cast();
            // SAFETY: the range is the slice's, and the advice does not change what memory holds. A refusal is of no
            // consequence.
            let _ = unsafe { rustix::mm::madvise(start, bytes, advice) };
        }
    }

    /// Tells the simulator of `units` of computation (about a nanosecond each). Nothing in the real world.
    #[inline(always)]
    pub fn work(_units: u64) {}

    /// Tells the simulator that a latch was acquired. Nothing in the real world.
    #[inline(always)]
    pub fn latched() {}

    /// Tells the simulator that others wait for what the calling thread does, though it has a name: what it sleeps for
    /// counts in reports. Nothing in the real world.
    #[inline(always)]
    pub fn foreground() {}

    /// A moment that the simulator remembers, to tell how long things last. Nothing in the real world.
    #[derive(Clone, Copy, Debug)]
    pub struct Mark;

    impl Mark {
        /// Now.
        #[inline(always)]
        pub fn now() -> Mark {
            Mark
        }

        /// What began then and is called `what` is over.
        #[inline(always)]
        pub fn ends(self, _what: &'static str) {}
    }
}

#[doc(inline)]
pub use std::thread_local;

/// A number that nobody foresees and nobody else draws. (The standard library counts on from what a thread has drawn
/// once, and its forks have that, too.)
pub(crate) fn entropy() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    #[cfg(target_os = "linux")]
    {
        use rustix::rand::{GetRandomFlags, getrandom};
        let mut bytes = [0; size_of::<u64>()];
        if getrandom(&mut bytes, GetRandomFlags::empty()) == Ok(bytes.len()) {
            return u64::from_ne_bytes(bytes);
        }
    }
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::thread;

    /// A latch that was first waited for by a thread that stays on one processor never spun again: it took the machine
    /// to have one.
    #[test]
    fn a_thread_that_stays_on_one_processor_knows_of_the_others() {
        // As the system says it to a thread that may run anywhere: by quota, too.
        let expected = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let seen = thread::spawn(|| {
            assert!(thread::pin(0));
            (thread::processors(), thread::available_parallelism())
        });
        assert_eq!(seen.join().expect("the thread must not panic"), (1, expected));
    }
}
