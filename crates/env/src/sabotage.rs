//! Faults that are planted on purpose, to see that the hunt for bugs finds them.
//!
//! Each [`Fault`] has one place in the engine at which the right thing is left out when it is planted. That is possible
//! in the simulated world alone, where a run plants one before it begins; in the others [`planted`] is a constant, and
//! nothing of it is left. What each fault breaks is said where it is planted; here only what goes wrong.

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// The log's segments are never synced.
    LogUnsynced = 1,
    /// A failed sync of the log counts as one that worked.
    LogSyncErrorIgnored,
    /// A durable commit does not wait for the log.
    CommitUnflushed,
    /// Whoever waits for a batch of the log is not woken when it has ended.
    FlushWakeUpLost,
    /// Checksums of log records are not looked at.
    LogChecksumUnchecked,
    /// The name of a new segment is not made durable.
    SegmentNameUnsynced,
    /// The log is released up to the checkpoint, whatever redo and open transactions need.
    LogReleasedEarly,
    /// Pages are written before the log records of their changes.
    PageBeforeLog,
    /// The first change behind a redo horizon does not log the page.
    ImageSkipped,
    /// A checkpoint does not sync the data file.
    DataUnsynced,
    /// A page that changed while it was written is clean afterwards.
    ChangedPageClean,
    /// A checkpoint's sweep passes over some dirty pages.
    SweepSkipsPages,
    /// Redo applies a change that the page shows already.
    RedoUnconditional,
    /// Recovery does not undo who was open.
    LosersKept,
    /// A checkpoint does not record who is open.
    OpenForgotten,
    /// Undo does not know of its own compensations.
    CompensationUndone,
    /// Rolling back to a savepoint does nothing.
    SavepointIgnored,
    /// The control file is not synced.
    ControlUnsynced,
    /// Early released locks leave no tag.
    TagForgotten,
    /// Locks are released before the commit is logged.
    LocksBeforeCommit,
    /// Reads lock nothing.
    ReadUnlocked,
    /// Scans lock no gap at their ends.
    GapUnlocked,
    /// An insert does not ask who has locked the gap.
    InsertIgnoresGap,
    /// An insert into its own gap locks one half of it only.
    HalfGapLost,
    /// Ghosts are taken away under the locks of others.
    GhostPurged,
    /// A reader believes what it read before it had its lock.
    ReadUnvalidated,
    /// A writer leaves without telling optimistic readers.
    VersionNotRaised,
    /// A thread that goes from reading to writing does not look whether it is still the same page.
    UpgradeUnvalidated,
    /// A thread that leaves a latch forgets those who sleep.
    LatchSleepersForgotten,
    /// A stronger lock is given whoever else holds the weaker one.
    ConversionUnchecked,
    /// A transaction that gives up waiting for a lock does not let those behind it pass.
    WithdrawalUnnoticed,
    /// Deadlocks are seen by nobody.
    DeadlockUnseen,
    /// A lock on a table does not see those who work below it.
    TableLockBlind,
    /// Reads without locks do not ask who has locked what they read.
    ProbeBlind,
    /// The log counts as settled whoever is open.
    SettledBlind,
    /// What was read without locks is not validated.
    StaleReadsKept,
    /// The last leaf that was read without locks is not validated.
    LastLeafUnvalidated,
    /// A footprint visits its partitions out of order.
    PartitionsUnordered,
    /// A message that finds its ring full is lost.
    FullRingForgets,
    /// A ring tells of a message before it is in its place.
    RingToldEarly,
    /// A partition does not give locks back when it is told to.
    ReleaseForgotten,
    /// Recovery undoes what is prepared, too.
    PreparedUndone,
    /// A dropped table's commit does not wait for the log.
    DropUnflushed,
    /// A cursor that skips what is locked takes it all the same.
    LockedNotSkipped,
    /// A transaction that puts a record where it has found none does not find it there.
    PutUnnoticed,
    /// Whoever awaits a submitted transaction is not woken.
    WakerForgotten,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 46] = [
        Fault::LogUnsynced,
        Fault::LogSyncErrorIgnored,
        Fault::CommitUnflushed,
        Fault::FlushWakeUpLost,
        Fault::LogChecksumUnchecked,
        Fault::SegmentNameUnsynced,
        Fault::LogReleasedEarly,
        Fault::PageBeforeLog,
        Fault::ImageSkipped,
        Fault::DataUnsynced,
        Fault::ChangedPageClean,
        Fault::SweepSkipsPages,
        Fault::RedoUnconditional,
        Fault::LosersKept,
        Fault::OpenForgotten,
        Fault::CompensationUndone,
        Fault::SavepointIgnored,
        Fault::ControlUnsynced,
        Fault::TagForgotten,
        Fault::LocksBeforeCommit,
        Fault::ReadUnlocked,
        Fault::GapUnlocked,
        Fault::InsertIgnoresGap,
        Fault::HalfGapLost,
        Fault::GhostPurged,
        Fault::ReadUnvalidated,
        Fault::VersionNotRaised,
        Fault::UpgradeUnvalidated,
        Fault::LatchSleepersForgotten,
        Fault::ConversionUnchecked,
        Fault::WithdrawalUnnoticed,
        Fault::DeadlockUnseen,
        Fault::TableLockBlind,
        Fault::ProbeBlind,
        Fault::SettledBlind,
        Fault::StaleReadsKept,
        Fault::LastLeafUnvalidated,
        Fault::PartitionsUnordered,
        Fault::FullRingForgets,
        Fault::RingToldEarly,
        Fault::ReleaseForgotten,
        Fault::PreparedUndone,
        Fault::DropUnflushed,
        Fault::LockedNotSkipped,
        Fault::PutUnnoticed,
        Fault::WakerForgotten,
    ];

    /// The fault's name, as it stands in the source.
    pub fn name(self) -> String {
        format!("{self:?}")
    }

    /// The fault of this name.
    pub fn named(name: &str) -> Option<Fault> {
        Fault::ALL.into_iter().find(|fault| fault.name() == name)
    }
}

/// Whether this fault is planted: never, but in the simulated world.
#[cfg(not(foreshore_sim))]
#[inline(always)]
pub const fn planted(_: Fault) -> bool {
    false
}

/// Whether this fault is planted.
#[cfg(foreshore_sim)]
#[inline]
pub fn planted(fault: Fault) -> bool {
    // Relaxed: written before the threads that read it begin. Not one of the simulated atomics: looking is no event.
    PLANTED.load(std::sync::atomic::Ordering::Relaxed) == fault as u8
}

/// Plants a fault, for as long as the process lives.
#[cfg(foreshore_sim)]
pub fn plant(fault: Fault) {
    PLANTED.store(fault as u8, std::sync::atomic::Ordering::Relaxed);
}

/// The fault that is planted; 0 for none.
#[cfg(foreshore_sim)]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_number_and_a_name_of_its_own() {
        for (number, fault) in (1..).zip(Fault::ALL) {
            assert_eq!(fault as u8, number);
            assert_eq!(Fault::named(&fault.name()), Some(fault));
        }
    }
}
