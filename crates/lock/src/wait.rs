//! How long a request waits, and the waiting itself.

use foreshore_base::StorageError;
use foreshore_env::hint::{spin_loop, spin_until};
use foreshore_env::sync::atomic::{AtomicBool, Ordering};
use foreshore_env::sync::{Arc, Mutex};
use foreshore_env::time::{Duration, Instant, earlier};
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

/// The longest nap of a waiter: between two it asks whether there is anything to be locked at all. Hundreds of threads
/// that wait for one key, and wake every 10 ms, keep its holder from the processor.
const LONGEST_NAP: Duration = Duration::from_millis(160);

/// The longest time between two looks of a waiter that has nothing to look for. A look is at all who are in the way, of
/// whom there may be a thousand, who look as well.
const LONGEST_GAP: Duration = Duration::from_secs(10);

/// When a waiter looks for deadlocks. If it has nothing to look for, when it has waited for about twice as long as it
/// had when it looked last: should LOCK-11 ever be wrong, a deadlock lasts so much longer.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    last: Option<Instant>,
    /// From the last look to the next.
    gap: Duration,
}

impl Looks {
    /// Whether it is time for one.
    pub(crate) fn are_due(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| now.saturating_duration_since(last) >= self.gap)
    }

    /// Whether there has been one.
    pub(crate) fn have_begun(&self) -> bool {
        self.last.is_some()
    }

    /// There was one now, which said how to go on.
    pub(crate) fn note(&mut self, now: Instant, pause: Pause) {
        self.gap = match pause {
            Pause::Spin => Duration::ZERO,
            Pause::Sleep if self.have_begun() => (self.gap * 2).clamp(NAP, LONGEST_GAP),
            Pause::Sleep | Pause::Nap => NAP,
        };
        self.last = Some(now);
    }

    /// How long to sleep at most.
    pub(crate) fn nap(&self, now: Instant) -> Duration {
        let since = self.last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        self.gap.saturating_sub(since).min(LONGEST_NAP)
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
        #[cfg(all(test, foreshore_loom))]
        if models::has(models::Fault::Cancellation) {
            return;
        }
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
        let mut looks = Looks::default();
        let stopped = loop {
            if let Some(stopped) = self.has_stopped(slot, word, deadline, policy.cancel) {
                break stopped;
            }
            let now = Instant::now();
            // Between two naps, not in `park`'s own look-around: it takes latches, and a thread that is in the lot's
            // queue must not wait for one.
            if looks.are_due(now) {
                let again = looks.have_begun();
                let pause = self.detector.look(self, slot, word, began, again);
                looks.note(now, pause);
                if !again && !self.detector.waits_in_its_own_way() {
                    self.spin_while_idle(|| own.word() != word);
                }
                if pause == Pause::Spin {
                    for _ in 0..SPINS {
                        spin_loop();
                    }
                    continue;
                }
            }
            let next = looks.nap(now);
            let wake_up = earlier(now + next, deadline);
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

#[cfg(all(test, foreshore_loom))]
pub(crate) mod models;

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn looks_get_rarer_where_nothing_is_to_be_seen() {
        let began = Instant::now();
        let mut now = began;
        let (mut looks, mut naps, mut seen) = (Looks::default(), Vec::new(), Vec::new());
        while now.saturating_duration_since(began) < 4 * LONGEST_GAP {
            if looks.are_due(now) {
                seen.push(now.saturating_duration_since(began).as_millis());
                looks.note(now, Pause::Sleep);
            }
            let nap = looks.nap(now);
            naps.push(nap.as_millis());
            now += nap;
        }
        assert_eq!(naps[..8], [10, 20, 40, 80, 160, 160, 160, 160]);
        assert!(naps.iter().all(|nap| (1..=160).contains(nap)), "{naps:?}");
        let begin = [0, 10, 30, 70, 150, 310, 630, 1270, 2550, 5110, 10230, 20230, 30230];
        assert_eq!(seen[..13], begin);
        looks.note(now, Pause::Nap);
        assert_eq!((looks.nap(now), looks.are_due(now)), (NAP, false));
        looks.note(now, Pause::Spin);
        assert!(looks.are_due(now));
    }
}
