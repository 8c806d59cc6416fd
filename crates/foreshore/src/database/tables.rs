//! The tables of a database, by name.

use foreshore_txn::TableInfo;

use super::Database;
use crate::{error::Result, table::TableDescription};

impl Database {
    /// The tables, by name.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed), [`Error::Poisoned`](crate::Error::Poisoned) or
    /// [`Error::Forked`](crate::Error::Forked), if the database can no longer be used here.
    pub fn tables(&self) -> Result<Vec<TableDescription>> {
        let tables = self.table_infos()?;
        let mut tables: Vec<_> = tables.iter().map(TableDescription::of).collect();
        tables.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(tables)
    }

    /// The table of this name, if there is one: nothing is made, and nobody is waited for.
    ///
    /// # Errors
    /// As [`Database::tables`].
    pub fn table(&self, name: &str) -> Result<Option<TableDescription>> {
        let found = self.inner.engine.table(name).map_err(|error| self.inner.error(error))?;
        Ok(found.as_ref().map(TableDescription::of))
    }

    pub(crate) fn table_infos(&self) -> Result<Vec<TableInfo>> {
        self.inner.engine.tables().map_err(|error| self.inner.error(error))
    }
}
