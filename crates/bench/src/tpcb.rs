//! TPC-B, revision 2.0: one update each of an account, its teller and its branch, and a row of history. The original
//! transaction profile; the cardinalities per branch are 10 tellers and, unless scaled down, 100,000 accounts.

use std::collections::BTreeMap;

use foreshore_env::sync::Arc;

use crate::{
    BenchError,
    engine::{Engine, EngineTxn, Failure, Foresee, Stop},
    random::{Random, ZipfRanks, mix},
    row::{Field, KeyBytes, TableSpec, begin_row, key_u32, strange_key},
    workload::{Check, Loader, Worker, Workload, visit_all},
};

/// Tellers of a branch.
const TELLERS: u32 = 10;
/// The specified number of accounts of a branch.
pub const ACCOUNTS: u32 = 100_000;

/// Rows of branches, tellers and accounts: balance and branch, filled to the 100 bytes of the specification.
const BALANCE: Field<i64> = Field::at(0);
const OWNER: Field<u32> = Field::at(BALANCE.end());
const ROW_BYTES: usize = 100;

/// Rows of the history: 50 bytes.
const DELTA: Field<i64> = Field::at(0);
const ACCOUNT_ID: Field<u32> = Field::at(DELTA.end());
const TELLER_ID: Field<u32> = Field::at(ACCOUNT_ID.end());
const BRANCH_ID: Field<u32> = Field::at(TELLER_ID.end());
const TIME: Field<u64> = Field::at(BRANCH_ID.end());
/// [`Input::reads`], in what is filling by the specification.
const READS: Field<u8> = Field::at(TIME.end());
const HISTORY_BYTES: usize = 50;

const fn table(index: u16, name: &'static str, fixed: usize) -> TableSpec {
    TableSpec { index: crate::engine::TableIndex(index), name, fixed }
}

const BRANCH: TableSpec = table(0, "branch", ROW_BYTES);
const TELLER: TableSpec = table(1, "teller", ROW_BYTES);
const ACCOUNT: TableSpec = table(2, "account", ROW_BYTES);
const HISTORY: TableSpec = table(3, "history", HISTORY_BYTES);

/// Accounts in one part of the load.
const ACCOUNTS_PER_PART: u32 = 50_000;
/// Runs with one seed over one database before history keys run out.
const WRITERS_TRIED: u32 = 10_000;

/// The workload.
#[derive(Clone, Debug)]
pub struct Tpcb {
    branches: u32,
    accounts: u32,
    /// Percent of the updates turned into reads (Kimura et al., figure 8).
    read_percent: u32,
    /// How much more often some tellers and accounts are drawn than others (Kimura et al., figure 9).
    skew: Option<Arc<Skew>>,
}

/// Popular and unpopular rows.
#[derive(Clone, Debug)]
struct Skew {
    exponent: f64,
    tellers: ZipfRanks,
    accounts: ZipfRanks,
}

impl Tpcb {
    /// The workload with this many branches and accounts in each; `read_percent` of the updates only read.
    pub fn new(branches: u32, accounts: u32, read_percent: u32) -> Result<Tpcb, BenchError> {
        if !(1..=10_000).contains(&branches) {
            return Err(BenchError::invalid(format!("branches must be in 1..=10000, got {branches}")));
        }
        if !(1..=ACCOUNTS).contains(&accounts) {
            return Err(BenchError::invalid(format!(
                "accounts of a branch must be in 1..={ACCOUNTS}, got {accounts}"
            )));
        }
        if read_percent > 100 {
            return Err(BenchError::invalid(format!("read_percent must be in 0..=100, got {read_percent}")));
        }
        Ok(Tpcb { branches, accounts, read_percent, skew: None })
    }

    /// The same with tellers, and accounts within a branch, chosen by Zipf's law with this exponent, 0 to 2; the
    /// specification has them all alike. The popular tellers belong to different branches.
    pub fn with_zipf(mut self, exponent: f64) -> Result<Tpcb, BenchError> {
        if !(0.0..=2.0).contains(&exponent) {
            return Err(BenchError::invalid(format!("zipf must be in 0..=2, got {exponent:?}")));
        }
        self.skew = Some(Arc::new(Skew {
            exponent,
            tellers: ZipfRanks::new(self.branches * TELLERS, exponent),
            accounts: ZipfRanks::new(self.accounts, exponent),
        }));
        Ok(self)
    }

    fn draw_teller(&self, random: &mut Random) -> u32 {
        let tellers = self.branches * TELLERS;
        match &self.skew {
            None => random.below(u64::from(tellers)) as u32,
            // Neighbouring ranks in neighbouring branches.
            Some(skew) => {
                let rank = skew.tellers.draw(random);
                rank % self.branches * TELLERS + rank / self.branches
            }
        }
    }

    fn draw_account(&self, random: &mut Random) -> u32 {
        match &self.skew {
            None => random.below(u64::from(self.accounts)) as u32,
            Some(skew) => skew.accounts.draw(random),
        }
    }

    fn parts_per_branch(&self) -> u32 {
        self.accounts.div_ceil(ACCOUNTS_PER_PART)
    }

    fn total_accounts(&self) -> u32 {
        self.branches * self.accounts
    }
}

fn key(id: u32) -> KeyBytes {
    KeyBytes::new().u32(id)
}

impl Workload for Tpcb {
    fn name(&self) -> &'static str {
        "tpcb"
    }

    fn tables(&self) -> Vec<String> {
        [BRANCH, TELLER, ACCOUNT, HISTORY].iter().map(|table| table.name.to_owned()).collect()
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["tpcb"]
    }

    fn options(&self) -> BTreeMap<String, serde_json::Value> {
        let mut options = BTreeMap::from([
            ("branches".to_owned(), self.branches.into()),
            ("accounts_per_branch".to_owned(), self.accounts.into()),
            ("read_percent".to_owned(), self.read_percent.into()),
        ]);
        if let Some(skew) = &self.skew {
            options.insert("zipf".to_owned(), skew.exponent.into());
        }
        options
    }

    fn load_parts(&self) -> u64 {
        1 + u64::from(self.branches) * u64::from(self.parts_per_branch())
    }

    fn load_rows(&self) -> u64 {
        u64::from(self.branches) * (1 + u64::from(TELLERS) + u64::from(self.accounts))
    }

    fn load_part(&self, part: u64, _seed: u64, loader: &mut Loader<'_>) -> Result<(), Failure> {
        let mut row = Vec::new();
        begin_row(&mut row, ROW_BYTES);
        match part.checked_sub(1) {
            None => {
                for branch in 0..self.branches {
                    OWNER.set(&mut row, branch);
                    loader.row(BRANCH.index, &key(branch), &row)?;
                }
                for teller in 0..self.branches * TELLERS {
                    OWNER.set(&mut row, teller / TELLERS);
                    loader.row(TELLER.index, &key(teller), &row)?;
                }
            }
            Some(rest) => {
                let branch = (rest / u64::from(self.parts_per_branch())) as u32;
                let first = (rest % u64::from(self.parts_per_branch())) as u32 * ACCOUNTS_PER_PART;
                OWNER.set(&mut row, branch);
                for account in first..self.accounts.min(first + ACCOUNTS_PER_PART) {
                    loader.row(ACCOUNT.index, &key(branch * self.accounts + account), &row)?;
                }
            }
        }
        loader.flush()
    }

    fn worker(&self, thread: usize, _threads: usize, seed: u64) -> Box<dyn Worker> {
        let mut random = Random::new(seed, (2 << 32) | thread as u64);
        let writer = random.bits();
        Box::new(TpcbWorker {
            workload: self.clone(),
            random,
            writer,
            sequence: 0,
            input: Input::default(),
            row: Vec::new(),
        })
    }

    fn check(&self, engine: &dyn Engine, commits: Option<&[u64]>) -> Result<Vec<Check>, Failure> {
        let branches = self.balances(engine, &BRANCH, self.branches, 1)?;
        let tellers = self.balances(engine, &TELLER, self.branches * TELLERS, TELLERS)?;
        let accounts = self.balances(engine, &ACCOUNT, self.total_accounts(), self.accounts)?;

        let mut of_branch = vec![0_i64; self.branches as usize];
        let mut of_teller = vec![0_i64; self.branches as usize];
        let mut of_account = vec![0_i64; self.branches as usize];
        let mut rows = 0_u64;
        visit_all(engine, HISTORY.index, b"", &mut |key, row| {
            HISTORY.check(key, row)?;
            rows += 1;
            let places = [
                (&mut of_account, ACCOUNT_ID.get(row) / self.accounts),
                (&mut of_teller, TELLER_ID.get(row) / TELLERS),
                (&mut of_branch, BRANCH_ID.get(row)),
            ];
            for (number, (sums, place)) in places.into_iter().enumerate() {
                let sum = sums.get_mut(place as usize).ok_or_else(|| strange_key(&HISTORY, key))?;
                if only_reads(READS.get(row), number) {
                    continue;
                }
                *sum = sum.wrapping_add(DELTA.get(row));
            }
            Ok(())
        })?;

        let compare = |name: &str, balances: &[i64], history: &[i64]| {
            let mut check = Check::new(name);
            for (number, (&balance, &sum)) in balances.iter().zip(history).enumerate() {
                let place = || format!("branch {number}");
                check.expect_equal(&place, ("balance", balance), ("sum of history", sum));
            }
            check
        };
        let mut checks = vec![
            compare("branches: balance = sum of the history's deltas", &branches, &of_branch),
            compare("tellers: sum of balances = sum of the history's deltas", &tellers, &of_teller),
            compare("accounts: sum of balances = sum of the history's deltas", &accounts, &of_account),
        ];
        if let Some(&[commits]) = commits {
            let mut check = Check::new("history: one row for each commit");
            check.expect(rows == commits, || format!("{rows} rows, {commits} commits"));
            checks.push(check);
        }
        Ok(checks)
    }
}

impl Tpcb {
    /// The sum of a table's balances by branch; every row must be there.
    fn balances(
        &self,
        engine: &dyn Engine,
        table: &TableSpec,
        rows: u32,
        rows_per_branch: u32,
    ) -> Result<Vec<i64>, Failure> {
        let mut sums = vec![0_i64; self.branches as usize];
        let mut expected = 0;
        visit_all(engine, table.index, b"", &mut |key, row| {
            table.check(key, row)?;
            if key_u32(key, 0) != Some(expected) || key.len() != 4 || expected >= rows {
                return Err(strange_key(table, key));
            }
            let sum = &mut sums[(expected / rows_per_branch) as usize];
            *sum = sum.wrapping_add(BALANCE.get(row));
            expected += 1;
            Ok(())
        })?;
        if expected == rows {
            return Ok(sums);
        }
        Err(Failure::inconsistent(format!("{} has {expected} rows instead of {rows}", table.name)))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Input {
    branch: u32,
    teller: u32,
    account: u32,
    delta: i64,
    /// Bit n: the n-th of the three updates only reads.
    reads: u8,
}

/// Whether the `number`-th update of a transaction only reads: account, teller, branch.
fn only_reads(reads: u8, number: usize) -> bool {
    reads >> number & 1 != 0
}

struct TpcbWorker {
    workload: Tpcb,
    random: Random,
    /// Keeps this worker's history keys apart from those of all others.
    writer: u64,
    sequence: u64,
    input: Input,
    row: Vec<u8>,
}

impl Worker for TpcbWorker {
    fn next(&mut self) -> usize {
        let Tpcb { branches, accounts, read_percent, .. } = self.workload;
        let random = &mut self.random;
        let teller = self.workload.draw_teller(random);
        let branch = teller / TELLERS;
        // 85 in a hundred accounts belong to the teller's branch, the others to another (5.3.5).
        let of = if branches == 1 || random.percent(85) {
            branch
        } else {
            let drawn = random.below(u64::from(branches - 1)) as u32;
            drawn + u32::from(drawn >= branch)
        };
        let account = of * accounts + self.workload.draw_account(random);
        let delta = i64::from(random.between(0, 1_999_998)) - 999_999;
        let mut reads = 0;
        if read_percent > 0 {
            for bit in 0..3 {
                reads |= u8::from(random.percent(read_percent)) << bit;
            }
        }
        self.input = Input { branch, teller, account, delta, reads };
        self.sequence += 1;
        0
    }

    fn foresee(&self, touch: &mut Foresee<'_>) -> bool {
        let Input { branch, teller, account, reads, .. } = self.input;
        for (number, (table, id)) in
            [(ACCOUNT, account), (TELLER, teller), (BRANCH, branch)].iter().enumerate()
        {
            touch(table.index, &key(*id), !only_reads(reads, number));
        }
        true
    }

    fn run(&mut self, txn: &mut dyn EngineTxn) -> Result<(), Stop> {
        let Input { branch, teller, account, delta, reads } = self.input;
        // In this order everywhere, smallest table last, so that the hot rows are held briefly and nobody deadlocks.
        let updates = [(ACCOUNT, account), (TELLER, teller), (BRANCH, branch)];
        for (number, (table, id)) in updates.into_iter().enumerate() {
            let key = key(id);
            if only_reads(reads, number) {
                table.read(txn, &key, &mut self.row)?;
                continue;
            }
            table.read_for_update(txn, &key, &mut self.row)?;
            let balance = BALANCE.get(&self.row);
            BALANCE.set(&mut self.row, balance.wrapping_add(delta));
            txn.put(table.index, &key, &self.row)?;
        }
        let row = &mut self.row;
        begin_row(row, HISTORY_BYTES);
        DELTA.set(row, delta);
        ACCOUNT_ID.set(row, account);
        TELLER_ID.set(row, teller);
        BRANCH_ID.set(row, branch);
        TIME.set(row, self.sequence);
        READS.set(row, reads);
        // A writer that runs again with the seed of an earlier run would meet that run's rows.
        let mut writer = self.writer;
        for _ in 0..WRITERS_TRIED {
            if txn.insert(HISTORY.index, &KeyBytes::new().u64(writer).u64(self.sequence), row)? {
                return Ok(());
            }
            writer = mix(writer.wrapping_add(1));
        }
        Err(Failure::fatal("the history has no free key; choose another --seed").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{engine::Attempts, engines::BTreeMapEngine, observer::Silent, runner::load, workload::check};

    fn loaded(tpcb: &Tpcb) -> BTreeMapEngine {
        let engine = BTreeMapEngine::new(4);
        load(&engine, tpcb, 2, 1, &Silent).unwrap();
        engine
    }

    /// Adds to the balance of a row.
    fn change(engine: &BTreeMapEngine, table: TableSpec, id: u32, by: i64) {
        let mut row = Vec::new();
        engine
            .transact(&mut Attempts::default(), &mut |txn| {
                table.read_for_update(txn, &key(id), &mut row)?;
                let balance = BALANCE.get(&row);
                BALANCE.set(&mut row, balance + by);
                Ok(txn.put(table.index, &key(id), &row)?)
            })
            .unwrap();
    }

    #[test]
    fn sums_agree_after_a_run_and_a_planted_error_is_caught() {
        for read_percent in [0, 50, 100] {
            let tpcb = Tpcb::new(3, 200, read_percent).unwrap();
            let engine = loaded(&tpcb);
            let mut worker = tpcb.worker(0, 1, 1);
            for _ in 0..500 {
                worker.next();
                engine.transact(&mut Attempts::default(), &mut |txn| worker.run(txn)).unwrap();
            }
            let checks = tpcb.check(&engine, Some(&[500])).unwrap();
            assert_eq!(checks.len(), 4);
            assert!(checks.iter().all(|check| check.holds && check.examined > 0), "{checks:?}");
            let checks = tpcb.check(&engine, Some(&[501])).unwrap();
            assert!(!checks[3].holds, "a lost commit must be seen");

            for (table, id, failing) in [(BRANCH, 1, 0), (TELLER, 7, 1), (ACCOUNT, 599, 2)] {
                change(&engine, table, id, 1);
                let checks = tpcb.check(&engine, Some(&[500])).unwrap();
                let failed: Vec<usize> = (0..4).filter(|&number| !checks[number].holds).collect();
                assert_eq!(failed, [failing], "{checks:?}");
                change(&engine, table, id, -1);
            }
        }
    }

    #[test]
    fn a_lost_account_is_a_check_that_does_not_hold() {
        let tpcb = Tpcb::new(1, 50, 0).unwrap();
        let engine = loaded(&tpcb);
        let mut delete = |txn: &mut dyn EngineTxn| Ok(ACCOUNT.delete(txn, &key(7))?);
        engine.transact(&mut Attempts::default(), &mut delete).unwrap();
        let checks = check(&tpcb, &engine, Some(&[0])).unwrap();
        assert!(checks.iter().any(|check| !check.holds), "{checks:?}");
        // Who needs it while the workload runs says so, too.
        let mut read = |txn: &mut dyn EngineTxn| Ok(ACCOUNT.read(txn, &key(7), &mut Vec::new())?);
        let failure = engine.transact(&mut Attempts::default(), &mut read).unwrap_err();
        assert!(failure.is_inconsistent() && !Failure::fatal("the disk is gone").is_inconsistent());
    }

    #[test]
    fn a_second_run_with_the_same_seed_finds_free_history_keys() {
        let tpcb = Tpcb::new(1, 50, 0).unwrap();
        let engine = loaded(&tpcb);
        for _ in 0..3 {
            let mut worker = tpcb.worker(0, 1, 1);
            for _ in 0..10 {
                worker.next();
                engine.transact(&mut Attempts::default(), &mut |txn| worker.run(txn)).unwrap();
            }
        }
        assert!(tpcb.check(&engine, Some(&[30])).unwrap().iter().all(|check| check.holds));
    }
}
