//! What reports and views tell people about a slot.

use std::panic::Location;

use foreshore_base::{TableId, TxnId};
use foreshore_env::sync::Arc;
use foreshore_env::time::Instant;

use crate::age::Age;
use crate::deadlock::KeyBytes;
use crate::error::LockMode;

/// Who a transaction is, for reports and views.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) txn: TxnId,
    pub(crate) age: Age,
    pub(crate) label: Option<Arc<str>>,
    /// The call that began it.
    pub(crate) begun_at: &'static Location<'static>,
    pub(crate) begun: Instant,
    /// Nobody will end it.
    pub(crate) stays: bool,
}

impl Identity {
    /// A transaction that begins now. Reports name the caller.
    #[track_caller]
    pub(crate) fn new(txn: TxnId, age: Age, label: Option<Arc<str>>) -> Identity {
        Identity { txn, age, label, begun_at: Location::caller(), begun: Instant::now(), stays: false }
    }
}

/// What a wait looks like to people, for reports.
#[derive(Clone, Debug)]
pub(crate) struct WaitDescription {
    pub(crate) table: TableId,
    pub(crate) key: Option<KeyBytes>,
    pub(crate) requested: LockMode,
    pub(crate) held: Option<LockMode>,
    pub(crate) since: Instant,
}
