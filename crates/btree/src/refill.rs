//! Refilling: a compaction that meets two neighbours of which the left one has room, but not for all that the right one
//! has, cuts the right one, and then merges what comes before the cut into the left one. A split, an adoption and a
//! merge, each a system transaction as ever: whatever interrupts this, the tree is sound, with one leaf more at most.
//!
//! Without it leaves of which every second record was deleted would stay half empty: no two of them fit one page.

use foreshore_base::{Result, SlotIndex, StorageError, is_disk_full};
use foreshore_lock::KeyRef;
use foreshore_pages::{SLOT_BYTES, SlottedView};

use crate::{
    image::{self, Outline},
    merge::{NODE_BYTES, SPARE_SHARE, Zeal, used_bytes},
    node::{self, Target},
    session::Session,
    tree::Tree,
};

/// A leaf with at least this part of its bytes free is filled. What is filled has less, so that one compaction behind
/// another finds nothing to do.
const ROOM_SHARE: usize = 3;

/// Whether a cut failed because there was no page for it, which its merge would have given back.
pub(crate) fn lacks_page(error: &StorageError) -> bool {
    match error {
        StorageError::Io { source, .. } => is_disk_full(source),
        StorageError::LimitExceeded { .. } => true,
        _ => false,
    }
}

impl Tree<'_> {
    /// Cuts the right neighbour of the target's leaf such that a merge takes into the leaf what comes before the cut.
    /// Whether that was done: not where the leaf is well filled, where the neighbour is under another parent, or where
    /// somebody needs the name of the border between the two, which vanishes with the merge.
    pub(crate) fn cut_for_refill(&self, session: &impl Session, target: Target<'_>) -> Result<bool> {
        let patience = session.patience();
        self.finds_room(patience, Zeal::Compact)?;
        let Some(landing) = self.descend(patience, target, 1)? else { return Ok(false) };
        if !self.await_pair(patience, &landing, target)? || !landing.page.validate() {
            return Ok(false);
        }
        let Some(parent) = landing.page.upgrade() else { return Ok(false) };
        let position = node::position(parent.view(), target);
        if position >= parent.view().slot_count() {
            return Ok(false);
        }
        let ids = (node::child_before(parent.view(), position), parent.view().child(SlotIndex(position)));
        if ids.0 == ids.1 || session.is_remembered(ids.0) || session.is_remembered(ids.1) {
            return Ok(false);
        }
        let left = self.child(patience, &parent, ids.0, 0)?;
        let right = self.child(patience, &parent, ids.1, 0)?;
        drop(parent);
        let Some(at) = self.place_of_cut(session, left.view(), right.view())? else { return Ok(false) };
        drop(left);
        self.split_before(patience, right, at)
    }

    /// The record of the right leaf before which it is to be cut, if it is.
    fn place_of_cut(
        &self,
        session: &impl Session,
        left: SlottedView<'_>,
        right: SlottedView<'_>,
    ) -> Result<Option<SlotIndex>> {
        let used = used_bytes(left);
        // With a foster child on the left the two are no neighbours.
        if left.foster_child().is_some() || used > NODE_BYTES - NODE_BYTES / ROOM_SHARE {
            return Ok(None);
        }
        node::inspect(left)?;
        node::inspect(right)?;
        // As the merge asks, which also says what is damaged.
        let outline = Outline::of(right);
        let is_needed = match &outline.low {
            Some(border) if node::high_key(left).as_ref() == Some(border) => {
                right.find(border).is_err() && session.has_requests(self.table, KeyRef::Key(border))
            }
            _ => true,
        };
        if is_needed {
            return Ok(None);
        }
        let mut room = (NODE_BYTES - NODE_BYTES / SPARE_SHARE).saturating_sub(used);
        let fitting = (0..right.slot_count()).take_while(|slot| {
            let bytes = SLOT_BYTES + right.heap_bytes(SlotIndex(*slot));
            let fits = bytes <= room;
            room = room.saturating_sub(bytes);
            fits
        });
        let capacity = self.env.node_capacity.saturating_sub(usize::from(left.slot_count()) + 1);
        let mut count = fitting.count().min(capacity) as u16;
        // Keys may share less of their beginnings in the page of both, and its fences take room.
        while count > 0 && !self.takes_in(left, right, &outline, count) {
            count -= count.div_ceil(4);
        }
        // Where all of it would be taken in, and yet was not merged, somebody was in the way.
        Ok((1..right.slot_count()).contains(&count).then_some(SlotIndex(count)))
    }

    /// Whether the first `count` records of the right leaf would be merged into the left one.
    fn takes_in(&self, left: SlottedView<'_>, right: SlottedView<'_>, outline: &Outline, count: u16) -> bool {
        let high = match count < right.slot_count() {
            true => Some(node::key_of(right, SlotIndex(count))),
            false => outline.high.clone(),
        };
        let node = image::encode(&Outline { high, ..outline.clone() }, right, 0..count);
        self.join(left, right, &node, Zeal::Compact).is_some()
    }
}
