//! How many transactions hold the lock on a table, by mode.

use foreshore_env::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::IntentMode;

/// A count for each mode. Guarded by the latch of the table's entry, and accessed Relaxed under it.
#[derive(Debug, Default)]
pub(super) struct Holders([AtomicU32; IntentMode::ALL.len()]);

impl Holders {
    #[inline]
    pub(super) fn add(&self, mode: IntentMode) {
        let count = &self.0[mode as usize];
        count.store(count.load(Relaxed) + 1, Relaxed);
    }

    #[inline]
    pub(super) fn remove(&self, mode: IntentMode) {
        let count = &self.0[mode as usize];
        let before = count.load(Relaxed);
        debug_assert!(before > 0, "more locks released than held");
        count.store(before.wrapping_sub(1), Relaxed);
    }

    /// Whether they allow `wanted` to one of them that holds `held`, or to a newcomer.
    #[inline]
    pub(super) fn allow(&self, held: Option<IntentMode>, wanted: IntentMode) -> bool {
        let conflicts = wanted.conflicts();
        self.0.iter().enumerate().all(|(mode, count)| {
            let own = u32::from(held.is_some_and(|held| held as usize == mode));
            conflicts & (1 << mode) == 0 || count.load(Relaxed) == own
        })
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        self.0.iter().map(|count| count.load(Relaxed)).sum()
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_allowed_beside_compatible_ones_and_instead_of_ones_own() {
        for one in IntentMode::ALL {
            let holders = Holders::default();
            holders.add(one);
            for other in IntentMode::ALL {
                assert_eq!(holders.allow(None, other), one.compatible(other), "{one} {other}");
                assert!(holders.allow(Some(one), other), "nobody else is there: {one} {other}");
                holders.add(one);
                assert_eq!(holders.allow(Some(one), other), one.compatible(other), "two {one}, {other}");
                assert_eq!(holders.count(), 2);
                holders.remove(one);
            }
            holders.remove(one);
            assert_eq!(holders.count(), 0);
            assert!(holders.allow(None, IntentMode::X));
        }
    }
}
