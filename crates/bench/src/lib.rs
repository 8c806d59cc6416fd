//! Workloads, engines and measurements: TPC-C, TPC-B, YCSB, record insertion and scans as library code over an
//! [`Engine`] trait, so that rivals run the very same transactions, and so that tests and the torture run them too; and
//! latches and locks under load.
#![cfg_attr(not(any(feature = "bdb", feature = "lmdb", feature = "rocksdb")), forbid(unsafe_code))]

mod bound;
mod checkpoint;
mod comparison;
mod constants;
mod engine;
pub mod engines;
mod granularity;
mod insert;
mod intent;
pub mod ladder;
mod latch;
#[cfg(foreshore_sim)]
mod lock_costs;
mod locks;
mod log;
mod memory;
mod named;
mod observer;
mod placed;
mod random;
mod report;
mod rounds;
mod row;
mod runner;
mod scan;
mod tellers;
mod threads;
mod tpcb;
mod tpcc;
mod txbench;
mod usage;
mod workload;
mod ycsb;

#[cfg(test)]
mod tests;

use std::{io, path::Path};

pub use checkpoint::{CheckpointOptions, CheckpointReport, TailLatency, measure_checkpoints};
pub use comparison::{ComparisonOptions, ComparisonReport, ComparisonRow, Variant, VariantChecks, compare};
pub use constants::{Constant, ConstantsReport, constants};
pub use engine::{
    AbortCause, AbortCounts, Attempts, Body, Client, Engine, EngineTxn, Failure, Foresee, Order, Outcome,
    Reader, Server, Serving, Session, Stop, Submission, Submitted, Submitter, TableIndex, Visit, VisitMany,
};
pub use engines::{DrawnBy, Durability, EngineKind, EngineOptions, Execution, Isolation, Partitioning};
pub use foreshore_latch::baseline::LatchKind;
pub use granularity::{
    GranularityOptions, GranularityReport, GranularityResult, MAX_TUPLES, measure_granularity,
};
pub use insert::Insert;
pub use intent::{IntentOptions, IntentReport, IntentResult, count_intents, measure_intents};
pub use latch::{
    LatchMix, LatchOptions, LatchReport, LatchResult, MAX_LATCH_THREADS, Subject, count_latch,
    measure_latches,
};
#[cfg(foreshore_sim)]
pub use lock_costs::{LockCostReport, LockCostResult, OperationCounts, lock_costs};
pub use locks::{
    LockMix, LockVariant, LocksOptions, LocksReport, LocksResult, MAX_LOCKS_MEASURED, count_locks,
    measure_locks,
};
pub use log::{LogRow, LogRun, log_insert_name, run_log};
pub use memory::{MemoryPlan, MemoryReport, MemoryResult, measure_memory};
pub use named::Named;
pub use observer::{Observer, Silent};
pub use placed::Placed;
pub use random::Distribution;
pub use report::{KindReport, Latency, Report};
pub use rounds::{median, turns};
pub use row::KeyBytes;
pub use runner::{Length, RunOptions, load, run};
pub use scan::Scan;
pub use tellers::{TellerRanges, Tellers};
pub use tpcb::{ACCOUNTS, Tpcb};
pub use tpcc::{Mix, NAMED, Scale, Tpcc};
pub use txbench::{TXBENCH_KEYS, Txbench, TxbenchOptions};
pub use workload::{Check, Loader, PartitionOf, ROWS_PER_BATCH, VisitRow, Worker, Workload, visit_all};
pub use ycsb::{HotPosition, HotRecords, Ycsb, YcsbOptions};

/// Why a run could not be made or finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A name that stands for nothing.
    #[error("there is no {what} called {name:?}; choose one of: {known}")]
    Unknown {
        /// What was named.
        what: &'static str,
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// An option out of its range, or at odds with another.
    #[error("{0}")]
    Invalid(String),
    /// The system does not let another thread be started.
    #[error("cannot start {what}")]
    Thread {
        /// Which one.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] Failure),
}

impl BenchError {
    pub(crate) fn invalid(message: impl Into<String>) -> BenchError {
        BenchError::Invalid(message.into())
    }

    /// An operation of the system failed, told as by a database: with what to do next.
    pub(crate) fn io(action: &str, path: &Path, source: io::Error) -> BenchError {
        let error = foreshore::Error::Io { action: action.to_owned(), path: path.to_owned(), source };
        BenchError::Engine(Failure { cause: AbortCause::Other, source: Box::new(error) })
    }
}
