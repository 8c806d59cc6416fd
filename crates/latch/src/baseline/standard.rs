//! The standard library's mutex and reader-writer lock, in the place of the paper's `std::mutex` and
//! `std::shared_mutex` (Böttcher et al. 2020, Table 2). On Linux both are futexes, as the paper's adaptive locks are: 8
//! and 12 bytes instead of 40 and 56.

use foreshore_env::sync::{Mutex, RwLock};

use super::Latch;

/// `std::sync::Mutex`. Exclusive only; unfair.
#[derive(Debug)]
pub struct StdMutex(Mutex<()>);

/// `std::sync::RwLock`. Writers are preferred.
#[derive(Debug)]
pub struct StdRwLock(RwLock<()>);

#[cfg(all(target_os = "linux", not(foreshore_loom)))]
const _: () = assert!(size_of::<StdMutex>() == 8 && size_of::<StdRwLock>() == 12);

impl Default for StdMutex {
    fn default() -> StdMutex {
        StdMutex(Mutex::new(()))
    }
}

impl Default for StdRwLock {
    fn default() -> StdRwLock {
        StdRwLock(RwLock::new(()))
    }
}

impl Latch for StdMutex {
    const SHARES: bool = false;
    const OPTIMISTIC: bool = false;

    #[inline]
    fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        let _guard = self.0.lock();
        change()
    }

    #[inline]
    fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        let _guard = self.0.try_lock()?;
        Some(change())
    }
}

impl Latch for StdRwLock {
    const SHARES: bool = true;
    const OPTIMISTIC: bool = false;

    #[inline]
    fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        let _guard = self.0.write();
        change()
    }

    #[inline]
    fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        let _guard = self.0.try_write()?;
        Some(change())
    }

    #[inline]
    fn shared<R>(&self, read: impl FnOnce() -> R) -> R {
        let _guard = self.0.read();
        read()
    }

    #[inline]
    fn try_shared<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        let _guard = self.0.try_read()?;
        Some(read())
    }
}
