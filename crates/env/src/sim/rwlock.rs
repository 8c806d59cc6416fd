//! The reader-writer lock, as `std` makes it on Linux: one word, and one on which writers sleep.

use std::{
    cell::UnsafeCell,
    fmt,
    marker::PhantomData,
    ops::{Deref, DerefMut},
};

use super::{
    atomic::{AtomicBool, AtomicU32, Ordering},
    calls::{futex_wait, futex_wake, pause},
};

// The state: how many read, or WRITING; and whether somebody sleeps.
/// One reader.
const READER: u32 = 1;
/// The bits of the readers; all of them set: somebody writes.
const WRITING: u32 = (1 << 30) - 1;
/// Readers sleep on the state.
const READERS_WAIT: u32 = 1 << 30;
/// Writers sleep on `notified`.
const WRITERS_WAIT: u32 = 1 << 31;
/// How often a thread looks again before it sleeps, as `std` does.
const SPINS: u32 = 100;

/// A reader-writer lock without poisoning, for ways that are seldom gone, and to measure against; elsewhere the engine
/// waits for latches.
#[derive(Default)]
pub struct RwLock<T> {
    /// See the constants above.
    state: AtomicU32,
    /// Grows when a writer is woken.
    notified: AtomicU32,
    /// Where `std` notes panics: it shares the line.
    _poison: AtomicBool,
    /// Guarded by `state`.
    value: UnsafeCell<T>,
}

// SAFETY: the value goes to one writer, or is shared by readers, through their guards.
unsafe impl<T: Send> Send for RwLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for RwLock<T> {}

/// Access to what an [`RwLock`] guards, beside other readers; unlocks on drop.
#[must_use = "dropping it unlocks"]
pub struct RwLockReadGuard<'a, T> {
    lock: &'a RwLock<T>,
    _not_send: PhantomData<*const ()>,
}

/// Access alone to what an [`RwLock`] guards; unlocks on drop.
#[must_use = "dropping it unlocks"]
pub struct RwLockWriteGuard<'a, T> {
    lock: &'a RwLock<T>,
    _not_send: PhantomData<*const ()>,
}

fn may_read(state: u32) -> bool {
    state & (READERS_WAIT | WRITERS_WAIT) == 0 && state < WRITING - 1
}

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock {
            state: AtomicU32::new(0),
            notified: AtomicU32::new(0),
            _poison: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Waits until nobody writes.
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let mut state = self.state.load(Ordering::Relaxed);
        if !may_read(state) {
            state = self.spin(|state| state != WRITING);
        }
        loop {
            if may_read(state) {
                if self.change(state, state + READER) {
                    return RwLockReadGuard { lock: self, _not_send: PhantomData };
                }
            } else if state & READERS_WAIT != 0 || self.change(state, state | READERS_WAIT) {
                futex_wait(&self.state, state | READERS_WAIT, None);
                state = self.spin(|state| state != WRITING);
                continue;
            }
            state = self.state.load(Ordering::Relaxed);
        }
    }

    /// Waits until nobody reads or writes.
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let guard = RwLockWriteGuard { lock: self, _not_send: PhantomData };
        if self.change(0, WRITING) {
            return guard;
        }
        let free = |state: u32| state & WRITING == 0;
        // Others sleep if this thread did.
        let mut others = 0;
        let mut state = self.spin(|state| free(state) || state & WRITERS_WAIT != 0);
        loop {
            if free(state) {
                if self.change(state, state | WRITING | others) {
                    return guard;
                }
                state = self.state.load(Ordering::Relaxed);
                continue;
            }
            if state & WRITERS_WAIT == 0 && !self.change(state, state | WRITERS_WAIT) {
                state = self.state.load(Ordering::Relaxed);
                continue;
            }
            others = WRITERS_WAIT;
            let seen = self.notified.load(Ordering::SeqCst);
            state = self.state.load(Ordering::Relaxed);
            if free(state) || state & WRITERS_WAIT == 0 {
                continue;
            }
            futex_wait(&self.notified, seen, None);
            state = self.spin(|state| free(state) || state & WRITERS_WAIT != 0);
        }
    }

    /// Access for reading, unless somebody is in the way.
    #[track_caller]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let read = |state: u32| may_read(state).then(|| state + READER);
        let entered = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, read);
        entered.is_ok().then(|| RwLockReadGuard { lock: self, _not_send: PhantomData })
    }

    /// Access for writing, unless somebody is in the way.
    #[track_caller]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let write = |state: u32| (state & WRITING == 0).then(|| state + WRITING);
        let entered = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, write);
        entered.is_ok().then(|| RwLockWriteGuard { lock: self, _not_send: PhantomData })
    }

    #[track_caller]
    fn spin(&self, until: impl Fn(u32) -> bool) -> u32 {
        for _ in 0..SPINS {
            let state = self.state.load(Ordering::Relaxed);
            if until(state) {
                return state;
            }
            pause();
        }
        self.state.load(Ordering::Relaxed)
    }

    /// Nobody has the lock, and somebody sleeps: a writer if there is one, otherwise all readers.
    #[cold]
    fn wake(&self, state: u32) {
        let mut state = state;
        if state == WRITERS_WAIT {
            if self.change(state, 0) {
                self.wake_writer();
                return;
            }
            state = self.state.load(Ordering::Relaxed);
        }
        if state == READERS_WAIT | WRITERS_WAIT {
            // The readers stay noted, and are woken by that writer.
            if !self.change(state, READERS_WAIT) || self.wake_writer() {
                return;
            }
            // No writer slept yet; the one that was about to looks again.
            state = READERS_WAIT;
        }
        if state == READERS_WAIT && self.change(state, 0) {
            futex_wake(&self.state, usize::MAX);
        }
    }

    /// Whether one slept.
    fn wake_writer(&self) -> bool {
        self.notified.fetch_add(1, Ordering::SeqCst);
        futex_wake(&self.notified, 1) > 0
    }
}

impl<T> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        let state = self.lock.state.fetch_sub(READER, Ordering::SeqCst) - READER;
        // Readers sleep behind a writer only.
        if state & WRITING == 0 && state & WRITERS_WAIT != 0 {
            self.lock.wake(state);
        }
    }
}

impl<T> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        let state = self.lock.state.fetch_sub(WRITING, Ordering::SeqCst) - WRITING;
        if state != 0 {
            self.lock.wake(state);
        }
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard keeps writers out.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard keeps all others out.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard keeps all others out, and is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLockReadGuard").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLockWriteGuard").finish_non_exhaustive()
    }
}
