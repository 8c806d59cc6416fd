//! Planned transactions: locks first, all in one order, then the work (Ren et al. 2016, §3.2 and §4.1).
//!
//! The footprint is either declared or found out by reconnaissance: the transaction runs once without locks and without
//! effect (`reconnaissance.rs`). The paper aborts when a run leaves its footprint. Here a lock that the footprint does
//! not have is *tried* first: a try never waits, so it closes no cycle, and most of what appeared between
//! reconnaissance and run is free. If it is not, that is a plan miss: everything is undone and released, the footprint
//! has grown by what was met, and the transaction runs again; after [`PLAN_MISSES`](crate::PLAN_MISSES) with exclusive
//! locks on whole tables, so that it ends.

use foreshore_base::TableId;
use foreshore_lock::{IntentMode, KeyMode, KeyRef, LockError};

use super::{
    Failure, Txn,
    parted::tables_of,
    reconnaissance::Reconnaissance,
    session::{TxnSession, intent_above},
};
use crate::{error::TxnError, footprint::Footprint, stats::Event};

/// How a transaction comes to its locks.
#[derive(Debug, Default)]
pub(crate) enum Protocol {
    /// When it needs them, waiting for each.
    #[default]
    Dynamic,
    /// Whatever lock it asks for it gets at once, and none in truth: the locks are recorded, and nothing is changed.
    Reconnaissance(Box<Reconnaissance>),
    /// It has the locks of the footprint already. What is met beside the footprint is added to it.
    Planned(Box<Footprint>),
}

impl TxnSession {
    /// Asks for everything in the footprint, in the one order (TXN-17). Waits.
    pub(super) fn follow(&mut self, mut footprint: Box<Footprint>) -> Result<(), LockError> {
        let core = self.engine.core();
        let locking = core.options.locking;
        footprint.settle(core.options.escalation_locks);
        let granted = if locking { self.grant(&footprint) } else { Ok(()) };
        self.protocol = Protocol::Planned(footprint);
        granted
    }

    fn grant(&mut self, footprint: &Footprint) -> Result<(), LockError> {
        tables_of(footprint).try_for_each(|(table, mode)| self.intent(table, mode))?;
        for (table, key, mode) in footprint.keys() {
            self.owner.acquire(table, key, mode, &self.waiting.policy())?;
        }
        Ok(())
    }

    /// A table that the footprint does not have, or not so.
    #[cold]
    pub(super) fn enter_beside_plan(&mut self, table: TableId, want: IntentMode) -> Result<(), LockError> {
        let Protocol::Planned(footprint) = &mut self.protocol else { return Ok(()) };
        footprint.add_table(table, want);
        let want = if footprint.is_whole() { IntentMode::X } else { want };
        let no_wait = std::mem::replace(&mut self.waiting.no_wait, true);
        let entered =
            self.intent(TableId::VOLUME, intent_above(want)).and_then(|()| self.intent(table, want));
        self.waiting.no_wait = no_wait;
        entered.map_err(|error| match error {
            LockError::WouldBlock(_) => LockError::PlanMiss,
            other => other,
        })
    }

    /// A lock on a key or gap in the run, or in reconnaissance: held, tried or recorded, but never waited for.
    #[inline(never)]
    pub(super) fn acquire_at_once(
        &mut self,
        table: TableId,
        key: KeyRef<'_>,
        mode: KeyMode,
    ) -> Result<bool, LockError> {
        let core = self.engine.core();
        let footprint = match &mut self.protocol {
            Protocol::Dynamic => return self.owner.try_acquire(table, key, mode),
            Protocol::Reconnaissance(reconnaissance) => {
                reconnaissance.check_room(core.locks.max_locks_per_transaction())?;
                let name = core.locks.name(table, key)?;
                reconnaissance.footprint.add_key(name, table, key, mode, core.options.escalation_locks);
                return Ok(true);
            }
            Protocol::Planned(footprint) => footprint,
        };
        if self.owner.holds(table, key, mode)? {
            return Ok(true);
        }
        // Also if it is free now: in another run, which another lock may make necessary, it may not be.
        footprint.add_key(core.locks.name(table, key)?, table, key, mode, core.options.escalation_locks);
        let before = self.owner.lock_count();
        let granted = self.owner.try_acquire(table, key, mode)?;
        if self.owner.lock_count() > before {
            // Whether an escalation is due is asked under no latch.
            self.escalation.count(&self.owner, &mut self.intents, table, mode);
        }
        Ok(granted)
    }
}

impl Txn {
    /// Leaves reconnaissance with what it has found. What it has written, its savepoints, and whatever went wrong in it
    /// are forgotten; it may run now.
    ///
    /// Gives an empty footprint if there was no reconnaissance.
    pub fn end_reconnaissance(&mut self) -> Footprint {
        self.savepoints.clear();
        match std::mem::take(&mut self.session.protocol) {
            Protocol::Reconnaissance(reconnaissance) => {
                // It may have had no room for more.
                self.failed = self.failed.filter(|failure| *failure != Failure::PlanMiss);
                reconnaissance.footprint
            }
            Protocol::Planned(_) | Protocol::Dynamic => Footprint::default(),
        }
    }

    /// Asks for all locks of a footprint, before anything else. From now on it never waits for a lock: one that it has
    /// not and that is not free is [`LockError::PlanMiss`], after which it must be rolled back.
    ///
    /// Those who follow footprints are in no deadlock with each other. With others they may be, while this waits.
    pub fn follow(&mut self, footprint: Footprint) -> Result<(), TxnError> {
        self.check_usable()?;
        self.lock(|session| session.follow(Box::new(footprint)))
    }

    /// The footprint that it follows, larger by what it met beside it: for the next run.
    pub fn take_footprint(&mut self) -> Option<Footprint> {
        // Whoever is in reconnaissance stays in it, and does not commit.
        let Protocol::Planned(footprint) = &mut self.session.protocol else { return None };
        let mut footprint = std::mem::take(&mut **footprint);
        self.session.protocol = Protocol::Dynamic;
        if self.has_missed() {
            let stats = &self.session.core().stats;
            stats.count(Event::PlanMiss);
            if footprint.note_miss() {
                stats.count(Event::PlanFallback);
            }
        }
        Some(footprint)
    }

    /// Whether it met a lock that was neither in its footprint nor free.
    pub fn has_missed(&self) -> bool {
        self.failed == Some(Failure::PlanMiss)
    }
}
