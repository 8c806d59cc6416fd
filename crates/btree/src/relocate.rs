//! Moving a node to another page, so that its page can be given back. A system transaction: one record for the node,
//! for what points to it, and for the bits of both pages.
//!
//! The old page says that it is [`RETIRED`] before its latch is released, as one that was merged away; so BTREE-6
//! holds, and whoever comes with the old id descends again. No name of a lock changes: locks name keys.

use foreshore_base::{PageId, Result, SlotIndex, StorageError};
use foreshore_latch::Patience;
use foreshore_pages::{Compaction, ExclusivePage, SlottedView};
use foreshore_wal::Urgency;

use crate::{
    BTree,
    drop::Link,
    env::not_in_use,
    image,
    node::{self, RETIRED, Target, damaged},
    record,
    session::Session,
    tree::Tree,
};

/// How often a move begins anew because the tree has changed meanwhile.
const ATTEMPTS: usize = 8;

/// What [`BTree::relocate`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relocated {
    /// The node is in this page now.
    To(PageId),
    /// The page is the tree's root: see [`BTree::relocate_root`].
    Root,
    /// The page is not, or no longer, one of the tree; or the tree changes too fast just now.
    NotFound,
    /// There is no page to move it to.
    NoRoom,
}

impl BTree {
    /// Moves the node in page `from` to a page below the compaction's ceiling. Others may use the tree meanwhile, but
    /// it is not dropped.
    pub fn relocate(
        &self,
        session: &impl Session,
        compaction: &mut Compaction<'_>,
        from: PageId,
    ) -> Result<Relocated> {
        let tree = self.tree();
        if from == tree.root {
            return Ok(Relocated::Root);
        }
        let patience = session.patience();
        for _ in 0..ATTEMPTS {
            tree.env.pool.await_log_room(from, Urgency::Work, patience)?;
            let Some((low, level)) = tree.place_of(session, from)? else { return Ok(Relocated::NotFound) };
            let target = low.as_deref().map_or(Target::First, Target::Key);
            let Some(landing) = tree.descend(patience, target, level + 1)? else {
                return Ok(Relocated::NotFound);
            };
            let Some(parent) = tree.latch(patience, landing.page, target, level + 1)? else { continue };
            let link = link_to(parent.view(), target);
            if !link.leads_to(parent.view(), from) {
                // It is a foster child, or another node has its place by now.
                drop(parent);
                tree.adopt(patience, target, level + 1, Urgency::Work)?;
                continue;
            }
            let node = tree.child(patience, &parent, from, level)?;
            return tree.move_node(patience, compaction, parent, link, node);
        }
        Ok(Relocated::NotFound)
    }

    /// Moves the root. The page that names it is a row of another tree, `rows`: it is found under `key`, and has the
    /// page id at `offset` in its value. Nobody else has a lock in the tree, nor on it, and nobody else has changed the
    /// row and could take that back. A thread that looks without locks what a transaction would touch (TXN-19) may be
    /// in it: if it knows the old root, it finds no node there, and fails or begins anew.
    pub fn relocate_root(
        &self,
        session: &impl Session,
        compaction: &mut Compaction<'_>,
        (rows, key, offset): (&BTree, &[u8], usize),
    ) -> Result<Relocated> {
        let (tree, rows) = (self.tree(), rows.tree());
        let patience = session.patience();
        let target = Target::Key(key);
        for _ in 0..ATTEMPTS {
            tree.env.pool.await_log_room(tree.root, Urgency::Work, patience)?;
            let landing = rows.leaf(patience, target)?;
            let Some(mut row_page) = rows.latch(patience, landing.page, target, 0)? else { continue };
            let Some(slot) = row_naming(row_page.view(), key, offset, tree.root) else {
                return Err(damaged(row_page.id(), format!("its row does not name the root {}", tree.root)));
            };
            let mut root = tree.env.pool.exclusive_within(tree.root, patience)?;
            if !node::is_node(root.view(), tree.table, root.view().level()) {
                return Err(damaged(tree.root, "it should be a root"));
            }
            let (_, node, content) = image::whole(root.view())?;
            row_page.prepare(Urgency::Work)?;
            root.prepare(Urgency::Work)?;
            let Some(new) = compaction.page_for(root.id(), row_page.id(), patience)? else {
                return Ok(Relocated::NoRoom);
            };
            let mut new = not_in_use(new, tree.table)?;
            let to = new.id();
            let mut head = record::structure(tree.table, &[row_page.id(), root.id(), to], Some(slot.0));
            head.extend_from_slice(&(offset as u16).to_le_bytes());
            let lsn = tree.env.append_system(Urgency::Work, record::MOVE_ROOT, &[&head, &node])?;
            content.store(new.page().words());
            row_page.edit().patch_value(slot, offset, &to.0.to_le_bytes());
            row_page.applied(lsn);
            root.edit().set_node_flags(RETIRED);
            root.applied(lsn);
            self.set_root(to);
            drop(new.commit(lsn));
            return Ok(Relocated::To(to));
        }
        Ok(Relocated::NotFound)
    }
}

impl<'a> Tree<'a> {
    /// Low fence and level of the node in this page, if it is one of the tree.
    fn place_of(&self, session: &impl Session, page: PageId) -> Result<Option<(Option<Vec<u8>>, u8)>> {
        let page = match self.env.pool.shared_within(page, session.patience()) {
            // Freed meanwhile, perhaps never written.
            Err(StorageError::Corrupted { .. }) if !self.env.pool.is_allocated(page)? => return Ok(None),
            page => page?,
        };
        let view = page.view();
        let here = node::is_node(view, self.table, view.level());
        Ok(here.then(|| (node::low_fence(view), view.level())))
    }

    fn move_node(
        &self,
        patience: Patience<'_>,
        compaction: &mut Compaction<'_>,
        mut parent: ExclusivePage<'a>,
        link: Link,
        mut page: ExclusivePage<'a>,
    ) -> Result<Relocated> {
        let (_, node, content) = image::whole(page.view())?;
        parent.prepare(Urgency::Work)?;
        page.prepare(Urgency::Work)?;
        let Some(new) = compaction.page_for(page.id(), parent.id(), patience)? else {
            return Ok(Relocated::NoRoom);
        };
        let mut new = not_in_use(new, self.table)?;
        let to = new.id();
        let head = record::structure(self.table, &[parent.id(), page.id(), to], Some(link.code()));
        let lsn = self.env.append_system(Urgency::Work, record::MOVE, &[&head, &node])?;
        content.store(new.page().words());
        link.point_to(&mut parent.edit(), to);
        parent.applied(lsn);
        page.edit().set_node_flags(RETIRED);
        page.applied(lsn);
        // Last: from here on the old page may be allocated anew, by somebody who waits for its latch.
        drop(new.commit(lsn));
        Ok(Relocated::To(to))
    }
}

/// The pointer of an inner node that leads to the target, or to the head of its foster chain.
fn link_to(view: SlottedView<'_>, target: Target<'_>) -> Link {
    match node::position(view, target).checked_sub(1) {
        Some(before) => Link::Child(SlotIndex(before)),
        None => Link::Leftmost,
    }
}

/// The slot of the row, if it is there and its value has the page id at `offset`.
pub(crate) fn row_naming(
    view: SlottedView<'_>,
    key: &[u8],
    offset: usize,
    page: PageId,
) -> Option<SlotIndex> {
    let slot = view.find(key).ok()?;
    names(view, slot, offset, page).then_some(slot)
}

/// Whether the value of the slot has the page id at `offset`.
pub(crate) fn names(view: SlottedView<'_>, slot: SlotIndex, offset: usize, page: PageId) -> bool {
    let mut value = Vec::new();
    view.value_into(slot, &mut value);
    value.get(offset..).and_then(|rest| rest.first_chunk()) == Some(&page.0.to_le_bytes())
}
