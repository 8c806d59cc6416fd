//! Merging a nearly empty node with a neighbour under the same parent. A system transaction: one record.

use foreshore_base::{PageId, Result, SlotIndex, limits::PAGE_BYTES};
use foreshore_latch::Patience;
use foreshore_lock::KeyRef;
use foreshore_pages::{ExclusivePage, FreeingPage, PAGE_HEADER_BYTES, PageBuilder, SlottedView};
use foreshore_wal::Urgency;

use crate::{
    descend::{Landing, RESTARTS},
    image::{self, Image, Outline},
    node::{self, RETIRED, Target, damaged},
    record,
    session::Session,
    tree::Tree,
};

/// Bytes for slots and records in a node without fences.
pub(crate) const NODE_BYTES: usize = PAGE_BYTES - PAGE_HEADER_BYTES;
/// More records than a page has room for.
const MOST_RECORDS: usize = PAGE_BYTES;
/// A node with less than this part of its bytes in use is merged if it can be.
const LEAST_SHARE: usize = 5;

/// A compaction merges two nodes if what remains free in the one page is at least this part of it.
pub(crate) const SPARE_SHARE: usize = 10;

/// When two neighbours are to be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zeal {
    /// As [`Zeal::Tidy`], by somebody who only comes by, and does not wait for room in the log.
    Pass,
    /// When one of them is nearly empty, and what comes of it is not nearly full: nobody shall have to split it soon.
    Tidy,
    /// When both fit one page.
    Compact,
}

impl Zeal {
    /// That with which the level above is looked at.
    fn above(self) -> Zeal {
        if self == Zeal::Pass { Zeal::Pass } else { Zeal::Tidy }
    }
}

impl<'a> Tree<'a> {
    /// Whether a node has so little in it that it should not stay alone.
    pub(crate) fn is_underfull(&self, view: SlottedView<'_>) -> bool {
        let capacity = self.env.node_capacity;
        let few = capacity < MOST_RECORDS && usize::from(view.slot_count()) <= capacity / 4;
        few || used_bytes(view) < NODE_BYTES / LEAST_SHARE
    }

    /// Merges the node of `target` at `level` with a neighbour, if one of the two is nearly empty, both fit one page,
    /// and nobody needs the name that vanishes with the border between them, nor remembers one of them; then looks at
    /// the level above. Gives up where it would have to wait for the parent, or, with that latched, for the bitmap
    /// page. Whether nodes of this level were merged.
    ///
    /// A compaction merges what fits one page at `level`; above, nodes are only tidied.
    pub(crate) fn merge(
        &self,
        session: &impl Session,
        target: Target<'_>,
        level: u8,
        zeal: Zeal,
    ) -> Result<bool> {
        let wanted = level;
        let (mut level, mut zeal, mut merged, mut looks) = (level, zeal, false, 0);
        // Each turn climbs a level or lowers the tree by one.
        while self.finds_room(session.patience(), zeal)?
            && let Some(landing) = self.descend(session.patience(), target, level + 1)?
        {
            if !self.await_pair(session.patience(), &landing, target)? || !landing.page.validate() {
                // What was waited for is there now: the next look takes no time in which the parent could change.
                looks += 1;
                if looks < RESTARTS {
                    continue;
                }
                return Ok(merged);
            }
            let Some(mut parent) = landing.page.upgrade() else { return Ok(merged) };
            let separators = parent.view().slot_count();
            if separators == 0 {
                if parent.id() == self.root {
                    if level == 0 && session.is_remembered(parent.view().leftmost_child()) {
                        return Ok(merged);
                    }
                    self.shrink(session.patience(), parent, level, zeal)?;
                    return Ok(merged);
                }
                drop(parent);
                level += 1;
                zeal = zeal.above();
                continue;
            }
            let position = node::position(parent.view(), target);
            // The right neighbour first, if there is one. The left one is not read from the file for this.
            let near = position.min(separators - 1);
            let other = position.checked_sub(1).filter(|slot| {
                let left = node::child_before(parent.view(), *slot);
                zeal != Zeal::Compact && *slot != near && self.env.pool.optimistic_now(left).is_some()
            });
            let mut pairs = [Some(near), other].into_iter().flatten().map(SlotIndex);
            let done = pairs.try_fold(false, |done, slot| {
                Ok(done || self.merge_pair(session, &mut parent, slot, level, zeal)?)
            });
            if !done? {
                return Ok(merged);
            }
            merged |= level == wanted;
            let above = self.is_underfull(parent.view());
            let lowest = parent.id() == self.root && parent.view().slot_count() == 0;
            drop(parent);
            if !above && !lowest {
                return Ok(merged);
            }
            if !lowest {
                level += 1;
                zeal = zeal.above();
            }
        }
        Ok(merged)
    }

    /// Whether the log has room for a change of some pages, which is waited for unless somebody only comes by
    /// (BTREE-13). With nothing latched.
    pub(crate) fn finds_room(&self, patience: Patience<'_>, zeal: Zeal) -> Result<bool> {
        match zeal {
            Zeal::Pass => Ok(self.env.has_room()),
            Zeal::Tidy | Zeal::Compact => {
                self.env.pool.await_log_room(self.root, Urgency::Work, patience)?;
                Ok(true)
            }
        }
    }

    /// Waits until the nodes that are to be looked at, and their bitmap pages, are in the pool and nobody changes them,
    /// before their parent is latched: those who come by for its other children do not stand behind a read from the
    /// file (BTREE-13). False: the parent has changed.
    pub(crate) fn await_pair(
        &self,
        patience: Patience<'_>,
        landing: &Landing<'a>,
        target: Target<'_>,
    ) -> Result<bool> {
        let view = landing.page.view();
        let separators = view.slot_count();
        let near = node::position(view, target).min(separators.saturating_sub(1));
        let right = (separators > 0).then(|| view.child(SlotIndex(near)));
        let left = node::child_before(view, near);
        for child in [Some(left), right].into_iter().flatten() {
            // A pointer that may be nonsense is not followed, and an error is genuine only if the pointer is.
            if !landing.page.validate() {
                return Ok(false);
            }
            let awaited = self.fetch(landing.page.id(), child, |id| {
                self.env.pool.optimistic_within(id, patience)?;
                self.env.pool.await_free_page(id, patience)
            });
            if let Err(error) = awaited {
                return if landing.page.validate() { Err(error) } else { Ok(false) };
            }
        }
        Ok(true)
    }

    /// Merges the two nodes at `level` beside the separator in `slot` of their parent. Whether that was done.
    fn merge_pair(
        &self,
        session: &impl Session,
        parent: &mut ExclusivePage<'a>,
        slot: SlotIndex,
        level: u8,
        zeal: Zeal,
    ) -> Result<bool> {
        let (left, right) = (node::child_before(parent.view(), slot.0), parent.view().child(slot));
        if left == right {
            return Err(damaged(parent.id(), "it points to a child twice"));
        }
        if level == 0 && (session.is_remembered(left) || session.is_remembered(right)) {
            return Ok(false);
        }
        let mut left = self.child(session.patience(), parent, left, level)?;
        let mut right = self.child(session.patience(), parent, right, level)?;
        let wanted = match zeal {
            Zeal::Pass | Zeal::Tidy => self.is_underfull(left.view()) || self.is_underfull(right.view()),
            Zeal::Compact => used_bytes(left.view()) + used_bytes(right.view()) < NODE_BYTES,
        };
        // With a foster child on the left the two are no neighbours.
        if !wanted || left.view().foster_child().is_some() {
            return Ok(false);
        }
        if zeal == Zeal::Pass && !self.env.has_room() {
            return Ok(false);
        }
        node::inspect(left.view())?;
        node::inspect(right.view())?;
        let outline = Outline::of(right.view());
        let border = node::high_key(left.view());
        let Some(border) = border.filter(|border| outline.low.as_ref() == Some(border)) else {
            return Err(damaged(right.id(), "its low fence is not its left neighbour's high fence"));
        };
        if level == 0 {
            // Ghosts that can go need not move.
            self.purge(session, &mut right)?;
        }
        // A fence that is no record is a name that vanishes (BTREE-8).
        let vanishes = outline.level == 0 && right.view().find(&border).is_err();
        if vanishes && session.has_requests(self.table, KeyRef::Key(&border)) {
            return Ok(false);
        }
        let node = image::encode(&outline, right.view(), 0..right.view().slot_count());
        let Some(joined) = self.join(left.view(), right.view(), &node, zeal) else { return Ok(false) };
        parent.prepare(Urgency::Work)?;
        left.prepare(Urgency::Work)?;
        right.prepare(Urgency::Work)?;
        let Some(freeing) = self.free_merged(session.patience(), right.id(), zeal)? else {
            return Ok(false);
        };
        let head = record::structure(self.table, &[parent.id(), left.id(), right.id()], Some(slot.0));
        let lsn = self.env.append_system(Urgency::Work, record::MERGE, &[&head, &node])?;
        joined.store(left.words());
        left.applied(lsn);
        parent.edit().remove(slot);
        parent.applied(lsn);
        right.edit().set_node_flags(RETIRED);
        right.applied(lsn);
        // Last: from here on the page may be allocated anew, by somebody who waits for its latch.
        freeing.commit(lsn);
        Ok(true)
    }

    /// Begins to free a node whose content goes into another. The parent and both are latched: whoever only tidies
    /// gives up where it would have to wait for the bitmap page, or to read it (BTREE-13).
    pub(crate) fn free_merged(
        &self,
        patience: Patience<'_>,
        id: PageId,
        zeal: Zeal,
    ) -> Result<Option<FreeingPage<'a>>> {
        match zeal {
            Zeal::Pass | Zeal::Tidy => self.env.pool.free_page_now(id),
            Zeal::Compact => self.env.pool.free_page_within(id, patience).map(Some),
        }
    }

    /// Both nodes as one, unless that would soon be split again.
    pub(crate) fn join(
        &self,
        left: SlottedView<'_>,
        right: SlottedView<'_>,
        node: &[u8],
        zeal: Zeal,
    ) -> Option<PageBuilder> {
        let joined = image::joined(left, &Image::parse(self.table, node)?).ok()?;
        let spare = match zeal {
            Zeal::Pass | Zeal::Tidy => NODE_BYTES / LEAST_SHARE,
            Zeal::Compact => NODE_BYTES / SPARE_SHARE,
        };
        let room = joined.count() < self.env.node_capacity && joined.free_bytes() >= spare;
        let one_is_empty = left.slot_count() == 0 || right.slot_count() == 0;
        (room || one_is_empty).then_some(joined)
    }
}

/// Bytes of slots and records: fences come with the node's place, not with its content.
pub(crate) fn used_bytes(view: SlottedView<'_>) -> usize {
    let fences =
        node::low_fence(view).map_or(0, |key| key.len()) + node::high_key(view).map_or(0, |key| key.len());
    NODE_BYTES.saturating_sub(view.free_bytes() + fences)
}
