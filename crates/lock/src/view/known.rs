//! What names mean: a lock table knows only their hashes.

use std::collections::BTreeMap;

use foreshore_base::TxnId;
use foreshore_env::time::{Duration, Instant};

use super::{LockTarget, Wait, table_of};
use crate::intent::EntryIndex;
use crate::manager::LockManager;
use crate::mode::KeyMode;
use crate::name::LockName;
use crate::table::SeenRequest;

/// What is known about names beyond their hashes.
#[derive(Default)]
pub(super) struct Known {
    pub(super) targets: BTreeMap<LockName, LockTarget>,
    since: BTreeMap<(TxnId, LockName), Instant>,
}

impl LockManager {
    /// What waiters have said about the names that they wait for, and holders have noted.
    pub(super) fn known(&self, waits: &[Wait]) -> Known {
        let mut known = Known::default();
        for wait in waits {
            if let Some(name) = wait.name {
                known.targets.insert(name, wait.target());
            }
        }
        if let Some(notes) = &self.notes {
            for (slot, published) in self.slots.used() {
                notes.read(slot, published, |txn, note| {
                    known.targets.insert(note.name, note.target);
                    known.since.insert((txn, note.name), note.since);
                });
            }
        }
        if self.intents.are_in_table() {
            for (_, published) in self.slots.used() {
                published.intents.each(|entry, _| {
                    known.targets.insert(self.intent_name(entry), LockTarget::Table(table_of(entry)));
                });
            }
        }
        known
    }
}

impl LockManager {
    /// Whether it is an intent lock that belongs to nobody at present, kept for the next transaction of its slot: a
    /// transaction that has one says so.
    pub(super) fn waits_for_heirs(&self, known: &Known, request: &SeenRequest) -> bool {
        if request.modes.requested.intent().is_none() || request.modes.granted == KeyMode::N {
            return false;
        }
        let published = match known.targets.get(&request.name) {
            Some(LockTarget::Table(table)) => {
                self.slots.get(request.slot).intents.find(EntryIndex::of(*table))
            }
            _ => None,
        };
        published.is_none()
    }
}

impl Known {
    pub(super) fn held_for(&self, txn: TxnId, name: LockName, now: Instant) -> Option<Duration> {
        self.since.get(&(txn, name)).map(|&since| now.saturating_duration_since(since))
    }
}
