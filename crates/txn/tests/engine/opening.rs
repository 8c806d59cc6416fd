//! What may be at the path of a database, and what must not be touched there.

use std::path::{Path, PathBuf};

use foreshore_base::{CorruptionSite, StorageError};
use foreshore_env::disk::Disk;
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_txn::{Durability, EngineOptions, TxnError};

use crate::{assert_sound, begin, directory, open, open_with, put, read_all, tiny};

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

/// WAL-14. A log of several segments whose process died: without its last one, its last two, or all but the first, opening says
/// which file is gone, and what to do.
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

/// A log that ends before the control file's checkpoint was lost to a disk that lied about a sync, or is of another copy.
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

/// RELIABILITY's cases 11 and 13: the disk lied about a sync of the log, or log and pages were copied at different times.
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

#[test]
fn a_directory_of_a_relative_path_can_be_made() {
    let disk = FaultyDisk::new();
    disk.create_directory(Path::new(".")).unwrap();
    let relative = Path::new("here.foreshore");
    let engine = foreshore_txn::Engine::open(std::sync::Arc::new(disk.clone()), relative, &tiny()).unwrap();
    engine.close().unwrap();
    assert!(disk.exists(&relative.join("control")).unwrap());
}
