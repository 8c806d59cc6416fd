//! A transaction that asks the engine for something, and remembers if it was the victim of a deadlock.

use foreshore_base::key::Key;
use foreshore_env::sync::Arc;
use foreshore_txn::{LogHolder, TableInfo, Txn, TxnError};

use crate::{
    database::Inner,
    error::{Error, Result},
    table::{Recent, TableDefinition},
    value::Value,
    view::DeadlockView,
};

/// A transaction as the engine has it.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) txn: Txn,
    /// The deadlock that ended it, whatever the caller made of that error.
    pub(super) victim: Option<Arc<DeadlockView>>,
    /// Whether the limit to its waits is there because it began within the body of another one (DB-11).
    pub(super) within_body: bool,
}

impl Asker {
    /// An operation on a table, which is made if it is not there.
    #[inline]
    pub(super) fn on<K: Key, V: Value, R>(
        &mut self,
        database: &Inner,
        recent: &mut Option<Recent>,
        table: &TableDefinition<'_, K, V>,
        operation: impl FnOnce(&mut Txn, &TableInfo) -> Result<R, TxnError>,
    ) -> Result<R> {
        let table = database.table(table, self, recent)?;
        operation(&mut self.txn, &table.info).map_err(|error| self.fail(database, error))
    }

    /// For an operation that has nothing to do: whether another one would be refused.
    pub(super) fn check_usable(&mut self, database: &Inner) -> Result<()> {
        self.txn.check_usable().map_err(|error| self.fail(database, error))
    }

    /// Remembers a deadlock, and makes the caller's error of it, which tells if it is the transaction itself that is in
    /// its way.
    #[cold]
    pub(crate) fn fail(&mut self, database: &Inner, error: TxnError) -> Error {
        match Error::from_operation(error, database) {
            Error::Deadlock(report) => Error::Deadlock(Arc::clone(self.victim.insert(report))),
            Error::LockTimeout(lock) if self.within_body && lock.lock_timeout.is_some() => {
                Error::LockTimeout(lock).within_body()
            }
            mut error => {
                if let Error::LogFull { holder: Some(holder), is_own, .. } = &mut error {
                    let own = self.txn.id();
                    *is_own = matches!(&**holder, LogHolder::Transaction(view) if view.id == own);
                }
                error
            }
        }
    }
}
