//! Reading the next batch: find the leaf, copy, lock, validate.

use std::ops::Bound;

use foreshore_base::{PageId, SlotIndex};
use foreshore_lock::KeyRef;
use foreshore_pages::{OptimisticPage, SlottedView};

use super::{
    Cursor,
    batch::{Plan, first_leaf},
};
use crate::{
    descend::{Landing, RESTARTS},
    error::Result,
    hold::HeldNode,
    node::{self, Target},
    session::Session,
    tree::Tree,
};

/// Keys to read at once, at most.
const MOST_AHEAD: usize = 64;
/// Slots that are looked at for ghosts, and ghosts among them from which on a leaf is tidied before it is read.
const LOOK_AHEAD: u16 = 16;
const MANY_GHOSTS: usize = 8;

impl Cursor {
    /// Reads and locks a batch from the near bound on.
    ///
    /// Locks are taken under a version that is validated afterwards (BTREE-5): what was locked was, at that moment, what
    /// lay in the range.
    pub(super) fn fill(&mut self, session: &mut impl Session) -> Result<()> {
        let handle = self.tree.clone();
        let tree = handle.tree();
        let limit = self.ahead;
        let plan = Plan {
            direction: self.direction,
            kind: self.kind,
            isolation: self.isolation,
            low: as_slice(&self.low),
            high: as_slice(&self.high),
            limit,
        };
        let target = plan.target();
        let mut tidied = false;
        for attempt in 0..if tree.is_optimistic() { RESTARTS } else { 0 } {
            let hint = if attempt == 0 { tree.leaf_by_hint(self.leaf, target) } else { None };
            let landing = match hint {
                Some(page) => Landing { page, foster: None },
                None => tree.leaf(session.patience(), target)?,
            };
            let page = landing.page;
            if !tidied && is_littered(&tree, session, page.view(), &plan) {
                tidied = true;
                tree.tidy_before_scan(session, target);
                continue;
            }
            self.batch.collect(page.view(), &plan);
            // Before nonsense is locked.
            if !page.validate() {
                continue;
            }
            self.check_order(page.id())?;
            for (key, mode) in self.batch.locks() {
                session.acquire(tree.table, key, mode)?;
            }
            if page.validate() {
                tree.adopt_on_the_way(session.patience(), landing.foster, target);
                self.filled(&tree, session, page.id());
                return Ok(());
            }
        }
        // Under a latch: locks are tried, and awaited only after the latch is released (BTREE-4).
        loop {
            let HeldNode { page, foster } = tree.leaf_held(session.patience(), target)?;
            if !tidied && is_littered(&tree, session, page.view(), &plan) {
                tidied = true;
                drop(page);
                tree.tidy_before_scan(session, target);
                continue;
            }
            self.batch.collect(page.view(), &plan);
            self.check_order(page.id())?;
            let mut refused = None;
            for (key, mode) in self.batch.locks() {
                if !session.try_acquire(tree.table, key, mode)? {
                    refused = Some((key, mode));
                    break;
                }
            }
            let leaf = page.id();
            drop(page);
            match refused {
                None => {
                    session.unlatched(tree.table);
                    tree.adopt_on_the_way(session.patience(), foster, target);
                    self.filled(&tree, session, leaf);
                    return Ok(());
                }
                Some((key, mode)) => session.acquire(tree.table, key, mode)?,
            }
        }
    }
}

impl Cursor {
    /// A batch was read. A cursor that is asked for more looks further ahead; ghosts and empty leaves do not count.
    fn filled(&mut self, tree: &Tree<'_>, session: &impl Session, leaf: PageId) {
        if self.leaf != leaf && self.leaf.is_some() {
            self.crossed(tree, session);
        }
        self.leaf = leaf;
        if self.batch.current().is_some() {
            self.ahead = (self.ahead * 2).min(MOST_AHEAD);
        }
    }

    /// The cursor has come from one leaf to another: it is a scan.
    #[cold]
    fn crossed(&mut self, tree: &Tree<'_>, session: &impl Session) {
        if let Some(leaves) = self.read_ahead.crossed(tree.env.pool.read_ahead_window()) {
            let (low, high) = (as_slice(&self.low), as_slice(&self.high));
            let target = first_leaf(self.direction, low, high);
            let named = tree.read_ahead(session.patience(), target, (self.direction, low, high), leaves);
            self.read_ahead.named(named);
        }
    }

    fn check_order(&self, leaf: PageId) -> Result<()> {
        if self.batch.is_disordered() {
            return Err(node::damaged(leaf, "its keys are out of order").into());
        }
        Ok(())
    }
}

impl<'a> Tree<'a> {
    /// The leaf of an earlier read, if it still is the target's; to be validated after use.
    fn leaf_by_hint(&self, hint: PageId, target: Target<'_>) -> Option<OptimisticPage<'a>> {
        if !hint.is_some() {
            return None;
        }
        // Whatever the page is now: a node in use that encloses the target is the one (BTREE-6).
        let page = self.env.pool.optimistic(hint).ok()?;
        (node::is_node(page.view(), self.table, 0) && target.lies_in(page.view())).then_some(page)
    }
}

/// Whether most of what would be read next is deleted, and could be gone for good. Once this transaction has locked the
/// ghosts it is too late. A look that is not validated: the worst that comes of it is a needless visit.
fn is_littered(tree: &Tree<'_>, session: &impl Session, view: SlottedView<'_>, plan: &Plan<'_>) -> bool {
    let (near, count) = (plan.slots(view), view.slot_count());
    let looked = match plan.direction {
        super::Direction::Ascending => near.start..near.end.min(near.start.saturating_add(LOOK_AHEAD)),
        super::Direction::Descending => near.start.max(near.end.saturating_sub(LOOK_AHEAD))..near.end,
    };
    let mut ghosts = looked.map(SlotIndex).filter(|slot| view.is_ghost(*slot));
    let Some(first) = ghosts.next() else { return false };
    let ghosts = 1 + ghosts.count();
    if ghosts < MANY_GHOSTS && ghosts < usize::from(count) {
        return false;
    }
    !session.has_requests(tree.table, KeyRef::Key(&node::key_of(view, first)))
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
    }
}
