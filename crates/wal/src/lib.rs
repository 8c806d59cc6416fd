//! The write-ahead log of Foreshore: record framing, the circular buffer, the flusher with group commit, segment files,
//! and the search for the end of a log that was torn by a crash. The README beside this crate has its rules.
//!
//! Invariant: this crate does not know what a record means, nor what a page or a transaction looks like.
#![forbid(unsafe_code)]
// Loom looks at claims and ring alone: it knows no disks.
#![cfg_attr(foreshore_loom, allow(dead_code))]

#[cfg(not(foreshore_loom))]
mod copy;
#[cfg(not(foreshore_loom))]
mod core;
mod doze;
mod frame;
mod insert;
#[cfg(not(foreshore_loom))]
mod log;
mod options;
#[cfg(not(foreshore_loom))]
mod reader;
mod ring;
#[cfg(not(foreshore_loom))]
mod scan;
mod segment;
#[cfg(not(foreshore_loom))]
mod store;
#[cfg(not(foreshore_loom))]
mod survey;

pub use frame::{MAX_PAYLOAD_BYTES, MAX_RECORD_BYTES, RecordHeader, RecordKind};
pub use insert::{LogInsert, Urgency};
#[cfg(not(foreshore_loom))]
pub use log::Log;
pub use options::{FIRST_LSN, LogOptions};
#[cfg(not(foreshore_loom))]
pub use reader::{BackwardReader, LogReader};
