//! What a damaged database may answer: an error that names damage, or what was put into it.

use std::collections::BTreeMap;

use foreshore::{Database, Direction, Error, TableDefinition, TransactOptions};
use foreshore_env::{sync::Arc, time::Duration};
use foreshore_testkit::FaultyDisk;

use crate::sample::{Content, Sample, options};

/// How a case ended that broke no promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was not opened.
    Refused,
    /// It was opened, and some of it could not be read or written; what was read was right.
    Partly,
    /// Everything was there, and could be changed.
    Sound,
}

/// Whether an error is one that damage may lead to.
fn speaks_of_damage(error: &Error) -> bool {
    match error {
        Error::Corrupted { .. }
        | Error::NotADatabase { .. }
        // An operation found damage while it was being taken back.
        | Error::Poisoned { .. } => true,
        // The control file alone says this without a right checksum: another format may have another one.
        Error::UpgradeRequired { path, .. } => path.ends_with("control"),
        Error::OutcomeUnknown { cause } | Error::RetriesExhausted { last: cause, .. } => speaks_of_damage(cause),
        _ => false,
    }
}

/// One reading of a database: what is known of its content, and whether anything could not be read.
struct Reading<'s> {
    db: &'s Database,
    /// The contents that fit all that was read.
    candidates: Vec<&'s Content>,
    complete: bool,
}

/// Opens the database on `disk`, which is damaged, reads everything in three ways, checks and changes it, and reads it
/// again after it was closed and opened. Its content must be one of `states`, as far as it can be read; `read_only`
/// opens it so, and changes nothing.
///
/// # Errors
/// The promise that was broken, in words.
pub fn judge(disk: &FaultyDisk, states: &[Content], read_only: bool) -> Result<Verdict, String> {
    let db = match open(disk, read_only)? {
        Ok(db) => db,
        Err(_damage) => return Ok(Verdict::Refused),
    };
    let (candidates, complete) = read(&db, states.iter().collect())?;
    let sound = match db.verify_within(PATIENCE) {
        Ok(report) => report.is_sound(),
        Err(error) => accept(&error).map(|()| false)?,
    };
    if read_only {
        return Ok(if complete && sound { Verdict::Sound } else { Verdict::Partly });
    }
    let written = change(&db, &candidates)?;
    let closed = db.close().or_else(|error| accept(&error)).map(|()| drop(db));
    closed?;
    let again = match open(disk, false)? {
        Ok(db) => db,
        // What could be read a moment ago may be refused now: the pages in question were in use, or are now.
        Err(_damage) if !complete || !sound => return Ok(Verdict::Partly),
        Err(damage) => return Err(format!("a database that seemed sound was not opened again: {damage}")),
    };
    let (_, complete_again) = read(&again, written.iter().collect())?;
    Ok(if complete && sound && complete_again { Verdict::Sound } else { Verdict::Partly })
}

/// How long any wait for a lock may take; nobody holds any.
const PATIENCE: Duration = Duration::from_secs(10);

fn accept(error: &Error) -> Result<(), String> {
    if speaks_of_damage(error) { Ok(()) } else { Err(format!("{}: {error}", error.code())) }
}

/// Opens; the inner error is one that damage may lead to.
fn open(disk: &FaultyDisk, read_only: bool) -> Result<Result<Database, Error>, String> {
    let builder = Database::builder().options(options()).create(false).read_only(read_only);
    match builder.disk(Arc::new(disk.clone())).open(Sample::directory()) {
        Ok(db) => Ok(Ok(db)),
        Err(error) => accept(&error).map(|()| Err(error)).map_err(|error| format!("opening: {error}")),
    }
}

/// Reads everything; which contents fit, and whether all of it could be read.
fn read<'s>(db: &'s Database, candidates: Vec<&'s Content>) -> Result<(Vec<Content>, bool), String> {
    let mut reading = Reading { db, candidates, complete: true };
    match db.tables() {
        Ok(tables) => {
            let names: Vec<_> = tables.into_iter().map(|table| table.name).collect();
            reading.keep("the list of tables", |content| content.keys().eq(&names))?;
            for name in &names {
                reading.scan(name, Direction::Ascending)?;
                reading.scan(name, Direction::Descending)?;
                reading.look_up(name)?;
            }
        }
        Err(error) => reading.stop(&error)?,
    }
    Ok((reading.candidates.into_iter().cloned().collect(), reading.complete))
}

impl Reading<'_> {
    /// Only contents that fit what was read are left; there must be one.
    fn keep(&mut self, what: &str, fits: impl Fn(&Content) -> bool) -> Result<(), String> {
        self.candidates.retain(|content| fits(content));
        if self.candidates.is_empty() { Err(format!("wrong data: {what}")) } else { Ok(()) }
    }

    fn stop(&mut self, error: &Error) -> Result<(), String> {
        self.complete = false;
        accept(error)
    }

    /// What a scan gives before it fails, if it does, must be the beginning of the table.
    fn scan(&mut self, name: &str, direction: Direction) -> Result<(), String> {
        let mut entries = Vec::new();
        let scanned = self.db.transact_with(&patient(), |tx| {
            entries.clear();
            let mut cursor = tx.cursor(TableDefinition::encoded(name), .., direction)?;
            while let Some((key, value)) = cursor.next_encoded(tx)? {
                entries.push((key.to_vec(), value.to_vec()));
            }
            Ok(())
        });
        let ended = scanned.is_ok();
        if let Err(error) = scanned {
            self.stop(&error)?;
        }
        self.keep(&format!("a scan of {name}"), |content| {
            let Some(table) = content.get(name) else { return false };
            let found = entries.iter().map(|(key, value)| (key, value));
            let same = match direction {
                Direction::Ascending => found.eq(table.iter().take(entries.len())),
                Direction::Descending => found.eq(table.iter().rev().take(entries.len())),
            };
            same && (!ended || entries.len() == table.len())
        })
    }

    /// Some keys that are there, and neighbours of theirs that are not, one by one.
    fn look_up(&mut self, name: &str) -> Result<(), String> {
        let mut keys: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        for table in self.candidates.iter().filter_map(|content| content.get(name)) {
            for key in table.keys().step_by(7) {
                keys.insert(key.clone(), None);
                keys.insert([key, &[0][..]].concat(), None);
            }
        }
        for (key, found) in &mut keys {
            let read = self
                .db
                .transact_with(&patient(), |tx| tx.get(TableDefinition::encoded(name), key.as_slice()));
            match read {
                Ok(value) => *found = value,
                Err(error) => {
                    self.stop(&error)?;
                    continue;
                }
            }
            self.candidates
                .retain(|content| content.get(name).and_then(|table| table.get(key)) == found.as_ref());
            if self.candidates.is_empty() {
                return Err(format!("wrong data: key {key:?} of {name}"));
            }
        }
        Ok(())
    }
}

/// A key that no sample has.
const NEW_KEY: [u8; 8] = [0x11; 8];

/// Changes the database; what it may contain then.
fn change(db: &Database, candidates: &[Content]) -> Result<Vec<Content>, String> {
    let mut possible = candidates.to_vec();
    for name in candidates.iter().flat_map(Content::keys).collect::<std::collections::BTreeSet<_>>() {
        let value = vec![5; 3000];
        let written = db.transact_with(&patient(), |tx| {
            let table = TableDefinition::encoded(name);
            tx.put(table, NEW_KEY.as_slice(), &value[..])?;
            let first = tx.first(table)?;
            Ok(first.is_some())
        });
        let changed = possible.iter().filter(|content| content.contains_key(name)).map(|content| {
            let mut content = content.clone();
            content.entry(name.clone()).or_default().insert(NEW_KEY.to_vec(), value.clone());
            content
        });
        let changed: Vec<_> = changed.collect();
        match written {
            Ok(_) => possible = changed,
            Err(error @ (Error::OutcomeUnknown { .. } | Error::Poisoned { .. })) => {
                accept(&error)?;
                possible.extend(changed);
            }
            Err(Error::NoSuchTable { .. }) => {}
            Err(error) => accept(&error).map_err(|error| format!("writing to {name}: {error}"))?,
        }
    }
    Ok(possible)
}

fn patient() -> TransactOptions {
    TransactOptions { deadline: Some(PATIENCE), ..TransactOptions::default() }
}
