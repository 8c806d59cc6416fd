//! What locks cost, counted on the simulated machine: for `foreshore simulate locks`.

use foreshore::Options;
use foreshore_env::sim::Tally;
use foreshore_lock::{LockOptions, costs};
use serde::Serialize;

use crate::BenchError;

/// Counts of one operation, on average: nearly all of them are whole numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationCounts {
    /// The operation, in words.
    pub operation: &'static str,
    /// Read-modify-writes of shared memory.
    pub changes: f64,
    /// Stores to atomics, most of them in the transaction's own lines.
    pub stores: f64,
    /// Sequentially consistent fences.
    pub fences: f64,
    /// Latches acquired.
    pub latches: f64,
    /// Mutexes acquired.
    pub mutexes: f64,
    /// Blocks of memory allocated.
    pub allocations: f64,
}

/// The costs of a lock table with a kind of intent locks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockCostResult {
    /// The lock table.
    pub lock_table: String,
    /// The intent locks.
    pub intent_locks: String,
    /// Operation by operation, in steady state, nobody in its way.
    pub operations: Vec<OperationCounts>,
    /// Cache lines that two threads took from each other, for each transaction, that have no lock in common.
    pub lines_moved: f64,
}

/// Costs of locks. As JSON its field names are stable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockCostReport {
    /// `lock_costs`.
    pub experiment: &'static str,
    /// The version of this program.
    pub version: &'static str,
    /// For each lock table and each kind of intent locks.
    pub results: Vec<LockCostResult>,
}

/// Counts, for lock tables and intent locks by the names of the options `lock_table` and `intent_locks`.
pub fn lock_costs(tables: &[String], intents: &[String]) -> Result<LockCostReport, BenchError> {
    let mut results = Vec::new();
    for table in tables {
        for intent in intents {
            results.push(count(table, intent)?);
        }
    }
    Ok(LockCostReport { experiment: "lock_costs", version: env!("CARGO_PKG_VERSION"), results })
}

fn count(table: &str, intents: &str) -> Result<LockCostResult, BenchError> {
    let mut names = Options::default();
    for (option, value) in [("lock_table", table), ("intent_locks", intents)] {
        names.set(option, value).map_err(|error| BenchError::invalid(error.to_string()))?;
    }
    let options =
        LockOptions { table: names.lock_table, intents: names.intent_locks, ..LockOptions::default() };
    let costs = costs::count(&options).map_err(|failed| BenchError::invalid(failed.to_string()))?;
    let operations = costs.operations.iter().map(|cost| {
        let each = |field: fn(&Tally) -> u64| cost.each(field);
        OperationCounts {
            operation: cost.operation,
            changes: each(|tally| tally.changes),
            stores: each(|tally| tally.stores),
            fences: each(|tally| tally.fences),
            latches: each(|tally| tally.latches),
            mutexes: each(|tally| tally.mutexes),
            allocations: each(|tally| tally.allocations),
        }
    });
    Ok(LockCostResult {
        lock_table: table.to_owned(),
        intent_locks: intents.to_owned(),
        operations: operations.collect(),
        lines_moved: costs.lines_moved,
    })
}
