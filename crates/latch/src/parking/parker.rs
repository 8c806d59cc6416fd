//! What one wait of a thread sleeps on.

use std::cell::Cell;

use foreshore_env::sync::{Arc, Condvar, Mutex};
use foreshore_env::thread_local;
use foreshore_env::time::Instant;

thread_local! {
    /// The parker of this thread's next wait. Absent while a wait uses it.
    static SPARE: Cell<Option<Arc<Parker>>> = Cell::default();
}

/// The bed of one wait at a time. The waiting thread and, while that is in a queue, its waker know it.
#[derive(Default)]
pub(super) struct Parker {
    /// Whether the wait was answered, and if so, whether the answer was that the thread holds what it waited for.
    /// Written by whoever took the thread out of a queue, taken by the thread. Nothing else is acquired under it.
    answer: Mutex<Option<bool>>,
    /// Signalled when there is an answer; only the waiting thread waits.
    condvar: Condvar,
}

impl Parker {
    /// Sleeps until there is an answer, until `until` if that is given, or until woken for no reason. Takes the answer,
    /// if there is one: whether it was granted.
    #[track_caller]
    pub(super) fn sleep(&self, until: Option<Instant>) -> Option<bool> {
        let mut answer = self.answer.lock();
        if answer.is_none() {
            answer = match until {
                Some(until) => self.condvar.wait_until(answer, until),
                None => self.condvar.wait(answer),
            };
        }
        answer.take()
    }

    /// Waits for an answer that is on its way, and takes it.
    pub(super) fn await_answer(&self) -> bool {
        let mut answer = self.answer.lock();
        loop {
            if let Some(granted) = answer.take() {
                return granted;
            }
            answer = self.condvar.wait(answer);
        }
    }

    /// Keeps an answer off until this is dropped.
    #[cfg(all(test, not(foreshore_loom)))]
    pub(super) fn hold(&self) -> foreshore_env::sync::MutexGuard<'_, Option<bool>> {
        self.answer.lock()
    }

    /// Answers the wait. Once, by whoever took its thread out of the queue.
    pub(super) fn answer(&self, granted: bool) {
        *self.answer.lock() = Some(granted);
        self.condvar.notify_one();
    }
}

/// A parker in use by one wait. A wait that begins while another of the same thread has not ended (in its `look`) has a
/// parker of its own: two waits with one would take each other's answers (LATCH-9).
pub(super) struct Bed(Arc<Parker>);

impl Bed {
    /// The thread's spare parker; a new one if it has none: at first, within another wait, or while it is being taken
    /// down.
    pub(super) fn take() -> Bed {
        Bed(SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default())
    }

    /// The parker.
    pub(super) fn parker(&self) -> &Arc<Parker> {
        &self.0
    }
}

impl Drop for Bed {
    /// The parker is as new: whoever was going to answer it has, and the answer was taken.
    fn drop(&mut self) {
        let _ = SPARE.try_with(|spare| spare.set(Some(Arc::clone(&self.0))));
    }
}
