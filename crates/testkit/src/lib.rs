//! Tools of Foreshore's tests: a disk in memory that fails, tears and forgets ([`FaultyDisk`]), and a checker that
//! replays a concurrent history in commit order ([`history`]).
//!
//! Invariant: this crate knows nothing of the engine; the crates under test know nothing of it.
#![forbid(unsafe_code)]

pub mod disk;
pub mod history;

pub use disk::{CrashMode, FaultyDisk};
