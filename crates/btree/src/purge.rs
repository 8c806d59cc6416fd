//! Purging: a system transaction takes out what was kept for rollbacks and no lock names any more: the ghosts of
//! deleted records, and the slack of others.

use foreshore_base::{Result, SlotIndex};
use foreshore_env::sabotage::{Fault, planted};
use foreshore_lock::KeyRef;
use foreshore_pages::{ExclusivePage, SlottedMut, SlottedView};
use foreshore_wal::Urgency;

use crate::{record, session::Session, tree::Tree};

impl<'a> Tree<'a> {
    /// Takes out the ghosts and the slack of a leaf where nobody needs their names; returns of how many records.
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

    /// Takes out the ghosts and the slack of a leaf of which `needless` says so; returns of how many records.
    pub(crate) fn purge_where(
        &self,
        page: &mut ExclusivePage<'a>,
        needless: &dyn Fn(&[u8]) -> bool,
    ) -> Result<usize> {
        let view = page.view();
        let mut slots = Vec::new();
        let mut key = Vec::new();
        for slot in leftovers(view) {
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
    view.slot_indices().filter(move |slot| view.is_ghost(*slot))
}

/// The slots of a leaf's ghosts, and of its records with slack.
fn leftovers(view: SlottedView<'_>) -> impl Iterator<Item = SlotIndex> {
    view.slot_indices().filter(move |slot| {
        let slot = view.slot(*slot);
        slot.flags().ghost || slot.has_slack()
    })
}

/// Takes out the ghosts, and the slack of the other records, of a list of slots, as it is logged: ascending.
pub(crate) fn remove(page: &mut SlottedMut<'_>, list: &[u8]) {
    for slot in list.as_chunks().0.iter().rev() {
        let slot = SlotIndex(u16::from_le_bytes(*slot));
        if page.view().is_ghost(slot) { page.remove(slot) } else { page.trim(slot) }
    }
}
