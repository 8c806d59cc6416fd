//! Many threads, random locks, and the shadow that sees every grant.

use foreshore_base::{TableId, TxnId};
use foreshore_env::random::Xorshift;
use foreshore_env::sync::atomic::{AtomicU64, Ordering};
use foreshore_env::thread;
use foreshore_env::time::{Duration, Instant};
use foreshore_lock::{
    Age, IntentMode, KeyMode, LockError, LockManager, LockOptions, LockTableKind, WaitPolicy,
};

use super::shadow::Shadow;
use super::{Gate, TABLE, WAIT, intent_kinds, key, over_all_tables};

struct Storm {
    threads: u64,
    transactions: u64,
    keys: u64,
    locks: u64,
    /// One in so many waits has a deadline of up to 2 ms; 0: none.
    hurried: u64,
    /// One in so many requests is for a table; 0: none.
    tables: u64,
}

/// Every thread runs its transactions, each until it commits, with the age it was born with.
fn run(options: &LockOptions, storm: &Storm) {
    let manager = LockManager::new(options);
    let shadow = Shadow::new(storm.keys as usize);
    let (births, attempts) = (AtomicU64::new(1), AtomicU64::new(1));
    let most = AtomicU64::new(0);
    let ready = Gate::new(storm.threads as usize);
    thread::scope(|scope| {
        for thread in 0..storm.threads {
            let (manager, shadow, births, attempts, most) = (&manager, &shadow, &births, &attempts, &most);
            let ready = &ready;
            scope.spawn(move || {
                let mut random = Xorshift::new(thread * 77 + 1);
                ready.wait();
                for _ in 0..storm.transactions {
                    let age = births.fetch_add(1, Ordering::Relaxed);
                    let mut tries = 0;
                    loop {
                        tries += 1;
                        let txn = TxnId(attempts.fetch_add(1, Ordering::Relaxed));
                        let mut owner = manager.begin(txn, Age::new(age, 0), None).unwrap();
                        let mut failed = false;
                        for _ in 0..storm.locks {
                            let number = random.below(storm.keys);
                            let mode = KeyMode::ALL[1 + random.below(8) as usize];
                            let hurried = storm.hurried > 0 && random.below(storm.hurried) == 0;
                            let deadline =
                                hurried.then(|| Instant::now() + Duration::from_micros(random.below(2000)));
                            let policy = WaitPolicy { deadline, ..WAIT };
                            let on_table = storm.tables > 0 && random.below(storm.tables) == 0;
                            let result = if on_table {
                                let mode = IntentMode::ALL[random.below(5) as usize];
                                owner.intent(TableId(random.below(3) as u32), mode, &policy).map(drop)
                            } else {
                                owner.acquire(TABLE, key(&number.to_be_bytes()), mode, &policy)
                            };
                            match result {
                                Ok(()) if on_table => {}
                                Ok(()) => {
                                    shadow.granted(number as usize, txn, mode);
                                    // Somebody else's turn, so that transactions overlap on few processors.
                                    if random.below(3) == 0 {
                                        thread::sleep(Duration::from_micros(20));
                                    }
                                }
                                Err(LockError::Timeout(_)) => {}
                                Err(LockError::Deadlock(report)) => {
                                    assert_eq!(report.victim, txn);
                                    assert!(report.cycle.len() > 1);
                                    failed = true;
                                    break;
                                }
                                Err(error) => panic!("{error}"),
                            }
                        }
                        shadow.release(txn);
                        owner.release_all(None);
                        if !failed {
                            break;
                        }
                    }
                    most.fetch_max(tries, Ordering::Relaxed);
                }
            });
        }
    });
    shadow.assert_empty();
    assert!(manager.is_empty() && manager.waiters().is_empty());
    let stats = manager.stats();
    assert!(stats.deadlocks > 0, "this is made to deadlock: {stats:?}");
    // The oldest is never a victim, so everybody becomes the oldest and gets through.
    assert!(most.into_inner() < 1000);
}

#[test]
fn few_threads() {
    over_all_tables(|options| {
        run(&options, &Storm { threads: 6, transactions: 300, keys: 12, locks: 4, hurried: 0, tables: 0 });
    });
}

#[test]
fn with_waiters_that_leave() {
    over_all_tables(|options| {
        run(&options, &Storm { threads: 8, transactions: 200, keys: 8, locks: 4, hurried: 3, tables: 0 });
    });
}

/// Cycles through tables and keys.
#[test]
fn with_tables() {
    intent_kinds().for_each(|options| {
        run(&options, &Storm { threads: 12, transactions: 100, keys: 20, locks: 5, hurried: 7, tables: 3 });
    });
}

/// 64 threads on two processors.
#[test]
fn many_more_threads_than_processors() {
    over_all_tables(|options| {
        // The MCS latch is handed to whoever is next in its queue, of whom most do not run: each of its turns takes one
        // of the system's.
        let transactions = if options.table == LockTableKind::GlobalMcs { 2 } else { 20 };
        run(&options, &Storm { threads: 64, transactions, keys: 40, locks: 4, hurried: 0, tables: 0 });
    });
}

/// Names that share one bucket have nothing to do with each other.
#[test]
fn one_bucket() {
    over_all_tables(|options| {
        let options = LockOptions { buckets: 1, ..options };
        run(&options, &Storm { threads: 6, transactions: 100, keys: 10, locks: 4, hurried: 5, tables: 0 });
    });
}
