//! Adoption: the parent gets a separator and a pointer to a foster child, the foster parent loses its pointer.
//!
//! A thread that splits a node has the new one adopted, waiting for latches if need be; one that passes through a
//! foster child on the way tries it too. So a chain is not longer than the structure changes under way.

use foreshore_base::{PageId, Result};
use foreshore_latch::Patience;
use foreshore_pages::{ExclusivePage, RecordFlags, SlottedView};
use foreshore_wal::Urgency;

use crate::{
    image::child_value,
    node::{self, CHILD_BYTES, Hop, Target, damaged},
    record,
    session::Session,
    tree::Tree,
};

/// Adoptions in a row: others may split as fast as this adopts.
const MAX_ADOPTIONS: usize = 64;

impl<'a> Tree<'a> {
    /// After an operation: adopts the foster child that its descent went through, if that needs no waiting. Errors are
    /// ignored: the operation has succeeded, and the next one that passes tries again. Not where the session has
    /// remembered leaves: an adoption changes a leaf, perhaps one of them.
    #[inline]
    pub(crate) fn adopt_on_the_way(&self, session: &impl Session, foster: Option<u8>, target: Target<'_>) {
        self.adopt_found(session.patience(), foster.filter(|_| !session.has_remembered()), target);
    }

    /// The same for a session that had remembered no leaf before this operation.
    #[inline]
    pub(crate) fn adopt_found(&self, patience: Patience<'_>, foster: Option<u8>, target: Target<'_>) {
        if let Some(level) = foster {
            self.try_adopt(patience, target, level + 1);
        }
    }

    #[cold]
    fn try_adopt(&self, patience: Patience<'_>, target: Target<'_>, level: u8) {
        if let Some(_leave) = self.env.may_tidy() {
            let _ = self.adopt_without_waiting(patience, target, level);
        }
    }

    /// Has the foster children beside `target`, below the node at `level`, adopted by it.
    pub(crate) fn adopt(
        &self,
        patience: Patience<'_>,
        target: Target<'_>,
        level: u8,
        urgency: Urgency,
    ) -> Result<()> {
        for _ in 0..MAX_ADOPTIONS {
            let Some(landing) = self.descend(patience, target, level)? else { return Ok(()) };
            let Some(parent) = self.latch(patience, landing.page, target, level)? else { continue };
            let child = self.child(patience, &parent, foster_parent(parent.view(), target), level - 1)?;
            match self.adopt_latched(parent, child, urgency)? {
                Adoption::Done => {}
                Adoption::Needless => return Ok(()),
                // One level up; the depth of this recursion is that of the tree.
                Adoption::NoRoom(parent, key) => self.split_and_adopt(patience, parent, &key, urgency)?,
            }
        }
        Ok(())
    }

    /// The same for whoever only comes by: under the parent's latch it keeps nobody waiting for what it would wait for.
    fn adopt_without_waiting(&self, patience: Patience<'_>, target: Target<'_>, level: u8) -> Result<()> {
        for _ in 0..MAX_ADOPTIONS {
            let Some(landing) = self.descend(patience, target, level)? else { return Ok(()) };
            if !self.env.has_room() {
                return Ok(());
            }
            let Some(parent) = landing.page.upgrade() else { return Ok(()) };
            let child = self.child_now(&parent, foster_parent(parent.view(), target), level - 1)?;
            let Some(child) = child else { return Ok(()) };
            let Adoption::Done = self.adopt_latched(parent, child, Urgency::Work)? else { return Ok(()) };
        }
        Ok(())
    }

    fn adopt_latched(
        &self,
        mut parent: ExclusivePage<'a>,
        mut child: ExclusivePage<'a>,
        urgency: Urgency,
    ) -> Result<Adoption<'a>> {
        let foster = child.view().foster_child();
        if !foster.is_some() {
            return Ok(Adoption::Needless);
        }
        let separator = node::high_key(child.view());
        let Some(key) = separator.filter(|key| parent.view().encloses(key)) else {
            return Err(damaged(child.id(), "its foster child lies outside its parent's fences"));
        };
        let Err(slot) = parent.view().find(&key) else {
            return Err(damaged(parent.id(), "it has a pointer to a foster child"));
        };
        if !self.fits(parent.view(), &key, CHILD_BYTES)? {
            return Ok(Adoption::NoRoom(parent, key));
        }
        parent.prepare(urgency)?;
        child.prepare(urgency)?;
        let head = record::structure(self.table, &[parent.id(), child.id(), foster], Some(slot.0));
        let lsn = self.env.append_system(urgency, record::ADOPT, &[&head, &key])?;
        let done = parent.edit().insert(slot, &key, &child_value(foster), RecordFlags::default());
        self.env.as_logged(parent.id(), done)?;
        parent.applied(lsn);
        child.edit().set_foster(PageId::NONE);
        child.applied(lsn);
        Ok(Adoption::Done)
    }
}

/// What came of an attempt under the latches of the parent and of the head of a chain.
enum Adoption<'a> {
    Done,
    /// There is no foster child.
    Needless,
    /// The parent, still latched, has no room for this key.
    NoRoom(ExclusivePage<'a>, Vec<u8>),
}

/// The child of a parent that heads the chain in which the target lies.
fn foster_parent(view: SlottedView<'_>, target: Target<'_>) -> PageId {
    match node::hop(view, target, false) {
        Hop::Child(child) => child,
        // The parent was found to enclose the target.
        Hop::Foster(_) | Hop::Here => PageId::NONE,
    }
}
