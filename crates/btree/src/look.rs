//! Looking at one key, locked (Kimura et al. 2012, Algorithm 2).

use foreshore_base::SlotIndex;
use foreshore_env::sabotage::{Fault, planted};
use foreshore_lock::{KeyMode, KeyRef};
use foreshore_pages::{OptimisticPage, SlottedView};

use crate::{
    bytes::SmallValue,
    descend::{Landing, RESTARTS},
    error::Result,
    gap::Name,
    hold::HeldNode,
    node::{self, Target},
    session::{Finger, Isolation, Session},
    tree::Tree,
};

/// What a key is in its leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A record.
    Live(SlotIndex),
    /// A deleted record.
    Ghost(SlotIndex),
    /// Nothing; it would belong before this slot.
    Absent(SlotIndex),
}

impl Place {
    /// The slot that has the key, or before which it belongs.
    #[inline]
    pub(crate) fn slot(self) -> SlotIndex {
        let (Place::Live(slot) | Place::Ghost(slot) | Place::Absent(slot)) = self;
        slot
    }

    /// For the next operation.
    #[inline]
    pub(crate) fn finger(self, leaf: OptimisticPage<'_>) -> Finger {
        let found = (!matches!(self, Place::Absent(_))).then(|| leaf.at_version());
        Finger { leaf: leaf.id(), slot: self.slot(), found }
    }

    /// What is in a slot, if that has the key.
    #[inline]
    pub(crate) fn at(view: SlottedView<'_>, slot: SlotIndex, key: &[u8]) -> Option<Place> {
        let here = slot.0 < view.slot_count() && view.compare_key(slot, key).is_eq();
        here.then(|| Place::found(view, Ok(slot)))
    }

    /// The prefix is compared although the fences enclose the key: where it is not common to both (damage behind a
    /// right checksum) the key would else be taken for another.
    #[inline]
    pub(crate) fn of(view: SlottedView<'_>, key: &[u8]) -> Place {
        Place::found(view, view.find(key))
    }

    /// [`Place::of`] for a key that may well come after all others of the leaf.
    #[inline]
    pub(crate) fn from_end(view: SlottedView<'_>, key: &[u8]) -> Place {
        Place::found(view, view.find_from_end(key))
    }

    #[inline]
    fn found(view: SlottedView<'_>, found: std::result::Result<SlotIndex, SlotIndex>) -> Place {
        match found {
            Ok(slot) if view.is_ghost(slot) => Place::Ghost(slot),
            Ok(slot) => Place::Live(slot),
            Err(slot) => Place::Absent(slot),
        }
    }
}

/// A leaf, and what a key was there at the leaf's version.
pub(crate) type Seen<'a> = (Landing<'a>, Place);

/// How an attempt to look without locks ended.
enum Unlocked {
    /// What was seen is true, and remembered.
    Done,
    /// The leaf is another one now.
    Changed,
    /// The key is, or may be, locked exclusively: a lock will tell.
    Locked,
}

impl<'a> Tree<'a> {
    #[inline]
    pub(crate) fn get<R>(
        &self,
        session: &mut impl Session,
        key: &[u8],
        mode: KeyMode,
        isolation: Isolation,
        read: impl FnMut(&[u8]) -> R,
    ) -> Result<Option<R>> {
        session.prefetch_lock(self.table, KeyRef::Key(key), mode);
        self.get_from(session, key, mode, isolation, None, read)
    }

    /// [`Tree::get`] from where the key was seen a moment ago, if it was; the session expects the lock.
    #[inline(always)]
    pub(crate) fn get_from<R>(
        &self,
        session: &mut impl Session,
        key: &[u8],
        mode: KeyMode,
        isolation: Isolation,
        seen: Option<Seen<'a>>,
        mut read: impl FnMut(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let mut value = SmallValue::new();
        let mut overflow = false;
        let mut copy = |view: SlottedView<'_>, slot| {
            overflow = view.is_overflow(slot);
            node::copy_value(view, slot, &mut value);
        };
        let live = match seen {
            Some(seen) => self.look_at(session, seen, key, mode, isolation, &mut copy)?,
            None => None,
        };
        let live = match live {
            Some(live) => live,
            None => self.look_afresh(session, key, mode, isolation, &mut copy)?,
        };
        if !live {
            return Ok(None);
        }
        if overflow {
            // The lock on the key covers the chunks.
            return Ok(Some(read(&self.read_overflow(session, value.as_slice())?)));
        }
        Ok(Some(read(value.as_slice())))
    }

    /// Reads a record of the overflow table, whose values are all in their leaves.
    pub(crate) fn get_inline(
        &self,
        session: &mut impl Session,
        key: &[u8],
        read: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        let mut value = SmallValue::new();
        let live = self.look(session, key, KeyMode::SN, Isolation::ReadCommitted, &mut |view, slot| {
            node::copy_value(view, slot, &mut value);
        })?;
        if live {
            read(value.as_slice());
        }
        Ok(live)
    }

    /// Whether `key` is there, with a lock that keeps the answer true: `mode` on the key if it or its ghost is there,
    /// or if `mode` is that of a change, for nobody adds a key that another has locked (BTREE-7); otherwise a shared
    /// lock on the gap, if `isolation` asks for that. Two that are going to add the same key thus wait at it, and not
    /// for each other's locks on the gap. `copy` is called for a live record, perhaps more than once; what it saw last
    /// is true.
    ///
    /// The lock is granted under a version that is validated afterwards (BTREE-5).
    #[inline]
    pub(crate) fn look(
        &self,
        session: &mut impl Session,
        key: &[u8],
        mode: KeyMode,
        isolation: Isolation,
        copy: &mut impl FnMut(SlottedView<'_>, SlotIndex),
    ) -> Result<bool> {
        session.prefetch_lock(self.table, KeyRef::Key(key), mode);
        self.look_afresh(session, key, mode, isolation, copy)
    }

    /// [`Tree::look`]; the session expects the lock already.
    #[inline]
    fn look_afresh(
        &self,
        session: &mut impl Session,
        key: &[u8],
        mode: KeyMode,
        isolation: Isolation,
        copy: &mut impl FnMut(SlottedView<'_>, SlotIndex),
    ) -> Result<bool> {
        for _ in 0..if self.is_optimistic() { RESTARTS } else { 0 } {
            let seen = self.leaf_seen(session.patience(), Target::Key(key), |view| Place::of(view, key))?;
            if let Some(live) = self.look_at(session, seen, key, mode, isolation, copy)? {
                return Ok(live);
            }
        }
        self.look_latched(session, key, mode, isolation, copy)
    }

    /// One attempt, where the key was seen, with nothing validated since; `None`: the leaf is another one now.
    #[inline]
    fn look_at(
        &self,
        session: &mut impl Session,
        (landing, place): Seen<'a>,
        key: &[u8],
        mode: KeyMode,
        isolation: Isolation,
        copy: &mut impl FnMut(SlottedView<'_>, SlotIndex),
    ) -> Result<Option<bool>> {
        let (page, view) = (landing.page, landing.page.view());
        let finger = place.finger(page);
        session.set_finger(self.table, finger);
        let mut gap = None;
        if let Place::Absent(slot) = place
            && mode == KeyMode::SN
            && isolation.locks_gaps()
        {
            gap.insert(Name::new()).set_below(view, slot, key);
        }
        // Before nonsense is locked.
        if !page.validate() {
            return Ok(None);
        }
        if mode == KeyMode::SN && session.reads_unlocked(self.table) {
            let foster = landing.foster.filter(|_| !session.has_remembered());
            match self.look_unlocked(session, page, place, key, gap.as_ref(), copy)? {
                Unlocked::Done => {
                    self.adopt_found(session.patience(), foster, Target::Key(key));
                    return Ok(Some(matches!(place, Place::Live(_))));
                }
                Unlocked::Changed => return Ok(None),
                Unlocked::Locked => {}
            }
        }
        match (place, &gap) {
            (Place::Absent(_), Some(gap)) => session.acquire(self.table, gap.key(), KeyMode::NS)?,
            (Place::Absent(_), None) if mode == KeyMode::SN => {}
            (Place::Absent(_), None) => session.acquire(self.table, KeyRef::Key(key), mode)?,
            (Place::Live(_) | Place::Ghost(_), _) => {
                session.acquire(self.table, KeyRef::Key(key), mode)?;
                session.set_locked_finger(self.table, finger);
            }
        }
        if let Place::Live(slot) = place {
            copy(view, slot);
        }
        if page.validate() || planted(Fault::ReadUnvalidated) {
            session.stand_beside()?;
            self.adopt_on_the_way(session, landing.foster, Target::Key(key));
            return Ok(Some(matches!(place, Place::Live(_))));
        }
        Ok(None)
    }

    /// [`Tree::look`] without a lock, if what the leaf shows at this key is committed (READ-2). A long value is read
    /// under a lock: its chunks lie in other leaves.
    #[inline]
    fn look_unlocked(
        &self,
        session: &mut impl Session,
        page: OptimisticPage<'a>,
        place: Place,
        key: &[u8],
        gap: Option<&Name>,
        copy: &mut impl FnMut(SlottedView<'_>, SlotIndex),
    ) -> Result<Unlocked> {
        let name = match (place, gap) {
            (Place::Live(slot), _) if page.view().is_overflow(slot) => return Ok(Unlocked::Locked),
            (Place::Live(_) | Place::Ghost(_), _) => KeyRef::Key(key),
            (Place::Absent(_), Some(gap)) => gap.key(),
            (Place::Absent(_), None) => return Ok(Unlocked::Locked),
        };
        if !session.is_settled(page.lsn()) && !session.probe(self.table, name) {
            return Ok(Unlocked::Locked);
        }
        if let Place::Live(slot) = place {
            copy(page.view(), slot);
        }
        let stamp = page.stamp();
        if !page.validate() {
            return Ok(Unlocked::Changed);
        }
        session.remember(self.table, stamp)?;
        Ok(Unlocked::Done)
    }

    /// [`Tree::look`] under a latch: locks are tried, and awaited only after the latch is released (BTREE-4).
    #[cold]
    fn look_latched(
        &self,
        session: &mut impl Session,
        key: &[u8],
        mode: KeyMode,
        isolation: Isolation,
        copy: &mut impl FnMut(SlottedView<'_>, SlotIndex),
    ) -> Result<bool> {
        let mut gap = Name::new();
        loop {
            let HeldNode { page, foster } = self.leaf_held(session.patience(), Target::Key(key))?;
            let view = page.view();
            let place = Place::of(view, key);
            let (name, mode) = match place {
                Place::Absent(slot) if mode == KeyMode::SN => {
                    gap.set_below(view, slot, key);
                    (gap.key(), if isolation.locks_gaps() { KeyMode::NS } else { KeyMode::N })
                }
                _ => (KeyRef::Key(key), mode),
            };
            if mode != KeyMode::N && !session.try_acquire(self.table, name, mode)? {
                drop(page);
                session.acquire(self.table, name, mode)?;
                continue;
            }
            if let Place::Live(slot) = place {
                copy(view, slot);
            }
            drop(page);
            session.after_unlatch(self.table);
            session.stand_beside()?;
            self.adopt_on_the_way(session, foster, Target::Key(key));
            return Ok(matches!(place, Place::Live(_)));
        }
    }
}
