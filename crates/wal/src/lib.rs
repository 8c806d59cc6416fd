//! The write-ahead log of Foreshore: record framing, the circular buffer, the flusher with group commit, segment files,
//! and the search for the end of a log that was torn by a crash. The README beside this crate has its rules.
//!
//! Invariant: this crate does not know what a record means, nor what a page or a transaction looks like.
#![forbid(unsafe_code)]

mod core;
mod frame;
mod log;
mod options;
mod reader;
mod ring;
mod scan;
mod segment;
mod store;

pub use frame::{MAX_PAYLOAD_BYTES, MAX_RECORD_BYTES, RecordHeader, RecordKind};
pub use log::Log;
pub use options::{FIRST_LSN, LogOptions};
pub use reader::LogReader;
