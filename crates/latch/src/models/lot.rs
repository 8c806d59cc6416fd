//! The parking lot by itself, as lock waits use it: a word, a sleeper, a waker.

use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::{AtomicU64, Ordering::Relaxed};
use foreshore_env::thread;
use foreshore_env::time::Instant;

use super::explore;
use crate::hybrid::Wish;
use crate::parking::{self, Ended, Next, Parked, Pass, Wait};

const HERE: usize = 0x1000;
/// In a lot of two spaces one of these shares the space of `HERE`.
const ELSEWHERE: [usize; 2] = [0x2000, 0x3001];

/// Sleeps until the word is no longer 0; `attempts` because others may be woken in its stead.
fn sleep_while_zero(word: &AtomicU64, address: usize) {
    while word.load(Relaxed) == 0 {
        let parked = parking::park(address, || word.load(Relaxed) == 0, None, || true);
        assert!(matches!(parked, Parked::Woken | Parked::NotNeeded));
    }
}

#[test]
fn park_with_unpark_all() {
    explore("park/unpark_all", None, || {
        let word = Arc::new(AtomicU64::new(0));
        let also = Arc::clone(&word);
        let sleeper = thread::spawn(move || sleep_while_zero(&also, HERE));
        word.store(1, Relaxed);
        parking::unpark_all(HERE);
        sleeper.join().unwrap();
    });
}

#[test]
fn park_with_unpark_one() {
    explore("park/unpark_one", None, || {
        let word = Arc::new(AtomicU64::new(0));
        let also = Arc::clone(&word);
        let sleeper = thread::spawn(move || sleep_while_zero(&also, HERE));
        word.store(1, Relaxed);
        parking::unpark_one(HERE, |more| assert!(!more));
        sleeper.join().unwrap();
    });
}

#[test]
fn two_sleepers_with_unpark_all() {
    explore("park, park/unpark_all", Some(2), || {
        let word = Arc::new(AtomicU64::new(0));
        let sleepers = [(); 2].map(|()| {
            let word = Arc::clone(&word);
            thread::spawn(move || sleep_while_zero(&word, HERE))
        });
        word.store(1, Relaxed);
        parking::unpark_all(HERE);
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    });
}

/// Whoever is woken wakes the next: no wake-up goes to somebody at another address, in the same space or not.
#[test]
fn addresses_are_told_apart() {
    for elsewhere in ELSEWHERE {
        explore("park here, park elsewhere", Some(2), move || {
            let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let sleepers = [(0, HERE), (1, elsewhere)].map(|(word, address)| {
                let words = Arc::clone(&words);
                thread::spawn(move || sleep_while_zero(&words[word], address))
            });
            words[0].store(1, Relaxed);
            parking::unpark_one(HERE, |_| {});
            words[1].store(1, Relaxed);
            parking::unpark_one(elsewhere, |_| {});
            for sleeper in sleepers {
                sleeper.join().unwrap();
            }
        });
    }
}

/// A wake-up of one must not be swallowed by a sleeper whose deadline passes: it either reports being woken, or the
/// wake-up has gone to nobody.
#[test]
fn deadline_with_unpark_one() {
    explore("park deadline/unpark_one", None, || {
        let word = Arc::new(AtomicU64::new(0));
        let also = Arc::clone(&word);
        let sleeper = thread::spawn(move || {
            parking::park(HERE, || also.load(Relaxed) == 0, Some(Instant::now()), || true)
        });
        word.store(1, Relaxed);
        let woken = parking::unpark_one(HERE, |_| {});
        let parked = sleeper.join().unwrap();
        assert_eq!(woken, parked == Parked::Woken, "{parked:?}");
        assert!(!parking::unpark_one(HERE, |_| {}), "somebody was left in the queue");
    });
}

/// What cancels a lock wait: a flag that `look` reads, and a wake-up.
#[test]
fn look_with_cancellation() {
    explore("park/cancel", None, || {
        let cancelled = Arc::new(AtomicU64::new(0));
        let also = Arc::clone(&cancelled);
        let sleeper = thread::spawn(move || {
            let still = || also.load(Relaxed) == 0;
            let parked = parking::park(HERE, still, None, still);
            assert_ne!(parked, Parked::Deadline);
        });
        cancelled.store(1, Relaxed);
        parking::unpark_all(HERE);
        sleeper.join().unwrap();
        assert!(!parking::unpark_one(HERE, |_| {}), "somebody was left in the queue");
    });
}

/// A sleeper that is due is given the latch, and knows.
#[test]
fn a_grant_arrives() {
    explore("park due/pass", None, || {
        let word = Arc::new(AtomicU64::new(1));
        let also = Arc::clone(&word);
        let sleeper = thread::spawn(move || {
            let wait = Wait { wish: Some(Wish::Exclusive), favoured: false, due: true };
            let held = || also.load(Relaxed) == 1;
            let (ended, panicked) = parking::park_for(HERE, wait, held, None, Some(&mut || true));
            assert!(panicked.is_none());
            match ended {
                Ended::Granted => assert_eq!(also.load(Relaxed), 2),
                Ended::NotNeeded => assert_eq!(also.load(Relaxed), 0),
                other => panic!("{other:?}"),
            }
        });
        parking::pass(HERE, |next| match next {
            Some(Next { due: true, count: 1, more: false, .. }) => {
                word.store(2, Relaxed);
                Pass::Grant
            }
            Some(_) => panic!("not what was queued"),
            None => {
                word.store(0, Relaxed);
                Pass::Leave
            }
        });
        sleeper.join().unwrap();
    });
}
