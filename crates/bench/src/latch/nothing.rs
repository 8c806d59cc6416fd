//! What is measured beside the latches: none.

use foreshore_latch::baseline::Latch;

/// Excludes nobody.
#[derive(Default)]
pub(super) struct Nothing;

impl Latch for Nothing {
    const SHARES: bool = true;
    const OPTIMISTIC: bool = false;

    #[inline]
    fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        change()
    }

    #[inline]
    fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        Some(change())
    }
}
