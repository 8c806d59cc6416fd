//! Speculative lock inheritance: Johnson, Pandis and Ailamaki, VLDB 2009, as Kimura et al. 2012, §3.1, describe it.
//!
//! Intent locks are requests in the lock table. At its end a transaction leaves those for IS and IX granted, for the
//! next transaction of its slot, which takes them over without a look at the table. What that one does not need it
//! gives back at its own end. Where it departs from the paper: heirs are those of a slot rather than of a thread, and
//! every intent lock is inherited, not only those found to be hot.
//!
//! ```text
//!           end of a transaction               the next one takes it over, or gives it back
//!   FREE ─────────────────────────▶ INHERITED ─────────────────────────▶ FREE
//!     ▲                                 │ an absolute request, from any thread
//!     │  the owner collects the request ▼
//!     └─── RECLAIMED ◀─────────── RECLAIMING   its request leaves the lock table
//! ```
//!
//! An absolute request announces itself, fences, and reclaims what is inherited; a transaction that leaves a lock
//! inherited fences, and takes it back if an absolute request is announced. So when an absolute request waits, it waits
//! for transactions only.

use foreshore_base::limits::MAX_TRANSACTIONS;
use foreshore_env::CachePadded;
use foreshore_env::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    fence,
};
use foreshore_env::thread;

use super::super::entries::{Entries, Tags};
use super::super::{EntryIndex, IntentMode};
use crate::name::LockName;
use crate::request::RequestIndex;
use crate::slot::SlotId;
use crate::slot::Slots;
use crate::table::LockTable;

/// Locks that a slot can hand on.
const PLACES: usize = 8;

const FREE: u64 = 0;
const INHERITED: u64 = 1;
const RECLAIMING: u64 = 2;
const RECLAIMED: u64 = 3;
const STATE: u64 = 3;

/// A lock between two transactions of a slot.
#[derive(Debug, Default)]
struct Place {
    /// State (2 bits), mode (3 bits from bit 3), entry (from bit 8). FREE and INHERITED by the owner of the slot,
    /// INHERITED to the others by compare-exchange. Release, partner is Acquire, so that `name` and `request` come
    /// along.
    word: AtomicU64,
    name: AtomicU64,
    request: AtomicU32,
}

/// The locks that wait for heirs, and what `InTable` has.
#[derive(Debug)]
pub(crate) struct Inherited {
    entries: Entries<Entry>,
    slots: Box<[CachePadded<[Place; PLACES]>]>,
}

#[derive(Debug, Default)]
struct Entry {
    /// Absolute requests under way. Written by those who make them.
    absolute: AtomicU32,
    tags: Tags,
}

/// What came of a look for an inherited lock.
pub(crate) enum Heritage {
    /// There was an inherited lock: it is the heir's now.
    Mine(IntentMode, RequestIndex),
    /// There is no such lock.
    Nothing,
}

impl Inherited {
    pub(in crate::intent) fn new() -> Inherited {
        Inherited {
            entries: Entries::new(),
            slots: (0..MAX_TRANSACTIONS).map(|_| CachePadded::default()).collect(),
        }
    }

    pub(crate) fn tags(&self, index: EntryIndex) -> &Tags {
        &self.entries.get(index).tags
    }

    /// Takes over what the slot's last transaction left of an entry. By the owner of the slot.
    pub(crate) fn take(&self, slot: SlotId, index: EntryIndex) -> Heritage {
        for place in &*self.slots[slot.index()] {
            let word = place.word.load(Relaxed);
            if word >> 8 != u64::from(index.0) || word & STATE == FREE {
                continue;
            }
            if let Some(taken) = place.claim(word, FREE) {
                return taken;
            }
            // Two requests of one slot must not stand in a queue.
            place.wait_for_reclaimer();
        }
        Heritage::Nothing
    }

    /// Leaves a lock for the next transaction of the slot. `false`: it cannot be left, the owner gives it back.
    pub(crate) fn leave(
        &self,
        slot: SlotId,
        index: EntryIndex,
        mode: IntentMode,
        name: LockName,
        request: RequestIndex,
    ) -> bool {
        let mut places = self.slots[slot.index()].iter();
        let Some(place) = places.find(|place| place.word.load(Relaxed) & STATE == FREE) else { return false };
        place.name.store(name.bits(), Relaxed);
        place.request.store(request.0, Relaxed);
        let word = u64::from(index.0) << 8 | (mode as u64) << 3 | INHERITED;
        place.word.store(word, Release);
        // Partner is the fence in `announce`.
        fence(SeqCst);
        self.entries.get(index).absolute.load(Relaxed) == 0 || place.claim(word, FREE).is_none()
    }

    /// Calls `give` with the requests that belong to the slot again: those that have not been taken over, which are
    /// still in the lock table (under this name), and those that were reclaimed. Afterwards none is anywhere else. By
    /// the owner of the slot.
    pub(crate) fn collect(&self, slot: SlotId, mut give: impl FnMut(RequestIndex, Option<LockName>)) {
        for place in &*self.slots[slot.index()] {
            let word = place.word.load(Acquire);
            let name = LockName::from_bits(place.name.load(Relaxed));
            if let Some(Heritage::Mine(_, request)) = place.claim(word, FREE) {
                give(request, Some(name));
                continue;
            }
            // Another thread may have been there before; a request that it is about to take from the table is not the
            // slot's yet.
            place.wait_for_reclaimer();
            if place.word.load(Acquire) & STATE == RECLAIMED {
                give(RequestIndex(place.request.load(Relaxed)), None);
                place.word.store(FREE, Relaxed);
            }
        }
    }

    /// An absolute request begins: nobody leaves locks on this entry from now on, and those that conflict are taken
    /// back.
    pub(crate) fn announce(&self, slots: &Slots, table: &LockTable, index: EntryIndex, wanted: IntentMode) {
        self.entries.get(index).absolute.fetch_add(1, Relaxed);
        // Partner is the fence in `leave`.
        fence(SeqCst);
        self.reclaim(slots, table, |entry, mode| entry == index && !mode.compatible(wanted));
    }

    /// An absolute request is over, granted or not.
    pub(crate) fn renounce(&self, index: EntryIndex) {
        self.entries.get(index).absolute.fetch_sub(1, Relaxed);
    }

    pub(in crate::intent) fn reclaim_all(&self, slots: &Slots, table: &LockTable) {
        self.reclaim(slots, table, |_, _| true);
    }

    fn reclaim(&self, slots: &Slots, table: &LockTable, wanted: impl Fn(EntryIndex, IntentMode) -> bool) {
        for (slot, _) in slots.used() {
            for place in &*self.slots[slot.index()] {
                let word = place.word.load(Acquire);
                let (entry, mode) = (EntryIndex((word >> 8) as u32), IntentMode::from_bits(word >> 3 & 7));
                if !wanted(entry, mode) {
                    continue;
                }
                if let Some(Heritage::Mine(_, request)) = place.claim(word, word & !STATE | RECLAIMING) {
                    table.release(slots, LockName::from_bits(place.name.load(Relaxed)), request, None);
                    place.word.store(word & !STATE | RECLAIMED, Release);
                } else {
                    // Somebody else's absolute request takes it back, and its request may stand in the table yet.
                    place.wait_for_reclaimer();
                }
            }
        }
    }
}

impl Place {
    /// Takes an inherited lock, if it still is that.
    fn claim(&self, word: u64, next: u64) -> Option<Heritage> {
        if word & STATE != INHERITED {
            return None;
        }
        let mode = IntentMode::from_bits(word >> 3 & 7);
        // ABA: a word that returns stands for a lock just as good, if its request is read while the place is claimed.
        self.word.compare_exchange(word, next, AcqRel, Acquire).ok()?;
        Some(Heritage::Mine(mode, RequestIndex(self.request.load(Relaxed))))
    }

    /// Returns when nobody is about to take its request from the lock table, which waits for nothing but a bucket's
    /// latch.
    fn wait_for_reclaimer(&self) {
        while self.word.load(Acquire) & STATE == RECLAIMING {
            thread::yield_now();
        }
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use foreshore_base::{TableId, TxnId};
    #[cfg(not(foreshore_sim))]
    use foreshore_env::{sync::Arc, time::Duration};

    use super::*;
    use crate::age::Age;
    use crate::manager::LockManager;
    use crate::options::{IntentLockKind, LockOptions};
    #[cfg(not(foreshore_sim))]
    use crate::owner::LockOwner;
    use crate::wait::WaitPolicy;

    const TABLE: TableId = TableId(16);
    const NO_WAIT: WaitPolicy<'static> =
        WaitPolicy { deadline: None, timeout: None, no_wait: true, cancel: None };

    fn inherited_by(manager: &LockManager) -> &Inherited {
        let crate::intent::IntentLocks::Inherited(inherited) = &manager.intents else { unreachable!() };
        inherited
    }

    /// An owner whose last transaction has left an intent lock.
    #[cfg(not(foreshore_sim))]
    fn one_that_has_left_its_lock() -> (Arc<LockManager>, LockOwner) {
        let options = LockOptions { intents: IntentLockKind::Inherited, ..LockOptions::default() };
        let manager = LockManager::new(&options);
        let mut owner = manager.begin(TxnId(1), Age::new(1, 0), None).unwrap();
        owner.intent(TABLE, IntentMode::IX, &NO_WAIT).unwrap();
        owner.release_all(None);
        (manager, owner)
    }

    /// As somebody who takes back the only lock that is inherited, up to where its request leaves the lock table.
    #[cfg(not(foreshore_sim))]
    fn begin_to_reclaim(inherited: &Inherited) -> (&Place, u64, RequestIndex) {
        let mut places = inherited.slots.iter().flat_map(|places| places.iter());
        let place = places.find(|place| place.word.load(Acquire) & STATE == INHERITED).unwrap();
        let word = place.word.load(Acquire);
        let Some(Heritage::Mine(_, request)) = place.claim(word, word & !STATE | RECLAIMING) else {
            panic!("nobody else is there")
        };
        (place, word, request)
    }

    /// What the end of a transaction leaves in the lock table, who takes it over, and who takes it away.
    #[test]
    fn intents_are_inherited_used_given_back_and_reclaimed() {
        let options = LockOptions { intents: IntentLockKind::Inherited, ..LockOptions::default() };
        let manager = LockManager::new(&options);
        let name = manager.intent_name(EntryIndex::of(TABLE));
        let requests = || manager.table.requests_on(name);
        let begin = |txn| manager.begin(TxnId(txn), Age::new(txn, 0), None).unwrap();
        let mut owner = begin(1);
        owner.intent(TABLE, IntentMode::IX, &NO_WAIT).unwrap();
        drop(owner);
        let left = requests();
        assert_eq!(left.len(), 1, "it stays in the table");
        // The next transaction of the slot takes it over as it stands.
        let mut owner = begin(2);
        owner.intent(TABLE, IntentMode::IX, &NO_WAIT).unwrap();
        assert_eq!((requests(), owner.held_intent(TABLE)), (left, Some(IntentMode::IX)));
        owner.release_all(None);
        // Less is wanted: what was inherited goes.
        owner.intent(TABLE, IntentMode::IS, &NO_WAIT).unwrap();
        assert_eq!(requests()[0].1.granted, crate::KeyMode::coarse(IntentMode::IS));
        owner.release_all(None);
        // Nothing is wanted: what was inherited is given back.
        owner.release_all(None);
        assert_eq!(requests().len(), 0);
        owner.intent(TABLE, IntentMode::IS, &NO_WAIT).unwrap();
        owner.release_all(None);
        // A reader of all lets the announcement of another reader stand, a writer of all does not.
        let mut other = begin(3);
        other.intent(TABLE, IntentMode::S, &NO_WAIT).unwrap();
        assert_eq!(requests().len(), 2);
        other.release_all(None);
        other.intent(TABLE, IntentMode::X, &NO_WAIT).unwrap();
        assert_eq!(requests().len(), 1);
        assert!(owner.intent(TABLE, IntentMode::IS, &NO_WAIT).is_err());
        drop((owner, other));
        assert!(manager.is_empty() && requests().is_empty());
    }

    /// An owner that releases and is dropped then, as transactions are, has ended once, not twice.
    #[test]
    fn a_drop_after_the_release_takes_nothing_from_heirs() {
        let options = LockOptions { intents: IntentLockKind::Inherited, ..LockOptions::default() };
        let manager = LockManager::new(&options);
        let name = manager.intent_name(EntryIndex::of(TABLE));
        let mut left = None;
        for txn in 1..4 {
            let mut owner = manager.begin(TxnId(txn), Age::new(txn, 0), None).unwrap();
            owner.intent(TABLE, IntentMode::IX, &NO_WAIT).unwrap();
            owner.release_all(None);
            drop(owner);
            let requests = manager.table.requests_on(name);
            assert_eq!(requests.len(), 1, "it stays in the table");
            assert_eq!(*left.get_or_insert_with(|| requests.clone()), requests, "it is the first one's");
        }
        drop(manager.begin(TxnId(4), Age::new(4, 0), None).unwrap());
        assert!(manager.is_empty() && manager.table.requests_on(name).is_empty());
    }

    /// The measurement of intent locks ended with a deadlock of four transactions, although all lock in one order: two
    /// absolute requests met, the second passed by what the first was about to take back, and waited for a request of a
    /// slot whose next transaction waited elsewhere.
    #[cfg(not(foreshore_sim))]
    #[test]
    fn an_absolute_request_waits_until_others_have_taken_back_what_is_in_its_way() {
        let (manager, owner) = one_that_has_left_its_lock();
        let inherited = inherited_by(&manager);
        let (place, word, request) = begin_to_reclaim(inherited);
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                let mut second = manager.begin(TxnId(2), Age::new(2, 0), None).unwrap();
                second.intent(TABLE, IntentMode::X, &NO_WAIT)
            });
            let announced = &inherited.entries.get(EntryIndex::of(TABLE)).absolute;
            while announced.load(Acquire) == 0 && !second.is_finished() {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(2));
            manager.table.release(
                &manager.slots,
                LockName::from_bits(place.name.load(Acquire)),
                request,
                None,
            );
            place.word.store(word & !STATE | RECLAIMED, Release);
            second.join().unwrap().expect("nothing is in its way but what is being taken back");
        });
        drop(owner);
        assert!(manager.is_empty());
    }

    /// A transaction that had borrowed requests ended while somebody was taking one of the slot's from the lock table.
    /// All of the slot's own became free with those that it gave back, that one too: it could stand in two queues.
    #[cfg(not(foreshore_sim))]
    #[test]
    fn a_request_that_is_being_taken_back_is_not_free() {
        let (manager, mut owner) = one_that_has_left_its_lock();
        let inherited = inherited_by(&manager);
        // More than a slot has of its own.
        for key in 0..600_u32 {
            let key = key.to_be_bytes();
            owner.acquire(TableId(17), crate::KeyRef::Key(&key), crate::KeyMode::XN, &NO_WAIT).unwrap();
        }
        let (place, word, request) = begin_to_reclaim(inherited);
        let ended = AtomicU32::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                drop(owner);
                ended.store(1, SeqCst);
            });
            thread::sleep(Duration::from_millis(20));
            assert_eq!(ended.load(SeqCst), 0, "its request stands in the table");
            let name = LockName::from_bits(place.name.load(Acquire));
            manager.table.release(&manager.slots, name, request, None);
            place.word.store(word & !STATE | RECLAIMED, Release);
        });
        assert!(manager.is_empty());
    }

    /// While an absolute lock is asked for, nobody leaves anything behind.
    #[test]
    fn nothing_is_left_to_heirs_while_an_absolute_lock_is_asked_for() {
        let options = LockOptions { intents: IntentLockKind::Inherited, ..LockOptions::default() };
        let manager = LockManager::new(&options);
        let inherited = inherited_by(&manager);
        let entry = EntryIndex::of(TABLE);
        let mut owner = manager.begin(TxnId(1), Age::new(1, 0), None).unwrap();
        owner.intent(TABLE, IntentMode::IX, &NO_WAIT).unwrap();
        inherited.announce(&manager.slots, &manager.table, entry, IntentMode::S);
        owner.release_all(None);
        assert!(manager.table.requests_on(manager.intent_name(entry)).is_empty());
        inherited.renounce(entry);
    }
}
