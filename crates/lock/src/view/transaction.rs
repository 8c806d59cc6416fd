//! Transactions, as views show them.

use std::fmt;
use std::panic::Location;

use foreshore_base::TxnId;
use foreshore_env::sync::Arc;
use foreshore_env::time::{Duration, Instant};

use crate::deadlock::write_transaction;
use crate::slot::Identity;

/// A transaction, in a view.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TransactionView {
    /// Its id, as the transaction itself gives it.
    pub id: TxnId,
    /// Its label: the name that it was begun with, for people, if it was given one.
    pub label: Option<Arc<str>>,
    /// Its priority: the one that it was begun with, which policies against deadlocks go by. `None` if it has ended
    /// while the view was made. As text and in JSON it is there if it is not 0.
    pub priority: Option<i8>,
    /// The call in the program that has begun it, or that runs it again and again until it commits; `None` as above.
    pub begun_at: Option<&'static Location<'static>>,
    /// How long it has been open; `None` as above, and of those in a deadlock or in an error's own wait.
    pub open_for: Option<Duration>,
}

impl TransactionView {
    pub(super) fn of(who: &Identity, now: Instant) -> TransactionView {
        TransactionView {
            id: who.txn,
            label: who.label.clone(),
            priority: Some(who.age.priority()),
            begun_at: Some(who.begun_at),
            open_for: Some(now.saturating_duration_since(who.begun)),
        }
    }

    /// One of which nothing is known any more.
    pub(super) fn ended(id: TxnId) -> TransactionView {
        TransactionView { id, label: None, priority: None, begun_at: None, open_for: None }
    }
}

impl fmt::Display for TransactionView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_transaction(f, self.id, self.label.as_deref(), self.priority)
    }
}
