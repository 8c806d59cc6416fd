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

use std::{cmp::Ordering, mem, ops::Bound, ops::Range};

use foreshore_base::SlotIndex;
use foreshore_env::sabotage::{Fault, planted};
use foreshore_lock::{KeyRef, Mode};
use foreshore_pages::{Fence, SlottedView};

use super::{Direction, LockKind};
use crate::{node::Target, session::Isolation};

/// What lies behind a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Rest {
    /// The cursor's range is still to be read as it stands.
    #[default]
    Unread,
    /// The range from this bound on.
    From(Bound<Vec<u8>>),
    /// Nothing.
    None,
}

/// A record given to the caller.
pub(super) struct Record<'b> {
    pub(super) key: &'b [u8],
    pub(super) value: &'b [u8],
    pub(super) overflow: bool,
}

#[derive(Debug)]
struct Item {
    key: Range<usize>,
    value: Range<usize>,
    overflow: bool,
}

#[derive(Debug)]
struct Lock {
    /// `None`: −∞.
    key: Option<Range<usize>>,
    mode: Mode,
}

/// What decides what is read and how it is locked.
pub(super) struct Plan<'c> {
    pub(super) direction: Direction,
    pub(super) kind: LockKind,
    pub(super) isolation: Isolation,
    pub(super) low: Bound<&'c [u8]>,
    pub(super) high: Bound<&'c [u8]>,
    /// Keys at most, ghosts among them.
    pub(super) limit: usize,
}

impl<'c> Plan<'c> {
    /// The leaf to read first.
    pub(super) fn target(&self) -> Target<'c> {
        first_leaf(self.direction, self.low, self.high)
    }

    /// The slots of the leaf from the near bound on, in ascending order whatever the direction.
    pub(super) fn slots(&self, view: SlottedView<'_>) -> Range<u16> {
        let count = view.slot_count();
        match self.direction {
            Direction::Ascending => match self.low {
                Bound::Unbounded => 0..count,
                Bound::Included(key) => at_or_after(view, key)..count,
                Bound::Excluded(key) => after(view, key)..count,
            },
            Direction::Descending => match self.high {
                Bound::Unbounded => 0..count,
                Bound::Included(key) => 0..after(view, key),
                Bound::Excluded(key) => 0..at_or_after(view, key),
            },
        }
    }
}

/// The leaf at the near bound of a range.
pub(super) fn first_leaf<'c>(
    direction: Direction,
    low: Bound<&'c [u8]>,
    high: Bound<&'c [u8]>,
) -> Target<'c> {
    match direction {
        Direction::Ascending => match low {
            Bound::Unbounded => Target::First,
            Bound::Included(key) | Bound::Excluded(key) => Target::Key(key),
        },
        Direction::Descending => match high {
            Bound::Unbounded => Target::Last,
            Bound::Included(key) => Target::Key(key),
            Bound::Excluded(key) => Target::Below(key),
        },
    }
}

fn at_or_after(view: SlottedView<'_>, key: &[u8]) -> u16 {
    let (Ok(slot) | Err(slot)) = view.find(key);
    slot.0
}

fn after(view: SlottedView<'_>, key: &[u8]) -> u16 {
    match view.find(key) {
        Ok(slot) => slot.0 + 1,
        Err(slot) => slot.0,
    }
}

/// Records of one leaf, and the names of the locks that keep them true.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Keys and values, one after another.
    bytes: Vec<u8>,
    items: Vec<Item>,
    locks: Vec<Lock>,
    /// The next item to give.
    next: usize,
    rest: Rest,
    /// A key was met that is not further on than the one before: if the leaf's version stands, it is damage.
    disordered: bool,
    /// Keeps its allocation.
    key: Vec<u8>,
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.items.clear();
        self.locks.clear();
        self.next = 0;
        self.rest = Rest::Unread;
        self.disordered = false;
    }

    /// Whether the leaf's keys are in an order in which a cursor could go round in circles.
    pub(super) fn is_disordered(&self) -> bool {
        self.disordered
    }

    pub(super) fn current(&self) -> Option<Record<'_>> {
        let item = self.items.get(self.next)?;
        let (key, value) = (&self.bytes[item.key.clone()], &self.bytes[item.value.clone()]);
        Some(Record { key, value, overflow: item.overflow })
    }

    pub(super) fn advance(&mut self) {
        self.next += 1;
    }

    pub(super) fn last_given(&self) -> Option<&[u8]> {
        let item = &self.items[self.next.checked_sub(1)?];
        Some(&self.bytes[item.key.clone()])
    }

    pub(super) fn take_rest(&mut self) -> Rest {
        mem::take(&mut self.rest)
    }

    /// The locks to take, in the order of the scan.
    pub(super) fn locks(&self) -> impl Iterator<Item = (KeyRef<'_>, Mode)> {
        self.locks.iter().map(|lock| {
            let name = lock.key.clone().map_or(KeyRef::NegativeInfinity, |key| KeyRef::Key(&self.bytes[key]));
            (name, lock.mode)
        })
    }

    /// Reads the leaf by the plan. What it finds is true if the leaf's version stands afterwards.
    pub(super) fn collect(&mut self, view: SlottedView<'_>, plan: &Plan<'_>) {
        self.clear();
        match plan.direction {
            Direction::Ascending => self.collect_ascending(view, plan),
            Direction::Descending => self.collect_descending(view, plan),
        }
    }

    fn collect_ascending(&mut self, view: SlottedView<'_>, plan: &Plan<'_>) {
        let slots = plan.slots(view);
        let starts_at_key = match plan.low {
            Bound::Included(key) => view.find(key).is_ok(),
            Bound::Excluded(_) | Bound::Unbounded => false,
        };
        if !starts_at_key {
            self.lock_gap_below(view, slots.start, plan);
        }
        let mut key = mem::take(&mut self.key);
        self.rest = 'read: {
            for (taken, slot) in slots.map(SlotIndex).enumerate() {
                if taken == plan.limit {
                    break 'read Rest::From(Bound::Excluded(key.clone()));
                }
                self.step(view, slot, &mut key, taken, plan);
                match position(plan.direction, &key, plan.high) {
                    Ordering::Less => self.take(view, slot, &key, Mode::S, plan),
                    Ordering::Equal => {
                        self.take(view, slot, &key, Mode::SN, plan);
                        break 'read Rest::None;
                    }
                    Ordering::Greater => break 'read Rest::None,
                }
            }
            // The leaf's end. Of keys at the border, the next leaf knows.
            if view.high_fence(&mut key) == Fence::Infinite || ends_before(plan.high, &key) {
                break 'read Rest::None;
            }
            Rest::From(Bound::Included(key.clone()))
        };
        self.key = key;
    }

    fn collect_descending(&mut self, view: SlottedView<'_>, plan: &Plan<'_>) {
        let slots = plan.slots(view);
        let mut mode = match plan.high {
            Bound::Included(key) if view.find(key).is_ok() => Mode::SN,
            _ => Mode::S,
        };
        let mut key = mem::take(&mut self.key);
        self.rest = 'read: {
            let mut border_is_key = false;
            for (taken, slot) in slots.rev().map(SlotIndex).enumerate() {
                if taken == plan.limit {
                    break 'read Rest::From(Bound::Excluded(key.clone()));
                }
                self.step(view, slot, &mut key, taken, plan);
                match position(plan.direction, &key, plan.low) {
                    Ordering::Less => self.take(view, slot, &key, mode, plan),
                    Ordering::Equal => {
                        self.take(view, slot, &key, mode, plan);
                        break 'read Rest::None;
                    }
                    Ordering::Greater => {
                        self.lock(Some(&key), Mode::NS, plan);
                        break 'read Rest::None;
                    }
                }
                mode = Mode::S;
                border_is_key = view.compare_low(&key) == Ordering::Equal;
            }
            // The leaf's begin. Unless it is a key that was met, the fence names the gap below the first key.
            if !border_is_key {
                self.lock_gap_below(view, 0, plan);
            }
            if view.low_fence(&mut key) == Fence::Infinite || begins_at(plan.low, &key) {
                break 'read Rest::None;
            }
            Rest::From(Bound::Excluded(key.clone()))
        };
        self.key = key;
    }

    /// Reads the next key, and compares it with the one before, or with the near bound.
    fn step(
        &mut self,
        view: SlottedView<'_>,
        slot: SlotIndex,
        key: &mut Vec<u8>,
        taken: usize,
        plan: &Plan<'_>,
    ) {
        let (near, onward) = match plan.direction {
            Direction::Ascending => (plan.low, Ordering::Greater),
            Direction::Descending => (plan.high, Ordering::Less),
        };
        let in_order = match near {
            _ if taken > 0 => view.compare_key(slot, key) == onward,
            Bound::Unbounded => true,
            Bound::Included(near) => view.compare_key(slot, near) != onward.reverse(),
            Bound::Excluded(near) => view.compare_key(slot, near) == onward,
        };
        self.disordered |= !in_order;
        view.key_into(slot, key);
    }

    /// Takes a key into the batch: its lock, and the record if it is none that is deleted.
    fn take(&mut self, view: SlottedView<'_>, slot: SlotIndex, key: &[u8], mode: Mode, plan: &Plan<'_>) {
        let mode = match plan.kind {
            LockKind::Shared => mode,
            LockKind::Exclusive => mode.join(Mode::XN),
        };
        let key = self.lock(Some(key), mode, plan);
        let flags = view.slot(slot).flags();
        if !flags.ghost {
            let start = self.bytes.len();
            view.value_into(slot, &mut self.bytes);
            let value = start..self.bytes.len();
            self.items.push(Item { key, value, overflow: flags.overflow });
        }
    }

    /// Locks the gap that ends at `slot`.
    fn lock_gap_below(&mut self, view: SlottedView<'_>, slot: u16, plan: &Plan<'_>) {
        if !plan.isolation.locks_gaps() || planted(Fault::GapUnlocked) {
            return;
        }
        let mut key = mem::take(&mut self.key);
        let finite = match slot.checked_sub(1) {
            Some(before) => {
                view.key_into(SlotIndex(before), &mut key);
                true
            }
            None => view.low_fence(&mut key) == Fence::Key,
        };
        self.lock(finite.then_some(&key[..]), Mode::NS, plan);
        self.key = key;
    }

    /// Adds a key to the bytes, and a lock on it to the locks if the isolation asks for it.
    fn lock(&mut self, key: Option<&[u8]>, mode: Mode, plan: &Plan<'_>) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key.unwrap_or(&[]));
        let range = start..self.bytes.len();
        let mode = if plan.isolation.locks_gaps() { mode } else { mode.key() };
        if mode != Mode::N {
            self.locks.push(Lock { key: key.map(|_| range.clone()), mode });
        }
        range
    }
}

/// How `key`, on its way towards a far bound, lies to it: before it (`Less`), at it and within the range (`Equal`), or
/// beyond.
fn position(direction: Direction, key: &[u8], bound: Bound<&[u8]>) -> Ordering {
    let order = |far: &[u8]| match direction {
        Direction::Ascending => key.cmp(far),
        Direction::Descending => far.cmp(key),
    };
    match bound {
        Bound::Unbounded => Ordering::Less,
        Bound::Included(far) => order(far),
        Bound::Excluded(far) => order(far).then(Ordering::Greater),
    }
}

/// Whether an ascending range ends before any key at or above the border.
fn ends_before(high: Bound<&[u8]>, border: &[u8]) -> bool {
    match high {
        Bound::Unbounded => false,
        Bound::Included(high) => high < border,
        Bound::Excluded(high) => high <= border,
    }
}

/// Whether a descending range has no key below the border.
fn begins_at(low: Bound<&[u8]>, border: &[u8]) -> bool {
    match low {
        Bound::Unbounded => false,
        Bound::Included(low) | Bound::Excluded(low) => low >= border,
    }
}
