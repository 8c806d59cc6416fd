//! Deadlocks: suspected, confirmed by an exact walk, resolved by one victim, reported. And the policies that the papers
//! compare that with.

mod baseline;
mod cycle;
mod detector;
mod digest;
mod dreadlocks;
mod history;
mod report;

pub use baseline::{BLOOM_BITS, BLOOM_FINGERPRINT};
pub(crate) use cycle::edge;
pub(crate) use detector::{Detector, Pause};
pub(crate) use digest::{Digest, SlotSet};
pub(crate) use report::write_transaction;
pub use report::{DeadlockEdge, DeadlockReport, KeyBytes, VictimReason};
