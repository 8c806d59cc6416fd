//! Random concurrent histories, replayed in commit order on a `BTreeMap`: every result that a committed transaction saw
//! must come out again. Nodes hold four records, so that trees split and merge all the time, and the keys are few, so that
//! transactions meet.

use std::{
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use foreshore::{
    Database, Direction, Durability, Error, Execution, Isolation, LockTable, Options, Result,
    TableDefinition, TransactOptions, Transaction,
};
use foreshore_env::random::Xorshift;
use foreshore_testkit::{
    FaultyDisk,
    history::{Anomaly, History, Op},
};

type Bytes<'b> = TableDefinition<'static, &'b [u8], &'b [u8]>;

const TABLES: [&str; 2] = ["one", "two"];

fn table<'b>(number: u32) -> Bytes<'b> {
    TableDefinition::new(TABLES[number as usize])
}

#[derive(Clone, Copy, Debug)]
struct Run {
    seed: u64,
    threads: u64,
    transactions: u64,
    keys: u64,
    isolation: Isolation,
    locking: bool,
    lock_table: LockTable,
    /// Threads whose transactions are planned.
    planned: u64,
    /// Other options, by name.
    set: &'static [(&'static str, &'static str)],
    /// How long a sync takes: the time in which locks are gone and the commit is not yet durable.
    sync_delay: Duration,
}

impl Run {
    fn serializable(seed: u64) -> Run {
        Run {
            seed,
            threads: 8,
            transactions: 250,
            keys: 20,
            isolation: Isolation::Serializable,
            locking: true,
            lock_table: LockTable::Latched,
            planned: 0,
            set: &[],
            sync_delay: Duration::ZERO,
        }
    }
}

/// One thread's transactions.
struct Client<'r> {
    run: &'r Run,
    db: Database,
    history: &'r History,
    order: &'r AtomicU64,
    random: Xorshift,
    name: u64,
}

/// What came of one transaction.
enum End {
    Committed,
    Aborted,
}

impl Client<'_> {
    fn key(&mut self) -> Vec<u8> {
        // Two lengths, so that one key may be the prefix of another.
        let number = self.random.below(self.run.keys);
        let mut key = vec![b'k', b'0' + (number / 2) as u8];
        if number % 2 == 1 {
            key.push(b'x');
        }
        key
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

    fn transaction(&mut self, serial: u64) -> Result<End> {
        let options = TransactOptions {
            isolation: Some(self.run.isolation),
            durability: Some(if self.random.below(2) == 0 { Durability::Sync } else { Durability::Lazy }),
            label: Some(format!("{}-{serial}", self.name).into()),
            ..TransactOptions::default()
        };
        if self.name < self.run.planned {
            return self.planned(options, serial);
        }
        let mut tx = self.db.begin_with(&options)?;
        let ops = match self.work(&mut tx, serial) {
            Ok(ops) => ops,
            Err(error) if error.is_retryable() => return Ok(End::Aborted),
            Err(error) => return Err(error),
        };
        if self.random.below(8) == 0 {
            tx.rollback()?;
            return Ok(End::Aborted);
        }
        // Drawn while all locks are held: whoever depends on this transaction draws later.
        let position = self.order.fetch_add(1, Ordering::SeqCst);
        tx.commit()?;
        self.history.record(position, ops);
        Ok(End::Committed)
    }

    /// The same as a planned transaction: every run does the same things, and the last one counts.
    fn planned(&mut self, options: TransactOptions, serial: u64) -> Result<End> {
        let options = TransactOptions { execution: Some(Execution::Planned), ..options };
        let (db, random) = (self.db.clone(), self.random.clone());
        let committed = db.transact_with(&options, |tx| {
            self.random = random.clone();
            let ops = self.work(tx, serial)?;
            if self.random.below(8) == 0 {
                return Err(Error::application("changed its mind"));
            }
            Ok((self.order.fetch_add(1, Ordering::SeqCst), ops))
        });
        match committed {
            Ok((position, ops)) => self.history.record(position, ops),
            Err(Error::Application(_)) => return Ok(End::Aborted),
            Err(error) => return Err(error),
        }
        Ok(End::Committed)
    }

    fn work(&mut self, tx: &mut Transaction, serial: u64) -> Result<Vec<Op>> {
        let mut ops = Vec::new();
        let mut savepoints = Vec::new();
        for _ in 0..=self.random.below(8) {
            self.operation(tx, &mut ops, &mut savepoints, serial)?;
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
        match self.random.below(20) {
            0..4 => {
                let key = self.key();
                let result = if self.random.below(3) == 0 {
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
                    tx.rollback_to(here)?;
                    savepoints.truncate(place + 1);
                    ops.push(Op::RollbackTo(savepoint));
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
        let mut cursor = if self.random.below(4) == 0 {
            tx.cursor_for_update(table(number), slices, direction)?
        } else {
            tx.cursor(table(number), slices, direction)?
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
        ops.push(Op::Scan { table: number, low, high, descending, complete, result });
        Ok(())
    }
}

/// What a run came to.
struct Played {
    committed: u64,
    aborted: u64,
    replayed: Result<(), Anomaly>,
}

fn play(run: Run) -> Played {
    let disk = FaultyDisk::new();
    disk.set_sync_delay(run.sync_delay);
    let mut options = Options {
        pool_bytes: 1 << 20,
        log_segment_bytes: 1 << 20,
        log_bytes: 64 << 20,
        log_buffer_bytes: 1 << 20,
        checkpoint_bytes: 1 << 20,
        lock_table: run.lock_table,
        locking: run.locking,
        node_capacity: 4,
        ..Options::default()
    };
    run.set.iter().for_each(|(name, value)| options.set(name, value).unwrap());
    let builder = Database::builder().options(options).disk(Arc::new(disk));
    let db = builder.open("/db").unwrap();
    let (history, order) = (History::new(), AtomicU64::new(1));
    let outcomes: Vec<(u64, u64, Option<Error>)> = thread::scope(|scope| {
        let clients: Vec<_> = (0..run.threads)
            .map(|name| {
                let (db, run, history, order) = (db.clone(), &run, &history, &order);
                scope.spawn(move || {
                    let random =
                        Xorshift::new((run.seed * 1000 + name + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
                    let mut client = Client { run, db, history, order, random, name };
                    let (mut committed, mut aborted) = (0, 0);
                    for serial in 0..run.transactions {
                        match client.transaction(serial) {
                            Ok(End::Committed) => committed += 1,
                            Ok(End::Aborted) => aborted += 1,
                            Err(error) => return (committed, aborted, Some(error)),
                        }
                    }
                    (committed, aborted, None)
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    if run.locking {
        if let Some(error) = outcomes.iter().find_map(|(_, _, error)| error.as_ref()) {
            panic!("seed {}: {error}", run.seed);
        }
        let report = db.verify().unwrap();
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
        committed: outcomes.iter().map(|(committed, _, _)| committed).sum(),
        aborted: outcomes.iter().map(|(_, aborted, _)| aborted).sum(),
        replayed: replayed.map(|_| ()),
    }
}

/// How often the seeds are multiplied; for long runs by hand.
fn effort() -> u64 {
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
    serializable(|seed| Run { lock_table: LockTable::Staged, ..Run::serializable(300 + seed) });
}

#[test]
fn with_the_global_lock_table_too() {
    serializable(|seed| Run { lock_table: LockTable::GlobalMutex, ..Run::serializable(200 + seed) });
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
        assert!(played.committed > 50, "{set:?}: {} of 300", played.committed);
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
    serializable(|seed| Run { planned: 8, transactions: 120, ..Run::serializable(700 + seed) });
}

#[test]
fn planned_and_dynamic_histories_replay_in_commit_order() {
    let slow = Duration::from_millis(1);
    serializable(|seed| Run {
        planned: 4,
        transactions: 100,
        sync_delay: slow,
        ..Run::serializable(710 + seed)
    });
}

#[test]
fn planned_histories_do_over_every_lock_table_and_kind_of_modes() {
    const KINDS: [(LockTable, &[(&str, &str)]); 5] = [
        (LockTable::Staged, &[("deadlock_policy", "wait_die")]),
        (LockTable::GlobalMutex, &[("intent_locks", "in_table")]),
        (LockTable::Latched, &[("intent_locks", "inherited")]),
        (LockTable::Latched, &[("key_range_modes", "lomet"), ("intent_locks", "lightweight")]),
        (LockTable::Latched, &[("key_range_modes", "next_key"), ("escalation_locks", "5")]),
    ];
    for (number, (lock_table, set)) in (0..).zip(KINDS) {
        let run = Run {
            lock_table,
            set,
            planned: 5,
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
    finds_anomalies(|seed| Run { locking: false, planned: 8, ..Run::serializable(seed) });
}

#[test]
fn under_read_committed_the_checker_finds_anomalies() {
    finds_anomalies(|seed| Run { isolation: Isolation::ReadCommitted, ..Run::serializable(seed) });
}
