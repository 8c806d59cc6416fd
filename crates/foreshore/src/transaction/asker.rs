//! Who asks for something in the midst of a transaction, and hears of it if that was the victim of a deadlock.

use foreshore_env::sync::Arc;
use foreshore_txn::{Txn, TxnError};

use crate::{
    database::Inner,
    error::{Error, Victim},
};

/// A transaction that needs a table.
pub(crate) struct Asker<'t> {
    pub(crate) txn: &'t mut Txn,
    /// The deadlock that it was the victim of.
    pub(crate) victim: &'t mut Option<Arc<Victim>>,
}

pub(super) fn asker<'t>(txn: &'t mut Txn, victim: &'t mut Option<Arc<Victim>>) -> Option<Asker<'t>> {
    Some(Asker { txn, victim })
}

/// Remembers a deadlock, and makes the caller's error of it.
#[cold]
pub(crate) fn fail(database: &Inner, victim: &mut Option<Arc<Victim>>, error: TxnError) -> Error {
    match Error::from_operation(error, database) {
        Error::Deadlock(report) => Error::Deadlock(Arc::clone(victim.insert(report))),
        error => error,
    }
}
