//! The latch with real threads: what it promises step by step, under load, and when there are many more threads than
//! processors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use foreshore_env::random::Xorshift;
use foreshore_env::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed},
};
use foreshore_env::thread;
use foreshore_env::time::{Duration, Instant};

use super::wait::{RACES, successor};
use super::{EXCLUSIVE, HybridLatch, PARKED, SHARER, WAKING, WaitEnded, Wish};
use crate::parking::{self, Next, Pass};

/// What no wait here may take.
const FAR: Duration = Duration::from_secs(60);

fn word(latch: &HybridLatch) -> u64 {
    latch.word.load(Acquire)
}

fn wait_until_parked(latch: &HybridLatch) {
    let begin = Instant::now();
    while word(latch) & PARKED == 0 {
        assert!(begin.elapsed() < FAR, "nobody went to sleep: {latch:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn who_excludes_whom() {
    let latch = HybridLatch::new();
    {
        let _one = latch.shared();
        let _two = latch.try_shared().unwrap();
        assert_eq!(word(&latch), 2 * SHARER);
        assert!(latch.try_exclusive().is_none());
        assert!(latch.optimistic().is_some());
        assert!(!latch.is_exclusive());
    }
    {
        let _alone = latch.exclusive();
        assert_eq!(word(&latch), EXCLUSIVE);
        assert!(latch.try_shared().is_none() && latch.try_exclusive().is_none());
        assert!(latch.optimistic().is_none());
        assert!(latch.is_exclusive());
    }
    assert_eq!(word(&latch), 0);
}

#[test]
fn versions_tell_changes() {
    let latch = HybridLatch::new();
    let before = latch.optimistic().unwrap();
    assert!(latch.validate(before));
    drop(latch.shared());
    assert!(latch.validate(before), "a sharer changed the version");

    let guard = latch.exclusive();
    assert!(!latch.validate(before), "validated beside a writer");
    let after = guard.version();
    drop(guard);
    assert!(!latch.validate(before));
    assert_eq!(latch.optimistic(), Some(after));
    assert!(latch.upgrade(before).is_none() && latch.shared_if(before).is_none());
    assert!(latch.validate(after), "a refused upgrade changed the version");
    assert_eq!(word(&latch), 0, "a refused upgrade left something");
}

#[test]
fn upgrade_and_shared_if_only_when_nobody_is_in_the_way() {
    let latch = HybridLatch::new();
    let version = latch.optimistic().unwrap();
    {
        let shared = latch.shared_if(version).unwrap();
        assert_eq!(shared.version(), version);
        assert!(latch.upgrade(version).is_none(), "upgraded beside a sharer");
        assert!(latch.shared_if(version).is_some());
    }
    let guard = latch.upgrade(version).unwrap();
    assert!(latch.shared_if(version).is_none());
    let after = guard.version();
    let shared = guard.downgrade();
    assert_eq!(shared.version(), after);
    assert_eq!(word(&latch), SHARER);
    assert!(latch.try_exclusive().is_none() && latch.try_shared().is_some());
    drop(shared);
    assert_eq!(latch.optimistic(), Some(after));
}

#[test]
fn a_free_latch_is_taken_although_the_deadline_has_passed() {
    let latch = HybridLatch::new();
    let past = Some(Instant::now());
    assert!(latch.shared_until(past, &mut || false).is_ok());
    assert!(latch.exclusive_until(past, &mut || false).is_ok());
}

#[test]
fn deadlines_and_giving_up_leave_nothing() {
    let latch = HybridLatch::new();
    let held = latch.exclusive();
    thread::scope(|scope| {
        scope.spawn(|| {
            let begin = Instant::now();
            let deadline = Some(begin + Duration::from_millis(30));
            assert_eq!(latch.shared_until(deadline, &mut || true).unwrap_err(), WaitEnded::Deadline);
            assert_eq!(latch.exclusive_until(deadline, &mut || true).unwrap_err(), WaitEnded::Deadline);
            assert!(begin.elapsed() >= Duration::from_millis(30));
            let mut looks = 3;
            let mut look = || {
                looks -= 1;
                looks > 0
            };
            assert_eq!(latch.exclusive_until(None, &mut look).unwrap_err(), WaitEnded::GaveUp);
            assert_eq!(looks, 0);
        });
    });
    assert_eq!(word(&latch), EXCLUSIVE, "a bit was left behind");
    drop(held);
    assert_eq!(word(&latch), 0);
}

#[test]
fn a_panic_while_looking_around_leaves_nothing() {
    let latch = HybridLatch::new();
    let held = latch.shared();
    thread::scope(|scope| {
        scope.spawn(|| {
            let wait = || latch.exclusive_until(None, &mut || panic!("planted"));
            assert!(catch_unwind(AssertUnwindSafe(wait)).is_err());
        });
    });
    assert_eq!(word(&latch), SHARER);
    drop(held);
    assert_eq!(word(&latch), 0);
}

/// The turn of a thread that panics when it has been chosen goes to the next.
#[test]
fn a_panic_of_the_chosen_passes_the_turn_on() {
    the_chosen_panics(false);
}

/// If somebody else has entered meanwhile, it is that one who passes it on.
#[test]
fn a_panic_of_the_chosen_beside_a_holder_leaves_the_turn_to_it() {
    the_chosen_panics(true);
}

fn the_chosen_panics(beside_a_holder: bool) {
    let latch = HybridLatch::new();
    let released = AtomicBool::new(false);
    thread::scope(|scope| {
        let held = latch.exclusive();
        let chosen = scope.spawn(|| {
            let mut look = || {
                while !released.load(Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
                panic!("planted");
            };
            catch_unwind(AssertUnwindSafe(|| drop(latch.exclusive_until(None, &mut look)))).is_err()
        });
        wait_until_parked(&latch);
        let next = scope.spawn(|| latch.exclusive_until(Some(Instant::now() + FAR), &mut || true).is_ok());
        // Whether the second has gone to sleep cannot be seen in the word.
        let begin = Instant::now();
        while parking::sleepers(latch.address()) < 2 {
            assert!(begin.elapsed() < FAR, "the second does not sleep: {latch:?}");
            thread::sleep(Duration::from_millis(1));
        }
        drop(held);
        assert_eq!(word(&latch), PARKED | WAKING);
        let other = beside_a_holder.then(|| latch.try_exclusive().unwrap());
        released.store(true, Relaxed);
        assert!(chosen.join().unwrap());
        if let Some(other) = other {
            assert_eq!(word(&latch), EXCLUSIVE | PARKED, "the holder has lost the latch, or nobody to wake");
            drop(other);
        }
        assert!(next.join().unwrap(), "the turn was lost");
    });
    assert_eq!(word(&latch), 0);
}

/// The rule for newcomers: they stand behind a waiting writer, attempts do not (LATCH-7).
#[test]
fn a_waiting_writer_holds_newcomers_off_but_not_attempts() {
    let latch = HybridLatch::new();
    let order = AtomicU64::new(0);
    thread::scope(|scope| {
        // Inside, so that a test that fails here lets its threads go.
        let held = latch.shared();
        let version = held.version();
        let writer = scope.spawn(|| {
            let _guard = latch.exclusive();
            order.fetch_add(1, Relaxed)
        });
        wait_until_parked(&latch);
        assert!(latch.try_shared().is_some(), "an attempt was held off");
        assert!(latch.shared_if(version).is_some(), "an attempt was held off");
        let deadline = Some(Instant::now() + Duration::from_millis(20));
        assert!(latch.shared_until(deadline, &mut || true).is_err(), "a newcomer passed the writer");
        drop(held);
        assert_eq!(writer.join().unwrap(), 0);
    });
    assert_eq!(word(&latch), 0);
}

/// A writer that gives up lets the sharers in that stood behind it, although others still share.
#[test]
fn sharers_behind_a_writer_that_gives_up_enter() {
    let latch = HybridLatch::new();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _held = latch.shared();
        let writer = scope.spawn(|| latch.exclusive_until(None, &mut || !stop.load(Relaxed)).is_err());
        wait_until_parked(&latch);
        let sharer = scope.spawn(|| {
            let begin = Instant::now();
            let entered = latch.shared_until(Some(begin + FAR), &mut || true).is_ok();
            (entered, begin.elapsed())
        });
        // Whether the sharer has gone to sleep cannot be seen in the word.
        let begin = Instant::now();
        while parking::sleepers(latch.address()) < 2 && begin.elapsed() < FAR {
            thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Relaxed);
        assert!(writer.join().unwrap());
        let (entered, waited) = sharer.join().unwrap();
        assert!(entered && waited < FAR / 2, "waited for the other sharer: {waited:?}");
        assert_eq!(word(&latch), SHARER);
    });
}

/// Downgrading lets the sharers in that slept, though not the writers.
#[test]
fn downgrading_wakes_sharers() {
    let latch = HybridLatch::new();
    thread::scope(|scope| {
        let held = latch.exclusive();
        let sharer = scope.spawn(|| latch.shared_until(Some(Instant::now() + FAR), &mut || true).is_ok());
        wait_until_parked(&latch);
        let held = held.downgrade();
        assert!(sharer.join().unwrap(), "slept on beside a sharer");
        drop(held);
    });
    assert_eq!(word(&latch), 0);
}

/// Everything at once. The content is consistent under each kind of access, no change is lost, every wait ends.
fn storm(threads: u64, rounds: u64) {
    let latch = HybridLatch::new();
    let (first, second) = (AtomicU64::new(0), AtomicU64::new(0));
    let change = || {
        let value = first.load(Relaxed) + 1;
        first.store(value, Relaxed);
        second.store(value, Relaxed);
    };
    let read = || (first.load(Relaxed), second.load(Relaxed));
    let changes: u64 = thread::scope(|scope| {
        let work = |seed| {
            let (latch, change, read) = (&latch, &change, &read);
            move || {
                let mut random = Xorshift::new(seed);
                let mut changes = 0;
                for _ in 0..rounds {
                    let deadline = Some(Instant::now() + Duration::from_micros(random.below(200)));
                    match random.below(9) {
                        0 | 1 => {
                            let _guard = latch.exclusive();
                            change();
                            changes += 1;
                        }
                        2 => {
                            let guard = latch.exclusive();
                            change();
                            changes += 1;
                            let _guard = guard.downgrade();
                            let (first, second) = read();
                            assert_eq!(first, second);
                        }
                        3 | 4 => {
                            let _guard = latch.shared();
                            let (first, second) = read();
                            assert_eq!(first, second);
                        }
                        5 => {
                            if latch.exclusive_until(deadline, &mut || true).map(|_guard| change()).is_ok() {
                                changes += 1;
                            }
                        }
                        6 => {
                            if let Ok(_guard) = latch.shared_until(deadline, &mut || true) {
                                let (first, second) = read();
                                assert_eq!(first, second);
                            }
                        }
                        _ => {
                            if let Some(version) = latch.optimistic() {
                                let (first, second) = read();
                                if latch.validate(version) {
                                    assert_eq!(first, second);
                                }
                                if let Some(_guard) = latch.upgrade(version) {
                                    assert_eq!(read(), (first, second));
                                    change();
                                    changes += 1;
                                }
                            }
                        }
                    }
                }
                changes
            }
        };
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(work(thread + 1))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(read(), (changes, changes), "a change was lost");
    assert_eq!(latch.version.load(Relaxed), changes);
    assert_eq!(word(&latch), 0, "something was left: {latch:?}");
}

#[test]
fn storm_of_few_threads() {
    storm(4, 20_000);
}

#[test]
fn storm_of_many_threads() {
    storm(64, 1_500);
}

/// Who sleeps first in the queue, once somebody does.
fn first_asleep(latch: &HybridLatch) -> parking::Wait {
    let begin = Instant::now();
    loop {
        if let Some(wait) = parking::first(latch.address()) {
            return wait;
        }
        assert!(begin.elapsed() < FAR, "does not sleep: {latch:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A thread that is given the latch while it panics gives it back, and panics.
#[test]
fn a_panic_of_whom_the_latch_was_given_frees_it() {
    let latch = HybridLatch::new();
    let [due, looking, released] = [const { AtomicBool::new(false) }; 3];
    thread::scope(|scope| {
        let held = latch.exclusive();
        let waiter = scope.spawn(|| {
            let mut look = || {
                if !due.load(Relaxed) {
                    return true;
                }
                looking.store(true, Relaxed);
                while !released.load(Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
                panic!("planted");
            };
            catch_unwind(AssertUnwindSafe(|| drop(latch.exclusive_until(None, &mut look)))).is_err()
        });
        while !first_asleep(&latch).due {
            parking::unpark_one(latch.address(), |_| {});
        }
        due.store(true, Relaxed);
        let begin = Instant::now();
        while !looking.load(Relaxed) {
            assert!(begin.elapsed() < FAR, "does not look around: {latch:?}");
            thread::sleep(Duration::from_millis(1));
        }
        drop(held);
        let given = word(&latch);
        released.store(true, Relaxed);
        assert!(waiter.join().unwrap(), "the panic is lost");
        assert_eq!(given, EXCLUSIVE, "not handed over");
    });
    assert_eq!(word(&latch), 0);
}

/// A woken thread that finds the latch taken goes back to the head of the queue; after `RACES` times it is due.
#[test]
fn a_waiter_that_keeps_losing_is_given_the_latch() {
    let latch = HybridLatch::new();
    let seen = AtomicBool::new(false);
    thread::scope(|scope| {
        let held = latch.exclusive();
        let waiter = scope.spawn(|| {
            let entered = latch.exclusive_until(Some(Instant::now() + FAR), &mut || true);
            while entered.is_ok() && !seen.load(Relaxed) {
                thread::yield_now();
            }
            entered.is_ok()
        });
        let waits: Vec<(bool, bool)> = (0..=RACES)
            .map(|losses| {
                let wait = first_asleep(&latch);
                if losses < RACES {
                    parking::unpark_one(latch.address(), |_| {});
                }
                (wait.favoured, wait.due)
            })
            .collect();
        drop(held);
        let was_free = latch.try_exclusive().is_some();
        seen.store(true, Relaxed);
        let expected: Vec<(bool, bool)> = (0..=RACES).map(|losses| (losses > 0, losses == RACES)).collect();
        assert_eq!(waits, expected, "favoured and due after so many losses");
        assert!(!was_free, "not handed over");
        assert!(waiter.join().unwrap());
    });
    assert_eq!(word(&latch), 0);
}

#[test]
fn successors() {
    let next = |wish, count, due, more| Some(Next { wish: Some(wish), count, due, more });
    let (reader, writer) = (Wish::Shared, Wish::Exclusive);
    // Nobody sleeps: the note goes.
    assert_eq!(successor(PARKED, None), (0, Pass::Leave));
    assert_eq!(successor(PARKED | WAKING, None), (WAKING, Pass::Leave));
    // Somebody is under way already.
    assert_eq!(successor(PARKED | WAKING, next(writer, 1, true, false)), (PARKED | WAKING, Pass::Leave));
    // Held by somebody in whose presence the first cannot enter.
    assert_eq!(successor(PARKED | SHARER, next(writer, 1, true, false)), (PARKED | SHARER, Pass::Leave));
    assert_eq!(
        successor(PARKED | EXCLUSIVE, next(reader, 2, false, false)),
        (PARKED | EXCLUSIVE, Pass::Leave)
    );
    // Woken, with or without others behind.
    assert_eq!(successor(PARKED, next(writer, 1, false, false)), (WAKING, Pass::Wake));
    assert_eq!(successor(PARKED, next(writer, 1, false, true)), (WAKING | PARKED, Pass::Wake));
    assert_eq!(
        successor(PARKED | SHARER, next(reader, 3, false, true)),
        (SHARER | WAKING | PARKED, Pass::Wake)
    );
    // Given the latch.
    assert_eq!(successor(PARKED, next(writer, 1, true, false)), (EXCLUSIVE, Pass::Grant));
    assert_eq!(successor(PARKED | SHARER, next(reader, 3, true, true)), ((4 * SHARER) | PARKED, Pass::Grant));
}

/// Sharers that overlap all the time must not starve a writer, nor writers a sharer.
#[test]
fn nobody_starves() {
    let latch = HybridLatch::new();
    let stop = AtomicBool::new(false);
    let flood = |exclusive: bool| {
        let (latch, stop) = (&latch, &stop);
        move || {
            while !stop.load(Relaxed) {
                let begin = Instant::now();
                if exclusive {
                    let _guard = latch.exclusive();
                    while begin.elapsed() < Duration::from_micros(20) {}
                } else {
                    let _guard = latch.shared();
                    while begin.elapsed() < Duration::from_micros(20) {}
                }
            }
        }
    };
    for exclusive in [false, true] {
        stop.store(false, Relaxed);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(flood(exclusive));
            }
            let deadline = Some(Instant::now() + FAR);
            let mut longest = Duration::ZERO;
            let never_starved = (0..20).all(|_| {
                let begin = Instant::now();
                let entered = if exclusive {
                    latch.shared_until(deadline, &mut || true).is_ok()
                } else {
                    latch.exclusive_until(deadline, &mut || true).is_ok()
                };
                longest = longest.max(begin.elapsed());
                thread::sleep(Duration::from_micros(100));
                entered
            });
            stop.store(true, Relaxed);
            assert!(never_starved, "not in {FAR:?}");
            println!("longest wait among 8 {}: {longest:?}", if exclusive { "writers" } else { "sharers" });
        });
    }
    assert_eq!(word(&latch), 0);
}
