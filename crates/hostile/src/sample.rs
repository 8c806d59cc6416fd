//! Small databases that have everything: several tables of several levels, long values, ghosts, and a tail of the log
//! that no checkpoint has covered.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use foreshore::{Database, Error, Options, Result, TableDefinition, TransactOptions, Transaction};
use foreshore_env::sync::Arc;
use foreshore_testkit::{CrashMode, FaultyDisk};

/// Bytes of a page, as the format has it.
pub const PAGE_BYTES: usize = 8192;

/// All entries of all tables, as encoded bytes.
pub type Content = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// A table whose few records fill several leaves.
const ACCOUNTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("accounts");
/// A table with long common prefixes.
const NAMES: TableDefinition<'_, &str, u64> = TableDefinition::new("names");
/// A table of values that lie in the overflow table.
const LONG: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("long");
/// A table that is made after the last checkpoint.
const LATE: TableDefinition<'_, (), u32> = TableDefinition::new("late");

/// A database at rest.
#[derive(Clone, Debug)]
pub struct Sample {
    /// What it is called in messages.
    pub name: &'static str,
    /// The disk that it lies on; opening it there would change it.
    pub disk: FaultyDisk,
    /// What it may contain: in order of time, the last one if nothing is damaged. A crash right after a commit leaves
    /// nothing that would prove that this commit's records were ever durable (WAL-7), so damage there may cost it, and
    /// it alone.
    pub states: Vec<Content>,
}

/// How samples are made and opened: as small as they can be, because each case opens one.
pub fn options() -> Options {
    Options {
        pool_bytes: 1 << 20,
        log_bytes: 2 << 20,
        log_segment_bytes: 256 << 10,
        log_buffer_bytes: 256 << 10,
        lock_buckets: 64,
        read_ahead: 0,
        ..Options::default()
    }
}

impl Sample {
    /// Where a sample's database lies on its disk.
    pub fn directory() -> &'static Path {
        Path::new("/db")
    }

    /// One of its files.
    pub fn file(name: &str) -> PathBuf {
        Sample::directory().join(name)
    }

    /// A database that was closed in good order.
    pub fn closed() -> Sample {
        let (disk, db) = made();
        fill(&db).expect("a sound disk");
        let states = vec![content(&db).expect("a sound database")];
        db.close().expect("a sound disk");
        Sample { name: "closed", disk: disk.after_crash(CrashMode::DropUnsynced), states }
    }

    /// A database whose process died: behind its last checkpoint the log has commits of all kinds, a table that was
    /// made, and the changes of a transaction that was never committed.
    pub fn crashed() -> Sample {
        let (disk, db) = made();
        fill(&db).expect("a sound disk");
        db.checkpoint().expect("a sound disk");
        change(&db).expect("a sound disk");
        let before = content(&db).expect("a sound database");
        let mut open = db.begin().expect("a place for a transaction");
        open.put(ACCOUNTS, 7, &b"never committed"[..]).expect("a sound disk");
        open.put(ACCOUNTS, 500, &[9; 200][..]).expect("a sound disk");
        open.delete(NAMES, "a long common prefix of names 003").expect("a sound disk");
        db.transact(|tx| tx.put(LONG, 99, &[1; 2500][..])).expect("a sound disk");
        let left = disk.after_crash(CrashMode::KeepAll);
        // Only this sample's own reading decides what is in it: no promise is made to whoever reads without locks.
        drop(open);
        let states = vec![before, content(&db).expect("a sound database")];
        Sample { name: "crashed", disk: left, states }
    }

    /// A database whose process died during a compaction, and whose log has records of nearly all kinds: appends with
    /// one that was taken back, nodes that were merged, moved and freed, two transactions that are prepared, and one
    /// that was never committed. Its one state is what is there when both prepared ones are rolled back.
    pub fn of_many_kinds() -> Sample {
        let (disk, db) = made();
        let _undecided = eventful(&db).expect("a sound disk");
        let mut left = None;
        let compacted = db.compact_with(|report| {
            if report.pages_moved > 0 && left.is_none() {
                // A commit, so that what was moved is in the file of the log.
                db.transact(|tx| tx.put(ROWS, 999_999, &[1; 50][..])).expect("a sound disk");
                left = Some(disk.after_crash(CrashMode::KeepAll));
            }
            ControlFlow::Continue(())
        });
        compacted.expect("a sound disk");
        let left = left.expect("pages that can be moved");
        let rolled_back = {
            let disk = left.after_crash(CrashMode::KeepAll);
            let database = Database::builder().options(options()).disk(Arc::new(disk));
            let db = database.open(Sample::directory()).expect("a sound database");
            GLOBAL_IDS.iter().for_each(|id| db.rollback_prepared(id).expect("a prepared transaction"));
            content(&db).expect("a sound database")
        };
        Sample { name: "of many kinds", disk: left, states: vec![rolled_back] }
    }

    /// A copy of its disk, to be damaged.
    pub fn copy(&self) -> FaultyDisk {
        let disk = self.disk.after_crash(CrashMode::KeepAll);
        // What damage lets grow shall not fill the memory.
        disk.set_free_space(Some(64 << 20));
        disk
    }
}

fn made() -> (FaultyDisk, Database) {
    let disk = FaultyDisk::new();
    let db = Database::builder().options(options()).disk(Arc::new(disk.clone())).open(Sample::directory());
    (disk, db.expect("an empty disk"))
}

fn fill(db: &Database) -> Result<()> {
    db.transact(|tx| {
        for key in 0..120 {
            tx.put(ACCOUNTS, key, &account(key, 90)[..])?;
        }
        for number in 0..150 {
            tx.put(NAMES, &*name(number), number)?;
        }
        for number in 0..3 {
            tx.put(LONG, number, &account(u64::from(number), 2000 + 1500 * number as usize)[..])?;
        }
        Ok(())
    })?;
    // Ghosts, and a rollback that has left compensations.
    db.transact(|tx| {
        for key in (10..40).step_by(3) {
            tx.delete(ACCOUNTS, key)?;
        }
        let here = tx.savepoint()?;
        tx.put(ACCOUNTS, 41, &b"taken back"[..])?;
        tx.rollback_to(here)
    })
}

fn change(db: &Database) -> Result<()> {
    db.transact(|tx| (40..60).try_for_each(|key| put(tx, key, 95)))?;
    db.transact(|tx| (200..240).try_for_each(|key| put(tx, key, 120)))?;
    db.transact(|tx| tx.delete(ACCOUNTS, 50).map(drop))?;
    db.transact(|tx| tx.put(LONG, 1, &[3; 4000][..]).map(drop))?;
    db.transact(|tx| tx.delete(LONG, 2).map(drop))?;
    db.transact(|tx| tx.put(LATE, (), 17).map(drop))
}

/// The prepared transactions of [`Sample::of_many_kinds`].
const GLOBAL_IDS: [&str; 2] = ["one", "two"];
/// A table that grows at its end.
const ROWS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");
/// A table that is dropped.
const DROPPED: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("dropped");

/// Gives the transaction that is open at the end.
fn eventful(db: &Database) -> Result<Transaction> {
    db.transact(|tx| {
        for key in 0..300 {
            put(tx, key, 200)?;
            tx.put(DROPPED, key, &account(key, 1500)[..])?;
        }
        tx.put(DROPPED, 1000, &[5; 9000][..]).map(drop)
    })?;
    db.checkpoint()?;
    let rows = |keys: std::ops::Range<u64>| keys.map(|key| (key, &[7_u8; 100][..]));
    db.transact(|tx| tx.append(ROWS, rows(0..200)).map(drop))?;
    let taken_back = db.transact(|tx| {
        tx.append(ROWS, rows(1000..1100))?;
        Err::<(), _>(Error::application("taken back"))
    });
    assert!(taken_back.is_err());
    db.transact(|tx| (50..250).try_for_each(|key| tx.delete(ACCOUNTS, key).map(drop)))?;
    db.drop_table("dropped")?;
    for (number, id) in (5..).zip(GLOBAL_IDS) {
        let mut tx = db.begin()?;
        (0..20).try_for_each(|key| put(&mut tx, 1000 * number + key, 100))?;
        tx.put(ROWS, 1000 * number, &[3; 7000][..])?;
        tx.prepare(id)?;
    }
    let mut open = db.begin()?;
    for key in 0..20 {
        open.put(ACCOUNTS, key, &b"short"[..])?;
    }
    open.put(ACCOUNTS, 77_777, &[1; 6000][..])?;
    let here = open.savepoint()?;
    open.put(ACCOUNTS, 8, &b"longer than that by some bytes"[..])?;
    open.delete(ACCOUNTS, 9)?;
    open.rollback_to(here)?;
    Ok(open)
}

fn put(tx: &mut Transaction, key: u64, length: usize) -> Result<()> {
    tx.put(ACCOUNTS, key, &account(key, length)[..]).map(drop)
}

fn account(key: u64, length: usize) -> Vec<u8> {
    key.to_le_bytes().into_iter().cycle().take(length).collect()
}

fn name(number: u64) -> String {
    format!("a long common prefix of names {number:03}")
}

/// Everything that is in a database, read in one transaction.
pub(crate) fn content(db: &Database) -> Result<Content> {
    let tables = db.tables()?;
    db.transact_with(&TransactOptions::default(), |tx| {
        let mut content = Content::new();
        for table in &tables {
            let entries = content.entry(table.name.clone()).or_default();
            let definition = TableDefinition::encoded(&table.name);
            for entry in tx.range(definition, ..)? {
                let (key, value) = entry?;
                entries.insert(key, value);
            }
        }
        Ok(content)
    })
}
