//! Where this thread found a slot last: it is free again most of the time, and warm. Nothing but a hint.

use std::cell::Cell;

use foreshore_env::thread_local;

#[cfg(not(foreshore_loom))]
thread_local! {
    static HINT: Cell<usize> = const { Cell::new(usize::MAX) };
}
#[cfg(foreshore_loom)]
thread_local! {
    static HINT: Cell<usize> = Cell::new(usize::MAX);
}

/// The hint; `usize::MAX` if there is none yet.
#[inline]
pub(super) fn get() -> usize {
    HINT.try_with(Cell::get).unwrap_or(0)
}

pub(super) fn set(index: usize) {
    let _ = HINT.try_with(|hint| hint.set(index));
}
