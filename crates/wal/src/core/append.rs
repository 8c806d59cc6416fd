//! Appending: claim a place, copy, publish.
//!
//! As in Shore-MT (§6.2.4), the critical section settles only *where* the record goes; checksum and copy happen outside
//! of it, in parallel. Here it is one compare-exchange on the tail, and the flusher, who follows behind, learns from the
//! ring itself which records are whole (`ring.rs`).

use foreshore_base::{Lsn, Result, StorageError, TxnId};
use foreshore_env::sync::atomic::Ordering;

use super::{Core, LAST_POSITION, OPEN};
use crate::frame::{
    self, HEADER_BYTES, MARK_BYTES, MAX_RECORD_BYTES, MAX_TXN, RecordHeader, RecordKind, padded,
};

/// Who appends, as to how much of the capacity it may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Work: half of it.
    Forward,
    /// Ending work: all of it.
    Rollback,
    /// The log's own records: they are few.
    Own,
}

/// A claimed place. Dropped before it is published, it poisons: the flusher could never pass it.
pub(super) struct Claim<'a> {
    core: &'a Core,
    segment_end: Option<u64>,
    start: u64,
    /// The ring is more than half full.
    crowded: bool,
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

/// Why no place was claimed.
enum Refused {
    NoRoom,
    LogFull,
}

impl Claim<'_> {
    #[inline]
    pub(super) fn publish(self, header: &[u64; 3], length: usize, payload: &[&[u8]]) {
        let core = self.core;
        if let Some(position) = self.segment_end {
            core.end_segment(position);
        }
        let checksum = core.seal.checksum(length, header, payload);
        core.ring.write(self.start, frame::first_word(length, checksum), header, payload);
        std::mem::forget(self);
    }
}

#[cfg(test)]
impl Claim<'_> {
    pub(super) fn start(&self) -> u64 {
        self.start
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
        purpose: Purpose,
    ) -> Result<Lsn> {
        let length = HEADER_BYTES + payload.iter().map(|piece| piece.len()).sum::<usize>();
        if length > MAX_RECORD_BYTES || txn.0 > MAX_TXN || kind.is_own() != (purpose == Purpose::Own) {
            return Err(impossible(length, txn, kind));
        }
        if self.gate.load(Ordering::Relaxed) != OPEN {
            return Err(self.refusal());
        }
        let claim = match self.claim(padded(length), purpose) {
            Ok(claim) => claim,
            Err(Refused::LogFull) => return Err(self.log_full()),
            Err(Refused::NoRoom) => self.claim_when_there_is_room(padded(length), purpose)?,
        };
        let (lsn, crowded) = (Lsn(claim.start), claim.crowded);
        debug_assert!(prev < lsn, "the previous record of a transaction lies before the next");
        let header = frame::header_words(&RecordHeader { lsn, prev, txn, kind });
        claim.publish(&header, length, payload);
        self.wake_if_dozing();
        if crowded && !self.write_wanted.load(Ordering::Relaxed) {
            self.want_write();
        }
        Ok(lsn)
    }

    /// Takes a place of `bytes` at the tail. The critical section of an append: one compare-exchange.
    #[inline]
    fn claim(&self, bytes: u64, purpose: Purpose) -> Result<Claim<'_>, Refused> {
        let limit = match purpose {
            Purpose::Forward => self.capacity_bytes / 2,
            Purpose::Rollback => self.capacity_bytes,
            Purpose::Own => u64::MAX,
        };
        let mut position = self.tail.load(Ordering::Relaxed);
        loop {
            let place = self.geometry.place(position, bytes);
            let end = place.start + bytes;
            if end.saturating_sub(self.low_water.load(Ordering::Relaxed)) > limit || end > LAST_POSITION {
                return Err(Refused::LogFull);
            }
            let taken = self.ring.taken(end);
            if taken > self.ring.bytes() {
                return Err(Refused::NoRoom);
            }
            match self.tail.compare_exchange_weak(position, end, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    return Ok(Claim {
                        core: self,
                        segment_end: place.segment_end,
                        start: place.start,
                        crowded: taken > self.ring.bytes() / 2,
                    });
                }
                Err(now) => position = now,
            }
        }
    }

    /// A place for an empty record.
    #[cfg(test)]
    pub(super) fn claim_for_test(&self) -> Claim<'_> {
        self.claim(HEADER_BYTES as u64, Purpose::Own).unwrap_or_else(|_| panic!("there is room"))
    }

    #[cold]
    fn claim_when_there_is_room(&self, bytes: u64, purpose: Purpose) -> Result<Claim<'_>> {
        let mut waiting = self.waiting.lock();
        loop {
            if self.gate.load(Ordering::Acquire) != OPEN {
                drop(waiting);
                return Err(self.refusal());
            }
            match self.claim(bytes, purpose) {
                Ok(claim) => return Ok(claim),
                Err(Refused::LogFull) => return Err(self.log_full()),
                Err(Refused::NoRoom) => {}
            }
            self.write_wanted.store(true, Ordering::Relaxed);
            self.wake_flusher(&mut waiting);
            waiting.for_space += 1;
            waiting = self.space.wait(waiting);
            waiting.for_space -= 1;
        }
    }

    /// Writes the record that ends a segment.
    #[cold]
    fn end_segment(&self, position: u64) {
        let header = RecordHeader {
            lsn: Lsn(position),
            prev: Lsn::ZERO,
            txn: TxnId::SYSTEM,
            kind: RecordKind::SEGMENT_END,
        };
        let words = frame::header_words(&header);
        let checksum = self.seal.checksum(HEADER_BYTES, &words, &[]);
        self.ring.write(position, frame::first_word(HEADER_BYTES, checksum), &words, &[]);
    }

    /// Appends a mark, if that needs no waiting: the flusher must not wait for itself.
    pub(super) fn append_mark(&self, durable: u64) -> Option<Mark> {
        let claim = self.claim(MARK_BYTES as u64, Purpose::Own).ok()?;
        let start = claim.start;
        let header =
            RecordHeader { lsn: Lsn(start), prev: Lsn::ZERO, txn: TxnId::SYSTEM, kind: RecordKind::MARK };
        claim.publish(&frame::header_words(&header), MARK_BYTES, &[&durable.to_le_bytes()]);
        Some(Mark { start, first: self.geometry.place(durable, MARK_BYTES as u64).start })
    }

    #[cold]
    fn want_write(&self) {
        if !self.write_wanted.swap(true, Ordering::Relaxed) {
            self.wake_flusher(&mut self.waiting.lock());
        }
    }

    #[cold]
    fn log_full(&self) -> StorageError {
        StorageError::LogFull {
            used_bytes: self.tail().saturating_sub(self.low_water()),
            capacity_bytes: self.capacity_bytes,
        }
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
    StorageError::LimitExceeded { what, limit, got }
}
