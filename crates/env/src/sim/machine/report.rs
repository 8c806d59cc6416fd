//! What a machine has done.

use super::{Machine, SPENT_KINDS, Spent};
use crate::sim::{directory::HotLine, kernel::Slept, mark::Lasted};

impl Machine {
    /// Counts from `now` on.
    pub(in crate::sim) fn count_anew(&mut self, now: u64) {
        self.computed_before = self.computed(now);
        self.began = self.cores.iter().map(|core| core.clock).sum();
        self.spent = [0; SPENT_KINDS];
        self.waited.clear();
        self.switches = 0;
        self.directory.count_anew();
    }

    /// Brings the clocks of idle cores, and of the one that runs, to `now`.
    fn settle(&mut self, now: u64) {
        self.cores[self.here].clock = now;
        for core in 0..self.cores.len() {
            if self.is_idle(core) && self.cores[core].clock < now {
                self.idles(core, now);
            }
            self.spun_until(core, now);
        }
    }

    /// How long cores have computed by `now`, all together, since the machine began, in picoseconds: they did not idle.
    pub(in crate::sim) fn computed(&mut self, now: u64) -> u64 {
        self.settle(now);
        let spent: u64 = self.spent.iter().sum();
        self.computed_before + spent - self.spent[Spent::Idle as usize]
    }

    /// The thread that runs on this core leaves it.
    pub(super) fn count_turn(&mut self, core: usize) {
        let core = &self.cores[core];
        if let Some(thread) = core.running {
            self.ran[thread] += core.clock - core.slice_began;
        }
    }

    /// How long the thread that runs has had a core by `now`, in picoseconds.
    pub(in crate::sim) fn computed_here(&self, now: u64) -> u64 {
        let core = &self.cores[self.here];
        core.running.map_or(0, |thread| self.ran[thread] + now - core.slice_began)
    }

    /// What was counted until `now`.
    pub(in crate::sim) fn report(
        &mut self,
        now: u64,
        lines: usize,
        sleeps: Vec<Slept>,
        lasted: Vec<Lasted>,
    ) -> MachineReport {
        self.settle(now);
        let counts = self.directory.counts;
        let spent = |kind: Spent| self.spent[kind as usize];
        MachineReport {
            cores: self.cores.len(),
            total_ps: self.cores.iter().map(|core| core.clock).sum::<u64>() - self.began,
            computing_ps: spent(Spent::Computing),
            memory_ps: spent(Spent::Memory),
            spinning_ps: spent(Spent::Spinning),
            system_ps: spent(Spent::System),
            idle_ps: spent(Spent::Idle),
            waited: (self.waited.iter())
                .map(|((file, line), &time_ps)| Waited { place: format!("{file}:{line}"), time_ps })
                .collect(),
            accesses: counts.accesses,
            changes: counts.changes,
            lines_from_memory: counts.cold,
            lines_from_last_cache: counts.cached,
            lines_from_socket: counts.near,
            lines_from_elsewhere: counts.far,
            switches: self.switches,
            hottest: self.directory.hottest(lines),
            sleeps,
            lasted,
        }
    }
}

/// What the cores of a simulated machine did. The five times add up to `total_ps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineReport {
    /// Cores.
    pub cores: usize,
    /// Time of all cores together, in picoseconds.
    pub total_ps: u64,
    /// Of it: instructions, and memory in the core's own cache.
    pub computing_ps: u64,
    /// Of it: waiting for lines of memory.
    pub memory_ps: u64,
    /// Of it: spinning loops, that is pauses, and the looks at a word in the core's own cache before them.
    pub spinning_ps: u64,
    /// Of it: the operating system.
    pub system_ps: u64,
    /// Of it: nothing to do.
    pub idle_ps: u64,
    /// Of the idling: what the thread that ran there last waited for, by place in the source. The rest had none.
    pub waited: Vec<Waited>,
    /// Accesses to shared memory.
    pub accesses: u64,
    /// Of them: atomic changes.
    pub changes: u64,
    /// Lines that came from memory.
    pub lines_from_memory: u64,
    /// Lines that came from a socket's last cache: no core had them.
    pub lines_from_last_cache: u64,
    /// Lines that came, or were taken, from a core of the same socket.
    pub lines_from_socket: u64,
    /// Lines that came, or were taken, from another socket.
    pub lines_from_elsewhere: u64,
    /// From one thread to another on a core.
    pub switches: u64,
    /// The lines that cores waited for most.
    pub hottest: Vec<HotLine>,
    /// Where threads slept, the longest first.
    pub sleeps: Vec<Slept>,
    /// How long things lasted that [`crate::hint::Mark`] was asked to follow.
    pub lasted: Vec<Lasted>,
}

/// Cores that idled because their threads slept at one place in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waited {
    /// File and line of the call of what sleeps.
    pub place: String,
    /// How long, in picoseconds.
    pub time_ps: u64,
}
