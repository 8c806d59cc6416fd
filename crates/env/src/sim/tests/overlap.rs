//! Which lines are under way at one time.

use std::ptr;

use super::{lines::machine_with, *};
use crate::sim::atomic::{AtomicPtr, fence};

/// Nanoseconds that a load and a store to another's line take.
fn single() -> [f64; 2] {
    let profile = Profile::named("xeon2x10").unwrap();
    [profile.load_modified[0], profile.own[0]].map(|cycles| cycles as f64 / profile.gigahertz)
}

/// Nanoseconds from one core to the other, each of which looks at a word of its own until the other tells it by that
/// word, after something else: given are both words, and which it is.
fn told_ns(
    change: impl FnOnce(&mut Profile),
    before: impl Fn(&[CachePadded<AtomicU64>; 2], usize) + Sync,
) -> f64 {
    let words = [(); 2].map(|()| CachePadded::new(AtomicU64::new(0)));
    lines::message_ns(
        change,
        |message| {
            let which = message as usize % 2;
            before(&words, which);
            words[which].store(message, Release);
        },
        |message| words[message as usize % 2].load(SeqCst) == message,
    )
}

fn window(window: u64) -> impl FnOnce(&mut Profile) {
    move |profile| profile.window = window
}

/// What a word guards comes while the line of the next word is on its way; not on a core that does one thing after the
/// other, nor if there is more between them than it can have begun.
#[test]
fn what_is_guarded_comes_with_the_line_that_is_told_by() {
    let [load, store] = single();
    let content = CachePadded::new(AtomicU64::new(0));
    let add = |between| {
        let content = &content;
        move |_: &[CachePadded<AtomicU64>; 2], _| {
            content.store(content.load(SeqCst) + 1, Release);
            hint::work(between);
        }
    };
    let alone = told_ns(window(42), |_, _| ());
    assert!((0.95 * (load + store)..1.2 * (load + store)).contains(&alone), "{alone}");
    let together = told_ns(window(42), add(0));
    assert!((0.95 * alone..1.1 * alone).contains(&together), "{together} {alone}");
    for (begun, between) in [(0, 0), (42, 100)] {
        let one_by_one = told_ns(window(begun), add(between)) - between as f64;
        assert!(one_by_one > alone + 0.8 * load, "{begun} {between}: {one_by_one} {alone}");
    }
}

/// What lies behind a pointer waits for it: if that has to come, too, but not if it is there.
#[test]
fn what_a_pointer_points_to_waits_for_the_pointer() {
    let [load, _] = single();
    let content = CachePadded::new(AtomicU64::new(0));
    let address = |word: &AtomicU64| ptr::from_ref(word).cast_mut();
    let known = told_ns(window(42), |words, which| {
        let pointer = AtomicPtr::new(address(&words[which]));
        assert!(ptr::eq(pointer.load(SeqCst), &raw const *words[which]));
        content.store(content.load(SeqCst) + 1, Release);
    });
    let next = CachePadded::new(AtomicPtr::<AtomicU64>::new(ptr::null_mut()));
    let found = told_ns(window(42), |words, which| {
        let pointer = next.load(SeqCst);
        assert!(pointer.is_null() || ptr::eq(pointer, &raw const *words[which]));
        next.store(address(&words[1 - which]), Release);
    });
    assert!((0.8 * load..1.2 * load).contains(&(found - known)), "{found} {known}");
}

/// An atomic change, and a fence, lets misses overlap on some processors, and on others it does not.
#[test]
fn nothing_overlaps_with_an_atomic_change_where_it_is_so() {
    let [load, store] = single();
    let content = CachePadded::new(AtomicU64::new(0));
    let took = |changes_overlap, before: &(dyn Fn(&[CachePadded<AtomicU64>; 2], usize) + Sync)| {
        told_ns(|profile| (profile.window, profile.changes_overlap) = (42, changes_overlap), before)
    };
    let alone = load + store;
    let change = |_: &[CachePadded<AtomicU64>; 2], _| _ = content.fetch_add(1, SeqCst);
    let fenced = |_: &[CachePadded<AtomicU64>; 2], _| {
        content.store(content.load(SeqCst) + 1, Release);
        fence(SeqCst);
    };
    for before in [&change as &(dyn Fn(&[CachePadded<AtomicU64>; 2], usize) + Sync), &fenced] {
        let (apart, together) = (took(false, before), took(true, before));
        assert!(apart > alone + 0.8 * load, "{apart} {alone}");
        assert!(together < alone + 0.5 * load, "{together} {alone}");
    }
}

/// What was asked for comes while something else is done; what somebody else has accessed since comes anew.
#[test]
fn what_is_prefetched_is_under_way() {
    const ROUND: u64 = 10_000;
    const LINES: usize = 100;
    /// Nanoseconds from memory.
    const MEMORY: f64 = 1000.0;
    let took = |asks: bool, between: u64, disturbs: bool| {
        let settings = machine_with(2, |profile| {
            profile.memory = [(MEMORY * profile.gigahertz) as u64; 4];
            profile.spread_percent = 0;
        });
        // Every other line, so that none is fetched ahead.
        let words = lines(2 * LINES);
        let waited = AtomicU64::new(0);
        let begin = Instant::now();
        hammer(&settings, 2, |number| {
            let until = |moment: u64| hint::work(moment.saturating_sub(begin.elapsed().as_nanos() as u64));
            for (round, line) in words.iter().step_by(2).enumerate() {
                // Both have begun by then.
                let start = (round as u64 + 10) * ROUND;
                if number == 0 {
                    until(start);
                    if asks {
                        hint::prefetch(&line[0], hint::Access::Read);
                    }
                    hint::work(between);
                    let before = Instant::now();
                    line[0].load(SeqCst);
                    waited.fetch_add(before.elapsed().as_nanos() as u64, SeqCst);
                } else if disturbs {
                    until(start + 100);
                    line[0].store(1, Release);
                }
            }
        });
        waited.load(SeqCst) as f64 / LINES as f64
    };
    let (cold, half, whole) = (took(false, 2000, false), took(true, 500, false), took(true, 1000, false));
    assert!(cold > MEMORY, "{cold}");
    assert!((0.49 * MEMORY..0.53 * MEMORY).contains(&(cold - half)), "{cold} {half}");
    assert!(whole < cold - 0.99 * MEMORY, "{cold} {whole}");
    let [load, _] = single();
    let (there, disturbed) = (took(true, 2000, false), took(true, 2000, true));
    assert!(disturbed - there > 0.9 * load, "{there} {disturbed} {load}");
}

/// A thread that has looked at a word as often as the last time when it changes is already at what it does then.
#[test]
fn what_follows_as_many_looks_as_before_is_foreseen() {
    const ROUND: u64 = 10_000;
    const ROUNDS: u64 = 200;
    let [load, _] = single();
    let took_where = |looks: fn(u64) -> u64, moves_between: bool| {
        let words = [(); 2].map(|()| CachePadded::new(AtomicU64::new(0)));
        let waits = AtomicU64::new(0);
        let settings = machine_with(2, |profile| (profile.migrates, profile.window) = (true, 42));
        let begin = Instant::now();
        hammer(&settings, 2, |number| {
            let until = |moment: u64| hint::work(moment.saturating_sub(begin.elapsed().as_nanos() as u64));
            for round in 0..ROUNDS {
                // Both have begun by then.
                let start = (round + 10) * ROUND;
                if number == 0 {
                    if moves_between {
                        until(start + 1020);
                        words[0].store(2, Release);
                    }
                    until(start + 5000);
                    words.iter().for_each(|word| word.store(1, Release));
                } else {
                    (0..looks(round)).for_each(|look| {
                        until(start + 1000 + look * 50);
                        words[0].load(SeqCst);
                    });
                    until(start + 7000);
                    let before = Instant::now();
                    words.iter().for_each(|word| _ = word.load(SeqCst));
                    waits.fetch_add(before.elapsed().as_nanos() as u64, SeqCst);
                }
            }
        });
        waits.load(SeqCst) as f64 / ROUNDS as f64
    };
    let took = |looks| took_where(looks, false);
    let (foreseen, surprised) = (took(|_| 3), took(|round| 2 + round % 2));
    assert!((0.6 * load..1.4 * load).contains(&(surprised - foreseen)), "{surprised} {foreseen}");
    let (too_often, alike) = (took(|_| 40), took(|_| 20));
    assert!((0.6 * load..1.4 * load).contains(&(too_often - alike)), "{too_often} {alike}");
    // It counts how often it has looked in all, also if the word changes in between to what it does not wait for.
    let moved = took_where(|_| 3, true);
    assert!((0.8 * foreseen..1.2 * foreseen).contains(&moved), "{moved} {foreseen}");
}
