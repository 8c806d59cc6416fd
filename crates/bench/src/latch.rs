//! Latches under load: how many acquisitions in a second, by so many threads of one latch (Böttcher et al. 2020, Table
//! 3 and figure 8).
//!
//! A round is a latch, a mix and a number of threads for a while. All combinations take turns, several times, so that
//! whatever else the machine does befalls them alike; the median of the rounds counts.

mod count;
mod nothing;
mod round;

use count::Count;
use foreshore_env::{
    CachePadded,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};
use foreshore_latch::baseline::{Latch, LatchKind, Visit};
use nothing::Nothing;
use round::Round;
use serde::Serialize;

use crate::{
    BenchError,
    bound::{Seen, check_binding},
    named::Named,
    rounds::{in_turns, median, median_if_counted},
    usage,
    workload::Check,
};

/// Words that a reader or writer touches: a cache line beside the latch's.
const WORDS: usize = 8;
/// How many acquisitions of the mixed load there are for each exclusive one, itself included.
const MIXED_WRITE_EVERY: u64 = 5;
/// How often a holder goes over the content under the contended load: about 100 ns.
const CONTENDED_ROUNDS: usize = 8;
/// Most threads of a measurement.
pub const MAX_LATCH_THREADS: usize = 1024;

/// What is measured: a latch, or the loop around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// No latch: what the loop and the content cost by themselves. For one thread.
    Nothing,
    /// A latch of this kind.
    Latch(LatchKind),
}

impl Subject {
    /// The name by which it is chosen.
    pub fn name(self) -> &'static str {
        match self {
            Subject::Nothing => "none",
            Subject::Latch(kind) => kind.name(),
        }
    }

    /// All latches, or the one of that name.
    pub fn named(name: &str) -> Result<Vec<Subject>, BenchError> {
        match name {
            "all" => Ok(LatchKind::ALL.iter().copied().map(Subject::Latch).collect()),
            "none" => Ok(vec![Subject::Nothing]),
            _ => match name.parse() {
                Ok(kind) => Ok(vec![Subject::Latch(kind)]),
                Err(_) => {
                    let names: Vec<_> = LatchKind::ALL.iter().map(|kind| kind.name()).collect();
                    let names = names.join(", ");
                    Err(BenchError::invalid(format!(
                        "there is no latch called {name:?}; choose all, none, or of: {names}"
                    )))
                }
            },
        }
    }
}

/// What threads do with the latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatchMix {
    /// They read: optimistically where the latch can, or else shared.
    ReadOnly,
    /// They change a word, exclusively.
    WriteOnly,
    /// Every fifth acquisition changes a word, the others read.
    Mixed,
    /// They hold the latch exclusively for about 100 ns.
    Contended,
}

impl LatchMix {
    /// What each acquisition adds to the first word, where all do.
    fn step(self) -> Option<u64> {
        match self {
            LatchMix::ReadOnly | LatchMix::Mixed => None,
            LatchMix::WriteOnly => Some(1),
            LatchMix::Contended => Some(CONTENDED_ROUNDS as u64),
        }
    }

    /// What the first so many acquisitions of a thread add to it.
    fn added(self, acquisitions: u64) -> u64 {
        match self {
            LatchMix::Mixed => acquisitions.div_ceil(MIXED_WRITE_EVERY),
            _ => acquisitions * self.step().unwrap_or(0),
        }
    }
}

impl Named for LatchMix {
    const WHAT: &'static str = "mix";
    const ALL: &'static [LatchMix] =
        &[LatchMix::ReadOnly, LatchMix::WriteOnly, LatchMix::Mixed, LatchMix::Contended];

    fn name(self) -> &'static str {
        match self {
            LatchMix::ReadOnly => "read-only",
            LatchMix::WriteOnly => "write-only",
            LatchMix::Mixed => "mixed",
            LatchMix::Contended => "contended",
        }
    }
}

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct LatchOptions {
    /// The latches.
    pub subjects: Vec<Subject>,
    /// The mixes.
    pub mixes: Vec<LatchMix>,
    /// The numbers of threads.
    pub threads: Vec<usize>,
    /// How long each combination is measured, all rounds together.
    pub seconds: Duration,
    /// Rounds; the median counts.
    pub rounds: usize,
    /// Whether each thread has a processor of its own and stays on it.
    pub bind: bool,
}

/// What one combination showed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatchResult {
    /// The latch.
    pub latch: &'static str,
    /// Its size.
    pub size_bytes: usize,
    /// The mix.
    pub mix: &'static str,
    /// Threads that used the latch.
    pub threads: usize,
    /// Acquisitions in a second, by all threads together: the median of the rounds.
    pub acquisitions_per_s: f64,
    /// How long an acquisition took a thread on average, waiting included, in nanoseconds.
    pub ns: f64,
    /// The same in cycles of the processor's clock ([`LatchReport::cycles_per_ns`]).
    pub cycles: Option<f64>,
    /// How long processors computed for an acquisition, in nanoseconds; spinning included, sleeping not. `None` where
    /// nobody counts.
    pub computed_ns: Option<f64>,
    /// The acquisitions of the thread that got the fewest, in percent of the average; the median of the rounds.
    pub least_share_percent: f64,
    /// Of so many percent of the acquisitions the thread was not the one that had held the latch before; the median of
    /// the rounds. `None` where not all are exclusive.
    pub handovers_percent: Option<f64>,
    /// How long a message took between the first two of bound threads, before and after each round: the most, in
    /// nanoseconds.
    pub message_ns: Option<f64>,
    /// The least.
    pub least_message_ns: Option<f64>,
    /// For how much of its time a bound thread was ready and had no processor, in percent: the most; `None` where
    /// nobody tells.
    pub waited_percent: Option<f64>,
}

/// Measurements of latches. As JSON its field names are stable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatchReport {
    /// `latch`.
    pub experiment: &'static str,
    /// The version of this program.
    pub version: &'static str,
    /// Threads that can run at the same time.
    pub processors: usize,
    /// Cycles of the processor's clock in a nanosecond, where the system says that; it may have run faster or slower
    /// meanwhile.
    pub cycles_per_ns: Option<f64>,
    /// How long each combination was measured, in seconds.
    pub seconds: f64,
    /// In so many rounds.
    pub rounds: usize,
    /// The results: for each mix, number of threads and latch.
    pub results: Vec<LatchResult>,
    /// Whether all checks hold.
    pub consistent: bool,
    /// What was checked.
    pub checks: Vec<Check>,
}

/// Measures all combinations. `progress` is told how many rounds are done, of how many.
pub fn measure_latches(
    options: &LatchOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<LatchReport, BenchError> {
    check(options)?;
    let mut cells = Vec::new();
    for mix in &options.mixes {
        for threads in &options.threads {
            cells.extend(options.subjects.iter().map(|subject| (*subject, *mix, *threads, Vec::new())));
        }
    }
    let span = options.seconds / options.rounds as u32;
    let mut exclusion = Check::new("the word is what all who held the latch exclusively added to it");
    in_turns(&mut cells, options.rounds, progress, |(subject, mix, threads, rounds)| {
        let outcome = visit(*subject, Round { mix: *mix, threads: *threads, span, bind: options.bind })?;
        outcome.check(&format!("{}, {}, {threads} threads", subject.name(), mix.name()), &mut exclusion);
        rounds.push(outcome);
        Ok(())
    })?;
    let cycles_per_ns = usage::cycles_per_ns();
    let results = cells
        .into_iter()
        .map(|(subject, mix, threads, rounds)| {
            let rate = median(rounds.iter().map(|round| round.per_s).collect());
            let seen = Seen::of(rounds.iter().map(|round| round.seen.clone()));
            LatchResult {
                latch: subject.name(),
                size_bytes: match subject {
                    Subject::Nothing => 0,
                    Subject::Latch(kind) => kind.size(),
                },
                mix: mix.name(),
                threads,
                acquisitions_per_s: rate,
                ns: threads as f64 * 1e9 / rate,
                cycles: cycles_per_ns.map(|cycles| cycles * threads as f64 * 1e9 / rate),
                computed_ns: median_if_counted(rounds.iter().map(|round| round.computed_ns)),
                least_share_percent: median(rounds.iter().map(|round| round.least_share).collect()),
                handovers_percent: median_if_counted(rounds.iter().map(|round| round.handovers)),
                message_ns: seen.messages_ns.iter().copied().reduce(f64::max),
                least_message_ns: seen.messages_ns.iter().copied().reduce(f64::min),
                waited_percent: seen.waited_percent,
            }
        })
        .collect();
    Ok(LatchReport {
        experiment: "latch",
        version: env!("CARGO_PKG_VERSION"),
        processors: thread::available_parallelism(),
        cycles_per_ns,
        seconds: options.seconds.as_secs_f64(),
        rounds: options.rounds,
        results,
        consistent: exclusion.holds,
        checks: vec![exclusion],
    })
}

/// Makes so many acquisitions by one thread, in one function that is never inlined: for counting instructions. Gives
/// the sum of what was read.
pub fn count_latch(subject: Subject, mix: LatchMix, iterations: u64) -> u64 {
    visit(subject, Count { mix, iterations })
}

fn check(options: &LatchOptions) -> Result<(), BenchError> {
    if options.rounds == 0 || options.seconds.is_zero() {
        return Err(BenchError::invalid("a measurement takes some time and at least one round"));
    }
    if options.subjects.contains(&Subject::Nothing) && options.threads.iter().any(|threads| *threads != 1) {
        return Err(BenchError::invalid(
            "without a latch several threads would only get in each other's way; measure none with one thread",
        ));
    }
    if options.bind {
        check_binding(options.threads.iter().copied().max().unwrap_or(1))?;
    }
    match options.threads.iter().find(|threads| !(1..=MAX_LATCH_THREADS).contains(*threads)) {
        Some(threads) => Err(BenchError::invalid(format!(
            "{threads} threads cannot be measured; give 1 to {MAX_LATCH_THREADS}"
        ))),
        None => Ok(()),
    }
}

fn visit<V: Visit>(subject: Subject, visitor: V) -> V::Output {
    match subject {
        Subject::Nothing => visitor.visit::<Nothing>(),
        Subject::Latch(kind) => kind.visit(visitor),
    }
}

/// A latch and what it guards, each on lines of its own.
#[derive(Default)]
struct Guarded<L> {
    latch: CachePadded<L>,
    /// Guarded by the latch; relaxed, because optimistic readers race with writers.
    words: CachePadded<[AtomicU64; WORDS]>,
}

impl<L: Latch> Guarded<L> {
    /// The `number`-th acquisition of a thread: the first word, as this thread read or left it.
    #[inline]
    fn acquire(&self, mix: LatchMix, number: u64) -> u64 {
        let read = || self.words[0].load(Ordering::Relaxed);
        let change = || add(&self.words[0]);
        match mix {
            LatchMix::ReadOnly => self.latch.read(read),
            LatchMix::WriteOnly => self.latch.exclusive(change),
            LatchMix::Mixed if number.is_multiple_of(MIXED_WRITE_EVERY) => self.latch.exclusive(change),
            LatchMix::Mixed => self.latch.read(read),
            LatchMix::Contended => self.latch.exclusive(|| {
                (0..CONTENDED_ROUNDS).for_each(|_| {
                    self.words.iter().for_each(|word| {
                        add(word);
                    });
                });
                read()
            }),
        }
    }
}

/// Adds one, as a holder may who is alone.
#[inline]
fn add(word: &AtomicU64) -> u64 {
    let value = word.load(Ordering::Relaxed) + 1;
    word.store(value, Ordering::Relaxed);
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::until_enough;

    fn options(subject: &str, seconds: Duration) -> LatchOptions {
        LatchOptions {
            subjects: Subject::named(subject).unwrap(),
            mixes: LatchMix::ALL.to_vec(),
            threads: vec![1, 3],
            seconds,
            rounds: 2,
            bind: false,
        }
    }

    #[test]
    fn all_latches_are_measured_under_all_mixes() {
        let measure = |seconds| {
            let mut rounds = 0;
            let told = &mut |done, total| {
                rounds += 1;
                assert_eq!((done, total), (rounds, 2 * 2 * 4 * LatchKind::ALL.len()));
            };
            measure_latches(&options("all", seconds), told).unwrap()
        };
        let report = until_enough(Duration::from_millis(4), measure, |report| {
            report.results.iter().all(|result| result.acquisitions_per_s > 0.0)
        });
        assert_eq!(report.results.len(), 2 * 4 * LatchKind::ALL.len());
        assert!(report.consistent && report.checks[0].examined > 0, "{:?}", report.checks);
        for result in &report.results {
            assert!(result.acquisitions_per_s > 0.0 && result.size_bytes > 0, "{result:?}");
            assert!((0.0..=100.0).contains(&result.least_share_percent), "{result:?}");
            let product = result.ns * result.acquisitions_per_s / 1e9;
            assert!((product - result.threads as f64).abs() < 1e-6, "{result:?}");
            assert!(result.computed_ns.is_some_and(|ns| ns > 0.0), "{result:?}");
            let exclusive = ["write-only", "contended"].contains(&result.mix);
            assert_eq!(result.handovers_percent.is_some(), exclusive, "{result:?}");
            let most = if result.threads == 1 { 0.0 } else { 100.0 };
            assert!(result.handovers_percent.is_none_or(|part| part <= most), "{result:?}");
        }
    }

    #[cfg(all(target_os = "linux", not(foreshore_sim)))]
    #[test]
    fn bound_threads_say_how_far_they_are_from_each_other() {
        let threads: Vec<usize> = (1..=thread::processors().min(2)).collect();
        let bound = LatchOptions { threads, bind: true, ..options("tas", Duration::from_millis(4)) };
        let report = measure_latches(&bound, &mut |_, _| {}).unwrap();
        for result in &report.results {
            assert_eq!(result.message_ns.is_some_and(|ns| ns > 0.0), result.threads == 2, "{result:?}");
        }
    }

    #[test]
    fn nothing_is_measured_with_one_thread_only() {
        let several = options("none", Duration::from_millis(2));
        let refused = measure_latches(&several, &mut |_, _| {}).unwrap_err().to_string();
        assert!(refused.contains("with one thread"), "{refused}");
        let one = LatchOptions { threads: vec![1], ..several };
        let report = measure_latches(&one, &mut |_, _| {}).unwrap();
        assert!(report.results.iter().all(|result| result.threads == 1 && result.size_bytes == 0));
        assert_eq!(report.results.len(), 4);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        assert!(Subject::named("spinlock").unwrap_err().to_string().contains("queuing_rw"));
        assert!(LatchMix::named("writes").is_err());
        for &mix in LatchMix::ALL {
            assert_eq!(LatchMix::named(mix.name()).unwrap(), mix);
        }
        let good = options("tas", Duration::from_millis(1));
        for bad in [
            LatchOptions { rounds: 0, ..good.clone() },
            LatchOptions { seconds: Duration::ZERO, ..good.clone() },
            LatchOptions { threads: vec![1, 0], ..good.clone() },
            LatchOptions { threads: vec![MAX_LATCH_THREADS + 1], ..good.clone() },
            LatchOptions { threads: vec![thread::processors() + 1], bind: true, ..good },
        ] {
            assert!(measure_latches(&bad, &mut |_, _| {}).is_err());
        }
    }

    #[test]
    fn a_count_does_every_acquisition() {
        for subject in Subject::named("all").unwrap() {
            assert_eq!(count_latch(subject, LatchMix::WriteOnly, 100), (1..=100).sum::<u64>());
            // Writers are the first of each five, and each reader sees as many changes as writers before it.
            assert_eq!(count_latch(subject, LatchMix::Mixed, 10), 5 + 10);
            assert_eq!(count_latch(subject, LatchMix::ReadOnly, 10), 0);
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
