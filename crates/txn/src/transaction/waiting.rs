//! How long a transaction waits, and whether it had to.

use foreshore_env::time::{Duration, Instant};
use foreshore_lock::{CancelToken, WaitPolicy};

use super::Txn;

/// How long a transaction waits for locks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) deadline: Option<Instant>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) no_wait: bool,
    pub(crate) cancel: Option<CancelToken>,
}

impl Waiting {
    #[inline]
    pub(crate) fn policy(&self) -> WaitPolicy<'_> {
        let Waiting { deadline, timeout, no_wait, ref cancel } = *self;
        WaitPolicy { deadline, timeout, no_wait, cancel: cancel.as_ref() }
    }
}

impl Txn {
    /// Whether it had to wait for a lock on a key.
    pub fn has_waited(&self) -> bool {
        self.session.owner.has_waited()
    }

    /// Whether it has filled the log's buffer with others, some of whom wait for room there now.
    pub fn crowds_log(&self) -> bool {
        self.session.has_records() && self.session.core().log.is_awaited()
    }
}
