//! The tail advances by an addition, which the hardware does in one go however many want it, and which cannot fail.
//!
//! An addition cannot look first whether there is room for its record. So it is looked once for a whole *block* of the
//! log, a part of a segment: whoever comes into a block asks whether work may fill all of it, and if so, opens it; to
//! what is then added within it nobody can say no any more. The word:
//!
//! | bits | what |
//! | --- | --- |
//! | 0–27 | where the log ends in its block, in units of 8 bytes; more than the block has: it is being left |
//! | 28–62 | the number of the block, counted from the one in which the log was opened |
//! | 63 | shut: no block is open, and `held` says where the log ends; bits 0–27 not 0: somebody has the turn |
//!
//! ```text
//!   claim that fits in the block                    claim that does not fit: it has the turn
//!      (block, offset + bytes) <---- (block, offset) ------------------> (…, more than the block)
//!                                       ^                                   |   claims of others: they wait
//!                                       | swap: it has got its place, and   |
//!                                       | the block where that ends is open |   swap: it was refused, or may not fill that block
//!                                       +-----------------------------------+------------------> (shut, 0)
//!                                       |                                                            |  any claim
//!                                       +--------------------------------------------- (shut, more) <+  has the turn
//! ```
//!
//! Of all claims that a block sees, exactly one begins within it and ends beyond, and of those that find the word shut
//! exactly one is the first. To that one the tail belongs until its swap: it takes the next place, if it may, beyond
//! the end of the segment if it must. What others have added meanwhile is void: they wait for the swap and add again.
//! Nothing is wasted, and nothing has to be filled; between the addition and the swap nothing is done that could wait
//! or fail.
//!
//! So limits are kept exactly, however many append and wherever each of them is stopped: what is in an open block was
//! allowed before it was opened, and all else is asked for by whoever has the tail alone. (Limits do not fall below
//! what they have allowed.) Near a limit no block is open, and each claim takes a turn.

use foreshore_env::{
    CachePadded, hint,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use super::{Claimed, Refused, Request, Urgency};
use crate::segment::{Geometry, Place};

/// Bits of the offset.
const OFFSET_BITS: u32 = 28;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;
/// No block is open.
const SHUT: u64 = 1 << 63;
/// Bytes in a unit of the offset: records start and end at multiples of it.
const UNIT: u64 = 8;
/// Blocks that may be opened before the log is opened anew; of the smallest ones, more than 10^14 bytes. Behind them
/// all is shut.
const MAX_BLOCKS: u64 = 1 << (63 - OFFSET_BITS);
/// The largest block.
pub(super) const MAX_BLOCK_BYTES: u64 = 1 << 20;
/// How often a thread only spins that waits for another's turn to end, before it lets others run.
const SPINS: u64 = 64;

// A thread adds once while somebody has the turn: the longest record of each of 16,384 threads has room in the offset.
const _: () = assert!(MAX_BLOCK_BYTES / UNIT + (16_384 << 16) / UNIT <= OFFSET_MASK);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct FetchAdd {
    /// See the [module](self). Advanced by whoever appends.
    word: CachePadded<AtomicU64>,
    /// Where the log ends while the word is shut. Written by whoever has the turn, before the swap that ends it.
    held: CachePadded<AtomicU64>,
    /// The base of the block with number 0.
    origin: u64,
    /// A power of two, part of a segment.
    block_bytes: u64,
    geometry: Geometry,
}

impl FetchAdd {
    /// `block_bytes`: a power of two.
    pub(super) fn new(geometry: Geometry, tail: u64, block_bytes: u64) -> FetchAdd {
        FetchAdd {
            word: CachePadded::new(AtomicU64::new(SHUT)),
            held: CachePadded::new(AtomicU64::new(tail)),
            origin: geometry.base(tail),
            block_bytes: block_bytes.min(MAX_BLOCK_BYTES).min(geometry.segment_bytes()),
            geometry,
        }
    }

    /// Where the log ends, by what `read` finds in the word.
    #[inline]
    pub(super) fn tail(&self, read: impl Fn(&AtomicU64) -> u64) -> u64 {
        loop {
            let word = read(&self.word);
            if !self.is_left(word) {
                return self.position(word);
            }
            self.wait_for_turn();
        }
    }

    /// Units that the block has which is open.
    #[inline]
    fn room(&self, word: u64) -> u64 {
        if word & SHUT == 0 { self.block_bytes / UNIT } else { 0 }
    }

    /// Whether somebody has the turn.
    #[inline]
    fn is_left(&self, word: u64) -> bool {
        word & OFFSET_MASK > self.room(word)
    }

    /// Where the log ends, as a word says it in which nobody has the turn.
    #[inline]
    fn position(&self, word: u64) -> u64 {
        if word & SHUT == 0 {
            self.origin + (word >> OFFSET_BITS) * self.block_bytes + (word & OFFSET_MASK) * UNIT
        } else {
            // Pairs with the release in `take_turn`. It may say already what the one decided who has the turn by now:
            // that is to be.
            self.held.load(Ordering::Acquire)
        }
    }

    /// The number of the block in which a log lies that ends at `position`: on the border of two blocks the first.
    #[inline]
    fn block(&self, position: u64) -> u64 {
        (position - 1 - self.origin) / self.block_bytes
    }

    #[inline]
    pub(super) fn prefetch(&self) {
        hint::prefetch(&self.word, hint::Access::Write);
    }

    #[inline]
    pub(super) fn claim(
        &self,
        request: Request,
        check: impl Fn(Option<Urgency>, u64) -> Result<(), Refused>,
    ) -> Result<Claimed, Refused> {
        let units = request.bytes / UNIT;
        loop {
            let before = self.word.fetch_add(units, Ordering::AcqRel);
            if (before & OFFSET_MASK) + units <= self.room(before) {
                // Never the beginning of a segment: blocks are opened behind a record.
                let start = self.position(before);
                return Ok(Claimed { place: Place { segment_end: None, start }, end: start + request.bytes });
            }
            if !self.is_left(before) {
                return self.take_turn(self.position(before), request, check);
            }
            self.wait_for_turn();
        }
    }

    /// Claims at `tail`, which is the caller's alone until the word is swapped.
    #[cold]
    fn take_turn(
        &self,
        tail: u64,
        request: Request,
        check: impl Fn(Option<Urgency>, u64) -> Result<(), Refused>,
    ) -> Result<Claimed, Refused> {
        let claimed = Claimed::at(tail, self.geometry, request.bytes);
        let granted = check(request.urgency, claimed.end).map(|()| claimed);
        let (tail, block) = match granted {
            Ok(Claimed { end, .. }) => (end, self.block(end)),
            Err(_) => (tail, MAX_BLOCKS),
        };
        let base = self.origin + block * self.block_bytes;
        let opens = block < MAX_BLOCKS && check(Some(Urgency::Work), base + self.block_bytes).is_ok();
        let after = if opens {
            (block << OFFSET_BITS) | ((tail - base) / UNIT)
        } else {
            self.held.store(tail, Ordering::Release);
            SHUT
        };
        // A read-modify-write, for WAL-12; what others have added meanwhile is void.
        self.word.swap(after, Ordering::AcqRel);
        granted
    }

    /// A thread is on the way from its addition to its swap.
    #[cold]
    fn wait_for_turn(&self) {
        let over = || !self.is_left(self.word.load(Ordering::Relaxed));
        if !hint::spin_until(SPINS, over) {
            while !over() {
                thread::yield_now();
            }
        }
    }
}
