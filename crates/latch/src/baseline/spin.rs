//! How the spinning latches wait.

use foreshore_env::hint;
use foreshore_env::thread;

/// Pauses until a waiter lets another thread run: some hundred microseconds. The paper's spinning latches never do; but
/// when a wait is that long, whoever could end it does not run, and the waiter keeps it from running.
const PATIENCE: u32 = 1 << 14;

/// One wait.
#[derive(Default)]
pub(super) struct Spin {
    paused: u32,
}

impl Spin {
    /// Between two looks: pauses so many times.
    #[inline]
    pub(super) fn pause(&mut self, pauses: u32) {
        if cfg!(foreshore_loom) {
            // Whoever ends the wait has to run in a model.
            return hint::spin_loop();
        }
        for _ in 0..pauses {
            hint::spin_loop();
        }
        // A look costs about as much as a pause.
        self.paused += pauses + 1;
        if self.paused >= PATIENCE {
            self.paused = 0;
            thread::yield_now();
        }
    }
}
