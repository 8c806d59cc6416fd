//! Transactions that are run within the bodies of others.
//!
//! A thread goes on with the body of the outer transaction when the inner one has ended. So one that waits for a lock
//! of the outer one waits for ever, and nobody sees that: the outer one waits for no lock, so there is no cycle
//! (DB-11).

use std::cell::Cell;

use foreshore_env::{thread_local, time::Duration};

use crate::{
    database::Database,
    error::{Error, Result},
    transact::TransactOptions,
};

/// How long a transaction within the body of another waits for a lock, if nobody has said how long.
const PATIENCE: Duration = Duration::from_secs(10);

thread_local! {
    /// How many bodies this thread is in.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom's has no constant form")]
    static BODIES: Cell<u32> = Cell::new(0);
}

/// For what is given to other threads in a body, which may wait for it: limits its waits for locks as those of a
/// transaction that the body begins, unless somebody has said how long they may last. Gives the limit, if it does.
pub(crate) fn bound(options: &mut TransactOptions, database: &Database) -> Option<Duration> {
    if options.lock_timeout.is_some() || !database.options().lock_timeout.is_zero() {
        return None;
    }
    options.lock_timeout = lock_timeout();
    options.lock_timeout
}

/// Runs a body, or part of it.
#[inline]
pub(crate) fn within<R>(body: impl FnOnce() -> R) -> R {
    struct Within;
    impl Drop for Within {
        fn drop(&mut self) {
            BODIES.with(|bodies| bodies.set(bodies.get() - 1));
        }
    }
    BODIES.with(|bodies| bodies.set(bodies.get() + 1));
    let _within = Within;
    body()
}

/// The limit to waits for locks of a transaction that this thread begins, if it is in a body.
#[inline]
pub(crate) fn lock_timeout() -> Option<Duration> {
    (BODIES.with(Cell::get) > 0).then_some(PATIENCE)
}

/// Makes a call that waits for others, where nobody has said how long: for `usual`, or within a body for its limit if
/// that is shorter; then the error says so.
pub(crate) fn at_most<R>(usual: Duration, call: impl FnOnce(Duration) -> Result<R>) -> Result<R> {
    match lock_timeout() {
        Some(limit) if limit < usual => call(limit).map_err(Error::within_body),
        _ => call(usual),
    }
}
