//! Tidying: purging ghosts and merging leaves where somebody came by.

use foreshore_base::{Lsn, Result, SlotIndex, TableId};
use foreshore_lock::KeyRef;
use foreshore_pages::ExclusivePage;

use crate::{
    merge::Zeal,
    node::{self, Target},
    purge,
    session::Session,
    tree::Tree,
};

/// A leaf with at most twice this many records is tidied after every delete; a larger one when the number of its ghosts
/// is a multiple of this.
const TIDY_EVERY: usize = 8;
/// Leaves that a delete tidies on each side of its own, at most.
const LEAVES_BESIDE: usize = 16;
/// Leaves deserted earlier that it tidies: more than one, so that none stays for long.
const LEAVES_BEFORE: usize = 4;
/// Leaves that a scan has merged before it reads on, at most.
const LEAVES_BEFORE_SCAN: usize = 256;

/// The low fence and the high key of a node.
type Fences = (Option<Vec<u8>>, Option<Vec<u8>>);

impl<'a> Tree<'a> {
    /// Purges ghosts in the leaf of `target`, and merges the leaf if it is nearly empty. Gives up where it would have
    /// to wait for a latch or for room in the log, and changes no leaf that the session has remembered. Whether the
    /// leaf was merged with another.
    pub(crate) fn maintain(&self, session: &impl Session, target: Target<'_>) -> Result<bool> {
        let is_due = self.purge_leaf(session, target, Zeal::Pass)?;
        if is_due { self.merge(session, target, 0, Zeal::Pass) } else { Ok(false) }
    }

    /// The first half of that; a compaction waits for room in the log. Whether the leaf is nearly empty.
    pub(crate) fn purge_leaf(&self, session: &impl Session, target: Target<'_>, zeal: Zeal) -> Result<bool> {
        if !self.finds_room(session.patience(), zeal)? {
            return Ok(false);
        }
        let landing = self.leaf(session.patience(), target)?;
        let Some(mut page) = landing.page.upgrade() else { return Ok(false) };
        if session.is_remembered(page.id()) {
            return Ok(false);
        }
        self.purge(session, &mut page)?;
        let underfull = self.is_underfull(page.view());
        drop(page);
        self.adopt_on_the_way(session, landing.foster, target);
        Ok(underfull)
    }

    /// After the delete of `key`, with its leaf still latched, whose LSN was `before`: when half of the leaf is ghosts,
    /// those of earlier transactions go; and when nothing else is left, the leaf is merged, or those beside it are.
    /// Perhaps nobody else comes by, so it waits for room in the log, with nothing latched and as long as the session's
    /// patience lasts. Errors are ignored: the delete has succeeded.
    pub(crate) fn tidy_after_delete(
        &self,
        session: &impl Session,
        mut page: ExclusivePage<'a>,
        before: Lsn,
        key: &[u8],
    ) {
        let count = usize::from(page.view().slot_count());
        let ghosts = purge::ghosts(page.view()).count();
        let deserted = ghosts == count;
        let due = deserted || count <= 2 * TIDY_EVERY || ghosts.is_multiple_of(TIDY_EVERY);
        if ghosts * 2 < count || !due {
            return;
        }
        let needless = |ghost: &[u8]| ghost != key && !session.has_requests(self.table, KeyRef::Key(ghost));
        let purged = match session.may_purge(self.table, before) {
            true => self.purge_where(&mut page, &needless).unwrap_or(0),
            false => 0,
        };
        let underfull = purged > 0 && self.is_underfull(page.view());
        if !underfull && !deserted {
            return;
        }
        let fences = (node::low_fence(page.view()), node::high_key(page.view()));
        drop(page);
        let merged = underfull.then(|| self.merge(session, Target::Key(key), 0, Zeal::Tidy));
        // The chunks of long values go behind their commit (BTREE-14).
        if self.table == TableId::OVERFLOW {
            return;
        }
        // What is alone has no other leaf to be merged with.
        let stays = deserted && !matches!(merged, Some(Ok(true))) && fences != (None, None);
        let low = fences.0.clone();
        if let Some(_leave) = self.env.may_tidy() {
            self.tidy_earlier(session);
            if matches!(merged, None | Some(Ok(false))) {
                let _ = self.tidy_beside(session, fences);
            }
        }
        if stays {
            self.env.deserted.add(self.table, low);
        }
    }

    /// Where ghosts go late, because commits are not durable at once or transactions take their time, those beside are
    /// too young still, and those that could go are farther away: the leaves that were deserted first.
    #[cold]
    pub(crate) fn tidy_earlier(&self, session: &impl Session) {
        let leaves: Vec<_> = (0..LEAVES_BEFORE).map_while(|_| self.env.deserted.take(self.table)).collect();
        for low in leaves {
            let target = low.as_deref().map_or(Target::First, Target::Key);
            let stays = self.look_at_deserted(session, target).and_then(|found| match found {
                Some((_, true)) => {
                    self.maintain(session, target)?;
                    self.look_at_deserted(session, target)
                }
                found => Ok(found),
            });
            // Its ghosts cannot go yet, or not all of them, or somebody was in the way. It may begin elsewhere now.
            match stays {
                Ok(None | Some(((None, None), _))) => {}
                Ok(Some(((low, _), _))) => self.env.deserted.add(self.table, low),
                Err(_) => self.env.deserted.add(self.table, low),
            }
        }
    }

    /// On both sides of a leaf that was consumed there may be others, with nothing in them but ghosts that could not go
    /// when the last record did: no delete will come to them any more. They are tidied now, as far as their ghosts can
    /// go.
    #[cold]
    fn tidy_beside(&self, session: &impl Session, (mut low, mut high): Fences) -> Result<()> {
        for _ in 0..LEAVES_BESIDE {
            let Some(border) = low else { break };
            (low, _) = self.tidy_deserted(session, Target::Below(&border))?;
        }
        for _ in 0..LEAVES_BESIDE {
            let Some(border) = high else { break };
            (_, high) = self.tidy_deserted(session, Target::Key(&border))?;
        }
        Ok(())
    }

    /// Tidies the leaf of `target` if it is in the pool, and has no record but ghosts. Gives the fences that it had
    /// then.
    fn tidy_deserted(&self, session: &impl Session, target: Target<'_>) -> Result<Fences> {
        let Some((fences, can_go)) = self.look_at_deserted(session, target)? else {
            return Ok(Fences::default());
        };
        if can_go {
            self.maintain(session, target)?;
        }
        Ok(fences)
    }

    /// The fences of the leaf of `target`, and whether its ghosts can go, if it is in the pool and has no other record.
    fn look_at_deserted(&self, session: &impl Session, target: Target<'_>) -> Result<Option<(Fences, bool)>> {
        let is_there = self.descend(session.patience(), target, 1)?.is_some_and(|landing| {
            let view = landing.page.view();
            let child = node::child_before(view, node::position(view, target));
            landing.page.validate() && self.env.pool.optimistic_now(child).is_some()
        });
        if !is_there {
            return Ok(None);
        }
        let leaf = self.leaf(session.patience(), target)?.page;
        let view = leaf.view();
        let count = view.slot_count();
        let deserted = purge::ghosts(view).count() == usize::from(count);
        let fences = (node::low_fence(view), node::high_key(view));
        let first = (count > 0).then(|| node::key_of(view, SlotIndex(0)));
        let may_purge = session.may_purge(self.table, view.lsn());
        if !deserted || !leaf.validate() {
            return Ok(None);
        }
        // Where the first one cannot go, the others hardly can.
        let can_go =
            may_purge && first.is_none_or(|first| !session.has_requests(self.table, KeyRef::Key(&first)));
        Ok(Some((fences, can_go)))
    }

    /// Before a scan reads a leaf of ghosts: what it merges the leaf with may be another one.
    #[cold]
    pub(crate) fn tidy_before_scan(&self, session: &impl Session, target: Target<'_>) {
        if let Some(_leave) = self.env.may_tidy() {
            let merges = || self.maintain(session, target).unwrap_or(false);
            (0..LEAVES_BEFORE_SCAN).take_while(|_| merges()).for_each(drop);
        }
    }
}
