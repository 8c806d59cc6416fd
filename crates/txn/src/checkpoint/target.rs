//! When to take checkpoints so that a recovery takes no longer than was asked for.
//!
//! What recovery takes is about proportional to the log behind the redo horizon: the first change of a page behind it
//! has logged the whole page, so redo reads few pages, and mostly the log. What a byte of it costs, the recovery that
//! opened the database has measured, if it was long enough to tell; else [`USUAL_COST`]. What it took to undo what was
//! open is no part of that: no checkpoint makes that less.
//!
//! A checkpoint takes the horizon at its beginning and makes it count at its end. So the most that recovery may have to
//! read is what makes the next checkpoint begin, and what is logged while it sweeps: the last sweep tells how much that
//! is.
//!
//! Without a target, what counts is the log that changes make. After a checkpoint the first change of each page logs
//! the whole page: were that counted, a checkpoint would ask for the next one where changes are scattered over many
//! pages.

use foreshore_base::Lsn;
use foreshore_env::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::recovery::RecoveryReport;

/// What a KiB of the log is thought to take to be recovered, before it was measured: 20 MB/s, less than disks and redo
/// of records in memory do.
const USUAL_COST: Duration = Duration::from_micros(50);
/// A recovery that has read less log than this tells nothing about the next one.
const TELLING_BYTES: u64 = 4 << 20;
/// The least growth of the log between two checkpoints of the background thread.
const MIN_INTERVAL: u64 = 64 << 10;

/// The target and what it takes to meet it.
#[derive(Debug)]
pub(crate) struct Target {
    /// The most that the log may grow between two checkpoints, whatever the target: without images, and in all.
    changes: u64,
    most: u64,
    /// The most log that can be recovered in time; `u64::MAX` without a target.
    budget: u64,
    /// Nanoseconds for each KiB of the log.
    cost: u64,
    /// Growth of the log, images and all, that asks for the next checkpoint. Written under the mutex of the control
    /// file, relaxed: a late look costs a checkpoint too many or too late.
    interval: AtomicU64,
}

impl Target {
    /// `target` zero: none.
    pub(crate) fn new(changes: u64, most: u64, target: Duration, recovery: &RecoveryReport) -> Target {
        let (changes, most) = (changes.max(MIN_INTERVAL), most.max(MIN_INTERVAL));
        let read = recovery.log_end.0.saturating_sub(recovery.redo_from.0);
        let cost = if read < TELLING_BYTES {
            USUAL_COST.as_nanos() as u64
        } else {
            (recovery.redo_duration.as_nanos() / u128::from(read >> 10)).clamp(1, u128::from(u64::MAX)) as u64
        };
        let budget = match u64::try_from(target.as_nanos() * 1024 / u128::from(cost)) {
            Ok(budget) if !target.is_zero() => budget,
            _ => u64::MAX,
        };
        // Until a sweep has told more, a third is thought to be logged while it goes on.
        let interval = AtomicU64::new(most.min((budget / 3 * 2).max(MIN_INTERVAL)));
        Target { changes, most, budget, cost, interval }
    }

    /// Growth of the log that asks for a checkpoint, when so many bytes of it are images.
    pub(super) fn interval(&self, images: u64) -> u64 {
        self.interval.load(Ordering::Relaxed).min(self.changes.saturating_add(images))
    }

    /// A checkpoint is complete, and so much was logged since it began.
    pub(super) fn note_sweep(&self, logged: u64) {
        let interval = self.budget.saturating_sub(logged).max(MIN_INTERVAL);
        self.interval.store(self.most.min(interval), Ordering::Relaxed);
    }

    /// What a recovery would take from a redo horizon on, but for undoing what was open.
    pub(crate) fn estimate(&self, redo: Lsn, tail: Lsn) -> Duration {
        let bytes = u128::from(tail.0.saturating_sub(redo.0));
        Duration::from_nanos(u64::try_from(bytes * u128::from(self.cost) / 1024).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn after(bytes: u64, redo_duration: Duration) -> RecoveryReport {
        RecoveryReport {
            redo_from: Lsn(77),
            log_end: Lsn(77 + bytes),
            redo_duration,
            ..RecoveryReport::default()
        }
    }

    #[test]
    fn without_a_target_only_the_interval_counts() {
        let target = Target::new(10 * MIB, 40 * MIB, Duration::ZERO, &RecoveryReport::default());
        assert_eq!(target.interval(0), 10 * MIB);
        target.note_sweep(100 * MIB);
        assert_eq!(target.interval(0), 10 * MIB);
    }

    #[test]
    fn images_count_for_the_log_and_not_for_the_changes() {
        let target = Target::new(10 * MIB, 40 * MIB, Duration::ZERO, &RecoveryReport::default());
        assert_eq!(target.interval(20 * MIB), 30 * MIB);
        assert_eq!(target.interval(31 * MIB), 40 * MIB);
    }

    #[test]
    fn what_is_logged_during_a_sweep_counts_too() {
        // A recovery of 8 MiB took 1 s, so 2 s are 16 MiB.
        let target =
            Target::new(1 << 40, 1 << 40, Duration::from_secs(2), &after(8 * MIB, Duration::from_secs(1)));
        let close = |bytes: u64, expected: u64| bytes.abs_diff(expected) < MIB / 8;
        assert!(close(target.interval(0), 32 * MIB / 3));
        target.note_sweep(MIB);
        assert!(close(target.interval(0), 15 * MIB));
        target.note_sweep(100 * MIB);
        assert_eq!(target.interval(0), MIN_INTERVAL, "sweep after sweep, and no end of them");
        let estimate = target.estimate(Lsn(MIB), Lsn(5 * MIB));
        assert!(estimate.abs_diff(Duration::from_millis(500)) < Duration::from_millis(5), "{estimate:?}");
    }

    /// A large transaction was undone after a crash: until the database was opened again, checkpoints came as often as
    /// if all of that had been redone.
    #[test]
    fn what_was_undone_makes_no_log_dearer() {
        let recovery = RecoveryReport {
            records_undone: 1_000_000,
            duration: Duration::from_secs(100),
            ..after(8 * MIB, Duration::from_secs(1))
        };
        let target = Target::new(1 << 40, 1 << 40, Duration::from_secs(30), &recovery);
        assert!(target.interval(0) > 100 * MIB, "{}", target.interval(0));
    }

    #[test]
    fn a_short_recovery_tells_nothing() {
        let of = |report| {
            Target::new(1 << 40, 1 << 40, Duration::from_secs(2), &report).estimate(Lsn(0), Lsn(MIB))
        };
        let usual = USUAL_COST * 1024;
        assert_eq!(of(after(MIB, Duration::from_secs(100))), usual);
        assert_eq!(of(RecoveryReport::default()), usual);
        assert!(of(after(4 * MIB, Duration::from_secs(100))) > Duration::from_secs(24));
    }
}
