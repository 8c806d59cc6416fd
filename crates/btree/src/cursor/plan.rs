//! Which part of a leaf a cursor reads, by the bounds of its range.

use std::{cmp::Ordering, ops::Bound, ops::Range};

use foreshore_base::SlotIndex;
use foreshore_pages::SlottedView;

use super::{Direction, LockKind};
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
    /// Keys at most, ghosts among them.
    pub(super) limit: usize,
    /// The same, where nothing has to be locked.
    pub(super) unlocked_limit: usize,
    /// Whether to note which locks keep it true.
    pub(super) locks: bool,
    /// In the leaf before there was nothing to be read.
    pub(super) barren: bool,
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

/// Whether an ascending range ends before any key at or above the border.
pub(super) fn ends_before(high: Bound<&[u8]>, border: &[u8]) -> bool {
    match high {
        Bound::Unbounded => false,
        Bound::Included(high) => high < border,
        Bound::Excluded(high) => high <= border,
    }
}

/// Whether a descending range has no key below the border.
pub(super) fn begins_at(low: Bound<&[u8]>, border: &[u8]) -> bool {
    match low {
        Bound::Unbounded => false,
        Bound::Included(low) | Bound::Excluded(low) => low >= border,
    }
}
