//! Measurements that are made in rounds, and threads that are measured together.

use foreshore_env::{
    CachePadded,
    sync::atomic::{AtomicU8, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant, computed},
};

use crate::{BenchError, threads::start_all};

/// The middle value, or the mean of the two in the middle.
///
/// # Panics
/// Without any value.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    (low + high) / 2.0
}

/// In which order so many take their turns in a round. Every second round is the one before in reverse, and each pair
/// of rounds begins with another one: who comes after whom must not matter.
pub fn turns(count: usize, round: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..count).collect();
    places.rotate_left((round / 2) % count.max(1));
    if round % 2 == 1 {
        places.reverse();
    }
    places
}

/// Measures the cells in so many rounds, in which they take turns. `progress` is told how many measurements are done,
/// of how many.
pub(crate) fn in_turns<C>(
    cells: &mut [C],
    rounds: usize,
    progress: &mut dyn FnMut(usize, usize),
    mut measure: impl FnMut(&mut C) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let count = cells.len();
    let order = (0..rounds).flat_map(|round| turns(count, round));
    for (before, turn) in order.enumerate() {
        measure(&mut cells[turn])?;
        progress(before + 1, count * rounds);
    }
    Ok(())
}

/// Measures a span of time, and how long the threads of the program computed in it.
pub(crate) struct Stopwatch {
    begin: Instant,
    computed: Option<Duration>,
}

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch { begin: Instant::now(), computed: computed() }
    }

    pub(crate) fn read(&self) -> Span {
        let computed = computed().zip(self.computed).map(|(now, before)| now.saturating_sub(before));
        Span { elapsed: self.begin.elapsed(), computed }
    }
}

/// A span of time.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    /// How long it was.
    pub(crate) elapsed: Duration,
    /// How long all threads of the program computed meanwhile; `None` where nobody counts.
    pub(crate) computed: Option<Duration>,
}

impl Span {
    /// Nanoseconds of computing for each of so many; `None` if there were none.
    pub(crate) fn computed_ns(&self, count: u64) -> Option<f64> {
        let computed = self.computed.filter(|_| count > 0)?;
        Some(computed.as_nanos() as f64 / count as f64)
    }
}

/// The median of what was counted in all rounds.
pub(crate) fn median_if_counted(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.collect::<Option<Vec<f64>>>().map(median)
}

const WAIT: u8 = 0;
const WARM_UP: u8 = 1;
const MEASURE: u8 = 2;
const STOP: u8 = 3;

/// What time it is for threads that are measured together.
pub(crate) struct Clock {
    /// One of the constants above; written by the main thread and by threads that fail, read by all. Relaxed: it
    /// carries no data.
    phase: CachePadded<AtomicU8>,
    ready: AtomicUsize,
}

impl Clock {
    fn new() -> Clock {
        Clock { phase: CachePadded::new(AtomicU8::new(WAIT)), ready: AtomicUsize::new(0) }
    }

    /// A thread is ready, and waits until the clock goes.
    fn wait(&self) {
        self.ready.fetch_add(1, Ordering::Relaxed);
        while self.phase.load(Ordering::Relaxed) == WAIT {
            thread::yield_now();
        }
    }

    /// Waits until so many are ready.
    fn wait_for(&self, threads: usize) {
        while self.ready.load(Ordering::Relaxed) < threads {
            thread::yield_now();
        }
    }

    /// Lets nobody go on, nor begin.
    fn stop(&self) {
        self.phase.store(STOP, Ordering::Relaxed);
    }

    /// Whether to go on, and if so whether that is measured.
    #[inline]
    pub(crate) fn goes_on(&self) -> Option<bool> {
        match self.phase.load(Ordering::Relaxed) {
            STOP => None,
            phase => Some(phase == MEASURE),
        }
    }
}

/// Stops the others when a thread ends for whatever reason, a panic included: none may be missing unnoticed (BENCH-4).
struct StopOthers<'c>(&'c Clock);

impl Drop for StopOthers<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Lets so many threads work at the same time, until the clock says stop, after `warm_up` and `span`. Gives what they
/// returned, and the time that was measured.
pub(crate) fn run_together<T: Send>(
    threads: usize,
    (warm_up, span): (Duration, Duration),
    work: impl Fn(usize, &Clock) -> Result<T, BenchError> + Sync,
) -> Result<(Vec<T>, Span), BenchError> {
    let clock = Clock::new();
    let start = |number| {
        let _stop_others = StopOthers(&clock);
        clock.wait();
        work(number, &clock)
    };
    thread::scope(|scope| {
        let start = &start;
        let workers = start_all(scope, threads, |number| move || start(number), |_| clock.stop())?;
        clock.wait_for(threads);
        clock.phase.store(WARM_UP, Ordering::Relaxed);
        thread::sleep(warm_up);
        let watch = Stopwatch::start();
        // Not if a thread has stopped all of them already.
        let _ = clock.phase.compare_exchange(WARM_UP, MEASURE, Ordering::Relaxed, Ordering::Relaxed);
        thread::sleep(span);
        clock.stop();
        let span = watch.read();
        Ok((join_all(workers)?, span))
    })
}

/// Lets so many threads begin at the same time, when all are there, and work to their ends. Gives what they returned,
/// and how long all of that took.
pub(crate) fn run_to_end<T: Send>(
    threads: usize,
    work: impl Fn(usize) -> Result<T, BenchError> + Sync,
) -> Result<(Vec<T>, Span), BenchError> {
    let clock = Clock::new();
    let start = |number| {
        clock.wait();
        // Its work may take all of them.
        clock.goes_on().ok_or_else(|| BenchError::invalid("a thread is missing"))?;
        work(number)
    };
    thread::scope(|scope| {
        let start = &start;
        let workers = start_all(scope, threads, |number| move || start(number), |_| clock.stop())?;
        clock.wait_for(threads);
        let watch = Stopwatch::start();
        clock.phase.store(MEASURE, Ordering::Relaxed);
        let results = join_all(workers)?;
        Ok((results, watch.read()))
    })
}

/// Waits for all, then says what they returned; a panic goes on.
fn join_all<T>(
    workers: Vec<thread::ScopedJoinHandle<'_, Result<T, BenchError>>>,
) -> Result<Vec<T>, BenchError> {
    let results: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
    results
        .into_iter()
        .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        .collect()
}

/// What of a measurement cannot be done in any round.
pub(crate) fn check_rounds(rounds: usize, seconds: Duration, threads: &[usize]) -> Result<(), BenchError> {
    if rounds == 0 || seconds.is_zero() {
        return Err(BenchError::invalid("a measurement takes some time and at least one round"));
    }
    if threads.is_empty() || threads.contains(&0) {
        return Err(BenchError::invalid("at least one thread must run"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_values_lie_on_each_side() {
        assert_eq!(median(vec![3.0]), 3.0);
        assert_eq!(median(vec![9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 9.0]), 3.0);
    }

    #[test]
    fn nobody_comes_always_after_the_same_one() {
        assert_eq!([0, 1, 2, 3].map(|round| turns(2, round)), [[0, 1], [1, 0], [1, 0], [0, 1]]);
        assert!(turns(0, 3).is_empty());
        for count in 1..5 {
            let rounds: Vec<_> = (0..2 * count).map(|round| turns(count, round)).collect();
            for one in 0..count {
                assert_eq!(rounds.iter().filter(|turns| turns[0] == one).count(), 2);
                for other in (0..count).filter(|other| *other != one) {
                    let before = |turns: &&Vec<usize>| {
                        turns.iter().position(|place| *place == one)
                            < turns.iter().position(|place| *place == other)
                    };
                    assert_eq!(rounds.iter().filter(before).count(), count);
                }
            }
        }
    }

    #[test]
    fn threads_work_to_their_ends_or_one_fails() {
        let begun = AtomicUsize::new(0);
        let work = |number| {
            begun.fetch_add(1, Ordering::Relaxed);
            // All run at the same time.
            while begun.load(Ordering::Relaxed) < 3 {
                thread::yield_now();
            }
            Ok(number)
        };
        let before = Instant::now();
        let (numbers, span) = run_to_end(3, work).unwrap();
        assert!(!span.elapsed.is_zero() && span.elapsed <= before.elapsed());
        assert_eq!(numbers, [0, 1, 2]);
        let fail = |number| if number == 1 { Err(BenchError::invalid("broken")) } else { Ok(()) };
        assert_eq!(run_to_end(3, fail).err().unwrap().to_string(), "broken");
    }

    #[test]
    fn threads_work_until_the_clock_stops_or_one_fails() {
        let short = (Duration::from_millis(5), Duration::from_millis(20));
        let count = |_, clock: &Clock| {
            let (mut warm, mut measured) = (0_u64, 0_u64);
            while let Some(counts) = clock.goes_on() {
                *(if counts { &mut measured } else { &mut warm }) += 1;
                thread::yield_now();
            }
            Ok((warm, measured))
        };
        let measure = |measured| run_together(3, (short.0, measured), count).unwrap();
        let is_enough = |counts: &[(u64, u64)]| counts.iter().any(|(warm, measured)| *warm.min(measured) > 0);
        let (counts, span) = crate::tests::until_enough(short.1, measure, |(counts, _)| is_enough(counts));
        assert!(
            counts.len() == 3
                && span.elapsed >= short.1
                && span.computed.is_some_and(|computed| !computed.is_zero())
        );
        assert!(is_enough(&counts), "{counts:?}");
        let fail = |number, clock: &Clock| {
            if number == 1 {
                return Err(BenchError::invalid("broken"));
            }
            count(number, clock)
        };
        let error = run_together(3, short, fail).err().unwrap();
        assert_eq!(error.to_string(), "broken");
    }
}
