//! Transactions of Foreshore: begin, savepoints, rollback, commit with early lock release, fuzzy checkpoints, restart,
//! the catalogue, and the engine that holds them together. The README beside this crate has its rules.
//!
//! Invariant: this crate does not know how a user's table is typed.
#![forbid(unsafe_code)]
#![cfg_attr(foreshore_loom, allow(dead_code))]

#[cfg(not(foreshore_loom))]
mod backup;
#[cfg(not(foreshore_loom))]
mod catalog;
#[cfg(not(foreshore_loom))]
mod checkpoint;
#[cfg(not(foreshore_loom))]
mod commit;
#[cfg(not(foreshore_loom))]
mod committer;
#[cfg(not(foreshore_loom))]
mod compact;
#[cfg(not(foreshore_loom))]
mod control;
#[cfg(not(foreshore_loom))]
mod core;
#[cfg(not(foreshore_loom))]
mod ender;
#[cfg(not(foreshore_loom))]
mod engine;
#[cfg(not(foreshore_loom))]
mod error;
#[cfg(not(foreshore_loom))]
mod file_end;
#[cfg(not(foreshore_loom))]
mod footprint;
#[cfg(not(foreshore_loom))]
mod insist;
#[cfg(not(foreshore_loom))]
mod life;
#[cfg(not(foreshore_loom))]
mod options;
#[cfg(not(foreshore_loom))]
mod pipeline;
#[cfg(not(foreshore_loom))]
mod place_search;
#[cfg(not(foreshore_loom))]
mod prepared;
#[cfg(not(foreshore_loom))]
mod reaper;
#[cfg(not(foreshore_loom))]
mod records;
#[cfg(not(foreshore_loom))]
mod recovery;
#[cfg(not(foreshore_loom))]
mod retention;
#[cfg(not(foreshore_loom))]
mod rollback;
#[cfg(not(foreshore_loom))]
mod salvage;
#[cfg(not(foreshore_loom))]
mod settled;
#[cfg(not(foreshore_loom))]
mod stats;
mod table;
#[cfg(not(foreshore_loom))]
mod ticket;
#[cfg(not(foreshore_loom))]
mod transaction;
#[cfg(not(foreshore_loom))]
mod verify;

#[cfg(not(foreshore_loom))]
pub use api::*;

#[cfg(not(foreshore_loom))]
mod api {
    /// What the lock manager shows of itself.
    pub mod lock {
        pub use foreshore_lock::{BlockerView, LockTarget, LockView, TransactionView, WaitView};
    }

    pub use foreshore_btree::{
        Append, Direction, Isolation, KEYS_TOGETHER, LatchMode, LockKind, VerifyReport as TreeReport,
    };
    pub use foreshore_lock::{
        Blocker, CancelToken, Crowd, DeadlockEdge, DeadlockPolicy, DeadlockReport, DigestKind,
        IntentLockKind, IntentMode, KeyBytes, KeyMode, KeyRangeModes, LockError, LockManager, LockMode,
        LockOptions, LockStats, LockTableKind, MAX_BLOCKERS, Partitioner, Refusal, VictimPolicy,
        VictimReason,
    };
    pub use foreshore_pages::{FreeSpaceKind, PoolOptions, PoolStats, TransitKind, TranslationKind};
    pub use foreshore_wal::{LogInsert, LogOptions};

    pub use crate::{
        backup::{BackupProgress, BackupReport},
        catalog::TableInfo,
        compact::CompactReport,
        control::FORMAT_VERSION,
        engine::{DROP_WAIT, Engine, READ_ONLY_BYTES},
        error::TxnError,
        footprint::{Footprint, PLAN_MISSES},
        options::{
            BeginOptions, Durability, EarlyLockRelease, EngineOptions, LogFullPolicy, MAX_PIPELINE_LENGTH,
            ReadMode,
        },
        pipeline::Pipeline,
        place_search::PlaceSearch,
        prepared::PreparedTransaction,
        recovery::{RecoveryObserver, RecoveryPhase, RecoveryProgress, RecoveryReport},
        retention::{LogHold, LogHolder, LogRetention},
        salvage::{
            EachRecord, KeyGap, MAX_PAGES_NAMED, Salvage, SalvageProgress, SalvageSource, SalvagedRows,
            SalvagedTable,
        },
        stats::{EngineStats, StuckTable},
        ticket::CommitTicket,
        transaction::{Advance, MAX_SAVEPOINTS, Parted, Position, Savepoint, Txn, TxnCursor},
        verify::{MAX_PROBLEMS, VERIFY_WAIT, VerifyReport},
    };
}
