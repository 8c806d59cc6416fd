//! Lightweight intent locks: Kimura et al. 2012, §3.2, Algorithms 3 and 4.
//!
//! For each table a handful of counters under a latch, and for each transaction a private list of what it holds: no
//! requests, no queue, the critical section is an addition. Where it departs from the paper:
//!
//! - Waiting is rare, and those who wait stand in a list in the order of their arrival. The list is the paper's
//!   announcement: a new request is not granted past an earlier waiter that it conflicts with. The paper prefers absolute
//!   locks instead, and so a stream of those starves intent locks; here neither starves the other.
//! - Who releases grants to the waiters and wakes those alone, so there is no version, no broadcast, and no timed wait.
//! - Waits are edges for the search for deadlocks (holders are found in what slots publish), so a circle through intent
//!   locks is resolved at once, not after a time-out.

use foreshore_base::{Lsn, TableId, limits::MAX_TABLES};
use foreshore_env::CachePadded;
use foreshore_env::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use foreshore_env::sync::{Mutex, OnceLock};
use foreshore_latch::{HybridLatch, rank};

use super::IntentMode;
use crate::deadlock::SlotSet;
use crate::error::LockMode;
use crate::slot::{SlotId, Slots, Subject, WaitWord};
use crate::table::{QUEUE_RANK, Wakes, Withdrawn};

/// Entries allocated together.
const CHUNK: usize = 64;

/// The entry of the volume as a whole, [`TableId`] `u32::MAX`.
const VOLUME: u32 = MAX_TABLES as u32;

/// The number of an entry. Tables whose ids differ by a multiple of [`MAX_TABLES`] share one, and so their locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryIndex(pub(crate) u32);

impl EntryIndex {
    #[inline]
    pub(crate) fn of(table: TableId) -> EntryIndex {
        EntryIndex(if table.0 == u32::MAX { VOLUME } else { table.0 % VOLUME })
    }
}

/// What a transaction has of an entry, before it asks for more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IntentHold {
    pub(crate) slot: SlotId,
    /// Where the lock is, or will be, in its list.
    pub(crate) place: usize,
    /// What it counts as a holder for.
    pub(crate) held: Option<IntentMode>,
}

/// A transaction that waits for an entry.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    hold: IntentHold,
    /// What it wants; covers what it holds.
    wanted: IntentMode,
}

/// The locks on one table.
#[derive(Debug, Default)]
struct Entry {
    /// Guards all fields.
    latch: HybridLatch,
    /// How many hold each mode.
    granted: [AtomicU32; 5],
    /// How many wait: the length of `waiters`, for a look without the mutex.
    waiting: AtomicU32,
    /// Who waits, oldest first. The mutex is never contended, since the latch is held.
    waiters: Mutex<Vec<Waiter>>,
    /// Highest commit LSN of an early release that changed the table as such: of X.
    self_tag: AtomicU64,
    /// Highest commit LSN of an early release that changed something below: of IX and SIX.
    descendant_tag: AtomicU64,
}

type Chunk = Box<[CachePadded<Entry>]>;

/// Intent locks, as said above.
#[derive(Debug)]
pub(crate) struct Lightweight {
    /// Allocated as their tables are first touched.
    chunks: Box<[OnceLock<Chunk>]>,
}

impl Lightweight {
    pub(crate) fn new() -> Lightweight {
        Lightweight { chunks: (0..=MAX_TABLES / CHUNK).map(|_| OnceLock::new()).collect() }
    }

    #[inline]
    fn entry(&self, entry: EntryIndex) -> &Entry {
        let make = || (0..CHUNK).map(|_| CachePadded::new(Entry::default())).collect();
        &self.chunks[entry.0 as usize / CHUNK].get_or_init(make)[entry.0 as usize % CHUNK]
    }

    /// Runs `operation` on an entry, alone.
    #[inline]
    fn alone<R>(&self, entry: EntryIndex, operation: impl FnOnce(&Entry) -> R) -> R {
        let entry = self.entry(entry);
        let _rank = rank::enter(QUEUE_RANK);
        let _guard = entry.latch.exclusive();
        operation(entry)
    }

    /// Grants `wanted`, which covers what is held, if that is possible at once; returns the tag that it has to see.
    #[inline]
    pub(crate) fn try_request(
        &self,
        slots: &Slots,
        index: EntryIndex,
        hold: IntentHold,
        wanted: IntentMode,
    ) -> Option<Lsn> {
        self.alone(index, |entry| entry.try_request(slots, index, hold, wanted))
    }

    /// As [`Lightweight::try_request`], but the owner begins a wait if need be.
    pub(crate) fn request(
        &self,
        slots: &Slots,
        index: EntryIndex,
        hold: IntentHold,
        wanted: IntentMode,
    ) -> Result<Lsn, WaitWord> {
        self.alone(index, |entry| {
            entry.try_request(slots, index, hold, wanted).ok_or_else(|| {
                let waiter = Waiter { hold, wanted };
                let blockers = entry.blockers(slots, index, &entry.waiters.lock(), &waiter);
                entry.waiters.lock().push(waiter);
                entry.waiting.store(entry.waiting.load(Relaxed) + 1, Relaxed);
                slots.wait_of(hold.slot).begin(Subject::Table(index), &blockers)
            })
        })
    }

    /// Ends a wait, however it stands (LOCK-6). If it was not granted, the owner holds what it held before.
    pub(crate) fn withdraw(&self, slots: &Slots, index: EntryIndex, slot: SlotId) -> Withdrawn {
        let mut wakes = Wakes::default();
        let withdrawn = self.alone(index, |entry| {
            let wait = slots.wait_of(slot);
            let word = wait.word();
            wait.leave();
            if word.is_granted() {
                return Withdrawn::Granted;
            }
            let holds = entry.remove_waiter(slot);
            entry.pass(slots, index, (!holds).then_some(slot), &mut wakes);
            if word.is_victim() { Withdrawn::Victim } else { Withdrawn::Gone }
        });
        self.wake(slots, index, wakes);
        withdrawn
    }

    /// Gives a lock back. With a tag, one that announces or is a change leaves it behind (LOCK-9).
    #[inline]
    pub(crate) fn release(
        &self,
        slots: &Slots,
        index: EntryIndex,
        slot: SlotId,
        mode: IntentMode,
        tag: Option<Lsn>,
    ) {
        let mut wakes = Wakes::default();
        self.alone(index, |entry| {
            entry.count(mode, u32::wrapping_sub);
            if let Some(tag) = tag {
                entry.leave_tag(mode, tag);
            }
            if entry.waiting.load(Relaxed) > 0 {
                entry.pass(slots, index, Some(slot), &mut wakes);
            }
        });
        if !wakes.is_empty() {
            self.wake(slots, index, wakes);
        }
    }

    #[cold]
    fn wake(&self, slots: &Slots, index: EntryIndex, mut wakes: Wakes) {
        loop {
            let more = wakes.is_full();
            wakes.wake(slots);
            if !more {
                return;
            }
            wakes = Wakes::default();
            self.alone(index, |entry| entry.pass(slots, index, None, &mut wakes));
        }
    }

    /// The tag that a lock in this mode has to see.
    pub(crate) fn tag(&self, index: EntryIndex, mode: IntentMode) -> Lsn {
        self.entry(index).tag(mode)
    }

    /// If `slot` is still in the wait `word`, for this entry: whom it waits for. `see` is called under the latch.
    pub(crate) fn blockers(
        &self,
        slots: &Slots,
        slot: SlotId,
        word: WaitWord,
        index: EntryIndex,
        see: impl FnOnce(&SlotSet),
    ) -> Option<SlotSet> {
        self.alone(index, |entry| {
            let waiters = entry.waiters.lock();
            let waiter = waiters.iter().find(|waiter| waiter.hold.slot == slot)?;
            (slots.wait_of(slot).word() == word).then(|| {
                let blockers = entry.blockers(slots, index, &waiters, waiter);
                see(&blockers);
                blockers
            })
        })
    }

    /// Makes `slot` a victim if it is still in the wait `word`, for this entry.
    pub(crate) fn make_victim(
        &self,
        slots: &Slots,
        slot: SlotId,
        word: WaitWord,
        index: EntryIndex,
        judge: impl FnOnce(),
    ) -> bool {
        self.alone(index, |_| {
            let waits = slots.wait_of(slot).word() == word;
            if waits {
                judge();
                slots.wait_of(slot).make_victim();
            }
            waits
        })
    }

    /// Who is in the way of a wish, which may be waited for already.
    pub(crate) fn holders(
        &self,
        slots: &Slots,
        index: EntryIndex,
        hold: IntentHold,
        wanted: IntentMode,
    ) -> Vec<(SlotId, LockMode)> {
        let mut holders = Vec::new();
        self.alone(index, |entry| {
            let see = |other, mode| holders.push((other, LockMode::Table(mode)));
            entry.obstacles(slots, index, &entry.waiters.lock(), &Waiter { hold, wanted }, see);
        });
        holders
    }

    /// Whether nobody holds or wants anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.iter().filter_map(OnceLock::get).flatten().all(|entry| {
            let _rank = rank::enter(QUEUE_RANK);
            let _guard = entry.latch.shared();
            entry.waiting.load(Relaxed) == 0 && entry.granted.iter().all(|count| count.load(Relaxed) == 0)
        })
    }
}

impl Entry {
    /// Adds or takes away one holder.
    #[inline]
    fn count(&self, mode: IntentMode, change: fn(u32, u32) -> u32) {
        let count = &self.granted[mode as usize];
        let changed = change(count.load(Relaxed), 1);
        debug_assert!(changed < u32::MAX / 2, "more locks released than held");
        count.store(changed, Relaxed);
    }

    /// Whether the holders allow `wanted` to one of them that holds `held`, or to a newcomer.
    #[inline]
    fn holders_allow(&self, held: Option<IntentMode>, wanted: IntentMode) -> bool {
        let conflicts = wanted.conflicts();
        self.granted.iter().enumerate().all(|(mode, count)| {
            let own = u32::from(held.is_some_and(|held| held as usize == mode));
            conflicts & (1 << mode) == 0 || count.load(Relaxed) == own
        })
    }

    #[inline]
    fn try_request(
        &self,
        slots: &Slots,
        index: EntryIndex,
        hold: IntentHold,
        wanted: IntentMode,
    ) -> Option<Lsn> {
        let waiting = self.waiting.load(Relaxed) > 0;
        let free = self.holders_allow(hold.held, wanted)
            && (hold.held.is_some() || !waiting || self.waiters_allow(wanted));
        free.then(|| {
            self.grant(slots, index, hold, wanted);
            if waiting {
                Entry::announce(slots, &self.waiters.lock(), hold.slot, wanted);
            }
            self.tag(wanted)
        })
    }

    /// Whether no waiter conflicts with a newcomer.
    #[cold]
    fn waiters_allow(&self, wanted: IntentMode) -> bool {
        self.waiters.lock().iter().all(|waiter| waiter.wanted.compatible(wanted))
    }

    #[inline]
    fn grant(&self, slots: &Slots, index: EntryIndex, hold: IntentHold, wanted: IntentMode) {
        if let Some(held) = hold.held {
            self.count(held, u32::wrapping_sub);
        }
        self.count(wanted, u32::wrapping_add);
        slots.get(hold.slot).publish_intent(hold.place, index, wanted);
    }

    /// LOCK-11: somebody holds a mode now that may be in the way of those who wait.
    #[cold]
    fn announce(slots: &Slots, waiters: &[Waiter], slot: SlotId, granted: IntentMode) {
        for waiter in waiters.iter().filter(|waiter| !waiter.wanted.compatible(granted)) {
            slots.wait_of(waiter.hold.slot).digest().insert(slot);
        }
    }

    /// Grants to waiters what can be granted, conversions first, then oldest first. `left` has neither a lock nor a wish here
    /// any more. Stops granting when `wakes` is full.
    #[cold]
    fn pass(&self, slots: &Slots, index: EntryIndex, left: Option<SlotId>, wakes: &mut Wakes) {
        let mut waiters = self.waiters.lock();
        if let Some(left) = left {
            waiters.iter().for_each(|waiter| slots.wait_of(waiter.hold.slot).digest().remove(left));
        }
        for conversions in [true, false] {
            let mut place = 0;
            while let Some(&Waiter { hold, wanted }) = waiters.get(place) {
                let wait = slots.wait_of(hold.slot);
                let free = hold.held.is_some() == conversions
                    && wait.word().is_waiting()
                    && !wakes.is_full()
                    && self.holders_allow(hold.held, wanted)
                    && (conversions
                        || waiters[..place].iter().all(|before| before.wanted.compatible(wanted)));
                if free {
                    waiters.remove(place);
                    self.waiting.store(self.waiting.load(Relaxed) - 1, Relaxed);
                    self.grant(slots, index, hold, wanted);
                    Entry::announce(slots, &waiters, hold.slot, wanted);
                    wait.grant();
                    wakes.add(hold.slot);
                } else {
                    place += 1;
                }
            }
        }
    }

    /// Takes a waiter off the list; whether it holds a lock nevertheless.
    fn remove_waiter(&self, slot: SlotId) -> bool {
        let mut waiters = self.waiters.lock();
        let place = waiters.iter().position(|waiter| waiter.hold.slot == slot);
        let removed = place.map(|place| waiters.remove(place));
        self.waiting.store(waiters.len() as u32, Relaxed);
        removed.is_some_and(|waiter| waiter.hold.held.is_some())
    }

    /// Whom a waiter, or somebody who is about to become one, waits for.
    fn blockers(&self, slots: &Slots, index: EntryIndex, waiters: &[Waiter], waiter: &Waiter) -> SlotSet {
        let mut blockers = SlotSet::default();
        self.obstacles(slots, index, waiters, waiter, |other, _| blockers.insert(other));
        blockers
    }

    /// Visits those who are in the way of a waiter, with the mode that conflicts. Who is not in the list stands behind
    /// everybody.
    fn obstacles(
        &self,
        slots: &Slots,
        index: EntryIndex,
        waiters: &[Waiter],
        waiter: &Waiter,
        mut see: impl FnMut(SlotId, IntentMode),
    ) {
        let Waiter { hold, wanted } = *waiter;
        if hold.held.is_none() {
            let before = waiters.iter().take_while(|before| before.hold.slot != hold.slot);
            for before in before.filter(|before| !before.wanted.compatible(wanted)) {
                see(before.hold.slot, before.wanted);
            }
        }
        for (other, published) in slots.used() {
            if other != hold.slot
                && let Some(mode) = published.published_intent(index)
                && !mode.compatible(wanted)
            {
                see(other, mode);
            }
        }
    }

    /// Intents look at changes of the table as such, absolute locks at all changes.
    #[inline]
    fn tag(&self, mode: IntentMode) -> Lsn {
        // Acquire: partners are the Release stores in `leave_tag`.
        let own = self.self_tag.load(Acquire);
        Lsn(if mode.is_absolute() { own.max(self.descendant_tag.load(Acquire)) } else { own })
    }

    #[inline]
    fn leave_tag(&self, mode: IntentMode, lsn: Lsn) {
        let tag = match mode {
            IntentMode::IX | IntentMode::SIX => &self.descendant_tag,
            IntentMode::X => &self.self_tag,
            IntentMode::IS | IntentMode::S => return,
        };
        tag.store(tag.load(Relaxed).max(lsn.0), Release);
    }
}
