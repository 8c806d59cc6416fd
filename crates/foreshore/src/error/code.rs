//! Errors as one word each, and what to make of them.

use super::Error;

impl Error {
    /// A word for programs in other languages. It stays the same from version to version, and so do the words of the
    /// variants: theirs, in small letters.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Deadlock(_) => "deadlock",
            Error::PlanMiss => "plan_miss",
            Error::StaleReads => "stale_reads",
            Error::LockTimeout(_) => "lock_timeout",
            Error::WouldBlock(_) => "would_block",
            Error::Cancelled => "cancelled",
            Error::RetriesExhausted { .. } => "retries_exhausted",
            Error::TransactionFailed => "transaction_failed",
            Error::PipelineBusy => "pipeline_busy",
            Error::InvalidGlobalId { .. } => "invalid_global_id",
            Error::GlobalIdInUse { .. } => "global_id_in_use",
            Error::UnknownGlobalId { .. } => "unknown_global_id",
            Error::GlobalIdBusy { .. } => "global_id_busy",
            Error::NotOfThisTransaction { .. } => "not_of_this_transaction",
            Error::OutcomeUnknown { .. } => "outcome_unknown",
            Error::TooManyLocks { .. } => "too_many_locks",
            Error::TooManyTransactions { .. } => "too_many_transactions",
            Error::SubmitQueueFull { .. } => "submit_queue_full",
            Error::WaitInBody => "wait_in_body",
            Error::PartitionerPanicked { .. } => "partitioner_panicked",
            Error::KeyTooLong { .. } => "key_too_long",
            Error::ValueTooLong { .. } => "value_too_long",
            Error::TypeMismatch { .. } => "type_mismatch",
            Error::NoSuchTable { .. } => "no_such_table",
            Error::TableExists { .. } => "table_exists",
            Error::NotBehind { .. } => "not_behind",
            Error::Undecodable { .. } => "undecodable",
            Error::UnknownOption { .. } => "unknown_option",
            Error::InvalidOption { .. } => "invalid_option",
            Error::DiskFull { .. } => "disk_full",
            Error::Io { .. } => "io",
            Error::Corrupted { .. } => "corrupted",
            Error::UpgradeRequired { .. } => "upgrade_required",
            Error::NotADatabase { .. } => "not_a_database",
            Error::AlreadyOpen { .. } => "already_open",
            Error::Poisoned { .. } => "poisoned",
            Error::ThreadDied { .. } => "thread_died",
            Error::LogFull { .. } => "log_full",
            Error::LogHeld => "log_held",
            Error::PoolExhausted { .. } => "pool_exhausted",
            Error::LimitExceeded { .. } => "limit_exceeded",
            Error::ReadOnly { .. } => "read_only",
            Error::BackupStopped { .. } => "backup_stopped",
            Error::SalvageStopped => "salvage_stopped",
            Error::Busy { .. } => "busy",
            Error::Closed { .. } => "closed",
            Error::Forked { .. } => "forked",
            Error::Application(_) => "application",
            Error::Other(_) => "other",
        }
    }

    /// Whether to run the same transaction again at once: true for [`Error::Deadlock`], whose cause is gone as soon as
    /// the victim is, and for [`Error::PlanMiss`] and [`Error::StaleReads`]. [`Error::LockTimeout`] and
    /// [`Error::WouldBlock`] may go away as well, but not because this transaction ended.
    ///
    /// [`Database::transact`](crate::Database::transact) does that by itself. A program that begins its transactions
    /// with [`Database::begin`](crate::Database::begin) gives the next one the age of the one that gave way
    /// ([`TransactOptions::age`](crate::TransactOptions::age)); else it is the youngest again, and may give way again
    /// and again. After [`Error::StaleReads`], which a commit may return, too, the next one should also read with locks
    /// ([`ReadMode::Locking`](crate::ReadMode::Locking)), as that of `transact` does.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Deadlock(_) | Error::PlanMiss | Error::StaleReads)
    }
}
