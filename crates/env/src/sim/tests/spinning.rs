//! Threads that spin asleep, across moments from which on nothing is charged.

use super::*;
use crate::sim::{set_charging, tally};

/// Nobody was roused when nothing was charged any more, and no line moved after that: whoever spun slept through all of
/// its rounds.
#[test]
fn who_spins_asleep_sees_what_is_not_charged() {
    let run = simulate(&machine(2), || {
        let word = CachePadded::new(AtomicU64::new(0));
        thread::scope(|scope| {
            let spins = scope.spawn(|| {
                let done = hint::spin_until(1_000_000, || word.load(SeqCst) == 1);
                (done, Instant::now())
            });
            thread::sleep(Duration::from_micros(50));
            set_charging(false);
            let stored = Instant::now();
            word.store(1, SeqCst);
            let (done, seen) = spins.join().unwrap();
            (done, seen.saturating_duration_since(stored))
        })
    });
    let (done, took) = run.unwrap().result;
    assert!(done && took < Duration::from_micros(5), "{took:?}");
}

/// The same of one that begins to spin when nothing is charged, with looks that take as long as those before.
#[test]
fn nobody_falls_asleep_while_nothing_is_charged() {
    // An access takes two nanoseconds, charged or not.
    let settings = lines::machine_with(2, |profile| {
        (profile.gigahertz, profile.hit, profile.following) = (1.0, 2.0, 0);
    });
    let run = simulate(&settings, || {
        let [word, other] = [(); 2].map(|()| CachePadded::new(AtomicU64::new(0)));
        thread::scope(|scope| {
            let spins = scope.spawn(|| {
                (0..4).for_each(|_| _ = other.load(SeqCst));
                thread::sleep(Duration::from_micros(100));
                let done = hint::spin_until(1_000_000, || word.load(SeqCst) == 1);
                (done, Instant::now())
            });
            thread::sleep(Duration::from_micros(50));
            set_charging(false);
            thread::sleep(Duration::from_micros(100));
            let stored = Instant::now();
            word.store(1, SeqCst);
            let (done, seen) = spins.join().unwrap();
            (done, seen.saturating_duration_since(stored))
        })
    });
    let (done, took) = run.unwrap().result;
    assert!(done && took < Duration::from_micros(5), "{took:?}");
}

/// What a thread has done is counted exactly: the looks of one that spun asleep were not.
#[test]
fn looks_of_who_spins_asleep_are_counted() {
    let looks = |asleep: bool| {
        let spin = move |done: &dyn Fn() -> bool| match asleep {
            true => assert!(hint::spin_until(1_000_000, done)),
            false => (0..).take_while(|_| !done()).for_each(|_| hint::spin_loop()),
        };
        let run = simulate(&machine(2), || {
            let word = CachePadded::new(AtomicU64::new(0));
            thread::scope(|scope| {
                let spins = scope.spawn(|| {
                    let before = tally().unwrap();
                    spin(&|| word.load(SeqCst) == 1);
                    tally().unwrap() - before
                });
                thread::sleep(Duration::from_micros(50));
                word.store(1, SeqCst);
                spins.join().unwrap().loads
            })
        });
        run.unwrap().result
    };
    assert!(looks(false) > 100);
    assert_eq!(looks(true), looks(false));
}
