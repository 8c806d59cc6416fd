//! The leaves that come next, for cursors that cross from leaf to leaf.
//!
//! A node has no sibling pointers, so the leaves are taken from the parent: a few when the cursor descends to a leaf,
//! then, when it has crossed borders, more of them at a time. The cursor finds its next leaf by them, without a
//! descent: whatever has become of a page, if it encloses the key it is the one (BTREE-6). And the pool brings in those
//! that are not there. Their number begins with two and doubles, so a scan that ends early has named few pages in vain.
//! Leaves beyond the far bound are not named.

use foreshore_base::{PageId, Result, SlotIndex};
use foreshore_latch::Patience;
use foreshore_pages::SlottedView;

use super::{Direction, plan::Plan};
use crate::{
    descend::Landing,
    node::{self, Target},
    tree::Tree,
};

/// Leaves that a descent notes behind the one that it was for.
const FIRST_LEAVES: usize = 2;

/// What a cursor knows of the leaves to come.
#[derive(Debug)]
pub(super) struct Ahead {
    /// In the order of the scan; so many of them have been entered.
    leaves: Vec<PageId>,
    entered: usize,
    /// The pool knows of them.
    named: bool,
    /// Leaves to note next time.
    window: usize,
    /// Borders still to be crossed before the next time.
    crossings: usize,
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead { leaves: Vec::new(), entered: 0, named: false, window: FIRST_LEAVES, crossings: 1 }
    }
}

/// What to do when a border was crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    /// To tell the pool of the leaves that are known.
    Naming,
    /// To ask the parent for so many leaves.
    Looking(usize),
}

impl Ahead {
    /// Knows nothing.
    pub(super) fn clear(&mut self) {
        self.leaves.clear();
        *self = Ahead { leaves: std::mem::take(&mut self.leaves), ..Ahead::default() };
    }

    /// The next leaf, as far as it is known.
    #[inline]
    pub(super) fn next(&self) -> PageId {
        self.leaves.get(self.entered).copied().unwrap_or(PageId::NONE)
    }

    /// The next leaf, as [`Ahead::next`], for whoever goes there: the one after it is next then.
    #[inline]
    pub(super) fn enter(&mut self) -> PageId {
        let next = self.next();
        self.entered += 1;
        next
    }

    /// A border was crossed, and the range goes on behind the leaf.
    fn crossed(&mut self, most: usize) -> Due {
        self.crossings = self.crossings.saturating_sub(1);
        if self.crossings > 0 || most == 0 {
            return Due::Nothing;
        }
        if !self.named && self.next().is_some() {
            self.plan_next(self.leaves.len() - self.entered);
            return Due::Naming;
        }
        self.window = (self.window * 2).min(most);
        Due::Looking(self.window)
    }

    /// So many were named: the next time is when half of them are used up. Where a parent ends they are fewer.
    fn plan_next(&mut self, leaves: usize) {
        self.named = true;
        self.crossings = leaves.div_ceil(2).max(1);
    }

    /// Notes these leaves instead of those that it knew.
    fn note(&mut self, leaves: impl Iterator<Item = PageId>) {
        self.leaves.clear();
        self.leaves.extend(leaves);
        (self.entered, self.named) = (0, false);
    }
}

impl<'a> Tree<'a> {
    /// The leaf of `target`, to be validated after use; takes note of those that follow under its parent.
    pub(super) fn find_leaf(
        &self,
        patience: Patience<'_>,
        target: Target<'_>,
        direction: Direction,
        ahead: &mut Ahead,
    ) -> Result<Landing<'a>> {
        if let Some(Landing { page: parent, foster }) = self.descend(patience, target, 1)? {
            let view = parent.view();
            let here = node::position(view, target);
            let leaf = node::child_before(view, here);
            ahead.note(separators(view, direction, here).take(FIRST_LEAVES).map(|(_, leaf)| leaf));
            // Before a pointer is followed that may be nonsense.
            if parent.validate() {
                if let Some(page) = self.leaf_by_hint(leaf, target) {
                    return Ok(Landing { page, foster });
                }
            } else {
                ahead.note([].into_iter());
            }
        }
        // In a foster child, or not in the pool, or changed meanwhile; or the root is the leaf.
        self.leaf(patience, target)
    }

    /// A cursor has crossed the border of a leaf and will go on behind it: has the leaves that follow brought in, if it
    /// is time to. A hint: it waits for nothing that the cursor would not wait for, and failing means nothing.
    pub(super) fn look_ahead(&self, patience: Patience<'_>, plan: &Plan<'_>, ahead: &mut Ahead) {
        match ahead.crossed(self.env.pool.read_ahead_window()) {
            Due::Nothing => return,
            Due::Naming => {}
            Due::Looking(count) => {
                let target = plan.target();
                let Ok(Some(Landing { page: parent, .. })) = self.descend(patience, target, 1) else {
                    return;
                };
                let view = parent.view();
                let following = separators(view, plan.direction, node::position(view, target));
                ahead.note(
                    following
                        .take(count)
                        .take_while(|(slot, _)| !plan.ends_at(|key| view.compare_key(*slot, key)))
                        .map(|(_, leaf)| leaf),
                );
                if !parent.validate() {
                    ahead.note([].into_iter());
                }
                ahead.plan_next(ahead.leaves.len());
            }
        }
        self.env.pool.read_ahead(&ahead.leaves[ahead.entered.min(ahead.leaves.len())..]);
    }
}

/// The separators that a scan meets in a parent from the child on that so many of them are at or below, each with the
/// leaf behind it.
fn separators(
    view: SlottedView<'_>,
    direction: Direction,
    here: u16,
) -> impl Iterator<Item = (SlotIndex, PageId)> {
    let count = match direction {
        Direction::Ascending => view.slot_count().saturating_sub(here),
        Direction::Descending => here,
    };
    (0..count).map(move |passed| match direction {
        Direction::Ascending => {
            let slot = SlotIndex(here + passed);
            (slot, view.child(slot))
        }
        Direction::Descending => {
            let slot = here - 1 - passed;
            (SlotIndex(slot), node::child_before(view, slot))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_grows_and_is_asked_for_when_half_of_it_is_used() {
        let mut ahead = Ahead::default();
        ahead.note([PageId(7), PageId(8)].into_iter());
        let mut times = Vec::new();
        for crossing in 0..40 {
            let entered = ahead.enter();
            match ahead.crossed(16) {
                Due::Nothing => {}
                Due::Naming => times.push((crossing, 0)),
                Due::Looking(leaves) => {
                    times.push((crossing, leaves));
                    ahead.note((0..leaves as u32).map(|leaf| PageId(100 + crossing + leaf)));
                    ahead.plan_next(leaves);
                }
            }
            // It goes from one to the next.
            assert!(crossing < 2 || entered == PageId(100 + crossing - 1), "{crossing}");
        }
        assert_eq!(times, [(0, 0), (1, 4), (3, 8), (7, 16), (15, 16), (23, 16), (31, 16), (39, 16)]);
        // At the end of a parent: again at the next border.
        ahead.plan_next(0);
        assert_eq!(ahead.crossed(16), Due::Looking(16));
        assert_eq!(Ahead::default().crossed(0), Due::Nothing);
    }
}
