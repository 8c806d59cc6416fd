//! The suite of the log, with [`LogInsert::Mutex`].
#![cfg(not(foreshore_loom))]

#[path = "log/suite.rs"]
mod suite;

use foreshore_wal::LogInsert;

const INSERT: LogInsert = LogInsert::Mutex;
