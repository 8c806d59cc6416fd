//! Acquisitions by several threads, for a while.

use foreshore_env::{
    CachePadded,
    sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};
use foreshore_latch::baseline::{Latch, Visit};

use super::{Guarded, LatchMix};
use crate::{
    BenchError,
    bound::{Bound, Seen},
    rounds::{Span, Stopwatch},
    threads::start_all,
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

/// What one thread did.
struct Worked {
    acquisitions: u64,
    handovers: u64,
    /// When it had released the latch for the last time.
    end: Instant,
    seen: Seen,
}

/// Threads use one latch for a while.
pub(super) struct Round {
    pub(super) mix: LatchMix,
    pub(super) threads: usize,
    pub(super) span: Duration,
    pub(super) bind: bool,
}

/// Threads are being started that will bind themselves.
const START: u8 = 0;
const WAIT: u8 = 1;
const RUN: u8 = 2;
const STOP: u8 = 3;

impl Visit for Round {
    type Output = Result<Outcome, BenchError>;

    fn visit<L: Latch>(self) -> Result<Outcome, BenchError> {
        let Round { mix, threads, span, bind } = self;
        let guarded = Guarded::<L>::default();
        // Written by the main thread, read by all; Relaxed: it carries no data.
        let phase = CachePadded::new(AtomicU8::new(if bind { START } else { WAIT }));
        let ready = AtomicUsize::new(0);
        let told = CachePadded::new(AtomicU64::new(0));
        let work = |number: usize| {
            // Where one is missing, whoever binds itself would wait for its messages.
            let is_complete = || loop {
                match phase.load(Ordering::Relaxed) {
                    START => thread::yield_now(),
                    phase => break phase != STOP,
                }
            };
            let bound = (bind && is_complete()).then(|| Bound::new(number, threads, &told));
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
            let end = Instant::now();
            std::hint::black_box(sum);
            let seen = bound.map(Bound::end).unwrap_or_default();
            Worked { acquisitions: number, handovers, end, seen }
        };
        let work = &work;
        let (worked, measured) = thread::scope(|scope| {
            let give_up = |_: &[_]| phase.store(STOP, Ordering::Relaxed);
            let workers = start_all(scope, threads, |number| move || work(number), give_up)?;
            if bind {
                phase.store(WAIT, Ordering::Relaxed);
            }
            while ready.load(Ordering::Relaxed) < threads {
                thread::yield_now();
            }
            let (watch, begin) = (Stopwatch::start(), Instant::now());
            phase.store(RUN, Ordering::Relaxed);
            thread::sleep(span);
            phase.store(STOP, Ordering::Relaxed);
            // A worker does not panic: it only counts.
            let worked: Vec<_> = workers.into_iter().filter_map(|worker| worker.join().ok()).collect();
            // Each ends with an acquisition that it had begun, which takes long where hundreds wait for their turn.
            let end = worked.iter().map(|worked| worked.end).max().unwrap_or(begin);
            Ok::<_, BenchError>((
                worked,
                Span { elapsed: end.saturating_duration_since(begin), ..watch.read() },
            ))
        })?;
        let acquisitions = || worked.iter().map(|worked| worked.acquisitions);
        let (sum, least) = (acquisitions().sum::<u64>(), acquisitions().min().unwrap_or(0));
        let handovers: u64 = worked.iter().map(|worked| worked.handovers).sum();
        Ok(Outcome {
            per_s: sum as f64 / measured.elapsed.as_secs_f64(),
            computed_ns: measured.computed_ns(sum),
            least_share: least as f64 * threads as f64 * 100.0 / sum.max(1) as f64,
            handovers: mix.step().map(|_| handovers as f64 * 100.0 / sum.max(1) as f64),
            word: guarded.words[0].load(Ordering::Relaxed),
            added: acquisitions().map(|acquisitions| mix.added(acquisitions)).sum(),
            seen: Seen::of(worked.into_iter().map(|worked| worked.seen)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{latch::nothing::Nothing, tests::until_enough};

    /// Takes longer than is measured.
    #[derive(Default)]
    struct Slow;

    const SLOW: Duration = Duration::from_millis(30);

    impl Latch for Slow {
        const SHARES: bool = false;
        const OPTIMISTIC: bool = false;

        fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
            thread::sleep(SLOW);
            change()
        }

        fn try_exclusive<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
            Some(self.exclusive(change))
        }
    }

    #[test]
    fn the_time_of_what_is_counted_is_measured() {
        let span = Duration::from_millis(1);
        let outcome =
            Round { mix: LatchMix::WriteOnly, threads: 1, span, bind: false }.visit::<Slow>().unwrap();
        let most = 1.0 / SLOW.as_secs_f64();
        assert!(0.0 < outcome.per_s && outcome.per_s <= most, "{} {most}", outcome.per_s);
    }

    /// The check can fail: by a latch that excludes nobody.
    #[test]
    fn a_latch_that_lets_everybody_in_is_found_out() {
        for mix in [LatchMix::WriteOnly, LatchMix::Mixed, LatchMix::Contended] {
            let measure = |span| {
                let mut exclusion = Check::new("exclusion");
                let round = Round { mix, threads: 3, span, bind: false };
                round.visit::<Nothing>().unwrap().check("", &mut exclusion);
                exclusion
            };
            let exclusion = until_enough(Duration::from_millis(20), measure, |exclusion| !exclusion.holds);
            assert!(!exclusion.holds, "{exclusion:?}");
        }
    }
}
