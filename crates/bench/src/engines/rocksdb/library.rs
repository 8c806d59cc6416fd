//! The little of RocksDB's C API (`rocksdb/c.h`, as of 7.8) that the engine needs, and owners that make it safe: all
//! `unsafe` code of this rival is here and in `raw`.
//!
//! What the library makes is known by references to opaque types without size, so a function of C that takes nothing
//! but such references and numbers is safe to call. The library locks what threads share: a database may be used by
//! many threads, a transaction and an iterator by one at a time.

mod raw;

use std::{
    ffi::{CStr, CString, c_uchar},
    marker::PhantomData,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr, slice,
};

use foreshore_env::time::Duration;

#[allow(clippy::wildcard_imports, reason = "all that there is")]
use self::raw::*;

impl Drop for Complaint {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the library made it for its caller, and nobody else has it.
            unsafe { rocksdb_free(self.0) };
        }
    }
}

/// What the library complained of: the name of a status, then a description.
#[derive(Debug, thiserror::Error)]
#[error("RocksDB: {0}")]
pub(super) struct RocksdbError(pub(super) String);

/// Calls a function of the library that may complain.
fn call<T>(call: impl FnOnce(&mut Complaint) -> T) -> Result<T, RocksdbError> {
    let mut complaint = Complaint(ptr::null_mut());
    let value = call(&mut complaint);
    if complaint.0.is_null() {
        return Ok(value);
    }
    // SAFETY: it is not null, so it is a string of C, which lives as long as `complaint`.
    let text = unsafe { CStr::from_ptr(complaint.0) };
    Err(RocksdbError(text.to_string_lossy().into_owned()))
}

/// How a database is opened.
pub(super) struct Opening {
    pub(super) cache_bytes: usize,
    /// Whether the log is written only when that is asked for, or when its buffer, a MiB, is full.
    pub(super) keep_log_in_memory: bool,
    pub(super) bloom_bits_per_key: f64,
    pub(super) lock_stripes: usize,
    pub(super) lock_timeout: Duration,
    pub(super) deadlock_depth: i64,
}

/// An open database with pessimistic transactions, and the options that it is used with. All are alive until this is
/// dropped.
pub(super) struct Database {
    raw: &'static RawDatabase,
    read: &'static RawReadOptions,
    write_sync: &'static RawWriteOptions,
    write_lazy: &'static RawWriteOptions,
    txn: &'static RawTxnOptions,
}

impl Database {
    /// Opens the database of this directory, or makes it.
    pub(super) fn open(path: &Path, opening: &Opening) -> Result<Database, RocksdbError> {
        let path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| RocksdbError("a path cannot have a zero byte".to_owned()))?;
        let table = rocksdb_block_based_options_create();
        let cache = rocksdb_cache_create_lru(opening.cache_bytes);
        rocksdb_block_based_options_set_block_cache(table, cache);
        let filter = rocksdb_filterpolicy_create_bloom_full(opening.bloom_bits_per_key);
        // SAFETY: the filter is given away once, and not used again.
        unsafe { rocksdb_block_based_options_set_filter_policy(table, filter) };
        let options = rocksdb_options_create();
        rocksdb_options_set_create_if_missing(options, 1);
        rocksdb_options_set_manual_wal_flush(options, c_uchar::from(opening.keep_log_in_memory));
        // None, as Foreshore has none.
        rocksdb_options_set_compression(options, 0);
        rocksdb_options_set_block_based_table_factory(options, table);
        let transactions = rocksdb_transactiondb_options_create();
        rocksdb_transactiondb_options_set_num_stripes(transactions, opening.lock_stripes);
        let timeout_ms = opening.lock_timeout.as_millis() as i64;
        rocksdb_transactiondb_options_set_transaction_lock_timeout(transactions, timeout_ms);
        // SAFETY: the path is a string of C and lives as long as this call.
        let open = |complaint: &mut _| unsafe {
            rocksdb_transactiondb_open(options, transactions, path.as_ptr(), complaint)
        };
        let opened = call(open);
        // SAFETY: the database has copies of all options; nobody uses these any more.
        unsafe { rocksdb_transactiondb_options_destroy(transactions) };
        // SAFETY: the same.
        unsafe { rocksdb_options_destroy(options) };
        // SAFETY: the same.
        unsafe { rocksdb_block_based_options_destroy(table) };
        // SAFETY: the same; the database shares the cache itself, of which this is but a handle.
        unsafe { rocksdb_cache_destroy(cache) };
        let raw = opened?.ok_or_else(|| RocksdbError("no database, and no complaint".to_owned()))?;

        let txn = rocksdb_transaction_options_create();
        rocksdb_transaction_options_set_deadlock_detect(txn, 1);
        rocksdb_transaction_options_set_deadlock_detect_depth(txn, opening.deadlock_depth);
        let (write_sync, write_lazy) = (rocksdb_writeoptions_create(), rocksdb_writeoptions_create());
        rocksdb_writeoptions_set_sync(write_sync, 1);
        Ok(Database { raw, read: rocksdb_readoptions_create(), write_sync, write_lazy, txn })
    }

    /// A transaction, whose commit is on the disk when it returns, if it is to `sync`.
    pub(super) fn begin(&self, sync: bool) -> Txn<'_> {
        let write = if sync { self.write_sync } else { self.write_lazy };
        Txn { raw: rocksdb_transaction_begin(self.raw, write, self.txn, None), database: self }
    }

    /// What is committed now.
    pub(super) fn snapshot(&self) -> Snapshot<'_> {
        let raw = rocksdb_transactiondb_create_snapshot(self.raw);
        let read = rocksdb_readoptions_create();
        // SAFETY: whoever has these options has the snapshot with them, and drops both together.
        unsafe { rocksdb_readoptions_set_snapshot(read, raw) };
        Snapshot { raw, read, database: self }
    }

    /// Writes what is in memory into files, and waits for it.
    pub(super) fn flush(&self) -> Result<(), RocksdbError> {
        let options = rocksdb_flushoptions_create();
        let flushed = call(|complaint| rocksdb_transactiondb_flush(self.raw, options, complaint));
        // SAFETY: nobody else has these options.
        unsafe { rocksdb_flushoptions_destroy(options) };
        flushed
    }

    /// Writes what is in memory of the log, and makes all commits durable.
    pub(super) fn sync(&self) -> Result<(), RocksdbError> {
        call(|complaint| rocksdb_transactiondb_flush_wal(self.raw, 1, complaint))
    }

    /// A property that is a number; 0 if there is none of this name.
    pub(super) fn property(&self, name: &CStr) -> u64 {
        let mut value = 0;
        // SAFETY: the name is a string of C.
        let failed = unsafe { rocksdb_transactiondb_property_int(self.raw, name.as_ptr(), &mut value) };
        if failed == 0 { value } else { 0 }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: transactions, snapshots and iterators borrow the database, so there are none; nor will anybody use it
        // again.
        unsafe { rocksdb_transactiondb_close(self.raw) };
        // SAFETY: nobody uses these options any more; the same holds of the others.
        unsafe { rocksdb_readoptions_destroy(self.read) };
        // SAFETY: see above.
        unsafe { rocksdb_writeoptions_destroy(self.write_sync) };
        // SAFETY: see above.
        unsafe { rocksdb_writeoptions_destroy(self.write_lazy) };
        // SAFETY: see above.
        unsafe { rocksdb_transaction_options_destroy(self.txn) };
    }
}

/// Copies a value that was found, and lets go of it; whether there was one.
fn copy(found: Option<&'static RawValue>, value: &mut Vec<u8>) -> bool {
    let Some(found) = found else { return false };
    let mut bytes = 0;
    let data = rocksdb_pinnableslice_value(found, &mut bytes);
    value.clear();
    if bytes > 0 {
        // SAFETY: the library says that so many bytes lie there, which stay as they are until the value is let go of,
        // below.
        value.extend_from_slice(unsafe { slice::from_raw_parts(data, bytes) });
    }
    // SAFETY: it is the caller's, who has given it away.
    unsafe { rocksdb_pinnableslice_destroy(found) };
    true
}

/// A transaction; undone, and its locks given back, when it is dropped before it commits.
pub(super) struct Txn<'d> {
    raw: &'static RawTxn,
    database: &'d Database,
}

impl Txn<'_> {
    /// Locks a key, whether or not it is there, and reads its value; false if it is not there.
    pub(super) fn get(&self, key: &[u8], exclusive: bool, value: &mut Vec<u8>) -> Result<bool, RocksdbError> {
        let (read, exclusive) = (self.database.read, c_uchar::from(exclusive));
        // SAFETY: pointer and length are those of a slice that lives as long as this call.
        let get = |complaint: &mut _| unsafe {
            rocksdb_transaction_get_pinned_for_update(
                self.raw,
                read,
                key.as_ptr(),
                key.len(),
                exclusive,
                complaint,
            )
        };
        Ok(copy(call(get)?, value))
    }

    /// Locks a key and writes its value.
    pub(super) fn put(&self, key: &[u8], value: &[u8]) -> Result<(), RocksdbError> {
        let (value, value_bytes) = (value.as_ptr(), value.len());
        // SAFETY: pointers and lengths are those of slices that live as long as this call.
        call(|complaint| unsafe {
            rocksdb_transaction_put(self.raw, key.as_ptr(), key.len(), value, value_bytes, complaint)
        })
    }

    /// Locks a key and removes it, if it is there.
    pub(super) fn delete(&self, key: &[u8]) -> Result<(), RocksdbError> {
        // SAFETY: pointer and length are those of a slice that lives as long as this call.
        call(|complaint| unsafe { rocksdb_transaction_delete(self.raw, key.as_ptr(), key.len(), complaint) })
    }

    /// Records as they are now, and as this transaction has changed them; without locks.
    pub(super) fn iterator(&self) -> Records<'_> {
        let raw = rocksdb_transaction_create_iterator(self.raw, self.database.read);
        Records { raw, source: PhantomData }
    }

    pub(super) fn commit(self) -> Result<(), RocksdbError> {
        call(|complaint| rocksdb_transaction_commit(self.raw, complaint))
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        // SAFETY: iterators borrow the transaction, so there are none, and nobody will use it again.
        unsafe { rocksdb_transaction_destroy(self.raw) };
    }
}

/// A state of the whole database.
pub(super) struct Snapshot<'d> {
    raw: &'static RawSnapshot,
    read: &'static RawReadOptions,
    database: &'d Database,
}

impl Snapshot<'_> {
    /// Reads a value; false if the key is not there.
    pub(super) fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, RocksdbError> {
        let database = self.database.raw;
        // SAFETY: pointer and length are those of a slice that lives as long as this call.
        let get = |complaint: &mut _| unsafe {
            rocksdb_transactiondb_get_pinned(database, self.read, key.as_ptr(), key.len(), complaint)
        };
        Ok(copy(call(get)?, value))
    }

    /// Its records.
    pub(super) fn iterator(&self) -> Records<'_> {
        let raw = rocksdb_transactiondb_create_iterator(self.database.raw, self.read);
        Records { raw, source: PhantomData }
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        // SAFETY: iterators borrow the snapshot, so there are none, and nobody else has these options.
        unsafe { rocksdb_readoptions_destroy(self.read) };
        // SAFETY: what had its address is gone.
        unsafe { rocksdb_transactiondb_release_snapshot(self.database.raw, self.raw) };
    }
}

/// Key and value, until the place moves.
pub(super) type Record<'r> = (&'r [u8], &'r [u8]);

/// A place among records in the order of their keys.
pub(super) struct Records<'s> {
    raw: &'static RawIterator,
    source: PhantomData<&'s ()>,
}

impl Records<'_> {
    /// Goes to the first record that is not before `key`.
    pub(super) fn seek(&mut self, key: &[u8]) {
        // SAFETY: pointer and length are those of a slice that lives as long as this call.
        unsafe { rocksdb_iter_seek(self.raw, key.as_ptr(), key.len()) };
    }

    /// Goes to the last record that is not after `key`.
    pub(super) fn seek_back(&mut self, key: &[u8]) {
        // SAFETY: as in `seek`.
        unsafe { rocksdb_iter_seek_for_prev(self.raw, key.as_ptr(), key.len()) };
    }

    /// Goes to the record after this one, or before it; stays where it is if it is at no record.
    pub(super) fn step(&mut self, back: bool) {
        match (rocksdb_iter_valid(self.raw), back) {
            (0, _) => {}
            // SAFETY: it is at a record.
            (_, false) => unsafe { rocksdb_iter_next(self.raw) },
            // SAFETY: it is at a record.
            (_, true) => unsafe { rocksdb_iter_prev(self.raw) },
        }
    }

    /// Key and value of the record where it is; `None` when there are no more.
    pub(super) fn record(&self) -> Result<Option<Record<'_>>, RocksdbError> {
        if rocksdb_iter_valid(self.raw) == 0 {
            call(|complaint| rocksdb_iter_get_error(self.raw, complaint))?;
            return Ok(None);
        }
        let (mut key_bytes, mut value_bytes) = (0, 0);
        // SAFETY: it is at a record.
        let key = unsafe { rocksdb_iter_key(self.raw, &mut key_bytes) };
        // SAFETY: it is at a record.
        let value = unsafe { rocksdb_iter_value(self.raw, &mut value_bytes) };
        Ok(Some((bytes(key, key_bytes, self), bytes(value, value_bytes, self))))
    }
}

/// What an iterator points to.
fn bytes<'r>(data: *const u8, bytes: usize, _: &'r Records<'_>) -> &'r [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: the iterator says that so many bytes lie there, which stay as they are until it moves; it does not while
    // it is borrowed.
    unsafe { slice::from_raw_parts(data, bytes) }
}

impl Drop for Records<'_> {
    fn drop(&mut self) {
        // SAFETY: nobody will use it again.
        unsafe { rocksdb_iter_destroy(self.raw) };
    }
}
