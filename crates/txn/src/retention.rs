//! Who holds the log: what its next shortening has to wait for.

use std::fmt;

use foreshore_base::{Lsn, TxnId};
use foreshore_env::time::unix_seconds;
use foreshore_lock::TransactionView;

use crate::{core::Core, prepared::PreparedTransaction};

/// What the log is needed for, and who needs it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LogRetention {
    /// Bytes that are needed.
    pub used_bytes: u64,
    /// The most that changes may fill; what is beyond is kept for rollbacks, commits and checkpoints.
    pub work_bytes: u64,
    /// The most that the log may hold: the option `log_bytes`, or what 512 of its files take if that is less; eight
    /// thirds of what was needed when the database was opened, if that is more.
    pub capacity_bytes: u64,
    /// Who needs them, the one that needs most first.
    pub holders: Vec<LogHold>,
}

/// One who needs a part of the log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogHold {
    /// Who.
    pub holder: LogHolder,
    /// Where its part of the log begins.
    pub from: Lsn,
    /// Bytes from there to the log's end.
    pub held_bytes: u64,
}

/// Who needs a part of the log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LogHolder {
    /// An open transaction that has written: it may have to be rolled back. Its part is free when it has ended.
    Transaction(TransactionView),
    /// A prepared transaction: it may have to be rolled back. Its part is free when somebody has decided about it.
    Prepared(PreparedTransaction),
    /// Pages that have changed since the last checkpoint: recovery would repeat the changes. The next checkpoint lets
    /// this part go.
    Pages,
    /// A backup that is being made. It ends before it keeps more than a quarter of what the log may hold, beyond what
    /// others need, and when they find no room for it.
    Backup,
}

impl fmt::Display for LogHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogHolder::Transaction(transaction) => {
                transaction.fmt(f)?;
                match transaction.open_for {
                    Some(open_for) => write!(f, ", open for {:.1} s", open_for.as_secs_f64()),
                    None => Ok(()),
                }
            }
            LogHolder::Prepared(prepared) => {
                let age = unix_seconds().saturating_sub(prepared.prepared_at_unix_seconds);
                write!(f, "transaction {}, prepared as {:?} {age} s ago", prepared.txn, prepared.shown_id())
            }
            LogHolder::Pages => f.write_str("pages changed since the last checkpoint"),
            LogHolder::Backup => f.write_str("a backup that is being made"),
        }
    }
}

impl Core {
    /// Who holds the log. Stops nobody: those who begin or end meanwhile may be there or not.
    pub(crate) fn log_retention(&self) -> LogRetention {
        let (low_water, tail) = (self.log.low_water(), self.log.tail());
        let hold = |holder, from: Lsn| {
            let from = from.max(low_water);
            LogHold { holder, from, held_bytes: tail.0.saturating_sub(from.0) }
        };
        let mut holders = vec![hold(LogHolder::Pages, self.growth.redo())];
        let mut prepared = self.prepared.list();
        holders.extend(self.backups.oldest().map(|from| hold(LogHolder::Backup, from)));
        for (txn, first) in self.transactions.holders() {
            if let Some(index) = prepared.iter().position(|prepared| prepared.txn == txn) {
                holders.push(hold(LogHolder::Prepared(prepared.swap_remove(index)), first));
            } else if let Some(view) = self.locks.transaction(txn) {
                holders.push(hold(LogHolder::Transaction(view), first));
            }
        }
        holders.sort_by_key(|hold| hold.from);
        LogRetention {
            used_bytes: self.log.used_bytes(),
            work_bytes: self.log.work_bytes(),
            capacity_bytes: self.log.capacity_bytes(),
            holders,
        }
    }

    /// From where on open transactions need the log.
    fn needed_by_open(&self) -> Lsn {
        let tail = self.log.tail();
        let seen = self.transactions.capture();
        seen.pending.min(seen.first).min(tail)
    }

    /// Whether a checkpoint leaves rollbacks their room (TXN-42).
    pub(crate) fn may_checkpoint(&self) -> bool {
        self.log.is_within_work(self.needed_by_open())
    }

    /// Whether a checkpoint may be taken and would shorten the log: no open transaction needs all of it.
    pub(crate) fn checkpoint_shortens_log(&self) -> bool {
        self.checkpoint_lets_go(self.needed_by_open(), 0)
    }

    /// The same, without the end of a backup.
    pub(crate) fn checkpoint_shortens_log_beside_backups(&self) -> bool {
        let needed = self.needed_by_open();
        let kept = self.backups.oldest().map_or(needed, |from| from.min(needed));
        kept > self.log.low_water() && self.log.is_within_work(needed)
    }

    /// As [`Core::checkpoint_shortens_log`], by more than so many bytes, and without the end of a backup.
    pub(crate) fn checkpoint_shortens_log_by(&self, bytes: u64) -> bool {
        let needed = self.needed_by_open();
        self.checkpoint_lets_go(needed, bytes) && self.backups.oldest().is_none_or(|from| from >= needed)
    }

    /// Whether a checkpoint may be taken and would let go of more than so many bytes of the log, if open transactions
    /// need it from there on.
    fn checkpoint_lets_go(&self, needed: Lsn, bytes: u64) -> bool {
        needed.0.saturating_sub(self.log.low_water().0) > bytes && self.log.is_within_work(needed)
    }

    /// The open transaction that needs most of the log.
    pub(crate) fn oldest_log_holder(&self) -> Option<TxnId> {
        self.transactions.oldest_holder().map(|(txn, _)| txn)
    }
}
