//! Who holds the log.

use std::fmt;

use foreshore_env::time::unix_seconds;
use foreshore_txn::PreparedTransaction;

use crate::view::TransactionView;

/// What the log is needed for, and who needs it. Made by
/// [`Database::log_retention`](crate::Database::log_retention).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogRetention {
    /// Bytes that are needed.
    pub used_bytes: u64,
    /// The most that changes may fill; what is beyond is kept for rollbacks, commits and checkpoints.
    pub work_bytes: u64,
    /// The most that the log may hold: [`Options::log_bytes`](crate::Options::log_bytes), or what 512 of its files take
    /// if that is less; eight thirds of what was needed when the database was opened, if that is more.
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
    /// Bytes from where its part begins to the log's end.
    pub held_bytes: u64,
}

/// Who needs a part of the log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LogHolder {
    /// An open transaction that has written: it may have to be rolled back. Its part is free when it has ended.
    Transaction(TransactionView),
    /// A prepared transaction. Its part is free when somebody has decided about it: see
    /// [`Database::commit_prepared`](crate::Database::commit_prepared).
    Prepared(PreparedTransaction),
    /// Pages that have changed since the last checkpoint: recovery would repeat the changes. The next checkpoint lets
    /// this part go.
    Pages,
    /// A [backup](crate::Database::backup) that is being made. It ends before it keeps more than a quarter of what
    /// the log may hold ([`LogRetention::capacity_bytes`]), beyond what others need, and when they find no room for it.
    Backup,
}

impl LogRetention {
    pub(crate) fn of(retention: foreshore_txn::LogRetention) -> LogRetention {
        let hold = |hold: foreshore_txn::LogHold| {
            let holder = match hold.holder {
                foreshore_txn::LogHolder::Transaction(txn) => LogHolder::Transaction(txn.into()),
                foreshore_txn::LogHolder::Prepared(prepared) => LogHolder::Prepared(prepared),
                foreshore_txn::LogHolder::Pages => LogHolder::Pages,
                foreshore_txn::LogHolder::Backup => LogHolder::Backup,
            };
            LogHold { holder, held_bytes: hold.held_bytes }
        };
        LogRetention {
            used_bytes: retention.used_bytes,
            work_bytes: retention.work_bytes,
            capacity_bytes: retention.capacity_bytes,
            holders: retention.holders.into_iter().map(hold).collect(),
        }
    }
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

/// How to get a larger log: no more than 512 of its files count, whose size is fixed when a database is made.
pub(crate) const RAISE_LOG: &str = "raise log_bytes (of which 512 times log_segment_bytes count)";

/// For the message of a full log: who needs most of it, and what to do about that. `is_own`: it is the transaction that
/// was refused.
pub(crate) fn by_whom(holder: Option<&LogHolder>, is_own: bool) -> String {
    let most_by = match holder {
        Some(holder) if is_own => format!(", most by this transaction itself ({holder})"),
        Some(holder) => format!(", most by {holder}"),
        None => String::new(),
    };
    let next = match holder {
        Some(_) if is_own => "commit it sooner, split it into smaller ones",
        Some(LogHolder::Prepared(_)) => "commit or roll back the prepared transaction",
        Some(LogHolder::Backup) => "wait for the backup",
        Some(LogHolder::Transaction(_) | LogHolder::Pages) | None => {
            "end the oldest transaction, use smaller ones"
        }
    };
    format!("{most_by}; {next}, or {RAISE_LOG}")
}
