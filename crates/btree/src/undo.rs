//! Undo: taking a change back, by key, with a compensation record (BTREE-11).
//!
//! The record may have moved to another page since; it is found again by its key. The transaction still holds its
//! locks, or it is recovery and nobody else is there, so no lock is needed, and the record is as the change left it.

use foreshore_base::{Lsn, PageId, Result, SlotIndex, TableId};
use foreshore_latch::Patience;
use foreshore_pages::{ExclusivePage, PageFull, RecordFlags, SlottedMut};
use foreshore_wal::{RecordHeader, RecordKind, Urgency};

use crate::{
    append,
    env::TreeEnv,
    look::Place,
    node::{Target, damaged, fits_in_place},
    record::{self, Change, malformed},
    session::TxnChain,
    tree::Tree,
};

/// Takes back the change of a record for which [`crate::is_undoable`] says so, with a compensation after which rollback
/// goes on at `header.prev`. `tables` gives a table's root; a table that is gone needs no undo. Appends to `chain`.
///
/// What it puts back has its room (BTREE-16); only for a change that a format before the fourth has made it may split
/// nodes. It uses the part of the log that is kept for rollbacks. It purges nothing: ghosts may be under the locks of
/// others.
pub fn undo(
    env: &TreeEnv,
    tables: &impl Fn(TableId) -> Option<PageId>,
    header: &RecordHeader,
    payload: &[u8],
    chain: &mut TxnChain,
) -> Result<()> {
    let change = Change::parse(payload).ok_or_else(|| malformed(header))?;
    let mut undo = Undo { env, header, change, chain };
    let tree = tables(change.table).map(|root| Tree { env, table: change.table, root });
    if header.kind == record::APPEND {
        let records = append::records(&change).ok_or_else(|| malformed(header))?;
        if let Some(tree) = tree {
            return undo.append(tree, &records);
        }
    } else {
        let step = Step::of(header.kind, &change).ok_or_else(|| malformed(header))?;
        if let Some(tree) = tree {
            return undo.one(tree, step);
        }
    }
    undo.nothing()
}

/// A record whose change is taken back.
struct Undo<'a> {
    env: &'a TreeEnv,
    header: &'a RecordHeader,
    change: Change<'a>,
    chain: &'a mut TxnChain,
}

impl Undo<'_> {
    /// Takes nothing back: the table is gone.
    fn nothing(&mut self) -> Result<()> {
        let nothing = Change { data: &[], ..self.change };
        self.compensate(self.header.prev, record::NOTHING, &nothing).map(drop)
    }

    /// Takes back what changed one record.
    fn one(&mut self, tree: Tree<'_>, step: Step<'_>) -> Result<()> {
        let key = self.change.key;
        let target = Target::Key(key);
        loop {
            let landing = tree.leaf(Patience::ENDLESS, target)?;
            let Some(page) = tree.latch(Patience::ENDLESS, landing.page, target, 0)? else { continue };
            let place = Place::of(page.view(), key);
            let Some((slot, kind)) = step.applies(&page, place) else {
                let lsn = self.header.lsn;
                let detail = format!("the change at LSN {lsn} cannot be taken back: its record is {place:?}");
                return Err(damaged(page.id(), detail));
            };
            let fits = match (kind, step) {
                (record::INSERT_AGAIN, Step::Revive(value, _)) => tree.fits(page.view(), key, value.len()),
                (_, Step::Revive(value, _) | Step::Restore(value, _)) => {
                    fits_in_place(page.view(), slot, value.len())
                }
                _ => Ok(true),
            };
            if !fits? {
                tree.split_and_adopt(Patience::ENDLESS, page, key, Urgency::Ending)?;
                continue;
            }
            let change = Change { slot, ..self.change };
            return self.take_back(page, self.header.prev, kind, change, step);
        }
    }

    /// Buries appended records, from the last leaf to the first: with one compensation for all that lie in a leaf, or
    /// taking an append back would need more log than the append did, which nobody has kept (WAL-13). The table is
    /// locked exclusively and what the transaction did later has been taken back, so there are ghosts at most between
    /// them, which stay so. Those that are buried already were so before an interruption.
    fn append(&mut self, tree: Tree<'_>, records: &[append::Appended<'_>]) -> Result<()> {
        let header = self.header;
        let mut rest = records;
        while let Some((last, others)) = rest.split_last() {
            let target = Target::Key(last.key);
            let landing = tree.leaf(Patience::ENDLESS, target)?;
            let Some(page) = tree.latch(Patience::ENDLESS, landing.page, target, 0)? else { continue };
            let view = page.view();
            let (before, here) = rest.split_at(others.partition_point(|record| !view.encloses(record.key)));
            let live = here.iter().filter_map(|record| match Place::of(view, record.key) {
                Place::Live(slot) => Some((slot, record.key)),
                _ => None,
            });
            let live: Vec<_> = live.collect();
            if let [(slot, key), ..] = live[..] {
                let last = live[live.len() - 1].0;
                let slots = (slot.0..=last.0).map(SlotIndex);
                if slots.filter(|&slot| !view.slot(slot).flags().ghost).count() != live.len() {
                    let lsn = header.lsn;
                    let detail = format!("the append at LSN {lsn} has other records between its own");
                    return Err(damaged(page.id(), detail));
                }
                let further = last.0 - slot.0;
                let undo_next = if before.is_empty() { header.prev } else { header.lsn };
                let change = Change { slot, key, ..self.change };
                self.take_back(page, undo_next, record::BURY, change, Step::Bury(further))?;
            }
            rest = before;
        }
        Ok(())
    }

    /// One compensation.
    fn take_back(
        &mut self,
        mut page: ExclusivePage<'_>,
        undo_next: Lsn,
        kind: RecordKind,
        change: Change<'_>,
        step: Step<'_>,
    ) -> Result<()> {
        let (flags, number, data) = step.payload();
        let compensation = Change { page: page.id(), flags, number, data, ..change };
        page.prepare(Urgency::Ending)?;
        // The page is latched until the chain knows (BTREE-9).
        let lsn = self.compensate(undo_next, kind, &compensation)?;
        let done = step.apply(&mut page.edit(), kind, &compensation);
        self.env.as_logged(page.id(), done)?;
        page.applied(lsn);
        Ok(())
    }

    /// Appends a compensation.
    fn compensate(&mut self, undo_next: Lsn, kind: RecordKind, change: &Change<'_>) -> Result<Lsn> {
        let payload: [&[u8]; 4] = [&undo_next.0.to_le_bytes(), &change.head(), change.key, change.data];
        let TxnChain { txn, last, .. } = *self.chain;
        let lsn = self.env.log.append(Urgency::Ending, txn, last, kind, &payload)?;
        self.chain.note(lsn);
        Ok(lsn)
    }
}

/// What undo does.
#[derive(Clone, Copy, Debug)]
enum Step<'p> {
    /// Of an insert, or of what was appended: the record and so many slots behind it.
    Bury(u16),
    /// Of an update.
    Restore(&'p [u8], RecordFlags),
    /// Of a patch.
    Unpatch(usize, &'p [u8]),
    /// Of a delete.
    Revive(&'p [u8], RecordFlags),
}

impl<'p> Step<'p> {
    fn of(kind: RecordKind, change: &Change<'p>) -> Option<Step<'p>> {
        let flags = RecordFlags { ghost: false, overflow: change.flags & record::OLD_OVERFLOW != 0 };
        match kind {
            record::INSERT => Some(Step::Bury(0)),
            record::UPDATE => Some(Step::Restore(change.update_values()?.0, flags)),
            record::PATCH => Some(Step::Unpatch(usize::from(change.number), change.patch_bytes()?.0)),
            record::DELETE => Some(Step::Revive(change.data, flags)),
            _ => None,
        }
    }

    /// The slot and the kind of compensation, if the record is as the change left it.
    fn applies(self, page: &ExclusivePage<'_>, place: Place) -> Option<(SlotIndex, RecordKind)> {
        match (self, place) {
            (Step::Bury(_), Place::Live(slot)) => Some((slot, record::BURY)),
            (Step::Restore(..), Place::Live(slot)) => Some((slot, record::RESTORE)),
            (Step::Unpatch(offset, bytes), Place::Live(slot)) => {
                (page.view().value_len(slot) >= offset + bytes.len()).then_some((slot, record::UNPATCH))
            }
            (Step::Revive(..), Place::Ghost(slot)) => Some((slot, record::REVIVE)),
            // Purged: recovery holds no locks that would have kept it.
            (Step::Revive(..), Place::Absent(slot)) => Some((slot, record::INSERT_AGAIN)),
            _ => None,
        }
    }

    /// What the compensation says beside the key.
    fn payload(self) -> (u8, u16, &'p [u8]) {
        match self {
            Step::Bury(further) => (0, further, &[]),
            Step::Restore(value, flags) | Step::Revive(value, flags) => {
                let overflow = if flags.overflow { record::NEW_OVERFLOW } else { 0 };
                (record::KEEPS_SLACK | overflow, 0, value)
            }
            Step::Unpatch(offset, bytes) => (0, offset as u16, bytes),
        }
    }

    fn apply(self, page: &mut SlottedMut<'_>, kind: RecordKind, change: &Change<'_>) -> Result<(), PageFull> {
        let slot = change.slot;
        match self {
            Step::Bury(further) => page.bury(slot, further),
            Step::Unpatch(offset, bytes) => page.patch_value(slot, offset, bytes),
            Step::Revive(value, flags) if kind == record::INSERT_AGAIN => {
                return page.insert(slot, change.key, value, flags);
            }
            Step::Restore(value, flags) | Step::Revive(value, flags) => {
                return page.replace_value(slot, value, flags);
            }
        }
        Ok(())
    }
}
