//! Pipelines: transactions of one session, one after another, that do not wait for their flushes (flush pipelining).
//!
//! Where locks are released early there is nothing to keep from one transaction to the next but the LSN that all that
//! was read and written so far depends on. Where they are not, the next transaction goes on with the locks of those
//! before it, which are not in its way, until the flush (Kimura et al. 2012, §4.3): the longer a pipeline, the more it
//! locks. The paper flushes when a pipeline has reached its length or when one of its transactions is a deadlock's
//! victim; here the flush is also asked for at every commit, and an idle pipeline gives its locks back when it is
//! through. It is also waited for when the locks of a pipeline are half as many as a transaction may have.
//!
//! TXN-13: a transaction of a pipeline is answered for no earlier than those before it: its ticket covers what they
//! depend on (the inheritance of the maximal tag, Kimura et al. 2012, §5.3).
//!
//! TXN-14: the locks of a pipeline go all at once, between two of its transactions or at a deadlock, and only when all
//! of its commits are durable.

use std::panic::Location;

use foreshore_base::Lsn;
use foreshore_env::Handle;
use foreshore_env::sync::{Arc, Mutex, MutexGuard};
use foreshore_lock::{Age, LockManager, LockOwner};

use crate::{
    committer::Waiter, core::Core, engine::Engine, error::TxnError, options::BeginOptions, transaction::Txn,
};

/// The transactions of one session, one open at a time. See the README of this crate, and
/// [`EngineOptions::pipeline_length`](crate::EngineOptions::pipeline_length).
///
/// Dropping it changes nothing for the transactions that it has run: their locks go when they are durable.
#[derive(Debug)]
pub struct Pipeline {
    engine: Handle<Engine>,
    shared: Arc<Shared>,
}

/// What a pipeline, its open transaction and the committer share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
}

/// Guarded by the mutex of [`Shared::state`], under which only the committer's queue is locked.
#[derive(Debug, Default)]
struct State {
    /// A transaction is open; it has the locks.
    open: bool,
    /// The locks between two transactions, if they wait for a flush.
    owner: Option<LockOwner>,
    /// The committer has been asked to look at them.
    announced: bool,
    /// All that was read and written so far is durable when this is.
    newest: Lsn,
    /// Transactions completed that may not be durable.
    completed: u32,
}

impl Pipeline {
    pub(crate) fn new(engine: Handle<Engine>) -> Pipeline {
        Pipeline { engine, shared: Arc::default() }
    }

    /// Begins its next transaction.
    ///
    /// # Errors
    /// [`TxnError::PipelineBusy`] while the one before is open; what befell the log, when those before it had to be
    /// durable first, and their tickets say that their outcome is unknown; else as [`Engine::begin`].
    #[track_caller]
    pub fn begin(&mut self, options: BeginOptions) -> Result<Txn, TxnError> {
        let core = self.engine.core();
        core.check_open()?;
        if self.shared.lock().open {
            return Err(TxnError::PipelineBusy);
        }
        if self.length() >= core.options.pipeline_length || self.shared.holds_many_locks(core) {
            // In doubt are those before it, whose tickets tell, and not this one, which has not begun.
            self.flush().map_err(|error| match error {
                TxnError::OutcomeUnknown { cause } => cause.into(),
                error => error,
            })?;
        }
        let (owner, completed) = self.shared.begin(core);
        let txn = core.transactions.draw();
        let age = options.age.unwrap_or(txn.0);
        let lock_age = Age::new(age, options.priority);
        let inherits = owner.is_some();
        let at = options.wanted_at.unwrap_or(Location::caller());
        let owner = match owner {
            Some(owner) => Ok(owner),
            None => LockManager::begin_striped(&core.locks, |_| (txn, lock_age), options.label.clone(), at),
        };
        let mut owner = owner.inspect_err(|_| self.shared.lock().open = false)?;
        if completed > 0 || inherits {
            owner.renew(txn, lock_age, options.label, completed, at);
        }
        let place = Place { shared: Arc::clone(&self.shared), inherits };
        Ok(Txn::in_pipeline(self.engine.clone(), owner, age, place))
    }

    /// Waits until everything that it has committed is durable, and gives back the locks that waited for that.
    pub fn flush(&self) -> Result<(), TxnError> {
        let core = self.engine.core();
        let newest = self.newest();
        if !core.log.is_durable(newest) {
            core.life.check_process()?;
            core.log.flush(newest).map_err(TxnError::unknown)?;
        }
        self.shared.settle(core);
        Ok(())
    }

    /// How many of its transactions have been completed since it was last known to be durable as a whole.
    pub fn length(&self) -> u32 {
        self.shared.lock().completed
    }

    /// Everything that its transactions have read and written is durable when this is.
    pub fn newest(&self) -> Lsn {
        self.shared.lock().newest
    }
}

/// A transaction's place in its pipeline.
#[derive(Debug)]
pub(crate) struct Place {
    shared: Arc<Shared>,
    /// The locks are those of earlier transactions too.
    pub(crate) inherits: bool,
}

impl Place {
    /// What the transactions before this one depend on.
    pub(crate) fn newest(&self) -> Lsn {
        self.shared.lock().newest
    }

    /// The transaction has ended, by a commit at this LSN or by a rollback. `owner`: the locks that wait until that,
    /// and everything before it, is durable.
    pub(crate) fn end(&self, core: &Core, owner: Option<LockOwner>, committed: Option<Lsn>) {
        let mut state = self.shared.lock();
        state.open = false;
        if let Some(lsn) = committed {
            state.newest = state.newest.max(lsn);
            state.completed += 1;
        }
        state.owner = owner;
        self.shared.announce(core, state);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether the locks between two transactions leave the next one half of what it may have, or less.
    fn holds_many_locks(&self, core: &Core) -> bool {
        let most = core.locks.max_locks_per_transaction();
        self.lock().owner.as_ref().is_some_and(|owner| owner.lock_count() > most / 2)
    }

    /// A transaction begins: gives it the locks of those before it, and says how many they are.
    fn begin(&self, core: &Core) -> (Option<LockOwner>, u32) {
        self.settle(core);
        let mut state = self.lock();
        state.open = true;
        (state.owner.take(), state.completed)
    }

    /// Gives the locks back if all is durable (TXN-14).
    fn settle(&self, core: &Core) {
        let mut state = self.lock();
        if core.log.is_durable(state.newest) {
            state.completed = 0;
            let owner = state.owner.take();
            drop(state);
            // Not under the mutex: somebody is woken.
            drop(owner);
        }
    }

    /// The committer has come past an LSN that was announced.
    pub(crate) fn flushed(self: &Arc<Shared>, core: &Core, failed: bool) {
        let mut state = self.lock();
        state.announced = false;
        if failed {
            let owner = state.owner.take();
            drop(state);
            drop(owner);
            return;
        }
        drop(state);
        self.settle(core);
        self.announce(core, self.lock());
    }

    /// Sees to it that locks between two transactions are given back.
    fn announce(self: &Arc<Shared>, core: &Core, mut state: MutexGuard<'_, State>) {
        if state.owner.is_none() || state.announced {
            return;
        }
        state.announced = true;
        if core.committer.add(state.newest, Waiter::Pipeline(Arc::clone(self))).is_err() {
            // The engine is closing: it makes everything durable.
            let owner = state.owner.take();
            drop(state);
            drop(owner);
        }
    }
}
