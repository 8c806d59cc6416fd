//! The lock manager alone, no engine around it: how many locks in a second, and what each costs.
//!
//! A transaction takes some locks on keys, one after another in the order of the keys, so that no two can wait for each
//! other in a cycle, and gives them all back. *Hot*: all threads use the same few keys. *Cold*: every thread has keys
//! of its own, and each is used once in a million times. Combinations take turns, in several rounds; the median counts.
//!
//! Whoever holds a hot key exclusively counts that beside it, by a load and a store; whoever shares one looks at the
//! count twice. So a lock that excludes nobody shows.

mod worker;

use std::fmt;

use foreshore::Options;
use foreshore_env::{sync::atomic::Ordering::Relaxed, thread, time::Duration};
use foreshore_lock::{LockError, LockOptions, LockStats};
use serde::Serialize;

use crate::{
    BenchError,
    engine::{AbortCause, Failure},
    named::Named,
    rounds::{check_rounds, in_turns, median, median_if_counted, run_together},
    workload::Check,
};
use worker::{COLD_KEYS, LockThread, Scene, Seen};

/// Keys that all threads use when they are hot.
const HOT_KEYS: u64 = 256;
/// Most locks of a transaction.
pub const MAX_LOCKS_MEASURED: usize = HOT_KEYS as usize;
/// How many locks of the mixed load there are for each exclusive one, itself included.
const MIXED_EXCLUSIVE_EVERY: u64 = 5;

/// Which locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMix {
    /// Shared.
    Shared,
    /// Exclusive.
    Exclusive,
    /// Every fifth exclusive, the others shared.
    Mixed,
}

impl LockMix {
    #[inline]
    fn is_exclusive(self, number: u64) -> bool {
        match self {
            LockMix::Shared => false,
            LockMix::Exclusive => true,
            LockMix::Mixed => number.is_multiple_of(MIXED_EXCLUSIVE_EVERY),
        }
    }
}

impl Named for LockMix {
    const WHAT: &'static str = "mix";
    const ALL: &'static [LockMix] = &[LockMix::Shared, LockMix::Exclusive, LockMix::Mixed];

    fn name(self) -> &'static str {
        match self {
            LockMix::Shared => "s",
            LockMix::Exclusive => "x",
            LockMix::Mixed => "mixed",
        }
    }
}

/// A lock table and a policy against deadlocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockVariant {
    table: String,
    policy: String,
    options: LockOptions,
}

impl LockVariant {
    /// By the names of the options `lock_table` and `deadlock_policy`.
    pub fn named(table: &str, policy: &str) -> Result<LockVariant, BenchError> {
        let mut names = Options::default();
        for (option, value) in [("lock_table", table), ("deadlock_policy", policy)] {
            names.set(option, value).map_err(|error| BenchError::invalid(error.to_string()))?;
        }
        let options = LockOptions {
            table: names.lock_table,
            deadlock: names.deadlock_policy,
            deadlock_timeout: names.deadlock_timeout,
            ..LockOptions::default()
        };
        Ok(LockVariant { table: table.to_owned(), policy: policy.to_owned(), options })
    }
}

impl fmt::Display for LockVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.table, self.policy)
    }
}

/// What is to be measured: all combinations.
#[derive(Clone, Debug)]
pub struct LocksOptions {
    /// Lock tables and policies.
    pub variants: Vec<LockVariant>,
    /// Locks of a transaction, each at most [`MAX_LOCKS_MEASURED`].
    pub locks: Vec<usize>,
    /// Shared or exclusive.
    pub mixes: Vec<LockMix>,
    /// Whether the keys are hot.
    pub hot: Vec<bool>,
    /// The numbers of threads.
    pub threads: Vec<usize>,
    /// How long each combination is measured, all rounds together.
    pub seconds: Duration,
    /// Rounds; the median counts.
    pub rounds: usize,
}

/// What one combination showed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LocksResult {
    /// The lock table.
    pub table: String,
    /// The policy against deadlocks.
    pub policy: String,
    /// `s`, `x` or `mixed`.
    pub mix: &'static str,
    /// `hot` or `cold`.
    pub keys: &'static str,
    /// Locks of a transaction.
    pub locks: usize,
    /// Threads.
    pub threads: usize,
    /// Locks granted and given back in a second, by all threads together, in transactions that got all of theirs: the
    /// median of the rounds.
    pub locks_per_s: f64,
    /// How long a lock took a thread on average, with its share of beginning and ending the transaction, waiting
    /// included, in nanoseconds.
    pub ns: f64,
    /// How long threads computed for a lock, as above, in nanoseconds; spinning included, sleeping not. `None` where
    /// nobody counts.
    pub computed_ns: Option<f64>,
    /// The share of the attempts that gave way, all rounds together.
    pub abort_ratio: f64,
    /// Of a thousand locks, so many were waited for; warm-up included.
    pub waits_per_1000: f64,
    /// Suspected deadlocks that were none; warm-up included.
    pub suspicions_refuted: u64,
}

/// Measurements of locks. As JSON its field names are stable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LocksReport {
    /// `locks`.
    pub experiment: &'static str,
    /// The version of this program.
    pub version: &'static str,
    /// Threads that can run at the same time.
    pub processors: usize,
    /// How long each combination was measured, in seconds.
    pub seconds: f64,
    /// In so many rounds.
    pub rounds: usize,
    /// The results.
    pub results: Vec<LocksResult>,
    /// Whether all checks hold.
    pub consistent: bool,
    /// What was checked.
    pub checks: Vec<Check>,
}

/// One combination.
#[derive(Clone, Copy)]
struct Cell<'o> {
    variant: &'o LockVariant,
    mix: LockMix,
    hot: bool,
    locks: usize,
    threads: usize,
}

/// Measures all combinations. `progress` is told how many rounds are done, of how many.
pub fn measure_locks(
    options: &LocksOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<LocksReport, BenchError> {
    check_rounds(options.rounds, options.seconds, &options.threads)?;
    check_locks(&options.locks)?;
    let mut cells = Vec::new();
    for &threads in &options.threads {
        for &hot in &options.hot {
            for &mix in &options.mixes {
                for &locks in &options.locks {
                    for variant in &options.variants {
                        cells.push((Cell { variant, mix, hot, locks, threads }, Vec::new()));
                    }
                }
            }
        }
    }
    let span = options.seconds / options.rounds as u32;
    let mut checks = Checks::default();
    in_turns(&mut cells, options.rounds, progress, |(cell, rounds)| {
        cell.round(span, &mut checks).map(|round| rounds.push(round))
    })?;
    let checks = checks.into_vec();
    Ok(LocksReport {
        experiment: "locks",
        version: env!("CARGO_PKG_VERSION"),
        processors: thread::available_parallelism(),
        seconds: options.seconds.as_secs_f64(),
        rounds: options.rounds,
        results: cells.iter().map(|(cell, rounds)| cell.result(rounds)).collect(),
        consistent: checks.iter().all(|check| check.holds),
        checks,
    })
}

/// Takes and gives back locks in so many transactions of one thread, in one function that is never inlined: for
/// counting instructions. Gives the locks taken.
pub fn count_locks(
    variant: &LockVariant,
    (mix, hot, locks): (LockMix, bool, usize),
    transactions: u64,
) -> Result<u64, BenchError> {
    check_locks(&[locks])?;
    let cell = Cell { variant, mix, hot, locks, threads: 1 };
    let scene = Scene::new(&variant.options);
    let mut thread = LockThread::new(&cell, &scene, 0);
    // Requests, and the pages of the buckets, are there before anything is counted.
    thread.transactions(COLD_KEYS.min(65_536) / locks as u64)?;
    thread.seen = Seen::default();
    measured_transactions(&mut thread, transactions)?;
    Ok(thread.seen.locks)
}

/// Never inlined, so that its instructions can be counted by name.
#[inline(never)]
fn measured_transactions(thread: &mut LockThread<'_>, count: u64) -> Result<(), BenchError> {
    thread.transactions(count)
}

fn check_locks(locks: &[usize]) -> Result<(), BenchError> {
    match locks.iter().find(|locks| !(1..=MAX_LOCKS_MEASURED).contains(*locks)) {
        Some(locks) => Err(BenchError::invalid(format!(
            "a transaction of {locks} locks cannot be measured; give 1 to {MAX_LOCKS_MEASURED}"
        ))),
        None => Ok(()),
    }
}

/// What all rounds have to keep.
struct Checks {
    exclusion: Check,
    empty: Check,
    count: Check,
    false_deadlocks: Check,
}

impl Default for Checks {
    fn default() -> Checks {
        Checks {
            exclusion: Check::new("hot keys: as many changes as exclusive locks, and none while shared"),
            empty: Check::new("after each round: no locks and nobody waiting"),
            count: Check::new("after each round: as many locks given back as granted"),
            false_deadlocks: Check::new(
                "policies that detect: nobody gives way where keys are taken in order",
            ),
        }
    }
}

impl Checks {
    fn into_vec(self) -> Vec<Check> {
        [self.exclusion, self.empty, self.count, self.false_deadlocks]
            .into_iter()
            .filter(|check| check.examined > 0)
            .collect()
    }
}

/// What a round showed.
struct Round {
    locks_per_s: f64,
    computed_ns: Option<f64>,
    seen: Seen,
    stats: LockStats,
}

impl Cell<'_> {
    fn round(&self, span: Duration, checks: &mut Checks) -> Result<Round, BenchError> {
        let scene = Scene::new(&self.variant.options);
        let (seen, measured_span) = run_together(self.threads, (span / 10, span), |number, clock| {
            let mut thread = LockThread::new(self, &scene, number);
            let mut warm = Seen::default();
            let mut was_measured = false;
            // At least one, also when the time is over before this thread has begun.
            loop {
                let now = clock.goes_on();
                if now != Some(false) && !was_measured {
                    warm = std::mem::take(&mut thread.seen);
                    was_measured = true;
                }
                if now.is_none() && thread.seen.transactions > 0 {
                    break;
                }
                thread.transactions(1)?;
            }
            Ok((warm, thread.seen))
        })?;
        let (mut all, mut measured) = (Seen::default(), Seen::default());
        for (warm, seen) in &seen {
            all.add(warm);
            all.add(seen);
            measured.add(seen);
        }
        let stats = scene.manager.stats();
        self.check(&scene, &all, &stats, checks);
        Ok(Round {
            locks_per_s: measured.locks as f64 / measured_span.elapsed.as_secs_f64(),
            computed_ns: measured_span.computed_ns(measured.locks),
            seen: measured,
            stats,
        })
    }

    fn check(&self, scene: &Scene, all: &Seen, stats: &LockStats, checks: &mut Checks) {
        let Cell { variant: LockVariant { table, policy, .. }, mix, hot, locks, threads } = *self;
        let place = || format!("{table}, {policy}, {locks} {} locks, {threads} threads", mix.name());
        if hot {
            let counted: u64 = scene.counts.iter().map(|count| count.load(Relaxed)).sum();
            checks.exclusion.expect(counted == all.exclusive && all.torn == 0, || {
                let Seen { exclusive, torn, .. } = all;
                format!("{}: {counted} changes, {exclusive} exclusive locks, {torn} while shared", place())
            });
        }
        checks.empty.expect(scene.manager.is_empty(), place);
        checks.count.expect(stats.released == all.granted, || {
            format!("{}: {} granted, {} given back", place(), all.granted, stats.released)
        });
        if self.variant.options.deadlock.detects() {
            checks
                .false_deadlocks
                .expect(all.aborts == 0, || format!("{}: {} gave way", place(), all.aborts));
        }
    }

    fn result(&self, rounds: &[Round]) -> LocksResult {
        let locks_per_s = median(rounds.iter().map(|round| round.locks_per_s).collect());
        let sum = |of: fn(&Round) -> u64| rounds.iter().map(of).sum::<u64>();
        let (aborts, attempts) =
            (sum(|round| round.seen.aborts), sum(|round| round.seen.aborts + round.seen.transactions));
        let (waits, released) = (sum(|round| round.stats.waits), sum(|round| round.stats.released));
        LocksResult {
            table: self.variant.table.clone(),
            policy: self.variant.policy.clone(),
            mix: self.mix.name(),
            keys: if self.hot { "hot" } else { "cold" },
            locks: self.locks,
            threads: self.threads,
            locks_per_s,
            ns: self.threads as f64 * 1e9 / locks_per_s,
            computed_ns: median_if_counted(rounds.iter().map(|round| round.computed_ns)),
            abort_ratio: aborts as f64 / attempts.max(1) as f64,
            waits_per_1000: waits as f64 * 1000.0 / released.max(1) as f64,
            suspicions_refuted: sum(|round| round.stats.suspicions_refuted),
        }
    }
}

/// A lock manager's error that no measurement expects.
#[cold]
pub(crate) fn failure(error: LockError) -> BenchError {
    BenchError::Engine(Failure { cause: AbortCause::Other, source: Box::new(error) })
}

#[cfg(test)]
mod tests {
    use foreshore_base::TxnId;
    use foreshore_lock::{Age, KeyMode, KeyRef, WaitPolicy};

    use super::*;
    use crate::tests::until_enough;
    use worker::TABLE;
    #[test]
    fn every_table_and_policy_is_measured_and_checked() {
        let mut variants = Vec::new();
        for table in ["latched", "staged", "global_mutex"] {
            for policy in ["dreadlocks", "wait_for_graph", "wait_die", "wound_wait", "no_wait"] {
                variants.push(LockVariant::named(table, policy).unwrap());
            }
        }
        let options = |seconds| LocksOptions {
            variants: variants.clone(),
            locks: vec![1, 20],
            mixes: vec![LockMix::Mixed],
            hot: vec![true, false],
            threads: vec![3],
            seconds,
            rounds: 2,
        };
        let measure = |seconds| {
            let mut rounds = 0;
            let told = &mut |done, total| {
                rounds += 1;
                assert_eq!((done, total), (rounds, 2 * 2 * 2 * 15));
            };
            measure_locks(&options(seconds), told).unwrap()
        };
        let report = until_enough(Duration::from_millis(60), measure, |report| {
            report.results.iter().all(|result| result.locks_per_s > 0.0)
        });
        assert!(report.consistent, "{:#?}", report.checks);
        assert_eq!((report.results.len(), report.checks.len()), (60, 4));
        for result in &report.results {
            assert!(result.locks_per_s > 0.0, "{result:?}");
            let product = result.ns * result.locks_per_s / 1e9;
            assert!((product - 3.0).abs() < 1e-6, "{result:?}");
            assert!(result.computed_ns.is_some_and(|ns| ns > 0.0), "{result:?}");
            assert!(result.keys == "hot" || (result.abort_ratio == 0.0 && result.waits_per_1000 == 0.0));
        }
    }

    #[test]
    fn transactions_are_counted_exactly() {
        for table in ["latched", "staged", "global_mutex"] {
            let variant = LockVariant::named(table, "dreadlocks").unwrap();
            for (hot, locks) in [(true, 7), (false, 100)] {
                let counted = count_locks(&variant, (LockMix::Exclusive, hot, locks), 50).unwrap();
                assert_eq!(counted, 50 * locks as u64);
            }
        }
    }

    /// The check of exclusion can fail: a thread that holds nothing and changes what others share is seen.
    #[test]
    fn a_change_without_a_lock_is_seen() {
        let variant = LockVariant::named("latched", "dreadlocks").unwrap();
        let cell = Cell { variant: &variant, mix: LockMix::Shared, hot: true, locks: 3, threads: 1 };
        let scene = Scene::new(&variant.options);
        let mut thread = LockThread::new(&cell, &scene, 0);
        let mut owner = scene.manager.begin(TxnId(1), Age::new(1, 0), None).unwrap();
        for key in 0..3_u64 {
            owner
                .acquire(TABLE, KeyRef::Key(&key.to_be_bytes()), KeyMode::SN, &WaitPolicy::default())
                .unwrap();
        }
        scene.counts[1].store(1, Relaxed);
        thread.seen.granted = 3;
        thread.give_back(owner, 0, 0);
        assert_eq!(thread.seen.torn, 1);
        let mut checks = Checks::default();
        cell.check(&scene, &thread.seen, &scene.manager.stats(), &mut checks);
        let failed: Vec<bool> = checks.into_vec().iter().map(|check| check.holds).collect();
        assert_eq!(failed, [false, true, true, true]);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        assert!(LockVariant::named("listed", "dreadlocks").unwrap_err().to_string().contains("staged"));
        assert!(LockVariant::named("latched", "hope").unwrap_err().to_string().contains("wait_die"));
        let variant = LockVariant::named("latched", "dreadlocks").unwrap();
        for locks in [0, MAX_LOCKS_MEASURED + 1] {
            assert!(count_locks(&variant, (LockMix::Shared, true, locks), 1).is_err());
        }
        for &mix in LockMix::ALL {
            assert_eq!(LockMix::named(mix.name()).unwrap(), mix);
        }
        assert!(LockMix::named("y").is_err());
    }
}
