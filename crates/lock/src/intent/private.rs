//! Intent locks that cost no shared write: the pattern of Jung et al. 2013 (store mine, fence, read theirs) applied to
//! the locks of Kimura et al. 2012, §3.2.
//!
//! ```text
//!   an intent lock (IS, IX)                      an absolute lock (S, SIX, X), under the entry's latch
//!   1  publish it in my own line                 1  raise the entry's flag
//!   2  fence                                     2  fence
//!   3  flag down: it is mine                     3  nobody has published what conflicts: it is mine; the flag stays up
//!      flag up: take it back, and ask                else: stand in the list; the flag stays up
//!      under the latch
//!
//!   its end                                      its end, or the end of its wait, under the latch
//!   1  withdraw it from my line                  1  count it out, or leave the list
//!   2  fence                                     2  grant to those in the list what can be granted
//!   3  flag up: under the latch, grant to         3  lower the flag if nobody holds or waits
//!      those in the list what can be granted
//! ```
//!
//! LOCK-15. Of an intent and an absolute request that begin at a time, each behind its fence, at least one sees the
//! other: an intent that found the flag down is in its line when the absolute request looks. Of the end of an intent
//! and an absolute request that begins, likewise: if the request still saw the lock, the leaver sees the flag, and
//! comes for the latch, which the request holds until it stands in the list. While the flag is up everything happens
//! under the latch, in the order of arrival, as in `Lightweight`.
//!
//! An intent that was published for a moment and taken back may have been seen; so the transaction that takes it back
//! grants to those in the list what can be granted, too.
//!
//! An absolute request looks at all slots ever used: it pays for everybody.

use foreshore_base::Lsn;
use foreshore_env::CachePadded;
use foreshore_env::sabotage::{Fault, planted};
use foreshore_env::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};
use foreshore_latch::{HybridLatch, rank};

use super::entries::{Entries, Tags};
use super::holders::Holders;
use super::waiters::{self, Waiters};
use super::{EntryIndex, IntentHold, IntentMode, VOLUME};
use crate::slot::{SLOTS, SlotId, Slots, WaitWord};
use crate::table::{QUEUE_RANK, Wakes, Withdrawn};

/// The locks on one table, as far as they are not in the lines of those who hold them.
#[derive(Debug, Default)]
struct Entry {
    /// Up (not 0) while an absolute lock is held or asked for, or anybody waits. Written under the latch, read by
    /// everybody: Release, partner is the Acquire of whoever finds it down.
    flag: AtomicU32,
    /// Guards what follows, but for the tags.
    latch: HybridLatch,
    /// Of absolute locks.
    absolute: Holders,
    waiters: Waiters,
    /// Of X, which leaves it here; changes below leave theirs in `OwnTags`.
    tags: Tags,
}

/// Tables whose tags a slot keeps apart.
const OWN_TAGS: usize = 8;

/// The tags that the owners of a slot have left for changes below tables (LOCK-9), so that a commit writes to its own
/// line only. Written by the owner, read by those who get absolute locks. Two tables that share a place share what
/// was there before in `others`: too high a tag, never too low.
///
/// Stores are Release: a thread that has seen the lock withdrawn sees the tag. LSNs of one slot ascend, so a reader
/// that sees a place change under its eyes sees too high a tag at worst, having read `others` last.
#[derive(Debug, Default)]
struct OwnTags {
    places: [(AtomicU32, AtomicU64); OWN_TAGS],
    others: AtomicU64,
}

/// No entry: there is no table with this number plus one.
const NO_ENTRY: u32 = 0;

impl OwnTags {
    #[inline]
    fn place(&self, index: EntryIndex) -> &(AtomicU32, AtomicU64) {
        // Each change below a table is one below the volume, too: that has a place of its own.
        let place = if index.0 == VOLUME { 0 } else { 1 + index.0 as usize % (OWN_TAGS - 1) };
        &self.places[place]
    }

    #[inline]
    fn leave(&self, index: EntryIndex, lsn: Lsn) {
        let (entry, tag) = self.place(index);
        if entry.load(Relaxed) != index.0 + 1 {
            if entry.load(Relaxed) != NO_ENTRY {
                self.others.store(self.others.load(Relaxed).max(tag.load(Relaxed)), Release);
            }
            entry.store(NO_ENTRY, Release);
            tag.store(lsn.0, Release);
            entry.store(index.0 + 1, Release);
        } else {
            tag.store(tag.load(Relaxed).max(lsn.0), Release);
        }
    }

    fn get(&self, index: EntryIndex) -> u64 {
        let (entry, tag) = self.place(index);
        let own = if entry.load(Acquire) == index.0 + 1 { tag.load(Acquire) } else { 0 };
        own.max(self.others.load(Acquire))
    }
}

/// Intent locks, as said above.
#[derive(Debug)]
pub(crate) struct Private {
    entries: Entries<Entry>,
    own_tags: Box<[CachePadded<OwnTags>]>,
}

impl Private {
    pub(super) fn new() -> Private {
        Private { entries: Entries::new(), own_tags: (0..SLOTS).map(|_| CachePadded::default()).collect() }
    }

    /// Runs `operation` on an entry, alone; sees to the flag.
    fn alone<R>(&self, entry: EntryIndex, operation: impl FnOnce(&Entry) -> R) -> R {
        let entry = self.entries.get(entry);
        let _rank = rank::enter(QUEUE_RANK);
        let _guard = entry.latch.exclusive();
        let result = operation(entry);
        entry.flag.store(entry.reasons(), Release);
        result
    }

    #[inline]
    pub(super) fn try_request(
        &self,
        slots: &Slots,
        index: EntryIndex,
        hold: IntentHold,
        wanted: IntentMode,
    ) -> Option<Lsn> {
        if wanted.is_absolute() {
            let granted = self.alone(index, |entry| entry.try_request(slots, index, hold, wanted));
            return granted.then(|| self.tag(slots, index, wanted));
        }
        let entry = self.entries.get(index);
        // A transaction that publishes although the flag is up is in the way of those that wait until it takes that
        // back, and then others are.
        if entry.flag.load(Relaxed) == 0 {
            slots.get(hold.slot).intents.set(hold.place, index, wanted);
            // LOCK-15: partner is the fence in `Entry::raise`.
            fence(SeqCst);
            if entry.flag.load(Acquire) == 0 {
                return Some(entry.tags.tag(wanted));
            }
        }
        self.try_announced(slots, index, hold, wanted)
    }

    /// An intent lock while there are absolute ones about. It may stand in its line without having been granted.
    #[cold]
    fn try_announced(
        &self,
        slots: &Slots,
        index: EntryIndex,
        hold: IntentHold,
        wanted: IntentMode,
    ) -> Option<Lsn> {
        let mut wakes = Wakes::default();
        let granted = self.alone(index, |entry| {
            let published = &slots.get(hold.slot).intents;
            match hold.held {
                Some(held) => published.set(hold.place, index, held),
                None => published.truncate(hold.place),
            }
            entry.pass(slots, index, hold.held.is_none().then_some(hold.slot), &mut wakes);
            entry.try_request(slots, index, hold, wanted)
        });
        self.wake(slots, index, wakes);
        granted.then(|| self.tag(slots, index, wanted))
    }

    pub(super) fn request(
        &self,
        slots: &Slots,
        index: EntryIndex,
        hold: IntentHold,
        wanted: IntentMode,
    ) -> Result<Lsn, WaitWord> {
        let asked = self.alone(index, |entry| {
            if entry.try_request(slots, index, hold, wanted) {
                return Ok(());
            }
            Err(entry.waiters.begin_wait(slots, index, hold, wanted))
        });
        asked.map(|()| self.tag(slots, index, wanted))
    }

    pub(super) fn withdraw(&self, slots: &Slots, index: EntryIndex, slot: SlotId) -> Withdrawn {
        let mut wakes = Wakes::default();
        let withdrawn = self.alone(index, |entry| {
            entry.waiters.end_wait(slots, slot, |left| entry.pass(slots, index, left, &mut wakes))
        });
        self.wake(slots, index, wakes);
        withdrawn
    }

    #[inline]
    pub(super) fn release(
        &self,
        slots: &Slots,
        slot: SlotId,
        kept: usize,
        held: impl Iterator<Item = (EntryIndex, IntentMode)> + Clone,
        tag: Option<Lsn>,
    ) {
        if let Some(tag) = tag {
            for (index, mode) in held.clone() {
                match mode {
                    IntentMode::IX | IntentMode::SIX => self.own_tags[slot.index()].leave(index, tag),
                    IntentMode::X => self.entries.get(index).tags.leave(mode, tag),
                    IntentMode::IS | IntentMode::S => {}
                }
            }
        }
        slots.get(slot).intents.truncate(kept);
        // LOCK-15: partner is the fence in `Entry::raise`.
        fence(SeqCst);
        for (index, mode) in held {
            if mode.is_absolute() || self.entries.get(index).flag.load(Acquire) != 0 {
                self.release_announced(slots, slot, index, mode);
            }
        }
    }

    #[cold]
    fn release_announced(&self, slots: &Slots, slot: SlotId, index: EntryIndex, mode: IntentMode) {
        let mut wakes = Wakes::default();
        self.alone(index, |entry| {
            entry.remove(mode);
            entry.pass(slots, index, Some(slot), &mut wakes);
        });
        self.wake(slots, index, wakes);
    }

    fn wake(&self, slots: &Slots, index: EntryIndex, wakes: Wakes) {
        wakes.wake_all(slots, |wakes| self.alone(index, |entry| entry.pass(slots, index, None, wakes)));
    }

    pub(super) fn tag(&self, slots: &Slots, index: EntryIndex, mode: IntentMode) -> Lsn {
        let tag = self.entries.get(index).tags.tag(mode);
        if !mode.is_absolute() {
            return tag;
        }
        slots.used().fold(tag, |tag, (slot, _)| tag.max(Lsn(self.own_tags[slot.index()].get(index))))
    }

    /// Runs `operation` on those who wait for an entry, under its latch.
    pub(super) fn with_waiters<R>(&self, index: EntryIndex, operation: impl FnOnce(&Waiters) -> R) -> R {
        self.alone(index, |entry| operation(&entry.waiters))
    }

    pub(super) fn is_empty(&self, slots: &Slots) -> bool {
        slots.used().all(|(_, slot)| slot.intents.is_empty())
            && self.entries.iter().all(|entry| {
                let _rank = rank::enter(QUEUE_RANK);
                let _guard = entry.latch.shared();
                entry.reasons() == 0
            })
    }
}

impl Entry {
    /// Why the flag is up: absolute locks, and those who wait.
    fn reasons(&self) -> u32 {
        self.absolute.count() + self.waiters.count()
    }

    /// From now on, intents come for the latch; those that did not are in their lines.
    fn raise(&self) {
        self.flag.store(self.reasons() + 1, Relaxed);
        // LOCK-15: partners are the fences of those who publish and withdraw.
        fence(SeqCst);
    }

    /// Counts one holder less, if its mode is absolute.
    fn remove(&self, mode: IntentMode) {
        if mode.is_absolute() {
            self.absolute.remove(mode);
        }
    }

    /// Whether the holders allow `wanted` to one of them or to a newcomer.
    fn holders_allow(&self, slots: &Slots, index: EntryIndex, hold: IntentHold, wanted: IntentMode) -> bool {
        let mut free = self.absolute.allow(hold.held.filter(|held| held.is_absolute()), wanted);
        if free && wanted.is_absolute() && !planted(Fault::TableLockBlind) {
            waiters::holders(slots, index, hold.slot, wanted, |_, _| free = false);
        }
        free
    }

    fn try_request(&self, slots: &Slots, index: EntryIndex, hold: IntentHold, wanted: IntentMode) -> bool {
        if wanted.is_absolute() {
            self.raise();
        }
        let free = self.holders_allow(slots, index, hold, wanted)
            && (hold.held.is_some() || self.waiters.allow(wanted));
        if free {
            self.grant(slots, index, hold, wanted);
            self.waiters.announce(slots, hold.slot, wanted);
        }
        free
    }

    fn grant(&self, slots: &Slots, index: EntryIndex, hold: IntentHold, wanted: IntentMode) {
        if let Some(held) = hold.held {
            self.remove(held);
        }
        if wanted.is_absolute() {
            self.absolute.add(wanted);
        }
        slots.get(hold.slot).intents.set(hold.place, index, wanted);
    }

    fn pass(&self, slots: &Slots, index: EntryIndex, left: Option<SlotId>, wakes: &mut Wakes) {
        if self.waiters.count() > 0 {
            self.waiters.pass(
                slots,
                left,
                wakes,
                |hold, wanted| self.holders_allow(slots, index, hold, wanted),
                |hold, wanted| self.grant(slots, index, hold, wanted),
            );
        }
    }
}

#[cfg(all(test, foreshore_loom))]
mod models;

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use foreshore_base::TableId;

    use super::*;

    /// The first table of a user shared a place with the volume, so that each of its commits left its tag for all
    /// tables.
    #[test]
    fn the_volume_and_a_table_keep_their_tags_apart() {
        let (tags, volume) = (OwnTags::default(), EntryIndex(VOLUME));
        let tables =
            (0..OWN_TAGS as u32 - 1).map(|table| EntryIndex::of(TableId(TableId::FIRST_USER.0 + table)));
        for (number, table) in tables.clone().enumerate() {
            for index in [table, volume] {
                tags.leave(index, Lsn(10 + number as u64));
            }
        }
        assert_eq!(tags.get(EntryIndex::of(TableId(900))), 0, "nobody has changed this one");
        for (number, table) in tables.enumerate() {
            assert_eq!(tags.get(table), 10 + number as u64);
        }
    }
}
