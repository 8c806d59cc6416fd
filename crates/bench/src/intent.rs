//! Intent locks alone (Kimura et al., ADMS 2012, Figure 4): how long many transactions take that only announce what
//! they are going to lock.
//!
//! As in the paper, a transaction locks the volume and the four tables of TPC-B, half of them with IX and half with IS:
//! those of every second thread, because what is inherited is a lock of one mode, and a thread that changed its mode
//! would inherit nothing. So many times during the run a transaction takes an absolute lock instead: X on one of the
//! tables under IX on the volume, and one in four X on the volume. Everybody locks from the top and then by table, so
//! that no cycle closes.
//!
//! Whoever holds a table exclusively counts that beside it, by a load and a store; whoever announces something looks at
//! all counts when it has its locks and before it gives them back. So an intent beside an absolute lock shows.

use foreshore::{IntentLockKind, Options};
use foreshore_base::{TableId, TxnId};
use foreshore_env::{
    CachePadded,
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};
use foreshore_lock::{Age, IntentMode, LockManager, LockOptions, LockOwner, LockTableKind, WaitPolicy};
use serde::Serialize;

use crate::{
    BenchError,
    locks::failure,
    random::Random,
    rounds::{Span, check_rounds, in_turns, median, median_if_counted, run_to_end},
    workload::Check,
};

const TABLES: usize = 4;
const FIRST_TABLE: u32 = 16;
/// How many absolute locks there are for each one on the volume, itself included.
const VOLUME_EVERY: u64 = 4;
/// Transaction numbers that a thread takes at a time.
const NUMBERS_AT_A_TIME: u64 = 64;
/// A wait of this length is a failure.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What is to be measured: all combinations.
#[derive(Clone, Debug)]
pub struct IntentOptions {
    /// The kinds, by the names of the option `intent_locks`.
    pub kinds: Vec<String>,
    /// The lock table beneath those that are kept in it, by the names of the option `lock_table`.
    pub table: String,
    /// Absolute locks during a run: at most a tenth of the transactions.
    pub absolute: Vec<u64>,
    /// Transactions of a run, by all threads together.
    pub transactions: u64,
    /// Threads.
    pub threads: usize,
    /// Rounds; the median counts.
    pub rounds: usize,
}

/// What one combination showed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IntentResult {
    /// How intent locks are kept.
    pub kind: String,
    /// Absolute locks during the run.
    pub absolute: u64,
    /// How long the transactions took, in seconds: the median of the rounds.
    pub elapsed_s: f64,
    /// Transactions in a second.
    pub transactions_per_s: f64,
    /// How long threads computed for a transaction, in nanoseconds, waiting and waking included: the median of the
    /// rounds. `None` where nobody counts.
    pub computed_ns: Option<f64>,
    /// How often somebody waited, in all rounds.
    pub waits: u64,
}

/// Measurements of intent locks. As JSON its field names are stable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IntentReport {
    /// `intent`.
    pub experiment: &'static str,
    /// The version of this program.
    pub version: &'static str,
    /// Threads that can run at the same time.
    pub processors: usize,
    /// Threads that ran.
    pub threads: usize,
    /// The lock table.
    pub lock_table: String,
    /// Transactions of a run.
    pub transactions: u64,
    /// Rounds.
    pub rounds: usize,
    /// For each number of absolute locks and kind.
    pub results: Vec<IntentResult>,
    /// Whether all checks hold.
    pub consistent: bool,
    /// What was checked.
    pub checks: Vec<Check>,
}

/// Measures all combinations. `progress` is told how many rounds are done, of how many.
pub fn measure_intents(
    options: &IntentOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<IntentReport, BenchError> {
    let transactions = options.transactions;
    check_rounds(options.rounds, Duration::from_nanos(transactions), &[options.threads])?;
    if let Some(absolute) = options.absolute.iter().find(|absolute| **absolute > transactions / 10) {
        return Err(BenchError::invalid(format!(
            "{absolute} absolute locks are more than a tenth of {transactions} transactions"
        )));
    }
    let kinds = options.kinds.iter().map(|name| Ok((name.as_str(), kind_named(name)?)));
    let kinds = kinds.collect::<Result<Vec<_>, BenchError>>()?;
    let table = table_named(&options.table)?;
    let mut cells = Vec::new();
    for &absolute in &options.absolute {
        cells.extend(kinds.iter().map(|&(name, kind)| (name, kind, absolute, Vec::new())));
    }
    let mut checks = Checks::default();
    in_turns(&mut cells, options.rounds, progress, |(name, kind, absolute, rounds)| {
        let run = Run { kind: *kind, table, absolute: *absolute, transactions, threads: options.threads };
        run.round(name, &mut checks).map(|round| rounds.push(round))
    })?;
    let results = cells.into_iter().map(|(name, _, absolute, rounds)| {
        let elapsed_s = median(rounds.iter().map(|(span, _)| span.elapsed.as_secs_f64()).collect());
        IntentResult {
            kind: name.to_owned(),
            absolute,
            elapsed_s,
            transactions_per_s: transactions as f64 / elapsed_s,
            computed_ns: median_if_counted(rounds.iter().map(|(span, _)| span.computed_ns(transactions))),
            waits: rounds.iter().map(|(_, waits)| waits).sum(),
        }
    });
    let results = results.collect();
    let checks = vec![checks.exclusion, checks.empty];
    Ok(IntentReport {
        experiment: "intent",
        version: env!("CARGO_PKG_VERSION"),
        processors: thread::available_parallelism(),
        threads: options.threads,
        lock_table: options.table.clone(),
        transactions,
        rounds: options.rounds,
        results,
        consistent: checks.iter().all(|check| check.holds),
        checks,
    })
}

/// Runs so many transactions of one thread, in one function that is never inlined: for counting instructions.
pub fn count_intents(kind: &str, transactions: u64) -> Result<(), BenchError> {
    let table = LockTableKind::default();
    let run = Run { kind: kind_named(kind)?, table, absolute: 0, transactions, threads: 1 };
    let scene = Scene::new(&run);
    // The slot is there before anything is counted.
    IntentThread::new(&run, &scene, 0).run(0..1)?;
    measured_intents(&run, &scene, transactions)
}

/// Never inlined, so that its instructions can be counted by name.
#[inline(never)]
fn measured_intents(run: &Run, scene: &Scene, transactions: u64) -> Result<(), BenchError> {
    IntentThread::new(run, scene, 0).run(0..transactions).map(|_| ())
}

fn kind_named(name: &str) -> Result<IntentLockKind, BenchError> {
    let mut options = Options::default();
    options.set("intent_locks", name).map_err(|error| BenchError::invalid(error.to_string()))?;
    Ok(options.intent_locks)
}

fn table_named(name: &str) -> Result<LockTableKind, BenchError> {
    let mut options = Options::default();
    options.set("lock_table", name).map_err(|error| BenchError::invalid(error.to_string()))?;
    Ok(options.lock_table)
}

/// What all rounds have to keep.
struct Checks {
    exclusion: Check,
    empty: Check,
}

impl Default for Checks {
    fn default() -> Checks {
        Checks {
            exclusion: Check::new("as many changes as absolute locks, and none beside an intent lock"),
            empty: Check::new("after each round: no locks and nobody waiting"),
        }
    }
}

/// One combination.
struct Run {
    kind: IntentLockKind,
    table: LockTableKind,
    absolute: u64,
    transactions: u64,
    threads: usize,
}

/// A lock manager, and what its locks guard.
struct Scene {
    manager: Arc<LockManager>,
    /// Guarded by the locks on the tables: X on the table, or on the volume. Relaxed: the locks order them.
    counts: [CachePadded<AtomicU64>; TABLES],
    /// The next transaction number that nobody has taken.
    numbers: CachePadded<AtomicU64>,
}

impl Scene {
    fn new(run: &Run) -> Scene {
        let options = LockOptions { intents: run.kind, table: run.table, ..LockOptions::default() };
        Scene { manager: LockManager::new(&options), counts: Default::default(), numbers: Default::default() }
    }
}

impl Run {
    /// How long it takes, and how often somebody waited.
    fn round(&self, name: &str, checks: &mut Checks) -> Result<(Span, u64), BenchError> {
        let scene = Scene::new(self);
        // Shares that differ by one at most, and add up to all.
        let border = |number: usize| self.transactions * number as u64 / self.threads as u64;
        let (seen, span) = run_to_end(self.threads, |number| {
            IntentThread::new(self, &scene, number as u64).run(border(number)..border(number + 1))
        })?;
        self.check(name, &scene, &seen, checks);
        Ok((span, scene.manager.stats().waits))
    }

    fn check(&self, name: &str, scene: &Scene, seen: &[Seen], checks: &mut Checks) {
        let place = || format!("{name}, {} absolute locks", self.absolute);
        let changes: u64 = scene.counts.iter().map(|count| count.load(Relaxed)).sum();
        let counted: u64 = seen.iter().map(|seen| seen.changes).sum();
        let absolute: u64 = seen.iter().map(|seen| seen.absolute).sum();
        let torn: u64 = seen.iter().map(|seen| seen.torn).sum();
        checks.exclusion.expect(changes == counted && absolute == self.absolute && torn == 0, || {
            format!("{}: {changes} changes, {counted} made, {absolute} locks, {torn} beside intents", place())
        });
        checks.empty.expect(scene.manager.is_empty(), place);
    }

    /// Whether the transaction of this number takes an absolute lock: they are spread evenly.
    #[inline]
    fn is_absolute(&self, number: u64) -> bool {
        self.absolute > 0
            && (number + 1) * self.absolute / self.transactions > number * self.absolute / self.transactions
    }
}

/// What a thread has seen.
#[derive(Default)]
struct Seen {
    /// Absolute locks taken.
    absolute: u64,
    /// Counts raised under them: all of them under a lock on the volume.
    changes: u64,
    /// Counts that changed beside an intent lock.
    torn: u64,
}

struct IntentThread<'s> {
    run: &'s Run,
    scene: &'s Scene,
    random: Random,
    /// The next transaction number, and where those end that this thread has taken.
    numbers: (u64, u64),
    deadline: Instant,
    seen: Seen,
    mode: IntentMode,
}

impl<'s> IntentThread<'s> {
    fn new(run: &'s Run, scene: &'s Scene, number: u64) -> IntentThread<'s> {
        IntentThread {
            run,
            scene,
            random: Random::new(1, number),
            numbers: (0, 0),
            deadline: Instant::now() + LONGEST_WAIT,
            seen: Seen::default(),
            mode: if number.is_multiple_of(2) { IntentMode::IX } else { IntentMode::IS },
        }
    }

    fn run(mut self, share: std::ops::Range<u64>) -> Result<Seen, BenchError> {
        for number in share {
            let age = self.number();
            let owner = self.scene.manager.begin(TxnId(age), Age::new(age, 0), None).map_err(failure)?;
            if self.run.is_absolute(number) { self.absolute(owner)? } else { self.intents(owner)? }
        }
        Ok(self.seen)
    }

    #[inline]
    fn number(&mut self) -> u64 {
        if self.numbers.0 == self.numbers.1 {
            let first = self.scene.numbers.fetch_add(NUMBERS_AT_A_TIME, Relaxed);
            self.numbers = (first, first + NUMBERS_AT_A_TIME);
            self.deadline = Instant::now() + LONGEST_WAIT;
        }
        self.numbers.0 += 1;
        self.numbers.0
    }

    fn wait(&self) -> WaitPolicy<'static> {
        WaitPolicy { deadline: Some(self.deadline), ..WaitPolicy::default() }
    }

    #[inline]
    fn intents(&mut self, mut owner: LockOwner) -> Result<(), BenchError> {
        let (mode, wait) = (self.mode, self.wait());
        owner.intent(TableId::VOLUME, mode, &wait).map_err(failure)?;
        let mut before = [0; TABLES];
        for (table, count) in self.scene.counts.iter().enumerate() {
            owner.intent(TableId(FIRST_TABLE + table as u32), mode, &wait).map_err(failure)?;
            before[table] = count.load(Relaxed);
        }
        let changed =
            self.scene.counts.iter().zip(before).filter(|(count, seen)| count.load(Relaxed) != *seen);
        self.seen.torn += changed.count() as u64;
        owner.release_all(None);
        Ok(())
    }

    #[cold]
    fn absolute(&mut self, mut owner: LockOwner) -> Result<(), BenchError> {
        let wait = self.wait();
        let tables = if self.random.below(VOLUME_EVERY) == 0 {
            owner.intent(TableId::VOLUME, IntentMode::X, &wait).map_err(failure)?;
            0..TABLES
        } else {
            let table = self.random.below(TABLES as u64) as usize;
            owner.intent(TableId::VOLUME, IntentMode::IX, &wait).map_err(failure)?;
            let id = TableId(FIRST_TABLE + table as u32);
            owner.intent(id, IntentMode::X, &wait).map_err(failure)?;
            table..table + 1
        };
        for table in tables {
            let count = &self.scene.counts[table];
            count.store(count.load(Relaxed) + 1, Relaxed);
            self.seen.changes += 1;
        }
        self.seen.absolute += 1;
        owner.release_all(None);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [&str; 4] = ["private", "lightweight", "in_table", "inherited"];

    fn options(absolute: &[u64]) -> IntentOptions {
        let (kinds, absolute) = (KINDS.map(str::to_owned).to_vec(), absolute.to_vec());
        let table = "latched".to_owned();
        IntentOptions { kinds, table, absolute, transactions: 2000, threads: 6, rounds: 2 }
    }

    fn run() -> Run {
        let table = LockTableKind::default();
        Run { kind: IntentLockKind::Private, table, absolute: 0, transactions: 1, threads: 1 }
    }

    #[test]
    fn every_kind_is_measured_with_and_without_absolute_locks() {
        let mut rounds = 0;
        let report = measure_intents(&options(&[0, 150]), &mut |done, total| {
            rounds += 1;
            assert_eq!((done, total), (rounds, 2 * 2 * 4));
        })
        .unwrap();
        assert!(report.consistent, "{:#?}", report.checks);
        let found: Vec<_> =
            report.results.iter().map(|result| (result.absolute, result.kind.as_str())).collect();
        assert_eq!(found, [0, 150].map(|absolute| KINDS.map(|kind| (absolute, kind))).concat());
        for result in &report.results {
            assert!(result.elapsed_s > 0.0 && result.transactions_per_s > 0.0, "{result:?}");
            assert!(result.computed_ns.is_some_and(|ns| ns > 0.0), "{result:?}");
            assert!(result.absolute > 0 || result.waits == 0, "intents are compatible: {result:?}");
        }
    }

    #[test]
    fn absolute_locks_are_spread_and_none_is_lost() {
        let run = |absolute| Run { absolute, transactions: 1000, ..run() };
        for absolute in [0, 1, 7, 100] {
            let numbers: Vec<u64> = (0..1000).filter(|&number| run(absolute).is_absolute(number)).collect();
            assert_eq!(numbers.len() as u64, absolute);
            let longest = numbers.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
            assert!(longest <= 1000 / absolute.max(1) + 1, "{numbers:?}");
        }
    }

    /// The check of exclusion can fail.
    #[test]
    fn a_change_beside_an_intent_or_without_a_lock_is_seen() {
        let run = run();
        let holds = |seen: Seen| {
            let (scene, mut checks) = (Scene::new(&run), Checks::default());
            scene.counts[2].store(seen.changes.min(1), Relaxed);
            run.check("private", &scene, &[seen], &mut checks);
            checks.exclusion.holds
        };
        assert!(holds(Seen::default()));
        assert!(!holds(Seen { torn: 1, ..Seen::default() }));
        assert!(!holds(Seen { changes: 2, ..Seen::default() }));
        assert!(!holds(Seen { absolute: 1, ..Seen::default() }));
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        assert!(measure_intents(&options(&[201]), &mut |_, _| {}).is_err());
        assert!(measure_intents(&IntentOptions { threads: 0, ..options(&[]) }, &mut |_, _| {}).is_err());
        assert!(
            measure_intents(&IntentOptions { table: "round".to_owned(), ..options(&[]) }, &mut |_, _| {})
                .is_err()
        );
        let error = count_intents("hopeful", 1).unwrap_err().to_string();
        assert!(error.contains("inherited"), "{error}");
        for kind in KINDS {
            count_intents(kind, 20).unwrap();
        }
    }
}
