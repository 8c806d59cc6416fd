//! Splitting a node: its upper part moves to a new foster child. A system transaction: one record.

use foreshore_base::{PageId, Result, SlotIndex, StorageError};
use foreshore_pages::{ExclusivePage, PageBuilder, SlottedView};

use crate::{
    env::Urgency,
    image::{self, Image, Outline},
    node::{self, Target, damaged},
    record,
    tree::Tree,
};

/// Where a node is split.
#[derive(Clone, Debug)]
struct Cut {
    /// Records that stay.
    kept: u16,
    /// The first record that moves. In an inner node the one between is the separator: its child becomes the leftmost.
    moved: u16,
    separator: Vec<u8>,
    leftmost: PageId,
}

impl<'a> Tree<'a> {
    /// Makes room where `key` belongs: splits the node (or grows the tree, if it is the root), releases it, and has the
    /// new foster child adopted.
    ///
    /// A leaf with a single record below `key` is cut at `key`, which is not an existing key then: the caller has
    /// checked, under this latch, that nobody else has locked that gap, and its transaction has locked `key` in at
    /// least the mode in which it holds the gap (BTREE-7, BTREE-8).
    #[cold]
    pub(crate) fn split_and_adopt(
        &self,
        page: ExclusivePage<'a>,
        key: &[u8],
        urgency: Urgency,
    ) -> Result<()> {
        if page.id() == self.root {
            return self.grow(page, urgency);
        }
        let level = page.view().level();
        let separator = self.split(page, key, urgency)?;
        self.adopt(Target::Key(&separator), level + 1, urgency)
    }

    /// Splits a node that is not the root. Returns the new node's low fence.
    fn split(&self, mut page: ExclusivePage<'a>, key: &[u8], urgency: Urgency) -> Result<Vec<u8>> {
        // Whatever is moved must be whole.
        node::inspect(page.view())?;
        let outline = Outline::of(page.view());
        let mut new = None;
        let cuts =
            cuts(page.view(), key).ok_or_else(|| damaged(page.id(), "a node without records has no room"))?;
        for cut in cuts {
            // The first cut whose halves fit; the last one always does (README, "Where to split").
            if let Some(left) = fit(page.view(), &outline, &cut) {
                new = Some((left, cut));
                break;
            }
        }
        let Some((node, cut)) = new else {
            return Err(damaged(page.id(), "a node with room for its records cannot be split"));
        };
        prepare(&mut page, urgency)?;
        let mut new_page = self.env.pool.allocate(page.id())?;
        let foster = new_page.id();
        let (Some(right), Ok(left)) = (
            Image::parse(self.table, &node).and_then(|image| image.build().ok()),
            image::left_half(page.view(), cut.kept, Some(&cut.separator), foster),
        ) else {
            return Err(damaged(page.id(), "the halves of a node do not fit a page each"));
        };
        let head = record::structure(self.table, &[page.id(), foster], Some(cut.kept));
        let lsn = self.env.append_system(urgency, record::SPLIT, &[&head, &node])?;
        right.store(new_page.page().words());
        left.store(page.words());
        page.applied(lsn);
        drop(new_page.commit(lsn));
        Ok(cut.separator)
    }
}

/// The change that is to come needs the page's image in the log, if there is none.
pub(crate) fn prepare(page: &mut ExclusivePage<'_>, urgency: Urgency) -> Result<(), StorageError> {
    match urgency {
        Urgency::Forward => page.prepare(),
        Urgency::Rollback => page.prepare_rollback(),
    }
}

/// The new node, encoded, if both halves fit.
fn fit(view: SlottedView<'_>, outline: &Outline, cut: &Cut) -> Option<Vec<u8>> {
    let right = Outline { low: Some(cut.separator.clone()), leftmost: cut.leftmost, ..outline.clone() };
    let node = image::encode(&right, view, cut.moved..view.slot_count());
    let builder: PageBuilder = Image::parse(outline.table, &node)?.build().ok()?;
    drop(builder);
    // Any page id does: it takes the same room.
    image::left_half(view, cut.kept, Some(&cut.separator), view.page_id()).ok()?;
    Some(node)
}

/// Where the node could be split for `key`, best first; `None` when it has no records.
fn cuts(view: SlottedView<'_>, key: &[u8]) -> Option<Vec<Cut>> {
    let count = view.slot_count();
    let (Ok(position) | Err(position)) = view.find(key).map(|slot| slot.0).map_err(|slot| slot.0);
    let inner = view.level() > 0;
    if count == 0 {
        return None;
    }
    if !inner && count == 1 {
        // One record and no room for a second: the new one gets a leaf of its own.
        let separator = if position == 0 { node::key_of(view, SlotIndex(0)) } else { key.to_vec() };
        return Some(vec![Cut { kept: position, moved: position, separator, leftmost: PageId::NONE }]);
    }
    let last = count - 1;
    let first = if position == count {
        // Ascending keys fill their leaves: only the last record moves.
        last
    } else {
        middle(view, count)
    };
    let cut = |at: u16| Cut {
        kept: at,
        moved: if inner { at + 1 } else { at },
        separator: node::key_of(view, SlotIndex(at)),
        leftmost: if inner { view.child(SlotIndex(at)) } else { PageId::NONE },
    };
    let least = if inner { 0 } else { 1 };
    Some((first.clamp(least, last)..=last).map(cut).collect())
}

/// The record at which half of the bytes lie on each side.
fn middle(view: SlottedView<'_>, count: u16) -> u16 {
    let bytes = |slot: u16| {
        let slot = SlotIndex(slot);
        foreshore_pages::RECORD_OVERHEAD_BYTES + view.slot(slot).suffix_len() + view.value_len(slot)
    };
    let total: usize = (0..count).map(bytes).sum();
    let mut left = 0;
    (0..count)
        .find(|slot| {
            left += bytes(*slot);
            left * 2 >= total
        })
        // The record in the middle goes to the smaller side by a byte count that includes half of itself.
        .unwrap_or(count / 2)
}
