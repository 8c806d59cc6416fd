//! Fuzzy checkpoints: they stop nobody.
//!
//! 1. The pool sweeps its frames and gives the redo horizon: the log's tail *when the sweep began* (not the newest LSN
//!    that the sweep met). Pages changed before it are on the disk, synced.
//! 2. Then the table of transactions is looked at (TXN-3).
//! 3. The checkpoint record says both, and is flushed.
//! 4. The control file points to it: from now on recovery starts here.
//! 5. What of the log nobody needs any more is released.
//!
//! TXN-9: the log is released only below the redo horizon, below the start of analysis and below the first record of
//! every open transaction, and only when the control file that says so is durable in both slots. No checkpoint asks for
//! what an earlier one has released.
//!
//! TXN-42: no checkpoint is taken while open transactions need more of the log than work may fill. Its record, and the
//! images of all pages that rollbacks touch after it, would take of what is kept for them (TXN-5), with each checkpoint
//! anew. So pages are logged once more at most beyond the part for work. Nothing is lost without it: recovery begins at
//! the checkpoint before, and no other work would have had room after it.

mod target;

use foreshore_base::{Lsn, Result, TxnId};
use foreshore_env::{
    sabotage::{Fault, planted},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use foreshore_wal::Urgency;

pub(crate) use target::Target;

use crate::{
    control::{Control, ControlFile},
    core::Core,
    ender, reaper,
    records::{self, Checkpoint},
    stats::Event,
};

/// How long the reaper rests when it cannot go on.
const REST: Duration = Duration::from_millis(200);

/// What the checkpointer's thread is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Roll back a transaction that needs most of a full log.
    End(TxnId),
    /// Shorten a full log, if it is still kept from here on.
    Shorten(Lsn),
    Checkpoint,
    Reaper,
}

/// How much the log has grown since the last checkpoint, and the checkpointer that waits for it.
#[derive(Debug)]
pub(crate) struct Growth {
    target: Target,
    /// The log's tail at the last checkpoint, or at the last attempt. Relaxed, as the next two: a late look costs a
    /// checkpoint too many or too late.
    since: AtomicU64,
    /// Bytes of images that were logged before.
    images_before: AtomicU64,
    /// From this LSN on it is looked whether the next checkpoint is due.
    look_at: AtomicU64,
    /// Where recovery would begin to redo. Written under the mutex of the control file when that says so; read for
    /// reports, relaxed.
    redo: AtomicU64,
    /// From this LSN on the log is told what it need not keep space for to take it back. Relaxed, as `since`.
    floor_at: AtomicU64,
    /// A checkpoint was asked for and not begun: saves the others the mutex. Relaxed, for the same reason.
    asked: AtomicBool,
    wanted: Mutex<Wanted>,
    wake: Condvar,
}

/// Guarded by the mutex of [`Growth::wanted`].
#[derive(Debug, Default)]
struct Wanted {
    checkpoint: bool,
    /// This transaction is to be ended.
    end: Option<TxnId>,
    /// One is being ended.
    ending: bool,
    /// The log is full, and was kept from here on when somebody asked for room.
    full_from: Option<Lsn>,
    /// Dropped tables, or long values that were left (TXN-43), have pages to be freed.
    reaper: bool,
    stop: bool,
    /// Why the checkpointer's last attempt failed, if it did.
    failure: Option<String>,
}

impl Wanted {
    fn is_urgent(&self) -> bool {
        self.checkpoint || self.stop || self.end.is_some() || self.full_from.is_some()
    }
}

impl Growth {
    pub(crate) fn new(target: Target, redo: Lsn) -> Growth {
        Growth {
            target,
            since: AtomicU64::new(redo.0),
            images_before: AtomicU64::new(0),
            look_at: AtomicU64::new(redo.0),
            redo: AtomicU64::new(redo.0),
            floor_at: AtomicU64::new(redo.0),
            asked: AtomicBool::new(false),
            wanted: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    /// The log has grown to this LSN; `image_bytes` are those of all images so far. Whether it is time to look who is
    /// open.
    #[inline]
    pub(crate) fn note(&self, lsn: Lsn, image_bytes: impl FnOnce() -> u64) -> bool {
        if lsn.0 >= self.look_at.load(Ordering::Relaxed) && !self.asked.load(Ordering::Relaxed) {
            self.look(lsn, image_bytes());
        }
        lsn.0 >= self.floor_at.load(Ordering::Relaxed)
    }

    /// Asks for a checkpoint if it is due; else says when to look again.
    #[cold]
    fn look(&self, lsn: Lsn, image_bytes: u64) {
        let images = image_bytes.saturating_sub(self.images_before.load(Ordering::Relaxed));
        let due = self.since.load(Ordering::Relaxed).saturating_add(self.target.interval(images));
        self.look_at.store(due, Ordering::Relaxed);
        if lsn.0 >= due {
            self.ask();
        }
    }

    pub(crate) fn raise_floor_again(&self, at: u64) {
        self.floor_at.store(at, Ordering::Relaxed);
    }

    /// Asks for a checkpoint.
    pub(crate) fn ask(&self) {
        if !self.asked.swap(true, Ordering::Relaxed) {
            self.wanted.lock().checkpoint = true;
            self.wake.notify_one();
        }
    }

    /// Asks for the [reaper].
    pub(crate) fn ask_reaper(&self) {
        self.wanted.lock().reaper = true;
        self.wake.notify_one();
    }

    /// Asks for the [end](ender) of a transaction; whether one is under way.
    pub(crate) fn ask_end(&self, txn: TxnId) -> bool {
        let mut wanted = self.wanted.lock();
        wanted.end = Some(txn);
        self.wake.notify_one();
        wanted.ending
    }

    /// Asks for room in a log that is full, and has been kept from this place on.
    pub(crate) fn ask_room(&self, low_water: Lsn) {
        let mut wanted = self.wanted.lock();
        wanted.full_from = wanted.full_from.max(Some(low_water));
        self.wake.notify_one();
    }

    /// Whether something is asked for that the reaper should make way for.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.lock().is_urgent()
    }

    /// Waits a while, or until something else is wanted.
    fn rest(&self) {
        let deadline = Instant::now() + REST;
        let mut wanted = self.wanted.lock();
        while !wanted.is_urgent() && Instant::now() < deadline {
            wanted = self.wake.wait_until(wanted, deadline);
        }
        wanted.reaper = true;
    }

    /// Begins to count anew, behind so many bytes of images.
    fn restart(&self, tail: Lsn, image_bytes: u64) {
        self.since.store(tail.0, Ordering::Relaxed);
        self.images_before.store(image_bytes, Ordering::Relaxed);
        self.look_at.store(tail.0, Ordering::Relaxed);
        self.asked.store(false, Ordering::Relaxed);
    }

    /// Where recovery would begin to redo.
    pub(crate) fn redo(&self) -> Lsn {
        Lsn(self.redo.load(Ordering::Relaxed))
    }

    /// What a recovery would take if the power failed now, but for undoing what is open.
    pub(crate) fn recovery_estimate(&self, tail: Lsn) -> Duration {
        self.target.estimate(self.redo(), tail)
    }

    /// The recovery that opened the database is over: it may tell what the next one will take.
    pub(crate) fn set_target(&mut self, target: Target) {
        self.target = target;
    }

    /// Why the checkpointer's last attempt failed, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        self.wanted.lock().failure.clone()
    }

    /// Lets the checkpointer end.
    pub(crate) fn stop(&self) {
        self.wanted.lock().stop = true;
        self.wake.notify_one();
    }

    /// Waits for work; `None` when there will be none.
    fn wait(&self) -> Option<Work> {
        let mut wanted = self.wanted.lock();
        wanted.ending = false;
        while !wanted.reaper && !wanted.is_urgent() {
            wanted = self.wake.wait(wanted);
        }
        if wanted.stop {
            return None;
        }
        if let Some(txn) = wanted.end.take() {
            wanted.ending = true;
            return Some(Work::End(txn));
        }
        if let Some(low_water) = wanted.full_from.take() {
            return Some(Work::Shorten(low_water));
        }
        // Checkpoints first: they keep the log short enough for the rest.
        if std::mem::take(&mut wanted.checkpoint) {
            return Some(Work::Checkpoint);
        }
        wanted.reaper = false;
        Some(Work::Reaper)
    }
}

/// The life of the checkpointer's thread.
pub(crate) fn run_checkpointer(core: &Arc<Core>) {
    while let Some(work) = core.growth.wait() {
        let result = match work {
            Work::End(txn) => ender::end(core, txn),
            Work::Shorten(low_water) => core.shorten_log_from(low_water).map(drop),
            Work::Checkpoint => core.checkpoint_that_is_asked_for(),
            Work::Reaper => reaper::run(core).map(|done| {
                if !done {
                    core.growth.rest();
                }
            }),
        };
        if let Err(error) = result {
            if core.check_open().is_err() {
                return;
            }
            // Nothing is lost. The log stays longer until the next growth tries again; pages stay in use until the next
            // drop or opening does.
            if work == Work::Checkpoint {
                core.growth.restart(core.log.tail(), core.pool.image_bytes());
            }
            core.growth.wanted.lock().failure = Some(error.to_string());
        }
    }
}

impl Core {
    /// Takes a checkpoint.
    ///
    /// # Errors
    /// `LogFull` if it may not be taken (TXN-42).
    pub(crate) fn checkpoint(&self) -> Result<()> {
        if self.try_checkpoint()? { Ok(()) } else { Err(self.log.full()) }
    }

    /// Takes a checkpoint, if it may be taken; whether it was.
    pub(crate) fn try_checkpoint(&self) -> Result<bool> {
        let mut control = self.control.lock();
        self.checkpoint_as(&mut control, false)
    }

    /// Takes a checkpoint, unless another one has begun since it was asked for: all pages would be logged anew for
    /// nothing.
    fn checkpoint_that_is_asked_for(&self) -> Result<()> {
        let mut control = self.control.lock();
        if self.growth.asked.load(Ordering::Relaxed) {
            self.checkpoint_as(&mut control, false)?;
        }
        Ok(())
    }

    /// Takes the last checkpoint before the end.
    pub(crate) fn final_checkpoint(&self) -> Result<()> {
        let mut control = self.control.lock();
        self.checkpoint_as(&mut control, true).map(drop)
    }

    /// Takes a checkpoint to shorten the log, unless another one has just done it, or it would not, and ends the
    /// backups that would keep it as long as it is (TXN-31); whether it is shorter now.
    pub(crate) fn shorten_log(&self) -> Result<bool> {
        self.shorten_log_from(self.log.low_water())
    }

    /// As [`Core::shorten_log`], but no backup ends for it, nor one that came to hold the log up only while the
    /// checkpoint was waited for.
    pub(crate) fn shorten_log_beside_backups(&self) -> Result<bool> {
        let before = self.log.low_water();
        let mut control = self.control.lock();
        if self.log.low_water() == before && self.checkpoint_shortens_log_beside_backups() {
            self.checkpoint_as(&mut control, false)?;
        }
        Ok(self.log.low_water() > before)
    }

    /// As [`Core::shorten_log`], of a log that was kept from `before` on.
    fn shorten_log_from(&self, before: Lsn) -> Result<bool> {
        let mut control = self.control.lock();
        if self.log.low_water() == before && self.checkpoint_shortens_log() {
            let taken = self.checkpoint_as(&mut control, false)?;
            let needed = control.content().log_from;
            if taken && self.log.low_water() < needed {
                self.backups.give_way(needed);
                self.log.release_before(needed)?;
            }
        }
        Ok(self.log.low_water() > before)
    }

    /// The steps of the [module](self), in their order. False: it may not be taken (TXN-42).
    fn checkpoint_as(&self, control: &mut ControlFile, last: bool) -> Result<bool> {
        if !last {
            // A thread that has waited behind the last one has no lock file any more: the files may be somebody else's.
            self.check_open()?;
        } else if let Some(error) = self.log.poisoned() {
            return Err(error);
        }
        if !self.may_checkpoint() {
            self.growth.restart(self.log.tail(), self.pool.image_bytes());
            return Ok(false);
        }
        let image_bytes = self.pool.image_bytes();
        let redo = self.pool.sweep()?;
        self.growth.restart(redo, image_bytes);
        let seen = self.transactions.capture();
        let analysis = if planted(Fault::OpenForgotten) { redo } else { redo.min(seen.pending) };
        // A transaction that took its slot late tells of a tail that is long past. It has no record below what an
        // earlier checkpoint released, because that had looked for it.
        let released = self.log.low_water();
        let (analysis, log_from) = (analysis.max(released), analysis.min(seen.first).max(released));
        let record = Checkpoint {
            redo,
            analysis,
            // Numbers beyond the last were drawn in vain: the log refuses them.
            next_txn: self.transactions.next_txn().min(records::MOST_TRANSACTIONS),
            last_overflow: self.trees.next_overflow.load(Ordering::Relaxed),
            next_table: self.catalog.next_table(),
            open: if planted(Fault::OpenForgotten) { Vec::new() } else { seen.open },
        };
        let clean = last && record.open.is_empty() && seen.pending == Lsn::MAX;
        let payload = record.encode();
        let checkpoint =
            self.log.append(Urgency::Ending, TxnId::SYSTEM, Lsn::ZERO, records::CHECKPOINT, &[&payload])?;
        self.log.flush(checkpoint)?;
        let content = Control { clean, checkpoint, redo, log_from, ..control.content() };
        control.write(content).inspect_err(|error| self.log.poison(&error.to_string()))?;
        self.growth.redo.store(redo.0, Ordering::Relaxed);
        self.growth.target.note_sweep(self.log.tail().0.saturating_sub(redo.0));
        self.stats.count(Event::Checkpoint);
        self.growth.wanted.lock().failure = None;
        let needed = if planted(Fault::LogReleasedEarly) { checkpoint } else { log_from };
        self.raise_undo_floor();
        // TXN-31.
        self.log.release_before(self.backups.keep(needed, self.log.capacity_bytes()))?;
        Ok(true)
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
