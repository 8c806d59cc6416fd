//! What a transaction does that finds the log full.
//!
//! It waits a little, holding its locks, while others end and checkpoints shorten the log: that slows those down who
//! fill it. Under [`LogFullPolicy::EndOldest`] it then tells the transaction that needs most of the log that it has to
//! go. That one learns it with its next operation, and refuses everything from then on but to be rolled back; for that
//! there is always room (WAL-10, TXN-5). If it has no operation under way, it is rolled back at once, in the background
//! (TXN-35).
//!
//! Before a value of more than 64 KiB is written, or deleted, it looks ahead, and has a checkpoint taken if the log
//! might not do.
//!
//! Nobody waits for longer than [`PATIENCE`], before a large value twice that, but for a rollback or a checkpoint that
//! is under way, which ends: the oldest may be in the middle of a change and wait for a lock, or be prepared. A
//! transaction that waits for no lock does not wait here either, but for the checkpoints that it takes. Who waits, and
//! has a deadline or may be cancelled, has another thread take them.

use foreshore_env::{
    thread,
    time::{Duration, Instant},
};

use super::{Txn, TxnSession, company::SHARES};
use crate::{error::TxnError, options::LogFullPolicy};

/// How long a transaction waits for room.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// How long the oldest transaction has to end by itself.
const GRACE: Duration = Duration::from_millis(50);
/// Between two looks.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A value of more bytes is written, or deleted, by so many records that the log is looked at before.
const LARGE_BYTES: u64 = 64 << 10;
/// Bytes of the log for each byte of a large value that replaces another of its length: both, and the pages of the old
/// one, if a checkpoint has come since they were logged.
const LOG_PER_BYTE: u64 = 4;
/// The same for one that is deleted: its bytes, and its pages, which it does not fill.
const LOG_PER_DISCARDED_BYTE: u64 = 3;
/// Checkpoints that are waited for before such a value, at most: one that is under way began before, and may let go of
/// little. The next one begins after the look.
const CHECKPOINTS_AHEAD: u32 = 2;

impl Txn {
    /// Before a change that writes a value of so many bytes. If that is refused half-way, its records and those that
    /// undo them lie behind the transaction's first one, so that no checkpoint lets them go, and the next attempt may
    /// lack just this room. So what others have left in the log goes before, if it may be too much.
    #[inline]
    pub(super) fn make_room_ahead(&self, value_bytes: usize) -> Result<(), TxnError> {
        let value_bytes = value_bytes as u64;
        if value_bytes <= LARGE_BYTES {
            Ok(())
        } else {
            self.session.make_room_for(LOG_PER_BYTE * value_bytes)
        }
    }
}

impl TxnSession {
    /// The same in the middle of a change that has found a large value to be deleted: no key says how long its value
    /// is. What it has logged so far is little, but for a large value that takes its place, for which
    /// [`Txn::make_room_ahead`] has looked.
    pub(super) fn make_room_to_discard(&mut self, value_bytes: u64) {
        if value_bytes > LARGE_BYTES {
            self.advance_change();
            // What ends a transaction is found after this change, which may yet have the room that it needs.
            let _ = self.make_room_for(LOG_PER_DISCARDED_BYTE * value_bytes);
        }
    }

    #[cold]
    fn make_room_for(&self, bytes: u64) -> Result<(), TxnError> {
        let core = self.core();
        for _ in 0..CHECKPOINTS_AHEAD {
            let (used, left) = (core.log.used_bytes(), core.log.work_left_bytes());
            // Each page that is changed afterwards is logged as a whole: not for little.
            let is_worth_it = bytes > left
                && core.check_writable().is_ok()
                && core.checkpoint_shortens_log_by((used + left) / SHARES);
            if !is_worth_it || !self.wait_for_checkpoint_ahead()? {
                break;
            }
        }
        Ok(())
    }

    /// Before the log is full: waits for a checkpoint alone, so nobody has to go, nor a backup that holds the log up.
    /// Whether the log is shorter now.
    fn wait_for_checkpoint_ahead(&self) -> Result<bool, TxnError> {
        let core = self.core();
        let (begun, low_water) = (Instant::now(), core.log.low_water());
        self.check_may_go_on()?;
        if self.takes_checkpoints_itself() {
            return Ok(core.shorten_log_beside_backups()?);
        }
        core.growth.ask();
        while core.log.low_water() == low_water {
            // One that cannot be taken is no reason to wait longer.
            if !core.checkpoint_shortens_log_beside_backups()
                || (begun.elapsed() >= PATIENCE && core.control.try_lock().is_some())
                || self.is_past_deadline()
            {
                return Ok(false);
            }
            thread::sleep(LOOK_EVERY);
            self.check_may_go_on()?;
        }
        Ok(true)
    }

    /// Waits for room in the log; whether there may be some now.
    ///
    /// # Errors
    /// [`TxnError::LogHeld`] if this transaction itself has to go; and whatever ends a transaction.
    #[cold]
    pub(crate) fn wait_for_log_room(&self) -> Result<bool, TxnError> {
        let core = self.core();
        let (begun, low_water) = (Instant::now(), core.log.low_water());
        let (mut asked, mut ending) = (false, false);
        loop {
            self.check_may_go_on()?;
            // First: if it is this one, what others could still make room for shows in what follows.
            let oldest = core.oldest_log_holder();
            // Others have made room, also while this one slept: then it may need most of what is left, and need not
            // end.
            if core.log.low_water() > low_water {
                return Ok(true);
            }
            let shortens = core.checkpoint_shortens_log();
            // One that was not taken, because of those who were open, is asked for once more when it would make room
            // again.
            asked &= shortens;
            if shortens && self.takes_checkpoints_itself() {
                return Ok(core.shorten_log()?);
            }
            let mine = oldest == Some(self.txn());
            match (core.options.log_full, oldest) {
                _ if shortens => {
                    if !asked {
                        core.growth.ask_room(low_water);
                    }
                    (asked, ending) = (true, false);
                }
                (LogFullPolicy::Throttle, _) if mine => return Ok(false),
                (LogFullPolicy::EndOldest, Some(oldest)) if mine || begun.elapsed() >= GRACE => {
                    core.transactions.end(oldest);
                    if mine {
                        continue;
                    }
                    ending = core.growth.ask_end(oldest);
                }
                _ => {}
            }
            // One that cannot be taken is no reason to wait longer.
            let under_way = || shortens && core.control.try_lock().is_none();
            if self.waiting.no_wait
                || (begun.elapsed() >= PATIENCE && !ending && !under_way())
                || self.is_past_deadline()
            {
                return Ok(false);
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Whether it waits for no other thread to take a checkpoint, which may last longer than it has time.
    fn takes_checkpoints_itself(&self) -> bool {
        let can_be_ended = self.waiting.deadline.is_some() || self.waiting.cancel.is_some();
        self.waiting.no_wait || !can_be_ended
    }

    fn is_past_deadline(&self) -> bool {
        self.waiting.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use std::{ops::ControlFlow, path::Path};

    use foreshore_env::{
        disk::Disk,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        thread,
        time::{Duration, Instant},
    };
    use foreshore_testkit::FaultyDisk;
    use foreshore_wal::LogOptions;

    use crate::{BackupReport, BeginOptions, Durability, Engine, EngineOptions, Txn, TxnError};

    fn open() -> Arc<Engine> {
        let log = LogOptions {
            segment_bytes: 256 << 10,
            buffer_bytes: 256 << 10,
            capacity_bytes: 4 << 20,
            ..LogOptions::default()
        };
        let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new());
        let options = EngineOptions { log, ..EngineOptions::default() };
        Engine::open(disk, Path::new("db"), &options).unwrap()
    }

    fn begin(engine: &Arc<Engine>) -> Txn {
        engine.begin(BeginOptions::default()).unwrap()
    }

    fn commit(txn: Txn) {
        txn.commit(Durability::Lazy).unwrap();
    }

    /// A change that was refused half-way, because others had filled the log before it, lay in its own way when it was
    /// tried again: a large value that fits the log could be written, but not always be deleted, or be replaced by a
    /// small one.
    #[test]
    fn a_large_value_can_be_deleted_from_a_log_that_others_have_filled_before() {
        let engine = open();
        let [table, filler] = ["table", "filler"].map(|name| engine.create_table(name, b"").unwrap());
        let begin = || begin(&engine);
        for round in 0..60_usize {
            let mut txn = begin();
            txn.put(&table, b"large", &vec![1; (500 << 10) - 1000 * (round * 37 % 60)]).unwrap();
            commit(txn);
            for row in 0..round * 37 % 101 {
                let mut txn = begin();
                let value = [row as u8; 1500];
                for key in 0..8 {
                    txn.put(&filler, &[row as u8, key], &value[row % 7..]).unwrap();
                }
                commit(txn);
            }
            let mut txn = begin();
            txn.put(&filler, b"first", b"").unwrap();
            let done =
                if round % 2 == 0 { txn.delete(&table, b"large") } else { txn.put(&table, b"large", b"") };
            assert!(done.unwrap_or_else(|error| panic!("round {round}: {error}")));
            commit(txn);
        }
        engine.close().unwrap();
    }

    /// How far a backup may go, and how far it is.
    #[derive(Default)]
    struct Hold {
        copies: AtomicBool,
        may_go_on: AtomicBool,
    }

    /// Copies a part, and the rest when it may.
    fn back_up(engine: &Engine, target: &str, hold: &Hold) -> Result<BackupReport, TxnError> {
        engine.backup(Path::new(target), &mut |_| {
            hold.copies.store(true, Ordering::Relaxed);
            until(|| hold.may_go_on.load(Ordering::Relaxed));
            ControlFlow::Continue(())
        })
    }

    fn until(happens: impl Fn() -> bool) {
        let limit = Instant::now() + Duration::from_secs(120);
        while !happens() {
            assert!(Instant::now() < limit, "it does not happen");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// A backup needed no more of the log than a transaction did, when a large value was to be written: what came
    /// before both could be let go. When the checkpoint came to look, the transaction had ended, and the backup was
    /// ended, too, though the log was not full.
    #[test]
    fn no_backup_ends_for_a_value_that_is_about_to_be_written() {
        for has_deadline in [false, true] {
            let engine = open();
            let table = engine.create_table("table", b"").unwrap();
            let core = engine.core();
            let (earlier, backup) = (Hold::default(), Hold::default());
            thread::scope(|scope| {
                let first = scope.spawn(|| back_up(&engine, "earlier", &earlier));
                until(|| earlier.copies.load(Ordering::Relaxed));
                for key in 0..100_u32 {
                    let mut txn = begin(&engine);
                    txn.put(&table, &key.to_be_bytes(), &[1; 2000]).unwrap();
                    commit(txn);
                }
                let mut open = begin(&engine);
                open.put(&table, b"open", b"value").unwrap();
                let second = scope.spawn(|| back_up(&engine, "backup", &backup));
                until(|| backup.copies.load(Ordering::Relaxed));
                // What only this one has kept of the log is still there.
                earlier.may_go_on.store(true, Ordering::Relaxed);
                first.join().unwrap().unwrap();
                let control = core.control.lock();
                let large = scope.spawn(|| {
                    let mut txn = begin(&engine);
                    if has_deadline {
                        txn.set_deadline(Some(Instant::now() + Duration::from_secs(60)));
                    }
                    txn.put(&table, b"large", &[2; 400 << 10]).unwrap();
                    commit(txn);
                });
                // For long enough that it has looked.
                thread::sleep(Duration::from_millis(100));
                commit(open);
                drop(control);
                large.join().unwrap();
                backup.may_go_on.store(true, Ordering::Relaxed);
                let copied = second.join().unwrap();
                assert!(copied.is_ok(), "deadline {has_deadline}: {copied:?}");
            });
            engine.close().unwrap();
        }
    }
}
