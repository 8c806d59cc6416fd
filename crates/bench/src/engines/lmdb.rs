//! LMDB: a copy-on-write B-tree in a memory map, one writer at a time, readers of snapshots beside it. So every outcome
//! is that of a serial order.

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow},
};

use heed::{
    Database, Env, EnvFlags, EnvOpenOptions, Error, MdbError, PutFlags, RoTxn, RwTxn, WithTls, types::Bytes,
};

use super::{
    Durability, EngineOptions,
    btreemap::is_empty_range,
    rival::{ReadOnly, Settings, fatal},
};
use crate::{
    BenchError,
    engine::{Attempts, Body, Engine, EngineTxn, Failure, Order, Outcome, Reader, TableIndex, Visit},
    row::KeyBytes,
};

/// Address space for the map if nothing else is said; the file grows only as it is written.
const MAP_BYTES: usize = 64 << 30;
/// Threads that may read at the same time: as many as a run may have, and the main thread.
const MAX_READERS: u32 = 1100;

type Table = Database<Bytes, Bytes>;

/// See the module.
#[derive(Debug)]
pub struct LmdbEngine {
    env: Env<WithTls>,
    tables: Vec<Table>,
    durability: Durability,
}

impl LmdbEngine {
    /// Opens the environment in the directory of `options`, or makes it there, and makes the tables that it lacks.
    /// Options: `map_bytes`, `write_map` (`false` or `true`); `cache_bytes` is accepted and means nothing, because the
    /// system's page cache is all the cache that it has.
    pub fn open(tables: &[String], options: &EngineOptions) -> Result<LmdbEngine, BenchError> {
        let mut settings = Settings::new("lmdb", options)?;
        settings.cache_bytes()?;
        let map_bytes = settings.bytes("map_bytes", MAP_BYTES)?;
        let mut flags =
            settings.choice("write_map", &[("false", EnvFlags::empty()), ("true", EnvFlags::WRITE_MAP)])?;
        settings.finish()?;
        if options.durability == Durability::Lazy {
            flags |= EnvFlags::NO_SYNC;
        }
        super::make_directory(&options.directory)?;
        let mut open = EnvOpenOptions::new();
        open.map_size(map_bytes).max_readers(MAX_READERS).max_dbs(tables.len().max(1) as u32);
        // SAFETY: NO_SYNC risks the file when the machine fails, WRITE_MAP exposes the map to stray writes, of which
        // this program has none; no flag that weakens the locking is given.
        unsafe { open.flags(flags) };
        // SAFETY: the directory belongs to this run alone, so nobody changes the mapped file behind LMDB's back.
        let env = unsafe { open.open(&options.directory) }.map_err(fatal)?;
        let mut txn = env.write_txn().map_err(fatal)?;
        let tables = tables
            .iter()
            .map(|name| env.create_database(&mut txn, Some(name)).map_err(fatal))
            .collect::<Result<_, _>>()?;
        txn.commit().map_err(fatal)?;
        Ok(LmdbEngine { env, tables, durability: options.durability })
    }
}

fn table(tables: &[Table], table: TableIndex) -> Result<&Table, Failure> {
    tables.get(usize::from(table.0)).ok_or_else(|| Failure::no_table(table))
}

fn get(table: &Table, txn: &RoTxn<'_>, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
    let found = table.get(txn, key).map_err(fatal)?;
    if let Some(found) = found {
        value.clear();
        value.extend_from_slice(found);
    }
    Ok(found.is_some())
}

fn scan(
    table: &Table,
    txn: &RoTxn<'_>,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    order: Order,
    visit: &mut Visit<'_>,
) -> Result<(), Failure> {
    // It knows no empty key, and refuses one as a bound.
    let low = match range.0 {
        Bound::Included([]) | Bound::Excluded([]) => Bound::Unbounded,
        low => low,
    };
    if is_empty_range(low, range.1) || matches!(range.1, Bound::Included([]) | Bound::Excluded([])) {
        return Ok(());
    }
    let range = (low, range.1);
    let mut visit = |record: Result<(&[u8], &[u8]), Error>| -> Result<bool, Failure> {
        let (key, value) = record.map_err(fatal)?;
        Ok(visit(key, value) == ControlFlow::Continue(()))
    };
    match order {
        Order::Ascending => {
            for record in table.range(txn, &range).map_err(fatal)? {
                if !visit(record)? {
                    break;
                }
            }
        }
        Order::Descending => {
            for record in table.rev_range(txn, &range).map_err(fatal)? {
                if !visit(record)? {
                    break;
                }
            }
        }
    }
    Ok(())
}

struct Reading<'t> {
    txn: RoTxn<'t, WithTls>,
    tables: &'t [Table],
}

impl Reader for Reading<'_> {
    fn get(&mut self, index: TableIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        get(table(self.tables, index)?, &self.txn, key, value)
    }

    fn scan(
        &mut self,
        index: TableIndex,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        scan(table(self.tables, index)?, &self.txn, range, order, visit)
    }
}

/// A transaction of the one writer; undone when it is dropped before it commits.
struct Writing<'t> {
    txn: RwTxn<'t>,
    tables: &'t [Table],
}

impl Reader for Writing<'_> {
    fn get(&mut self, index: TableIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        get(table(self.tables, index)?, &self.txn, key, value)
    }

    fn scan(
        &mut self,
        index: TableIndex,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        scan(table(self.tables, index)?, &self.txn, range, order, visit)
    }
}

impl EngineTxn for Writing<'_> {
    fn insert(&mut self, index: TableIndex, key: &[u8], value: &[u8]) -> Result<bool, Failure> {
        match table(self.tables, index)?.put_with_flags(&mut self.txn, PutFlags::NO_OVERWRITE, key, value) {
            Ok(()) => Ok(true),
            Err(Error::Mdb(MdbError::KeyExist)) => Ok(false),
            Err(error) => Err(fatal(error)),
        }
    }

    fn append(&mut self, index: TableIndex, keys: &[KeyBytes], value: &[u8]) -> Result<bool, Failure> {
        let table = table(self.tables, index)?;
        for (number, key) in keys.iter().enumerate() {
            match table.put_with_flags(&mut self.txn, PutFlags::APPEND, key, value) {
                Ok(()) => {}
                Err(Error::Mdb(MdbError::KeyExist)) if number == 0 => return Ok(false),
                Err(error) => return Err(fatal(error)),
            }
        }
        Ok(true)
    }

    fn put(&mut self, index: TableIndex, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        table(self.tables, index)?.put(&mut self.txn, key, value).map_err(fatal)
    }

    fn delete(&mut self, index: TableIndex, key: &[u8]) -> Result<bool, Failure> {
        table(self.tables, index)?.delete(&mut self.txn, key).map_err(fatal)
    }
}

impl Engine for LmdbEngine {
    fn name(&self) -> &'static str {
        "lmdb"
    }

    fn transact(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        let mut writing = Writing { txn: self.env.write_txn().map_err(fatal)?, tables: &self.tables };
        match body(&mut writing) {
            Ok(()) => writing.txn.commit().map(|()| Outcome::Committed).map_err(fatal),
            stopped => attempts.ended(stopped),
        }
    }

    fn read(&self, attempts: &mut Attempts, body: &mut Body<'_>) -> Result<Outcome, Failure> {
        let txn = self.env.read_txn().map_err(fatal)?;
        attempts.ended(body(&mut ReadOnly(Reading { txn, tables: &self.tables })))
    }

    fn settle(&self) -> Result<(), Failure> {
        self.env.force_sync().map_err(fatal)
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        let info = self.env.info();
        BTreeMap::from([
            ("file_bytes".to_owned(), self.env.real_disk_size().unwrap_or(0)),
            ("last_transaction".to_owned(), info.last_txn_id as u64),
        ])
    }

    fn caveats(&self) -> Vec<&'static str> {
        let mut caveats = vec!["its peak memory includes the pages of the file that it has mapped"];
        let maps = matches!(self.env.flags(), Ok(Some(flags)) if flags.contains(EnvFlags::WRITE_MAP));
        if maps {
            caveats.push("with write_map=true: a stray pointer of the program can damage the map, and with it the file");
        }
        if self.durability == Durability::Lazy {
            caveats.push("LMDB has no log: when the machine fails, NOSYNC may leave a damaged file behind, not an older state");
            if !maps {
                caveats.push("without write_map=true, with which its commits write nothing and are several times as fast");
            }
        }
        caveats
    }
}
