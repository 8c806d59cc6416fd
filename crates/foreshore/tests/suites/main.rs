//! The suites that hold however a transaction runs: dynamic, planned, submitted to the threads of partitioned
//! execution, or drawn by them.

mod campaign;
mod contract;
mod history;
mod isolation;
mod model;
mod ways;
