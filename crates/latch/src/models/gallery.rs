//! The gallery's latches: every pair of operations on two threads, and three threads where there is a queue. The words
//! that a latch guards are relaxed; what it orders is what its own atomics order.
//!
//! `Tas` has no model: its waiters write at every look, and the search for interleavings of those writes has no end.

use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
use foreshore_env::thread;

use super::{explore, must_fail};
use crate::baseline::{
    HybridSpinning, Latch, Mcs, OptimisticLatch, QueuingRw, SpinRw, StdMutex, StdRwLock, Ticket, Ttas,
    TtasBackoff,
};

#[derive(Default)]
struct Guarded<L> {
    latch: L,
    first: AtomicU64,
    second: AtomicU64,
}

impl<L: Latch> Guarded<L> {
    fn see(&self) -> (u64, u64) {
        (self.first.load(Relaxed), self.second.load(Relaxed))
    }

    fn add(&self) -> u64 {
        let (first, second) = self.see();
        assert_eq!(first, second, "torn under an exclusive latch");
        self.first.store(first + 1, Relaxed);
        self.second.store(second + 1, Relaxed);
        1
    }

    fn check(&self) -> u64 {
        let (first, second) = self.see();
        assert_eq!(first, second, "torn under a shared latch");
        0
    }
}

/// What a thread does; how many changes it has made.
type Program<L> = fn(&Guarded<L>) -> u64;

fn change<L: Latch>(guarded: &Guarded<L>) -> u64 {
    guarded.latch.exclusive(|| guarded.add())
}

fn try_change<L: Latch>(guarded: &Guarded<L>) -> u64 {
    guarded.latch.try_exclusive(|| guarded.add()).unwrap_or(0)
}

fn share<L: Latch>(guarded: &Guarded<L>) -> u64 {
    guarded.latch.shared(|| guarded.check())
}

fn try_share<L: Latch>(guarded: &Guarded<L>) -> u64 {
    guarded.latch.try_shared(|| guarded.check()).unwrap_or(0)
}

fn look<L: Latch>(guarded: &Guarded<L>) -> u64 {
    if let Some((first, second)) = guarded.latch.try_optimistic(|| guarded.see()) {
        assert_eq!(first, second, "torn, and validated");
    }
    0
}

/// Two or three threads, in every interleaving with at most `preemptions` preemptions. Then all changes have arrived,
/// and the latch is free.
fn run<L: Latch>(name: &str, preemptions: Option<usize>, programs: &'static [Program<L>]) {
    explore(name, preemptions, move || {
        let guarded = Arc::new(Guarded::<L>::default());
        let (own, others) = programs.split_first().unwrap();
        let others: Vec<_> = others
            .iter()
            .map(|other| {
                let guarded = Arc::clone(&guarded);
                thread::spawn(move || other(&guarded))
            })
            .collect();
        let mut changes = own(&guarded);
        for other in others {
            changes += other.join().unwrap();
        }
        assert_eq!(guarded.see(), (changes, changes), "a change was lost");
        assert!(guarded.latch.try_exclusive(|| ()).is_some(), "the latch was left held");
    });
}

/// Every pair.
fn pairs<L: Latch>(name: &str) {
    run::<L>(&format!("{name}: exclusive/exclusive"), None, &[change, change]);
    run::<L>(&format!("{name}: exclusive/try_exclusive"), None, &[change, try_change]);
    run::<L>(&format!("{name}: try_exclusive/try_exclusive"), None, &[try_change, try_change]);
    if L::SHARES {
        run::<L>(&format!("{name}: exclusive/shared"), None, &[change, share]);
        run::<L>(&format!("{name}: exclusive/try_shared"), None, &[change, try_share]);
        run::<L>(&format!("{name}: shared/shared"), None, &[share, share]);
        run::<L>(&format!("{name}: shared/try_exclusive"), None, &[share, try_change]);
    }
    if L::OPTIMISTIC {
        run::<L>(&format!("{name}: exclusive/optimistic"), None, &[change, look]);
        run::<L>(&format!("{name}: try_exclusive/optimistic"), None, &[try_change, look]);
    }
}

/// Three threads.
fn triples<L: Latch>(name: &str) {
    run::<L>(&format!("{name}: three exclusive"), Some(2), &[change, change, change]);
    if L::SHARES {
        run::<L>(&format!("{name}: two exclusive, shared"), Some(2), &[change, change, share]);
        run::<L>(&format!("{name}: exclusive, two shared"), Some(2), &[change, share, share]);
    }
}

#[test]
fn spinlocks() {
    pairs::<Ttas>("ttas");
    pairs::<TtasBackoff>("ttas_backoff");
}

#[test]
fn ticket() {
    pairs::<Ticket>("ticket");
}

#[test]
fn mcs() {
    pairs::<Mcs>("mcs");
    triples::<Mcs>("mcs");
}

#[test]
fn spin_rw() {
    pairs::<SpinRw>("spin_rw");
}

#[test]
fn queuing_rw() {
    pairs::<QueuingRw>("queuing_rw");
    triples::<QueuingRw>("queuing_rw");
    run::<QueuingRw>("queuing_rw: three shared", Some(2), &[share, share, share]);
}

#[test]
fn hybrid_spinning() {
    pairs::<HybridSpinning>("hybrid_spinning");
}

#[test]
fn optimistic() {
    pairs::<OptimisticLatch>("optimistic");
    run::<OptimisticLatch>("optimistic: two exclusive, optimistic", Some(2), &[change, change, look]);
}

#[test]
fn standard() {
    pairs::<StdMutex>("std_mutex");
    pairs::<StdRwLock>("std_rwlock");
}

/// An optimistic latch with one step wrong.
#[derive(Default)]
struct Faulty<const FAULT: u8> {
    word: AtomicU64,
}

const RELEASED_RELAXED: u8 = 0;
const WITHOUT_RELEASE_FENCE: u8 = 1;
const WITHOUT_ACQUIRE_FENCE: u8 = 2;
const VERSION_FORGOTTEN: u8 = 3;

impl<const FAULT: u8> Latch for Faulty<FAULT> {
    const SHARES: bool = false;
    const OPTIMISTIC: bool = true;

    fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        let word = loop {
            let word = self.word.load(Relaxed);
            if word & 1 == 0 && self.word.compare_exchange(word, word | 1, Acquire, Relaxed).is_ok() {
                break word;
            }
            thread::yield_now();
        };
        if FAULT != WITHOUT_RELEASE_FENCE {
            fence(Release);
        }
        let changed = change();
        let after = if FAULT == VERSION_FORGOTTEN { word } else { word + 2 };
        self.word.store(after, if FAULT == RELEASED_RELAXED { Relaxed } else { Release });
        changed
    }

    fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        Some(self.exclusive(change))
    }

    fn try_optimistic<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        let before = self.word.load(Acquire);
        if before & 1 != 0 {
            return None;
        }
        let seen = read();
        if FAULT != WITHOUT_ACQUIRE_FENCE {
            fence(Acquire);
        }
        (self.word.load(Relaxed) == before).then_some(seen)
    }
}

#[test]
fn planted_release_relaxed() {
    must_fail("gallery::planted_release_relaxed", "a change was lost", || {
        run::<Faulty<RELEASED_RELAXED>>("planted", None, &[change, change]);
    });
}

#[test]
fn planted_no_release_fence() {
    must_fail("gallery::planted_no_release_fence", "torn, and validated", || {
        run::<Faulty<WITHOUT_RELEASE_FENCE>>("planted", None, &[change, look]);
    });
}

#[test]
fn planted_no_acquire_fence() {
    must_fail("gallery::planted_no_acquire_fence", "torn, and validated", || {
        run::<Faulty<WITHOUT_ACQUIRE_FENCE>>("planted", None, &[change, look]);
    });
}

#[test]
fn planted_version_forgotten() {
    must_fail("gallery::planted_version_forgotten", "torn, and validated", || {
        run::<Faulty<VERSION_FORGOTTEN>>("planted", None, &[change, look]);
    });
}
