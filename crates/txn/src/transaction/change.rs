//! Changes as the table of transactions is told of them: announced, ended, and in between left to whoever may end the
//! transaction (TXN-3, TXN-35).

use foreshore_base::{Result, TableId};
use foreshore_btree::TreeError;
use foreshore_env::{thread, time::Duration};
use foreshore_lock::{CancelToken, KeyMode, KeyRef, LockError};

use super::{Txn, TxnSession};
use crate::error::TxnError;

/// How often the owner of a transaction that somebody else has ended looks whether it is undone.
const ENDER_LOOK: Duration = Duration::from_millis(1);

impl Txn {
    /// Runs a change, announced (TXN-3). A panic in it may leave log and pages apart, so it poisons (TXN-7); no code of
    /// users runs in here.
    #[inline]
    pub(crate) fn change_once<R>(
        &mut self,
        change: impl FnOnce(&mut TxnSession) -> Result<R, TreeError>,
    ) -> Result<R, TxnError> {
        self.session.begin_change()?;
        let fuse = Fuse(&mut self.session);
        let result = change(fuse.0);
        std::mem::forget(fuse);
        self.session.end_change();
        result.map_err(TxnError::from)
    }
}

impl TxnSession {
    /// Whether it was told to go, or ended, because it needs most of a full log.
    #[inline]
    pub(crate) fn is_ended(&self) -> bool {
        self.slot.is_some_and(|slot| self.core().transactions.is_ended(slot, self.chain.txn))
    }

    /// Whether nobody has ended it (TXN-35). Also asked after it has read, for it may have read what was undone
    /// meanwhile.
    #[inline]
    pub(super) fn check_not_ended(&self) -> Result<(), TxnError> {
        if self.is_ended() { Err(TxnError::LogHeld) } else { Ok(()) }
    }

    /// Whether nobody has ended it, nor its database, nor cancelled it.
    #[inline]
    pub(super) fn check_may_go_on(&self) -> Result<(), TxnError> {
        self.check_not_ended()?;
        if self.waiting.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Err(LockError::Cancelled.into());
        }
        Ok(self.core().check_open()?)
    }

    /// Announces a change (TXN-3), and takes a slot for the first one.
    #[inline]
    pub(crate) fn begin_change(&mut self) -> Result<(), TxnError> {
        if self.announce_change()? { Ok(()) } else { Err(TxnError::LogHeld) }
    }

    /// As [`TxnSession::begin_change`]; false: somebody else has ended it (TXN-35).
    #[inline]
    pub(crate) fn announce_change(&mut self) -> Result<bool> {
        let core = self.engine.core();
        // TXN-32.
        core.check_writable()?;
        let (slot, from) = match self.slot {
            // What it appends lies behind what it has appended, and behind what is durable. The tail itself is the line
            // that all who append want: to look at it costs as much as to append.
            Some(slot) if self.has_records() => (slot, self.chain.last.max(core.log.durable())),
            Some(slot) => (slot, core.log.tail()),
            None => {
                let tail = core.log.tail();
                let slot = core.transactions.claim(self.chain.txn, tail)?;
                self.company.begin_share(tail, core.log.work_bytes());
                (*self.slot.insert(slot), tail)
            }
        };
        if !self.resting {
            core.transactions.begin_change(slot, from);
        } else if core.transactions.resume_change(slot, self.chain.txn, from) {
            self.resting = false;
        } else {
            return Ok(false);
        }
        self.changing = true;
        Ok(true)
    }

    /// Lets checkpoints know of the records so far, in the middle of a long change.
    pub(crate) fn advance_change(&mut self) {
        if let (Some(slot), true) = (self.slot, self.changing) {
            let core = self.core();
            core.transactions.advance(slot, self.chain.last, core.log.tail());
        }
    }

    /// Waits for a lock in the middle of a change. That may take long: checkpoints shall not have to look back to where
    /// the change began, and a transaction's first one, which has logged nothing yet, gives its slot back meanwhile
    /// (TXN-36).
    #[cold]
    pub(super) fn wait_in_change(
        &mut self,
        table: TableId,
        key: KeyRef<'_>,
        mode: KeyMode,
    ) -> Result<(), LockError> {
        let begins_anew = !self.has_records();
        if begins_anew {
            self.end_change();
        } else {
            self.advance_change();
        }
        self.owner.acquire(table, key, mode, &self.waiting.policy())?;
        if begins_anew {
            self.announce_change().map_err(|error| LockError::Ended(Box::new(error)))?;
        }
        Ok(())
    }

    /// Ends a change. A transaction that has no record yet keeps no slot either: it would keep the log from there on,
    /// for others that need the room that it may be waiting for (TXN-36).
    #[inline]
    pub(crate) fn end_change(&mut self) {
        if !self.has_records() {
            return self.release_slot();
        }
        if let Some(slot) = self.slot {
            let (transactions, last) = (&self.engine.core().transactions, self.chain.last);
            if self.endable {
                transactions.rest(slot, self.chain.txn, last);
                self.resting = true;
            } else {
                transactions.end_change(slot, last);
            }
        }
        self.changing = false;
    }

    /// From now on nobody else ends it. False: somebody has, and it has no change left when this returns.
    pub(crate) fn keep_to_itself(&mut self) -> bool {
        self.endable = false;
        let Some(slot) = self.slot.filter(|_| self.resting) else { return true };
        self.resting = false;
        let txn = self.chain.txn;
        if self.core().transactions.take_back(slot, txn) {
            return true;
        }
        self.slot = None;
        // Its locks protect what is being undone. That ends, whether or not it succeeds.
        while self.core().transactions.is_open(slot, txn) {
            thread::sleep(ENDER_LOOK);
        }
        false
    }

    /// Gives the slot back: the last record is in the log.
    #[inline]
    pub(crate) fn release_slot(&mut self) {
        if let Some(slot) = self.slot.take() {
            let transactions = &self.engine.core().transactions;
            // Whoever has ended it gives the slot back.
            if !self.resting || transactions.take_back(slot, self.chain.txn) {
                transactions.release(slot);
            }
        }
        (self.changing, self.resting) = (false, false);
    }
}

/// Poisons the database when it is dropped, that is, when a panic passes.
struct Fuse<'a>(&'a mut TxnSession);

impl Drop for Fuse<'_> {
    #[cold]
    fn drop(&mut self) {
        self.0.core().log.poison("a thread died in the middle of a change");
    }
}
