//! Where entries go: into the database, a batch at a time. Database and table are made when there is something to put into them,
//! or the end was reached, so that an input that is refused makes neither.

use std::collections::BTreeSet;

use foreshore::{Database, Durability, Error, TableDefinition, TransactOptions};

use crate::{dump::cell::escape, output::CliError};

/// A batch is committed when its entries have so many bytes, however few they are.
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
    /// The types of the table, if it may have to be made.
    types: Option<[String; 2]>,
    batch: Vec<Entry>,
    batch_bytes: usize,
    entries: u64,
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
            types: None,
            batch: Vec::new(),
            batch_bytes: 0,
            entries: 0,
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
        name.clone_into(&mut self.table);
        self.types = Some([key_type, value_type].map(str::to_owned));
        Ok(())
    }

    /// Makes the table that was begun.
    fn make_table(&mut self) -> Result<(), CliError> {
        let Some([key_type, value_type]) = self.types.take() else { return Ok(()) };
        let table = self.table.clone();
        self.database()?.create_table(&table, &key_type, &value_type)?;
        self.tables.insert(table);
        Ok(())
    }

    /// Commits what was collected; a table without any entry is made, too.
    pub(crate) fn finish(&mut self) -> Result<(), CliError> {
        self.flush()?;
        self.make_table()
    }

    /// Adds an entry, which was read from `line`.
    pub(crate) fn entry(&mut self, line: u64, key: Vec<u8>, value: Vec<u8>) -> Result<(), CliError> {
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
        let Err((refused, error)) = self.commit(&batch) else {
            self.entries += batch.len() as u64;
            return Ok(());
        };
        let Some(place) = refused else { return Err(error.into()) };
        self.commit(&batch[..place]).map_err(|(_, error)| error)?;
        self.entries += place as u64;
        Err(CliError::Line { line: batch[place].line, complaint: error.to_string(), entries: None })
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
                    // It did nothing. One by one, then; that also finds who is to blame for any other error.
                    Err(Error::NotBehind { .. } | Error::KeyTooLong { .. } | Error::ValueTooLong { .. }) => {}
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
                        "the key {:?} is in table {:?} already; to overwrite it, add --replace",
                        escape(&entry.key),
                        self.table
                    )));
                }
            }
            place = None;
            Ok(())
        });
        result.map_err(|error| {
            let of_the_entry = matches!(
                error,
                Error::Application(_) | Error::KeyTooLong { .. } | Error::ValueTooLong { .. }
            );
            (place.filter(|_| of_the_entry), error)
        })
    }

    /// Entries that were committed.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Tables that were written to.
    pub(crate) fn tables(&self) -> Vec<String> {
        self.tables.iter().cloned().collect()
    }
}
