//! The contract of [`Latch`], over every kind: the road's too. Threads are few and runs are bounded in time, because
//! waiters of a spinning latch keep the processors busy.

use std::panic::{AssertUnwindSafe, catch_unwind};

use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use foreshore_env::thread;
use foreshore_env::time::{Duration, Instant};

use super::{Latch, LatchKind, Visit};
use crate::Patience;

/// What no wait here may take.
const FAR: Duration = Duration::from_secs(60);
/// How long a crowd works.
const SPAN: Duration = Duration::from_millis(60);

/// Runs a check of the suite over all kinds.
macro_rules! over_all {
    ($($check:ident),* $(,)?) => {$(
        #[test]
        fn $check() {
            struct Check(LatchKind);
            impl Visit for Check {
                type Output = ();
                fn visit<L: Latch>(self) {
                    suite::$check::<L>(self.0.name());
                }
            }
            for kind in LatchKind::ALL {
                kind.visit(Check(*kind));
            }
        }
    )*};
}

over_all! {
    a_holder_alone_excludes_everybody,
    readers_overlap_where_promised,
    attempts_leave_nothing_behind,
    an_optimistic_read_fails_exactly_when_a_writer_was_there,
    a_panic_lets_the_latch_go,
    no_change_is_lost_and_no_read_is_torn,
    nobody_is_forgotten,
    waits_end_when_patience_does,
}

mod suite {
    use super::*;

    pub(super) fn a_holder_alone_excludes_everybody<L: Latch>(name: &str) {
        let latch = L::default();
        latch.exclusive(|| {
            assert!(latch.try_exclusive(|| ()).is_none(), "{name}: two alone");
            assert!(latch.try_shared(|| ()).is_none(), "{name}: a reader beside a writer");
            assert!(latch.try_optimistic(|| ()).is_none(), "{name}: read beside a writer");
        });
        latch.shared(|| {
            assert!(latch.try_exclusive(|| ()).is_none(), "{name}: a writer beside a reader");
        });
    }

    pub(super) fn readers_overlap_where_promised<L: Latch>(name: &str) {
        let latch = L::default();
        let both = [AtomicBool::new(false), AtomicBool::new(false)];
        if !L::SHARES {
            latch.shared(|| assert!(latch.try_shared(|| ()).is_none(), "{name}: shares, and should not"));
            return;
        }
        latch.shared(|| {
            let entered = latch.try_shared(|| ()).is_some();
            assert_eq!(entered, L::ATTEMPTS_SHARE, "{name}: a second reader, by attempt");
        });
        // By waiting as well: each stays inside until the other is.
        let enter = |own: usize| {
            latch.shared(|| {
                both[own].store(true, Release);
                let begin = Instant::now();
                while !both[1 - own].load(Acquire) {
                    assert!(begin.elapsed() < FAR, "{name}: the other reader does not come in");
                    thread::yield_now();
                }
            });
        };
        thread::scope(|scope| {
            scope.spawn(|| enter(0));
            enter(1);
        });
    }

    pub(super) fn attempts_leave_nothing_behind<L: Latch>(name: &str) {
        let latch = L::default();
        for _ in 0..3 {
            assert_eq!(latch.try_exclusive(|| 1), Some(1), "{name}: free, and refused to a writer");
            assert_eq!(latch.try_shared(|| 2), Some(2), "{name}: free, and refused to a reader");
            latch.exclusive(|| {
                assert!(latch.try_exclusive(|| ()).is_none() && latch.try_shared(|| ()).is_none())
            });
            latch.shared(|| assert!(latch.try_exclusive(|| ()).is_none()));
        }
        assert_eq!(latch.exclusive(|| 3) + latch.shared(|| 4) + latch.read(|| 5), 12);
    }

    pub(super) fn an_optimistic_read_fails_exactly_when_a_writer_was_there<L: Latch>(name: &str) {
        let latch = L::default();
        if !L::OPTIMISTIC {
            assert_eq!(latch.try_optimistic(|| 1), None, "{name}");
            return;
        }
        for _ in 0..3 {
            assert_eq!(latch.try_optimistic(|| 1), Some(1), "{name}: nobody was there");
            let by_writer = latch.try_optimistic(|| latch.exclusive(|| ()));
            assert!(by_writer.is_none(), "{name}: a writer was not noticed");
            let by_attempt = latch.try_optimistic(|| latch.try_exclusive(|| ()).unwrap());
            assert!(by_attempt.is_none(), "{name}: a writer by attempt was not noticed");
            let by_refused = latch.shared(|| latch.try_optimistic(|| latch.try_exclusive(|| ()).is_none()));
            assert_eq!(by_refused, L::SHARES.then_some(true), "{name}: a refused writer changed something");
            let by_reader = latch.try_optimistic(|| latch.shared(|| ()));
            assert_eq!(by_reader.is_some(), L::SHARES, "{name}: a reader is taken for what it is not");
        }
        assert_eq!(latch.read(|| 6), 6);
    }

    pub(super) fn a_panic_lets_the_latch_go<L: Latch>(name: &str) {
        let latch = L::default();
        let planted = || panic!("planted");
        assert!(catch_unwind(AssertUnwindSafe(|| latch.exclusive(planted))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| latch.shared(planted))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| latch.try_exclusive(planted))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| latch.try_shared(planted))).is_err());
        assert!(latch.try_exclusive(|| ()).is_some(), "{name}: a panic left the latch held");
    }

    /// Everything at once, by few threads for a moment. The content is two words, equal whenever nobody changes them.
    pub(super) fn no_change_is_lost_and_no_read_is_torn<L: Latch>(name: &str) {
        let latch = L::default();
        let (first, second) = (AtomicU64::new(0), AtomicU64::new(0));
        let change = || {
            let value = first.load(Relaxed) + 1;
            // Somebody else's turn now and then, also on a single processor.
            if value.is_multiple_of(16) {
                thread::yield_now();
            }
            first.store(value, Relaxed);
            second.store(value, Relaxed);
        };
        let read = || (first.load(Relaxed), second.load(Relaxed));
        let sound = |(first, second): (u64, u64)| assert_eq!(first, second, "{name}: torn");
        let work = |thread: u64| {
            let (latch, change, read, sound) = (&latch, &change, &read, &sound);
            move || {
                let (begin, mut changes) = (Instant::now(), 0);
                let mut step = thread;
                while begin.elapsed() < SPAN {
                    step += 1;
                    match step % 6 {
                        0 | 1 => {
                            latch.exclusive(change);
                            changes += 1;
                        }
                        2 => changes += latch.try_exclusive(change).map_or(0, |()| 1),
                        3 => sound(latch.shared(read)),
                        4 => latch.try_shared(read).map_or((), sound),
                        _ => sound(latch.read(read)),
                    }
                }
                changes
            }
        };
        let changes: u64 = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(work(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(read(), (changes, changes), "{name}: a change was lost");
        assert!(latch.try_exclusive(|| ()).is_some(), "{name}: something was left");
    }

    /// At the deadline, and when somebody cancels; whoever has given up has left nothing, and who has not enters.
    pub(super) fn waits_end_when_patience_does<L: Latch>(name: &str) {
        let latch = L::default();
        let cancelled = AtomicBool::new(true);
        let (ended, released) = (AtomicBool::new(false), AtomicBool::new(false));
        let over = Patience { deadline: Some(Instant::now()), cancelled: Some(&cancelled) };
        assert_eq!(latch.exclusive_within(&over, || 1), Some(1), "{name}: free, and refused to a writer");
        assert_eq!(latch.shared_within(&over, || 2), Some(2), "{name}: free, and refused to a reader");
        thread::scope(|scope| {
            let (latch, cancelled, released) = (&latch, &cancelled, &released);
            let ended = &ended;
            let holder = scope.spawn(move || {
                latch.exclusive(|| {
                    released.store(true, Release);
                    while !ended.load(Acquire) {
                        thread::sleep(Duration::from_millis(1));
                    }
                });
            });
            while !released.load(Acquire) {
                thread::yield_now();
            }
            for shared in [false, true] {
                let wait = move |patience: &Patience<'_>| {
                    if shared {
                        latch.shared_within(patience, || ())
                    } else {
                        latch.exclusive_within(patience, || ())
                    }
                };
                let deadline = Instant::now() + Duration::from_millis(15);
                let until = Patience { deadline: Some(deadline), cancelled: None };
                assert!(wait(&until).is_none(), "{name}: two alone");
                assert!(Instant::now() >= deadline, "{name}: gave up too early");
                // The best of some: the machine may be busy.
                let (mut best, mut tries, begin) = (FAR, 0, Instant::now());
                while tries < 4 || (best >= Duration::from_millis(20) && begin.elapsed() < FAR) {
                    tries += 1;
                    cancelled.store(false, Release);
                    let gave_up_at = scope.spawn(move || {
                        let patience = Patience { deadline: None, cancelled: Some(cancelled) };
                        assert!(wait(&patience).is_none(), "{name}: two alone");
                        Instant::now()
                    });
                    thread::sleep(Duration::from_millis(3));
                    assert!(!gave_up_at.is_finished(), "{name}: nobody has cancelled");
                    let began = Instant::now();
                    cancelled.store(true, Release);
                    best = best.min(gave_up_at.join().unwrap().saturating_duration_since(began));
                }
                assert!(best < Duration::from_millis(20), "{name}: {best:?} to cancel a wait");
            }
            let patient = scope.spawn(|| latch.exclusive_within(&Patience::ENDLESS, || 3));
            thread::sleep(Duration::from_millis(3));
            ended.store(true, Release);
            holder.join().unwrap();
            assert_eq!(patient.join().unwrap(), Some(3), "{name}: its patience did not end");
        });
        assert!(latch.try_exclusive(|| ()).is_some(), "{name}: something was left");
    }

    /// Whoever waits enters in the end: many rounds by writers and readers that all want in at once. The threads are
    /// not joined before they say that they are done, so that a lost wake-up fails the test instead of hanging it.
    pub(super) fn nobody_is_forgotten<L: Latch>(name: &str) {
        const THREADS: u64 = 6;
        let latch = Arc::new(L::default());
        let done = Arc::new(AtomicU64::new(0));
        for number in 0..THREADS {
            let (latch, done) = (Arc::clone(&latch), Arc::clone(&done));
            thread::spawn(move || {
                let begin = Instant::now();
                while begin.elapsed() < SPAN {
                    if number % 2 == 0 { latch.exclusive(|| ()) } else { latch.shared(|| ()) }
                }
                done.fetch_add(1, Release);
            });
        }
        let begin = Instant::now();
        while done.load(Acquire) < THREADS {
            assert!(begin.elapsed() < FAR, "{name}: {} of {THREADS} came through", done.load(Acquire));
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A latch that is none: the suite must notice.
#[derive(Default)]
struct Open;

impl Latch for Open {
    const SHARES: bool = true;
    const OPTIMISTIC: bool = true;

    fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        change()
    }

    fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        Some(change())
    }

    fn try_optimistic<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        Some(read())
    }
}

#[test]
fn the_suite_notices_a_latch_that_excludes_nobody() {
    let noticed = |check: fn(&str)| catch_unwind(|| check("open")).is_err();
    assert!(noticed(suite::a_holder_alone_excludes_everybody::<Open>));
    assert!(noticed(suite::an_optimistic_read_fails_exactly_when_a_writer_was_there::<Open>));
    let lost = (0..100).any(|_| noticed(suite::no_change_is_lost_and_no_read_is_torn::<Open>));
    assert!(lost, "nothing was lost or torn without a latch");
}

#[test]
fn names_stand_for_kinds() {
    for kind in LatchKind::ALL {
        assert_eq!(kind.name().parse(), Ok(*kind));
        assert_eq!(format!("{kind:>20}").trim_start(), kind.name());
    }
    assert!("hybrid latch".parse::<LatchKind>().is_err());
}

/// The paper's Table 2, as far as it can hold here.
#[test]
fn sizes_are_those_of_the_paper() {
    let sizes = [
        (LatchKind::Hybrid, 16),
        (LatchKind::HybridShared, 16),
        (LatchKind::HybridSpinning, 16),
        (LatchKind::Optimistic, 8),
        (LatchKind::Tas, 8),
        (LatchKind::Ttas, 8),
        (LatchKind::TtasBackoff, 8),
        (LatchKind::Ticket, 8),
        (LatchKind::Mcs, 8),
        (LatchKind::SpinRw, 8),
        (LatchKind::QueuingRw, 8),
        (LatchKind::StdMutex, 8),
        (LatchKind::StdRwLock, 12),
        #[cfg(feature = "parking_lot")]
        (LatchKind::ParkingLotMutex, 1),
        #[cfg(feature = "parking_lot")]
        (LatchKind::ParkingLotRwLock, 8),
    ];
    assert_eq!(sizes.map(|(kind, _)| kind), LatchKind::ALL, "each has its size");
    for (kind, size) in sizes {
        assert_eq!(kind.size(), size, "{kind}");
    }
}
