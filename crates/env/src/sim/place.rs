//! Where threads of the simulated machine run.

use super::{calls, kernel, time::Instant};

/// How many cores there are.
pub fn available_parallelism() -> usize {
    kernel::with(|kernel| kernel.scheduled().0.processors()).unwrap_or(1)
}

/// On how many cores the calling thread may run: on all, or on the one where it stays.
pub fn processors() -> usize {
    kernel::with(|kernel| {
        let (scheduler, thread) = kernel.scheduled();
        scheduler.processors_of(thread)
    })
    .unwrap_or(1)
}

/// The core that the calling thread runs on; `None` in the explorer's world, which has none.
pub fn processor() -> Option<usize> {
    kernel::with(|kernel| {
        let (scheduler, thread) = kernel.scheduled();
        scheduler.processor_of(thread)
    })
    .flatten()
}

/// Keeps the calling thread on one core: the one of this number, modulo how many there are. It is taken off its own at
/// once and woken there, beside whoever runs there. Whether it was: the explorer's world has no cores, and nothing
/// changes.
#[track_caller]
pub fn pin(number: usize) -> bool {
    let pinned = kernel::with(|kernel| {
        let (scheduler, thread) = kernel.scheduled();
        scheduler.pin(thread, number)
    });
    if pinned == Some(true) {
        calls::sleep_until(Instant::now());
    }
    pinned == Some(true)
}
