//! Reading the next batch: find the leaf, copy, lock, validate.

use std::ops::Bound;

use foreshore_base::{Lsn, PageId, SlotIndex, bounds::as_slice};
use foreshore_env::sabotage::{Fault, planted};
use foreshore_lock::KeyRef;
use foreshore_pages::SlottedView;

use super::{
    Cursor, Direction, LockKind, MOST_AHEAD, ahead::Ahead, batch::Batch, plan::Plan, scratch::Scratch,
};
use crate::{
    descend::{Landing, RESTARTS},
    error::Result,
    hold::HeldNode,
    node,
    session::Session,
    tree::Tree,
};

/// Keys to read at once, at most, where nothing has to be locked: at first, unless the range has an end; then the rest
/// of the leaf, since copying it in vain costs little.
const UNLOCKED_AHEAD: usize = 8;
/// How many slots are looked at for ghosts, and how many ghosts among them have a leaf tidied before it is read.
const LOOK_AHEAD: u16 = 16;
const MANY_GHOSTS: usize = 8;

impl Cursor {
    /// Reads and locks a batch from the near bound on.
    ///
    /// Locks are taken under a version that is validated afterwards (BTREE-5): what was locked was, at that moment,
    /// what lay in the range.
    #[inline]
    pub(super) fn fill(&mut self, session: &mut impl Session) -> Result<()> {
        let Cursor { ref tree, direction, kind, isolation, skips, ahead, .. } = *self;
        let Scratch { near, far, batch, read_ahead, .. } = &mut *self.scratch;
        // The leaf before had nothing of the range.
        let barren = batch.ends_leaf() && batch.records().is_empty();
        let (low, high) = direction.ends((as_slice(near), as_slice(far)));
        let unlocked_limit = match far {
            Bound::Unbounded if ahead == 1 => UNLOCKED_AHEAD,
            _ => usize::MAX,
        };
        let limit = ahead;
        let writes = session.chain().last != Lsn::ZERO;
        let plan = Plan {
            direction,
            kind,
            isolation,
            skips,
            low,
            high,
            limit,
            unlocked_limit,
            locks: true,
            barren,
            writes,
        };
        let hint = if batch.ends_leaf() { read_ahead.enter() } else { self.leaf };
        let tree = tree.tree();
        let (leaf, limit) = batch.fill(&tree, session, &plan, hint, read_ahead)?;
        if self.leaf != leaf && self.leaf.is_some() && batch.goes_on() {
            // The cursor has come from one leaf to another and goes on: it is a scan.
            tree.look_ahead(session.patience(), &plan, read_ahead);
        }
        if batch.ends_leaf() {
            tree.env.pool.prefetch(read_ahead.next());
        }
        self.leaf = leaf;
        // A cursor that is asked for more looks further ahead; ghosts and empty leaves do not count.
        if batch.has_live() && !skips {
            self.ahead = limit.saturating_mul(2).min(MOST_AHEAD);
        }
        Ok(())
    }
}

impl Batch {
    /// Reads by the plan, and locks what it reads if that has to be. Gives the leaf, and how many keys were asked for.
    #[inline(always)]
    fn fill(
        &mut self,
        tree: &Tree<'_>,
        session: &mut impl Session,
        plan: &Plan<'_>,
        hint: PageId,
        ahead: &mut Ahead,
    ) -> Result<(PageId, usize)> {
        let mut tidied = false;
        if tree.is_optimistic()
            && let Some(filled) = self.fill_optimistically(tree, session, plan, hint, ahead, &mut tidied)?
        {
            return Ok(filled);
        }
        self.fill_latched(tree, session, plan, tidied)
    }

    /// Without a latch, under a version that is validated afterwards; `None` when that has failed too often.
    #[inline]
    fn fill_optimistically(
        &mut self,
        tree: &Tree<'_>,
        session: &mut impl Session,
        plan: &Plan<'_>,
        hint: PageId,
        ahead: &mut Ahead,
        tidied: &mut bool,
    ) -> Result<Option<(PageId, usize)>> {
        let target = plan.target();
        for attempt in 0..RESTARTS {
            let hint = if attempt == 0 { tree.leaf_by_hint(hint, target) } else { None };
            let landing = match hint {
                Some(page) => Landing { page, foster: None },
                None => tree.find_leaf(session.patience(), target, plan.direction, ahead)?,
            };
            let page = landing.page;
            let stamp = page.stamp();
            let reads_unlocked =
                plan.kind == LockKind::Shared && !plan.skips && session.reads_unlocked(tree.table);
            let mut unlocked = reads_unlocked && session.is_settled(stamp.lsn());
            let limit = if unlocked { plan.unlocked_limit } else { plan.limit };
            self.collect(page.view(), &Plan { locks: !unlocked, limit, ..*plan });
            if !*tidied && self.is_littered(tree, session, page.id(), page.view(), plan) {
                *tidied = true;
                tree.tidy_before_scan(session, target);
                continue;
            }
            if unlocked && self.has_long_values() {
                unlocked = false;
                self.collect(page.view(), plan);
            }
            // Before nonsense is locked.
            if !page.validate() {
                continue;
            }
            self.check_order(page.id())?;
            unlocked = unlocked || (reads_unlocked && self.is_free(tree, session));
            if !unlocked {
                self.acquire_locks(tree, session, plan)?;
            }
            if page.validate() {
                self.kept = !unlocked;
                let foster = landing.foster.filter(|_| !session.has_remembered());
                if unlocked {
                    session.remember(tree.table, stamp)?;
                }
                tree.adopt_found(session.patience(), foster, target);
                return Ok(Some((page.id(), limit)));
            }
        }
        Ok(None)
    }

    /// Under a latch: locks are tried, and awaited only after the latch is released (BTREE-4).
    #[cold]
    fn fill_latched(
        &mut self,
        tree: &Tree<'_>,
        session: &mut impl Session,
        plan: &Plan<'_>,
        mut tidied: bool,
    ) -> Result<(PageId, usize)> {
        let target = plan.target();
        loop {
            let HeldNode { page, foster } = tree.leaf_held(session.patience(), target)?;
            self.collect(page.view(), plan);
            if !tidied && self.is_littered(tree, session, page.id(), page.view(), plan) {
                tidied = true;
                drop(page);
                tree.tidy_before_scan(session, target);
                continue;
            }
            self.check_order(page.id())?;
            let refused = self.try_acquire_locks(tree, session, plan)?;
            let leaf = page.id();
            drop(page);
            let Some(refused) = refused else {
                self.kept = true;
                session.after_unlatch(tree.table);
                tree.adopt_on_the_way(session, foster, target);
                return Ok((leaf, plan.limit));
            };
            let (key, mode) = self.lock(refused);
            session.acquire(tree.table, key, mode)?;
        }
    }

    /// Locks what it has read; may wait. Or the first record that is free.
    #[inline]
    fn acquire_locks(&mut self, tree: &Tree<'_>, session: &mut impl Session, plan: &Plan<'_>) -> Result<()> {
        if plan.skips {
            self.lock_one(tree, session)?;
            session.after_unlatch(tree.table);
            return Ok(());
        }
        for index in 0..self.lock_count() {
            let (key, mode) = self.lock(index);
            session.acquire(tree.table, key, mode)?;
        }
        Ok(())
    }

    /// Locks what it has read, in its order, up to the first lock that is not free, and says which that is. Or the
    /// first record that is free; then there is none.
    fn try_acquire_locks(
        &mut self,
        tree: &Tree<'_>,
        session: &mut impl Session,
        plan: &Plan<'_>,
    ) -> Result<Option<usize>> {
        if plan.skips {
            return self.lock_one(tree, session).map(|()| None);
        }
        for index in 0..self.lock_count() {
            let (key, mode) = self.lock(index);
            if !session.try_acquire(tree.table, key, mode)? {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Locks the first record that is free, and keeps it alone; if there is none, all are passed over. Waits for
    /// nobody.
    fn lock_one(&mut self, tree: &Tree<'_>, session: &mut impl Session) -> Result<()> {
        for index in 0..self.lock_count() {
            let (key, mode) = self.lock(index);
            if session.try_acquire(tree.table, key, mode)? || planted(Fault::LockedNotSkipped) {
                self.keep(index);
                return Ok(());
            }
        }
        self.pass_all();
        Ok(())
    }

    /// Whether no lock stands on anything that the batch has read, so that it is committed and needs no locks (READ-2).
    /// Long values need them: their chunks lie in other leaves.
    fn is_free(&mut self, tree: &Tree<'_>, session: &mut impl Session) -> bool {
        !self.has_long_values()
            && (0..self.lock_count()).all(|index| session.probe(tree.table, self.lock(index).0))
    }

    fn check_order(&self, leaf: PageId) -> Result<()> {
        if self.is_disordered() {
            return Err(node::damaged(leaf, "its records are out of order, or not whole").into());
        }
        Ok(())
    }

    /// Whether most of what would be read next is deleted, and could be gone for good. Once this transaction has locked
    /// the ghosts it is too late. Or whether this is the second leaf in a row that has nothing at all: both need not be
    /// there.
    #[inline]
    fn is_littered(
        &self,
        tree: &Tree<'_>,
        session: &impl Session,
        leaf: PageId,
        view: SlottedView<'_>,
        plan: &Plan<'_>,
    ) -> bool {
        let suspicious = self.has_ghosts() || plan.barren && self.records().is_empty();
        suspicious && !session.is_remembered(leaf) && is_littered(tree, session, view, plan)
    }
}

/// See [`Batch::is_littered`]. A look that is not validated: the worst that comes of it is a needless visit.
#[cold]
fn is_littered(tree: &Tree<'_>, session: &impl Session, view: SlottedView<'_>, plan: &Plan<'_>) -> bool {
    let count = view.slot_count();
    let looked = match plan.direction {
        Direction::Ascending => {
            let (near, _) = plan.low_end(view);
            near..count.min(near.saturating_add(LOOK_AHEAD))
        }
        Direction::Descending => {
            let (near, _) = plan.high_end(view);
            near.saturating_sub(LOOK_AHEAD)..near
        }
    };
    let mut ghosts = looked.map(SlotIndex).filter(|slot| view.is_ghost(*slot));
    let first = ghosts.next();
    let ghosts = usize::from(first.is_some()) + ghosts.count();
    if ghosts < MANY_GHOSTS && ghosts < usize::from(count) {
        return false;
    }
    tree.env.is_tidied()
        && session.may_purge(tree.table, view.lsn())
        && first
            .is_none_or(|first| !session.has_requests(tree.table, KeyRef::Key(&node::key_of(view, first))))
}
