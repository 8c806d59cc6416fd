//! Backups and read-only openings on a real file system.

use std::{
    collections::BTreeMap,
    fs, io,
    ops::ControlFlow,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use foreshore::{Database, Error, Salvage, TableDefinition};
use foreshore_env::disk::{Disk, OpenMode, RealDisk};

const ACCOUNTS: TableDefinition<&str, i64> = TableDefinition::new("accounts");
const OTHER: TableDefinition<&str, i64> = TableDefinition::new("other");
const NOTES: TableDefinition<u64, &[u8]> = TableDefinition::new("notes");

/// Everything below a directory: permission bits, and the bytes of files.
fn everything(directory: &Path) -> BTreeMap<PathBuf, (u32, Option<Vec<u8>>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        let mode = metadata.permissions().mode() & 0o777;
        if metadata.is_dir() {
            found.extend(everything(&path));
            found.insert(path, (mode, None));
        } else {
            found.insert(path.clone(), (mode, Some(fs::read(path).unwrap())));
        }
    }
    found
}

fn fill(db: &Database, from: i64) {
    for number in from..from + 200 {
        db.transact(|tx| tx.put(ACCOUNTS, &format!("account {number}"), number).map(drop)).unwrap();
    }
}

fn sum(db: &Database) -> i64 {
    db.transact(|tx| {
        let mut sum = 0;
        for entry in tx.range(ACCOUNTS, ..)? {
            sum += entry?.1;
        }
        Ok(sum)
    })
    .unwrap()
}

/// What nobody has written takes no room in a copy: here most of a file that somebody has made long.
#[test]
fn a_backup_has_the_holes_of_its_original() {
    const BYTES: u64 = 400 << 20;
    let home = tempfile::tempdir().unwrap();
    let (original, copy) = (home.path().join("db"), home.path().join("copy"));
    fill(&Database::open(&original).unwrap(), 0);
    let data = RealDisk.open(&original.join("data"), OpenMode::ReadWrite).unwrap();
    data.set_len(BYTES).unwrap();
    let db = Database::open(&original).unwrap();
    db.backup(&copy).unwrap();
    let made = fs::metadata(copy.join("data")).unwrap();
    assert_eq!(made.len(), BYTES);
    assert!(made.blocks() * 512 < BYTES / 10, "{} blocks", made.blocks());
    let copied = Database::open(&copy).unwrap();
    assert!(sum(&copied) == sum(&db) && copied.verify().unwrap().is_sound());
}

#[test]
fn a_backup_is_a_database_of_its_owner_alone() {
    let home = tempfile::tempdir().unwrap();
    let db = Database::builder().set("durability", "lazy").unwrap().open(home.path().join("db")).unwrap();
    fill(&db, 0);
    db.checkpoint().unwrap();
    let (copy, other) = (home.path().join("copy"), home.path().join("other"));
    let mut told = Vec::new();
    let report = thread::scope(|scope| {
        scope.spawn(|| fill(&db, 1000));
        db.backup_with(&copy, |progress| {
            told.push(progress.done_bytes);
            assert!(progress.done_bytes <= progress.total_bytes, "{progress:?}");
            ControlFlow::Continue(())
        })
    });
    assert!(report.unwrap().pages > 8 && told.is_sorted() && told.len() > 1, "{told:?}");
    for (path, (mode, content)) in everything(&copy) {
        assert_eq!(mode, if content.is_some() { 0o600 } else { 0o700 }, "{}", path.display());
    }
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o700);
    let copied = Database::open(&copy).unwrap();
    assert!(copied.verify().unwrap().is_sound());
    let least: i64 = (0..200).sum();
    assert!(sum(&copied) >= least && sum(&copied) <= sum(&db));
    fill(&copied, 5000);

    // By whatever name.
    std::os::unix::fs::symlink("db", home.path().join("alias")).unwrap();
    std::os::unix::fs::symlink(home.path().join("alias/log"), home.path().join("short")).unwrap();
    for inside in [
        "db",
        "db/copy",
        "db/log/copy",
        "alias/copy",
        "short",
        "short/copy",
        "other/../alias/copy",
        "short/../copy",
    ] {
        fs::create_dir_all(&other).unwrap();
        let inside = home.path().join(inside);
        let error = db.backup(&inside).unwrap_err();
        assert!(
            matches!(&error, Error::Io { source, .. } if source.kind() == io::ErrorKind::InvalidInput),
            "{error}"
        );
        assert!(error.to_string().ends_with("is copied; name a place beside it"), "{error}");
    }
    fs::remove_dir(&other).unwrap();
    assert!(db.verify().unwrap().is_sound());
    let error = db.backup(&copy).unwrap_err();
    assert!(
        matches!(&error, Error::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists),
        "{error}"
    );
    let error = db.backup_with(&other, |_| ControlFlow::Break(())).unwrap_err();
    assert!(matches!(error, Error::BackupStopped { .. }) && error.code() == "backup_stopped");
    let error = Database::open(&other).unwrap_err();
    assert!(
        matches!(error, Error::NotADatabase { .. }) && error.to_string().contains("not finished"),
        "{error}"
    );
}

#[test]
fn who_reads_only_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("db");
    let db = Database::open(&path).unwrap();
    fill(&db, 0);
    let expected = sum(&db);
    db.close().unwrap();
    drop(db);
    let before = everything(&path);
    {
        let reader = Database::builder().read_only(true).open(&path).unwrap();
        let second = Database::builder().set("read_only", "true").unwrap().open(&path).unwrap();
        assert_eq!((sum(&reader), sum(&second)), (expected, expected));
        assert!(reader.verify().unwrap().is_sound());
        let refused = reader.transact(|tx| tx.put(ACCOUNTS, "account 1", 2).map(drop)).unwrap_err();
        assert!(matches!(refused, Error::ReadOnly { .. }) && refused.code() == "read_only", "{refused}");
        let absent = reader.transact(|tx| tx.get(OTHER, "x")).unwrap_err();
        assert!(matches!(absent, Error::NoSuchTable { .. }), "{absent}");
        assert!(matches!(reader.create_table("t", "str", "i64"), Err(Error::ReadOnly { .. })));
        assert!(matches!(reader.drop_table("accounts"), Err(Error::ReadOnly { .. })));
        assert!(matches!(reader.checkpoint(), Err(Error::ReadOnly { .. })));
        assert!(matches!(Database::open(&path), Err(Error::AlreadyOpen { .. })));
        reader.close().unwrap();
    }
    assert_eq!(everything(&path), before);
    assert_eq!(sum(&Database::open(&path).unwrap()), expected);
    let nothing = Database::builder().read_only(true).open(home.path().join("nothing")).unwrap_err();
    assert!(matches!(nothing, Error::Io { .. }) && !home.path().join("nothing").exists(), "{nothing}");
}

/// Readers purged what they came by, and merged leaves: in memory, until that was used up, and logged it.
#[test]
fn who_reads_only_tidies_nothing() {
    const ROWS: TableDefinition<u32, &[u8]> = TableDefinition::new("rows");
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("db");
    let db = Database::open(&path).unwrap();
    db.transact(|tx| (0..20_000).try_for_each(|key| tx.put(ROWS, key, &[7; 200][..]).map(drop))).unwrap();
    db.transact(|tx| tx.remove_range(ROWS, ..19_990).map(drop)).unwrap();
    db.close().unwrap();
    drop(db);
    let reader = Database::builder().read_only(true).open(&path).unwrap();
    let before = reader.stats();
    assert_eq!(reader.read(|tx| Ok(tx.range(ROWS, ..)?.count())).unwrap(), 10);
    assert_eq!(reader.transact(|tx| Ok(tx.range(ROWS, ..)?.rev().count())).unwrap(), 10);
    assert_eq!(reader.transact(|tx| tx.get(ROWS, 5)).unwrap(), None);
    let after = reader.stats();
    assert_eq!(after.log_tail, before.log_tail);
    assert!(reader.verify().unwrap().is_sound());
}

/// It waited for ever: nobody can decide there.
#[test]
fn who_reads_only_does_not_wait_for_a_decision() {
    const SOON: Duration = Duration::from_secs(60);
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("db");
    let db = Database::open(&path).unwrap();
    fill(&db, 0);
    let mut tx = db.begin().unwrap();
    tx.put(ACCOUNTS, "account 1", 7).unwrap();
    tx.prepare("id").unwrap();
    db.close().unwrap();
    drop(db);
    for policy in ["dreadlocks", "timeout", "wound_wait", "wait_die", "no_wait"] {
        for execution in ["dynamic", "planned"] {
            let builder = Database::builder().read_only(true).set("deadlock_policy", policy).unwrap();
            let reader = builder.set("execution", execution).unwrap().open(&path).unwrap();
            let (told, answers) = mpsc::channel();
            let others = reader.clone();
            let asking = thread::spawn(move || {
                let _ = told.send(others.read(|tx| tx.get(ACCOUNTS, "account 1")));
                let _ = told.send(others.transact(|tx| tx.get(ACCOUNTS, "account 1")));
                let _ = told
                    .send(others.plan().read(ACCOUNTS, "account 1").run(|tx| tx.get(ACCOUNTS, "account 1")));
                let submitted = others.plan().read(ACCOUNTS, "account 1");
                let _ = told.send(
                    submitted.submit(|tx| tx.get(ACCOUNTS, "account 1")).and_then(|result| result.wait()),
                );
            });
            let what = format!("{policy}, {execution}");
            for _ in 0..4 {
                let refused = answers.recv_timeout(SOON).expect(&what).expect_err(&what);
                assert!(refused.to_string().contains("prepared id"), "{what}: {refused}");
                let Error::WouldBlock(lock) = refused else { panic!("{what}: {refused}") };
                assert_eq!(lock.prepared, [b"id".to_vec()], "{what}");
            }
            asking.join().unwrap();
            // What it has not changed is read as ever, and readers wait for each other.
            let mut one = reader.begin().unwrap();
            one.get_for_update(ACCOUNTS, "account 2").unwrap();
            thread::scope(|scope| {
                let other = scope.spawn(|| reader.transact(|tx| tx.get(ACCOUNTS, "account 2")));
                thread::sleep(Duration::from_millis(20));
                one.commit().unwrap();
                assert!(other.join().unwrap().unwrap().is_some(), "{what}");
            });
        }
    }
    let db = Database::open(&path).unwrap();
    db.commit_prepared("id").unwrap();
    assert_eq!(db.transact(|tx| tx.get(ACCOUNTS, "account 1")).unwrap(), Some(7));
}

/// Nobody could stop it before, however large the file.
#[test]
fn a_salvage_can_be_stopped() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("bank");
    let db = Database::open(&path).unwrap();
    fill(&db, 0);
    // More pages than it looks at before it tells how far it is.
    db.transact(|tx| (0..200).try_for_each(|number| tx.put(NOTES, number, &[7; 8000][..]).map(drop)))
        .unwrap();
    db.close().unwrap();
    drop(db);
    let before = everything(&path);
    let mut told = Vec::new();
    let stopped = Salvage::open_with(&path, |progress| {
        told.push(progress);
        ControlFlow::Break(())
    });
    let error = stopped.unwrap_err();
    assert!(matches!(error, Error::SalvageStopped), "{error}");
    assert_eq!(error.code(), "salvage_stopped");
    assert!(told.len() == 1 && told[0].done_pages < told[0].total_pages, "{told:?}");
    assert!(everything(&path) == before);
    let salvage = Salvage::open_with(&path, |_| ControlFlow::Continue(())).unwrap();
    let tables = salvage.tables();
    let accounts = tables.iter().find(|table| table.name == "accounts").unwrap();
    assert_eq!(salvage.rows(accounts, |_, _| ControlFlow::Continue(())).unwrap().rows, 200);
}

/// The one with the same number was read in its place.
#[test]
fn what_is_salvaged_has_no_tables_of_others() {
    let home = tempfile::tempdir().unwrap();
    let [one, other] = [("one", ACCOUNTS), ("other", OTHER)].map(|(name, table)| {
        let db = Database::open(home.path().join(name)).unwrap();
        db.transact(|tx| tx.put(table, name, 1)).unwrap();
        db.close().unwrap();
        drop(db);
        Salvage::open(home.path().join(name)).unwrap()
    });
    let table = &one.tables()[0];
    assert_eq!(one.rows(table, |_, _| ControlFlow::Continue(())).unwrap().rows, 1);
    let strange = other.rows(table, |_, _| panic!("it is another one"));
    assert!(matches!(strange, Err(Error::NoSuchTable { .. })), "{strange:?}");
}
