//! The latch order, checked in debug builds.
//!
//! A thread that holds a latch may wait only for one of higher rank; then no cycle of waiting threads can close. The
//! crates that own latches give them ranks and [`enter`] a rank before they wait. Attempts that cannot wait (`try_…`,
//! `upgrade`) need not. In release builds all of this is nothing.

use std::marker::PhantomData;

/// A place in the latch order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(pub u16);

/// Stands for a latch held, or waited for, in the check of the order; dropping it says that the latch was released.
/// Ranks may be left in any order.
#[must_use = "dropping it leaves the rank"]
#[derive(Debug)]
pub struct Ranked {
    #[cfg(debug_assertions)]
    rank: Rank,
    /// Stays with its thread, as the latch does.
    thread: PhantomData<*const ()>,
}

/// Before waiting for a latch of this rank.
///
/// # Panics
/// In debug builds, if the thread has entered this or a higher rank already: a mistake in the program.
#[inline]
#[track_caller]
#[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "the rank is kept in debug builds only"))]
pub fn enter(rank: Rank) -> Ranked {
    #[cfg(debug_assertions)]
    checked::push(rank);
    Ranked {
        #[cfg(debug_assertions)]
        rank,
        thread: PhantomData,
    }
}

/// Asserts, in debug builds, that this thread has entered no rank: before it waits for a lock or for the disk.
///
/// # Panics
/// In debug builds, if it has.
#[inline]
#[track_caller]
pub fn assert_none() {
    #[cfg(debug_assertions)]
    checked::assert_none();
}

#[cfg(debug_assertions)]
impl Drop for Ranked {
    fn drop(&mut self) {
        checked::remove(self.rank);
    }
}

#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;

    use foreshore_env::thread_local;

    use super::Rank;

    thread_local! {
        /// The ranks that this thread has entered, ascending: `push` sees to it.
        static HELD: RefCell<Vec<Rank>> = RefCell::default();
    }

    #[track_caller]
    pub(super) fn push(rank: Rank) {
        // A thread that is being taken down has lost its list and is not checked.
        let highest = HELD.try_with(|held| held.borrow().last().copied()).unwrap_or_default();
        if let Some(Rank(held)) = highest {
            assert!(held < rank.0, "latch of rank {} wanted while one of rank {held} is held", rank.0);
        }
        let _ = HELD.try_with(|held| held.borrow_mut().push(rank));
    }

    pub(super) fn remove(rank: Rank) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(place) = held.iter().rposition(|&entered| entered == rank) {
                held.remove(place);
            }
        });
    }

    #[track_caller]
    pub(super) fn assert_none() {
        let held = HELD.try_with(|held| held.borrow().last().copied()).unwrap_or_default();
        assert!(held.is_none(), "this thread holds a latch of rank {held:?}");
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use std::panic::catch_unwind;

    use super::{Rank, assert_none, enter};

    #[test]
    fn ascending_ranks_pass_and_leave_in_any_order() {
        let low = enter(Rank(1));
        let high = enter(Rank(5));
        drop(low);
        drop(high);
        assert_none();
        drop(enter(Rank(1)));
    }

    #[test]
    #[cfg(debug_assertions)]
    fn descending_and_equal_ranks_are_caught() {
        let held = enter(Rank(5));
        assert!(catch_unwind(|| enter(Rank(4))).is_err());
        assert!(catch_unwind(|| enter(Rank(5))).is_err());
        assert!(catch_unwind(assert_none).is_err());
        drop(held);
        drop(enter(Rank(4)));
    }
}
