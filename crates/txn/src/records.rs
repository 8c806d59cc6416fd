//! The log records of this crate, kinds 64 to 95. All numbers are little-endian.
//!
//! | kind | name | payload |
//! | --- | --- | --- |
//! | 64 | commit | – |
//! | 65 | end: a rollback is complete | – |
//! | 66 | checkpoint | see [`Checkpoint`] |
//! | 67 | a tree is about to be created for table | table id 4 |
//! | 68 | compensation of 67: the tree's root is free again | next LSN to undo 8, root page 4 or 0 |

use foreshore_base::{Lsn, PageId, Result, StorageError, TableId, TxnId, limits::MAX_TRANSACTIONS};
use foreshore_wal::{MAX_PAYLOAD_BYTES, RecordHeader, RecordKind};

use crate::table::OpenTransaction;

pub(crate) const COMMIT: RecordKind = RecordKind(64);
pub(crate) const END: RecordKind = RecordKind(65);
pub(crate) const CHECKPOINT: RecordKind = RecordKind(66);
pub(crate) const TREE_CREATION: RecordKind = RecordKind(67);
pub(crate) const TREE_DROPPED: RecordKind = RecordKind(68);

/// Kinds below this belong to `pages`.
const FIRST_BTREE_KIND: u8 = 16;
/// Kinds from this on belong to this crate.
const FIRST_TXN_KIND: u8 = 64;

/// Whose business a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Pages,
    Btree,
    Txn,
}

/// Whose business records of a kind are.
pub(crate) fn owner(kind: RecordKind) -> Owner {
    match kind.0 {
        ..FIRST_BTREE_KIND => Owner::Pages,
        FIRST_BTREE_KIND..FIRST_TXN_KIND => Owner::Btree,
        FIRST_TXN_KIND.. => Owner::Txn,
    }
}

/// A checkpoint's record.
///
/// | offset | bytes | |
/// | --- | --- | --- |
/// | 0 | 8 | LSN from which redo starts |
/// | 8 | 8 | LSN from which analysis starts |
/// | 16 | 8 | next transaction id |
/// | 24 | 8 | newest overflow id |
/// | 32 | 4 | next table id |
/// | 36 | 4 | number of open transactions |
/// | 40 | 16 each | transaction id 8, newest record 8 |
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) redo: Lsn,
    pub(crate) analysis: Lsn,
    pub(crate) next_txn: u64,
    pub(crate) last_overflow: u64,
    pub(crate) next_table: u32,
    pub(crate) open: Vec<OpenTransaction>,
}

const CHECKPOINT_HEAD_BYTES: usize = 40;
const OPEN_BYTES: usize = 16;

const _: () = assert!(CHECKPOINT_HEAD_BYTES + OPEN_BYTES * MAX_TRANSACTIONS <= MAX_PAYLOAD_BYTES);

impl Checkpoint {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(CHECKPOINT_HEAD_BYTES + OPEN_BYTES * self.open.len());
        bytes.extend_from_slice(&self.redo.0.to_le_bytes());
        bytes.extend_from_slice(&self.analysis.0.to_le_bytes());
        bytes.extend_from_slice(&self.next_txn.to_le_bytes());
        bytes.extend_from_slice(&self.last_overflow.to_le_bytes());
        bytes.extend_from_slice(&self.next_table.to_le_bytes());
        bytes.extend_from_slice(&(self.open.len() as u32).to_le_bytes());
        for open in &self.open {
            bytes.extend_from_slice(&open.txn.0.to_le_bytes());
            bytes.extend_from_slice(&open.last.0.to_le_bytes());
        }
        bytes
    }

    /// Reads the payload of the checkpoint at `header`. Takes any bytes.
    pub(crate) fn decode(header: &RecordHeader, payload: &[u8]) -> Result<Checkpoint> {
        let mut fields = Fields { rest: payload };
        let parsed = (|| {
            let checkpoint = Checkpoint {
                redo: Lsn(fields.u64()?),
                analysis: Lsn(fields.u64()?),
                next_txn: fields.u64()?,
                last_overflow: fields.u64()?,
                next_table: fields.u32()?,
                open: Vec::new(),
            };
            let count = fields.u32()? as usize;
            if fields.rest.len() != count.checked_mul(OPEN_BYTES)? {
                return None;
            }
            let open = (0..count)
                .map(|_| Some(OpenTransaction { txn: TxnId(fields.u64()?), last: Lsn(fields.u64()?) }))
                .collect::<Option<Vec<_>>>()?;
            let sane = checkpoint.analysis <= checkpoint.redo && checkpoint.redo <= header.lsn;
            sane.then_some(Checkpoint { open, ..checkpoint })
        })();
        parsed
            .filter(|_| header.kind == CHECKPOINT)
            .ok_or_else(|| StorageError::corrupt_log(header.lsn, "there should be a sound checkpoint record"))
    }
}

/// The payload of [`TREE_CREATION`].
pub(crate) fn encode_tree_creation(table: TableId) -> [u8; 4] {
    table.0.to_le_bytes()
}

pub(crate) fn decode_tree_creation(header: &RecordHeader, payload: &[u8]) -> Result<TableId> {
    Fields { rest: payload }.u32().map(TableId).ok_or_else(|| too_short(header))
}

/// The payload of [`TREE_DROPPED`].
pub(crate) fn encode_tree_dropped(undo_next: Lsn, root: PageId) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&undo_next.0.to_le_bytes());
    bytes[8..].copy_from_slice(&root.0.to_le_bytes());
    bytes
}

pub(crate) fn decode_tree_dropped(header: &RecordHeader, payload: &[u8]) -> Result<(Lsn, PageId)> {
    let mut fields = Fields { rest: payload };
    let parsed = (|| Some((Lsn(fields.u64()?), PageId(fields.u32()?))))();
    parsed.ok_or_else(|| too_short(header))
}

fn too_short(header: &RecordHeader) -> StorageError {
    StorageError::corrupt_log(header.lsn, format!("the record of kind {} is too short", header.kind.0))
}

/// Takes numbers from the front of a payload.
pub(crate) struct Fields<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(lsn: u64, kind: RecordKind) -> RecordHeader {
        RecordHeader { lsn: Lsn(lsn), prev: Lsn::ZERO, txn: TxnId::SYSTEM, kind }
    }

    fn checkpoint() -> Checkpoint {
        let open = (1..4).map(|txn| OpenTransaction { txn: TxnId(txn), last: Lsn(8 * txn) }).collect();
        Checkpoint { redo: Lsn(64), analysis: Lsn(56), next_txn: 9, last_overflow: 7, next_table: 16, open }
    }

    #[test]
    fn a_checkpoint_comes_back_as_it_went() {
        let bytes = checkpoint().encode();
        assert_eq!(Checkpoint::decode(&header(64, CHECKPOINT), &bytes).unwrap(), checkpoint());
    }

    #[test]
    fn a_checkpoint_of_any_other_shape_is_refused() {
        let bytes = checkpoint().encode();
        for length in 0..bytes.len() {
            assert!(Checkpoint::decode(&header(64, CHECKPOINT), &bytes[..length]).is_err(), "{length} bytes");
        }
        assert!(Checkpoint::decode(&header(64, COMMIT), &bytes).is_err());
        assert!(
            Checkpoint::decode(&header(63, CHECKPOINT), &bytes).is_err(),
            "redo would start after the end"
        );
        let mut counts_wrong = checkpoint().encode();
        counts_wrong[36..40].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Checkpoint::decode(&header(64, CHECKPOINT), &counts_wrong).is_err());
        let redo_before_analysis = Checkpoint { analysis: Lsn(65), ..checkpoint() }.encode();
        assert!(Checkpoint::decode(&header(64, CHECKPOINT), &redo_before_analysis).is_err());
    }

    #[test]
    fn tree_records_come_back_as_they_went() {
        let creation = encode_tree_creation(TableId(77));
        assert_eq!(decode_tree_creation(&header(8, TREE_CREATION), &creation).unwrap(), TableId(77));
        assert!(decode_tree_creation(&header(8, TREE_CREATION), &creation[..3]).is_err());
        let dropped = encode_tree_dropped(Lsn(5), PageId(6));
        assert_eq!(decode_tree_dropped(&header(8, TREE_DROPPED), &dropped).unwrap(), (Lsn(5), PageId(6)));
        assert!(decode_tree_dropped(&header(8, TREE_DROPPED), &dropped[..11]).is_err());
    }
}
