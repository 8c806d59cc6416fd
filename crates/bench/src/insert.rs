//! Record insertion (Shore-MT, figure 4): every thread appends records to a table of its own and commits after each
//! thousand. No two transactions ever want the same record, so what keeps threads from scaling is the engine.

use std::{collections::BTreeMap, ops::Range};

use crate::{
    BenchError,
    engine::{Engine, EngineTxn, Failure, Stop, TableIndex},
    random::{Random, mix},
    row::{KeyBytes, TableSpec},
    workload::{Check, Loader, Worker, Workload, visit_all},
};

/// Runs over one database before a thread finds no free range of keys.
const RUNS_TRIED: u32 = 10_000;

/// The workload.
#[derive(Clone, Debug)]
pub struct Insert {
    threads: usize,
    commit_every: u32,
    value_bytes: u32,
    together: bool,
}

impl Insert {
    /// One table for each of `threads` threads; a transaction inserts `commit_every` records of `value_bytes` bytes,
    /// one after the other.
    pub fn new(threads: usize, commit_every: u32, value_bytes: u32) -> Result<Insert, BenchError> {
        if !(1..=1024).contains(&threads) {
            return Err(BenchError::invalid(format!("threads must be in 1..=1024, got {threads}")));
        }
        if !(1..=10_000).contains(&commit_every) {
            return Err(BenchError::invalid(format!(
                "commit_every must be in 1..=10000, got {commit_every}"
            )));
        }
        if value_bytes > 65_536 {
            return Err(BenchError::invalid(format!("value_bytes must be at most 65536, got {value_bytes}")));
        }
        Ok(Insert { threads, commit_every, value_bytes, together: false })
    }

    /// The records of a transaction are given to the engine with one call, if they are `together`.
    #[must_use]
    pub fn together(self, together: bool) -> Insert {
        Insert { together, ..self }
    }
}

impl Workload for Insert {
    fn name(&self) -> &'static str {
        "insert"
    }

    fn tables(&self) -> Vec<String> {
        (0..self.threads).map(|thread| format!("private_{thread}")).collect()
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["insert"]
    }

    fn options(&self) -> BTreeMap<String, serde_json::Value> {
        BTreeMap::from([
            ("commit_every".to_owned(), self.commit_every.into()),
            ("value_bytes".to_owned(), self.value_bytes.into()),
            ("together".to_owned(), self.together.into()),
        ])
    }

    fn load_parts(&self) -> u64 {
        0
    }

    fn load_rows(&self) -> u64 {
        0
    }

    fn load_part(&self, _part: u64, _seed: u64, _loader: &mut Loader<'_>) -> Result<(), Failure> {
        Ok(())
    }

    fn worker(&self, thread: usize, _threads: usize, seed: u64) -> Box<dyn Worker> {
        let mut random = Random::new(seed, (2 << 32) | thread as u64);
        let mut value = Vec::new();
        random.letters(self.value_bytes, self.value_bytes, &mut value);
        Box::new(InsertWorker {
            commit_every: u64::from(self.commit_every),
            table: TableIndex((thread % self.threads) as u16),
            run: random.bits(),
            first: 0,
            together: self.together,
            keys: Vec::new(),
            value,
        })
    }

    fn check(&self, engine: &dyn Engine, commits: Option<&[u64]>) -> Result<Vec<Check>, Failure> {
        let mut content = Check::new("records: every one as it was inserted");
        let mut whole = Check::new("transactions: each table has a multiple of the records of one");
        let mut rows = 0_u64;
        for (number, name) in self.tables().into_iter().enumerate() {
            let table = TableSpec { index: TableIndex(number as u16), name: "private table", fixed: 0 };
            let mut here = 0_u64;
            visit_all(engine, table.index, b"", &mut |key, value| {
                here += 1;
                content.expect(self.is_own(key, value), || {
                    format!("{name}: key {} with {} bytes", key.escape_ascii(), value.len())
                });
                Ok(())
            })?;
            whole.expect(here.is_multiple_of(u64::from(self.commit_every)), || {
                format!("{name}: {here} records, committed in groups of {}", self.commit_every)
            });
            rows += here;
        }
        let mut checks = vec![content, whole];
        if let Some(&[commits]) = commits {
            let mut count = Check::new("records: as many as were committed");
            let expected = commits * u64::from(self.commit_every);
            count.expect(rows == expected, || format!("{rows} records, {expected} committed"));
            checks.push(count);
        }
        Ok(checks)
    }
}

impl Insert {
    /// Whether a value is that of its key: so long, and with the number of the record, or of the first one that was
    /// given with it.
    fn is_own(&self, key: &[u8], value: &[u8]) -> bool {
        let Some((_, number)) = key.split_last_chunk() else { return false };
        let number = u64::from_be_bytes(*number);
        let first = number - number % u64::from(self.commit_every);
        key.len() == 16
            && value.len() == self.value_bytes as usize
            && value.first_chunk().is_none_or(|head| [number, first].contains(&u64::from_le_bytes(*head)))
    }
}

/// Makes a value that of a record, if it has room for its number.
#[inline]
fn number(value: &mut [u8], record: u64) {
    if let Some(head) = value.first_chunk_mut() {
        *head = record.to_le_bytes();
    }
}

struct InsertWorker {
    commit_every: u64,
    table: TableIndex,
    /// Keeps the keys of different runs over one database apart.
    run: u64,
    /// The number of the first record of the transaction that was drawn last.
    first: u64,
    together: bool,
    /// Of the records that are given together.
    keys: Vec<KeyBytes>,
    value: Vec<u8>,
}

impl Worker for InsertWorker {
    fn next(&mut self) -> usize {
        self.first += self.commit_every;
        0
    }

    fn run(&mut self, txn: &mut dyn EngineTxn) -> Result<(), Stop> {
        let numbers = self.first..self.first + self.commit_every;
        if self.together {
            return self.append(txn, numbers);
        }
        for number in numbers {
            self::number(&mut self.value, number);
            if txn.insert(self.table, &KeyBytes::new().u64(self.run).u64(number), &self.value)? {
                continue;
            }
            // An earlier run had this seed. Only a transaction's first record can meet one of its records, because
            // both number them in the same steps.
            self.find_free_run(txn, number)?;
        }
        Ok(())
    }
}

impl InsertWorker {
    fn append(&mut self, txn: &mut dyn EngineTxn, numbers: Range<u64>) -> Result<(), Stop> {
        number(&mut self.value, numbers.start);
        for _ in 0..RUNS_TRIED {
            self.keys.clear();
            self.keys.extend(numbers.clone().map(|number| KeyBytes::new().u64(self.run).u64(number)));
            if txn.append(self.table, &self.keys, &self.value)? {
                return Ok(());
            }
            // There are records of an earlier run, or of another worker: nearer to the last key that can be.
            self.run += (u64::MAX - self.run).div_ceil(1024);
        }
        Err(Failure::fatal("the private table has no room behind its last key; choose another directory")
            .into())
    }

    fn find_free_run(&mut self, txn: &mut dyn EngineTxn, number: u64) -> Result<(), Stop> {
        for _ in 0..RUNS_TRIED {
            self.run = mix(self.run.wrapping_add(1));
            if txn.insert(self.table, &KeyBytes::new().u64(self.run).u64(number), &self.value)? {
                return Ok(());
            }
        }
        Err(Failure::fatal("the private table has no free range of keys; choose another --seed").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::{Attempts, Outcome},
        engines::BTreeMapEngine,
    };

    /// A record with the value of its neighbour, which is as long, is not as it was inserted.
    #[test]
    fn a_value_of_another_record_is_found_out() {
        for together in [false, true] {
            let workload = Insert::new(1, 10, 100).unwrap().together(together);
            let engine = BTreeMapEngine::new(1);
            let mut worker = workload.worker(0, 1, 5);
            for _ in 0..3 {
                worker.next();
                let outcome = engine.transact(&mut Attempts::default(), &mut |txn| worker.run(txn)).unwrap();
                assert!(matches!(outcome, Outcome::Committed));
            }
            let holds = |engine: &BTreeMapEngine| {
                let checks = workload.check(engine, Some(&[3])).unwrap();
                checks.iter().map(|check| check.holds).collect::<Vec<_>>()
            };
            assert_eq!(holds(&engine), [true; 3], "{together}");
            let mut records = Vec::new();
            visit_all(&engine, TableIndex(0), b"", &mut |key, value| {
                records.push((key.to_vec(), value.to_vec()));
                Ok(())
            })
            .unwrap();
            let put =
                &mut |txn: &mut dyn EngineTxn| Ok(txn.put(TableIndex(0), &records[5].0, &records[25].1)?);
            engine.transact(&mut Attempts::default(), put).unwrap();
            assert_eq!(holds(&engine), [false, true, true], "{together}");
        }
    }
}
