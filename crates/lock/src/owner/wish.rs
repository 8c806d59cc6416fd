//! The slow way to a lock: what a transaction waits for, and how it gets it or not.

use foreshore_base::{Lsn, TableId};
use foreshore_env::time::Instant;

use crate::deadlock::{Detector, KeyBytes};
use crate::error::{LockError, LockMode};
use crate::intent::{EntryIndex, IntentHold, IntentMode};
use crate::manager::LockManager;
use crate::mode::Mode;
use crate::name::LockName;
use crate::request::RequestIndex;
use crate::slot::{SlotId, WaitDescription, WaitWord};
use crate::stats::WaitCounters;
use crate::table::Withdrawn;
use crate::wait::{Stopped, WaitPolicy};

/// What came of entering a queue.
pub(super) enum Begun {
    /// It was free all the same; the tag that the lock has to see.
    Granted(Lsn),
    /// The wait has begun.
    Waiting(WaitWord),
}

/// What a transaction waits for, as it asks for it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish {
    /// A lock on a name on which it has none.
    New { name: LockName, request: RequestIndex, wanted: Mode },
    /// A stronger lock.
    More { name: LockName, request: RequestIndex, held: Mode, wanted: Mode },
    /// An intent lock.
    Table { entry: EntryIndex, hold: IntentHold, wanted: IntentMode },
}

impl Wish {
    /// Waits for what was not free. Returns the tag that the lock has to see.
    #[cold]
    pub(super) fn wait(
        &self,
        manager: &LockManager,
        owner: SlotId,
        table: TableId,
        key: Option<KeyBytes>,
        policy: &WaitPolicy<'_>,
    ) -> Result<Lsn, LockError> {
        match self.begin(manager, owner, table, key, policy)? {
            Begun::Granted(tag) => Ok(tag),
            Begun::Waiting(word) => {
                let stopped = manager.wait(owner, word, policy);
                self.end(manager, owner, stopped)
            }
        }
    }

    /// Enters the queue for what was not free. Who then waits looks at the word until it has stopped, and calls
    /// [`Wish::end`].
    #[cold]
    pub(super) fn begin(
        &self,
        manager: &LockManager,
        owner: SlotId,
        table: TableId,
        key: Option<KeyBytes>,
        policy: &WaitPolicy<'_>,
    ) -> Result<Begun, LockError> {
        if policy.no_wait {
            return Err(LockError::WouldBlock(manager.describe(self.holders(manager, owner))));
        }
        let (requested, held) = self.modes();
        let slot = manager.slots.get(owner);
        // Before the wait begins: who finds it looks at the description.
        slot.describe(WaitDescription { table, key, requested, held, since: Instant::now() });
        if manager.detector.refuses_waits() {
            return Err(LockError::Deadlock(Detector::refusal(manager, owner)));
        }
        Ok(match self.enqueue(manager, owner) {
            Ok(tag) => Begun::Granted(tag),
            Err(word) => Begun::Waiting(word),
        })
    }

    /// Ends a wait that has stopped. Returns the tag that the lock has to see.
    #[cold]
    pub(super) fn end(
        &self,
        manager: &LockManager,
        owner: SlotId,
        stopped: Stopped,
    ) -> Result<Lsn, LockError> {
        let slot = manager.slots.get(owner);
        let holders = || manager.describe(self.holders(manager, owner));
        let in_the_way = if stopped == Stopped::Deadline { holders() } else { Vec::new() };
        match (self.withdraw(manager, owner), stopped) {
            (Withdrawn::Granted, _) => Ok(self.tag(manager)),
            (Withdrawn::Victim, _) => {
                let report = slot.take_verdict();
                Err(LockError::Deadlock(report.expect("a victim is told why before its wait ends")))
            }
            (Withdrawn::Gone, Stopped::Deadline) => {
                WaitCounters::add(&manager.counters.timeouts);
                Err(LockError::Timeout(in_the_way))
            }
            (Withdrawn::Gone, Stopped::Cancelled | Stopped::Over) => {
                WaitCounters::add(&manager.counters.cancelled);
                Err(LockError::Cancelled)
            }
        }
    }

    /// What is wanted and what is held, for reports.
    fn modes(&self) -> (LockMode, Option<LockMode>) {
        match *self {
            Wish::New { wanted, .. } => (LockMode::of(wanted), None),
            Wish::More { held, wanted, .. } => (LockMode::of(wanted), Some(LockMode::of(held))),
            Wish::Table { hold, wanted, .. } => (LockMode::Table(wanted), hold.held.map(LockMode::Table)),
        }
    }

    fn enqueue(&self, manager: &LockManager, slot: SlotId) -> Result<Lsn, WaitWord> {
        let slots = &manager.slots;
        match *self {
            Wish::New { name, request, wanted } => manager.table.request(slots, name, slot, request, wanted),
            Wish::More { name, request, wanted, .. } => manager.table.convert(slots, name, request, wanted),
            Wish::Table { entry, hold, wanted } => manager.intents.request(slots, entry, hold, wanted),
        }
    }

    fn withdraw(&self, manager: &LockManager, slot: SlotId) -> Withdrawn {
        match *self {
            Wish::New { name, request, .. } | Wish::More { name, request, .. } => {
                manager.table.withdraw(&manager.slots, name, request)
            }
            Wish::Table { entry, .. } => manager.intents.withdraw(&manager.slots, entry, slot),
        }
    }

    fn tag(&self, manager: &LockManager) -> Lsn {
        match *self {
            Wish::New { name, .. } | Wish::More { name, .. } => manager.table.tag(name),
            Wish::Table { entry, wanted, .. } => manager.intents.tag(&manager.slots, entry, wanted),
        }
    }

    fn holders(&self, manager: &LockManager, slot: SlotId) -> Vec<(SlotId, LockMode)> {
        match *self {
            Wish::New { name, wanted, .. } => manager.table.holders(name, slot, wanted, false),
            Wish::More { name, wanted, .. } => manager.table.holders(name, slot, wanted, true),
            Wish::Table { entry, hold, wanted } => {
                manager.intents.holders(&manager.slots, entry, hold, wanted)
            }
        }
    }
}
