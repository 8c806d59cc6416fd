//! Latches: short, physical mutual exclusion in memory. Not locks, which transactions hold.
//!
//! [`HybridLatch`] is entered optimistically, shared or exclusively; a thread that must wait sleeps in the [parking
//! lot](parking), where lock waits sleep too. [`rank`] checks the latch order in debug builds. [`baseline`] is the
//! gallery of other latches, to measure and to compare. The rules (LATCH-1 …) are in README.md.
#![deny(unsafe_code)]

pub mod baseline;
mod hybrid;
pub mod parking;
mod patience;
pub mod rank;

#[cfg(all(test, foreshore_loom))]
mod models;

pub use hybrid::{ExclusiveGuard, HybridLatch, SharedGuard, Version, WaitEnded};
pub use patience::Patience;
