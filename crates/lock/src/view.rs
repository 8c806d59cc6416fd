//! What is locked and who waits for whom, for people to look at while everything goes on.
//!
//! LOCK-12: a view stops nobody. It takes the latch of one queue at a time, and copies that queue under it; names,
//! labels and keys are added afterwards. So this is how consistent views are:
//!
//! - The requests on one name are those of one moment. Those on different names are of different moments: a view may
//!   show a transaction with a lock that it got while the view was made and without one that it gave back meanwhile,
//!   and even locks on two names that were never held at the same time.
//! - An edge of [`LockManager::waits`] was true at one moment, and its waiter was in that one wait all the while. Two
//!   edges may be of different moments: a cycle in them is not for that reason a deadlock.
//! - Intent locks are what their holders have published.

mod known;
mod notes;
mod reports;
mod transaction;

use foreshore_base::{TableId, TxnId};
use foreshore_env::time::{Duration, Instant};

use crate::deadlock::KeyBytes;
use crate::error::LockMode;
use crate::intent::{EntryIndex, IntentHold, IntentMode};
use crate::manager::LockManager;
use crate::mode::KeyMode;
use crate::name::LockName;
use crate::slot::{Identity, Slot, SlotId, Subject, WaitDescription, WaitWord};
use crate::table::{SeenRequest, obstructs};
use known::Known;
pub(crate) use notes::Notes;
pub use transaction::TransactionView;

/// Those in the way of one waiter that a view shows. With as many waiters as there can be, each behind all before it, a
/// view of all of them would be hundreds of megabytes.
pub const MAX_BLOCKERS: usize = 100;

/// How often a wait is looked at again because it went on while it was looked at.
const ATTEMPTS: u32 = 3;

/// What a lock is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockTarget {
    /// A table, or the volume.
    Table(TableId),
    /// A key, the gap above it, or both.
    Key(TableId, KeyBytes),
    /// The gap below the first key of a table.
    BeforeAll(TableId),
    /// Something of which only the name is known: nobody waits for it, and its holder keeps no notes
    /// ([`LockOptions::keep_notes`](crate::LockOptions::keep_notes)) or more locks than notes.
    Name(LockName),
}

/// A lock that is held or waited for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockView {
    /// Whose.
    pub transaction: TransactionView,
    /// On what.
    pub target: LockTarget,
    /// The mode that it has.
    pub granted: Option<LockMode>,
    /// The mode that it waits for.
    pub wanted: Option<LockMode>,
    /// How long it has had the lock, if its holder keeps notes.
    pub held_for: Option<Duration>,
    /// How long it has waited, if it waits.
    pub waited: Option<Duration>,
}

/// A transaction that waits, and everybody in its way.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitView {
    /// Who waits.
    pub transaction: TransactionView,
    /// For what.
    pub target: LockTarget,
    /// The mode that it waits for.
    pub wanted: LockMode,
    /// The mode that it has there already.
    pub held: Option<LockMode>,
    /// Which of its waits this is: no two of a transaction have the same number.
    pub number: u64,
    /// How long it has waited.
    pub waited: Duration,
    /// Who is in the way: those who hold what conflicts, oldest transaction first, and then those who have come before,
    /// oldest request first. The first [`MAX_BLOCKERS`] of them.
    pub blockers: Vec<BlockerView>,
    /// How many more there are.
    pub omitted: usize,
}

/// Who is in the way of a waiter.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BlockerView {
    /// Who.
    pub transaction: TransactionView,
    /// The mode that conflicts.
    pub mode: LockMode,
    /// Whether it holds that mode; otherwise it waits for it, and came first.
    pub holds: bool,
    /// How long it has had the lock; of keys only if it keeps notes (the facade's option `lock_notes`).
    pub held_for: Option<Duration>,
}

/// A wait that was the same from before it was looked at to after.
struct Wait {
    slot: SlotId,
    word: WaitWord,
    who: Identity,
    subject: Subject,
    /// The name of the request, unless it is for a table.
    name: Option<LockName>,
    description: WaitDescription,
}

/// Somebody in the way of a wait.
struct Obstacle {
    slot: SlotId,
    txn: TxnId,
    mode: LockMode,
    holds: bool,
}

impl LockManager {
    /// The locks that are held or waited for: at most `limit` of them, those on tables first; and how many there are
    /// beyond those. See the head of this file for how consistent they are.
    pub fn locks(&self, limit: usize) -> (Vec<LockView>, u64) {
        let waits = self.all_waits();
        let mut locks = Vec::new();
        let mut omitted = 0;
        let mut add = |lock: LockView| {
            if locks.len() < limit {
                locks.push(lock);
            } else {
                omitted += 1;
            }
        };
        let now = Instant::now();
        if !self.intents.are_in_table() {
            self.see_tables(&waits, now, &mut add);
        }
        let known = self.known(&waits);
        let mut seen = Vec::new();
        for place in 0..self.table.places() {
            self.table.look(&self.slots, place, &mut seen);
            for request in seen.iter().filter(|request| !self.waits_for_heirs(&known, request)) {
                add(self.lock_view(request, &waits, &known, now));
            }
        }
        (locks, omitted)
    }

    fn see_tables(&self, waits: &[Wait], now: Instant, add: &mut impl FnMut(LockView)) {
        let waiting = |txn: TxnId, table: TableId| {
            waits.iter().find(|wait| wait.who.txn == txn && wait.is_for_table(table))
        };
        for (slot, published) in self.slots.used() {
            // If it is the same before and after, it has not changed hands meanwhile.
            let Some(before) = published.identity() else { continue };
            let mut held: Vec<(TableId, IntentMode)> = Vec::new();
            published.intents.each(|entry, mode| held.push((table_of(entry), mode)));
            if self.who(slot, before.txn).begun_at.is_none() {
                continue;
            }
            for (table, mode) in held {
                let wait = waiting(before.txn, table);
                add(LockView {
                    transaction: TransactionView::of(&before, now),
                    target: LockTarget::Table(table),
                    granted: Some(LockMode::Table(mode)),
                    wanted: wait.map(|wait| wait.description.requested),
                    held_for: None,
                    waited: wait.map(|wait| wait.waited(now)),
                });
            }
        }
        for wait in waits.iter().filter(|wait| wait.name.is_none() && wait.description.held.is_none()) {
            add(LockView {
                transaction: TransactionView::of(&wait.who, now),
                target: wait.target(),
                granted: None,
                wanted: Some(wait.description.requested),
                held_for: None,
                waited: Some(wait.waited(now)),
            });
        }
    }

    fn lock_view(&self, request: &SeenRequest, waits: &[Wait], known: &Known, now: Instant) -> LockView {
        let &SeenRequest { name, slot, txn, modes } = request;
        let waiting = |wait: &&Wait| wait.who.txn == txn && wait.name == Some(name);
        let wait = if modes.is_waiting() { waits.iter().find(waiting) } else { None };
        LockView {
            transaction: self.who(slot, txn),
            target: known.targets.get(&name).copied().unwrap_or(LockTarget::Name(name)),
            granted: (modes.granted != KeyMode::N).then_some(LockMode::of(modes.granted)),
            wanted: modes.is_waiting().then_some(LockMode::of(modes.requested)),
            held_for: known.held_for(txn, name, now),
            waited: wait.map(|wait| wait.waited(now)),
        }
    }

    /// An open transaction; `None` if there is none with this id.
    pub fn transaction(&self, txn: TxnId) -> Option<TransactionView> {
        let identity =
            self.slots.used().filter_map(|(_, slot)| slot.identity()).find(|who| who.txn == txn)?;
        Some(TransactionView::of(&identity, Instant::now()))
    }

    /// Everybody who waits for a lock, and who is in the way. See the head of this file for how consistent that is.
    pub fn waits(&self) -> Vec<WaitView> {
        let known = self.known(&self.all_waits());
        self.slots.used().filter_map(|(slot, _)| self.wait_view(slot, &known)).collect()
    }

    /// Which transactions wait for a lock, and which of its waits each is in ([`WaitView::number`]). Takes no latch.
    pub fn waiters(&self) -> Vec<(TxnId, u64)> {
        let waiting = |(id, slot): (SlotId, &Slot)| {
            let word = self.slots.wait_of(id).word();
            let txn = slot.txn();
            // Unchanged: it is of this transaction.
            (word.is_waiting() && self.slots.wait_of(id).word() == word).then(|| (txn, word.epoch()))
        };
        self.slots.used().filter_map(waiting).collect()
    }

    /// What a transaction waits for, and who is in the way; `None` if it does not wait for a lock.
    pub fn wait_of(&self, txn: TxnId) -> Option<WaitView> {
        let (slot, _) = self.slots.used().find(|(_, slot)| slot.txn() == txn)?;
        let wait = self.wait_view(slot, &self.known(&self.all_waits()))?;
        (wait.transaction.id == txn).then_some(wait)
    }

    fn wait_view(&self, slot: SlotId, known: &Known) -> Option<WaitView> {
        (0..ATTEMPTS).find_map(|_| {
            let wait = self.wait_in(slot)?;
            let mut obstacles = self.obstacles(&wait)?;
            // A request that shares stands in its queue in no order that means anything.
            obstacles.sort_by_key(|other| (!other.holds, if other.holds { other.txn } else { TxnId(0) }));
            let now = Instant::now();
            let omitted = obstacles.len().saturating_sub(MAX_BLOCKERS);
            let shown = obstacles.into_iter().take(MAX_BLOCKERS);
            let blockers = shown.map(|Obstacle { slot, txn, mode, holds }| BlockerView {
                transaction: self.who(slot, txn),
                mode,
                holds,
                held_for: wait.name.filter(|_| holds).and_then(|name| known.held_for(txn, name, now)),
            });
            Some(WaitView {
                blockers: blockers.collect(),
                omitted,
                transaction: TransactionView::of(&wait.who, now),
                target: wait.target(),
                wanted: wait.description.requested,
                held: wait.description.held,
                number: wait.word.epoch(),
                waited: wait.waited(now),
            })
        })
    }

    fn all_waits(&self) -> Vec<Wait> {
        self.slots.used().filter_map(|(slot, _)| self.wait_in(slot)).collect()
    }

    /// The wait that a slot is in. LOCK-4: the word is the same before and after, so that all else belongs to that
    /// wait.
    fn wait_in(&self, slot: SlotId) -> Option<Wait> {
        (0..ATTEMPTS).find_map(|_| {
            let (wait, published) = (self.slots.wait_of(slot), self.slots.get(slot));
            let word = wait.word();
            if !word.is_waiting() {
                return None;
            }
            let subject = wait.subject();
            let name = match subject {
                Subject::Key(request) => Some(self.table.requests().get(request).name()),
                Subject::Table(_) => None,
            };
            let (who, description) = (published.identity()?, published.description()?);
            (wait.word() == word).then_some(Wait { slot, word, who, subject, name, description })
        })
    }

    /// Who was in the way of a wait at one moment of it; `None` if it has ended.
    fn obstacles(&self, wait: &Wait) -> Option<Vec<Obstacle>> {
        let obstacles = match (wait.subject, wait.name) {
            (Subject::Table(entry), _) => self.obstacles_on_table(wait, entry)?,
            (Subject::Key(_), Some(name)) => self.obstacles_on_name(wait, name),
            (Subject::Key(_), None) => return None,
        };
        (self.slots.wait_of(wait.slot).word() == wait.word).then_some(obstacles)
    }

    fn obstacles_on_name(&self, wait: &Wait, name: LockName) -> Vec<Obstacle> {
        let mut seen = Vec::new();
        self.table.look(&self.slots, self.table.place(name), &mut seen);
        seen.retain(|request| request.name == name);
        let own = seen.iter().position(|request| request.slot == wait.slot);
        let Some((own, wish)) = own.map(|own| (own, seen[own].modes)) else { return Vec::new() };
        let others = seen.iter().enumerate().filter(|&(place, _)| place != own);
        others
            .filter_map(|(place, other)| {
                let converts = wish.granted != KeyMode::N;
                let mode = obstructs(other.modes, place < own, wish.requested, converts)?;
                let held = other.modes.granted;
                // What it has conflicts by itself, or only what it wants does.
                let holds = !held.compatible(wish.requested);
                let mode = LockMode::of(if holds { held } else { mode });
                Some(Obstacle { slot: other.slot, txn: other.txn, mode, holds })
            })
            .collect()
    }

    /// `None` if somebody in the way changed while they were asked for: their slots might be others' already.
    fn obstacles_on_table(&self, wait: &Wait, entry: EntryIndex) -> Option<Vec<Obstacle>> {
        let before: Vec<TxnId> = self.slots.used().map(|(_, slot)| slot.txn()).collect();
        let (LockMode::Table(wanted), held) = (wait.description.requested, wait.description.held) else {
            return Some(Vec::new());
        };
        let held = match held {
            Some(LockMode::Table(mode)) => Some(mode),
            Some(LockMode::Key(_)) | None => None,
        };
        // The place matters only to whoever is granted the lock.
        let hold = IntentHold { slot: wait.slot, place: 0, held };
        let holders = self.intents.holders(&self.slots, entry, hold, wanted);
        let obstacle = |(slot, mode): (SlotId, LockMode)| {
            let published: &Slot = self.slots.get(slot);
            let txn = published.txn();
            let has = published.intents.find(entry);
            let holds = has.is_some_and(|mode| !mode.compatible(wanted));
            (before.get(slot.index()) == Some(&txn)).then_some(Obstacle { slot, txn, mode, holds })
        };
        holders.into_iter().map(obstacle).collect()
    }

    /// A transaction that was in a slot.
    fn who(&self, slot: SlotId, txn: TxnId) -> TransactionView {
        match self.slots.get(slot).identity().filter(|identity| identity.txn == txn) {
            Some(identity) => TransactionView::of(&identity, Instant::now()),
            None => TransactionView::ended(txn),
        }
    }
}

impl Wait {
    fn is_for_table(&self, table: TableId) -> bool {
        self.name.is_none() && self.description.table == table
    }

    fn target(&self) -> LockTarget {
        let WaitDescription { table, key, requested, .. } = self.description;
        match (key, requested) {
            (Some(key), _) => LockTarget::Key(table, key),
            (None, LockMode::Key(_)) => LockTarget::BeforeAll(table),
            (None, LockMode::Table(_)) => LockTarget::Table(table),
        }
    }

    fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.description.since)
    }
}

/// The volume, the table of an entry, or of those that share it the one with the smallest id.
fn table_of(entry: EntryIndex) -> TableId {
    if entry == EntryIndex::of(TableId::VOLUME) { TableId::VOLUME } else { TableId(entry.0) }
}
