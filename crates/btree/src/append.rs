//! Appending: records behind all others, in order, as many at a time as their leaf takes. One descent and one log
//! record for each leaf instead of one for each record; the leaves are full.
//!
//! The caller has the whole table locked. The payload of the record is that of a change (`record.rs`) without a key;
//! its number counts the records, and its data are, for each: bytes of the key (2), of the value (2), flags (1: the
//! value is an overflow reference), key, value.
//!
//! Undo buries the records leaf by leaf, the last one first; they lie in one unless that was split meanwhile. Each
//! compensation but the last names the append itself as the record to be undone next: whoever goes on after a crash
//! passes over what is buried already (BTREE-11).

use foreshore_base::{PageId, SlotIndex, StorageError, limits::MAX_INLINE_VALUE_BYTES};
use foreshore_latch::Patience;
use foreshore_pages::{ExclusivePage, PageFull, RecordFlags, SlottedMut, SlottedView};
use foreshore_wal::{MAX_PAYLOAD_BYTES, Urgency};

use crate::{
    BTree,
    error::Result,
    look::Place,
    node::{self, Target, damaged},
    record::{self, Change, Reader},
    session::Session,
    tree::{Tree, check_lengths},
};

/// Flag of a record in the data: the value is an overflow reference.
const OVERFLOW: u8 = 1;
/// Bytes of a record in the data beside key and value.
const ENTRY_BYTES: usize = 5;

/// One record in the data of an append.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended<'p> {
    pub(crate) key: &'p [u8],
    pub(crate) value: &'p [u8],
    pub(crate) flags: RecordFlags,
}

impl<'p> Appended<'p> {
    /// Bytes in the data.
    fn encoded_bytes(&self) -> usize {
        ENTRY_BYTES + self.key.len() + self.value.len()
    }

    fn encode(&self, data: &mut Vec<u8>) {
        let ([key, value], flags) = (
            [self.key, self.value].map(|part| (part.len() as u16).to_le_bytes()),
            u8::from(self.flags.overflow) * OVERFLOW,
        );
        data.extend_from_slice(&[key[0], key[1], value[0], value[1], flags]);
        data.extend_from_slice(self.key);
        data.extend_from_slice(self.value);
    }

    fn decode(reader: &mut Reader<'p>) -> Option<Appended<'p>> {
        let (key, value, flags) = (reader.u16()?, reader.u16()?, reader.u8()?);
        Some(Appended {
            key: reader.bytes(usize::from(key))?,
            value: reader.bytes(usize::from(value))?,
            flags: RecordFlags { ghost: false, overflow: flags & OVERFLOW != 0 },
        })
    }
}

/// The records of an append; `None` when they make no sense.
pub(crate) fn records<'p>(change: &Change<'p>) -> Option<Vec<Appended<'p>>> {
    let mut reader = Reader(change.data);
    let records: Option<Vec<_>> = (0..change.number).map(|_| Appended::decode(&mut reader)).collect();
    let ascend = |records: &[Appended<'_>]| records.is_sorted_by(|one, next| one.key < next.key);
    records.filter(|records| !records.is_empty() && reader.0.is_empty() && ascend(records))
}

/// Puts the records behind those of the page. They fit, and belong there.
pub(crate) fn apply(
    page: &mut SlottedMut<'_>,
    records: &[Appended<'_>],
) -> std::result::Result<(), PageFull> {
    page.append(records.iter().map(|record| (record.key, record.value, record.flags)))
}

/// How an append ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Append {
    /// All records were added.
    Done,
    /// None was.
    NotBehind {
        /// The first entry, counted from 0, that is not behind the one before it, or, for entry 0, not behind the last
        /// key of the table.
        entry: usize,
        /// That last key is of a deleted record which somebody needs still.
        of_ghost: bool,
    },
}

impl Append {
    /// As far as the order of the entries alone goes.
    pub fn by_order<K: AsRef<[u8]>, V>(entries: &[(K, V)]) -> Append {
        match entries.windows(2).position(|pair| pair[0].0.as_ref() >= pair[1].0.as_ref()) {
            Some(before) => Append::NotBehind { entry: before + 1, of_ghost: false },
            None => Append::Done,
        }
    }
}

impl BTree {
    /// Adds records behind all others, if their keys ascend and come behind the last key of the table (that of a
    /// deleted record counts as long as somebody needs it). The transaction has locked the table exclusively.
    pub fn append<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        session: &mut impl Session,
        entries: &[(K, V)],
    ) -> Result<Append> {
        for (key, value) in entries {
            check_lengths(key.as_ref(), value.as_ref())?;
        }
        let Some((first, _)) = entries.first() else { return Ok(Append::Done) };
        let tree = self.tree();
        if let Some(last) = tree.not_before(session, first.as_ref())? {
            return Ok(Append::NotBehind { entry: 0, of_ghost: matches!(last, Place::Ghost(_)) });
        }
        let order = Append::by_order(entries);
        if order != Append::Done {
            return Ok(order);
        }
        let mut rest = entries;
        while !rest.is_empty() {
            let done = tree.append_some(session, rest)?;
            rest = &rest[done..];
        }
        Ok(Append::Done)
    }
}

impl<'a> Tree<'a> {
    /// The last record, if it has this key or a higher one. Ghosts that are in the way are purged, if nobody needs
    /// them.
    fn not_before(&self, session: &mut impl Session, key: &[u8]) -> Result<Option<Place>> {
        while let Some(last) = self.last_key(session.patience())?.filter(|last| last.as_slice() >= key) {
            let mut page = self.leaf_for(session.patience(), &last)?;
            if self.purge(session, &mut page)? == 0 {
                return Ok(Some(Place::of(page.view(), &last)));
            }
            drop(page);
            // Leaves that are empty now would be walked over each time.
            self.maintain(session, Target::Key(&last))?;
        }
        Ok(None)
    }

    /// The leaf that a key behind all others belongs to, latched: the last one, or one before leaves without records.
    fn leaf_for(&self, patience: Patience<'_>, key: &[u8]) -> Result<ExclusivePage<'a>> {
        let target = Target::Key(key);
        loop {
            let landing = self.leaf(patience, target)?;
            if let Some(page) = self.latch(patience, landing.page, target, 0)? {
                return Ok(page);
            }
        }
    }

    /// Appends as many of the entries as the leaf of the first takes; makes room if that is none.
    fn append_some<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        session: &mut impl Session,
        entries: &[(K, V)],
    ) -> Result<usize> {
        let (first_key, first_value) = (entries[0].0.as_ref(), entries[0].1.as_ref());
        // A long value is in the overflow table before its record is in the leaf.
        let reference = if first_value.len() > MAX_INLINE_VALUE_BYTES {
            Some(self.write_chunks(session, first_value)?.bytes())
        } else {
            None
        };
        let of_first = Appended {
            key: first_key,
            value: reference.as_ref().map_or(first_value, |reference| reference),
            flags: RecordFlags { ghost: false, overflow: reference.is_some() },
        };
        let short = entries[1..].iter().map(|(key, value)| (key.as_ref(), value.as_ref()));
        let short = short.take_while(|(_, value)| value.len() <= MAX_INLINE_VALUE_BYTES);
        let following = short.map(|(key, value)| Appended { key, value, flags: RecordFlags::default() });
        let run = std::iter::once(of_first).chain(following);
        loop {
            let page = self.leaf_for(session.patience(), first_key)?;
            let last = page.view().slot_count().checked_sub(1).map(SlotIndex);
            if last.is_some_and(|last| page.view().compare_key(last, first_key).is_ge()) {
                // Redo would refuse it.
                return Err(misplaced(page.id()).into());
            }
            let records = self.that_fit(page.view(), run.clone())?;
            if records.is_empty() {
                self.split_and_adopt(session.patience(), page, first_key, Urgency::Work)?;
                continue;
            }
            self.append_records(session, page, &records)?;
            return Ok(records.len());
        }
    }

    /// As many of the records as belong into the leaf and fit, there and into a log record.
    fn that_fit<'r>(
        &self,
        view: SlottedView<'_>,
        run: impl Iterator<Item = Appended<'r>>,
    ) -> std::result::Result<Vec<Appended<'r>>, StorageError> {
        let room = self.env.node_capacity.saturating_sub(usize::from(view.slot_count()));
        let (mut records, mut bytes, mut logged) = (Vec::new(), 0, record::HEAD_BYTES);
        for record in run.take(room).take_while(|record| view.encloses(record.key)) {
            bytes += node::record_bytes(view, record.key, record.value.len());
            // The page has what all keys share but once.
            logged += record.encoded_bytes();
            if bytes > view.free_bytes() || logged > MAX_PAYLOAD_BYTES {
                break;
            }
            records.push(record);
        }
        // Some of the room may have to be gained by compaction, which only a sound page survives.
        node::has_room(view, bytes.min(view.free_bytes()))?;
        Ok(records)
    }

    fn append_records(
        &self,
        session: &mut impl Session,
        mut page: ExclusivePage<'a>,
        records: &[Appended<'_>],
    ) -> Result<()> {
        let slot = SlotIndex(page.view().slot_count());
        let number = records.len() as u16;
        let change =
            Change { page: page.id(), table: self.table, slot, flags: 0, number, key: &[], data: &[] };
        let data_bytes = records.iter().map(Appended::encoded_bytes).sum::<usize>();
        let mut payload = Vec::with_capacity(record::HEAD_BYTES + data_bytes);
        payload.extend_from_slice(&change.head());
        records.iter().for_each(|record| record.encode(&mut payload));
        page.prepare(Urgency::Work)?;
        let lsn = self.log_change(session, &page, record::APPEND, &[&payload])?;
        let done = apply(&mut page.edit(), records);
        self.finish(page, lsn, done)
    }
}

/// An error of a page to whose end an append does not belong.
pub(crate) fn misplaced(page: PageId) -> StorageError {
    damaged(page, "appended records do not belong to its end")
}
