//! Who runs next: the two kinds of world behind one door.

use std::{ops::Range, panic::Location};

use super::{
    explorer::Explorer,
    kernel::{Leave, ThreadNumber, Touch},
    machine::{Access, LineNumber, Machine},
};

/// What the time of a core goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Spent {
    /// Instructions, and memory that is in the core's own cache.
    Computing,
    /// Lines of memory on their way from elsewhere.
    Memory,
    /// Spinning loops: pauses, and the looks before them.
    Spinning,
    /// The operating system: calls, and switches from one thread to another.
    System,
    /// Nothing to do.
    Idle,
}

/// How many ways there are to spend time.
pub(super) const SPENT_KINDS: usize = Spent::Idle as usize + 1;

/// What things take, in picoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Costs {
    pub(super) fence: u64,
    pub(super) pause: u64,
    pub(super) clock_read: u64,
    pub(super) system_call: u64,
    pub(super) yielding: u64,
    pub(super) futex_wait: u64,
    pub(super) futex_wake: u64,
    pub(super) spawn: u64,
}

pub(super) enum Scheduler {
    /// Cores, caches, an operating system: what things cost.
    Machine(Box<Machine>),
    /// No costs, but orders of events that a machine would rarely show.
    Explorer(Box<Explorer>),
}

impl Scheduler {
    #[inline]
    pub(super) fn costs(&self) -> Costs {
        match self {
            Scheduler::Machine(machine) => machine.costs,
            Scheduler::Explorer(explorer) => explorer.costs,
        }
    }

    /// Whether the run took as many steps as it may.
    pub(super) fn is_exhausted(&self) -> bool {
        match self {
            Scheduler::Machine(_) => false,
            Scheduler::Explorer(explorer) => explorer.is_exhausted(),
        }
    }

    pub(super) fn processors(&self) -> usize {
        match self {
            Scheduler::Machine(machine) => machine.processors(),
            Scheduler::Explorer(explorer) => explorer.processors(),
        }
    }

    /// On how many of them the thread may run.
    pub(super) fn processors_of(&self, thread: ThreadNumber) -> usize {
        match self {
            Scheduler::Machine(machine) => machine.processors_of(thread),
            Scheduler::Explorer(explorer) => explorer.processors(),
        }
    }

    /// Which of them the thread runs on. A world without costs has no cores.
    pub(super) fn processor_of(&self, thread: ThreadNumber) -> Option<usize> {
        match self {
            Scheduler::Machine(machine) => Some(machine.processor_of(thread)),
            Scheduler::Explorer(_) => None,
        }
    }

    /// Keeps the thread on one core from its next turn on; whether it does. A world without costs has no cores.
    pub(super) fn pin(&mut self, thread: ThreadNumber, number: usize) -> bool {
        match self {
            Scheduler::Machine(machine) => {
                machine.pin(thread, number);
                true
            }
            Scheduler::Explorer(_) => false,
        }
    }

    /// Notes what the time of the thread that runs went to.
    #[inline]
    pub(super) fn tally(&mut self, spent: Spent, picoseconds: u64) {
        if let Scheduler::Machine(machine) = self {
            machine.tally(spent, picoseconds);
        }
    }

    /// Whether what may happen for no reason does now. It never does where things have costs.
    #[inline]
    pub(super) fn has_whim(&mut self) -> bool {
        match self {
            Scheduler::Machine(_) => false,
            Scheduler::Explorer(explorer) => explorer.has_whim(),
        }
    }

    /// The thread that runs accesses memory; when a line is returned, the access waits for that line until `clock`, and
    /// then takes place by [`Scheduler::arrive`].
    #[inline]
    pub(super) fn access(
        &mut self,
        clock: &mut u64,
        address: usize,
        touch: Touch,
        at: &'static Location<'static>,
    ) -> Access {
        match self {
            Scheduler::Machine(machine) => machine.access(clock, address, touch, at),
            Scheduler::Explorer(explorer) => {
                explorer.access(clock);
                Access::default()
            }
        }
    }

    /// See [`Scheduler::access`]. Whether somebody else has something to do sooner than before.
    pub(super) fn arrive(
        &mut self,
        clock: &mut u64,
        line: LineNumber,
        touch: Touch,
        at: &'static Location<'static>,
    ) -> bool {
        match self {
            Scheduler::Machine(machine) => machine.arrive(clock, line, touch, at),
            Scheduler::Explorer(_) => false,
        }
    }

    /// The access that has waited changes its line at this moment. Whether somebody else has something to do sooner
    /// than before.
    pub(super) fn takes_effect(&mut self, clock: u64, line: LineNumber) -> bool {
        match self {
            Scheduler::Machine(machine) => machine.takes_effect(clock, line),
            Scheduler::Explorer(_) => false,
        }
    }

    /// How long a fence of the thread that runs waits, at this clock, for what it has stored.
    pub(super) fn fence(&mut self, clock: u64) -> u64 {
        match self {
            Scheduler::Machine(machine) => machine.fence(clock),
            Scheduler::Explorer(_) => 0,
        }
    }

    /// The thread that runs asks for a line at this clock, before it accesses it.
    pub(super) fn ask_for(&mut self, clock: u64, address: usize) {
        if let Scheduler::Machine(machine) = self {
            machine.ask_for(clock, address);
        }
    }

    /// The system has given memory to the program: what lay there before is gone.
    pub(super) fn gets_memory(&mut self, place: Range<usize>) {
        if let Scheduler::Machine(machine) = self {
            machine.gets_memory(place);
        }
    }

    /// The thread that runs has found a pointer in memory.
    #[inline]
    pub(super) fn learned(&mut self, pointer: usize) {
        if let Scheduler::Machine(machine) = self {
            machine.learned(pointer);
        }
    }

    /// The thread that runs pauses, as spinning loops do.
    #[inline]
    pub(super) fn paused(&mut self) {
        if let Scheduler::Machine(machine) = self {
            machine.paused();
        }
    }

    /// See [`Machine::spins`]; nobody sleeps in a world without costs.
    pub(super) fn spins(&mut self, took: u64, rounds: u64) -> bool {
        match self {
            Scheduler::Machine(machine) => machine.spins(took, rounds),
            Scheduler::Explorer(_) => false,
        }
    }

    /// See [`Machine::spun`].
    pub(super) fn spun(&mut self) -> u64 {
        match self {
            Scheduler::Machine(machine) => machine.spun(),
            Scheduler::Explorer(_) => 0,
        }
    }

    /// A thread can run from `now` on.
    pub(super) fn ready(&mut self, thread: ThreadNumber, now: u64) {
        match self {
            Scheduler::Machine(machine) => machine.ready(thread, now),
            Scheduler::Explorer(explorer) => explorer.ready(thread, now),
        }
    }

    /// When the next thread runs; `None` when all sleep.
    #[inline]
    pub(super) fn next_time(&self) -> Option<u64> {
        match self {
            Scheduler::Machine(machine) => machine.next_time(),
            Scheduler::Explorer(explorer) => explorer.next_time(),
        }
    }

    /// The thread that runs next, and its clock. `None` when only the order of things has changed: ask again.
    #[inline]
    pub(super) fn next(&mut self, timer: Option<u64>) -> Option<(ThreadNumber, u64)> {
        match self {
            Scheduler::Machine(machine) => machine.next(),
            Scheduler::Explorer(explorer) => Some(explorer.next(timer)),
        }
    }

    /// Until when the thread that runs goes on.
    #[inline]
    pub(super) fn horizon(&self) -> u64 {
        match self {
            Scheduler::Machine(machine) => machine.horizon(),
            Scheduler::Explorer(explorer) => explorer.horizon(),
        }
    }

    /// The thread that ran has stopped for this reason.
    #[inline]
    pub(super) fn left(
        &mut self,
        thread: ThreadNumber,
        clock: u64,
        leave: Leave,
        sleep: Option<&'static Location<'static>>,
    ) {
        match self {
            Scheduler::Machine(machine) => machine.left(clock, leave, sleep),
            Scheduler::Explorer(explorer) => explorer.left(thread, clock, leave),
        }
    }
}
