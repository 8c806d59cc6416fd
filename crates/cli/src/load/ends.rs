//! The ends of tables in a dump: whether all that `dump` has written is there.

use super::object::Object;
use crate::output::{CliError, counted};

/// What was promised of the tables of a dump, and what has come.
#[derive(Default)]
pub(super) struct Ends {
    /// The table whose end is to come.
    open: Option<String>,
    /// Its entries until now.
    entries: u64,
    /// Whether the last line was an end, or said that there are no tables: no entry follows.
    ended: bool,
    /// Tables that are to follow, as the last end says.
    tables_left: u64,
}

impl Ends {
    /// A table begins at this line; `promised` if it is to have an end.
    pub(super) fn begin(&mut self, line: u64, table: &str, promised: bool) -> Result<(), CliError> {
        if let Some(open) = &self.open {
            return Err(incomplete(format!("line {line}: the end of table {open:?} is missing before it")));
        }
        self.open = promised.then(|| table.to_owned());
        self.entries = 0;
        self.ended = false;
        Ok(())
    }

    /// This line says that the dump has no tables.
    pub(super) fn no_tables(&mut self, line: u64) -> Result<(), CliError> {
        if self.open.is_some() || self.tables_left > 0 {
            return Err(incomplete(format!("line {line}: another dump ends too early before it")));
        }
        self.ended = true;
        Ok(())
    }

    /// Whether this line ends the table, as it was promised. Any other is an entry, and is counted.
    pub(super) fn is_end(&mut self, line: u64, object: &Object<'_>) -> Result<bool, CliError> {
        if self.ended {
            return Err(incomplete(format!("line {line}: the header of a table is missing before it")));
        }
        let Some(table) = &self.open else { return Ok(false) };
        let Some((end, entries, tables_left)) = end(object) else {
            self.entries += 1;
            return Ok(false);
        };
        if end != *table {
            return Err(incomplete(format!(
                "line {line}: the end of table {end:?} stands where that of {table:?} should"
            )));
        }
        if entries != self.entries {
            let found = counted(self.entries, "entry", "entries");
            return Err(incomplete(format!("line {line}: {found} of table {table:?} instead of {entries}")));
        }
        if self.tables_left > 0 && tables_left != self.tables_left - 1 {
            return Err(incomplete(format!("line {line}: tables are missing before {table:?}")));
        }
        *self = Ends { ended: true, tables_left, ..Ends::default() };
        Ok(true)
    }

    /// The input has ended.
    pub(super) fn finish(&self) -> Result<(), CliError> {
        match (&self.open, self.tables_left) {
            (Some(table), _) => Err(incomplete(format!("it ends before table {table:?} does"))),
            (None, 0) => Ok(()),
            (None, left) => {
                let left = counted(left, "table", "tables");
                Err(incomplete(format!("it ends too early: {left} should follow")))
            }
        }
    }
}

/// Table, entries, and tables that follow, if this is the line that ends a table.
fn end(object: &Object<'_>) -> Option<(String, u64, u64)> {
    if object.len() != 3 {
        return None;
    }
    Some((object.get("end")?, object.get("entries")?, object.get("tables_left")?))
}

#[cold]
fn incomplete(complaint: String) -> CliError {
    CliError::IncompleteDump(complaint)
}
