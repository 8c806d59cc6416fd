//! Taking a dropped tree apart, page by page. Nobody locks anything in the tree any more, and nobody will: ids of
//! tables are never given twice. A thread that looks what a transaction would touch takes no locks (TXN-19), and may
//! still be in it: it finds a page that is no node of the tree, as behind a merge, and begins anew or fails, and
//! nothing that it saw is believed. Each step is a system transaction that frees the last page of the tree, a leaf or
//! an inner node without children, and takes the pointer to it out of its parent; so what is left is a tree of pages at
//! any time, though not one that a search could use. The root goes last.

use foreshore_base::{PageId, PageSet, Result, SlotIndex, limits::MAX_TREE_LEVELS};
use foreshore_latch::Patience;
use foreshore_pages::{ExclusivePage, PageWords, SlottedMut, SlottedView};
use foreshore_wal::Urgency;

use crate::{
    BTree,
    error::TreeError,
    node::{self, RETIRED, damaged},
    overflow::Reference,
    record,
    session::Session,
    tree::Tree,
};

/// Steps from the root to the last page, foster chains included, until it is damage and not depth.
const MAX_STEPS: usize = MAX_TREE_LEVELS + 1024;
const LOOP: &str = "its pages form a loop";

/// What a step of [`BTree::reap`] did.
#[derive(Debug, PartialEq, Eq)]
pub enum Reaped {
    /// It freed a page.
    Page,
    /// It freed nothing: this leaf refers to long values, which are to be deleted first
    /// ([`BTree::delete_long_value`]).
    LongValues {
        /// The leaf, for the next step.
        leaf: PageId,
        /// The references.
        references: Vec<Vec<u8>>,
    },
    /// There are no pages left.
    Gone,
}

/// What is left of a dropped tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// Pages.
    pub pages: u64,
    /// Records whose value is in the overflow table, or was.
    pub long_values: u64,
}

/// The pointer to a page, in the page above it or to its left. In a record it takes two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Foster,
    Leftmost,
    Child(SlotIndex),
}

impl Link {
    const FOSTER: u16 = u16::MAX;
    const LEFTMOST: u16 = u16::MAX - 1;

    /// The last pointer of a node.
    fn last(view: SlottedView<'_>) -> Option<Link> {
        if view.foster_child().is_some() {
            return Some(Link::Foster);
        }
        if view.level() == 0 {
            return None;
        }
        match view.slot_count().checked_sub(1) {
            Some(last) => Some(Link::Child(SlotIndex(last))),
            None => view.leftmost_child().is_some().then_some(Link::Leftmost),
        }
    }

    fn target(self, view: SlottedView<'_>) -> PageId {
        match self {
            Link::Foster => view.foster_child(),
            Link::Leftmost => view.leftmost_child(),
            Link::Child(slot) => view.child(slot),
        }
    }

    pub(crate) fn cut(self, page: &mut SlottedMut<'_>) {
        match self {
            Link::Foster => page.set_foster(PageId::NONE),
            Link::Leftmost => page.set_leftmost(PageId::NONE),
            Link::Child(slot) => page.remove(slot),
        }
    }

    /// Has the pointer lead to another page.
    pub(crate) fn point_to(self, page: &mut SlottedMut<'_>, target: PageId) {
        match self {
            Link::Foster => page.set_foster(target),
            Link::Leftmost => page.set_leftmost(target),
            Link::Child(slot) => page.set_child(slot, target),
        }
    }

    pub(crate) fn code(self) -> u16 {
        match self {
            Link::Foster => Link::FOSTER,
            Link::Leftmost => Link::LEFTMOST,
            Link::Child(slot) => slot.0,
        }
    }

    pub(crate) fn from_code(code: u16) -> Link {
        match code {
            Link::FOSTER => Link::Foster,
            Link::LEFTMOST => Link::Leftmost,
            slot => Link::Child(SlotIndex(slot)),
        }
    }

    /// Whether the pointer is there and leads to `page`.
    pub(crate) fn leads_to(self, view: SlottedView<'_>, page: PageId) -> bool {
        let there = !matches!(self, Link::Child(slot) if slot.0 >= view.slot_count());
        there && self.target(view) == page
    }
}

impl BTree {
    /// One step of taking the tree apart. Nobody may use the tree any more. `cleared` is the leaf whose long values the
    /// caller has deleted after the step before, if that asked for it.
    pub fn reap(&self, cleared: PageId) -> Result<Reaped> {
        let tree = self.tree();
        if !tree.has_root()? {
            return Ok(Reaped::Gone);
        }
        let mut parent: Option<(ExclusivePage<'_>, Link)> = None;
        let mut page = tree.env.pool.exclusive(tree.root)?;
        for _ in 0..MAX_STEPS {
            let view = page.view();
            let Some(link) = Link::last(view) else {
                return tree.free_last(parent, page, cleared);
            };
            let level = if link == Link::Foster { view.level() } else { view.level() - 1 };
            // It is latched by this thread.
            if parent.as_ref().is_some_and(|(above, _)| above.id() == link.target(view)) {
                return Err(damaged(tree.root, LOOP));
            }
            let child = tree.child(Patience::ENDLESS, &page, link.target(view), level)?;
            parent = Some((page, link));
            page = child;
        }
        Err(damaged(tree.root, LOOP))
    }

    /// Deletes the last chunks of a long value of a tree that is being taken apart: of its first `left`, or of all of
    /// it where that is `None`; in the name of `session`, which must end before the next part. Gives how many are left;
    /// `None` if it is gone already. All long values of a leaf, or one alone, may be more than the log has room for.
    pub fn delete_long_value(
        &self,
        session: &mut impl Session,
        reference: &[u8],
        left: Option<u32>,
    ) -> std::result::Result<Option<u32>, TreeError> {
        match Reference::parse(reference) {
            Some(reference) => self.tree().delete_part(session, reference, left),
            None => Ok(None),
        }
    }

    /// Counts what is left of a tree that is being taken apart, and shows its pages. Nobody may go on with that
    /// meanwhile.
    pub fn remains(&self, visit: &mut dyn FnMut(PageId, &PageWords) -> Result<()>) -> Result<Remains> {
        let tree = self.tree();
        let mut remains = Remains::default();
        if !tree.has_root()? {
            return Ok(remains);
        }
        let (mut met, mut work) = (PageSet::default(), vec![tree.root]);
        while let Some(id) = work.pop() {
            let page = tree.env.pool.shared(id)?;
            let view = page.view();
            if !met.insert(id) || !node::is_node(view, tree.table, view.level()) {
                return Err(damaged(id, format!("it should be a page of the dropped table {}", tree.table)));
            }
            node::inspect(view)?;
            remains.pages += 1;
            remains.long_values += long_values(view).count() as u64;
            let children = view.slot_indices().filter(|_| view.level() > 0).map(|slot| view.child(slot));
            work.extend(
                children.chain([view.foster_child(), view.leftmost_child()]).filter(|id| id.is_some()),
            );
            visit(id, page.words())?;
        }
        Ok(remains)
    }
}

/// References to long values in a leaf. A ghost's were deleted with it.
fn long_values(view: SlottedView<'_>) -> impl Iterator<Item = SlotIndex> {
    let is_leaf = view.level() == 0;
    view.slot_indices().filter(move |slot| {
        let flags = view.slot(*slot).flags();
        is_leaf && flags.overflow && !flags.ghost
    })
}

impl<'a> Tree<'a> {
    /// Whether the root is still a page of this tree: freed, it may be anybody's.
    fn has_root(&self) -> Result<bool> {
        if !self.env.pool.is_allocated(self.root)? {
            return Ok(false);
        }
        let root = self.env.pool.shared(self.root)?;
        Ok(node::is_node(root.view(), self.table, root.view().level()))
    }

    /// Frees a page without children. Its bytes stay as they are: a thread that looks at them is told by the level
    /// above.
    fn free_last(
        &self,
        mut parent: Option<(ExclusivePage<'a>, Link)>,
        mut page: ExclusivePage<'a>,
        cleared: PageId,
    ) -> Result<Reaped> {
        let leaf = page.id();
        if leaf != cleared {
            let references: Vec<_> = long_values(page.view()).map(|slot| value(page.view(), slot)).collect();
            if !references.is_empty() {
                return Ok(Reaped::LongValues { leaf, references });
            }
        }
        let above = parent.as_ref().map_or(PageId::NONE, |(parent, _)| parent.id());
        let code = parent.as_ref().map_or(0, |(_, link)| link.code());
        let head = record::structure(self.table, &[above, leaf], Some(code));
        let (changed, link) = match &mut parent {
            Some((parent, link)) => (parent, Some(*link)),
            None => (&mut page, None),
        };
        changed.prepare(Urgency::Work)?;
        let freeing = self.env.pool.free_page_within(leaf, Patience::ENDLESS)?;
        let lsn = self.env.append_system(Urgency::Work, record::REAP, &[&head])?;
        match link {
            Some(link) => link.cut(&mut changed.edit()),
            // The root says that it is gone, because nothing else does: see `has_root`.
            None => changed.edit().set_node_flags(RETIRED),
        }
        changed.applied(lsn);
        freeing.commit(lsn);
        Ok(Reaped::Page)
    }
}

fn value(view: SlottedView<'_>, slot: SlotIndex) -> Vec<u8> {
    let mut value = Vec::new();
    view.value_into(slot, &mut value);
    value
}
