//! The engines that can run a workload.

#[cfg(feature = "bdb")]
pub mod bdb;
pub mod btreemap;
#[cfg(feature = "fjall")]
pub mod fjall;
pub mod foreshore;
#[cfg(any(feature = "bdb", feature = "fjall", feature = "rocksdb"))]
mod keepers;
#[cfg(feature = "lmdb")]
pub mod lmdb;
mod partitioned_store;
#[cfg(feature = "redb")]
pub mod redb;
#[cfg(any(
    feature = "bdb",
    feature = "fjall",
    feature = "lmdb",
    feature = "redb",
    feature = "rocksdb",
    feature = "sqlite"
))]
#[cfg_attr(not(feature = "rivals"), allow(dead_code, reason = "no rival needs all of it"))]
mod rival;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::{collections::BTreeMap, path::PathBuf};

pub use ::foreshore::{Durability, Isolation};

pub use self::{btreemap::BTreeMapEngine, foreshore::ForeshoreEngine};
use crate::{BenchError, engine::Engine, named::Named, workload::PartitionOf};

/// Which engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// Foreshore, through its facade.
    Foreshore,
    /// One `BTreeMap` for each table, all under one mutex: no durability, no concurrency, no overhead.
    BTreeMap,
    /// redb: copy-on-write B-tree, one writer. Needs the feature `redb`.
    Redb,
    /// fjall: log-structured merge tree, optimistic or with one writer. Needs the feature `fjall`.
    Fjall,
    /// LMDB: copy-on-write B-tree in a memory map, one writer. Needs the feature `lmdb`.
    Lmdb,
    /// SQLite: B-tree and write-ahead log, one writer. Needs the feature `sqlite`.
    Sqlite,
    /// RocksDB: log-structured merge tree, locks on keys. Needs the feature `rocksdb` and Debian's library.
    Rocksdb,
    /// Berkeley DB: B-tree and write-ahead log, locks on pages. Needs the feature `bdb` and Debian's library.
    Bdb,
}

impl EngineKind {
    /// Whether this build has it.
    pub fn is_built(self) -> bool {
        match self {
            EngineKind::Foreshore | EngineKind::BTreeMap => true,
            EngineKind::Redb => cfg!(feature = "redb"),
            EngineKind::Fjall => cfg!(feature = "fjall"),
            EngineKind::Lmdb => cfg!(feature = "lmdb"),
            EngineKind::Sqlite => cfg!(feature = "sqlite"),
            EngineKind::Rocksdb => cfg!(feature = "rocksdb"),
            EngineKind::Bdb => cfg!(feature = "bdb"),
        }
    }

    /// The engines of this build.
    pub fn built() -> impl Iterator<Item = EngineKind> {
        EngineKind::ALL.iter().copied().filter(|kind| kind.is_built())
    }
}

/// The names are those of the features, too.
impl Named for EngineKind {
    const WHAT: &'static str = "engine";
    const ALL: &'static [EngineKind] = &[
        EngineKind::Foreshore,
        EngineKind::BTreeMap,
        EngineKind::Redb,
        EngineKind::Fjall,
        EngineKind::Lmdb,
        EngineKind::Sqlite,
        EngineKind::Rocksdb,
        EngineKind::Bdb,
    ];

    fn name(self) -> &'static str {
        match self {
            EngineKind::Foreshore => "foreshore",
            EngineKind::BTreeMap => "btreemap",
            EngineKind::Redb => "redb",
            EngineKind::Fjall => "fjall",
            EngineKind::Lmdb => "lmdb",
            EngineKind::Sqlite => "sqlite",
            EngineKind::Rocksdb => "rocksdb",
            EngineKind::Bdb => "bdb",
        }
    }

    /// The engine of this name; an error that names its feature if this build leaves it out.
    fn chosen(name: &str) -> Result<EngineKind, BenchError> {
        let kind = EngineKind::named(name)?;
        if kind.is_built() {
            return Ok(kind);
        }
        let install = match kind {
            EngineKind::Rocksdb => ", which needs librocksdb-dev of Debian",
            EngineKind::Bdb => ", which needs libdb5.3-dev of Debian",
            _ => "",
        };
        Err(BenchError::invalid(format!(
            "this build has no engine {name}; build it with: cargo run --release --features {name} --{install}"
        )))
    }
}

impl Named for Durability {
    const WHAT: &'static str = "durability";
    const ALL: &'static [Durability] = &[Durability::Sync, Durability::Pipelined, Durability::Lazy];

    fn name(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Pipelined => "pipelined",
            Durability::Lazy => "lazy",
        }
    }
}

impl Named for Isolation {
    const WHAT: &'static str = "isolation";
    const ALL: &'static [Isolation] =
        &[Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted];

    fn name(self) -> &'static str {
        match self {
            Isolation::Serializable => "serializable",
            Isolation::RepeatableRead => "repeatable-read",
            Isolation::ReadCommitted => "read-committed",
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
    /// As `Planned`, on threads of the engine: some lock, others run the transactions, and the clients only draw them.
    Partitioned,
    /// Without locks: each has its partitions to itself while it runs.
    PartitionedStore,
}

impl Named for Execution {
    const WHAT: &'static str = "execution";
    const ALL: &'static [Execution] = &[
        Execution::Dynamic,
        Execution::Planned,
        Execution::Reconnaissance,
        Execution::Partitioned,
        Execution::PartitionedStore,
    ];

    fn name(self) -> &'static str {
        match self {
            Execution::Dynamic => "dynamic",
            Execution::Planned => "planned",
            Execution::Reconnaissance => "reconnaissance",
            Execution::Partitioned => "partitioned",
            Execution::PartitionedStore => "partitioned-store",
        }
    }
}

/// Who draws the transactions that an engine runs on threads of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrawnBy {
    /// Threads of the clients, which give them away and wait for results.
    #[default]
    Clients,
    /// The threads that run them.
    Engine,
}

impl Named for DrawnBy {
    const WHAT: &'static str = "drawn-by";
    const ALL: &'static [DrawnBy] = &[DrawnBy::Clients, DrawnBy::Engine];

    fn name(self) -> &'static str {
        match self {
            DrawnBy::Clients => "clients",
            DrawnBy::Engine => "engine",
        }
    }
}

/// Transactions that a client, or a thread that draws itself, has on their way at a time, unless it is told otherwise.
pub const IN_FLIGHT: usize = 32;

/// The caveat of engines whose lazy commits stay in memory for a while.
const LOST_WHEN_KILLED: &str =
    "commits lie in memory until the log is written: the last ones are lost when the process is killed";

/// Partitions of the keys of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Partitioning {
    /// Which of them.
    pub of: PartitionOf,
    /// How many.
    pub count: usize,
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
    /// Who draws transactions, if threads of the engine run them.
    pub drawn_by: DrawnBy,
    /// Transactions that each of those who draw has on their way at a time, if the engine runs them; [`IN_FLIGHT`] if
    /// nothing is said.
    pub in_flight: Option<usize>,
    /// How keys are divided among partitions, if not by their hash.
    pub partitioning: Option<Partitioning>,
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
        if self.execution == Execution::Partitioned {
            options.insert("in_flight".to_owned(), self.in_flight.unwrap_or(IN_FLIGHT).into());
            options.insert("drawn_by".to_owned(), self.drawn_by.name().into());
        }
        if let Some(partitioning) = &self.partitioning {
            options.insert("partitions".to_owned(), partitioning.count.into());
        }
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
        #[cfg(feature = "redb")]
        EngineKind::Redb => Ok(Box::new(redb::RedbEngine::open(tables, options)?)),
        #[cfg(feature = "fjall")]
        EngineKind::Fjall => Ok(Box::new(fjall::FjallEngine::open(tables, options)?)),
        #[cfg(feature = "lmdb")]
        EngineKind::Lmdb => Ok(Box::new(lmdb::LmdbEngine::open(tables, options)?)),
        #[cfg(feature = "sqlite")]
        EngineKind::Sqlite => Ok(Box::new(sqlite::SqliteEngine::open(tables, options)?)),
        #[cfg(feature = "rocksdb")]
        EngineKind::Rocksdb => Ok(Box::new(rocksdb::RocksdbEngine::open(tables, options)?)),
        #[cfg(feature = "bdb")]
        EngineKind::Bdb => Ok(Box::new(bdb::BdbEngine::open(tables, options)?)),
        #[allow(unreachable_patterns, reason = "a build with all rivals leaves nobody out")]
        _ => Err(BenchError::invalid(format!("this build has no engine {}", kind.name()))),
    }
}

/// Makes a rival's directory and those above it; one that is there is left as it is.
#[cfg(any(
    feature = "bdb",
    feature = "fjall",
    feature = "lmdb",
    feature = "redb",
    feature = "rocksdb",
    feature = "sqlite"
))]
fn make_directory(path: &std::path::Path) -> Result<(), BenchError> {
    std::fs::create_dir_all(path).map_err(|error| {
        crate::engine::Failure::fatal(format!("cannot make the directory {}: {error}", path.display())).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_is_not_built_names_its_feature() {
        for name in EngineKind::ALL.iter().map(|kind| kind.name()) {
            match EngineKind::chosen(name) {
                Ok(kind) => assert!(kind.is_built() && kind.name() == name),
                Err(error) => assert!(error.to_string().contains(&format!("--features {name}")), "{error}"),
            }
        }
        assert!(EngineKind::chosen("oracle").is_err());
    }
}
