//! Tables that are made for a transaction when it uses them first.

use foreshore_env::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Instant,
};
use foreshore_lock::LockError;

use super::{Txn, session::Waiting};
use crate::{
    catalog::{self, TableInfo},
    error::TxnError,
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
    /// As [`Engine::create_table`](crate::Engine::create_table), for this transaction: by one of its own, which waits for locks no
    /// longer than this one would.
    pub fn create_table(&self, name: &str, meta: &[u8]) -> Result<TableInfo, TxnError> {
        self.check_usable()?;
        let mut waiting = self.session.waiting.clone();
        waiting.no_wait |= self.making.at_once;
        let made = catalog::create_table(&self.session.engine, name, meta, Some(self), &waiting);
        made.map_err(|error| if self.making.at_once { self.refused(error) } else { error })
    }

    /// Tables are made for it without waiting for locks, for a thread that has others to look after: it is refused one otherwise
    /// ([`Txn::was_refused_a_table`]), and is to be tried again a little later, as another transaction. `since`: since when that has been
    /// done; a time limit to waits counts from there.
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
        let mut refusal = match error {
            TxnError::Lock(LockError::WouldBlock(refusal)) if !no_wait => refusal,
            error => return error,
        };
        let waited = self.making.since.map(|since| since.elapsed()).unwrap_or_default();
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
