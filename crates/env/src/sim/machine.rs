//! The machine: cores with clocks, their caches, and an operating system that gives them to threads.
//!
//! The core with the smallest clock runs. More threads than cores share them in slices: each core has a queue, a thread
//! goes on after its slice when nobody else waits, and a core without work takes it from the longest queue. A woken
//! thread goes to the core it ran on last if that is idle, otherwise to any idle one, otherwise into its old queue.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    panic::Location,
};

use super::{
    directory::{Directory, HotLine},
    kernel::{END_OF_TIME, Leave, Slept, ThreadNumber, Touch},
    profile::Profile,
    scheduler::{Costs, SPENT_KINDS, Spent},
};

pub(super) use super::directory::LineNumber;

/// The most cores: their numbers have ten bits beside a clock.
pub(super) const MOST_CORES: usize = 1 << CORE_BITS;
const CORE_BITS: u32 = 10;

/// Picoseconds that a thread runs while others wait for its core.
const SLICE: u64 = 3_000_000_000;
/// From one thread to another.
const SWITCH: u64 = 1_500_000;
/// Until an idle core runs a thread that was woken.
const WAKE_UP: u64 = 3_500_000;
/// Costs of the operating system; see `profile`.
const SYSTEM_CALL: u64 = 100_000;
const FUTEX_WAIT: u64 = 1_000_000;
const FUTEX_WAKE: u64 = 1_000_000;
const CLOCK_READ: u64 = 20_000;
const SPAWN: u64 = 15_000_000;

#[derive(Default)]
struct Core {
    clock: u64,
    /// Who runs; `None` while idle.
    running: Option<ThreadNumber>,
    /// Who waits for it.
    queue: VecDeque<ThreadNumber>,
    slice_end: u64,
    /// The thread that ran here last, of those without a name, and where in the source it sleeps, while it does. Threads
    /// with names work in the background, and nobody's work waits while they sleep.
    sleeper: Option<(ThreadNumber, &'static Location<'static>)>,
}

pub(super) struct Machine {
    pub(super) costs: Costs,
    directory: Directory,
    cores: Vec<Core>,
    /// Cores with somebody to run, but for the one that runs: clock and number.
    order: BinaryHeap<Reverse<u64>>,
    /// The core that runs.
    here: usize,
    /// Idle cores.
    idle: usize,
    /// Where each thread ran last.
    homes: Vec<usize>,
    spent: [u64; SPENT_KINDS],
    /// Idling, by file and line of where the core's thread slept meanwhile. What is missing had no such thread.
    waited: BTreeMap<(&'static str, u32), u64>,
    switches: u64,
    /// The sum of all clocks when counting began.
    began: u64,
}

fn key(clock: u64, core: usize) -> u64 {
    clock << CORE_BITS | core as u64
}

impl Machine {
    pub(super) fn new(profile: Profile, cores: usize) -> Machine {
        let picoseconds = |cycles: u64| (cycles as f64 * 1000.0 / profile.gigahertz).round() as u64;
        let costs = Costs {
            fence: picoseconds(profile.change),
            pause: picoseconds(profile.pause),
            clock_read: CLOCK_READ,
            system_call: SYSTEM_CALL,
            futex_wait: FUTEX_WAIT,
            futex_wake: FUTEX_WAKE,
            spawn: SPAWN,
        };
        Machine {
            costs,
            directory: Directory::new(profile, cores),
            cores: (0..cores).map(|_| Core::default()).collect(),
            order: BinaryHeap::new(),
            here: 0,
            idle: cores,
            homes: Vec::new(),
            spent: [0; SPENT_KINDS],
            waited: BTreeMap::new(),
            switches: 0,
            began: 0,
        }
    }

    pub(super) fn processors(&self) -> usize {
        self.cores.len()
    }

    #[inline]
    pub(super) fn tally(&mut self, spent: Spent, picoseconds: u64) {
        self.spent[spent as usize] += picoseconds;
    }

    #[inline]
    pub(super) fn access(
        &mut self,
        clock: &mut u64,
        address: usize,
        touch: Touch,
        at: &'static Location<'static>,
    ) -> Option<LineNumber> {
        let cost = self.directory.access(self.here, *clock, address, touch, at);
        self.tally(Spent::Computing, cost.computing);
        self.tally(Spent::Memory, cost.waiting);
        *clock += cost.computing + cost.waiting;
        cost.booked
    }

    pub(super) fn arrive(
        &mut self,
        clock: &mut u64,
        line: LineNumber,
        touch: Touch,
        at: &'static Location<'static>,
    ) {
        let waited = self.directory.arrive(self.here, *clock, line, touch, at);
        self.tally(Spent::Memory, waited);
        *clock += waited;
    }

    pub(super) fn ready(&mut self, thread: ThreadNumber, now: u64) {
        while self.homes.len() <= thread {
            // New threads are dealt out to all cores.
            self.homes.push(self.homes.len() % self.cores.len());
        }
        let home = self.homes[thread];
        let place = if self.idle == 0 {
            None
        } else if self.is_idle(home) {
            Some(home)
        } else {
            (0..self.cores.len()).find(|&core| self.is_idle(core))
        };
        match place {
            Some(core) => {
                let begin = now + WAKE_UP;
                let clock = self.cores[core].clock.max(begin);
                self.idles(core, clock);
                self.idle -= 1;
                self.give(core, thread);
                self.order.push(Reverse(key(clock, core)));
            }
            None => self.cores[home].queue.push_back(thread),
        }
        let home = &mut self.cores[home];
        home.sleeper = home.sleeper.filter(|(sleeper, _)| *sleeper != thread);
    }

    /// The clock of an idle core comes to `until`.
    fn idles(&mut self, core: usize, until: u64) {
        let time = until - self.cores[core].clock;
        self.cores[core].clock = until;
        self.tally(Spent::Idle, time);
        if let Some((_, at)) = self.cores[core].sleeper {
            *self.waited.entry((at.file(), at.line())).or_default() += time;
        }
    }

    fn is_idle(&self, core: usize) -> bool {
        self.cores[core].running.is_none()
    }

    fn give(&mut self, core: usize, thread: ThreadNumber) {
        self.homes[thread] = core;
        let core = &mut self.cores[core];
        core.running = Some(thread);
        core.slice_end = core.clock + SLICE;
    }

    pub(super) fn next_time(&self) -> Option<u64> {
        self.order.peek().map(|Reverse(key)| key >> CORE_BITS)
    }

    pub(super) fn next(&mut self) -> Option<(ThreadNumber, u64)> {
        let Reverse(key) = self.order.pop()?;
        let here = (key & (MOST_CORES as u64 - 1)) as usize;
        self.here = here;
        let core = &self.cores[here];
        if core.clock >= core.slice_end && !core.queue.is_empty() {
            self.rotate();
            return None;
        }
        let running = core.running.expect("a core in the order has a thread");
        Some((running, core.clock))
    }

    /// The thread that runs here goes to the end of the queue.
    fn rotate(&mut self) {
        let here = self.here;
        if let Some(next) = self.cores[here].queue.pop_front() {
            let before = self.cores[here].running.take();
            self.cores[here].queue.extend(before);
            self.switch_to(next);
        }
        self.order.push(Reverse(key(self.cores[here].clock, here)));
    }

    fn switch_to(&mut self, thread: ThreadNumber) {
        self.cores[self.here].clock += SWITCH;
        self.tally(Spent::System, SWITCH);
        self.switches += 1;
        self.give(self.here, thread);
    }

    pub(super) fn horizon(&self) -> u64 {
        let others = self.order.peek().map_or(END_OF_TIME, |&Reverse(key)| {
            let (clock, core) = (key >> CORE_BITS, (key & (MOST_CORES as u64 - 1)) as usize);
            // At equal clocks the lower number goes first.
            if self.here < core { clock } else { clock.saturating_sub(1) }
        });
        let core = &self.cores[self.here];
        if core.queue.is_empty() { others } else { others.min(core.slice_end) }
    }

    /// `sleep`: where in the source it lay down to sleep, if it did and has no name.
    pub(super) fn left(&mut self, clock: u64, leave: Leave, sleep: Option<&'static Location<'static>>) {
        let here = self.here;
        self.cores[here].clock = clock;
        if let (Some(thread), Some(at)) = (self.cores[here].running, sleep) {
            self.cores[here].sleeper = Some((thread, at));
        }
        match leave {
            Leave::Turn => self.order.push(Reverse(key(clock, here))),
            Leave::Yield => self.rotate(),
            Leave::Sleep | Leave::Over => {
                self.cores[here].running = None;
                match self.waiting() {
                    Some(thread) => {
                        self.switch_to(thread);
                        self.order.push(Reverse(key(self.cores[here].clock, here)));
                    }
                    None => self.idle += 1,
                }
            }
        }
    }

    /// A thread for this core: from its own queue, or from the longest.
    fn waiting(&mut self) -> Option<ThreadNumber> {
        if let Some(thread) = self.cores[self.here].queue.pop_front() {
            return Some(thread);
        }
        let longest =
            (0..self.cores.len()).max_by_key(|&core| (self.cores[core].queue.len(), Reverse(core)))?;
        self.cores[longest].queue.pop_front()
    }

    /// Accesses since the machine began.
    pub(super) fn accesses_in_all(&self) -> u64 {
        self.directory.accesses_in_all()
    }

    /// What lies at these places, for reports.
    pub(super) fn name(&mut self, place: usize, bytes: usize, each: usize, name: &'static str) {
        self.directory.name(place, bytes, each, name);
    }

    /// Counts from `now` on.
    pub(super) fn count_anew(&mut self, now: u64) {
        self.settle(now);
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
        }
    }

    /// What was counted until `now`.
    pub(super) fn report(&mut self, now: u64, lines: usize, sleeps: Vec<Slept>) -> MachineReport {
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
            lines_from_socket: counts.near,
            lines_from_elsewhere: counts.far,
            switches: self.switches,
            hottest: self.directory.hottest(lines),
            sleeps,
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
    /// Of it: pauses of spinning loops.
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
}

/// Cores that idled because their threads slept at one place in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waited {
    /// File and line of who called what sleeps.
    pub place: String,
    /// How long, in picoseconds.
    pub time_ps: u64,
}
