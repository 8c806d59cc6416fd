//! What simulated threads ask of the kernel.
#![allow(clippy::disallowed_types)]

use std::{io, panic::Location, ptr, sync::atomic::Ordering};

use super::{
    atomic::AtomicU32,
    kernel::{END_OF_TIME, Kernel, Leave, Stack, ThreadNumber, Touch, is_running, with},
    scheduler::{Scheduler, Spent},
    time::Instant,
    unwinding,
};

/// Switches to the kernel.
fn leave(leave: Leave) {
    leave_for(leave, 0);
}

/// The same, before an access to this address.
#[inline]
fn leave_for(leave: Leave, wants: usize) {
    let yielder = with(|kernel| kernel.leaves(leave, wants));
    if let Some(yielder) = yielder {
        // SAFETY: the yielder lies on the stack of the fiber that runs, which has not returned.
        unwinding::across(|| unsafe { &*yielder }.suspend(()));
    }
}

/// Lets others run whose clocks are behind.
#[inline]
pub(super) fn turn() {
    turn_for(0);
}

/// The same, before an access to this address.
#[inline]
fn turn_for(wants: usize) {
    if with(|kernel| kernel.clock > kernel.horizon) == Some(true) {
        leave_for(Leave::Turn, wants);
    }
}

/// An access to shared memory: it happens when the clocks of all others have reached that of this thread's core.
#[inline]
#[track_caller]
pub(super) fn access(address: usize, touch: Touch) {
    if !is_running() {
        return;
    }
    let at = Location::caller();
    turn_for(address);
    let Some(access) = with(|kernel| kernel.access(address, touch, at)) else { return };
    if let Some(line) = access.booked {
        turn_for(address);
        with(|kernel| kernel.arrive(line, touch, at));
    }
    // What the word is when its line has come is seen, not what it was when the line was asked for.
    if let Some(line) = access.waits {
        turn_for(address);
        if touch == Touch::Change {
            with(|kernel| kernel.takes_effect(line));
        }
    }
}

/// The thread asks for the line of this address, which it is going to access. Nobody else notices.
pub fn ask_for(address: usize) {
    with(|kernel| kernel.scheduler.ask_for(kernel.clock, address));
}

/// The thread has found a pointer in memory.
#[inline]
pub(super) fn learned(pointer: usize) {
    with(|kernel| kernel.scheduler.learned(pointer));
}

/// The cost of a fence.
pub(super) fn fence_cost(ordering: Ordering) {
    turn();
    if ordering == Ordering::SeqCst {
        with(|kernel| {
            kernel.tally().fences += 1;
            let drained = kernel.scheduler.fence(kernel.clock);
            kernel.spend(Spent::Memory, drained);
            kernel.spend(Spent::Computing, kernel.scheduler.costs().fence);
        });
    }
}

/// One round of a spinning loop. On a machine nothing happens here but that time passes: whoever is behind runs before
/// the next access.
pub fn pause() {
    match with(Kernel::pause) {
        Some(()) => give_way(),
        None => std::hint::spin_loop(),
    }
}

/// Whoever spins in a world without costs lets others run, or would do so for ever.
fn give_way() {
    let exploring = with(|kernel| matches!(kernel.scheduler, Scheduler::Explorer(_)));
    if exploring == Some(true) {
        leave(Leave::Yield);
    }
}

/// Looks until `done`, at most so many times, with a pause after each look in vain; whether it was done. On a machine a
/// thread that looks at one word, and at nothing else, sleeps until its line moves, and costs the simulator nothing;
/// its rounds are charged as if they had been run.
pub fn spin_until(rounds: u64, mut done: impl FnMut() -> bool) -> bool {
    let mut left = rounds;
    while left > 0 {
        let before = with(|kernel| (kernel.clock, kernel.tally().loads));
        if done() {
            return true;
        }
        left -= 1;
        // One load, and nothing that takes longer than one that hits.
        let sleeps = with(|kernel| {
            let (clock, loads) = before.unwrap_or_default();
            let one = kernel.tally().loads == loads + 1;
            let took = kernel.clock - clock;
            kernel.pause();
            one && left > 0 && kernel.scheduler.spins(took, left)
        });
        match sleeps {
            Some(true) => {
                leave(Leave::Spin);
                left -= with(|kernel| {
                    let looks = kernel.scheduler.spun();
                    kernel.tally().loads += looks;
                    looks
                })
                .unwrap_or(0);
            }
            Some(false) => give_way(),
            None => std::hint::spin_loop(),
        }
    }
    false
}

/// Computation that takes so many nanoseconds.
pub fn work(nanoseconds: u64) {
    let picoseconds = nanoseconds.saturating_mul(super::time::PICOSECONDS).min(END_OF_TIME >> 10);
    with(|kernel| kernel.spend(Spent::Computing, picoseconds));
}

/// The thread has acquired a latch.
pub fn latched() {
    with(|kernel| kernel.tally().latches += 1);
}

/// What the calling thread does is waited for by others, though it has a name.
pub fn foreground() {
    with(Kernel::foreground);
}

/// The thread has acquired a mutex.
pub(super) fn locked() {
    with(|kernel| kernel.tally().mutexes += 1);
}

/// Whether what may happen for no reason does now.
#[inline]
pub(super) fn has_whim() -> bool {
    with(|kernel| kernel.scheduler.has_whim()) == Some(true)
}

/// Lets another thread of this core run.
pub fn yield_now() {
    with(|kernel| kernel.spend(Spent::System, kernel.scheduler.costs().yielding));
    leave(Leave::Yield);
}

/// Sleeps while `word` is `expected`, until woken or until the deadline; may return for no reason.
///
/// # Panics
/// Outside of a simulation: nobody could wake the thread.
#[track_caller]
pub(super) fn futex_wait(word: &AtomicU32, expected: u32, deadline: Option<Instant>) {
    let at = Location::caller();
    assert!(is_running(), "a thread waits outside of a simulation, at {at}");
    with(|kernel| kernel.spend(Spent::System, kernel.scheduler.costs().futex_wait));
    // From here to the sleep nothing else runs: a wake-up cannot fall between.
    if word.load(Ordering::SeqCst) != expected || has_whim() {
        return;
    }
    sleep(Some(ptr::from_ref(word).addr()), deadline.map(Instant::picoseconds), at);
}

/// Wakes up to `most` threads that sleep on `word`, one after the other; gives how many. Each can run when the time
/// that it takes to wake it is over, and threads whose clocks are behind that moment run before.
pub(super) fn futex_wake(word: &AtomicU32, most: usize) -> usize {
    let futex = ptr::from_ref(word).addr();
    if with(|kernel| kernel.spend(Spent::System, kernel.scheduler.costs().system_call)).is_none() {
        return 0;
    }
    turn();
    let sleepers = with(|kernel| kernel.take_sleepers(futex, most)).unwrap_or_default();
    for &sleeper in &sleepers {
        with(|kernel| kernel.spend(Spent::System, kernel.scheduler.costs().futex_wake));
        turn();
        with(|kernel| kernel.wake_sleeper(sleeper));
    }
    sleepers.len()
}

/// Sleeps until a moment. Outside of a simulation time stands still, and nobody sleeps.
#[track_caller]
pub(super) fn sleep_until(moment: Instant) {
    with(|kernel| kernel.spend(Spent::System, kernel.scheduler.costs().futex_wait));
    sleep(None, Some(moment.picoseconds()), Location::caller());
}

fn sleep(futex: Option<usize>, until: Option<u64>, at: &'static Location<'static>) {
    with(|kernel| kernel.lie_down(futex, until, at));
    leave(Leave::Sleep);
}

/// Starts the thread with the number from [`Kernel::reserve`].
pub(super) fn start(
    number: ThreadNumber,
    name: Option<String>,
    stack_bytes: usize,
    body: Box<dyn FnOnce()>,
) -> io::Result<()> {
    with(|kernel| kernel.spend(Spent::System, kernel.scheduler.costs().spawn));
    turn();
    // Without a stack the body is dropped here, where the kernel is not borrowed: it may sleep.
    let stack = Stack::new(stack_bytes, number)?;
    with(|kernel| kernel.start(number, name, stack, body))
        .ok_or_else(|| io::Error::other("threads start inside of a simulation only"))
}

/// Drops the thread-local values of the thread that runs.
pub(super) fn end_locals() {
    if let Some(locals) = with(Kernel::locals) {
        locals.end();
    }
}
