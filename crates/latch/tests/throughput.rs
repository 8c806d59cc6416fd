//! What a latch costs, alone and in a crowd.

#![cfg(not(foreshore_loom))]

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use foreshore_latch::HybridLatch;

/// Nanoseconds of one `operation`.
fn cost(operation: impl Fn()) -> f64 {
    const TIMES: u32 = 3_000_000;
    let begin = Instant::now();
    (0..TIMES).for_each(|_| operation());
    begin.elapsed().as_nanos() as f64 / f64::from(TIMES)
}

/// Operations in a second by so many threads on one latch, each `share`-th exclusive, with about 50 ns of work inside;
/// and the longest that any of them took.
fn crowd(threads: usize, share: u64) -> (f64, Duration) {
    let latch = HybridLatch::new();
    let content: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
    let stop = AtomicBool::new(false);
    let work = || {
        let (mut operations, mut longest) = (0_u64, Duration::ZERO);
        while !stop.load(Relaxed) {
            let begin = Instant::now();
            if operations % share == 0 {
                let _guard = latch.exclusive();
                content.iter().for_each(|word| word.store(word.load(Relaxed) + 1, Relaxed));
            } else {
                let _guard = latch.shared();
                black_box(content.iter().map(|word| word.load(Relaxed)).sum::<u64>());
            }
            longest = longest.max(begin.elapsed());
            operations += 1;
        }
        (operations, longest)
    };
    const SPAN: Duration = Duration::from_secs(2);
    let (operations, longest) = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        thread::sleep(SPAN);
        stop.store(true, Relaxed);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .fold((0, Duration::ZERO), |(sum, longest), (operations, wait)| {
                (sum + operations, longest.max(wait))
            })
    });
    (operations as f64 / SPAN.as_secs_f64(), longest)
}

// cargo test -p foreshore-latch --release --test throughput -- --ignored --nocapture
#[test]
#[ignore = "a measurement of 20 seconds, for a quiet machine"]
fn throughput() {
    let latch = HybridLatch::new();
    println!("exclusive: {:.1} ns", cost(|| drop(latch.exclusive())));
    println!("shared: {:.1} ns", cost(|| drop(latch.shared())));
    let read = || {
        let version = latch.optimistic().unwrap();
        assert!(black_box(latch.validate(version)));
    };
    println!("optimistic: {:.1} ns", cost(read));
    for share in [1, 10] {
        let mut two = 0.0;
        for threads in [1, 2, 4, 16, 64] {
            let (rate, longest) = crowd(threads, share);
            println!("1 of {share} exclusive, {threads} threads: {:.2} M/s, longest {longest:?}", rate / 1e6);
            match threads {
                2 => two = rate,
                64 => assert!(rate > two / 5.0, "collapses: {two:.0}/s with 2 threads, {rate:.0}/s with 64"),
                _ => {}
            }
        }
    }
}
