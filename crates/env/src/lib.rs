//! The only door of Foreshore to atomics, cells, threads, thread-locals, processes, time, randomness and files, so that
//! one source runs in three worlds:
//!
//! - **real** (default): re-exports of `std`, at no cost;
//! - **`--cfg foreshore_loom`**: loom's types, for exhaustive checks of the small latch-free parts;
//! - **`--cfg foreshore_sim`**: a deterministic many-core machine in virtual time.
//!
//! Everything else in the workspace takes these things from here; clippy's `disallowed-types` sees to it.
//! Invariant: this crate knows nothing of databases, but for the names of the faults that are planted in them
//! ([`sabotage`]).

#[cfg(foreshore_loom)]
#[path = "world/loom.rs"]
mod world;
#[cfg(foreshore_sim)]
#[path = "world/simulated.rs"]
mod world;
#[cfg(not(any(foreshore_loom, foreshore_sim)))]
#[path = "world/real.rs"]
mod world;

#[cfg(not(any(foreshore_loom, foreshore_sim)))]
mod condvar;
pub mod disk;
mod earlier;
pub mod number;
mod padded;
pub mod process;
pub mod random;
pub mod sabotage;
#[cfg(foreshore_sim)]
pub mod sim;
mod striped;
pub mod words;

pub use padded::CachePadded;
pub use striped::{Handle, StripedArc};
#[doc(inline)]
pub use world::thread_local;
pub use world::{cell, hint, sync, thread, time};
