//! Locks of a transaction on tables, and on the volume.

use foreshore_base::{Places, TableId};
use foreshore_lock::{IntentMode, LockError};

use super::{TxnSession, escalation::Entered};

/// Intent locks of most transactions, the volume's among them: more of them cost an allocation.
const USUAL: usize = 8;

/// The locks of a transaction on tables, and on the volume, in the order in which it has got them.
#[derive(Debug)]
pub(super) struct Intents {
    list: Vec<Entered>,
    places: Places<TableId>,
}

impl Intents {
    pub(super) fn new() -> Intents {
        Intents { list: Vec::with_capacity(USUAL), places: Places::default() }
    }

    #[inline]
    pub(super) fn find(&self, table: TableId) -> Option<&Entered> {
        self.places.find(&self.list, table, |entered| entered.table)
    }

    #[inline]
    pub(super) fn find_mut(&mut self, table: TableId) -> Option<&mut Entered> {
        self.places.find_mut(&mut self.list, table, |entered| entered.table)
    }

    fn place(&self, table: TableId) -> Option<usize> {
        self.places.place(&self.list, table, |entered| entered.table)
    }

    fn push(&mut self, entered: Entered) {
        self.list.push(entered);
        self.places.note_last(&self.list, |entered| entered.table);
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entered> {
        self.list.iter_mut()
    }
}

impl TxnSession {
    /// Locks a table, or the volume, itself; without what stands above it.
    pub(crate) fn intent(&mut self, table: TableId, want: IntentMode) -> Result<(), LockError> {
        if let Some((place, joined)) = self.wanting(table, want) {
            self.advance_change();
            // Those before it in its pipeline may have left it a stronger one.
            let mode = self.owner.intent(table, joined, &self.waiting.policy())?;
            self.note_intent(table, place, mode);
        }
        Ok(())
    }

    /// [`TxnSession::intent`], but comes back when it would wait: `false`, and the wait goes on (`LockOwner::look`).
    /// It is called again then.
    pub(super) fn ask_intent(&mut self, table: TableId, want: IntentMode) -> Result<bool, LockError> {
        let Some((place, joined)) = self.wanting(table, want) else { return Ok(true) };
        let granted = self.owner.ask_intent(table, joined, &self.waiting.policy())?;
        if granted {
            let mode = self.owner.held_intent(table).unwrap_or(joined);
            self.note_intent(table, place, mode);
        }
        Ok(granted)
    }

    /// What to ask for, if what it holds is not enough, and where in the list that is.
    fn wanting(&self, table: TableId, want: IntentMode) -> Option<(Option<usize>, IntentMode)> {
        let place = self.intents.place(table);
        match place.map(|place| self.intents.list[place].mode) {
            Some(held) if held.covers(want) => None,
            Some(held) => Some((place, held.join(want))),
            None => Some((None, want)),
        }
    }

    #[inline]
    fn note_intent(&mut self, table: TableId, place: Option<usize>, mode: IntentMode) {
        match place {
            Some(place) => self.intents.list[place].mode = mode,
            None => self.intents.push(Entered::new(table, mode, &self.escalation)),
        }
        self.absolute |= !matches!(mode, IntentMode::IS | IntentMode::IX);
    }

    /// Its locks on tables, and on the volume.
    pub(crate) fn intents(&self) -> impl Iterator<Item = (TableId, IntentMode)> {
        self.intents.list.iter().map(|entered| (entered.table, entered.mode))
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use std::path::Path;

    use foreshore_env::{disk::Disk, sync::Arc, time::Instant};
    use foreshore_testkit::FaultyDisk;

    use super::*;
    use crate::{BeginOptions, Engine, EngineOptions};

    /// Each table was looked for among all that the transaction had touched before: 50,000 of them took 42 seconds.
    #[test]
    fn a_transaction_may_touch_all_tables_that_there_are() {
        const TABLES: u32 = 60_000;
        let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
        let engine = Engine::open(disk, Path::new("db"), &EngineOptions::default()).unwrap();
        let mut txn = engine.begin(BeginOptions::default()).unwrap();
        let session = &mut txn.session;
        let tables = || (0..TABLES).map(|table| TableId(TableId::FIRST_USER.0 + table));
        let mode = |table: TableId, modes: [IntentMode; 2]| modes[table.0 as usize % 2];
        let begun = Instant::now();
        for table in tables() {
            session.enter(table, mode(table, [IntentMode::IS, IntentMode::IX])).unwrap();
        }
        for table in tables() {
            session.enter(table, mode(table, [IntentMode::S, IntentMode::IS])).unwrap();
        }
        for table in tables() {
            let held = mode(table, [IntentMode::S, IntentMode::IX]);
            assert_eq!(session.owner.held_intent(table), Some(held));
            assert!(session.has_entered(table, held) && !session.has_entered(table, IntentMode::X));
        }
        assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
        txn.rollback().unwrap();
        assert!(engine.core().locks.is_empty());
        engine.close().unwrap();
    }
}
