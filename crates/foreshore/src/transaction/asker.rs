//! A transaction that asks the engine for something, and remembers if it was the victim of a deadlock.

use foreshore_env::sync::Arc;
use foreshore_txn::{Txn, TxnError};

use crate::{
    database::Inner,
    error::{Error, Result, Victim},
    retention::LogHolder,
};

/// A transaction as the engine has it.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) txn: Txn,
    /// The deadlock that ended it, whatever the caller made of that error.
    pub(super) victim: Option<Arc<Victim>>,
    /// Whether the limit to its waits is there because it began within the body of another one (DB-11).
    pub(super) within_body: bool,
}

impl Asker {
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
                    let own = self.txn.id().0;
                    *is_own = matches!(&**holder, LogHolder::Transaction(view) if view.id == own);
                }
                error
            }
        }
    }
}
