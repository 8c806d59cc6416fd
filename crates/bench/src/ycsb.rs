//! YCSB's core idea in transactions: each touches several records, chosen uniformly, by Zipf's law or from a hot set,
//! and reads or reads-modifies-writes each of them. Every modification counts itself in its record, so that a lost
//! update shows as a wrong sum.

use std::collections::BTreeMap;

use foreshore_env::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    BenchError,
    engine::{Engine, EngineTxn, Failure, Foresee, Stop, TableIndex},
    random::{Chooser, Distribution, Random},
    row::{Field, KeyBytes, TableSpec},
    workload::{Check, Loader, Worker, Workload, visit_all},
};

/// Modifications that the record has seen.
const MODIFIED: Field<u64> = Field::at(0);
const RECORDS_PER_PART: u64 = 20_000;

/// The workload.
#[derive(Clone, Debug)]
pub struct Ycsb {
    options: YcsbOptions,
    chooser: Chooser,
    table: TableSpec,
    /// Modifications committed by workers that are gone; each adds its own when it is dropped.
    modifications: Arc<AtomicU64>,
}

/// What shapes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YcsbOptions {
    /// Records in the table.
    pub records: u64,
    /// Bytes of a record.
    pub value_bytes: u32,
    /// Records that a transaction touches.
    pub operations: u32,
    /// Percent of the operations that only read; the others read, modify and write.
    pub read_percent: u32,
    /// How records are chosen.
    pub distribution: Distribution,
}

impl Default for YcsbOptions {
    fn default() -> YcsbOptions {
        YcsbOptions {
            records: 1_000_000,
            value_bytes: 100,
            operations: 10,
            read_percent: 50,
            distribution: Distribution::Uniform,
        }
    }
}

impl Ycsb {
    /// The workload of this shape.
    pub fn new(options: YcsbOptions) -> Result<Ycsb, BenchError> {
        let limit = |what: &str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(BenchError::invalid(format!("{what} must be in {low}..={high}, got {value}")))
            }
        };
        limit("records", options.records, 1, 1_000_000_000)?;
        limit("value_bytes", options.value_bytes.into(), 8, 65_536)?;
        limit("operations", options.operations.into(), 1, 1000)?;
        limit("read_percent", options.read_percent.into(), 0, 100)?;
        match options.distribution {
            Distribution::Zipf(theta) if !(theta > 0.0 && theta < 1.0) => {
                return Err(BenchError::invalid(format!(
                    "the exponent of zipf must be in (0, 1), got {theta}"
                )));
            }
            Distribution::HotSet { records, share } => {
                limit("records of the hot set", records, 1, options.records)?;
                limit("share of the hot set", share.into(), 0, 100)?;
            }
            _ => {}
        }
        Ok(Ycsb {
            options,
            chooser: Chooser::new(options.records, options.distribution),
            table: TableSpec { index: TableIndex(0), name: "usertable", fixed: options.value_bytes as usize },
            modifications: Arc::default(),
        })
    }

    fn key(record: u64) -> KeyBytes {
        KeyBytes::new().u64(record)
    }
}

impl Workload for Ycsb {
    fn name(&self) -> &'static str {
        "ycsb"
    }

    fn tables(&self) -> Vec<String> {
        vec![self.table.name.to_owned()]
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["ycsb"]
    }

    fn options(&self) -> BTreeMap<String, serde_json::Value> {
        let distribution = match self.options.distribution {
            Distribution::Uniform => "uniform".to_owned(),
            Distribution::Zipf(theta) => format!("zipf:{theta}"),
            Distribution::HotSet { records, share } => format!("hot:{records}:{share}"),
        };
        BTreeMap::from([
            ("records".to_owned(), self.options.records.into()),
            ("value_bytes".to_owned(), self.options.value_bytes.into()),
            ("operations".to_owned(), self.options.operations.into()),
            ("read_percent".to_owned(), self.options.read_percent.into()),
            ("distribution".to_owned(), distribution.into()),
        ])
    }

    fn load_parts(&self) -> u64 {
        self.options.records.div_ceil(RECORDS_PER_PART)
    }

    fn load_rows(&self) -> u64 {
        self.options.records
    }

    fn load_part(&self, part: u64, seed: u64, loader: &mut Loader<'_>) -> Result<(), Failure> {
        let mut random = Random::new(seed, (1 << 32) | part);
        let first = part * RECORDS_PER_PART;
        let mut row = Vec::new();
        for record in first..self.options.records.min(first + RECORDS_PER_PART) {
            row.clear();
            row.resize(MODIFIED.end(), 0);
            let rest = self.options.value_bytes - MODIFIED.end() as u32;
            random.letters(rest, rest, &mut row);
            loader.row(self.table.index, &Ycsb::key(record), &row)?;
        }
        loader.flush()
    }

    fn worker<'w>(&'w self, thread: usize, _threads: usize, seed: u64) -> Box<dyn Worker + 'w> {
        Box::new(YcsbWorker {
            workload: self,
            random: Random::new(seed, (2 << 32) | thread as u64),
            operations: Vec::with_capacity(self.options.operations as usize),
            row: Vec::new(),
            modifications: 0,
        })
    }

    fn check(&self, engine: &dyn Engine, commits: Option<&[u64]>) -> Result<Vec<Check>, Failure> {
        let (mut rows, mut modified) = (0_u64, 0_u64);
        visit_all(engine, self.table.index, b"", &mut |key, row| {
            self.table.check(key, row)?;
            rows += 1;
            modified = modified.wrapping_add(MODIFIED.get(row));
            Ok(())
        })?;
        let mut count = Check::new("records: as many as were loaded");
        count.expect(rows == self.options.records, || format!("{rows} instead of {}", self.options.records));
        let mut checks = vec![count];
        if commits.is_some() {
            let committed = self.modifications.load(Ordering::Acquire);
            let mut sum = Check::new("modifications: the records count as many as were committed");
            sum.expect(modified == committed, || {
                format!("the records count {modified}, committed were {committed}")
            });
            checks.push(sum);
        }
        Ok(checks)
    }
}

struct YcsbWorker<'w> {
    workload: &'w Ycsb,
    random: Random,
    /// Record, and whether it is modified.
    operations: Vec<(u64, bool)>,
    row: Vec<u8>,
    /// Committed by this worker.
    modifications: u64,
}

impl Drop for YcsbWorker<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the check.
        self.workload.modifications.fetch_add(self.modifications, Ordering::Release);
    }
}

impl Worker for YcsbWorker<'_> {
    fn next(&mut self) -> usize {
        let Ycsb { options, chooser, .. } = self.workload;
        self.operations.clear();
        for _ in 0..options.operations {
            let record = chooser.choose(&mut self.random);
            self.operations.push((record, !self.random.percent(options.read_percent)));
        }
        0
    }

    fn run(&mut self, txn: &mut dyn EngineTxn) -> Result<(), Stop> {
        let table = &self.workload.table;
        for &(record, modifies) in &self.operations {
            let key = Ycsb::key(record);
            if !modifies {
                table.read(txn, &key, &mut self.row)?;
                continue;
            }
            table.read_for_update(txn, &key, &mut self.row)?;
            let modified = MODIFIED.get(&self.row);
            MODIFIED.set(&mut self.row, modified.wrapping_add(1));
            txn.put(table.index, &key, &self.row)?;
        }
        Ok(())
    }

    fn foresee(&self, touch: &mut Foresee<'_>) -> bool {
        for &(record, modifies) in &self.operations {
            touch(self.workload.table.index, &Ycsb::key(record), modifies);
        }
        true
    }

    fn reads_only(&self) -> bool {
        self.operations.iter().all(|(_, modifies)| !modifies)
    }

    fn committed(&mut self) {
        self.modifications += self.operations.iter().filter(|(_, modifies)| *modifies).count() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{engine::Attempts, engines::BTreeMapEngine, observer::Silent, runner::load};

    #[test]
    fn lost_updates_and_lost_records_are_caught() {
        let distribution = Distribution::Zipf(0.9);
        let options = YcsbOptions { records: 500, distribution, ..YcsbOptions::default() };
        let ycsb = Ycsb::new(options).unwrap();
        let engine = BTreeMapEngine::new(1);
        load(&engine, &ycsb, 2, 1, &Silent).unwrap();
        let mut worker = ycsb.worker(0, 1, 1);
        for _ in 0..200 {
            worker.next();
            engine.transact(&mut Attempts::default(), &mut |txn| worker.run(txn)).unwrap();
            worker.committed();
        }
        drop(worker);
        let holds =
            || ycsb.check(&engine, Some(&[200])).unwrap().iter().map(|check| check.holds).collect::<Vec<_>>();
        assert_eq!(holds(), [true, true]);
        assert!(ycsb.modifications.load(Ordering::Acquire) > 800, "about half of 2,000 operations modify");

        let mut worker = ycsb.worker(1, 2, 1);
        worker.next();
        worker.committed();
        drop(worker);
        assert_eq!(holds(), [true, false], "a commit without its effects must be seen");
        let mut delete = |txn: &mut dyn EngineTxn| Ok(ycsb.table.delete(txn, &Ycsb::key(3))?);
        engine.transact(&mut Attempts::default(), &mut delete).unwrap();
        assert!(!holds()[0]);
    }

    #[test]
    fn senseless_shapes_are_refused() {
        let with = |change: fn(&mut YcsbOptions)| {
            let mut options = YcsbOptions::default();
            change(&mut options);
            Ycsb::new(options)
        };
        assert!(with(|options| options.records = 0).is_err());
        assert!(with(|options| options.value_bytes = 7).is_err());
        assert!(with(|options| options.read_percent = 101).is_err());
        assert!(with(|options| options.distribution = Distribution::Zipf(1.0)).is_err());
        let hot =
            |options: &mut YcsbOptions| options.distribution = Distribution::HotSet { records: 0, share: 50 };
        assert!(with(hot).is_err());
    }
}
