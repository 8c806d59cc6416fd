//! Tidying: purging ghosts and merging leaves where somebody came by.

use foreshore_base::{Lsn, Result};
use foreshore_lock::KeyRef;
use foreshore_pages::ExclusivePage;

use crate::{node::Target, purge, session::Session, tree::Tree};

/// A leaf with fewer records is tidied after every delete; one with more after every so many.
const TIDY_EVERY: usize = 8;

impl<'a> Tree<'a> {
    /// Purges ghosts in the leaf of `target`, and merges the leaf if it is nearly empty. Gives up where it would have to
    /// wait for a latch. Whether the leaf was merged with another.
    pub(crate) fn maintain(&self, session: &impl Session, target: Target<'_>) -> Result<bool> {
        if self.purge_leaf(session, target)? { self.merge(session, target, 0) } else { Ok(false) }
    }

    /// The first half of that. Whether the leaf is nearly empty.
    pub(crate) fn purge_leaf(&self, session: &impl Session, target: Target<'_>) -> Result<bool> {
        let landing = self.leaf(session.patience(), target)?;
        let Some(mut page) = landing.page.upgrade() else { return Ok(false) };
        self.purge(session, &mut page)?;
        let underfull = self.is_underfull(page.view());
        drop(page);
        self.adopt_on_the_way(session.patience(), landing.foster, target);
        Ok(underfull)
    }

    /// After the delete of `key`, with its leaf still latched, whose LSN was `before`: when half of the leaf is ghosts, those of
    /// earlier transactions go. It is nobody's duty, so failure is nobody's failure.
    pub(crate) fn tidy_after_delete(
        &self,
        session: &impl Session,
        mut page: ExclusivePage<'a>,
        before: Lsn,
        key: &[u8],
    ) {
        let count = usize::from(page.view().slot_count());
        let ghosts = purge::ghosts(page.view()).count();
        let due = count <= 2 * TIDY_EVERY || ghosts.is_multiple_of(TIDY_EVERY);
        if ghosts * 2 < count || !due || !session.may_purge(self.table, before) {
            return;
        }
        let needless = |ghost: &[u8]| ghost != key && !session.has_requests(self.table, KeyRef::Key(ghost));
        let purged = self.purge_where(&mut page, &needless).unwrap_or(0);
        let underfull = purged > 0 && self.is_underfull(page.view());
        drop(page);
        if underfull {
            let _ = self.merge(session, Target::Key(key), 0);
        }
    }

    /// Before a scan reads a leaf of ghosts.
    #[cold]
    pub(crate) fn tidy_before_scan(&self, session: &impl Session, target: Target<'_>) {
        if let Some(_leave) = self.env.may_tidy() {
            let _ = self.maintain(session, target);
        }
    }
}
