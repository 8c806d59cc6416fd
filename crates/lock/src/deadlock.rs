//! Deadlocks: suspected, confirmed by an exact walk, resolved by one victim, reported. And the policies that the papers
//! compare that with.

mod baseline;
mod circle;
mod detector;
mod digest;
mod dreadlocks;
mod report;

pub(crate) use circle::waiting;
pub(crate) use detector::{Detector, Pause};
pub(crate) use digest::{Digest, SlotSet};
pub use report::{DeadlockEdge, DeadlockReport, KeyBytes, VictimReason};
