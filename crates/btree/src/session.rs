//! The seam between data and concurrency control: whom a tree asks for locks, and in whose name it logs.

use std::ops::Bound;

use foreshore_base::{Lsn, PageId, SlotIndex, TableId, TxnId};
use foreshore_latch::Patience;
use foreshore_lock::{KeyMode, KeyRef, LockError};
use foreshore_pages::{ExclusivePage, PageStamp, PageVersion};

use crate::cursor::Direction;

/// Where an operation found its key, or where that belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finger {
    /// The leaf, whose fences enclosed the key.
    pub leaf: PageId,
    /// The slot.
    pub slot: SlotIndex,
    /// The slot has the key, as long as the leaf stands at this version.
    pub found: Option<PageVersion>,
}

/// A transaction, as a tree sees it. Who answers decides the protocol of concurrency control.
pub trait Session {
    /// Asks for a lock until the end of the transaction; may wait. The tree never calls it under a latch (BTREE-4).
    fn acquire(&mut self, table: TableId, key: KeyRef<'_>, mode: KeyMode) -> Result<(), LockError>;

    /// Tells that this lock will be asked for as soon as the key is found: what is needed for it can come from memory
    /// meanwhile.
    #[inline]
    fn prefetch_lock(&self, table: TableId, key: KeyRef<'_>, mode: KeyMode) {
        let _ = (table, key, mode);
    }

    /// Asks for a lock without waiting; false leaves nothing behind. Allowed under a latch.
    fn try_acquire(&mut self, table: TableId, key: KeyRef<'_>, mode: KeyMode) -> Result<bool, LockError>;

    /// Locks on keys of this table were granted by [`Session::try_acquire`] under a latch, and the latch is gone: the
    /// time for what follows from them and must not happen under one.
    #[inline]
    fn after_unlatch(&mut self, table: TableId) {
        let _ = table;
    }

    /// What this transaction holds. Allowed under a latch.
    fn held(&self, table: TableId, key: KeyRef<'_>) -> Result<KeyMode, LockError>;

    /// What this transaction holds, and whether that covers `mode` or `mode` would be compatible with the requests of
    /// everybody else. Takes nothing. Allowed under a latch.
    fn held_and_check(
        &self,
        table: TableId,
        key: KeyRef<'_>,
        mode: KeyMode,
    ) -> Result<(KeyMode, bool), LockError>;

    /// Whether anybody, this transaction included, holds or awaits a lock of this name, or whether the name must be
    /// kept for another reason. A name that nobody needs may vanish. Allowed under a latch.
    fn has_requests(&self, table: TableId, key: KeyRef<'_>) -> bool;

    /// Whether ghosts, and slack of records, without requests may leave a leaf whose LSN is `leaf`: false if a delete
    /// or a shorter value that can still be taken back might have no requests, because a lock on more than a key covers
    /// it, and might be in that leaf (BTREE-14, BTREE-16). Allowed under a latch.
    #[inline]
    fn may_purge(&self, table: TableId, leaf: Lsn) -> bool {
        let _ = (table, leaf);
        true
    }

    /// This transaction has deleted a record of `table`, or made its value shorter, by the log record at `lsn`.
    #[inline]
    fn note_loss(&mut self, table: TableId, lsn: Lsn) {
        let _ = (table, lsn);
    }

    /// This transaction has deleted the chunks of a long value: their ghosts are for
    /// [`BTree::purge_long_values`](crate::BTree::purge_long_values) once it has committed.
    fn note_discarded(&mut self, long_value: u64) {
        let _ = long_value;
    }

    /// This transaction is about to delete the chunks of a long value of so many bytes. Nothing is latched.
    fn prepare_to_discard(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// This transaction is about to write the chunks of a long value: when that is taken back, what is left of them is
    /// for [`BTree::purge_long_values`](crate::BTree::purge_long_values), too.
    fn note_stored(&mut self, long_value: u64) {
        let _ = long_value;
    }

    /// How long the transaction waits for the latch of a page. Rollbacks and recovery do not ask: they wait without
    /// end.
    #[inline]
    fn patience(&self) -> Patience<'_> {
        Patience::ENDLESS
    }

    /// The place that [`Session::set_finger`] named last, if that was of this table: finger search, for those who read
    /// a key before they write it, or add one behind another.
    #[inline]
    fn finger(&self, table: TableId) -> Option<Finger> {
        let _ = table;
        None
    }

    /// Takes note of where an operation on `table` found its key.
    #[inline]
    fn set_finger(&mut self, table: TableId, finger: Finger) {
        let _ = (table, finger);
    }

    /// As [`Session::set_finger`], for the key that [`Session::acquire`] was asked for last. Which of the locks is on
    /// it can be kept with the place.
    #[inline]
    fn set_locked_finger(&mut self, table: TableId, finger: Finger) {
        self.set_finger(table, finger);
    }

    /// As [`Session::acquire`] for the key of the finger, if it is known, without the key's name, that nothing has to
    /// be done for it. False: it has to be asked for. The finger was set to what was true at its version.
    #[inline]
    fn holds_at_finger(&mut self, table: TableId, mode: KeyMode) -> bool {
        let _ = (table, mode);
        false
    }

    /// As [`Session::held_and_check`] for the key of the finger, if that is known without the key's name. Allowed under
    /// a latch.
    #[inline]
    fn held_and_check_at_finger(&self, table: TableId, mode: KeyMode) -> Option<(KeyMode, bool)> {
        let _ = (table, mode);
        None
    }

    /// Whether records of this table may be read without locks at this moment: for each read a leaf is
    /// [settled](Session::is_settled), or its names are [probed](Session::probe), and then it is
    /// [remembered](Session::remember) (READ-1).
    #[inline]
    fn reads_unlocked(&mut self, table: TableId) -> bool {
        let _ = table;
        false
    }

    /// Whether all transactions with records before or at `lsn` have ended, durably.
    #[inline]
    fn is_settled(&mut self, lsn: Lsn) -> bool {
        let _ = lsn;
        false
    }

    /// Whether nobody has a lock of this name, as far as one can tell without writing anything; false when in doubt.
    /// Takes note of the commit on which what the name stands for depends.
    #[inline]
    fn probe(&mut self, table: TableId, key: KeyRef<'_>) -> bool {
        let _ = (table, key);
        false
    }

    /// Takes note of a leaf that was read without locks, and was validated after that: it has to stay as it is.
    ///
    /// # Errors
    /// [`LockError::StaleReads`] when one that was read before has not.
    #[inline]
    fn remember(&mut self, table: TableId, leaf: PageStamp) -> Result<(), LockError> {
        let _ = (table, leaf);
        Ok(())
    }

    /// Asked when something was read under a lock, or is absent and needs none, before it is shown: whether what was
    /// read without locks still is as it was, so that the one was there beside the other.
    ///
    /// # Errors
    /// [`LockError::StaleReads`] when it is not.
    #[inline]
    fn stand_beside(&mut self) -> Result<(), LockError> {
        Ok(())
    }

    /// Whether it has remembered any leaf.
    #[inline]
    fn has_remembered(&self) -> bool {
        false
    }

    /// Whether it has remembered this leaf: then a tidying hand would change what has to stay as it is.
    #[inline]
    fn is_remembered(&self, leaf: PageId) -> bool {
        let _ = leaf;
        false
    }

    /// The transaction changes a leaf that it has latched, by the record at `lsn`. Called under the latch.
    #[inline]
    fn note_change(&mut self, leaf: &ExclusivePage<'_>, lsn: Lsn) {
        let _ = (leaf, lsn);
    }

    /// A scan of `table` that goes in this direction, under locks on keys and gaps, has met no record from the bound
    /// `from` up to where the bound `to` begins: until the transaction itself adds one, none is there.
    fn note_barren(&mut self, table: TableId, direction: Direction, from: Bound<&[u8]>, to: Bound<&[u8]>) {
        let _ = (table, direction, from, to);
    }

    /// Moves the near bound of a scan that is about to read behind what is known to have nothing; whether it has.
    #[inline]
    fn pass_barren(&self, table: TableId, direction: Direction, near: &mut Bound<Vec<u8>>) -> bool {
        let _ = (table, direction, near);
        false
    }

    /// This transaction has added a record, or is about to, or has filled a ghost.
    #[inline]
    fn note_added(&mut self, table: TableId, key: &[u8]) {
        let _ = (table, key);
    }

    /// Where the transaction's records are in the log.
    fn chain(&mut self) -> &mut TxnChain;

    /// Takes note of a record that was appended for the transaction, with so many bytes of payload. Called while the
    /// changed page is still latched, so that a checkpoint, which visits every page after it has taken its redo point,
    /// finds either the record behind that point or the transaction in the table (BTREE-9).
    fn note_logged(&mut self, lsn: Lsn, bytes: usize) {
        let _ = bytes;
        self.chain().note(lsn);
    }
}

/// The records of a transaction in the log: a chain, newest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxnChain {
    /// The transaction.
    pub txn: TxnId,
    /// Its first record; [`Lsn::ZERO`] when there is none.
    pub first: Lsn,
    /// Its newest record; [`Lsn::ZERO`] when there is none.
    pub last: Lsn,
}

impl TxnChain {
    /// The chain of a transaction that has logged nothing.
    pub fn new(txn: TxnId) -> TxnChain {
        TxnChain { txn, ..TxnChain::default() }
    }

    /// Appends a record.
    #[inline]
    pub fn note(&mut self, lsn: Lsn) {
        if self.first == Lsn::ZERO {
            self.first = lsn;
        }
        self.last = lsn;
    }
}

/// How much a read is protected from what other transactions do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Keys and gaps are locked: what was read, and what was found absent, stays so until the transaction ends.
    #[default]
    Serializable,
    /// Keys are locked, gaps are not: new keys may appear.
    RepeatableRead,
    /// Only what is committed is read. Keys are locked as for [`Isolation::RepeatableRead`] and stay locked, which is
    /// stronger than needed; it is a promise of less, for sessions that can make use of it.
    ReadCommitted,
}

impl Isolation {
    /// Whether gaps are locked.
    #[inline]
    pub(crate) fn locks_gaps(self) -> bool {
        self == Isolation::Serializable
    }
}

/// A session that needs no locks because nobody else can be there: recovery, the making of a database, tests, or
/// because another lock covers what it touches.
#[derive(Debug)]
pub struct NoLocks {
    chain: TxnChain,
}

impl NoLocks {
    /// A session that logs in the name of `txn`.
    pub fn new(txn: TxnId) -> NoLocks {
        NoLocks { chain: TxnChain::new(txn) }
    }
}

impl Session for NoLocks {
    fn acquire(&mut self, _: TableId, _: KeyRef<'_>, _: KeyMode) -> Result<(), LockError> {
        Ok(())
    }

    fn try_acquire(&mut self, _: TableId, _: KeyRef<'_>, _: KeyMode) -> Result<bool, LockError> {
        Ok(true)
    }

    fn held(&self, _: TableId, _: KeyRef<'_>) -> Result<KeyMode, LockError> {
        Ok(KeyMode::X)
    }

    fn held_and_check(&self, _: TableId, _: KeyRef<'_>, _: KeyMode) -> Result<(KeyMode, bool), LockError> {
        Ok((KeyMode::X, true))
    }

    fn has_requests(&self, _: TableId, _: KeyRef<'_>) -> bool {
        false
    }

    fn chain(&mut self) -> &mut TxnChain {
        &mut self.chain
    }
}
