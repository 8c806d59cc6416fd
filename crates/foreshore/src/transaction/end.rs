//! How a transaction ends.

use foreshore_txn::{CancelToken, Parted, Txn, TxnError};

use super::{Asker, Transaction};
use crate::{
    Durability,
    error::{Error, Result},
    pipeline::CommitTicket,
};

impl Transaction {
    /// Commits with the durability that the transaction began with. Under [`Durability::Sync`], what it did survives
    /// a crash once this returns.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the log fails between the commit and its confirmation: when the database is opened
    /// again, all of it is there or nothing. After any other error nothing was committed: [`Error::TransactionFailed`],
    /// [`Error::LogHeld`] or [`Error::Cancelled`] if the transaction could only be rolled back; [`Error::StaleReads`]
    /// if others have changed what it has read without locks; [`Error::Closed`], [`Error::Poisoned`] or
    /// [`Error::Forked`] if the database can no longer be used here.
    pub fn commit(mut self) -> Result<()> {
        self.commit_in_place()
    }

    /// [`Transaction::commit`] where it lies; it has ended then, whatever came of it.
    pub(crate) fn commit_in_place(&mut self) -> Result<()> {
        self.end(Txn::commit_in_place).map(|_| ())
    }

    /// Commits with another durability.
    ///
    /// # Errors
    /// As [`Transaction::commit`]; [`Error::OutcomeUnknown`] only under [`Durability::Sync`].
    pub fn commit_with(mut self, durability: Durability) -> Result<()> {
        self.durability = durability;
        self.commit_in_place()
    }

    /// Commits without waiting for the disk: others can go on with what this transaction touched, and the ticket tells
    /// when the commit is durable. What the transaction has read is certain only then, too.
    ///
    /// # Errors
    /// As [`Transaction::commit`], but for [`Error::OutcomeUnknown`], which the ticket tells: nothing was committed.
    pub fn commit_pipelined(mut self) -> Result<CommitTicket> {
        self.commit_pipelined_in_place()
    }

    /// [`Transaction::commit_pipelined`], as [`Transaction::commit_in_place`].
    pub(crate) fn commit_pipelined_in_place(&mut self) -> Result<CommitTicket> {
        let ticket = self.end(|txn, _| txn.commit_pipelined_in_place())?;
        Ok(CommitTicket::new(ticket, &self.database))
    }

    /// The first phase of a two-phase commit: makes the transaction ready to commit under this id (1 to 200 bytes),
    /// durably. From then on only [`Database::commit_prepared`](crate::Database::commit_prepared) or
    /// [`Database::rollback_prepared`](crate::Database::rollback_prepared) ends it; anybody may call them, also after a
    /// crash or a restart. Until then it keeps what it has written locked, and the log from its first record on.
    ///
    /// In a [`Pipeline`](crate::Pipeline) without early lock release, what its predecessors have locked and still keep
    /// becomes its own: [`Pipeline::flush`](crate::Pipeline::flush) before it begins gives that back.
    ///
    /// # Errors
    /// [`Error::GlobalIdInUse`], [`Error::InvalidGlobalId`], [`Error::ReadOnly`]; [`Error::LogFull`] or
    /// [`Error::DiskFull`] if there is no room in the log for its locks; what [`Transaction::commit`] fails with. The
    /// transaction is rolled back then; after [`Error::OutcomeUnknown`] it may be found prepared when the database is
    /// opened again.
    pub fn prepare(self, global_id: impl AsRef<[u8]>) -> Result<()> {
        if self.is_cancelled() {
            self.rollback()?;
            return Err(Error::Cancelled);
        }
        let Transaction { asker: Asker { txn, .. }, database, .. } = self;
        txn.prepare(global_id.as_ref()).map_err(|error| Error::from_txn(error, &database.path))
    }

    /// [`Transaction::commit_pipelined`] for those whose locks travel, in place: under [`Durability::Lazy`] the flush
    /// is not asked for.
    pub(crate) fn commit_parting(&mut self) -> Result<(CommitTicket, Option<Box<Parted>>)> {
        let (ticket, parted) = self.end(|txn, durability| {
            txn.commit_parting(match durability {
                Durability::Lazy => Durability::Lazy,
                Durability::Sync | Durability::Pipelined => Durability::Pipelined,
            })
        })?;
        Ok((CommitTicket::new(ticket, &self.database), parted))
    }

    /// [`Transaction::rollback`] for those whose locks travel, in place, if they do so on their way back.
    pub(crate) fn rollback_parting(&mut self, travels: bool) -> Result<Option<Box<Parted>>> {
        self.asker.txn.rollback_parting(travels).map_err(|error| Error::from_txn(error, &self.database.path))
    }

    /// How it commits.
    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    #[inline]
    fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// Commits it in one of the ways there are. DB-6: a cancelled transaction is rolled back, whatever was to become of
    /// it.
    fn end<R>(&mut self, commit: impl FnOnce(&mut Txn, Durability) -> Result<R, TxnError>) -> Result<R> {
        if self.is_cancelled() {
            self.rollback_in_place()?;
            return Err(Error::Cancelled);
        }
        commit(&mut self.asker.txn, self.durability)
            .map_err(|error| Error::from_txn(error, &self.database.path))
    }

    /// Undoes everything and ends the transaction. Dropping it does the same, without telling of a failure.
    ///
    /// # Errors
    /// [`Error::Forked`] in a fork of the process, where nothing is undone. [`Error::Closed`] or [`Error::Poisoned`] if
    /// the database can no longer be used: the next opening undoes what is left. If undoing fails otherwise, with
    /// [`Error::Corrupted`] or [`Error::Io`] for one, the database stops.
    pub fn rollback(mut self) -> Result<()> {
        self.rollback_in_place()
    }

    /// [`Transaction::rollback`], as [`Transaction::commit_in_place`].
    pub(crate) fn rollback_in_place(&mut self) -> Result<()> {
        self.asker.txn.rollback_in_place().map_err(|error| Error::from_txn(error, &self.database.path))
    }
}
