//! Random concurrent histories, replayed in commit order on a `BTreeMap`: every result that a committed transaction saw
//! must come out again. Nodes hold four records, so that trees split and merge all the time, and the keys are few, so
//! that transactions meet.

mod wide;

use std::{
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use foreshore::{
    CommitTicket, Database, Direction, Durability, Error, Isolation, LockTableKind, Options, Plan, Procedure,
    ReadMode, Result, Submitted, TableDefinition, TransactOptions, Transaction, VerifyReport,
};
use foreshore_env::random::Xorshift;
use foreshore_testkit::{
    FaultyDisk,
    history::{Anomaly, History, Op},
};

use crate::ways::Way;

type Bytes<'b> = TableDefinition<'static, &'b [u8], &'b [u8]>;

const TABLES: [&str; 2] = ["one", "two"];

fn table<'b>(number: u32) -> Bytes<'b> {
    TableDefinition::new(TABLES[number as usize])
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) seed: u64,
    pub(crate) threads: u64,
    pub(crate) transactions: u64,
    pub(crate) keys: u64,
    pub(crate) isolation: Isolation,
    pub(crate) locking: bool,
    pub(crate) lock_table: LockTableKind,
    /// How the transactions of the threads run, in turn. Dynamic ones go step by step.
    pub(crate) ways: &'static [Way],
    /// Threads that read without locks; half of their transactions do nothing but read. The last ones.
    pub(crate) hybrid: u64,
    /// Whether what they read is validated.
    pub(crate) read_validation: bool,
    /// Whether transactions also keep cursors open, lock tables, append and visit, beside compactions and checkpoints.
    pub(crate) wide: bool,
    /// Records in a node, at most.
    pub(crate) node_capacity: usize,
    /// Other options, by name.
    pub(crate) set: &'static [(&'static str, &'static str)],
    /// How long a sync takes: the time in which locks are gone and the commit is not yet durable.
    pub(crate) sync_delay: Duration,
}

impl Run {
    pub(crate) fn serializable(seed: u64) -> Run {
        Run {
            seed,
            threads: 8,
            transactions: 250,
            keys: 20,
            isolation: Isolation::Serializable,
            locking: true,
            lock_table: LockTableKind::Latched,
            ways: &[Way::Dynamic],
            hybrid: 0,
            read_validation: true,
            wide: false,
            node_capacity: 4,
            set: &[],
            sync_delay: Duration::ZERO,
        }
    }

    /// A database as the run wants it.
    pub(crate) fn open(&self, disk: &FaultyDisk) -> Database {
        disk.set_sync_delay(self.sync_delay);
        let mut options = Options {
            pool_bytes: 1 << 20,
            log_segment_bytes: 1 << 20,
            log_bytes: 64 << 20,
            log_buffer_bytes: 1 << 20,
            checkpoint_bytes: 1 << 20,
            lock_table: self.lock_table,
            locking: self.locking,
            read_validation: self.read_validation,
            node_capacity: self.node_capacity,
            ..Options::default()
        };
        self.set.iter().for_each(|(name, value)| options.set(name, value).unwrap());
        Database::builder().options(options).disk(Arc::new(disk.clone())).open("/db").unwrap()
    }
}

/// Two lengths, so that one key may be the prefix of another; in the order of the numbers.
fn key(number: u64) -> Vec<u8> {
    let mut key = vec![b'k', b'0' + (number / 2) as u8];
    if number % 2 == 1 {
        key.push(b'x');
    }
    key
}

/// Transactions that a thread has submitted and not waited for, at most.
const IN_FLIGHT: usize = 4;

/// Draws what one thread's transactions do. A copy draws the same again.
#[derive(Clone)]
struct Hand {
    run: Run,
    random: Xorshift,
    name: u64,
    /// The transaction at hand writes nothing.
    reads_only: bool,
}

/// One thread.
struct Client<'r> {
    way: Way,
    db: Database,
    history: &'r History,
    order: Arc<AtomicU64>,
    hand: Hand,
    /// Oldest first.
    submitted: Vec<Submitted<Done>>,
    counts: Counts,
}

/// What a transaction did: its place in the order of commits, and its operations.
type Done = (u64, Vec<Op>);

/// A client's transactions, as those draw them who run them.
struct Drawn {
    hand: Hand,
    /// As it was when the last transaction was drawn: every run does the same things.
    drawn: Hand,
    order: Arc<AtomicU64>,
    serial: u64,
    /// By the last run.
    done: Option<Done>,
    ended: Vec<Result<Done>>,
}

impl Procedure for Drawn {
    fn draw<'d>(&mut self, plan: Plan<'d>) -> Option<Plan<'d>> {
        if self.serial == self.hand.run.transactions {
            return None;
        }
        self.serial += 1;
        let options = self.hand.options(self.serial);
        self.drawn = self.hand.clone();
        self.hand.random.next_u64();
        Some(plan.options(options))
    }

    fn run(&mut self, tx: &mut Transaction) -> Result<()> {
        self.done = Some(self.drawn.clone().decide(tx, self.serial, &self.order)?);
        Ok(())
    }

    fn ended(&mut self, result: Result<CommitTicket>) {
        let done = self.done.take();
        self.ended.push(result.map(|_| done.expect("what is committed has run")));
    }
}

/// What came of a thread's transactions.
#[derive(Clone, Copy, Default)]
struct Counts {
    committed: u64,
    aborted: u64,
}

impl Client<'_> {
    fn run(mut self) -> (Counts, Option<Error>) {
        let worked = if self.way == Way::Served {
            self.served()
        } else {
            (0..self.hand.run.transactions).try_for_each(|serial| self.transaction(serial))
        };
        let error = worked.and_then(|()| self.wait_for_all_but(0)).err();
        (self.counts, error)
    }

    fn served(&mut self) -> Result<()> {
        let (hand, order) = (self.hand.clone(), Arc::clone(&self.order));
        let drawn = Drawn { drawn: hand.clone(), hand, order, serial: 0, done: None, ended: Vec::new() };
        let serving = self.db.serve(&TransactOptions::default(), [drawn])?;
        let ended = serving.wait()?.into_iter().flat_map(|drawn| drawn.ended);
        ended.into_iter().try_for_each(|result| self.note(result))
    }

    fn transaction(&mut self, serial: u64) -> Result<()> {
        let options = self.hand.options(serial);
        if self.way == Way::Dynamic {
            return self.step_by_step(&options, serial);
        }
        // Every run does the same things, and the last one counts.
        let (drawn, order) = (self.hand.clone(), Arc::clone(&self.order));
        let body = move |tx: &mut Transaction| drawn.clone().decide(tx, serial, &order);
        // What the runs draw is drawn from copies.
        self.hand.random.next_u64();
        if self.way == Way::Submitted {
            self.submitted.push(self.db.plan().options(options).submit(body)?);
            return self.wait_for_all_but(IN_FLIGHT - 1);
        }
        let result = self.way.run_with(&self.db, &options, body);
        self.note(result)
    }

    fn step_by_step(&mut self, options: &TransactOptions, serial: u64) -> Result<()> {
        let mut tx = self.db.begin_with(options)?;
        let ops = match self.hand.work(&mut tx, serial) {
            Ok(ops) => ops,
            Err(error) if error.is_retryable() => {
                self.counts.aborted += 1;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if self.hand.random.below(8) == 0 {
            self.counts.aborted += 1;
            return tx.rollback();
        }
        // Drawn while all locks are held: whoever depends on this transaction draws later.
        let position = self.order.fetch_add(1, Ordering::SeqCst);
        match tx.commit() {
            Err(Error::StaleReads) => {
                self.counts.aborted += 1;
                Ok(())
            }
            committed => self.note(committed.map(|()| (position, ops))),
        }
    }

    fn wait_for_all_but(&mut self, kept: usize) -> Result<()> {
        while self.submitted.len() > kept {
            let result = self.submitted.remove(0).wait();
            self.note(result)?;
        }
        Ok(())
    }

    fn note(&mut self, result: Result<Done>) -> Result<()> {
        match result {
            Ok((position, ops)) => {
                self.counts.committed += 1;
                self.history.record(position, ops);
            }
            Err(Error::Application(_)) => self.counts.aborted += 1,
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Hand {
    fn options(&mut self, serial: u64) -> TransactOptions {
        let options = TransactOptions {
            isolation: Some(self.run.isolation),
            durability: Some(if self.random.below(2) == 0 { Durability::Sync } else { Durability::Lazy }),
            label: Some(format!("{}-{serial}", self.name).into()),
            read_mode: (self.name + self.run.hybrid >= self.run.threads).then_some(ReadMode::Hybrid),
            ..TransactOptions::default()
        };
        self.reads_only = options.read_mode.is_some() && self.random.below(2) == 0;
        options
    }

    fn key(&mut self) -> Vec<u8> {
        key(self.random.below(self.run.keys))
    }

    /// A value that nobody else writes; now and then one that needs the overflow table.
    fn value(&mut self, serial: u64) -> Vec<u8> {
        let mut value = format!("{}-{serial}-{}", self.name, self.random.below(1_000_000)).into_bytes();
        if self.random.below(50) == 0 {
            value.resize(3000 + self.random.below(4000) as usize, b'.');
        }
        value
    }

    fn bound(&mut self) -> Bound<Vec<u8>> {
        match self.random.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(self.key()),
            _ => Bound::Excluded(self.key()),
        }
    }

    /// Does its work, and mostly wants it to be committed.
    fn decide(mut self, tx: &mut Transaction, serial: u64, order: &AtomicU64) -> Result<Done> {
        let ops = self.work(tx, serial)?;
        if self.random.below(8) == 0 {
            return Err(Error::application("changed its mind"));
        }
        Ok((order.fetch_add(1, Ordering::SeqCst), ops))
    }

    fn work(&mut self, tx: &mut Transaction, serial: u64) -> Result<Vec<Op>> {
        let mut ops = Vec::new();
        let (mut savepoints, mut cursors) = (Vec::new(), Vec::new());
        for _ in 0..=self.random.below(if self.run.wide { 14 } else { 8 }) {
            if !self.run.wide || !self.wide_operation(tx, &mut ops, &mut cursors, serial)? {
                self.operation(tx, &mut ops, &mut savepoints, serial)?;
            }
        }
        Ok(ops)
    }

    fn operation(
        &mut self,
        tx: &mut Transaction,
        ops: &mut Vec<Op>,
        savepoints: &mut Vec<(usize, foreshore::Savepoint)>,
        serial: u64,
    ) -> Result<()> {
        let number = self.random.below(TABLES.len() as u64) as u32;
        match self.random.below(if self.reads_only { 9 } else { 20 }) {
            0 | 1 => {
                // Some are read in several rounds.
                let most = if self.random.below(8) == 0 { 40 } else { 6 };
                let keys: Vec<_> = (0..self.random.below(most)).map(|_| self.key()).collect();
                let results = if !self.reads_only && self.random.below(3) == 0 {
                    tx.get_many_for_update(table(number), keys.iter().map(Vec::as_slice))?
                } else {
                    tx.get_many(table(number), keys.iter().map(Vec::as_slice))?
                };
                let pairs = keys.into_iter().zip(results);
                ops.extend(pairs.map(|(key, result)| Op::Get { table: number, key, result }));
            }
            2 | 3 => {
                let key = self.key();
                let result = if !self.reads_only && self.random.below(3) == 0 {
                    tx.get_for_update(table(number), &key)?
                } else {
                    tx.get(table(number), &key)?
                };
                ops.push(Op::Get { table: number, key, result });
            }
            4..9 => self.scan(tx, ops, number)?,
            9..12 => {
                let (key, value) = (self.key(), self.value(serial));
                let inserted = tx.insert(table(number), &key, &value[..])?;
                ops.push(Op::Insert { table: number, key, value, inserted });
            }
            12..14 => {
                let (key, value) = (self.key(), self.value(serial));
                let existed = tx.put(table(number), &key, &value[..])?;
                ops.push(Op::Put { table: number, key, value, existed });
            }
            14 => {
                let (key, value) = (self.key(), self.value(serial));
                let updated = tx.update(table(number), &key, &value[..])?;
                ops.push(Op::Update { table: number, key, value, updated });
            }
            15..18 => {
                let key = self.key();
                let existed = tx.delete(table(number), &key)?;
                ops.push(Op::Delete { table: number, key, existed });
            }
            18 => {
                let made = ops.iter().filter(|op| matches!(op, Op::Savepoint)).count();
                savepoints.push((made, tx.savepoint()?));
                ops.push(Op::Savepoint);
            }
            _ => {
                if !savepoints.is_empty() {
                    let place = self.random.below(savepoints.len() as u64) as usize;
                    let (savepoint, here) = savepoints[place];
                    if self.random.below(3) == 0 {
                        tx.release(here)?;
                        savepoints.truncate(place);
                        ops.push(Op::Release(savepoint));
                    } else {
                        tx.rollback_to(here)?;
                        savepoints.truncate(place + 1);
                        ops.push(Op::RollbackTo(savepoint));
                    }
                }
            }
        }
        Ok(())
    }

    fn scan(&mut self, tx: &mut Transaction, ops: &mut Vec<Op>, number: u32) -> Result<()> {
        let (low, high, descending) = (self.bound(), self.bound(), self.random.below(2) == 0);
        let direction = if descending { Direction::Descending } else { Direction::Ascending };
        let most = self.random.below(12) as usize;
        let mut result = Vec::new();
        let mut complete = false;
        let slices = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        let locks = if self.reads_only { 0 } else { self.random.below(8) };
        let mut cursor = match locks {
            0..6 => tx.cursor(table(number), slices, direction)?,
            6 => tx.cursor_for_update(table(number), slices, direction)?,
            _ => tx.cursor_skip_locked(table(number), slices, direction)?,
        };
        while result.len() < most {
            match cursor.next(tx)? {
                Some(entry) => result.push(entry),
                None => {
                    complete = true;
                    break;
                }
            }
        }
        ops.push(match locks {
            0..7 => Op::Scan { table: number, low, high, descending, complete, result },
            _ => Op::Skip { table: number, low, high, descending, complete, result },
        });
        Ok(())
    }
}

/// Compacts again and again, once at least, with a checkpoint now and then.
fn compact_until(db: &Database, over: &AtomicBool) {
    let mut times = 0;
    while times == 0 || !over.load(Ordering::Relaxed) {
        match db.compact() {
            Ok(_) => times += 1,
            Err(Error::LockTimeout(_) | Error::Deadlock(_)) => {}
            Err(error) => panic!("{error}"),
        }
        if times % 4 == 0 {
            db.checkpoint().unwrap();
        }
        thread::sleep(Duration::from_millis(times % 3));
    }
}

/// What a run came to.
pub(crate) struct Played {
    pub(crate) committed: u64,
    aborted: u64,
    pub(crate) replayed: Result<(), Anomaly>,
}

pub(crate) fn play(run: Run) -> Played {
    let db = run.open(&FaultyDisk::new());
    let (history, order) = (History::new(), Arc::new(AtomicU64::new(1)));
    let over = AtomicBool::new(false);
    let outcomes: Vec<(Counts, Option<Error>)> = thread::scope(|scope| {
        if run.wide {
            scope.spawn(|| compact_until(&db, &over));
        }
        let clients: Vec<_> = (0..run.threads)
            .map(|name| {
                let random = Xorshift::new((run.seed * 1000 + name + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
                let client = Client {
                    way: run.ways[name as usize % run.ways.len()],
                    db: db.clone(),
                    history: &history,
                    order: Arc::clone(&order),
                    hand: Hand { run, random, name, reads_only: false },
                    submitted: Vec::new(),
                    counts: Counts::default(),
                };
                scope.spawn(move || client.run())
            })
            .collect();
        let ended: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        over.store(true, Ordering::Relaxed);
        ended.into_iter().map(|client| client.unwrap()).collect()
    });
    if run.locking {
        if let Some(error) = outcomes.iter().find_map(|(_, error)| error.as_ref()) {
            panic!("seed {}: {error}", run.seed);
        }
        let report = verify(&db);
        assert!(report.is_sound(), "seed {}: {:?}", run.seed, report.problems);
    }
    let replayed = history.replay_onto(std::collections::BTreeMap::new());
    if let (Ok(state), true) = (&replayed, run.locking) {
        for (number, _) in (0..).zip(TABLES) {
            let found: Vec<_> = db
                .transact(|tx| tx.range(table(number), ..)?.collect::<Result<Vec<(Vec<u8>, Vec<u8>)>>>())
                .unwrap();
            let expected: Vec<_> = state
                .range((number, vec![])..(number + 1, vec![]))
                .map(|((_, key), value)| (key.clone(), value.clone()))
                .collect();
            assert!(
                found == expected,
                "seed {}: table {number} is not what the commits made of it",
                run.seed
            );
        }
    }
    Played {
        committed: outcomes.iter().map(|(counts, _)| counts.committed).sum(),
        aborted: outcomes.iter().map(|(counts, _)| counts.aborted).sum(),
        replayed: replayed.map(|_| ()),
    }
}

/// Verifies. Locks of a submitted transaction are given back behind its result, and a policy against deadlocks may want
/// that nobody waits for that.
fn verify(db: &Database) -> VerifyReport {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        match db.verify() {
            Err(error) if error.is_retryable() && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(1));
            }
            report => return report.unwrap(),
        }
    }
}

/// How often the seeds are multiplied; for long runs by hand.
pub(crate) fn effort() -> u64 {
    std::env::var("FORESHORE_HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn serializable(run: impl Fn(u64) -> Run) {
    let (mut committed, mut aborted) = (0, 0);
    for seed in 1..=3 * effort() {
        let played = play(run(seed));
        if let Err(anomaly) = played.replayed {
            panic!("seed {seed}: {anomaly}");
        }
        committed += played.committed;
        aborted += played.aborted;
    }
    println!("{committed} transactions replayed, {aborted} aborted");
    assert!(committed > 500, "too few transactions to prove anything: {committed}");
}

#[test]
fn serializable_histories_replay_in_commit_order() {
    serializable(Run::serializable);
}

#[test]
fn with_slow_syncs_too() {
    // Locks are released early, and readers of what is not durable yet must wait for it.
    serializable(|seed| Run {
        sync_delay: Duration::from_millis(2),
        transactions: 100,
        ..Run::serializable(100 + seed)
    });
}

#[test]
fn with_the_staged_lock_table_too() {
    serializable(|seed| Run { lock_table: LockTableKind::Staged, ..Run::serializable(300 + seed) });
}

#[test]
fn with_the_global_lock_table_too() {
    serializable(|seed| Run { lock_table: LockTableKind::GlobalMutex, ..Run::serializable(200 + seed) });
}

#[test]
fn with_every_deadlock_policy_too() {
    const POLICIES: [&[(&str, &str)]; 8] = [
        &[("deadlock_policy", "dreadlocks"), ("deadlock_digests", "bloom")],
        &[("deadlock_policy", "dreadlocks_spin")],
        &[("deadlock_policy", "dreadlocks_sleep"), ("deadlock_confirmation", "false")],
        &[("deadlock_policy", "dreadlocks_hybrid")],
        &[("deadlock_policy", "wait_for_graph")],
        &[("deadlock_policy", "wait_die")],
        &[("deadlock_policy", "wound_wait")],
        &[("deadlock_policy", "no_wait")],
    ];
    for (number, set) in (0..).zip(POLICIES) {
        let run = Run { set, transactions: 60, threads: 5, ..Run::serializable(400 + number) };
        let played = play(run);
        if let Err(anomaly) = played.replayed {
            panic!("{set:?}: {anomaly}");
        }
        // Where nobody waits, most give up on a busy machine.
        let least = if set == [("deadlock_policy", "no_wait")] { 30 } else { 50 };
        assert!(played.committed > least, "{set:?}: {} of 300", played.committed);
    }
}

#[test]
fn with_every_kind_of_intent_locks_too() {
    const KINDS: [&[(&str, &str)]; 4] = [
        &[("intent_locks", "lightweight")],
        &[("intent_locks", "private")],
        &[("intent_locks", "in_table")],
        &[("intent_locks", "inherited")],
    ];
    for (number, set) in (0..).zip(KINDS) {
        let run = Run { set, transactions: 100, ..Run::serializable(500 + number) };
        let played = play(run);
        if let Err(anomaly) = played.replayed {
            panic!("{set:?}: {anomaly}");
        }
        assert!(played.committed > 200, "{set:?}: {} of 800", played.committed);
    }
}

#[test]
fn with_other_modes_of_keys_and_gaps_too() {
    const MODES: [&[(&str, &str)]; 2] = [&[("key_range_modes", "lomet")], &[("key_range_modes", "next_key")]];
    for (number, set) in (0..).zip(MODES) {
        let run = Run { set, transactions: 100, ..Run::serializable(600 + number) };
        let played = play(run);
        if let Err(anomaly) = played.replayed {
            panic!("{set:?}: {anomaly}");
        }
        assert!(played.committed > 100, "{set:?}: {} of 800", played.committed);
    }
}

#[test]
fn with_many_keys_and_few_conflicts_too() {
    serializable(|seed| Run { keys: 150, threads: 4, ..Run::serializable(300 + seed) });
}

#[test]
fn planned_histories_replay_in_commit_order() {
    serializable(|seed| Run { ways: &[Way::Planned], transactions: 120, ..Run::serializable(700 + seed) });
}

#[test]
fn planned_and_dynamic_histories_replay_in_commit_order() {
    let slow = Duration::from_millis(1);
    serializable(|seed| Run {
        ways: &[Way::Planned, Way::Dynamic],
        transactions: 100,
        sync_delay: slow,
        ..Run::serializable(710 + seed)
    });
}

#[test]
fn planned_histories_do_over_every_lock_table_and_kind_of_modes() {
    const KINDS: [(LockTableKind, &[(&str, &str)]); 5] = [
        (LockTableKind::Staged, &[("deadlock_policy", "wait_die")]),
        (LockTableKind::GlobalMutex, &[("intent_locks", "in_table")]),
        (LockTableKind::Latched, &[("intent_locks", "inherited")]),
        (LockTableKind::Latched, &[("key_range_modes", "lomet"), ("intent_locks", "lightweight")]),
        (LockTableKind::Latched, &[("key_range_modes", "next_key"), ("escalation_locks", "5")]),
    ];
    for (number, (lock_table, set)) in (0..).zip(KINDS) {
        let run = Run {
            lock_table,
            set,
            ways: &[Way::Planned, Way::Dynamic, Way::Planned],
            threads: 7,
            transactions: 60,
            ..Run::serializable(720 + number)
        };
        let played = play(run);
        if let Err(anomaly) = played.replayed {
            panic!("{set:?}: {anomaly}");
        }
        assert!(played.committed > 200, "{set:?}: {} of 420", played.committed);
    }
}

/// Those who read without locks, beside those who lock, and among themselves.
#[test]
fn hybrid_histories_replay_in_commit_order() {
    serializable(|seed| Run { hybrid: 4 + 2 * (seed % 3), ..Run::serializable(800 + seed) });
    serializable(|seed| Run { hybrid: 5, keys: 150, threads: 6, ..Run::serializable(810 + seed) });
}

#[test]
fn hybrid_histories_do_with_slow_syncs_and_small_pools_too() {
    const KINDS: [(LockTableKind, &[(&str, &str)]); 5] = [
        (LockTableKind::Latched, &[("pool_bytes", "512KiB"), ("flush_interval", "1ms")]),
        (LockTableKind::Staged, &[("early_lock_release", "shared"), ("intent_locks", "lightweight")]),
        (LockTableKind::GlobalMutex, &[("early_lock_release", "off"), ("flush_interval", "1ms")]),
        (LockTableKind::Latched, &[("key_range_modes", "next_key"), ("escalation_locks", "5")]),
        (LockTableKind::Latched, &[("latch_mode", "always_shared"), ("lock_buckets", "1")]),
    ];
    for (number, (lock_table, set)) in (0..).zip(KINDS) {
        let run = Run {
            lock_table,
            set,
            hybrid: 5,
            threads: 7,
            transactions: 80,
            sync_delay: Duration::from_millis(1),
            ..Run::serializable(820 + number)
        };
        let played = play(run);
        if let Err(anomaly) = played.replayed {
            panic!("{set:?}: {anomaly}");
        }
        assert!(played.committed > 200, "{set:?}: {} of 560", played.committed);
    }
}

/// Control threads, execution threads, window, and places in a ring: with full rings, and without.
const SHAPES: [&[(&str, &str)]; 4] = [
    &[
        ("control_threads", "1"),
        ("execution_threads", "1"),
        ("execution_window", "1"),
        ("ring_capacity", "1"),
    ],
    &[
        ("control_threads", "2"),
        ("execution_threads", "3"),
        ("execution_window", "8"),
        ("ring_capacity", "1"),
    ],
    &[("control_threads", "3"), ("execution_threads", "2"), ("automatic_threads", "true")],
    &[("control_threads", "4"), ("execution_threads", "2"), ("early_lock_release", "off")],
];

#[test]
fn submitted_and_drawn_histories_replay_in_commit_order() {
    const WAYS: [&[Way]; 3] = [&[Way::Submitted], &[Way::Served], &[Way::Served, Way::Submitted]];
    for (number, set) in (0..).zip(SHAPES) {
        for ways in WAYS {
            let run = Run { set, ways, transactions: 100, ..Run::serializable(800 + number) };
            let played = play(run);
            if let Err(anomaly) = played.replayed {
                panic!("{ways:?} {set:?}: {anomaly}");
            }
            assert!(played.committed > 400, "{ways:?} {set:?}: {} of 800", played.committed);
        }
    }
}

/// Those of every execution at the same time, in the same database.
#[test]
fn histories_of_all_executions_replay_in_commit_order() {
    for (number, set) in (0..).zip(SHAPES) {
        let run = Run {
            set,
            ways: &[Way::Submitted, Way::Dynamic, Way::Served, Way::Planned],
            transactions: 100,
            sync_delay: Duration::from_micros(300),
            ..Run::serializable(810 + number)
        };
        let played = play(run);
        if let Err(anomaly) = played.replayed {
            panic!("{set:?}: {anomaly}");
        }
        assert!(played.committed > 300, "{set:?}: {} of 800", played.committed);
    }
}

#[test]
fn submitted_histories_do_over_every_lock_table_and_kind_of_modes() {
    const KINDS: [(LockTableKind, &[(&str, &str)]); 4] = [
        (LockTableKind::Staged, &[("deadlock_policy", "wait_for_graph")]),
        (LockTableKind::GlobalMutex, &[("intent_locks", "in_table")]),
        (LockTableKind::Latched, &[("key_range_modes", "lomet"), ("intent_locks", "inherited")]),
        (LockTableKind::Staged, &[("key_range_modes", "next_key"), ("escalation_locks", "5")]),
    ];
    for (number, (lock_table, set)) in (0..).zip(KINDS) {
        let run = Run {
            lock_table,
            set,
            ways: &[Way::Submitted, Way::Served, Way::Dynamic],
            transactions: 60,
            ..Run::serializable(820 + number)
        };
        let played = play(run);
        if let Err(anomaly) = played.replayed {
            panic!("{set:?}: {anomaly}");
        }
        assert!(played.committed > 200, "{set:?}: {} of 480", played.committed);
    }
}

/// Some seed must show an anomaly. On a busy machine threads may run one after another for a while, so many are tried.
fn finds_anomalies(run: impl Fn(u64) -> Run) {
    let found = (1..=100).find(|&seed| play(run(seed)).replayed.is_err());
    assert!(found.is_some(), "the checker is blind");
}

#[test]
fn without_locking_the_checker_finds_anomalies() {
    finds_anomalies(|seed| Run { locking: false, ..Run::serializable(seed) });
}

#[test]
fn without_locking_planned_histories_have_anomalies() {
    finds_anomalies(|seed| Run { locking: false, ways: &[Way::Planned], ..Run::serializable(seed) });
}

#[test]
fn without_locking_submitted_and_drawn_histories_have_anomalies() {
    for ways in [&[Way::Submitted], &[Way::Served]] {
        finds_anomalies(|seed| Run { locking: false, ways, ..Run::serializable(seed) });
    }
}

#[test]
fn under_read_committed_the_checker_finds_anomalies() {
    finds_anomalies(|seed| Run { isolation: Isolation::ReadCommitted, ..Run::serializable(seed) });
}

#[test]
fn without_validation_hybrid_histories_have_anomalies() {
    finds_anomalies(|seed| Run { read_validation: false, hybrid: 6, ..Run::serializable(seed) });
}

/// Closures that read without locks and run again when that was in vain, beside all others.
#[test]
fn hybrid_histories_beside_all_others_replay_in_commit_order() {
    serializable(|seed| Run {
        ways: &[Way::Hybrid, Way::Dynamic, Way::Served, Way::Submitted, Way::Hybrid, Way::Planned],
        transactions: 120,
        ..Run::serializable(900 + seed)
    });
}

/// With cursors that stay open, whole tables locked, appends and visits, beside compactions.
#[test]
fn wide_histories_replay_in_commit_order() {
    const SETS: [&[(&str, &str)]; 6] = [
        &[("pool_bytes", "512KiB"), ("flush_interval", "1ms")],
        &[("escalation_locks", "4")],
        &[("escalation_locks", "3"), ("early_lock_release", "shared")],
        &[("escalation_bytes", "300"), ("latch_mode", "always_shared")],
        &[("escalation_locks", "5"), ("lock_table", "staged")],
        &[("log_full", "end_oldest"), ("escalation_locks", "4")],
    ];
    for (number, set) in (0..).zip(SETS) {
        for ways in [&[Way::Dynamic][..], &[Way::Dynamic, Way::Planned]] {
            for round in 0..effort() {
                let played = play(Run {
                    set,
                    ways,
                    wide: true,
                    hybrid: 4,
                    threads: 7,
                    transactions: 120,
                    keys: 14 + 10 * (number % 3),
                    sync_delay: Duration::from_millis(number % 2),
                    ..Run::serializable(1000 + 10 * round + number)
                });
                if let Err(anomaly) = played.replayed {
                    panic!("{set:?}, round {round}: {anomaly}");
                }
                assert!(played.committed > 50, "{set:?}: {} committed", played.committed);
            }
        }
    }
}

#[test]
fn under_read_committed_the_checker_finds_anomalies_in_wide_histories() {
    finds_anomalies(|seed| Run {
        isolation: Isolation::ReadCommitted,
        wide: true,
        ..Run::serializable(seed)
    });
}
