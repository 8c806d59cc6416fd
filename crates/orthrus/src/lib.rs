//! Partitioned execution (ORTHRUS): threads that run transactions, threads that lock for them, and messages between.
//!
//! Ren, Faleiro, Abadi 2016, §3. [`Partitions::start`] starts the threads; [`Partitions::submit`] gives them a [`Job`].
//! The README beside this crate has the rules and where it departs from the paper.
//!
//! Invariant: this crate knows neither tables nor what a transaction does: it carries locks.
#![cfg_attr(foreshore_loom, allow(dead_code))]

mod bell;
mod ring;

#[cfg(not(foreshore_loom))]
mod control;
#[cfg(not(foreshore_loom))]
mod execution;
#[cfg(not(foreshore_loom))]
mod job;
#[cfg(not(foreshore_loom))]
mod member;
#[cfg(not(foreshore_loom))]
mod mesh;
#[cfg(not(foreshore_loom))]
mod partitions;
#[cfg(not(foreshore_loom))]
mod queue;
#[cfg(not(foreshore_loom))]
mod report;
#[cfg(not(foreshore_loom))]
mod roles;
#[cfg(not(foreshore_loom))]
mod waiters;

#[cfg(not(foreshore_loom))]
pub use crate::{
    job::{Job, Next, WaitsAt},
    partitions::{MAX_THREADS, PartitionOptions, Partitions},
    report::{PartitionStats, Role, ThreadStats},
};
