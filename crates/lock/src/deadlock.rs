//! Deadlocks: found by digests, confirmed by an exact walk, resolved by one victim, reported.

mod digest;
mod dreadlocks;
mod report;

pub(crate) use digest::{Digest, SlotSet};
pub(crate) use dreadlocks::{Detector, waiting};
pub use report::{DeadlockEdge, DeadlockReport, KeyBytes};
