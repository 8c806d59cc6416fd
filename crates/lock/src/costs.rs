//! What the operations of a lock manager cost where nobody is in their way, counted on the simulated machine: accesses
//! to shared memory, latches, allocations; exact and the same in every run. For `--cfg foreshore_sim`.

use foreshore_base::{TableId, TxnId};
use foreshore_env::sim::{self, Device, Failed, Profile, Settings, Tally, World, simulate};
use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::{AtomicBool, Ordering::Relaxed};
use foreshore_env::thread;
use foreshore_env::time::Duration;

use crate::{Age, IntentMode, KeyMode, KeyRef, LockManager, LockOptions, LockOwner, WaitPolicy};

/// Operations of one kind that are counted together, in one transaction.
const BATCH: u64 = 16;
/// Transactions before those that count: what is made once has been made.
const WARM_UP: u64 = 40;
/// Transactions that count.
const ROUNDS: u64 = 64;
/// How long threads run beside each other before, and while, they are counted.
const SPAN: Duration = Duration::from_millis(2);
/// The machine on which they do.
const MACHINE: &str = "westmere8x10";

/// What operations of one kind cost together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationCost {
    /// The operation, in words.
    pub operation: &'static str,
    /// How many were counted.
    pub count: u64,
    /// What they did, all together.
    pub tally: Tally,
}

impl OperationCost {
    /// What one operation costs of what `field` chooses.
    pub fn each(&self, field: impl Fn(&Tally) -> u64) -> f64 {
        field(&self.tally) as f64 / self.count as f64
    }
}

/// What a lock manager costs in steady state, uncontended.
#[derive(Clone, Debug, PartialEq)]
pub struct LockCosts {
    /// Operation by operation, by one thread.
    pub operations: Vec<OperationCost>,
    /// Cache lines that went from core to core, for each transaction or so, while two threads ran transactions of a few
    /// locks that have nothing in common: 0 if nothing is written that all share.
    pub lines_moved: f64,
}

impl LockCosts {
    /// The cost of the operation of that name.
    ///
    /// # Panics
    /// If there is none.
    pub fn of(&self, operation: &str) -> OperationCost {
        let found = self.operations.iter().find(|cost| cost.operation == operation);
        *found.unwrap_or_else(|| panic!("{operation:?} is not counted"))
    }
}

/// Counts what a lock manager with these options costs.
///
/// # Errors
/// The simulation failed: a mistake in the program.
pub fn count(options: &LockOptions) -> Result<LockCosts, Failed> {
    let operations = simulate(&settings(1), || operations(options))?.result;
    let lines_moved = simulate(&settings(3), || lines_moved(options))?.result;
    Ok(LockCosts { operations, lines_moved })
}

fn settings(cores: usize) -> Settings {
    let profile = Profile::named(MACHINE).expect("a machine of this name").clone();
    Settings {
        seed: 1,
        world: World::Machine { profile: Box::new(profile), cores },
        device: Device::named("plp").expect("a device of this name"),
        limit: Duration::from_secs(10),
    }
}

const TABLE: TableId = TableId(16);
const NO_WAIT: WaitPolicy<'static> =
    WaitPolicy { deadline: None, timeout: None, no_wait: true, cancel: None };

/// One lock, for a key by its number.
fn lock(owner: &mut LockOwner, number: u64, mode: KeyMode) {
    let locked = owner.acquire(TABLE, KeyRef::Key(&number.to_be_bytes()), mode, &NO_WAIT);
    locked.expect("nobody is in the way");
}

fn intents(owner: &mut LockOwner, mode: IntentMode) {
    for table in 0..BATCH as u32 {
        owner.intent(TableId(table), mode, &NO_WAIT).expect("nobody is in the way");
    }
}

fn locks(owner: &mut LockOwner, mode: KeyMode) {
    (0..BATCH).for_each(|number| lock(owner, number, mode));
}

fn tally() -> Tally {
    sim::tally().expect("a simulation runs")
}

fn check_gaps(owner: &LockOwner) {
    for number in 0..BATCH {
        assert!(owner.check(TABLE, KeyRef::Key(&number.to_be_bytes()), KeyMode::NX));
    }
}

/// Runs transactions that prepare something, do what is counted, and end.
fn counted(
    manager: &Arc<LockManager>,
    operation: &'static str,
    prepare: impl Fn(&mut LockOwner),
    act: impl Fn(&mut LockOwner),
) -> OperationCost {
    let mut sum = OperationCost { operation, count: 0, tally: Tally::default() };
    for round in 0..WARM_UP + ROUNDS {
        let mut owner = manager.begin(TxnId(round), Age::new(round, 0), None).expect("a slot is free");
        prepare(&mut owner);
        let before = tally();
        act(&mut owner);
        let cost = tally() - before;
        if round >= WARM_UP {
            sum.count += BATCH;
            sum.tally = sum.tally + cost;
        }
    }
    sum
}

fn begin_and_end(manager: &Arc<LockManager>) -> OperationCost {
    let run = || {
        for round in 0..BATCH {
            drop(manager.begin(TxnId(round), Age::new(round, 0), None));
        }
    };
    run();
    let before = tally();
    run();
    OperationCost { operation: "begin and end", count: BATCH, tally: tally() - before }
}

fn operations(options: &LockOptions) -> Vec<OperationCost> {
    let manager = &LockManager::new(options);
    let nothing = |_: &mut LockOwner| {};
    let end = |owner: &mut LockOwner| owner.release_all(None);
    vec![
        counted(manager, "S lock on a key", nothing, |owner| locks(owner, KeyMode::S)),
        counted(manager, "release of an S lock", |owner| locks(owner, KeyMode::S), end),
        counted(manager, "X lock on a key", nothing, |owner| locks(owner, KeyMode::X)),
        counted(manager, "release of an X lock", |owner| locks(owner, KeyMode::X), end),
        counted(
            manager,
            "lock that is held",
            |owner| locks(owner, KeyMode::X),
            |owner| locks(owner, KeyMode::S),
        ),
        counted(manager, "S lock made X", |owner| locks(owner, KeyMode::S), |owner| locks(owner, KeyMode::X)),
        counted(manager, "check of a free gap", nothing, |owner| check_gaps(owner)),
        counted(
            manager,
            "check above an own key",
            |owner| locks(owner, KeyMode::XN),
            |owner| check_gaps(owner),
        ),
        counted(manager, "intent lock", nothing, |owner| intents(owner, IntentMode::IX)),
        counted(manager, "release of an intent lock", |owner| intents(owner, IntentMode::IX), end),
        counted(manager, "S lock on a table", nothing, |owner| intents(owner, IntentMode::S)),
        counted(manager, "release of a table's lock", |owner| intents(owner, IntentMode::S), end),
        begin_and_end(manager),
    ]
}

/// Two threads beside each other, on keys of their own.
fn lines_moved(options: &LockOptions) -> f64 {
    let manager = LockManager::new(options);
    let stop = AtomicBool::new(false);
    let (mut moved, mut transactions) = (0, 0);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..2u64)
            .map(|thread| {
                let (manager, stop) = (&manager, &stop);
                scope.spawn(move || {
                    let mut count = 0;
                    while !stop.load(Relaxed) {
                        let txn = count * 2 + thread;
                        let mut owner =
                            manager.begin(TxnId(txn), Age::new(txn, 0), None).expect("a slot is free");
                        for table in [u32::MAX, TABLE.0] {
                            owner.intent(TableId(table), IntentMode::IX, &NO_WAIT).expect("free");
                        }
                        for number in 0..4 {
                            lock(
                                &mut owner,
                                number * 2 + thread,
                                if number < 2 { KeyMode::S } else { KeyMode::X },
                            );
                        }
                        drop(owner);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        thread::sleep(SPAN);
        sim::count_anew();
        thread::sleep(SPAN);
        let report = sim::report().expect("a machine runs");
        moved = report.lines_from_socket + report.lines_from_elsewhere;
        stop.store(true, Relaxed);
        transactions = workers.into_iter().map(|worker| worker.join().expect("no panic")).sum::<u64>();
    });
    // Half of them were counted: those of the second half of the time.
    moved as f64 / (transactions / 2) as f64
}
