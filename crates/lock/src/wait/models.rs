//! Whole waits under loom: a lock that is not free, its queue, the look for deadlocks, the sleep, and the end, however
//! it comes; in every interleaving of up to so many preemptions, and with every value that weak memory lets a load see.
//!
//! ```text
//! RUSTFLAGS="--cfg foreshore_loom" cargo test -p foreshore-lock --release --lib --target-dir target/loom
//! ```
//!
//! Nobody wakes by himself here: a wake-up that is lost, or a deadlock that nobody sees, is one of loom's, too. A
//! deadline that passes at any moment is a cancellation to all but the one who is told of it. When all have gone there
//! is no lock, nobody waits, and each change that was made under a lock has arrived.

use std::cell::Cell;
use std::sync::atomic::AtomicUsize as Counter;

use foreshore_base::{TableId, TxnId};
use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::{AtomicU32, Ordering, Ordering::Relaxed};
use foreshore_env::thread;

use super::{CancelToken, WaitPolicy};
use crate::age::Age;
use crate::error::LockError;
use crate::intent::IntentMode;
use crate::manager::LockManager;
use crate::mode::KeyMode;
use crate::name::KeyRef;
use crate::options::{LockOptions, LockTableKind};
use crate::owner::LockOwner;

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Two who close a cycle at a time need not see each other.
    Fence,
    /// A victim is not woken.
    Victim,
    /// A cancellation wakes nobody.
    Cancellation,
    /// Who gives up does not let those behind pass.
    Withdrawal,
    /// Who is granted a lock is not woken.
    Grant,
}

std::thread_local! {
    /// Loom runs the threads of a model on one.
    static FAULT: Cell<Fault> = const { Cell::new(Fault::None) };
}

pub(crate) fn has(fault: Fault) -> bool {
    FAULT.get() == fault
}

/// The ordering of a fence, or one that does less where the fault is that it does not order enough.
pub(crate) fn weakened(fault: Fault, ordering: Ordering) -> Ordering {
    if has(fault) { Ordering::AcqRel } else { ordering }
}

const TABLE: TableId = TableId(1);

/// Of two keys, in a bucket each, what they stand for is changed.
const KEYS: [u8; 2] = [0, 0x40];

/// What the transactions of a model share.
struct World {
    manager: Arc<LockManager>,
    /// What the locks on two keys protect.
    content: [AtomicU32; 2],
    /// Changes that were made, and waits that ended otherwise.
    changes: AtomicU32,
    victims: AtomicU32,
    cancelled: AtomicU32,
    /// Under which all wait.
    token: CancelToken,
}

/// A transaction of a model.
struct Txn<'w> {
    world: &'w World,
    owner: LockOwner,
    /// Whether its waits can be cancelled.
    cancellable: bool,
    /// Whether it holds what it has until the others have gone. Only the first may.
    stays: bool,
}

impl Txn<'_> {
    fn cancellably(&mut self) -> &mut Self {
        self.cancellable = true;
        self
    }

    /// Locks a key; whether it has it.
    fn lock(&mut self, key: usize, mode: KeyMode) -> bool {
        let world = self.world;
        let wait = WaitPolicy { cancel: self.cancellable.then_some(&world.token), ..WaitPolicy::default() };
        world.note(&self.owner.acquire(TABLE, KeyRef::Key(&[KEYS[key]]), mode, &wait))
    }

    fn lock_table(&mut self, mode: IntentMode) -> bool {
        let world = self.world;
        world.note(&self.owner.intent(TABLE, mode, &WaitPolicy::default()).map(drop))
    }

    /// Changes what a lock protects, which gets lost if somebody else has it, too.
    fn change(&mut self, key: usize) {
        let content = &self.world.content[key];
        content.store(content.load(Relaxed) + 1, Relaxed);
        self.world.changes.fetch_add(1, Relaxed);
    }

    /// Locks a key and changes it.
    fn write(&mut self, key: usize) -> bool {
        let locked = self.lock(key, KeyMode::XN);
        if locked {
            self.change(key);
        }
        locked
    }
}

impl World {
    fn new(table: LockTableKind) -> World {
        let options = LockOptions { table, buckets: 2, max_locks: 8, history: 4, ..LockOptions::default() };
        let mut manager = LockManager::new(&options);
        // Nobody spins.
        Arc::get_mut(&mut manager).expect("it is new").processors = 1;
        World {
            manager,
            content: Default::default(),
            changes: AtomicU32::new(0),
            victims: AtomicU32::new(0),
            cancelled: AtomicU32::new(0),
            token: CancelToken::new(),
        }
    }

    fn begin(&self, number: u64) -> Txn<'_> {
        let owner = self.manager.begin(TxnId(number), Age::new(number, 0), None);
        Txn { world: self, owner: owner.expect("there is a slot"), cancellable: false, stays: false }
    }

    fn note(&self, outcome: &Result<(), LockError>) -> bool {
        match outcome {
            Ok(()) => {}
            Err(LockError::Deadlock(_)) => _ = self.victims.fetch_add(1, Relaxed),
            Err(LockError::Cancelled) => _ = self.cancelled.fetch_add(1, Relaxed),
            Err(error) => panic!("{error}"),
        }
        outcome.is_ok()
    }

    fn victims(&self) -> u32 {
        self.victims.load(Relaxed)
    }

    fn cancelled(&self) -> u32 {
        self.cancelled.load(Relaxed)
    }

    fn assert_rest(&self) {
        assert!(self.manager.is_empty(), "a lock, or a wait, is left");
        let content: u32 = self.content.iter().map(|content| content.load(Relaxed)).sum();
        assert_eq!(content, self.changes.load(Relaxed), "a change was lost");
        assert_eq!(self.manager.deadlocks().len() as u32, self.victims());
    }
}

type Program = fn(&mut Txn<'_>);

/// Runs the programs, each a transaction on a thread of its own, the later the younger; then `check`.
fn explore(name: &str, fault: Fault, table: LockTableKind, programs: &'static [Program], check: fn(&World)) {
    FAULT.set(fault);
    let executions = Arc::new(Counter::new(0));
    let counter = Arc::clone(&executions);
    let preemptions = PREEMPTIONS + usize::from(programs.len() < 3);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(move || {
        counter.fetch_add(1, Relaxed);
        let world = Arc::new(World::new(table));
        // What is made when it is first used is made before there are threads.
        let mut owners: Vec<_> = (0..programs.len() as u64)
            .map(|number| {
                let mut txn = world.begin(number);
                assert!(txn.lock_table(IntentMode::IX) && txn.lock(0, KeyMode::NS));
                txn.owner.release_all(None);
                txn.owner
            })
            .collect();
        let run = |world: &World, owner, program: Program| {
            let mut txn = Txn { world, owner, cancellable: false, stays: false };
            program(&mut txn);
            if !txn.stays {
                txn.owner.release_all(None);
            }
            txn.owner
        };
        let spawned: Vec<_> = programs[1..]
            .iter()
            .map(|&program| {
                let (world, owner) = (Arc::clone(&world), owners.remove(1));
                thread::spawn(move || drop(run(&world, owner, program)))
            })
            .collect();
        let first = run(&world, owners.remove(0), programs[0]);
        spawned.into_iter().for_each(|thread| thread.join().unwrap());
        drop(first);
        check(&world);
        world.assert_rest();
    });
    println!("{name}, {table:?}: {executions:?} executions, up to {preemptions} preemptions");
}

const ROAD: LockTableKind = LockTableKind::Latched;

/// The bound for three threads. For two it is one more.
const PREEMPTIONS: usize = 2;

#[test]
fn who_waits_is_woken() {
    for table in [ROAD, LockTableKind::Staged] {
        two_writers(Fault::None, table);
    }
}

fn two_writers(fault: Fault, table: LockTableKind) {
    let programs: &[Program] = &[|txn| assert!(txn.write(0)), |txn| assert!(txn.write(0))];
    explore("two writers", fault, table, programs, |world| {
        assert_eq!((world.victims(), world.cancelled()), (0, 0));
    });
}

/// Each has a key that the other wants.
fn cycle(fault: Fault) {
    let programs: &[Program] =
        &[|txn| _ = txn.write(0) && txn.write(1), |txn| _ = txn.write(1) && txn.write(0)];
    explore("a cycle", fault, ROAD, programs, |world| {
        one_victim_at_most(world);
        assert_eq!(world.changes.load(Relaxed) + world.victims(), 4, "one gave way and none gets on");
    });
}

fn one_victim_at_most(world: &World) {
    assert!(world.victims() < 2 && world.cancelled() == 0);
}

#[test]
fn of_a_cycle_one_gives_way() {
    cycle(Fault::None);
    let programs: &[Program] = &[
        |txn| _ = txn.lock(0, KeyMode::S) && txn.write(0),
        |txn| _ = txn.lock(0, KeyMode::S) && txn.write(0),
    ];
    explore("two who convert", Fault::None, ROAD, programs, one_victim_at_most);
    let programs: &[Program] = &[
        |txn| _ = txn.lock_table(IntentMode::IX) && txn.write(0),
        |txn| _ = txn.write(0) && txn.lock_table(IntentMode::S),
    ];
    explore("a cycle through a table", Fault::None, ROAD, programs, one_victim_at_most);
}

/// One that is cancelled stands between two who share, perhaps, of whom the first does not go before the others have.
fn cancelled_in_between(fault: Fault) {
    let programs: &[Program] = &[
        |txn| {
            assert!(txn.lock(0, KeyMode::S));
            txn.stays = true;
        },
        |txn| _ = txn.cancellably().write(0),
        |txn| {
            txn.world.token.cancel();
            assert!(txn.lock(0, KeyMode::S));
        },
    ];
    explore("a cancellation in between", fault, ROAD, programs, one_cancelled_at_most);
}

fn one_cancelled_at_most(world: &World) {
    assert!(world.victims() == 0 && world.cancelled() < 2);
}

#[test]
fn a_wait_is_cancelled_at_any_moment() {
    cancelled_in_between(Fault::None);
    let programs: &[Program] = &[
        |txn| {
            assert!(txn.write(0));
            txn.world.token.cancel();
        },
        |txn| _ = txn.cancellably().write(0),
    ];
    explore("a cancellation and a grant", Fault::None, ROAD, programs, one_cancelled_at_most);
}

/// A deadlock, one of whose members is cancelled, is not granted and a victim both, nor neither.
#[test]
fn a_cycle_may_be_cancelled() {
    let programs: &[Program] = &[
        |txn| _ = txn.write(0) && txn.write(1),
        |txn| _ = txn.cancellably().write(1) && txn.write(0),
        |txn| txn.world.token.cancel(),
    ];
    explore("a cycle and a cancellation", Fault::None, ROAD, programs, |world| {
        assert!(world.victims() + world.cancelled() < 2);
    });
}

#[test]
fn the_models_see_what_is_wrong() {
    must_fail("fence", "deadlock; threads", || cycle(Fault::Fence));
    must_fail("victim", "deadlock; threads", || cycle(Fault::Victim));
    must_fail("grant", "deadlock; threads", || two_writers(Fault::Grant, ROAD));
    must_fail("cancellation", "deadlock; threads", || cancelled_in_between(Fault::Cancellation));
    must_fail("withdrawal", "deadlock; threads", || cancelled_in_between(Fault::Withdrawal));
}

/// The model must fail for this reason. It runs in a process of its own: loom gives up a model whose threads sleep for
/// ever by panicking in their midst, and what they then release panics again.
fn must_fail(fault: &str, because: &str, model: impl FnOnce()) {
    const PLANTED: &str = "FORESHORE_PLANTED_FAULT";
    match std::env::var(PLANTED) {
        Ok(planted) if planted == fault => return model(),
        Ok(_) => return,
        Err(_) => {}
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["wait::models::the_models_see_what_is_wrong", "--exact", "--nocapture"])
        .env(PLANTED, fault)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "planted and not caught: {fault}");
    assert!(said.contains(because), "{fault}: failed, but not because of \"{because}\":\n{said}");
    println!("{fault}: caught");
}
