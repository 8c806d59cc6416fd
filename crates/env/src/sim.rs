//! A deterministic many-core machine in virtual time, on which the engine's own code runs.
//!
//! [`simulate`] runs a program whose threads are fibers on one thread of the operating system. Every access to an
//! atomic is an event; the kernel decides in which order events take place. Two kinds of world:
//!
//! - [`World::Machine`]: cores with clocks, caches and an operating system. The core with the smallest clock goes next,
//!   and each access costs what the state of its cache line says: how the engine scales on machines that nobody has.
//! - [`World::Explorer`]: no costs, but schedules that a machine would rarely show: a hunt for bugs.
//!
//! One seed gives one run, to the byte, on every machine, if the program is the first that the process simulates and
//! keeps to this crate for everything that is not deterministic. The page `SIMULATOR.md` of this crate says how it
//! works, and leads to what is not modelled.
#![allow(clippy::disallowed_types)]

mod arena;
pub(crate) mod atomic;
mod calls;
mod directory;
mod disk;
mod explorer;
mod kernel;
mod local;
pub(crate) mod lock;
mod machine;
mod mark;
mod place;
mod profile;
pub(crate) mod rwlock;
mod scheduler;
mod tally;
pub mod thread;
pub(crate) mod time;
mod unwinding;

#[cfg(test)]
mod tests;

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
};

use self::{
    disk::Storage,
    explorer::Explorer,
    kernel::Kernel,
    machine::{MOST_CORES, Machine},
    scheduler::Scheduler,
    time::Duration,
};

pub use self::{
    calls::{ask_for, foreground, latched, pause as spin_loop, spin_until, work},
    directory::HotLine,
    disk::{Device, SimulatedDisk},
    explorer::{Schedule, Turn},
    kernel::{Cause, Slept},
    machine::{MachineReport, Waited},
    mark::{Lasted, Mark},
    profile::{PROFILES, Profile},
    tally::Tally,
};

/// How many of the hottest lines a report names.
const HOT_LINES: usize = 10;
/// The most sockets.
const MOST_SOCKETS: usize = 16;

/// What a simulation is like.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Everything random follows from it.
    pub seed: u64,
    /// What time and order follow.
    pub world: World,
    /// What files lie on.
    pub device: Device,
    /// Virtual time after which it is given up; two and a half hours at most.
    pub limit: Duration,
}

/// The two kinds of world.
#[derive(Clone, Debug)]
pub enum World {
    /// A machine with so many cores of this kind.
    Machine {
        /// Its caches and distances.
        profile: Box<Profile>,
        /// From 1 to 1,024; more than the profile has are further sockets.
        cores: usize,
    },
    /// Unlikely schedules.
    Explorer(Schedule),
}

/// Why a simulation has no result.
#[derive(Debug)]
pub enum Failed {
    /// The settings make no machine: why.
    Settings(String),
    /// There is no memory for it.
    Memory(std::io::Error),
    /// It ended before its program did.
    Stopped {
        /// Why.
        cause: Cause,
        /// The threads that were not over, and what they did.
        threads: Vec<String>,
        /// The turns of an explorer's world.
        turns: Vec<Turn>,
    },
    /// Its first thread panicked.
    Panicked {
        /// What it said.
        text: String,
        /// The turns of an explorer's world.
        turns: Vec<Turn>,
    },
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Settings(why) => f.write_str(why),
            Failed::Memory(error) => write!(
                f,
                "no memory for a simulation: {error}\n  next: allow the process 80 GiB of address space, of which little is used (ulimit -v)"
            ),
            Failed::Stopped { cause, threads, .. } => {
                let cause = match cause {
                    Cause::Deadlock => "all threads sleep, and nothing will wake one",
                    Cause::Limit => "the simulation reached its limit of virtual time, or of steps",
                };
                write!(f, "{cause}: {}", threads.join("; "))
            }
            Failed::Panicked { text, .. } => write!(f, "panicked: {text}"),
        }
    }
}

impl std::error::Error for Failed {}

/// A simulation that its program has ended.
#[derive(Clone, Debug)]
pub struct Simulated<R> {
    /// What the program returned.
    pub result: R,
    /// Virtual time at its end, since the beginning.
    pub elapsed: Duration,
    /// Threads that were not over, and what they did.
    pub left: Vec<String>,
    /// The turns of an explorer's world, for [`Schedule::Replayed`].
    pub turns: Vec<Turn>,
    /// Accesses to shared memory that a machine has charged.
    pub accesses: u64,
}

/// One simulation at a time: they share the memory at the fixed address.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs `main` as the first thread of a simulated machine. The result is copied out of the machine's memory.
///
/// # Errors
/// See [`Failed`]. What the threads had is leaked when they were not over.
pub fn simulate<R: Clone>(settings: &Settings, main: impl FnOnce() -> R) -> Result<Simulated<R>, Failed> {
    simulate_watched(settings, main, &mut |_| ())
}

/// As [`simulate`]; `watch` is told the virtual time since the beginning every 100 µs of it, or later where nobody's
/// turn ends sooner. It is called outside of the machine, which does not notice.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_watched<R: Clone>(
    settings: &Settings,
    main: impl FnOnce() -> R,
    watch: &mut dyn FnMut(Duration),
) -> Result<Simulated<R>, Failed> {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    arena::begin().map_err(Failed::Memory)?;
    unwinding::begin();
    let run = run(settings, main, watch);
    // What its threads made lies in the simulation's memory, is copied here and dropped; the rest is the system's.
    run.map(|run| Simulated { result: run.result.clone(), ..run })
}

/// What a panic said.
fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("with something that is not text").to_owned()
}

fn run<R>(
    settings: &Settings,
    main: impl FnOnce() -> R,
    watch: &mut dyn FnMut(Duration),
) -> Result<Simulated<R>, Failed> {
    let scheduler = match &settings.world {
        World::Machine { profile, cores } => {
            if !(1..=MOST_CORES).contains(cores) || cores.div_ceil(profile.cores_per_socket) > MOST_SOCKETS {
                let most = MOST_CORES.min(MOST_SOCKETS * profile.cores_per_socket);
                return Err(Failed::Settings(format!(
                    "{} can have 1 to {most} cores, not {cores}",
                    profile.name
                )));
            }
            Scheduler::Machine(Box::new(Machine::new(profile.as_ref().clone(), *cores, settings.seed)))
        }
        World::Explorer(schedule) => {
            Scheduler::Explorer(Box::new(Explorer::new(schedule.clone(), settings.seed)))
        }
    };
    let kernel = Kernel::new(scheduler, Storage::new(settings.device), settings.seed, settings.limit);
    let mut outcome = None;
    let place = &mut outcome;
    let body: Box<dyn FnOnce() + '_> = Box::new(|| *place = Some(catch_unwind(AssertUnwindSafe(main))));
    // SAFETY: what the body borrows outlives the run: its fiber has ended, or is abandoned for good, when `run`
    // returns.
    let body = unsafe { std::mem::transmute::<Box<dyn FnOnce() + '_>, Box<dyn FnOnce() + 'static>>(body) };
    let ended = kernel::run(Box::new(kernel), body, watch).map_err(Failed::Memory)?;
    let elapsed = Duration::from_nanos(ended.kernel.clock / time::PICOSECONDS);
    let (turns, accesses) = match ended.kernel.scheduler {
        Scheduler::Explorer(explorer) => (explorer.into_trace(), 0),
        Scheduler::Machine(machine) => (Vec::new(), machine.accesses_in_all()),
    };
    match (ended.cause, outcome) {
        (Some(cause), _) => Err(Failed::Stopped { cause, threads: ended.left, turns }),
        (None, Some(Ok(result))) => Ok(Simulated { result, elapsed, left: ended.left, turns, accesses }),
        (None, Some(Err(panic))) => Err(Failed::Panicked { text: text_of(&*panic), turns }),
        (None, None) => unreachable!("the first thread is over and has left its result"),
    }
}

/// Whether a simulation runs on this thread.
pub fn is_running() -> bool {
    kernel::is_running()
}

/// Counts what the machine does from here on. Nothing outside of a machine.
pub fn count_anew() {
    calls::turn();
    kernel::with(|kernel| {
        kernel.count_anew();
        if let Scheduler::Machine(machine) = &mut kernel.scheduler {
            machine.count_anew(kernel.clock);
        }
    });
}

/// Whether the machine charges accesses to memory, as it does from the beginning. For what only prepares a measurement:
/// while it does not, each access takes the same time, cores may be a microsecond ahead of each other, and no line
/// moves. What is prepared so lies in the memories of all sockets in turn, and in their last caches if all of it finds
/// room there.
pub fn set_charging(charging: bool) {
    calls::turn();
    kernel::with(|kernel| {
        if let Scheduler::Machine(machine) = &mut kernel.scheduler {
            machine.set_charging(charging, kernel.clock);
        }
        kernel.horizon = kernel.horizon.min(kernel.scheduler.horizon());
    });
}

/// What the calling thread has done since it began; `None` outside of a simulation.
pub fn tally() -> Option<Tally> {
    kernel::with(|kernel| Tally { allocations: arena::allocations(), ..*kernel.tally() })
}

/// What the machine has done since [`count_anew`]; `None` outside of a machine.
pub fn report() -> Option<MachineReport> {
    calls::turn();
    kernel::with(|kernel| {
        let (sleeps, lasted) = (kernel.sleeps(), kernel.lasted());
        match &mut kernel.scheduler {
            Scheduler::Machine(machine) => Some(machine.report(kernel.clock, HOT_LINES, sleeps, lasted)),
            Scheduler::Explorer(_) => None,
        }
    })
    .flatten()
}

/// Cycles of the machine's clock in a nanosecond; `None` outside of a machine.
pub fn cycles_per_ns() -> Option<f64> {
    kernel::with(|kernel| match &kernel.scheduler {
        Scheduler::Machine(machine) => Some(machine.gigahertz),
        Scheduler::Explorer(_) => None,
    })
    .flatten()
}

/// How long the cores of the machine have computed by now, all together; `None` outside of a machine.
pub(crate) fn computed() -> Option<Duration> {
    time_on_machine(Machine::computed)
}

/// How long this thread has had a core of the machine by now; `None` outside of a machine.
pub(crate) fn computed_here() -> Option<Duration> {
    time_on_machine(|machine, now| machine.computed_here(now))
}

/// A time that the machine tells in picoseconds, of the clock as it is.
fn time_on_machine(told: impl FnOnce(&mut Machine, u64) -> u64) -> Option<Duration> {
    calls::turn();
    kernel::with(|kernel| match &mut kernel.scheduler {
        Scheduler::Machine(machine) => Some(Duration::from_nanos(told(machine, kernel.clock) / 1000)),
        Scheduler::Explorer(_) => None,
    })
    .flatten()
}

/// The lines of a range of plain memory are accessed.
#[track_caller]
pub(crate) fn charge(place: usize, bytes: usize, write: bool) {
    const LINE: usize = 64;
    let touch = if write { kernel::Touch::Store } else { kernel::Touch::Load };
    let mut line = place & !(LINE - 1);
    while line < place + bytes {
        calls::access(line.max(place), touch);
        line += LINE;
    }
}

/// What lies at these places: elements of so many bytes.
pub(crate) fn name(place: usize, bytes: usize, each: usize, name: &'static str) {
    kernel::with(|kernel| {
        if let Scheduler::Machine(machine) = &mut kernel.scheduler {
            arena::outside(|| machine.name(place, bytes, each, name));
        }
    });
}

/// A number from the simulation's seed; from the operating system outside.
pub(crate) fn entropy() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    kernel::with(|kernel| kernel.random.next_u64())
        .unwrap_or_else(|| RandomState::new().build_hasher().finish())
}

/// Asks the real machine to fetch the line of a place, wherever that is, for the simulator will need it soon. x86-64
/// only.
#[inline(always)]
fn prefetch<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: x86-64 has SSE, and a prefetch changes nothing that a program could see, of whatever address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
