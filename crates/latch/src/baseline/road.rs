//! The road's latch under the gallery's contract, and what it is without its optimistic mode.

use super::Latch;
use crate::{HybridLatch, Patience};

impl Latch for HybridLatch {
    const SHARES: bool = true;
    const OPTIMISTIC: bool = true;

    #[inline]
    fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        let _guard = HybridLatch::exclusive(self);
        change()
    }

    #[inline]
    fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        let _guard = HybridLatch::try_exclusive(self)?;
        Some(change())
    }

    #[inline]
    fn shared<R>(&self, read: impl FnOnce() -> R) -> R {
        let _guard = HybridLatch::shared(self);
        read()
    }

    #[inline]
    fn try_shared<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        let _guard = HybridLatch::try_shared(self)?;
        Some(read())
    }

    #[inline]
    fn exclusive_within<R>(&self, patience: &Patience<'_>, change: impl FnOnce() -> R) -> Option<R> {
        let _guard = self.exclusive_until(patience.deadline, &mut || !patience.is_cancelled()).ok()?;
        Some(change())
    }

    #[inline]
    fn shared_within<R>(&self, patience: &Patience<'_>, read: impl FnOnce() -> R) -> Option<R> {
        let _guard = self.shared_until(patience.deadline, &mut || !patience.is_cancelled()).ok()?;
        Some(read())
    }

    #[inline]
    fn try_optimistic<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        let version = self.optimistic()?;
        let seen = read();
        self.validate(version).then_some(seen)
    }
}

/// A [`HybridLatch`] that is never read optimistically: what the pessimistic modes alone cost.
#[derive(Debug, Default)]
pub struct HybridShared(HybridLatch);

impl Latch for HybridShared {
    const SHARES: bool = true;
    const OPTIMISTIC: bool = false;

    #[inline]
    fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        Latch::exclusive(&self.0, change)
    }

    #[inline]
    fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        Latch::try_exclusive(&self.0, change)
    }

    #[inline]
    fn shared<R>(&self, read: impl FnOnce() -> R) -> R {
        Latch::shared(&self.0, read)
    }

    #[inline]
    fn try_shared<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        Latch::try_shared(&self.0, read)
    }

    #[inline]
    fn exclusive_within<R>(&self, patience: &Patience<'_>, change: impl FnOnce() -> R) -> Option<R> {
        Latch::exclusive_within(&self.0, patience, change)
    }

    #[inline]
    fn shared_within<R>(&self, patience: &Patience<'_>, read: impl FnOnce() -> R) -> Option<R> {
        Latch::shared_within(&self.0, patience, read)
    }
}
