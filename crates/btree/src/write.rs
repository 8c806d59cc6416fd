//! Inserting, updating and deleting one record (Kimura et al. 2012, Algorithm 1, and its two siblings).

mod verb;

use foreshore_base::{Lsn, SlotIndex, StorageError, limits::MAX_INLINE_VALUE_BYTES};
use foreshore_env::sabotage::{Fault, planted};
use foreshore_lock::{KeyMode, KeyRef};
use foreshore_pages::{ExclusivePage, PageFull, RecordFlags, SlottedView};
use foreshore_wal::{RecordKind, Urgency};

pub(crate) use self::verb::{Value, Verb, Written};
use crate::{
    bytes::{SmallValue, difference},
    error::Result,
    gap::Name,
    look::Place,
    node::{self, Target, fits_in_place},
    overflow::Reference,
    record::{self, Change},
    session::{Finger, Isolation, Session},
    tree::Tree,
};

/// How an attempt under the leaf's latch ended.
enum Attempt {
    Done(Written),
    /// This mode on the gap has to be awaited.
    AwaitGap,
    /// This mode on the key has to be awaited.
    AwaitKey(KeyMode),
    /// The leaf is another one now, or the key is not what it seemed.
    Again,
}

/// How a page was made ready for more bytes.
enum Room<'a> {
    /// The bytes fit as the page is.
    Fits(ExclusivePage<'a>),
    /// There is more room since the leaf was purged: slots and gaps may be others now.
    Purged(ExclusivePage<'a>),
    /// The page was split, the latch is released.
    Split,
}

impl<'a> Tree<'a> {
    /// Does `verb`. Returns whether the key had a record before.
    #[inline]
    pub(crate) fn write(
        &self,
        session: &mut impl Session,
        key: &[u8],
        value: &[u8],
        verb: Verb,
    ) -> Result<bool> {
        if value.len() > MAX_INLINE_VALUE_BYTES {
            return self.write_long(session, key, value, verb);
        }
        let written = self.write_record(session, key, Value { bytes: value, overflow: false }, verb)?;
        if let Some(reference) = written.replaced {
            self.delete_overflow(session, reference)?;
        }
        Ok(written.existed)
    }

    /// Does `verb` with a value that fits the leaf.
    pub(crate) fn write_record(
        &self,
        session: &mut impl Session,
        key: &[u8],
        value: Value<'_>,
        verb: Verb,
    ) -> Result<Written> {
        let target = Target::Key(key);
        let mut gap = None;
        loop {
            // True at the version of the leaf, so that a finger which is there at that version is on this key. It
            // counts only if the page can be latched as it was.
            let by_finger = self.place_at_finger(session, key, verb);
            let (landing, seen) = match by_finger {
                Some(found) => found,
                None => {
                    session.prefetch_lock(self.table, KeyRef::Key(key), KeyMode::XN);
                    self.leaf_seen(session.patience(), target, |view| Place::of(view, key))?
                }
            };
            // Where nothing is there yet, the finger that led there may be on the key that names the gap.
            if by_finger.is_none() || !matches!(seen, Place::Absent(_)) {
                session.set_finger(self.table, seen.finger(landing.page));
            }
            if verb.is_answered_by(matches!(seen, Place::Live(_))) {
                // Should the key be gone when it is locked, an insert goes on, and must not have locked the gap for
                // reading: two that did would wait for each other.
                let isolation =
                    if verb == Verb::Insert { Isolation::RepeatableRead } else { Isolation::Serializable };
                let live = self.look(session, key, KeyMode::SN, isolation, &mut |_, _| {})?;
                if verb.is_answered_by(live) {
                    return Ok(Written::nothing(live));
                }
                continue;
            }
            // Who has read the key to change it has the lock.
            if matches!(seen, Place::Absent(_)) || !session.holds_at_finger(self.table, KeyMode::XN) {
                session.acquire(self.table, KeyRef::Key(key), KeyMode::XN)?;
            } else {
                debug_assert!(
                    session.held(self.table, KeyRef::Key(key)).is_ok_and(|held| held.covers(KeyMode::XN)),
                    "the finger is not on the key"
                );
            }
            let (page, place) = match landing.page.upgrade() {
                Some(page) => (page, seen),
                None => {
                    let page = self.latch_slowly(session.patience(), landing.page.id(), target, 0)?;
                    let Some(page) = page else { continue };
                    let place = Place::of(page.view(), key);
                    (page, place)
                }
            };
            match self.write_latched(session, page, place, key, value, verb, &mut gap)? {
                Attempt::Done(written) => {
                    self.adopt_on_the_way(session, landing.foster, target);
                    return Ok(written);
                }
                Attempt::AwaitGap => {
                    if let Some(gap) = &gap {
                        session.acquire(self.table, gap.key(), KeyMode::NX)?;
                    }
                }
                Attempt::AwaitKey(mode) => session.acquire(self.table, KeyRef::Key(key), mode)?,
                Attempt::Again => {}
            }
        }
    }

    /// One attempt with the leaf latched, where the key has `place`, and XN held on the key: whether it is a record or
    /// a ghost stays so.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "a key, its value, its place, and what is to be done")]
    fn write_latched(
        &self,
        session: &mut impl Session,
        mut page: ExclusivePage<'a>,
        mut place: Place,
        key: &[u8],
        value: Value<'_>,
        verb: Verb,
        gap: &mut Option<Name>,
    ) -> Result<Attempt> {
        loop {
            let (is_new, slot, fits) = match (verb, place) {
                (Verb::Insert, Place::Live(_)) => return Ok(Attempt::Done(Written::nothing(true))),
                (Verb::Update | Verb::Delete, Place::Ghost(_)) => {
                    return Ok(Attempt::Done(Written::nothing(false)));
                }
                // The gap has to be locked.
                (Verb::Update | Verb::Delete, Place::Absent(_)) => return Ok(Attempt::Again),
                (Verb::Delete, Place::Live(slot)) => return self.bury(session, page, slot, key),
                (Verb::Update | Verb::Put, Place::Live(slot))
                | (Verb::Insert | Verb::Put, Place::Ghost(slot)) => {
                    (false, slot, fits_in_place(page.view(), slot, value.bytes.len())?)
                }
                (Verb::Insert | Verb::Put, Place::Absent(slot)) => {
                    if let Some(refused) = self.cut_gap(session, &page, slot, key, gap)? {
                        return Ok(refused);
                    }
                    (true, slot, self.fits(page.view(), key, value.bytes.len())?)
                }
            };
            match self.make_room(session, page, key, fits)? {
                Room::Fits(page) if is_new => {
                    return self.add(session, page, slot, key, value).map(Attempt::Done);
                }
                Room::Fits(page) => {
                    return self.overwrite(session, page, slot, key, value).map(Attempt::Done);
                }
                Room::Purged(purged) => {
                    page = purged;
                    place = Place::of(page.view(), key);
                    // Slots are others now, which the version does not say before the latch is gone.
                    let finger = Finger { leaf: page.id(), slot: place.slot(), found: None };
                    session.set_finger(self.table, finger);
                }
                Room::Split => return Ok(Attempt::Again),
            }
        }
    }

    /// Asks for the locks that a new key before `slot` needs beside XN; those that are not free are to be awaited.
    #[inline]
    fn cut_gap(
        &self,
        session: &mut impl Session,
        page: &ExclusivePage<'a>,
        slot: SlotIndex,
        key: &[u8],
        gap: &mut Option<Name>,
    ) -> Result<Option<Attempt>> {
        // A transaction that holds the gap exclusively need not ask whether others wait for it.
        let (held, free) = match self.free_behind_finger(session, page, slot, key) {
            Some(held) => (held, true),
            None => {
                let gap = gap.get_or_insert_with(Name::new);
                gap.set_below(page.view(), slot, key);
                session.held_and_check(self.table, gap.key(), KeyMode::NX)?
            }
        };
        if !free && !planted(Fault::InsertIgnoresGap) {
            return Ok(Some(Attempt::AwaitGap));
        }
        // The new key cuts the gap in two. If this transaction has locked the gap, it must hold both halves (BTREE-7).
        let mode = if planted(Fault::HalfGapLost) { KeyMode::XN } else { inherited(held) };
        let has_both = mode == KeyMode::XN
            || session.held(self.table, KeyRef::Key(key))?.covers(mode)
            || session.try_acquire(self.table, KeyRef::Key(key), mode)?;
        Ok(if has_both { None } else { Some(Attempt::AwaitKey(mode)) })
    }

    /// Whether a new record fits the node.
    #[inline]
    pub(crate) fn fits(
        &self,
        view: SlottedView<'_>,
        key: &[u8],
        value_bytes: usize,
    ) -> Result<bool, StorageError> {
        Ok(usize::from(view.slot_count()) < self.env.node_capacity
            && node::has_room(view, node::record_bytes(view, key, value_bytes))?)
    }

    #[inline]
    fn make_room(
        &self,
        session: &impl Session,
        page: ExclusivePage<'a>,
        key: &[u8],
        fits: bool,
    ) -> Result<Room<'a>> {
        if fits { Ok(Room::Fits(page)) } else { self.make_room_slowly(session, page, key) }
    }

    /// What nobody needs of ghosts and of slack goes first; then the node is split.
    #[cold]
    fn make_room_slowly(
        &self,
        session: &impl Session,
        mut page: ExclusivePage<'a>,
        key: &[u8],
    ) -> Result<Room<'a>> {
        if self.purge(session, &mut page)? > 0 {
            return Ok(Room::Purged(page));
        }
        self.split_and_adopt(session.patience(), page, key, Urgency::Work)?;
        Ok(Room::Split)
    }

    /// Adds a record before `slot`; it fits.
    #[inline]
    fn add(
        &self,
        session: &mut impl Session,
        mut page: ExclusivePage<'a>,
        slot: SlotIndex,
        key: &[u8],
        value: Value<'_>,
    ) -> Result<Written> {
        let change = self.change(&page, slot, key, if value.overflow { record::NEW_OVERFLOW } else { 0 }, 0);
        // While the log has the record, the page's lines come.
        page.view().prefetch_place(node::record_bytes(page.view(), key, value.bytes.len()));
        page.prepare(Urgency::Work)?;
        let lsn = self.log_change(session, &page, record::INSERT, &[&change.head(), key, value.bytes])?;
        let flags = RecordFlags { ghost: false, overflow: value.overflow };
        let done = page.edit().insert(slot, key, value.bytes, flags);
        let finger = Finger { leaf: page.id(), slot, found: Some(page.next_version()) };
        session.note_added(self.table, key);
        self.finish(page, lsn, done)?;
        session.set_locked_finger(self.table, finger);
        Ok(Written::nothing(false))
    }

    /// Replaces the value of a record, or fills a ghost; it fits.
    #[inline]
    fn overwrite(
        &self,
        session: &mut impl Session,
        mut page: ExclusivePage<'a>,
        slot: SlotIndex,
        key: &[u8],
        value: Value<'_>,
    ) -> Result<Written> {
        let view = page.view();
        let old_flags = view.slot(slot).flags();
        let new_overflow = if value.overflow { record::NEW_OVERFLOW } else { 0 };
        let flags = RecordFlags { ghost: false, overflow: value.overflow };
        if old_flags.ghost {
            let flags_said = new_overflow | record::ON_GHOST | record::KEEPS_SLACK;
            let change = self.change(&page, slot, key, flags_said, 0);
            page.prepare(Urgency::Work)?;
            let lsn = self.log_change(session, &page, record::INSERT, &[&change.head(), key, value.bytes])?;
            let done = page.edit().replace_value(slot, value.bytes, flags);
            session.note_added(self.table, key);
            self.finish(page, lsn, done)?;
            return Ok(Written::nothing(false));
        }
        let mut old = SmallValue::new();
        node::copy_value(view, slot, &mut old);
        let old = old.as_slice();
        let written = Written { existed: true, replaced: Reference::of(old, old_flags) };
        if old.len() == value.bytes.len() && old_flags == flags {
            let Some((first, end)) = difference(old, value.bytes) else { return Ok(written.keeping()) };
            let (old, new) = (&old[first..end], &value.bytes[first..end]);
            let change = self.change(&page, slot, key, 0, first as u16);
            page.prepare(Urgency::Work)?;
            let lsn = self.log_change(session, &page, record::PATCH, &[&change.head(), key, old, new])?;
            page.edit().patch_value(slot, first, new);
            page.applied(lsn);
            return Ok(written);
        }
        let old_overflow = if old_flags.overflow { record::OLD_OVERFLOW } else { 0 };
        let flags_said = new_overflow | old_overflow | record::KEEPS_SLACK;
        let change = self.change(&page, slot, key, flags_said, old.len() as u16);
        page.prepare(Urgency::Work)?;
        let lsn =
            self.log_change(session, &page, record::UPDATE, &[&change.head(), key, old, value.bytes])?;
        if value.bytes.len() < old.len() {
            session.note_loss(self.table, lsn);
        }
        let done = page.edit().replace_value(slot, value.bytes, flags);
        self.finish(page, lsn, done)?;
        Ok(written)
    }

    /// Makes a record a ghost. The value's bytes stay: undo finds them there, and needs no room.
    fn bury(
        &self,
        session: &mut impl Session,
        mut page: ExclusivePage<'a>,
        slot: SlotIndex,
        key: &[u8],
    ) -> Result<Attempt> {
        let flags = page.view().slot(slot).flags();
        let mut old = SmallValue::new();
        node::copy_value(page.view(), slot, &mut old);
        let change = self.change(&page, slot, key, if flags.overflow { record::OLD_OVERFLOW } else { 0 }, 0);
        let before = page.lsn();
        page.prepare(Urgency::Work)?;
        let lsn = self.log_change(session, &page, record::DELETE, &[&change.head(), key, old.as_slice()])?;
        session.note_loss(self.table, lsn);
        page.edit().set_ghost(slot, true);
        page.applied(lsn);
        self.tidy_after_delete(session, page, before, key);
        Ok(Attempt::Done(Written { existed: true, replaced: Reference::of(old.as_slice(), flags) }))
    }

    #[inline]
    fn change<'p>(
        &self,
        page: &ExclusivePage<'_>,
        slot: SlotIndex,
        key: &'p [u8],
        flags: u8,
        number: u16,
    ) -> Change<'p> {
        Change { page: page.id(), table: self.table, slot, flags, number, key, data: &[] }
    }

    /// Appends a user record about `page`, which stays latched until the session knows (BTREE-9).
    #[inline]
    pub(crate) fn log_change(
        &self,
        session: &mut impl Session,
        page: &ExclusivePage<'a>,
        kind: RecordKind,
        payload: &[&[u8]],
    ) -> Result<Lsn> {
        let chain = session.chain();
        let lsn = self.env.log.append(Urgency::Work, chain.txn, chain.last, kind, payload)?;
        session.note_logged(lsn, payload.iter().map(|piece| piece.len()).sum());
        session.note_change(page, lsn);
        Ok(lsn)
    }

    /// Ends a change whose fit was checked.
    #[inline]
    pub(crate) fn finish(
        &self,
        mut page: ExclusivePage<'_>,
        lsn: Lsn,
        done: std::result::Result<(), PageFull>,
    ) -> Result<()> {
        self.env.as_logged(page.id(), done)?;
        page.applied(lsn);
        Ok(())
    }
}

/// The mode for a new key in a gap on which `held` is held.
#[inline]
fn inherited(held: KeyMode) -> KeyMode {
    KeyMode::XN.join(held.gap())
}
