//! The machine's memory: what one access to a word takes, wherever its line is. On the real machine it tells what a
//! profile of it has to say; on a simulated one, what is made of that.
//!
//! Each figure is measured several times. The least tells what the machine can do, the median how much else it did
//! meanwhile; of two threads only the median means anything.

mod lines;

use std::rc::Rc;

use foreshore_env::{
    CachePadded, hint,
    sync::atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
        fence,
    },
    thread,
    time::Instant,
};
use lines::{Line, Lines};
use serde::Serialize;

use crate::{
    BenchError,
    bound::{Messenger, check_binding},
    rounds::median,
    threads::start,
};

/// Among how many KiB lines are accessed if nothing else is said: within a core's own caches, within the last one, and
/// beyond.
const SIZES: [usize; 3] = [256, 4 << 10, 128 << 10];
/// The most.
const MOST_KIB: usize = 16 << 20;
/// Accesses to a word that is in the core itself.
const OWN: u64 = if cfg!(foreshore_sim) { 1000 } else { 4_000_000 };
/// Accesses to any lines, at least.
const VISITS: u64 = if cfg!(foreshore_sim) { 1000 } else { 2_000_000 };
/// Times that two threads hand a line to each other; even.
const HANDED: u64 = if cfg!(foreshore_sim) { 1000 } else { 200_000 };

/// What one kind of access took. As JSON its field names are stable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryResult {
    /// Which.
    pub access: &'static str,
    /// Among how many KiB of lines; `None`: always the same.
    pub kib: Option<usize>,
    /// Threads.
    pub threads: usize,
    /// Nanoseconds, the least of the rounds.
    pub least_ns: f64,
    /// Nanoseconds, the median of the rounds.
    pub ns: f64,
}

/// Measurements of memory. As JSON its field names are stable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryReport {
    /// `memory`.
    pub experiment: &'static str,
    /// The version of this program.
    pub version: &'static str,
    /// Threads that can run at the same time.
    pub processors: usize,
    /// In so many rounds.
    pub rounds: usize,
    /// The results.
    pub results: Vec<MemoryResult>,
}

/// What is to be measured of memory.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryPlan {
    /// How many times each.
    pub rounds: usize,
    /// Kinds of access whose names contain this.
    pub access: String,
    /// Among how many KiB lines are accessed.
    pub kib: Vec<usize>,
    /// Whether two threads have a processor each and stay on it.
    pub bind: bool,
}

impl Default for MemoryPlan {
    fn default() -> MemoryPlan {
        MemoryPlan { rounds: 1, access: String::new(), kib: SIZES.to_vec(), bind: false }
    }
}

/// A kind of access, and what measures it: nanoseconds for one.
struct Kind {
    access: &'static str,
    threads: usize,
    time: Box<dyn Fn() -> Result<f64, BenchError>>,
}

impl Kind {
    /// By one thread.
    fn new(access: &'static str, time: impl Fn() -> f64 + 'static) -> Kind {
        Kind { access, threads: 1, time: Box::new(move || Ok(time())) }
    }

    /// By two.
    fn together(access: &'static str, time: impl Fn() -> Result<f64, BenchError> + 'static) -> Kind {
        Kind { access, threads: 2, time: Box::new(time) }
    }
}

/// Names of the kinds of access among many lines.
const AMONG: [&str; 4] =
    ["load that finds where the next one is", "load of any line", "store to any line", "change of any line"];

/// Measures the kinds of access that are asked for; those by two threads where there are two processors. `progress` is
/// told how many rounds are done, of how many.
pub fn measure_memory(
    plan: &MemoryPlan,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<MemoryReport, BenchError> {
    let rounds = plan.rounds;
    if rounds == 0 {
        return Err(BenchError::invalid("a measurement takes at least one round"));
    }
    if let Some(kib) = plan.kib.iter().find(|kib| !(1..=MOST_KIB).contains(*kib)) {
        return Err(BenchError::invalid(format!("lines lie among 1 to {MOST_KIB} KiB, not {kib}")));
    }
    if plan.bind {
        check_binding(2)?;
    }
    let processors = thread::available_parallelism();
    let is_wanted = |access: &str| access.contains(&plan.access);
    let mut kinds = alone();
    // On one processor two threads would wait for each other's slice of time.
    let mut pairs = if processors > 1 { together_kinds(plan.bind) } else { Vec::new() };
    kinds.retain(|kind| is_wanted(kind.access));
    pairs.retain(|kind| is_wanted(kind.access));
    let sizes = if AMONG.iter().any(|access| is_wanted(access)) { &plan.kib[..] } else { &[] };
    check_room(sizes)?;
    let among = AMONG.iter().filter(|access| is_wanted(access)).count();
    let all = kinds.len() + pairs.len() + among * sizes.len();
    if all == 0 {
        return Err(BenchError::invalid(format!("no kind of access is called {}", plan.access)));
    }
    let mut results = Vec::new();
    let mut measure = |kind: &Kind, kib| {
        let times = (0..rounds)
            .map(|round| {
                let ns = (kind.time)()?;
                progress(results.len() * rounds + round + 1, all * rounds);
                Ok(ns)
            })
            .collect::<Result<Vec<f64>, BenchError>>()?;
        let least_ns = times.iter().copied().fold(f64::INFINITY, f64::min);
        let (access, threads) = (kind.access, kind.threads);
        results.push(MemoryResult { access, kib, threads, least_ns, ns: median(times) });
        Ok::<_, BenchError>(())
    };
    kinds.iter().try_for_each(|kind| measure(kind, None))?;
    for &kib in sizes {
        let mut kinds = among_lines(kib);
        kinds.retain(|kind| is_wanted(kind.access));
        kinds.iter().try_for_each(|kind| measure(kind, Some(kib)))?;
    }
    pairs.iter().try_for_each(|kind| measure(kind, None))?;
    Ok(MemoryReport { experiment: "memory", version: env!("CARGO_PKG_VERSION"), processors, rounds, results })
}

/// Refuses lines for which the system says that it has no memory: where it is asked for, the program would be aborted.
/// A simulated machine has memory, and what is asked for here would move all that is asked for later.
fn check_room(kib: &[usize]) -> Result<(), BenchError> {
    let most = kib.iter().copied().max().filter(|_| !cfg!(foreshore_sim)).unwrap_or(0);
    Vec::<u8>::new().try_reserve_exact(Lines::bytes(most)).map_err(|_| {
        BenchError::invalid(format!("there is no memory for lines among {most} KiB; give fewer with --kib"))
    })
}

/// Accesses by one thread to one word.
fn alone() -> Vec<Kind> {
    let change = |word: &AtomicU64, _| {
        word.fetch_add(1, AcqRel);
    };
    let store = |word: &AtomicU64, number| {
        word.store(number, Relaxed);
        fence(SeqCst);
    };
    vec![
        Kind::new("change of a word", move || own(change)),
        Kind::new("store to a word, and fence", move || own(store)),
        Kind::new("pause of a spinning loop", || own(|_, _| hint::spin_loop())),
    ]
}

/// Accesses by one thread to lines among so many KiB.
fn among_lines(kib: usize) -> Vec<Kind> {
    let lines = Rc::new(Lines::new(kib));
    let visit = |access: fn(&Line, u64) -> u64| {
        let lines = Rc::clone(&lines);
        move || lines.visit(access)
    };
    let [follows, loads, stores, changes] = AMONG;
    let followed = Rc::clone(&lines);
    vec![
        Kind::new(follows, move || followed.follow()),
        Kind::new(loads, visit(|line, sum| sum.wrapping_add(line.word.load(Relaxed)))),
        Kind::new(
            stores,
            visit(|line, sum| {
                line.word.store(sum, Release);
                sum
            }),
        ),
        Kind::new(
            changes,
            visit(|line, sum| {
                line.word.fetch_add(1, AcqRel);
                sum
            }),
        ),
    ]
}

/// Accesses by two threads.
fn together_kinds(bind: bool) -> Vec<Kind> {
    vec![
        Kind::together("hand over: one stores, the other loads", move || hand_over_by_stores(bind)),
        Kind::together("hand over: each looks at a line of its own", move || {
            hand_over_by_two_words(bind, false)
        }),
        Kind::together("hand over: the same, and another line with it", move || {
            hand_over_by_two_words(bind, true)
        }),
        Kind::together("hand over: one changes, the other tries to", move || hand_over_by_changes(bind)),
        Kind::together("change of a word by both", move || change_together(bind)),
    ]
}

/// Nanoseconds for each of as many as `work` says it has done.
fn timed(work: impl FnOnce() -> u64) -> f64 {
    let begin = Instant::now();
    let count = work();
    begin.elapsed().as_nanos() as f64 / count as f64
}

/// An access to a word that nobody else uses.
fn own(access: impl Fn(&AtomicU64, u64)) -> f64 {
    let word = CachePadded::new(AtomicU64::new(0));
    // Somebody else may look at it, as far as the compiler knows.
    timed(|| {
        (0..OWN).for_each(|number| access(std::hint::black_box(&word), number));
        OWN
    })
}

/// How long a message takes from one thread to the other: each stores a number and loads the word until it has the
/// answer.
fn hand_over_by_stores(bind: bool) -> Result<f64, BenchError> {
    let word = CachePadded::new(AtomicU64::new(0));
    // Acquire and Release: partners of each other.
    let wait_for = |number| while word.load(Acquire) != number {};
    together(
        bind,
        || {
            for number in (0..HANDED).step_by(2) {
                word.store(number + 1, Release);
                wait_for(number + 2);
            }
            HANDED
        },
        || {
            for number in (0..HANDED).step_by(2) {
                wait_for(number + 1);
                word.store(number + 2, Release);
            }
        },
    )
}

/// The same with a word for each direction, so that a thread that stores never has the line: the other looks at it
/// meanwhile. `guards`: the words tell that something else has changed, which is loaded and changed then, as by whoever
/// has got a latch.
fn hand_over_by_two_words(bind: bool, guards: bool) -> Result<f64, BenchError> {
    let words = [(); 2].map(|()| CachePadded::new(AtomicU64::new(0)));
    let guarded = CachePadded::new(AtomicU64::new(0));
    // Acquire and Release: partners of each other.
    let tell = |which: usize, number| {
        if guards {
            guarded.store(guarded.load(Relaxed) + 1, Relaxed);
        }
        words[which].store(number, Release);
    };
    let wait_for = |which: usize, number| while words[which].load(Acquire) != number {};
    together(
        bind,
        || {
            for number in 1..=HANDED / 2 {
                tell(1, number);
                wait_for(0, number);
            }
            HANDED
        },
        || {
            for number in 1..=HANDED / 2 {
                wait_for(1, number);
                tell(0, number);
            }
        },
    )
}

/// The same by exchanges: each tries to replace the other's number by its own until it can.
fn hand_over_by_changes(bind: bool) -> Result<f64, BenchError> {
    let word = CachePadded::new(AtomicU64::new(0));
    let talk = |begins| Messenger::new(&word, begins).exchange(HANDED);
    let first = || {
        talk(true);
        HANDED
    };
    together(bind, first, || talk(false))
}

/// Both add to one word, as fast as they can: how many additions a thread has of the line before the other takes it.
fn change_together(bind: bool) -> Result<f64, BenchError> {
    let word = CachePadded::new(AtomicU64::new(0));
    let add = || {
        (0..HANDED).for_each(|_| {
            word.fetch_add(1, AcqRel);
        });
    };
    let first = || {
        add();
        // Whoever began or ended sooner: so many have been made by both.
        word.load(Acquire)
    };
    together(bind, first, add)
}

/// That a thread is missing whom the other would wait for.
const ALONE: u64 = 1 << 32;

/// Runs both at the same time, if `bind` on a processor each; nanoseconds for each of as many as the first says.
fn together(bind: bool, one: impl Fn() -> u64 + Sync, other: impl Fn() + Sync) -> Result<f64, BenchError> {
    // How many are there, and [`ALONE`].
    let ready = AtomicU64::new(0);
    let meet = |number| {
        // That it can has been tried.
        let _ = bind && thread::pin(number);
        ready.fetch_add(1, AcqRel);
        while ready.load(Acquire) < 2 {
            hint::spin_loop();
        }
    };
    let first = || {
        meet(0);
        timed(&one)
    };
    thread::scope(|scope| {
        start(scope, "the second of two threads", || {
            meet(1);
            if ready.load(Acquire) < ALONE {
                other();
            }
        })?;
        if bind {
            // Not here: a thread that is bound once stays so.
            let first = start(scope, "the first of two threads", first);
            let first = first.inspect_err(|_| {
                ready.fetch_add(ALONE, AcqRel);
            })?;
            Ok(first.join().unwrap_or(f64::NAN))
        } else {
            Ok(first())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_measured_in_no_round() {
        let refused = |plan| measure_memory(&plan, &mut |_, _| {}).is_err();
        assert!(refused(MemoryPlan { rounds: 0, ..MemoryPlan::default() }));
        assert!(refused(MemoryPlan { access: "unheard of".to_owned(), ..MemoryPlan::default() }));
        assert!(refused(MemoryPlan { kib: vec![0], ..MemoryPlan::default() }));
    }
}
