//! The log records of this crate, kinds 64 to 95. All numbers are little-endian.
//!
//! | kind | name | payload |
//! | --- | --- | --- |
//! | 64 | commit | – |
//! | 65 | end: a rollback is complete | – |
//! | 66 | checkpoint | see [`Checkpoint`] |
//! | 67 | a tree is about to be created for table | table id 4 |
//! | 68 | compensation of 67: the tree's root is free again | next LSN to undo 8, root page 4 or 0 |
//! | 69 | prepared | see [`Prepare`] |
//! | 70 | locks of a transaction that is about to be prepared | 10 each, see [`LoggedLock`] |

use foreshore_base::{
    Lsn, PageId, Result, StorageError, TableId, TxnId,
    limits::{MAX_GLOBAL_ID_BYTES, MAX_TRANSACTIONS},
};
use foreshore_lock::{IntentMode, KeyMode, LockName};
use foreshore_wal::{MAX_PAYLOAD_BYTES, RecordHeader, RecordKind};

use crate::table::OpenTransaction;

pub(crate) const COMMIT: RecordKind = RecordKind(64);
pub(crate) const END: RecordKind = RecordKind(65);
pub(crate) const CHECKPOINT: RecordKind = RecordKind(66);
pub(crate) const TREE_CREATION: RecordKind = RecordKind(67);
pub(crate) const TREE_DROPPED: RecordKind = RecordKind(68);
pub(crate) const PREPARE: RecordKind = RecordKind(69);
pub(crate) const PREPARE_LOCKS: RecordKind = RecordKind(70);

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

/// The first number that no transaction has: the log has 48 bits for one.
pub(crate) const MOST_TRANSACTIONS: u64 = 1 << 48;
/// The first id that no long value has. Nobody comes so far, but where numbers that follow on each other would begin
/// anew, a damaged file may say that one is.
pub(crate) const MOST_LONG_VALUES: u64 = 1 << 63;

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
            let sane = checkpoint.analysis <= checkpoint.redo
                && checkpoint.redo <= header.lsn
                && checkpoint.next_txn <= MOST_TRANSACTIONS
                && checkpoint.last_overflow < MOST_LONG_VALUES;
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

/// The record that makes a transaction a prepared one.
///
/// | offset | bytes | |
/// | --- | --- | --- |
/// | 0 | 8 | when, in seconds since 1970 |
/// | 8 | 8 | the transaction's first record; 0 if this is it |
/// | 16 | 8 | the lock name of a known key |
/// | 24 | 4 | records of kind 70 right before this one in the chain |
/// | 28 | … | global id |
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prepare {
    pub(crate) at: u64,
    pub(crate) first: Lsn,
    pub(crate) known_name: LockName,
    pub(crate) pieces: u32,
    pub(crate) global_id: Vec<u8>,
}

impl Prepare {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(28 + self.global_id.len());
        bytes.extend_from_slice(&self.at.to_le_bytes());
        bytes.extend_from_slice(&self.first.0.to_le_bytes());
        bytes.extend_from_slice(&self.known_name.bits().to_le_bytes());
        bytes.extend_from_slice(&self.pieces.to_le_bytes());
        bytes.extend_from_slice(&self.global_id);
        bytes
    }

    /// Takes any bytes.
    pub(crate) fn decode(header: &RecordHeader, payload: &[u8]) -> Result<Prepare> {
        let mut fields = Fields { rest: payload };
        let parsed = (|| {
            Some(Prepare {
                at: fields.u64()?,
                first: Lsn(fields.u64()?),
                known_name: LockName::from_bits(fields.u64()?),
                pieces: fields.u32()?,
                global_id: fields.rest.to_vec(),
            })
        })();
        let sane = |prepare: &Prepare| {
            prepare.first < header.lsn && (1..=MAX_GLOBAL_ID_BYTES).contains(&prepare.global_id.len())
        };
        parsed.filter(sane).ok_or_else(|| {
            StorageError::corrupt_log(header.lsn, "there should be the record of a prepared transaction")
        })
    }
}

/// A lock that a prepared transaction keeps: what 1 (0: a table, 1: a key), mode 1, table id or lock name 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoggedLock {
    Table(TableId, IntentMode),
    Key(LockName, KeyMode),
}

const LOCK_BYTES: usize = 10;
/// About 16 KiB in a record.
pub(crate) const LOCKS_PER_RECORD: usize = 1600;
const _: () = assert!(LOCK_BYTES * LOCKS_PER_RECORD <= MAX_PAYLOAD_BYTES);

/// Modes of tables by their number in the log.
const TABLE_MODES: [IntentMode; 5] =
    [IntentMode::IS, IntentMode::IX, IntentMode::S, IntentMode::SIX, IntentMode::X];

pub(crate) fn encode_locks(locks: &[LoggedLock]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LOCK_BYTES * locks.len());
    for lock in locks {
        let (what, mode, name) = match *lock {
            LoggedLock::Table(table, mode) => {
                let number = TABLE_MODES.iter().position(|known| *known == mode).unwrap_or_default();
                (0, number as u8, u64::from(table.0))
            }
            LoggedLock::Key(name, mode) => {
                let number = KeyMode::ALL.iter().position(|known| *known == mode).unwrap_or_default();
                (1, number as u8, name.bits())
            }
        };
        bytes.extend_from_slice(&[what, mode]);
        bytes.extend_from_slice(&name.to_le_bytes());
    }
    bytes
}

/// Adds the locks of a record of kind [`PREPARE_LOCKS`]. Takes any bytes.
pub(crate) fn decode_locks(header: &RecordHeader, payload: &[u8], locks: &mut Vec<LoggedLock>) -> Result<()> {
    let wrong = || StorageError::corrupt_log(header.lsn, "there should be locks of a prepared transaction");
    if header.kind != PREPARE_LOCKS || !payload.len().is_multiple_of(LOCK_BYTES) {
        return Err(wrong());
    }
    let mut fields = Fields { rest: payload };
    while let Some(&[what, mode]) = fields.take(2).and_then(<[u8]>::first_chunk) {
        let name = fields.u64().ok_or_else(wrong)?;
        let mode = usize::from(mode);
        let lock = match what {
            0 => u32::try_from(name)
                .ok()
                .zip(TABLE_MODES.get(mode))
                .map(|(table, &mode)| LoggedLock::Table(TableId(table), mode)),
            1 => KeyMode::ALL.get(mode).map(|&mode| LoggedLock::Key(LockName::from_bits(name), mode)),
            _ => None,
        };
        locks.push(lock.ok_or_else(wrong)?);
    }
    Ok(())
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
    fn a_prepared_transaction_comes_back_as_it_went() {
        let prepare = Prepare {
            at: 77,
            first: Lsn(64),
            known_name: LockName::from_bits(5),
            pieces: 3,
            global_id: b"id".to_vec(),
        };
        let bytes = prepare.encode();
        assert_eq!(Prepare::decode(&header(100, PREPARE), &bytes).unwrap(), prepare);
        assert!(Prepare::decode(&header(64, PREPARE), &bytes).is_err(), "it begins after its end");
        for length in 0..29 {
            assert!(Prepare::decode(&header(100, PREPARE), &bytes[..length]).is_err(), "{length} bytes");
        }
        let long = Prepare { global_id: vec![0; MAX_GLOBAL_ID_BYTES + 1], ..prepare };
        assert!(Prepare::decode(&header(100, PREPARE), &long.encode()).is_err());
    }

    #[test]
    fn logged_locks_come_back_as_they_went() {
        let keys = KeyMode::ALL.map(|mode| LoggedLock::Key(LockName::from_bits(u64::MAX - 3), mode));
        let tables = TABLE_MODES.map(|mode| LoggedLock::Table(TableId::VOLUME, mode));
        let locks: Vec<_> = keys.into_iter().chain(tables).collect();
        let bytes = encode_locks(&locks);
        let decoded = |bytes: &[u8], kind| {
            let mut locks = Vec::new();
            decode_locks(&header(8, kind), bytes, &mut locks).map(|()| locks)
        };
        assert_eq!(decoded(&bytes, PREPARE_LOCKS).unwrap(), locks);
        assert!(decoded(&bytes, PREPARE).is_err());
        assert!(decoded(&bytes[1..], PREPARE_LOCKS).is_err());
        for (place, wrong) in [(0, 2), (1, 9), (91, 5)] {
            let mut bytes = bytes.clone();
            bytes[place] = wrong;
            assert!(decoded(&bytes, PREPARE_LOCKS).is_err(), "{place}");
        }
        let mut no_table = encode_locks(&tables[..1]);
        no_table[9] = 1;
        assert!(decoded(&no_table, PREPARE_LOCKS).is_err(), "a table id has 32 bits");
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
