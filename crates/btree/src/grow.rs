//! The root keeps its page: the tree grows by moving the root's content to a new child, and shrinks by taking its last
//! child's content back.

use foreshore_base::{PageId, Result, StorageError, TableId, limits::MAX_TREE_LEVELS};
use foreshore_latch::Patience;
use foreshore_pages::{ExclusivePage, NodeHeader, OptimisticPage, PageBuilder};
use foreshore_wal::Urgency;

use crate::{
    image::{self, misfit},
    merge::Zeal,
    node::{self, RETIRED, damaged},
    record,
    tree::Tree,
};

impl<'a> Tree<'a> {
    /// Moves the root's content to a new child, its only one.
    #[cold]
    pub(crate) fn grow(
        &self,
        patience: Patience<'_>,
        mut root: ExclusivePage<'a>,
        urgency: Urgency,
    ) -> Result<()> {
        let (outline, node, content) = image::whole(root.view())?;
        let level = outline.level + 1;
        if usize::from(level) >= MAX_TREE_LEVELS {
            let (limit, got) = (MAX_TREE_LEVELS as u64, u64::from(level) + 1);
            return Err(StorageError::beyond_limit("levels of a tree", limit, got));
        }
        if outline.foster.is_some() || outline.low.is_some() || outline.high.is_some() {
            return Err(damaged(self.root, "a root has no siblings"));
        }
        root.prepare(urgency)?;
        let new_page = self.env.allocate(patience, urgency, self.table, self.root)?;
        let child = new_page.id();
        let new_root = PageBuilder::new(&grown_root(self.table, level, child)).map_err(misfit(self.root))?;
        let head = record::structure(self.table, &[self.root, child], None);
        let lsn = self.env.append_system(urgency, record::GROW, &[&head, &node])?;
        let new_page = new_page.commit_with(lsn, |words| content.store(words));
        new_root.store(root.words());
        root.applied(lsn);
        drop(new_page);
        Ok(())
    }

    /// Takes back the content of the root's only child. The root is latched; its level is `level` + 1. Gives up where
    /// it only tidies, and would have to wait for the bitmap page.
    pub(crate) fn shrink(
        &self,
        patience: Patience<'_>,
        mut root: ExclusivePage<'a>,
        level: u8,
        zeal: Zeal,
    ) -> Result<()> {
        let id = root.view().leftmost_child();
        let mut child = self.child(patience, &root, id, level)?;
        if child.view().foster_child().is_some() || (zeal == Zeal::Pass && !self.env.has_room()) {
            return Ok(());
        }
        let (outline, node, content) = image::whole(child.view())?;
        if outline.low.is_some() || outline.high.is_some() {
            return Err(damaged(id, "an only child has no siblings"));
        }
        root.prepare(Urgency::Work)?;
        child.prepare(Urgency::Work)?;
        let Some(freeing) = self.free_merged(patience, id, zeal)? else { return Ok(()) };
        let head = record::structure(self.table, &[self.root, id], None);
        let lsn = self.env.append_system(Urgency::Work, record::SHRINK, &[&head, &node])?;
        content.store(root.words());
        root.applied(lsn);
        child.edit().set_node_flags(RETIRED);
        child.applied(lsn);
        freeing.commit(lsn);
        Ok(())
    }

    /// Latches a child of a latched parent. Latches are awaited from the top down and from the left to the right only
    /// (BTREE-1).
    pub(crate) fn child(
        &self,
        patience: Patience<'_>,
        parent: &ExclusivePage<'a>,
        id: PageId,
        level: u8,
    ) -> Result<ExclusivePage<'a>> {
        self.check_pointer(parent, id)?;
        let child = self.env.pool.exclusive_within(id, patience)?;
        self.check_child(&child, level)?;
        Ok(child)
    }

    /// As [`Tree::child`], if that needs no waiting and no read from the file.
    pub(crate) fn child_now(
        &self,
        parent: &ExclusivePage<'a>,
        id: PageId,
        level: u8,
    ) -> Result<Option<ExclusivePage<'a>>> {
        self.check_pointer(parent, id)?;
        let child = self.env.pool.optimistic_now(id).and_then(OptimisticPage::upgrade);
        child.map(|child| self.check_child(&child, level).map(|()| child)).transpose()
    }

    fn check_pointer(&self, parent: &ExclusivePage<'a>, id: PageId) -> Result<()> {
        if !id.is_some() || id == parent.id() || id == self.root {
            return Err(damaged(parent.id(), format!("it points to page {id}")));
        }
        Ok(())
    }

    fn check_child(&self, child: &ExclusivePage<'a>, level: u8) -> Result<()> {
        if !node::is_node(child.view(), self.table, level) {
            let detail = format!("it should be a node of table {} at level {level}", self.table);
            return Err(damaged(child.id(), detail));
        }
        Ok(())
    }
}

/// A root that has just grown to `level`.
pub(crate) fn grown_root(table: TableId, level: u8, child: PageId) -> NodeHeader<'static> {
    NodeHeader { table, level, leftmost: child, ..NodeHeader::default() }
}
