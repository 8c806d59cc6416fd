//! What a workload is: tables, a load in parts, workers that run transactions, and checks of what must hold.

use std::{collections::BTreeMap, ops::Bound, ops::ControlFlow};

use foreshore_env::sync::atomic::{AtomicU64, Ordering};
use serde::Serialize;

use crate::engine::{Attempts, Engine, EngineTxn, Failure, Foresee, Order, Outcome, Stop, TableIndex};

/// Rows that one loading or checking transaction touches: large enough to amortise its commit, small against the
/// lock limits of an engine.
pub const ROWS_PER_BATCH: usize = 1000;

/// A workload of a given scale.
pub trait Workload: Send + Sync {
    /// The name that selects it on the command line.
    fn name(&self) -> &'static str;

    /// Names of its tables; a [`TableIndex`] points into this list.
    fn tables(&self) -> Vec<String>;

    /// Names of its kinds of transactions; [`Worker::next`] points into this list.
    fn kinds(&self) -> &'static [&'static str];

    /// What shaped this run, for the report.
    fn options(&self) -> BTreeMap<String, serde_json::Value>;

    /// In how many parts it loads; parts may be loaded at the same time, in any order.
    fn load_parts(&self) -> u64;

    /// Rows that all parts load together, for the progress bar.
    fn load_rows(&self) -> u64;

    /// Loads one part into empty tables.
    fn load_part(&self, part: u64, seed: u64, loader: &mut Loader<'_>) -> Result<(), Failure>;

    /// A source of transactions for one of `threads` threads. Two workers with the same seed and thread draw the same
    /// inputs. It has what it needs of the workload, so that an engine may run it on threads of its own.
    fn worker(&self, thread: usize, threads: usize, seed: u64) -> Box<dyn Worker>;

    /// How its keys are divided among partitions, if they can be so that most transactions stay in one.
    fn partition_of(&self) -> Option<PartitionOf> {
        None
    }

    /// Checks what must hold while nothing else runs. `commits` are the transactions committed since the load, by
    /// kind, when that is known; checks that need it are left out otherwise.
    fn check(&self, engine: &dyn Engine, commits: Option<&[u64]>) -> Result<Vec<Check>, Failure>;
}

/// How the keys of a workload are divided among partitions.
#[derive(Clone, Copy, Debug)]
pub struct PartitionOf {
    /// The partition of a key of any table, modulo their number.
    pub of: fn(&[u8]) -> usize,
    /// Tables that are only read, and that every partition could have a copy of: their keys lie in none.
    pub everywhere: &'static [TableIndex],
}

/// One thread's source of transactions.
pub trait Worker: Send {
    /// Draws the inputs of the next transaction and returns its kind.
    fn next(&mut self) -> usize;

    /// Runs the transaction that was drawn last; again, with the same inputs, when the engine retries.
    fn run(&mut self, txn: &mut dyn EngineTxn) -> Result<(), Stop>;

    /// Whether the transaction that was drawn last only reads.
    fn reads_only(&self) -> bool {
        false
    }

    /// Names the keys that the transaction drawn last is known to touch, new ones aside; false, perhaps after some of
    /// them, if that cannot be told without reading.
    fn foresee(&self, _touch: &mut Foresee<'_>) -> bool {
        false
    }

    /// Called when the transaction that was drawn last has committed; for workloads that keep their own books.
    fn committed(&mut self) {}
}

/// The result of one consistency check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What must hold, as a short formula.
    pub name: String,
    /// Whether it does.
    pub holds: bool,
    /// How many places were looked at.
    pub examined: u64,
    /// How many of them fail.
    pub failures: u64,
    /// The first failure, with its figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
}

impl Check {
    /// A check that has looked at nothing yet.
    pub fn new(name: impl Into<String>) -> Check {
        Check { name: name.into(), holds: true, examined: 0, failures: 0, first_failure: None }
    }

    /// Looks at one place; `describe` is asked for the first failure only.
    pub fn expect(&mut self, holds: bool, describe: impl FnOnce() -> String) {
        self.examined += 1;
        if !holds {
            self.holds = false;
            self.failures += 1;
            self.first_failure.get_or_insert_with(describe);
        }
    }

    /// Looks at one place where two figures must be equal.
    pub fn expect_equal(&mut self, place: &dyn Fn() -> String, left: (&str, i64), right: (&str, i64)) {
        self.expect(left.1 == right.1, || {
            format!("{}: {} = {}, but {} = {}", place(), left.0, left.1, right.0, right.1)
        });
    }
}

/// Inserts rows in transactions of [`ROWS_PER_BATCH`] rows and tells the progress.
pub struct Loader<'l> {
    engine: &'l dyn Engine,
    /// Rows loaded so far by all loaders; written by each, read by the progress bar. Relaxed: a figure for the eye.
    rows: &'l AtomicU64,
    /// Tables that stand before those of the workload that loads.
    before: u16,
    batch: Vec<(TableIndex, Range, Range)>,
    bytes: Vec<u8>,
}

/// Start and end in [`Loader`]'s buffer.
type Range = (usize, usize);

impl<'l> Loader<'l> {
    /// A loader with an empty batch.
    pub fn new(engine: &'l dyn Engine, rows: &'l AtomicU64) -> Loader<'l> {
        Loader { engine, rows, before: 0, batch: Vec::with_capacity(ROWS_PER_BATCH), bytes: Vec::new() }
    }

    /// Adds a row to the batch.
    pub fn row(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.batch.push((TableIndex(table.0 + self.before), (start, middle), (middle, self.bytes.len())));
        if self.batch.len() >= ROWS_PER_BATCH { self.flush() } else { Ok(()) }
    }

    /// Loads for a workload before whose tables there are so many others.
    pub fn behind<R>(&mut self, tables: u16, load: impl FnOnce(&mut Self) -> R) -> R {
        self.before += tables;
        let loaded = load(self);
        self.before -= tables;
        loaded
    }

    /// Commits what is left of the batch.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let (batch, bytes) = (&self.batch, &self.bytes);
        if batch.is_empty() {
            return Ok(());
        }
        let outcome = self.engine.load(&mut |txn| {
            for &(table, key, value) in batch {
                if !txn.insert(table, &bytes[key.0..key.1], &bytes[value.0..value.1])? {
                    return Err(Failure::fatal("the tables are not empty; load into a new directory").into());
                }
            }
            Ok(())
        })?;
        match outcome {
            Outcome::Committed => {}
            Outcome::RolledBack => return Err(Failure::fatal("a loading transaction was rolled back")),
            Outcome::GaveUp(failure) => return Err(failure),
        }
        self.rows.fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.batch.clear();
        self.bytes.clear();
        Ok(())
    }
}

/// Checks a workload. What cannot be checked to the end, because rows are lost or are others, is a check that does not
/// hold.
pub(crate) fn check(
    workload: &dyn Workload,
    engine: &dyn Engine,
    commits: Option<&[u64]>,
) -> Result<Vec<Check>, Failure> {
    match workload.check(engine, commits) {
        Err(failure) if failure.is_inconsistent() => {
            let mut rows = Check::new("rows: all can be read as what they were written as");
            rows.expect(false, || failure.to_string());
            Ok(vec![rows])
        }
        checked => checked,
    }
}

/// What [`visit_all`] calls for each record: key, value.
pub type VisitRow<'v> = dyn FnMut(&[u8], &[u8]) -> Result<(), Failure> + 'v;

/// Visits every record whose key starts with `prefix`, in transactions of [`ROWS_PER_BATCH`] records: for checks while
/// nothing else runs, which must not meet the engine's limit of locks.
pub fn visit_all(
    engine: &dyn Engine,
    table: TableIndex,
    prefix: &[u8],
    visit: &mut VisitRow<'_>,
) -> Result<(), Failure> {
    let mut last: Option<Vec<u8>> = None;
    let mut records: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(ROWS_PER_BATCH);
    loop {
        let outcome = engine.read(&mut Attempts::default(), &mut |txn| {
            records.clear();
            let low = last.as_deref().map_or(Bound::Included(prefix), Bound::Excluded);
            txn.scan(table, (low, Bound::Unbounded), Order::Ascending, &mut |key, value| {
                if !key.starts_with(prefix) {
                    return ControlFlow::Break(());
                }
                records.push((key.to_vec(), value.to_vec()));
                if records.len() == ROWS_PER_BATCH {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })?;
            Ok(())
        })?;
        match outcome {
            Outcome::Committed => {}
            Outcome::RolledBack => return Err(Failure::fatal("a checking transaction was rolled back")),
            Outcome::GaveUp(failure) => return Err(failure),
        }
        for (key, value) in &records {
            visit(key, value)?;
        }
        if records.len() < ROWS_PER_BATCH {
            return Ok(());
        }
        last = records.pop().map(|(key, _)| key);
    }
}
