//! How the spinning latches wait.

use foreshore_env::hint;
use foreshore_env::thread;

/// What most waits that back off grow to: a thousand pauses.
pub(super) const MAX_EXPONENT: u32 = 10;

/// Pauses until a waiter lets another thread run: some hundred microseconds. The paper's spinning latches never do; but
/// when a wait is that long, whoever could end it does not run, and the waiter keeps it from running.
const PATIENCE: u32 = 1 << 14;

/// Looks until it is `done`, with a pause after each look in vain.
#[inline]
pub(super) fn until(mut done: impl FnMut() -> bool) {
    // A look costs about as much as a pause.
    while !hint::spin_until(u64::from(PATIENCE / 2), &mut done) {
        thread::yield_now();
    }
}

/// The longest wait of [`yielding`] between two looks, in pauses.
const MOST_PAUSES: u32 = 16;

/// Looks until it is `done`. After the looks in vain it pauses once, twice, four times and so on, and lets others run
/// after all later ones: so the latches wait that the paper has from Intel's TBB (Böttcher et al. 2020, §3.2). A thread
/// that lets others run is away for a system call, even if there is nobody.
pub(super) fn yielding(mut done: impl FnMut() -> bool) {
    let mut pauses = 1;
    while !done() {
        if cfg!(foreshore_loom) || pauses > MOST_PAUSES {
            thread::yield_now();
            continue;
        }
        for _ in 0..pauses {
            hint::spin_loop();
        }
        pauses *= 2;
    }
}

/// Makes attempts until one gives something, and stays away for 2ⁿ pauses after the n-th in vain; n grows up to
/// [`MAX_EXPONENT`] (Böttcher et al. 2020, §4.5).
pub(super) fn backing_off<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let mut spin = Spin::default();
    let mut failures = 0;
    loop {
        if let Some(entered) = attempt() {
            return entered;
        }
        spin.pause(1 << failures);
        failures = (failures + 1).min(MAX_EXPONENT);
    }
}

/// One wait with pauses of different lengths.
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
