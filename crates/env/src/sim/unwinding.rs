//! Which simulated thread panics (ENV-10): `std` counts panics by thread of the operating system, which all simulated
//! ones share.
//!
//! While a panic unwinds, what it drops may sleep, and others run meanwhile: to those `std` says that they panic, too.
//! So whoever leaves in the middle of it is counted, and while there is such a thread, another one panics only if it
//! has been seen to begin.
//!
//! That it has ended is not seen where somebody catches it (`catch_unwind`) while another one unwinds: until that is
//! over, the thread is told that it panics still.

use std::{cell::Cell, panic, sync::Once};

std::thread_local! {
    /// Threads that have left while a panic unwound them, and a panic of before this simulation that will never end.
    static LEFT: Cell<usize> = const { Cell::new(0) };
    /// Whether the thread that runs has begun to panic, or goes on doing so; it may have caught the panic since.
    static BEGAN: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic unwinds the calling thread.
#[inline]
pub fn panicking() -> bool {
    std::thread::panicking() && (BEGAN.get() || LEFT.get() == 0)
}

/// A simulation begins on this thread of the operating system.
pub(super) fn begin() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            started();
            usual(panic);
        }));
    });
    // Of a simulation that ended while somebody was in the middle of it.
    LEFT.set(usize::from(std::thread::panicking()));
    BEGAN.set(false);
}

/// A simulated thread begins.
pub(super) fn thread_begins() {
    BEGAN.set(false);
}

/// The thread that runs begins to panic, or goes on with a panic that was caught.
pub(super) fn started() {
    // Not if the thread of the operating system has lost its values: then nothing simulates on it.
    let _ = BEGAN.try_with(|began| began.set(true));
}

/// Runs `others`, which returns when it is this thread's turn again.
#[inline]
pub(super) fn across(others: impl FnOnce()) {
    let panics = panicking();
    LEFT.set(LEFT.get() + usize::from(panics));
    others();
    LEFT.set(LEFT.get() - usize::from(panics));
    BEGAN.set(panics);
}
