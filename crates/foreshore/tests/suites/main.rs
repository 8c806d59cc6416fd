//! The suites that hold however a transaction runs: dynamic, planned, or submitted to the threads of partitioned execution.

mod campaign;
mod contract;
mod history;
mod isolation;
mod ways;
