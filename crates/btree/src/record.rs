//! The tree's log records. All numbers are little-endian.
//!
//! A *change* is one page's part of a user transaction; its undo is logical, by key. Payload:
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 4 | page |
//! | 4 | 4 | table |
//! | 8 | 2 | slot |
//! | 10 | 1 | flags: 1 the new value is an overflow reference, 2 the old one is, 4 the record was a ghost, 8 what a shorter value leaves is slack, as always since format 4 |
//! | 11 | 1 | zero |
//! | 12 | 2 | bytes of the key, *k* |
//! | 14 | 2 | a number, see below |
//! | 16 | *k* | key |
//! | 16 + *k* | … | data, see below |
//!
//! | kind | name | number | data |
//! | --- | --- | --- | --- |
//! | 16 | insert | – | new value |
//! | 17 | update | bytes of the old value | old value, new value |
//! | 18 | patch | offset in the value | old bytes, as many new bytes |
//! | 19 | delete | – | old value |
//! | 20 | append | records | see `append.rs` |
//!
//! A *compensation* takes a change back and is never undone itself. Payload: the LSN of the record that is to be undone
//! next (8 bytes), then as above:
//!
//! | kind | name | number | data |
//! | --- | --- | --- | --- |
//! | 24 | bury (of insert, append) | slots behind this one that are buried, too | – |
//! | 25 | restore (of update) | – | the value |
//! | 26 | unpatch (of patch) | offset in the value | the bytes |
//! | 27 | revive (of delete) | – | the value |
//! | 28 | insert again (of delete, when the ghost is gone) | – | the value |
//! | 29 | nothing (the table is gone) | – | – |
//!
//! A *structure change* is a system transaction, one record for all its pages, redone and never undone (BTREE-10). Page
//! ids take 4 bytes, slots and counts 2; `node` is a node's content as `image.rs` encodes it:
//!
//! | kind | name | payload |
//! | --- | --- | --- |
//! | 32 | create | table, root (allocated) |
//! | 33 | split | table, page, new page (allocated), records that stay, `node` of the new page |
//! | 34 | adopt | table, parent, child, its foster child, slot in the parent, separator |
//! | 35 | grow | table, root, child (allocated), `node` of the child |
//! | 36 | shrink | table, root, child (freed), `node` of the root |
//! | 37 | merge | table, parent, left, right (freed), slot in the parent, `node` of the right page |
//! | 38 | purge | table, page, slots: ghosts go, other records lose their slack |
//! | 39 | reap | table, parent or 0, page (freed), slot in the parent, or 65,535 for its foster child, 65,534 for its leftmost |
//! | 40 | move | table, parent, page (freed), new page (allocated), slot in the parent as above, `node` |
//! | 41 | move root | table, page of another tree, root (freed), new root (allocated), slot and offset in the value that names it (2 bytes each), `node` |

use foreshore_base::{Lsn, PageId, SlotIndex, StorageError, TableId};
use foreshore_wal::{RecordHeader, RecordKind};

pub(crate) const INSERT: RecordKind = RecordKind(16);
pub(crate) const UPDATE: RecordKind = RecordKind(17);
pub(crate) const PATCH: RecordKind = RecordKind(18);
pub(crate) const DELETE: RecordKind = RecordKind(19);
pub(crate) const APPEND: RecordKind = RecordKind(20);

pub(crate) const BURY: RecordKind = RecordKind(24);
pub(crate) const RESTORE: RecordKind = RecordKind(25);
pub(crate) const UNPATCH: RecordKind = RecordKind(26);
pub(crate) const REVIVE: RecordKind = RecordKind(27);
pub(crate) const INSERT_AGAIN: RecordKind = RecordKind(28);
pub(crate) const NOTHING: RecordKind = RecordKind(29);

pub(crate) const CREATE: RecordKind = RecordKind(32);
pub(crate) const SPLIT: RecordKind = RecordKind(33);
pub(crate) const ADOPT: RecordKind = RecordKind(34);
pub(crate) const GROW: RecordKind = RecordKind(35);
pub(crate) const SHRINK: RecordKind = RecordKind(36);
pub(crate) const MERGE: RecordKind = RecordKind(37);
pub(crate) const PURGE: RecordKind = RecordKind(38);
pub(crate) const REAP: RecordKind = RecordKind(39);
pub(crate) const MOVE: RecordKind = RecordKind(40);
pub(crate) const MOVE_ROOT: RecordKind = RecordKind(41);

/// Flag of a change: the new value is an overflow reference.
pub(crate) const NEW_OVERFLOW: u8 = 1;
/// Flag of a change: the old value is an overflow reference.
pub(crate) const OLD_OVERFLOW: u8 = 2;
/// Flag of an insert: there was a ghost of the key.
pub(crate) const ON_GHOST: u8 = 4;

/// Flag of a change or compensation that replaces a value: what a shorter one leaves is slack.
pub(crate) const KEEPS_SLACK: u8 = 8;

/// Bytes before the key.
pub(crate) const HEAD_BYTES: usize = 16;
/// Bytes that a compensation has before its change.
const UNDO_NEXT_BYTES: usize = 8;

/// Whether a record of this kind is taken back when its transaction rolls back.
pub fn is_undoable(kind: RecordKind) -> bool {
    (INSERT..=APPEND).contains(&kind)
}

/// Where rollback goes on after a compensation; `None` for every other record.
pub fn undo_next(header: &RecordHeader, payload: &[u8]) -> Option<Lsn> {
    if !(BURY..=NOTHING).contains(&header.kind) {
        return None;
    }
    payload.first_chunk().map(|bytes| Lsn(u64::from_le_bytes(*bytes)))
}

/// Table and root of the record with which [`crate::BTree::create`] made a tree.
pub fn created_root(kind: RecordKind, payload: &[u8]) -> Option<(TableId, PageId)> {
    if kind != CREATE {
        return None;
    }
    let mut reader = Reader(payload);
    Some((TableId(reader.u32()?), PageId(reader.u32()?)))
}

/// The id of the long value of which this record inserts a chunk.
pub fn inserted_long_value(kind: RecordKind, payload: &[u8]) -> Option<u64> {
    if kind != INSERT {
        return None;
    }
    let chunk = Change::parse(payload).filter(|change| change.table == TableId::OVERFLOW)?;
    chunk.key.first_chunk().map(|id| u64::from_be_bytes(*id))
}

pub(crate) fn malformed(header: &RecordHeader) -> StorageError {
    StorageError::corrupt_log(header.lsn, format!("a record of kind {} makes no sense", header.kind.0))
}

/// A change or the change in a compensation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'p> {
    pub(crate) page: PageId,
    pub(crate) table: TableId,
    pub(crate) slot: SlotIndex,
    pub(crate) flags: u8,
    pub(crate) number: u16,
    pub(crate) key: &'p [u8],
    pub(crate) data: &'p [u8],
}

impl<'p> Change<'p> {
    /// The bytes before the key.
    #[inline]
    pub(crate) fn head(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&self.page.0.to_le_bytes());
        head[4..8].copy_from_slice(&self.table.0.to_le_bytes());
        head[8..10].copy_from_slice(&self.slot.0.to_le_bytes());
        head[10] = self.flags;
        head[12..14].copy_from_slice(&(self.key.len() as u16).to_le_bytes());
        head[14..].copy_from_slice(&self.number.to_le_bytes());
        head
    }

    pub(crate) fn parse(payload: &'p [u8]) -> Option<Change<'p>> {
        let mut reader = Reader(payload);
        let (page, table) = (PageId(reader.u32()?), TableId(reader.u32()?));
        let (slot, flags) = (SlotIndex(reader.u16()?), reader.u16()? as u8);
        let (key_bytes, number) = (reader.u16()?, reader.u16()?);
        let key = reader.bytes(usize::from(key_bytes))?;
        Some(Change { page, table, slot, flags, number, key, data: reader.0 })
    }

    /// The change in a compensation.
    pub(crate) fn parse_compensation(payload: &'p [u8]) -> Option<Change<'p>> {
        Change::parse(payload.get(UNDO_NEXT_BYTES..)?)
    }

    /// Old and new value of an update.
    pub(crate) fn update_values(&self) -> Option<(&'p [u8], &'p [u8])> {
        self.data.split_at_checked(usize::from(self.number))
    }

    /// Old and new bytes of a patch.
    pub(crate) fn patch_bytes(&self) -> Option<(&'p [u8], &'p [u8])> {
        self.data.len().is_multiple_of(2).then(|| self.data.split_at(self.data.len() / 2))
    }
}

/// Reads a payload front to back; nothing past its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'p>(pub(crate) &'p [u8]);

impl<'p> Reader<'p> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn page(&mut self) -> Option<PageId> {
        self.u32().map(PageId)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'p [u8]> {
        let (first, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(first)
    }
}

/// The numbers that a structure change begins with: table and pages, then a slot or count if there is one.
pub(crate) fn structure(table: TableId, pages: &[PageId], number: Option<u16>) -> Vec<u8> {
    let mut bytes = table.0.to_le_bytes().to_vec();
    pages.iter().for_each(|page| bytes.extend_from_slice(&page.0.to_le_bytes()));
    number.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    bytes
}
