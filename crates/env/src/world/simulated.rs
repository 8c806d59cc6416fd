//! The simulated world: every name of the real one, on the machine of [`crate::sim`].
#![allow(clippy::disallowed_types)]

/// Shared-memory synchronization.
pub mod sync {
    pub use std::sync::{Arc, Weak};

    pub use crate::sim::{
        lock::{Condvar, Mutex, MutexGuard, OnceLock},
        rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard},
    };

    /// Atomic types, fences and orderings.
    pub mod atomic {
        pub use crate::sim::atomic::*;
    }
}

/// Interior mutability that the checkers can watch.
pub mod cell {
    /// A cell whose accesses are announced. What guards the content is the owner's to say.
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
        #[track_caller]
        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            crate::sim::charge(self.0.get().addr(), size_of::<T>(), false);
            f(self.0.get())
        }

        /// Gives a pointer for writing. The pointer must not be used after `f` returns.
        #[inline]
        #[track_caller]
        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            crate::sim::charge(self.0.get().addr(), size_of::<T>(), true);
            f(self.0.get())
        }
    }
}

pub use crate::sim::thread;

/// Time.
pub mod time {
    pub use crate::{
        earlier::earlier,
        sim::time::{Duration, Instant, computed, computed_here, unix_seconds},
    };
}

/// Hints to the processor and to the simulator.
pub mod hint {
    pub use crate::sim::{Mark, foreground, latched, spin_loop, spin_until, work};

    /// How plain memory is touched.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Access {
        /// Read.
        Read,
        /// Written.
        Write,
    }

    /// Plain memory was touched: the lines of `range` are accessed.
    #[inline]
    #[track_caller]
    pub fn charge<T: ?Sized>(range: &T, access: Access) {
        let place = std::ptr::from_ref(range).cast::<u8>().addr();
        crate::sim::charge(place, size_of_val(range), access == Access::Write);
    }

    /// The line of `place` is under way from now on, for this core.
    #[inline]
    pub fn prefetch<T>(place: &T, _access: Access) {
        crate::sim::ask_for(std::ptr::from_ref(place).addr());
    }

    /// Nothing: the simulated machine has no TLB.
    pub fn huge_pages<T>(_elements: &[T]) {}

    /// Nothing: memory is there at once.
    pub fn populate<T>(_elements: &[T]) {}

    /// What lies at these places, for the list of hot lines: `elements`, each called `name`.
    pub fn name<T>(elements: &[T], name: &'static str) {
        crate::sim::name(elements.as_ptr().addr(), size_of_val(elements), size_of::<T>(), name);
    }
}

#[doc(inline)]
pub use crate::simulated_thread_local as thread_local;

/// A number that nobody foresees but the simulation's seed.
pub(crate) fn entropy() -> u64 {
    crate::sim::entropy()
}
