//! How a thread that has nothing to do sleeps, and is woken.

use foreshore_env::{
    hint::spin_loop,
    sync::{
        Condvar, Mutex,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
            fence,
        },
    },
    time::Instant,
};

/// Looks at one's rings before going to sleep.
pub(crate) const LOOKS: u32 = 64;

/// One thread sleeps here; many may ring.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    /// Written by the sleeper. Whoever rings has sent something first and reads this then; the sleeper writes this
    /// first and looks at what was sent then. A fence lies between the two on both sides, so one of them sees the
    /// other. Release, for whoever goes on to read `hungry`, with Acquire: it is that of this sleep, or of a later one.
    asleep: AtomicBool,
    /// Whether the sleeper has room for a job, and was not rung for one. Written by it before `asleep`, and read with
    /// it, by the same fences; whoever takes it away wakes the sleeper, which writes it again before it sleeps again.
    hungry: AtomicBool,
    /// Whether somebody waits for a lock in a partition of the sleeper's. As `hungry`.
    restless: AtomicBool,
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
            self.wake();
        }
        asleep
    }

    /// The same, of a sleeper that has room for a job: another would only sleep on. Once for each sleep: the next job
    /// is for the next sleeper.
    pub(crate) fn ring_hungry_after_fence(&self) -> bool {
        let rings =
            self.asleep.load(Acquire) && self.hungry.load(Relaxed) && self.hungry.swap(false, Relaxed);
        if rings {
            self.wake();
        }
        rings
    }

    fn wake(&self) {
        *self.rung.lock() = true;
        self.changed.notify_one();
    }

    /// Wakes a sleeper who has to do with locks that are waited for, if it sleeps: after one of them was given back. It
    /// is asked behind the fence whose bell that is: before, it might be said to be that of a thread which has left the
    /// lock to another since, and this one has looked, has not seen that the lock is free, and sleeps.
    pub(crate) fn ring_restless<'b>(whose: impl FnOnce() -> &'b Bell) {
        fence(SeqCst);
        let bell = whose();
        if bell.restless.load(Relaxed) {
            bell.ring_after_fence();
        }
    }

    /// Sleeps until it is rung, or `until` then, unless there is `work`. `hungry`: whether it has room for a job;
    /// `restless`: whether it has to do with locks that are waited for.
    pub(crate) fn sleep(&self, until: Instant, hungry: bool, restless: bool, work: impl FnOnce() -> bool) {
        self.hungry.store(hungry, Relaxed);
        self.restless.store(restless, Relaxed);
        self.asleep.store(true, Release);
        fence(SeqCst);
        if !work() {
            let mut rung = self.rung.lock();
            let mut late = false;
            while !*rung && !late {
                rung = self.changed.wait_until(rung, until);
                late = Instant::now() >= until;
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

#[cfg(all(test, foreshore_loom))]
mod models {
    use foreshore_env::{
        sync::{Arc, atomic::AtomicUsize},
        thread,
        time::Duration,
    };

    use super::*;

    /// One thread gives back a lock that is waited for; another, which comes to look after it at that time, looks, and
    /// sleeps. Loom has no time: if it sleeps and is not rung for, that is a deadlock.
    #[test]
    fn a_lock_that_is_free_wakes_whoever_looks_after_it_by_now() {
        const LONG: Duration = Duration::from_secs(3600);
        loom::model(|| {
            let bells = Arc::new([Bell::default(), Bell::default()]);
            let owner = Arc::new(AtomicUsize::new(0));
            let is_free = Arc::new(AtomicBool::new(false));
            let (theirs, owned, freed) = (Arc::clone(&bells), Arc::clone(&owner), Arc::clone(&is_free));
            let looking = thread::spawn(move || {
                owned.store(1, SeqCst);
                while !freed.load(Relaxed) {
                    theirs[1].sleep(Instant::now() + LONG, false, true, || freed.load(Relaxed));
                }
            });
            is_free.store(true, Relaxed);
            Bell::ring_restless(|| &bells[owner.load(SeqCst)]);
            looking.join().unwrap();
        });
    }
}
