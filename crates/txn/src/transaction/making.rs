//! Tables that are made for a transaction when it uses them first.

use std::mem;

use foreshore_base::TableId;
use foreshore_env::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};
use foreshore_lock::{IntentMode, LockError};

use super::{Txn, waiting::Waiting};
use crate::{
    catalog::{self, TableInfo},
    error::TxnError,
    options::BeginOptions,
    place_search::PlaceSearch,
};

/// How they are made.
#[derive(Debug, Default)]
pub(super) struct Making {
    /// Without waiting for locks.
    at_once: bool,
    /// Since when that has been tried for it.
    since: Option<Instant>,
    /// One could not be. Written and read by its own transaction: no order.
    refused: AtomicBool,
}

impl Txn {
    /// As [`Engine::create_table`](crate::Engine::create_table), for this transaction: by one of its own, which waits
    /// for locks no longer than this one would.
    pub fn create_table(&mut self, name: &str, meta: &[u8]) -> Result<TableInfo, TxnError> {
        self.check_usable()?;
        let mut waiting = self.session.waiting.clone();
        waiting.no_wait |= self.making.at_once;
        let made = self.lend_volume(&waiting).and_then(|has_volume| {
            let begin = BeginOptions { label: Some(Arc::from(catalog::MAKING)), ..BeginOptions::default() };
            catalog::create_table(&self.session.engine, name, meta, &begin, has_volume, &waiting)
        });
        made.map_err(|error| if self.making.at_once { self.refused(error) } else { error })
    }

    /// Raises its lock on the volume to a writer's, for the transaction that makes a table for it; false: it has none.
    /// The maker cannot queue for a lock of its own: behind somebody who waits for this transaction it would wait for
    /// this one, and no detector would see that. A lock that is raised passes those who wait; and if this transaction
    /// does wait for somebody, that is seen.
    fn lend_volume(&mut self, waiting: &Waiting) -> Result<bool, TxnError> {
        if self.session.owner.held_intent(TableId::VOLUME).is_none() {
            return Ok(false);
        }
        let own = mem::replace(&mut self.session.waiting, waiting.clone());
        let raised = self.session.intent(TableId::VOLUME, IntentMode::IX);
        self.session.waiting = own;
        raised.map(|()| true).map_err(|error| self.note(error.into()))
    }

    /// Tables are made for it without waiting for locks, for a thread that has others to look after: it is refused one
    /// otherwise ([`Txn::was_refused_a_table`]), and is to be tried again a little later, as another transaction.
    /// `since`: since when that has been done; a time limit to waits counts from there.
    pub fn make_tables_at_once(&mut self, since: Option<Instant>) {
        self.making = Making { at_once: true, since, refused: AtomicBool::new(false) };
    }

    /// Whether a table could not be made for it at once. What it has done since is worth nothing.
    pub fn was_refused_a_table(&self) -> bool {
        self.making.refused.load(Relaxed)
    }

    #[cold]
    fn refused(&self, error: TxnError) -> TxnError {
        let Waiting { deadline, timeout, no_wait, .. } = self.session.waiting;
        let waited = self.making.since.map(|since| since.elapsed()).unwrap_or_default();
        let mut refusal = match error {
            TxnError::Lock(LockError::WouldBlock(refusal)) if !no_wait => refusal,
            error => {
                let mut search = PlaceSearch::since(self.making.since);
                if !no_wait && catalog::is_for_a_place(&error) && search.goes_on(deadline) {
                    self.making.refused.store(true, Relaxed);
                }
                return error;
            }
        };
        let timeout = timeout.filter(|timeout| *timeout <= waited);
        if timeout.is_none() && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            self.making.refused.store(true, Relaxed);
            return LockError::WouldBlock(refusal).into();
        }
        refusal.timeout = timeout;
        if let Some(wish) = &mut refusal.wish {
            wish.waited = waited;
        }
        LockError::Timeout(refusal).into()
    }
}
