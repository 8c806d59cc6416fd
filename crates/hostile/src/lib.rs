//! Damaged databases and hostile input: what the tests and the fuzzer give to Foreshore, and what they may get back.
//!
//! - [`Sample`]: small databases on a disk in memory, with every content that they may have when they are opened;
//! - [`Damage`]: what can happen to a file;
//! - [`targets`]: what the fuzzer runs;
//! - [`panics`]: what panicked meanwhile, in any thread;
//! - [`judge()`]: opens a database that may be damaged, reads and writes, and says whether a promise was broken.
//!
//! Invariant: this crate uses the facade as any program does, and what it knows of the files it has from the formats
//! that are written down. So it cannot make the same mistake as the engine's own code.
#![forbid(unsafe_code)]

mod damage;
mod edit;
mod judge;
pub mod panics;
mod sample;
mod seal;
pub mod targets;

pub use damage::{Damage, Extent, extents};
pub use judge::{Verdict, judge};
pub use sample::{Content, PAGE_BYTES, Sample, options};
pub use seal::{database_id, records, seal};
