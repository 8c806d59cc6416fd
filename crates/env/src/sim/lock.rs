//! Mutex, condition variable and once-cell, as `std` makes them on Linux from a futex: their words are accessed, and
//! their threads sleep, where those of the real world do.
#![allow(clippy::disallowed_types)]

use std::{
    cell::UnsafeCell,
    fmt,
    mem::MaybeUninit,
    ops::{Deref, DerefMut},
};

use super::{
    atomic::{AtomicBool, AtomicU32, Ordering},
    calls::{futex_wait, futex_wake, locked, pause},
    time::Instant,
};

/// State of a mutex: nobody has it.
const FREE: u32 = 0;
/// Somebody has it, nobody sleeps.
const HELD: u32 = 1;
/// Somebody has it, others may sleep: a thread that lets go wakes one.
const CONTENDED: u32 = 2;
/// How often a thread looks again before it sleeps, as `std` does.
const SPINS: u32 = 100;

/// A mutex without poisoning.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    /// [`FREE`], [`HELD`] or [`CONTENDED`].
    state: AtomicU32,
    /// Where `std` notes panics: it shares the line.
    _poison: AtomicBool,
    /// Guarded by `state`.
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through the guard alone, and one guard exists at a time: it may go from thread to
// thread.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

/// Access to what a [`Mutex`] guards; unlocks on drop.
#[must_use = "dropping it unlocks"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// As `std`'s: not to be sent to another thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

// SAFETY: sharing the guard shares the value, no more.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { state: AtomicU32::new(FREE), _poison: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, without locking.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    fn guard(&self) -> MutexGuard<'_, T> {
        locked();
        MutexGuard { mutex: self, _not_send: std::marker::PhantomData }
    }

    /// Waits for the mutex.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_contended();
        }
        self.guard()
    }

    /// The mutex if it is free.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let taken = self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| self.guard())
    }

    #[cold]
    #[track_caller]
    fn lock_contended(&self) {
        let mut state = self.spin();
        if state == FREE {
            match self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => state = other,
            }
        }
        loop {
            if state != CONTENDED && self.state.swap(CONTENDED, Ordering::Acquire) == FREE {
                return;
            }
            futex_wait(&self.state, CONTENDED, None);
            state = self.spin();
        }
    }

    #[track_caller]
    fn spin(&self) -> u32 {
        for _ in 0..SPINS {
            let state = self.state.load(Ordering::Relaxed);
            if state != HELD {
                return state;
            }
            pause();
        }
        self.state.load(Ordering::Relaxed)
    }

    fn unlock(&self) {
        if self.state.swap(FREE, Ordering::Release) == CONTENDED {
            futex_wake(&self.state, 1);
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard holds the mutex.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the mutex, and is borrowed mutably.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.mutex.unlock();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// A condition variable for [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar {
    /// Grows with each notification; sleepers sleep while it is what they saw.
    notified: AtomicU32,
}

impl Condvar {
    /// A condition variable that nobody waits for.
    pub const fn new() -> Condvar {
        Condvar { notified: AtomicU32::new(0) }
    }

    /// Unlocks, sleeps until notified (or woken for no reason), locks again.
    #[track_caller]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_for(guard, None)
    }

    /// As [`Condvar::wait`], but returns at `deadline` at the latest.
    #[track_caller]
    pub fn wait_until<'a, T>(&self, guard: MutexGuard<'a, T>, deadline: Instant) -> MutexGuard<'a, T> {
        self.wait_for(guard, Some(deadline))
    }

    #[track_caller]
    fn wait_for<'a, T>(&self, guard: MutexGuard<'a, T>, deadline: Option<Instant>) -> MutexGuard<'a, T> {
        let mutex = guard.mutex;
        let seen = self.notified.load(Ordering::Relaxed);
        drop(guard);
        futex_wait(&self.notified, seen, deadline);
        mutex.lock()
    }

    /// Wakes one waiter.
    #[track_caller]
    pub fn notify_one(&self) {
        self.notified.fetch_add(1, Ordering::Relaxed);
        futex_wake(&self.notified, 1);
    }

    /// Wakes all waiters.
    #[track_caller]
    pub fn notify_all(&self) {
        self.notified.fetch_add(1, Ordering::Relaxed);
        futex_wake(&self.notified, usize::MAX);
    }
}

/// State of a once-cell: empty.
const EMPTY: u32 = 0;
/// Somebody makes the value.
const BUSY: u32 = 1;
/// It has its value, for good.
const FULL: u32 = 2;

/// A cell that is written once.
pub struct OnceLock<T> {
    /// [`EMPTY`], [`BUSY`] or [`FULL`].
    state: AtomicU32,
    /// There when `state` is [`FULL`]; written by whoever made it [`BUSY`].
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value may be made by one thread and dropped by another.
unsafe impl<T: Send> Send for OnceLock<T> {}
// SAFETY: the value is shared once it is there, and may be made by another thread.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}

/// Makes the cell empty again when making its value panics.
struct Making<'a> {
    state: &'a AtomicU32,
    becomes: u32,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.state.store(self.becomes, Ordering::Release);
        futex_wake(self.state, usize::MAX);
    }
}

impl<T> OnceLock<T> {
    /// An empty cell.
    pub const fn new() -> OnceLock<T> {
        OnceLock { state: AtomicU32::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// The value, if it is there.
    #[track_caller]
    pub fn get(&self) -> Option<&T> {
        if self.state.load(Ordering::Acquire) != FULL {
            return None;
        }
        // SAFETY: nobody writes a full cell.
        let value = unsafe { &*self.value.get() };
        // SAFETY: a full cell has its value.
        Some(unsafe { value.assume_init_ref() })
    }

    /// The value; made by `make` if it is not there. One thread makes it, the others wait.
    #[track_caller]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        loop {
            if let Some(value) = self.get() {
                return value;
            }
            match self.state.compare_exchange(EMPTY, BUSY, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => break,
                Err(BUSY) => futex_wait(&self.state, BUSY, None),
                Err(_) => {}
            }
        }
        let mut making = Making { state: &self.state, becomes: EMPTY };
        let value = make();
        // SAFETY: the state is busy, and only this thread made it so.
        unsafe { (*self.value.get()).write(value) };
        making.becomes = FULL;
        drop(making);
        self.get().expect("the value was just made")
    }

    /// Puts the value in.
    ///
    /// # Errors
    /// The value is given back when there is one already.
    #[track_caller]
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("made once"));
        value.map_or(Ok(()), Err)
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceLock").finish_non_exhaustive()
    }
}

impl<T> Drop for OnceLock<T> {
    fn drop(&mut self) {
        if *self.state.get_mut() == FULL {
            // SAFETY: a full cell has its value, and nobody looks any more.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}
