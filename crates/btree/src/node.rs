//! What the tree asks of a single node.

use std::cmp::Ordering;

use foreshore_base::{PageId, SlotIndex, StorageError, TableId};
use foreshore_pages::{Fence, RECORD_OVERHEAD_BYTES, SlottedView};

use crate::bytes::SmallValue;

/// Node flag: the page was merged away. It is set under the page's exclusive latch and written like any change, so that
/// whoever still knows the page id finds no node there (BTREE-6).
pub(crate) const RETIRED: u16 = 1;

/// Bytes of a child's page id.
pub(crate) const CHILD_BYTES: usize = size_of::<u32>();

/// Whether the page is a node of the tree of `table`, in use, at `level`.
#[inline]
pub(crate) fn is_node(view: SlottedView<'_>, table: TableId, level: u8) -> bool {
    view.is_node(table, level, RETIRED)
}

/// The table of which a page is a leaf in use, whatever the page is: for salvage.
pub fn leaf_table(view: SlottedView<'_>) -> Option<TableId> {
    is_node(view, view.table(), 0).then(|| view.table())
}

/// The table of which a page is the root, as far as one can see it: it has no fences and no foster child. For salvage.
pub fn tree_root(view: SlottedView<'_>) -> Option<TableId> {
    let unbounded = low_fence(view).is_none() && high_key(view).is_none() && !view.foster_child().is_some();
    (unbounded && is_node(view, view.table(), view.level())).then(|| view.table())
}

/// An error that names the page.
#[cold]
pub(crate) fn damaged(page: PageId, detail: impl Into<String>) -> StorageError {
    StorageError::corrupt_page(page, detail)
}

/// Where a descent goes. In an ordered set of nodes that partition all keys, each of these names one node of a level.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'k> {
    /// The leftmost node.
    First,
    /// The node that this key belongs to.
    Key(&'k [u8]),
    /// The node of the greatest possible key below this one.
    Below(&'k [u8]),
    /// The rightmost node.
    Last,
}

impl Target<'_> {
    /// Whether the target lies at or above the node's high key, so in its foster child if it has one.
    #[inline]
    pub(crate) fn is_beyond(self, view: SlottedView<'_>) -> bool {
        match self {
            Target::First => false,
            Target::Key(key) => view.compare_high(key).is_ge(),
            Target::Below(key) => view.compare_high(key).is_gt(),
            Target::Last => true,
        }
    }

    /// Whether the node is the one, given that it has this level.
    #[inline]
    pub(crate) fn lies_in(self, view: SlottedView<'_>) -> bool {
        match self {
            // The empty key is the lowest, and only −∞ is below it.
            Target::First => view.compare_low(&[]) == Ordering::Greater,
            Target::Key(key) => view.encloses(key),
            Target::Below(key) => view.compare_low(key).is_gt() && view.compare_high(key).is_le(),
            Target::Last => high_key(view).is_none(),
        }
    }
}

/// The next step of a descent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hop {
    /// This is the node.
    Here,
    /// To the right, in the foster chain.
    Foster(PageId),
    /// Down.
    Child(PageId),
}

/// Where a descent goes on from a node; `landed`: the node has the level that is looked for.
#[inline(always)]
pub(crate) fn hop(view: SlottedView<'_>, target: Target<'_>, landed: bool) -> Hop {
    let foster = view.foster_child();
    if foster.is_some() && target.is_beyond(view) {
        return Hop::Foster(foster);
    }
    if landed {
        return Hop::Here;
    }
    Hop::Child(match target {
        Target::First => view.leftmost_child(),
        Target::Key(key) => view.child_for(key).1,
        Target::Below(key) => {
            let (Ok(slot) | Err(slot)) = view.find(key);
            child_before(view, slot.0)
        }
        Target::Last => child_before(view, view.slot_count()),
    })
}

/// How many separators are at or below the target.
pub(crate) fn position(view: SlottedView<'_>, target: Target<'_>) -> u16 {
    match target {
        Target::First => 0,
        Target::Key(key) => match view.find(key) {
            Ok(slot) => slot.0 + 1,
            Err(slot) => slot.0,
        },
        Target::Below(key) => {
            let (Ok(slot) | Err(slot)) = view.find(key);
            slot.0
        }
        Target::Last => view.slot_count(),
    }
}

/// The child that the slot before `slot` names; the leftmost one when there is none.
#[inline]
pub(crate) fn child_before(view: SlottedView<'_>, slot: u16) -> PageId {
    match slot.checked_sub(1) {
        Some(before) => view.child(SlotIndex(before)),
        None => view.leftmost_child(),
    }
}

/// The low fence; `None` is −∞.
pub(crate) fn low_fence(view: SlottedView<'_>) -> Option<Vec<u8>> {
    let mut key = Vec::new();
    (view.low_fence(&mut key) == Fence::Key).then_some(key)
}

/// The high key; `None` is +∞.
pub(crate) fn high_key(view: SlottedView<'_>) -> Option<Vec<u8>> {
    let mut key = Vec::new();
    (view.high_fence(&mut key) == Fence::Key).then_some(key)
}

/// The key of a slot.
pub(crate) fn key_of(view: SlottedView<'_>, slot: SlotIndex) -> Vec<u8> {
    let mut key = Vec::new();
    view.key_into(slot, &mut key);
    key
}

/// Copies a value. On a page that is not latched it may be nonsense until validated, at most a page long.
#[inline]
pub(crate) fn copy_value(view: SlottedView<'_>, slot: SlotIndex, target: &mut SmallValue) {
    let (offset, length) = view.value_place(slot);
    target.copy(view.words(), offset, length);
}

/// Bytes that a record with this key takes in the node.
#[inline]
pub(crate) fn record_bytes(view: SlottedView<'_>, key: &[u8], value_bytes: usize) -> usize {
    RECORD_OVERHEAD_BYTES + key.len().saturating_sub(view.prefix_len()) + value_bytes
}

/// Whether `bytes` more fit the node, whatever has to be compacted for it. The caller holds the page exclusively.
///
/// A page that needs compaction is inspected before: on one of nonsense it would fail after the change was logged.
#[inline]
pub(crate) fn has_room(view: SlottedView<'_>, bytes: usize) -> Result<bool, StorageError> {
    let (free, without_compaction) = view.room();
    if without_compaction < bytes {
        if free < bytes {
            return Ok(false);
        }
        inspect(view)?;
    }
    Ok(true)
}

/// Whether the value of `slot` can become one of this length.
#[inline]
pub(crate) fn fits_in_place(
    view: SlottedView<'_>,
    slot: SlotIndex,
    value_bytes: usize,
) -> Result<bool, StorageError> {
    let old = view.value_len(slot);
    if value_bytes <= old {
        return Ok(true);
    }
    let kept = old + view.slack_of(view.slot(slot));
    if value_bytes <= kept {
        return Ok(true);
    }
    if view.free_bytes() < value_bytes - kept {
        return Ok(false);
    }
    let bytes = view.slot(slot).suffix_len() + size_of::<u16>() + value_bytes;
    if view.free_bytes() - view.garbage_bytes() < bytes {
        // It takes compaction, which only a sound page survives.
        inspect(view)?;
    }
    Ok(true)
}

/// Looks for damage that no checksum shows.
#[cold]
pub(crate) fn inspect(view: SlottedView<'_>) -> Result<(), StorageError> {
    view.inspect().map_err(|detail| damaged(view.page_id(), detail))
}
