//! Threads of partitioned execution that go from one role to the other, by how much there is to do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use foreshore::{
    CommitTicket, Database, Durability, Options, PartitionRole, Plan, Procedure, Result, TableDefinition,
    TransactOptions, Transaction,
};
use foreshore_testkit::FaultyDisk;

const NUMBERS: TableDefinition<u32, u64> = TableDefinition::new("numbers");
/// How long a test waits for what is to happen, on the slowest machine.
const FAR: Duration = Duration::from_secs(300);

fn open(control_threads: usize, execution_threads: usize) -> Database {
    let options = Options {
        pool_bytes: 2 << 20,
        control_threads,
        execution_threads,
        automatic_threads: true,
        ..Options::default()
    };
    Database::builder().options(options).disk(Arc::new(FaultyDisk::new())).open("/db").unwrap()
}

/// Transactions without end on one record, each of which takes its time where it runs, and next to none where it locks.
struct Slow {
    key: u32,
    done: u64,
}

impl Procedure for Slow {
    fn draw<'d>(&mut self, plan: Plan<'d>) -> Option<Plan<'d>> {
        Some(plan.write(NUMBERS, self.key))
    }

    fn run(&mut self, tx: &mut Transaction) -> Result<()> {
        let value = tx.get(NUMBERS, self.key)?.unwrap_or(0);
        thread::sleep(Duration::from_millis(1));
        tx.put(NUMBERS, self.key, value + 1).map(drop)
    }

    fn ended(&mut self, result: Result<CommitTicket>) {
        drop(result.unwrap());
        self.done += 1;
    }
}

/// Whether it comes to be so, in time.
pub(crate) fn wait_for(what: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + FAR;
    while !what() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    what()
}

/// Four threads lock, and have next to nothing to do; one runs transactions, and has too much. The last of the four
/// moves, it is told in the statistics, and it gets some of the work: though there are fewer procedures than one thread
/// has room for, and the other has begun them all.
#[test]
fn threads_move_to_execution_and_get_their_share() {
    const PROCEDURES: u32 = 14;
    let db = open(4, 1);
    assert!(usize::try_from(PROCEDURES).unwrap() < db.options().execution_window);
    let lazy = TransactOptions { durability: Some(Durability::Lazy), ..TransactOptions::default() };
    let serving = db.serve(&lazy, (0..PROCEDURES).map(|key| Slow { key, done: 0 })).unwrap();
    assert!(wait_for(|| db.stats().partitioned_moves_to_execution >= 1), "nobody moves: {:?}", db.stats());
    let done = |thread: usize| db.stats().partition_threads[thread].done;
    assert!(wait_for(|| done(3) >= 20), "it gets nothing to do: {:?}", db.stats());
    let threads = db.stats().partition_threads;
    assert_eq!((threads[0].role, threads[4].role), (PartitionRole::Control, PartitionRole::Execution));
    assert_eq!(threads[0].done, 0, "whoever looks who should move runs no transactions");
    serving.stop();
    let done: u64 = serving.wait().unwrap().iter().map(|procedure| procedure.done).sum();
    let counted = db.transact(|tx| {
        tx.range(NUMBERS, ..)?.map(|entry| entry.map(|(_, value)| value)).sum::<Result<u64>>()
    });
    assert_eq!((done, done), (counted.unwrap(), db.stats().partitioned_done));
    db.close().unwrap();
}

/// By default one thread locks and two run transactions: of these, one may begin to lock, and go back.
#[test]
fn the_default_numbers_leave_room_for_moves() {
    let db = open(Options::default().control_threads, Options::default().execution_threads);
    db.plan().submit(|_| Ok(())).unwrap().wait().unwrap();
    let roles = |db: &Database| {
        let threads = db.stats().partition_threads;
        let control = threads.iter().filter(|thread| thread.role == PartitionRole::Control).count();
        (control, threads.len(), threads.iter().map(|thread| thread.partitions).sum::<usize>())
    };
    assert_eq!(roles(&db), (1, 3, 2));
    db.set_control_threads(2);
    assert!(wait_for(|| db.stats().partitioned_moves_to_control >= 1));
    for key in 0..50 {
        let submitted = db.plan().write(NUMBERS, key).submit(move |tx| tx.put(NUMBERS, key, 1)).unwrap();
        assert!(!submitted.wait().unwrap());
    }
    assert_eq!(roles(&db).2, 2, "each partition is somebody's");
    db.close().unwrap();
}

/// A thread that was to control was in the middle of a long transaction. The partitions that it was to look after were
/// put down for it, and nothing was locked in them until that one was over; now they stay where they are until it comes
/// by.
#[test]
fn partitions_wait_for_nobody_who_is_in_the_middle_of_a_transaction() {
    let db = open(1, 2);
    let (begun, may_end) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    // The second thread, which is the next to control.
    while !begun.load(Ordering::SeqCst) {
        let (begun, may_end) = (Arc::clone(&begun), Arc::clone(&may_end));
        let submitted = db.plan().read(NUMBERS, 1000).submit(move |_| {
            if thread::current().name().is_some_and(|name| name.ends_with("-1")) {
                begun.store(true, Ordering::SeqCst);
                while !may_end.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            Ok(())
        });
        drop(submitted.unwrap().wait_until(Instant::now() + Duration::from_millis(100)));
    }
    db.set_control_threads(2);
    let soon = Instant::now() + FAR;
    for key in 0..50 {
        let submitted = db.plan().write(NUMBERS, key).submit(move |tx| tx.put(NUMBERS, key, 1)).unwrap();
        assert!(!submitted.wait_until(soon).unwrap(), "{:?}", db.stats());
    }
    let roles: Vec<_> = db.stats().partition_threads.iter().map(|thread| thread.role).collect();
    assert_eq!(roles[1], PartitionRole::Execution);
    may_end.store(true, Ordering::SeqCst);
    db.close().unwrap();
}
