//! What `calls.c` defines, as Rust sees it. See the module above for when it is safe to call.

use std::{
    ffi::{c_char, c_int},
    marker::PhantomData,
};

use super::{Counts, Move, Opening};

/// Types of which only the library knows what is in them.
macro_rules! opaque {
    ($($name:ident: $threads:ty),*) => {
        $(#[repr(C)]
        pub(super) struct $name {
            _nothing: [u8; 0],
            _threads: PhantomData<$threads>,
        })*
    };
}

// A pointer in the marker keeps what is not for several threads with one.
opaque!(RawEnvironment: (), RawTable: (), RawTxn: *mut (), RawCursor: *mut ());

/// Flags of a transaction, as in `calls.c`.
pub(super) const COMMITS_SYNC: u32 = 1;
pub(super) const READS_SNAPSHOT: u32 = 2;
pub(super) const COMMITS_WRITTEN: u32 = 4;

/// Errors of the library, which `calls.c` holds against its header.
pub(super) const BUFFER_SMALL: c_int = -30999;
pub(super) const KEY_EXISTS: c_int = -30994;
pub(super) const DEADLOCK: c_int = -30993;
pub(super) const LOCK_NOT_GRANTED: c_int = -30992;
pub(super) const NOT_FOUND: c_int = -30988;

// SAFETY: as `calls.c` defines them. References are pointers that are not null, which the library neither reads nor
// writes as Rust's, for their types have no size; what `&mut Option` is given stays null after an error, and is
// otherwise valid until it is given to a function that closes or ends it, all of which are unsafe to call.
unsafe extern "C" {
    pub(super) unsafe fn foreshore_bdb_describe(error: c_int, text: *mut c_char, bytes: usize);
    pub(super) unsafe fn foreshore_bdb_open(
        directory: *const c_char,
        opening: &Opening,
        result: &mut Option<&'static RawEnvironment>,
    ) -> c_int;
    pub(super) unsafe fn foreshore_bdb_close(environment: &RawEnvironment) -> c_int;
    pub(super) unsafe fn foreshore_bdb_open_table(
        environment: &RawEnvironment,
        name: *const c_char,
        page_bytes: u32,
        versions: c_int,
        result: &mut Option<&'static RawTable>,
    ) -> c_int;
    pub(super) unsafe fn foreshore_bdb_close_table(table: &RawTable) -> c_int;
    pub(super) safe fn foreshore_bdb_checkpoint(environment: &RawEnvironment, log_kib: u32) -> c_int;
    pub(super) safe fn foreshore_bdb_flush_log(environment: &RawEnvironment) -> c_int;
    pub(super) safe fn foreshore_bdb_count(environment: &RawEnvironment, counts: &mut Counts) -> c_int;
    pub(super) safe fn foreshore_bdb_begin(
        environment: &RawEnvironment,
        how: u32,
        result: &mut Option<&'static RawTxn>,
    ) -> c_int;
    pub(super) unsafe fn foreshore_bdb_commit(txn: &RawTxn) -> c_int;
    pub(super) unsafe fn foreshore_bdb_abort(txn: &RawTxn) -> c_int;
    pub(super) unsafe fn foreshore_bdb_get(
        table: &RawTable,
        txn: &RawTxn,
        key: *const u8,
        key_bytes: u32,
        for_update: c_int,
        value: *mut u8,
        capacity: u32,
        value_bytes: &mut u32,
    ) -> c_int;
    pub(super) unsafe fn foreshore_bdb_put(
        table: &RawTable,
        txn: &RawTxn,
        key: *const u8,
        key_bytes: u32,
        value: *const u8,
        value_bytes: u32,
        replace: c_int,
    ) -> c_int;
    pub(super) unsafe fn foreshore_bdb_delete(
        table: &RawTable,
        txn: &RawTxn,
        key: *const u8,
        key_bytes: u32,
    ) -> c_int;
    pub(super) safe fn foreshore_bdb_open_cursor(
        table: &RawTable,
        txn: &RawTxn,
        result: &mut Option<&'static RawCursor>,
    ) -> c_int;
    pub(super) unsafe fn foreshore_bdb_close_cursor(cursor: &RawCursor) -> c_int;
    pub(super) unsafe fn foreshore_bdb_move(
        cursor: &RawCursor,
        to: Move,
        key: *mut u8,
        key_capacity: u32,
        key_bytes: &mut u32,
        value: *mut u8,
        value_capacity: u32,
        value_bytes: &mut u32,
    ) -> c_int;
}
