//! The kernel: fibers on one thread of the operating system, who of them runs, what they sleep on, and virtual time.
//!
//! A fiber runs until its clock passes the *horizon*, the moment at which somebody else has something to do, or until
//! it sleeps. The [`Scheduler`] decides who runs next and sets the horizon; that is all in which the two kinds of world,
//! the machine with its costs and the explorer with its chances, differ.
//!
//! ENV-5: the kernel is borrowed for the time of one call of [`with`] and never across a switch of fibers: what it
//! decided is looked up again afterwards.
#![allow(clippy::disallowed_types)]

mod run;

use std::{
    cell::Cell,
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    io,
    panic::Location,
    ptr,
    rc::Rc,
};

use corosensei::{Coroutine, Yielder, stack::DefaultStack};

use super::{
    arena,
    disk::Storage,
    local::Locals,
    scheduler::{Scheduler, Spent},
    tally::Tally,
    time::Duration,
};
use crate::random::Xorshift;

pub(super) use run::run;

/// The number of a thread, in the order in which they started.
pub(super) type ThreadNumber = usize;

/// No virtual time goes beyond this many picoseconds: two and a half hours. Schedulers pack it with a number of ten bits.
pub(super) const END_OF_TIME: u64 = 1 << 53;

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
    /// File and line of who called what sleeps.
    pub place: String,
    /// How many sleeps ended.
    pub count: u64,
    /// How long they were together, in picoseconds.
    pub time_ps: u64,
}

type Fiber = Coroutine<(), (), (), DefaultStack>;

/// A thread of the simulated machine.
struct Thread {
    name: Option<String>,
    /// There while it does not run.
    fiber: Option<Fiber>,
    /// Where it switches to the kernel; set when it first runs.
    yielder: *const Yielder<(), ()>,
    locals: Rc<Locals>,
    sleep: Option<Sleep>,
    /// Counts sleeps, so that a timer of an earlier one wakes nobody.
    sleeps: u64,
    over: bool,
    tally: Tally,
}

/// What a thread sleeps on.
struct Sleep {
    /// The address of its futex; `None` for a sleep until a time.
    futex: Option<usize>,
    at: &'static Location<'static>,
    /// The clock when it lay down.
    since: u64,
}

pub(super) struct Kernel {
    threads: Vec<Thread>,
    /// Who runs.
    current: ThreadNumber,
    /// The clock of who runs, in picoseconds.
    pub(super) clock: u64,
    /// Who runs goes on until its clock is past this.
    pub(super) horizon: u64,
    leave: Leave,
    /// Sleepers with a time to wake up: time, thread, and which of its sleeps.
    timers: BinaryHeap<Reverse<(u64, ThreadNumber, u64)>>,
    /// Sleepers by the address of their futex, in order of arrival. Only looked up: its order does not matter.
    futexes: BTreeMap<usize, VecDeque<ThreadNumber>>,
    pub(super) scheduler: Scheduler,
    pub(super) random: Xorshift,
    pub(super) storage: Storage,
    /// Virtual time at which the simulation is given up.
    limit: u64,
    /// How often and how long threads slept, by file and line, since counting began.
    slept: BTreeMap<(&'static str, u32), (u64, u64)>,
    counted_from: u64,
}

std::thread_local! {
    /// The kernel of the simulation that this operating-system thread runs, null while a fiber does not run.
    static KERNEL: Cell<*mut Kernel> = const { Cell::new(ptr::null_mut()) };
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
    // SAFETY: not null, so a simulation runs on this thread, which owns the kernel; no other borrow is alive, for no
    // `f` calls back into this module (ENV-5).
    Some(f(unsafe { &mut *kernel }))
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
            futexes: BTreeMap::new(),
            scheduler,
            random: Xorshift::new(seed ^ 0x005E_ED0F_5EED),
            storage,
            limit: limit.saturating_mul(super::time::PICOSECONDS).min(END_OF_TIME),
            slept: BTreeMap::new(),
            counted_from: 0,
        }
    }

    pub(super) fn current(&mut self) -> ThreadNumber {
        self.current
    }

    pub(super) fn processors(&mut self) -> usize {
        self.scheduler.processors()
    }

    /// What who runs has done.
    #[inline]
    pub(super) fn tally(&mut self) -> &mut Tally {
        &mut self.threads[self.current].tally
    }

    pub(super) fn locals(&mut self) -> Rc<Locals> {
        Rc::clone(&self.threads[self.current].locals)
    }

    /// Time of who runs passes.
    #[inline]
    pub(super) fn spend(&mut self, spent: Spent, picoseconds: u64) {
        self.clock += picoseconds;
        self.scheduler.tally(spent, picoseconds);
    }

    /// Reads the clock as a program does, which takes a moment.
    pub(super) fn read_clock(&mut self) -> u64 {
        self.spend(Spent::Computing, self.scheduler.costs().clock_read);
        self.clock
    }

    /// Who runs has nothing more to do but to tell so.
    pub(super) fn retire(&mut self) {
        self.threads[self.current].over = true;
    }

    /// A number for a new thread.
    pub(super) fn reserve(&mut self) -> ThreadNumber {
        self.threads.push(Thread {
            name: None,
            fiber: None,
            yielder: ptr::null(),
            locals: Rc::default(),
            sleep: None,
            sleeps: 0,
            over: true,
            tally: Tally::default(),
        });
        self.threads.len() - 1
    }

    pub(super) fn start(
        &mut self,
        number: ThreadNumber,
        name: Option<String>,
        stack_bytes: usize,
        body: Box<dyn FnOnce()>,
    ) -> io::Result<()> {
        let stack = DefaultStack::new(stack_bytes)?;
        let fiber = Fiber::with_stack(stack, move |yielder, ()| {
            with(|kernel| kernel.threads[number].yielder = yielder);
            body();
        });
        let thread = &mut self.threads[number];
        (thread.name, thread.fiber, thread.over) = (name, Some(fiber), false);
        self.spend(Spent::System, self.scheduler.costs().spawn);
        arena::outside(|| self.scheduler.ready(number, self.clock));
        self.horizon = self.horizon.min(self.scheduler.horizon());
        Ok(())
    }

    pub(super) fn lie_down(
        &mut self,
        futex: Option<usize>,
        until: Option<u64>,
        at: &'static Location<'static>,
    ) {
        let current = self.current;
        let thread = &mut self.threads[current];
        thread.sleep = Some(Sleep { futex, at, since: self.clock });
        thread.sleeps += 1;
        if let Some(until) = until {
            self.timers.push(Reverse((until.min(END_OF_TIME), current, thread.sleeps)));
        }
        if let Some(futex) = futex {
            self.futexes.entry(futex).or_default().push_back(current);
        }
    }

    /// Who runs is about to switch to the kernel; gives the way there.
    pub(super) fn leaves(&mut self, leave: Leave) -> *const Yielder<(), ()> {
        self.leave = leave;
        self.threads[self.current].yielder
    }

    /// Wakes up to `most` threads that sleep on a futex, in order of arrival; gives how many.
    pub(super) fn wake_some(&mut self, futex: usize, most: usize) -> usize {
        for woken in 0..most {
            let Some(queue) = self.futexes.get_mut(&futex) else { return woken };
            let sleeper = queue.pop_front();
            if queue.is_empty() {
                self.futexes.remove(&futex);
            }
            if let Some(thread) = sleeper {
                self.spend(Spent::System, self.scheduler.costs().futex_wake);
                self.wake(thread, self.clock);
            }
        }
        most
    }

    /// Makes a sleeping thread ready.
    fn wake(&mut self, number: ThreadNumber, now: u64) {
        if let Some(sleep) = self.threads[number].sleep.take() {
            let place = (sleep.at.file(), sleep.at.line());
            let (count, time) = self.slept.entry(place).or_default();
            *count += 1;
            *time += now.saturating_sub(sleep.since.max(self.counted_from));
        }
        arena::outside(|| self.scheduler.ready(number, now));
        self.horizon = self.horizon.min(self.scheduler.horizon());
    }

    /// When the next sleeper wakes up by itself; forgets timers of sleeps that are over.
    fn next_timer(&mut self) -> Option<u64> {
        while let Some(&Reverse((time, number, sleep))) = self.timers.peek() {
            let thread = &self.threads[number];
            if thread.sleep.is_some() && thread.sleeps == sleep {
                return Some(time);
            }
            self.timers.pop();
        }
        None
    }

    /// Wakes the next sleeper with a timer.
    fn fire(&mut self) {
        if let Some(Reverse((time, number, _))) = self.timers.pop() {
            let futex = self.threads[number].sleep.as_ref().and_then(|sleep| sleep.futex);
            if let Some(futex) = futex
                && let Some(queue) = self.futexes.get_mut(&futex)
            {
                queue.retain(|&other| other != number);
                if queue.is_empty() {
                    self.futexes.remove(&futex);
                }
            }
            self.wake(number, time);
        }
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
            self.horizon = timer.unwrap_or(END_OF_TIME).min(self.scheduler.horizon()).min(self.limit);
            return Ok(number);
        }
    }

    /// The fiber that ran has switched back.
    fn left(&mut self, fiber: Fiber, over: bool) {
        let number = self.current;
        let thread = &mut self.threads[number];
        thread.over |= over;
        // A fiber that is over is dropped: its stack is empty.
        thread.fiber = (!over).then_some(fiber);
        let leave = if over { Leave::Over } else { self.leave };
        let sleep = thread.sleep.as_ref().filter(|_| thread.name.is_none()).map(|sleep| sleep.at);
        self.scheduler.left(number, self.clock, leave, sleep);
    }

    /// Counts sleeps from here on.
    pub(super) fn count_sleeps_anew(&mut self) {
        self.slept.clear();
        self.counted_from = self.clock;
    }

    /// Where threads slept since counting began, the longest first.
    pub(super) fn sleeps(&self) -> Vec<Slept> {
        let place = |(file, line): &(&str, u32)| format!("{file}:{line}");
        let mut sleeps: Vec<Slept> = (self.slept.iter())
            .map(|(at, &(count, time_ps))| Slept { place: place(at), count, time_ps })
            .collect();
        sleeps.sort_by(|a, b| b.time_ps.cmp(&a.time_ps).then_with(|| a.place.cmp(&b.place)));
        sleeps
    }

    /// What each thread that is not over does, for people.
    fn describe(&self) -> Vec<String> {
        let alive = self.threads.iter().enumerate().filter(|(_, thread)| !thread.over);
        alive
            .map(|(number, thread)| {
                let name = thread.name.as_deref().unwrap_or(if number == 0 { "main" } else { "unnamed" });
                match &thread.sleep {
                    Some(sleep) => format!("thread {number} ({name}) sleeps at {}", sleep.at),
                    None => format!("thread {number} ({name}) could run"),
                }
            })
            .collect()
    }
}
