//! What a cursor reads of one leaf at once: records, and the locks that keep them true.
//!
//! Kimura et al. 2012, Table 3, without its simplifications marked (*): with every bound the modes are as weak as they
//! can be, because a batch knows before it locks a key whether it is the last.
//!
//! | | ascending | descending |
//! | --- | --- | --- |
//! | first, bound inclusive, key there | as next | SN, the gap above it lies outside |
//! | first, bound exclusive, key there | NS on it | nothing on it |
//! | first, not there | NS on the key below, or on the low fence | S on the key below; NS on the low fence |
//! | next | S; SN if it is the far bound | S |
//! | the key beyond the far bound | nothing | NS, for the gap above it |
//! | border to the next leaf, not a key | NS | NS |
//!
//! A cursor for changes joins XN to the mode of each record that is there. A ghost it locks as a cursor for reading
//! does (BTREE-15). One that skips what is locked tries the first few that are there, one after the other, keeps the
//! first that it gets, and locks no ghost and no gap.

use std::{
    cmp::Ordering,
    mem,
    ops::{Bound, ControlFlow, Range},
};

use foreshore_base::SlotIndex;
use foreshore_env::sabotage::{Fault, planted};
use foreshore_lock::{KeyMode, KeyRef};
use foreshore_pages::{Fence, Records, SlottedView};

use super::{
    Direction, LockKind,
    plan::{Plan, position},
};

/// What lies behind a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rest {
    /// The cursor's range is still to be read as it stands.
    #[default]
    Unread,
    /// The range from the batch's border on.
    At,
    /// The range behind the batch's border.
    Behind,
    /// Nothing.
    None,
}

/// Whose name a lock has.
#[derive(Clone, Copy, Debug)]
enum Name {
    /// −∞.
    Lowest,
    /// That of a record.
    Record(usize),
    /// The one that is none of them.
    Beside,
}

#[derive(Clone, Copy, Debug)]
struct Lock {
    name: Name,
    mode: KeyMode,
}

/// Records of one leaf, and the names of the locks that keep them true.
#[derive(Debug, Default)]
pub(super) struct Batch {
    direction: Direction,
    /// In the order of their keys, whatever the direction.
    records: Records,
    /// How many of them, in the cursor's direction, were given or are deleted.
    passed: usize,
    /// Those in the order of the scan.
    locks: Vec<Lock>,
    /// A key that is locked and is none of the records': there is one at most, at one end of the range.
    beside: Vec<u8>,
    rest: Rest,
    /// Where the rest of the range begins.
    border: Vec<u8>,
    /// It is the leaf's border: the next batch is of another leaf.
    ends_leaf: bool,
    /// A record was met that is not whole, or whose key is not further on than the one before: if the leaf's version
    /// stands, it is damage.
    disordered: bool,
    /// What was read is kept as it is by locks, until the end of the transaction.
    pub(super) kept: bool,
    /// A key in one piece, for whoever needs it for a moment.
    key: Vec<u8>,
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.passed = 0;
        self.locks.clear();
        self.rest = Rest::Unread;
        self.ends_leaf = false;
        self.disordered = false;
        self.kept = false;
    }

    /// Whether the range goes on behind the batch.
    #[inline]
    pub(super) fn goes_on(&self) -> bool {
        self.rest != Rest::None
    }

    /// Whether it goes on in another leaf.
    #[inline]
    pub(super) fn ends_leaf(&self) -> bool {
        self.ends_leaf
    }

    /// Whether the leaf's keys are in an order in which a cursor could go round in circles.
    pub(super) fn is_disordered(&self) -> bool {
        self.disordered
    }

    /// Whether it has met deleted records.
    pub(super) fn has_ghosts(&self) -> bool {
        self.records.any().ghost
    }

    /// Whether a record's value lies in other leaves.
    pub(super) fn has_long_values(&self) -> bool {
        self.records.any().overflow
    }

    /// The records.
    #[inline]
    pub(super) fn records(&self) -> &Records {
        &self.records
    }

    /// Passes to the next record that is not deleted and tells which it is.
    #[inline]
    pub(super) fn pass(&mut self) -> Option<usize> {
        while self.passed < self.records.len() {
            let record = self.record_at(self.passed);
            self.passed += 1;
            if !self.records.flags(record).ghost {
                return Some(record);
            }
        }
        None
    }

    /// How many were passed, if there are more.
    pub(super) fn passed_of_more(&self) -> Option<usize> {
        (self.passed < self.records.len()).then_some(self.passed)
    }

    /// The record that comes after so many others.
    #[inline]
    fn record_at(&self, passed: usize) -> usize {
        match self.direction {
            Direction::Ascending => passed,
            Direction::Descending => self.records.len() - 1 - passed,
        }
    }

    /// Calls `visit` with each further record that is not deleted, until it breaks off; tells whether it did, and which
    /// was the last. `key` begins with the prefix, and is the last one's then. For batches without long values.
    #[inline]
    pub(super) fn visit(
        &mut self,
        key: &mut Vec<u8>,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> (Option<usize>, ControlFlow<()>) {
        let (count, passed) = (self.records.len(), self.passed);
        let (last, flow) = match self.direction {
            Direction::Ascending => self.records.visit(passed..count, key, visit),
            Direction::Descending => self.records.visit((0..count - passed).rev(), key, visit),
        };
        self.passed = match (last, self.direction) {
            (Some(last), Direction::Ascending) if flow.is_break() => last + 1,
            (Some(last), Direction::Descending) if flow.is_break() => count - last,
            _ => count,
        };
        (last, flow)
    }

    /// Ends with the record of one of its locks, and passes over all before it.
    pub(super) fn keep(&mut self, lock: usize) {
        let Name::Record(record) = self.locks[lock].name else { unreachable!("gaps are not locked") };
        self.records.keep(record);
        self.end_behind(0);
        self.ends_leaf = false;
    }

    /// Passes over all records.
    pub(super) fn pass_all(&mut self) {
        self.passed = self.records.len();
    }

    /// Goes back by one record.
    #[cold]
    pub(super) fn unpass(&mut self) {
        self.passed -= 1;
    }

    /// Whether it has records to give.
    pub(super) fn has_live(&self) -> bool {
        (0..self.records.len()).any(|record| !self.records.flags(record).ghost)
    }

    /// Moves the near bound of the range to where the batch ends; false: there is nothing behind. Takes note that the
    /// bound has moved.
    pub(super) fn move_on(&mut self, near: &mut Bound<Vec<u8>>) -> bool {
        let behind = match mem::take(&mut self.rest) {
            Rest::Unread => return true,
            Rest::None => return false,
            Rest::At => false,
            Rest::Behind => true,
        };
        // The old bound's allocation is the next border's.
        let old = match mem::replace(near, Bound::Unbounded) {
            Bound::Included(old) | Bound::Excluded(old) => old,
            Bound::Unbounded => Vec::new(),
        };
        let border = mem::replace(&mut self.border, old);
        *near = if behind { Bound::Excluded(border) } else { Bound::Included(border) };
        true
    }

    /// How many locks to take.
    pub(super) fn lock_count(&self) -> usize {
        self.locks.len()
    }

    /// One of the locks to take, in the order of the scan.
    #[inline(always)]
    pub(super) fn lock(&mut self, index: usize) -> (KeyRef<'_>, KeyMode) {
        let Lock { name, mode } = self.locks[index];
        let name = match name {
            Name::Lowest => KeyRef::NegativeInfinity,
            Name::Record(record) => {
                self.records.key_into(record, &mut self.key);
                KeyRef::Key(&self.key)
            }
            Name::Beside => KeyRef::Key(&self.beside),
        };
        (name, mode)
    }

    /// Reads the leaf by the plan. What it finds is true if the leaf's version stands afterwards.
    pub(super) fn collect(&mut self, view: SlottedView<'_>, plan: &Plan<'_>) {
        self.clear();
        self.direction = plan.direction;
        match plan.direction {
            Direction::Ascending => self.collect_ascending(view, plan),
            Direction::Descending => self.collect_descending(view, plan),
        }
    }

    fn collect_ascending(&mut self, view: SlottedView<'_>, plan: &Plan<'_>) {
        let span = plan.span(view);
        let Range { start, end } = span.slots;
        let stop = start + plan.reach(end - start, |passed| view.is_ghost(SlotIndex(start + passed)));
        if !span.low_is_key {
            self.lock_gap_below(view, start, plan);
        }
        self.take(view, start..stop);
        self.lock_records(stop - start, span.high_is_key && stop == end, plan);
        self.check_bounds(plan);
        if stop < end {
            return self.end_behind(usize::from(stop - start - 1));
        }
        self.rest = Rest::None;
        if span.high_is_key || span.more_above {
            return;
        }
        // The leaf's end. Of keys at the border, the next leaf knows.
        if view.high_fence(&mut self.border) == Fence::Key
            && !plan.ends_at(|key| self.border.as_slice().cmp(key))
        {
            (self.rest, self.ends_leaf) = (Rest::At, true);
        }
    }

    fn collect_descending(&mut self, view: SlottedView<'_>, plan: &Plan<'_>) {
        let span = plan.span(view);
        let Range { start, end } = span.slots;
        let stop = end - plan.reach(end - start, |passed| view.is_ghost(SlotIndex(end - 1 - passed)));
        self.take(view, stop..end);
        self.lock_records(end - stop, span.high_is_key, plan);
        self.check_bounds(plan);
        if start < stop {
            return self.end_behind(0);
        }
        self.rest = Rest::None;
        if span.low_is_key {
            return;
        }
        if span.more_below {
            if plan.locks {
                view.key_into(SlotIndex(start - 1), &mut self.beside);
                self.lock_name(Name::Beside, KeyMode::NS, plan);
            }
            return;
        }
        // The leaf's begin. Unless it is a key that was met, the fence names the gap below the first key.
        let border_is_key = !self.records.is_empty() && {
            self.records.key_into(0, &mut self.key);
            view.compare_low(&self.key) == Ordering::Equal
        };
        if !border_is_key {
            self.lock_gap_below(view, 0, plan);
        }
        if view.low_fence(&mut self.border) == Fence::Key
            && !plan.ends_at(|key| self.border.as_slice().cmp(key))
        {
            (self.rest, self.ends_leaf) = (Rest::Behind, true);
        }
    }

    /// Takes records into the batch.
    fn take(&mut self, view: SlottedView<'_>, slots: Range<u16>) {
        self.records.copy(view, slots);
        self.disordered = !self.records.are_ordered();
    }

    /// The batch ends with a record, and the rest of the range begins behind it.
    fn end_behind(&mut self, record: usize) {
        self.records.key_into(record, &mut self.border);
        self.rest = Rest::Behind;
    }

    /// Compares the key at the batch's near end with the near bound, and the one at its far end with the far bound,
    /// unless there are more of them in the range. What lies between is in order; but in a damaged leaf.
    fn check_bounds(&mut self, plan: &Plan<'_>) {
        let Some(highest) = self.records.len().checked_sub(1) else { return };
        let (first, last, near, far, onward) = match plan.direction {
            Direction::Ascending => (0, highest, plan.low, plan.high, Ordering::Greater),
            Direction::Descending => (highest, 0, plan.high, plan.low, Ordering::Less),
        };
        self.records.key_into(first, &mut self.key);
        self.disordered |= !match near {
            Bound::Unbounded => true,
            Bound::Included(near) => self.key.as_slice().cmp(near) != onward.reverse(),
            Bound::Excluded(near) => self.key.as_slice().cmp(near) == onward,
        };
        self.records.key_into(last, &mut self.key);
        self.disordered |= position(plan.direction, &self.key, far) == Ordering::Greater;
    }

    /// Locks the gap that ends at `slot`.
    fn lock_gap_below(&mut self, view: SlottedView<'_>, slot: u16, plan: &Plan<'_>) {
        if !plan.locks || !plan.isolation.locks_gaps() || planted(Fault::GapUnlocked) {
            return;
        }
        let name = match slot.checked_sub(1) {
            Some(before) => {
                view.key_into(SlotIndex(before), &mut self.beside);
                Name::Beside
            }
            None if view.low_fence(&mut self.beside) == Fence::Key => Name::Beside,
            None => Name::Lowest,
        };
        self.lock_name(name, KeyMode::NS, plan);
    }

    /// Locks records in the order of the scan.
    fn lock_records(&mut self, count: u16, highest_is_bound: bool, plan: &Plan<'_>) {
        if !plan.locks {
            return;
        }
        for passed in 0..count {
            let (record, bound) = match plan.direction {
                Direction::Ascending => (passed, passed + 1 == count),
                Direction::Descending => (count - 1 - passed, passed == 0),
            };
            let record = usize::from(record);
            if plan.skips && self.records.flags(record).ghost {
                continue;
            }
            let mode = if highest_is_bound && bound { KeyMode::SN } else { KeyMode::S };
            let mode = match plan.kind {
                LockKind::Exclusive if !self.records.flags(record).ghost => mode.join(KeyMode::XN),
                LockKind::Exclusive | LockKind::Shared => mode,
            };
            self.lock_name(Name::Record(record), mode, plan);
        }
    }

    /// Adds a lock, if the isolation asks for it.
    #[inline]
    fn lock_name(&mut self, name: Name, mode: KeyMode, plan: &Plan<'_>) {
        let mode = if plan.isolation.locks_gaps() { mode } else { mode.key() };
        if mode != KeyMode::N {
            self.locks.push(Lock { name, mode });
        }
    }
}
