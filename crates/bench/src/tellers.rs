//! Tellers in order (Kimura et al., ADMS 2012, Figure 6; after the experiment without true deadlocks of Koskinen and
//! Herlihy): a transaction updates a few tellers of TPC-B, always in the order of their keys. Nobody can wait for
//! anybody in a cycle, so whoever has to give way does so for nothing.

mod ranges;

use std::collections::BTreeMap;

use crate::{
    BenchError,
    engine::{Engine, EngineTxn, Failure, Stop, TableIndex},
    random::Random,
    row::{Field, KeyBytes, TableSpec, begin_row},
    workload::{Check, Loader, Worker, Workload, visit_all},
};

const BALANCE: Field<i64> = Field::at(0);
const ROW_BYTES: usize = 100;
const TELLER: TableSpec = TableSpec { index: TableIndex(0), name: "teller", fixed: ROW_BYTES };

pub use ranges::TellerRanges;

/// The workload.
#[derive(Clone, Debug)]
pub struct Tellers {
    tellers: u32,
    updates: u32,
}

fn key(teller: u32) -> KeyBytes {
    KeyBytes::new().u32(teller)
}

/// Loads tellers with these keys.
fn load(tellers: impl IntoIterator<Item = u32>, loader: &mut Loader<'_>) -> Result<(), Failure> {
    let mut row = Vec::new();
    begin_row(&mut row, ROW_BYTES);
    for teller in tellers {
        loader.row(TELLER.index, &key(teller), &row)?;
    }
    loader.flush()
}

/// Counts an update of a teller, in its balance.
fn update(txn: &mut dyn EngineTxn, teller: u32, row: &mut Vec<u8>) -> Result<(), Failure> {
    let key = key(teller);
    TELLER.read_for_update(txn, &key, row)?;
    let balance = BALANCE.get(row);
    BALANCE.set(row, balance.wrapping_add(1));
    txn.put(TELLER.index, &key, row)
}

/// Whether so many tellers are there and, if somebody has counted, so many updates.
fn check(engine: &dyn Engine, tellers: u32, updates: Option<u64>) -> Result<Vec<Check>, Failure> {
    let (mut rows, mut balances) = (0, 0_i64);
    visit_all(engine, TELLER.index, b"", &mut |key, row| {
        TELLER.check(key, row)?;
        rows += 1;
        balances = balances.wrapping_add(BALANCE.get(row));
        Ok(())
    })?;
    let mut there = Check::new("tellers: as many as were loaded");
    there.expect(rows == tellers, || format!("{rows} instead of {tellers}"));
    let mut checks = vec![there];
    if let Some(updates) = updates {
        let mut sum = Check::new("tellers: sum of balances = updates that were committed");
        let all = || "all tellers".to_owned();
        sum.expect_equal(&all, ("balances", balances), ("updates", updates as i64));
        checks.push(sum);
    }
    Ok(checks)
}

impl Tellers {
    /// Transactions of `updates` updates, 1 to 100, of different ones of so many tellers.
    pub fn new(tellers: u32, updates: u32) -> Result<Tellers, BenchError> {
        if !(1..=100).contains(&updates) {
            return Err(BenchError::invalid(format!("updates must be in 1..=100, got {updates}")));
        }
        if !(updates..=1_000_000).contains(&tellers) {
            return Err(BenchError::invalid(format!(
                "tellers must be in {updates}..=1000000, got {tellers}"
            )));
        }
        Ok(Tellers { tellers, updates })
    }
}

impl Workload for Tellers {
    fn name(&self) -> &'static str {
        "tellers"
    }

    fn tables(&self) -> Vec<String> {
        vec![TELLER.name.to_owned()]
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["tellers"]
    }

    fn options(&self) -> BTreeMap<String, serde_json::Value> {
        BTreeMap::from([
            ("tellers".to_owned(), self.tellers.into()),
            ("updates".to_owned(), self.updates.into()),
        ])
    }

    fn load_parts(&self) -> u64 {
        1
    }

    fn load_rows(&self) -> u64 {
        self.tellers.into()
    }

    fn load_part(&self, _part: u64, _seed: u64, loader: &mut Loader<'_>) -> Result<(), Failure> {
        load(0..self.tellers, loader)
    }

    fn worker(&self, thread: usize, _threads: usize, seed: u64) -> Box<dyn Worker> {
        Box::new(TellersWorker {
            workload: self.clone(),
            random: Random::new(seed, (2 << 32) | thread as u64),
            chosen: Vec::new(),
            row: Vec::new(),
        })
    }

    fn check(&self, engine: &dyn Engine, commits: Option<&[u64]>) -> Result<Vec<Check>, Failure> {
        let updates = commits.map(|commits| commits.iter().sum::<u64>() * u64::from(self.updates));
        check(engine, self.tellers, updates)
    }
}

struct TellersWorker {
    workload: Tellers,
    random: Random,
    /// Ascending.
    chosen: Vec<u32>,
    row: Vec<u8>,
}

impl Worker for TellersWorker {
    fn next(&mut self) -> usize {
        self.chosen.clear();
        while self.chosen.len() < self.workload.updates as usize {
            let teller = self.random.below(u64::from(self.workload.tellers)) as u32;
            if let Err(place) = self.chosen.binary_search(&teller) {
                self.chosen.insert(place, teller);
            }
        }
        0
    }

    fn run(&mut self, txn: &mut dyn EngineTxn) -> Result<(), Stop> {
        for &teller in &self.chosen {
            update(txn, teller, &mut self.row)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{engine::Attempts, engines::BTreeMapEngine, observer::Silent, runner::load};

    /// A lost update and a lost teller are noticed.
    pub(super) fn losses_are_caught(workload: &impl Workload) {
        let engine = BTreeMapEngine::new(1);
        load(&engine, workload, 1, 1, &Silent).unwrap();
        let mut worker = workload.worker(0, 1, 1);
        for _ in 0..100 {
            worker.next();
            engine.transact(&mut Attempts::default(), &mut |txn| worker.run(txn)).unwrap();
        }
        let holds = |commits| -> Vec<bool> {
            workload.check(&engine, Some(&[commits])).unwrap().iter().map(|check| check.holds).collect()
        };
        assert_eq!((holds(100), holds(101)), (vec![true, true], vec![true, false]));
        let mut delete = |txn: &mut dyn EngineTxn| Ok(TELLER.delete(txn, &key(4))?);
        engine.transact(&mut Attempts::default(), &mut delete).unwrap();
        assert!(!holds(100)[0]);
    }

    #[test]
    fn the_sum_agrees_and_what_is_lost_is_caught() {
        losses_are_caught(&Tellers::new(20, 5).unwrap());
    }

    #[test]
    fn senseless_shapes_are_refused() {
        assert!(Tellers::new(5, 5).is_ok());
        for (tellers, updates) in [(4, 5), (5, 0), (1000, 101), (1_000_001, 5)] {
            assert!(Tellers::new(tellers, updates).is_err(), "{tellers} {updates}");
        }
    }
}
