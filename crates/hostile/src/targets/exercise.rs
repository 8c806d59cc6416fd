//! What users do to a database, done to a damaged one: it comes back, with whatever result.

use std::{
    cell::{Cell, RefCell},
    ops::ControlFlow,
};

use foreshore::{
    Database, Direction, Error, Result, Salvage, SalvageSource, TableDefinition, TransactOptions, Transaction,
};
use foreshore_env::{disk::Disk, sync::Arc, time::Duration};
use foreshore_testkit::{CrashMode, FaultyDisk};

use crate::sample::{self, Content, Sample, options};

/// Where a copy is made.
const BACKUP: &str = "/copy";
/// More entries than a table of a sample has.
const MOST_ENTRIES: usize = 100_000;
/// How long a wait may take where nobody waits for anybody.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long where a prepared transaction is left about which nobody can decide: for its locks one would wait in vain.
const IN_VAIN: Duration = Duration::from_millis(20);

/// Saves what can be saved of the database on this disk, opens it, and does to it what users do. Errors are fine, but
/// those that speak of damage where a check has found none: gives what failed. Where a check has found none, all who
/// read must find the same: a copy, what is saved, and those who come after a crash, or another opening.
pub(super) fn exercise(disk: &FaultyDisk) -> Vec<String> {
    let failures = Failures::default();
    let saved = save(disk);
    let database =
        |disk: &FaultyDisk| Database::builder().options(options()).create(false).disk(Arc::new(disk.clone()));
    let Some(db) = failures.note("open", database(disk).open(Sample::directory())) else {
        return failures.into_inner();
    };
    let user = User { patience: decide(&db), db, failures };
    let is_sound = || user.db.verify_within(user.patience).is_ok_and(|report| report.is_sound());
    user.failures.called_sound.set(is_sound());
    let read = user.read_tables();
    user.note("read", read);
    let found = user.content();
    if let (Some(saved), Some(found)) = (&saved, &found) {
        assert!(
            saved == &Ok(found.clone()),
            "what is saved is not what is there: {:?}",
            saved.as_ref().err()
        );
    }
    let backup = user.db.backup(BACKUP);
    if user.failures.note("backup", backup).is_some() {
        let copied = database(disk).open(BACKUP).and_then(|copy| {
            let report = copy.verify_within(decide(&copy))?;
            let called_sound = user.failures.called_sound.get();
            assert!(report.is_sound() || !called_sound, "the copy has {:?}", report.problems.first());
            find_again("a copy", found.as_ref(), &copy)
        });
        user.note("open a backup", copied);
    }
    let plan = user.plan();
    user.note("plan", plan);
    let used = user.use_tables();
    user.note("use", used);
    let left = user.content();
    if left.is_some() {
        let crashed = database(&disk.after_crash(CrashMode::DropUnsynced)).open(Sample::directory());
        let recovered = crashed.and_then(|db| find_again("a crash", left.as_ref(), &db));
        user.note("open after a crash", recovered);
    }
    let verified = user.db.verify_within(user.patience);
    if let Some(report) = user.failures.note("verify", verified) {
        let called_sound = user.failures.called_sound.get();
        assert!(report.is_sound() || !called_sound, "it was sound, and has {:?}", report.problems.first());
    }
    user.look_around();
    let checkpoint = user.db.checkpoint();
    user.note("checkpoint", checkpoint);
    let changed = user.change_file();
    user.note("change the file", changed);
    let left = user.content();
    let closed = user.db.close();
    user.note("close", closed);
    let User { db, failures, .. } = user;
    drop(db);
    let reopened = database(disk).read_only(true).open(Sample::directory());
    if let Some(db) = failures.note("open read-only", reopened) {
        let user = User { patience: IN_VAIN, db, failures };
        let again = find_again("another opening", left.as_ref(), &user.db);
        user.note("read again", again);
        let read = user.read_tables();
        user.note("read what is read-only", read);
        return user.failures.into_inner();
    }
    failures.into_inner()
}

/// Reads what salvage finds; the error says what it calls lost. `None` if it finds nothing at all, or what nobody has
/// decided about.
fn save(disk: &FaultyDisk) -> Option<Result<Content, String>> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let salvage = Salvage::on(&disk, Sample::directory(), |_| ControlFlow::Continue(())).ok()?;
    let (mut content, mut lost) = (Content::new(), Vec::new());
    for table in salvage.tables() {
        let entries = content.entry(table.name.clone()).or_default();
        let rows = salvage.rows(&table, |key, value| {
            entries.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        });
        if !table.lost.is_empty() || !rows.as_ref().is_ok_and(|rows| rows.values_lost.is_empty()) {
            lost.push(format!("{table:?}: {rows:?}"));
        }
    }
    if salvage.source() != SalvageSource::Recovered || salvage.damaged_pages().1 > 0 {
        lost.push(format!("{:?}, {:?}", salvage.failure(), salvage.damaged_pages()));
    }
    (salvage.undecided() == 0).then(|| if lost.is_empty() { Ok(content) } else { Err(lost.join("; ")) })
}

/// What was there is there, in whatever came of the database.
fn find_again(after: &str, content: Option<&Content>, db: &Database) -> Result<()> {
    let Some(content) = content else { return Ok(()) };
    assert!(sample::content(db)? == *content, "after {after} there is something else");
    Ok(())
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

/// What has failed.
#[derive(Default)]
struct Failures {
    texts: RefCell<Vec<String>>,
    /// A check has found nothing: damage that somebody meets later was overlooked.
    called_sound: Cell<bool>,
}

impl Failures {
    fn note<R>(&self, what: &str, result: Result<R>) -> Option<R> {
        let failed = |error: Error| {
            let is_wrong = self.called_sound.get() && speaks_of_damage(&error);
            assert!(!is_wrong, "called sound; {what}: {error}");
            self.texts.borrow_mut().push(format!("{what}: {error}"));
        };
        result.map_err(failed).ok()
    }

    fn into_inner(self) -> Vec<String> {
        self.texts.into_inner()
    }
}

fn speaks_of_damage(error: &Error) -> bool {
    match error {
        Error::Corrupted { .. } | Error::Poisoned { .. } => true,
        Error::OutcomeUnknown { cause } | Error::RetriesExhausted { last: cause, .. } => {
            speaks_of_damage(cause)
        }
        _ => false,
    }
}

struct User {
    db: Database,
    patience: Duration,
    failures: Failures,
}

/// Keys of which samples have some.
const NUMBERS: [u64; 5] = [0, 41, 60, 300, u64::MAX];

impl User {
    fn note<R>(&self, what: &str, result: Result<R>) {
        self.failures.note(what, result);
    }

    fn options(&self) -> TransactOptions {
        TransactOptions { deadline: Some(self.patience), ..TransactOptions::default() }
    }

    /// Everything, where a check has found nothing, and nobody holds locks.
    fn content(&self) -> Option<Content> {
        let is_asked = self.failures.called_sound.get() && self.patience == PATIENCE;
        is_asked.then(|| self.failures.note("read all", sample::content(&self.db))).flatten()
    }

    /// Reads, without locks where it can.
    fn read_tables(&self) -> Result<()> {
        let options = self.options();
        for table in self.db.tables()? {
            let definition = TableDefinition::encoded(&table.name);
            let scan = |direction| {
                self.db.read_with(&options, |tx| {
                    let mut found = Vec::new();
                    tx.scan(definition, .., direction, |key, value| {
                        found.push((key.to_vec(), value.to_vec()));
                        assert!(found.len() < MOST_ENTRIES, "a scan of {} does not end", table.name);
                        ControlFlow::Continue(())
                    })?;
                    Ok(found)
                })
            };
            let up = self.failures.note("scan", scan(Direction::Ascending));
            let down = self.failures.note("scan", scan(Direction::Descending));
            if let (true, Some(up), Some(down)) = (self.failures.called_sound.get(), up, down) {
                assert!(up.iter().eq(down.iter().rev()), "{} is another one from the other end", table.name);
                assert!(up.is_sorted_by(|one, next| one.0 < next.0), "{} is in no order", table.name);
            }
            let keys = NUMBERS.map(u64::to_be_bytes);
            let keys = || keys.iter().map(<[u8; 8]>::as_slice);
            let got = self.db.read_with(&options, |tx| {
                keys().try_for_each(|key| tx.get(definition, key).map(drop))?;
                tx.first(definition)?;
                tx.last(definition)?;
                keys().try_for_each(|key| tx.contains_key(definition, key).map(drop))?;
                let mut cursor = tx.cursor(definition, .., Direction::Ascending)?;
                for _ in 0..MOST_ENTRIES {
                    if cursor.next_key_encoded(tx)?.is_none() {
                        break;
                    }
                }
                tx.get_many(definition, keys())
            });
            self.note("read without locks", got);
        }
        Ok(())
    }

    /// Changes of many kinds in one transaction, whose locks are found out by reconnaissance, here and on another
    /// thread.
    fn plan(&self) -> Result<()> {
        for table in self.db.tables()? {
            let plan = || self.db.plan().options(self.options()).by_reconnaissance();
            let planned = plan().run(|tx| change(tx, &table.name));
            self.note("run a plan", planned);
            let submitted = plan().submit(move |tx| change(tx, &table.name))?.wait();
            self.note("submit a plan", submitted);
        }
        Ok(())
    }

    fn use_tables(&self) -> Result<()> {
        let created = self.db.create_table("made anew", "bytes", "bytes");
        self.note("create a table", created);
        for table in self.db.tables()? {
            let definition = TableDefinition::encoded(&table.name);
            for direction in [Direction::Ascending, Direction::Descending] {
                let walked = self.run(|tx| {
                    let mut cursor = tx.cursor(definition, .., direction)?;
                    // A loop among pages is damage that must be found.
                    for _ in 0..MOST_ENTRIES {
                        if cursor.next_encoded(tx)?.is_none() {
                            return Ok(());
                        }
                    }
                    panic!("a scan of {} does not end", table.name);
                });
                self.note("walk", walked);
            }
            for number in NUMBERS {
                let key = number.to_be_bytes();
                let got = self.run(|tx| tx.get(definition, key.as_slice()));
                self.note("get", got);
                let put = self.run(|tx| tx.put(definition, key.as_slice(), &[number as u8; 1000][..]));
                self.note("put", put);
                let deleted = self.run(|tx| tx.delete(definition, key.as_slice()));
                self.note("delete", deleted);
                let long = self.run(|tx| tx.put(definition, key.as_slice(), &[7; 5000][..]));
                self.note("put a long value", long);
            }
            let _ = self.run(|tx| {
                tx.put(definition, &b"to be rolled back"[..], &b"value"[..])?;
                Err::<(), _>(Error::application("rolled back"))
            });
            let behind: Vec<_> = (0..20_u8).map(|number| [&[0xFF; 9][..], &[number]].concat()).collect();
            let appended = self
                .run(|tx| tx.append(definition, behind.iter().map(|key| (key.as_slice(), &[3; 600][..]))));
            self.note("append", appended);
            let removed = self.run(|tx| tx.remove_range(definition, ..));
            self.note("remove a range", removed);
        }
        Ok(())
    }

    /// What whoever watches asks for.
    fn look_around(&self) {
        let texts = [self.db.locks().to_string(), self.db.waits_for().to_dot()];
        let _ = (texts, self.db.stats(), self.db.log_retention());
        let flushed = self.db.flush();
        self.note("flush", flushed);
    }

    /// Drops every other table, gives one that is left another name, and moves what is left to the front of the file.
    fn change_file(&self) -> Result<()> {
        for table in self.db.tables()?.iter().step_by(2) {
            let dropped = self.db.drop_table_within(&table.name, self.patience);
            self.note("drop", dropped);
        }
        if let Some(table) = self.db.tables()?.first() {
            let renamed = self.db.rename_table_within(&table.name, "renamed", self.patience);
            self.note("rename", renamed);
        }
        self.db.compact().map(drop)
    }

    fn run<R>(&self, body: impl FnMut(&mut Transaction) -> Result<R>) -> Result<R> {
        self.db.transact_with(&self.options(), body)
    }
}

/// Some of it is taken back.
fn change(tx: &mut Transaction, table: &str) -> Result<()> {
    let definition = TableDefinition::encoded(table);
    for number in NUMBERS {
        let key = number.to_be_bytes();
        tx.get_for_update(definition, key.as_slice())?;
        tx.put(definition, key.as_slice(), &[1; 3000][..])?;
    }
    let here = tx.savepoint()?;
    tx.delete(definition, &NUMBERS[1].to_be_bytes()[..])?;
    tx.remove_range(definition, &[0; 8][..]..&[9; 8][..])?;
    tx.rollback_to(here)
}

#[cfg(test)]
mod tests {
    use super::exercise;
    use crate::sample::Sample;

    /// What fails there is never tried, whatever the damage.
    #[test]
    fn all_of_it_is_done_to_a_sound_database() {
        for sample in [Sample::closed(), Sample::crashed(), Sample::of_many_kinds()] {
            assert_eq!(exercise(&sample.copy()), [""; 0], "{}", sample.name);
        }
    }
}
