//! Backups made while others write: what is in them, what a crash leaves of them, and what ends them.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use foreshore_base::{CorruptionSite, StorageError};
use foreshore_env::{
    disk::{Disk, OpenMode},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_txn::{Durability, Engine, LogHolder, Salvage, SalvageSource, TableInfo, TxnError};

use crate::{
    assert_sound, begin, directory, get, go_on, matrix::modes, open, open_with, probe::Probe, put, read_all,
    tiny,
};

const KEYS: [&[u8]; 5] = [b"a", b"f", b"m", b"s", b"z"];

fn target() -> &'static Path {
    Path::new("/backup")
}

fn open_target(disk: &FaultyDisk, path: &Path) -> Result<Arc<Engine>, StorageError> {
    // As most would open it: where nothing says that a backup was begun, a database is made.
    Engine::open(Arc::new(disk.clone()) as Arc<dyn Disk>, path, &tiny())
}

/// A database whose transactions write the same number under several keys, and something else beside.
fn made(disk: &FaultyDisk) -> (Arc<Engine>, TableInfo) {
    let engine = open(disk).unwrap();
    let table = engine.create_table("t", b"meta").unwrap();
    write(&engine, &table, 0);
    (engine, table)
}

fn write(engine: &Arc<Engine>, table: &TableInfo, number: u64) {
    let mut txn = begin(engine);
    for key in KEYS {
        txn.put(table, key, number.to_string().as_bytes()).unwrap();
    }
    txn.put(table, format!("row {}", number % 300).as_bytes(), &vec![number as u8; 500]).unwrap();
    txn.commit(Durability::Sync).unwrap();
}

/// The number that a copy shows under all keys.
fn number(engine: &Arc<Engine>, context: &str) -> u64 {
    let table = engine.table("t").unwrap().unwrap();
    let mut txn = begin(engine);
    let values: Vec<_> = KEYS.map(|key| get(&mut txn, &table, key).unwrap().unwrap()).into();
    assert!(values.iter().all(|value| *value == values[0]), "{context}: half of a transaction: {values:?}");
    String::from_utf8(values[0].clone()).unwrap().parse().unwrap()
}

#[test]
fn a_backup_made_while_others_write_is_one_state_of_theirs() {
    let disk = FaultyDisk::new();
    let (engine, table) = made(&disk);
    let (told, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let copies: Vec<(PathBuf, u64, u64)> = thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                write(&engine, &table, number);
                told.store(number, Ordering::SeqCst);
                if number % 50 == 0 {
                    engine.checkpoint().unwrap();
                }
                if done.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        let copies = (0..6).map(|round| {
            let path = PathBuf::from(format!("/backup {round}"));
            let before = told.load(Ordering::SeqCst);
            let report = engine.backup(&path, &mut |_| {
                // Time for others to change what was copied and what was not.
                thread::yield_now();
                go_on(())
            });
            let report = report.unwrap();
            assert!(report.pages > 8 && report.log_bytes > 0, "{report:?}");
            (path, before, told.load(Ordering::SeqCst) + 1)
        });
        let copies = copies.collect();
        done.store(true, Ordering::SeqCst);
        copies
    });
    engine.close().unwrap();
    for (path, before, after) in copies {
        for mode in [CrashMode::KeepAll, CrashMode::DropUnsynced] {
            // What a backup promises is durable when it says so.
            let context = format!("{}, {mode:?}", path.display());
            let copy = open_target(&disk.after_crash(mode), &path).unwrap();
            let found = number(&copy, &context);
            assert!((before..=after).contains(&found), "{context}: {found} is not in {before}..={after}");
            assert_sound(&copy, &context);
            // It is a database like any other.
            let table = copy.table("t").unwrap().unwrap();
            write(&copy, &table, 1 << 40);
            copy.close().unwrap();
        }
    }
}

/// TXN-30: wherever the power fails, the target is a complete copy or none at all, and says so.
#[test]
fn a_crash_leaves_a_whole_backup_or_one_that_cannot_be_opened() {
    let disk = FaultyDisk::new();
    let (running, snapshots) = (Arc::new(AtomicBool::new(false)), disk.clone());
    let counts = Arc::new(Mutex::new([0_u32; 3]));
    let (for_probe, counted) = (Arc::clone(&running), Arc::clone(&counts));
    let probe = Probe::new(
        disk,
        Box::new(move |change| {
            if !for_probe.load(Ordering::SeqCst) {
                return;
            }
            for mode in modes(change) {
                let context = format!("change {change}, {mode:?}");
                let left = snapshots.after_crash(mode);
                let begun = [target().join("control.backup"), target().join("control")]
                    .iter()
                    .any(|path| left.exists(path).unwrap());
                let outcome = match open_target(&left, target()) {
                    Ok(_) if !begun => 2,
                    Ok(copy) => {
                        assert!((7..=9).contains(&number(&copy, &context)), "{context}");
                        assert_sound(&copy, &context);
                        copy.close().unwrap();
                        0
                    }
                    Err(StorageError::NotADatabase { detail, .. }) => {
                        assert!(detail.contains("backup"), "{context}: {detail}");
                        1
                    }
                    Err(error) => panic!("{context}: {error}"),
                };
                counted.lock()[outcome] += 1;
                // The original does not mind.
                let original = open(&left).unwrap();
                assert!(number(&original, &context) >= 7, "{context}");
                original.close().unwrap();
            }
        }),
    );
    let engine = Engine::open(Arc::new(probe) as Arc<dyn Disk>, directory(), &tiny()).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    (0..=7).for_each(|number| write(&engine, &table, number));
    running.store(true, Ordering::SeqCst);
    let mut steps = 0;
    engine
        .backup(target(), &mut |_| {
            steps += 1;
            if steps == 1 {
                write(&engine, &table, 8);
            }
            go_on(())
        })
        .unwrap();
    write(&engine, &table, 9);
    running.store(false, Ordering::SeqCst);
    engine.close().unwrap();
    let [whole, unfinished, absent] = *counts.lock();
    assert!(whole > 4 && unfinished > 30 && absent > 4, "{whole} whole, {unfinished} not, {absent} absent");
}

#[test]
fn a_backup_whose_sync_fails_is_none() {
    let mut tried = 0;
    for nth in 1.. {
        let disk = FaultyDisk::new();
        let (engine, _) = made(&disk);
        disk.fail_sync(disk.counts().syncs + nth);
        let result = engine.backup(target(), &mut go_on);
        disk.fail_no_more();
        if result.is_ok() {
            assert!(nth > 5 && tried > 3, "hardly a sync has failed: {nth}, before the first page {tried}");
            assert_sound(&open_target(&disk, target()).unwrap(), "the backup");
            return;
        }
        let opened = open_target(&disk, target()).map(drop);
        assert!(
            matches!(opened, Err(StorageError::NotADatabase { .. })),
            "sync {nth}: {result:?}, then {opened:?}"
        );
        // What fails before the first page is in the way of no other try.
        let copied = disk.exists(&target().join("data")).unwrap();
        if !copied {
            drop(engine);
            let again = open(&disk).unwrap().backup(target(), &mut go_on);
            again.unwrap_or_else(|error| panic!("sync {nth}: {error}"));
            assert_sound(&open_target(&disk, target()).unwrap(), "the second");
            tried += 1;
        }
    }
}

/// A backup that was refused before it had copied anything left a directory with a lock file: a new database was made
/// there by the next that opened it, and another try was refused.
#[test]
fn a_backup_that_was_refused_is_none_and_can_be_tried_again() {
    let mut tried = 0;
    for blocks in 0..8 {
        let disk = FaultyDisk::new();
        let (engine, table) = made(&disk);
        (0..200).for_each(|number| write(&engine, &table, number));
        disk.set_free_space(Some(blocks * 4096));
        let refused = engine.backup(target(), &mut go_on);
        disk.set_free_space(None);
        assert!(refused.is_err(), "{blocks} blocks: {refused:?}");
        let opened = open_target(&disk, target()).map(drop);
        assert!(matches!(&opened, Err(StorageError::NotADatabase { .. })), "{blocks} blocks: {opened:?}");
        if !disk.exists(&target().join("data")).unwrap() {
            engine.backup(target(), &mut go_on).unwrap();
            assert_sound(&open_target(&disk, target()).unwrap(), "the second");
            tried += 1;
        }
    }
    assert!(tried > 0, "no backup was refused before its first page");
}

/// Whoever opened a backup that was being made was told to remove it.
#[test]
fn a_backup_that_is_being_made_is_open_elsewhere() {
    let disk = FaultyDisk::new();
    let (engine, _) = made(&disk);
    let mut told = 0;
    let mut look = |_| {
        let opened = open_target(&disk, target()).map(drop);
        assert!(matches!(&opened, Err(StorageError::AlreadyOpen { .. })), "{opened:?}");
        told += 1;
        if told < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    engine.backup(target(), &mut look).unwrap_err();
    assert_eq!(told, 2);
    let opened = open_target(&disk, target()).map(drop);
    assert!(matches!(&opened, Err(StorageError::NotADatabase { .. })), "{opened:?}");
}

#[test]
fn what_is_in_the_way_is_left_alone() {
    let disk = FaultyDisk::new();
    let (engine, _) = made(&disk);
    disk.create_directory(target()).unwrap();
    disk.write_file(&target().join("letter"), b"Dear").unwrap();
    let (inside, by_dots) = (directory().join("log/copy"), target().join("../db/copy"));
    let places = [
        (target(), "not empty"),
        (directory(), "it lies in"),
        (&inside, "it lies in"),
        (&by_dots, "it lies in"),
    ];
    for (path, reason) in places {
        let files = disk.files();
        let error = engine.backup(path, &mut go_on).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(disk.files(), files);
    }
    disk.remove(&target().join("letter")).unwrap();
    // Another backup of the same moment: it was said that the database is open, and to share it.
    let other = disk.lock(&target().join("LOCK")).unwrap();
    let error = engine.backup(target(), &mut go_on).unwrap_err();
    assert!(error.to_string().contains("make a backup in /backup: somebody else"), "{error}");
    drop(other);
    engine.backup(target(), &mut go_on).unwrap();
    assert!(engine.backup(target(), &mut go_on).is_err(), "twice");
}

#[test]
fn a_cancelled_backup_is_none() {
    let disk = FaultyDisk::new();
    let (engine, table) = made(&disk);
    for stop_at in 1.. {
        let path = PathBuf::from(format!("/backup {stop_at}"));
        let mut steps = 0;
        let result = engine.backup(&path, &mut |_| {
            steps += 1;
            if steps == stop_at { ControlFlow::Break(()) } else { go_on(()) }
        });
        if result.is_ok() {
            assert!(stop_at > 2, "nothing was cancelled");
            break;
        }
        assert!(matches!(result, Err(TxnError::BackupStopped { .. })), "{result:?}");
        let error = open_target(&disk, &path).unwrap_err();
        assert!(
            matches!(&error, StorageError::NotADatabase { detail, .. } if detail.contains("backup")),
            "{error}"
        );
        // Nor by somebody who would make a new one.
        assert!(Engine::open(Arc::new(disk.clone()) as Arc<dyn Disk>, &path, &tiny()).is_err());
        // Nothing is kept for it any more.
        write(&engine, &table, stop_at);
        engine.checkpoint().unwrap();
    }
    assert_sound(&engine, "afterwards");
}

/// A database that is closed; where its data file is, and what is in it.
fn closed() -> (FaultyDisk, PathBuf, Vec<u8>) {
    let disk = FaultyDisk::new();
    let (engine, table) = made(&disk);
    (0..300).for_each(|number| write(&engine, &table, number));
    engine.close().unwrap();
    let data = directory().join("data");
    let bytes = disk.read_file(&data).unwrap();
    (disk, data, bytes)
}

/// A page that has rotted is not copied as if it were none.
#[test]
fn damage_is_told_and_not_copied() {
    let (disk, data, bytes) = closed();
    let mut damaged = 0;
    // The catalogue's pages come first; the others are not read by opening.
    for page in (10..bytes.len() / 8192).step_by(7).filter(|page| bytes[page * 8192 + 21] == 3) {
        let left = disk.after_crash(CrashMode::KeepAll);
        left.flip_bit(&data, page as u64 * 8192 + 5000, 3);
        let engine = open(&left).unwrap();
        match engine.backup(target(), &mut go_on) {
            Err(TxnError::Storage(StorageError::Corrupted { site: CorruptionSite::Page(found), .. })) => {
                assert_eq!(found.0 as usize, page);
                damaged += 1;
                assert!(open_target(&left, target()).is_err());
            }
            // A page that nobody uses.
            Ok(_) => assert_sound(&open_target(&left, target()).unwrap(), "copied"),
            Err(error) => panic!("page {page}: {error}"),
        }
    }
    assert!(damaged > 2, "{damaged} pages");
}

/// Nor is a page in use of which the file has nothing but zeros, or that lies behind the end of a file that was cut.
#[test]
fn what_was_erased_is_told_and_not_copied() {
    let (disk, data, bytes) = closed();
    let kind = |page: usize| bytes[page * 8192 + 21];
    let in_use = (1..bytes.len() / 8192).filter(|&page| kind(page) != 0);
    let is_copied = |left: &FaultyDisk, what: &str| {
        let Ok(engine) = open(left) else { return false };
        let copied = match engine.backup(target(), &mut go_on) {
            Err(TxnError::Storage(StorageError::Corrupted { .. })) => return false,
            copied => copied.is_ok(),
        };
        assert!(copied, "{what}");
        assert_sound(&open_target(left, target()).unwrap(), what);
        true
    };
    let (mut copied, mut told) = (0, 0);
    for page in in_use.step_by(7) {
        let left = disk.after_crash(CrashMode::KeepAll);
        let file = left.open(&data, OpenMode::ReadWrite).unwrap();
        file.write_all_at(&[0; 8192], page as u64 * 8192).unwrap();
        if is_copied(&left, &format!("page {page} is zeros")) { copied += 1 } else { told += 1 }
    }
    assert!(told > 2 && told > copied, "{told} told, {copied} copied: of pages that nobody uses any more");
    for keep in [1, 2] {
        let left = disk.after_crash(CrashMode::KeepAll);
        let pages = bytes.len() / 8192 / 8 * keep / 3 * 8;
        left.open(&data, OpenMode::ReadWrite).unwrap().set_len(pages as u64 * 8192).unwrap();
        assert!(!is_copied(&left, "cut"), "a file that was cut to {pages} pages");
    }
}

/// TXN-31: who writes is not stopped by a backup that takes its time. It went on to the end of the data file, and told
/// then that nothing would come of it.
#[test]
fn a_backup_that_keeps_too_much_of_the_log_ends() {
    let mut options = tiny();
    options.log.capacity_bytes = 2 << 20;
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &options).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    write(&engine, &table, 0);
    for number in 0..600_u64 {
        put(&engine, &table, &number.to_be_bytes(), &[6; 900]);
    }
    let pages = engine.pool().page_count();
    let mut calls = 0;
    let result = engine.backup(target(), &mut |_| {
        calls += 1;
        if calls == 1 {
            assert!(
                engine.log_retention().holders.iter().any(|hold| matches!(hold.holder, LogHolder::Backup))
            );
            for number in 0..3000_u64 {
                put(&engine, &table, &number.to_be_bytes(), &[7; 900]);
            }
        }
        go_on(())
    });
    assert!(
        matches!(&result, Err(TxnError::BackupStopped { reason, .. }) if reason.contains("log_bytes")),
        "{result:?}"
    );
    assert!(calls == 1 && pages > 64, "{calls} calls, of a file that had {pages} pages");
    assert!(open_target(&disk, target()).is_err());
    assert!(!engine.log_retention().holders.iter().any(|hold| matches!(hold.holder, LogHolder::Backup)));
    assert_eq!(read_all(&engine).unwrap().len(), 3006);
}

/// Somebody else opens it, and writes: what the file has then was called damaged.
#[test]
fn a_backup_of_a_database_that_is_closed_meanwhile_ends() {
    let disk = FaultyDisk::new();
    let (engine, table) = made(&disk);
    for number in 0..600_u64 {
        put(&engine, &table, &number.to_be_bytes(), &[6; 900]);
    }
    let mut calls = 0;
    let result = engine.backup(target(), &mut |_| {
        calls += 1;
        if calls == 1 {
            engine.close().unwrap();
            let other = open(&disk).unwrap();
            let table = other.table("t").unwrap().unwrap();
            for number in 0..600_u64 {
                put(&other, &table, &number.to_be_bytes(), &[7; 900]);
            }
            other.close().unwrap();
        }
        go_on(())
    });
    assert!(matches!(&result, Err(TxnError::Storage(StorageError::Closed))), "{result:?}");
    assert_eq!(calls, 1);
}

/// TXN-31: what an open transaction needs of the log anyway is not held against a backup.
#[test]
fn a_backup_is_not_ended_for_what_others_keep() {
    let mut options = tiny();
    options.log.capacity_bytes = 4 << 20;
    let disk = FaultyDisk::new();
    let engine = open_with(&disk, &options).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let mut old = begin(&engine);
    old.put(&table, b"old", b"").unwrap();
    (0..=5).for_each(|number| write(&engine, &table, number));
    let (mut first, quarter) = (true, options.log.capacity_bytes / 4);
    engine
        .backup(target(), &mut |_| {
            if std::mem::take(&mut first) {
                let begin = engine.log().tail();
                for number in 6.. {
                    write(&engine, &table, number);
                    if engine.log().tail().0 > begin.0 + quarter + (64 << 10) {
                        break;
                    }
                }
                engine.checkpoint().unwrap();
            }
            go_on(())
        })
        .unwrap();
    drop(old);
    let copy = open_target(&disk, target()).unwrap();
    assert!(number(&copy, "the copy") > 5);
    assert_sound(&copy, "the copy");
}

/// TXN-34: both tell their users how far they are, and those may call the other.
#[test]
fn a_backup_and_a_compaction_call_each_other_and_nobody_hangs() {
    let disk = FaultyDisk::new();
    let (engine, table) = made(&disk);
    (0..200).for_each(|number| write(&engine, &table, number));
    let busy = |result: Result<(), TxnError>, wanted: &str| match result {
        Err(TxnError::Busy { reason }) => assert!(reason.contains(wanted), "{reason}"),
        other => panic!("{other:?}"),
    };
    let mut copies = 0;
    engine
        .compact(&mut |_| {
            copies += 1;
            if copies < 4 {
                engine.backup(&PathBuf::from(format!("/copy {copies}")), &mut go_on).unwrap();
            }
            busy(engine.compact(&mut go_on).map(drop), "another compaction");
            go_on(())
        })
        .unwrap();
    assert!(copies > 2, "{copies}");
    let mut refused = 0;
    engine
        .backup(target(), &mut |_| {
            // It copies pages first, and then its log, when it is in nobody's way.
            if refused == 0 {
                busy(engine.compact(&mut go_on).map(drop), "a backup");
                refused += 1;
                engine.backup(Path::new("/copy in between"), &mut go_on).unwrap();
            }
            go_on(())
        })
        .unwrap();
    assert_eq!(refused, 1);
    engine.compact(&mut go_on).unwrap();
    for path in ["/copy 1", "/copy 3", "/copy in between", "/backup"] {
        let copy = open_target(&disk, Path::new(path)).unwrap();
        assert_eq!(number(&copy, path), 199);
        assert_sound(&copy, path);
    }
}

/// Another thread's backup that takes its time keeps a compaction from cutting, and from nothing else.
#[test]
fn a_compaction_waits_for_a_backup_of_another_thread() {
    let disk = FaultyDisk::new();
    let (engine, table) = made(&disk);
    (0..200).for_each(|number| write(&engine, &table, number));
    let copied = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut compaction = None;
        let (engine, copied) = (&engine, &copied);
        engine
            .backup(target(), &mut |_| {
                // Called first when a part of the pages is copied, and then more often.
                compaction.get_or_insert_with(|| {
                    let compaction = scope.spawn(move || {
                        engine.compact(&mut go_on).unwrap();
                        assert!(copied.load(Ordering::SeqCst), "it has not waited");
                    });
                    thread::sleep(foreshore_env::time::Duration::from_millis(50));
                    copied.store(true, Ordering::SeqCst);
                    compaction
                });
                go_on(())
            })
            .unwrap();
        compaction.unwrap().join().unwrap();
    });
    assert_sound(&engine, "afterwards");
}

/// TXN-31: the log was full for a transaction that fits it, because a backup kept a part of it that was not yet a
/// quarter.
#[test]
fn what_fits_the_log_alone_fits_it_beside_a_backup() {
    const CAPACITY: u64 = 4 << 20;
    let mut options = tiny();
    options.log.capacity_bytes = CAPACITY;
    for with_backup in [false, true] {
        let disk = FaultyDisk::new();
        let engine = open_with(&disk, &options).unwrap();
        let table = engine.create_table("t", b"").unwrap();
        write(&engine, &table, 0);
        let work = || {
            // A fifth of the log, in small commits.
            let begun = engine.log().tail().0;
            for number in 0.. {
                put(&engine, &table, format!("small {}", number % 7).as_bytes(), &[number as u8; 900]);
                if engine.log().tail().0 > begun + CAPACITY / 5 {
                    break;
                }
            }
            // A quarter of it, of the three eighths that a transaction may fill.
            let mut txn = begin(&engine);
            let begun = engine.log().tail().0;
            for number in 0_u64.. {
                if engine.log().tail().0 > begun + CAPACITY / 4 {
                    break;
                }
                txn.put(&table, b"large", &[number as u8; 900])?;
            }
            txn.commit(Durability::Sync)
        };
        if !with_backup {
            work().unwrap();
            continue;
        }
        let mut worked = None;
        let made = engine.backup(target(), &mut |_| {
            if worked.is_none() {
                worked = Some(work());
            }
            go_on(())
        });
        worked.unwrap().unwrap();
        assert!(matches!(made, Err(TxnError::BackupStopped { .. })), "{made:?}");
        assert!(open_target(&disk, target()).is_err());
        assert!(!engine.log_retention().holders.iter().any(|hold| matches!(hold.holder, LogHolder::Backup)));
        assert_sound(&engine, "afterwards");
    }
}

/// A checkpoint that was taken while the pages were copied is in the copy's log, and the copied pages are older than
/// it. Salvage without a control file began there, found the data file too old for it, and gave up all that the log
/// has.
#[test]
fn a_copy_beside_a_checkpoint_is_saved_without_its_control_file() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let write = |from: u32, value: u8| {
        for row in from..from + 60 {
            put(&engine, &table, &row.to_be_bytes(), &[value; 300]);
        }
    };
    for from in (0..600).step_by(60) {
        write(from, 1);
    }
    let mut begun = false;
    let copied = engine.backup(target(), &mut |_| {
        // The first pages are copied.
        if !std::mem::replace(&mut begun, true) {
            write(0, 2);
            engine.checkpoint().unwrap();
            write(300, 3);
        }
        go_on(())
    });
    copied.unwrap();
    let content = read_all(&engine).unwrap();
    engine.close().unwrap();
    disk.write_file(&target().join("control"), &[0x5A; 8192]).unwrap();
    let below: Arc<dyn Disk> = Arc::new(disk);
    let salvage = Salvage::open(&below, target(), &tiny(), &mut go_on).unwrap().unwrap();
    let mut wrong = content.len();
    for table in salvage.tables() {
        let rows = salvage.rows(table, &mut |key, value| {
            let place = (table.name().to_owned(), key.to_vec());
            wrong -= usize::from(content.get(&place).is_some_and(|right| right == value));
            go_on(())
        });
        rows.unwrap();
    }
    assert_eq!((salvage.source(), wrong), (SalvageSource::Rebuilt, 0), "{:?}", salvage.failure());
}
