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

/// A transaction that waits for an entry.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    slot: SlotId,
    /// What it has, and still counts as a holder for.
    held: Option<IntentMode>,
    /// What it wants; covers `held`.
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

    /// Grants `wanted`, which covers `held`, if that is possible at once; returns the tag that `wanted` has to see.
    #[inline]
    pub(crate) fn try_request(
        &self,
        entry: EntryIndex,
        held: Option<IntentMode>,
        wanted: IntentMode,
    ) -> Option<Lsn> {
        self.alone(entry, |entry| entry.try_request(held, wanted))
    }

    /// As [`Lightweight::try_request`], but the owner of `slot` begins a wait if need be.
    pub(crate) fn request(
        &self,
        slots: &Slots,
        index: EntryIndex,
        slot: SlotId,
        held: Option<IntentMode>,
        wanted: IntentMode,
    ) -> Result<Lsn, WaitWord> {
        self.alone(index, |entry| {
            entry.try_request(held, wanted).ok_or_else(|| {
                entry.waiters.lock().push(Waiter { slot, held, wanted });
                entry.waiting.store(entry.waiting.load(Relaxed) + 1, Relaxed);
                slots.wait_of(slot).begin(Subject::Table(index))
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
            entry.remove_waiter(slot);
            entry.pass(slots, &mut wakes);
            if word.is_victim() { Withdrawn::Victim } else { Withdrawn::Gone }
        });
        self.wake(slots, index, wakes);
        withdrawn
    }

    /// Gives a lock back. With a tag, one that announces or is a change leaves it behind (LOCK-9).
    #[inline]
    pub(crate) fn release(&self, slots: &Slots, index: EntryIndex, mode: IntentMode, tag: Option<Lsn>) {
        let mut wakes = Wakes::default();
        self.alone(index, |entry| {
            entry.count(mode, u32::wrapping_sub);
            if let Some(tag) = tag {
                entry.leave_tag(mode, tag);
            }
            if entry.waiting.load(Relaxed) > 0 {
                entry.pass(slots, &mut wakes);
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
            self.alone(index, |entry| entry.pass(slots, &mut wakes));
        }
    }

    /// The tag that a lock in this mode has to see.
    pub(crate) fn tag(&self, index: EntryIndex, mode: IntentMode) -> Lsn {
        self.entry(index).tag(mode)
    }

    /// If `slot` is still in the wait `word`, for this entry: whom it waits for. With `publish`, they become its digest.
    pub(crate) fn blockers(
        &self,
        slots: &Slots,
        slot: SlotId,
        word: WaitWord,
        index: EntryIndex,
        publish: bool,
    ) -> Option<SlotSet> {
        self.alone(index, |entry| {
            let wait = slots.wait_of(slot);
            (wait.word() == word).then(|| {
                let mut blockers = SlotSet::default();
                entry.obstacles(slots, index, slot, None, &mut |other, _| blockers.insert(other));
                if publish {
                    wait.publish(&blockers);
                }
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

    /// Who is in the way of `slot`: of its wait, or, if it does not wait, of `wanted`.
    pub(crate) fn holders(
        &self,
        slots: &Slots,
        index: EntryIndex,
        slot: SlotId,
        held: Option<IntentMode>,
        wanted: IntentMode,
    ) -> Vec<(SlotId, LockMode)> {
        let mut holders = Vec::new();
        self.alone(index, |entry| {
            let mut add = |other, mode| holders.push((other, LockMode::Table(mode)));
            entry.obstacles(slots, index, slot, Some((held, wanted)), &mut add);
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
    fn try_request(&self, held: Option<IntentMode>, wanted: IntentMode) -> Option<Lsn> {
        let free = self.holders_allow(held, wanted)
            && (held.is_some() || self.waiting.load(Relaxed) == 0 || self.waiters_allow(wanted));
        free.then(|| {
            self.grant(held, wanted);
            self.tag(wanted)
        })
    }

    /// Whether no waiter conflicts with a newcomer.
    #[cold]
    fn waiters_allow(&self, wanted: IntentMode) -> bool {
        self.waiters.lock().iter().all(|waiter| waiter.wanted.compatible(wanted))
    }

    #[inline]
    fn grant(&self, held: Option<IntentMode>, wanted: IntentMode) {
        if let Some(held) = held {
            self.count(held, u32::wrapping_sub);
        }
        self.count(wanted, u32::wrapping_add);
    }

    /// Grants to waiters what can be granted, conversions first, then oldest first; marks the digests of the others as
    /// outdated. Stops when `wakes` is full.
    #[cold]
    fn pass(&self, slots: &Slots, wakes: &mut Wakes) {
        let mut waiters = self.waiters.lock();
        for conversions in [true, false] {
            let mut place = 0;
            while let Some(&waiter) = waiters.get(place) {
                let wait = slots.wait_of(waiter.slot);
                let free = waiter.held.is_some() == conversions
                    && wait.word().is_waiting()
                    && !wakes.is_full()
                    && self.holders_allow(waiter.held, waiter.wanted)
                    && (conversions
                        || waiters[..place].iter().all(|before| before.wanted.compatible(waiter.wanted)));
                if free {
                    waiters.remove(place);
                    self.waiting.store(self.waiting.load(Relaxed) - 1, Relaxed);
                    self.grant(waiter.held, waiter.wanted);
                    wait.grant();
                    wakes.add(waiter.slot);
                } else {
                    wait.mark_outdated();
                    place += 1;
                }
            }
        }
    }

    fn remove_waiter(&self, slot: SlotId) {
        self.waiters.lock().retain(|waiter| waiter.slot != slot);
        self.waiting.store(self.waiting.load(Relaxed) - 1, Relaxed);
    }

    /// Visits those who are in the way of `slot` as it waits, or of the wish that it might have.
    fn obstacles(
        &self,
        slots: &Slots,
        index: EntryIndex,
        slot: SlotId,
        wish: Option<(Option<IntentMode>, IntentMode)>,
        see: &mut dyn FnMut(SlotId, IntentMode),
    ) {
        let waiters = self.waiters.lock();
        let place = waiters.iter().position(|waiter| waiter.slot == slot);
        let own = place.map(|place| (waiters[place].held, waiters[place].wanted));
        let Some((held, wanted)) = own.or(wish) else { return };
        if held.is_none() {
            for before in &waiters[..place.unwrap_or(waiters.len())] {
                if !before.wanted.compatible(wanted) {
                    see(before.slot, before.wanted);
                }
            }
        }
        for (other, published) in slots.used() {
            if other != slot
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
