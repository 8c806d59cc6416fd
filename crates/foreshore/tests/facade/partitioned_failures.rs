//! What goes wrong where partitioned execution runs code of its callers: partitioners that panic, and threads that die.

use std::{
    future::Future,
    mem,
    panic::{AssertUnwindSafe, catch_unwind, panic_any},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use foreshore::{
    CommitTicket, Database, Durability, Error, Execution, Options, Plan, Procedure, Result, Submitted,
    TableDefinition, TableLock, TransactOptions, Transaction, WaitError,
};
use foreshore_env::random::Xorshift;
use foreshore_testkit::{CrashMode, FaultyDisk};

const NUMBERS: TableDefinition<u32, u64> = TableDefinition::new("numbers");
/// Keys from here on have no partition.
const NOWHERE: u32 = 1000;
/// How long a test waits for what is to happen, on the slowest machine.
const FAR: Duration = Duration::from_secs(300);

fn options([control_threads, execution_threads, execution_window, ring_capacity]: [usize; 4]) -> Options {
    Options {
        pool_bytes: 2 << 20,
        node_capacity: 4,
        control_threads,
        execution_threads,
        execution_window,
        ring_capacity,
        ..Options::default()
    }
}

fn open(disk: &FaultyDisk, options: Options, partition: fn(u32) -> usize) -> Database {
    Database::builder()
        .options(options)
        .partitioner(move |key| partition(key.first_chunk().map_or(0, |key| u32::from_be_bytes(*key))))
        .disk(Arc::new(disk.clone()))
        .open("/db")
        .unwrap()
}

fn picky(key: u32) -> usize {
    assert!(key < NOWHERE, "{key} lies nowhere");
    key as usize
}

fn bounded() -> TransactOptions {
    TransactOptions { deadline: Some(FAR), ..TransactOptions::default() }
}

/// Nobody holds anything, a little later at least: locks are given back behind the result.
fn assert_at_rest(db: &Database) {
    let mut check = db.begin_with(&bounded()).unwrap();
    check.lock_table(NUMBERS, TableLock::Exclusive).unwrap();
    check.rollback().unwrap();
    assert!(db.verify().unwrap().is_sound());
}

fn contents(db: &Database) -> Vec<(u32, u64)> {
    db.transact(|tx| tx.range(NUMBERS, ..)?.collect()).unwrap()
}

/// Writes where all is well, and then where it is not.
fn strays(tx: &mut Transaction) -> Result<()> {
    tx.put(NUMBERS, 1, 77)?;
    tx.put(NUMBERS, NOWHERE + 5, 77).map(drop)
}

struct Strays {
    left: u32,
    declares: bool,
    ended: Vec<Result<CommitTicket>>,
}

impl Procedure for Strays {
    fn draw<'d>(&mut self, plan: Plan<'d>) -> Option<Plan<'d>> {
        self.left = self.left.checked_sub(1)?;
        Some(if self.declares { plan.write(NUMBERS, 1).write(NUMBERS, NOWHERE + 5) } else { plan })
    }

    fn run(&mut self, tx: &mut Transaction) -> Result<()> {
        if self.left.is_multiple_of(2) { strays(tx) } else { tx.put(NUMBERS, 2, 100).map(drop) }
    }

    fn ended(&mut self, result: Result<CommitTicket>) {
        self.ended.push(result);
    }
}

/// Whoever comes to a key on which the partitioner panics fails, however it runs, with what that said; it has left
/// nothing, and everybody else goes on.
#[test]
fn a_partitioner_that_panics_fails_one_transaction() {
    for shape in [[1, 1, 1, 1], [3, 2, 8, 4]] {
        let disk = FaultyDisk::new();
        let db = open(&disk, options(shape), picky);
        db.transact(|tx| (0..10).try_for_each(|key| tx.put(NUMBERS, key, 100).map(drop))).unwrap();
        let before = contents(&db);
        let planned = TransactOptions { execution: Some(Execution::Planned), ..bounded() };
        let results = [
            db.transact(strays),
            db.transact(|tx| tx.insert(NUMBERS, NOWHERE, 1).map(drop)),
            db.transact_with(&planned, strays),
            db.plan().write(NUMBERS, 1).run(strays),
            db.plan().write(NUMBERS, NOWHERE).run(|_| Ok(())),
            // Beside the plan, under the locks of it.
            db.plan().write(NUMBERS, 1).submit(strays).unwrap().wait(),
            db.plan().write(NUMBERS, 1).write(NUMBERS, NOWHERE).submit(|_| Ok(())).unwrap().wait(),
            db.plan().submit(strays).unwrap().wait(),
        ];
        for (number, result) in results.into_iter().enumerate() {
            match result.unwrap_err() {
                Error::PartitionerPanicked { said } => assert!(said.ends_with("lies nowhere"), "{said}"),
                other => panic!("{number}: {other}"),
            }
            assert_eq!(
                db.plan().read(NUMBERS, 1).submit(|tx| tx.get(NUMBERS, 1)).unwrap().wait().unwrap(),
                Some(100)
            );
        }
        let procedures = [true, false].map(|declares| Strays { left: 6, declares, ended: Vec::new() });
        for procedure in db.serve(&bounded(), procedures).unwrap().wait().unwrap() {
            let failed =
                |result: &&Result<CommitTicket>| matches!(result, Err(Error::PartitionerPanicked { .. }));
            assert_eq!(procedure.ended.len(), 6);
            let expected = if procedure.declares { 6 } else { 3 };
            assert_eq!(procedure.ended.iter().filter(failed).count(), expected);
            assert_eq!(procedure.ended.iter().filter(|result| result.is_ok()).count(), 6 - expected);
        }
        // A transaction may go on without the key.
        let mut tx = db.begin_with(&bounded()).unwrap();
        tx.put(NUMBERS, 3, 5).unwrap();
        assert_eq!(tx.put(NUMBERS, NOWHERE, 5).unwrap_err().code(), "partitioner_panicked");
        tx.commit().unwrap();
        assert_at_rest(&db);
        let expected: Vec<_> =
            before.into_iter().map(|(key, value)| (key, if key == 3 { 5 } else { value })).collect();
        assert_eq!(contents(&db), expected);
        db.close().unwrap();
        drop(db);

        // Opened with another partitioner, which does not know keys that are there.
        let db = open(&disk, options(shape), |key| if key < 5 { key as usize } else { panic!("only a few") });
        assert_eq!(db.transact(|tx| tx.get(NUMBERS, 2)).unwrap(), Some(100));
        let all = db.transact(|tx| tx.range(NUMBERS, ..)?.collect::<Result<Vec<_>>>());
        assert!(matches!(all, Err(Error::PartitionerPanicked { .. })), "{all:?}");
        let gap = db.transact(|tx| tx.delete(NUMBERS, 4));
        assert!(gap.unwrap());
        assert_at_rest(&db);
        db.close().unwrap();
    }
}

/// Moves one from one number to another, beside its plan or in it.
fn transfer(mut random: Xorshift) -> impl FnMut(&mut Transaction) -> Result<()> + Send + 'static {
    random.next_u64();
    move |tx| {
        let mut random = random.clone();
        for change in [u64::MAX, 1] {
            let key = random.below(20) as u32;
            let value = tx.get(NUMBERS, key)?.unwrap_or(0);
            tx.put(NUMBERS, key, value.wrapping_add(change))?;
        }
        // Keys that come and go, in the gaps of others.
        let key = 100 + random.below(30) as u32;
        if random.below(2) == 0 {
            tx.put(NUMBERS, key, 0).map(drop)
        } else {
            tx.delete(NUMBERS, key).map(drop)
        }
    }
}

/// A partitioner that panics now and then, wherever it is asked: each transaction is done or not, and nothing is
/// poisoned.
#[test]
fn a_partitioner_that_panics_now_and_then_harms_nobody_else() {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    static PANICS: AtomicU64 = AtomicU64::new(0);
    let disk = FaultyDisk::new();
    let db = open(&disk, options([2, 2, 8, 2]), |key| {
        let every = PANICS.load(Ordering::Relaxed);
        let asked = ASKED.fetch_add(1, Ordering::Relaxed);
        assert!(every == 0 || !asked.is_multiple_of(every), "now");
        key as usize / 3
    });
    db.transact(|tx| (0..20).try_for_each(|key| tx.put(NUMBERS, key, 100).map(drop))).unwrap();
    let (mut done, mut refused) = (0, 0);
    let mut note = |result: Result<()>| match result {
        Ok(()) => done += 1,
        Err(Error::PartitionerPanicked { said }) => {
            assert_eq!(said, "now");
            refused += 1;
        }
        Err(other) => panic!("{other}"),
    };
    for every in [7, 31, 97] {
        PANICS.store(every, Ordering::Relaxed);
        let lazy = TransactOptions { durability: Some(Durability::Lazy), ..bounded() };
        let submitted: Vec<Submitted<()>> = (0..150)
            .map(|seed| {
                db.plan()
                    .options(lazy.clone())
                    .submit(transfer(Xorshift::new(every * 1000 + seed + 1)))
                    .unwrap()
            })
            .collect();
        for seed in 0..100 {
            note(db.transact_with(&lazy, transfer(Xorshift::new(every * 9000 + seed + 1))));
        }
        submitted.into_iter().for_each(|submitted| note(submitted.wait()));
    }
    PANICS.store(0, Ordering::Relaxed);
    assert!(done > 0 && refused > 0, "{done} {refused}");
    assert_at_rest(&db);
    let sum = contents(&db).iter().fold(0, |sum: u64, (_, value)| sum.wrapping_add(*value));
    assert_eq!(sum, 20 * 100);
    db.close().unwrap();
}

/// Dropped with the body that has captured it, on the thread that ran the body.
struct Fatal;

impl Drop for Fatal {
    fn drop(&mut self) {
        assert!(thread::panicking(), "where a body is dropped");
    }
}

/// Endless.
struct Counts(u32);

impl Procedure for Counts {
    fn draw<'d>(&mut self, plan: Plan<'d>) -> Option<Plan<'d>> {
        Some(plan.write(NUMBERS, self.0))
    }

    fn run(&mut self, tx: &mut Transaction) -> Result<()> {
        let value = tx.get(NUMBERS, self.0)?.unwrap_or(0);
        tx.put(NUMBERS, self.0, value + 1).map(drop)
    }

    fn ended(&mut self, result: Result<CommitTicket>) {
        drop(result.unwrap());
    }
}

/// A thread dies that runs transactions: every handle comes to an end, with the result or with an error that says what
/// is true; whoever does not need these threads goes on; and what was acknowledged, and nothing that was not, is there
/// after a power failure.
#[test]
fn when_an_execution_thread_dies_nothing_hangs_and_nothing_is_lost() {
    const HOT: u32 = 0;
    for (shape, automatic) in [([1, 1, 4, 1], false), ([2, 3, 8, 1], false), ([3, 2, 16, 64], true)] {
        let disk = FaultyDisk::new();
        disk.set_sync_delay(Duration::from_micros(300));
        let set = Options { automatic_threads: automatic, ..options(shape) };
        let open = |disk: &FaultyDisk| open(disk, set.clone(), |key| key as usize);
        let db = open(&disk);
        let submit = |key: u32| {
            let body = move |tx: &mut Transaction| {
                let value = tx.get(NUMBERS, HOT)?.unwrap_or(0);
                tx.put(NUMBERS, HOT, value + 1)?;
                tx.put(NUMBERS, key, 1).map(drop)
            };
            db.plan().write(NUMBERS, HOT).write(NUMBERS, key).options(bounded()).submit(body).unwrap()
        };
        let first: Vec<_> = (1..=5).map(|key| (key, submit(key))).collect();
        let mut acknowledged: Vec<u32> = Vec::new();
        for (key, submitted) in first {
            submitted.wait().unwrap();
            acknowledged.push(key);
        }
        let serving = db.serve(&TransactOptions::default(), (500..503).map(Counts)).unwrap();
        let mut submitted: Vec<_> = (6..40).map(|key| (key, submit(key))).collect();
        let fatal = Fatal;
        let told = db.plan().write(NUMBERS, 40).submit(move |tx| {
            let _captured = &fatal;
            tx.put(NUMBERS, 40, 1).map(drop)
        });
        submitted.push((40, told.unwrap()));
        submitted.extend((41..80).map(|key| (key, submit(key))));
        let mut lost = Vec::new();
        for (key, submitted) in submitted {
            match submitted.wait_until(Instant::now() + FAR) {
                Ok(()) => acknowledged.push(key),
                Err(WaitError::Failed(Error::ThreadDied { .. })) => lost.push(key),
                Err(other) => panic!("{key}: {other:?}"),
            }
        }
        assert!(acknowledged.contains(&40), "it was told before the thread died");
        assert!(serving.wait_until(Instant::now() + FAR));
        let served = serving.wait().map(drop).unwrap_err();
        let late = submit(90).wait().unwrap_err();
        for error in [served, late] {
            assert_eq!(error.code(), "thread_died");
            let text = error.to_string();
            assert!(text.contains("though others do") && text.contains("open it again"), "{text}");
        }
        // Locks went back, and who needs no such thread goes on.
        assert_at_rest(&db);
        db.transact(|tx| tx.put(NUMBERS, 91, 1).map(drop)).unwrap();
        db.plan().write(NUMBERS, 92).run(|tx| tx.put(NUMBERS, 92, 1).map(drop)).unwrap();
        acknowledged.extend([91, 92]);
        disk.crash();
        drop(db);

        let disk = disk.after_crash(CrashMode::DropUnsynced);
        let db = open(&disk);
        let mut found: Vec<u32> =
            contents(&db).into_iter().map(|(key, _)| key).filter(|key| (1..500).contains(key)).collect();
        acknowledged.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, acknowledged, "{shape:?}, lost: {lost:?}");
        let hot = acknowledged.iter().filter(|key| **key < 90 && **key != 40).count() as u64;
        assert_eq!(db.transact(|tx| tx.get(NUMBERS, HOT)).unwrap(), Some(hot));
        db.plan().write(NUMBERS, 93).submit(|tx| tx.put(NUMBERS, 93, 1)).unwrap().wait().unwrap();
        db.close().unwrap();
    }
}

/// Whoever awaits a result in a runtime that panics when it is woken harms nobody else.
#[test]
fn a_waker_that_panics_harms_nobody_else() {
    struct Broken(AtomicU64);

    impl Wake for Broken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("where somebody is woken");
        }
    }

    let db = open(&FaultyDisk::new(), options([1, 1, 4, 4]), |_| 0);
    let mut holder = db.begin().unwrap();
    holder.put(NUMBERS, 1, 1).unwrap();
    let mut submitted = db.plan().write(NUMBERS, 1).submit(|tx| tx.put(NUMBERS, 1, 2)).unwrap();
    let broken = Arc::new(Broken(AtomicU64::new(0)));
    let waker = Waker::from(Arc::clone(&broken));
    assert!(Pin::new(&mut submitted).poll(&mut Context::from_waker(&waker)).is_pending());
    holder.rollback().unwrap();
    for key in 2..20 {
        db.plan().write(NUMBERS, key).submit(move |tx| tx.put(NUMBERS, key, 1)).unwrap().wait().unwrap();
    }
    assert!(!submitted.wait().unwrap());
    assert_eq!(broken.0.load(Ordering::SeqCst), 1);
    assert_at_rest(&db);
    db.close().unwrap();
}

/// Nor does one whose panic carries what panics where it is dropped; nor do those of a body, in its first run and under
/// locks, and of procedures.
#[test]
fn what_a_panic_carries_harms_nobody_else() {
    struct Carried;

    impl Drop for Carried {
        fn drop(&mut self) {
            panic!("where a panic's payload is dropped");
        }
    }

    struct Broken;

    impl Wake for Broken {
        fn wake(self: Arc<Self>) {
            panic_any(Carried);
        }
    }

    #[derive(Debug)]
    struct Breaks;

    impl Procedure for Breaks {
        fn draw<'d>(&mut self, plan: Plan<'d>) -> Option<Plan<'d>> {
            Some(plan.write(NUMBERS, 1))
        }

        fn run(&mut self, _: &mut Transaction) -> Result<()> {
            panic_any(Carried);
        }

        fn ended(&mut self, _: Result<CommitTicket>) {}
    }

    let db = open(&FaultyDisk::new(), options([1, 1, 4, 4]), |_| 0);
    let mut holder = db.begin().unwrap();
    holder.put(NUMBERS, 1, 1).unwrap();
    let mut submitted = db.plan().write(NUMBERS, 1).submit(|tx| tx.put(NUMBERS, 1, 2)).unwrap();
    let waker = Waker::from(Arc::new(Broken));
    assert!(Pin::new(&mut submitted).poll(&mut Context::from_waker(&waker)).is_pending());
    // Nobody keeps its handle.
    drop(db.plan().write(NUMBERS, 1).submit(|_| -> Result<()> { panic_any(Carried) }).unwrap());
    let mut runs = 0;
    let first = db.plan().submit(move |tx| {
        runs += 1;
        if runs == 1 {
            panic_any(Carried);
        }
        tx.put(NUMBERS, 2, 2)
    });
    let serving = db.serve(&bounded(), [Breaks, Breaks]).unwrap();
    holder.rollback().unwrap();
    assert!(!first.unwrap().wait().unwrap() && !submitted.wait().unwrap());
    assert!(serving.wait_until(Instant::now() + FAR));
    mem::forget(catch_unwind(AssertUnwindSafe(|| serving.wait())).unwrap_err());
    drop(db.serve(&bounded(), [Breaks]).unwrap());
    while db.stats().partitioned_in_flight + db.stats().partitioned_queued > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    db.plan().write(NUMBERS, 3).submit(|tx| tx.put(NUMBERS, 3, 1)).unwrap().wait().unwrap();
    assert_at_rest(&db);
    db.close().unwrap();
}

/// Who has waited for a table in vain is told whether its waits or it itself had no more time.
#[test]
fn a_wait_for_a_table_says_which_limit_ended_it() {
    const SOON: Duration = Duration::from_millis(20);
    let db = open(&FaultyDisk::new(), options([1, 1, 4, 4]), |_| 0);
    let mut holder = db.begin().unwrap();
    holder.lock_table(NUMBERS, TableLock::Exclusive).unwrap();
    let lock_timeout = |options: TransactOptions| {
        let plan = db.plan().write(NUMBERS, 1).options(options);
        match plan.submit(|tx| tx.put(NUMBERS, 1, 2)).unwrap().wait().unwrap_err() {
            Error::LockTimeout(lock) => lock.lock_timeout,
            other => panic!("{other}"),
        }
    };
    let of_waits = TransactOptions { lock_timeout: Some(SOON), ..TransactOptions::default() };
    assert_eq!(lock_timeout(of_waits), Some(SOON));
    let of_it =
        TransactOptions { lock_timeout: Some(FAR), deadline: Some(SOON), ..TransactOptions::default() };
    assert_eq!(lock_timeout(of_it), None);
}

/// An execution thread waited for locks to make a table, behind a check of the database, which waited for a transaction
/// whose locks were away: for this thread, to which its answer had come. No detector saw that cycle. Now a table is
/// made at once, or a little later, whether the first run of a body finds it missing or the second.
#[test]
fn a_table_that_cannot_be_made_yet_holds_up_nobody() {
    const NEW: TableDefinition<u32, u64> = TableDefinition::new("new");
    for declared in [false, true] {
        let db = open(&FaultyDisk::new(), options([1, 1, 4, 4]), |_| 0);
        db.transact(|tx| tx.put(NUMBERS, 1, 1)).unwrap();
        let mut holder = db.begin().unwrap();
        holder.put(NUMBERS, 1, 2).unwrap();
        let away = db.plan().write(NUMBERS, 1).submit(|tx| tx.put(NUMBERS, 1, 3)).unwrap();
        while db.stats().partitioned_waits == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let check = thread::spawn({
            let db = db.clone();
            move || db.verify()
        });
        let no_wait = TransactOptions { no_wait: true, ..TransactOptions::default() };
        while db.begin_with(&no_wait).unwrap().put(NUMBERS, 2, 2).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
        let plan = if declared { db.plan().read(NUMBERS, 5) } else { db.plan() };
        // What it makes of the error is nobody's business.
        let makes = plan.submit(|tx| Ok(tx.put(NEW, 1, 1).is_ok())).unwrap();
        let refused = TransactOptions { lock_timeout: Some(Duration::from_millis(20)), ..bounded() };
        let refused = db.plan().options(refused).submit(|tx| tx.put(NEW, 1, 1)).unwrap();
        assert!(matches!(refused.wait(), Err(Error::LockTimeout(_))));
        assert!(!away.has_run());
        // Whose plan has brought it into the database already passes the check, and makes the table at once.
        let waiting = match declared {
            true => {
                assert!(makes.wait().unwrap());
                None
            }
            false => {
                assert!(!makes.has_run());
                Some(makes)
            }
        };
        holder.commit().unwrap();
        assert!(away.wait().unwrap());
        assert!(check.join().unwrap().unwrap().is_sound());
        assert!(waiting.is_none_or(|makes| makes.wait().unwrap()));
        assert_eq!(db.transact(|tx| tx.get(NEW, 1)).unwrap(), Some(1));
        assert_at_rest(&db);
    }
}

/// A result is given once. Who asks again is told so, not that something has died.
#[test]
#[should_panic(expected = "once more")]
fn a_result_is_given_once() {
    let db = open(&FaultyDisk::new(), options([1, 1, 4, 4]), |_| 0);
    let mut submitted = db.plan().write(NUMBERS, 1).submit(|tx| tx.put(NUMBERS, 1, 2)).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let result = loop {
        if let Poll::Ready(result) = Pin::new(&mut submitted).poll(&mut context) {
            break result;
        }
        thread::sleep(Duration::from_millis(1));
    };
    assert!(!result.unwrap());
    drop(submitted.wait());
}
