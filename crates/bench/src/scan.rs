//! Scans: each transaction reads so many records in order, from a random one on or all of them. With a pool that is
//! smaller than the table it measures how fast pages come from the file.

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow},
};

use crate::{
    BenchError,
    engine::{Engine, EngineTxn, Failure, Order, Stop, TableIndex},
    random::Random,
    row::{Field, KeyBytes, TableSpec},
    workload::{Check, Loader, Worker, Workload, visit_all},
};

/// The record's own number, so that a scan sees whether it is given the right ones.
const NUMBER: Field<u64> = Field::at(0);
const RECORDS_PER_PART: u64 = 20_000;

/// The workload.
#[derive(Clone, Debug)]
pub struct Scan {
    records: u64,
    value_bytes: u32,
    length: u64,
    order: Order,
    table: TableSpec,
}

impl Scan {
    /// A table of `records` records of `value_bytes` bytes; a transaction reads `length` of them, or all if there are
    /// no more.
    pub fn new(records: u64, value_bytes: u32, length: u64, order: Order) -> Result<Scan, BenchError> {
        if !(1..=1_000_000_000).contains(&records) {
            return Err(BenchError::invalid(format!("records must be in 1..=1000000000, got {records}")));
        }
        if !(8..=65_536).contains(&value_bytes) {
            return Err(BenchError::invalid(format!("value_bytes must be in 8..=65536, got {value_bytes}")));
        }
        if length == 0 {
            return Err(BenchError::invalid("a scan of no records measures nothing"));
        }
        let table = TableSpec { index: TableIndex(0), name: "scanned", fixed: value_bytes as usize };
        Ok(Scan { records, value_bytes, length: length.min(records), order, table })
    }

    fn key(record: u64) -> KeyBytes {
        KeyBytes::new().u64(record)
    }
}

impl Workload for Scan {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn tables(&self) -> Vec<String> {
        vec![self.table.name.to_owned()]
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["scan"]
    }

    fn options(&self) -> BTreeMap<String, serde_json::Value> {
        BTreeMap::from([
            ("records".to_owned(), self.records.into()),
            ("value_bytes".to_owned(), self.value_bytes.into()),
            ("length".to_owned(), self.length.into()),
            ("descending".to_owned(), (self.order == Order::Descending).into()),
        ])
    }

    fn load_parts(&self) -> u64 {
        self.records.div_ceil(RECORDS_PER_PART)
    }

    fn load_rows(&self) -> u64 {
        self.records
    }

    fn load_part(&self, part: u64, seed: u64, loader: &mut Loader<'_>) -> Result<(), Failure> {
        let mut random = Random::new(seed, (1 << 32) | part);
        let first = part * RECORDS_PER_PART;
        let mut row = Vec::new();
        for record in first..self.records.min(first + RECORDS_PER_PART) {
            row.clear();
            row.extend_from_slice(&[0; NUMBER.end()]);
            NUMBER.set(&mut row, record);
            let rest = self.value_bytes - NUMBER.end() as u32;
            random.letters(rest, rest, &mut row);
            loader.row(self.table.index, &Scan::key(record), &row)?;
        }
        loader.flush()
    }

    fn worker(&self, thread: usize, _threads: usize, seed: u64) -> Box<dyn Worker> {
        Box::new(ScanWorker {
            scan: self.clone(),
            random: Random::new(seed, (2 << 32) | thread as u64),
            first: 0,
        })
    }

    fn check(&self, engine: &dyn Engine, _commits: Option<&[u64]>) -> Result<Vec<Check>, Failure> {
        let mut rows = 0;
        let mut numbers = Check::new("records: each has its own number");
        visit_all(engine, self.table.index, b"", &mut |key, row| {
            self.table.check(key, row)?;
            let number = NUMBER.get(row);
            numbers.expect(number == rows, || format!("record {rows} has the number {number}"));
            rows += 1;
            Ok(())
        })?;
        let mut count = Check::new("records: as many as were loaded");
        count.expect(rows == self.records, || format!("{rows} instead of {}", self.records));
        Ok(vec![count, numbers])
    }
}

struct ScanWorker {
    scan: Scan,
    random: Random,
    /// The lowest record of the scan that was drawn last.
    first: u64,
}

impl Worker for ScanWorker {
    fn next(&mut self) -> usize {
        let starts = self.scan.records - self.scan.length + 1;
        self.first = self.random.below(starts);
        0
    }

    fn reads_only(&self) -> bool {
        true
    }

    fn run(&mut self, txn: &mut dyn EngineTxn) -> Result<(), Stop> {
        let Scan { length, order, ref table, .. } = self.scan;
        let (low, high) = (Scan::key(self.first), Scan::key(self.first + length - 1));
        let mut read = 0;
        let mut wrong = None;
        txn.scan(table.index, (Bound::Included(&*low), Bound::Included(&*high)), order, &mut |_, row| {
            let expected = match order {
                Order::Ascending => self.first + read,
                Order::Descending => self.first + length - 1 - read.min(length - 1),
            };
            if row.len() < NUMBER.end() || NUMBER.get(row) != expected {
                wrong = Some(expected);
                return ControlFlow::Break(());
            }
            read += 1;
            ControlFlow::Continue(())
        })?;
        match wrong {
            None if read == length => Ok(()),
            None => Err(Failure::inconsistent(format!("a scan of {length} records found {read}")).into()),
            Some(expected) => {
                Err(Failure::inconsistent(format!("a scan found another record in the place of {expected}"))
                    .into())
            }
        }
    }
}
