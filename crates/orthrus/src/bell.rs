//! How a thread that has nothing to do sleeps, and is woken.

use foreshore_env::{
    hint::spin_loop,
    sync::{
        Condvar, Mutex,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
    time::{Duration, Instant},
};

/// Looks at one's rings before going to sleep.
pub(crate) const LOOKS: u32 = 64;

/// One thread sleeps here; many may ring.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    /// Written by the sleeper. Whoever rings has sent something first and reads this then; the sleeper writes this first and
    /// looks at what was sent then. A fence lies between the two on both sides, so one of them sees the other.
    asleep: AtomicBool,
    /// Whether it was rung since the sleeper looked last.
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    /// Wakes the sleeper, if it sleeps; whether it did. After sending.
    pub(crate) fn ring(&self) -> bool {
        fence(SeqCst);
        self.ring_after_fence()
    }

    /// The same, for those who have had a fence since they sent.
    pub(crate) fn ring_after_fence(&self) -> bool {
        let asleep = self.asleep.load(Relaxed);
        if asleep {
            *self.rung.lock() = true;
            self.changed.notify_one();
        }
        asleep
    }

    /// Sleeps until it is rung, `longest` at most, unless there is `work`.
    pub(crate) fn sleep(&self, longest: Duration, work: impl FnOnce() -> bool) {
        self.asleep.store(true, Relaxed);
        fence(SeqCst);
        if !work() {
            let deadline = Instant::now() + longest;
            let mut rung = self.rung.lock();
            while !*rung && Instant::now() < deadline {
                rung = self.changed.wait_until(rung, deadline);
            }
            *rung = false;
        }
        self.asleep.store(false, Relaxed);
    }
}

/// Between two looks.
pub(crate) fn pause() {
    for _ in 0..32 {
        spin_loop();
    }
}
