//! Renaming tables: everything of a table stays but its name, and no crash leaves it without one, or with two.

use foreshore_base::StorageError;
use foreshore_env::{
    disk::Disk,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_txn::{Durability, Engine, IntentMode, TxnError};

use crate::{
    assert_sound, begin, directory, drop::fill, get, go_on, is_poisoned, open, probe::Probe, put, read_all,
    scan, tiny,
};

const WAIT: Duration = Duration::from_secs(60);

fn rename(engine: &Arc<Engine>, from: &str, to: &str) -> Result<(), TxnError> {
    engine.rename_table_within(from, to, WAIT)
}

fn names(engine: &Engine) -> Vec<String> {
    engine.tables().unwrap().iter().map(|table| table.name().to_owned()).collect()
}

fn await_waiters(engine: &Engine, count: usize) {
    let start = Instant::now();
    while engine.locks().waiters().len() < count {
        assert!(start.elapsed() < Duration::from_secs(120), "{count} do not wait");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_renamed_table_keeps_all_but_its_name() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let old = fill(&engine, "old", 100);
    fill(&engine, "other", 10);
    let rows = scan(&mut begin(&engine), &old).unwrap();
    rename(&engine, "old", "new").unwrap();
    assert_eq!(names(&engine), ["new", "other"]);
    assert!(old.is_gone() && engine.table("old").unwrap().is_none());
    let new = engine.table("new").unwrap().unwrap();
    assert_eq!((new.id(), new.meta()), (old.id(), old.meta()));
    assert_eq!(engine.table_by_id(old.id()).unwrap().name(), "new");
    let mut txn = begin(&engine);
    let refused = txn.lock_table(&old, IntentMode::IS);
    assert!(matches!(&refused, Err(TxnError::TableGone { name }) if name == "old"), "{refused:?}");
    assert_eq!(scan(&mut txn, &new).unwrap(), rows);
    txn.commit(Durability::Sync).unwrap();

    let refusals = [
        rename(&engine, "old", "newer"),
        rename(&engine, "new", "other"),
        rename(&engine, "new", "new"),
        rename(&engine, "new", &"n".repeat(1000)),
    ];
    assert!(matches!(&refusals[0], Err(TxnError::TableGone { name }) if name == "old"), "{refusals:?}");
    for (refused, there) in refusals[1..3].iter().zip(["other", "new"]) {
        assert!(matches!(refused, Err(TxnError::TableExists { name }) if name == there), "{refused:?}");
    }
    let too_long = matches!(&refusals[3], Err(TxnError::Storage(StorageError::LimitExceeded { .. })));
    assert!(too_long, "{refusals:?}");
    assert_eq!(names(&engine), ["new", "other"]);

    // The name is free for another table, and each is changed, dropped and moved by itself.
    let again = engine.create_table("old", b"another").unwrap();
    assert_ne!(again.id(), new.id());
    put(&engine, &again, b"key", b"value");
    put(&engine, &new, b"more", b"row");
    rename(&engine, "other", "a name that comes first").unwrap();
    assert!(engine.drop_table("a name that comes first").unwrap());
    engine.compact(&mut go_on).unwrap();
    let content = read_all(&engine).unwrap();
    assert_eq!(content.len(), rows.len() + 2);
    assert_sound(&engine, "at the end");
    engine.close().unwrap();
    let engine = open(&disk).unwrap();
    assert_eq!(names(&engine), ["new", "old"]);
    assert_eq!(read_all(&engine).unwrap(), content);
    assert_sound(&engine, "opened again");
}

#[test]
fn a_rename_waits_for_those_who_use_the_table() {
    let engine = open(&FaultyDisk::new()).unwrap();
    let table = fill(&engine, "table", 20);
    let key = 5_u32.to_be_bytes();
    let mut user = begin(&engine);
    assert!(get(&mut user, &table, &key).unwrap().is_some());
    let refused = engine.rename_table_within("table", "renamed", Duration::from_millis(20));
    assert!(matches!(refused, Err(TxnError::Lock(_))), "{refused:?}");
    thread::scope(|scope| {
        let renamed = scope.spawn(|| rename(&engine, "table", "renamed"));
        await_waiters(&engine, 1);
        // Who comes now waits behind it, and is told.
        let late = scope.spawn(|| get(&mut begin(&engine), &table, &key));
        await_waiters(&engine, 2);
        assert!(!table.is_gone());
        user.put(&table, &key, b"changed").unwrap();
        user.commit(Durability::Sync).unwrap();
        renamed.join().unwrap().unwrap();
        let late = late.join().unwrap();
        assert!(matches!(&late, Err(TxnError::TableGone { .. })), "{late:?}");
    });
    let renamed = engine.table("renamed").unwrap().unwrap();
    assert_eq!(get(&mut begin(&engine), &renamed, &key).unwrap().as_deref(), Some(&b"changed"[..]));
    assert_sound(&engine, "at the end");
}

/// A transaction that uses the table makes one of the name that it is to get. The transaction that makes it is another
/// one, so if that waited for the name, nobody would see the cycle.
#[test]
fn who_uses_the_table_may_take_its_new_name() {
    let engine = open(&FaultyDisk::new()).unwrap();
    let table = fill(&engine, "table", 20);
    let mut user = begin(&engine);
    assert!(get(&mut user, &table, &5_u32.to_be_bytes()).unwrap().is_some());
    thread::scope(|scope| {
        let renamed = scope.spawn(|| rename(&engine, "table", "taken"));
        await_waiters(&engine, 1);
        let start = Instant::now();
        let taken = user.create_table("taken", b"").unwrap();
        assert!(start.elapsed() < WAIT / 2, "it waited for {:?}", start.elapsed());
        user.put(&taken, b"key", b"value").unwrap();
        user.commit(Durability::Sync).unwrap();
        let renamed = renamed.join().unwrap();
        assert!(matches!(&renamed, Err(TxnError::TableExists { name }) if name == "taken"), "{renamed:?}");
    });
    assert!(!table.is_gone());
    assert_eq!(names(&engine), ["table", "taken"]);
    assert_sound(&engine, "at the end");
}

/// Two that each have the name that the other one wants are a deadlock, and both are told the name is taken; of many
/// that want one name, one gets it.
#[test]
fn renames_beside_each_other_come_to_an_end() {
    let engine = open(&FaultyDisk::new()).unwrap();
    for name in ["a", "b"] {
        fill(&engine, name, 1);
    }
    thread::scope(|scope| {
        for (from, to) in [("a", "b"), ("b", "a")] {
            let engine = &engine;
            scope.spawn(move || {
                for _ in 0..50 {
                    let refused = rename(engine, from, to);
                    assert!(matches!(refused, Err(TxnError::TableExists { .. })), "{refused:?}");
                }
            });
        }
    });
    let won = AtomicU64::new(0);
    thread::scope(|scope| {
        for from in ["a", "b"] {
            let (engine, won) = (&engine, &won);
            scope.spawn(move || match rename(engine, from, "c") {
                Ok(()) => drop(won.fetch_add(1, Ordering::SeqCst)),
                refused => assert!(matches!(refused, Err(TxnError::TableExists { .. })), "{refused:?}"),
            });
        }
    });
    assert_eq!(won.load(Ordering::SeqCst), 1);
    assert!(names(&engine) == ["a", "c"] || names(&engine) == ["b", "c"], "{:?}", names(&engine));
    assert_sound(&engine, "at the end");
}

/// A crash at every change of the disk, from before the table is renamed to after the checkpoint that follows: it is
/// there under one of the names, with all that was committed under either.
#[test]
fn a_crash_leaves_a_table_with_one_name() {
    let disk = FaultyDisk::new();
    disk.create_directory(directory()).unwrap();
    disk.sync_directory(std::path::Path::new("/")).unwrap();
    // 1: it has perhaps the new name; 2: it has; 3: it has, with another row.
    let stage = Arc::new(AtomicU64::new(0));
    let images = Arc::new(Mutex::new(Vec::new()));
    let (for_probe, kept, snapshots) = (Arc::clone(&stage), Arc::clone(&images), disk.clone());
    let probe = Probe::new(
        disk,
        Box::new(move |change| {
            let stage = for_probe.load(Ordering::SeqCst);
            let mode = [CrashMode::DropUnsynced, CrashMode::KeepAll, CrashMode::TornRandom(change)];
            for mode in mode.into_iter().filter(|_| stage > 0) {
                kept.lock().push((stage, change, mode, snapshots.after_crash(mode)));
            }
        }),
    );
    let engine = Engine::open(Arc::new(probe) as Arc<dyn Disk>, directory(), &tiny()).unwrap();
    let old = fill(&engine, "old", 60);
    let rows = scan(&mut begin(&engine), &old).unwrap();
    // Whose undo meets the catalogue while the new row may be there.
    let other = fill(&engine, "other", 10);
    let mut loser = begin(&engine);
    loser.put(&other, b"loser", b"").unwrap();
    stage.store(1, Ordering::SeqCst);
    rename(&engine, "old", "new").unwrap();
    stage.store(2, Ordering::SeqCst);
    let new = engine.table("new").unwrap().unwrap();
    put(&engine, &new, b"\xFF last", b"row");
    stage.store(3, Ordering::SeqCst);
    engine.checkpoint().unwrap();
    loser.rollback().unwrap();
    stage.store(0, Ordering::SeqCst);
    engine.close().unwrap();

    let images = std::mem::take(&mut *images.lock());
    assert!(images.len() > 20, "only {} crashes", images.len());
    let (mut by_old, mut by_new) = (0, 0);
    for (stage, change, mode, disk) in images {
        let context = format!("stage {stage}, change {change}, {mode:?}");
        let engine = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
        let table = match &names(&engine)[..] {
            [new, other] if new == "new" && other == "other" => {
                by_new += 1;
                engine.table("new").unwrap().unwrap()
            }
            [old, other] if old == "old" && other == "other" && stage == 1 => {
                by_old += 1;
                engine.table("old").unwrap().unwrap()
            }
            names => panic!("{context}: {names:?}"),
        };
        let mut found = scan(&mut begin(&engine), &table).unwrap();
        let has_last = found.pop_if(|(key, _)| key == b"\xFF last").is_some();
        assert!(has_last || stage < 3, "{context}");
        assert_eq!(found, rows, "{context}");
        assert_sound(&engine, &context);
        rename(&engine, table.name(), "again").unwrap();
        engine.close().unwrap();
    }
    assert!(by_old > 0 && by_new > 0, "{by_old} by the old name, {by_new} by the new one");
}

/// Whether it has the new name shows at the next opening; until then it has the old one for those who are told that the
/// database has failed.
#[test]
fn a_rename_that_cannot_be_flushed_is_unknown() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = fill(&engine, "table", 20);
    let mut user = begin(&engine);
    assert!(get(&mut user, &table, &5_u32.to_be_bytes()).unwrap().is_some());
    thread::scope(|scope| {
        let first = scope.spawn(|| rename(&engine, "table", "first"));
        await_waiters(&engine, 1);
        let second = scope.spawn(|| rename(&engine, "table", "second"));
        await_waiters(&engine, 2);
        disk.crash();
        user.rollback().unwrap();
        assert!(is_poisoned(&first.join().unwrap()));
        let second = second.join().unwrap();
        assert!(matches!(second, Err(TxnError::Storage(StorageError::Poisoned { .. }))), "{second:?}");
    });
    assert!(!table.is_gone());
}
