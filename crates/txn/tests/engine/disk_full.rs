//! A full disk: statements fail with a typed error, and everything that ends work goes on, recovery too (WAL-13).
//!
//! Each test runs at every number of remaining blocks from none to more than are needed: so the disk is full while the
//! log is made longer, while the data file is, while a table is made, and so on. What a crash takes back is free again,
//! no more.

mod rollback;

use std::io;

use foreshore_base::Lsn;
use foreshore_lock::IntentMode;
use foreshore_testkit::CrashMode;

use super::*;

const BLOCK: u64 = 4096;

/// The log asks a full disk again ten times a second; a busy machine is slower.
const PATIENCE: Duration = Duration::from_secs(120);

/// Options whose data file grows often and whose log is not short of anything but space.
fn options() -> EngineOptions {
    let log = LogOptions { capacity_bytes: 64 << 20, ..tiny().log };
    EngineOptions { log, node_capacity: usize::MAX, checkpoint_bytes: 8 << 20, ..tiny() }
}

fn open_full(disk: &FaultyDisk) -> Result<Arc<Engine>> {
    open_with(disk, &options())
}

/// Whether an error says that there is no space.
fn is_no_space(error: &TxnError) -> bool {
    match error {
        TxnError::Storage(StorageError::LogFull { disk_is_full, .. }) => *disk_is_full,
        TxnError::Storage(StorageError::Io { source, .. }) => source.kind() == io::ErrorKind::StorageFull,
        _ => false,
    }
}

fn key(number: u32) -> [u8; 4] {
    // Everywhere in the table, so that nodes are split and pages written all over.
    number.wrapping_mul(2_654_435_761).to_be_bytes()
}

/// What was acknowledged.
fn committed(engine: &Arc<Engine>, context: &str) -> Content {
    read_all(engine).unwrap_or_else(|error| panic!("{context}: {error}"))
}

/// The disk that the next open finds, with as much space as there is on a disk of that size.
fn after_crash(disk: &FaultyDisk, mode: CrashMode, free: u64) -> FaultyDisk {
    let left = disk.after_crash(mode);
    let total = disk.used_space() + free;
    left.set_free_space(Some(total - left.used_space().min(total)));
    left
}

#[test]
fn at_every_number_of_remaining_blocks_what_ends_work_goes_on() {
    let mut refusals = Refusals::default();
    // What has no space first, log or file, depends on how far checkpoints and the maker of spares have come.
    for sweep in 0.. {
        (0..200).step_by(3).for_each(|blocks| with_blocks_left(blocks, &mut refusals));
        if refusals.by_log > 5 && refusals.by_file > 5 {
            break;
        }
        assert!(sweep < 10, "{refusals:?}");
    }
}

/// Statements that had no space.
#[derive(Debug, Default)]
struct Refusals {
    by_log: u32,
    by_file: u32,
}

fn with_blocks_left(blocks: u64, refusals: &mut Refusals) {
    let context = format!("{blocks} blocks");
    let disk = FaultyDisk::new();
    let engine = open_full(&disk).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    (0..40).for_each(|number| put(&engine, &table, &key(number), &[1; 300]));
    if blocks % 2 == 1 {
        // A log that has space: then it is the data file that cannot grow.
        let mut large = begin(&engine);
        for round in 0..6000_u32 {
            large.put(&table, &key(round % 40), &[round as u8; 300]).unwrap();
        }
        large.rollback().unwrap();
    }
    let mut expected = committed(&engine, &context);
    disk.set_free_space(Some(blocks * BLOCK));

    // One that is open all the time, has changed what is there, and more.
    let mut open = begin(&engine);
    let mut error = (0..300).find_map(|number| match number % 3 {
        0 => open.delete(&table, &key(number / 3)).err(),
        1 => open.put(&table, &key(number / 3), &vec![2; number as usize]).err(),
        _ => open.put(&table, &key(10_000 + number), &[2; 500]).err(),
    });
    // And others that commit meanwhile, as long as they can.
    for number in 1000..2200 {
        let mut txn = begin(&engine);
        txn.set_no_wait(true);
        let value = vec![3; 1000 + number as usize % 900];
        match txn.put(&table, &key(number), &value).and_then(|_| txn.commit(Durability::Sync)) {
            Ok(_) => drop(expected.insert(("t".to_owned(), key(number).to_vec()), value)),
            // Beside what the other one has changed.
            Err(TxnError::Lock(_)) => {}
            Err(other) => {
                assert!(is_no_space(&other), "{context}: {other}");
                refusals.by_log +=
                    u32::from(matches!(other, TxnError::Storage(StorageError::LogFull { .. })));
                refusals.by_file += u32::from(matches!(other, TxnError::Storage(StorageError::Io { .. })));
                error = error.or(Some(other));
                break;
            }
        }
    }
    if let Some(error) = &error {
        assert!(is_no_space(error), "{context}: {error}");
    }
    assert_eq!(engine.log().poisoned().map(|error| error.to_string()), None, "{context}");

    // The power fails now: what is left opens without more space, and the open transaction is undone.
    let free = disk.free_space().unwrap();
    for mode in [CrashMode::DropUnsynced, CrashMode::KeepAll, CrashMode::TornRandom(blocks)] {
        let context = format!("{context}, {mode:?}");
        let left = after_crash(&disk, mode, free);
        let engine = open_full(&left).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(committed(&engine, &context) == expected, "{context}: recovered something else");
        assert_sound(&engine, &context);
        engine.close().unwrap_or_else(|error| panic!("{context}: {error}"));
    }
    // Or it does not: rollback, checkpoint, closing and opening need none either.
    open.rollback().unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(committed(&engine, &context) == expected, "{context}: rolled back to something else");
    assert_sound(&engine, &context);
    engine.checkpoint().unwrap_or_else(|error| panic!("{context}: {error}"));
    engine.close().unwrap_or_else(|error| panic!("{context}: {error}"));
    drop(engine);
    let engine = open_full(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(committed(&engine, &context) == expected, "{context}: opened with something else");
    // With space again it goes on as if nothing had been, at the latest when the log has asked for it.
    disk.set_free_space(None);
    let table = engine.table("t").unwrap().unwrap();
    let asked = Instant::now();
    loop {
        let mut txn = begin(&engine);
        match txn.put(&table, b"later", &[9; 3000]).and_then(|_| txn.commit(Durability::Sync)) {
            Ok(_) => break,
            Err(error) => assert!(is_no_space(&error) && asked.elapsed() < PATIENCE, "{context}: {error}"),
        }
    }
    assert_sound(&engine, &context);
}

/// A log that cannot grow is used again and again: on a full disk a database goes on with what it has.
#[test]
fn a_database_on_a_full_disk_goes_on_with_the_log_that_it_has() {
    let disk = FaultyDisk::new();
    let engine = open_full(&disk).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    (0..200).for_each(|number| put(&engine, &table, &key(number), &[1; 300]));
    disk.set_free_space(Some(0));
    let begin_at = engine.log().tail().0;
    for round in 0..20_000_u32 {
        let mut txn = begin(&engine);
        txn.put(&table, &key(round % 200), &[round as u8; 300]).unwrap();
        txn.commit(Durability::Lazy).unwrap();
    }
    assert!(engine.log().tail().0 - begin_at > 40 * (128 << 10), "{:?}", engine.stats());
    engine.close().unwrap();
    let engine = open_full(&disk).unwrap();
    assert_sound(&engine, "opened again");
}

/// A database that was closed in order and used again says that it was closed in order until its first checkpoint; a
/// crash before that left holes, and nobody filled them.
#[test]
fn holes_are_filled_after_a_crash_behind_an_orderly_close() {
    let (mut filled, begun) = (0, Instant::now());
    for seed in 0.. {
        if seed >= 20 && (filled > 0 || begun.elapsed() > PATIENCE) {
            break;
        }
        let disk = FaultyDisk::new();
        let engine = open_full(&disk).unwrap();
        engine.create_table("t", b"").unwrap();
        engine.close().unwrap();
        let engine = open_full(&disk).unwrap();
        assert!(engine.stats().recovery.clean);
        let table = engine.table("t").unwrap().unwrap();
        (0..2000).for_each(|number| put(&engine, &table, &key(number), &[1; 300]));
        let left = disk.after_crash(CrashMode::SubsetRandom(seed));
        let holes = || left.holes(&directory().join("data")).unwrap();
        let before = holes();
        let engine = open_full(&left).unwrap();
        assert_eq!(holes(), 0, "seed {seed}: {before} bytes of holes before");
        filled += u64::from(before > 0);
        assert_sound(&engine, "recovered");
    }
    assert!(filled > 0, "no crash left holes");
}

/// Deletes that no lock on a key covers, because the whole table is locked, or because chunks of long values have no
/// locks: their pages are nobody else's before the commit.
#[test]
fn what_is_deleted_has_room_to_come_back() {
    for (what, rows, value_bytes, whole_table) in
        [("a locked table", 2000, 100, true), ("long values", 60, 20_000, false), ("both", 60, 20_000, true)]
    {
        let disk = FaultyDisk::new();
        let engine = open_full(&disk).unwrap();
        let table = engine.create_table("t", b"").unwrap();
        let value = vec![7; value_bytes];
        (0..rows).for_each(|number: u32| put(&engine, &table, &number.to_be_bytes(), &value));
        let expected = committed(&engine, what);

        let mut open = begin(&engine);
        if whole_table {
            open.lock_table(&table, IntentMode::X).unwrap();
        }
        for number in 0..rows {
            assert!(open.delete(&table, &number.to_be_bytes()).unwrap());
        }
        // Who only finds out what it is going to lock has locked no table.
        let mut looks = begin(&engine);
        looks.begin_reconnaissance();
        assert!(scan(&mut looks, &table).unwrap().is_empty());
        looks.end_reconnaissance();
        looks.rollback().unwrap();
        disk.set_free_space(Some(0));
        // Each takes a page, and next to nothing of the log.
        let full = (0..).find_map(|number| engine.create_table(&format!("other {number}"), b"").err());
        let full = full.expect("disks are finite");
        assert!(matches!(full, TxnError::Storage(StorageError::Io { .. })), "{what}: {full}");
        open.rollback().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(committed(&engine, what) == expected, "{what}: rolled back to something else");
        assert_sound(&engine, what);
    }
}

/// And after the commit they are others', though nobody comes by any more.
#[test]
fn long_values_leave_their_pages_when_their_delete_commits() {
    let disk = FaultyDisk::new();
    let engine = open_full(&disk).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let fill = || (0..60_u32).for_each(|number| put(&engine, &table, &number.to_be_bytes(), &[7; 20_000]));
    fill();
    let used = |engine: &Engine| engine.stats().pages - engine.stats().pages_free;
    let pages = used(&engine);
    // What a transaction had to leave, because the log had no room for a moment, the reaper purges a little later.
    let leave = || {
        let begun = Instant::now();
        while used(&engine) > pages + pages / 4 {
            assert!(begun.elapsed() < PATIENCE, "{} pages for {pages}", used(&engine));
            thread::sleep(Duration::from_millis(1));
        }
    };
    for round in 0..10 {
        let mut txn = begin(&engine);
        for number in 0..60_u32 {
            assert!(txn.delete(&table, &number.to_be_bytes()).unwrap());
        }
        if round % 2 == 0 {
            txn.commit(Durability::Lazy).unwrap();
        } else {
            txn.prepare(b"global").unwrap();
            engine.commit_prepared(b"global").unwrap();
        }
        fill();
    }
    leave();
    // What a rollback has buried goes with it.
    let mut txn = begin(&engine);
    (100..160_u32).for_each(|number| assert!(!txn.put(&table, &number.to_be_bytes(), &[7; 20_000]).unwrap()));
    txn.rollback().unwrap();
    leave();
    assert_sound(&engine, "at the end");
}
