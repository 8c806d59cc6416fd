//! How long a request waits, and the waiting itself.

use foreshore_base::StorageError;
use foreshore_env::hint::{spin_loop, spin_until};
use foreshore_env::sync::atomic::{AtomicBool, Ordering};
use foreshore_env::sync::{Arc, Mutex};
use foreshore_env::time::{Duration, Instant};
use foreshore_latch::parking;
use foreshore_latch::rank;

use crate::deadlock::Pause;
use crate::manager::LockManager;
use crate::slot::{SlotId, WaitWord};

/// Looks at the own wait word before going to sleep, if there is another processor that could change it: about as long
/// as a sleep and a wake-up cost. Most locks are held for longer than any spin that would be worth it.
const SPINS: u64 = 100;

/// How often a waiter spins so, one after the other, while there is a processor that would have nothing else to do: in
/// all about as long as it takes to wake one. A lock that is given to somebody asleep is held meanwhile by nobody who
/// runs, and all behind it wait.
const IDLE_SPINS: usize = 20;

/// The time between two looks of a waiter. The sleep of Kimura et al. 2012, §4.2.
pub const NAP: Duration = Duration::from_millis(10);

/// The longest time between two looks of a waiter that has nothing to look for: should LOCK-11 ever be wrong, a
/// deadlock lasts that long. Hundreds of threads that wait for one key, and look around every 10 ms, keep its holder
/// from the processor.
const LONGEST_NAP: Duration = Duration::from_millis(160);

/// How long somebody sleeps who has slept for `last`, at most.
fn next_nap(last: Option<Duration>, pause: Pause) -> Duration {
    match last {
        Some(last) if pause == Pause::Sleep => (last * 2).min(LONGEST_NAP),
        _ => NAP,
    }
}

/// How a request waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitPolicy<'a> {
    /// Until when, at the latest. `None`: until it is granted, a victim or cancelled.
    pub deadline: Option<Instant>,
    /// For how long, at most, each wait; it ends as at a deadline. `None`: no limit.
    pub timeout: Option<Duration>,
    /// Not at all.
    pub no_wait: bool,
    /// Ends the wait when it is cancelled, at once.
    pub cancel: Option<&'a CancelToken>,
}

impl WaitPolicy<'_> {
    /// Until when a wait lasts that begins at this time.
    pub fn deadline_from(&self, began: Instant) -> Option<Instant> {
        let own = self.timeout.and_then(|timeout| began.checked_add(timeout));
        self.deadline.into_iter().chain(own).min()
    }
}

/// Cancels the lock waits of a transaction from another thread. Clones are the same token. Once cancelled, every wait
/// under it ends at once; locks that are free are still granted.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<Token>);

#[derive(Debug, Default)]
struct Token {
    cancelled: AtomicBool,
    /// Where those sleep who wait under this token, as addresses in the parking lot.
    sleepers: Mutex<Vec<usize>>,
}

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Ends the wait under this token, now and in future.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        // LATCH-5: a thread that comes to the list later has not slept yet, and looks at the flag before.
        let sleepers = self.0.sleepers.lock().clone();
        for address in sleepers {
            parking::unpark_all(address);
        }
    }

    /// What says so, for those who know no locks.
    pub fn flag(&self) -> &AtomicBool {
        &self.0.cancelled
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// The caller is about to sleep at this address, until what is handed back is dropped.
    fn announce(&self, address: usize) -> Sleeper<'_> {
        self.0.sleepers.lock().push(address);
        Sleeper { token: &self.0, address }
    }
}

/// Somebody who is woken by a cancellation.
struct Sleeper<'a> {
    token: &'a Token,
    address: usize,
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        let mut sleepers = self.token.sleepers.lock();
        if let Some(at) = sleepers.iter().position(|address| *address == self.address) {
            sleepers.swap_remove(at);
        }
    }
}

/// Why a waiter stopped waiting. What became of its request is decided under the latch (LOCK-6).
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The wait word says that the wait is over: granted, or a victim.
    Over,
    /// The deadline passed.
    Deadline,
    /// Cancelled.
    Cancelled,
    /// There is nothing to be locked any more.
    Ended(StorageError),
}

impl LockManager {
    /// Sleeps until the wait `word` of `slot` is over, looking for deadlocks meanwhile.
    pub(crate) fn wait(&self, slot: SlotId, word: WaitWord, policy: &WaitPolicy<'_>) -> Stopped {
        rank::assert_none();
        let began = Instant::now();
        let deadline = policy.deadline_from(began);
        let own = self.slots.wait_of(slot);
        spin_until(if self.processors > 1 { SPINS } else { 0 }, || own.word() != word);
        let _sleeper = policy.cancel.map(|cancel| cancel.announce(own.address()));
        let is_cancelled = || policy.cancel.is_some_and(CancelToken::is_cancelled);
        let mut nap = None;
        let stopped = loop {
            if let Some(stopped) = self.has_stopped(slot, word, deadline, policy.cancel) {
                break stopped;
            }
            let now = Instant::now();
            // Between two naps, not in `park`'s own look-around: it takes latches, and a thread that is in the lot's
            // queue must not wait for one.
            let pause = self.detector.look(self, slot, word, began, nap.is_some());
            let next = next_nap(nap, pause);
            if nap.is_none() && !self.detector.waits_in_its_own_way() {
                self.spin_while_idle(|| own.word() != word);
            }
            nap = Some(next);
            if pause == Pause::Spin {
                for _ in 0..SPINS {
                    spin_loop();
                }
                continue;
            }
            let wake_up = deadline.map_or(now + next, |deadline| deadline.min(now + next));
            // LATCH-5: the announcement is the request in the queue. The thread that ends the wait changes the word
            // first and wakes the address then, so a sleeper is either seen or sees the change. One that cancels does
            // the same with the flag.
            parking::park_until(own.address(), || own.word() == word && !is_cancelled(), wake_up);
        };
        self.has_waited(slot, began);
        stopped
    }

    /// Spins for a moment until `over`, as long as no more transactions run, or wait so, than there are processors.
    fn spin_while_idle(&self, over: impl Fn() -> bool) {
        if self.processors == 1 {
            return;
        }
        // Relaxed, all of it: it is a guess, which costs time if it is wrong.
        self.spinners.fetch_add(1, Ordering::Relaxed);
        for _ in 0..IDLE_SPINS {
            let running = self.slots.running().take(self.processors).count();
            let idle = running + self.spinners.load(Ordering::Relaxed) <= self.processors;
            if !idle || spin_until(SPINS, &over) {
                break;
            }
        }
        self.spinners.fetch_sub(1, Ordering::Relaxed);
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
            self.lifeline.as_ref().and_then(|lifeline| lifeline.check().err()).map(Stopped::Ended)
        }
    }

    /// A wait that began at `began` has ended.
    pub(crate) fn has_waited(&self, slot: SlotId, began: Instant) {
        self.detector.leave(slot);
        self.counters.waited(began.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_get_longer_where_nothing_is_to_be_seen() {
        let mut naps = vec![next_nap(None, Pause::Sleep)];
        for _ in 0..6 {
            naps.push(next_nap(naps.last().copied(), Pause::Sleep));
        }
        assert_eq!(naps.iter().map(Duration::as_millis).collect::<Vec<_>>(), [10, 20, 40, 80, 160, 160, 160]);
        assert_eq!(next_nap(Some(LONGEST_NAP), Pause::Nap), NAP);
    }
}
