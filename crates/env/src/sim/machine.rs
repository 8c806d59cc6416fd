//! The machine: cores with clocks, their caches, and an operating system that gives them to threads.
//!
//! The core with the smallest clock runs. More threads than cores share them in slices: each core has a queue, a thread
//! goes on after its slice when nobody else waits, and a core without work takes it from the longest queue. A woken
//! thread goes to the core it ran on last if that is idle, otherwise to any idle one, otherwise into its old queue,
//! unless another is shorter by two and more. A thread that was told to stay on a core waits for that one, and nobody
//! takes it away.

mod core;
mod memory;
mod order;
mod report;
mod spin;

use std::{cmp::Reverse, collections::BTreeMap, panic::Location};

pub use self::report::{MachineReport, Waited};
use self::{
    core::Core,
    order::{NEVER, Order},
};
use super::{
    directory::Directory,
    kernel::{END_OF_TIME, Leave, ThreadNumber},
    profile::Profile,
    scheduler::{Costs, SPENT_KINDS, Spent},
};

pub(super) use super::directory::LineNumber;

/// The most cores: their numbers have ten bits beside a clock.
pub(super) const MOST_CORES: usize = 1 << CORE_BITS;
const CORE_BITS: u32 = 10;

/// Picoseconds that a thread runs while others wait for its core.
const SLICE: u64 = 3_000_000_000;
/// After so long it gives way to one that was woken: Linux' least granularity.
const LEAST_SLICE: u64 = 750_000_000;
/// From one thread to another.
const SWITCH: u64 = 1_500_000;
/// Costs of the operating system; see `profile/machines.rs`.
const SYSTEM_CALL: u64 = 100_000;
const FUTEX_WAIT: u64 = 1_000_000;
const CLOCK_READ: u64 = 20_000;
const SPAWN: u64 = 15_000_000;

/// Of an access while none is charged, and by how much a core may then be ahead of the others.
const UNCHARGED: u64 = 2000;
const UNCHARGED_SLACK: u64 = 1_000_000;

pub(super) struct Machine {
    pub(super) costs: Costs,
    pub(super) gigahertz: f64,
    /// Until an idle core runs a thread that was woken.
    wake_up: u64,
    directory: Directory,
    /// Whether accesses to memory cost what they do, in their exact order.
    charging: bool,
    cores: Vec<Core>,
    /// Clock and number of each core with somebody to run; of the one that runs, as of the beginning of its turn.
    order: Order,
    /// The core that runs.
    here: usize,
    /// Idle cores.
    idle: usize,
    /// Where each thread ran last.
    homes: Vec<usize>,
    /// Where each thread stays, if it was told to.
    pins: Vec<Option<usize>>,
    /// Rounds of each thread's last spin that passed while it saw the same.
    spun: Vec<u64>,
    /// How long each thread has had a core, but for what it has had of one since it was last given it.
    ran: Vec<u64>,
    spent: [u64; SPENT_KINDS],
    /// Idling, by file and line of where the core's thread slept meanwhile. What is missing had no such thread.
    waited: BTreeMap<(&'static str, u32), u64>,
    switches: u64,
    /// The sum of all clocks when counting began.
    began: u64,
    /// What cores had computed by then, in picoseconds.
    computed_before: u64,
}

/// What an access to memory has led to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Access {
    /// It waits for this line until the clock of the thread that runs, and takes place then: [`Machine::arrive`].
    pub(super) booked: Option<LineNumber>,
    /// It waits, for this line or for what was stored before, and takes place when the others have come to the clock of
    /// the thread that runs.
    pub(super) waits: Option<LineNumber>,
    /// Somebody else has something to do sooner than before.
    pub(super) disturbed: bool,
}

fn key(clock: u64, core: usize) -> u64 {
    clock << CORE_BITS | core as u64
}

impl Machine {
    pub(super) fn new(profile: Profile, cores: usize, seed: u64) -> Machine {
        let picoseconds = |cycles: u64| (cycles as f64 * 1000.0 / profile.gigahertz).round() as u64;
        let costs = Costs {
            fence: picoseconds(profile.change),
            pause: picoseconds(profile.pause),
            clock_read: CLOCK_READ,
            system_call: SYSTEM_CALL,
            yielding: picoseconds(profile.yielding),
            futex_wait: FUTEX_WAIT,
            futex_wake: profile.wake_ns * 1000,
            spawn: SPAWN,
        };
        Machine {
            costs,
            gigahertz: profile.gigahertz,
            wake_up: profile.wake_up_ns * 1000,
            directory: Directory::new(profile, cores, seed),
            charging: true,
            cores: (0..cores).map(|_| Core::default()).collect(),
            order: Order::new(cores),
            here: 0,
            idle: cores,
            homes: Vec::new(),
            pins: Vec::new(),
            spun: Vec::new(),
            ran: Vec::new(),
            spent: [0; SPENT_KINDS],
            waited: BTreeMap::new(),
            switches: 0,
            began: 0,
            computed_before: 0,
        }
    }

    pub(super) fn processors(&self) -> usize {
        self.cores.len()
    }

    #[inline]
    pub(super) fn tally(&mut self, spent: Spent, picoseconds: u64) {
        self.spent[spent as usize] += picoseconds;
    }

    pub(super) fn ready(&mut self, thread: ThreadNumber, now: u64) {
        while self.homes.len() <= thread {
            // A new thread goes where fewest live.
            let home = (0..self.cores.len()).min_by_key(|&core| self.cores[core].residents).unwrap_or(0);
            self.cores[home].residents += 1;
            self.homes.push(home);
            self.pins.push(None);
            self.spun.push(0);
            self.ran.push(0);
        }
        let home = self.homes[thread];
        let pin = self.pins[thread];
        let place = if let Some(core) = pin {
            self.is_idle(core).then_some(core)
        } else if self.idle == 0 {
            None
        } else if self.is_idle(home) {
            Some(home)
        } else {
            (0..self.cores.len()).find(|&core| self.is_idle(core))
        };
        match place {
            Some(core) => {
                let begin = now + self.wake_up;
                let clock = self.cores[core].clock.max(begin);
                self.idles(core, clock);
                self.idle -= 1;
                self.give(core, thread);
                self.order.set(core, key(clock, core));
            }
            None => {
                let waiting = |core: usize| self.cores[core].waiting;
                let shortest = (0..self.cores.len()).min_by_key(|&core| waiting(core)).unwrap_or(home);
                let place = if waiting(home) > waiting(shortest) + 1 { shortest } else { home };
                let place = pin.unwrap_or(place);
                self.settle_in(place, thread);
                let core = &mut self.cores[place];
                core.push(thread);
                // The thread that runs there gives way soon.
                core.slice_end = core.slice_end.min(core.slice_began + LEAST_SLICE).max(now);
                self.look_at_slice(place);
            }
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

    /// The thread lives there from here on.
    fn settle_in(&mut self, core: usize, thread: ThreadNumber) {
        self.cores[self.homes[thread]].residents -= 1;
        self.cores[core].residents += 1;
        self.homes[thread] = core;
    }

    fn give(&mut self, core: usize, thread: ThreadNumber) {
        self.settle_in(core, thread);
        let core = &mut self.cores[core];
        core.running = Some(thread);
        (core.slice_began, core.slice_end) = (core.clock, core.clock + SLICE);
    }

    #[inline]
    pub(super) fn next_time(&self) -> Option<u64> {
        let first = self.order.first();
        (first != NEVER).then_some(first >> CORE_BITS)
    }

    /// Somebody can run, as [`Machine::next_time`] has said.
    #[inline]
    pub(super) fn next(&mut self) -> Option<(ThreadNumber, u64)> {
        let first = self.order.first();
        let here = (first & (MOST_CORES as u64 - 1)) as usize;
        self.here = here;
        if self.cores[here].spins {
            self.rouse(here, first >> CORE_BITS);
            return None;
        }
        let core = &self.cores[here];
        if core.clock >= core.slice_end && core.waiting > 0 {
            self.rotate();
            return None;
        }
        let running = core.running.expect("a core in the order has a thread");
        Some((running, core.clock))
    }

    /// The thread that runs here goes to the end of the queue.
    fn rotate(&mut self) {
        let here = self.here;
        if let Some(next) = self.cores[here].pop() {
            self.count_turn(here);
            if let Some(before) = self.cores[here].running.take() {
                self.cores[here].push(before);
            }
            self.switch_to(next);
        }
        self.order.set(here, key(self.cores[here].clock, here));
    }

    fn switch_to(&mut self, thread: ThreadNumber) {
        self.cores[self.here].clock += SWITCH;
        self.tally(Spent::System, SWITCH);
        self.switches += 1;
        self.give(self.here, thread);
    }

    #[inline]
    pub(super) fn horizon(&self) -> u64 {
        self.horizon_before(self.order.first_but(self.here))
    }

    /// The same, with the core that goes next unless something happens, and its thread.
    #[inline]
    pub(super) fn horizon_and_next(&self) -> (u64, Option<(usize, ThreadNumber)>) {
        let first = self.order.first_but(self.here);
        let core = (first & (MOST_CORES as u64 - 1)) as usize;
        let next = self.cores.get(core).and_then(|next| Some((core, next.running?)));
        (self.horizon_before(first), next)
    }

    /// When who runs gives way to others, of which the first has this key.
    #[inline]
    fn horizon_before(&self, first: u64) -> u64 {
        let others = if first == NEVER {
            END_OF_TIME
        } else {
            let (clock, core) = (first >> CORE_BITS, (first & (MOST_CORES as u64 - 1)) as usize);
            // At equal clocks the lower number goes first.
            if self.here < core { clock } else { clock.saturating_sub(1) }
        };
        let others = if self.charging { others } else { others.saturating_add(UNCHARGED_SLACK) };
        let core = &self.cores[self.here];
        if core.waiting == 0 { others } else { others.min(core.slice_end) }
    }

    /// `sleep`: where in the source it lay down to sleep, if it did and does not work in the background.
    #[inline]
    pub(super) fn left(&mut self, clock: u64, leave: Leave, sleep: Option<&'static Location<'static>>) {
        let here = self.here;
        self.cores[here].clock = clock;
        if leave == Leave::Turn {
            self.order.set(here, key(clock, here));
        } else {
            self.left_off(leave, sleep);
        }
    }

    fn left_off(&mut self, leave: Leave, sleep: Option<&'static Location<'static>>) {
        let here = self.here;
        if let (Some(thread), Some(at)) = (self.cores[here].running, sleep) {
            self.cores[here].sleeper = Some((thread, at));
        }
        match leave {
            Leave::Turn => unreachable!("its turn is only over"),
            Leave::Spin => self.lie_in_wait(),
            Leave::Yield => self.rotate(),
            Leave::Sleep | Leave::Over => {
                self.count_turn(here);
                self.cores[here].running = None;
                if matches!(leave, Leave::Over) {
                    self.cores[here].residents -= 1;
                }
                match self.waiting() {
                    Some(thread) => {
                        self.switch_to(thread);
                        self.order.set(here, key(self.cores[here].clock, here));
                    }
                    None => {
                        self.idle += 1;
                        self.order.set(here, NEVER);
                    }
                }
            }
        }
    }

    /// A thread for this core: from its own queue, or from the longest, of those that may leave it.
    fn waiting(&mut self) -> Option<ThreadNumber> {
        if let Some(thread) = self.cores[self.here].pop() {
            return Some(thread);
        }
        let Machine { cores, pins, .. } = self;
        let may_leave = |thread: ThreadNumber| pins[thread].is_none();
        let longest =
            (0..cores.len()).max_by_key(|&core| (cores[core].waiting_for(may_leave), Reverse(core)))?;
        cores[longest].pop_one(may_leave)
    }

    /// The thread stays on this core when it goes on the next time; the number is taken modulo how many there are.
    pub(super) fn pin(&mut self, thread: ThreadNumber, number: usize) {
        self.pins[thread] = Some(number % self.cores.len());
    }

    /// The core that the thread runs on, or was on last.
    pub(super) fn processor_of(&self, thread: ThreadNumber) -> usize {
        self.homes[thread]
    }

    /// On how many cores the thread may run.
    pub(super) fn processors_of(&self, thread: ThreadNumber) -> usize {
        if self.pins[thread].is_some() { 1 } else { self.cores.len() }
    }

    /// Accesses cost something from here on, or nothing that depends on where lines are.
    pub(super) fn set_charging(&mut self, charging: bool, now: u64) {
        self.charging = charging;
        if charging {
            self.directory.prepared(now);
            return;
        }
        // No line moves from here on, and nobody would wake.
        for core in 0..self.cores.len() {
            self.rouse(core, now + u64::from(core < self.here));
        }
    }

    /// Charged accesses since the machine began.
    pub(super) fn accesses_in_all(&self) -> u64 {
        self.directory.accesses_in_all()
    }

    /// What lies at these places, for reports.
    pub(super) fn name(&mut self, place: usize, bytes: usize, each: usize, name: &'static str) {
        self.directory.name(place, bytes, each, name);
    }
}
