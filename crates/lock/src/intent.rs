//! Locks on tables and the volume, outside the lock table: the seam between their implementations. There is one so far.

mod lightweight;
mod mode;

pub(crate) use lightweight::{EntryIndex, IntentHold, Lightweight};
pub use mode::IntentMode;
