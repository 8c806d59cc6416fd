//! What may be at the path of a database, and what must not be touched there.

use std::{
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Wake, Waker},
};

use foreshore_base::{CorruptionSite, StorageError};
use foreshore_env::{
    disk::{Disk, OpenMode},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use foreshore_lock::KeyRef;
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_txn::{
    DeadlockPolicy, Durability, Engine, EngineOptions, IntentMode, LockOptions, LogOptions, PoolOptions, Txn,
    TxnError,
};

use crate::{assert_sound, begin, directory, get, open, open_with, put, read_all, scan, tiny};

fn path(name: &str) -> PathBuf {
    directory().join(name)
}

/// A closed database with one table and some rows.
fn made() -> FaultyDisk {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = engine.create_table("t", b"types").unwrap();
    for number in 0..50_u32 {
        put(&engine, &table, &number.to_be_bytes(), &[7; 100]);
    }
    engine.close().unwrap();
    disk
}

/// All files with their bytes.
fn everything(disk: &FaultyDisk) -> Vec<(PathBuf, Vec<u8>)> {
    disk.files().into_iter().map(|path| (path.clone(), disk.read_file(&path).unwrap())).collect()
}

#[test]
fn a_database_is_made_opened_and_opened_again() {
    let disk = made();
    for _ in 0..3 {
        let engine = open(&disk).unwrap();
        assert!(engine.stats().recovery.clean);
        let table = engine.table("t").unwrap().unwrap();
        assert_eq!((table.name(), table.meta()), ("t", &b"types"[..]));
        assert_eq!(read_all(&engine).unwrap().len(), 50);
        assert_sound(&engine, "reopened");
        engine.close().unwrap();
        engine.close().unwrap();
    }
}

#[test]
fn nothing_is_made_where_none_was_asked_for() {
    let disk = FaultyDisk::new();
    let error = open_with(&disk, &EngineOptions { create: false, ..tiny() }).unwrap_err();
    assert!(matches!(error, StorageError::Io { .. }), "{error}");
    assert!(disk.files().is_empty());
    assert!(!disk.exists(directory()).unwrap());
}

#[test]
fn only_one_at_a_time() {
    let disk = made();
    let engine = open(&disk).unwrap();
    assert!(matches!(open(&disk), Err(StorageError::AlreadyOpen { .. })));
    engine.close().unwrap();
    let again = open(&disk).unwrap();
    drop(engine);
    assert!(matches!(open(&disk), Err(StorageError::AlreadyOpen { .. })), "the first gave up its lock once");
    drop(again);
    open(&disk).unwrap();
}

#[test]
fn strangers_are_left_alone() {
    let cases: [&[(&str, &[u8])]; 5] = [
        &[("letter.txt", b"Dear")],
        &[("data", b"mine")],
        &[("control.new", b"mine too")],
        &[("control", b"a control file of something else")],
        &[("control.new", b""), ("notes", b"x")],
    ];
    for files in cases {
        let disk = FaultyDisk::new();
        disk.create_directory(directory()).unwrap();
        for (name, bytes) in files {
            disk.write_file(&path(name), bytes).unwrap();
        }
        let before = everything(&disk);
        let error = open(&disk).unwrap_err();
        assert!(matches!(error, StorageError::NotADatabase { .. }), "{files:?}: {error}");
        assert_eq!(everything(&disk), before, "{files:?}");
    }
}

#[test]
fn a_file_is_no_database() {
    let disk = FaultyDisk::new();
    disk.write_file(directory(), b"a file").unwrap();
    let error = open(&disk).unwrap_err();
    assert!(matches!(error, StorageError::NotADatabase { .. }), "{error}");
}

#[test]
fn what_is_missing_is_named() {
    for name in ["data", "log", "control"] {
        let disk = made();
        if name == "log" {
            for file in disk.list(&path("log")).unwrap() {
                disk.remove(&file).unwrap();
            }
        } else {
            disk.remove(&path(name)).unwrap();
        }
        match open(&disk).unwrap_err() {
            StorageError::Corrupted { site: CorruptionSite::File(file), .. } => {
                assert!(file.starts_with(path(name)), "{name}: {}", file.display());
            }
            StorageError::Corrupted { site: CorruptionSite::Log(_), .. } if name == "log" => {}
            error => panic!("{name}: {error}"),
        }
    }
}

/// WAL-14. A log of several segments whose process died: without its last one, its last two, or all but the first,
/// opening says which file is gone, and what to do.
#[test]
fn the_end_of_the_log_is_missed() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    // Nobody releases the log meanwhile.
    let mut old = begin(&engine);
    old.put(&table, b"old", b"").unwrap();
    for number in 0..600_u32 {
        put(&engine, &table, &number.to_be_bytes(), &[7; 700]);
    }
    let disk = disk.after_crash(CrashMode::DropUnsynced);
    let mut segments = disk.list(&path("log")).unwrap();
    segments.retain(|path| path.extension().is_some_and(|end| end == "log"));
    segments.sort();
    assert!(segments.len() >= 4, "{segments:?}");
    for kept in 1..segments.len() {
        let image = disk.after_crash(CrashMode::KeepAll);
        for file in &segments[kept..] {
            image.remove(file).unwrap();
        }
        match open(&image) {
            Err(StorageError::Corrupted { site: CorruptionSite::File(file), detail }) => {
                assert_eq!(file, segments[kept]);
                assert!(detail.contains("put the file back") && detail.contains("salvage"), "{detail}");
            }
            result => panic!("{kept} of {} kept: {result:?}", segments.len()),
        }
    }
    assert_eq!(read_all(&open(&disk).unwrap()).unwrap().len(), 600);
    drop(old);
}

#[test]
fn the_control_file_is_repaired_or_reported() {
    let disk = made();
    disk.flip_bit(&path("control"), 44, 1);
    open(&disk).unwrap().close().unwrap();
    disk.flip_bit(&path("control"), 4096 + 44, 1);
    open(&disk).unwrap().close().unwrap();
    disk.flip_bit(&path("control"), 44, 1);
    disk.flip_bit(&path("control"), 4096 + 44, 1);
    let damaged = everything(&disk);
    assert!(matches!(open(&disk), Err(StorageError::Corrupted { .. })));
    assert_eq!(everything(&disk), damaged, "a damaged database is left for whoever can do more");
}

/// A sector of the control file that the disk does not give any more made the database impossible to open, though the
/// other slot is sound.
#[test]
fn one_slot_of_the_control_file_that_can_be_read_is_enough() {
    let original = made();
    for unreadable in [vec![0], vec![4096], vec![0, 4096]] {
        let disk = original.after_crash(CrashMode::KeepAll);
        unreadable.iter().for_each(|&slot| disk.fail_reads(&path("control"), slot..slot + 4096));
        match open(&disk) {
            Ok(engine) if unreadable.len() == 1 => {
                assert_eq!(read_all(&engine).unwrap().len(), 50, "without {unreadable:?}");
                engine.close().unwrap();
            }
            Err(StorageError::Io { path: file, .. }) if unreadable.len() == 2 => {
                assert_eq!(file, path("control"));
            }
            other => panic!("without {unreadable:?}: {other:?}"),
        }
        // The disk gives another sector for one that it is to write: both are as the last checkpoint has written them.
        disk.heal_reads();
        let bytes = disk.read_file(&path("control")).unwrap();
        assert!(bytes[..4096] == bytes[4096..], "without {unreadable:?}");
    }
}

/// Either slot of the control file is overwritten whole, or the second is cut off: the other one is enough, and with
/// the next checkpoint there are two again.
#[test]
fn one_slot_of_the_control_file_is_enough() {
    const SLOT: usize = 4096;
    let original = made();
    let bytes = original.read_file(&path("control")).unwrap();
    let overwritten = |bytes: &[u8], slot: usize, byte: u8| {
        let mut bytes = bytes.to_vec();
        bytes[slot * SLOT..][..SLOT].fill(byte);
        bytes
    };
    let mut cases = vec![bytes[..SLOT].to_vec()];
    for byte in [0, 0x5A] {
        cases.extend([0, 1].map(|slot| overwritten(&bytes, slot, byte)));
    }
    for (number, control) in cases.into_iter().enumerate() {
        let disk = original.after_crash(CrashMode::KeepAll);
        disk.write_file(&path("control"), &control).unwrap();
        let engine = open(&disk).unwrap_or_else(|error| panic!("case {number}: {error}"));
        assert_eq!(read_all(&engine).unwrap().len(), 50, "case {number}");
        put(&engine, &engine.table("t").unwrap().unwrap(), b"more", b"");
        engine.close().unwrap();
        drop(engine);
        let whole = disk.read_file(&path("control")).unwrap();
        for slot in [0, 1] {
            disk.write_file(&path("control"), &overwritten(&whole, slot, 0)).unwrap();
            assert_eq!(read_all(&open(&disk).unwrap()).unwrap().len(), 51, "case {number}, then slot {slot}");
        }
    }
}

#[test]
fn another_format_is_refused() {
    let disk = made();
    let mut bytes = disk.read_file(&path("control")).unwrap();
    for slot in [0, 4096] {
        bytes[slot + 8] = 99;
    }
    disk.write_file(&path("control"), &bytes).unwrap();
    match open(&disk).unwrap_err() {
        StorageError::UpgradeRequired { found: 99, .. } => {}
        error => panic!("{error}"),
    }
}

/// A log that ends before the control file's checkpoint was lost to a disk that lied about a sync, or is of another
/// copy.
#[test]
fn a_log_that_is_too_short_is_reported() {
    let disk = made();
    for file in disk.list(&path("log")).unwrap() {
        let mut bytes = disk.read_file(&file).unwrap();
        bytes[4096..].fill(0);
        disk.write_file(&file, &bytes).unwrap();
    }
    let error = open(&disk).unwrap_err();
    assert!(matches!(error, StorageError::Corrupted { .. }), "{error}");
}

/// The disk lied about a sync of the log, or log and pages were copied at different
/// times.
#[test]
fn pages_that_are_newer_than_the_log_are_reported() {
    let disk = made();
    let log_then: Vec<_> =
        everything(&disk).into_iter().filter(|(path, _)| !path.ends_with("data")).collect();
    let engine = open(&disk).unwrap();
    let table = engine.table("t").unwrap().unwrap();
    for number in 0..50_u32 {
        put(&engine, &table, &number.to_be_bytes(), &[8; 100]);
    }
    engine.close().unwrap();
    drop(engine);
    for (path, bytes) in log_then {
        disk.write_file(&path, &bytes).unwrap();
    }
    let result = open(&disk).map_err(Into::into).and_then(|engine| read_all(&engine));
    match result {
        Err(TxnError::Storage(StorageError::Corrupted { .. })) => {}
        other => panic!("{other:?}"),
    }
}

/// Every byte of the files of a small database, flipped: a typed error, or the right content.
#[test]
fn a_flipped_bit_anywhere_is_never_wrong_data() {
    let original = made();
    let expected = read_all(&open(&original).unwrap()).unwrap();
    let original = original.after_crash(CrashMode::DropUnsynced);
    let (mut refused, mut fine) = (0, 0);
    for file in original.files() {
        let bytes = original.read_file(&file).unwrap();
        // Bytes that say something lie before the last one that is not zero.
        let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let stride = (used / 400).max(1);
        for byte in (0..used).step_by(stride) {
            let disk = original.after_crash(CrashMode::DropUnsynced);
            disk.flip_bit(&file, byte as u64, (byte % 8) as u8);
            let context = format!("byte {byte} of {}", file.display());
            match open(&disk).map_err(Into::into).and_then(|engine| read_all(&engine)) {
                Ok(content) if content == expected => fine += 1,
                Ok(_) => panic!("{context}: wrong data"),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 0 && fine > 0, "{refused} refused, {fine} fine");
    println!("{refused} refused, {fine} fine");
}

#[test]
fn an_open_transaction_keeps_the_engine_open() {
    let disk = made();
    let engine = open(&disk).unwrap();
    let table = engine.table("t").unwrap().unwrap();
    let mut txn = begin(&engine);
    drop(engine);
    txn.put(&table, b"late", b"value").unwrap();
    assert!(matches!(open(&disk), Err(StorageError::AlreadyOpen { .. })));
    txn.commit(Durability::Sync).unwrap();
    let engine = open(&disk).unwrap();
    assert_eq!(read_all(&engine).unwrap().len(), 51);
}

#[test]
fn closing_ends_what_is_open() {
    let disk = made();
    let engine = open(&disk).unwrap();
    let table = engine.table("t").unwrap().unwrap();
    let mut txn = begin(&engine);
    txn.put(&table, b"never", b"committed").unwrap();
    engine.close().unwrap();
    let closed = |error: TxnError| {
        assert!(matches!(error, TxnError::Storage(StorageError::Closed)), "{error}");
    };
    closed(txn.put(&table, b"x", b"y").unwrap_err());
    closed(txn.commit(Durability::Sync).unwrap_err());
    closed(engine.begin(Default::default()).unwrap_err());
    closed(engine.create_table("u", b"").unwrap_err());
    let again = open(&disk).unwrap();
    let report = again.stats().recovery;
    assert_eq!((report.clean, report.losers), (false, 1));
    assert_eq!(read_all(&again).unwrap().len(), 50);
    assert_sound(&again, "reopened");
}

/// Closes an engine where it is woken, on a disk that is slow from then on.
struct Closes {
    engine: Arc<Engine>,
    disk: FaultyDisk,
    has: AtomicBool,
}

impl Wake for Closes {
    fn wake(self: Arc<Self>) {
        self.disk.hold_syncs(true);
        self.engine.close().unwrap();
        self.has.store(true, Ordering::Release);
    }
}

/// It said at once that all was durable, and that others may open the database.
#[test]
fn a_second_close_waits_for_one_that_another_thread_does() {
    let disk = made();
    let engine = open(&disk).unwrap();
    let table = engine.table("t").unwrap().unwrap();
    let mut txn = begin(&engine);
    txn.put(&table, b"key", b"value").unwrap();
    disk.hold_syncs(true);
    let mut ticket = txn.commit_pipelined().unwrap();
    let closes = Closes { engine: Arc::clone(&engine), disk: disk.clone(), has: AtomicBool::new(false) };
    let closes = Arc::new(closes);
    let waker = Waker::from(Arc::clone(&closes));
    assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
    disk.hold_syncs(false);
    let begun = Instant::now();
    while !closes.has.load(Ordering::Acquire) {
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody was woken");
        thread::sleep(Duration::from_millis(1));
    }
    thread::scope(|scope| {
        let second = scope.spawn(|| engine.close());
        thread::sleep(Duration::from_millis(50));
        let waits = !second.is_finished();
        disk.hold_syncs(false);
        second.join().unwrap().unwrap();
        assert!(waits);
    });
    assert!(open(&disk).unwrap().stats().recovery.clean);
}

/// Of those who wait for a key and for a table that a transaction has which lives on: how their waits end, once each of
/// them waits and `end` is called.
fn waits_that_end_with(locks: LockOptions, end: impl FnOnce(&Engine)) -> [TxnError; 2] {
    let disk = made();
    let engine = open_with(&disk, &EngineOptions { locks, ..tiny() }).unwrap();
    let (table, other) = (engine.table("t").unwrap().unwrap(), engine.create_table("other", b"").unwrap());
    let mut holder = begin(&engine);
    holder.put(&table, b"key", b"never committed").unwrap();
    holder.lock_table(&other, IntentMode::X).unwrap();
    let far = Instant::now() + Duration::from_secs(60);
    let errors = thread::scope(|scope| {
        let waiters = [&table, &other].map(|table| {
            let mut txn = begin(&engine);
            txn.set_deadline(Some(far));
            scope.spawn(move || get(&mut txn, table, b"key").unwrap_err())
        });
        while engine.locks().waiters().len() < 2 {
            assert!(Instant::now() < far, "they do not come to wait");
            thread::yield_now();
        }
        end(&engine);
        waiters.map(|waiter| waiter.join().unwrap())
    });
    assert!(Instant::now() < far - Duration::from_secs(30), "they went on waiting");
    drop(holder);
    engine.close().ok();
    assert_eq!(read_all(&open(&disk).unwrap()).unwrap().len(), 50);
    errors
}

/// Under every policy a wait is looked after in another way, but where nobody waits for an older one.
fn over_policies(test: impl Fn(LockOptions)) {
    let waits = |policy: &DeadlockPolicy| !matches!(policy, DeadlockPolicy::NoWait | DeadlockPolicy::WaitDie);
    for deadlock in DeadlockPolicy::ALL.into_iter().filter(waits) {
        let deadlock_timeout = Duration::from_secs(60);
        test(LockOptions { deadlock, deadlock_timeout, ..tiny().locks });
    }
}

#[test]
fn closing_ends_waits_for_locks() {
    over_policies(|locks| {
        for error in waits_that_end_with(locks, |engine| engine.close().unwrap()) {
            assert!(matches!(error, TxnError::Storage(StorageError::Closed)), "{error}");
        }
    });
}

#[test]
fn a_log_that_fails_ends_waits_for_locks() {
    over_policies(|locks| {
        for error in waits_that_end_with(locks, |engine| engine.log().poison("the disk is gone")) {
            assert!(error.to_string().contains("the disk is gone"), "{error}");
            assert!(matches!(error, TxnError::Storage(StorageError::Poisoned { .. })), "{error}");
        }
    });
}

/// TXN-39. A reader waits for a key whose writer cannot undo what it has done, since `end` has ended the database: the
/// reader is not told of it, nor is anybody else given the lock, by which reads without locks would know.
fn nobody_sees_what_was_not_undone(give_up: impl Fn(Txn), end: impl Fn(&Engine)) {
    for round in 0..20_u32 {
        let disk = made();
        let engine = open(&disk).unwrap();
        let table = engine.table("t").unwrap().unwrap();
        let key = (round % 50).to_be_bytes();
        let mut writer = begin(&engine);
        writer.put(&table, &key, b"never committed").unwrap();
        let mut reader = begin(&engine);
        let far = Instant::now() + Duration::from_secs(60);
        reader.set_deadline(Some(far));
        let seen = thread::scope(|scope| {
            let reader = scope.spawn(|| get(&mut reader, &table, &key));
            while engine.locks().waiters().is_empty() {
                assert!(Instant::now() < far, "it does not come to wait");
                thread::yield_now();
            }
            end(&engine);
            give_up(writer);
            reader.join().unwrap()
        });
        assert!(matches!(seen, Err(TxnError::Storage(_))), "{seen:?}");
        drop(reader);
        assert!(engine.locks().has_requests(table.id(), KeyRef::Key(&key)), "round {round}");
        engine.close().ok();
        let content = read_all(&open(&disk).unwrap()).unwrap();
        assert!(content.len() == 50 && content.values().all(|value| *value == [7; 100]));
    }
}

#[test]
fn nobody_sees_what_a_failing_log_did_not_let_undo() {
    let end = |engine: &Engine| engine.log().poison("the disk is gone");
    nobody_sees_what_was_not_undone(drop, end);
    nobody_sees_what_was_not_undone(|writer| drop(writer.rollback().unwrap_err()), end);
    nobody_sees_what_was_not_undone(|writer| drop(writer.commit(Durability::Sync).unwrap_err()), end);
    nobody_sees_what_was_not_undone(|writer| drop(writer.prepare(b"id").unwrap_err()), end);
}

#[test]
fn nobody_sees_what_closing_did_not_let_undo() {
    let end = |engine: &Engine| engine.close().unwrap();
    nobody_sees_what_was_not_undone(drop, end);
    nobody_sees_what_was_not_undone(|writer| drop(writer.rollback().unwrap_err()), end);
    nobody_sees_what_was_not_undone(|writer| drop(writer.commit(Durability::Sync).unwrap_err()), end);
}

/// The same of a prepared transaction, whose page cannot be read again.
#[test]
fn nobody_sees_what_a_failing_decision_did_not_undo() {
    let disk = made();
    let engine = open(&disk).unwrap();
    let (table, other) = (engine.table("t").unwrap().unwrap(), engine.create_table("other", b"").unwrap());
    let mut txn = begin(&engine);
    for number in 0..400_u32 {
        txn.put(&other, &number.to_be_bytes(), b"").unwrap();
    }
    txn.commit(Durability::Sync).unwrap();
    let key = 7_u32.to_be_bytes();
    let mut writer = begin(&engine);
    writer.put(&table, &key, b"never committed").unwrap();
    writer.prepare(b"id").unwrap();
    // The pool has no frame left for it.
    assert_eq!(scan(&mut begin(&engine), &other).unwrap().len(), 400);
    disk.fail_reads(&path("data"), 0..u64::MAX);
    assert!(engine.rollback_prepared(b"id").is_err());
    assert!(engine.log().poisoned().is_some());
    assert!(engine.locks().has_requests(table.id(), KeyRef::Key(&key)));
}

#[test]
fn a_directory_of_a_relative_path_can_be_made() {
    let disk = FaultyDisk::new();
    disk.create_directory(Path::new(".")).unwrap();
    let relative = Path::new("here.foreshore");
    let engine = Engine::open(Arc::new(disk.clone()), relative, &tiny()).unwrap();
    engine.close().unwrap();
    assert!(disk.exists(&relative.join("control")).unwrap());
}

/// TXN-40. A sync fails, or whoever asked for it dies before it comes back, and the next opening finds in the cache
/// what it wrote. Who trusted that built acknowledged commits on names that a power failure took back: the database had
/// none of its files then.
#[test]
fn a_database_whose_making_had_a_failed_sync_keeps_what_is_committed_later() {
    for number in 1.. {
        let disk = FaultyDisk::new();
        disk.fail_sync(number);
        let first = open(&disk).map(drop);
        let met = !disk.met().is_empty();
        disk.fail_no_more();
        let engine = open(&disk).unwrap_or_else(|error| panic!("behind sync {number}: {error}"));
        let table = engine.create_table("t", b"").unwrap();
        put(&engine, &table, b"key", b"value");
        let disk = disk.after_crash(CrashMode::DropUnsynced);
        let engine = open(&disk).unwrap_or_else(|error| panic!("sync {number}, power failure: {error}"));
        let table = engine.table("t").unwrap().unwrap_or_else(|| panic!("sync {number}: the table is lost"));
        assert_eq!(
            get(&mut begin(&engine), &table, b"key").unwrap().as_deref(),
            Some(&b"value"[..]),
            "{number}"
        );
        if !met {
            first.unwrap();
            assert!(number > 5, "{number} syncs make no database");
            return;
        }
    }
}

/// The same of a checkpoint, after which the next opening gives up what of the log the checkpoint does not need: the
/// power fails while it recovers, and the control file says again what it said before.
#[test]
fn a_recovery_behind_a_checkpoint_with_a_failed_sync_may_fail_itself() {
    let log = LogOptions { segment_bytes: 128 << 10, buffer_bytes: 256 << 10, ..tiny().log };
    let options = EngineOptions { log, node_capacity: usize::MAX, ..tiny() };
    let open = |disk: &FaultyDisk| open_with(disk, &options);
    for number in 1.. {
        let disk = FaultyDisk::new();
        let engine = open(&disk).unwrap();
        let table = engine.create_table("t", b"").unwrap();
        for key in 0..400_u32 {
            put(&engine, &table, &(key % 8).to_be_bytes(), &key.to_be_bytes().repeat(250));
        }
        let expected = read_all(&engine).unwrap();
        disk.fail_sync(disk.counts().syncs + number);
        let checkpoint = engine.checkpoint();
        drop(engine);
        let met = !disk.met().is_empty();
        disk.fail_no_more();
        if !met {
            checkpoint.unwrap();
            assert!(number > 2, "{number} syncs make no checkpoint");
            return;
        }
        for operation in 1.. {
            let disk = disk.after_kill();
            disk.crash_at(operation);
            let recovered = open(&disk).map(drop);
            let context = format!("sync {number}, the power fails at operation {operation}");
            let left = open(&disk.after_crash(CrashMode::DropUnsynced));
            let left = left.unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(read_all(&left).unwrap(), expected, "{context}");
            if recovered.is_ok() {
                break;
            }
        }
    }
}

/// A closed database of several spans of 64 pages, all of them in use, and the bytes of its data file.
fn of_several_spans() -> (FaultyDisk, EngineOptions, Vec<u8>) {
    let options = EngineOptions { pool: PoolOptions { bitmap_span: 64, ..tiny().pool }, ..tiny() };
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &options).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    for number in 0..600_u64 {
        put(&engine, &table, &number.to_be_bytes(), &[7; 500]);
    }
    engine.close().unwrap();
    let bytes = disk.read_file(&path("data")).unwrap();
    assert!(bytes.len() > 2 * 64 * 8192, "{} bytes", bytes.len());
    (disk, options, bytes)
}

/// PAGE-19: with the bitmap page of the last span lost, that passed for a span which nobody had used: its pages were
/// given to others.
#[test]
fn a_last_bitmap_page_of_zeros_is_damage() {
    let (disk, options, bytes) = of_several_spans();
    let bitmap = (bytes.len() as u64 / 8192 - 1) / 64 * 64 + 1;
    let file = disk.open(&path("data"), OpenMode::ReadWrite).unwrap();
    file.write_all_at(&[0; 8192], bitmap * 8192).unwrap();
    for read_only in [true, false] {
        let opened = open_with(&disk, &EngineOptions { read_only, ..options.clone() }).map(drop);
        let Err(error @ StorageError::Corrupted { site: CorruptionSite::Page(page), .. }) = &opened else {
            panic!("{opened:?}")
        };
        assert_eq!(u64::from(page.0), bitmap);
        assert!(error.to_string().contains("open a backup"), "{error}");
    }
    file.write_all_at(&bytes[bitmap as usize * 8192..][..8192], bitmap * 8192).unwrap();
    assert_eq!(read_all(&open_with(&disk, &options).unwrap()).unwrap().len(), 600);
}

/// PAGE-19: one that ended where a span ends was opened, and copied by a backup, as if it was whole.
#[test]
fn a_file_that_was_cut_is_damage_wherever_it_ends() {
    let (disk, options, bytes) = of_several_spans();
    let pages = bytes.len() as u64 / 8192;
    let span = (pages - 1) / 64 * 64;
    for left in [span, span - 64, pages - 8, pages - 1, span + 2] {
        let cut = disk.after_crash(CrashMode::KeepAll);
        cut.open(&path("data"), OpenMode::ReadWrite).unwrap().set_len(left * 8192).unwrap();
        let opened = open_with(&cut, &options).map(drop);
        let Err(error @ StorageError::Corrupted { site: CorruptionSite::File(_), .. }) = &opened else {
            panic!("{left} of {pages} pages: {opened:?}")
        };
        assert!(error.to_string().contains(&format!("has {left} whole pages, and had {pages}")), "{error}");
        assert!(error.to_string().contains("open a backup"), "{error}");
    }
}
