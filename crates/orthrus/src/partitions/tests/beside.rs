//! Locks that a transaction has taken itself, beside its plan: it gives them back itself, without a message, and
//! whoever looks after the partition in which somebody waits for one is woken.

use foreshore_env::sync::Mutex;
use foreshore_txn::{BeginOptions, Durability, LockKind, TableInfo, Txn};

use super::{carried::engine, *};

const KEY: [u8; 4] = [0; 4];

/// A transaction that changes one key.
struct Change {
    engine: Arc<foreshore_txn::Engine>,
    table: TableInfo,
    /// Whether the key is in its plan.
    planned: bool,
    txn: Option<Txn>,
    /// It has its lock.
    holds: Arc<AtomicBool>,
    /// Before that it does not commit.
    may_commit: Arc<AtomicBool>,
    done: Arc<Mutex<Vec<bool>>>,
}

/// Makes such transactions: whether the key is in the plan, whether it has its lock, whether it may commit.
fn changes<'a>(
    engine: &'a Arc<foreshore_txn::Engine>,
    table: &'a TableInfo,
    done: &'a Arc<Mutex<Vec<bool>>>,
) -> impl Fn(bool, &Arc<AtomicBool>, &Arc<AtomicBool>) -> Change + 'a {
    |planned, holds, may_commit| Change {
        engine: Arc::clone(engine),
        table: table.clone(),
        planned,
        txn: None,
        holds: Arc::clone(holds),
        may_commit: Arc::clone(may_commit),
        done: Arc::clone(done),
    }
}

impl Job for Change {
    fn begin(&mut self) -> Next {
        let mut txn = self.engine.begin(BeginOptions::default()).unwrap();
        txn.begin_reconnaissance();
        if self.planned {
            txn.foresee(&self.table, &KEY, LockKind::Exclusive).unwrap();
        }
        let footprint = txn.end_reconnaissance();
        let parted = txn.part(footprint).unwrap().expect("nobody locks the table");
        self.txn = Some(txn);
        Next::Locks(parted)
    }

    fn locked(&mut self, parted: Box<Parted>, outcome: Result<(), LockError>) -> Next {
        let mut txn = self.txn.take().expect("it has begun");
        txn.rejoin(*parted, outcome).unwrap();
        assert!(txn.update(&self.table, &KEY, b"12345678").unwrap());
        self.holds.store(true, Ordering::SeqCst);
        assert!(wait_for(|| self.may_commit.load(Ordering::SeqCst)));
        let parted = txn.commit_parting(Durability::Lazy).unwrap().1.expect("it has a lock");
        Next::Release { parted, ends: true }
    }

    fn released(&mut self) -> Next {
        self.done.lock().push(self.planned);
        Next::Done
    }
}

#[test]
fn who_waits_for_a_lock_beside_a_plan_gets_it_and_no_message_goes() {
    let (engine, table) = engine();
    // One thread runs the one who holds the lock; another has to send the one who waits for it.
    let partitions = Partitions::start(PartitionOptions { pin_threads: false, ..OPTIONS }).unwrap();
    let (holds, may_commit, done) = (Arc::default(), Arc::default(), Arc::default());
    let change = changes(&engine, &table, &done);
    partitions.submit(Box::new(change(false, &holds, &may_commit)));
    assert!(wait_for(|| holds.load(Ordering::SeqCst)));
    assert_eq!(partitions.stats().footprints, 0, "it has planned nothing");
    let free = Arc::new(AtomicBool::new(true));
    partitions.submit(Box::new(change(true, &Arc::default(), &free)));
    assert!(wait_for(|| partitions.stats().waits == 1));
    // Time enough, mostly, for the control threads to fall asleep.
    thread::sleep(Duration::from_millis(20));
    assert!(done.lock().is_empty());
    may_commit.store(true, Ordering::SeqCst);
    // The waiter may be done before the one who gave the lock back has noted its own end.
    assert!(wait_for(|| done.lock().len() == 2), "{:?}", partitions.stats());
    assert!(wait_for(|| partitions.stats().done == 2));
    let stats = partitions.stats();
    assert_eq!((stats.footprints, stats.visits, stats.messages, stats.releases), (1, 1, 2, 1));
    drop(partitions);
    engine.close().unwrap();
}

/// One of a crowd goes on at a time: a turn looked at all of them, hundreds each time.
#[test]
fn nobody_looks_at_a_whole_crowd_for_each_of_it() {
    const WAITERS: usize = 300;
    let (engine, table) = engine();
    let options = PartitionOptions { window: WAITERS, pin_threads: false, ring_capacity: 64, ..OPTIONS };
    let partitions = Partitions::start(options).unwrap();
    let (holds, may_commit, done) = (Arc::default(), Arc::default(), Arc::default());
    let free = Arc::new(AtomicBool::new(true));
    let change = changes(&engine, &table, &done);
    partitions.submit(Box::new(change(false, &holds, &may_commit)));
    assert!(wait_for(|| holds.load(Ordering::SeqCst)));
    for _ in 0..WAITERS {
        partitions.submit(Box::new(change(true, &Arc::default(), &free)));
    }
    assert!(wait_for(|| partitions.stats().waits == WAITERS as u64));
    let (looks, began) = (&partitions.shared.looks, Instant::now());
    let before = looks.load(Ordering::Relaxed);
    // Longer than their first naps.
    thread::sleep(Duration::from_millis(700));
    may_commit.store(true, Ordering::SeqCst);
    assert!(wait_for(|| done.lock().len() == WAITERS + 1), "{:?}", partitions.stats());
    let looked = looks.load(Ordering::Relaxed) - before;
    // One when it is granted, one when it begins to wait; and those for deadlocks, which get rarer.
    let naps = began.elapsed().as_millis() as usize / 100 + 6;
    assert!(looked <= WAITERS * naps, "{looked} looks");
    assert!(wait_for(|| partitions.stats().done == WAITERS as u64 + 1));
    drop(partitions);
    engine.close().unwrap();
}
