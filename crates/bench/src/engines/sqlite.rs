//! SQLite in WAL mode: a B-tree, one writer at a time, readers of snapshots beside it. So every outcome is that of a
//! serial order. Writers queue for one connection, because SQLite itself only sleeps and tries again; each reader takes
//! one of a pool.

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow},
};

use foreshore_env::{sync::Mutex, time::Duration};
use rusqlite::{Connection, OptionalExtension, ToSql, params};

use super::{
    Durability, EngineOptions,
    btreemap::is_empty_range,
    rival::{ReadOnly, Settings, fatal},
};
use crate::{
    BenchError,
    engine::{Attempts, Body, Engine, EngineTxn, Failure, Order, Outcome, Reader, Stop, TableIndex, Visit},
};

/// The pages of 4 KiB (64 MiB in all) at which the log is moved into the database.
const CHECKPOINT_PAGES: u32 = 16_384;
/// How long a reader waits at most when a checkpoint is in its way.
const BUSY: Duration = Duration::from_secs(10);
/// Memory of a reader's own cache, in KiB; it reads through the memory map.
const READER_CACHE_KIB: usize = 2048;

/// See the module.
#[derive(Debug)]
pub struct SqliteEngine {
    writer: Mutex<Connection>,
    /// Connections that no reader uses at the moment.
    readers: Mutex<Vec<Connection>>,
    options: EngineOptions,
    cache_bytes: usize,
    sql: Vec<Sql>,
}

/// The statements of a table.
#[derive(Debug)]
struct Sql {
    get: String,
    insert: String,
    put: String,
    delete: String,
    /// Up to the conditions.
    scan: String,
}

impl Sql {
    fn of(table: &str) -> Sql {
        Sql {
            get: format!("SELECT value FROM \"{table}\" WHERE key = ?1"),
            insert: format!("INSERT OR IGNORE INTO \"{table}\" VALUES (?1, ?2)"),
            put: format!(
                "INSERT INTO \"{table}\" VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
            ),
            delete: format!("DELETE FROM \"{table}\" WHERE key = ?1"),
            scan: format!("SELECT key, value FROM \"{table}\""),
        }
    }
}

impl SqliteEngine {
    /// Opens the database in the directory of `options`, or makes it there, and makes the tables that it lacks. Option:
    /// `cache_bytes`.
    pub fn open(tables: &[String], options: &EngineOptions) -> Result<SqliteEngine, BenchError> {
        let mut settings = Settings::new("sqlite", options)?;
        let cache_bytes = settings.cache_bytes()?;
        settings.finish()?;
        super::make_directory(&options.directory)?;
        let writer = connect(options, cache_bytes, cache_bytes >> 10)?;
        for name in tables {
            let make = format!(
                "CREATE TABLE IF NOT EXISTS \"{name}\" (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
            );
            writer.execute_batch(&make).map_err(fatal)?;
        }
        Ok(SqliteEngine {
            writer: Mutex::new(writer),
            readers: Mutex::default(),
            options: options.clone(),
            cache_bytes,
            sql: tables.iter().map(|name| Sql::of(name)).collect(),
        })
    }

    fn reader(&self) -> Result<Connection, Failure> {
        let pooled = self.readers.lock().pop();
        pooled.map_or_else(|| connect(&self.options, self.cache_bytes, READER_CACHE_KIB), Ok)
    }

    fn execute(
        &self,
        connection: &Connection,
        begin: &str,
        attempts: &mut Attempts,
        body: impl FnOnce(Statements<'_>) -> Result<(), Stop>,
    ) -> Result<Outcome, Failure> {
        let mut open = Open { connection, committed: false };
        run(connection, begin)?;
        match body(Statements { connection, sql: &self.sql }) {
            Ok(()) => {
                run(connection, "COMMIT")?;
                open.committed = true;
                Ok(Outcome::Committed)
            }
            stopped => attempts.ended(stopped),
        }
    }
}

fn connect(options: &EngineOptions, map_bytes: usize, cache_kib: usize) -> Result<Connection, Failure> {
    let connection = Connection::open(options.directory.join("sqlite")).map_err(fatal)?;
    let synchronous = match options.durability {
        Durability::Sync | Durability::Pipelined => "FULL",
        Durability::Lazy => "NORMAL",
    };
    connection.busy_timeout(BUSY).map_err(fatal)?;
    connection
        .execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; PRAGMA cache_size = -{cache_kib};
             PRAGMA mmap_size = {map_bytes}; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}; PRAGMA temp_store = MEMORY;"
        ))
        .map_err(fatal)?;
    connection.set_prepared_statement_cache_capacity(4096);
    Ok(connection)
}

fn run(connection: &Connection, statement: &str) -> Result<(), Failure> {
    connection.prepare_cached(statement).and_then(|mut statement| statement.execute([])).map_err(fatal)?;
    Ok(())
}

/// A transaction that is rolled back on drop, that of a panic included, unless it committed.
struct Open<'c> {
    connection: &'c Connection,
    committed: bool,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.committed {
            // It fails when SQLite has rolled back already, or never began.
            let _ = run(self.connection, "ROLLBACK");
        }
    }
}

struct Statements<'c> {
    connection: &'c Connection,
    sql: &'c [Sql],
}

impl<'c> Statements<'c> {
    fn sql(&self, table: TableIndex) -> Result<&'c Sql, Failure> {
        self.sql.get(usize::from(table.0)).ok_or_else(|| Failure::no_table(table))
    }

    /// Runs a statement that changes at most one row; whether it did.
    fn change(&self, statement: &str, parameters: impl rusqlite::Params) -> Result<bool, Failure> {
        let mut statement = self.connection.prepare_cached(statement).map_err(fatal)?;
        Ok(statement.execute(parameters).map_err(fatal)? > 0)
    }
}

impl Reader for Statements<'_> {
    fn get(&mut self, table: TableIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        let mut statement = self.connection.prepare_cached(&self.sql(table)?.get).map_err(fatal)?;
        let found = statement
            .query_row(params![key], |row| {
                value.clear();
                value.extend_from_slice(row.get_ref(0)?.as_blob()?);
                Ok(())
            })
            .optional()
            .map_err(fatal)?;
        Ok(found.is_some())
    }

    fn scan(
        &mut self,
        table: TableIndex,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        if is_empty_range(low, high) {
            return Ok(());
        }
        let mut statement = self.sql(table)?.scan.clone();
        let mut parameters: Vec<&dyn ToSql> = Vec::with_capacity(2);
        for (bound, included, excluded) in [(&low, ">=", ">"), (&high, "<=", "<")] {
            let (key, comparison) = match bound {
                Bound::Included(key) => (key, included),
                Bound::Excluded(key) => (key, excluded),
                Bound::Unbounded => continue,
            };
            parameters.push(key);
            let and = if parameters.len() == 1 { "WHERE" } else { "AND" };
            statement.push_str(&format!(" {and} key {comparison} ?{}", parameters.len()));
        }
        statement.push_str(match order {
            Order::Ascending => " ORDER BY key ASC",
            Order::Descending => " ORDER BY key DESC",
        });
        let mut statement = self.connection.prepare_cached(&statement).map_err(fatal)?;
        let mut rows = statement.query(&*parameters).map_err(fatal)?;
        while let Some(row) = rows.next().map_err(fatal)? {
            let blob = |column| row.get_ref(column)?.as_blob().map_err(rusqlite::Error::from);
            if visit(blob(0).map_err(fatal)?, blob(1).map_err(fatal)?) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }
}

impl EngineTxn for Statements<'_> {
    fn insert(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<bool, Failure> {
        self.change(&self.sql(table)?.insert, params![key, value])
    }

    fn put(&mut self, table: TableIndex, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.change(&self.sql(table)?.put, params![key, value]).map(|_| ())
    }

    fn delete(&mut self, table: TableIndex, key: &[u8]) -> Result<bool, Failure> {
        self.change(&self.sql(table)?.delete, params![key])
    }
}

impl Engine for SqliteEngine {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn transact(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        let connection = self.writer.lock();
        self.execute(&connection, "BEGIN IMMEDIATE", attempts, |mut statements| body(&mut statements))
    }

    fn read(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        let connection = self.reader()?;
        let result =
            self.execute(&connection, "BEGIN", attempts, |statements| body(&mut ReadOnly(statements)));
        self.readers.lock().push(connection);
        result
    }

    fn settle(&self) -> Result<(), Failure> {
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        self.writer.lock().query_row(checkpoint, [], |_| Ok(())).map_err(fatal)
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        BTreeMap::from([("idle_readers".to_owned(), self.readers.lock().len() as u64)])
    }

    fn caveats(&self) -> Vec<&'static str> {
        let mut caveats = vec!["its peak memory includes the pages of the file that it has mapped"];
        if self.options.durability == Durability::Lazy {
            caveats.push("SQLite has no way to keep lazy commits in memory: each one is written into its log, two calls for each page");
        }
        caveats
    }

    fn close(&self) -> Result<(), Failure> {
        self.readers.lock().clear();
        self.settle()
    }
}
