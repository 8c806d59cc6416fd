//! Where entries go: into the database, a batch at a time. Database and table are made when there is something to put
//! into them, or the end was reached, so that an input that is refused makes neither.

use std::collections::BTreeSet;

use foreshore::{
    Database, Durability, Error, TableDefinition, TransactOptions,
    limits::{MAX_KEY_BYTES, MAX_TABLE_NAME_BYTES, MAX_TABLE_TYPES_BYTES, MAX_VALUE_BYTES},
};

use crate::{dump::cell::Kind, output::CliError, prepared::in_its_way, verify::PATIENCE};

/// The bytes of a batch's entries at which it is committed, however few they are.
const MOST_BATCH_BYTES: usize = 4 << 20;

/// Opens a database, or makes it.
type Open<'o> = Box<dyn FnMut() -> foreshore::Result<Database> + 'o>;

/// Collects entries and writes them in batches.
pub(crate) struct Sink<'o> {
    open: Open<'o>,
    db: Option<Database>,
    options: TransactOptions,
    batch_entries: usize,
    replace: bool,
    table: String,
    /// What its keys are, for people.
    keys: Kind,
    /// The types of the table, if it may have to be made.
    types: Option<[String; 2]>,
    batch: Vec<Entry>,
    batch_bytes: usize,
    entries: u64,
    /// The line of the last entry that was committed.
    last_line: u64,
    tables: BTreeSet<String>,
}

struct Entry {
    line: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'o> Sink<'o> {
    /// A sink without a table yet, for the database that `open` gives when it is needed.
    pub(crate) fn new(
        open: impl FnMut() -> foreshore::Result<Database> + 'o,
        batch_entries: usize,
        replace: bool,
    ) -> Sink<'o> {
        let options = TransactOptions {
            // Closing the database makes all of it durable.
            durability: Some(Durability::Lazy),
            lock_timeout: Some(PATIENCE),
            label: Some("load".into()),
            ..TransactOptions::default()
        };
        Sink {
            open: Box::new(open),
            db: None,
            options,
            batch_entries,
            replace,
            table: String::new(),
            keys: Kind::Bytes,
            types: None,
            batch: Vec::new(),
            batch_bytes: 0,
            entries: 0,
            last_line: 0,
            tables: BTreeSet::new(),
        }
    }

    /// The database, which is opened now if it was not yet.
    pub(crate) fn database(&mut self) -> foreshore::Result<&Database> {
        let db = match self.db.take() {
            Some(db) => db,
            None => (self.open)()?,
        };
        Ok(self.db.insert(db))
    }

    /// Whether the database was needed.
    pub(crate) fn has_opened(&self) -> bool {
        self.db.is_some()
    }

    /// The entries that follow go into this table, which is made if need be.
    pub(crate) fn begin_table(
        &mut self,
        name: &str,
        key_type: &str,
        value_type: &str,
    ) -> Result<(), CliError> {
        self.finish()?;
        if !(1..=MAX_TABLE_NAME_BYTES).contains(&name.len()) {
            return Err(CliError::usage(
                format!("the name of a table has 1 to {MAX_TABLE_NAME_BYTES} bytes, not {}", name.len()),
                "name another with --table",
            ));
        }
        let types = key_type.len() + 1 + value_type.len();
        if types > MAX_TABLE_TYPES_BYTES {
            return Err(CliError::usage(
                format!(
                    "the types of table {name:?} have {types} bytes, and may have {MAX_TABLE_TYPES_BYTES}"
                ),
                "shorten their names in the line that begins the table",
            ));
        }
        name.clone_into(&mut self.table);
        self.keys = Kind::of(key_type);
        self.types = Some([key_type, value_type].map(str::to_owned));
        Ok(())
    }

    /// Makes the table that was begun.
    fn make_table(&mut self) -> Result<(), CliError> {
        let Some([key_type, value_type]) = self.types.take() else { return Ok(()) };
        let table = self.table.clone();
        self.database()?.create_table(&table, &key_type, &value_type).map_err(of_other_types)?;
        self.tables.insert(table);
        Ok(())
    }

    /// Commits what was collected; a table without any entry is made, too.
    pub(crate) fn finish(&mut self) -> Result<(), CliError> {
        self.flush()?;
        self.make_table()
    }

    /// Adds an entry, which was read from `line`. What no table takes is refused before anything is made for it.
    pub(crate) fn entry(&mut self, line: u64, key: Vec<u8>, value: Vec<u8>) -> Result<(), CliError> {
        if let Some(error) = too_long(&key, &value) {
            return Err(refused(line, &error));
        }
        self.batch_bytes += key.len() + value.len();
        self.batch.push(Entry { line, key, value });
        if self.batch.len() >= self.batch_entries || self.batch_bytes >= MOST_BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Commits what was collected. When one entry is refused, those before it are committed all the same.
    pub(crate) fn flush(&mut self) -> Result<(), CliError> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        if batch.is_empty() {
            return Ok(());
        }
        self.make_table()?;
        let Err((place, error)) = self.commit(&batch) else {
            self.count(&batch);
            return Ok(());
        };
        let Some(place) = place else { return Err(self.failed(error)) };
        self.commit(&batch[..place]).map_err(|(_, error)| self.failed(error))?;
        self.count(&batch[..place]);
        Err(refused(batch[place].line, &error))
    }

    fn failed(&self, error: Error) -> CliError {
        match &self.db {
            Some(db) => in_its_way(error, &self.table, db.path()),
            None => error.into(),
        }
    }

    fn count(&mut self, committed: &[Entry]) {
        self.entries += committed.len() as u64;
        self.last_line = committed.last().map_or(self.last_line, |entry| entry.line);
    }

    /// Commits these entries; or tells which one was refused.
    fn commit(&mut self, batch: &[Entry]) -> Result<(), (Option<usize>, Error)> {
        if batch.is_empty() {
            return Ok(());
        }
        let db = self.database().map_err(|error| (None, error))?.clone();
        let table = TableDefinition::encoded(&self.table);
        let mut place = None;
        let result = db.transact_with(&self.options, |tx| {
            // Sorted entries for the end of the table, such as those of a dump, take the fast way.
            let entries = batch.iter().map(|entry| (&entry.key[..], &entry.value[..]));
            if entries.clone().is_sorted_by(|(one, _), (next, _)| one < next) {
                match tx.append(table, entries) {
                    Ok(_) => return Ok(()),
                    // It did nothing. One by one, then.
                    Err(Error::NotBehind { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            for (number, entry) in batch.iter().enumerate() {
                place = Some(number);
                let fresh = if self.replace {
                    tx.put(table, &entry.key, &entry.value[..])?;
                    true
                } else {
                    tx.insert(table, &entry.key, &entry.value[..])?
                };
                if !fresh {
                    return Err(Error::application(format!(
                        "the key {} is in table {:?} already; to overwrite it, add --replace",
                        self.keys.key_to_json(&entry.key),
                        self.table
                    )));
                }
            }
            place = None;
            Ok(())
        });
        result.map_err(|error| (place.filter(|_| matches!(error, Error::Application(_))), error))
    }

    /// Entries that were committed.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// The line of the last of them; 0 if there is none.
    pub(crate) fn last_line(&self) -> u64 {
        self.last_line
    }

    /// Tables that were written to.
    pub(crate) fn tables(&self) -> Vec<String> {
        self.tables.iter().cloned().collect()
    }
}

/// What is wrong with an entry, whatever the table.
fn too_long(key: &[u8], value: &[u8]) -> Option<Error> {
    if key.len() > MAX_KEY_BYTES {
        return Some(Error::KeyTooLong { bytes: key.len(), limit: MAX_KEY_BYTES });
    }
    (value.len() > MAX_VALUE_BYTES)
        .then(|| Error::ValueTooLong { bytes: value.len(), limit: MAX_VALUE_BYTES })
}

/// What to tell of a table that is there with other types than the input has, which not everybody knows to have chosen.
fn of_other_types(error: Error) -> CliError {
    match &error {
        Error::TypeMismatch { table, stored, asked } => CliError::Retold {
            code: error.code(),
            message: format!("table {table:?} holds {stored}, and the input is {asked}"),
            hint: "name the type of its keys (--key-type), or another table (--table); values that are no str come \
                   from lines that name the types, as `foreshore dump` writes them"
                .to_owned(),
        },
        _ => error.into(),
    }
}

fn refused(line: u64, error: &Error) -> CliError {
    CliError::Line { line, complaint: error.to_string(), entries: None }
}
