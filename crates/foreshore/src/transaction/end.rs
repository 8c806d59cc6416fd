//! How a transaction ends.

use foreshore_txn::{CancelToken, Parted};

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
    pub fn commit(self) -> Result<()> {
        let durability = self.durability;
        self.commit_with(durability)
    }

    /// Commits with another durability.
    ///
    /// # Errors
    /// As [`Transaction::commit`]; [`Error::OutcomeUnknown`] only under [`Durability::Sync`].
    pub fn commit_with(self, durability: Durability) -> Result<()> {
        if self.is_cancelled() {
            return self.end_cancelled();
        }
        let Transaction { asker: Asker { txn, .. }, database, .. } = self;
        match txn.commit(durability) {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::from_txn(error, &database.path)),
        }
    }

    /// Commits without waiting for the disk: others can go on with what this transaction touched, and the ticket tells
    /// when the commit is durable. What the transaction has read is certain only then, too.
    ///
    /// # Errors
    /// As [`Transaction::commit`], but for [`Error::OutcomeUnknown`], which the ticket tells: nothing was committed.
    pub fn commit_pipelined(self) -> Result<CommitTicket> {
        if self.is_cancelled() {
            return self.end_cancelled();
        }
        let Transaction { asker: Asker { txn, .. }, database, .. } = self;
        match txn.commit_pipelined() {
            Ok(ticket) => Ok(CommitTicket::new(ticket, &database)),
            Err(error) => Err(Error::from_txn(error, &database.path)),
        }
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
            return self.end_cancelled();
        }
        let Transaction { asker: Asker { txn, .. }, database, .. } = self;
        txn.prepare(global_id.as_ref()).map_err(|error| Error::from_txn(error, &database.path))
    }

    /// [`Transaction::commit_pipelined`] for those whose locks travel: under [`Durability::Lazy`] the flush is not
    /// asked for.
    pub(crate) fn commit_parting(self) -> Result<(CommitTicket, Option<Box<Parted>>)> {
        let durability = match self.durability {
            Durability::Lazy => Durability::Lazy,
            Durability::Sync | Durability::Pipelined => Durability::Pipelined,
        };
        if self.is_cancelled() {
            return self.end_cancelled();
        }
        let Transaction { asker: Asker { txn, .. }, database, .. } = self;
        match txn.commit_parting(durability) {
            Ok((ticket, parted)) => Ok((CommitTicket::new(ticket, &database), parted)),
            Err(error) => Err(Error::from_txn(error, &database.path)),
        }
    }

    /// [`Transaction::rollback`] for those whose locks travel, if they do so on their way back.
    pub(crate) fn rollback_parting(self, travels: bool) -> Result<Option<Box<Parted>>> {
        let Transaction { asker: Asker { txn, .. }, database, .. } = self;
        txn.rollback_parting(travels).map_err(|error| Error::from_txn(error, &database.path))
    }

    /// How it commits.
    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    #[inline]
    fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// DB-6: a cancelled transaction is rolled back, whatever was to become of it.
    #[cold]
    fn end_cancelled<R>(self) -> Result<R> {
        self.rollback()?;
        Err(Error::Cancelled)
    }

    /// Undoes everything and ends the transaction. Dropping it does the same, without telling of a failure.
    ///
    /// # Errors
    /// [`Error::Forked`] in a fork of the process, where nothing is undone. [`Error::Closed`] or [`Error::Poisoned`] if
    /// the database can no longer be used: the next opening undoes what is left. If undoing fails otherwise, with
    /// [`Error::Corrupted`] or [`Error::Io`] for one, the database stops.
    pub fn rollback(self) -> Result<()> {
        let Transaction { asker: Asker { txn, .. }, database, .. } = self;
        txn.rollback().map_err(|error| Error::from_txn(error, &database.path))
    }
}
