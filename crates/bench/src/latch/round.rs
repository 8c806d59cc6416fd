//! Acquisitions by several threads, for a while.

use foreshore_env::{
    CachePadded,
    sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering},
    thread,
    time::Duration,
};
use foreshore_latch::baseline::{Latch, Visit};

use super::{Guarded, LatchMix};
use crate::{
    bound::{Bound, Seen},
    rounds::Stopwatch,
    workload::Check,
};

/// What a round showed.
pub(super) struct Outcome {
    pub(super) per_s: f64,
    pub(super) computed_ns: Option<f64>,
    pub(super) least_share: f64,
    pub(super) handovers: Option<f64>,
    pub(super) seen: Seen,
    /// The first word at the end, and what all have added to it.
    word: u64,
    added: u64,
}

impl Outcome {
    /// Nothing of what was added is lost, as it would be if two had been let in at once.
    pub(super) fn check(&self, place: &str, exclusion: &mut Check) {
        let Outcome { word, added, .. } = self;
        exclusion.expect(word == added, || format!("{place}: {word} of {added}"));
    }
}

/// Threads use one latch for a while.
pub(super) struct Round {
    pub(super) mix: LatchMix,
    pub(super) threads: usize,
    pub(super) span: Duration,
    pub(super) bind: bool,
}

const WAIT: u8 = 0;
const RUN: u8 = 1;
const STOP: u8 = 2;

impl Visit for Round {
    type Output = Outcome;

    fn visit<L: Latch>(self) -> Outcome {
        let Round { mix, threads, span, bind } = self;
        let guarded = Guarded::<L>::default();
        // Written by the main thread, read by all; Relaxed: it carries no data.
        let phase = CachePadded::new(AtomicU8::new(WAIT));
        let ready = AtomicUsize::new(0);
        let told = CachePadded::new(AtomicU64::new(0));
        let work = |number: usize| {
            let bound = bind.then(|| Bound::new(number, threads, &told));
            ready.fetch_add(1, Ordering::Relaxed);
            while phase.load(Ordering::Relaxed) == WAIT {
                thread::yield_now();
            }
            let (mut number, mut sum) = (0, 0_u64);
            let (step, mut left, mut handovers) = (mix.step().unwrap_or(0), 0, 0);
            // At least once, also when the time is over before this thread has begun.
            loop {
                let word = guarded.acquire(mix, number);
                sum = sum.wrapping_add(word);
                number += 1;
                handovers += u64::from(word != left + step);
                left = word;
                if phase.load(Ordering::Relaxed) != RUN {
                    break;
                }
            }
            std::hint::black_box(sum);
            (number, handovers, bound.map(Bound::end).unwrap_or_default())
        };
        let work = &work;
        let (counts, measured) = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number))).collect();
            while ready.load(Ordering::Relaxed) < threads {
                thread::yield_now();
            }
            let watch = Stopwatch::start();
            phase.store(RUN, Ordering::Relaxed);
            thread::sleep(span);
            phase.store(STOP, Ordering::Relaxed);
            let measured = watch.read();
            // A worker does not panic: it only counts.
            let counts: Vec<_> = workers.into_iter().filter_map(|worker| worker.join().ok()).collect();
            (counts, measured)
        });
        let sum: u64 = counts.iter().map(|(acquisitions, ..)| acquisitions).sum();
        let handovers: u64 = counts.iter().map(|(_, handovers, _)| handovers).sum();
        let least = counts.iter().map(|(acquisitions, ..)| *acquisitions).min().unwrap_or(0);
        Outcome {
            per_s: sum as f64 / measured.elapsed.as_secs_f64(),
            computed_ns: measured.computed_ns(sum),
            least_share: least as f64 * threads as f64 * 100.0 / sum.max(1) as f64,
            handovers: mix.step().map(|_| handovers as f64 * 100.0 / sum.max(1) as f64),
            word: guarded.words[0].load(Ordering::Relaxed),
            added: counts.iter().map(|(acquisitions, ..)| mix.added(*acquisitions)).sum(),
            seen: Seen::of(counts.into_iter().map(|(.., seen)| seen)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{latch::nothing::Nothing, tests::until_enough};

    /// The check can fail: by a latch that excludes nobody.
    #[test]
    fn a_latch_that_lets_everybody_in_is_found_out() {
        for mix in [LatchMix::WriteOnly, LatchMix::Mixed, LatchMix::Contended] {
            let measure = |span| {
                let mut exclusion = Check::new("exclusion");
                Round { mix, threads: 3, span, bind: false }.visit::<Nothing>().check("", &mut exclusion);
                exclusion
            };
            let exclusion = until_enough(Duration::from_millis(20), measure, |exclusion| !exclusion.holds);
            assert!(!exclusion.holds, "{exclusion:?}");
        }
    }
}
