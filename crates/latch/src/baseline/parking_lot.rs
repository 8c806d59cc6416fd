//! The locks of the crate `parking_lot`: Rust's port of the parking lot that the paper builds on (Pizlo, *Locking in
//! WebKit*, 2016), and the nearest relative of the road's latch. Only in builds that measure it.

use super::Latch;

/// `parking_lot::Mutex`. Exclusive only; mostly unfair.
#[derive(Debug, Default)]
pub struct ParkingLotMutex(parking_lot::Mutex<()>);

/// `parking_lot::RwLock`. Neither readers nor writers starve.
#[derive(Debug, Default)]
pub struct ParkingLotRwLock(parking_lot::RwLock<()>);

const _: () = assert!(size_of::<ParkingLotMutex>() == 1 && size_of::<ParkingLotRwLock>() == 8);

impl Latch for ParkingLotMutex {
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

impl Latch for ParkingLotRwLock {
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
