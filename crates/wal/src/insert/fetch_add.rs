//! The tail advances by an addition, which the hardware does in one go however many want it, and which cannot fail.
//!
//! An addition cannot look first whether the record fits into its segment. So the word counts within a segment:
//!
//! | bits | what |
//! | --- | --- |
//! | 0–27 | where the log ends in its segment, in units of 8 bytes; more than the segment has: it is being left |
//! | 28–63 | the number of the segment, counted from the one in which the log was opened |
//!
//! ```text
//!                         claim that fits               claim that does not fit
//!   (segment, offset) ------------------> (…, offset + bytes) ------------> (…, more than the segment)
//!                                               ^                                |   claims of others: they wait
//!                                               |   swap by the one whose claim  |
//!                                               +---- did not fit: (segment + 1, header + bytes)
//! ```
//!
//! Of all claims that a segment sees, exactly one begins within it and ends beyond: its owner ends the segment and takes
//! the first place of the next. Nothing is wasted, and nothing has to be filled. Those who add meanwhile wait for that one
//! store and add again; between the addition and the store nothing is done that could wait or fail.
//!
//! Whether there is room is asked *before* the addition, of a tail that may be a few claims old. So near a limit, and always for
//! the flusher, which must not wait for itself, the same word is advanced by compare-exchange, which claims what was asked
//! for or nothing. Only if more than [`MARGIN`] is claimed while somebody is between his question and his addition does he
//! exceed a limit, by his record: with long records and more threads than [`MARGIN`] has longest ones, all of them cut off at that
//! point, each may, so that work takes up to a record of each from what is kept for the ends of transactions. If the limit is that
//! of the ring, he waits with his claim in hand.

use foreshore_env::{
    CachePadded, hint,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use super::{Claimed, Purpose, Refused, Request};
use crate::{
    frame::MAX_RECORD_BYTES,
    segment::{Geometry, MAX_SEGMENT_BYTES},
};

/// Bits of the offset.
const OFFSET_BITS: u32 = 28;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;
/// Bytes in a unit of the offset: records start and end at multiples of it.
const UNIT: u64 = 8;
/// Segments that a log may go through before it is opened anew; from the smallest ones, four petabytes.
const MAX_SEGMENTS: u64 = 1 << (63 - OFFSET_BITS);
/// With so much room behind a record, others may claim at the same moment without coming to a limit.
const MARGIN: u64 = 16 * MAX_RECORD_BYTES as u64;
/// How often somebody only spins who waits for the next segment, before he lets others run.
const SPINS: u64 = 64;

// A thread adds once while a segment is being left: the longest record of each of 16,384 threads has room in the offset.
const _: () = assert!(MAX_SEGMENT_BYTES / UNIT + (16_384 << 16) / UNIT <= OFFSET_MASK);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct FetchAdd {
    /// See the [module](self). Advanced by whoever appends.
    word: CachePadded<AtomicU64>,
    /// The base of the segment with number 0.
    origin: u64,
    geometry: Geometry,
}

impl FetchAdd {
    pub(super) fn new(geometry: Geometry, tail: u64) -> FetchAdd {
        let inserter = FetchAdd {
            word: CachePadded::default(),
            origin: geometry.base(tail.saturating_sub(1)),
            geometry,
        };
        inserter.word.store(inserter.encode(tail), Ordering::Relaxed);
        inserter
    }

    #[inline]
    pub(super) fn word(&self) -> &AtomicU64 {
        &self.word
    }

    /// Where the log ends, as a word says it.
    #[inline]
    pub(super) fn position(&self, word: u64) -> u64 {
        let (base, offset) = self.decode(word);
        base + offset.min(self.geometry.segment_bytes())
    }

    /// The base of the segment, and the offset in it, which may lie beyond its end.
    #[inline]
    fn decode(&self, word: u64) -> (u64, u64) {
        let base = self.origin + (word >> OFFSET_BITS) * self.geometry.segment_bytes();
        (base, (word & OFFSET_MASK) * UNIT)
    }

    /// The word for a log that ends at `position`. On the border of two segments it ends in the first.
    #[inline]
    fn encode(&self, position: u64) -> u64 {
        let base = self.geometry.base(position.saturating_sub(1));
        let number = (base - self.origin) / self.geometry.segment_bytes();
        (number << OFFSET_BITS) | ((position - base) / UNIT)
    }

    #[inline]
    pub(super) fn claim(
        &self,
        request: Request,
        check: impl Fn(u64) -> Result<(), Refused>,
    ) -> Result<Claimed, Refused> {
        loop {
            let seen = self.word.load(Ordering::Relaxed);
            let Some(claimed) = self.claim_at(seen, request.bytes) else {
                self.wait_for_next_segment(seen);
                continue;
            };
            if seen >> OFFSET_BITS >= MAX_SEGMENTS {
                return Err(Refused::LogFull);
            }
            if request.purpose == Purpose::Own || check(claimed.end + MARGIN).is_err() {
                check(claimed.end)?;
                let after = self.encode(claimed.end);
                if self.word.compare_exchange(seen, after, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    return Ok(claimed);
                }
                continue;
            }
            let before = self.word.fetch_add(request.bytes / UNIT, Ordering::AcqRel);
            match self.claim_at(before, request.bytes) {
                Some(claimed) => {
                    if self.decode(before).1 + request.bytes > self.geometry.segment_bytes() {
                        // A read-modify-write, for WAL-12; what others have added meanwhile is void.
                        self.word.swap(self.encode(claimed.end), Ordering::AcqRel);
                    }
                    return Ok(claimed);
                }
                None => self.wait_for_next_segment(before),
            }
        }
    }

    /// What a claim gets that finds this word; `None` if the segment is being left.
    #[inline]
    fn claim_at(&self, word: u64, bytes: u64) -> Option<Claimed> {
        let (base, offset) = self.decode(word);
        if offset > self.geometry.segment_bytes() {
            return None;
        }
        let place = self.geometry.place(base + offset, bytes);
        Some(Claimed { place, end: place.start + bytes })
    }

    /// Somebody is on the way from his addition to his store.
    #[cold]
    fn wait_for_next_segment(&self, word: u64) {
        let left = || self.word.load(Ordering::Relaxed) >> OFFSET_BITS != word >> OFFSET_BITS;
        if !hint::spin_until(SPINS, left) {
            while !left() {
                thread::yield_now();
            }
        }
    }
}
