//! A crowd that wants the same few records: it is let in by degrees, and nobody waits for himself. One that sleeps is
//! not held back. And a crowd that fills the log faster than it is written.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use foreshore::{Database, Durability, Options, Result, TableDefinition};
use foreshore_env::random::Xorshift;
use foreshore_testkit::FaultyDisk;

const HOT: TableDefinition<u64, u64> = TableDefinition::new("hot");
const RECORDS: u64 = 16;
const THREADS: u64 = 24;
const ROUNDS: u64 = 25;
const TOUCHED: u64 = 6;

fn open(admission_control: bool) -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { admission_control, durability: Durability::Lazy, ..Options::default() };
    let db = Database::builder().options(options).open(directory.path()).unwrap();
    db.transact(|tx| (0..RECORDS).try_for_each(|record| tx.put(HOT, record, 0).map(drop))).unwrap();
    (directory, db)
}

/// Adds one to records in a random order. Others get to run between any two.
fn touch(db: &Database, random: &mut Xorshift) -> Result<()> {
    let records: Vec<_> = (0..TOUCHED).map(|_| random.below(RECORDS)).collect();
    db.transact(|tx| {
        for record in &records {
            let count = tx.get_for_update(HOT, *record)?.unwrap();
            thread::sleep(Duration::from_micros(20));
            tx.put(HOT, *record, count + 1)?;
        }
        Ok(())
    })
}

/// Runs the crowd; gives how many runs were in vain.
fn trample(db: &Database) -> u64 {
    thread::scope(|scope| {
        for seed in 0..THREADS {
            scope.spawn(move || {
                let mut random = Xorshift::new(seed + 1);
                (0..ROUNDS).for_each(|_| touch(db, &mut random).unwrap());
            });
        }
    });
    assert_eq!(sum(db), THREADS * ROUNDS * TOUCHED);
    db.stats().rollbacks
}

#[test]
fn a_crowd_is_let_in_by_degrees() {
    // How much of a crowd comes about depends on the machine, and on what else it does at the moment.
    let begun = Instant::now();
    let (_directory, db) = loop {
        let (directory, db) = open(true);
        let in_vain = trample(&db);
        let (_directory, free) = open(false);
        let trampled = trample(&free);
        assert_eq!(free.stats().admission_waits, 0);
        if db.stats().admission_waits > 0 && in_vain < trampled / 2 {
            break (directory, db);
        }
        let too_late = begun.elapsed() > Duration::from_secs(180);
        assert!(!too_late, "{in_vain} in vain, without control {trampled}: {:?}", db.stats());
    };
    // When the crowd is gone, so is the limit.
    for _ in 0..100_000 {
        if db.stats().admission_limit == 0 {
            return;
        }
        touch(&db, &mut Xorshift::new(9)).unwrap();
    }
    panic!("there is still a limit: {:?}", db.stats());
}

#[test]
fn transactions_inside_of_others_get_through_a_crowd() {
    const OTHER: TableDefinition<u64, u64> = TableDefinition::new("other");
    let (_directory, db) = open(true);
    thread::scope(|scope| {
        let crowd = scope.spawn(|| trample(&db));
        let mut rounds = 0;
        while !crowd.is_finished() {
            rounds += 1;
            db.transact(|_| db.transact(|tx| tx.put(OTHER, rounds, rounds))).unwrap();
        }
        let found =
            db.transact(|tx| tx.range(OTHER, ..)?.try_fold(0, |count, entry| entry.map(|_| count + 1)));
        assert_eq!(found.unwrap(), rounds);
    });
}

/// Adds one to hot records in their order, so that nobody is a victim, from many more threads than there are
/// processors; `pause` before each lock is released.
fn queue_up(db: &Database, threads: u64, rounds: u64, pause: Option<Duration>) {
    thread::scope(|scope| {
        for seed in 0..threads {
            scope.spawn(move || {
                let mut random = Xorshift::new(seed + 1);
                for _ in 0..rounds {
                    let record = random.below(RECORDS / 4);
                    db.transact(|tx| {
                        let count = tx.get_for_update(HOT, record)?.unwrap();
                        pause.into_iter().for_each(thread::sleep);
                        tx.put(HOT, record, count + 1)
                    })
                    .unwrap();
                }
            });
        }
    });
}

fn sum(db: &Database) -> u64 {
    db.transact(|tx| (0..RECORDS).map(|record| Ok(tx.get(HOT, record)?.unwrap())).sum::<Result<u64>>())
        .unwrap()
}

#[test]
fn a_convoy_takes_turns() {
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let (threads, rounds) = (16 * processors, 1000);
    let (_directory, db) = open(true);
    let begun = Instant::now();
    let mut times = 0;
    // Whether threads form one depends on what else this machine does.
    while db.stats().admission_waits == 0 {
        assert!(begun.elapsed() < Duration::from_secs(180), "nobody has waited for a turn: {:?}", db.stats());
        queue_up(&db, threads, rounds, None);
        times += 1;
    }
    assert_eq!(sum(&db), times * threads * rounds);
    assert_eq!(db.stats().deadlocks, 0);
    assert_eq!(db.stats().admission_waiting, 0);
}

/// As it was, most of them stood in the middle of their transactions, each for a few more bytes; the longest ones took
/// seconds, and kept the log from being shortened.
#[test]
fn whoever_fills_the_log_faster_than_it_is_written_takes_turns() {
    const OWN: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("own");
    const ROWS: u64 = 100;
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let options = Options {
        durability: Durability::Lazy,
        log_buffer_bytes: 256 << 10,
        log_segment_bytes: 1 << 20,
        log_bytes: 256 << 20,
        ..Options::default()
    };
    let db = Database::builder().options(options).disk(Arc::new(FaultyDisk::new())).open("/db").unwrap();
    let write = |writer: u64, round: u8| {
        let value = [round; 1000];
        db.transact(|tx| (0..ROWS).try_for_each(|row| tx.put(OWN, (writer, row), &value[..]).map(drop)))
    };
    // Makes the table.
    write(0, 0).unwrap();
    let begun = Instant::now();
    // Whether a crowd comes about depends on what else this machine does.
    while db.stats().admission_waits == 0 {
        assert!(begun.elapsed() < Duration::from_secs(180), "nobody has waited for a turn: {:?}", db.stats());
        thread::scope(|scope| {
            for writer in 0..16 * processors {
                let write = &write;
                scope.spawn(move || (0..20).for_each(|round| write(writer, round).unwrap()));
            }
        });
    }
    let stats = db.stats();
    assert_eq!((stats.lock_waits, stats.admission_waiting), (0, 0), "{stats:?}");
}

#[test]
fn who_sleeps_with_his_locks_is_not_held_back_for_long() {
    // Beside threads that keep the processors busy, so that it may look like a convoy at first.
    let over = AtomicBool::new(false);
    let took = |admission_control| {
        let (_directory, db) = open(admission_control);
        let begun = Instant::now();
        queue_up(&db, 64, 15, Some(Duration::from_millis(2)));
        assert_eq!(sum(&db), 64 * 15);
        begun.elapsed()
    };
    let is_in_time = thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // This machine may have more to do beside one of them than beside the other.
        let is_in_time = (0..20).any(|_| took(true) < 2 * took(false));
        over.store(true, Ordering::Relaxed);
        is_in_time
    });
    assert!(is_in_time);
}
