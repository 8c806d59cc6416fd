//! The anomalies of Adya and of the Hermitage suite, as schedules of two or three transactions.
//!
//! Each schedule is run step by step. A step that would have to wait is refused (`no_wait`; beside a plan nobody
//! waits), and its transaction is rolled back, as a deadlock's victim would be; so is one whose reads without locks are
//! stale. A schedule then tells whether those that committed saw or left behind something that no serial run gives.
//! Which level prevents what is a table; the proof that the schedules can find something is the last test: with locking
//! switched off, every anomaly shows.
//!
//! A planned, submitted or served transaction declares a plan in which nothing is that the schedule touches, so that it
//! can go step by step: its body does the steps that are sent to it, and locks each when it comes.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use foreshore::{
    Database, Error, Isolation, Options, ReadMode, Result, TableDefinition, TransactOptions, Transaction,
    TxnId,
};
use foreshore_testkit::FaultyDisk;

use crate::ways::{Way, serve};

const TEST: TableDefinition<i32, i32> = TableDefinition::new("test");
/// What plans declare.
const ELSEWHERE: TableDefinition<i32, i32> = TableDefinition::new("elsewhere");
/// How long locks may take that are given back behind the result.
const PATIENCE: Duration = Duration::from_secs(120);

/// A database with the rows 1 → 10 and 2 → 20.
fn open(locking: bool) -> Database {
    let options = Options {
        locking,
        read_validation: locking,
        pool_bytes: 1 << 20,
        control_threads: 2,
        // One for each transaction of a schedule: there a body waits for its steps.
        execution_threads: 3,
        ..Options::default()
    };
    let disk = Arc::new(FaultyDisk::new());
    let db = Database::builder().options(options).disk(disk).open("/db").unwrap();
    db.transact(|tx| {
        tx.put(TEST, 1, 10)?;
        tx.put(TEST, 2, 20)
    })
    .unwrap();
    db
}

/// How the transactions of a schedule run.
type How = (Isolation, Way);

/// What a body is told to do; `None`: to commit.
type Order = Option<Box<dyn FnOnce(&mut Transaction) -> Result<()> + Send>>;

/// A transaction of a schedule.
struct Session<'d> {
    db: &'d Database,
    id: TxnId,
    /// Gone after its first refused step.
    goes_on: Option<GoesOn<'d>>,
}

enum GoesOn<'d> {
    Alone(Box<Transaction>),
    /// A body takes steps; then this waits for its end.
    Told(mpsc::Sender<Order>, Box<dyn FnOnce() -> Result<()> + 'd>),
}

/// Does what it is told, step by step; rolls back when nobody is there any more to tell it.
fn body(orders: mpsc::Receiver<Order>) -> impl FnMut(&mut Transaction) -> Result<()> + Send + 'static {
    move |tx| {
        while let Some(step) = orders.recv().map_err(|_| Error::application("rolled back"))? {
            step(tx)?;
        }
        Ok(())
    }
}

impl<'d> Session<'d> {
    fn begin(db: &'d Database, (isolation, way): How) -> Session<'d> {
        let options =
            TransactOptions { isolation: Some(isolation), no_wait: true, ..TransactOptions::default() };
        let (steps, orders) = mpsc::channel();
        let goes_on = match way {
            Way::Dynamic => GoesOn::Alone(Box::new(db.begin_with(&options).unwrap())),
            Way::Hybrid => {
                let options = TransactOptions { read_mode: Some(ReadMode::Hybrid), ..options };
                GoesOn::Alone(Box::new(db.begin_with(&options).unwrap()))
            }
            Way::Planned => {
                let db = db.clone();
                let run = move || db.plan().read(ELSEWHERE, 0).options(options).run(body(orders));
                let running = thread::spawn(run);
                GoesOn::Told(steps, Box::new(|| running.join().unwrap()))
            }
            Way::Submitted => {
                let submitted = db.plan().read(ELSEWHERE, 0).options(options).submit(body(orders)).unwrap();
                GoesOn::Told(steps, Box::new(|| submitted.wait()))
            }
            Way::Served => {
                let serving = serve(db, &options, |plan| plan.read(ELSEWHERE, 0), body(orders)).unwrap();
                GoesOn::Told(steps, serving)
            }
        };
        let mut session = Session { db, id: TxnId(0), goes_on: Some(goes_on) };
        session.id = session.step(|tx| Ok(tx.id())).unwrap();
        session
    }

    /// Runs a step; `None` when it was refused, or the transaction is gone.
    fn step<R: Send + 'static>(
        &mut self,
        step: impl FnOnce(&mut Transaction) -> Result<R> + Send + 'static,
    ) -> Option<R> {
        let refusal = |error: Error| match &error {
            Error::WouldBlock(lock) => {
                assert!(!lock.blockers.is_empty(), "somebody is in the way");
                error
            }
            Error::PlanMiss | Error::StaleReads => error,
            _ => panic!("{error}"),
        };
        let done = match self.goes_on.as_mut()? {
            GoesOn::Alone(tx) => step(tx).map_err(refusal).ok(),
            GoesOn::Told(steps, _) => {
                let (answer, result) = mpsc::sync_channel(1);
                let step = move |tx: &mut Transaction| {
                    let done = step(tx).map_err(refusal)?;
                    answer.send(done).unwrap();
                    Ok(())
                };
                steps.send(Some(Box::new(step))).unwrap();
                // A refusal takes the other end away.
                result.recv().ok()
            }
        };
        if done.is_none() {
            self.rollback();
        }
        done
    }

    fn get(&mut self, key: i32) -> Option<i32> {
        self.step(move |tx| tx.get(TEST, key)).flatten()
    }

    fn put(&mut self, key: i32, value: i32) {
        self.step(move |tx| tx.put(TEST, key, value));
    }

    /// All rows.
    fn scan(&mut self) -> Option<Vec<(i32, i32)>> {
        self.step(|tx| tx.range(TEST, ..)?.collect())
    }

    /// The rows whose value is a multiple of three: a predicate.
    fn threes(&mut self) -> Option<Vec<(i32, i32)>> {
        self.scan().map(|rows| rows.into_iter().filter(|(_, value)| value % 3 == 0).collect())
    }

    fn rollback(&mut self) {
        match self.goes_on.take() {
            None => {}
            Some(GoesOn::Alone(tx)) => tx.rollback().unwrap(),
            Some(GoesOn::Told(steps, end)) => {
                drop(steps);
                // Who leaves its plan runs again: either it was refused what it had met, or it was told to roll back.
                let error = end().unwrap_err();
                assert!(matches!(error, Error::Application(_) | Error::WouldBlock(_)), "{error}");
            }
        }
    }

    /// Whether it was still there to commit.
    fn commit(&mut self) -> bool {
        match self.goes_on.take() {
            None => return false,
            Some(GoesOn::Alone(tx)) => match tx.commit() {
                Err(Error::StaleReads) => return false,
                committed => committed.unwrap(),
            },
            Some(GoesOn::Told(steps, end)) => {
                steps.send(None).unwrap();
                end().unwrap();
            }
        }
        // Those of a submitted transaction are given back behind its result.
        let deadline = Instant::now() + PATIENCE;
        while self.db.locks().locks.iter().any(|lock| lock.transaction.id == self.id) {
            assert!(Instant::now() < deadline, "its locks stay");
            thread::yield_now();
        }
        true
    }
}

fn rows(db: &Database) -> Vec<(i32, i32)> {
    db.transact(|tx| tx.range(TEST, ..)?.collect()).unwrap()
}

/// Write cycles: two transactions overwrite two rows in opposite order.
fn g0(db: &Database, how: How) -> bool {
    let (mut t1, mut t2) = (Session::begin(db, how), Session::begin(db, how));
    t1.put(1, 11);
    t2.put(1, 12);
    t2.put(2, 22);
    t1.put(2, 21);
    let committed = [t1.commit(), t2.commit()];
    assert!(committed.contains(&true));
    committed == [true, true] && rows(db) == [(1, 12), (2, 21)]
}

/// Aborted read.
fn g1a(db: &Database, how: How) -> bool {
    let (mut t1, mut t2) = (Session::begin(db, how), Session::begin(db, how));
    t1.put(1, 101);
    let seen = t2.get(1);
    t1.rollback();
    t2.commit() && seen == Some(101)
}

/// Intermediate read.
fn g1b(db: &Database, how: How) -> bool {
    let (mut t1, mut t2) = (Session::begin(db, how), Session::begin(db, how));
    t1.put(1, 101);
    let seen = t2.get(1);
    t1.put(1, 11);
    assert!(t1.commit());
    t2.commit() && seen == Some(101)
}

/// Circular information flow.
fn g1c(db: &Database, how: How) -> bool {
    let (mut t1, mut t2) = (Session::begin(db, how), Session::begin(db, how));
    t1.put(1, 11);
    t2.put(2, 22);
    let (of_t2, of_t1) = (t1.get(2), t2.get(1));
    t1.commit() & t2.commit() && (of_t2, of_t1) == (Some(22), Some(11))
}

/// Observed transaction vanishes.
fn otv(db: &Database, how: How) -> bool {
    let [mut t1, mut t2, mut t3] = [(); 3].map(|()| Session::begin(db, how));
    t1.put(1, 11);
    t1.put(2, 19);
    t2.put(1, 12);
    assert!(t1.commit());
    let (first, second) = (t3.get(1), t3.get(2));
    t2.put(2, 18);
    t2.commit() & t3.commit() && (first, second) == (Some(12), Some(19))
}

/// Predicate-many-preceders: a row appears in a predicate that was read before.
fn pmp(db: &Database, how: How) -> bool {
    let (mut t1, mut t2) = (Session::begin(db, how), Session::begin(db, how));
    let before = t1.threes();
    t2.step(|tx| tx.insert(TEST, 3, 30));
    t2.commit();
    let after = t1.threes();
    t1.commit() && before != after
}

/// The same for a predicate that is written: T1 raises all values by 10, T2 deletes where the value is 20, and meets
/// one row after the raise and the other before it.
fn pmp_write(db: &Database, how: How) -> bool {
    let (mut t1, mut t2) = (Session::begin(db, how), Session::begin(db, how));
    assert_eq!(t1.scan(), Some(vec![(1, 10), (2, 20)]));
    t1.step(|tx| tx.update(TEST, 1, 20));
    for (key, value) in t2.scan().unwrap_or_default() {
        if value == 20 {
            t2.step(move |tx| tx.delete(TEST, key));
        }
    }
    t1.step(|tx| tx.update(TEST, 2, 30));
    let committed = [t1.commit(), t2.commit()];
    // T1 before T2 leaves 2 → 30, and T2 before T1 leaves 1 → 20.
    committed == [true, true] && rows(db).is_empty()
}

/// Lost update.
fn p4(db: &Database, how: How) -> bool {
    let (mut t1, mut t2) = (Session::begin(db, how), Session::begin(db, how));
    let (seen_1, seen_2) = (t1.get(1), t2.get(1));
    t1.put(1, seen_1.unwrap_or(0) + 1);
    let first = t1.commit();
    t2.put(1, seen_2.unwrap_or(0) + 1);
    let second = t2.commit();
    first && second && rows(db)[0] == (1, 11)
}

/// Read skew.
fn g_single(db: &Database, how: How) -> bool {
    let (mut t1, mut t2) = (Session::begin(db, how), Session::begin(db, how));
    let first = t1.get(1);
    t2.put(1, 12);
    t2.put(2, 18);
    t2.commit();
    let second = t1.get(2);
    t1.commit() && (first, second) == (Some(10), Some(18))
}

/// Read skew between two predicates.
fn g_single_predicate(db: &Database, how: How) -> bool {
    let (mut t1, mut t2) = (Session::begin(db, how), Session::begin(db, how));
    let fives = |session: &mut Session<'_>| {
        session.scan().map(|rows| rows.into_iter().filter(|(_, value)| value % 5 == 0).count())
    };
    let before = fives(&mut t1);
    t2.step(|tx| tx.insert(TEST, 3, 30));
    t2.commit();
    let after = t1.threes().map(|rows| rows.len());
    t1.commit() && (before, after) == (Some(2), Some(1))
}

/// Write skew.
fn g2_item(db: &Database, how: How) -> bool {
    let (mut t1, mut t2) = (Session::begin(db, how), Session::begin(db, how));
    let seen_1 = (t1.get(1), t1.get(2));
    let seen_2 = (t2.get(1), t2.get(2));
    t1.put(1, 11);
    let first = t1.commit();
    t2.put(2, 21);
    let second = t2.commit();
    first && second && seen_1 == (Some(10), Some(20)) && seen_2 == (Some(10), Some(20))
}

/// Write skew on a predicate: each inserts what the other looked for.
fn g2(db: &Database, how: How) -> bool {
    let (mut t1, mut t2) = (Session::begin(db, how), Session::begin(db, how));
    let (seen_1, seen_2) = (t1.threes(), t2.threes());
    t1.step(|tx| tx.insert(TEST, 3, 30));
    let first = t1.commit();
    t2.step(|tx| tx.insert(TEST, 4, 42));
    let second = t2.commit();
    first && second && seen_1 == Some(vec![]) && seen_2 == Some(vec![])
}

/// The read-only anomaly of Fekete: the reader sees T2's deposit and not the withdrawal that was decided without it.
fn fekete(db: &Database, how: How) -> bool {
    let [mut t1, mut t2, mut t3] = [(); 3].map(|()| Session::begin(db, how));
    let seen_1 = (t1.get(1), t1.get(2));
    let seen_2 = t2.get(2);
    t2.put(2, seen_2.unwrap_or(0) + 5);
    let second = t2.commit();
    let seen_3 = (t3.get(1), t3.get(2));
    let third = t3.commit();
    t1.put(1, -11);
    let first = t1.commit();
    first && second && third && seen_1 == (Some(10), Some(20)) && seen_3 == (Some(10), Some(25))
}

type Schedule = fn(&Database, How) -> bool;

/// Name, schedule, and at which levels it shows: serializable, repeatable read, read committed. Read committed is as
/// strong as repeatable read: it promises less, but keeps its locks too.
const SCHEDULES: [(&str, Schedule, [bool; 3]); 13] = [
    ("G0", g0, [false, false, false]),
    ("G1a", g1a, [false, false, false]),
    ("G1b", g1b, [false, false, false]),
    ("G1c", g1c, [false, false, false]),
    ("OTV", otv, [false, false, false]),
    ("PMP", pmp, [false, true, true]),
    ("PMP write", pmp_write, [false, false, false]),
    ("P4", p4, [false, false, false]),
    ("G-single", g_single, [false, false, false]),
    ("G-single predicate", g_single_predicate, [false, true, true]),
    ("G2-item", g2_item, [false, false, false]),
    ("G2", g2, [false, true, true]),
    ("Fekete", fekete, [false, false, false]),
];

const LEVELS: [Isolation; 3] = [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted];

#[test]
fn each_level_prevents_what_it_promises_to() {
    for way in Way::ALL {
        for (name, schedule, may_show) in SCHEDULES {
            for (level, may_show) in LEVELS.into_iter().zip(may_show) {
                let db = open(true);
                let shows = schedule(&db, (level, way));
                // What was read without locks is validated at every level.
                let as_promised = shows == may_show || (way == Way::Hybrid && !shows);
                assert!(as_promised, "{name} under {level:?}, {way:?}");
                assert!(db.verify().unwrap().is_sound());
            }
        }
    }
}

#[test]
fn without_locking_every_anomaly_shows() {
    for way in Way::ALL {
        for (name, schedule, _) in SCHEDULES {
            let db = open(false);
            let how = (Isolation::Serializable, way);
            assert!(schedule(&db, how), "{name} must show, {way:?}, or it proves nothing");
        }
    }
}
