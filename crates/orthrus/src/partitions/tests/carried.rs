//! With locks: transactions of an engine, whose footprints lie in all partitions. No thread here wakes by itself: who
//! is not rung for sleeps on, and the test waits in vain.

use std::path::Path;

use foreshore_env::{disk::Disk, random::Xorshift, sync::Mutex};
use foreshore_testkit::FaultyDisk;
use foreshore_txn::{
    BeginOptions, Durability, Engine, EngineOptions, IntentMode, LockKind, PoolOptions, TableInfo, TxnError,
};

use super::*;

const JOBS: u64 = 24;
/// Transactions of a job, at most.
const EACH: u64 = 30;
const KEYS: u64 = JOBS * EACH * 8;
/// Keys of a transaction.
const TOUCHED: usize = 8;

/// What the transactions of a run have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// All meet at the same few counters.
    Meeting,
    /// Each has counters of its own, so that nobody waits for anything but room: control threads look all the time at
    /// locks that are waited for.
    Apart,
    /// The same, one of each job, which takes its time and is undone, so that no locks go back by message: nothing
    /// comes to the control threads after their answers.
    Undone,
}

impl Kind {
    /// Transactions of a job.
    fn each(self) -> u64 {
        if self == Kind::Undone { 1 } else { EACH }
    }
}

/// Transactions one after another, each of which adds one to some counters.
struct Adds {
    engine: Arc<Engine>,
    table: TableInfo,
    random: Xorshift,
    number: u64,
    kind: Kind,
    keys: Vec<[u8; 4]>,
    left: u64,
    txn: Option<foreshore_txn::Txn>,
    done: Arc<AtomicU64>,
    failed: Arc<Mutex<Option<TxnError>>>,
}

impl Adds {
    fn new(
        (engine, table): (&Arc<Engine>, &TableInfo),
        number: u64,
        kind: Kind,
        left: u64,
        done: &Arc<AtomicU64>,
        failed: &Arc<Mutex<Option<TxnError>>>,
    ) -> Adds {
        Adds {
            engine: Arc::clone(engine),
            table: table.clone(),
            random: Xorshift::new(number + 1),
            number,
            kind,
            keys: Vec::new(),
            left,
            txn: None,
            done: Arc::clone(done),
            failed: Arc::clone(failed),
        }
    }

    fn try_begin(&mut self) -> Result<Next, TxnError> {
        let own = (self.number * EACH + self.left - 1) * 8;
        let (start, count) = if self.kind == Kind::Meeting { (0, 24) } else { (own, 8) };
        let mut key = |_| ((start + self.random.below(count)) as u32).to_be_bytes();
        self.keys = (0..TOUCHED).map(&mut key).collect();
        let mut txn = self.engine.begin(BeginOptions::default())?;
        txn.begin_reconnaissance();
        for key in &self.keys {
            txn.foresee(&self.table, key, LockKind::Exclusive)?;
        }
        let footprint = txn.end_reconnaissance();
        let parted = txn.part(footprint)?.expect("nobody locks the table");
        self.txn = Some(txn);
        Ok(Next::Locks(parted))
    }

    fn try_end(&mut self, parted: Parted, outcome: Result<(), LockError>) -> Result<Next, TxnError> {
        let mut txn = self.txn.take().expect("it has begun");
        txn.rejoin(parted, outcome)?;
        for key in &self.keys {
            let value = txn.get_for_update(&self.table, key, decode)?.expect("it is there");
            txn.update(&self.table, key, &(value + 1).to_be_bytes())?;
        }
        if self.kind != Kind::Undone {
            let parted = txn.commit_parting(Durability::Lazy)?.1;
            return Ok(Next::Release { parted: parted.expect("it had locks on keys"), ends: true });
        }
        thread::sleep(Duration::from_micros(200));
        txn.rollback()?;
        Ok(self.end())
    }

    fn end(&mut self) -> Next {
        self.done.fetch_add(1, Ordering::SeqCst);
        self.left -= 1;
        if self.left == 0 { Next::Done } else { Next::Again }
    }

    fn or_tell(&mut self, next: Result<Next, TxnError>) -> Next {
        next.unwrap_or_else(|error| {
            *self.failed.lock() = Some(error);
            Next::Done
        })
    }
}

fn decode(value: &[u8]) -> u64 {
    u64::from_be_bytes(*value.first_chunk().expect("eight bytes"))
}

impl Job for Adds {
    fn begin(&mut self) -> Next {
        let next = self.try_begin();
        self.or_tell(next)
    }

    fn locked(&mut self, parted: Box<Parted>, outcome: Result<(), LockError>) -> Next {
        let next = self.try_end(*parted, outcome);
        self.or_tell(next)
    }

    fn released(&mut self) -> Next {
        self.end()
    }
}

pub(super) fn engine() -> (Arc<Engine>, TableInfo) {
    let pool = PoolOptions { bytes: 4 << 20, ..PoolOptions::default() };
    let options = EngineOptions { pool, ..EngineOptions::default() };
    let disk = Arc::new(FaultyDisk::new()) as Arc<dyn Disk>;
    let engine = Engine::open(disk, Path::new("/db"), &options).unwrap();
    let table = engine.create_table("counters", b"").unwrap();
    let mut txn = engine.begin(BeginOptions::default()).unwrap();
    for key in 0..KEYS as u32 {
        txn.put(&table, &key.to_be_bytes(), &0_u64.to_be_bytes()).unwrap();
    }
    txn.commit(Durability::Lazy).unwrap();
    (engine, table)
}

/// Windows full of transactions, rings with room for one message or two, roles that stay or change: whoever waits for
/// room, in whatever direction, is woken when there is some. All transactions end, and nothing is lost.
#[test]
fn whoever_waits_for_room_is_woken() {
    let mut full = 0;
    let kinds = [Kind::Meeting, Kind::Apart, Kind::Undone];
    let rings = [(1, false), (1, true), (2, false)];
    for (kind, (ring_capacity, automatic)) in
        kinds.into_iter().flat_map(|kind| rings.map(|ring| (kind, ring)))
    {
        let (engine, table) = engine();
        let options = PartitionOptions {
            control_threads: 3,
            execution_threads: 3,
            automatic,
            window: 8,
            queue: OPTIONS.queue,
            ring_capacity,
            pin_threads: false,
        };
        let partitions = Partitions::start(options).unwrap();
        let (done, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
        for number in 0..JOBS {
            let job = Adds::new((&engine, &table), number, kind, kind.each(), &done, &failed);
            partitions.submit(Box::new(job));
        }
        let mut turn = 0;
        let ended = || {
            let stats = partitions.stats();
            // A job is told a little after it is counted.
            let told = done.load(Ordering::SeqCst);
            (stats.in_flight, stats.queued) == (0, 0)
                && (stats.done, told) == (JOBS * kind.each(), JOBS * kind.each())
        };
        let deadline = Instant::now() + Duration::from_secs(300);
        while !ended() && failed.lock().is_none() && Instant::now() < deadline {
            turn += 1;
            partitions.set_controllers(1 + turn % 3);
            thread::sleep(Duration::from_millis(1));
        }
        let stats = partitions.stats();
        assert!(ended(), "{ring_capacity} {automatic} {kind:?} {:?} {stats:?}", failed.lock());
        full += stats.rings_full;
        assert!(kind == Kind::Meeting || stats.waits == 0, "{stats:?}");
        assert_eq!(stats.messages, stats.visits + stats.footprints);
        drop(partitions);
        let expected = if kind == Kind::Undone { 0 } else { JOBS * EACH * TOUCHED as u64 };
        assert_eq!(sum(&engine, &table), expected);
        engine.close().unwrap();
    }
    assert!(full > 0, "nobody waited for room");
}

/// All counters together.
fn sum(engine: &Arc<Engine>, table: &TableInfo) -> u64 {
    let mut txn = engine.begin(BeginOptions::default()).unwrap();
    let mut value = |key: u32| txn.get(table, &key.to_be_bytes(), decode).unwrap().unwrap();
    let sum = (0..KEYS as u32).map(&mut value).sum();
    txn.commit(Durability::Lazy).unwrap();
    sum
}

/// ORTHRUS-4: whichever thread dies, of whatever role, in the midst of transactions whose locks are on their way: all
/// threads end, every job is dropped, every lock is given back, and what was committed is there as a whole.
#[test]
fn whichever_thread_dies_all_end_and_give_back_their_locks() {
    for (automatic, doomed) in [(false, 0), (false, 2), (false, 3), (false, 5), (true, 0), (true, 5)] {
        let (engine, table) = engine();
        let options = PartitionOptions {
            control_threads: 3,
            execution_threads: 3,
            automatic,
            window: 8,
            queue: OPTIONS.queue,
            ring_capacity: 1,
            pin_threads: false,
        };
        let partitions = Partitions::start(options).unwrap();
        let (done, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
        for number in 0..JOBS {
            let job =
                Adds::new((&engine, &table), number, Kind::Meeting, u64::from(u32::MAX), &done, &failed);
            partitions.submit(Box::new(job));
        }
        assert!(wait_for(|| done.load(Ordering::SeqCst) >= JOBS));
        partitions.shared.doomed.store(doomed, Ordering::SeqCst);
        partitions.shared.bell(doomed).ring();
        assert!(wait_for(|| Arc::strong_count(&done) == 1), "{automatic} {doomed}: somebody goes on");
        assert!(partitions.is_poisoned() && failed.lock().is_none(), "{:?}", failed.lock());
        let deadline = Instant::now() + Duration::from_secs(120);
        let mut check = engine.begin(BeginOptions::default()).unwrap();
        check.set_deadline(Some(deadline));
        check.lock_table(&table, IntentMode::X).unwrap();
        check.rollback().unwrap();
        let (sum, told) = (sum(&engine, &table), done.load(Ordering::SeqCst) * TOUCHED as u64);
        assert!(sum >= told && sum.is_multiple_of(TOUCHED as u64), "{sum} {told}");
        drop(partitions);
        engine.close().unwrap();
    }
}
