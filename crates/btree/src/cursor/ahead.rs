//! Read-ahead: a cursor that crosses from leaf to leaf has the pool bring in the leaves that come next.
//!
//! A node has no sibling pointers, so the leaves are taken from the parent: it is visited once for several leaves, and only
//! when the cursor has crossed a border; a scan within a leaf costs nothing. The number of leaves begins with two and doubles,
//! so a scan that ends early has named few pages in vain. Leaves beyond the far bound are not named.

use std::{cmp::Ordering, ops::Bound};

use foreshore_base::{PageId, SlotIndex};
use foreshore_latch::Patience;
use foreshore_pages::SlottedView;

use super::Direction;
use crate::{
    node::{self, Target},
    tree::Tree,
};

/// Leaves that the first read-ahead of a cursor names.
const FIRST_LEAVES: usize = 2;

/// How far a cursor has looked ahead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    /// Leaves to name next time.
    window: usize,
    /// Borders still to be crossed before the next time.
    crossings: usize,
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead { window: FIRST_LEAVES, crossings: 1 }
    }
}

impl Ahead {
    /// A border was crossed; how many leaves to name now, if it is time to.
    pub(super) fn crossed(&mut self, most: usize) -> Option<usize> {
        self.crossings = self.crossings.saturating_sub(1);
        if self.crossings > 0 || most == 0 {
            return None;
        }
        let window = self.window.min(most);
        self.window = (window * 2).min(most);
        Some(window)
    }

    /// So many were named: the next time is when half of them are used up. Where a parent ends they are fewer.
    pub(super) fn named(&mut self, leaves: usize) {
        self.crossings = leaves.div_ceil(2).max(1);
    }
}

impl Tree<'_> {
    /// Has up to `count` leaves of a range brought in that follow the leaf of `target` under its parent; gives how many
    /// there are. A hint: it waits for nothing that the cursor would not wait for, and failing means nothing.
    pub(super) fn read_ahead(
        &self,
        patience: Patience<'_>,
        target: Target<'_>,
        (direction, low, high): (Direction, Bound<&[u8]>, Bound<&[u8]>),
        count: usize,
    ) -> usize {
        let Ok(Some(parent)) = self.descend(patience, target, 1) else { return 0 };
        let view = parent.page.view();
        let here = node::position(view, target);
        let leaves: Vec<PageId> = match direction {
            Direction::Ascending => (here..view.slot_count())
                .take(count)
                .take_while(|slot| !begins_behind(view, SlotIndex(*slot), high))
                .map(|slot| view.child(SlotIndex(slot)))
                .collect(),
            Direction::Descending => (0..here)
                .rev()
                .take(count)
                .take_while(|slot| !ends_before(view, SlotIndex(*slot), low))
                .map(|slot| node::child_before(view, slot))
                .collect(),
        };
        if parent.page.validate() {
            self.env.pool.read_ahead(&leaves);
        }
        leaves.len()
    }
}

/// Whether the leaf that begins at this separator has nothing of an ascending range.
fn begins_behind(view: SlottedView<'_>, slot: SlotIndex, far: Bound<&[u8]>) -> bool {
    match far {
        Bound::Unbounded => false,
        Bound::Included(high) => view.compare_key(slot, high) == Ordering::Greater,
        Bound::Excluded(high) => view.compare_key(slot, high) != Ordering::Less,
    }
}

/// Whether the leaf that ends at this separator has nothing of a descending range.
fn ends_before(view: SlottedView<'_>, slot: SlotIndex, far: Bound<&[u8]>) -> bool {
    match far {
        Bound::Unbounded => false,
        Bound::Included(low) | Bound::Excluded(low) => view.compare_key(slot, low) != Ordering::Greater,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_grows_and_is_asked_for_when_half_of_it_is_used() {
        let mut ahead = Ahead::default();
        let mut times = Vec::new();
        for crossing in 0..40 {
            if let Some(leaves) = ahead.crossed(16) {
                times.push((crossing, leaves));
                ahead.named(leaves);
            }
        }
        assert_eq!(times, [(0, 2), (1, 4), (3, 8), (7, 16), (15, 16), (23, 16), (31, 16), (39, 16)]);
        // At the end of a parent: again at the next border.
        ahead.named(0);
        assert_eq!(ahead.crossed(16), Some(16));
        assert_eq!(Ahead::default().crossed(0), None);
    }
}
