//! Locks of a transaction on tables, and on the volume.

use foreshore_base::TableId;
use foreshore_lock::{IntentMode, LockError};

use super::{TxnSession, escalation::Entered};

impl TxnSession {
    /// Locks a table, or the volume, itself; without what stands above it.
    pub(crate) fn intent(&mut self, table: TableId, want: IntentMode) -> Result<(), LockError> {
        if let Some(joined) = self.wanting(table, want) {
            self.advance_change();
            self.owner.intent(table, joined, &self.waiting.policy())?;
            self.note_intent(table, joined);
        }
        Ok(())
    }

    /// [`TxnSession::intent`], but comes back when it would wait: `false`, and the wait goes on (`LockOwner::look`).
    /// It is called again then.
    pub(super) fn ask_intent(&mut self, table: TableId, want: IntentMode) -> Result<bool, LockError> {
        let Some(joined) = self.wanting(table, want) else { return Ok(true) };
        let granted = self.owner.ask_intent(table, joined, &self.waiting.policy())?;
        if granted {
            self.note_intent(table, joined);
        }
        Ok(granted)
    }

    /// What to ask for, if what it holds is not enough.
    fn wanting(&self, table: TableId, want: IntentMode) -> Option<IntentMode> {
        match self.intents.iter().find(|entered| entered.table == table) {
            Some(entered) if entered.mode.covers(want) => None,
            Some(entered) => Some(entered.mode.join(want)),
            None => Some(want),
        }
    }

    fn note_intent(&mut self, table: TableId, wanted: IntentMode) {
        // Those before it in its pipeline may have left it a stronger one.
        let mode = self.owner.held_intent(table).unwrap_or(wanted);
        match self.intents.iter_mut().find(|entered| entered.table == table) {
            Some(entered) => entered.mode = mode,
            None => self.intents.push(Entered::new(table, mode, &self.escalation)),
        }
        self.absolute |= !matches!(mode, IntentMode::IS | IntentMode::IX);
    }

    /// Its locks on tables, and on the volume.
    pub(crate) fn intents(&self) -> impl Iterator<Item = (TableId, IntentMode)> {
        self.intents.iter().map(|entered| (entered.table, entered.mode))
    }
}
