//! Commit: the record, the locks, the flush, in this order (safe SX-ELR, Kimura et al. 2012, Algorithms 6 and 7).
//!
//! TXN-1: a commit is acknowledged when its record is durable (`Sync`) or appended (`Lazy`).
//!
//! TXN-2: locks go once the commit record has its LSN. What was changed under them keeps that LSN as a tag; whoever
//! locks it later has a commit record behind it in the log, or, having written nothing, waits until the highest tag
//! that it met is durable. So nobody is told of a commit that a crash can take back. The paper lets transactions go
//! that fail after their locks went; here a log that cannot write the record is poisoned, and nobody is told anything more.

use foreshore_base::{Lsn, Result};

use crate::{error::TxnError, options::Durability, records, stats::Event, transaction::Txn};

impl Txn {
    /// Commits; gives the LSN after which it takes effect. A transaction that wrote nothing has no place of its own and
    /// gives that of the newest commit that it depends on.
    ///
    /// # Errors
    /// [`TxnError::OutcomeUnknown`] when the log failed in between. After any other error the transaction is rolled back.
    pub fn commit(mut self, durability: Durability) -> Result<Lsn, TxnError> {
        self.check_usable()?;
        if self.session.has_records() {
            self.commit_changes(durability)
        } else {
            self.commit_reads(durability)
        }
    }

    fn commit_changes(&mut self, durability: Durability) -> Result<Lsn, TxnError> {
        let lsn = self.append_commit()?;
        self.finished = true;
        self.session.owner.release_all(Some(lsn));
        let core = self.session.core();
        core.stats.count(Event::Commit);
        core.note_log_growth(lsn);
        if durability == Durability::Sync {
            core.log.flush(lsn).map_err(|cause| TxnError::OutcomeUnknown { cause })?;
        }
        Ok(lsn)
    }

    /// Appends the commit record, as a change like others, so that no checkpoint overlooks it (TXN-3). On an error
    /// the transaction is as it was.
    pub(crate) fn append_commit(&mut self) -> Result<Lsn> {
        self.session.begin_change()?;
        match self.session.append_last(records::COMMIT) {
            Ok(lsn) => {
                self.session.release_slot();
                Ok(lsn)
            }
            Err(error) => {
                self.session.end_change();
                Err(error)
            }
        }
    }

    fn commit_reads(&mut self, durability: Durability) -> Result<Lsn, TxnError> {
        self.finished = true;
        self.session.release_slot();
        let tag = self.session.owner.max_tag();
        self.session.owner.release_all(None);
        let core = self.session.core();
        core.stats.count(Event::ReadOnlyCommit);
        if durability == Durability::Sync && tag != Lsn::ZERO && !core.log.is_durable(tag) {
            core.log.flush(tag)?;
        }
        // Whoever died of a poisoned log has given up its locks without undoing its changes: nothing read since then
        // counts.
        core.check_open()?;
        Ok(tag)
    }
}
