//! The way from the root down, by optimistic lock coupling.
//!
//! A step takes the version of the next node, then validates the node that it came from: so the pointer still stood
//! when the next node's version was taken, and what the descent finds there under that version belongs to it. Nothing
//! is written to shared memory. When validations keep failing the descent couples shared latches instead; so it does at
//! once, or couples exclusive ones, in the other modes (`hold.rs`).

use foreshore_base::{PageId, Result, SlotIndex, StorageError, limits::MAX_TREE_LEVELS};
use foreshore_latch::Patience;
use foreshore_pages::{ExclusivePage, OptimisticPage, SlottedView};

use crate::{
    hold::HeldNode,
    look::Place,
    node::{self, Hop, Target, damaged},
    session::{Finger, Session},
    tree::Tree,
    write::Verb,
};

/// Failed validations until latches are taken.
pub(crate) const RESTARTS: u32 = 12;
/// Steps of a descent, foster chains included, until it is damage (a loop) and not depth. Chains are kept short by
/// adoption: each structure change tries, and one that meets a chain insists (`adopt.rs`).
const MAX_STEPS: usize = MAX_TREE_LEVELS + 1024;

/// Where a descent ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Landing<'a> {
    /// The node, with the version under which it was found to be the one.
    pub(crate) page: OptimisticPage<'a>,
    /// The lowest level at which the descent went through a foster child.
    pub(crate) foster: Option<u8>,
}

/// How an optimistic descent ended.
enum Descent<'a, T> {
    Landed(Landing<'a>, T),
    /// The tree has no such level.
    TooHigh,
    /// Something changed on the way.
    Restart,
}

impl<'a> Tree<'a> {
    /// The leaf of `target`.
    #[inline]
    pub(crate) fn leaf(&self, patience: Patience<'_>, target: Target<'_>) -> Result<Landing<'a>> {
        Ok(self.leaf_seen(patience, target, |_| ())?.0)
    }

    /// The leaf of `target` and what `look` saw there, at the leaf's version. It looks before the fences are, which lie
    /// in lines of their own: so a search need not wait for them, and what it saw of a page of nonsense is not given.
    #[inline]
    pub(crate) fn leaf_seen<T>(
        &self,
        patience: Patience<'_>,
        target: Target<'_>,
        look: impl Fn(SlottedView<'_>) -> T,
    ) -> Result<(Landing<'a>, T)> {
        match self.descend_seen(patience, target, 0, look)? {
            Some(landed) => Ok(landed),
            None => Err(damaged(self.root, "the tree has no leaves")),
        }
    }

    /// The leaf of an earlier read, or one that a parent named, if it still is the target's; to be validated after use.
    #[inline]
    pub(crate) fn leaf_by_hint(&self, hint: PageId, target: Target<'_>) -> Option<OptimisticPage<'a>> {
        if !hint.is_some() {
            return None;
        }
        // Whatever the page is now: a node in use that encloses the target is the one (BTREE-6).
        let page = self.env.pool.optimistic_now(hint)?;
        (node::is_node(page.view(), self.table, 0) && target.lies_in(page.view())).then_some(page)
    }

    /// The leaf of `key` and its place there, if the session was there before: a node in use at this level that
    /// encloses the key is the one (BTREE-6), however it was found. When the page is something else by now, or not in
    /// the pool, a descent is due.
    #[inline]
    pub(crate) fn place_at_finger(
        &self,
        session: &impl Session,
        key: &[u8],
        verb: Verb,
    ) -> Option<(Landing<'a>, Place)> {
        let Finger { leaf, slot, found } = session.finger(self.table)?;
        if !self.is_optimistic() {
            return None;
        }
        let page = self.env.pool.optimistic_now(leaf)?;
        let view = page.view();
        if !node::is_node(view, self.table, 0) {
            return None;
        }
        // A transaction that changes a record has read it before, as a rule.
        let read_before = if verb == Verb::Insert { None } else { Place::at(view, slot, key) };
        let unchanged = found == Some(page.at_version());
        let place = match read_before {
            // The fences were looked at when it was found. Other records lie between them on sound pages only.
            Some(place) if unchanged => place,
            None if unchanged && verb.may_add() && view.ends_below(slot, key) => {
                Place::Absent(SlotIndex(slot.0 + 1))
            }
            _ if !view.encloses(key) => return None,
            Some(place) => place,
            // A transaction that adds record after record does it in ascending order, as a rule.
            None if verb.may_add() => Place::from_end(view, key),
            None => Place::of(view, key),
        };
        page.validate().then_some((Landing { page, foster: None }, place))
    }

    /// The node of `target` at `level`; `None` when the root is below that level.
    #[inline]
    pub(crate) fn descend(
        &self,
        patience: Patience<'_>,
        target: Target<'_>,
        level: u8,
    ) -> Result<Option<Landing<'a>>> {
        Ok(self.descend_seen(patience, target, level, |_| ())?.map(|(landing, ())| landing))
    }

    #[inline]
    fn descend_seen<T>(
        &self,
        patience: Patience<'_>,
        target: Target<'_>,
        level: u8,
        look: impl Fn(SlottedView<'_>) -> T,
    ) -> Result<Option<(Landing<'a>, T)>> {
        if self.is_optimistic() {
            for _ in 0..RESTARTS {
                match self.descend_once(patience, target, level, &look)? {
                    Descent::Landed(landing, seen) => return Ok(Some((landing, seen))),
                    Descent::TooHigh => return Ok(None),
                    Descent::Restart => {}
                }
            }
        }
        let held = self.descend_held(patience, target, level)?;
        Ok(held.map(|HeldNode { page, foster }| {
            let seen = look(page.view());
            (Landing { page: page.release(), foster }, seen)
        }))
    }

    #[inline]
    fn descend_once<T>(
        &self,
        patience: Patience<'_>,
        target: Target<'_>,
        level: u8,
        look: impl Fn(SlottedView<'_>) -> T,
    ) -> Result<Descent<'a, T>> {
        let mut page = self.env.pool.optimistic_within(self.root, patience)?;
        let mut at = page.view().level();
        if at < level {
            return Ok(if page.validate() { Descent::TooHigh } else { Descent::Restart });
        }
        let mut foster = None;
        for _ in 0..MAX_STEPS {
            let view = page.view();
            if !self.is_sound(view, at) {
                if page.validate() {
                    return Err(self.unsound(page.id(), view, at));
                }
                return Ok(Descent::Restart);
            }
            let (next, next_level) = match node::hop(view, target, at == level) {
                Hop::Here => {
                    let seen = look(view);
                    let found = target.lies_in(view);
                    if !page.validate() {
                        return Ok(Descent::Restart);
                    }
                    if !found {
                        return Err(damaged(page.id(), "its fences do not enclose what its parent says"));
                    }
                    return Ok(Descent::Landed(Landing { page, foster }, seen));
                }
                Hop::Foster(next) => {
                    foster = Some(at);
                    (next, at)
                }
                Hop::Child(next) => (next, at - 1),
            };
            let from = page;
            page = match self.env.pool.optimistic_now(next) {
                Some(fetched) if self.leads_down(from.id(), next) => fetched,
                // A pointer that may be nonsense is not followed out of the pool: nonsense costs a read from the file.
                _ if !from.validate() => return Ok(Descent::Restart),
                _ => match self.fetch(from.id(), next, |id| self.env.pool.optimistic_within(id, patience)) {
                    // An error is genuine only if the pointer is.
                    Err(_) if !from.validate() => return Ok(Descent::Restart),
                    fetched => fetched?,
                },
            };
            // After the next node's version was taken: then the pointer stood at that time (BTREE-3).
            if !from.validate() {
                return Ok(Descent::Restart);
            }
            at = next_level;
        }
        Err(damaged(page.id(), "its foster chain does not end"))
    }

    /// [`Tree::descend`] under latches: the next node is latched before the one that points to it is released. The node
    /// where it ends stays latched.
    #[cold]
    pub(crate) fn descend_held(
        &self,
        patience: Patience<'_>,
        target: Target<'_>,
        level: u8,
    ) -> Result<Option<HeldNode<'a>>> {
        let mut page = self.hold(patience, self.root)?;
        let mut at = page.view().level();
        if at < level {
            return Ok(None);
        }
        let mut foster = None;
        for _ in 0..MAX_STEPS {
            let view = page.view();
            if !self.is_sound(view, at) {
                return Err(self.unsound(page.id(), view, at));
            }
            let next = match node::hop(view, target, at == level) {
                Hop::Here if target.lies_in(view) => {
                    return Ok(Some(HeldNode { page, foster }));
                }
                Hop::Here => {
                    return Err(damaged(page.id(), "its fences do not enclose what its parent says"));
                }
                Hop::Foster(next) => {
                    foster = Some(at);
                    next
                }
                Hop::Child(next) => {
                    at -= 1;
                    next
                }
            };
            page = self.fetch(page.id(), next, |id| self.hold(patience, id))?;
        }
        Err(damaged(page.id(), "its foster chain does not end"))
    }

    /// Whether a pointer can be one to a node below or beside the one that it stands in.
    #[inline]
    fn leads_down(&self, from: PageId, to: PageId) -> bool {
        to.is_some() && to != from && to != self.root
    }

    /// Follows a pointer that may be damaged.
    #[inline]
    pub(crate) fn fetch<P>(
        &self,
        from: PageId,
        to: PageId,
        get: impl FnOnce(PageId) -> Result<P>,
    ) -> Result<P> {
        if !self.leads_down(from, to) {
            return Err(damaged(from, format!("it points to page {to}")));
        }
        get(to)
    }

    #[inline]
    fn is_sound(&self, view: SlottedView<'_>, level: u8) -> bool {
        node::is_node(view, self.table, level) && usize::from(level) < MAX_TREE_LEVELS
    }

    #[cold]
    fn unsound(&self, page: PageId, view: SlottedView<'_>, level: u8) -> StorageError {
        let (kind, table, found) = (view.kind(), view.table(), view.level());
        damaged(
            page,
            format!(
                "it should be a node of table {} at level {level}, it is {kind:?} of table {table} at level {found}",
                self.table
            ),
        )
    }

    /// Latches a node that a descent landed on; `None` when `target` lies elsewhere by now.
    #[inline]
    pub(crate) fn latch(
        &self,
        patience: Patience<'_>,
        page: OptimisticPage<'a>,
        target: Target<'_>,
        level: u8,
    ) -> Result<Option<ExclusivePage<'a>>> {
        match page.upgrade() {
            Some(latched) => Ok(Some(latched)),
            None => self.latch_slowly(patience, page.id(), target, level),
        }
    }

    /// Waits for the node's latch. Whatever happened meanwhile, a node in use at this level that encloses the target is
    /// the one (BTREE-6).
    #[cold]
    pub(crate) fn latch_slowly(
        &self,
        patience: Patience<'_>,
        page: PageId,
        target: Target<'_>,
        level: u8,
    ) -> Result<Option<ExclusivePage<'a>>> {
        let latched = match self.env.pool.exclusive_within(page, patience) {
            Ok(latched) => latched,
            // Merged away, perhaps never written since: the next descent says whether it is damage.
            Err(StorageError::Corrupted { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let here = node::is_node(latched.view(), self.table, level) && target.lies_in(latched.view());
        Ok(here.then_some(latched))
    }
}
