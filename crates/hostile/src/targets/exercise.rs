//! What users do to a database, done to a damaged one: it comes back, with whatever result.

use std::ops::ControlFlow;

use foreshore::{Database, Direction, Error, Result, Salvage, TableDefinition, TransactOptions};
use foreshore_env::{disk::Disk, sync::Arc, time::Duration};
use foreshore_testkit::FaultyDisk;

use crate::sample::{Sample, options};

/// How long a wait may take where nobody waits for anybody.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long where a prepared transaction is left about which nobody can decide: for its locks one would wait in vain.
const IN_VAIN: Duration = Duration::from_millis(20);

/// Saves what can be saved of the database on this disk, opens it, and does to it what users do. Errors are fine.
pub(super) fn exercise(disk: &FaultyDisk) {
    save(disk);
    let database = || Database::builder().options(options()).create(false).disk(Arc::new(disk.clone()));
    let Ok(db) = database().open(Sample::directory()) else { return };
    let user = User { patience: decide(&db), db };
    let _ = user.use_tables();
    let _ = user.db.verify_within(user.patience);
    let _ = user.db.checkpoint();
    let _ = user.change_file();
    let _ = user.db.close();
    drop(user);
    let _ = database().read_only(true).open(Sample::directory());
}

/// Reads what salvage finds.
fn save(disk: &FaultyDisk) {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let Ok(salvage) = Salvage::on(&disk, Sample::directory(), |_, _| {}) else { return };
    for table in salvage.tables() {
        let _ = salvage.rows(&table, |_, _| ControlFlow::Continue(()));
    }
}

/// Commits one prepared transaction, rolls the next one back, and so on; how long waits may take after that.
fn decide(db: &Database) -> Duration {
    for (number, prepared) in db.prepared().unwrap_or_default().into_iter().enumerate() {
        let id = &prepared.global_id;
        let _ = if number.is_multiple_of(2) { db.commit_prepared(id) } else { db.rollback_prepared(id) };
    }
    let is_left = db.prepared().is_ok_and(|left| !left.is_empty());
    if is_left { IN_VAIN } else { PATIENCE }
}

struct User {
    db: Database,
    patience: Duration,
}

impl User {
    fn use_tables(&self) -> Result<()> {
        for table in self.db.tables()? {
            let definition = TableDefinition::encoded(&table.name);
            for direction in [Direction::Ascending, Direction::Descending] {
                let _ = self.run(|tx| {
                    let mut cursor = tx.cursor(definition, .., direction)?;
                    // A loop among pages is damage that must be found; a table of a sample has no thousand entries.
                    for _ in 0..100_000 {
                        if cursor.next_encoded(tx)?.is_none() {
                            return Ok(());
                        }
                    }
                    panic!("a scan of {} does not end", table.name);
                });
            }
            for number in [0_u64, 41, 60, 300, u64::MAX] {
                let key = number.to_be_bytes();
                let _ = self.run(|tx| tx.get(definition, key.as_slice()));
                let _ = self.run(|tx| tx.put(definition, key.as_slice(), &[number as u8; 1000][..]));
                let _ = self.run(|tx| tx.delete(definition, key.as_slice()));
                let _ = self.run(|tx| tx.put(definition, key.as_slice(), &[7; 5000][..]));
            }
            let _ = self.run(|tx| {
                tx.put(definition, &b"to be rolled back"[..], &b"value"[..])?;
                Err::<(), _>(Error::application("rolled back"))
            });
            let behind: Vec<_> = (0..20_u8).map(|number| [&[0xFF; 9][..], &[number]].concat()).collect();
            let _ = self
                .run(|tx| tx.append(definition, behind.iter().map(|key| (key.as_slice(), &[3; 600][..]))));
            let _ = self.run(|tx| tx.remove_range(definition, ..));
        }
        Ok(())
    }

    /// Drops every other table, and moves what is left to the front of the file.
    fn change_file(&self) -> Result<()> {
        for table in self.db.tables()?.iter().step_by(2) {
            let _ = self.db.drop_table_within(&table.name, self.patience);
        }
        self.db.compact().map(drop)
    }

    fn run<R>(&self, body: impl FnMut(&mut foreshore::Transaction) -> Result<R>) -> Result<R> {
        let options = TransactOptions { deadline: Some(self.patience), ..TransactOptions::default() };
        self.db.transact_with(&options, body)
    }
}
