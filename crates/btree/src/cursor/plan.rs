//! Which part of a leaf a cursor reads, by the bounds of its range.

use std::{cmp::Ordering, ops::Bound, ops::Range};

use foreshore_base::SlotIndex;
use foreshore_pages::SlottedView;

use super::{Direction, LockKind, MOST_AHEAD};
use crate::{node::Target, session::Isolation};

/// What decides what is read and how it is locked.
pub(super) struct Plan<'c> {
    pub(super) direction: Direction,
    pub(super) kind: LockKind,
    pub(super) isolation: Isolation,
    /// Records that others have locked are passed over.
    pub(super) skips: bool,
    pub(super) low: Bound<&'c [u8]>,
    pub(super) high: Bound<&'c [u8]>,
    /// Keys at most, ghosts among them; but see [`Plan::reach`].
    pub(super) limit: usize,
    /// The same, where nothing has to be locked.
    pub(super) unlocked_limit: usize,
    /// Whether to note which locks keep it true.
    pub(super) locks: bool,
    /// In the leaf before there was nothing to be read.
    pub(super) barren: bool,
    /// The transaction has changed something: ghosts may be its own.
    pub(super) writes: bool,
}

/// The part of a leaf that lies in a range.
pub(super) struct Span {
    pub(super) slots: Range<u16>,
    /// The first, or the last, of them is the bound itself.
    pub(super) low_is_key: bool,
    pub(super) high_is_key: bool,
    /// There are more below, or above, beyond the bound.
    pub(super) more_below: bool,
    pub(super) more_above: bool,
}

impl<'c> Plan<'c> {
    /// The leaf to read first: the one at the near bound.
    pub(super) fn target(&self) -> Target<'c> {
        match self.direction {
            Direction::Ascending => match self.low {
                Bound::Unbounded => Target::First,
                Bound::Included(key) | Bound::Excluded(key) => Target::Key(key),
            },
            Direction::Descending => match self.high {
                Bound::Unbounded => Target::Last,
                Bound::Included(key) => Target::Key(key),
                Bound::Excluded(key) => Target::Below(key),
            },
        }
    }

    /// The slots of the leaf between the bounds. Found once for the batch, so that keys need not be compared one by
    /// one.
    pub(super) fn span(&self, view: SlottedView<'_>) -> Span {
        let ((low, low_is_key), (high, high_is_key)) = (self.low_end(view), self.high_end(view));
        // In nonsense they may be the wrong way round.
        Span {
            slots: low..high.max(low),
            low_is_key,
            high_is_key,
            more_below: low > 0,
            more_above: high < view.slot_count(),
        }
    }

    /// How many of so many slots, in the order of the scan, are read: as many as the limit says, or if these are all
    /// ghosts, all up to the first record, but no farther than any batch goes. Where the transaction has changed
    /// nothing, ghosts are those of others, and may be records again once they are locked: then the limit holds.
    #[inline]
    pub(super) fn reach(&self, slots: u16, is_ghost: impl Fn(u16) -> bool) -> u16 {
        let reach = self.limit.min(usize::from(slots)) as u16;
        if reach < slots && self.writes && is_ghost(0) {
            run_of_ghosts(reach, slots, is_ghost)
        } else {
            reach
        }
    }

    /// Whether nothing of the range lies behind a border between leaves, in the order of the scan; `border` compares
    /// that with a key.
    pub(super) fn ends_at(&self, border: impl FnOnce(&[u8]) -> Ordering) -> bool {
        match (self.direction, self.low, self.high) {
            (Direction::Ascending, _, Bound::Included(high)) => border(high).is_gt(),
            (Direction::Ascending, _, Bound::Excluded(high)) => border(high).is_ge(),
            (Direction::Descending, Bound::Included(low) | Bound::Excluded(low), _) => border(low).is_le(),
            // The far end is open.
            _ => false,
        }
    }

    /// The first slot above the low bound, and whether it is the bound itself.
    pub(super) fn low_end(&self, view: SlottedView<'_>) -> (u16, bool) {
        match self.low {
            Bound::Unbounded => (0, false),
            Bound::Included(key) => place_from_begin(view, key),
            Bound::Excluded(key) => {
                let (slot, found) = place_from_begin(view, key);
                (slot + u16::from(found), false)
            }
        }
    }

    /// One more than the last slot below the high bound, and whether that is the bound itself.
    pub(super) fn high_end(&self, view: SlottedView<'_>) -> (u16, bool) {
        match self.high {
            Bound::Unbounded => (view.slot_count(), false),
            // Most leaves of a long range end before it does.
            Bound::Included(key) | Bound::Excluded(key) if view.compare_high(key).is_ge() => {
                (view.slot_count(), false)
            }
            Bound::Included(key) => {
                let (slot, found) = place(view, key);
                (slot + u16::from(found), found)
            }
            Bound::Excluded(key) => (place(view, key).0, false),
        }
    }
}

#[cold]
fn run_of_ghosts(reach: u16, slots: u16, is_ghost: impl Fn(u16) -> bool) -> u16 {
    let most = slots.min(reach.max(MOST_AHEAD as u16));
    (0..most).find(|&passed| !is_ghost(passed)).unwrap_or(most).max(reach)
}

/// The slot that holds `key`, or before which it belongs, and whether it holds it.
fn place(view: SlottedView<'_>, key: &[u8]) -> (u16, bool) {
    match view.find(key) {
        Ok(slot) => (slot.0, true),
        Err(slot) => (slot.0, false),
    }
}

/// [`place`] of a key that may well be where the leaf begins.
fn place_from_begin(view: SlottedView<'_>, key: &[u8]) -> (u16, bool) {
    if view.compare_low(key).is_ne() {
        return place(view, key);
    }
    (0, view.slot_count() > 0 && view.compare_key(SlotIndex(0), key).is_eq())
}

/// How `key`, on its way towards a far bound, lies to it: before it (`Less`), at it and within the range (`Equal`), or
/// beyond.
pub(super) fn position(direction: Direction, key: &[u8], bound: Bound<&[u8]>) -> Ordering {
    let order = |far: &[u8]| match direction {
        Direction::Ascending => key.cmp(far),
        Direction::Descending => far.cmp(key),
    };
    match bound {
        Bound::Unbounded => Ordering::Less,
        Bound::Included(far) => order(far),
        Bound::Excluded(far) => order(far).then(Ordering::Greater),
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    /// A transaction that came to what it had deleted itself read one key at a time, each by a look of its own.
    #[test]
    fn a_run_of_ghosts_is_read_at_once() {
        let read = |limit: usize, ghosts: &[bool], writes: bool| {
            let plan = Plan {
                direction: Direction::Ascending,
                kind: LockKind::Shared,
                isolation: Isolation::Serializable,
                skips: false,
                low: Bound::Unbounded,
                high: Bound::Unbounded,
                limit,
                unlocked_limit: limit,
                locks: true,
                barren: false,
                writes,
            };
            plan.reach(ghosts.len() as u16, |passed| ghosts[usize::from(passed)])
        };
        let reach = |limit, ghosts: &[bool]| {
            assert_eq!(read(limit, ghosts, false), limit.min(ghosts.len()) as u16);
            read(limit, ghosts, true)
        };
        assert_eq!(reach(1, &[]), 0);
        assert_eq!(reach(1, &[false, true, true]), 1);
        assert_eq!(reach(1, &[true, true, false, false]), 2);
        assert_eq!(reach(2, &[true, false, false]), 2);
        assert_eq!(reach(2, &[true, true, true, false, true]), 3);
        assert_eq!(reach(8, &[true; 5]), 5);
        assert_eq!(reach(1, &[true; 200]), MOST_AHEAD as u16);
        assert_eq!(reach(usize::MAX, &[true; 200]), 200);
    }
}
