//! Attacks on transactions that only read: beside writers that split, merge, move and shorten what is read, beside a
//! compaction and checks, from within each other, after a panic, and before a crash.

use std::{
    collections::BTreeMap,
    iter,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use foreshore::{
    Database, Direction, Durability, Error, Options, ReadMode, ReadTransaction, Result, TableDefinition,
    TransactOptions,
};
use foreshore_testkit::{CrashMode, FaultyDisk};

/// Values that tell where they were torn: a number, and bytes that follow from it.
const NOTES: TableDefinition<&str, &[u8]> = TableDefinition::new("notes");
const NUMBERS: TableDefinition<u32, u64> = TableDefinition::new("numbers");
const TOTAL: u64 = 100_000;
const NAMES: u64 = 300;

fn open(disk: &FaultyDisk, options: Options) -> Database {
    Database::builder().options(options).disk(Arc::new(disk.clone())).open("/db").unwrap()
}

/// Keys of which neighbours have much in common, and others nothing: leaves change their prefixes when they split and
/// merge.
fn name(number: u64) -> String {
    format!("{}/{}{number:04}", number / 60, "common".repeat((number / 20 % 6) as usize))
}

/// As long as the number says: some lie in the leaf, and some in pages of their own.
fn note(amount: u64) -> Vec<u8> {
    let length = match amount % 7 {
        0 => 9000,
        1 => 1500,
        _ => (amount % 60) as usize,
    };
    let bytes = iter::repeat_n((amount % 251) as u8, length);
    amount.to_le_bytes().into_iter().chain(bytes).collect()
}

fn amount(note_read: &[u8]) -> u64 {
    let amount = u64::from_le_bytes(*note_read.first_chunk().unwrap());
    assert!(note_read == note(amount), "a value of {} bytes is torn", note_read.len());
    amount
}

/// Moves a part of one note to another one; notes that have nothing are not there.
fn transfer(db: &Database, from: u64, to: u64, part: u64) -> Result<()> {
    db.transact(|tx| {
        let (from, to) = (&*name(from), &*name(to));
        let Some(has) = tx.get_for_update_with(NOTES, from, amount)? else { return Ok(()) };
        let moves = has.checked_div(part).unwrap_or(has);
        if from == to || moves == 0 {
            return Ok(());
        }
        if moves == has {
            tx.delete(NOTES, from)?;
        } else {
            tx.put(NOTES, from, &note(has - moves)[..])?;
        }
        let had = tx.get_for_update_with(NOTES, to, amount)?.unwrap_or(0);
        tx.put(NOTES, to, &note(had + moves)[..])?;
        Ok(())
    })
}

/// Everything, looked at in one of several ways.
fn look(tx: &mut ReadTransaction<'_>, way: u64) -> Result<BTreeMap<String, u64>> {
    let mut seen = BTreeMap::new();
    match way {
        0 | 1 => {
            let direction = if way == 0 { Direction::Ascending } else { Direction::Descending };
            let mut last: Option<Vec<u8>> = None;
            tx.scan(NOTES, .., direction, |key, value| {
                let expected = if way == 0 { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater };
                assert!(last.as_deref().is_none_or(|last| last.cmp(key) == expected), "out of order");
                last = Some(key.to_vec());
                let serial = seen.len();
                seen.insert(format!("{serial}"), amount(value));
                ControlFlow::Continue(())
            })?;
        }
        2 => {
            for entry in tx.range(NOTES, ..)? {
                let (key, value) = entry?;
                assert!(seen.insert(key, amount(&value)).is_none());
            }
        }
        3 => {
            let mut range = tx.range(NOTES, ..)?;
            loop {
                let two = [range.next(), range.next_back()];
                let ends = two.iter().any(Option::is_none);
                for entry in two.into_iter().flatten() {
                    let (key, value) = entry?;
                    assert!(seen.insert(key, amount(&value)).is_none(), "given twice");
                }
                if ends {
                    break;
                }
            }
        }
        _ => {
            for number in 0..NAMES {
                let name = name(number);
                if let Some(amount) = tx.get_with(NOTES, &name, amount)? {
                    seen.insert(name, amount);
                }
            }
        }
    }
    Ok(seen)
}

/// Ends those who run beside it when it is dropped, also by a failed assertion.
struct Ends<'s>(&'s AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whatever a reader is given belongs together, in whatever way it looks, with tiny nodes and a pool that does not hold
/// them all.
#[test]
fn what_a_reader_returns_belongs_together() {
    let options = Options { pool_bytes: 1 << 20, node_capacity: 6, ..Options::default() };
    let db = open(&FaultyDisk::new(), options);
    db.transact(|tx| {
        (0..100).try_for_each(|from| tx.put(NOTES, &name(from), &note(TOTAL / 100)[..]).map(drop))
    })
    .unwrap();
    let (over, looks, runs) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for writer in 0..2_u64 {
            let (db, over) = (&db, &over);
            scope.spawn(move || {
                let mut state = writer + 1;
                while !over.load(Ordering::Relaxed) {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let (from, to) = ((state >> 40) % NAMES, (state >> 20) % NAMES);
                    transfer(db, from, to, (state >> 60) % 4).unwrap();
                }
            });
        }
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                db.compact().unwrap();
                let report = db.verify().unwrap();
                assert_eq!(report.problems, [""; 0]);
            }
        });
        let _ends = Ends(&over);
        let begun = Instant::now();
        for way in (0..5).cycle() {
            // In each way, however slow the machine is.
            let enough = looks.load(Ordering::Relaxed) >= 5;
            if begun.elapsed() > Duration::from_secs(3) && enough {
                break;
            }
            assert!(enough || begun.elapsed() < Duration::from_secs(120), "readers do not get through");
            let seen = db
                .read(|tx| {
                    runs.fetch_add(1, Ordering::Relaxed);
                    look(tx, way)
                })
                .unwrap();
            assert_eq!(seen.values().sum::<u64>(), TOTAL, "way {way}: {seen:?}");
            looks.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (looks, runs) = (looks.into_inner(), runs.into_inner());
    println!("{looks} looks in {runs} runs");
    assert_eq!(db.verify().unwrap().problems, [""; 0]);
}

/// A thread keeps the memory of its last scan. Scans within scans, and those that a panic or a break ends, get in
/// nobody's way.
#[test]
fn scans_within_scans_have_memory_of_their_own() {
    let db = open(&FaultyDisk::new(), Options { node_capacity: 5, ..Options::default() });
    db.transact(|tx| (0..60).try_for_each(|key| tx.put(NUMBERS, key, u64::from(key)).map(drop))).unwrap();
    let keys = |from: u32, direction, depth| {
        fn visit(db: &Database, from: u32, direction: Direction, depth: u32) -> Vec<u32> {
            let mut met = Vec::new();
            db.read(|tx| {
                met.clear();
                tx.scan(NUMBERS, from..from + 20, direction, |key, _| {
                    // Encoded, a number is in the order of its bytes.
                    met.push(u32::from_be_bytes(*key.last_chunk().unwrap()));
                    if depth > 0 {
                        let other = if direction == Direction::Ascending {
                            Direction::Descending
                        } else {
                            Direction::Ascending
                        };
                        assert_eq!(visit(db, from + 7, other, depth - 1).len(), 20);
                        // Broken off, and by a panic.
                        db.read(|tx| tx.scan(NUMBERS, .., other, |_, _| ControlFlow::Break(()))).unwrap();
                        let scan =
                            || db.read(|tx| tx.scan(NUMBERS, 3.., direction, |_, _| panic!("planned")));
                        assert!(catch_unwind(AssertUnwindSafe(scan)).is_err());
                    }
                    ControlFlow::Continue(())
                })
            })
            .unwrap();
            met
        }
        visit(&db, from, direction, depth)
    };
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (up, down) = (keys(10, Direction::Ascending, 2), keys(10, Direction::Descending, 1));
    std::panic::set_hook(hook);
    assert_eq!(up, (10..30).collect::<Vec<_>>());
    assert_eq!(down, (10..30).rev().collect::<Vec<_>>());
    // Those that panicked have left no lock.
    let at_once = TransactOptions { no_wait: true, ..TransactOptions::default() };
    db.transact_with(&at_once, |tx| (0..60).try_for_each(|key| tx.put(NUMBERS, key, 0).map(drop))).unwrap();
    assert_eq!(db.verify().unwrap().problems, [""; 0]);
}

/// Who is told of a change is told of one that lasts, though its writer did not wait for the disk: of a value, of one
/// that is gone, of a key that has come, and by each way of reading.
#[test]
fn what_a_reader_returns_outlives_a_crash() {
    let options = Options { flush_interval: Duration::from_secs(3600), ..Options::default() };
    let lazy = TransactOptions { durability: Some(Durability::Lazy), ..TransactOptions::default() };
    for case in 0..24_u64 {
        let disk = FaultyDisk::new();
        let db = open(&disk, options.clone());
        db.transact(|tx| (0..40).try_for_each(|key| tx.put(NUMBERS, key * 2, 1).map(drop))).unwrap();
        if case % 2 == 0 {
            // As far as it has come by now the log is settled.
            db.checkpoint().unwrap();
        }
        db.transact_with(&lazy, |tx| match case / 2 % 3 {
            0 => tx.put(NUMBERS, 20, 2).map(drop),
            1 => tx.delete(NUMBERS, 20).map(drop),
            _ => tx.put(NUMBERS, 21, 2).map(drop),
        })
        .unwrap();
        let look = |tx: &mut ReadTransaction<'_>| {
            Ok(match case / 6 {
                0 if case % 2 == 0 => tx.get_many(NUMBERS, [20, 21])?,
                0 => vec![tx.get(NUMBERS, 20)?, tx.get(NUMBERS, 21)?],
                1 => tx
                    .range(NUMBERS, 19..23)?
                    .map(|entry| entry.map(|(_, value)| Some(value)))
                    .collect::<Result<_>>()?,
                2 => {
                    let mut sum = 0;
                    tx.scan(NUMBERS, 19..23, Direction::Descending, |key, value| {
                        sum = sum * 10 + key.len() as u64 + u64::from(value[0]) + u64::from(value[7]);
                        ControlFlow::Continue(())
                    })?;
                    vec![Some(sum)]
                }
                _ => vec![
                    tx.range(NUMBERS, 19..)?
                        .next()
                        .transpose()?
                        .map(|(key, value)| u64::from(key) * 10 + value),
                ],
            })
        };
        let told = db.read(look).unwrap();
        let left = disk.after_crash(CrashMode::DropUnsynced);
        assert_eq!(open(&left, options.clone()).read(look).unwrap(), told, "case {case}");
    }
}

/// What holds for the first run holds for the one with locks: it has the same deadline, does not wait if it must not,
/// and what it may not read it is not given.
#[test]
fn a_reader_that_runs_again_keeps_to_its_options() {
    let fill = || {
        let db = open(&FaultyDisk::new(), Options::default());
        db.transact(|tx| (0..40).try_for_each(|key| tx.put(NUMBERS, key, 1).map(drop))).unwrap();
        db
    };
    let at_once = TransactOptions { no_wait: true, ..TransactOptions::default() };
    let soon = TransactOptions { deadline: Some(Duration::from_millis(50)), ..TransactOptions::default() };
    let briefly =
        TransactOptions { lock_timeout: Some(Duration::from_millis(50)), ..TransactOptions::default() };
    for (options, expected) in
        [(&at_once, "would_block"), (&soon, "lock_timeout"), (&briefly, "lock_timeout")]
    {
        for disturbed in [false, true] {
            // One of its own: who was disturbed reads with locks from the first run on for a while.
            let db = fill();
            let mut holder = db.begin().unwrap();
            holder.put(NUMBERS, 30, 2).unwrap();
            let mut runs = 0;
            let error = db
                .read_with(options, |tx| {
                    runs += 1;
                    tx.get(NUMBERS, 3)?;
                    if disturbed && runs == 1 {
                        db.transact_with(&at_once, |tx| tx.put(NUMBERS, 3, 5))?;
                        tx.get(NUMBERS, 4)?;
                    }
                    tx.get(NUMBERS, 30)
                })
                .unwrap_err();
            assert_eq!((error.code(), runs), (expected, 1 + i32::from(disturbed)), "{error}");
            holder.rollback().unwrap();
            assert_eq!(db.read(|tx| tx.get(NUMBERS, 30)).unwrap(), Some(1));
        }
    }
    let db = fill();
    // A closed database is read in no other way.
    let locking = TransactOptions { read_mode: Some(ReadMode::Locking), ..TransactOptions::default() };
    let ways = [&TransactOptions::default(), &locking];
    db.close().unwrap();
    for options in ways {
        let error = db.read_with(options, |tx| tx.get(NUMBERS, 30)).unwrap_err();
        assert!(matches!(error, Error::Closed { .. }), "{error}");
    }
}
