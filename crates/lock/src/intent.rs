//! Locks on tables and the volume: the seam between their implementations.
//!
//! | kind | an intent lock | an absolute lock (S, SIX, X) |
//! | --- | --- | --- |
//! | [`Private`] | a word in the transaction's own cache line | raises a flag, looks at everybody's lines |
//! | [`Lightweight`] | a counter under a short latch | the same |
//! | [`InTable`] (gallery) | a request in the lock table | the same |
//! | [`Inherited`] (gallery) | as `InTable`, and kept for the next transaction | takes back what was kept |
//!
//! The first two answer questions themselves. The others have nothing but names, tags and what was inherited here;
//! their requests are like those for keys, and so are their waits.

mod baseline;
mod entries;
mod holders;
mod lightweight;
mod mode;
mod private;
mod published;
mod waiters;

use foreshore_base::{Lsn, TableId, limits::MAX_TABLES};

pub(crate) use baseline::{Heritage, InTable, Inherited};
use lightweight::Lightweight;
pub use mode::IntentMode;
use private::Private;
pub(crate) use published::Published;
use waiters::{Waiter, Waiters};

use crate::deadlock::SlotSet;
use crate::error::LockMode;
use crate::options::{IntentLockKind, LockOptions};
use crate::slot::{SlotId, Slots, Subject, WaitWord};
use crate::table::{LockTable, Withdrawn};

/// The entry of [`TableId::VOLUME`].
const VOLUME: u32 = MAX_TABLES as u32;

/// The number of an entry. There are a few entries less for users' tables than [`MAX_TABLES`]; those whose ids differ
/// by a multiple of that share one, and so their locks. The database's own tables share theirs with nobody: a
/// transaction that has locked a user's table and uses another for the first time would wait for itself at the
/// catalogue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EntryIndex(pub(crate) u32);

impl EntryIndex {
    /// The entry of a table, or of the volume.
    #[inline]
    pub fn of(table: TableId) -> EntryIndex {
        const OWN: u32 = TableId::FIRST_USER.0;
        EntryIndex(match table {
            TableId::VOLUME => VOLUME,
            TableId(first @ ..VOLUME) => first,
            TableId(later) => OWN + (later - OWN) % (VOLUME - OWN),
        })
    }
}

/// What a transaction has of an entry, before it asks for more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IntentHold {
    pub(crate) slot: SlotId,
    /// Where the lock is, or will be, in its list.
    pub(crate) place: usize,
    /// What it counts as a holder for.
    pub(crate) held: Option<IntentMode>,
}

/// Intent locks of one of the kinds.
#[derive(Debug)]
pub(crate) enum IntentLocks {
    Lightweight(Lightweight),
    Private(Private),
    InTable(InTable),
    Inherited(Inherited),
}

/// Whose requests are in the lock table is never asked what only the others know.
const ELSEWHERE: &str = "requests of this kind of intent locks are in the lock table";

impl IntentLocks {
    pub(crate) fn new(options: &LockOptions) -> IntentLocks {
        match options.intents {
            IntentLockKind::Lightweight => IntentLocks::Lightweight(Lightweight::new()),
            IntentLockKind::Private => IntentLocks::Private(Private::new()),
            IntentLockKind::InTable => IntentLocks::InTable(InTable::new()),
            IntentLockKind::Inherited => IntentLocks::Inherited(Inherited::new()),
        }
    }

    /// Grants `wanted`, which covers what is held, if that is possible at once; returns the tag that it has to see.
    #[inline]
    pub(crate) fn try_request(
        &self,
        slots: &Slots,
        index: EntryIndex,
        hold: IntentHold,
        wanted: IntentMode,
    ) -> Option<Lsn> {
        match self {
            IntentLocks::Lightweight(locks) => locks.try_request(slots, index, hold, wanted),
            IntentLocks::Private(locks) => locks.try_request(slots, index, hold, wanted),
            IntentLocks::InTable(_) | IntentLocks::Inherited(_) => unreachable!("{ELSEWHERE}"),
        }
    }

    /// As [`IntentLocks::try_request`], but the owner begins a wait if need be.
    pub(crate) fn request(
        &self,
        slots: &Slots,
        index: EntryIndex,
        hold: IntentHold,
        wanted: IntentMode,
    ) -> Result<Lsn, WaitWord> {
        match self {
            IntentLocks::Lightweight(locks) => locks.request(slots, index, hold, wanted),
            IntentLocks::Private(locks) => locks.request(slots, index, hold, wanted),
            IntentLocks::InTable(_) | IntentLocks::Inherited(_) => unreachable!("{ELSEWHERE}"),
        }
    }

    /// Ends a wait, however it stands (LOCK-6). If it was not granted, the owner holds what it held before.
    pub(crate) fn withdraw(&self, slots: &Slots, index: EntryIndex, slot: SlotId) -> Withdrawn {
        match self {
            IntentLocks::Lightweight(locks) => locks.withdraw(slots, index, slot),
            IntentLocks::Private(locks) => locks.withdraw(slots, index, slot),
            IntentLocks::InTable(_) | IntentLocks::Inherited(_) => unreachable!("{ELSEWHERE}"),
        }
    }

    /// Gives locks of an owner back: those published at `kept` and behind. With a tag, those that announce or are a
    /// change leave it behind (LOCK-9).
    #[inline]
    pub(crate) fn release(
        &self,
        slots: &Slots,
        slot: SlotId,
        kept: usize,
        held: impl Iterator<Item = (EntryIndex, IntentMode)> + Clone,
        tag: Option<Lsn>,
    ) {
        match self {
            IntentLocks::Lightweight(locks) => locks.release(slots, slot, kept, held, tag),
            IntentLocks::Private(locks) => locks.release(slots, slot, kept, held, tag),
            IntentLocks::InTable(_) | IntentLocks::Inherited(_) => unreachable!("{ELSEWHERE}"),
        }
    }

    /// Publishes a lock at a lower place, too. A thread that looks for it does so under its entry's latch, so that it
    /// comes before that, and finds it where it was, or behind, and finds it at the lower place: nothing is overwritten
    /// but by the next move, of a lock from further up.
    pub(crate) fn relocate(
        &self,
        slots: &Slots,
        slot: SlotId,
        place: usize,
        index: EntryIndex,
        mode: IntentMode,
    ) {
        let publish = || slots.get(slot).intents.set(place, index, mode);
        // Of requests in the lock table only views look here.
        self.with_waiters(index, |_| publish()).unwrap_or_else(publish);
    }

    /// The tag that a lock in this mode has to see.
    pub(crate) fn tag(&self, slots: &Slots, index: EntryIndex, mode: IntentMode) -> Lsn {
        match self {
            IntentLocks::Lightweight(locks) => locks.tag(index, mode),
            IntentLocks::Private(locks) => locks.tag(slots, index, mode),
            IntentLocks::InTable(locks) => locks.tags(index).tag(mode),
            IntentLocks::Inherited(locks) => locks.tags(index).tag(mode),
        }
    }

    /// Runs `operation` on those who wait for an entry, under its latch; `None` if they wait in the lock table.
    fn with_waiters<R>(&self, index: EntryIndex, operation: impl FnOnce(&Waiters) -> R) -> Option<R> {
        match self {
            IntentLocks::Lightweight(locks) => Some(locks.with_waiters(index, operation)),
            IntentLocks::Private(locks) => Some(locks.with_waiters(index, operation)),
            IntentLocks::InTable(_) | IntentLocks::Inherited(_) => None,
        }
    }

    /// If `slot` is still in the wait `word`, for this entry: whom it waits for. `see` is called under the latch.
    pub(crate) fn blockers(
        &self,
        slots: &Slots,
        slot: SlotId,
        word: WaitWord,
        index: EntryIndex,
        see: impl FnOnce(&SlotSet),
    ) -> Option<SlotSet> {
        self.with_waiters(index, |waiters| waiters.blockers_of(slots, index, slot, word, see)).flatten()
    }

    /// Makes `slot` a victim if it is still in the wait `word`, for this entry.
    pub(crate) fn make_victim(
        &self,
        slots: &Slots,
        slot: SlotId,
        word: WaitWord,
        index: EntryIndex,
        judge: impl FnOnce(),
    ) -> bool {
        self.with_waiters(index, |_| slots.wait_of(slot).make_victim(word, judge)).unwrap_or(false)
    }

    /// Who is in the way of a wish, which may be waited for already.
    pub(crate) fn holders(
        &self,
        slots: &Slots,
        index: EntryIndex,
        hold: IntentHold,
        wanted: IntentMode,
    ) -> Vec<(SlotId, LockMode)> {
        let waiter = Waiter { hold, wanted };
        self.with_waiters(index, |waiters| waiters.holders(slots, index, &waiter)).unwrap_or_default()
    }

    /// Whether they are requests in the lock table.
    pub(crate) fn are_in_table(&self) -> bool {
        matches!(self, IntentLocks::InTable(_) | IntentLocks::Inherited(_))
    }

    /// Whether somebody may be seen in the way of such a wait who asks for a lock and has not got it: it shows itself
    /// before it asks, and comes for the latch then.
    pub(crate) fn shows_passers_by(&self, subject: Subject) -> bool {
        matches!((self, subject), (IntentLocks::Private(_), Subject::Table(_)))
    }

    /// Whether nobody holds or wants anything. What was kept for a next transaction belongs to nobody, and goes.
    pub(crate) fn is_empty(&self, slots: &Slots, table: &LockTable) -> bool {
        match self {
            IntentLocks::Lightweight(locks) => locks.is_empty(),
            IntentLocks::Private(locks) => locks.is_empty(slots),
            IntentLocks::InTable(_) => true,
            IntentLocks::Inherited(locks) => {
                locks.reclaim_all(slots, table);
                true
            }
        }
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A table whose id is a multiple of 65,536 had the catalogue's entry: a transaction that had locked it, and made
    /// another one, waited for itself.
    #[test]
    fn the_database_s_own_tables_share_their_entries_with_nobody() {
        let of = |ids: std::ops::Range<u32>| -> BTreeSet<u32> {
            ids.map(|id| EntryIndex::of(TableId(id)).0).collect()
        };
        let own = of(0..TableId::FIRST_USER.0);
        let users = of(TableId::FIRST_USER.0..3 * VOLUME);
        assert_eq!(own.len(), TableId::FIRST_USER.0 as usize);
        assert!(own.is_disjoint(&users) && users.iter().all(|entry| *entry < VOLUME));
        assert_eq!(users.len() + own.len(), VOLUME as usize, "all are used");
        assert_eq!(EntryIndex::of(TableId::VOLUME).0, VOLUME);
    }
}
