//! Early lock release, case by case, on a disk whose flush is held back: who reads what is not durable yet waits for
//! the commit that it read, and for nothing else. With the tags off every case shows the anomaly of Kimura et al. 2012,
//! Table 6.

use std::ops::Bound;

use foreshore_base::{Lsn, StorageError};
use foreshore_env::{
    sync::Arc,
    time::{Duration, Instant},
};
use foreshore_lock::{KeyRef, LockTableKind};
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_txn::{
    Advance, Direction, Durability, EarlyLockRelease, Engine, EngineOptions, IntentMode, LockError, LockKind,
    LockOptions, ReadMode, TableInfo, Txn, TxnError,
};

use crate::{assert_sound, begin, get, is_poisoned, open_with, put, scan, tiny};

type Write = fn(&mut Txn, &TableInfo) -> Result<(), TxnError>;
type Read = fn(&mut Txn, &TableInfo) -> Result<String, TxnError>;

/// What a reader sees of a writer, and by which lock it learns of it. The table has 10, 20, 30, 40 and 50 before.
const CASES: [(&str, Write, Read); 10] = [
    ("an update, by its key", |txn, table| txn.put(table, b"20", b"new").map(drop), read_20),
    (
        "an insertion, by its key",
        |txn, table| txn.insert(table, b"25", b"new").map(drop),
        |txn, table| shown(get(txn, table, b"25")?),
    ),
    ("a deletion, by the absence of its key", |txn, table| txn.delete(table, b"20").map(drop), read_20),
    ("an insertion, by the gap", |txn, table| txn.insert(table, b"25", b"new").map(drop), read_gap),
    (
        "a deletion, by the gap",
        |txn, table| txn.delete(table, b"25").map(drop),
        |txn, table| shown(get(txn, table, b"25")?),
    ),
    ("a deletion, by a scan around it", |txn, table| txn.delete(table, b"20").map(drop), read_around),
    ("the deletion of the last, from the end", |txn, table| txn.delete(table, b"50").map(drop), read_last),
    ("a change under a lock on the table, by its key", change_under_table_lock, read_20),
    ("a change of a key, by a lock on the table", |txn, table| txn.put(table, b"20", b"new").map(drop), {
        |txn, table| {
            txn.lock_table(table, IntentMode::S)?;
            read_20(txn, table)
        }
    }),
    ("an update, by who could have changed it too", |txn, table| txn.put(table, b"20", b"new").map(drop), {
        |txn, table| shown(txn.get_for_update(table, b"20", <[u8]>::to_vec)?)
    }),
];

fn shown(value: Option<Vec<u8>>) -> Result<String, TxnError> {
    Ok(value.map_or("nothing".to_owned(), |value| String::from_utf8_lossy(&value).into_owned()))
}

fn read_20(txn: &mut Txn, table: &TableInfo) -> Result<String, TxnError> {
    shown(get(txn, table, b"20")?)
}

fn read_range(
    txn: &mut Txn,
    table: &TableInfo,
    range: (Bound<&[u8]>, Bound<&[u8]>),
) -> Result<String, TxnError> {
    let mut cursor = txn.cursor(table, range, Direction::Ascending, LockKind::Shared)?;
    let (mut key, mut value, mut found) = (Vec::new(), Vec::new(), String::new());
    while txn.next(&mut cursor, &mut key, &mut value)? {
        found += &String::from_utf8_lossy(&key);
    }
    Ok(found)
}

fn read_gap(txn: &mut Txn, table: &TableInfo) -> Result<String, TxnError> {
    read_range(txn, table, (Bound::Excluded(b"20"), Bound::Excluded(b"30")))
}

fn read_around(txn: &mut Txn, table: &TableInfo) -> Result<String, TxnError> {
    read_range(txn, table, (Bound::Included(b"10"), Bound::Included(b"30")))
}

fn read_last(txn: &mut Txn, table: &TableInfo) -> Result<String, TxnError> {
    let whole = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = txn.cursor(table, whole, Direction::Descending, LockKind::Shared)?;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    txn.next(&mut cursor, &mut key, &mut value)?;
    shown(Some(key))
}

fn change_under_table_lock(txn: &mut Txn, table: &TableInfo) -> Result<(), TxnError> {
    txn.lock_table(table, IntentMode::X)?;
    txn.put(table, b"20", b"new").map(drop)
}

fn options(release: EarlyLockRelease, locks: LockTableKind) -> EngineOptions {
    let locks = LockOptions { table: locks, ..LockOptions::default() };
    EngineOptions { early_lock_release: release, locks, ..tiny() }
}

/// A database whose log reaches the disk only when the test lets it.
fn held(options: &EngineOptions) -> (FaultyDisk, Arc<Engine>, TableInfo) {
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, options).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    for key in [b"10", b"20", b"25", b"30", b"40", b"50"] {
        put(&engine, &table, key, b"old");
    }
    disk.hold_syncs(true);
    (disk, engine, table)
}

/// The state before the writer of a case.
fn prepare(name: &str, disk: &FaultyDisk, engine: &Arc<Engine>, table: &TableInfo) {
    if name.contains("insertion") {
        disk.hold_syncs(false);
        let mut txn = begin(engine);
        txn.delete(table, b"25").unwrap();
        txn.commit(Durability::Sync).unwrap();
        disk.hold_syncs(true);
    }
}

fn observe(engine: &Arc<Engine>, table: &TableInfo, read: Read) -> String {
    let mut txn = begin(engine);
    let seen = read(&mut txn, table).unwrap();
    txn.rollback().unwrap();
    seen
}

/// Commits a change whose flush is held back.
fn write(engine: &Arc<Engine>, table: &TableInfo, write: Write) -> Lsn {
    let mut txn = begin(engine);
    write(&mut txn, table).unwrap();
    let ticket = txn.commit_pipelined().unwrap();
    assert!(!ticket.is_durable());
    ticket.lsn()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(20)
}

const TABLES: [LockTableKind; 3] =
    [LockTableKind::Latched, LockTableKind::Staged, LockTableKind::GlobalMutex];

fn reader_of(engine: &Arc<Engine>, mode: ReadMode) -> Txn {
    let mut reader = begin(engine);
    reader.set_read_mode(mode);
    reader
}

/// Lock tables with the ways to read.
fn tables_and_modes() -> impl Iterator<Item = (LockTableKind, ReadMode)> {
    TABLES.into_iter().flat_map(|table| ReadMode::ALL.map(|mode| (table, mode)))
}

#[test]
fn a_reader_waits_for_the_commit_that_it_has_read_and_for_no_other() {
    for (locks, mode) in tables_and_modes() {
        for (name, change, read) in CASES {
            let (disk, engine, table) = held(&options(EarlyLockRelease::SharedAndExclusive, locks));
            prepare(name, &disk, &engine, &table);
            let before = observe(&engine, &table, read);
            let commit = write(&engine, &table, change);
            // Table 6: records before it, and commits after it, are of no concern.
            let later = if name.contains("the last") {
                write(&engine, &table, |txn, table| txn.put(table, b"10", b"later").map(drop))
            } else {
                write(&engine, &table, |txn, table| txn.put(table, b"40", b"later").map(drop))
            };
            assert!(later > commit);

            let mut reader = reader_of(&engine, mode);
            assert_ne!(read(&mut reader, &table).unwrap(), before, "{name}: the locks are gone");
            let ticket = reader.commit_pipelined().unwrap();
            assert!(!ticket.is_durable(), "{name}");
            // A lock on the table covers the other key too.
            let expected = if name.ends_with("by a lock on the table") { later } else { commit };
            assert_eq!(ticket.lsn(), expected, "{name}");
            assert!(!ticket.wait_until(soon()).unwrap(), "{name}");
            disk.hold_syncs(false);
            ticket.wait().unwrap();
            assert!(ticket.is_durable());
            assert_sound(&engine, name);
        }
    }
}

/// A thread of partitioned execution that dies, or a database that is closed, loses the locks that are on their way
/// back from a transaction that has committed: they went without a tag, and who read the value was told at once that it
/// is certain.
#[test]
fn locks_that_are_lost_on_their_way_back_leave_their_tags() {
    for (locks, mode) in tables_and_modes() {
        let (disk, engine, table) = held(&options(EarlyLockRelease::SharedAndExclusive, locks));
        let mut txn = begin(&engine);
        txn.begin_reconnaissance();
        txn.foresee(&table, b"20", LockKind::Exclusive).unwrap();
        let footprint = txn.end_reconnaissance();
        let mut parted = txn.part(footprint).unwrap().unwrap();
        assert_eq!(parted.advance(0, 1).unwrap(), Advance::Complete);
        txn.rejoin(*parted, Ok(())).unwrap();
        txn.put(&table, b"20", b"new").unwrap();
        let (commit, parted) = txn.commit_parting(Durability::Lazy).unwrap();
        let mut refused = begin(&engine);
        refused.set_no_wait(true);
        assert!(refused.put(&table, b"20", b"newer").is_err(), "the locks are on their way");
        drop(refused);
        drop(parted);

        let mut reader = reader_of(&engine, mode);
        let seen = get(&mut reader, &table, b"20").unwrap();
        let ticket = reader.commit_pipelined().unwrap();
        let durable = ticket.is_durable();
        disk.hold_syncs(false);
        assert_eq!(seen.as_deref(), Some(&b"new"[..]));
        assert_eq!((ticket.lsn(), durable), (commit.lsn(), false), "{locks:?}, {mode:?}");
        ticket.wait().unwrap();
    }
}

#[test]
fn without_tags_a_reader_is_told_what_a_crash_takes_back() {
    for (locks, mode) in tables_and_modes() {
        for (name, change, read) in CASES {
            let options =
                EngineOptions { release_tags: false, ..options(EarlyLockRelease::SharedAndExclusive, locks) };
            let (disk, engine, table) = held(&options);
            prepare(name, &disk, &engine, &table);
            let before = observe(&engine, &table, read);
            write(&engine, &table, change);
            let mut reader = reader_of(&engine, mode);
            let seen = read(&mut reader, &table).unwrap();
            reader.commit(Durability::Sync).unwrap();

            let left = disk.after_crash(CrashMode::DropUnsynced);
            let reopened = open_with(&left, &options).unwrap();
            let table = reopened.table("t").unwrap().unwrap();
            let found = observe(&reopened, &table, read);
            assert!(found == before && found != seen, "{name}: saw {seen}, then found {found}");
            disk.hold_syncs(false);
        }
    }
}

#[test]
fn a_reader_of_anything_else_does_not_wait() {
    for (locks, mode) in tables_and_modes() {
        let (disk, engine, table) = held(&options(EarlyLockRelease::SharedAndExclusive, locks));
        let commit = write(&engine, &table, |txn, table| txn.put(table, b"20", b"new").map(drop));
        // Of a bucket that the writer has not touched: tags belong to buckets.
        let keys: [&[u8]; 4] = [b"10", b"30", b"40", b"50"];
        let mut free =
            keys.into_iter().filter(|key| engine.locks().tag(table.id(), KeyRef::Key(key)) < commit);
        let key = free.next().expect("four keys do not all share a bucket with one");
        let mut reader = reader_of(&engine, mode);
        assert_eq!(get(&mut reader, &table, key).unwrap().unwrap(), b"old");
        reader.commit(Durability::Sync).unwrap();
        disk.hold_syncs(false);
    }
}

#[test]
fn without_early_release_nobody_reads_what_is_not_durable() {
    let releases = [EarlyLockRelease::Off, EarlyLockRelease::Shared];
    for (release, mode) in releases.into_iter().flat_map(|kind| ReadMode::ALL.map(|mode| (kind, mode))) {
        for (name, change, read) in CASES {
            let (disk, engine, table) = held(&options(release, LockTableKind::Latched));
            prepare(name, &disk, &engine, &table);
            let before = observe(&engine, &table, read);
            write(&engine, &table, change);
            let mut reader = reader_of(&engine, mode);
            reader.set_no_wait(true);
            let refused = read(&mut reader, &table);
            assert!(matches!(refused, Err(TxnError::Lock(LockError::WouldBlock(_)))), "{name}: {refused:?}");
            reader.set_no_wait(false);
            disk.hold_syncs(false);
            // Nobody has to come for the locks: they go when the flush is through.
            assert_ne!(read(&mut reader, &table).unwrap(), before, "{name}");
            let ticket = reader.commit_pipelined().unwrap();
            assert!(ticket.is_durable(), "{name}: what can be read is durable");
            assert_sound(&engine, name);
        }
    }
}

#[test]
fn shared_locks_go_early_or_not() {
    for (release, goes) in [
        (EarlyLockRelease::Off, false),
        (EarlyLockRelease::Shared, true),
        (EarlyLockRelease::SharedAndExclusive, true),
    ] {
        let (disk, engine, table) = held(&options(release, LockTableKind::Latched));
        write(&engine, &table, |txn, table| {
            get(txn, table, b"40")?;
            txn.put(table, b"20", b"new").map(drop)
        });
        let mut other = begin(&engine);
        other.set_no_wait(true);
        assert_eq!(other.put(&table, b"40", b"new").is_ok(), goes, "{release:?}");
        assert_eq!(
            other.put(&table, b"20", b"newer").is_ok(),
            release == EarlyLockRelease::SharedAndExclusive,
            "{release:?}"
        );
        disk.hold_syncs(false);
        other.rollback().unwrap();
    }
}

#[test]
fn a_log_that_fails_after_an_early_release_stops_everything() {
    for release in [EarlyLockRelease::Off, EarlyLockRelease::Shared, EarlyLockRelease::SharedAndExclusive] {
        let (disk, engine, table) = held(&options(release, LockTableKind::Latched));
        let mut txn = begin(&engine);
        txn.put(&table, b"20", b"new").unwrap();
        let writer = txn.commit_pipelined().unwrap();
        let readers = if release == EarlyLockRelease::SharedAndExclusive {
            let mut reader = begin(&engine);
            assert_eq!(get(&mut reader, &table, b"20").unwrap().unwrap(), b"new");
            Some(reader.commit_pipelined().unwrap())
        } else {
            None
        };
        disk.fail_next_sync_of("log");
        disk.hold_syncs(false);
        for ticket in [Some(writer), readers].into_iter().flatten() {
            let outcome = ticket.wait();
            assert!(matches!(outcome, Err(TxnError::OutcomeUnknown { .. })), "{release:?}: {outcome:?}");
            assert!(!ticket.is_durable());
        }
        // Locks may be gone by now; nobody is told anything all the same.
        let late = engine.begin(foreshore_txn::BeginOptions::default()).and_then(|mut txn| {
            get(&mut txn, &table, b"20")?;
            txn.commit(Durability::Sync)
        });
        assert!(is_poisoned(&late), "{release:?}: {late:?}");
        let closed = engine.close();
        assert!(matches!(closed, Err(StorageError::Poisoned { .. })), "{closed:?}");
        let reopened = open_with(&disk.after_crash(CrashMode::DropUnsynced), &tiny()).unwrap();
        let table = reopened.table("t").unwrap().unwrap();
        assert_eq!(observe(&reopened, &table, read_20), "old");
        assert_sound(&reopened, "after the failure");
    }
}

#[test]
fn all_kinds_leave_the_same_content() {
    let contents = [EarlyLockRelease::Off, EarlyLockRelease::Shared, EarlyLockRelease::SharedAndExclusive]
        .map(|release| {
            let (disk, engine, table) = held(&options(release, LockTableKind::Latched));
            disk.hold_syncs(false);
            for (round, durability) in
                [Durability::Sync, Durability::Pipelined, Durability::Lazy].into_iter().enumerate()
            {
                for key in [b"10", b"20", b"25"] {
                    let mut txn = begin(&engine);
                    txn.put(&table, key, format!("{durability:?} {round}").as_bytes()).unwrap();
                    txn.commit(durability).unwrap();
                }
            }
            let mut txn = begin(&engine);
            let content = scan(&mut txn, &table).unwrap();
            txn.commit(Durability::Sync).unwrap();
            assert_sound(&engine, "all kinds");
            content
        });
    assert!(contents[0] == contents[1] && contents[1] == contents[2]);
}
