//! From locks on keys to a lock on their table: when a transaction has many.
//!
//! TXN-16: an escalation never waits. If somebody is in the way, locks on keys go on, and it is tried again when there
//! are twice as many. Once granted, it is a lock on the table like others: writers of other keys wait for a reader that
//! has escalated, and two such readers that then write are in a deadlock.
//!
//! The locks on keys stay: locks are given back at the end only, also those of a savepoint that was rolled back to.

use foreshore_base::TableId;
use foreshore_lock::{IntentMode, KeyMode, LockOwner};

use super::{intents::Intents, session::TxnSession};

/// What a lock on a key takes: its request, its place in the transaction's list, and two places in the list's index.
pub(crate) const LOCK_BYTES: usize = 32 + 24 + 16;

/// When to escalate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Escalation {
    /// Locks on the keys of one table.
    locks: usize,
    /// Locks of the whole transaction from which on it is tried for the table with the most.
    total: usize,
}

/// A table that a transaction has entered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entered {
    pub(super) table: TableId,
    pub(super) mode: IntentMode,
    /// Locks on its keys that were counted, and how many of them are for changes.
    locks: usize,
    writes: usize,
    /// A lock on the table is tried in their place when there are so many locks on its keys.
    try_at: usize,
}

impl Entered {
    pub(super) fn new(table: TableId, mode: IntentMode, escalation: &Escalation) -> Entered {
        Entered { table, mode, locks: 0, writes: 0, try_at: escalation.locks }
    }

    /// What would cover most of what is locked.
    fn target(&self) -> IntentMode {
        if self.writes * 2 > self.locks { IntentMode::X } else { IntentMode::S }
    }
}

impl Escalation {
    /// `locks` on one table, `bytes` for all locks; 0: never. `inherited`: locks that it has from those before it in
    /// its pipeline, which do not count.
    pub(super) fn new(locks: usize, bytes: usize, inherited: usize) -> Escalation {
        let or_never = |limit: usize| if limit == 0 { usize::MAX } else { limit };
        let total = or_never(bytes).div_ceil(LOCK_BYTES).saturating_add(inherited);
        Escalation { locks: or_never(locks), total }
    }

    /// A lock on a key of a table was granted. Returns whether an escalation is due.
    #[inline]
    pub(super) fn count(
        &self,
        owner: &LockOwner,
        entered: &mut Intents,
        table: TableId,
        mode: KeyMode,
    ) -> bool {
        let Some(entered) = entered.find_mut(table) else { return false };
        entered.locks += 1;
        entered.writes += usize::from(mode.is_exclusive());
        self.is_due_for(owner, entered)
    }

    /// Whether the locks that were counted, the last of them on this table, are reason to escalate.
    #[inline]
    pub(super) fn is_due(&self, owner: &LockOwner, entered: &Intents, table: TableId) -> bool {
        entered.find(table).is_some_and(|entered| self.is_due_for(owner, entered))
    }

    #[inline]
    fn is_due_for(&self, owner: &LockOwner, entered: &Entered) -> bool {
        entered.locks >= entered.try_at || owner.lock_count() >= self.total
    }

    /// Tries for the lock that is due: on this table, or on the one with the most. Returns whether a table has a
    /// stronger lock now. Not under a latch.
    pub(super) fn escalate(&mut self, owner: &mut LockOwner, entered: &mut Intents, table: TableId) -> bool {
        let own = entered.find_mut(table);
        if let Some(own) = own.filter(|own| own.locks >= own.try_at) {
            return try_for(owner, own);
        }
        self.total = owner.lock_count().saturating_mul(2);
        // One that has such a lock already would save nothing, nor would one without locks on keys, as the volume.
        let lacking =
            entered.iter_mut().filter(|entered| entered.locks > 0 && !entered.mode.covers(entered.target()));
        let most = lacking.max_by_key(|entered| entered.locks);
        most.is_some_and(|most| try_for(owner, most))
    }
}

fn try_for(owner: &mut LockOwner, entered: &mut Entered) -> bool {
    entered.try_at = entered.locks.saturating_mul(2);
    // A reader that has escalated, and now writes, has gained nothing by what it has already.
    let target = if entered.mode.covers(entered.target()) { IntentMode::X } else { entered.target() };
    let escalated = owner.escalate(entered.table, target);
    if escalated {
        entered.mode = owner.held_intent(entered.table).unwrap_or(entered.mode);
    }
    escalated
}

impl TxnSession {
    /// Tries for a lock on the table in place of more locks on keys. Under no latch.
    #[cold]
    pub(super) fn escalate(&mut self, table: TableId) {
        self.absolute |= self.escalation.escalate(&mut self.owner, &mut self.intents, table);
    }

    /// Whether a lock on the table makes this key lock needless.
    #[inline]
    pub(super) fn covered(&self, table: TableId, mode: KeyMode) -> bool {
        if self.absolute { self.covered_by_table(table, mode) } else { !self.core().options.locking }
    }

    #[cold]
    fn covered_by_table(&self, table: TableId, mode: KeyMode) -> bool {
        let writes = !KeyMode::S.covers(mode);
        let covers = |entered: &Entered| match entered.mode {
            IntentMode::X => true,
            IntentMode::S | IntentMode::SIX => !writes,
            IntentMode::IS | IntentMode::IX => false,
        };
        self.intents.find(table).is_some_and(covers) || self.intents.find(TableId::VOLUME).is_some_and(covers)
    }
}
