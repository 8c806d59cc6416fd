//! The table of transactions that have written: what a checkpoint must know of them, without stopping them.
//!
//! A transaction takes a slot before its first record and gives it back after its last (commit or end). Only the owner
//! writes a slot; a checkpoint reads it at any time. The owner appends records in the depth of the B-tree, under
//! latches, and cannot tell the slot of each at once. So it announces its *changes* (operations that may append)
//! instead:
//!
//! ```text
//!            claim                    begin_change (from S)
//!   FREE ------------> CLAIMED, idle --------------------> CLAIMED, changing since S
//!    ^                   |      ^                               |
//!    |      release      |      |     end_change (last L)       |
//!    +-------------------+      +-------------------------------+
//!    +----------------------- release --------------------------+
//! ```
//!
//! Between two changes a transaction whose owner allows for that *rests* instead of being idle: then somebody else may
//! take it over, to roll it back (TXN-35). Its owner begins the next change, and another takes it over, by a
//! compare-exchange of the same word, so one of them is refused; the one that has it writes the slot from then on.
//!
//! ```text
//!                       rest (last L)             resume_change (owner), or take (another), from S
//!   changing since S  ---------------->  RESTING  -------------------------------------------->  changing since S
//! ```
//!
//! TXN-3: for each record below the redo horizon of a checkpoint, the checkpoint either reads a `last` that is no
//! older, or a `pending` that is no newer, or finds the transaction gone and its commit or end record in the log before
//! its own. Analysis starts at the oldest `pending`, so it meets whatever `last` does not know. The argument:
//!
//! - `pending` is stored before the append, and the append advances the log's tail by a releasing read-modify-write.
//!   A checkpoint loads the tail (acquire) as its horizon *first* and the slots later; so whoever appended below the
//!   horizon is seen with that `pending` or with what came after it.
//! - What comes after it is `end_change`: `last`, then `pending` back to idle, both released. The checkpoint loads
//!   `pending` before `last` (acquire): seeing idle, or the `pending` of a later change, it sees that `last` too.
//! - Or `release`, which comes after the commit or end record: `last` is cleared before `pending`, so a checkpoint that
//!   sees neither a covering `pending` nor a cleared `last` read `last` from before, and is told by the changed id to
//!   read again.

use std::cell::Cell;

use foreshore_base::{Lsn, Result, StorageError, TxnId};
use foreshore_env::{
    CachePadded, hint,
    sabotage::{Fault, planted},
    sync::atomic::{AtomicU64, Ordering},
    thread_local,
};

/// [`Slot::pending`]: no change is under way, and only the owner begins one.
const IDLE: u64 = u64::MAX;
/// [`Slot::pending`], with the owner's id in the lower bits: no change is under way, and whoever replaces the word
/// begins one. (Positions in the log are smaller, and the id keeps apart who had the slot before.)
const RESTING: u64 = 1 << 63;
/// [`Slot::txn`]: nobody's.
const FREE: u64 = 0;

/// Places with blocks of ids.
const BLOCKS: usize = 256;
/// Ids of a block.
const BLOCK_IDS: u64 = 64;

thread_local! {
    /// Where this thread looks for a free slot first: the one it had last, whose line is in its cache.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom's has no constant form")]
    static HOME: Cell<usize> = Cell::new(usize::MAX);
}

/// Written by the owner of the slot, or by the thread that has taken it over, read by checkpoints. All stores release
/// and all loads acquire; the partners are named above.
#[derive(Debug)]
struct Slot {
    /// The owner, or `FREE`. Taken by compare-exchange.
    txn: AtomicU64,
    /// The owner's oldest record is here or later; 0 before it has any.
    first: AtomicU64,
    /// The owner's newest record when its last change ended; 0 before it has any.
    last: AtomicU64,
    /// The change under way appends here or later; `IDLE` or `RESTING` when there is none.
    pending: AtomicU64,
    /// The transaction that was told to go; its slot may have another one by now, and a late word to the old one takes
    /// that to the new one back: whoever needs somebody to go says so again. Written by everybody, relaxed: it carries
    /// nothing with it.
    ended: AtomicU64,
}

/// Which slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotNumber(u16);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct TxnTable {
    slots: Box<[CachePadded<Slot>]>,
    /// The id of the next transaction. Drawn by `fetch_add`; relaxed, for it orders nothing else.
    next_txn: CachePadded<AtomicU64>,
    /// Spreads the threads over the slots.
    next_home: AtomicU64,
    /// The next id of a block of them, by place, unless that is the end of the block. As `next_txn`.
    blocks: Box<[CachePadded<AtomicU64>]>,
}

/// An open transaction as a checkpoint saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenTransaction {
    pub(crate) txn: TxnId,
    /// Its newest record, but for those at or after [`Captured::pending`].
    pub(crate) last: Lsn,
}

/// What a checkpoint sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Captured {
    /// Transactions with records that are known by their newest.
    pub(crate) open: Vec<OpenTransaction>,
    /// From here on records may be missing in `open`; [`Lsn::MAX`] when none is.
    pub(crate) pending: Lsn,
    /// No open transaction has a record before this; [`Lsn::MAX`] when there is none.
    pub(crate) first: Lsn,
}

impl TxnTable {
    pub(crate) fn new(slots: usize, next_txn: u64) -> TxnTable {
        let slot = || {
            CachePadded::new(Slot {
                txn: AtomicU64::new(FREE),
                first: AtomicU64::new(0),
                last: AtomicU64::new(0),
                pending: AtomicU64::new(IDLE),
                ended: AtomicU64::new(FREE),
            })
        };
        let slots: Box<[_]> = (0..slots).map(|_| slot()).collect();
        hint::name(&slots, "transaction slot");
        TxnTable {
            slots,
            next_txn: CachePadded::new(AtomicU64::new(next_txn.max(1))),
            next_home: AtomicU64::new(0),
            blocks: (0..BLOCKS).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
        }
    }

    /// Tells the simulator what lies where.
    #[cfg(not(foreshore_loom))]
    pub(crate) fn name_for_simulation(&self) {
        hint::name(std::slice::from_ref(&self.next_txn), "next transaction id");
    }

    /// A new transaction id.
    #[inline]
    pub(crate) fn draw(&self) -> TxnId {
        TxnId(self.next_txn.fetch_add(1, Ordering::Relaxed))
    }

    /// A new transaction id, of a block that those at this place use up: most draws change no line that others change.
    #[inline]
    pub(crate) fn draw_at(&self, place: usize) -> TxnId {
        let block = &self.blocks[place % BLOCKS];
        let next = |id| (id % BLOCK_IDS != 0).then_some(id + 1);
        match block.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(id) => TxnId(id),
            Err(_) => self.draw_block(block),
        }
    }

    /// The first id of a new block, whose others are left there. Blocks end where ids are multiples of their length;
    /// what is left of one that somebody else has left there at the same time is lost.
    #[cold]
    fn draw_block(&self, block: &AtomicU64) -> TxnId {
        let id = self.next_txn.fetch_add(BLOCK_IDS, Ordering::Relaxed);
        block.store(id + 1, Ordering::Relaxed);
        TxnId(id)
    }

    /// The id that the next transaction gets, or a later one.
    pub(crate) fn next_txn(&self) -> u64 {
        self.next_txn.load(Ordering::Relaxed)
    }

    /// Takes a slot for a transaction whose first record will be at `tail` or later.
    #[inline]
    pub(crate) fn claim(&self, txn: TxnId, tail: Lsn) -> Result<SlotNumber> {
        let home = HOME.with(Cell::get);
        let index = match self.slots.get(home) {
            Some(slot) if slot.try_claim(txn) => home,
            _ => self.search(txn)?,
        };
        self.slots[index].first.store(tail.0, Ordering::Release);
        Ok(SlotNumber(index as u16))
    }

    #[cold]
    fn search(&self, txn: TxnId) -> Result<usize> {
        let count = self.slots.len();
        let start = self.next_home.fetch_add(1, Ordering::Relaxed) as usize;
        let found =
            (0..count).map(|step| (start + step) % count).find(|&index| self.slots[index].try_claim(txn));
        let what = "open transactions that have written";
        let index = found.ok_or_else(|| StorageError::beyond_limit(what, count as u64, count as u64 + 1))?;
        HOME.with(|home| home.set(index));
        Ok(index)
    }

    /// The owner may append records from `from` on: the end of a record, no earlier than its own first one.
    #[inline]
    pub(crate) fn begin_change(&self, slot: SlotNumber, from: Lsn) {
        self.slot(slot).pending.store(from.0, Ordering::Release);
    }

    /// The change is over; `last` is the owner's newest record.
    #[inline]
    pub(crate) fn end_change(&self, slot: SlotNumber, last: Lsn) {
        let slot = self.slot(slot);
        slot.last.store(last.0, Ordering::Release);
        slot.pending.store(IDLE, Ordering::Release);
    }

    /// As [`TxnTable::end_change`], and lets others [take](TxnTable::take) the transaction over until its next change.
    #[inline]
    pub(crate) fn rest(&self, slot: SlotNumber, txn: TxnId, last: Lsn) {
        let slot = self.slot(slot);
        slot.last.store(last.0, Ordering::Release);
        slot.pending.store(RESTING | txn.0, Ordering::Release);
    }

    /// As [`TxnTable::begin_change`], for a transaction that rests; false: another has it.
    #[inline]
    pub(crate) fn resume_change(&self, slot: SlotNumber, txn: TxnId, from: Lsn) -> bool {
        self.slot(slot).replace_rest(txn, from.0)
    }

    /// Ends its rest: nobody takes it any more; false: another has it.
    pub(crate) fn take_back(&self, slot: SlotNumber, txn: TxnId) -> bool {
        self.slot(slot).replace_rest(txn, IDLE)
    }

    /// Takes over a transaction that rests, to undo it from its newest record on, which is given. `tail`: as `from` for
    /// [`TxnTable::begin_change`]. `None`: it is in the middle of a change, or has ended, or is not to be ended by
    /// others.
    pub(crate) fn take(&self, txn: TxnId, tail: Lsn) -> Option<(SlotNumber, Lsn)> {
        let index = self.index_of(txn)?;
        let slot = &self.slots[index];
        // Before anything is undone: a transaction that reads what was undone finds this.
        slot.ended.store(txn.0, Ordering::Relaxed);
        let taken = slot.replace_rest(txn, tail.0);
        taken.then(|| (SlotNumber(index as u16), Lsn(slot.last.load(Ordering::Acquire))))
    }

    /// Whether a slot is still that of a transaction.
    pub(crate) fn is_open(&self, slot: SlotNumber, txn: TxnId) -> bool {
        self.slot(slot).txn.load(Ordering::Acquire) == txn.0
    }

    /// The change goes on from `tail`; `last` is the owner's newest record so far.
    #[inline]
    pub(crate) fn advance(&self, slot: SlotNumber, last: Lsn, tail: Lsn) {
        let slot = self.slot(slot);
        slot.last.store(last.0, Ordering::Release);
        slot.pending.store(tail.0, Ordering::Release);
    }

    /// Gives the slot back. The owner's commit or end record is in the log, or it never had a record.
    #[inline]
    pub(crate) fn release(&self, slot: SlotNumber) {
        let slot = self.slot(slot);
        slot.last.store(0, Ordering::Release);
        slot.pending.store(IDLE, Ordering::Release);
        slot.first.store(0, Ordering::Release);
        slot.txn.store(FREE, Ordering::Release);
    }

    /// How many transactions have written and are open.
    pub(crate) fn open_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.txn.load(Ordering::Acquire) != FREE).count()
    }

    /// The transactions that have written and are open, with the places from which on each needs the log.
    pub(crate) fn holders(&self) -> Vec<(TxnId, Lsn)> {
        let seen = self.slots.iter().filter_map(|slot| slot.read()).filter(|seen| seen.first != 0);
        seen.map(|seen| (seen.txn, Lsn(seen.first))).collect()
    }

    /// The open transaction that needs most of the log, and what is different once it has got on.
    pub(crate) fn oldest_holder(&self) -> Option<(TxnId, [u64; 2])> {
        let seen = self.slots.iter().filter_map(|slot| slot.read()).filter(|seen| seen.first != 0);
        seen.min_by_key(|seen| seen.first).map(|seen| (seen.txn, [seen.last, seen.pending]))
    }

    /// The first records of all open transactions lie here or later, but for those that begin while this looks;
    /// [`Lsn::MAX`] when there is none.
    pub(crate) fn oldest(&self) -> Lsn {
        let firsts = self.slots.iter().map(|slot| slot.first.load(Ordering::Acquire));
        firsts.filter(|first| *first != 0).min().map_or(Lsn::MAX, Lsn)
    }

    /// The place below which a log that ends at `tail` is settled, when it is durable to where it ends behind this look
    /// (TXN-37); that end.
    pub(crate) fn settled(&self, tail: impl Fn() -> Lsn) -> (Lsn, Lsn) {
        let first = tail();
        let oldest = if planted(Fault::SettledBlind) { Lsn::MAX } else { self.oldest() };
        (first.min(oldest), tail())
    }

    /// Tells a transaction that it has to go.
    pub(crate) fn end(&self, txn: TxnId) {
        if let Some(index) = self.index_of(txn) {
            self.slots[index].ended.store(txn.0, Ordering::Relaxed);
        }
    }

    fn index_of(&self, txn: TxnId) -> Option<usize> {
        self.slots.iter().position(|slot| slot.txn.load(Ordering::Acquire) == txn.0)
    }

    /// Whether the owner of a slot was told to go, or was ended: then the slot is not its own any more.
    #[inline]
    pub(crate) fn is_ended(&self, slot: SlotNumber, txn: TxnId) -> bool {
        let slot = self.slot(slot);
        slot.ended.load(Ordering::Relaxed) == txn.0 || slot.txn.load(Ordering::Relaxed) != txn.0
    }

    /// Looks at all transactions, after the checkpoint has read its redo horizon from the log's tail.
    pub(crate) fn capture(&self) -> Captured {
        let mut captured = Captured { open: Vec::new(), pending: Lsn::MAX, first: Lsn::MAX };
        for slot in &self.slots {
            let Some(seen) = slot.read() else { continue };
            captured.pending = captured.pending.min(Lsn(seen.pending));
            if seen.first != 0 {
                captured.first = captured.first.min(Lsn(seen.first));
            }
            if seen.last != 0 {
                captured.open.push(OpenTransaction { txn: seen.txn, last: Lsn(seen.last) });
            }
        }
        captured
    }

    #[inline]
    fn slot(&self, slot: SlotNumber) -> &Slot {
        &self.slots[usize::from(slot.0)]
    }
}

/// A slot as it was while it had one owner.
struct Seen {
    txn: TxnId,
    first: u64,
    last: u64,
    pending: u64,
}

impl Slot {
    #[inline]
    fn try_claim(&self, txn: TxnId) -> bool {
        self.txn.compare_exchange(FREE, txn.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn replace_rest(&self, txn: TxnId, pending: u64) -> bool {
        let rest = RESTING | txn.0;
        self.pending.compare_exchange(rest, pending, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// `None` when it is free. Reads again when the owner changed meanwhile: ids are never used twice.
    fn read(&self) -> Option<Seen> {
        loop {
            let txn = self.txn.load(Ordering::Acquire);
            if txn == FREE {
                return None;
            }
            let pending = self.pending.load(Ordering::Acquire);
            let last = self.last.load(Ordering::Acquire);
            let first = self.first.load(Ordering::Acquire);
            if self.txn.load(Ordering::Acquire) == txn {
                let pending = if pending >= RESTING { IDLE } else { pending };
                return Some(Seen { txn: TxnId(txn), first, last, pending });
            }
        }
    }
}

#[cfg(all(test, foreshore_loom))]
mod models;
#[cfg(all(test, not(foreshore_loom)))]
mod tests;
