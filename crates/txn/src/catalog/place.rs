//! A place for whoever makes a table, among the transactions that are open, where there are as many as may be.
//!
//! Most of those who want a table have a place themselves, and keep it meanwhile. If all that are open waited for
//! another one there would never be one: then the last to come is refused, and its own place may be the next that is
//! free.

use foreshore_base::limits::MAX_TRANSACTIONS;
use foreshore_env::{
    Handle,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};
use foreshore_lock::{CancelToken, LockError};

use super::TableInfo;
use crate::{
    engine::Engine,
    error::TxnError,
    options::BeginOptions,
    place_search::PlaceSearch,
    transaction::{Txn, Waiting},
};

/// Between two looks: whoever ends a transaction tells nobody. So much for each [`CROWD`] of those who wait: they share
/// the processors with those who are to end.
const LOOK_EVERY: Duration = Duration::from_millis(1);
const CROWD: usize = 16;

/// How many wait so. Written by them, relaxed: it orders nothing, and who sees too few waits until the end of its time.
#[derive(Debug, Default)]
pub(crate) struct Makers(AtomicUsize);

/// What comes of beginning to make a table.
pub(super) enum Begun {
    Maker(Box<Txn>),
    /// Somebody else has made it meanwhile.
    Made(TableInfo),
}

/// Begins the transaction that makes table `name`, where there is a place for it, or waits for one if it may wait.
pub(super) fn begin(
    engine: &Handle<Engine>,
    begin: &BeginOptions,
    waiting: &Waiting,
    name: &str,
) -> Result<Begun, TxnError> {
    match engine.begin_with(begin.clone(), |_| engine.clone()) {
        Err(refused) if is_for_a_place(&refused) && !waiting.no_wait => {
            wait(engine, begin, waiting, name, refused)
        }
        begun => begun.map(|txn| Begun::Maker(Box::new(txn))),
    }
}

pub(crate) fn is_for_a_place(error: &TxnError) -> bool {
    matches!(error, TxnError::Lock(LockError::TooManyTransactions { .. }))
}

#[cold]
fn wait(
    engine: &Handle<Engine>,
    begin: &BeginOptions,
    waiting: &Waiting,
    name: &str,
    mut refused: TxnError,
) -> Result<Begun, TxnError> {
    let core = engine.core();
    let end = PlaceSearch::default().end(waiting.deadline);
    let others = core.makers.0.fetch_add(1, Relaxed);
    let _leaving = Leaving(&core.makers);
    if others + 1 + core.prepared.len() >= MAX_TRANSACTIONS {
        return Err(refused);
    }
    while is_for_a_place(&refused) && Instant::now() < end {
        if waiting.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Err(LockError::Cancelled.into());
        }
        let crowds = core.makers.0.load(Relaxed).div_ceil(CROWD);
        let left = end.saturating_duration_since(Instant::now());
        thread::sleep((LOOK_EVERY * crowds as u32).min(left));
        if let Some(table) = core.catalog.get(name) {
            return Ok(Begun::Made(table));
        }
        match engine.begin_with(begin.clone(), |_| engine.clone()) {
            Ok(txn) => return Ok(Begun::Maker(Box::new(txn))),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

struct Leaving<'a>(&'a Makers);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}
