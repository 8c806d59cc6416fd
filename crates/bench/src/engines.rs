//! The engines that can run a workload.

pub mod btreemap;
pub mod foreshore;

use std::{collections::BTreeMap, path::PathBuf, str::FromStr};

pub use self::{btreemap::BTreeMapEngine, foreshore::ForeshoreEngine};
use crate::{BenchError, engine::Engine};

/// Which engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// Foreshore, through its facade.
    Foreshore,
    /// One `BTreeMap` for each table, all under one mutex: no durability, no concurrency, no overhead.
    BTreeMap,
}

impl FromStr for EngineKind {
    type Err = BenchError;

    fn from_str(name: &str) -> Result<EngineKind, BenchError> {
        match name {
            "foreshore" => Ok(EngineKind::Foreshore),
            "btreemap" => Ok(EngineKind::BTreeMap),
            _ => Err(BenchError::unknown("engine", name, "foreshore, btreemap")),
        }
    }
}

/// When a commit is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Once it is on the disk.
    #[default]
    Sync,
    /// At once; a crash may lose the newest commits.
    Lazy,
}

impl Durability {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Lazy => "lazy",
        }
    }
}

impl FromStr for Durability {
    type Err = BenchError;

    fn from_str(name: &str) -> Result<Durability, BenchError> {
        match name {
            "sync" => Ok(Durability::Sync),
            "lazy" => Ok(Durability::Lazy),
            _ => Err(BenchError::unknown("durability", name, "sync, lazy")),
        }
    }
}

/// What a transaction is kept apart from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Everything: the outcome is that of some serial order.
    #[default]
    Serializable,
    /// As `Serializable`, but new records may appear in a range that is read twice.
    RepeatableRead,
    /// It sees only what was committed when it looked.
    ReadCommitted,
}

impl Isolation {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::Serializable => "serializable",
            Isolation::RepeatableRead => "repeatable-read",
            Isolation::ReadCommitted => "read-committed",
        }
    }
}

impl FromStr for Isolation {
    type Err = BenchError;

    fn from_str(name: &str) -> Result<Isolation, BenchError> {
        match name {
            "serializable" => Ok(Isolation::Serializable),
            "repeatable-read" => Ok(Isolation::RepeatableRead),
            "read-committed" => Ok(Isolation::ReadCommitted),
            _ => Err(BenchError::unknown("isolation", name, "serializable, repeatable-read, read-committed")),
        }
    }
}

/// How transactions come to their locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Execution {
    /// Each when it is needed.
    #[default]
    Dynamic,
    /// All before they run: from what the workload says, and by reconnaissance where it cannot tell.
    Planned,
    /// All before they run, always by reconnaissance.
    Reconnaissance,
}

impl Execution {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Execution::Dynamic => "dynamic",
            Execution::Planned => "planned",
            Execution::Reconnaissance => "reconnaissance",
        }
    }
}

impl FromStr for Execution {
    type Err = BenchError;

    fn from_str(name: &str) -> Result<Execution, BenchError> {
        match name {
            "dynamic" => Ok(Execution::Dynamic),
            "planned" => Ok(Execution::Planned),
            "reconnaissance" => Ok(Execution::Reconnaissance),
            _ => Err(BenchError::unknown("execution", name, "dynamic, planned, reconnaissance")),
        }
    }
}

/// How an engine is opened.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// Where its files go; engines without files ignore it.
    pub directory: PathBuf,
    /// When a commit is acknowledged.
    pub durability: Durability,
    /// The isolation of every transaction.
    pub isolation: Isolation,
    /// How every transaction comes to its locks.
    pub execution: Execution,
    /// The engine's own options, by name, with units: `("pool_bytes", "16MiB")`.
    pub settings: Vec<(String, String)>,
}

impl EngineOptions {
    /// Itself, for the report.
    pub fn describe(&self) -> BTreeMap<String, serde_json::Value> {
        let mut options = BTreeMap::from([
            ("durability".to_owned(), self.durability.name().into()),
            ("isolation".to_owned(), self.isolation.name().into()),
            ("execution".to_owned(), self.execution.name().into()),
        ]);
        options.extend(self.settings.iter().map(|(name, value)| (name.clone(), value.as_str().into())));
        options
    }
}

/// Opens an engine with empty tables of these names, or with what its directory holds of them.
pub fn open(
    kind: EngineKind,
    tables: &[String],
    options: &EngineOptions,
) -> Result<Box<dyn Engine>, BenchError> {
    match kind {
        EngineKind::Foreshore => Ok(Box::new(ForeshoreEngine::open(tables, options)?)),
        EngineKind::BTreeMap if options.execution != Execution::Dynamic => {
            Err(BenchError::invalid("the engine btreemap has no locks to plan; leave out --execution"))
        }
        EngineKind::BTreeMap => match options.settings.first() {
            None => Ok(Box::new(BTreeMapEngine::new(tables.len()))),
            Some((name, _)) => {
                Err(BenchError::invalid(format!("the engine btreemap has no option {name:?}")))
            }
        },
    }
}
