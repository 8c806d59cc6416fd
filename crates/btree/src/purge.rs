//! Purging ghosts: a system transaction takes out the deleted records that no lock names any more.

use foreshore_base::{Result, SlotIndex};
use foreshore_env::sabotage::{Fault, planted};
use foreshore_lock::KeyRef;
use foreshore_pages::{ExclusivePage, SlottedMut, SlottedView};
use foreshore_wal::Urgency;

use crate::{record, session::Session, tree::Tree};

impl<'a> Tree<'a> {
    /// Takes out the ghosts of a leaf whose names nobody needs; returns how many.
    ///
    /// A name is looked up under the exclusive latch: whoever is about to lock it validates the leaf afterwards, finds
    /// it changed and looks again (BTREE-8).
    pub(crate) fn purge(&self, session: &impl Session, page: &mut ExclusivePage<'a>) -> Result<usize> {
        if !session.may_purge(self.table, page.lsn()) && !planted(Fault::GhostPurged) {
            return Ok(0);
        }
        self.purge_where(page, &|key| {
            !session.has_requests(self.table, KeyRef::Key(key)) || planted(Fault::GhostPurged)
        })
    }

    /// Takes out the ghosts of a leaf of which `needless` says so; returns how many.
    pub(crate) fn purge_where(
        &self,
        page: &mut ExclusivePage<'a>,
        needless: &dyn Fn(&[u8]) -> bool,
    ) -> Result<usize> {
        let view = page.view();
        let mut slots = Vec::new();
        let mut key = Vec::new();
        for slot in ghosts(view) {
            view.key_into(slot, &mut key);
            if needless(&key) {
                slots.push(slot.0);
            }
        }
        if slots.is_empty() {
            return Ok(0);
        }
        page.prepare(Urgency::Work)?;
        let head = record::structure(self.table, &[page.id()], None);
        let list: Vec<u8> = slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
        let lsn = self.env.append_system(Urgency::Work, record::PURGE, &[&head, &list])?;
        remove(&mut page.edit(), &list);
        page.applied(lsn);
        Ok(slots.len())
    }
}

/// The slots of a leaf's ghosts.
pub(crate) fn ghosts(view: SlottedView<'_>) -> impl Iterator<Item = SlotIndex> {
    (0..view.slot_count()).map(SlotIndex).filter(move |slot| view.is_ghost(*slot))
}

/// Takes out the records of a list of slots, as it is logged: ascending.
pub(crate) fn remove(page: &mut SlottedMut<'_>, list: &[u8]) {
    for slot in list.as_chunks().0.iter().rev() {
        page.remove(SlotIndex(u16::from_le_bytes(*slot)));
    }
}
