//! The parking lot with real threads, clocks and panics.

use std::panic::{AssertUnwindSafe, catch_unwind};

use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use foreshore_env::thread;
use foreshore_env::time::{Duration, Instant};

use super::{
    BATCH, Bed, LOOK_INTERVAL, Parked, Parker, Wait, Waiter, any, park, park_until, sleepers, space,
    unpark_all, unpark_one,
};

/// Addresses of their own for each test: all share one lot.
fn address() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0x1000);
    NEXT.fetch_add(0x1000, Relaxed)
}

fn wait_for_sleepers(address: usize, count: usize) {
    let begin = Instant::now();
    while sleepers(address) != count {
        assert!(begin.elapsed() < Duration::from_secs(120), "{} sleep, not {count}", sleepers(address));
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn validate_decides() {
    let here = address();
    assert_eq!(park(here, || false, None, || panic!("asked although nobody waits")), Parked::NotNeeded);
    assert_eq!(sleepers(here), 0);
}

#[test]
fn a_deadline_ends_the_wait_and_leaves_nothing() {
    let here = address();
    let begin = Instant::now();
    let deadline = begin + Duration::from_millis(35);
    assert_eq!(park(here, || true, Some(deadline), || true), Parked::Deadline);
    assert!(begin.elapsed() >= Duration::from_millis(35));
    assert_eq!(sleepers(here), 0);
    assert_eq!(park(here, || true, Some(begin), || true), Parked::Deadline, "a deadline that has passed");
}

#[test]
fn a_sleeper_looks_around_without_being_woken() {
    let here = address();
    let mut looks = 0;
    let parked = park(
        here,
        || true,
        Some(Instant::now() + Duration::from_secs(60)),
        || {
            looks += 1;
            looks < 4
        },
    );
    assert_eq!((parked, looks), (Parked::GaveUp, 4));
    assert_eq!(sleepers(here), 0);
}

/// Without a look, a wake-up or the deadline ends the sleep, and nothing else.
#[test]
fn who_does_not_look_around_sleeps_until_woken_or_late() {
    let address = address();
    assert_eq!(park_until(address, || false, Instant::now()), Parked::NotNeeded);
    let soon = Instant::now() + Duration::from_millis(30);
    assert_eq!(park_until(address, || true, soon), Parked::Deadline);
    assert!(Instant::now() >= soon && sleepers(address) == 0);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| park_until(address, || true, Instant::now() + Duration::from_secs(60)));
        wait_for_sleepers(address, 1);
        assert!(unpark_one(address, |more| assert!(!more)));
        assert_eq!(sleeper.join().unwrap(), Parked::Woken);
    });
}

#[test]
fn giving_up_is_noticed_soon_and_leaves_nothing() {
    let here = address();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let parked = park(here, || true, None, || !stop.load(Relaxed));
            (parked, Instant::now())
        });
        wait_for_sleepers(here, 1);
        let begin = Instant::now();
        stop.store(true, Relaxed);
        let (parked, end) = sleeper.join().unwrap();
        assert_eq!(parked, Parked::GaveUp);
        assert!(end.saturating_duration_since(begin) < LOOK_INTERVAL * 6000, "took {:?}", end - begin);
    });
    assert_eq!(sleepers(here), 0);
}

#[test]
fn unpark_one_wakes_in_order_and_tells_of_more() {
    let here = address();
    let order = AtomicU64::new(0);
    thread::scope(|scope| {
        let sleepers: Vec<_> = (0..3)
            .map(|number| {
                let order = &order;
                let sleeper = scope.spawn(move || {
                    assert_eq!(park(here, || true, None, || true), Parked::Woken);
                    order.fetch_add(1, Relaxed)
                });
                wait_for_sleepers(here, number + 1);
                sleeper
            })
            .collect();
        for (number, sleeper) in sleepers.into_iter().enumerate() {
            let mut more = None;
            assert!(unpark_one(here, |are| more = Some(are)));
            assert_eq!(more, Some(number < 2));
            assert_eq!(sleeper.join().unwrap(), number as u64, "woken out of turn");
        }
    });
    let mut more = None;
    assert!(!unpark_one(here, |are| more = Some(are)));
    assert_eq!(more, Some(false));
}

/// More than one batch.
#[test]
fn unpark_all_wakes_all_of_one_address() {
    let (here, elsewhere) = (address(), address());
    let count = BATCH * 2 + 3;
    thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| assert_eq!(park(here, || true, None, || true), Parked::Woken));
        }
        let other = scope.spawn(|| park(elsewhere, || true, None, || true));
        wait_for_sleepers(here, count);
        wait_for_sleepers(elsewhere, 1);
        assert_eq!(unpark_all(here), count);
        assert_eq!(sleepers(here), 0);
        assert_eq!(sleepers(elsewhere), 1);
        assert_eq!(unpark_all(elsewhere), 1);
        assert_eq!(other.join().unwrap(), Parked::Woken);
    });
    assert_eq!(unpark_all(here), 0);
}

/// A thread that comes while others are being woken is not meant, or the one that wakes might never end.
#[test]
fn unpark_all_leaves_those_who_come_meanwhile() {
    let here = address();
    let (count, late) = (BATCH * 2 + 3, BATCH * 4);
    let first = Arc::new(Parker::default());
    let lie_down = |parker: Arc<Parker>| {
        let waiter = Waiter { address: here, wait: Wait::FOR_A_WORD, parker };
        space(here).lock().push_back(waiter);
    };
    lie_down(Arc::clone(&first));
    (1..count).for_each(|_| lie_down(Arc::default()));
    // The first of them cannot be woken yet.
    let held = first.hold();
    thread::scope(|scope| {
        let waker = scope.spawn(|| unpark_all(here));
        wait_for_sleepers(here, count - BATCH);
        (0..late).for_each(|_| lie_down(Arc::default()));
        drop(held);
        assert_eq!(waker.join().unwrap(), count);
    });
    assert_eq!(sleepers(here), late);
    assert_eq!(unpark_all(here), late);
}

/// Waits one after the other need one parker, waits within waits one each.
#[test]
fn a_thread_keeps_one_parker() {
    thread::scope(|scope| {
        scope.spawn(|| {
            let bed = Bed::take();
            let parker = Arc::clone(bed.parker());
            assert!(Arc::ptr_eq(&parker, bed.parker()));
            assert!(!Arc::ptr_eq(&parker, Bed::take().parker()), "two waits share a parker");
            drop(bed);
            assert!(Arc::ptr_eq(&parker, Bed::take().parker()), "each wait has a new parker");
        });
    });
}

#[test]
fn addresses_that_share_a_space_are_told_apart() {
    let here = address();
    let beside = (1..).map(|n| here + n * 8).find(|&other| std::ptr::eq(space(other), space(here))).unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(move || park(here, || true, None, || true));
        wait_for_sleepers(here, 1);
        let second = scope.spawn(move || park(beside, || true, None, || true));
        wait_for_sleepers(beside, 1);
        assert!(unpark_one(beside, |more| assert!(!more)));
        assert_eq!(second.join().unwrap(), Parked::Woken);
        assert_eq!(sleepers(here), 1);
        assert!(unpark_one(here, |more| assert!(!more)));
        assert_eq!(first.join().unwrap(), Parked::Woken);
    });
}

#[test]
fn a_panic_while_looking_around_leaves_nothing() {
    let here = address();
    let caught = catch_unwind(AssertUnwindSafe(|| park(here, || true, None, || panic!("planted"))));
    assert!(caught.is_err());
    assert!(!any(&space(here).lock(), here));
}

/// A wake-up that has chosen a thread which panics goes to the next.
#[test]
fn a_panic_passes_its_wake_up_on() {
    let here = address();
    thread::scope(|scope| {
        let panics = scope.spawn(|| {
            let look = || {
                assert!(unpark_one(here, |more| assert!(more)), "is not in the queue itself");
                panic!("planted");
            };
            catch_unwind(AssertUnwindSafe(|| {
                // The first look comes when the thread is in the queue; the other one has to be behind it by then.
                let mut first = true;
                park(
                    here,
                    || true,
                    None,
                    || {
                        if std::mem::take(&mut first) {
                            return true;
                        }
                        if sleepers(here) == 2 { look() } else { true }
                    },
                )
            }))
            .is_err()
        });
        wait_for_sleepers(here, 1);
        let next = scope.spawn(|| park(here, || true, None, || true));
        assert!(panics.join().unwrap());
        assert_eq!(next.join().unwrap(), Parked::Woken);
    });
}

/// LATCH-9. A `look` that itself waits in the lot: both waits are answered while the inner one lasts, and neither
/// answer may end the other wait or be lost.
#[test]
fn a_look_that_waits_keeps_both_answers() {
    let (outer, inner) = (address(), address());
    let done = Arc::new(AtomicU64::new(0));
    let also = Arc::clone(&done);
    // Not in a scope: were an answer lost, the thread would sleep for ever, and the test is to fail then.
    thread::spawn(move || {
        let mut first = true;
        let look = || {
            if !std::mem::take(&mut first) {
                return true;
            }
            assert_eq!(park(inner, || true, None, || true), Parked::Woken);
            assert_eq!(
                park(inner, || true, Some(Instant::now()), || true),
                Parked::Deadline,
                "an old answer ended a new wait"
            );
            true
        };
        assert_eq!(park(outer, || true, None, look), Parked::Woken);
        also.store(1, Release);
    });
    wait_for_sleepers(inner, 1);
    assert!(unpark_one(outer, |_| {}));
    assert!(unpark_one(inner, |_| {}));
    let begin = Instant::now();
    while done.load(Acquire) == 0 {
        assert!(begin.elapsed() < Duration::from_secs(120), "an answer was lost");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(sleepers(outer) + sleepers(inner), 0);
}

/// A token goes round among threads that each wait for their turn. One lost wake-up stops the round.
#[test]
fn a_token_goes_round() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 2_000;
    let here = address();
    let turn = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let turn = Arc::clone(&turn);
            thread::spawn(move || {
                for round in 0..ROUNDS {
                    let mine = round * THREADS + number;
                    while turn.load(Acquire) != mine {
                        let limit = Some(Instant::now() + Duration::from_secs(60));
                        let parked = park(here, || turn.load(Acquire) != mine, limit, || true);
                        assert_ne!(parked, Parked::Deadline, "the token was lost");
                    }
                    turn.store(mine + 1, Release);
                    unpark_all(here);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(turn.load(Relaxed), THREADS * ROUNDS);
}
