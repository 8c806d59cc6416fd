//! Condensing: a walk over the leaves that purges ghosts, merges neighbours which fit one page, and refills those that
//! have room from their neighbours (`refill.rs`). Writers come and go meanwhile; where they are in the way, the walk
//! goes on.

use std::mem;

use foreshore_base::Result;

use crate::{
    BTree,
    hold::HeldNode,
    merge::Zeal,
    node::{self, Target},
    refill::lacks_page,
    session::Session,
    tree::Tree,
};

/// What a part of the walk has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condensed {
    /// Leaves that were merged into others.
    pub merged: u64,
    /// Where the walk goes on; `None`: it is over.
    pub next: Option<Vec<u8>>,
}

impl BTree {
    /// Walks over at most `leaves` leaves, from that of `from` on, or from the first. Names of locks vanish only if
    /// nobody needs them, as always (BTREE-8).
    pub fn condense(&self, session: &impl Session, from: Option<&[u8]>, leaves: usize) -> Result<Condensed> {
        let tree = self.tree();
        let mut condensed = Condensed { merged: 0, next: from.map(<[u8]>::to_vec) };
        // No page for a cut: none is tried again until a merge has given one back, for each would log the page first.
        let mut has_page = true;
        for _ in 0..leaves {
            let target = condensed.next.as_deref().map_or(Target::First, Target::Key);
            tree.purge_leaf(session, target, Zeal::Compact)?;
            let mut cut = false;
            let next = loop {
                let Some(border) = tree.border_above(session, target)? else {
                    // The last leaf may be alone under its parent, or nearly empty.
                    condensed.merged += u64::from(tree.merge(session, target, 0, Zeal::Tidy)?);
                    break None;
                };
                // The neighbour first gets rid of its ghosts; then the leaf takes it in, if it can. What it takes in
                // with ghosts keeps them: its LSN is not settled any more (BTREE-14).
                tree.purge_leaf(session, Target::Key(&border), Zeal::Compact)?;
                if tree.merge(session, target, 0, Zeal::Compact)? {
                    has_page = true;
                    // What was cut off has the place of what was merged.
                    condensed.merged += u64::from(!mem::take(&mut cut));
                    continue;
                }
                if !cut && has_page {
                    match tree.cut_for_refill(session, target) {
                        Err(error) if lacks_page(&error) => has_page = false,
                        done => cut = done?,
                    }
                    if cut {
                        continue;
                    }
                }
                break tree.border_above(session, target)?;
            };
            // What was cut off and not merged is one leaf more.
            condensed.merged = condensed.merged.saturating_sub(u64::from(cut));
            condensed.next = next;
            if condensed.next.is_none() {
                break;
            }
        }
        Ok(condensed)
    }
}

impl Tree<'_> {
    /// The high key of the target's leaf: where the next one begins.
    fn border_above(&self, session: &impl Session, target: Target<'_>) -> Result<Option<Vec<u8>>> {
        let HeldNode { page, .. } = self.leaf_held(session.patience(), target)?;
        Ok(node::high_key(page.view()))
    }
}
