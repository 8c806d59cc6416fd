//! The log as its users see it, on a disk that fails, tears and forgets. Run for each way of inserting (`INSERT`).

mod concurrency;
mod copy;
mod crash;
mod damage;
mod faults;
mod pieces;
mod records;
mod space;

use std::path::{Path, PathBuf};

use foreshore_base::{Lsn, Result, StorageError, TxnId};
use foreshore_env::{
    disk::Disk,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_wal::{FIRST_LSN, Log, LogOptions, RecordHeader, RecordKind, Urgency};

use crate::INSERT;

const LOG_ID: u64 = 0xF0E1_D2C3_B4A5_9687;
const SEGMENT: u64 = 128 << 10;
const KIND: RecordKind = RecordKind(70);

/// Smallest sizes, and no flush that nobody asked for.
fn options() -> LogOptions {
    LogOptions {
        segment_bytes: SEGMENT,
        buffer_bytes: 256 << 10,
        flush_interval: Duration::from_secs(3600),
        insert: INSERT,
        ..LogOptions::default()
    }
}

fn directory() -> &'static Path {
    Path::new("/log")
}

/// The file of the segment with this number.
fn segment_path(number: u64) -> PathBuf {
    directory().join(format!("{:016x}.log", number * SEGMENT))
}

fn shared(disk: &FaultyDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn create(disk: &FaultyDisk) -> Arc<Log> {
    Log::create(shared(disk), directory(), LOG_ID, &options()).unwrap()
}

fn open_from(disk: &FaultyDisk, from: Lsn) -> Result<Arc<Log>> {
    Log::open(shared(disk), directory(), LOG_ID, from, &options())
}

fn open(disk: &FaultyDisk) -> Result<Arc<Log>> {
    open_from(disk, FIRST_LSN)
}

/// A record, as it was appended or read.
type Record = (RecordHeader, Vec<u8>);

/// Bytes that depend on a seed.
fn payload(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|index| (seed.wrapping_mul(31) + index.wrapping_mul(7) + (index >> 8)) as u8)
        .collect()
}

/// Appends a record of the transaction 7.
fn append(log: &Log, prev: Lsn, bytes: Vec<u8>) -> Result<Record> {
    let txn = TxnId(7);
    let (left, right) = bytes.split_at(bytes.len() / 3);
    let lsn = log.append(Urgency::Work, txn, prev, KIND, &[left, right])?;
    Ok((RecordHeader { lsn, prev, txn, kind: KIND }, bytes))
}

/// Appends records of these lengths, each pointing at the one before.
fn append_all(log: &Log, lengths: impl IntoIterator<Item = usize>) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    for length in lengths {
        let prev = records.last().map_or(Lsn::ZERO, |(header, _)| header.lsn);
        records.push(append(log, prev, payload(records.len() as u64, length)).unwrap());
    }
    records
}

fn read_from(log: &Log, from: Lsn) -> Result<Vec<Record>> {
    let mut reader = log.reader(from);
    let (mut records, mut bytes) = (Vec::new(), Vec::new());
    while let Some(header) = reader.next(&mut bytes)? {
        records.push((header, bytes.clone()));
    }
    Ok(records)
}

fn read_all(log: &Log) -> Result<Vec<Record>> {
    read_from(log, FIRST_LSN)
}

/// Waits until the flusher, which puts a mark under a log that nobody uses, has nothing left to do.
fn wait_for_the_quiet_mark(disk: &FaultyDisk) {
    let patience = Instant::now() + Duration::from_secs(120);
    let mut before = None;
    while before != Some(disk.counts()) {
        assert!(Instant::now() < patience, "the flusher finds no rest");
        before = Some(disk.counts());
        thread::sleep(Duration::from_millis(60));
    }
}

fn last(records: &[Record]) -> Lsn {
    records.last().expect("a record").0.lsn
}

fn is_poisoned<T>(result: &Result<T>) -> bool {
    matches!(result, Err(StorageError::Poisoned { .. }))
}

/// Where a segment notes that another one follows it.
const NOTE: std::ops::Range<usize> = 512..528;

/// Takes that note out of a segment: its process died before it could write it.
fn forget_successor(disk: &FaultyDisk, number: u64) {
    let mut bytes = disk.read_file(&segment_path(number)).unwrap();
    bytes[NOTE].fill(0);
    disk.write_file(&segment_path(number), &bytes).unwrap();
}

fn is_corrupted<T>(result: &Result<T>) -> bool {
    matches!(result, Err(StorageError::Corrupted { .. }))
}
