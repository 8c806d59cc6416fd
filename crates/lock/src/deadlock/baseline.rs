//! The gallery: what else is done about deadlocks, to measure the road against.

mod ages;
mod graph;
mod propagated;

pub(super) use ages::{Ages, Wound};
pub(super) use graph::WaitForGraph;
pub(super) use propagated::Propagated;
pub use propagated::{BLOOM_BITS, BLOOM_FINGERPRINT};
