//! The kernel: fibers on one thread of the operating system, who of them runs, what they sleep on, and virtual time.
//!
//! A fiber runs until its clock passes the *horizon*, the moment at which somebody else has something to do, or until
//! it sleeps. The [`Scheduler`] decides who runs next and sets the horizon; that is all in which the two kinds of
//! world, the machine with its costs and the explorer with its chances, differ.
//!
//! ENV-5: the kernel is borrowed for the time of one call of [`with`] and never across a switch of fibers: what it
//! decided is looked up again afterwards.
#![allow(clippy::disallowed_types)]

mod run;
mod sleep;
mod stack;

use std::{
    cell::Cell,
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    panic::Location,
    ptr,
    rc::Rc,
};

use corosensei::{Coroutine, Yielder};

use super::{
    arena,
    disk::Storage,
    local::Locals,
    machine::{Access, LineNumber, Machine},
    prefetch,
    scheduler::{Scheduler, Spent},
    tally::Tally,
    time::Duration,
    unwinding,
};
use crate::random::Xorshift;

pub(super) use run::run;
use sleep::{Sleep, Sleeper};
pub(super) use stack::Stack;

/// The number of a thread, in the order in which they started.
pub(super) type ThreadNumber = usize;

/// No virtual time goes beyond this many picoseconds: two and a half hours. Schedulers pack it with a number of ten
/// bits.
pub(super) const END_OF_TIME: u64 = 1 << 53;

/// A line of the real machine's caches, and how many of them a fiber uses at each turn at the end of its stack.
const LINE: usize = 64;
const STACK_LINES: usize = 4;

/// How memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    Load,
    Store,
    /// Read and written in one step.
    Change,
}

/// What becomes of a fiber that has switched to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// It goes on when its turn comes.
    Turn,
    /// It lets others run first.
    Yield,
    /// It would see the same until a line of memory moves, and sleeps meanwhile. Its core does not.
    Spin,
    /// It sleeps until it is woken.
    Sleep,
    /// It is over.
    Over,
}

/// Why a simulation ended before its program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// All threads sleep, and nothing will wake one.
    Deadlock,
    /// Virtual time or the number of steps reached its limit.
    Limit,
}

/// Sleeps that began at one place in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slept {
    /// File and line of the call of what sleeps.
    pub place: String,
    /// How many sleeps ended.
    pub count: u64,
    /// How long they were together, in picoseconds.
    pub time_ps: u64,
}

type Fiber = Coroutine<(), (), (), Stack>;

/// A thread of the simulated machine. What each of its turns needs comes first, in one line of the real machine's
/// caches.
#[repr(C, align(64))]
struct Thread {
    /// From a box; null when it is over.
    fiber: *mut Fiber,
    /// Where it switches to the kernel; set when it first runs.
    yielder: *const Yielder<(), ()>,
    /// Where its stack ended when it switched last, nearly, and what memory it is to access first.
    stack_end: usize,
    wants: usize,
    tally: Tally,
    name: Option<String>,
    /// Whether nobody's work waits while it sleeps.
    background: bool,
    locals: Rc<Locals>,
    sleep: Option<Sleep>,
    /// Counts sleeps, so that a timer of an earlier one wakes nobody, and neither does a call.
    sleeps: u64,
    over: bool,
}

pub(super) struct Kernel {
    threads: Vec<Thread>,
    /// Who runs.
    current: ThreadNumber,
    /// The clock of the thread that runs, in picoseconds.
    pub(super) clock: u64,
    /// The thread that runs goes on until its clock is past this.
    pub(super) horizon: u64,
    leave: Leave,
    /// Sleepers with a time to wake up.
    timers: BinaryHeap<Reverse<(u64, Sleeper)>>,
    /// When the next of them wakes up; `None` when that is to be looked up.
    next_timer: Option<Option<u64>>,
    /// Sleepers by the address of their futex, in order of arrival. Only looked up: its order does not matter.
    futexes: BTreeMap<usize, VecDeque<Sleeper>>,
    pub(super) scheduler: Scheduler,
    pub(super) random: Xorshift,
    pub(super) storage: Storage,
    /// Virtual time at which the simulation is given up.
    limit: u64,
    /// How often and how long threads slept, by file and line, since counting began.
    slept: BTreeMap<(&'static str, u32), (u64, u64)>,
    /// How many things of a kind have ended, and how long they lasted, since counting began.
    pub(super) lasted: BTreeMap<&'static str, (u64, u64)>,
    counted_from: u64,
}

std::thread_local! {
    /// The kernel of the simulation that this operating-system thread runs, null while a fiber does not run.
    static KERNEL: Cell<*mut Kernel> = const { Cell::new(ptr::null_mut()) };
    /// Whether [`with`] has it; in debug builds.
    static BORROWED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a simulated thread runs.
#[inline]
pub(super) fn is_running() -> bool {
    !KERNEL.get().is_null()
}

/// Calls `f` with the kernel when a simulated thread runs.
#[inline]
pub(super) fn with<R>(f: impl FnOnce(&mut Kernel) -> R) -> Option<R> {
    let kernel = KERNEL.get();
    if kernel.is_null() {
        return None;
    }
    debug_assert!(!BORROWED.replace(true), "the kernel is borrowed already (ENV-5)");
    // SAFETY: not null, so a simulation runs on this thread, which owns the kernel; no other borrow is alive, for no
    // `f` calls back into this module (ENV-5).
    let result = f(unsafe { &mut *kernel });
    debug_assert!(BORROWED.replace(false), "the kernel is borrowed until here");
    Some(result)
}

impl Kernel {
    pub(super) fn new(scheduler: Scheduler, storage: Storage, seed: u64, limit: Duration) -> Kernel {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Kernel {
            threads: Vec::new(),
            current: 0,
            clock: 0,
            horizon: 0,
            leave: Leave::Turn,
            timers: BinaryHeap::new(),
            next_timer: None,
            futexes: BTreeMap::new(),
            scheduler,
            random: Xorshift::new(seed ^ 0x005E_ED0F_5EED),
            storage,
            limit: limit.saturating_mul(super::time::PICOSECONDS).min(END_OF_TIME),
            slept: BTreeMap::new(),
            lasted: BTreeMap::new(),
            counted_from: 0,
        }
    }

    pub(super) fn current(&mut self) -> ThreadNumber {
        self.current
    }

    /// What decides who runs where, and who does.
    pub(super) fn scheduled(&mut self) -> (&mut Scheduler, ThreadNumber) {
        (&mut self.scheduler, self.current)
    }

    /// What who runs has done.
    #[inline]
    pub(super) fn tally(&mut self) -> &mut Tally {
        &mut self.threads[self.current].tally
    }

    pub(super) fn locals(&mut self) -> Rc<Locals> {
        Rc::clone(&self.threads[self.current].locals)
    }

    /// Time of the thread that runs passes.
    #[inline]
    pub(super) fn spend(&mut self, spent: Spent, picoseconds: u64) {
        self.clock += picoseconds;
        self.scheduler.tally(spent, picoseconds);
    }

    /// The thread that runs pauses in a spinning loop.
    #[inline]
    pub(super) fn pause(&mut self) {
        self.spend(Spent::Spinning, self.scheduler.costs().pause);
        self.scheduler.paused();
    }

    /// What who runs does is waited for by others, though it has a name.
    pub(super) fn foreground(&mut self) {
        self.threads[self.current].background = false;
    }

    /// The thread that runs accesses memory: see [`Scheduler::access`].
    #[inline]
    pub(super) fn access(&mut self, address: usize, touch: Touch, at: &'static Location<'static>) -> Access {
        self.threads[self.current].tally.touch(touch);
        let access = self.scheduler.access(&mut self.clock, address, touch, at);
        if access.disturbed {
            self.look_around();
        }
        access
    }

    /// The access that had booked a line takes place.
    pub(super) fn arrive(&mut self, line: LineNumber, touch: Touch, at: &'static Location<'static>) {
        if self.scheduler.arrive(&mut self.clock, line, touch, at) {
            self.look_around();
        }
    }

    /// The access that has waited changes its line now.
    pub(super) fn takes_effect(&mut self, line: LineNumber) {
        if self.scheduler.takes_effect(self.clock, line) {
            self.look_around();
        }
    }

    /// Somebody may have something to do sooner than before.
    #[inline]
    fn look_around(&mut self) {
        self.horizon = self.horizon.min(self.scheduler.horizon());
    }

    /// Reads the clock as a program does, which takes a moment.
    pub(super) fn read_clock(&mut self) -> u64 {
        self.spend(Spent::Computing, self.scheduler.costs().clock_read);
        self.clock
    }

    /// The thread that runs has nothing more to do but to tell so.
    pub(super) fn retire(&mut self) {
        self.threads[self.current].over = true;
    }

    /// A number for a new thread.
    pub(super) fn reserve(&mut self) -> ThreadNumber {
        arena::outside(|| {
            self.threads.push(Thread {
                fiber: ptr::null_mut(),
                yielder: ptr::null(),
                stack_end: 0,
                wants: 0,
                tally: Tally::default(),
                name: None,
                background: false,
                locals: Rc::default(),
                sleep: None,
                sleeps: 0,
                over: true,
            });
        });
        self.threads.len() - 1
    }

    pub(super) fn start(
        &mut self,
        number: ThreadNumber,
        name: Option<String>,
        stack: Stack,
        body: Box<dyn FnOnce()>,
    ) {
        self.scheduler.gets_memory(stack.place());
        let fiber = Fiber::with_stack(stack, move |yielder, ()| {
            with(|kernel| kernel.threads[number].yielder = yielder);
            unwinding::thread_begins();
            body();
        });
        let thread = &mut self.threads[number];
        let fiber = arena::outside(|| Box::into_raw(Box::new(fiber)));
        (thread.background, thread.name) = (name.is_some(), name);
        (thread.fiber, thread.over) = (fiber, false);
        arena::outside(|| self.scheduler.ready(number, self.clock));
        self.look_around();
    }

    /// The thread that runs is about to switch to the kernel, and will access this address then; gives the way there.
    #[inline]
    pub(super) fn leaves(&mut self, leave: Leave, wants: usize) -> *const Yielder<(), ()> {
        self.leave = leave;
        let thread = &mut self.threads[self.current];
        (thread.stack_end, thread.wants) = (ptr::from_ref(&leave).addr(), wants);
        thread.yielder
    }

    /// This thread goes on soon, on this core. What its turn needs is spread over so much memory that the real
    /// machine's nearest caches have room for few of many threads; it is fetched in the time of the turn before.
    #[inline]
    fn prefetch(&self, machine: &Machine, core: usize, thread: ThreadNumber) {
        let thread = &self.threads[thread];
        prefetch(thread.fiber);
        for line in 0..STACK_LINES {
            prefetch(ptr::without_provenance::<u8>(thread.stack_end.wrapping_add(line * LINE)));
        }
        machine.prefetch(core, thread.wants);
    }

    /// Who runs next; the first thread's end is the end.
    fn next(&mut self) -> Result<ThreadNumber, Cause> {
        loop {
            let timer = self.next_timer();
            let next = self.scheduler.next_time();
            match (timer, next) {
                (None, None) => return Err(Cause::Deadlock),
                (Some(timer), next) if next.is_none_or(|next| timer <= next) => {
                    self.fire();
                    continue;
                }
                _ => {}
            }
            let Some((number, clock)) = self.scheduler.next(timer) else { continue };
            if clock > self.limit || self.scheduler.is_exhausted() {
                return Err(Cause::Limit);
            }
            (self.current, self.clock) = (number, clock);
            let horizon = match &self.scheduler {
                Scheduler::Machine(machine) => {
                    let (horizon, next) = machine.horizon_and_next();
                    if let Some((core, thread)) = next {
                        self.prefetch(machine, core, thread);
                    }
                    horizon
                }
                Scheduler::Explorer(explorer) => explorer.horizon(),
            };
            self.horizon = timer.unwrap_or(END_OF_TIME).min(horizon).min(self.limit);
            return Ok(number);
        }
    }

    /// The fiber that ran has switched back, for good if it is `over`.
    #[inline]
    fn left(&mut self, over: bool) {
        let number = self.current;
        let leave = if over { Leave::Over } else { self.leave };
        let mut sleep = None;
        match leave {
            Leave::Over => self.end(number),
            Leave::Sleep => {
                let thread = &self.threads[number];
                sleep = thread.sleep.as_ref().filter(|_| !thread.background).map(|sleep| sleep.at);
            }
            Leave::Turn | Leave::Yield | Leave::Spin => {}
        }
        self.scheduler.left(number, self.clock, leave, sleep);
    }

    /// A thread is over.
    fn end(&mut self, number: ThreadNumber) {
        let thread = &mut self.threads[number];
        thread.over = true;
        let fiber = std::mem::replace(&mut thread.fiber, ptr::null_mut());
        // SAFETY: it came from a box, does not run, and is known nowhere else. Its stack is empty.
        drop(unsafe { Box::from_raw(fiber) });
    }
}
