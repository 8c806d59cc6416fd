//! What `rocksdb/c.h` declares, as Rust sees it. See the module above for when it is safe to call.

use std::{
    ffi::{c_char, c_int, c_uchar},
    marker::PhantomData,
};

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
opaque!(
    RawDatabase: (), RawOptions: (), RawTableOptions: (), RawCache: (), RawFilter: (), RawDatabaseTxnOptions: (),
    RawTxnOptions: (), RawReadOptions: (), RawWriteOptions: (), RawFlushOptions: (), RawSnapshot: (), RawTxn: *mut (),
    RawIterator: *mut (), RawValue: *mut ()
);

/// A failure in the library's words; null while there is none. Functions put a string there that is the caller's to
/// free.
#[repr(transparent)]
pub(super) struct Complaint(pub(super) *mut c_char);

// SAFETY: as `rocksdb/c.h` declares them. References are pointers that are not null, which the library neither reads
// nor writes as Rust's, for their types have no size; those that it returns stay valid until they are given to a
// function whose name ends in `destroy`, `close` or `release_snapshot`, all of which are unsafe to call.
unsafe extern "C" {
    pub(super) safe fn rocksdb_options_create() -> &'static RawOptions;
    pub(super) unsafe fn rocksdb_options_destroy(options: &RawOptions);
    pub(super) safe fn rocksdb_options_set_create_if_missing(options: &RawOptions, yes: c_uchar);
    pub(super) safe fn rocksdb_options_set_manual_wal_flush(options: &RawOptions, yes: c_uchar);
    pub(super) safe fn rocksdb_options_set_compression(options: &RawOptions, kind: c_int);
    pub(super) safe fn rocksdb_options_set_block_based_table_factory(
        options: &RawOptions,
        table: &RawTableOptions,
    );
    pub(super) safe fn rocksdb_block_based_options_create() -> &'static RawTableOptions;
    pub(super) unsafe fn rocksdb_block_based_options_destroy(table: &RawTableOptions);
    pub(super) safe fn rocksdb_block_based_options_set_block_cache(table: &RawTableOptions, cache: &RawCache);
    // Takes the filter for its own.
    pub(super) unsafe fn rocksdb_block_based_options_set_filter_policy(
        table: &RawTableOptions,
        filter: &'static RawFilter,
    );
    pub(super) safe fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: f64) -> &'static RawFilter;
    pub(super) safe fn rocksdb_cache_create_lru(bytes: usize) -> &'static RawCache;
    pub(super) unsafe fn rocksdb_cache_destroy(cache: &RawCache);

    pub(super) safe fn rocksdb_transactiondb_options_create() -> &'static RawDatabaseTxnOptions;
    pub(super) unsafe fn rocksdb_transactiondb_options_destroy(options: &RawDatabaseTxnOptions);
    pub(super) safe fn rocksdb_transactiondb_options_set_num_stripes(
        options: &RawDatabaseTxnOptions,
        stripes: usize,
    );
    pub(super) safe fn rocksdb_transactiondb_options_set_transaction_lock_timeout(
        options: &RawDatabaseTxnOptions,
        ms: i64,
    );
    pub(super) safe fn rocksdb_transaction_options_create() -> &'static RawTxnOptions;
    pub(super) unsafe fn rocksdb_transaction_options_destroy(options: &RawTxnOptions);
    pub(super) safe fn rocksdb_transaction_options_set_deadlock_detect(options: &RawTxnOptions, yes: c_uchar);
    pub(super) safe fn rocksdb_transaction_options_set_deadlock_detect_depth(
        options: &RawTxnOptions,
        depth: i64,
    );
    pub(super) safe fn rocksdb_readoptions_create() -> &'static RawReadOptions;
    pub(super) unsafe fn rocksdb_readoptions_destroy(options: &RawReadOptions);
    // Keeps the snapshot's address: it must be valid whenever these options are used.
    pub(super) unsafe fn rocksdb_readoptions_set_snapshot(options: &RawReadOptions, snapshot: &RawSnapshot);
    pub(super) safe fn rocksdb_writeoptions_create() -> &'static RawWriteOptions;
    pub(super) unsafe fn rocksdb_writeoptions_destroy(options: &RawWriteOptions);
    pub(super) safe fn rocksdb_writeoptions_set_sync(options: &RawWriteOptions, yes: c_uchar);
    pub(super) safe fn rocksdb_flushoptions_create() -> &'static RawFlushOptions;
    pub(super) unsafe fn rocksdb_flushoptions_destroy(options: &RawFlushOptions);

    pub(super) unsafe fn rocksdb_transactiondb_open(
        options: &RawOptions,
        transactions: &RawDatabaseTxnOptions,
        path: *const c_char,
        complaint: &mut Complaint,
    ) -> Option<&'static RawDatabase>;
    pub(super) unsafe fn rocksdb_transactiondb_close(database: &RawDatabase);
    pub(super) safe fn rocksdb_transactiondb_flush(
        database: &RawDatabase,
        options: &RawFlushOptions,
        complaint: &mut Complaint,
    );
    pub(super) safe fn rocksdb_transactiondb_flush_wal(
        database: &RawDatabase,
        sync: c_uchar,
        complaint: &mut Complaint,
    );
    pub(super) unsafe fn rocksdb_transactiondb_property_int(
        database: &RawDatabase,
        name: *const c_char,
        value: &mut u64,
    ) -> c_int;
    pub(super) safe fn rocksdb_transactiondb_create_snapshot(database: &RawDatabase) -> &'static RawSnapshot;
    pub(super) unsafe fn rocksdb_transactiondb_release_snapshot(
        database: &RawDatabase,
        snapshot: &RawSnapshot,
    );
    pub(super) unsafe fn rocksdb_transactiondb_get_pinned(
        database: &RawDatabase,
        options: &RawReadOptions,
        key: *const u8,
        key_bytes: usize,
        complaint: &mut Complaint,
    ) -> Option<&'static RawValue>;
    pub(super) safe fn rocksdb_transactiondb_create_iterator(
        database: &RawDatabase,
        options: &RawReadOptions,
    ) -> &'static RawIterator;

    pub(super) safe fn rocksdb_transaction_begin(
        database: &RawDatabase,
        write: &RawWriteOptions,
        options: &RawTxnOptions,
        used_before: Option<&RawTxn>,
    ) -> &'static RawTxn;
    pub(super) unsafe fn rocksdb_transaction_destroy(txn: &RawTxn);
    pub(super) safe fn rocksdb_transaction_commit(txn: &RawTxn, complaint: &mut Complaint);
    pub(super) unsafe fn rocksdb_transaction_get_pinned_for_update(
        txn: &RawTxn,
        options: &RawReadOptions,
        key: *const u8,
        key_bytes: usize,
        exclusive: c_uchar,
        complaint: &mut Complaint,
    ) -> Option<&'static RawValue>;
    pub(super) unsafe fn rocksdb_transaction_put(
        txn: &RawTxn,
        key: *const u8,
        key_bytes: usize,
        value: *const u8,
        value_bytes: usize,
        complaint: &mut Complaint,
    );
    pub(super) unsafe fn rocksdb_transaction_delete(
        txn: &RawTxn,
        key: *const u8,
        key_bytes: usize,
        complaint: &mut Complaint,
    );
    pub(super) safe fn rocksdb_transaction_create_iterator(
        txn: &RawTxn,
        options: &RawReadOptions,
    ) -> &'static RawIterator;

    pub(super) unsafe fn rocksdb_iter_destroy(iterator: &RawIterator);
    pub(super) safe fn rocksdb_iter_valid(iterator: &RawIterator) -> c_uchar;
    pub(super) unsafe fn rocksdb_iter_seek(iterator: &RawIterator, key: *const u8, key_bytes: usize);
    pub(super) unsafe fn rocksdb_iter_seek_for_prev(iterator: &RawIterator, key: *const u8, key_bytes: usize);
    // Only while the iterator is valid.
    pub(super) unsafe fn rocksdb_iter_next(iterator: &RawIterator);
    pub(super) unsafe fn rocksdb_iter_prev(iterator: &RawIterator);
    pub(super) unsafe fn rocksdb_iter_key(iterator: &RawIterator, bytes: &mut usize) -> *const u8;
    pub(super) unsafe fn rocksdb_iter_value(iterator: &RawIterator, bytes: &mut usize) -> *const u8;
    pub(super) safe fn rocksdb_iter_get_error(iterator: &RawIterator, complaint: &mut Complaint);

    pub(super) safe fn rocksdb_pinnableslice_value(value: &RawValue, bytes: &mut usize) -> *const u8;
    pub(super) unsafe fn rocksdb_pinnableslice_destroy(value: &RawValue);
    pub(super) unsafe fn rocksdb_free(memory: *mut c_char);
}
