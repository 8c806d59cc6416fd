//! A core of the machine.

use std::{collections::VecDeque, panic::Location};

use super::{ThreadNumber, spin::Spin};

/// What each turn looks at comes first, in one line of the real machine's caches.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct Core {
    pub(super) clock: u64,
    /// Who runs; `None` while idle.
    pub(super) running: Option<ThreadNumber>,
    pub(super) slice_end: u64,
    /// How many wait for it, and whether who runs spins: `queue` and `spin` have them.
    pub(super) waiting: u32,
    pub(super) spins: bool,
    /// Threads that are not over, and ran here last or wait to.
    pub(super) residents: usize,
    pub(super) slice_began: u64,
    /// Who waits for it.
    queue: VecDeque<ThreadNumber>,
    /// The thread that ran here last, of those that do not work in the background, and where in the source it sleeps,
    /// while it does. Threads with names do, unless they have said otherwise: nobody's work waits while they sleep.
    pub(super) sleeper: Option<(ThreadNumber, &'static Location<'static>)>,
    /// The thread that runs spins, and sees the same until a line moves.
    pub(super) spin: Option<Spin>,
}

impl Core {
    pub(super) fn push(&mut self, thread: ThreadNumber) {
        self.queue.push_back(thread);
        self.waiting += 1;
    }

    pub(super) fn pop(&mut self) -> Option<ThreadNumber> {
        let thread = self.queue.pop_front()?;
        self.waiting -= 1;
        Some(thread)
    }

    /// How many of those wait that are such.
    pub(super) fn waiting_for(&self, such: impl Fn(ThreadNumber) -> bool) -> usize {
        if self.waiting == 0 { 0 } else { self.queue.iter().filter(|&&thread| such(thread)).count() }
    }

    /// The first of those.
    pub(super) fn pop_one(&mut self, such: impl Fn(ThreadNumber) -> bool) -> Option<ThreadNumber> {
        let place = self.queue.iter().position(|&thread| such(thread))?;
        self.waiting -= 1;
        self.queue.remove(place)
    }

    pub(super) fn set_spin(&mut self, spin: Spin) {
        self.spin = Some(spin);
        self.spins = true;
    }

    pub(super) fn take_spin(&mut self) -> Option<Spin> {
        self.spins = false;
        self.spin.take()
    }
}
