//! Transactions that the threads of partitioned execution draw themselves.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use foreshore::{
    CommitTicket, Database, Durability, Error, Options, Plan, Procedure, Result, TableDefinition, TableLock,
    TransactOptions, Transaction,
};
use foreshore_env::random::Xorshift;
use foreshore_testkit::{CrashMode, FaultyDisk};

const NUMBERS: TableDefinition<u32, u64> = TableDefinition::new("numbers");
const OTHERS: TableDefinition<u32, u64> = TableDefinition::new("others");
const KEYS: u64 = 5;

/// Threads that lock, threads that run, window, capacity of rings.
type Shape = [usize; 4];

const SHAPES: [Shape; 4] = [[1, 1, 1, 1], [2, 3, 8, 1], [3, 2, 4, 1], [4, 2, 32, 64]];

fn open_on(disk: FaultyDisk, shape: Shape, automatic: bool) -> Database {
    let [control_threads, execution_threads, execution_window, ring_capacity] = shape;
    let options = Options {
        pool_bytes: 2 << 20,
        node_capacity: 4,
        control_threads,
        execution_threads,
        execution_window,
        ring_capacity,
        automatic_threads: automatic,
        ..Options::default()
    };
    let db = Database::builder().options(options).disk(Arc::new(disk)).open("/db").unwrap();
    db.transact(|tx| (0..KEYS as u32).try_for_each(|key| tx.put(NUMBERS, key, 100).map(drop))).unwrap();
    db
}

fn lazy() -> TransactOptions {
    TransactOptions { durability: Some(Durability::Lazy), ..TransactOptions::default() }
}

/// All numbers together; they wrap.
fn sum(db: &Database) -> u64 {
    db.transact(|tx| {
        tx.range(NUMBERS, ..)?.try_fold(0, |sum: u64, entry| entry.map(|(_, value)| sum.wrapping_add(value)))
    })
    .unwrap()
}

/// Nobody holds anything, a little later at least: locks are given back behind the result.
fn assert_at_rest(db: &Database) {
    let options = TransactOptions { deadline: Some(Duration::from_secs(120)), ..TransactOptions::default() };
    let mut check = db.begin_with(&options).unwrap();
    check.lock_table(NUMBERS, TableLock::Exclusive).unwrap();
    check.rollback().unwrap();
    assert!(db.verify().unwrap().is_sound());
}

/// What a procedure does to be tested.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Trick {
    None,
    /// Its plan names a key that is too long.
    BadPlan,
    /// It fails after it has written.
    Fails,
    /// It panics where it runs, draws or is told.
    PanicsInRun,
    PanicsInDraw,
    PanicsWhenTold,
}

/// Moves one from one number to another, so many times, and counts in a table that it learns of later; every third
/// transaction says nothing of what it will touch.
struct Transfers {
    left: u64,
    random: Xorshift,
    from: u32,
    to: u32,
    /// What every tenth transaction does.
    trick: Trick,
    tricked: bool,
    committed: u64,
    failed: Vec<Error>,
    /// The last one's.
    ticket: Option<CommitTicket>,
    stop: Option<Arc<AtomicBool>>,
}

impl Transfers {
    fn new(seed: u64, count: u64) -> Transfers {
        Transfers {
            left: count,
            random: Xorshift::new(seed + 1),
            from: 0,
            to: 0,
            trick: Trick::None,
            tricked: false,
            committed: 0,
            failed: Vec::new(),
            ticket: None,
            stop: None,
        }
    }
}

impl Procedure for Transfers {
    fn draw<'d>(&mut self, plan: Plan<'d>) -> Option<Plan<'d>> {
        if self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::SeqCst)) {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let mut key = || self.random.below(KEYS) as u32;
        (self.from, self.to) = (key(), key());
        self.tricked = self.left % 10 == 5;
        let plan = match self.trick {
            Trick::BadPlan if self.tricked => {
                const BYTES: TableDefinition<&[u8], u64> = TableDefinition::new("bytes");
                plan.write(BYTES, &[0; 5000])
            }
            Trick::PanicsInDraw if self.tricked => panic!("where it draws"),
            _ => plan.write(NUMBERS, self.from).write(NUMBERS, self.to),
        };
        Some(if self.left.is_multiple_of(3) && !self.tricked { plan.by_reconnaissance() } else { plan })
    }

    fn run(&mut self, tx: &mut Transaction) -> Result<()> {
        for (key, change) in [(self.from, u64::MAX), (self.to, 1)] {
            let value = tx.get(NUMBERS, key)?.unwrap();
            tx.put(NUMBERS, key, value.wrapping_add(change))?;
            match self.trick {
                Trick::Fails if self.tricked => return Err(Error::application("no")),
                Trick::PanicsInRun if self.tricked => panic!("where it runs"),
                _ => {}
            }
        }
        // Beside every plan.
        let count = tx.get(OTHERS, self.from)?.unwrap_or(0);
        tx.put(OTHERS, self.from, count + 1).map(drop)
    }

    fn ended(&mut self, result: Result<CommitTicket>) {
        assert!(!(self.tricked && self.trick == Trick::PanicsWhenTold), "where it is told");
        match result {
            Ok(ticket) => {
                self.committed += 1;
                self.ticket = Some(ticket);
            }
            Err(error) => self.failed.push(error),
        }
    }
}

/// Every transaction that is drawn runs once, no cycle closes, and the procedures come back; whatever the shape, in
/// fewer places than there are procedures, and with roles that change.
#[test]
fn all_that_is_drawn_is_run() {
    for automatic in [false, true] {
        for shape in SHAPES {
            let db = open_on(FaultyDisk::new(), shape, automatic);
            let serving = db.serve(&lazy(), (0..12).map(|seed| Transfers::new(seed, 40))).unwrap();
            for round in 0..20 {
                db.set_control_threads(1 + round % shape[0]);
                thread::sleep(Duration::from_millis(1));
            }
            let procedures = serving.wait().unwrap();
            assert_eq!(procedures.len(), 12);
            for procedure in procedures {
                assert_eq!((procedure.left, procedure.committed), (0, 40), "{shape:?} {automatic}");
                assert!(procedure.failed.is_empty());
            }
            assert_eq!((sum(&db), db.stats().deadlocks), (100 * KEYS, 0), "{shape:?} {automatic}");
            let counted = db.transact(|tx| {
                tx.range(OTHERS, ..)?.try_fold(0, |sum, entry| entry.map(|(_, value)| sum + value))
            });
            assert_eq!(counted.unwrap(), 12 * 40);
            assert_at_rest(&db);
            let stats = db.stats();
            assert_eq!(
                (stats.partitioned_done, stats.partitioned_in_flight, stats.partitioned_queued),
                (12 * 40, 0, 0)
            );
            db.close().unwrap();
        }
    }
}

/// They end what they have, and no more; transactions that are submitted come in beside them.
#[test]
fn procedures_without_end_are_stopped_and_keep_nobody_out() {
    for shape in SHAPES {
        let db = open_on(FaultyDisk::new(), shape, false);
        let serving = db.serve(&lazy(), (0..6).map(|seed| Transfers::new(seed, u64::MAX))).unwrap();
        for key in 0..20 {
            let submitted = db.plan().options(lazy()).submit(move |tx| tx.put(OTHERS, 100 + key, 1));
            assert!(!submitted.unwrap().wait().unwrap(), "{shape:?}");
        }
        assert!(!serving.wait_until(Instant::now() + Duration::from_millis(5)));
        let done = db.stats().partitioned_done;
        let deadline = Instant::now() + Duration::from_secs(120);
        while db.stats().partitioned_done < done + 50 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        serving.stop();
        assert!(serving.wait_until(Instant::now() + Duration::from_secs(120)), "{shape:?}");
        let committed: u64 = serving.wait().unwrap().iter().map(|procedure| procedure.committed).sum();
        assert!(committed >= 50);
        assert_eq!(sum(&db), 100 * KEYS);
        assert_at_rest(&db);

        // Whoever forgets them has stopped them, and none keeps the database open for ever.
        drop(db.serve(&lazy(), (0..6).map(|seed| Transfers::new(seed, u64::MAX))).unwrap());
        let in_flight = || db.stats().partitioned_in_flight + db.stats().partitioned_queued;
        let deadline = Instant::now() + Duration::from_secs(120);
        while in_flight() > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(in_flight(), 0);
    }
}

/// Each is told of what went wrong with one of its transactions, which leaves no trace, and goes on.
#[test]
fn errors_end_a_transaction_and_not_its_procedure() {
    for trick in [Trick::BadPlan, Trick::Fails] {
        let db = open_on(FaultyDisk::new(), SHAPES[2], false);
        let procedures = (0..3).map(|seed| Transfers { trick, ..Transfers::new(seed, 40) });
        for procedure in db.serve(&lazy(), procedures).unwrap().wait().unwrap() {
            assert_eq!((procedure.committed, procedure.failed.len()), (36, 4), "{trick:?}");
            for error in procedure.failed {
                match trick {
                    Trick::BadPlan => assert!(matches!(error, Error::KeyTooLong { .. }), "{error}"),
                    _ => assert!(matches!(error, Error::Application(_)), "{error}"),
                }
            }
        }
        assert_eq!(sum(&db), 100 * KEYS);
        assert_at_rest(&db);
    }
}

/// A panic ends its procedure, leaves no trace of its transaction, and comes out where somebody waits.
#[test]
fn panics_come_out_where_somebody_waits() {
    let tricks = [
        (Trick::PanicsInRun, "where it runs"),
        (Trick::PanicsInDraw, "where it draws"),
        (Trick::PanicsWhenTold, "where it is told"),
    ];
    for (trick, said) in tricks {
        let db = open_on(FaultyDisk::new(), SHAPES[1], false);
        let procedures = (0..4).map(|seed| Transfers {
            trick: if seed == 2 { trick } else { Trick::None },
            ..Transfers::new(seed, 40)
        });
        let serving = db.serve(&lazy(), procedures).unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| serving.wait().map(drop))).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&said));
        assert_eq!(sum(&db), 100 * KEYS);
        assert_at_rest(&db);
        assert_eq!(db.stats().partitioned_in_flight, 0);
    }
}

/// Closing ends the threads, and whoever waits is told.
#[test]
fn closing_ends_procedures() {
    for shape in SHAPES {
        let db = open_on(FaultyDisk::new(), shape, false);
        let serving = db.serve(&lazy(), (0..6).map(|seed| Transfers::new(seed, u64::MAX))).unwrap();
        thread::sleep(Duration::from_millis(5));
        db.close().unwrap();
        assert!(serving.wait_until(Instant::now() + Duration::from_secs(120)), "endless ones go on");
        // Only what serves them told that.
        let late = db.serve(&lazy(), [Transfers::new(6, 1)]);
        assert!(matches!(late, Err(Error::Closed { .. })));
        match serving.wait() {
            Err(error) => assert!(matches!(error, Error::Closed { .. }), "{error}"),
            // Each has met the closed database once, and has been told.
            Ok(procedures) => {
                let told = |it: &Transfers| matches!(it.failed[..], [Error::Closed { .. }]);
                assert!(procedures.len() == 6 && procedures.iter().all(told));
            }
        }
    }
}

/// What a ticket says is durable survives; and the tickets of procedures are on their way to the disk without anybody's
/// waiting.
#[test]
fn what_tickets_promise_survives_a_power_failure() {
    let disk = FaultyDisk::new();
    let db = open_on(disk.clone(), SHAPES[3], false);
    let synced = TransactOptions { durability: Some(Durability::Sync), ..TransactOptions::default() };
    let serving = db.serve(&synced, (0..4).map(|seed| Transfers::new(seed, 50))).unwrap();
    for mut procedure in serving.wait().unwrap() {
        procedure.ticket.take().unwrap().wait().unwrap();
    }
    disk.crash();
    drop(db);
    let db = open_on(disk.after_crash(CrashMode::DropUnsynced), SHAPES[3], false);
    let counted =
        db.transact(|tx| tx.range(OTHERS, ..)?.try_fold(0, |sum, entry| entry.map(|(_, value)| sum + value)));
    assert_eq!(counted.unwrap(), 4 * 50);
}

/// Where a procedure has nothing to do at all, and where there is none.
#[test]
fn nothing_to_draw_is_no_hang() {
    let db = open_on(FaultyDisk::new(), SHAPES[0], false);
    let none: [Transfers; 0] = [];
    assert!(db.serve(&lazy(), none).unwrap().wait().unwrap().is_empty());
    let idle = db.serve(&lazy(), [Transfers::new(1, 0), Transfers::new(2, 0)]).unwrap().wait().unwrap();
    assert_eq!(idle.len(), 2);
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    struct Once(bool);
    impl Procedure for Once {
        fn draw<'d>(&mut self, plan: Plan<'d>) -> Option<Plan<'d>> {
            DRAWN.fetch_add(1, Ordering::SeqCst);
            std::mem::take(&mut self.0).then_some(plan)
        }

        fn run(&mut self, _: &mut Transaction) -> Result<()> {
            Ok(())
        }

        fn ended(&mut self, result: Result<CommitTicket>) {
            drop(result.unwrap());
        }
    }
    db.serve(&lazy(), [Once(true)]).unwrap().wait().unwrap();
    assert_eq!(DRAWN.load(Ordering::SeqCst), 2);
}
