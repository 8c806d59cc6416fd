//! Ranges of tellers (Kimura et al., ADMS 2012, Figure 3): a transaction searches four ranges of TPC-B's small table of
//! tellers and updates one of them. Some ranges begin and end at keys that exist, the others between keys: there the
//! modes of key-range locks differ in what they lock beside the gap.
//!
//! Keys are even numbers, so that there is a key that does not exist on either side of each.

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow},
};

use super::{TELLER, check, key, load, update};
use crate::{
    BenchError,
    engine::{Engine, EngineTxn, Failure, Order, Stop},
    random::Random,
    workload::{Check, Loader, Worker, Workload},
};

/// Ranges that a transaction searches.
const RANGES: usize = 4;
/// Tellers in a range, at most.
const LONGEST: u64 = 4;

/// The workload.
#[derive(Clone, Debug)]
pub struct TellerRanges {
    tellers: u32,
    existing: u32,
}

impl TellerRanges {
    /// So many tellers, at least 10; `existing` percent of the ranges begin and end at keys that exist.
    pub fn new(tellers: u32, existing: u32) -> Result<TellerRanges, BenchError> {
        if !(10..=1_000_000).contains(&tellers) {
            return Err(BenchError::invalid(format!("tellers must be in 10..=1000000, got {tellers}")));
        }
        if existing > 100 {
            return Err(BenchError::invalid(format!("existing must be in 0..=100 percent, got {existing}")));
        }
        Ok(TellerRanges { tellers, existing })
    }
}

impl Workload for TellerRanges {
    fn name(&self) -> &'static str {
        "teller_ranges"
    }

    fn tables(&self) -> Vec<String> {
        vec![TELLER.name.to_owned()]
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["teller_ranges"]
    }

    fn options(&self) -> BTreeMap<String, serde_json::Value> {
        BTreeMap::from([
            ("tellers".to_owned(), self.tellers.into()),
            ("existing_percent".to_owned(), self.existing.into()),
        ])
    }

    fn load_parts(&self) -> u64 {
        1
    }

    fn load_rows(&self) -> u64 {
        self.tellers.into()
    }

    fn load_part(&self, _part: u64, _seed: u64, loader: &mut Loader<'_>) -> Result<(), Failure> {
        load((0..self.tellers).map(|teller| teller * 2), loader)
    }

    fn worker(&self, thread: usize, _threads: usize, seed: u64) -> Box<dyn Worker> {
        Box::new(TellerRangesWorker {
            workload: self.clone(),
            random: Random::new(seed, (2 << 32) | thread as u64),
            ranges: [(0, 0); RANGES],
            updated: 0,
            row: Vec::new(),
        })
    }

    fn check(&self, engine: &dyn Engine, commits: Option<&[u64]>) -> Result<Vec<Check>, Failure> {
        check(engine, self.tellers, commits.map(|commits| commits.iter().sum()))
    }
}

struct TellerRangesWorker {
    workload: TellerRanges,
    random: Random,
    /// First and last key, both included; odd ones do not exist.
    ranges: [(u32, u32); RANGES],
    updated: u32,
    row: Vec<u8>,
}

impl Worker for TellerRangesWorker {
    fn next(&mut self) -> usize {
        let TellerRanges { tellers, existing } = self.workload;
        for range in &mut self.ranges {
            let length = 1 + self.random.below(LONGEST) as u32;
            let first = self.random.below(u64::from(tellers - length)) as u32;
            let last = first + length - 1;
            // As many tellers either way; between keys they are the next ones, of which there is one more.
            *range = match self.random.percent(existing) {
                true => (first * 2, last * 2),
                false => (first * 2 + 1, last * 2 + 3),
            };
        }
        self.updated = self.random.below(u64::from(tellers)) as u32 * 2;
        0
    }

    fn run(&mut self, txn: &mut dyn EngineTxn) -> Result<(), Stop> {
        for &(first, last) in &self.ranges {
            let (first, last) = (key(first), key(last));
            let range = (Bound::Included(&*first), Bound::Included(&*last));
            txn.scan(TELLER.index, range, Order::Ascending, &mut |_, _| ControlFlow::Continue(()))?;
        }
        Ok(update(txn, self.updated, &mut self.row)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tellers::tests::losses_are_caught;

    fn worker(tellers: u32, existing: u32) -> TellerRangesWorker {
        TellerRangesWorker {
            workload: TellerRanges::new(tellers, existing).unwrap(),
            random: Random::new(1, 1),
            ranges: [(0, 0); RANGES],
            updated: 0,
            row: Vec::new(),
        }
    }

    #[test]
    fn the_sum_agrees_and_what_is_lost_is_caught() {
        for existing in [0, 50, 100] {
            losses_are_caught(&TellerRanges::new(20, existing).unwrap());
        }
    }

    #[test]
    fn ranges_begin_at_keys_or_between_them() {
        for (existing, odd) in [(0, 1), (100, 0)] {
            let mut worker = worker(10, existing);
            for _ in 0..200 {
                worker.next();
                for (first, last) in worker.ranges {
                    assert!(first <= last && last < 20, "{first} {last}");
                    assert_eq!((first % 2, last % 2), (odd, odd));
                }
                assert!(worker.updated < 20 && worker.updated.is_multiple_of(2));
            }
        }
    }

    /// Whoever compares shares of existing keys compares nothing else.
    #[test]
    fn ranges_at_keys_hold_as_many_tellers_as_those_between_them() {
        let visited = |existing| {
            let mut worker = worker(100, existing);
            let tellers = |(first, last): (u32, u32)| u64::from(last / 2 + 1 - first.div_ceil(2));
            (0..5000)
                .map(|_| {
                    worker.next();
                    assert!(worker.ranges.iter().all(|range| (1..=LONGEST).contains(&tellers(*range))));
                    worker.ranges.iter().copied().map(tellers).sum::<u64>()
                })
                .sum::<u64>()
        };
        let (at_keys, between) = (visited(100), visited(0));
        assert!(at_keys.abs_diff(between) * 100 <= at_keys, "{at_keys} at keys, {between} between them");
    }

    #[test]
    fn senseless_shapes_are_refused() {
        for (tellers, existing) in [(9, 5), (1_000_001, 5), (10, 101)] {
            assert!(TellerRanges::new(tellers, existing).is_err(), "{tellers} {existing}");
        }
    }
}
