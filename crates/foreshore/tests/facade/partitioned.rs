//! Transactions that the threads of partitioned execution run.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use foreshore::{
    Database, Durability, Error, Options, PartitionRole, Result, Submitted, TableDefinition, TableLock,
    TransactOptions, Transaction, WaitError,
};
use foreshore_env::random::Xorshift;
use foreshore_testkit::{CrashMode, FaultyDisk};

use crate::roles::wait_for;

const NUMBERS: TableDefinition<u32, u64> = TableDefinition::new("numbers");

/// How long a test waits for what is to happen, on the slowest machine.
const FAR: Duration = Duration::from_secs(120);

/// Rings and threads: control, execution, window, capacity.
type Shape = [usize; 4];

/// With rings of capacity 1 and small windows among them, so that rings are full.
const SHAPES: [Shape; 4] = [[1, 1, 1, 1], [2, 3, 8, 1], [3, 2, 16, 1], [4, 2, 32, 64]];

fn open_on(
    disk: FaultyDisk,
    [control, execution, window, capacity]: Shape,
    set: &[(&str, &str)],
) -> Database {
    let mut options = Options {
        pool_bytes: 2 << 20,
        node_capacity: 4,
        control_threads: control,
        execution_threads: execution,
        execution_window: window,
        ring_capacity: capacity,
        ..Options::default()
    };
    set.iter().for_each(|(name, value)| options.set(name, value).unwrap());
    Database::builder().options(options).disk(Arc::new(disk)).open("/db").unwrap()
}

/// With the numbers 0 to `count` - 1 in the table.
fn filled(shape: Shape, set: &[(&str, &str)], count: u32) -> Database {
    let db = open_on(FaultyDisk::new(), shape, set);
    db.transact(|tx| (0..count).try_for_each(|key| tx.put(NUMBERS, key, 100).map(drop))).unwrap();
    db
}

fn contents(db: &Database) -> Vec<(u32, u64)> {
    db.transact(|tx| tx.range(NUMBERS, ..)?.collect()).unwrap()
}

fn lazy() -> TransactOptions {
    TransactOptions { durability: Some(Durability::Lazy), ..TransactOptions::default() }
}

/// Nobody holds anything, a little later at least: locks are given back behind the result.
fn assert_at_rest(db: &Database) {
    let options = TransactOptions { deadline: Some(FAR), ..TransactOptions::default() };
    let mut check = db.begin_with(&options).unwrap();
    check.lock_table(NUMBERS, TableLock::Exclusive).unwrap();
    check.rollback().unwrap();
    assert!(db.verify().unwrap().is_sound());
}

#[test]
fn declared_and_foreseen_transactions_run_and_are_durable() {
    for shape in SHAPES {
        let db = filled(shape, &[], 4);
        let declared = db
            .plan()
            .write(NUMBERS, 1)
            .submit(|tx| {
                let value = tx.get(NUMBERS, 1)?.unwrap();
                tx.put(NUMBERS, 1, value + 1)?;
                Ok(value)
            })
            .unwrap();
        assert_eq!(declared.wait().unwrap(), 100);
        let mut runs = 0;
        let foreseen = db.plan().submit(move |tx| {
            runs += 1;
            let sum =
                tx.range(NUMBERS, 1..)?.map(|entry| entry.map(|(_, value)| value)).sum::<Result<u64>>()?;
            tx.put(NUMBERS, 9, sum)?;
            Ok(runs)
        });
        assert_eq!(foreseen.unwrap().wait().unwrap(), 2, "once for the footprint, once in earnest");
        assert_eq!(contents(&db), [(0, 100), (1, 101), (2, 100), (3, 100), (9, 301)]);
        // A reader of nothing needs no locks on keys.
        assert_eq!(db.plan().submit(|_| Ok(7)).unwrap().wait().unwrap(), 7);
        assert_at_rest(&db);
        db.close().unwrap();
    }
}

/// ORTHRUS-1: one message more than partitions to lock, one for each to unlock.
#[test]
fn footprints_take_one_message_more_than_they_have_partitions() {
    for control in [1, 2, 5] {
        let db = filled([control, 1, 4, 4], &[], 64);
        assert!(db.stats().entries().all(|(name, count)| !name.starts_with("partitioned_") || count == 0));
        // Of 64 names, all partitions have some.
        let plan = (0..64).fold(db.plan(), |plan, key| plan.read(NUMBERS, key));
        plan.submit(|tx| tx.get(NUMBERS, 5)).unwrap().wait().unwrap();
        assert_at_rest(&db);
        let deadline = Instant::now() + FAR;
        while db.stats().partitioned_releases < control as u64 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        let stats = db.stats();
        assert_eq!(
            (stats.partitioned_messages, stats.partitioned_releases),
            (control as u64 + 1, control as u64)
        );
        assert_eq!((stats.partitioned_footprints, stats.partitioned_visits), (1, control as u64));
        assert_eq!((stats.partitioned_done, stats.partitioned_waits, stats.partitioned_later), (1, 0, 0));
        assert_eq!((stats.partitioned_in_flight, stats.partitioned_queued), (0, 0));
        let all: BTreeMap<_, _> = stats.entries().collect();
        assert_eq!(all["partitioned_messages"], stats.partitioned_messages);
        // One key: one partition.
        db.plan().read(NUMBERS, 5).submit(|tx| tx.get(NUMBERS, 5)).unwrap().wait().unwrap();
        assert_eq!(db.stats().partitioned_messages, control as u64 + 1 + 2);
    }
}

/// Moves one from one number to another.
fn transfer(random: &Xorshift, keys: u64) -> impl FnMut(&mut Transaction) -> Result<()> + Send + 'static {
    let random = random.clone();
    move |tx| {
        let mut random = random.clone();
        for change in [u64::MAX, 1] {
            let key = random.below(keys) as u32;
            let value = tx.get(NUMBERS, key)?.unwrap_or(0);
            thread::yield_now();
            tx.put(NUMBERS, key, value.wrapping_add(change))?;
        }
        Ok(())
    }
}

/// No cycle closes, of locks or of full rings; over every lock table, and with early lock release and without.
#[test]
fn many_transactions_on_few_records_all_end() {
    const KEYS: u64 = 5;
    let sets: [&[(&str, &str)]; 4] = [
        &[("lock_table", "latched")],
        &[("lock_table", "staged"), ("deadlock_policy", "wait_for_graph")],
        &[("lock_table", "global_mutex"), ("early_lock_release", "shared")],
        &[("early_lock_release", "off")],
    ];
    for (shape, set) in SHAPES.into_iter().zip(sets) {
        let db = filled(shape, set, KEYS as u32);
        let mut random = Xorshift::new(shape[2] as u64 + 1);
        // Until they have met: on a busy machine they may run one after another.
        let begun = Instant::now();
        loop {
            let submitted: Vec<Submitted<()>> = (0..400)
                .map(|_| {
                    random.next_u64();
                    db.plan().options(lazy()).submit(transfer(&random, KEYS)).unwrap()
                })
                .collect();
            submitted.into_iter().for_each(|submitted| submitted.wait().unwrap());
            if db.stats().partitioned_waits > 0 || shape == SHAPES[0] || begun.elapsed() > FAR {
                break;
            }
        }
        let sum = contents(&db).iter().fold(0, |sum: u64, (_, value)| sum.wrapping_add(*value));
        assert_eq!((sum, db.stats().deadlocks), (100 * KEYS, 0), "{shape:?} {set:?}");
        assert_at_rest(&db);
        let stats = db.stats();
        assert!(stats.partitioned_waits > 0 || shape == SHAPES[0], "they met: {stats:?}");
    }
}

/// Threads change their roles all the time, with partitions and transactions in hand: nothing is lost, and all end.
#[test]
fn roles_change_under_load() {
    const KEYS: u64 = 40;
    for shape in [[1, 1, 4, 1], [3, 2, 8, 1], [4, 1, 16, 4]] {
        let db = filled(shape, &[("automatic_threads", "true")], KEYS as u32);
        let [control, executing, ..] = shape;
        let threads = control + executing;
        // One has to execute.
        let most = threads - 1;
        let mut random = Xorshift::new(99 + shape[0] as u64);
        for round in 0..12_usize {
            let submitted: Vec<Submitted<()>> = (0..40)
                .map(|_| {
                    random.next_u64();
                    db.plan().options(lazy()).submit(transfer(&random, KEYS)).unwrap()
                })
                .collect();
            let control = 1 + round % most;
            db.set_control_threads(control);
            let stats = db.stats();
            assert_eq!(stats.partition_threads.len(), threads);
            let has = |role| stats.partition_threads.iter().filter(|thread| thread.role == role).count();
            assert!(has(PartitionRole::Control) >= 1 && has(PartitionRole::Execution) >= 1);
            let partitions: usize = stats.partition_threads.iter().map(|thread| thread.partitions).sum();
            assert_eq!(partitions, most, "each partition is somebody's");
            submitted.into_iter().for_each(|submitted| submitted.wait().unwrap());
        }
        let sum = contents(&db).iter().fold(0, |sum: u64, (_, value)| sum.wrapping_add(*value));
        assert_eq!((sum, db.stats().deadlocks), (100 * KEYS, 0), "{shape:?}");
        assert_at_rest(&db);
        let stats = db.stats();
        assert_eq!(stats.partition_threads.iter().map(|thread| thread.done).sum::<u64>(), 12 * 40);
        assert!(stats.partitioned_moves_to_control + stats.partitioned_moves_to_execution > 0 || most == 1);
        db.close().unwrap();
    }
}

/// The caller says which keys lie together: one message there, one back, whatever the hash; and whoever is not
/// submitted meets the same locks.
#[test]
fn a_partitioner_keeps_keys_together() {
    let options =
        Options { control_threads: 5, execution_threads: 2, pool_bytes: 2 << 20, ..Options::default() };
    let db = Database::builder()
        .options(options)
        .partitioner(|key| key.first_chunk().map_or(0, |key| u32::from_be_bytes(*key) as usize / 100))
        .disk(Arc::new(FaultyDisk::new()))
        .open("/db")
        .unwrap();
    db.transact(|tx| (0..500).try_for_each(|key| tx.put(NUMBERS, key, 1).map(drop))).unwrap();
    for (partition, expected) in [(0, 2), (3, 2), (4, 2)] {
        let before = db.stats().partitioned_messages;
        let plan = (0..50).fold(db.plan(), |plan, key| plan.write(NUMBERS, partition * 100 + key));
        plan.submit(move |tx| {
            (0..50).try_for_each(|key| tx.put(NUMBERS, partition * 100 + key, 2).map(drop))
        })
        .unwrap()
        .wait()
        .unwrap();
        assert_eq!(db.stats().partitioned_messages - before, expected);
    }
    let before = db.stats().partitioned_messages;
    let plan = db.plan().write(NUMBERS, 450).write(NUMBERS, 10).write(NUMBERS, 250);
    plan.submit(|tx| tx.put(NUMBERS, 450, 3)).unwrap().wait().unwrap();
    assert_eq!(db.stats().partitioned_messages - before, 4, "three partitions");
    // A dynamic transaction keeps a submitted one out.
    assert_at_rest(&db);
    let mut holder = db.begin().unwrap();
    holder.put(NUMBERS, 333, 9).unwrap();
    let refused = TransactOptions { no_wait: true, ..lazy() };
    let refused = db.plan().write(NUMBERS, 333).options(refused).submit(|tx| tx.get(NUMBERS, 333)).unwrap();
    assert!(matches!(refused.wait(), Err(Error::WouldBlock(_))));
    holder.rollback().unwrap();
    assert_at_rest(&db);
}

/// Each transaction counts the entries and adds one under their number: a phantom would make two of the same number.
#[test]
fn no_phantoms_come_between_them() {
    let db = filled(SHAPES[2], &[], 0);
    let submitted: Vec<Submitted<bool>> = (0..60)
        .map(|_| {
            let submitted = db.plan().options(lazy()).submit(|tx| {
                let count = tx.range(NUMBERS, ..)?.count() as u32;
                thread::yield_now();
                tx.insert(NUMBERS, count, 0)
            });
            submitted.unwrap()
        })
        .collect();
    assert!(submitted.into_iter().all(|submitted| submitted.wait().unwrap()));
    let numbers: Vec<u32> = contents(&db).into_iter().map(|(key, _)| key).collect();
    assert_eq!(numbers, (0..60).collect::<Vec<_>>());
    assert_at_rest(&db);
}

#[test]
fn errors_and_panics_come_back_and_leave_nothing() {
    let db = filled(SHAPES[1], &[], 2);
    let failed = db.plan().write(NUMBERS, 0).submit(|tx| -> Result<()> {
        tx.put(NUMBERS, 0, 1)?;
        Err(Error::application("no"))
    });
    assert!(matches!(failed.unwrap().wait(), Err(Error::Application(_))));
    let panicking = db.plan().write(NUMBERS, 1).submit(|tx| -> Result<()> {
        tx.put(NUMBERS, 1, 1)?;
        panic!("in the body")
    });
    let panicking = panicking.unwrap();
    let panic = thread::spawn(move || panicking.wait()).join().unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"in the body"));
    assert_eq!(contents(&db), [(0, 100), (1, 100)]);
    let too_long = vec![0; 5000];
    const BYTES: TableDefinition<&[u8], u64> = TableDefinition::new("bytes");
    assert!(matches!(db.plan().write(BYTES, &too_long).submit(|_| Ok(())), Err(Error::KeyTooLong { .. })));
    assert_at_rest(&db);
}

/// Who waits for a lock holds up nobody else, and its deadline ends the wait.
#[test]
fn nobody_waits_behind_a_transaction_that_waits() {
    for shape in SHAPES {
        let [_, _, window, _] = shape;
        let db = filled(shape, &[], 3);
        let mut holder = db.begin().unwrap();
        holder.put(NUMBERS, 0, 1).unwrap();
        // If the others are not done by its deadline, on a slow machine, again with a later one.
        let held_up = [300, 3000, 30_000].into_iter().all(|milliseconds| {
            let (begun, deadline) = (Instant::now(), Duration::from_millis(milliseconds));
            let options = TransactOptions { deadline: Some(deadline), ..lazy() };
            let waiting =
                db.plan().write(NUMBERS, 0).options(options).submit(|tx| tx.get(NUMBERS, 0)).unwrap();
            if window > 1 {
                for _ in 0..20 {
                    db.plan().write(NUMBERS, 1).submit(|tx| tx.put(NUMBERS, 1, 5)).unwrap().wait().unwrap();
                }
            }
            let has_run = waiting.has_run();
            let is_late = begun.elapsed() >= deadline;
            assert!(!has_run || is_late);
            assert!(matches!(waiting.wait(), Err(Error::LockTimeout(_))));
            is_late
        });
        assert!(!held_up, "others wait behind it: {shape:?}");
        let refused = TransactOptions { no_wait: true, ..lazy() };
        let refused = db.plan().write(NUMBERS, 0).options(refused).submit(|tx| tx.get(NUMBERS, 0)).unwrap();
        assert!(matches!(refused.wait(), Err(Error::WouldBlock(_))));
        // A table that is locked as a whole is waited for as well.
        let later = db.plan().write(NUMBERS, 0).submit(|tx| tx.get(NUMBERS, 0)).unwrap();
        let WaitError::TimedOut(later) =
            later.wait_until(Instant::now() + Duration::from_millis(20)).unwrap_err()
        else {
            panic!("it cannot have failed")
        };
        holder.lock_table(NUMBERS, TableLock::Shared).unwrap_or(());
        holder.commit().unwrap();
        assert_eq!(later.wait().unwrap(), Some(1));
        let mut holder = db.begin().unwrap();
        holder.lock_table(NUMBERS, TableLock::Exclusive).unwrap();
        let later = db.plan().write(NUMBERS, 0).submit(|tx| tx.get(NUMBERS, 0)).unwrap();
        thread::sleep(Duration::from_millis(5));
        assert!(!later.has_run());
        holder.rollback().unwrap();
        assert_eq!(later.wait().unwrap(), Some(1));
        assert_at_rest(&db);
    }
}

/// A submitted transaction that needs a whole table only ever tried for it, so that writers whose intents overlap
/// without end kept it out, and its place in the window with it.
#[test]
fn writers_without_end_do_not_keep_a_whole_table_from_a_submitted_one() {
    for kind in ["private", "lightweight", "in_table", "inherited"] {
        let db = filled([1, 1, 4, 4], &[("intent_locks", kind)], 3);
        let at_once = TransactOptions { no_wait: true, ..lazy() };
        let write = |key| {
            let mut tx = db.begin_with(&at_once)?;
            tx.put(NUMBERS, key, 5).map(|_| tx)
        };
        let mut writer = write(0).unwrap();
        let plan = db.plan().options(lazy()).lock_table(NUMBERS, TableLock::Exclusive);
        let whole = plan.submit(|tx| tx.get(NUMBERS, 1)).unwrap();
        let deadline = Instant::now() + FAR;
        // Each comes before the one of before goes, until they are held back.
        for key in (0..3).cycle().skip(1) {
            let next = match write(key) {
                Ok(next) => next,
                Err(Error::WouldBlock(_)) => break,
                Err(error) => panic!("{kind}: {error}"),
            };
            std::mem::replace(&mut writer, next).commit().unwrap();
            assert!(Instant::now() < deadline, "{kind}: nobody is held back");
        }
        assert!(!whole.has_run());
        writer.commit().unwrap();
        assert!(matches!(whole.wait_until(deadline), Ok(Some(5 | 100))), "{kind}");
        assert_at_rest(&db);
    }
}

/// Two tables, a submitted transaction and a dynamic one, in opposite orders: the cycle through the queue of a table is
/// found.
#[test]
fn a_deadlock_through_the_queue_of_a_table_is_resolved() {
    const OTHERS: TableDefinition<u32, u64> = TableDefinition::new("others");
    let db = filled([1, 1, 4, 4], &[], 3);
    db.transact(|tx| tx.put(OTHERS, 1, 1)).unwrap();
    for _ in 0..5 {
        let mut second = db.begin().unwrap();
        second.lock_table(OTHERS, TableLock::Exclusive).unwrap();
        let plan = db.plan().options(lazy()).lock_table(NUMBERS, TableLock::Exclusive).write(OTHERS, 1);
        let submitted = plan.submit(|tx| tx.put(OTHERS, 1, 2)).unwrap();
        // It has the first table, and waits for the second.
        let waits = |lock: TableLock| {
            let mut other = db.begin_with(&TransactOptions { no_wait: true, ..lazy() }).unwrap();
            other.lock_table(NUMBERS, lock).is_err()
        };
        while !waits(TableLock::Shared) {
            thread::sleep(Duration::from_millis(1));
        }
        // One of the two gives way, and runs again later.
        match second.put(NUMBERS, 1, 1) {
            Ok(_) => second.commit().unwrap(),
            Err(error) => {
                assert!(matches!(error, Error::Deadlock(_)), "{error}");
                second.rollback().unwrap();
            }
        }
        submitted.wait().unwrap();
    }
    assert_at_rest(&db);
}

/// A cycle of a dynamic transaction and a submitted one is found, and both end.
#[test]
fn a_deadlock_with_a_dynamic_transaction_is_resolved() {
    let db = filled([2, 1, 4, 1], &[], 40);
    for round in 0..10u64 {
        // The submitted one holds its lower names and waits for its highest; which those are, hashing knows.
        let (locked, told) = mpsc::channel();
        let dynamic = thread::spawn({
            let db = db.clone();
            move || {
                db.transact(|tx| {
                    for key in (0..40).rev() {
                        tx.put(NUMBERS, key, round)?;
                        let _ = locked.send(());
                        thread::sleep(Duration::from_micros(100));
                    }
                    Ok(())
                })
            }
        });
        told.recv().unwrap();
        let plan = (0..40).fold(db.plan().options(lazy()), |plan, key| plan.write(NUMBERS, key));
        let submitted = plan
            .submit(move |tx| (0..40).try_for_each(|key| tx.put(NUMBERS, key, 1000 + round).map(drop)))
            .unwrap();
        submitted.wait().unwrap();
        dynamic.join().unwrap().unwrap();
        let values: Vec<u64> = contents(&db).into_iter().map(|(_, value)| value).collect();
        assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
    }
    assert_at_rest(&db);
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park_timeout(Duration::from_secs(20)),
        }
    }
}

#[test]
fn a_handle_can_be_awaited() {
    let disk = FaultyDisk::new();
    disk.set_sync_delay(Duration::from_millis(2));
    let db = open_on(disk, SHAPES[1], &[]);
    for round in 0..20 {
        let submitted = db.plan().write(NUMBERS, round).submit(move |tx| tx.put(NUMBERS, round, 1)).unwrap();
        assert!(!block_on(submitted).unwrap());
    }
    assert_eq!(contents(&db).len(), 20);
}

/// What a body has captured is gone when its result is there: until then nobody is told. It was dropped a little later,
/// and a handle of the database kept that open.
#[test]
fn what_a_body_has_captured_is_gone_with_its_result() {
    /// Is dropped slowly.
    struct Lingers(mpsc::Sender<()>, mpsc::Receiver<()>);
    impl Drop for Lingers {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            self.1.recv().unwrap();
        }
    }
    let disk = FaultyDisk::new();
    for round in 0..3_u64 {
        let db = open_on(disk.clone(), SHAPES[1], &[]);
        let (tell, told) = mpsc::channel();
        let (let_go, may_go) = mpsc::channel();
        let (own, lingers) = (db.clone(), Lingers(tell, may_go));
        let submitted = db.plan().write(NUMBERS, 1).submit(move |tx| {
            let _captured = (&own, &lingers);
            tx.put(NUMBERS, 1, round)
        });
        let submitted = submitted.unwrap();
        told.recv().unwrap();
        assert!(!submitted.has_run(), "it is told while what it has captured is there");
        let_go.send(()).unwrap();
        assert_eq!(submitted.wait().unwrap(), round > 0);
        drop(db);
    }
}

/// Polls what is not done yet.
fn poll_with(submitted: &mut Submitted<bool>, waker: &Waker) {
    assert!(Pin::new(submitted).poll(&mut Context::from_waker(waker)).is_pending());
}

/// A handle that was dropped left its waker behind, which was woken, and kept alive what it has, for as long as the
/// transaction took.
#[test]
fn a_handle_that_is_dropped_takes_its_waker_along() {
    let db = filled(SHAPES[0], &[], 2);
    let mut holder = db.begin().unwrap();
    holder.put(NUMBERS, 0, 1).unwrap();
    let mut submitted = db.plan().write(NUMBERS, 0).submit(|tx| tx.put(NUMBERS, 0, 2)).unwrap();
    let unpark = Arc::new(Unpark(thread::current()));
    poll_with(&mut submitted, &Waker::from(Arc::clone(&unpark)));
    assert_eq!(Arc::strong_count(&unpark), 2);
    drop(submitted);
    assert_eq!(Arc::strong_count(&unpark), 1);
    holder.rollback().unwrap();
    assert_at_rest(&db);
}

/// A waker was dropped under the mutex under which a transaction ends: one that closes the database there, as the last
/// handle does, waited for itself.
#[test]
fn what_a_waker_does_where_it_is_dropped_may_end_the_transaction() {
    struct Closes(Database);
    impl Wake for Closes {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Closes {
        fn drop(&mut self) {
            self.0.close().unwrap();
        }
    }
    for polls in [true, false] {
        let db = filled(SHAPES[0], &[], 2);
        let mut holder = db.begin().unwrap();
        holder.put(NUMBERS, 0, 1).unwrap();
        let first = db.plan().write(NUMBERS, 0).submit(|tx| tx.put(NUMBERS, 0, 2)).unwrap();
        while db.stats().partitioned_waits == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        // There is no room for it: it is in the queue.
        let mut second = db.plan().write(NUMBERS, 1).submit(|tx| tx.put(NUMBERS, 1, 2)).unwrap();
        poll_with(&mut second, &Waker::from(Arc::new(Closes(db.clone()))));
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let ended = polls.then(|| {
                poll_with(&mut second, Waker::noop());
                second.wait()
            });
            tell.send(ended).unwrap();
        });
        let ended = told.recv_timeout(FAR).expect("it waits for itself");
        assert!(matches!(ended, None | Some(Err(Error::Closed { .. }))), "{ended:?}");
        assert!(matches!(first.wait(), Err(Error::Closed { .. })));
    }
}

/// Somebody comes by, and waits until he may go on.
#[derive(Default)]
struct Gate {
    reached: AtomicBool,
    open: AtomicBool,
}

impl Gate {
    fn pass(&self) {
        self.reached.store(true, Ordering::SeqCst);
        assert!(wait_for(|| self.open.load(Ordering::SeqCst)));
    }

    fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }

    fn is_reached(&self) -> bool {
        wait_for(|| self.reached.load(Ordering::SeqCst))
    }
}

/// ORTHRUS-1: where a ring had no room for the locks of a transaction, they stayed at the thread that had run it until
/// the next body there was over, and kept everybody out, though it had been told that it was committed.
#[test]
fn locks_that_find_no_room_in_a_ring_do_not_wait_for_the_next_body() {
    /// Keys from here on lie in the second partition.
    const SECOND: u32 = 10;
    /// The first thread that locks stands still where it comes to this key.
    const STALLS: u32 = 9;
    let [stall, busy, first, long] = [(); 4].map(|()| Arc::new(Gate::default()));
    let stalls = Arc::clone(&stall);
    let partition = move |key: &[u8]| {
        let key = key.first_chunk().map_or(0, |key| u32::from_be_bytes(*key));
        if key == STALLS && thread::current().name() == Some("foreshore-control-0") {
            stalls.pass();
        }
        usize::from(key >= SECOND)
    };
    let options = Options {
        control_threads: 2,
        execution_threads: 2,
        execution_window: 8,
        ring_capacity: 1,
        ..Options::default()
    };
    let db = Database::builder()
        .options(options)
        .partitioner(partition)
        .disk(Arc::new(FaultyDisk::new()))
        .open("/db")
        .unwrap();
    db.transact(|tx| (0..20).try_for_each(|key| tx.put(NUMBERS, key, 0).map(drop))).unwrap();
    let submit = |key: u32, gate: Option<&Arc<Gate>>| {
        let gate = gate.cloned();
        let body = move |tx: &mut Transaction| {
            gate.iter().for_each(|gate| gate.pass());
            tx.put(NUMBERS, key, 1).map(drop)
        };
        db.plan().write(NUMBERS, key).submit(body).unwrap()
    };
    let hold = |key: u32| {
        let mut holder = db.begin().unwrap();
        holder.put(NUMBERS, key, 0).unwrap();
        holder
    };
    let holders = [1, 2, SECOND].map(hold);
    // One thread is busy, so the other one begins all of these.
    let other = submit(SECOND + 1, Some(&busy));
    assert!(busy.is_reached());
    let ends = [submit(1, Some(&first)), submit(2, None)];
    let next = submit(SECOND, Some(&long));
    assert!(wait_for(|| db.stats().partitioned_waits == 3));
    let [one, others @ ..] = holders;
    one.rollback().unwrap();
    assert!(first.is_reached());
    others.into_iter().for_each(|holder| holder.rollback().unwrap());
    assert!(wait_for(|| db.stats().partitioned_visits == 4), "{:?}", db.stats());
    // Nobody takes anything out of the first partition's rings from now on.
    busy.open();
    other.wait().unwrap();
    let stalled = submit(STALLS, None);
    assert!(stall.is_reached());
    first.open();
    ends.into_iter().for_each(|ended| ended.wait().unwrap());
    assert!(long.is_reached());
    stall.open();
    stalled.wait().unwrap();
    for key in [1, 2] {
        let patient = TransactOptions { deadline: Some(FAR / 4), ..TransactOptions::default() };
        db.transact_with(&patient, |tx| tx.put(NUMBERS, key, 2)).unwrap();
    }
    assert!(!next.has_run());
    long.open();
    next.wait().unwrap();
    assert_at_rest(&db);
}

/// Closing ends the threads; what they have not done is told so, and nobody hangs.
#[test]
fn closing_ends_what_is_not_done() {
    for shape in SHAPES {
        let db = filled(shape, &[], 2);
        let mut holder = db.begin().unwrap();
        holder.put(NUMBERS, 0, 1).unwrap();
        let waiting: Vec<Submitted<_>> = (0..50)
            .map(|_| db.plan().write(NUMBERS, 0).submit(|tx| tx.put(NUMBERS, 0, 2)).unwrap())
            .collect();
        thread::sleep(Duration::from_millis(5));
        db.close().unwrap();
        for waiting in waiting {
            assert!(matches!(waiting.wait(), Err(Error::Closed { .. })));
        }
        // Only its handle told that.
        assert!(matches!(db.plan().submit(|_| Ok(())), Err(Error::Closed { .. })));
        drop(holder);
    }
}

/// The threads were started for a database that was closed, and nobody ended them.
#[test]
fn no_threads_are_started_for_a_closed_database() {
    let db = filled([2, 1, 4, 4], &[], 1);
    db.close().unwrap();
    assert!(matches!(db.plan().submit(|_| Ok(())), Err(Error::Closed { .. })));
    assert!(db.stats().partition_threads.is_empty());
}

/// When the result is there, the database can be opened anew, and has what was promised.
#[test]
fn what_was_waited_for_survives_a_power_failure() {
    let disk = FaultyDisk::new();
    let db = open_on(disk.clone(), SHAPES[3], &[]);
    let submitted: Vec<Submitted<bool>> = (0..200)
        .map(|key| db.plan().write(NUMBERS, key).submit(move |tx| tx.put(NUMBERS, key, 1)).unwrap())
        .collect();
    submitted.into_iter().for_each(|submitted| assert!(!submitted.wait().unwrap()));
    disk.crash();
    drop(db);
    let db = open_on(disk.after_crash(CrashMode::DropUnsynced), SHAPES[3], &[]);
    assert_eq!(contents(&db).len(), 200);
}

/// Whoever looks at the waits learns who wanted the transaction, not which line of the engine began it.
#[test]
fn reports_name_the_call_that_submitted_a_transaction() {
    let db = filled(SHAPES[1], &[], 4);
    let mut holder = db.begin().unwrap();
    holder.put(NUMBERS, 1, 7).unwrap();
    let line = line!() + 1;
    let submitted = db.plan().write(NUMBERS, 1).submit(|tx| tx.put(NUMBERS, 1, 8)).unwrap();
    let begun = Instant::now();
    let place = loop {
        if let Some(wait) = db.waits_for().waits.first() {
            break wait.transaction.begun_at.unwrap();
        }
        assert!(begun.elapsed() < FAR);
        thread::sleep(Duration::from_millis(1));
    };
    assert!(place.file().ends_with("partitioned.rs") && place.line() == line, "{place}");
    holder.rollback().unwrap();
    submitted.wait().unwrap();
}
