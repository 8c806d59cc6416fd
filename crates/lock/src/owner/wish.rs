//! The slow way to a lock: what a transaction waits for, and how it gets it or not.

use foreshore_base::{Lsn, TableId};
use foreshore_env::sync::atomic::Ordering::Relaxed;
use foreshore_env::time::{Duration, Instant};

use crate::deadlock::{self, KeyBytes};
use crate::error::{LockError, LockMode, Refusal};
use crate::intent::{EntryIndex, IntentHold, IntentMode};
use crate::manager::LockManager;
use crate::mode::KeyMode;
use crate::name::LockName;
use crate::request::RequestIndex;
use crate::slot::{SlotId, WaitDescription, WaitWord};
use crate::stats::WaitCounters;
use crate::table::Withdrawn;
use crate::wait::{Stopped, WaitPolicy};

/// What somebody is told whose wish, which it has described, is not granted. `timeout`: how long a wait for it may
/// last.
fn refusal(
    manager: &LockManager,
    owner: SlotId,
    holders: Vec<(SlotId, LockMode)>,
    timeout: Option<Duration>,
) -> Box<Refusal> {
    let wish = deadlock::edge(manager, owner);
    // A wait that has lasted so long would have ended for this reason, if it has not.
    let reached = |timeout: &Duration| wish.as_ref().is_some_and(|wish| wish.waited >= *timeout);
    Box::new(Refusal { timeout: timeout.filter(reached), wish, blockers: manager.describe(holders) })
}

/// What came of entering a queue.
pub(super) enum Begun {
    /// The lock was free all the same; the tag that the lock has to see.
    Granted(Lsn),
    /// The wait has begun.
    Waiting(WaitWord),
}

/// What a transaction waits for, as it asks for it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish {
    /// A lock on a name on which it has none.
    New { name: LockName, request: RequestIndex, wanted: KeyMode },
    /// A stronger lock.
    More { name: LockName, request: RequestIndex, held: KeyMode, wanted: KeyMode },
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
        manager.slots.wait_of(owner).announce(false);
        match self.begin(manager, owner, table, key, policy)? {
            Begun::Granted(tag) => Ok(tag),
            Begun::Waiting(word) => {
                let stopped = manager.wait(owner, word, policy);
                self.end(manager, owner, stopped, policy.timeout)
            }
        }
    }

    /// Enters the queue for what was not free. A thread that then waits looks at the word until it has stopped, and
    /// calls [`Wish::end`].
    #[cold]
    pub(super) fn begin(
        &self,
        manager: &LockManager,
        owner: SlotId,
        table: TableId,
        key: Option<KeyBytes>,
        policy: &WaitPolicy<'_>,
    ) -> Result<Begun, LockError> {
        let (requested, held) = self.modes();
        let slot = manager.slots.get(owner);
        // Before the wait begins: a thread that finds it looks at the description. Errors tell it, too.
        slot.describe(WaitDescription { table, key, requested, held, since: Instant::now() });
        let no_wait = policy.no_wait || self.would_wait_for_ever(manager, owner);
        if no_wait || manager.detector.refuses_waits() {
            if let Wish::New { request, .. } = *self {
                manager.table.requests().use_up(request);
            }
            let holders = self.holders(manager, owner);
            return Err(match no_wait {
                true => LockError::WouldBlock(refusal(manager, owner, holders, None)),
                false => LockError::Deadlock(manager.detector.refuse(manager, owner, &holders)),
            });
        }
        Ok(match self.enqueue(manager, owner) {
            Ok(tag) => Begun::Granted(tag),
            Err(word) => Begun::Waiting(word),
        })
    }

    /// Whether a transaction is in the way that will never be ended. Such a one waits for nobody and was there before,
    /// so no waiter gets to be behind it later.
    fn would_wait_for_ever(&self, manager: &LockManager, owner: SlotId) -> bool {
        let stays = |(slot, _)| manager.slots.get(slot).identity().is_some_and(|identity| identity.stays);
        manager.somebody_stays.load(Relaxed) && self.holders(manager, owner).into_iter().any(stays)
    }

    /// Ends a wait that has stopped. Returns the tag that the lock has to see. `timeout`: how long it was allowed to
    /// be.
    #[cold]
    pub(super) fn end(
        &self,
        manager: &LockManager,
        owner: SlotId,
        stopped: Stopped,
        timeout: Option<Duration>,
    ) -> Result<Lsn, LockError> {
        let slot = manager.slots.get(owner);
        let holders =
            if matches!(stopped, Stopped::Deadline) { self.holders(manager, owner) } else { Vec::new() };
        match (self.withdraw(manager, owner), stopped) {
            (Withdrawn::Granted, _) => Ok(self.tag(manager)),
            (Withdrawn::Victim, _) => {
                let report = slot.take_verdict();
                Err(LockError::Deadlock(report.expect("a victim is told why before its wait ends")))
            }
            (Withdrawn::Gone, Stopped::Deadline) => {
                WaitCounters::add(&manager.counters.timeouts);
                Err(LockError::Timeout(refusal(manager, owner, holders, timeout)))
            }
            (Withdrawn::Gone, Stopped::Ended(error)) => Err(LockError::Ended(Box::new(error))),
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
