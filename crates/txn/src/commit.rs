//! Commit: the record, the locks, the flush, in this order (safe SX-ELR, Kimura et al. 2012, Algorithms 6 and 7), or in
//! another, as [`EarlyLockRelease`] says.
//!
//! TXN-1: a commit is acknowledged when its record is durable (`Sync`) or appended (`Pipelined`, `Lazy`); a ticket,
//! when it is durable.
//!
//! TXN-2: locks go once the commit record has its LSN. What was changed under them keeps that LSN as a tag; whoever
//! locks it later has a commit record behind it in the log, or, having written nothing, waits until the highest tag
//! that it met is durable. So nobody is told of a commit that a crash can take back. The paper lets transactions go
//! that fail after their locks went; here a log that cannot write the record is poisoned, and nobody is told anything
//! more. Without early release, exclusive locks go when the record is durable, and leave no tag.

use foreshore_base::{Lsn, Result};
use foreshore_env::{
    Handle,
    sabotage::{Fault, planted},
};

use crate::{
    committer::Waiter,
    core::Core,
    error::TxnError,
    options::{Durability, EarlyLockRelease},
    records,
    stats::Event,
    ticket::CommitTicket,
    transaction::{Txn, TxnSession},
};

impl TxnSession {
    /// For what outlives the transaction, without keeping the database open.
    pub(crate) fn share_core(&self) -> Handle<Core> {
        self.engine.share_core(self.owner.place())
    }
}

impl Txn {
    /// Commits; gives the LSN after which it takes effect. A transaction that wrote nothing has no place of its own and
    /// gives that of the newest commit that it depends on.
    ///
    /// # Errors
    /// [`TxnError::OutcomeUnknown`] when the log failed in between. After any other error the transaction is rolled
    /// back.
    pub fn commit(mut self, durability: Durability) -> Result<Lsn, TxnError> {
        self.commit_in_place(durability)
    }

    /// As [`Txn::commit`], without being moved: a transaction is large. It has ended, whatever this returns.
    pub fn commit_in_place(&mut self, durability: Durability) -> Result<Lsn, TxnError> {
        let committed = self.end_by_commit(durability);
        if committed.is_err() {
            self.end_if_open();
        }
        committed
    }

    fn end_by_commit(&mut self, durability: Durability) -> Result<Lsn, TxnError> {
        debug_assert!(!self.finished, "a transaction ends once");
        self.check_usable()?;
        self.session.check_has_run()?;
        // READ-4: while all its locks are held, and before its commit has a place in the log.
        self.validate_reads()?;
        if self.session.has_records() {
            self.commit_changes(durability)
        } else {
            self.commit_reads(durability)
        }
    }

    /// Commits without waiting for the disk: its flush has been asked for, and the ticket tells when it is through.
    pub fn commit_pipelined(mut self) -> Result<CommitTicket, TxnError> {
        self.commit_pipelined_in_place()
    }

    /// As [`Txn::commit_pipelined`], in the way of [`Txn::commit_in_place`].
    pub fn commit_pipelined_in_place(&mut self) -> Result<CommitTicket, TxnError> {
        let core = self.session.share_core();
        let lsn = self.commit_in_place(Durability::Pipelined)?;
        Ok(CommitTicket::new(core, lsn))
    }

    /// READ-4, for all ways to a commit.
    #[inline]
    pub(crate) fn validate_reads(&mut self) -> Result<(), TxnError> {
        match self.session.validate_reads() {
            Ok(()) => {
                self.session.end_reads();
                Ok(())
            }
            Err(error) => Err(self.note(error.into())),
        }
    }

    fn commit_changes(&mut self, durability: Durability) -> Result<Lsn, TxnError> {
        if planted(Fault::LocksBeforeCommit) {
            self.session.owner.release_all(None);
        }
        let lsn = self.append_commit()?;
        self.finished = true;
        if durability != Durability::Lazy && !self.session.long_values.stay() {
            // The disk works meanwhile.
            self.session.core().log.request_flush(lsn);
        }
        self.session.purge_deleted();
        let core = self.session.core();
        let release = core.options.early_lock_release;
        let tags = core.options.release_tags && !planted(Fault::TagForgotten);
        match release {
            EarlyLockRelease::SharedAndExclusive => self.session.release_all(tags.then_some(lsn)),
            EarlyLockRelease::Shared => self.session.owner.release_shared(),
            EarlyLockRelease::Off => {}
        }
        let core = self.session.core();
        core.stats.count(Event::Commit);
        core.note_log_growth(lsn);
        if release == EarlyLockRelease::SharedAndExclusive {
            self.leave_pipeline(Some(lsn));
            self.flush(durability, lsn).map_err(TxnError::unknown)?;
        } else {
            self.commit_with_locks(durability, lsn)?;
        }
        Ok(lsn)
    }

    /// The rest of a commit whose exclusive locks wait for the flush.
    #[cold]
    fn commit_with_locks(&mut self, durability: Durability, lsn: Lsn) -> Result<(), TxnError> {
        if durability == Durability::Sync {
            let flushed = self.flush(durability, lsn);
            self.session.owner.release_all(None);
            self.leave_pipeline(Some(lsn));
            flushed.map_err(TxnError::unknown)?;
        } else if self.pipeline.is_some() {
            self.flush(durability, lsn).map_err(TxnError::unknown)?;
            self.leave_locks_to_pipeline(Some(lsn));
        } else {
            let locks = Waiter::Locks(self.session.owner.hand_over());
            // Refused when the engine is closing, and then they protect nothing.
            drop(self.session.core().committer.add(lsn, locks));
        }
        Ok(())
    }

    /// Appends the commit record, as a change like others, so that no checkpoint overlooks it (TXN-3). On an error
    /// the transaction is as it was.
    pub(crate) fn append_commit(&mut self) -> Result<Lsn, TxnError> {
        self.session.begin_change()?;
        match self.session.append_last(records::COMMIT) {
            Ok(lsn) => {
                self.session.release_slot();
                Ok(lsn)
            }
            Err(error) => {
                self.session.end_change();
                Err(error.into())
            }
        }
    }

    fn commit_reads(&mut self, durability: Durability) -> Result<Lsn, TxnError> {
        self.finished = true;
        self.session.release_slot();
        let before = self.pipeline.as_ref().map_or(Lsn::ZERO, |place| place.newest());
        let tag = self.session.owner.max_tag().max(self.session.reads.tag()).max(before);
        if self.inherits() {
            // Those before it have changed what the others cover.
            self.session.owner.release_shared();
            self.leave_locks_to_pipeline(Some(tag));
        } else {
            self.session.release_all(None);
            self.leave_pipeline(Some(tag));
        }
        self.session.core().stats.count(Event::ReadOnlyCommit);
        if tag != Lsn::ZERO {
            self.flush(durability, tag)?;
        }
        // Whoever died of a poisoned log has given up its locks without undoing its changes: nothing read since then
        // counts.
        self.session.core().check_open()?;
        Ok(tag)
    }

    /// Waits for a flush, or asks for one, or neither.
    #[inline]
    fn flush(&self, durability: Durability, lsn: Lsn) -> Result<()> {
        let log = &self.session.core().log;
        match durability {
            Durability::Sync if planted(Fault::CommitUnflushed) => Ok(()),
            Durability::Sync if !log.is_durable(lsn) => log.flush(lsn),
            Durability::Pipelined => {
                log.request_flush(lsn);
                Ok(())
            }
            Durability::Sync | Durability::Lazy => Ok(()),
        }
    }

    /// Whether its locks are also those of earlier transactions of its pipeline.
    pub(crate) fn inherits(&self) -> bool {
        self.pipeline.as_ref().is_some_and(|place| place.inherits)
    }

    /// Lets its pipeline go on, if it is in one, behind a commit or a preparation at this LSN, or a rollback.
    pub(crate) fn leave_pipeline(&mut self, committed: Option<Lsn>) {
        if let Some(place) = self.pipeline.take() {
            place.end(self.session.core(), None, committed);
        }
    }

    /// The same, and leaves to it what is locked.
    pub(crate) fn leave_locks_to_pipeline(&mut self, committed: Option<Lsn>) {
        if let Some(place) = self.pipeline.take() {
            let owner = self.session.owner.hand_over();
            place.end(self.session.core(), Some(owner), committed);
        }
    }
}
