//! The tables of a database, by name.

use foreshore_env::time::Duration;
use foreshore_txn::{DROP_WAIT, TableInfo};

use super::Database;
use crate::{
    error::{Error, Result},
    nested,
    table::{TableDescription, check_name},
};

impl Database {
    /// The tables, by name.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Poisoned`] or [`Error::Forked`], if the database can no longer be used here.
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

    /// Drops a table with all its entries; false if there is none of that name. A transaction of its own, durable when
    /// this returns, in a time that does not depend on the table's size: its pages are freed in the background, also
    /// after the next opening. Used again, the name makes a new, empty table.
    ///
    /// Waits until no transaction uses the table, at most a minute ([`Error::LockTimeout`]), or 10 s within the body of
    /// a transaction. A transaction that was about to use it for the first time may be told [`Error::NoSuchTable`].
    ///
    /// # Errors
    /// [`Error::LockTimeout`] after that minute; [`Error::ReadOnly`]; [`Error::OutcomeUnknown`] if the log fails
    /// between the commit and its confirmation; as any transaction that writes, [`Error::LogFull`], [`Error::LogHeld`],
    /// [`Error::DiskFull`], [`Error::LimitExceeded`] if the data file is as large as it may be,
    /// [`Error::TooManyTransactions`], [`Error::PoolExhausted`], [`Error::Corrupted`], [`Error::Io`],
    /// [`Error::Closed`], [`Error::Poisoned`], [`Error::Forked`]. After any but [`Error::OutcomeUnknown`] the table is
    /// there.
    pub fn drop_table(&self, name: &str) -> Result<bool> {
        nested::at_most(DROP_WAIT, |wait| self.drop_table_within(name, wait))
    }

    /// As [`Database::drop_table`], with another limit to the wait.
    ///
    /// # Errors
    /// As [`Database::drop_table`].
    pub fn drop_table_within(&self, name: &str, wait: Duration) -> Result<bool> {
        let dropped = self.engine().drop_table_within(name, wait);
        dropped.map_err(|error| Error::from_operation(error, self.inner()))
    }

    /// Gives a table another name; its entries and their types stay. A transaction of its own, durable when this
    /// returns, in a time that does not depend on the table's size. Used again, the old name makes a new, empty table.
    ///
    /// Waits until no transaction uses the table, at most a minute ([`Error::LockTimeout`]), or 10 s within the body of
    /// a transaction. A transaction that was about to use it for the first time may be told [`Error::NoSuchTable`].
    ///
    /// ```
    /// # use foreshore::{Database, TableDefinition};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// const BALANCES: TableDefinition<&str, u32> = TableDefinition::new("balances");
    /// const WIDER: TableDefinition<&str, i64> = TableDefinition::new("balances, wider");
    /// # db.transact(|tx| tx.put(BALANCES, "alice", 10))?;
    ///
    /// // Another type of values: fill a new table, and let it have the name of the old one.
    /// db.transact(|tx| {
    ///     let old = tx.range(BALANCES, ..)?.collect::<Result<Vec<_>, _>>()?;
    ///     tx.append(WIDER.owned(), old.into_iter().map(|(name, balance)| (name, i64::from(balance))))
    /// })?;
    /// db.drop_table("balances")?;
    /// db.rename_table("balances, wider", "balances")?;
    ///
    /// const BALANCES_NOW: TableDefinition<&str, i64> = TableDefinition::new("balances");
    /// assert_eq!(db.read(|tx| tx.get(BALANCES_NOW, "alice"))?, Some(10));
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchTable`] if there is none called `from`, [`Error::TableExists`] if there is one called `to`,
    /// [`Error::LimitExceeded`] if that can be no table's name; else as [`Database::drop_table`]. After any but
    /// [`Error::OutcomeUnknown`] all names are as before.
    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        nested::at_most(DROP_WAIT, |wait| self.rename_table_within(from, to, wait))
    }

    /// As [`Database::rename_table`], with another limit to the wait.
    ///
    /// # Errors
    /// As [`Database::rename_table`].
    pub fn rename_table_within(&self, from: &str, to: &str, wait: Duration) -> Result<()> {
        check_name(to)?;
        let renamed = self.engine().rename_table_within(from, to, wait);
        renamed.map_err(|error| Error::from_operation(error, self.inner()))
    }

    pub(crate) fn table_infos(&self) -> Result<Vec<TableInfo>> {
        self.inner.engine.tables().map_err(|error| self.inner.error(error))
    }
}
