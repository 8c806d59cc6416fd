//! Foreshore itself, through its facade: what is measured is what an embedding program gets.

mod errors;
mod reads;
mod runs;
mod served;
mod submitted;
mod txn;

use std::collections::BTreeMap;

use ::foreshore as facade;
use facade::{Database, Options, Pipeline, Plan, TableDefinition, TransactOptions, Transaction};
use foreshore_env::sync::Arc;

use super::{
    DrawnBy, Durability, EngineOptions, Execution, IN_FLIGHT, LOST_WHEN_KILLED, Partitioning,
    partitioned_store::PartitionedStore,
};
use crate::{
    BenchError,
    engine::{Attempts, Body, Engine, Failure, Outcome, Server, Session, Submitter, TableIndex},
    named::Named,
    workload::Worker,
};
use errors::{facade_error, failure};
use runs::Runs;
use txn::Txn;

/// See the module.
#[derive(Debug)]
pub struct ForeshoreEngine {
    database: Database,
    tables: Arc<[String]>,
    execution: Execution,
    drawn_by: DrawnBy,
    /// Transactions that each of those who draw has on their way.
    in_flight: usize,
    /// Tables whose locks nobody plans.
    everywhere: &'static [TableIndex],
    store: Option<PartitionedStore>,
    run: TransactOptions,
    /// For bodies that only read.
    read: TransactOptions,
    load: TransactOptions,
}

impl ForeshoreEngine {
    /// Opens the database in the directory of `options`, or makes it there, and makes the tables that it lacks.
    pub fn open(tables: &[String], options: &EngineOptions) -> Result<ForeshoreEngine, BenchError> {
        ForeshoreEngine::open_with(tables, options, true)
    }

    /// As [`ForeshoreEngine::open`]; without `locking` every lock is granted to everybody.
    pub(crate) fn open_with(
        tables: &[String],
        options: &EngineOptions,
        locking: bool,
    ) -> Result<ForeshoreEngine, BenchError> {
        let configured = || -> facade::Result<_> {
            let locking = locking && options.execution != Execution::PartitionedStore;
            let mut set = Options { locking, ..Options::default() };
            let mut builder = Database::builder();
            if let (Execution::Partitioned, Some(Partitioning { of, count })) =
                (options.execution, options.partitioning)
            {
                set.control_threads = count;
                builder = builder.partitioner(of.of);
            }
            if options.drawn_by == DrawnBy::Engine {
                // Each thread has its share of those whom it draws from, and no more.
                set.execution_window = options.in_flight.unwrap_or(IN_FLIGHT);
            }
            for (name, value) in options.settings.iter().filter(|(name, _)| name != reads::OPTION) {
                set.set(name, value)?;
            }
            Ok((builder, set))
        };
        if options.execution == Execution::PartitionedStore && options.partitioning.is_none() {
            return Err(BenchError::invalid("a partitioned store needs partitions: give --partitions"));
        }
        if options.execution == Execution::Planned && options.durability == Durability::Pipelined {
            return Err(BenchError::invalid(
                "plans do not commit in pipelines: take another durability, or --execution reconnaissance",
            ));
        }
        refuse_overruled(options)?;
        let (builder, set) = configured().map_err(failure)?;
        for (setting, overruled) in [("read_only=true", set.read_only), ("create=false", !set.create)] {
            if overruled {
                return Err(BenchError::invalid(format!(
                    "a database that is measured is made and filled first: leave out --set {setting}"
                )));
            }
        }
        let database = builder.options(set).open(&options.directory).map_err(failure)?;
        Ok(ForeshoreEngine::over(database, tables, options)?)
    }

    /// An engine over a database that is open already; of `options`, durability and isolation count.
    pub fn over(
        database: Database,
        tables: &[String],
        options: &EngineOptions,
    ) -> Result<ForeshoreEngine, Failure> {
        let run = TransactOptions {
            durability: Some(options.durability),
            isolation: Some(options.isolation),
            execution: match options.execution {
                // Or as the settings say.
                Execution::Dynamic => None,
                Execution::Planned | Execution::Reconnaissance => Some(facade::Execution::Planned),
                // For the former, what is not submitted: loads and checks.
                Execution::Partitioned | Execution::PartitionedStore => Some(facade::Execution::Dynamic),
            },
            ..TransactOptions::default()
        };
        let load = TransactOptions {
            durability: Some(Durability::Lazy),
            execution: Some(facade::Execution::Dynamic),
            ..run.clone()
        };
        let read = reads::options(&run, options)?;
        // A table is made when it is first used: not while it is measured.
        for name in tables {
            database.transact(|tx| tx.get_with(definition(name), b"", |_| ())).map_err(failure)?;
        }
        let EngineOptions { execution, drawn_by, in_flight, partitioning, .. } = *options;
        let store = (execution == Execution::PartitionedStore).then_some(partitioning).flatten();
        Ok(ForeshoreEngine {
            database,
            tables: tables.into(),
            execution,
            drawn_by,
            in_flight: in_flight.unwrap_or(IN_FLIGHT),
            everywhere: partitioning.map_or(&[], |partitioning| partitioning.of.everywhere),
            store: store.map(PartitionedStore::new),
            run,
            read,
            load,
        })
    }

    /// The database, for whoever wants more of it than the workloads do.
    pub fn database(&self) -> &Database {
        &self.database
    }

    fn execute(
        &self,
        options: &TransactOptions,
        attempts: &mut Attempts,
        body: &mut Body<'_>,
    ) -> Result<Outcome, Failure> {
        let rehearsals = self.rehearsals(options);
        self.count(attempts, rehearsals, body, |body| self.database.transact_with(options, body))
    }

    /// The first run of a transaction that is planned by reconnaissance is none.
    fn rehearsals(&self, options: &TransactOptions) -> u64 {
        let execution = options.execution.unwrap_or(self.database.options().execution);
        u64::from(execution == facade::Execution::Planned)
    }

    /// Runs `body` by `transact`, which calls it at least `rehearsals` + 1 times, and counts what came of it.
    fn count(
        &self,
        attempts: &mut Attempts,
        rehearsals: u64,
        body: &mut Body<'_>,
        transact: impl FnOnce(&mut FacadeBody<'_>) -> facade::Result<()>,
    ) -> Result<Outcome, Failure> {
        let mut runs = Runs::after(rehearsals);
        let result = transact(&mut |tx| runs.run(&mut Txn { tx, tables: &self.tables }, body));
        runs.outcome(attempts, result)
    }

    /// The plan of what a worker has drawn, if it can tell what it will touch.
    fn plan(&self, worker: &dyn Worker) -> Option<Plan<'_>> {
        let plan = self.database.plan().options(self.run.clone());
        let (plan, known) = foresee(plan, worker, &self.tables, self.everywhere);
        known.then_some(plan)
    }
}

/// Refuses settings that would stand in the report and mean nothing: each transaction is told otherwise.
fn refuse_overruled(options: &EngineOptions) -> Result<(), BenchError> {
    for (name, value) in &options.settings {
        let told = match name.as_str() {
            "durability" => options.durability.name(),
            "isolation" => options.isolation.name(),
            "execution" if options.execution != Execution::Dynamic => options.execution.name(),
            _ => continue,
        };
        if value.replace('_', "-") != told {
            return Err(BenchError::invalid(format!(
                "--set {name}={value} is overruled by --{name}: each transaction is told {told}"
            )));
        }
    }
    Ok(())
}

/// Names what a worker has drawn in a plan; whether it could tell.
fn foresee<'d>(
    plan: Plan<'d>,
    worker: &dyn Worker,
    tables: &[String],
    everywhere: &[TableIndex],
) -> (Plan<'d>, bool) {
    let mut named = Some(plan);
    let mut all = true;
    let known = worker.foresee(&mut |table, key, writes| {
        // They are locked when they are read; nobody writes them.
        if everywhere.contains(&table) {
            return;
        }
        let Some(name) = tables.get(usize::from(table.0)) else {
            all = false;
            return;
        };
        named = named.take().map(|plan| match writes {
            true => plan.write(definition(name), key),
            false => plan.read(definition(name), key),
        });
    });
    match named {
        Some(plan) => (plan, known && all),
        None => unreachable!("it was put back"),
    }
}

/// A body as the facade takes it.
type FacadeBody<'b> = dyn FnMut(&mut Transaction) -> facade::Result<()> + 'b;

/// A thread whose commits do not wait for the disk.
struct Pipelined<'e> {
    engine: &'e ForeshoreEngine,
    pipeline: Pipeline,
}

impl Session for Pipelined<'_> {
    fn run(&mut self, attempts: &mut Attempts, worker: &mut dyn Worker) -> Result<Outcome, Failure> {
        let ForeshoreEngine { run, read, store, .. } = self.engine;
        let _taken = store.as_ref().map(|store| store.take(worker));
        let options = if worker.reads_only() { read } else { run };
        let rehearsals = self.engine.rehearsals(options);
        self.engine.count(attempts, rehearsals, &mut |txn| worker.run(txn), |body| {
            // All that was committed is waited for at the end.
            self.pipeline.transact_with(options, body).map(|((), _ticket)| ())
        })
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.pipeline.flush().map_err(failure)
    }
}

fn definition<'n, 'b>(name: &'n str) -> TableDefinition<'n, &'b [u8], &'b [u8]> {
    TableDefinition::new(name)
}

impl Engine for ForeshoreEngine {
    fn name(&self) -> &'static str {
        "foreshore"
    }

    fn transact(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.execute(&self.run, attempts, body)
    }

    fn session(&self) -> Option<Box<dyn Session + '_>> {
        let pipelined = self.run.durability == Some(Durability::Pipelined);
        pipelined.then(|| -> Box<dyn Session + '_> {
            Box::new(Pipelined { engine: self, pipeline: self.database.pipeline() })
        })
    }

    fn run(&self, attempts: &mut Attempts, worker: &mut dyn Worker) -> Result<Outcome, Failure> {
        if self.execution == Execution::Planned
            && let Some(plan) = self.plan(worker)
        {
            return self.count(attempts, 0, &mut |txn| worker.run(txn), |body| plan.run(body));
        }
        let _taken = self.store.as_ref().map(|store| store.take(worker));
        let options = if worker.reads_only() { &self.read } else { &self.run };
        self.execute(options, attempts, &mut |txn| worker.run(txn))
    }

    fn read(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.execute(&self.read, attempts, body)
    }

    fn submitter(&self) -> Option<&dyn Submitter> {
        (self.execution == Execution::Partitioned).then_some(self)
    }

    fn server(&self) -> Option<&dyn Server> {
        (self.execution == Execution::Partitioned && self.drawn_by == DrawnBy::Engine).then_some(self)
    }

    fn load(&self, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        self.execute(&self.load, &mut Attempts::default(), body)
    }

    fn settle(&self) -> Result<(), Failure> {
        self.database.checkpoint().map_err(failure)
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        let stats = self.database.stats();
        let threads = stats.partition_threads.iter().enumerate();
        let done = threads.map(|(number, thread)| (format!("partitioned_thread_{number}_done"), thread.done));
        stats.entries().map(|(name, value)| (name.to_owned(), value)).chain(done).collect()
    }

    fn caveats(&self) -> Vec<&'static str> {
        match self.run.durability {
            None | Some(Durability::Sync) => Vec::new(),
            Some(Durability::Pipelined | Durability::Lazy) => {
                vec![LOST_WHEN_KILLED]
            }
        }
    }

    fn close(&self) -> Result<(), Failure> {
        self.database.close().map_err(failure)
    }
}
