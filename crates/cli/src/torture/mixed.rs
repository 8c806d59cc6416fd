//! All workloads beside each other, in one database: each worker draws each of its transactions from one of them.

use std::collections::BTreeMap;

use foreshore_bench::{
    Attempts, Body, Check, Engine, EngineTxn, Failure, Foresee, Loader, Mix, Outcome, Placed, Scale, Stop,
    TableIndex, Tpcb, Tpcc, Worker, Workload,
};
use foreshore_env::random::Xorshift;

use super::cycle::Cycle;
use crate::output::CliError;

/// The workload.
pub(crate) struct Mixed {
    parts: Vec<Part>,
    kinds: &'static [&'static str],
}

/// One of them, and where its tables and kinds stand among those of all.
struct Part {
    workload: Box<dyn Workload>,
    tables: u16,
    kinds: usize,
}

impl Mixed {
    pub(crate) fn new() -> Result<Mixed, CliError> {
        let workloads: [Box<dyn Workload>; 3] = [
            Box::new(Tpcb::new(4, 500, 0)?),
            Box::new(Tpcc::new(Scale::tiny(2), Mix::Full, false)?),
            Box::new(Cycle),
        ];
        let (mut parts, mut tables, mut kinds) = (Vec::new(), 0, Vec::new());
        for workload in workloads {
            let (here, of_kinds) = (tables, kinds.len());
            tables += workload.tables().len() as u16;
            kinds.extend_from_slice(workload.kinds());
            parts.push(Part { workload, tables: here, kinds: of_kinds });
        }
        // Once in the life of the process.
        Ok(Mixed { parts, kinds: kinds.leak() })
    }
}

impl Workload for Mixed {
    fn name(&self) -> &'static str {
        "mixed"
    }

    fn tables(&self) -> Vec<String> {
        let of_part = |part: &Part| {
            let name = part.workload.name();
            part.workload.tables().into_iter().map(move |table| format!("{name} {table}"))
        };
        self.parts.iter().flat_map(of_part).collect()
    }

    fn kinds(&self) -> &'static [&'static str] {
        self.kinds
    }

    fn options(&self) -> BTreeMap<String, serde_json::Value> {
        self.parts.iter().flat_map(|part| part.workload.options()).collect()
    }

    fn load_parts(&self) -> u64 {
        self.parts.iter().map(|part| part.workload.load_parts()).sum()
    }

    fn load_rows(&self) -> u64 {
        self.parts.iter().map(|part| part.workload.load_rows()).sum()
    }

    fn load_part(&self, mut number: u64, seed: u64, loader: &mut Loader<'_>) -> Result<(), Failure> {
        for Part { workload, tables, .. } in &self.parts {
            if number < workload.load_parts() {
                return loader.behind(*tables, |loader| workload.load_part(number, seed, loader));
            }
            number -= workload.load_parts();
        }
        Err(Failure::fatal("there are fewer parts to load"))
    }

    fn worker(&self, thread: usize, threads: usize, seed: u64) -> Box<dyn Worker> {
        let worker = |part: &Part| (part.workload.worker(thread, threads, seed), part.tables, part.kinds);
        let workers = self.parts.iter().map(worker).collect();
        let random = Xorshift::new(seed.wrapping_mul(0x5851_F42D_4C95_7F2D) ^ thread as u64);
        Box::new(MixedWorker { workers, drawn: 0, random })
    }

    fn check(&self, engine: &dyn Engine, commits: Option<&[u64]>) -> Result<Vec<Check>, Failure> {
        let mut checks = Vec::new();
        for Part { workload, tables, kinds } in &self.parts {
            let commits = commits.map(|commits| &commits[*kinds..][..workload.kinds().len()]);
            let mut of_part = workload.check(&Behind { engine, tables: *tables }, commits)?;
            for check in &mut of_part {
                check.name = format!("{}: {}", workload.name(), check.name);
            }
            checks.append(&mut of_part);
        }
        Ok(checks)
    }
}

struct MixedWorker {
    /// Each with the places of its tables and kinds.
    workers: Vec<(Box<dyn Worker>, u16, usize)>,
    /// Whose transaction was drawn last.
    drawn: usize,
    random: Xorshift,
}

impl Worker for MixedWorker {
    fn next(&mut self) -> usize {
        self.drawn = self.random.below(self.workers.len() as u64) as usize;
        let (worker, _, kinds) = &mut self.workers[self.drawn];
        *kinds + worker.next()
    }

    fn run(&mut self, txn: &mut dyn EngineTxn) -> Result<(), Stop> {
        let (worker, tables, _) = &mut self.workers[self.drawn];
        worker.run(&mut behind_txn(txn, *tables))
    }

    fn reads_only(&self) -> bool {
        self.workers[self.drawn].0.reads_only()
    }

    fn foresee(&self, touch: &mut Foresee<'_>) -> bool {
        let (worker, tables, _) = &self.workers[self.drawn];
        worker.foresee(&mut |table, key, writes| touch(behind(table, *tables), key, writes))
    }

    fn committed(&mut self) {
        self.workers[self.drawn].0.committed();
    }
}

/// The place of a table where so many others stand before its workload's.
fn behind(table: TableIndex, tables: u16) -> TableIndex {
    TableIndex(table.0 + tables)
}

/// A transaction as one of the workloads sees it.
fn behind_txn(txn: &mut dyn EngineTxn, tables: u16) -> impl EngineTxn + '_ {
    Placed::new(txn, move |table, _| Some(behind(table, tables)))
}

/// An engine as one of the workloads sees it.
struct Behind<'e> {
    engine: &'e dyn Engine,
    tables: u16,
}

impl Engine for Behind<'_> {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn transact(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.engine.transact(attempts, &mut |txn| body(&mut behind_txn(txn, self.tables)))
    }

    fn read(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.engine.read(attempts, &mut |txn| body(&mut behind_txn(txn, self.tables)))
    }

    fn settle(&self) -> Result<(), Failure> {
        self.engine.settle()
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        self.engine.counters()
    }

    fn close(&self) -> Result<(), Failure> {
        self.engine.close()
    }
}

#[cfg(test)]
mod tests {
    use foreshore_bench::{Silent, engines::BTreeMapEngine, load};

    use super::*;

    #[test]
    fn all_parts_work_and_each_is_checked() {
        let mixed = Mixed::new().unwrap();
        let engine = BTreeMapEngine::new(mixed.tables().len());
        load(&engine, &mixed, 1, 1, &Silent).unwrap();
        let mut commits = vec![0; mixed.kinds().len()];
        let mut worker = mixed.worker(0, 1, 1);
        for _ in 0..300 {
            let kind = worker.next();
            let outcome = engine.transact(&mut Attempts::default(), &mut |txn| worker.run(txn)).unwrap();
            if matches!(outcome, Outcome::Committed) {
                worker.committed();
                commits[kind] += 1;
            }
        }
        assert!(commits.iter().all(|commits| *commits > 0), "{commits:?}");
        let check = |commits: &[u64]| {
            let checks = mixed.check(&engine, Some(commits)).unwrap();
            let failed: Vec<String> =
                checks.iter().filter(|check| !check.holds).map(|check| check.name.clone()).collect();
            (checks.len(), failed)
        };
        let (count, failed) = check(&commits);
        assert!(count > 10 && failed.is_empty(), "{count}: {failed:?}");
        // TPC-B counts its rows of history; and the last part's link leads to itself.
        commits[0] += 1;
        let ring = mixed.parts[2].tables;
        let body = &mut |txn: &mut dyn EngineTxn| {
            txn.put(TableIndex(ring), &0_u32.to_be_bytes(), &0_u32.to_be_bytes())?;
            Ok(())
        };
        engine.transact(&mut Attempts::default(), body).unwrap();
        let (_, failed) = check(&commits);
        assert!(failed.iter().any(|name| name.starts_with("tpcb")), "{failed:?}");
        assert!(failed.iter().any(|name| name.starts_with("cycle")), "{failed:?}");
    }
}
