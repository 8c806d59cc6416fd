//! Tools of Foreshore's tests: a disk in memory that fails, tears and forgets ([`FaultyDisk`]), a checker that replays
//! a concurrent history in commit order ([`history`]), and a flag for threads of a test that may panic ([`Running`]).
//!
//! Invariant: this crate knows nothing of the engine; the crates under test know nothing of it.
#![forbid(unsafe_code)]

pub mod disk;
pub mod history;
mod running;

pub use disk::{CrashMode, FaultyDisk, Met};
pub use running::{Running, RunningGuard};
