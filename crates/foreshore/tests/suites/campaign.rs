//! Isolation end to end, with another configuration for each history, which is in the message when one fails: drawn are
//! the lock table, the policy against deadlocks, the kind of intent locks, early lock release, the executions beside
//! each other, who reads without locks, latches, the size of nodes and of the pool (pages have one size), and whatever
//! else may matter (a test sees to it).
//!
//! Three judges look on. Histories of all operations are replayed in commit order (`history.rs`). Histories of appends
//! to lists, which show the order of all before, go to `adya`, which knows nothing of the engine, and must be strictly
//! serializable for it. And transfers between accounts, beside swaps in a ring (FoundationDB's *Cycle*), must leave sum
//! and ring whole for whoever looks. What each judge is worth is shown with the engine's protections switched off.
//!
//! A hundred thousand transactions; `FORESHORE_HISTORIES=10 cargo test -p foreshore --test suites --release campaign`
//! for a million. `FORESHORE_SEED` runs one seed alone.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use adya::{History, Opts, Valid, Workload};
use foreshore::{Database, Error, Options, ReadMode, Result, TableDefinition, TransactOptions, Transaction};
use foreshore_env::{random::Xorshift, sync::Mutex};
use foreshore_testkit::{CrashMode, FaultyDisk};

use crate::{
    history::{Run, effort, play},
    ways::Way,
};

const LISTS: TableDefinition<u64, &[u8]> = TableDefinition::new("lists");
const ACCOUNTS: TableDefinition<u64, i64> = TableDefinition::new("accounts");
const RING: TableDefinition<u64, u64> = TableDefinition::new("ring");
/// How long a test waits for what is to happen, on the slowest machine.
const FAR: Duration = Duration::from_secs(180);

/// Accounts, and what each begins with.
const HOLDERS: u64 = 12;
const STAKE: i64 = 100;
/// Places of the ring.
const PLACES: u64 = 10;

/// Names and values of an option.
type Choices = (&'static str, &'static [&'static str]);

/// What may be drawn for any history.
const CHOICES: [Choices; 31] = [
    ("lock_table", &["latched", "staged", "global_mutex", "global_mcs", "always_latched"]),
    (
        "deadlock_policy",
        &[
            "dreadlocks",
            "dreadlocks_spin",
            "dreadlocks_sleep",
            "dreadlocks_hybrid",
            "wait_for_graph",
            "wait_die",
            "wound_wait",
            "timeout",
        ],
    ),
    ("deadlock_timeout", &["2ms", "10ms"]),
    ("deadlock_confirmation", &["true", "false"]),
    ("deadlock_digests", &["exact", "bloom"]),
    ("victim_policy", &["youngest", "shortest_pipeline", "longest_pipeline"]),
    ("intent_locks", &["lightweight", "private", "in_table", "inherited"]),
    ("early_lock_release", &["off", "shared", "shared_and_exclusive"]),
    ("key_range_modes", &["orthogonal", "lomet", "next_key"]),
    ("pool_bytes", &["512KiB", "1MiB", "16MiB"]),
    ("latch_mode", &["hybrid", "optimistic", "always_shared", "always_exclusive"]),
    ("transit", &["in_frame", "one_list", "many_lists"]),
    ("free_space", &["cached", "uncached", "global_mutex", "global_ttas", "global_mcs"]),
    ("read_ahead", &["0", "4", "32"]),
    ("cleaners", &["1", "3"]),
    ("translation", &["page_table", "cuckoo", "bucketed", "global_mutex"]),
    ("log_insert", &["compare_exchange", "fetch_add", "consolidated", "mutex"]),
    ("log_full", &["throttle", "end_oldest"]),
    ("flush_interval", &["1ms", "100ms"]),
    ("checkpoint_bytes", &["64KiB", "1MiB"]),
    ("escalation_locks", &["0", "3", "1000"]),
    ("escalation_bytes", &["0", "144", "1MiB"]),
    ("lock_notes", &["true", "false"]),
    ("lock_buckets", &["1", "64", "4096"]),
    ("admission_control", &["true", "false"]),
    ("control_threads", &["1", "2", "4"]),
    ("execution_threads", &["1", "2", "3"]),
    ("automatic_threads", &["true", "false"]),
    ("execution_window", &["1", "16"]),
    ("ring_capacity", &["1", "64"]),
    ("read_mode", &["locking", "hybrid"]),
];

/// What is drawn beside [`CHOICES`], for each history or each transaction.
const DRAWN_ELSEWHERE: [&str; 2] = ["execution", "durability"];

/// What has no part in who sees what of whom, each with the reason.
const OF_NO_MATTER: [(&str, &str); 16] = [
    ("create", "before there is anybody"),
    ("read_only", "nobody writes"),
    ("prefault", "the same memory, sooner"),
    ("log_bytes", "room; who is refused is undone, which the suites of `txn` are about"),
    ("log_segment_bytes", "the same log in other files"),
    ("log_buffer_bytes", "the same log, sooner on the disk"),
    ("log_latency", "drawn as the disk's delay"),
    ("log_past_cache", "the same log in the same files"),
    ("recovery_target", "when checkpoints come, as `checkpoint_bytes`"),
    ("pipeline_length", "of sessions that have no part here: `pipeline.rs`"),
    ("lock_timeout", "ends waits, as deadlocks do"),
    ("max_locks_per_transaction", "room"),
    ("max_locks", "room"),
    ("submit_queue", "room"),
    ("isolation", "the judges know one level"),
    ("pin_threads", "where threads run"),
];

/// What executions are beside each other.
const WAYS: [&[Way]; 7] = [
    &[Way::Dynamic],
    &[Way::Dynamic, Way::Planned],
    &[Way::Dynamic, Way::Dynamic, Way::Submitted],
    &[Way::Submitted, Way::Planned],
    &[Way::Dynamic, Way::Planned, Way::Submitted],
    &[Way::Served, Way::Dynamic],
    &[Way::Served, Way::Submitted, Way::Planned, Way::Dynamic],
];

/// A configuration that follows from the seed. Every other option is as it is by default.
fn draw(seed: u64) -> Run {
    let mut random = Xorshift::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xA5A5);
    for _ in 0..4 {
        random.next_u64();
    }
    let mut pick = |count: usize| random.below(count as u64) as usize;
    let mut set: Vec<_> = CHOICES.iter().map(|(name, values)| (*name, values[pick(values.len())])).collect();
    // Half of the options, so that the defaults are met in all companies, too; but no history waits for seconds.
    set.retain(|(name, _)| pick(2) == 0 || *name == "deadlock_timeout");
    let threads = [2, 4, 6, 9][pick(4)];
    Run {
        threads,
        transactions: 900 / threads,
        keys: [6, 20, 100][pick(3)],
        ways: WAYS[pick(WAYS.len())],
        hybrid: pick(threads as usize) as u64 * (pick(2) as u64),
        node_capacity: [3, 4, 8, usize::MAX][pick(4)],
        // A run is as long as the test.
        set: set.leak(),
        sync_delay: Duration::from_micros([0, 0, 200, 1000][pick(4)]),
        ..Run::serializable(seed)
    }
}

#[test]
fn every_option_is_drawn_or_of_no_matter() {
    let drawn = CHOICES.iter().map(|(name, _)| *name).chain(DRAWN_ELSEWHERE);
    let mut known: Vec<&str> = drawn.chain(OF_NO_MATTER.map(|(name, _)| name)).collect();
    let mut names = Options::NAMES.to_vec();
    known.sort_unstable();
    names.sort_unstable();
    assert_eq!(known, names);
    // And each value is met, whatever the machine does, in those that the tests of this file draw.
    let runs: Vec<Run> = [(10_000, 44), (20_000, 38), (30_000, 38)]
        .iter()
        .flat_map(|(from, count)| (0..*count).map(move |number| draw(from + number)))
        .collect();
    for (name, values) in CHOICES {
        for value in values {
            assert!(runs.iter().any(|run| run.set.contains(&(name, value))), "{name} is never {value}");
        }
    }
}

/// Tells which configuration failed, whoever finds out and how.
struct Told<'r>(&'r Run);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("seed {}, alone by FORESHORE_SEED={}: {:?}", self.0.seed, self.0.seed, self.0);
        }
    }
}

/// Seeds of so many histories, or the one that `FORESHORE_SEED` names.
fn seeds(from: u64, count: u64) -> Vec<u64> {
    match std::env::var("FORESHORE_SEED").ok().and_then(|text| text.parse().ok()) {
        Some(seed) => vec![seed],
        None => (from..from + count * effort()).collect(),
    }
}

/// A run of which hardly anything is committed shows nothing.
fn more_than_a_tenth(run: &Run, committed: u64) -> u64 {
    let begun = run.threads * run.transactions;
    assert!(committed > begun / 10, "{committed} of {begun} transactions were committed\n{run:?}");
    committed
}

/// Of the drawn histories more than two fifths of the transactions are committed, and of one in twenty hardly any may
/// be: who dies under wait-die is not run again here, and uses up all that it has to do while the other waits for the
/// disk.
#[test]
fn histories_of_drawn_configurations_replay_in_commit_order() {
    let (mut committed, mut begun, mut poor) = (0, 0, Vec::new());
    let seeds = seeds(10_000, 44);
    for &seed in &seeds {
        let run = draw(seed);
        let _told = Told(&run);
        let played = play(run);
        if let Err(anomaly) = played.replayed {
            panic!("seed {seed}: {anomaly}\n{run:?}");
        }
        let of_this = run.threads * run.transactions;
        committed += played.committed;
        begun += of_this;
        if played.committed <= of_this / 10 {
            poor.push((seed, played.committed));
        }
    }
    if seeds.len() > 1 {
        assert!(committed > begun * 2 / 5, "{committed} of {begun}");
        assert!(poor.len() * 20 <= seeds.len(), "(seed, commits): {poor:?}");
    }
    println!("{committed} transactions replayed");
}

/// Runs a body in each thread so often, in the thread's way; gives what came of each.
fn in_threads<R: Send>(
    run: &Run,
    db: &Database,
    transaction: impl Fn(&Client<'_>, &mut Xorshift) -> R + Sync,
) -> Vec<R> {
    let transaction = &transaction;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..run.threads)
            .map(|number| {
                scope.spawn(move || {
                    let way = run.ways[number as usize % run.ways.len()];
                    let hybrid = number + run.hybrid >= run.threads;
                    let client = Client { db, number, way, hybrid, locking: run.locking };
                    let mut random =
                        Xorshift::new((run.seed * 64 + number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
                    (0..run.transactions).map(|_| transaction(&client, &mut random)).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// One thread's way into the database.
struct Client<'d> {
    db: &'d Database,
    number: u64,
    way: Way,
    /// It reads without locks.
    hybrid: bool,
    /// Without it even the engine's own tables are in disorder, and any error may be a consequence.
    locking: bool,
}

impl Client<'_> {
    /// `None`: it was given up, after as many attempts as there are.
    fn run<R: Send + 'static>(
        &self,
        body: impl FnMut(&mut Transaction) -> Result<R> + Send + 'static,
    ) -> Option<R> {
        let options = TransactOptions {
            read_mode: self.hybrid.then_some(ReadMode::Hybrid),
            ..TransactOptions::default()
        };
        match self.way.run_with(self.db, &options, body) {
            Ok(result) => Some(result),
            Err(Error::RetriesExhausted { .. }) => None,
            Err(_) if !self.locking => None,
            Err(error) => panic!("thread {}: {error}", self.number),
        }
    }
}

/// A step of a transaction on lists.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read(u64),
    Append(u64, u32),
}

/// What a read of a list gave; nothing for an append.
type Seen = Option<Vec<u32>>;

fn decode(list: &[u8]) -> Vec<u32> {
    list.as_chunks().0.iter().map(|bytes| u32::from_be_bytes(*bytes)).collect()
}

fn take_steps(tx: &mut Transaction, steps: &[Step]) -> Result<Vec<Seen>> {
    let seen = steps.iter().map(|step| match *step {
        // By its key, or as the only one of a range.
        Step::Read(key) if key % 3 == 0 => {
            let found = tx.range(LISTS, key..=key)?.next().transpose()?;
            Ok(Some(found.map_or_else(Vec::new, |(_, list): (u64, Vec<u8>)| decode(&list))))
        }
        Step::Read(key) => Ok(Some(tx.get(LISTS, key)?.map_or_else(Vec::new, |list| decode(&list)))),
        Step::Append(key, element) => {
            let found = if key % 2 == 0 { tx.get_for_update(LISTS, key)? } else { tx.get(LISTS, key)? };
            let mut list: Vec<u8> = found.unwrap_or_default();
            list.extend_from_slice(&element.to_be_bytes());
            tx.put(LISTS, key, &list[..])?;
            Ok(None)
        }
    });
    seen.collect()
}

/// As `adya` reads it.
fn tell(history: &Mutex<String>, kind: &str, process: u64, steps: &[Step], seen: &[Seen]) {
    let mut line = format!("{{\"type\":\"{kind}\",\"process\":{process},\"value\":[");
    for (index, step) in steps.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let told = match (step, seen.get(index).and_then(Option::as_ref)) {
            (Step::Append(key, element), _) => write!(line, "{comma}[\"append\",{key},{element}]"),
            (Step::Read(key), Some(list)) => write!(line, "{comma}[\"r\",{key},{list:?}]"),
            (Step::Read(key), None) => write!(line, "{comma}[\"r\",{key},null]"),
        };
        told.unwrap();
    }
    line.push_str("]}\n");
    history.lock().push_str(&line);
}

/// Runs transactions on lists; gives how many, and what adya says.
fn append_to_lists(run: &Run) -> (usize, adya::Report) {
    let db = run.open(&FaultyDisk::new());
    // Makes the table.
    db.transact(|tx| tx.delete(LISTS, 0)).unwrap();
    let (history, elements) = (Mutex::new(String::new()), AtomicU64::new(1));
    let keys = run.keys.min(20);
    let committed = in_threads(run, &db, |client, random| {
        let reads_only = random.below(4) == 0;
        let steps: Vec<Step> = (0..=random.below(4))
            .map(|_| {
                // Lists do not grow without end: their keys go out of use.
                let element = elements.fetch_add(1, Ordering::Relaxed);
                let key = element / 300 * keys + random.below(keys);
                if reads_only || random.below(2) == 0 {
                    Step::Read(key)
                } else {
                    Step::Append(key, element as u32)
                }
            })
            .collect();
        tell(&history, "invoke", client.number, &steps, &[]);
        let body = steps.clone();
        let seen = client.run(move |tx| take_steps(tx, &body));
        match &seen {
            Some(seen) => tell(&history, "ok", client.number, &steps, seen),
            None => tell(&history, "fail", client.number, &steps, &[]),
        }
        seen.is_some()
    });
    let history = History::from_json(&history.into_inner()).unwrap();
    let opts = Opts { timeout: FAR, ..Opts::default() };
    assert_eq!(opts.models, ["strict-serializable"]);
    let report = adya::check(&history, Workload::ListAppend, &opts);
    (committed.into_iter().filter(|committed| *committed).count(), report)
}

#[test]
fn lists_are_strictly_serializable_for_adya() {
    let mut committed = 0;
    for seed in seeds(20_000, 38) {
        let run = draw(seed);
        let _told = Told(&run);
        let (count, report) = append_to_lists(&run);
        assert_eq!(report.valid, Valid::True, "seed {seed}: {:?}\n{run:?}", report.anomalies);
        committed += more_than_a_tenth(&run, count as u64);
    }
    println!("{committed} transactions checked");
}

/// Moves money and swaps places; gives what audits saw that may not be.
fn transfer_and_swap(run: &Run) -> (u64, Vec<String>) {
    let db = run.open(&FaultyDisk::new());
    db.transact(|tx| {
        (0..HOLDERS).try_for_each(|holder| tx.put(ACCOUNTS, holder, STAKE).map(|_| ()))?;
        (0..PLACES).try_for_each(|place| tx.put(RING, place, (place + 1) % PLACES).map(|_| ()))
    })
    .unwrap();
    let wrong = in_threads(run, &db, |client, random| match random.below(4) {
        0 => client.run(audit).map(broken),
        1 => {
            let start = random.below(PLACES);
            client.run(move |tx| swap(tx, start)).map(|()| None)
        }
        _ => {
            let (from, to) = (random.below(HOLDERS), random.below(HOLDERS));
            let amount = random.below(20) as i64;
            client.run(move |tx| transfer(tx, from, to, amount)).map(|()| None)
        }
    });
    let committed = wrong.iter().flatten().count() as u64;
    let mut wrong: Vec<String> = wrong.into_iter().flatten().flatten().collect();
    wrong.extend(db.transact(audit).map_or_else(|error| Some(error.to_string()), broken));
    (committed, wrong)
}

fn transfer(tx: &mut Transaction, from: u64, to: u64, amount: i64) -> Result<()> {
    let there = tx.get(ACCOUNTS, from)?.unwrap_or(0);
    tx.put(ACCOUNTS, from, there - amount)?;
    let here = tx.get_for_update(ACCOUNTS, to)?.unwrap_or(0);
    tx.put(ACCOUNTS, to, here + amount)?;
    Ok(())
}

/// a → b → c → d becomes a → c → b → d. Lost links are left alone: an audit finds them.
fn swap(tx: &mut Transaction, a: u64) -> Result<()> {
    let Some(b) = tx.get_for_update(RING, a)? else { return Ok(()) };
    let Some(c) = tx.get(RING, b)? else { return Ok(()) };
    let Some(d) = tx.get(RING, c)? else { return Ok(()) };
    for (from, to) in [(a, c), (c, b), (b, d)] {
        tx.put(RING, from, to)?;
    }
    Ok(())
}

/// All accounts, and the ring.
fn audit(tx: &mut Transaction) -> Result<(Vec<i64>, BTreeMap<u64, u64>)> {
    let accounts =
        tx.range(ACCOUNTS, ..)?.map(|entry| entry.map(|(_, amount)| amount)).collect::<Result<_>>()?;
    Ok((accounts, tx.range(RING, ..)?.collect::<Result<_>>()?))
}

/// What is wrong with what an audit saw.
fn broken((accounts, mut ring): (Vec<i64>, BTreeMap<u64, u64>)) -> Option<String> {
    let sum: i64 = accounts.iter().sum();
    if accounts.len() as u64 != HOLDERS || sum != HOLDERS as i64 * STAKE {
        return Some(format!("{} accounts hold {sum}", accounts.len()));
    }
    let (mut place, mut steps) = (0, 0);
    while let Some(next) = ring.remove(&place) {
        (place, steps) = (next, steps + 1);
    }
    (steps != PLACES || place != 0).then(|| format!("the ring ends at {place} after {steps} steps"))
}

#[test]
fn sums_and_rings_stay_whole_for_whoever_looks() {
    let mut committed = 0;
    for seed in seeds(30_000, 38) {
        let run = draw(seed);
        let _told = Told(&run);
        let (count, wrong) = transfer_and_swap(&run);
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}\n{run:?}");
        committed += more_than_a_tenth(&run, count);
    }
    println!("{committed} transactions, all audits whole");
}

/// On a busy machine threads may run one after another for a while, so many are tried.
#[test]
fn without_locking_every_judge_finds_something() {
    let without =
        |seed| Run { locking: false, threads: 4, transactions: 200, ways: &[Way::Dynamic], ..draw(seed) };
    let finds = |judge: &dyn Fn(u64) -> bool| {
        let begun = Instant::now();
        (1..).take_while(|_| begun.elapsed() < FAR).any(judge)
    };
    assert!(finds(&|seed| append_to_lists(&without(seed)).1.valid == Valid::False), "adya is blind");
    assert!(finds(&|seed| !transfer_and_swap(&without(seed)).1.is_empty()), "the audits are blind");
    assert!(finds(&|seed| play(without(seed)).replayed.is_err()), "the replay is blind");
}

/// Whether somebody was told of a value that a power failure then took back: its writer had released its locks, and its
/// commit was not durable.
fn a_crash_takes_what_was_told(release_tags: bool) -> bool {
    let disk = FaultyDisk::new();
    let options = Options { release_tags, ..Options::default() };
    let open = |disk: &FaultyDisk| {
        Database::builder().options(options.clone()).disk(Arc::new(disk.clone())).open("/db").unwrap()
    };
    let db = open(&disk);
    db.transact(|tx| tx.put(ACCOUNTS, 1, 1)).unwrap();
    disk.hold_syncs(true);
    thread::scope(|scope| {
        let (told, hears) = mpsc::channel();
        let db = &db;
        scope.spawn(|| db.transact(|tx| tx.put(ACCOUNTS, 1, 2)).map(drop));
        scope.spawn(move || {
            while let Ok(value) = db.transact(|tx| tx.get(ACCOUNTS, 1)) {
                if value == Some(2) || told.send(()).is_err() {
                    // The receiver, if it is still there, learns that by the end of the channel.
                    return value == Some(2);
                }
                thread::sleep(Duration::from_millis(1));
            }
            false
        });
        // As long as the reader is told of the old value, or of nothing. Who waits for the disk waits for longer than
        // this; who does not may take its time on a busy machine.
        let patience = if release_tags { Duration::from_millis(400) } else { Duration::from_secs(60) };
        let begun = Instant::now();
        let mut read = false;
        while begun.elapsed() < patience && !read {
            read = matches!(
                hears.recv_timeout(Duration::from_millis(100)),
                Err(mpsc::RecvTimeoutError::Disconnected)
            );
        }
        let left = disk.after_crash(CrashMode::DropUnsynced);
        disk.hold_syncs(false);
        drop(hears);
        read && open(&left).transact(|tx| tx.get(ACCOUNTS, 1)).unwrap() != Some(2)
    })
}

#[test]
fn who_reads_what_is_not_durable_is_told_when_it_is() {
    assert!(!a_crash_takes_what_was_told(true));
    assert!(a_crash_takes_what_was_told(false), "without tags nothing is taken back");
}

/// How a deadlock of two ends, and how long it lasts.
fn deadlock(policy: &str, lock_timeout: Duration) -> (Error, Duration) {
    let mut options = Options { lock_timeout, ..Options::default() };
    options.set("deadlock_policy", policy).unwrap();
    let disk = Arc::new(FaultyDisk::new());
    let db = Database::builder().options(options).disk(disk).open("/db").unwrap();
    db.transact(|tx| (1..3).try_for_each(|key| tx.put(ACCOUNTS, key, 0).map(|_| ()))).unwrap();
    let have_one = AtomicU64::new(0);
    let ends: Vec<_> = thread::scope(|scope| {
        let sides = [(1, 2), (2, 1)].map(|(first, second)| {
            let (db, have_one) = (&db, &have_one);
            scope.spawn(move || {
                let mut tx = db.begin().unwrap();
                tx.put(ACCOUNTS, first, 1).unwrap();
                have_one.fetch_add(1, Ordering::SeqCst);
                while have_one.load(Ordering::SeqCst) < 2 {
                    thread::yield_now();
                }
                let begun = Instant::now();
                let refused = tx.put(ACCOUNTS, second, 1).err().map(|error| (error, begun.elapsed()));
                tx.rollback().unwrap();
                refused
            })
        });
        sides.into_iter().filter_map(|side| side.join().unwrap()).collect()
    });
    ends.into_iter().next().expect("one of them gives way")
}

#[test]
fn without_a_detector_deadlocks_last_until_the_time_out() {
    let (error, lasted) = deadlock("dreadlocks", FAR);
    assert!(matches!(error, Error::Deadlock(_)) && lasted < FAR, "{error}: {lasted:?}");
    let time_out = Duration::from_millis(600);
    let (error, lasted) = deadlock("timeout", time_out);
    assert!(matches!(error, Error::LockTimeout(_)) && lasted >= time_out, "{error}: {lasted:?}");
}
