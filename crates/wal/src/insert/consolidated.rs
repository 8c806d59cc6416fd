//! Consolidation: a thread that finds the tail in use does not queue for it, but joins others who wait, and one of them
//! claims for all. The tail is advanced once for a group, however many want it.
//!
//! Code from a paper: the consolidation array of Aether (Johnson, Pandis, Stoica, Athanassoulis, Ailamaki, VLDB 2010),
//! which Kimura et al. 2012 (§5) build upon. Departures, with reasons: members do not release their part of the buffer
//! in turn, for the ring tells what is whole (WAL-1); so a slot serves its next group as soon as its members know their
//! places, and no pool of slots is needed. Groups are at most as long as the longest record, so that a group needs no
//! more room at the end of a segment than a record may. Work and the ending of work have slots of their own: a group is
//! refused or not.
//!
//! The state of a slot:
//!
//! | bits | what |
//! | --- | --- |
//! | 0–31 | bytes that its members want together |
//! | 32–47 | its members; when it is settled, those who do not know yet |
//! | 48 | closed: its leader is claiming |
//! | 49 | settled: `start` holds what the leader has got |
//!
//! ```text
//!      first joins: leader          leader has the mutex            leader has claimed
//!   0 --------------------> open ------------------------> closed --------------------> settled
//!   ^                       | ^                                                        |   |
//!   |                       +-+ others join                     a member takes note    +-+ |
//!   +---------------------------------- the last member takes note ------------------------+
//! ```
//!
//! A member is counted until it has taken note, so a slot is never used anew under anybody who looks at it. Between
//! joining and settling a leader does nothing that could fail; it waits for the mutex of the tail alone.

use foreshore_env::{
    CachePadded, hint,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use super::{Claimed, Refused, Request, Urgency, advance};
use crate::{
    frame::MAX_RECORD_BYTES,
    segment::{Geometry, Place},
};

/// Slots for each urgency.
const SLOTS: usize = 4;
/// [`Slot::state`]: bytes.
const BYTES: u64 = (1 << 32) - 1;
/// [`Slot::state`]: one member.
const MEMBER: u64 = 1 << 32;
/// [`Slot::state`]: its leader is claiming. From here on nobody joins.
const CLOSED: u64 = 1 << 48;
/// [`Slot::state`]: the leader has claimed or was refused.
const SETTLED: u64 = 1 << 49;
/// [`Slot::start`]: the group was refused; each tries by itself.
const REFUSED: u64 = u64::MAX;
/// How often a member only spins before it lets others run.
const SPINS: u64 = 64;

// The smallest record has 32 bytes: the members of a group can be counted.
const _: () = assert!((MAX_RECORD_BYTES as u64 / 32) * MEMBER < CLOSED);

/// A group in the making.
#[derive(Debug, Default)]
struct Slot {
    /// See the [module](self). Changed by compare-exchange of those who join, then by the leader, then by subtraction
    /// of those who take note.
    state: AtomicU64,
    /// Where the group's part of the log begins, or `REFUSED`. Written by the leader before it settles the slot, read
    /// by members after; the state orders them.
    start: AtomicU64,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Consolidated {
    /// Held by the one who advances the tail.
    mutex: CachePadded<Mutex<()>>,
    /// Where the log ends. Written under the mutex, read by all.
    pub(super) tail: CachePadded<AtomicU64>,
    /// For work, and for what ends work.
    slots: Box<[[CachePadded<Slot>; SLOTS]; 2]>,
    geometry: Geometry,
}

impl Consolidated {
    pub(super) fn new(geometry: Geometry, tail: u64) -> Consolidated {
        Consolidated {
            mutex: CachePadded::new(Mutex::new(())),
            tail: CachePadded::new(AtomicU64::new(tail)),
            slots: Box::new(std::array::from_fn(|_| std::array::from_fn(|_| CachePadded::default()))),
            geometry,
        }
    }

    #[inline]
    pub(super) fn claim(
        &self,
        request: Request,
        check: impl Fn(u64) -> Result<(), Refused>,
    ) -> Result<Claimed, Refused> {
        if let Some(_turn) = self.mutex.try_lock() {
            return advance(&self.tail, self.geometry, request.bytes, check);
        }
        self.claim_together(request, check)
    }

    #[cold]
    fn claim_together(
        &self,
        request: Request,
        check: impl Fn(u64) -> Result<(), Refused>,
    ) -> Result<Claimed, Refused> {
        let bytes = request.bytes;
        let slots = match request.urgency {
            Some(Urgency::Work) => &self.slots[0][..],
            Some(Urgency::Ending) => &self.slots[1][..],
            None => &[],
        };
        let joined = (0..slots.len()).find_map(|step| {
            let slot = &slots[(request.hint as usize).wrapping_add(step) % SLOTS];
            slot.join(bytes).map(|offset| (slot, offset))
        });
        let group = match joined {
            // The leader's own record is the first.
            Some((slot, 0)) => self.lead(slot, &check),
            Some((slot, offset)) => slot.follow().map(|start| {
                let place = Place { segment_end: None, start: start + offset };
                Claimed { place, end: place.start }
            }),
            None => None,
        };
        match group {
            Some(Claimed { place, .. }) => Ok(Claimed { place, end: place.start + bytes }),
            // No group, or it was refused as a whole, and one alone may still get what it wants.
            None => {
                let _turn = self.mutex.lock();
                advance(&self.tail, self.geometry, bytes, check)
            }
        }
    }

    /// Claims for the group of a slot.
    fn lead(&self, slot: &Slot, check: impl Fn(u64) -> Result<(), Refused>) -> Option<Claimed> {
        // Others join while this waits.
        let turn = self.mutex.lock();
        let joined = slot.state.swap(CLOSED, Ordering::AcqRel);
        let claimed = advance(&self.tail, self.geometry, joined & BYTES, check).ok();
        drop(turn);
        slot.settle(claimed.map_or(REFUSED, |claimed| claimed.place.start), joined & !BYTES);
        claimed
    }
}

impl Slot {
    /// Joins the group if there is room in it; gives how many bytes those want who have joined before.
    fn join(&self, bytes: u64) -> Option<u64> {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state >= CLOSED || (state & BYTES) + bytes > MAX_RECORD_BYTES as u64 {
                return None;
            }
            let after = state + bytes + MEMBER;
            // Released to the leader, for whom the member's stores come before the claim (WAL-12).
            match self.state.compare_exchange_weak(state, after, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(state & BYTES),
                Err(now) => state = now,
            }
        }
    }

    /// Tells the others. `members`: as in the state, the leader among them.
    fn settle(&self, start: u64, members: u64) {
        if members == MEMBER {
            self.state.store(0, Ordering::Release);
        } else {
            self.start.store(start, Ordering::Relaxed);
            self.state.store(SETTLED | (members - MEMBER), Ordering::Release);
        }
    }

    /// Waits until the leader has claimed; gives where the group's part begins, if it got one.
    fn follow(&self) -> Option<u64> {
        // Pairs with the release in `settle`.
        let settled = || self.state.load(Ordering::Acquire) & SETTLED != 0;
        if !hint::spin_until(SPINS, settled) {
            while !settled() {
                thread::yield_now();
            }
        }
        let start = self.start.load(Ordering::Relaxed);
        // Released, so that the next group's start is written after this one was read; acquired, to pass that on.
        if self.state.fetch_sub(MEMBER, Ordering::AcqRel) == SETTLED | MEMBER {
            self.state.store(0, Ordering::Release);
        }
        (start != REFUSED).then_some(start)
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    /// The last of a group to take note frees its slot, and not one before.
    #[test]
    fn a_slot_serves_one_group_after_the_other() {
        let slot = Slot::default();
        for start in [4096, REFUSED, 8192] {
            assert_eq!([64, 32, 96].map(|bytes| slot.join(bytes)), [Some(0), Some(64), Some(96)]);
            let joined = slot.state.swap(CLOSED, Ordering::AcqRel);
            assert_eq!(joined & BYTES, 192);
            slot.settle(start, joined & !BYTES);
            let place = (start != REFUSED).then_some(start);
            for _ in 0..2 {
                assert_eq!(slot.join(32), None, "a group that is not over takes nobody in");
                assert_eq!(slot.follow(), place);
            }
        }
        // One alone has nobody to tell.
        assert_eq!(slot.join(MAX_RECORD_BYTES as u64), Some(0));
        assert_eq!(slot.join(32), None, "there is no room");
        let joined = slot.state.swap(CLOSED, Ordering::AcqRel);
        slot.settle(12_288, joined & !BYTES);
        assert_eq!(slot.join(32), Some(0));
    }
}
