//! Space on the disk, taken before it is needed.
//!
//! WAL-13: work is appended only where there is space on the disk for it *and* for what takes it back: as of the
//! capacity (WAL-10), three eighths of the space behind the undo floor, less some that is for the ends of transactions
//! and for images of pages. The space is that of segments that have their length already. So on a full disk work is
//! refused while the log can still take all that ends work, and nobody is told of it by a log that has died.
//!
//! A thread of its own makes spares ahead of the tail (`maker.rs`). A thread that comes up to the limit before it has
//! waits, as for room in the ring; if there is no more space, it is told that the log is full. Then a checkpoint may
//! let segments go, which are spares from then on, so that a database on a full disk goes on with the log that it has.
//! The same happens while no file can be opened, because the process, or the system, has as many as it may: the space
//! there is lies in files that are open.

use foreshore_base::{Result, StorageError, is_disk_full};
use foreshore_env::sync::atomic::Ordering;

use super::Core;
use crate::{frame::MAX_RECORD_BYTES, segment::SEGMENT_HEADER_BYTES};

/// How many eighths of the space, as of the capacity, work may take.
const WORK_EIGHTHS: u64 = 3;
/// A record ends so far behind the tail at most: it may find no room before the end of a segment, and begins behind the
/// next one's header then.
const LONGEST_CLAIM_BYTES: u64 = 2 * MAX_RECORD_BYTES as u64 + SEGMENT_HEADER_BYTES;

impl Core {
    /// Says that nothing before this position is ever taken back: what lies before needs no space but its own.
    pub(crate) fn raise_undo_floor(&self, position: u64) {
        self.takes_space.store(true, Ordering::Relaxed);
        self.undo_floor.fetch_max(position.min(self.tail()), Ordering::Relaxed);
    }

    /// Where what may have to be taken back begins, and up to where work may soon go.
    fn span_of_work(&self) -> (u64, u64) {
        let low = self.low_water();
        let floor = self.undo_floor.load(Ordering::Relaxed).max(low);
        // Whoever waits for space wants no more than that (WAL-9).
        let ahead = self.tail() + (self.ring.bytes() / 2).max(LONGEST_CLAIM_BYTES);
        (floor, ahead.min(low + self.work_bytes).max(floor))
    }

    /// What is kept for the ends of transactions, and for images of pages that they touch.
    fn kept(&self) -> u64 {
        self.geometry.segment_bytes() / 2
    }

    /// Allows work as far as the space goes that there is, and wakes those who wait for more; whether that will do for
    /// a while.
    fn limit_work(&self) -> bool {
        // Computed and told under one mutex: the last to tell has seen the space as it is.
        let telling = self.telling_space.lock();
        let (floor, ahead) = self.span_of_work();
        let space = self.store.space_end().saturating_sub(floor + self.kept());
        let limit = floor + space / 8 * WORK_EIGHTHS;
        if limit >= ahead {
            self.disk_is_full.store(false, Ordering::Relaxed);
        }
        let before = self.space_limit.swap(limit, Ordering::Relaxed);
        drop(telling);
        if limit > before {
            self.space_was_made();
        }
        limit >= ahead
    }

    /// Makes spares for what will soon be appended, as far as there is space and it is to be asked for already. By the
    /// maker, or before there is one.
    pub(crate) fn reserve(&self) -> Result<()> {
        while !self.limit_work() && self.takes_space.load(Ordering::Relaxed) {
            let made = match self.store.reserve() {
                Err(StorageError::Io { source, .. }) if is_disk_full(&source) => false,
                made => made?,
            };
            if !made {
                self.disk_is_full.store(true, Ordering::Relaxed);
                // They are refused from now on.
                self.space_was_made();
                return Ok(());
            }
        }
        Ok(())
    }

    /// Prepares the segment behind the one that is written, when half of that is and there is a spare. By the maker.
    pub(super) fn prepare_next(&self) -> Result<()> {
        let written = self.ring.written();
        let is_due = self.geometry.offset(written) >= self.geometry.segment_bytes() / 2;
        if is_due { self.store.prepare_after(self.geometry.base(written)) } else { Ok(()) }
    }

    /// Tells how far work may go, and has spares made if that is not far enough for a while. By the flusher and the
    /// writer.
    pub(super) fn look_after_space(&self) {
        if !self.limit_work() && self.takes_space.load(Ordering::Relaxed) {
            self.want_space();
        }
    }

    /// Lets segments go that end at or before `position`; of spares only so many stay as are of use.
    pub(crate) fn release_space(&self, position: u64) -> Result<()> {
        self.store.release_before(position)?;
        let (floor, ahead) = self.span_of_work();
        let needed = floor + self.kept() + (ahead - floor).div_ceil(WORK_EIGHTHS) * 8;
        let surplus = self.store.take_surplus(needed, self.capacity_bytes);
        // Before others have it: what was promised was promised with it.
        self.limit_work();
        self.store.remove(surplus)
    }

    /// Whether a log from this position on would be within what work may fill, and so would leave what takes it back
    /// its room.
    pub(crate) fn is_within_work(&self, from: u64) -> bool {
        let held = self.tail().saturating_sub(from);
        if held > self.work_bytes || !self.is_disk_full() {
            return held <= self.work_bytes;
        }
        // What lies before would be space again.
        let let_go = self.geometry.base(from).saturating_sub(self.geometry.base(self.low_water()));
        let space = (self.store.space_end() + let_go).saturating_sub(from + self.kept());
        held <= space / 8 * WORK_EIGHTHS
    }

    /// Bytes that work may still fill as things are.
    pub(crate) fn work_left_bytes(&self) -> u64 {
        let by_space = if self.is_disk_full() { self.space_limit.load(Ordering::Relaxed) } else { u64::MAX };
        by_space.min(self.low_water() + self.work_bytes).saturating_sub(self.tail())
    }

    /// Whether there was no space for more.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.disk_is_full.load(Ordering::Relaxed)
    }

    /// Whether work may not be appended up to `end` for want of space; `Some(true)`: there is no more.
    #[inline]
    pub(super) fn lacks_space(&self, end: u64) -> Option<bool> {
        (end > self.space_limit.load(Ordering::Relaxed)).then(|| self.disk_is_full.load(Ordering::Relaxed))
    }

    /// The error of work that has found the log full.
    #[cold]
    pub(crate) fn log_full(&self) -> StorageError {
        let (low, disk_is_full) = (self.low_water(), self.disk_is_full.load(Ordering::Relaxed));
        if disk_is_full {
            // There may be space again.
            self.want_space();
        }
        let by_space = self.space_limit.load(Ordering::Relaxed).saturating_sub(low);
        StorageError::LogFull {
            used_bytes: self.tail().saturating_sub(low),
            capacity_bytes: if disk_is_full {
                self.capacity_bytes.min(by_space)
            } else {
                self.capacity_bytes
            },
            disk_is_full,
        }
    }
}
