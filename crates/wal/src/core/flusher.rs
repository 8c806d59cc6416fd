//! The flusher: it follows behind those who append, writes what is published, and syncs. A thread of its own does, or
//! whoever waits for it (`lead.rs`).
//!
//! A segment becomes part of the log when the one before it is durable to its end (WAL-5), whoever has written how much
//! of it meanwhile (`pen.rs`). Each sync is preceded by a mark, a record that says how far the log was durable when it
//! was made (WAL-7, `scan.rs`). A log that has been quiet for a flush interval gets a mark of its own, for nobody knows
//! when the next batch will bring one.

use foreshore_base::{Result, StorageError};
use foreshore_env::{
    sabotage::{Fault, planted},
    sync::{MutexGuard, atomic::Ordering},
    thread,
    time::Instant,
};

use super::{
    Core, Farewell, POISONED,
    pen::Stalls,
    wait::{Stop, Timer, Waiting},
};
use crate::store::Segment;

/// What whoever makes batches durable has to know of the last one.
#[derive(Debug)]
pub(super) struct Flusher {
    /// What the newest mark says was durable.
    marked: u64,
    /// Where the log ends with a mark that says that all before it is durable.
    sealed: u64,
    stalls: Stalls,
}

/// What the flusher has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// Write and sync.
    Sync,
    /// All is durable and the log is closed: put a mark under it, and end.
    Seal,
    /// End.
    Stop,
}

/// Tells everybody when the flusher ends, also by a panic.
struct Ends<'a>(&'a Core);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.flusher_ends();
    }
}

/// The life of the flusher's thread.
pub(crate) fn run_flusher(core: &Core) {
    // The log is poisoned before everybody is told.
    let _ends = Ends(core);
    let _farewell = Farewell { core, died: "the flusher of the log died" };
    loop {
        let task = core.next_task();
        let result = match task {
            Task::Sync => core.flusher.lock().sync_batch(core),
            Task::Seal => core.flusher.lock().seal(core),
            Task::Stop => return,
        };
        if let Err(error) = result {
            // An error is final (WAL-8): what the file holds now nobody knows.
            return core.poison(&error.to_string());
        }
        if task == Task::Seal {
            return;
        }
        core.look_after_space();
    }
}

impl Flusher {
    /// For a log that is durable, and ends with a mark for all before it if it is `sealed`.
    pub(super) fn new(durable: u64, sealed: bool) -> Flusher {
        let sealed = if sealed { durable } else { 0 };
        Flusher { marked: sealed, sealed, stalls: Stalls::default() }
    }

    /// Where the log ends with a mark for all before it, for tests.
    #[cfg(test)]
    pub(super) fn sealed(&self) -> u64 {
        self.sealed
    }

    /// Makes all that is published durable.
    pub(super) fn sync_batch(&mut self, core: &Core) -> Result<()> {
        let begun = Instant::now();
        let durable = core.durable();
        let mark = if self.marked == durable { None } else { core.append_mark(durable) };
        if mark.is_some() {
            self.marked = durable;
        }
        let written = core.ring.written();
        if written == durable && core.published(written, core.tail()).next == written {
            self.stalls.wait();
            return Ok(());
        }
        let target = core.begin_batch();
        let position = self.write_and_sync(core, target)?;
        let is_sealed = mark.is_some_and(|mark| mark.seals(position));
        if is_sealed {
            (self.marked, self.sealed) = (position, position);
        }
        core.end_batch(position, begun, is_sealed);
        Ok(())
    }

    /// All is durable: a last mark says so, so that later damage to any of it is known for damage. Those who had passed
    /// the gate before it was shut append at most one record each meanwhile: what lies in front of the mark is made
    /// durable, too, and gets a mark of its own.
    pub(super) fn seal(&mut self, core: &Core) -> Result<()> {
        loop {
            let durable = core.durable();
            if self.sealed == durable || core.poisoned().is_some() {
                return Ok(());
            }
            self.sync_batch(core)?;
            if core.tail() == durable {
                // Where positions end there is none for a mark.
                return Ok(());
            }
        }
    }

    /// Makes a batch that reaches to `target` durable, or what of it is published; gives how far. What the writer has
    /// written beyond is left to the next one: a thread that waits for that is woken by that.
    fn write_and_sync(&mut self, core: &Core, target: u64) -> Result<u64> {
        self.write(core, target)?;
        Ok(core.sync()?.min(target))
    }

    /// Writes published records up to `target`, or up to the first that is not published.
    fn write(&mut self, core: &Core, target: u64) -> Result<()> {
        loop {
            let mut pen = core.pen.lock();
            let far_ahead = pen.is_far_ahead();
            if !far_ahead && !pen.write_piece(core, target)? {
                return Ok(());
            }
            drop(pen);
            self.stalls.are_over();
            if far_ahead {
                core.sync()?;
            }
        }
    }
}

impl Core {
    /// Makes durable what was written so far, and gives where that ends. Segments become part of the log in their
    /// order.
    fn sync(&self) -> Result<u64> {
        let unsynced = self.pen.lock().begin_sync(self);
        for segment in &unsynced.ended {
            self.sync_segment(segment)?;
            self.store.admit()?;
        }
        if let Some(segment) = &unsynced.last {
            self.sync_segment(segment)?;
        }
        self.pen.lock().end_sync(unsynced.ended.len());
        Ok(unsynced.position)
    }

    fn sync_segment(&self, segment: &Segment) -> Result<()> {
        let synced = if planted(Fault::LogUnsynced) { Ok(()) } else { segment.file.sync() };
        if !planted(Fault::LogSyncErrorIgnored) {
            synced.map_err(StorageError::io("sync", &segment.path))?;
        }
        if !self.latency.is_zero() {
            thread::sleep(self.latency);
        }
        Ok(())
    }
}

/// The flusher's sleep.
impl Core {
    /// Sleeps until there is something to do. With everything durable and marked it dozes: it sleeps until an append
    /// wakes it, however long that takes.
    fn next_task(&self) -> Task {
        let mut waiting = self.waiting.lock();
        // For which batch others were waited for.
        let mut gathered = None;
        loop {
            // First: whoever has joined the flusher may open the log again, so nobody may write to it any more.
            if waiting.is_led {
                waiting.is_held_up = true;
                waiting.flusher_sleeps = true;
                waiting = self.work.wait(waiting);
                waiting.flusher_sleeps = false;
                continue;
            }
            if waiting.stop == Stop::Now || self.gate.load(Ordering::Acquire) == POISONED {
                return Task::Stop;
            }
            let (tail, durable) = (self.tail(), self.durable());
            if waiting.requested > durable {
                let next = Some(waiting.batch + 1);
                if gathered == next {
                    return Task::Sync;
                }
                (waiting, gathered) = (self.gather(waiting), next);
                continue;
            }
            if waiting.stop == Stop::Flushed {
                // The last look: whoever claims a place behind it sees the gate shut (WAL-18).
                return if self.inserter.settled_tail() > durable { Task::Sync } else { Task::Seal };
            }
            if std::mem::take(&mut waiting.batch_wanted) && tail > durable {
                return Task::Sync;
            }
            let now = Instant::now();
            if waiting.timer.flush.take_if(|due| now >= *due).is_some() && tail > durable {
                return Task::Sync;
            }
            if waiting.timer.mark.take_if(|due| now >= *due).is_some() {
                return Task::Sync;
            }
            if tail > durable {
                waiting.timer.flush.get_or_insert(now + self.flush_interval);
            }
            waiting.flusher_sleeps = true;
            let Timer { flush, mark } = waiting.timer;
            waiting = match flush.into_iter().chain(mark).min() {
                Some(due) => self.work.wait_until(waiting, due),
                None => self.doze(waiting, durable),
            };
            waiting.flusher_sleeps = false;
        }
    }

    /// Waits, for a moment at most, for those who should be in the next batch. Whoever wakes the flusher meanwhile has
    /// a reason.
    fn gather<'a>(&self, mut waiting: MutexGuard<'a, Waiting>) -> MutexGuard<'a, Waiting> {
        let next = waiting.batch + 1;
        if waiting.stop == Stop::No
            && let Some(patience) = waiting.gathering.begin(next)
        {
            waiting.flusher_sleeps = true;
            waiting = self.work.wait_until(waiting, Instant::now() + patience);
            waiting.flusher_sleeps = false;
        }
        waiting
    }

    /// Sleeps until somebody wakes the flusher; not at all if the log has grown beyond `durable`.
    fn doze<'a>(&self, waiting: MutexGuard<'a, Waiting>, durable: u64) -> MutexGuard<'a, Waiting> {
        self.doze.begin();
        let grown = self.inserter.settled_tail() > durable;
        let waiting = if grown { waiting } else { self.work.wait(waiting) };
        self.doze.end();
        waiting
    }
}
