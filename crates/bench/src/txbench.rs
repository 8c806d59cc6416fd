//! The microbenchmark of Jung et al., SIGMOD 2013, §5.1.2: transactions that read ranges, and some that also update a
//! few rows of another table than the one they have read, so that reads and writes conflict in cycles.
//!
//! Three tables. A reading transaction aggregates an integer column over consecutive keys of one of them. An updating
//! one does the same, and then rewrites a text in a fifth as many rows of the next table: distinct ones, in ascending
//! order, as one statement with an index on its keys would. With a hot set (§5.2.5) everything happens in the first
//! rows of each table.
//!
//! Departures. The aggregated column is one that nobody changes (as in the paper), and is such that every reader knows
//! the sum that it must find. Every row has a column more than there, which counts its updates, so that a lost one
//! shows.

use std::{collections::BTreeMap, ops::Bound};

use crate::{
    BenchError,
    engine::{Engine, EngineTxn, Failure, Stop, TableIndex},
    random::Random,
    row::{Field, KeyBytes, TableSpec, begin_row, key_u32, push_text, strange_key, text},
    workload::{Check, Loader, Worker, Workload, visit_all},
};

/// Rows of a table, as in the paper.
pub const TXBENCH_KEYS: u32 = 100_000;
/// Of the rows that a transaction reads, the part that it updates, if it updates.
const UPDATED_PART: u32 = 5;

const VALUE: Field<i64> = Field::at(0);
/// Updates that the row has seen.
const UPDATED: Field<u64> = Field::at(VALUE.end());
const FIXED: usize = UPDATED.end();
const TEXTS: u64 = 10;
const LONGEST_TEXT: u32 = 16;

const NAMES: [&str; 3] = ["txbench_1", "txbench_2", "txbench_3"];
const KEYS_PER_PART: u32 = 20_000;
/// Places in [`Workload::kinds`].
const READ_ONLY: usize = 0;
const READ_UPDATE: usize = 1;

/// What shapes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TxbenchOptions {
    /// Rows of each table: at least twice `rows`.
    pub keys: u32,
    /// Consecutive rows that a transaction reads, 1 to 1,000; one that updates does so to a fifth as many, one at
    /// least.
    pub rows: u32,
    /// The share of the transactions that update, 0 to 1.
    pub updates: f64,
    /// The share of the rows of each table that are used at all, more than 0 and at most 1.
    pub hot: f64,
}

impl Default for TxbenchOptions {
    fn default() -> TxbenchOptions {
        TxbenchOptions { keys: TXBENCH_KEYS, rows: 10, updates: 0.0, hot: 1.0 }
    }
}

/// The workload.
#[derive(Clone, Debug)]
pub struct Txbench {
    options: TxbenchOptions,
    /// Rows at the beginning of each table that transactions use.
    used: u32,
}

fn spec(table: usize) -> TableSpec {
    TableSpec { index: TableIndex(table as u16), name: NAMES[table], fixed: FIXED }
}

fn key(number: u32) -> KeyBytes {
    KeyBytes::new().u32(number)
}

/// The integer column: linear, so that the sum over any range is known.
fn value(table: usize, key: u32) -> i64 {
    7 * i64::from(key) + table as i64
}

impl Txbench {
    /// The workload of this shape.
    pub fn new(options: TxbenchOptions) -> Result<Txbench, BenchError> {
        let TxbenchOptions { keys, rows, updates, hot } = options;
        if !(1..=1000).contains(&rows) {
            return Err(BenchError::invalid(format!("rows must be in 1..=1000, got {rows}")));
        }
        if !(1..=10_000_000).contains(&keys) {
            return Err(BenchError::invalid(format!("keys must be in 1..=10000000, got {keys}")));
        }
        if !(0.0..=1.0).contains(&updates) {
            return Err(BenchError::invalid(format!("updates must be in 0..=1, got {updates}")));
        }
        if !(hot > 0.0 && hot <= 1.0) {
            return Err(BenchError::invalid(format!("hot must be above 0 and at most 1, got {hot}")));
        }
        let used = (f64::from(keys) * hot) as u32;
        if used < 2 * rows {
            let message =
                format!("of {keys} keys {used} are used, fewer than twice the {rows} rows of a read");
            return Err(BenchError::invalid(message));
        }
        Ok(Txbench { options, used })
    }

    /// Rows that an updating transaction updates.
    fn updated_rows(&self) -> u32 {
        (self.options.rows / UPDATED_PART).max(1)
    }
}

impl Workload for Txbench {
    fn name(&self) -> &'static str {
        "txbench"
    }

    fn tables(&self) -> Vec<String> {
        NAMES.map(str::to_owned).to_vec()
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["read_only", "read_update"]
    }

    fn options(&self) -> BTreeMap<String, serde_json::Value> {
        BTreeMap::from([
            ("keys".to_owned(), self.options.keys.into()),
            ("rows".to_owned(), self.options.rows.into()),
            ("updates".to_owned(), self.options.updates.into()),
            ("hot".to_owned(), self.options.hot.into()),
        ])
    }

    fn load_parts(&self) -> u64 {
        NAMES.len() as u64 * u64::from(self.options.keys.div_ceil(KEYS_PER_PART))
    }

    fn load_rows(&self) -> u64 {
        NAMES.len() as u64 * u64::from(self.options.keys)
    }

    fn load_part(&self, part: u64, seed: u64, loader: &mut Loader<'_>) -> Result<(), Failure> {
        let mut random = Random::new(seed, (1 << 32) | part);
        let parts = u64::from(self.options.keys.div_ceil(KEYS_PER_PART));
        let (table, first) = ((part / parts) as usize, (part % parts) as u32 * KEYS_PER_PART);
        let mut row = Vec::new();
        for number in first..self.options.keys.min(first + KEYS_PER_PART) {
            begin_row(&mut row, FIXED);
            VALUE.set(&mut row, value(table, number));
            for _ in 0..TEXTS {
                push_text(&mut row, |out| random.letters(LONGEST_TEXT / 2, LONGEST_TEXT, out));
            }
            loader.row(spec(table).index, &key(number), &row)?;
        }
        loader.flush()
    }

    fn worker(&self, thread: usize, _threads: usize, seed: u64) -> Box<dyn Worker> {
        Box::new(TxbenchWorker {
            workload: self.clone(),
            random: Random::new(seed, (2 << 32) | thread as u64),
            table: 0,
            first: 0,
            updated: Vec::with_capacity(self.updated_rows() as usize),
            column: 0,
            text: Vec::new(),
            row: Vec::new(),
        })
    }

    fn check(&self, engine: &dyn Engine, commits: Option<&[u64]>) -> Result<Vec<Check>, Failure> {
        let mut values = Check::new("rows: every one is there, with its value");
        let mut updates = 0_u64;
        for (table, name) in NAMES.iter().enumerate() {
            let mut expected = 0;
            visit_all(engine, spec(table).index, b"", &mut |key, row| {
                spec(table).check(key, row)?;
                let number = key_u32(key, 0).filter(|_| key.len() == 4);
                let number = number.ok_or_else(|| strange_key(&spec(table), key))?;
                values.expect(number == expected && VALUE.get(row) == value(table, number), || {
                    format!("{name}: row {number} with {} where row {expected} is due", VALUE.get(row))
                });
                expected = number + 1;
                updates = updates.wrapping_add(UPDATED.get(row));
                Ok(())
            })?;
            values.expect(expected == self.options.keys, || format!("{name} ends at row {expected}"));
        }
        let mut checks = vec![values];
        if let Some(&[_, updating]) = commits {
            let committed = updating * u64::from(self.updated_rows());
            let mut sum = Check::new("updates: the rows count as many as were committed");
            sum.expect(updates == committed, || {
                format!("the rows count {updates}, committed were {committed}")
            });
            checks.push(sum);
        }
        Ok(checks)
    }
}

struct TxbenchWorker {
    workload: Txbench,
    random: Random,
    /// The table that is read.
    table: usize,
    /// The first row that is read.
    first: u32,
    /// The rows of the next table that are updated, ascending; none in a transaction that only reads.
    updated: Vec<u32>,
    /// Which text of them.
    column: usize,
    /// The text that it becomes, cut to the length that it had.
    text: Vec<u8>,
    row: Vec<u8>,
}

impl Worker for TxbenchWorker {
    fn next(&mut self) -> usize {
        let Txbench { options, used } = &self.workload;
        let random = &mut self.random;
        self.table = random.below(NAMES.len() as u64) as usize;
        self.first = random.below(u64::from(used - options.rows + 1)) as u32;
        self.updated.clear();
        if random.fraction() >= options.updates {
            return READ_ONLY;
        }
        while self.updated.len() < self.workload.updated_rows() as usize {
            let row = random.below(u64::from(*used)) as u32;
            if let Err(place) = self.updated.binary_search(&row) {
                self.updated.insert(place, row);
            }
        }
        self.column = random.below(TEXTS) as usize;
        self.text.clear();
        random.letters(LONGEST_TEXT, LONGEST_TEXT, &mut self.text);
        READ_UPDATE
    }

    fn reads_only(&self) -> bool {
        self.updated.is_empty()
    }

    fn run(&mut self, txn: &mut dyn EngineTxn) -> Result<(), Stop> {
        self.read(txn)?;
        let table = spec((self.table + 1) % NAMES.len());
        for &number in &self.updated {
            let (key, row) = (key(number), &mut self.row);
            table.read_for_update(txn, &key, row)?;
            let updates = UPDATED.get(row).wrapping_add(1);
            UPDATED.set(row, updates);
            let Some((start, length)) = text(row, FIXED, self.column)
                .map(|(start, text)| (start + 2, text.len().min(self.text.len())))
            else {
                return Err(Failure::inconsistent(format!(
                    "{} has a row {number} without its texts",
                    table.name
                ))
                .into());
            };
            row[start..start + length].copy_from_slice(&self.text[..length]);
            txn.put(table.index, &key, row)?;
        }
        Ok(())
    }
}

impl TxbenchWorker {
    /// The range aggregate, which must come to what it always comes to.
    fn read(&self, txn: &mut dyn EngineTxn) -> Result<(), Stop> {
        let (table, rows) = (spec(self.table), self.workload.options.rows);
        let last = self.first + rows - 1;
        let (low, high) = (key(self.first), key(last));
        let (mut seen, mut sum) = (0, 0_i64);
        table.scan(txn, (Bound::Included(&*low), Bound::Included(&*high)), &mut |_, row| {
            seen += 1;
            sum = sum.wrapping_add(VALUE.get(row));
            Ok(())
        })?;
        let expected = (value(self.table, self.first) + value(self.table, last)) * i64::from(rows) / 2;
        if (seen, sum) == (rows, expected) {
            return Ok(());
        }
        let (name, first) = (table.name, self.first);
        let message =
            format!("{name}: rows {first} to {last} are {seen} with the sum {sum} instead of {expected}");
        Err(Failure::inconsistent(message).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{engine::Attempts, engines::BTreeMapEngine, observer::Silent, runner::load};

    const OPTIONS: TxbenchOptions = TxbenchOptions { keys: 500, rows: 10, updates: 0.5, hot: 1.0 };

    fn loaded(txbench: &Txbench) -> BTreeMapEngine {
        let engine = BTreeMapEngine::new(3);
        load(&engine, txbench, 2, 1, &Silent).unwrap();
        engine
    }

    /// Runs so many transactions; gives the commits by kind.
    fn run(txbench: &Txbench, engine: &BTreeMapEngine, count: u64) -> [u64; 2] {
        let (mut worker, mut commits) = (txbench.worker(0, 1, 1), [0; 2]);
        for _ in 0..count {
            commits[worker.next()] += 1;
            engine.transact(&mut Attempts::default(), &mut |txn| worker.run(txn)).unwrap();
        }
        commits
    }

    fn change(engine: &BTreeMapEngine, number: u32, change: impl Fn(&mut Vec<u8>)) {
        let mut row = Vec::new();
        engine
            .transact(&mut Attempts::default(), &mut |txn| {
                spec(1).read_for_update(txn, &key(number), &mut row)?;
                change(&mut row);
                Ok(txn.put(spec(1).index, &key(number), &row)?)
            })
            .unwrap();
    }

    fn add(row: &mut [u8], updates: u64) {
        let updates = UPDATED.get(row).wrapping_add(updates);
        UPDATED.set(row, updates);
    }

    /// None said that it only reads, so that `reads=unlocked` changed nothing here, and stood in the report all the
    /// same.
    #[test]
    fn those_that_only_read_say_so() {
        let mut worker = Txbench::new(OPTIONS).unwrap().worker(0, 1, 1);
        for _ in 0..50 {
            let kind = worker.next();
            assert_eq!(worker.reads_only(), kind == READ_ONLY);
        }
    }

    #[test]
    fn lost_updates_lost_rows_and_changed_values_are_caught() {
        let txbench = Txbench::new(OPTIONS).unwrap();
        let engine = loaded(&txbench);
        let [reads, updates] = run(&txbench, &engine, 400);
        assert!(reads > 150 && updates > 150, "{reads} and {updates} should be about equal");
        let holds = |updates| -> Vec<bool> {
            let checks = txbench.check(&engine, Some(&[reads, updates])).unwrap();
            checks.iter().map(|check| check.holds && check.examined > 0).collect()
        };
        assert_eq!(holds(updates), [true, true]);
        assert_eq!(holds(updates + 1), [true, false]);
        change(&engine, 7, |row| add(row, 1));
        assert_eq!(holds(updates), [true, false]);
        change(&engine, 7, |row| add(row, u64::MAX));
        change(&engine, 499, |row| VALUE.set(row, 0));
        assert_eq!(holds(updates), [false, true]);
    }

    #[test]
    fn a_reader_sees_what_is_missing() {
        let txbench = Txbench::new(TxbenchOptions { keys: 20, updates: 0.0, ..OPTIONS }).unwrap();
        let engine = loaded(&txbench);
        assert_eq!(run(&txbench, &engine, 100), [100, 0]);
        engine.transact(&mut Attempts::default(), &mut |txn| Ok(spec(0).delete(txn, &key(10))?)).unwrap();
        let mut worker = txbench.worker(0, 1, 1);
        let failed = (0..100).any(|_| {
            worker.next();
            engine.transact(&mut Attempts::default(), &mut |txn| worker.run(txn)).is_err()
        });
        assert!(failed, "half of the reads of table 1 include the row");
        assert!(!txbench.check(&engine, None).unwrap()[0].holds);
    }

    #[test]
    fn a_hot_set_leaves_the_other_rows_alone() {
        let txbench = Txbench::new(TxbenchOptions { updates: 1.0, hot: 0.1, ..OPTIONS }).unwrap();
        let engine = loaded(&txbench);
        assert_eq!(run(&txbench, &engine, 300), [0, 300]);
        let mut touched = 0;
        for table in 0..3 {
            visit_all(&engine, spec(table).index, b"", &mut |key, row| {
                let number = key_u32(key, 0).unwrap();
                assert!(number < 50 || UPDATED.get(row) == 0, "{number}");
                touched += u32::from(UPDATED.get(row) > 0);
                Ok(())
            })
            .unwrap();
        }
        assert!((130..=150).contains(&touched), "{touched} of 150 rows are touched by 600 updates");
    }

    #[test]
    fn senseless_shapes_are_refused() {
        for wrong in [
            TxbenchOptions { rows: 0, ..OPTIONS },
            TxbenchOptions { updates: 1.5, ..OPTIONS },
            TxbenchOptions { updates: f64::NAN, ..OPTIONS },
            TxbenchOptions { hot: 0.0, ..OPTIONS },
            TxbenchOptions { hot: 0.03, ..OPTIONS },
            TxbenchOptions { keys: 0, ..OPTIONS },
        ] {
            assert!(Txbench::new(wrong).is_err(), "{wrong:?}");
        }
    }
}
