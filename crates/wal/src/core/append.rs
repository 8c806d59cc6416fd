//! Appending: claim a place, copy, publish.
//!
//! The critical section settles only where the record goes (`insert.rs`); checksum and copy happen outside of it, in
//! parallel. The flusher, which follows behind, learns from the ring itself which records are whole (`ring.rs`).

use foreshore_base::{Lsn, Result, StorageError, TxnId};
use foreshore_env::{
    sync::{MutexGuard, atomic::Ordering},
    time::{Duration, Instant},
};

use super::{Core, LAST_POSITION, OPEN, wait::Waiting};
use crate::{
    frame::{
        self, Gathered, HEADER_BYTES, MARK_BYTES, MAX_RECORD_BYTES, MAX_TXN, RecordHeader, RecordKind, padded,
    },
    insert::{Claimed, Refused, Request, Urgency},
    segment::SEGMENT_HEADER_BYTES,
};

/// Bytes of the ring, and of what the log may hold, that only the log's own records take, so that a full one does not
/// cost a mark: those of two (one before a sync, one under a log that is quiet from then on), behind the rest of a
/// segment and the next one's header.
const KEPT_FOR_MARKS_BYTES: u64 = SEGMENT_HEADER_BYTES + 3 * padded(MARK_BYTES);

/// The writer begins when a quarter of the ring is full: the rest is there for as long as the disk stands still.
const WRITTEN_FROM: u64 = 4;

/// A claimed place. Dropped before it is published, it poisons: the flusher could never pass it.
pub(super) struct Claim<'a> {
    core: &'a Core,
    claimed: Claimed,
}

/// A mark that was appended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    start: u64,
    /// Where it would start if nothing stood between it and the place up to which it says that all is durable.
    first: u64,
}

impl Mark {
    /// Whether a log that ends at `end` holds nothing that this mark does not prove durable.
    pub(super) fn seals(self, end: u64) -> bool {
        self.start == self.first && self.start + MARK_BYTES as u64 == end
    }
}

impl Claim<'_> {
    #[inline]
    pub(super) fn publish(self, header: &[u64; 3], length: usize, payload: &[&[u8]]) {
        let core = self.core;
        core.ring.prefetch(self.start(), length);
        if let Some(position) = self.claimed.place.segment_end {
            core.end_segment(position);
        }
        if let Some(gathered) = Gathered::new(length, header, payload) {
            let first_word = frame::first_word(length, core.seal.checksum_gathered(&gathered));
            core.ring.write_whole(self.start(), first_word, header, gathered.padded_payload());
        } else {
            let first_word = frame::first_word(length, core.seal.checksum(length, header, payload));
            match payload {
                [whole] => core.ring.write_whole(self.start(), first_word, header, whole),
                pieces => core.ring.write(self.start(), first_word, header, pieces),
            }
        }
        std::mem::forget(self);
    }

    #[inline]
    pub(super) fn start(&self) -> u64 {
        self.claimed.place.start
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.core.poison("a thread died in the middle of an append to the log");
    }
}

impl Core {
    #[inline]
    pub(crate) fn append(
        &self,
        txn: TxnId,
        prev: Lsn,
        kind: RecordKind,
        payload: &[&[u8]],
        urgency: Urgency,
    ) -> Result<Lsn> {
        let length = HEADER_BYTES + payload.iter().map(|piece| piece.len()).sum::<usize>();
        if length > MAX_RECORD_BYTES || txn.0 > MAX_TXN || kind.is_own() {
            return Err(impossible(length, txn, kind));
        }
        if self.gate.load(Ordering::Relaxed) != OPEN {
            return Err(self.refusal());
        }
        let request = Request { bytes: padded(length), urgency: Some(urgency), hint: txn.0 };
        let claim = match self.claim(request) {
            Ok(claim) => claim,
            Err(Refused::LogFull) => return Err(self.log_full()),
            Err(Refused::NoRoom) => self.claim_when_there_is_room(request)?,
        };
        let taken = self.ring.taken(claim.claimed.end);
        debug_assert!(taken <= self.ring.bytes(), "WAL-10: no claim without room in the ring");
        let lsn = Lsn(claim.start());
        debug_assert!(prev < lsn, "the previous record of a transaction lies before the next");
        let header = frame::header_words(&RecordHeader { lsn, prev, txn, kind });
        claim.publish(&header, length, payload);
        if self.doze.is_on() {
            self.wake_dozing();
        }
        if taken > self.ring.bytes() / WRITTEN_FROM && !self.write_wanted.load(Ordering::Relaxed) {
            self.want_write();
        }
        // Relaxed: ordered by the tail, behind which this thread has claimed (WAL-18).
        if self.gate.load(Ordering::Relaxed) != OPEN {
            return self.appended_beside_the_end(lsn);
        }
        Ok(lsn)
    }

    /// The gate was shut while a record was appended. Whether a closed log has it, its flusher says (WAL-18). What a
    /// log has that failed nobody knows: there it was appended, and whoever wants it durable is told that it failed.
    #[cold]
    fn appended_beside_the_end(&self, lsn: Lsn) -> Result<Lsn> {
        match self.flush(lsn, None) {
            Err(StorageError::Closed) => Err(StorageError::Closed),
            _ => Ok(lsn),
        }
    }

    #[inline]
    pub(crate) fn prefetch_tail(&self) {
        self.inserter.prefetch();
    }

    /// Takes a place at the tail: the critical section of an append.
    #[inline]
    pub(super) fn claim(&self, request: Request) -> Result<Claim<'_>, Refused> {
        let claimed = self.inserter.claim(request, |urgency, end| self.check_claim(urgency, end))?;
        Ok(Claim { core: self, claimed })
    }

    /// Whether the log may end at `end` (WAL-10, WAL-13). What was allowed stays allowed.
    #[inline]
    fn check_claim(&self, urgency: Option<Urgency>, end: u64) -> Result<(), Refused> {
        let (limit, kept) = match urgency {
            Some(Urgency::Work) => (self.work_bytes, KEPT_FOR_MARKS_BYTES),
            Some(Urgency::Ending) => {
                (self.capacity_bytes.saturating_sub(KEPT_FOR_MARKS_BYTES), KEPT_FOR_MARKS_BYTES)
            }
            None => (u64::MAX, 0),
        };
        if end.saturating_sub(self.low_water.load(Ordering::Relaxed)) > limit || end > LAST_POSITION {
            Err(Refused::LogFull)
        } else if let (Some(Urgency::Work), Some(none_left)) = (urgency, self.lacks_space(end)) {
            Err(if none_left { Refused::LogFull } else { Refused::NoRoom })
        } else if self.overflows(end, kept) {
            Err(Refused::NoRoom)
        } else {
            Ok(())
        }
    }

    /// Whether the ring has no room for a log that ends at `end`, and so many bytes beside it.
    #[inline]
    fn overflows(&self, end: u64, kept: u64) -> bool {
        self.ring.taken(end) + kept > self.ring.bytes()
    }

    /// A place for an empty record.
    #[cfg(test)]
    pub(super) fn claim_for_test(&self) -> Claim<'_> {
        let request = Request { bytes: HEADER_BYTES as u64, urgency: None, hint: 0 };
        self.claim(request).unwrap_or_else(|_| panic!("there is room"))
    }

    /// Whether so many bytes of this urgency would be appended, or refused, without waiting for room.
    pub(crate) fn has_room(&self, urgency: Urgency, bytes: u64) -> bool {
        let end = self.tail() + bytes;
        let waits = match self.check_claim(Some(urgency), end) {
            Ok(()) => false,
            Err(Refused::NoRoom) => true,
            // So many are refused; fewer may be allowed, and wait for the ring.
            Err(Refused::LogFull) => self.overflows(end, KEPT_FOR_MARKS_BYTES),
        };
        !waits || self.gate.load(Ordering::Relaxed) != OPEN
    }

    /// Waits until that is so; false: until the deadline.
    #[cold]
    pub(crate) fn await_room(&self, urgency: Urgency, bytes: u64, deadline: Option<Instant>) -> bool {
        let mut waiting = self.waiting.lock();
        while !self.has_room(urgency, bytes) {
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return false;
            }
            if urgency == Urgency::Work {
                self.takes_space.store(true, Ordering::Relaxed);
            }
            waiting = self.sleep_until_room_was_made(waiting, deadline);
        }
        true
    }

    /// How many wait for room, or for space.
    pub(crate) fn awaiting_room(&self) -> usize {
        self.awaiting_room.load(Ordering::Relaxed)
    }

    /// For how long that was waited for.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_ns.load(Ordering::Relaxed))
    }

    #[cold]
    fn claim_when_there_is_room(&self, request: Request) -> Result<Claim<'_>> {
        let mut waiting = self.waiting.lock();
        loop {
            if self.gate.load(Ordering::Acquire) != OPEN {
                drop(waiting);
                return Err(self.refusal());
            }
            match self.claim(request) {
                Ok(claim) => return Ok(claim),
                Err(Refused::LogFull) => {
                    drop(waiting);
                    return Err(self.log_full());
                }
                Err(Refused::NoRoom) if request.urgency == Some(Urgency::Work) => {
                    self.takes_space.store(true, Ordering::Relaxed);
                    waiting = self.sleep_until_room_was_made(waiting, None);
                }
                Err(Refused::NoRoom) => waiting = self.sleep_until_room_was_made(waiting, None),
            }
        }
    }

    /// Until the deadline at most.
    fn sleep_until_room_was_made<'a>(
        &self,
        mut waiting: MutexGuard<'a, Waiting>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, Waiting> {
        self.write_wanted.store(true, Ordering::Relaxed);
        self.writing.notify_one();
        let begun = Instant::now();
        self.awaiting_room.fetch_add(1, Ordering::Relaxed);
        waiting = match deadline {
            Some(deadline) => self.space.wait_until(waiting, deadline),
            None => self.space.wait(waiting),
        };
        self.awaiting_room.fetch_sub(1, Ordering::Relaxed);
        let waited = begun.elapsed().as_nanos();
        self.waited_ns.fetch_add(u64::try_from(waited).unwrap_or(u64::MAX), Ordering::Relaxed);
        waiting
    }

    /// Writes the record that ends a segment.
    #[cold]
    fn end_segment(&self, position: u64) {
        let header = RecordHeader::own(Lsn(position), RecordKind::SEGMENT_END);
        let words = frame::header_words(&header);
        let checksum = self.seal.checksum(HEADER_BYTES, &words, &[]);
        self.ring.write(position, frame::first_word(HEADER_BYTES, checksum), &words, &[]);
    }

    /// Appends a mark, if that needs no waiting: the flusher must not wait for itself.
    pub(super) fn append_mark(&self, durable: u64) -> Option<Mark> {
        let request = Request { bytes: MARK_BYTES as u64, urgency: None, hint: 0 };
        let claim = self.claim(request).ok()?;
        let start = claim.start();
        let header = RecordHeader::own(Lsn(start), RecordKind::MARK);
        claim.publish(&frame::header_words(&header), MARK_BYTES, &[&durable.to_le_bytes()]);
        Some(Mark { start, first: self.geometry.place(durable, MARK_BYTES as u64).start })
    }
}

#[cold]
fn impossible(length: usize, txn: TxnId, kind: RecordKind) -> StorageError {
    let (what, limit, got) = if length > MAX_RECORD_BYTES {
        ("length of a log record in bytes", MAX_RECORD_BYTES as u64, length as u64)
    } else if txn.0 > MAX_TXN {
        ("transaction id", MAX_TXN, txn.0)
    } else {
        ("kind of a log record (0 is the log's own)", u64::from(u8::MAX) - 1, u64::from(kind.0))
    };
    StorageError::beyond_limit(what, limit, got)
}
