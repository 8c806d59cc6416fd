//! The loop that runs one fiber after the other.

use std::{io, ptr};

use corosensei::CoroutineResult;

use super::{Cause, KERNEL, Kernel, Stack};
use crate::sim::{
    arena,
    calls::end_locals,
    time::{Duration, PICOSECONDS},
};

/// Bytes of stack of the first thread, as Linux gives it.
const MAIN_STACK_BYTES: usize = 8 << 20;

/// Between two looks of whoever watches, in picoseconds.
const WATCH_EVERY: u64 = 100_000 * PICOSECONDS;

/// How a simulation ended.
pub(in crate::sim) struct Ended {
    pub(in crate::sim) kernel: Box<Kernel>,
    /// Why, if its first thread is not over.
    pub(in crate::sim) cause: Option<Cause>,
    /// Threads that were not over, and what they did.
    pub(in crate::sim) left: Vec<String>,
}

/// Runs a simulation whose first thread is `main`, until that is over; `watch` is told the time now and then.
pub(in crate::sim) fn run(
    mut kernel: Box<Kernel>,
    main: Box<dyn FnOnce()>,
    watch: &mut dyn FnMut(Duration),
) -> io::Result<Ended> {
    let first = kernel.reserve();
    let body = Box::new(move || {
        main();
        end_locals();
    });
    kernel.start(first, None, Stack::new(MAIN_STACK_BYTES, first)?, body);
    let kernel = Box::into_raw(kernel);
    let mut cause = None;
    let mut watch_at = WATCH_EVERY;
    loop {
        // SAFETY: no fiber runs, so nothing else borrows the kernel.
        let next = unsafe { &mut *kernel }.next();
        let number = match next {
            Ok(number) => number,
            Err(why) => {
                cause = Some(why);
                break;
            }
        };
        // SAFETY: as above.
        let now = unsafe { &*kernel }.clock;
        if now >= watch_at {
            watch_at = now + WATCH_EVERY;
            watch(Duration::from_nanos(now / PICOSECONDS));
        }
        // SAFETY: as above.
        let fiber = unsafe { &*kernel }.threads[number].fiber;
        KERNEL.set(kernel);
        // SAFETY: a thread that can run is not over and has its fiber, which nobody else touches while it runs.
        let over = arena::inside(|| matches!(unsafe { &mut *fiber }.resume(()), CoroutineResult::Return(())));
        KERNEL.set(ptr::null_mut());
        // SAFETY: as above.
        unsafe { &mut *kernel }.left(over);
        if over && number == first {
            break;
        }
    }
    // SAFETY: it came from a box, and no fiber runs any more.
    let mut kernel = unsafe { Box::from_raw(kernel) };
    let left = kernel.describe();
    for number in 0..kernel.threads.len() {
        let fiber = kernel.threads[number].fiber;
        if !fiber.is_null() {
            // SAFETY: the thread has its fiber, and nobody else knows it.
            let fiber = unsafe { &mut *fiber };
            // SAFETY: what lies on its stack is leaked, as in a process that is killed; nobody waits for it.
            unsafe { fiber.force_reset() };
            kernel.end(number);
        }
    }
    Ok(Ended { kernel, cause, left })
}

impl Kernel {
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
