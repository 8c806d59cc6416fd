//! How long a request waits, and the waiting itself.

use foreshore_env::hint::{spin_loop, spin_until};
use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::{AtomicBool, Ordering};
use foreshore_env::time::{Duration, Instant};
use foreshore_latch::parking;
use foreshore_latch::rank;

use crate::deadlock::Pause;
use crate::manager::LockManager;
use crate::slot::{SlotId, WaitWord};

/// Looks at the own wait word before going to sleep, if there is another processor that could change it: about as long
/// as a sleep and a wake-up cost. Most locks are held for longer than any spin that would be worth it.
const SPINS: u64 = 100;

/// Between two looks: bounds how late a cancellation is seen.
const NAP: Duration = Duration::from_millis(10);

/// How a request waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitPolicy<'a> {
    /// Until when, at the latest. `None`: until it is granted, a victim or cancelled.
    pub deadline: Option<Instant>,
    /// For how long, at most, each wait; it ends as at a deadline. `None`: no limit.
    pub timeout: Option<Duration>,
    /// Not at all.
    pub no_wait: bool,
    /// Ends the wait when it is cancelled, within 20 ms.
    pub cancel: Option<&'a CancelToken>,
}

impl WaitPolicy<'_> {
    /// Until when a wait lasts that begins at this time.
    pub(crate) fn deadline_from(&self, began: Instant) -> Option<Instant> {
        let own = self.timeout.and_then(|timeout| began.checked_add(timeout));
        self.deadline.into_iter().chain(own).min()
    }
}

/// Cancels the lock waits of a transaction from another thread. Clones are the same token. Once cancelled, every wait
/// under it ends at once; locks that are free are still granted.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Ends the wait under this token, now and in future.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// What says so, for those who know no locks.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Why a waiter stopped waiting. What became of its request is decided under the latch (LOCK-6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// The wait word says that the wait is over: granted, or a victim.
    Over,
    /// The deadline passed.
    Deadline,
    /// Cancelled.
    Cancelled,
}

impl LockManager {
    /// Sleeps until the wait `word` of `slot` is over, looking for deadlocks meanwhile.
    pub(crate) fn wait(&self, slot: SlotId, word: WaitWord, policy: &WaitPolicy<'_>) -> Stopped {
        rank::assert_none();
        let began = Instant::now();
        let deadline = policy.deadline_from(began);
        let own = self.slots.wait_of(slot);
        spin_until(if self.processors > 1 { SPINS } else { 0 }, || own.word() != word);
        let mut again = false;
        let stopped = loop {
            if let Some(stopped) = self.has_stopped(slot, word, deadline, policy.cancel) {
                break stopped;
            }
            let now = Instant::now();
            // Between two naps, not in `park`'s own look-around: it takes latches, and a thread that is in the lot's queue
            // must not wait for one.
            let pause = self.detector.look(self, slot, word, began, again);
            again = true;
            if pause == Pause::Spin {
                for _ in 0..SPINS {
                    spin_loop();
                }
                continue;
            }
            let wake_up = deadline.map_or(now + NAP, |deadline| deadline.min(now + NAP));
            // LATCH-5: the announcement is the request in the queue. Who ends the wait changes the word first and wakes
            // the address then, so a sleeper is either seen or sees the change.
            parking::park(own.address(), || own.word() == word, Some(wake_up), || true);
        };
        self.has_waited(slot, began);
        stopped
    }

    /// Whether the wait `word` of `slot` has come to an end.
    pub(crate) fn has_stopped(
        &self,
        slot: SlotId,
        word: WaitWord,
        deadline: Option<Instant>,
        cancel: Option<&CancelToken>,
    ) -> Option<Stopped> {
        if self.slots.wait_of(slot).word() != word {
            Some(Stopped::Over)
        } else if cancel.is_some_and(CancelToken::is_cancelled) {
            Some(Stopped::Cancelled)
        } else if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            Some(Stopped::Deadline)
        } else {
            None
        }
    }

    /// A wait that began at `began` has ended.
    pub(crate) fn has_waited(&self, slot: SlotId, began: Instant) {
        self.detector.leave(slot);
        self.counters.waited(began.elapsed());
    }
}
