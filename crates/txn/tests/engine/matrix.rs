//! The crash matrix: the power fails before each change that a workload makes to its disk, in four ways; what is left
//! is opened and compared with what was promised; and the recovery that this takes is interrupted in the same four
//! ways, and the recovery from that, and the one after it.
//!
//! A *state* is one disk that was opened and compared. Which recoveries are interrupted, and where, is a sample: all of
//! them would take years.

use foreshore_env::{
    disk::Disk,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_txn::{Engine, EngineOptions};

use crate::{directory, open_with, probe::Probe, soundness, tiny};

/// How many recoveries in a row are interrupted at most.
pub(crate) const DEPTH: usize = 3;

/// Of the states that so many interrupted recoveries have led to, one in so many has its own recovery interrupted. Odd,
/// so that each of the four modes gets its turn.
const DEEPER: [u64; DEPTH] = [41, 17, 17];
/// A recovery is interrupted at one in so many of its changes.
const STRIDE: u64 = 9;
/// Failures whose text is kept; nothing more is looked at then.
const MOST_FAILURES: usize = 5;

/// What a crash does, in each of the four ways.
pub(crate) fn modes(seed: u64) -> [CrashMode; 4] {
    [CrashMode::DropUnsynced, CrashMode::KeepAll, CrashMode::SubsetRandom(seed), CrashMode::TornRandom(seed)]
}

/// Says what is wrong with a database that was found after a crash.
pub(crate) type Examine = dyn Fn(&Arc<Engine>) -> Result<(), String> + Send + Sync;

/// Looks at states, and counts them.
#[derive(Default)]
pub(crate) struct Explorer {
    /// States looked at, by the number of recoveries that were interrupted on the way to them. Relaxed: figures.
    states: [AtomicU64; DEPTH + 1],
    failures: Mutex<Vec<String>>,
}

impl Explorer {
    /// Looks at all that a crash of this disk may leave, in every mode.
    pub(crate) fn crash(
        self: &Arc<Self>,
        left: [(CrashMode, FaultyDisk); 4],
        examine: &Arc<Examine>,
        context: &str,
    ) {
        for (mode, left) in left {
            self.visit(&left, examine, &format!("{context}, {mode:?}"), 0);
        }
    }

    /// Looks at one state, and perhaps at what crashes of its recovery leave.
    fn visit(self: &Arc<Self>, disk: &FaultyDisk, examine: &Arc<Examine>, context: &str, depth: usize) {
        if self.failures.lock().len() >= MOST_FAILURES {
            return;
        }
        let number = self.states[depth].fetch_add(1, Ordering::Relaxed);
        if let Some(one_in) = DEEPER.get(depth)
            && number % one_in == one_in / 2
        {
            self.interrupt_recovery(disk, examine, context, depth, number);
        }
        if let Err(problem) = open_and_examine(disk, &tiny(), &**examine) {
            self.failures.lock().push(format!("{context}: {problem}"));
        }
    }

    /// Recovers a copy of the disk, and looks at the crash before some of the changes that this makes.
    fn interrupt_recovery(
        self: &Arc<Self>,
        disk: &FaultyDisk,
        examine: &Arc<Examine>,
        context: &str,
        depth: usize,
        number: u64,
    ) {
        let watched = disk.after_crash(CrashMode::KeepAll);
        let (explorer, examine, context) = (Arc::clone(self), Arc::clone(examine), context.to_owned());
        let snapshots = watched.clone();
        let probe = Probe::new(
            watched,
            Box::new(move |change| {
                if (change + number).is_multiple_of(STRIDE) {
                    for mode in modes(change) {
                        let context = format!("{context}, then at change {change} of recovery, {mode:?}");
                        explorer.visit(&snapshots.after_crash(mode), &examine, &context, depth + 1);
                    }
                }
            }),
        );
        // Only its recovery is of interest here; its outcome is that of the state itself.
        drop(Engine::open(Arc::new(probe) as Arc<dyn Disk>, directory(), &tiny()));
    }

    /// States looked at so far, by depth.
    pub(crate) fn states(&self) -> [u64; DEPTH + 1] {
        self.states.each_ref().map(|states| states.load(Ordering::Relaxed))
    }

    /// What was wrong.
    pub(crate) fn failures(&self) -> Vec<String> {
        self.failures.lock().clone()
    }
}

/// Opens what a crash has left, and says what is wrong with it.
pub(crate) fn open_and_examine(
    disk: &FaultyDisk,
    options: &EngineOptions,
    examine: impl FnOnce(&Arc<Engine>) -> Result<(), String>,
) -> Result<(), String> {
    let engine = open_with(disk, options).map_err(|error| format!("open: {error}"))?;
    examine(&engine)?;
    soundness(&engine)?;
    engine.close().map_err(|error| format!("close: {error}"))
}
