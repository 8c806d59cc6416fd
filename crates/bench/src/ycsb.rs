//! YCSB's core idea in transactions: each touches several records, chosen uniformly, by Zipf's law or from a hot set,
//! and reads or reads-modifies-writes each of them. Every modification counts itself in its record, so that a lost
//! update shows as a wrong sum.

mod hot;

use std::collections::BTreeMap;

use foreshore_env::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use self::hot::HotTurns;
pub use self::hot::{HotPosition, HotRecords};
use crate::{
    BenchError,
    engine::{Engine, EngineTxn, Failure, Foresee, Stop, TableIndex},
    named::Named,
    random::{Chooser, Distribution, Random},
    row::{Field, KeyBytes, TableSpec},
    workload::{Check, Loader, PartitionOf, Worker, Workload, visit_all},
};

/// Modifications that the record has seen.
const MODIFIED: Field<u64> = Field::at(0);
const RECORDS_PER_PART: u64 = 20_000;

/// The workload.
#[derive(Clone, Debug)]
pub struct Ycsb {
    options: YcsbOptions,
    chooser: Chooser,
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
    /// Partitions of the records, by their numbers modulo this; at least 1.
    pub partitions: u32,
    /// From how many of them a transaction takes its records, in turn; `None`: as it comes.
    pub touched: Option<u32>,
    /// Percent of the transactions that take them from so many partitions; the others from one.
    pub touched_percent: u32,
    /// Whether the first of these is the worker's own: its number modulo that of the partitions. The threads of a
    /// partitioned store (Ren et al. 2016, §4.3) have one each.
    pub own_partition: bool,
    /// Whether each partition is a table of its own.
    pub split: bool,
    /// Whether a transaction asks for what it only reads with one call, before it modifies anything.
    pub together: bool,
    /// Of the records of a transaction, this many different ones from the hot set, and the rest from outside of it, in
    /// place of a share by chance.
    pub hot: Option<HotRecords>,
}

impl Default for YcsbOptions {
    fn default() -> YcsbOptions {
        YcsbOptions {
            records: 1_000_000,
            value_bytes: 100,
            operations: 10,
            read_percent: 50,
            distribution: Distribution::Uniform,
            partitions: 1,
            touched: None,
            touched_percent: 100,
            own_partition: false,
            split: false,
            together: false,
            hot: None,
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
        limit("partitions", options.partitions.into(), 1, options.records.min(256))?;
        if let Some(touched) = options.touched {
            limit("partitions of a transaction", touched.into(), 1, options.partitions.into())?;
        } else if options.own_partition || options.touched_percent != 100 {
            return Err(BenchError::invalid(
                "a partition of its own, or a percentage that take several: say from how many a transaction takes its \
                 records",
            ));
        }
        limit("read_percent", options.read_percent.into(), 0, 100)?;
        limit("touched_percent", options.touched_percent.into(), 0, 100)?;
        match options.distribution {
            Distribution::Zipf(theta) if !(theta > 0.0 && theta < 1.0) => {
                return Err(BenchError::invalid(format!(
                    "the exponent of zipf must be in (0, 1), got {theta:?}"
                )));
            }
            Distribution::HotSet { records, share } => {
                limit("records of the hot set", records, 1, options.records)?;
                limit("share of the hot set", share.into(), 0, 100)?;
            }
            _ => {}
        }
        if options.together && options.split {
            return Err(BenchError::invalid("records that are read together are those of one table"));
        }
        if let Some(HotRecords { count, .. }) = options.hot {
            let Distribution::HotSet { records, .. } = options.distribution else {
                return Err(BenchError::invalid(
                    "hot records are those of a hot set: choose the distribution hot",
                ));
            };
            // Each partition of which a transaction may take its records has some of both.
            let partitions = options.touched.map_or(1, |_| options.partitions.into());
            let most = u64::from(options.operations).min(records / partitions);
            limit("hot records of a transaction", count.into(), 1, most)?;
            if options.records - records < partitions && count < options.operations {
                return Err(BenchError::invalid("all records of a partition are hot, and some shall not be"));
            }
        }
        Ok(Ycsb {
            options,
            chooser: Chooser::new(options.records, options.distribution),
            modifications: Arc::default(),
        })
    }

    fn key(record: u64) -> KeyBytes {
        KeyBytes::new().u64(record)
    }

    /// How many tables there are.
    fn count_tables(&self) -> u32 {
        if self.options.split { self.options.partitions } else { 1 }
    }

    /// The table of a record.
    fn table(&self, record: u64) -> TableSpec {
        self.numbered(record % u64::from(self.count_tables()))
    }

    fn numbered(&self, number: u64) -> TableSpec {
        let fixed = self.options.value_bytes as usize;
        TableSpec { index: TableIndex(number as u16), name: "usertable", fixed }
    }

    /// The record that stands for this one in a partition of so many.
    fn in_partition(&self, record: u64, (partition, partitions): (u64, u64)) -> u64 {
        let moved = record - record % partitions + partition;
        if moved < self.options.records { moved } else { moved - partitions }
    }
}

impl Workload for Ycsb {
    fn name(&self) -> &'static str {
        "ycsb"
    }

    fn tables(&self) -> Vec<String> {
        match self.options.split {
            false => vec!["usertable".to_owned()],
            true => (0..self.options.partitions).map(|number| format!("usertable_{number}")).collect(),
        }
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["ycsb"]
    }

    fn options(&self) -> BTreeMap<String, serde_json::Value> {
        let distribution = match self.options.distribution {
            Distribution::Uniform => "uniform".to_owned(),
            Distribution::Zipf(theta) => format!("zipf:{theta:?}"),
            Distribution::HotSet { records, share } => format!("hot:{records}:{share}"),
        };
        BTreeMap::from([
            ("records".to_owned(), self.options.records.into()),
            ("value_bytes".to_owned(), self.options.value_bytes.into()),
            ("operations".to_owned(), self.options.operations.into()),
            ("read_percent".to_owned(), self.options.read_percent.into()),
            ("distribution".to_owned(), distribution.into()),
            ("partitions_per_transaction".to_owned(), self.options.touched.into()),
            ("multi_partition_percent".to_owned(), self.options.touched_percent.into()),
            ("own_partition".to_owned(), self.options.own_partition.into()),
            ("split".to_owned(), self.options.split.into()),
            ("together".to_owned(), self.options.together.into()),
            ("hot_operations".to_owned(), self.options.hot.map(|hot| hot.count).into()),
            ("hot_position".to_owned(), self.options.hot.map(|hot| hot.position.name()).into()),
        ])
    }

    fn partition_of(&self) -> Option<PartitionOf> {
        // Modulo their number it is that of the record.
        let of = |key: &[u8]| key.first_chunk().map_or(0, |record| u64::from_be_bytes(*record) as usize);
        Some(PartitionOf { of, everywhere: &[] })
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
            loader.row(self.table(record).index, &Ycsb::key(record), &row)?;
        }
        loader.flush()
    }

    fn worker(&self, thread: usize, _threads: usize, seed: u64) -> Box<dyn Worker> {
        Box::new(YcsbWorker {
            workload: self.clone(),
            random: Random::new(seed, (2 << 32) | thread as u64),
            operations: Vec::with_capacity(self.options.operations as usize),
            own: thread as u64,
            touched: Vec::new(),
            keys: Vec::new(),
            row: Vec::new(),
            modifications: 0,
        })
    }

    fn check(&self, engine: &dyn Engine, commits: Option<&[u64]>) -> Result<Vec<Check>, Failure> {
        let (mut rows, mut modified) = (0_u64, 0_u64);
        for number in 0..self.count_tables() {
            let table = self.numbered(number.into());
            visit_all(engine, table.index, b"", &mut |key, row| {
                table.check(key, row)?;
                rows += 1;
                modified = modified.wrapping_add(MODIFIED.get(row));
                Ok(())
            })?;
        }
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

struct YcsbWorker {
    workload: Ycsb,
    random: Random,
    /// Record, and whether it is modified.
    operations: Vec<(u64, bool)>,
    /// Its number.
    own: u64,
    /// The partitions that they are taken from, if that is not as it comes.
    touched: Vec<u64>,
    /// Of the records that are read together.
    keys: Vec<KeyBytes>,
    row: Vec<u8>,
    /// Committed by this worker.
    modifications: u64,
}

impl Drop for YcsbWorker {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the check.
        self.workload.modifications.fetch_add(self.modifications, Ordering::Release);
    }
}

impl Worker for YcsbWorker {
    fn next(&mut self) -> usize {
        self.choose_partitions();
        let Ycsb { options, chooser, .. } = &self.workload;
        self.operations.clear();
        let mut hot = HotTurns::of(options);
        for number in 0..options.operations as usize {
            // Where they come as they come, all are of one.
            let of = match self.touched.len() {
                0 => (0, 1),
                touched => (self.touched[number % touched], options.partitions.into()),
            };
            let record = match hot.as_mut() {
                Some(hot) => hot.choose(of, &self.operations, &mut self.random),
                None => self.workload.in_partition(chooser.choose(&mut self.random), of),
            };
            self.operations.push((record, !self.random.percent(options.read_percent)));
        }
        0
    }

    fn run(&mut self, txn: &mut dyn EngineTxn) -> Result<(), Stop> {
        let together = self.workload.options.together;
        if together {
            self.read_together(txn)?;
        }
        for &(record, modifies) in &self.operations {
            if together && !modifies {
                continue;
            }
            let table = self.workload.table(record);
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
            touch(self.workload.table(record).index, &Ycsb::key(record), modifies);
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

impl YcsbWorker {
    fn read_together(&mut self, txn: &mut dyn EngineTxn) -> Result<(), Failure> {
        let reads = self.operations.iter().filter(|(_, modifies)| !modifies);
        self.keys.clear();
        self.keys.extend(reads.map(|(record, _)| Ycsb::key(*record)));
        let (table, keys) = (self.workload.numbered(0), &self.keys);
        let mut all_there = Ok(());
        txn.get_many(table.index, keys, false, &mut self.row, &mut |number, row| {
            if all_there.is_ok() {
                all_there = table.admit(row, &keys[number]);
            }
        })?;
        all_there
    }

    /// Draws different partitions, as many as a transaction touches.
    fn choose_partitions(&mut self) {
        let YcsbOptions { partitions, touched, touched_percent, own_partition, .. } = self.workload.options;
        self.touched.clear();
        let Some(most) = touched else { return };
        let touched = if touched_percent == 100 || self.random.percent(touched_percent) { most } else { 1 };
        if own_partition {
            self.touched.push(self.own % u64::from(partitions));
        }
        while self.touched.len() < touched as usize {
            let partition = self.random.below(partitions.into());
            if !self.touched.contains(&partition) {
                self.touched.push(partition);
            }
        }
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
        let mut delete = |txn: &mut dyn EngineTxn| Ok(ycsb.table(3).delete(txn, &Ycsb::key(3))?);
        engine.transact(&mut Attempts::default(), &mut delete).unwrap();
        assert!(!holds()[0]);
    }

    #[test]
    fn records_come_from_as_many_partitions_as_is_asked_for() {
        for split in [false, true] {
            let options = YcsbOptions {
                records: 103,
                partitions: 10,
                touched: Some(3),
                split,
                ..YcsbOptions::default()
            };
            let ycsb = Ycsb::new(options).unwrap();
            let of = ycsb.partition_of().unwrap().of;
            let mut worker = ycsb.worker(0, 1, 1);
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..200 {
                worker.next();
                let mut touched = std::collections::BTreeSet::new();
                worker.foresee(&mut |table, key, _| {
                    let partition = of(key) % 10;
                    touched.insert(partition);
                    assert_eq!(usize::from(table.0), if split { partition } else { 0 });
                });
                assert_eq!(touched.len(), 3);
                seen.extend(touched);
            }
            assert_eq!(seen.len(), 10);
            let engine = BTreeMapEngine::new(ycsb.tables().len());
            load(&engine, &ycsb, 2, 1, &Silent).unwrap();
            assert!(ycsb.check(&engine, None).unwrap().iter().all(|check| check.holds));
        }
    }

    #[test]
    fn a_worker_has_a_partition_of_its_own() {
        let drawn = |thread: usize, own_partition| {
            let options = YcsbOptions {
                records: 100,
                partitions: 4,
                touched: Some(2),
                touched_percent: 50,
                own_partition,
                ..YcsbOptions::default()
            };
            let mut worker = Ycsb::new(options).unwrap().worker(thread, 8, 1);
            let mut first = std::collections::BTreeSet::new();
            let mut all = std::collections::BTreeSet::new();
            for _ in 0..200 {
                worker.next();
                let mut records = Vec::new();
                worker
                    .foresee(&mut |_, key, _| records.push(u64::from_be_bytes(key.try_into().unwrap()) % 4));
                first.insert(records[0]);
                all.extend(records);
            }
            (first.into_iter().collect::<Vec<_>>(), all.len())
        };
        // The first is its own, the second any of the others.
        assert_eq!(drawn(1, true), (vec![1], 4));
        assert_eq!(drawn(6, true), (vec![2], 4));
        assert_eq!(drawn(1, false), (vec![0, 1, 2, 3], 4));
    }

    #[test]
    fn a_percentage_of_transactions_has_several_partitions() {
        let shares = [0, 30, 100].map(|touched_percent| {
            let options = YcsbOptions {
                records: 100,
                partitions: 10,
                touched: Some(2),
                touched_percent,
                ..YcsbOptions::default()
            };
            let mut worker = Ycsb::new(options).unwrap().worker(0, 1, 1);
            let several = |_: &i32| {
                worker.next();
                let mut touched = std::collections::BTreeSet::new();
                worker.foresee(&mut |_, key, _| {
                    touched.insert(u64::from_be_bytes(key.try_into().unwrap()) % 10);
                });
                touched.len() == 2
            };
            (0..1000).filter(several).count()
        });
        assert_eq!((shares[0], shares[2]), (0, 1000));
        assert!((200..400).contains(&shares[1]), "{shares:?}");
    }

    #[test]
    fn hot_records_are_counted_and_come_when_they_should() {
        for position in [HotPosition::First, HotPosition::Last, HotPosition::Random] {
            let ycsb = Ycsb::new(YcsbOptions {
                records: 1000,
                distribution: Distribution::HotSet { records: 3, share: 0 },
                hot: Some(HotRecords { count: 2, position }),
                ..YcsbOptions::default()
            });
            let mut worker = ycsb.unwrap().worker(0, 1, 1);
            let mut places = [0; 10];
            for _ in 0..500 {
                worker.next();
                let mut records = Vec::new();
                worker.foresee(&mut |_, key, _| {
                    records.push(u64::from_be_bytes(key.try_into().unwrap()));
                });
                let hot: Vec<usize> = (0..10).filter(|place| records[*place] < 3).collect();
                assert_eq!(hot.len(), 2, "{records:?}");
                assert_ne!(records[hot[0]], records[hot[1]]);
                hot.into_iter().for_each(|place| places[place] += 1);
            }
            match position {
                HotPosition::First => assert_eq!((places[0], places[1]), (500, 500)),
                HotPosition::Last => assert_eq!((places[8], places[9]), (500, 500)),
                HotPosition::Random => {
                    assert!(places.iter().all(|count| (50..200).contains(count)), "{places:?}")
                }
            }
        }
    }

    /// They were drawn from all partitions and then moved: two of a partition became one, and where the partitions do
    /// not divide the hot set, hot ones became cold.
    #[test]
    fn hot_records_of_partitions_are_counted_too() {
        for (partitions, touched) in [(4, 1), (8, 1), (12, 1), (16, 1), (16, 2), (12, 2)] {
            let ycsb = Ycsb::new(YcsbOptions {
                records: 10_000,
                partitions,
                touched: Some(touched),
                distribution: Distribution::HotSet { records: 64, share: 0 },
                hot: Some(HotRecords { count: 2, position: HotPosition::First }),
                ..YcsbOptions::default()
            });
            let mut worker = ycsb.unwrap().worker(0, 1, 1);
            for _ in 0..500 {
                worker.next();
                let mut records = Vec::new();
                worker.foresee(&mut |_, key, _| {
                    records.push(u64::from_be_bytes(key.try_into().unwrap()));
                });
                let is_hot: Vec<bool> = records.iter().map(|record| *record < 64).collect();
                assert_eq!(is_hot, (0..10).map(|place| place < 2).collect::<Vec<_>>(), "{records:?}");
                assert_ne!(records[0], records[1], "{partitions} partitions, {touched} of them");
                let partitions: std::collections::BTreeSet<u64> =
                    records.iter().map(|record| record % u64::from(partitions)).collect();
                assert_eq!(partitions.len(), touched as usize);
            }
        }
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
        assert!(with(|options| options.partitions = 0).is_err());
        assert!(with(|options| options.touched = Some(2)).is_err());
        assert!(with(|options| options.own_partition = true).is_err());
        assert!(with(|options| options.touched_percent = 50).is_err());
        assert!(with(|options| options.distribution = Distribution::Zipf(1.0)).is_err());
        let far = with(|options| options.distribution = Distribution::Zipf(1e308)).err().unwrap();
        assert!(far.to_string().ends_with("got 1e308"), "{far}");
        let hot =
            |options: &mut YcsbOptions| options.distribution = Distribution::HotSet { records: 0, share: 50 };
        assert!(with(hot).is_err());
        let records = |count| Some(HotRecords { count, position: HotPosition::First });
        let set = |hot, records| {
            Ycsb::new(YcsbOptions {
                records: 100,
                distribution: Distribution::HotSet { records, share: 50 },
                hot,
                ..YcsbOptions::default()
            })
        };
        assert!(set(records(10), 64).is_ok());
        assert!(set(records(11), 64).is_err() && set(records(3), 2).is_err() && set(records(0), 64).is_err());
        assert!(set(records(2), 100).is_err());
        // Each of eight partitions has eight hot ones, and none of seven has another if only 94 are hot.
        let split = |hot, records, partitions| {
            Ycsb::new(YcsbOptions {
                records: 100,
                partitions,
                touched: Some(1),
                distribution: Distribution::HotSet { records, share: 50 },
                hot,
                ..YcsbOptions::default()
            })
        };
        assert!(split(records(8), 64, 8).is_ok() && split(records(9), 64, 8).is_err());
        assert!(split(records(10), 93, 7).is_ok() && split(records(9), 94, 7).is_err());
        assert!(split(records(10), 94, 7).is_ok());
        let uniform = YcsbOptions { hot: records(2), ..YcsbOptions::default() };
        assert!(Ycsb::new(uniform).is_err());
    }
}
