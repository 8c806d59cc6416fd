//! Waiting for a latch and leaving one that others wait for: everything off the fast path.
//!
//! A waiter notes itself in the word (`PARKED`) while the latch is held, and sleeps only if, under the mutex of its
//! parking space, the note still stands and the latch is still held. `PARKED` is cleared under that mutex alone. So
//! whoever frees the latch after the note was made sees it, and finds the sleeper in the queue or sends it back.
//!
//! Of the sleepers one is woken at a time (or all sharers at the head of the queue), and as long as that one is under
//! way (`WAKING`) nobody else is woken: running threads pass the latch among them meanwhile instead of going to the
//! kernel at each release. The price, that a woken thread can lose the race against running ones, is bounded: it goes
//! back to the head of the queue, and after `RACES` losses it is given the latch by whoever leaves.

use std::panic;

use foreshore_env::hint;
use foreshore_env::sabotage::{Fault, planted};
use foreshore_env::sync::OnceLock;
use foreshore_env::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use foreshore_env::thread;
use foreshore_env::time::Instant;

use super::{EXCLUSIVE, HOLDERS, HybridLatch, PARKED, SHARER, WAKING, WaitEnded, Wish};
use crate::parking::{self, Ended, Next, Pass, Wait};

/// Races that a woken thread may lose before the latch is handed to it. Models are smaller.
pub(super) const RACES: u32 = if cfg!(foreshore_loom) { 1 } else { 4 };

/// Rounds of spinning before a thread sleeps; round *n* pauses 2ⁿ times. 255 pauses in all are less than a sleep and a
/// wake-up take: a thread that sleeps while the latch of a hot page changes hands makes all behind it wait.
const SPIN_ROUNDS: u32 = 8;

impl HybridLatch {
    /// Waits without end, and without a look around: nothing but the holder ends the wait. Hundreds of threads that
    /// wait for one which has lost its processor would otherwise take turns with it, only to find that nothing has
    /// happened.
    #[cold]
    pub(super) fn wait_always(&self, wish: Wish) {
        while self.wait(wish, None, None).is_err() {}
    }

    /// Waits until this thread has entered, or the wait ended otherwise.
    #[cold]
    pub(super) fn wait(
        &self,
        wish: Wish,
        deadline: Option<Instant>,
        mut look: Option<&mut dyn FnMut() -> bool>,
    ) -> Result<(), WaitEnded> {
        // How often this thread was woken for nothing.
        let mut losses = 0;
        // Whether WAKING stands for this thread.
        let mut waking = false;
        loop {
            if self.spin(wish, losses, waking) {
                return Ok(());
            }
            let Some(word) = self.note(wish, losses, waking) else { continue };
            check_state(word);
            waking = false;
            let wait = Wait { wish: Some(wish), favoured: losses > 0, due: losses >= RACES };
            let still_needed = || {
                // Relaxed: PARKED is cleared under the mutex that is held here, so a note that was answered is not
                // mistaken for one that stands. Whether the latch is held does not matter then (LATCH-4); to look at it
                // saves a sleep.
                let word = self.word.load(Relaxed);
                word & PARKED != 0 && must_wait(wish, word, losses)
            };
            let look = look.as_mut().map(|look| &mut **look as &mut dyn FnMut() -> bool);
            let (ended, panicked) = parking::park_for(self.address(), wait, still_needed, deadline, look);
            match ended {
                Ended::NotNeeded => {}
                Ended::Woken => (losses, waking) = (losses + 1, true),
                Ended::Granted if panicked.is_none() => return Ok(()),
                Ended::Granted => self.leave(wish.unit(), 0),
                Ended::Deadline | Ended::GaveUp => {
                    // Clears the note if it was the last, and lets in the sharers behind a writer: they need not wait
                    // for the sharers that hold the latch.
                    self.pass_on(0, 0);
                    if panicked.is_none() {
                        let ended =
                            if ended == Ended::Deadline { WaitEnded::Deadline } else { WaitEnded::GaveUp };
                        return Err(ended);
                    }
                }
            }
            if let Some(panic) = panicked {
                if waking {
                    self.decline();
                }
                panic::resume_unwind(panic);
            }
        }
    }

    /// Tries for a moment, on the assumption that latches are held for less time than it takes to sleep.
    fn spin(&self, wish: Wish, losses: u32, waking: bool) -> bool {
        for round in 0.. {
            let word = self.word.load(Relaxed);
            if !must_wait(wish, word, losses) {
                let entered = (word + wish.unit()) & !flag(waking, WAKING);
                // Acquire at least: partners are the releases of whoever left. SeqCst for LATCH-10.
                if self.word.compare_exchange_weak(word, entered, SeqCst, Relaxed).is_ok() {
                    check_state(entered);
                    return true;
                }
            }
            if round >= spin_rounds() {
                break;
            }
            for _ in 0..1 << round {
                hint::spin_loop();
            }
        }
        false
    }

    /// Makes sure that the word says that somebody sleeps, and that WAKING no longer stands for this thread, in a step
    /// that finds the latch held: the holder will look. `None` if there is no reason to wait any more.
    fn note(&self, wish: Wish, losses: u32, waking: bool) -> Option<u64> {
        let word = self.word.load(Relaxed);
        if !must_wait(wish, word, losses) {
            return None;
        }
        let noted = (word | PARKED) & !flag(waking, WAKING);
        // Relaxed: a note publishes nothing; that the holder sees it follows from the order of changes of one word.
        // The exchange also proves a word that needs no change to be the current one.
        self.word.compare_exchange(word, noted, Relaxed, Relaxed).is_ok().then_some(noted)
    }

    /// A woken thread that no longer wants the latch: clears WAKING while the latch is held, or passes the turn on.
    #[cold]
    fn decline(&self) {
        loop {
            let word = self.word.load(Relaxed);
            if word & HOLDERS == 0 {
                if self.enter_unless_held(Wish::Exclusive) {
                    self.word.fetch_and(!WAKING, Relaxed);
                    return self.leave(EXCLUSIVE, 0);
                }
            } else if self.word.compare_exchange(word, word & !WAKING, Relaxed, Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Gives back `held` of the word and keeps `kept` of it, waking whom that lets in.
    #[cold]
    pub(super) fn leave(&self, held: u64, kept: u64) {
        let mut word = self.word.load(Relaxed);
        loop {
            let rest = word - held + kept;
            let sleepers = rest & (PARKED | WAKING) == PARKED;
            if sleepers && (rest & HOLDERS == 0 || kept != 0) {
                return self.pass_on(held, kept);
            }
            // Release: partners are the acquiring loads and exchanges of whoever looks or enters next.
            match self.word.compare_exchange_weak(word, rest, Release, Relaxed) {
                Ok(_) => return check_state(rest),
                Err(newer) => word = newer,
            }
        }
    }

    /// As [`leave`](Self::leave), under the mutex of the parking space: decides who is next, and frees the latch in the
    /// same step that says so in the word (LATCH-4).
    #[cold]
    fn pass_on(&self, held: u64, kept: u64) {
        parking::pass(self.address(), |next| {
            let mut word = self.word.load(Relaxed);
            loop {
                let rest = word - held + kept;
                let (new, pass) = successor(rest, next);
                // AcqRel at least: releases as in `leave`; acquires what sharers that left before have released, for a
                // successor that is given the latch and will not look at the word itself. SeqCst for LATCH-10.
                match self.word.compare_exchange_weak(word, new, SeqCst, Relaxed) {
                    Ok(_) => {
                        check_state(new);
                        return pass;
                    }
                    Err(newer) => word = newer,
                }
            }
        });
    }

    /// Under which the waiters of this latch are known in the parking lot. Odd, so that it is not the address of a
    /// structure that begins with the latch and whose users park as well.
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr() | 1
    }
}

/// The word after a holder has left `rest` behind, and what to do with the first sleeper.
pub(super) fn successor(rest: u64, next: Option<Next>) -> (u64, Pass) {
    let Some(next) = next.filter(|_| !planted(Fault::LatchSleepersForgotten)) else {
        return (rest & !PARKED, Pass::Leave);
    };
    let (Some(wish), 0) = (next.wish, rest & WAKING) else { return (rest, Pass::Leave) };
    if !wish.may_enter(rest) {
        return (rest, Pass::Leave);
    }
    let rest = (rest & !PARKED) | flag(next.more, PARKED);
    if next.due { (rest + wish.unit() * next.count as u64, Pass::Grant) } else { (rest | WAKING, Pass::Wake) }
}

/// Whether the state of the latch forbids to enter. A newcomer does not join the sharers while somebody sleeps; a
/// thread that has slept has waited its turn.
fn must_wait(wish: Wish, word: u64, losses: u32) -> bool {
    let behind_a_sleeper = wish == Wish::Shared && losses == 0 && word & PARKED != 0 && word >= SHARER;
    behind_a_sleeper || !wish.may_enter(word)
}

fn flag(set: bool, flag: u64) -> u64 {
    if set { flag } else { 0 }
}

/// The states that never occur: LATCH-3 and LATCH-4. Checked in debug builds and in models.
fn check_state(word: u64) {
    if cfg!(any(debug_assertions, foreshore_loom)) {
        assert!(word & EXCLUSIVE == 0 || word < SHARER, "exclusive beside sharers: {word:#x}");
        assert!(word & (HOLDERS | PARKED | WAKING) != PARKED, "free with sleepers, nobody woken: {word:#x}");
    }
}

/// Spinning helps only if the holder runs at the same time.
fn spin_rounds() -> u32 {
    static ROUNDS: OnceLock<u32> = OnceLock::new();
    *ROUNDS.get_or_init(|| {
        let alone = thread::available_parallelism() == 1;
        if alone || cfg!(foreshore_loom) { 0 } else { SPIN_ROUNDS }
    })
}
