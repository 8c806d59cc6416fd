//! What submitted transactions wait for beside locks: room in the window, in the queue, and among those that may be
//! open; and what they must not wait for, or not without end.

use std::{
    fmt::Debug,
    future::Future,
    mem,
    pin::Pin,
    sync::{Arc, mpsc},
    task::{Context, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use foreshore::{
    CommitTicket, Database, DeadlockPolicy, Durability, Error, Options, Plan, Procedure, Result, Submitted,
    TableDefinition, TableLock, TransactOptions, Transaction, WaitError, limits::MAX_TRANSACTIONS,
};
use foreshore_testkit::FaultyDisk;

const NUMBERS: TableDefinition<u32, u64> = TableDefinition::new("numbers");
const OTHERS: TableDefinition<u32, u64> = TableDefinition::new("others");
const WHOLE: TableDefinition<u32, u64> = TableDefinition::new("whole");

/// How long a test waits for what is to happen, on the slowest machine.
const FAR: Duration = Duration::from_secs(120);

fn open(options: Options) -> Database {
    let db = Database::builder().options(options).disk(Arc::new(FaultyDisk::new())).open("/db").unwrap();
    db.transact(|tx| {
        tx.put(NUMBERS, 0, 0)?;
        tx.put(OTHERS, 0, 0)?;
        tx.put(WHOLE, 0, 0)
    })
    .unwrap();
    db
}

fn threads(execution_threads: usize, execution_window: usize) -> Options {
    Options {
        pool_bytes: 4 << 20,
        execution_threads,
        execution_window,
        durability: Durability::Lazy,
        ..Options::default()
    }
}

fn within(deadline: Duration) -> TransactOptions {
    TransactOptions { deadline: Some(deadline), ..TransactOptions::default() }
}

/// Holds number 0.
fn holder(db: &Database) -> Transaction {
    let mut holder = db.begin().unwrap();
    holder.put(NUMBERS, 0, 1).unwrap();
    holder
}

fn count_up(db: &Database) -> Submitted<()> {
    let submitted = db.plan().write(NUMBERS, 0).submit(|tx| {
        let n = tx.get(NUMBERS, 0)?.unwrap_or(0) + 1;
        tx.put(NUMBERS, 0, n).map(drop)
    });
    submitted.unwrap()
}

/// More were begun than can be open, and who found no place failed.
#[test]
fn windows_that_are_wider_than_there_are_places_fail_nobody() {
    for (threads_that_run, window) in [(1, 2000), (80, 16)] {
        let db = open(threads(threads_that_run, window));
        // Each waits for a key of its own: of hundreds in one queue, each would look at all.
        db.transact(|tx| (0..1200).try_for_each(|key| tx.put(NUMBERS, key, 0).map(drop))).unwrap();
        let mut held = db.begin().unwrap();
        (0..1200).for_each(|key| assert!(held.put(NUMBERS, key, 7).unwrap()));
        let submit = |key| db.plan().write(NUMBERS, key).submit(move |tx| tx.put(NUMBERS, key, 1).map(drop));
        let submitted: Vec<_> = (0..1200).map(|key| submit(key).unwrap()).collect();
        let begun = Instant::now();
        while db.stats().partitioned_in_flight < 700 && begun.elapsed() < FAR {
            thread::sleep(Duration::from_millis(1));
        }
        // There is room for others.
        let others: Vec<_> = (0..200).map(|_| db.begin().unwrap()).collect();
        drop(others);
        held.rollback().unwrap();
        submitted.into_iter().for_each(|one| one.wait().unwrap());
        let ones = db.transact(|tx| tx.range(NUMBERS, ..)?.collect::<Result<Vec<_>>>()).unwrap();
        assert!(ones.len() == 1200 && ones.into_iter().all(|(_, number)| number == 1));
    }
}

/// The places are taken by others: whoever waits gets one when it is free, and who does not, or no longer, is told.
#[test]
fn who_finds_no_place_waits_for_one() {
    let db = open(threads(2, 16));
    // The threads are there.
    count_up(&db).wait().unwrap();
    // Its place comes back a little behind its result.
    let mut others = Vec::new();
    while others.len() < MAX_TRANSACTIONS {
        others.extend(db.begin());
    }
    let waiting = count_up(&db);
    let submit = |options| db.plan().options(options).write(NUMBERS, 1).submit(|tx| tx.put(NUMBERS, 1, 1));
    let no_wait = TransactOptions { no_wait: true, ..TransactOptions::default() };
    for options in [no_wait, within(Duration::from_millis(20))] {
        let error = submit(options).unwrap().wait().unwrap_err();
        assert!(matches!(error, Error::TooManyTransactions { .. }), "{error}");
    }
    assert!(!waiting.has_run());
    others.pop();
    waiting.wait().unwrap();
}

/// Nobody looked at the deadlines of those that wait to be begun.
#[test]
fn a_deadline_counts_while_it_waits_to_be_begun() {
    for window in [1, 3] {
        let db = open(threads(1, window));
        let held = holder(&db);
        let begun: Vec<_> = (0..window).map(|_| count_up(&db)).collect();
        while db.stats().partitioned_waits < window as u64 {
            thread::sleep(Duration::from_millis(1));
        }
        let submit =
            |options| db.plan().options(options).write(NUMBERS, 1).submit(|tx| tx.put(NUMBERS, 1, 5));
        let patient = submit(within(FAR)).unwrap();
        let since = Instant::now();
        let longer = submit(within(Duration::from_millis(200))).unwrap();
        let ended = submit(within(Duration::from_millis(50))).unwrap().wait_until(since + FAR);
        match ended {
            Err(WaitError::Failed(Error::LockTimeout(refused))) => {
                assert!(refused.wait.is_none() && refused.lock_timeout.is_none());
            }
            ended => panic!("{ended:?}"),
        }
        assert!(since.elapsed() >= Duration::from_millis(50));
        assert!(matches!(longer.wait(), Err(Error::LockTimeout(_))));
        assert!(since.elapsed() >= Duration::from_millis(200));
        assert!(!patient.has_run());
        assert_eq!(db.stats().partitioned_queued, 1);
        held.rollback().unwrap();
        patient.wait().unwrap();
        begun.into_iter().for_each(|one| one.wait().unwrap());
    }
}

/// As many wait as may; the next one is told at once, and its body is gone.
#[test]
fn the_queue_has_a_limit() {
    let db = open(Options { submit_queue: 3, ..threads(2, 1) });
    let held = holder(&db);
    let mut begun: Vec<_> = (0..2).map(|_| count_up(&db)).collect();
    while db.stats().partitioned_waits < 2 {
        thread::sleep(Duration::from_millis(1));
    }
    begun.extend((0..3).map(|_| count_up(&db)));
    let body = Arc::new(());
    let kept = Arc::clone(&body);
    let refused = db.plan().write(NUMBERS, 1).submit(move |_| Ok(Arc::strong_count(&kept))).unwrap_err();
    assert!(matches!(refused, Error::SubmitQueueFull { limit: 3 }), "{refused}");
    assert_eq!((refused.code(), Arc::strong_count(&body)), ("submit_queue_full", 1));
    assert!(!refused.is_retryable() && refused.to_string().contains("submit_queue"));
    held.rollback().unwrap();
    begun.into_iter().for_each(|one| one.wait().unwrap());
    count_up(&db).wait().unwrap();
    assert_eq!(db.transact(|tx| tx.get(NUMBERS, 0)).unwrap(), Some(6));
}

/// Its last run was undone, and its locks were on their way back: it met them, and was refused.
#[test]
fn who_does_not_wait_is_not_refused_for_its_own_former_run() {
    let no_wait = TransactOptions { no_wait: true, ..TransactOptions::default() };
    let at_once = TransactOptions { lock_timeout: Some(Duration::ZERO), ..TransactOptions::default() };
    for (options, policy) in [
        (no_wait, DeadlockPolicy::default()),
        (at_once, DeadlockPolicy::default()),
        (TransactOptions { retries: 0, ..TransactOptions::default() }, DeadlockPolicy::NoWait),
        (TransactOptions { retries: 0, ..TransactOptions::default() }, DeadlockPolicy::WaitDie),
    ] {
        for round in 0..5 {
            let db = open(Options { deadlock_policy: policy, ..threads(2, 16) });
            let mut held = db.begin().unwrap();
            held.put(OTHERS, 0, 1).unwrap();
            let mut held: Option<Transaction> = Some(held);
            let plan = db.plan().options(options.clone()).write(NUMBERS, 0);
            let body = move |tx: &mut Transaction| {
                let result = tx.put(OTHERS, 0, 7);
                // From now on nothing is locked but by this transaction.
                drop(held.take());
                result
            };
            let submitted = plan.lock_table(WHOLE, TableLock::Exclusive).submit(body).unwrap();
            let result = submitted.wait();
            assert!(matches!(result, Ok(true)), "{policy:?}, round {round}: {result:?}");
        }
    }
}

/// It looked again a thousand times a second, without end: prepared transactions may have all places until somebody
/// decides.
#[test]
fn who_finds_no_place_does_not_wait_for_one_for_ever() {
    let db = open(threads(1, 16));
    count_up(&db).wait().unwrap();
    let mut others = Vec::new();
    while others.len() < MAX_TRANSACTIONS {
        others.extend(db.begin());
    }
    let since = Instant::now();
    let result = count_up(&db).wait_until(since + FAR);
    assert!(matches!(result, Err(WaitError::Failed(Error::TooManyTransactions { .. }))), "{result:?}");
    assert!(since.elapsed() >= Duration::from_secs(10));
}

/// Served once; how that ended.
#[derive(Default)]
struct Once(bool, Option<Result<CommitTicket>>);

impl Procedure for Once {
    fn draw<'d>(&mut self, plan: Plan<'d>) -> Option<Plan<'d>> {
        (!mem::replace(&mut self.0, true)).then(|| plan.write(NUMBERS, 0))
    }

    fn run(&mut self, tx: &mut Transaction) -> Result<()> {
        tx.put(NUMBERS, 0, 3).map(drop)
    }

    fn ended(&mut self, result: Result<CommitTicket>) {
        self.1 = Some(result);
    }
}

/// It waited for the body in which it was submitted or served, which nobody sees, for 10 s.
fn assert_waited_for_the_body<R: Debug>(result: Result<R>, waits_to_begin: bool) {
    match result {
        Err(Error::LockTimeout(refused)) => {
            assert_eq!(refused.lock_timeout, Some(Duration::from_secs(10)));
            assert_eq!(refused.wait.is_none(), waits_to_begin);
            // To raise it makes it worse.
            assert!(refused.within_body);
            let said = Error::LockTimeout(refused).to_string();
            assert!(!said.contains("raise") && said.contains("not within its body"), "{said}");
        }
        result => panic!("{result:?}"),
    }
}

/// DB-11: what a body submits and waits for waits for the body, which nobody sees.
#[test]
fn a_body_does_not_wait_for_ever_for_what_it_has_submitted() {
    let db = open(threads(1, 1));
    let since = Instant::now();
    let result = db.transact(|tx| {
        tx.put(NUMBERS, 0, 1)?;
        db.plan().write(NUMBERS, 0).submit(|tx| tx.put(NUMBERS, 0, 2))?.wait()
    });
    assert_waited_for_the_body(result, false);
    assert!(since.elapsed() >= Duration::from_secs(10));
}

/// DB-11, where it waits to be begun. What was served waited without end for that, and whatever was where somebody had
/// said how long waits for locks may last: which is another matter, and ends no wait for a turn.
#[test]
fn a_body_does_not_wait_for_ever_for_what_is_not_begun() {
    let db = open(threads(1, 1));
    db.transact(|tx| {
        tx.put(NUMBERS, 0, 1)?;
        // From without: it takes the only place.
        let without = thread::scope(|scope| scope.spawn(|| count_up(&db)).join().unwrap());
        while db.stats().partitioned_in_flight == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let since = Instant::now();
        let submitted = [None, Some(Duration::ZERO), Some(Duration::MAX)].map(|lock_timeout| {
            let options = TransactOptions { lock_timeout, ..TransactOptions::default() };
            db.plan().options(options).write(NUMBERS, 1).submit(|tx| tx.put(NUMBERS, 1, 2)).unwrap()
        });
        let serving = db.serve(&TransactOptions::default(), [Once::default()])?;
        for one in submitted {
            match one.wait_until(since + FAR) {
                Err(WaitError::Failed(error)) => assert_waited_for_the_body::<()>(Err(error), true),
                result => panic!("{result:?}"),
            }
            assert!(since.elapsed() >= Duration::from_secs(10));
        }
        assert!(serving.wait_until(since + FAR));
        assert_waited_for_the_body(serving.wait()?.remove(0).1.unwrap(), true);
        assert!(!without.has_run());
        Ok(())
    })
    .unwrap();
}

/// DB-11: a body that waited for another transaction, submitted or served, waited for its own thread where that was the
/// last one, and both waited for ever: such threads look at the limits of the other one, too. As did the bodies of two
/// databases that waited for each other's.
#[test]
fn a_thread_of_these_does_not_wait_for_what_these_run() {
    let (db, other) = (open(threads(1, 16)), open(threads(1, 16)));
    let ended = count_up(&db);
    while !ended.has_run() {
        thread::sleep(Duration::from_millis(1));
    }
    let (tell, told) = mpsc::channel();
    let body = {
        let db = db.clone();
        let mut ended = Some(ended);
        move |_: &mut Transaction| {
            // What is there is not waited for.
            ended.take().unwrap().wait()?;
            let one = |db: &Database| db.plan().write(NUMBERS, 1).submit(|tx| tx.put(NUMBERS, 1, 2));
            let served = db.serve(&TransactOptions::default(), [Once::default()])?;
            let refused =
                [one(&db)?.wait().map(drop), one(&other)?.wait().map(drop), served.wait().map(drop)];
            let Err(WaitError::TimedOut(later)) = one(&db)?.wait_until(Instant::now()) else { panic!("ran") };
            tell.send((refused, later)).unwrap();
            Ok(())
        }
    };
    let submitted = db.plan().write(NUMBERS, 2).submit(body).unwrap();
    let (refused, later) = told.recv_timeout(FAR).expect("it waits for ever");
    for error in refused.map(Result::unwrap_err) {
        assert!(matches!(error, Error::WaitInBody) && error.code() == "wait_in_body", "{error}");
        assert!(error.to_string().contains("wait after it"), "{error}");
    }
    submitted.wait().unwrap();
    // What was submitted goes on: the first of the two has written.
    assert!(later.wait().unwrap());
}

/// Writes number 2 where it is woken, or dropped; tells what came of it.
struct Writes(Database, mpsc::Sender<Result<bool>>);

impl Writes {
    fn write(&self) {
        self.1.send(self.0.transact(|tx| tx.put(NUMBERS, 2, 2))).unwrap();
    }
}

impl Wake for Writes {
    fn wake(self: Arc<Self>) {
        self.write();
    }
}

struct WritesAtLast(Writes);

impl Drop for WritesAtLast {
    fn drop(&mut self) {
        self.0.write();
    }
}

/// DB-11: a task that was polled where it was woken, on the thread of a submitted transaction, and what dropped there
/// that a body had captured, or returned to nobody, waited for ever for a lock of one that was to run on this thread
/// next.
#[test]
fn what_a_thread_wakes_or_drops_does_not_wait_for_it_for_ever() {
    #[derive(Clone, Copy, PartialEq)]
    enum Writer {
        Woken,
        Captured,
        Returned,
    }
    let meets = |writer: Writer| {
        let db = open(threads(1, 16));
        let hold = |key| {
            let mut holder = db.begin().unwrap();
            holder.put(NUMBERS, key, 1).unwrap();
            holder
        };
        let (first, second) = (hold(1), hold(2));
        let (tell, told) = mpsc::channel();
        let (go, gone) = mpsc::channel();
        let at_last = |is: Writer| (writer == is).then(|| WritesAtLast(Writes(db.clone(), tell.clone())));
        let (captured, mut returned) = (at_last(Writer::Captured), at_last(Writer::Returned));
        let ends = db.plan().write(NUMBERS, 1).submit(move |tx| {
            let _captured = &captured;
            gone.recv().unwrap();
            tx.put(NUMBERS, 1, 1)?;
            Ok(returned.take())
        });
        let mut ends = Some(ends.unwrap());
        let next = db.plan().write(NUMBERS, 2).submit(|tx| tx.put(NUMBERS, 2, 1)).unwrap();
        while db.stats().partitioned_waits < 2 {
            thread::sleep(Duration::from_millis(1));
        }
        match writer {
            Writer::Woken => {
                let waker = Waker::from(Arc::new(Writes(db.clone(), tell)));
                let ends = Pin::new(ends.as_mut().unwrap());
                assert!(ends.poll(&mut Context::from_waker(&waker)).is_pending());
            }
            Writer::Captured => {}
            Writer::Returned => drop(ends.take()),
        }
        first.rollback().unwrap();
        // The lock of the next one is on its way to the thread, which is in the body of the first.
        second.rollback().unwrap();
        go.send(()).unwrap();
        match told.recv_timeout(FAR).expect("it waits for ever") {
            Err(Error::LockTimeout(refused)) => assert!(refused.within_body && refused.wait.is_some()),
            result => panic!("{result:?}"),
        }
        assert!(ends.is_none_or(|ends| ends.wait().unwrap().is_none()) && !next.wait().unwrap());
    };
    thread::scope(|scope| {
        scope.spawn(|| meets(Writer::Woken));
        scope.spawn(|| meets(Writer::Captured));
        meets(Writer::Returned);
    });
}

/// What waits in the queue could only be waited for, until it was begun or its deadline had passed.
#[test]
fn what_nobody_has_begun_can_be_cancelled() {
    for deadline in [None, Some(FAR)] {
        let options = Options { submit_queue: 3, control_threads: 1, ..threads(1, 1) };
        let db = open(options);
        let held = holder(&db);
        let first = count_up(&db);
        let begun = Instant::now();
        while db.stats().partitioned_in_flight == 0 && begun.elapsed() < FAR {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!first.cancel(), "it has been begun");
        let captured = Arc::new(());
        let submit = || {
            let captured = Arc::clone(&captured);
            let plan = db.plan().options(TransactOptions { deadline, ..TransactOptions::default() });
            plan.write(NUMBERS, 1).submit(move |tx| {
                let _captured = &captured;
                tx.put(NUMBERS, 1, 1).map(drop)
            })
        };
        let mut queued: Vec<_> = (0..3).map(|_| submit().unwrap()).collect();
        assert!(matches!(submit(), Err(Error::SubmitQueueFull { limit: 3 })));
        let last = queued.pop().unwrap();
        assert!(queued.iter().all(|submitted| submitted.cancel() && !submitted.cancel()));
        assert!(queued.into_iter().all(|submitted| matches!(submitted.wait(), Err(Error::Cancelled))));
        assert_eq!((Arc::strong_count(&captured), db.stats().partitioned_queued), (2, 1));
        let next = submit().unwrap();
        drop(held);
        first.wait().unwrap();
        last.wait().unwrap();
        while !next.has_run() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!next.cancel());
        next.wait().unwrap();
        db.close().unwrap();
    }
}

/// What the threads have committed keeps its place until its locks are back, and who began a transaction by itself was
/// refused meanwhile.
#[test]
fn who_begins_beside_submitted_transactions_waits_a_little_for_a_place() {
    let db = open(threads(1, 1));
    let mut open: Vec<_> = (0..MAX_TRANSACTIONS).map(|_| db.begin().unwrap()).collect();
    assert!(matches!(db.begin(), Err(Error::TooManyTransactions { .. })));
    open.truncate(MAX_TRANSACTIONS - 2);
    count_up(&db).wait().unwrap();
    // On a slow machine it may take more than one wait.
    let begun = Instant::now();
    while open.len() < MAX_TRANSACTIONS {
        open.extend(db.begin());
        assert!(begun.elapsed() < FAR, "a place does not come back");
    }
    let no_wait = TransactOptions { no_wait: true, ..TransactOptions::default() };
    assert!(matches!(db.begin_with(&no_wait), Err(Error::TooManyTransactions { .. })));
    let begun = Instant::now();
    assert!(matches!(db.begin(), Err(Error::TooManyTransactions { .. })));
    assert!(begun.elapsed() >= Duration::from_millis(100));
    // So it may here.
    thread::scope(|scope| {
        let found = scope.spawn(|| (0..100).any(|_| db.begin().is_ok()));
        thread::sleep(Duration::from_millis(30));
        open.pop();
        assert!(found.join().unwrap());
    });
}
