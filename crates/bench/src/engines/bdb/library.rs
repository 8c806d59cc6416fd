//! Berkeley DB through the functions of `calls.c`, and owners that make them safe: all `unsafe` code of this rival is
//! here and in `raw`.
//!
//! What the library makes is known by references to opaque types without size, so a function of C that takes nothing
//! but such references and numbers is safe to call. Environment and tables are opened for many threads; a transaction
//! and a cursor are used by one at a time.

mod raw;
mod room;

use std::{
    ffi::{CStr, CString, c_int},
    marker::PhantomData,
    os::unix::ffi::OsStrExt,
    path::Path,
};

#[allow(clippy::wildcard_imports, reason = "all that there is")]
use self::raw::*;
use self::room::Room;

/// How an environment is opened; `calls.c` has the same structure.
#[repr(C)]
pub(super) struct Opening {
    pub(super) cache_bytes: u64,
    /// Transactions that run at the same time, at most, and those whose old versions of pages somebody may read.
    pub(super) transactions: u32,
    pub(super) lockers: u32,
    pub(super) locks: u32,
    pub(super) lock_buckets: u32,
    pub(super) log_buffer_bytes: u32,
    pub(super) log_file_bytes: u32,
    /// Bits of [`LogWay`].
    pub(super) log_ways: u32,
}

/// A way to write the files of the log; `calls.c` has the same bits.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(super) enum LogWay {
    /// Filled with zeros when they are made, so that a sync need not make them longer.
    Zeroed = 1,
    /// Each write is a sync (O_DSYNC).
    Dsync = 2,
}

/// Where a transaction's log is when its commit returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommitTo {
    Disk,
    /// Written, but not synced.
    System,
    /// In the buffer of the log.
    Memory,
}

/// Counts since the environment was opened; `calls.c` has the same structure.
#[derive(Default)]
#[repr(C)]
pub(super) struct Counts {
    pub(super) commits: u64,
    pub(super) log_flushes: u64,
    pub(super) log_writes: u64,
    pub(super) lock_requests: u64,
    pub(super) lock_waits: u64,
    pub(super) deadlocks: u64,
    pub(super) pages_read: u64,
    pub(super) pages_written: u64,
}

/// Where a cursor goes; `calls.c` has the same numbers.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) enum Move {
    First,
    Last,
    /// To the first record that is not before the key that is given.
    Key,
    Next,
    Previous,
}

/// Why the library did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Deadlock,
    LockNotGranted,
    Other,
}

/// What the library complained of.
#[derive(Debug, thiserror::Error)]
#[error("Berkeley DB: {text}")]
pub(super) struct BdbError {
    pub(super) reason: Reason,
    text: String,
}

/// An error that is none of those that are answers.
fn complaint(error: c_int) -> BdbError {
    let reason = match error {
        DEADLOCK => Reason::Deadlock,
        LOCK_NOT_GRANTED => Reason::LockNotGranted,
        _ => Reason::Other,
    };
    let mut text = [0_u8; 512];
    // SAFETY: pointer and length are those of an array.
    unsafe { foreshore_bdb_describe(error, text.as_mut_ptr().cast(), text.len()) };
    let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
    BdbError { reason, text: text.to_string_lossy().into_owned() }
}

fn check(error: c_int) -> Result<(), BdbError> {
    if error == 0 { Ok(()) } else { Err(complaint(error)) }
}

/// What a function has made, unless it says that it has not.
fn made<T>(error: c_int, made: Option<&'static T>) -> Result<&'static T, BdbError> {
    check(error)?;
    made.ok_or_else(|| BdbError { reason: Reason::Other, text: "no error, and nothing made".to_owned() })
}

fn length(bytes: &[u8]) -> Result<u32, BdbError> {
    u32::try_from(bytes.len())
        .map_err(|_| BdbError { reason: Reason::Other, text: "more bytes than 32 bits can say".to_owned() })
}

fn string(bytes: &[u8]) -> Result<CString, BdbError> {
    CString::new(bytes)
        .map_err(|_| BdbError { reason: Reason::Other, text: "a name cannot have a zero byte".to_owned() })
}

/// Room for a value, to begin with.
const USUAL_VALUE_BYTES: u32 = 1024;

/// An environment of transactions, locks, a log and a cache, with its tables. All are open until this is dropped.
pub(super) struct Environment {
    raw: &'static RawEnvironment,
    tables: Vec<&'static RawTable>,
}

impl Environment {
    /// Opens the environment in this directory, or makes it there; what was committed is recovered. `versions`: old
    /// pages are kept for those who read snapshots.
    pub(super) fn open(
        directory: &Path,
        opening: &Opening,
        tables: &[String],
        page_bytes: u32,
        versions: bool,
    ) -> Result<Environment, BdbError> {
        let directory = string(directory.as_os_str().as_bytes())?;
        let mut raw = None;
        // SAFETY: the directory is a string of C, which lives as long as this call.
        let opened = unsafe { foreshore_bdb_open(directory.as_ptr(), opening, &mut raw) };
        // Closes what is open if a table is not.
        let mut environment = Environment { raw: made(opened, raw)?, tables: Vec::new() };
        for name in tables {
            let name = string(name.as_bytes())?;
            let mut raw = None;
            let versions = c_int::from(versions);
            // SAFETY: the name is a string of C, which lives as long as this call.
            let opened = unsafe {
                foreshore_bdb_open_table(environment.raw, name.as_ptr(), page_bytes, versions, &mut raw)
            };
            environment.tables.push(made(opened, raw)?);
        }
        Ok(environment)
    }

    /// How many tables it has.
    pub(super) fn tables(&self) -> usize {
        self.tables.len()
    }

    /// Writes what is dirty, if the log has grown by so much since it was last done; always, for 0.
    pub(super) fn checkpoint(&self, log_kib: u32) -> Result<(), BdbError> {
        check(foreshore_bdb_checkpoint(self.raw, log_kib))
    }

    /// Makes all commits durable.
    pub(super) fn flush_log(&self) -> Result<(), BdbError> {
        check(foreshore_bdb_flush_log(self.raw))
    }

    /// What it has counted.
    pub(super) fn counts(&self) -> Result<Counts, BdbError> {
        let mut counts = Counts::default();
        check(foreshore_bdb_count(self.raw, &mut counts))?;
        Ok(counts)
    }

    /// A transaction whose commit gets so far before it returns; and that reads a `snapshot`, if tables have versions,
    /// and may not write then.
    pub(super) fn begin(&self, commit: CommitTo, snapshot: bool) -> Result<Txn<'_>, BdbError> {
        let commit = match commit {
            CommitTo::Disk => COMMITS_SYNC,
            CommitTo::System => COMMITS_WRITTEN,
            CommitTo::Memory => 0,
        };
        let how = commit | if snapshot { READS_SNAPSHOT } else { 0 };
        let mut raw = None;
        let begun = foreshore_bdb_begin(self.raw, how, &mut raw);
        let mut value = Room::default();
        // Or the first read finds no room, and is done twice.
        value.make(USUAL_VALUE_BYTES);
        Ok(Txn { raw: Some(made(begun, raw)?), environment: self, value })
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        for table in &self.tables {
            // SAFETY: transactions and cursors borrow the environment, so there are none; nor will anybody use the
            // table again. What the log has is not lost if this fails.
            let _ = unsafe { foreshore_bdb_close_table(table) };
        }
        // SAFETY: the same, and its tables are closed.
        let _ = unsafe { foreshore_bdb_close(self.raw) };
    }
}

/// A transaction; undone, and its locks given back, when it is dropped before it commits.
pub(super) struct Txn<'e> {
    /// None only once it is committed.
    raw: Option<&'static RawTxn>,
    environment: &'e Environment,
    /// For values that are read.
    value: Room,
}

impl Txn<'_> {
    fn raw(&self) -> &'static RawTxn {
        self.raw.expect("only a commit takes it, and nothing comes after that")
    }

    /// Reads a value; false if the key is not there. `table` is below [`Environment::tables`].
    pub(super) fn get(
        &mut self,
        table: usize,
        key: &[u8],
        for_update: bool,
        value: &mut Vec<u8>,
    ) -> Result<bool, BdbError> {
        let (txn, table) = (self.raw(), self.environment.tables[table]);
        let (key_bytes, for_update) = (length(key)?, c_int::from(for_update));
        loop {
            let mut bytes = 0;
            let (room, capacity) = (self.value.bytes.as_mut_ptr(), self.value.capacity());
            // SAFETY: pointers and lengths are those of a slice and of a vector, which live as long as this call.
            let error = unsafe {
                foreshore_bdb_get(table, txn, key.as_ptr(), key_bytes, for_update, room, capacity, &mut bytes)
            };
            match error {
                0 => {
                    self.value.filled = bytes as usize;
                    value.clear();
                    value.extend_from_slice(self.value.bytes());
                    return Ok(true);
                }
                NOT_FOUND => return Ok(false),
                BUFFER_SMALL if bytes > capacity => self.value.make(bytes),
                error => return Err(complaint(error)),
            }
        }
    }

    /// Writes a record; false, and no change, if the key is there and may not be replaced.
    pub(super) fn put(
        &mut self,
        table: usize,
        key: &[u8],
        value: &[u8],
        replace: bool,
    ) -> Result<bool, BdbError> {
        let (txn, table) = (self.raw(), self.environment.tables[table]);
        let (key_bytes, value_bytes, replace) = (length(key)?, length(value)?, c_int::from(replace));
        let (key, value) = (key.as_ptr(), value.as_ptr());
        // SAFETY: pointers and lengths are those of slices, which live as long as this call.
        let error = unsafe { foreshore_bdb_put(table, txn, key, key_bytes, value, value_bytes, replace) };
        match error {
            KEY_EXISTS => Ok(false),
            error => check(error).map(|()| true),
        }
    }

    /// Removes a record; false if it was not there.
    pub(super) fn delete(&mut self, table: usize, key: &[u8]) -> Result<bool, BdbError> {
        let (txn, table, key_bytes) = (self.raw(), self.environment.tables[table], length(key)?);
        // SAFETY: pointer and length are those of a slice, which lives as long as this call.
        match unsafe { foreshore_bdb_delete(table, txn, key.as_ptr(), key_bytes) } {
            NOT_FOUND => Ok(false),
            error => check(error).map(|()| true),
        }
    }

    /// A cursor that is nowhere yet.
    pub(super) fn cursor(&self, table: usize) -> Result<Cursor<'_>, BdbError> {
        let mut raw = None;
        let opened = foreshore_bdb_open_cursor(self.environment.tables[table], self.raw(), &mut raw);
        Ok(Cursor {
            raw: made(opened, raw)?,
            key: Room::default(),
            value: Room::default(),
            is_there: false,
            txn: PhantomData,
        })
    }

    pub(super) fn commit(mut self) -> Result<(), BdbError> {
        match self.raw.take() {
            // SAFETY: cursors borrow the transaction, so there are none, and nobody will use it again.
            Some(txn) => check(unsafe { foreshore_bdb_commit(txn) }),
            None => Ok(()),
        }
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        if let Some(txn) = self.raw {
            // SAFETY: as for the commit. If it fails the environment does, for whoever uses it next.
            let _ = unsafe { foreshore_bdb_abort(txn) };
        }
    }
}

/// Key and value, until the place moves.
pub(super) type Record<'r> = (&'r [u8], &'r [u8]);

/// A place among records in the order of their keys.
pub(super) struct Cursor<'t> {
    raw: &'static RawCursor,
    key: Room,
    value: Room,
    /// Whether the two have a record.
    is_there: bool,
    txn: PhantomData<&'t ()>,
}

impl Cursor<'_> {
    /// The record where it went last, if it was there.
    pub(super) fn record(&self) -> Option<Record<'_>> {
        self.is_there.then(|| (self.key.bytes(), self.value.bytes()))
    }

    /// Goes to a record, for [`Move::Key`] by `key`: its key and value; `None` if there is none.
    pub(super) fn go(&mut self, to: Move, key: &[u8]) -> Result<Option<Record<'_>>, BdbError> {
        self.is_there = false;
        loop {
            // After a search without enough room the key is gone.
            self.key.fill(if matches!(to, Move::Key) { key } else { &[] });
            self.value.make(0);
            let (mut key_bytes, mut value_bytes) = (self.key.filled as u32, 0);
            let (key_room, key_capacity) = (self.key.bytes.as_mut_ptr(), self.key.capacity());
            let (value_room, value_capacity) = (self.value.bytes.as_mut_ptr(), self.value.capacity());
            // SAFETY: pointers and lengths are those of vectors, which live as long as this call; the key, if there is
            // one, lies in the first of them.
            let error = unsafe {
                foreshore_bdb_move(
                    self.raw,
                    to,
                    key_room,
                    key_capacity,
                    &mut key_bytes,
                    value_room,
                    value_capacity,
                    &mut value_bytes,
                )
            };
            match error {
                0 => {
                    (self.key.filled, self.value.filled) = (key_bytes as usize, value_bytes as usize);
                    self.is_there = true;
                    return Ok(self.record());
                }
                NOT_FOUND => return Ok(None),
                BUFFER_SMALL if key_bytes > key_capacity || value_bytes > value_capacity => {
                    self.key.make(key_bytes);
                    self.value.make(value_bytes);
                }
                error => return Err(complaint(error)),
            }
        }
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: nobody will use it again. If this fails, the transaction does when it commits.
        let _ = unsafe { foreshore_bdb_close_cursor(self.raw) };
    }
}
