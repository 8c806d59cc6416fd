//! The lock manager through its public face, over every lock table.

mod basics;
mod cost;
mod deadlocks;
mod fairness;
mod intents;
mod pipelines;
mod policies;
mod priorities;
mod shadow;
mod specs;
mod storms;
mod victims;
mod views;
mod waits;

use foreshore_base::{TableId, TxnId};
use foreshore_env::sync::atomic::{AtomicUsize, Ordering};
use foreshore_env::sync::{Arc, Condvar, Mutex};
use foreshore_env::thread;
use foreshore_env::time::{Duration, Instant};
use foreshore_lock::{
    Age, DeadlockPolicy, DigestKind, IntentLockKind, KeyRef, LockManager, LockOptions, LockOwner,
    LockTableKind, WaitPolicy,
};

const TABLE: TableId = TableId(16);

/// How long a test waits for what is to happen, on the slowest machine.
const FAR: Duration = Duration::from_secs(120);

/// Runs a test over every lock table.
fn over_all_tables(test: impl Fn(LockOptions)) {
    for table in LockTableKind::ALL {
        test(LockOptions { buckets: 64, table, ..LockOptions::default() });
    }
}

/// Every kind of intent locks, over every lock table where that makes a difference.
fn intent_kinds() -> impl Iterator<Item = LockOptions> {
    let with = |intents, table| LockOptions { intents, table, buckets: 64, ..LockOptions::default() };
    IntentLockKind::ALL.into_iter().flat_map(move |intents| {
        let in_table = matches!(intents, IntentLockKind::InTable | IntentLockKind::Inherited);
        LockTableKind::ALL
            .into_iter()
            .take(if in_table { LockTableKind::ALL.len() } else { 1 })
            .map(move |table| with(intents, table))
    })
}

/// Every policy against deadlocks, with every kind of digest that it can have.
fn policies() -> impl Iterator<Item = LockOptions> {
    let with = |deadlock| LockOptions {
        deadlock,
        deadlock_timeout: Duration::from_millis(60),
        buckets: 64,
        ..LockOptions::default()
    };
    let bloom = [DeadlockPolicy::Dreadlocks, DeadlockPolicy::DreadlocksSleep]
        .map(|policy| LockOptions { digests: DigestKind::Bloom, ..with(policy) });
    DeadlockPolicy::ALL.map(with).into_iter().chain(bloom)
}

/// Every lock table, with every kind of intent locks, under every policy against deadlocks.
fn product() -> Vec<LockOptions> {
    let mut settings = Vec::new();
    for table in LockTableKind::ALL {
        for intents in IntentLockKind::ALL {
            settings.extend(policies().map(|options| LockOptions { table, intents, ..options }));
        }
    }
    settings
}

/// Every lock table under every policy against deadlocks.
fn tables_and_policies() -> Vec<LockOptions> {
    product().into_iter().filter(|options| options.intents == IntentLockKind::default()).collect()
}

fn is_default(deadlock: DeadlockPolicy, digests: DigestKind) -> bool {
    (deadlock, digests) == Default::default()
}

/// Runs a test over every lock table with every kind of intent locks, a few at a time.
fn over_all_kinds(test: impl Fn(&LockOptions) + Sync) {
    let kinds: Vec<_> =
        product().into_iter().filter(|options| is_default(options.deadlock, options.digests)).collect();
    side_by_side(&kinds, test);
}

/// Runs a test with all settings, a few at a time: it waits more than it computes.
fn side_by_side(settings: &[LockOptions], test: impl Fn(&LockOptions) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while let Some(options) = settings.get(next.fetch_add(1, Ordering::Relaxed)) {
                    test(options);
                }
            });
        }
    });
}

/// Waits without end.
const WAIT: WaitPolicy<'static> = WaitPolicy { deadline: None, timeout: None, no_wait: false, cancel: None };
/// Does not wait.
const NO_WAIT: WaitPolicy<'static> =
    WaitPolicy { deadline: None, timeout: None, no_wait: true, cancel: None };

fn wait_for(milliseconds: u64) -> WaitPolicy<'static> {
    WaitPolicy { deadline: Some(Instant::now() + Duration::from_millis(milliseconds)), ..WAIT }
}

fn begin(manager: &Arc<LockManager>, txn: u64) -> LockOwner {
    manager.begin(TxnId(txn), Age::new(txn, 0), None).unwrap()
}

fn key(bytes: &[u8]) -> KeyRef<'_> {
    KeyRef::Key(bytes)
}

/// Until a transaction waits for a lock.
fn until_waiting(manager: &LockManager, txn: u64) {
    let limit = Instant::now() + FAR;
    while !manager.waiters().iter().any(|(waiter, _)| *waiter == TxnId(txn)) {
        assert!(Instant::now() < limit, "transaction {txn} does not come to wait");
        thread::yield_now();
    }
}

/// Lets threads through when all of them have come; can be used again.
struct Gate {
    threads: usize,
    arrivals: Mutex<usize>,
    open: Condvar,
}

impl Gate {
    fn new(threads: usize) -> Gate {
        Gate { threads, arrivals: Mutex::new(0), open: Condvar::new() }
    }

    fn wait(&self) {
        let mut arrivals = self.arrivals.lock();
        let round = *arrivals / self.threads;
        *arrivals += 1;
        self.open.notify_all();
        while *arrivals / self.threads == round {
            arrivals = self.open.wait(arrivals);
        }
    }
}
