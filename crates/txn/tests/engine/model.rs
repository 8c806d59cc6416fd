//! A workload whose outcome is known: transactions that one thread interleaves, each with its own picture of the
//! database, and what a crash at any moment may leave of them.

use std::collections::{BTreeMap, BTreeSet};

use foreshore_base::StorageError;
use foreshore_env::{
    random::Xorshift,
    sync::{Arc, Mutex},
};
use foreshore_txn::{
    Append, BeginOptions, Durability, Engine, LockError, Savepoint, TableInfo, Txn, TxnError,
};

use crate::{Content, get, read_all};

/// Transactions open at a time.
const WORKERS: usize = 4;
/// Keys in use.
const KEYS: u64 = 40;

/// What a transaction changes: table and key to the new value, or to nothing.
type Changes = BTreeMap<(String, Vec<u8>), Option<Vec<u8>>>;

/// What was promised so far. Shared with whoever looks at crashes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promises {
    /// Everything acknowledged as durable.
    durable: Content,
    /// Commits that were not: in the order of their commit, of which a crash may leave the first so many.
    hoped: Vec<Changes>,
    /// Tables that exist.
    tables: BTreeSet<String>,
    /// A table whose creation was not acknowledged.
    table_hoped: Option<String>,
}

impl Promises {
    /// Why a database that was opened after a crash breaks a promise.
    pub(crate) fn examine(&self, engine: &Arc<Engine>) -> Result<(), String> {
        let tables = engine.tables().map_err(|error| format!("tables: {error}"))?;
        let tables = tables.iter().map(|table| table.name().to_owned()).collect();
        let found = read_all(engine).map_err(|error| format!("read: {error}"))?;
        self.check(&tables, &found)
    }

    /// Why what was found after a crash breaks a promise.
    pub(crate) fn check(&self, tables: &BTreeSet<String>, found: &Content) -> Result<(), String> {
        let all: BTreeSet<_> = self.tables.iter().chain(&self.table_hoped).cloned().collect();
        if !tables.is_superset(&self.tables) || !tables.is_subset(&all) {
            return Err(format!("there are the tables {tables:?}, and should be {:?}", self.tables));
        }
        let mut state = self.durable.clone();
        if state == *found {
            return Ok(());
        }
        for changes in &self.hoped {
            apply(&mut state, changes);
            if state == *found {
                return Ok(());
            }
        }
        Err(format!(
            "the content is none of the {} possible ones; differs from the newest: {:?}",
            self.hoped.len() + 1,
            differences(&state, found)
        ))
    }

    fn settle(&mut self) {
        for changes in std::mem::take(&mut self.hoped) {
            apply(&mut self.durable, &changes);
        }
    }
}

fn apply(state: &mut Content, changes: &Changes) {
    for (place, value) in changes {
        match value {
            Some(value) => state.insert(place.clone(), value.clone()),
            None => state.remove(place),
        };
    }
}

fn differences(one: &Content, other: &Content) -> Vec<String> {
    let places: BTreeSet<_> = one.keys().chain(other.keys()).collect();
    let show = |value: Option<&Vec<u8>>| match value {
        Some(value) => format!("{} bytes {:?}…", value.len(), &value[..value.len().min(8)]),
        None => "nothing".to_owned(),
    };
    places
        .into_iter()
        .filter(|place| one.get(*place) != other.get(*place))
        .take(8)
        .map(|place| {
            let key = String::from_utf8_lossy(&place.1);
            format!("{} {key}: expected {}, found {}", place.0, show(one.get(place)), show(other.get(place)))
        })
        .collect()
}

/// How the workload goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Operations in all.
    pub(crate) steps: usize,
    /// One step in so many takes a checkpoint.
    pub(crate) checkpoint_every: u64,
    /// Values that need the overflow table are among those written.
    pub(crate) long_values: bool,
    /// Keys are also appended many at a time.
    pub(crate) appends: bool,
    /// Commits are also pipelined.
    pub(crate) pipelined: bool,
}

impl Plan {
    /// A plan of short values, without what has a field of its own.
    pub(crate) fn new(seed: u64, steps: usize, checkpoint_every: u64) -> Plan {
        Plan { seed, steps, checkpoint_every, long_values: false, appends: false, pipelined: false }
    }
}

/// One open transaction.
struct Worker {
    txn: Txn,
    changes: Changes,
    savepoints: Vec<(Savepoint, Changes)>,
}

/// The workload. Runs until its end or the first failure of the disk.
pub(crate) struct Workload<'a> {
    engine: &'a Arc<Engine>,
    promises: &'a Mutex<Promises>,
    plan: Plan,
    random: Xorshift,
    workers: Vec<Option<Worker>>,
    tables: Vec<TableInfo>,
    /// Everything committed, durable or not.
    committed: Content,
    /// Transactions that ended by commit.
    pub(crate) commits: u64,
    /// Appends that were done, and perhaps undone.
    pub(crate) appended: u64,
}

impl<'a> Workload<'a> {
    pub(crate) fn new(engine: &'a Arc<Engine>, promises: &'a Mutex<Promises>, plan: Plan) -> Workload<'a> {
        Workload {
            engine,
            promises,
            plan,
            random: Xorshift::new(plan.seed),
            workers: (0..WORKERS).map(|_| None).collect(),
            tables: Vec::new(),
            committed: Content::new(),
            commits: 0,
            appended: 0,
        }
    }

    /// Runs; an error is one of the disk, all others are part of the work.
    pub(crate) fn run(&mut self) -> Result<(), TxnError> {
        self.create_table()?;
        for _ in 0..self.plan.steps {
            let index = self.random.below(WORKERS as u64) as usize;
            if self.random.below(self.plan.checkpoint_every) == 0 {
                self.engine.checkpoint()?;
            }
            if self.random.below(150) == 0 && self.tables.len() < 4 {
                self.create_table()?;
            }
            let Some(mut worker) = self.workers[index].take() else {
                let mut txn = self.engine.begin(BeginOptions::default())?;
                txn.set_no_wait(true);
                self.workers[index] = Some(Worker { txn, changes: Changes::new(), savepoints: Vec::new() });
                continue;
            };
            match self.random.below(20) {
                0..=3 => self.commit(worker)?,
                4 => worker.txn.rollback()?,
                5..=6 => {
                    worker.savepoints.push((worker.txn.savepoint()?, worker.changes.clone()));
                    self.workers[index] = Some(worker);
                }
                7 => {
                    self.roll_back_to_savepoint(&mut worker)?;
                    self.workers[index] = Some(worker);
                }
                _ => match self.operate(&mut worker) {
                    Ok(()) => self.workers[index] = Some(worker),
                    Err(TxnError::Lock(LockError::WouldBlock(_))) if self.random.below(3) > 0 => {
                        self.workers[index] = Some(worker);
                    }
                    Err(TxnError::Lock(_)) => worker.txn.rollback()?,
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Ends with the open transactions as they are.
    pub(crate) fn abandon(self) {
        drop(self.workers);
    }

    fn create_table(&mut self) -> Result<(), TxnError> {
        let name = format!("t{}", self.tables.len());
        self.promises.lock().table_hoped = Some(name.clone());
        let table = self.engine.create_table(&name, b"meta")?;
        let mut promises = self.promises.lock();
        promises.table_hoped = None;
        promises.tables.insert(name);
        // What was committed before it was flushed with it.
        promises.settle();
        self.tables.push(table);
        Ok(())
    }

    fn roll_back_to_savepoint(&mut self, worker: &mut Worker) -> Result<(), TxnError> {
        if worker.savepoints.is_empty() {
            return Ok(());
        }
        let index = self.random.below(worker.savepoints.len() as u64) as usize;
        worker.savepoints.truncate(index + 1);
        let (savepoint, changes) = worker.savepoints[index].clone();
        worker.txn.rollback_to(savepoint)?;
        worker.changes = changes;
        Ok(())
    }

    fn commit(&mut self, worker: Worker) -> Result<(), TxnError> {
        let durability = match self.random.below(4) {
            0 => Durability::Lazy,
            1 if self.plan.pipelined => Durability::Pipelined,
            _ => Durability::Sync,
        };
        let writes = !worker.txn.is_read_only();
        if writes {
            self.promises.lock().hoped.push(worker.changes.clone());
        }
        let result = worker.txn.commit(durability);
        if result.is_ok() {
            apply(&mut self.committed, &worker.changes);
            self.commits += 1;
            if durability == Durability::Sync && writes {
                self.promises.lock().settle();
            }
        }
        result.map(|_| ())
    }

    /// One operation, whose answer is checked.
    fn operate(&mut self, worker: &mut Worker) -> Result<(), TxnError> {
        let table = self.tables[self.random.below(self.tables.len() as u64) as usize].clone();
        let key = format!("k{:03}", self.random.below(KEYS)).into_bytes();
        let place = (table.name().to_owned(), key.clone());
        let before =
            worker.changes.get(&place).cloned().unwrap_or_else(|| self.committed.get(&place).cloned());
        let value = self.value();
        let txn = &mut worker.txn;
        match self.random.below(10) {
            // The whole table is seldom to be had.
            0 if self.plan.appends => {
                let first = KEYS + self.appended * 5;
                let key = |number: u64| format!("k{number:03}").into_bytes();
                let entries: Vec<_> = (first..first + 5).map(|number| (key(number), value.clone())).collect();
                assert_eq!(
                    txn.append(&table, &entries)?,
                    Append::Done,
                    "{first} and more come after all others"
                );
                self.appended += 1;
                for (key, value) in entries {
                    worker.changes.insert((table.name().to_owned(), key), Some(value));
                }
            }
            0..=1 => {
                assert_eq!(get(txn, &table, &key)?, before, "{place:?} was read");
            }
            2..=4 => {
                assert_eq!(txn.put(&table, &key, &value)?, before.is_some(), "{place:?} was put");
                worker.changes.insert(place, Some(value));
            }
            5..=6 => {
                let inserted = txn.insert(&table, &key, &value)?;
                assert_eq!(inserted, before.is_none(), "{place:?} was inserted");
                if inserted {
                    worker.changes.insert(place, Some(value));
                }
            }
            7 => {
                let updated = txn.update(&table, &key, &value)?;
                assert_eq!(updated, before.is_some(), "{place:?} was updated");
                if updated {
                    worker.changes.insert(place, Some(value));
                }
            }
            _ => {
                assert_eq!(txn.delete(&table, &key)?, before.is_some(), "{place:?} was deleted");
                worker.changes.insert(place, None);
            }
        }
        Ok(())
    }

    fn value(&mut self) -> Vec<u8> {
        let longest = match self.random.below(16) {
            0 if self.plan.long_values => 6000,
            0..=1 => 1500,
            _ => 100,
        };
        let length = self.random.below(longest) as usize;
        vec![self.random.next_u64() as u8; length]
    }
}

/// The errors that a failing disk may lead to.
pub(crate) fn is_of_the_disk(error: &TxnError) -> bool {
    match error {
        TxnError::Storage(error) | TxnError::OutcomeUnknown { cause: error } => {
            matches!(error, StorageError::Io { .. } | StorageError::Poisoned { .. } | StorageError::Closed)
        }
        _ => false,
    }
}
