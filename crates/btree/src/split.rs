//! Splitting a node: its upper part moves to a new foster child. A system transaction: one record.

use foreshore_base::{PageId, Result, SlotIndex};
use foreshore_latch::Patience;
use foreshore_pages::{ExclusivePage, PageBuilder, SLOT_BYTES, SlottedView};
use foreshore_wal::Urgency;

use crate::{
    image::{self, Image, Outline},
    node::{self, Target, damaged},
    record,
    tree::Tree,
};

/// Where a node is split.
#[derive(Debug)]
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
    /// A leaf may be cut at `key` where that comes after all its records, so it is not an existing key then: the caller
    /// has checked, under this latch, that nobody else has locked that gap, and its transaction has locked `key` in at
    /// least the mode in which it holds the gap (BTREE-7, BTREE-8).
    #[cold]
    pub(crate) fn split_and_adopt(
        &self,
        patience: Patience<'_>,
        page: ExclusivePage<'a>,
        key: &[u8],
        urgency: Urgency,
    ) -> Result<()> {
        if page.id() == self.root {
            return self.grow(patience, page, urgency);
        }
        let level = page.view().level();
        let separator = self.split(patience, page, key, urgency)?;
        self.adopt(patience, Target::Key(&separator), level + 1, urgency)
    }

    /// Splits a node that is not the root. Returns the new node's low fence.
    fn split(
        &self,
        patience: Patience<'_>,
        page: ExclusivePage<'a>,
        key: &[u8],
        urgency: Urgency,
    ) -> Result<Vec<u8>> {
        let view = page.view();
        let halves = match behind_all(view, key, urgency) {
            Some(halves) => halves,
            None => {
                // Whatever is moved must be whole.
                node::inspect(view)?;
                halves(view, key).ok_or_else(|| {
                    damaged(page.id(), "a node that has no room for another record cannot be split")
                })?
            }
        };
        self.part(patience, page, halves, urgency)
    }

    /// Splits a leaf that is not the root before one of its records, and has the new one adopted. False: the halves
    /// would not fit.
    pub(crate) fn split_before(
        &self,
        patience: Patience<'_>,
        page: ExclusivePage<'a>,
        slot: SlotIndex,
    ) -> Result<bool> {
        let view = page.view();
        let Some(halves) = fit(view, &Outline::of(view), Cut::at(view, slot)) else { return Ok(false) };
        let separator = self.part(patience, page, halves, Urgency::Work)?;
        self.adopt(patience, Target::Key(&separator), 1, Urgency::Work)?;
        Ok(true)
    }

    /// Makes a node its halves, as they were planned under this latch.
    fn part(
        &self,
        patience: Patience<'_>,
        mut page: ExclusivePage<'a>,
        Halves { cut, node, left, right }: Halves,
        urgency: Urgency,
    ) -> Result<Vec<u8>> {
        page.prepare(urgency)?;
        let new_page = self.env.allocate(patience, urgency, self.table, page.id())?;
        let foster = new_page.id();
        let head = record::structure(self.table, &[page.id(), foster], Some(cut.kept));
        let lsn = self.env.append_system(urgency, record::SPLIT, &[&head, &node])?;
        let new_page = new_page.commit_with(lsn, |words| right.store(words));
        let done = match left {
            Some(left) => {
                left.store(page.words());
                page.edit().set_foster(foster);
                Ok(())
            }
            None => image::cut_left(&mut page.edit(), cut.kept, Some(&cut.separator), foster),
        };
        self.env.as_logged(page.id(), done)?;
        page.applied(lsn);
        drop(new_page);
        Ok(cut.separator)
    }
}

/// Both halves of a node.
struct Halves {
    cut: Cut,
    /// The right half, encoded.
    node: Vec<u8>,
    /// It still lacks the new page's id. `None`: the page as it is, with the separator and the id added.
    left: Option<PageBuilder>,
    right: PageBuilder,
}

/// Ascending keys fill their leaves: a key behind all records gets a new leaf, and no record moves. Not for a rollback,
/// which asks nobody about the gap, nor where the last split came to the same: keys that descend towards a full leaf
/// would get a leaf each.
fn behind_all(view: SlottedView<'_>, key: &[u8], urgency: Urgency) -> Option<Halves> {
    let count = view.slot_count();
    let ascending = matches!(urgency, Urgency::Work) && view.level() == 0 && count > 0;
    if !ascending || view.ends_with_high() || !view.compare_key(SlotIndex(count - 1), key).is_lt() {
        return None;
    }
    if !image::stays_in_place(view, count, key) || !view.can_narrow(key) {
        return None;
    }
    let cut = Cut { kept: count, moved: count, separator: key.to_vec(), leftmost: PageId::NONE };
    fit(view, &Outline::of(view), cut)
}

/// Splits a node for `key` at the best place where both halves fit; `None` when it has no records.
fn halves(view: SlottedView<'_>, key: &[u8]) -> Option<Halves> {
    let outline = Outline::of(view);
    let count = view.slot_count();
    let (Ok(position) | Err(position)) = view.find(key).map(|slot| slot.0).map_err(|slot| slot.0);
    let last = count.checked_sub(1)?;
    if view.level() == 0 && last == 0 {
        // One record and no room for a second: the new one gets a leaf of its own.
        let separator = if position == 0 { node::key_of(view, SlotIndex(0)) } else { key.to_vec() };
        return fit(
            view,
            &outline,
            Cut { kept: position, moved: position, separator, leftmost: PageId::NONE },
        );
    }
    // Ascending keys fill their nodes: what moves is what they will not come to, or the last record.
    let best = if position == count {
        last
    } else if view.ascends_to(SlotIndex(position)) {
        position
    } else {
        middle(view, count)
    };
    let least = if view.level() > 0 { 0 } else { 1 };
    // The last cut always fits (README, "Where to split").
    (best.clamp(least, last)..=last).find_map(|at| fit(view, &outline, Cut::at(view, SlotIndex(at))))
}

impl Cut {
    /// The cut before the record in `slot`, whose key is the border.
    fn at(view: SlottedView<'_>, slot: SlotIndex) -> Cut {
        let separator = node::key_of(view, slot);
        if view.level() > 0 {
            Cut { kept: slot.0, moved: slot.0 + 1, separator, leftmost: view.child(slot) }
        } else {
            Cut { kept: slot.0, moved: slot.0, separator, leftmost: PageId::NONE }
        }
    }
}

/// The halves of a cut, if each fits a page.
fn fit(view: SlottedView<'_>, outline: &Outline, cut: Cut) -> Option<Halves> {
    let right = Outline { low: Some(cut.separator.clone()), leftmost: cut.leftmost, ..outline.clone() };
    let node = image::encode(&right, view, cut.moved..view.slot_count());
    let right = Image::parse(outline.table, &node)?.build().ok()?;
    let left = match image::stays_in_place(view, cut.kept, &cut.separator) {
        true => None,
        false => Some(image::left_half(view, cut.kept, Some(&cut.separator), PageId::NONE).ok()?),
    };
    Some(Halves { cut, node, left, right })
}

/// The first record up to which the node has half of its bytes.
fn middle(view: SlottedView<'_>, count: u16) -> u16 {
    let bytes = |slot: u16| SLOT_BYTES + view.heap_bytes(SlotIndex(slot));
    let total: usize = (0..count).map(bytes).sum();
    let mut left = 0;
    let half = (0..count).find(|slot| {
        left += bytes(*slot);
        left * 2 >= total
    });
    half.unwrap_or(count / 2)
}
