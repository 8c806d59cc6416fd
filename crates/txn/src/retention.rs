//! Who holds the log: what its next shortening has to wait for.

use foreshore_base::{Lsn, TxnId};
use foreshore_lock::TxnView;

use crate::{core::Core, prepared::PreparedTransaction};

/// What the log is needed for. Made by [`Engine::log_retention`](crate::Engine::log_retention).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogRetention {
    /// Bytes that are needed.
    pub used_bytes: u64,
    /// The most that work may fill; what is beyond is kept for ending it.
    pub work_bytes: u64,
    /// The most that the log may hold.
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
    /// Needs the log from here on.
    pub from: Lsn,
    /// Bytes from there to the log's end.
    pub held_bytes: u64,
}

/// Who needs a part of the log.
#[derive(Clone, Debug)]
pub enum LogHolder {
    /// An open transaction that has written: it may have to be rolled back.
    Transaction(TxnView),
    /// A prepared transaction, about which nobody has decided: it may have to be rolled back.
    Prepared(PreparedTransaction),
    /// Pages that have changed since the last checkpoint began: recovery repeats the changes. The next checkpoint lets
    /// this part go.
    Pages,
    /// A backup that is being made. It ends before it keeps more than a quarter of what the log may hold, beyond what
    /// others need, and when they find no room for it.
    Backup,
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

    /// The same, by more than so many bytes, and without the end of a backup.
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
