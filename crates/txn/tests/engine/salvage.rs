//! What is saved of a database that crashed, and whose control file is lost then.

use std::ops::ControlFlow;

use foreshore_env::{
    disk::Disk,
    sync::{Arc, Mutex},
};
use foreshore_testkit::{CrashMode, FaultyDisk};
use foreshore_txn::{Durability, Engine, EngineOptions, Salvage, SalvageSource};

use crate::{Content, assert_sound, begin, directory, go_on, open, probe::Probe, put, read_all, tiny};

const PAGE_BYTES: usize = 8192;
const SECTOR_BYTES: usize = 512;

fn save(disk: &FaultyDisk) -> (Salvage, Content) {
    save_with(disk, &tiny())
}

fn save_with(disk: &FaultyDisk, options: &EngineOptions) -> (Salvage, Content) {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let salvage = Salvage::open(&disk, directory(), options, &mut go_on).unwrap().unwrap();
    let mut content = Content::new();
    for table in salvage.tables() {
        let rows = salvage.rows(table, &mut |key, value| {
            content.insert((table.name().to_owned(), key.to_vec()), value.to_vec());
            ControlFlow::Continue(())
        });
        rows.unwrap();
    }
    (salvage, content)
}

/// The power failed between a checkpoint's record and the control file. Recovery began at the checkpoint before, and
/// undid a change on a page whose image lies between the two, so that it got no other; the power failed again while
/// this page was written. An opening repairs it. Salvage without the control file began at the newer checkpoint, and
/// lost it.
#[test]
fn a_checkpoint_that_the_control_file_never_named_is_not_where_redo_begins() {
    let (data, control) = (directory().join("data"), directory().join("control"));
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    for row in 0..40_u32 {
        put(&engine, &table, &row.to_be_bytes(), &[1; 300]);
    }
    engine.checkpoint().unwrap();
    let content = read_all(&engine).unwrap();
    let named = disk.read_file(&control).unwrap();
    let mut loser = begin(&engine);
    loser.put(&table, &7_u32.to_be_bytes(), &[2; 300]).unwrap();
    engine.checkpoint().unwrap();
    // As it was before the control file was written.
    let first = disk.after_crash(CrashMode::DropUnsynced);
    first.write_file(&control, &named).unwrap();
    drop(loser);
    engine.close().unwrap();

    // The page with the change, before recovery and while that writes it.
    let before = first.read_file(&data).unwrap();
    let place = before.windows(300).position(|bytes| bytes == [2; 300]).unwrap() / PAGE_BYTES * PAGE_BYTES;
    let page = move |file: &[u8]| file[place..place + PAGE_BYTES].to_vec();
    let old = page(&before);
    let torn = Arc::new(Mutex::new(None));
    let (snapshots, found) = (first.after_crash(CrashMode::KeepAll), Arc::clone(&torn));
    let watched = snapshots.clone();
    let probe = Probe::new(
        watched,
        Box::new(move |_| {
            let mut bytes = snapshots.read_file(&data).unwrap();
            let new = page(&bytes);
            if found.lock().is_none() && new != old {
                // Its first sector is new, the others are not.
                bytes[place + SECTOR_BYTES..place + PAGE_BYTES].copy_from_slice(&old[SECTOR_BYTES..]);
                assert_ne!(page(&bytes), new);
                let left = snapshots.after_crash(CrashMode::KeepAll);
                left.write_file(&data, &bytes).unwrap();
                *found.lock() = Some(left);
            }
        }),
    );
    let recovered = Engine::open(Arc::new(probe) as Arc<dyn Disk>, directory(), &tiny()).unwrap();
    assert!(read_all(&recovered).unwrap() == content);
    recovered.close().unwrap();

    let second = torn.lock().take().unwrap();
    let reopened = open(&second.after_crash(CrashMode::KeepAll)).unwrap();
    assert!(read_all(&reopened).unwrap() == content);
    assert_sound(&reopened, "an opening repairs it");
    reopened.close().unwrap();
    second.write_file(&control, &[0x5A; PAGE_BYTES]).unwrap();
    let (salvage, saved) = save(&second);
    assert_eq!((salvage.source(), salvage.damaged_pages().1), (SalvageSource::Rebuilt, 0));
    assert!(saved == content);
}

/// A transaction keeps the log while a compaction cuts the file behind it, between checkpoints that the log still has.
/// Whichever of them redo can begin at, nothing is lost.
#[test]
fn checkpoints_from_before_a_cut_cost_nothing() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    let mut holder = begin(&engine);
    holder.put(&table, b"held", &[9; 300]).unwrap();
    engine.checkpoint().unwrap();
    for round in 0..3 {
        let other = engine.create_table(&format!("u{round}"), b"").unwrap();
        for row in 0..80_u32 {
            put(&engine, &other, &row.to_be_bytes(), &[round; 2000]);
        }
        engine.checkpoint().unwrap();
        put(&engine, &table, &[round], &[round; 300]);
        engine.drop_table(other.name()).unwrap();
        let report = engine.compact(&mut go_on).unwrap();
        assert!(report.pages_after < report.pages_before, "{report:?}");
    }
    holder.commit(Durability::Sync).unwrap();
    let content = read_all(&engine).unwrap();
    let left = disk.after_crash(CrashMode::DropUnsynced);
    left.write_file(&directory().join("control"), &[0x5A; PAGE_BYTES]).unwrap();
    let (salvage, saved) = save(&left);
    assert_eq!((salvage.source(), salvage.damaged_pages().1), (SalvageSource::Rebuilt, 0));
    assert!(saved == content);
    engine.close().unwrap();
}

/// A database whose control file is lost, and of which more would have to be recovered than fits in memory: all that
/// only its log has is left out. The report said why it could not be opened, which more memory would not have changed,
/// and nothing of the memory.
#[test]
fn what_does_not_fit_in_memory_is_said() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    engine.checkpoint().unwrap();
    for row in 0..200_u32 {
        put(&engine, &table, &row.to_be_bytes(), &[1; 300]);
    }
    let content = read_all(&engine).unwrap();
    let left = disk.after_crash(CrashMode::DropUnsynced);
    left.write_file(&directory().join("control"), &[0x5A; PAGE_BYTES]).unwrap();
    let (salvage, saved) = save(&left);
    assert_eq!(salvage.source(), SalvageSource::Rebuilt);
    assert!(saved == content && salvage.given_up().is_none());
    let (salvage, saved) = save_with(&left, &EngineOptions { read_only_bytes: 64 << 10, ..tiny() });
    assert_eq!(salvage.source(), SalvageSource::Pages);
    assert!(saved.len() < content.len());
    assert!(salvage.failure().unwrap().to_string().contains("control"));
    let given_up = salvage.given_up().unwrap().to_string();
    assert!(given_up.contains("would have to be changed in memory"), "{given_up}");
    engine.close().unwrap();
}

/// Each opening of a file in turn finds that this process has as many open as it may: a database that crashed is
/// refused, or saved as a whole, also one that lost its control file. It was taken for damaged, and what only its log
/// had for lost.
#[test]
fn files_that_cannot_be_opened_are_no_damage() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    for row in 0..40_u32 {
        put(&engine, &table, &row.to_be_bytes(), &[1; 300]);
    }
    let content = read_all(&engine).unwrap();
    let whole = disk.after_crash(CrashMode::DropUnsynced);
    // Of the other two, one has no header page, either.
    let [without_control, without_header] = [false, true].map(|header| {
        let left = disk.after_crash(CrashMode::DropUnsynced);
        left.write_file(&directory().join("control"), &[0x5A; PAGE_BYTES]).unwrap();
        if header {
            let mut data = left.read_file(&directory().join("data")).unwrap();
            data[..PAGE_BYTES].fill(0x5A);
            left.write_file(&directory().join("data"), &data).unwrap();
        }
        left
    });
    let databases = [
        (whole, SalvageSource::Recovered),
        (without_control, SalvageSource::Rebuilt),
        (without_header, SalvageSource::Repeated),
    ];
    for (left, source) in databases {
        let mut refused = 0;
        for files in 0..60 {
            left.refuse_one_file_after(Some(files));
            let shared: Arc<dyn Disk> = Arc::new(left.clone());
            match Salvage::open(&shared, directory(), &tiny(), &mut go_on) {
                Err(error) => {
                    assert!(error.to_string().contains("os error 24"), "{files}: {error}");
                    refused += 1;
                }
                Ok(salvage) => {
                    let salvage = salvage.unwrap();
                    let failures = (salvage.failure(), salvage.given_up());
                    assert_eq!(salvage.source(), source, "{files} {failures:?}");
                }
            }
        }
        assert!(refused > 5, "{source:?}: {refused}");
        left.refuse_one_file_after(None);
        assert!(save(&left).1 == content, "{source:?}");
    }
    engine.close().unwrap();
}

/// A record of the log is damaged, and a page that was imaged before it had been written to the file with what came
/// behind it: redo put the image in its place, and what the file had was lost.
#[test]
fn what_the_file_has_is_not_exchanged_for_an_older_image() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let [table, other] = ["t", "u"].map(|name| engine.create_table(name, b"").unwrap());
    put(&engine, &table, b"a", &[1; 300]);
    engine.checkpoint().unwrap();
    put(&engine, &table, b"b", &[2; 300]);
    let damaged = engine.log().tail();
    for row in 0..200_u32 {
        put(&engine, &other, &row.to_be_bytes(), &[3; 1000]);
    }
    put(&engine, &table, b"c", &[4; 300]);
    engine.pool().flush_all().unwrap();
    let content = read_all(&engine).unwrap();
    let left = disk.after_crash(CrashMode::DropUnsynced);
    let (segment, place) =
        (damaged.0 / engine.log().segment_bytes(), damaged.0 % engine.log().segment_bytes());
    let name = format!("log/{:016x}.log", segment * engine.log().segment_bytes());
    let path = directory().join(name);
    let mut bytes = left.read_file(&path).unwrap();
    bytes[place as usize + 40] ^= 1;
    left.write_file(&path, &bytes).unwrap();
    let (salvage, saved) = save(&left);
    assert_eq!(salvage.source(), SalvageSource::Repeated, "{:?}", salvage.failure());
    assert!(salvage.log_damage().is_some());
    for key in ["a", "b", "c"] {
        let key = ("t".to_owned(), key.as_bytes().to_vec());
        assert!(saved.get(&key) == content.get(&key), "{key:?}");
    }
    assert!(saved == content);
    engine.close().unwrap();
}

/// The program alone knew that the log has as whole pages what was changed since the last checkpoint: who called this
/// was told that there is no database.
#[test]
fn without_a_data_file_the_log_is_repeated() {
    let disk = FaultyDisk::new();
    let engine = open(&disk).unwrap();
    let table = engine.create_table("t", b"").unwrap();
    for row in 0..40_u32 {
        put(&engine, &table, &row.to_be_bytes(), &[1; 300]);
    }
    let content = read_all(&engine).unwrap();
    let left = disk.after_crash(CrashMode::DropUnsynced);
    Disk::remove(&left, &directory().join("data")).unwrap();
    let (salvage, saved) = save(&left);
    assert_eq!(salvage.source(), SalvageSource::Repeated);
    let failure = salvage.failure().unwrap().to_string();
    assert!(failure.contains("data is damaged: it is missing, and only the log is left"), "{failure}");
    assert!(saved == content);
    engine.close().unwrap();
}
