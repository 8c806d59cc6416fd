//! Transactions, as views show them.

use std::panic::Location;

use foreshore_base::TxnId;
use foreshore_env::sync::Arc;
use foreshore_env::time::{Duration, Instant};

use crate::slot::Identity;

/// A transaction, as views show it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TxnView {
    /// Its id.
    pub txn: TxnId,
    /// Its label.
    pub label: Option<Arc<str>>,
    /// Its priority ([`Age::priority`](crate::Age::priority)); `None` if it has ended while the view was made.
    pub priority: Option<i8>,
    /// The call that began it; `None` as above.
    pub begun_at: Option<&'static Location<'static>>,
    /// How long it has been open; `None` as above.
    pub open_for: Option<Duration>,
}

impl TxnView {
    pub(super) fn of(who: &Identity, now: Instant) -> TxnView {
        TxnView {
            txn: who.txn,
            label: who.label.clone(),
            priority: Some(who.age.priority()),
            begun_at: Some(who.begun_at),
            open_for: Some(now.saturating_duration_since(who.begun)),
        }
    }

    /// One of which nothing is known any more.
    pub(super) fn ended(txn: TxnId) -> TxnView {
        TxnView { txn, label: None, priority: None, begun_at: None, open_for: None }
    }
}
