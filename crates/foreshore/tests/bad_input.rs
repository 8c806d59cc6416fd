//! What is no database, what was one once, and what the machine refuses: each a clear error, nothing made worse.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use foreshore::{
    CorruptionSite, Database, Durability, Error, Options, Result, Salvage, TableDefinition, TransactOptions,
    limits::{MAX_TRANSACTIONS, PAGE_BYTES},
};
use foreshore_env::random::Xorshift;
use foreshore_testkit::{CrashMode, FaultyDisk};

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("table");

fn small() -> Options {
    Options {
        pool_bytes: 1 << 20,
        log_bytes: 8 << 20,
        log_segment_bytes: 256 << 10,
        log_buffer_bytes: 256 << 10,
        ..Options::default()
    }
}

fn open_on(disk: &FaultyDisk) -> Result<Database> {
    Database::builder().options(small()).disk(Arc::new(disk.clone())).open("/db")
}

/// The value of a key: long enough that a few hundred fill some dozen pages, some of them in overflow chunks.
fn value(key: u64) -> Vec<u8> {
    let length = if key.is_multiple_of(20) { 4000 } else { 300 };
    key.to_le_bytes().into_iter().cycle().take(length).collect()
}

fn fill(db: &Database, keys: std::ops::Range<u64>) -> Result<()> {
    for key in keys {
        db.transact(|tx| tx.put(TABLE, key, &value(key)[..]))?;
    }
    Ok(())
}

/// Reads everything; the keys, which have their values.
fn read(db: &Database) -> Result<Vec<u64>> {
    db.transact(|tx| {
        let mut keys = Vec::new();
        for entry in tx.range(TABLE, ..)? {
            let (key, found) = entry?;
            assert!(found == value(key), "key {key} has another value than it was given");
            keys.push(key);
        }
        Ok(keys)
    })
}

fn listing(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(&path).unwrap_or_default()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_file_is_no_database() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    fs::write(&path, "not a database").unwrap();
    let error = Database::open(&path).unwrap_err();
    assert!(matches!(&error, Error::NotADatabase { path: named, .. } if *named == path), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"not a database");
}

#[test]
fn a_directory_of_other_things_is_no_database_and_stays_as_it_is() {
    for names in [
        &["letter.txt"][..],
        &["data"],
        &["log"],
        &["LOCK", "photo.jpg"],
        &["control.new"],
        &["control"],
        &["control", "data"],
        &["control", "data", "log"],
        &["control", "data", "log/"],
        &["control", "data/", "log/"],
        &["control", "log/"],
    ] {
        let directory = tempfile::tempdir().unwrap();
        for name in names {
            let path = directory.path().join(name);
            if name.ends_with('/') {
                fs::create_dir(path).unwrap();
            } else {
                fs::write(path, vec![0x55; 10_000]).unwrap();
            }
        }
        let before = listing(directory.path());
        let error = Database::open(directory.path()).unwrap_err();
        assert!(matches!(error, Error::NotADatabase { .. }), "{names:?}: {error}");
        let after: Vec<_> = listing(directory.path());
        let unchanged = before.iter().all(|file| after.contains(file));
        let added: Vec<_> = after.iter().filter(|file| !before.contains(file)).collect();
        assert!(unchanged && added.iter().all(|(path, _)| path.ends_with("LOCK")), "{names:?}: {added:?}");
    }
}

#[test]
fn another_format_is_named() {
    for format in [0_u32, 5, 99] {
        let disk = FaultyDisk::new();
        let db = open_on(&disk).unwrap();
        fill(&db, 0..3).unwrap();
        db.close().unwrap();
        drop(db);
        let path = Path::new("/db/control");
        let mut control = disk.read_file(path).unwrap();
        for slot in control.chunks_mut(4096) {
            slot[8..12].copy_from_slice(&format.to_le_bytes());
            let checksum = crc32c::crc32c_append(crc32c::crc32c(&slot[..12]), &slot[16..512]);
            slot[12..16].copy_from_slice(&checksum.to_le_bytes());
        }
        disk.write_file(path, &control).unwrap();
        let error = open_on(&disk).unwrap_err();
        assert!(matches!(error, Error::UpgradeRequired { found, .. } if found == format), "{error}");
        assert!(error.to_string().contains(&format.to_string()), "{error}");
        assert_eq!(disk.read_file(path).unwrap(), control, "and nothing was changed");
    }
}

/// A database that is refused is no worse than before. Where its format is refused nothing at all has changed; where
/// its data file is, the log has been tidied as by any opening, and with the right data file everything is there.
#[test]
fn a_database_that_is_refused_is_no_worse_than_before() {
    let made = FaultyDisk::new();
    let db = open_on(&made).unwrap();
    fill(&db, 0..40).unwrap();
    db.checkpoint().unwrap();
    fill(&db, 40..90).unwrap();
    let disk = made.after_crash(CrashMode::KeepAll);
    drop(db);
    // What an opening tidies: a spare that never got its space, and what looks like a write that was interrupted.
    let half_made = Path::new("/db/log/spare-99");
    disk.write_file(half_made, b"half-made").unwrap();
    let last =
        disk.files().into_iter().filter(|file| file.extension().is_some_and(|name| name == "log")).max();
    let last = last.expect("a segment");
    let mut segment = disk.read_file(&last).unwrap();
    let end = segment.iter().rposition(|&byte| byte != 0).unwrap().next_multiple_of(8) + 64;
    segment[end..end + 32].fill(0x77);
    disk.write_file(&last, &segment).unwrap();

    let path = Path::new("/db/control");
    let control = disk.read_file(path).unwrap();
    let mut newer = control.clone();
    for slot in newer.chunks_mut(4096) {
        slot[8..12].copy_from_slice(&99_u32.to_le_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&slot[..12]), &slot[16..512]);
        slot[12..16].copy_from_slice(&checksum.to_le_bytes());
    }
    let all = |disk: &FaultyDisk| -> Vec<_> {
        disk.files().into_iter().map(|file| (disk.read_file(&file).unwrap(), file)).collect()
    };
    disk.write_file(path, &newer).unwrap();
    let before = all(&disk);
    assert!(matches!(open_on(&disk).unwrap_err(), Error::UpgradeRequired { found: 99, .. }));
    let after: Vec<_> = all(&disk).into_iter().filter(|(_, file)| !file.ends_with("LOCK")).collect();
    assert_eq!(after.len(), before.iter().filter(|(_, file)| !file.ends_with("LOCK")).count());
    assert!(after.iter().all(|file| before.contains(file)), "nothing was changed");

    disk.write_file(path, &control).unwrap();
    let path = Path::new("/db/data");
    let data = disk.read_file(path).unwrap();
    let mut damaged = data.clone();
    damaged[..PAGE_BYTES].fill(0x77);
    disk.write_file(path, &damaged).unwrap();
    for _ in 0..2 {
        let error = open_on(&disk).unwrap_err();
        assert!(matches!(error, Error::Corrupted { .. }), "{error}");
    }
    assert!(!disk.files().iter().any(|file| file == half_made), "its log was not even opened");
    assert_eq!(disk.read_file(path).unwrap(), damaged);
    disk.write_file(path, &data).unwrap();
    let db = open_on(&disk).unwrap();
    assert_eq!(read(&db).unwrap(), (0..90).collect::<Vec<_>>());
    assert!(db.verify().unwrap().is_sound());
}

#[test]
fn a_missing_file_is_named() {
    // The last one: the directory is there, and empty.
    for missing in ["control", "data", "log", "log/"] {
        let disk = FaultyDisk::new();
        let db = open_on(&disk).unwrap();
        fill(&db, 0..3).unwrap();
        db.close().unwrap();
        drop(db);
        let survivor = FaultyDisk::new();
        foreshore_env::disk::Disk::create_directory(&survivor, Path::new("/db")).unwrap();
        if missing != "log" {
            foreshore_env::disk::Disk::create_directory(&survivor, Path::new("/db/log")).unwrap();
        }
        for path in disk.files() {
            if !path.starts_with(Path::new("/db").join(missing)) {
                survivor.write_file(&path, &disk.read_file(&path).unwrap()).unwrap();
            }
        }
        let error = open_on(&survivor).unwrap_err();
        assert!(
            matches!(&error, Error::Corrupted { site: CorruptionSite::File(_) | CorruptionSite::Log(_), .. }),
            "without {missing}: {error}"
        );
        for said in ["missing", "put", "open a backup"] {
            assert!(error.to_string().contains(said), "without {missing}, {said:?}: {error}");
        }
        // Without pages there is nothing to save.
        assert_eq!(error.to_string().contains("foreshore salvage"), missing != "data", "{error}");
    }
}

/// With all of its files there it is a database, whatever is in them, and the error leads to what can be saved.
#[test]
fn a_database_whose_file_is_no_longer_one_is_damaged() {
    for name in ["control", "data"] {
        for bytes in [&[][..], &[0; 8192], &[0x77; 20_000], b"# my settings\n"] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("db");
            closed(&path, 0..10);
            fs::write(path.join(name), bytes).unwrap();
            for read_only in [false, true] {
                let options = Options { read_only, ..small() };
                let error = Database::builder().options(options).open(&path).unwrap_err();
                assert!(
                    matches!(&error, Error::Corrupted { path: database, site: CorruptionSite::File(site), .. }
                        if *database == path && *site == path.join(name)),
                    "{name} of {} bytes: {error}",
                    bytes.len()
                );
                assert!(error.to_string().contains("restore a backup"), "{error}");
                let is_cut = name == "data" && bytes.len() < PAGE_BYTES;
                assert!(is_cut || error.to_string().contains("foreshore salvage"), "{error}");
            }
            assert_eq!(fs::read(path.join(name)).unwrap(), bytes);
        }
    }
}

/// What nobody has named was named in errors by nothing: "cannot make : No such file or directory".
#[test]
fn a_path_of_no_letters_can_be_seen_in_an_error() {
    let without = Database::builder().create(false).open("");
    let errors = [Database::open("").map(drop), without.map(drop), Salvage::open("").map(drop)];
    for error in errors.map(Result::unwrap_err) {
        assert!(error.to_string().contains("\"\""), "{error}");
    }
}

/// A closed database with these keys.
fn closed(path: &Path, keys: std::ops::Range<u64>) {
    let db = Database::builder().options(small()).open(path).unwrap();
    fill(&db, keys).unwrap();
    db.close().unwrap();
}

fn reopen(path: &Path) -> Result<Database> {
    Database::builder().options(small()).create(false).open(path)
}

#[test]
fn the_data_of_another_database_or_of_another_time_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (path, other) = (directory.path().join("db"), directory.path().join("other"));
    closed(&path, 0..100);
    closed(&other, 0..100);
    let (data, old, mine) = (path.join("data"), directory.path().join("old"), directory.path().join("mine"));
    fs::copy(&data, &old).unwrap();
    closed(&path, 100..200);
    fs::copy(&data, &mine).unwrap();

    for stranger in [other.join("data"), old] {
        fs::copy(&stranger, &data).unwrap();
        let error = reopen(&path).unwrap_err();
        assert!(matches!(error, Error::Corrupted { .. }), "{}: {error}", stranger.display());
    }
    fs::copy(&mine, &data).unwrap();
    assert_eq!(read(&reopen(&path).unwrap()).unwrap().len(), 200);
}

#[test]
fn links_and_pipes_in_place_of_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    closed(&path, 0..10);
    for name in ["LOCK", "control", "data", "log"] {
        let (place, aside) = (path.join(name), directory.path().join(name));
        fs::rename(&place, &aside).unwrap();
        std::os::unix::fs::symlink(&aside, &place).unwrap();
        let said = reopen(&path).unwrap_err().to_string();
        assert!(said.contains("symbolic link"), "{name} is a link: {said}");
        fs::remove_file(&place).unwrap();
        assert!(Command::new("mkfifo").arg(&place).status().unwrap().success());
        assert!(reopen(&path).is_err(), "{name} is a pipe");
        fs::remove_file(&place).unwrap();
        if name != "log" {
            fs::create_dir(&place).unwrap();
            assert!(reopen(&path).is_err(), "{name} is a directory");
            fs::remove_dir(&place).unwrap();
        }
        fs::rename(&aside, &place).unwrap();
    }
    // The user may name a link.
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(read(&reopen(&link).unwrap()).unwrap().len(), 10);
}

#[test]
fn what_lies_beside_a_complete_database_does_not_matter() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    closed(&path, 0..10);
    fs::write(path.join("control.new"), "nonsense").unwrap();
    assert_eq!(read(&reopen(&path).unwrap()).unwrap().len(), 10);
}

#[test]
fn a_flipped_bit_in_any_page_is_found_or_does_no_harm() {
    let disk = FaultyDisk::new();
    let db = open_on(&disk).unwrap();
    fill(&db, 0..300).unwrap();
    db.transact(|tx| tx.remove_range(TABLE, 100..150)).unwrap();
    let expected = read(&db).unwrap();
    let used = db.verify().unwrap().pages;
    db.close().unwrap();
    drop(db);
    let path = Path::new("/db/data");
    let pages = disk.read_file(path).unwrap().len() / PAGE_BYTES;
    let mut random = Xorshift::new(1);
    let (mut found, mut harmless) = (0, 0);
    for page in 0..pages {
        let place = page * PAGE_BYTES + random.below(PAGE_BYTES as u64) as usize;
        let damaged = disk.after_crash(CrashMode::KeepAll);
        damaged.flip_bit(path, place as u64, random.below(8) as u8);
        let result = open_on(&damaged).and_then(|db| {
            let keys = read(&db)?;
            let report = db.verify()?;
            assert_eq!(keys, expected, "page {page}: wrong data was read");
            Ok(report.is_sound())
        });
        match result {
            Ok(true) => harmless += 1,
            Ok(false) => found += 1,
            Err(Error::Corrupted { .. }) => found += 1,
            Err(error) => panic!("page {page}: {error}"),
        }
    }
    println!("{pages} pages: damage found in {found}, {harmless} not in use");
    assert!(found >= used && used >= 20, "of {used} pages in use, damage was found in {found} only");
}

#[test]
fn a_flipped_bit_in_one_slot_of_the_control_file_does_no_harm_and_in_both_is_found() {
    let disk = FaultyDisk::new();
    let db = open_on(&disk).unwrap();
    fill(&db, 0..20).unwrap();
    drop(db);
    let path = Path::new("/db/control");
    let mut random = Xorshift::new(2);
    for _ in 0..50 {
        let (offset, bit) = (12 + random.below(500), random.below(8) as u8);
        for slots in [&[0][..], &[1], &[0, 1]] {
            let damaged = disk.after_crash(CrashMode::KeepAll);
            slots.iter().for_each(|slot| damaged.flip_bit(path, slot * 4096 + offset, bit));
            match (open_on(&damaged), slots.len()) {
                (Ok(db), 1) => assert_eq!(read(&db).unwrap().len(), 20),
                (Err(Error::Corrupted { site: CorruptionSite::File(file), .. }), 2) => assert_eq!(file, path),
                (other, _) => panic!("{slots:?} at {offset}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_the_middle_of_the_log_does_not_shorten_it() {
    let disk = FaultyDisk::new();
    let db = open_on(&disk).unwrap();
    fill(&db, 0..200).unwrap();
    // As if the process had been killed: all of it must come from the log.
    let crashed = disk.after_crash(CrashMode::KeepAll);
    let logs: Vec<_> = crashed.files().into_iter().filter(|path| path.starts_with("/db/log")).collect();
    let control = open_on(&crashed.after_crash(CrashMode::KeepAll)).unwrap();
    assert_eq!(read(&control).unwrap().len(), 200);
    drop(control);
    let mut random = Xorshift::new(3);
    let (mut found, mut harmless) = (0, 0);
    for _ in 0..150 {
        let path = &logs[random.below(logs.len() as u64) as usize];
        let bytes = crashed.read_file(path).unwrap();
        let place = random.below(bytes.len() as u64);
        let damaged = crashed.after_crash(CrashMode::KeepAll);
        damaged.flip_bit(path, place, random.below(8) as u8);
        match open_on(&damaged).and_then(|db| read(&db)) {
            Ok(keys) => {
                // What lies behind the end of the log, or before what recovery needs, is not looked at. Damage in what
                // was flushed last, here one commit, looks like a flush that a power cut interrupted.
                assert!(keys.iter().copied().eq(0..keys.len() as u64));
                assert!(keys.len() >= 199, "{} at {place}: commits were lost in silence", path.display());
                harmless += 1;
            }
            Err(Error::Corrupted { site, .. }) => {
                assert!(!matches!(site, CorruptionSite::Page(_)), "{site}");
                found += 1;
            }
            Err(error) => panic!("{} at {place}: {error}", path.display()),
        }
    }
    println!("damage found {found} times, {harmless} flips in unused places");
    assert!(found >= 10, "{found}");
    drop(db);
}

#[test]
fn files_belong_to_their_owner_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Database::open(&path).unwrap();
    fill(&db, 0..3).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    let mut files = 0;
    let mut directories = vec![path];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                assert_eq!(mode(&path), 0o700, "{}", path.display());
                directories.push(path);
            } else {
                assert_eq!(mode(&path), 0o600, "{}", path.display());
                files += 1;
            }
        }
    }
    assert!(files >= 4);
}

/// Set for the process that [`a_second_process_is_refused`] starts.
const PATH_FOR_CHILD: &str = "FORESHORE_TEST_OPEN";

#[test]
fn a_second_process_is_refused() {
    if let Some(path) = std::env::var_os(PATH_FOR_CHILD) {
        let outcome = match Database::open(path) {
            Ok(_) => "opened",
            Err(Error::AlreadyOpen { .. }) => "already open",
            Err(_) => "another error",
        };
        println!("outcome: {outcome}.");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let open_elsewhere = || {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["a_second_process_is_refused", "--exact", "--nocapture"])
            .env(PATH_FOR_CHILD, &path)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let db = Database::open(&path).unwrap();
    let error = Database::open(&path).unwrap_err();
    assert!(matches!(&error, Error::AlreadyOpen { path: named } if *named == path), "{error}");
    // By another name, too.
    let alias = directory.path().join("alias");
    std::os::unix::fs::symlink(&path, &alias).unwrap();
    assert!(matches!(Database::open(&alias), Err(Error::AlreadyOpen { .. })));
    let said = open_elsewhere();
    assert!(said.contains("outcome: already open."), "{said}");
    fill(&db, 0..3).unwrap();
    db.close().unwrap();
    let said = open_elsewhere();
    assert!(said.contains("outcome: opened."), "{said}");
    assert_eq!(read(&Database::open(&path).unwrap()).unwrap(), [0, 1, 2]);
}

#[test]
fn a_failed_sync_stops_the_database_and_reopening_has_everything_acknowledged() {
    for nth in [1, 2, 5, 20] {
        let disk = FaultyDisk::new();
        let db = open_on(&disk).unwrap();
        disk.fail_sync(disk.counts().syncs + nth);
        let mut acknowledged = 0;
        let error = loop {
            match fill(&db, acknowledged..acknowledged + 1) {
                Ok(()) => acknowledged += 1,
                Err(error) => break error,
            }
            assert!(acknowledged < 1000, "the fault was not noticed");
        };
        assert!(
            matches!(&error, Error::OutcomeUnknown { .. } | Error::Poisoned { .. } | Error::Io { .. }),
            "{error}"
        );
        // Nothing is acknowledged any more, whatever is tried.
        for _ in 0..3 {
            let error = fill(&db, 5000..5001).unwrap_err();
            assert!(matches!(&error, Error::Poisoned { .. }), "{error}");
            assert!(error.to_string().contains("open it again"), "{error}");
        }
        assert!(matches!(db.checkpoint(), Err(Error::Poisoned { .. })));
        drop(db);
        let db = open_on(&disk.after_crash(CrashMode::DropUnsynced)).unwrap();
        let keys = read(&db).unwrap();
        // The one whose outcome was unknown may be there.
        assert!(keys.len() as u64 == acknowledged || keys.len() as u64 == acknowledged + 1, "{acknowledged}");
        assert!(keys.iter().copied().eq(0..keys.len() as u64));
        assert!(db.verify().unwrap().is_sound());
    }
}

/// Writes until the disk is full: then what was acknowledged is there, what is open can be rolled back, a checkpoint
/// can be taken, the database can be closed and opened, and when there is room again it goes on by itself.
fn fill_up(open: impl Fn() -> Result<Database>, make_room: impl FnOnce()) {
    let mut db = open().unwrap();
    fill(&db, 0..1).unwrap();
    let mut acknowledged = 1;
    let mut older = db.begin().unwrap();
    older.put(TABLE, 500_000, &value(1)[..]).unwrap();
    let error = loop {
        match fill(&db, acknowledged..acknowledged + 1) {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 100_000, "the disk never became full");
    };
    assert!(acknowledged > 10, "{acknowledged}: {error}");
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    assert_eq!(error.code(), "disk_full");
    assert!(error.to_string().contains("make room there and continue"), "{error}");
    older.rollback().unwrap();
    for reopened in [false, true] {
        if reopened {
            db.close().unwrap();
            db = open().unwrap();
        }
        assert_eq!(read(&db).unwrap().len() as u64, acknowledged, "reopened: {reopened}");
        db.checkpoint().unwrap();
    }
    make_room();
    // The log asks for space every tenth of a second; a busy machine is slower.
    let patience = Instant::now() + Duration::from_secs(120);
    while let Err(error) = fill(&db, 200_000..200_100) {
        assert!(Instant::now() < patience, "{error}");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(read(&db).unwrap().len() as u64, acknowledged + 100);
    assert!(db.verify().unwrap().is_sound());
}

#[test]
fn a_full_disk_loses_nothing() {
    for megabytes in [3, 4, 6] {
        let disk = FaultyDisk::new();
        disk.set_free_space(Some(megabytes << 20));
        fill_up(|| open_on(&disk), || disk.set_free_space(None));
    }
}

/// A file system of so many bytes; `None` where that is not allowed.
fn small_file_system(bytes: u64) -> Option<MountedDirectory> {
    let directory = tempfile::tempdir().ok()?;
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
        .arg(directory.path())
        .output()
        .is_ok_and(|output| output.status.success());
    mounted.then_some(MountedDirectory(directory))
}

struct MountedDirectory(tempfile::TempDir);

impl Drop for MountedDirectory {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_file_system_loses_nothing() {
    let Some(directory) = small_file_system(6 << 20) else {
        println!("skipped: this process may not mount a tmpfs");
        return;
    };
    let root = directory.0.path();
    let ballast = root.join("ballast");
    fs::write(&ballast, vec![0; 1 << 20]).unwrap();
    fill_up(
        || Database::builder().options(small()).open(root.join("db")),
        || fs::remove_file(&ballast).unwrap(),
    );
}

#[test]
fn a_transaction_larger_than_the_log_fails_alone() {
    let disk = FaultyDisk::new();
    let db = open_on(&disk).unwrap();
    fill(&db, 0..50).unwrap();
    let result =
        db.transact(|tx| (0..1_000_000).try_for_each(|key| tx.put(TABLE, key, &value(key)[..]).map(|_| ())));
    let error = result.unwrap_err();
    assert!(matches!(error, Error::LogFull { is_own: true, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("needed, most by this transaction itself (transaction "), "{text}");
    assert!(text.contains("; commit it sooner, split it into smaller ones, or raise log_bytes"), "{text}");
    assert_eq!(read(&db).unwrap().len(), 50, "it was rolled back");
    // Whoever is refused beside it is told whose fault it is.
    let mut large = db.begin().unwrap();
    let refused = (0..).find_map(|key| large.put(TABLE, key, &value(key)[..]).err()).unwrap();
    assert!(matches!(refused, Error::LogFull { is_own: true, .. }), "{refused}");
    let mut small = db.begin().unwrap();
    let refused = (2_000_000..).find_map(|key| small.put(TABLE, key, &value(key)[..]).err()).unwrap();
    assert!(matches!(refused, Error::LogFull { is_own: false, .. }), "{refused}");
    let text = refused.to_string();
    assert!(text.contains(&format!("needed, most by transaction {}, open for", large.id())), "{text}");
    assert!(text.contains("; end the oldest transaction, use smaller ones, or raise log_bytes"), "{text}");
    small.rollback().unwrap();
    large.rollback().unwrap();
    fill(&db, 50..100).unwrap();
    assert_eq!(read(&db).unwrap().len(), 100, "and the database goes on");
    assert!(db.verify().unwrap().is_sound());
}

/// Small records appended up to that limit took more of the log to take back than there was: the database stopped, and
/// could not be opened again.
#[test]
fn an_append_larger_than_the_log_fails_alone() {
    let disk = FaultyDisk::new();
    let db = open_on(&disk).unwrap();
    fill(&db, 0..50).unwrap();
    let rows = || (1000..10_000_000_u64).map(|key| (key, &b"row"[..]));
    let error = db.transact(|tx| tx.append(TABLE, rows())).unwrap_err();
    assert!(matches!(error, Error::LogFull { .. }), "{error}");
    assert_eq!(read(&db).unwrap().len(), 50, "it was rolled back");
    // And in the middle of it.
    let mut open = db.begin().unwrap();
    let error = (1000..).map(|first| (first * 1000..).take(1000).map(|key| (key, &b"row"[..])));
    let error = error.map(|some| open.append(TABLE, some)).find_map(Result::err).unwrap();
    assert!(matches!(error, Error::LogFull { .. }), "{error}");
    let left = disk.after_crash(CrashMode::KeepAll);
    drop(open);
    assert_eq!(read(&db).unwrap().len(), 50);
    let db = open_on(&left).unwrap();
    assert_eq!(read(&db).unwrap().len(), 50);
    fill(&db, 50..100).unwrap();
    assert!(db.verify().unwrap().is_sound());
}

#[test]
fn a_transaction_with_too_many_locks_fails_alone() {
    let disk = FaultyDisk::new();
    let options = Options { max_locks_per_transaction: 100, ..small() };
    let db = Database::builder().options(options).disk(Arc::new(disk)).open("/db").unwrap();
    let result = db.transact(|tx| (0..1000).try_for_each(|key| tx.put(TABLE, key, &b"x"[..]).map(|_| ())));
    let error = result.unwrap_err();
    assert!(matches!(error, Error::TooManyLocks { limit: 100 }), "{error}");
    assert_eq!(read(&db).unwrap().len(), 0);
    // As its message says: one lock for the whole table.
    db.transact(|tx| {
        tx.lock_table(TABLE, foreshore::TableLock::Exclusive)?;
        (0..1000).try_for_each(|key| tx.put(TABLE, key, &value(key)[..]).map(|_| ()))
    })
    .unwrap();
}

#[test]
fn transactions_are_counted() {
    let disk = FaultyDisk::new();
    let db = open_on(&disk).unwrap();
    let mut open = Vec::new();
    let error = loop {
        match db.begin() {
            Ok(tx) => open.push(tx),
            Err(error) => break error,
        }
        assert!(open.len() <= MAX_TRANSACTIONS, "there is no limit");
    };
    assert!(matches!(error, Error::TooManyTransactions { .. }), "{error}");
    assert!(open.len() > MAX_TRANSACTIONS / 2);
    open.pop();
    db.begin().unwrap();
    open.clear();
    let lazy = TransactOptions { durability: Some(Durability::Lazy), ..TransactOptions::default() };
    db.transact_with(&lazy, |tx| tx.put(TABLE, 1, &value(1)[..])).unwrap();
}
