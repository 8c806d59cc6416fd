//! Transactions of the engine's own that change the catalogue, and are seen when they are durable.

use foreshore_base::{StorageError, TableId};
use foreshore_btree::Session;
use foreshore_env::{
    sabotage::{Fault, planted},
    sync::Arc,
    time::{Duration, Instant},
};
use foreshore_lock::{IntentMode, KeyMode, KeyRef};

use super::Catalog;
use crate::{
    engine::Engine,
    error::TxnError,
    insist::insist,
    stats::Event,
    transaction::{Txn, Waiting},
};

/// Runs `attempt`, of this label, for as long as it is told to give way, and again in a shorter log if that is full.
/// `wait`: for those who use the table; a transaction of the caller's own would let it wait for ever.
pub(super) fn alone<R>(
    engine: &Arc<Engine>,
    label: &str,
    wait: Duration,
    attempt: impl Fn(Txn) -> Result<R, TxnError>,
) -> Result<R, TxnError> {
    let waiting = Waiting { deadline: Instant::now().checked_add(wait), ..Waiting::default() };
    let try_it = || {
        insist(label, &waiting, |begin| {
            let mut txn = engine.begin(begin)?;
            txn.session.waiting = waiting.clone();
            attempt(txn)
        })
    };
    match try_it() {
        Err(TxnError::Storage(StorageError::LogFull { .. })) if engine.core().shorten_log()? => try_it(),
        ended => ended,
    }
}

/// Locks the row of a name. Whoever made, dropped or renamed a table of that name is done then.
pub(super) fn lock_name(txn: &mut Txn, name: &str) -> Result<(), TxnError> {
    txn.session.enter(TableId::CATALOG, IntentMode::IX)?;
    txn.session.acquire(TableId::CATALOG, KeyRef::Key(name.as_bytes()), KeyMode::XN)?;
    // A commit that could not be flushed has left its rows, and the table in the catalogue as it was: which of the two
    // is true shows at the next opening.
    match txn.session.core().log.poisoned() {
        Some(poisoned) => Err(poisoned.into()),
        None => Ok(()),
    }
}

/// Commits, and when that is durable has `show` change the tables that others see. No early release: nobody shall find
/// a name free, or given, and it is otherwise after a crash.
pub(super) fn commit_then(mut txn: Txn, show: impl FnOnce(&Catalog)) -> Result<(), TxnError> {
    let lsn = txn.append_commit()?;
    txn.finished = true;
    let engine = txn.session.engine.clone();
    let core = engine.core();
    if !planted(Fault::DropUnflushed) {
        core.log.flush(lsn).map_err(TxnError::unknown)?;
    }
    show(&core.catalog);
    txn.session.owner.release_all(Some(lsn));
    core.stats.count(Event::Commit);
    Ok(())
}
