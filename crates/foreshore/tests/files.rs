//! The files of a database: whose they are, whatever the umask; that links are not followed; that nobody opens it
//! twice, in whatever way.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use foreshore::{Database, Error, Options, TableDefinition};

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("table");

fn small() -> Options {
    Options { log_segment_bytes: 256 << 10, log_bytes: 2 << 20, pool_bytes: 1 << 20, ..Options::default() }
}

fn open(path: &Path) -> foreshore::Result<Database> {
    Database::builder().options(small()).open(path)
}

/// Enough for several segments, some of them used anew, and a data file that has grown.
fn work(db: &Database) {
    for round in 0..6_u64 {
        for key in 0..300 {
            db.transact_with(
                &foreshore::TransactOptions {
                    durability: Some(foreshore::Durability::Lazy),
                    ..Default::default()
                },
                |tx| tx.put(TABLE, key + 100 * round, &[round as u8; 900][..]),
            )
            .unwrap();
        }
        db.checkpoint().unwrap();
    }
}

/// All files and directories with their permission bits.
fn modes(directory: &Path) -> Vec<(PathBuf, bool, u32)> {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let mut found = vec![(directory.to_owned(), true, mode(directory))];
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            found.push((path.clone(), path.is_dir(), mode(&path)));
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    found
}

/// Set for the process that [`again_with_umask`] starts.
const CHILD: &str = "FORESHORE_TEST_FILES";
/// What that process says when it has opened the database.
const OPEN: &str = "the database is open";

/// Runs the test of this name once more, in a process of its own with this umask.
fn again_with_umask(test: &str, umask: &str, path: &Path) {
    let program = std::env::current_exe().unwrap();
    let output = Command::new("sh")
        .args(["-c", &format!("umask {umask}; exec \"$0\" {test} --exact --nocapture")])
        .arg(program)
        .env(CHILD, path)
        .output()
        .unwrap();
    assert!(output.status.success(), "umask {umask}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn files_are_their_owner_s_whatever_the_umask() {
    if let Some(path) = std::env::var_os(CHILD) {
        let path = PathBuf::from(path);
        let db = open(&path).unwrap();
        work(&db);
        db.backup(path.with_extension("copy")).unwrap();
        db.close().unwrap();
        return;
    }
    for umask in ["000", "022", "077", "0777"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        again_with_umask("files_are_their_owner_s_whatever_the_umask", umask, &path);
        let (mut files, mut segments) = (0, 0);
        for made in [path.clone(), path.with_extension("copy")] {
            for (path, is_directory, mode) in modes(&made) {
                let expected = if is_directory { 0o700 } else { 0o600 };
                assert_eq!(mode, expected, "umask {umask}: {} is {mode:o}", path.display());
                files += usize::from(!is_directory);
                segments += usize::from(path.extension().is_some_and(|extension| extension == "log"));
            }
        }
        assert!(files >= 7 && segments >= 2, "umask {umask}: {files} files, {segments} segments");
    }
}

/// A link in the place of something that is about to be made leads nowhere: nothing is written through it.
#[test]
fn nothing_is_made_through_a_link() {
    for name in ["control.new", "data", "log", "LOCK"] {
        let directory = tempfile::tempdir().unwrap();
        let (path, victim) = (directory.path().join("db"), directory.path().join("victim"));
        fs::create_dir(&path).unwrap();
        // It seems to be a database in the making, so that names beside it are ours.
        if name != "control.new" {
            fs::write(path.join("control.new"), vec![0; 8192]).unwrap();
        }
        if name == "log" {
            fs::create_dir(&victim).unwrap();
            fs::write(victim.join("0000000000000000.log"), "precious").unwrap();
        } else {
            fs::write(&victim, "precious").unwrap();
        }
        symlink(&victim, path.join(name)).unwrap();
        let opened = open(&path);
        let kept = if name == "log" { victim.join("0000000000000000.log") } else { victim };
        assert_eq!(fs::read(&kept).unwrap(), b"precious", "{name}: {opened:?}");
        if let Ok(db) = opened {
            // The link was in the way of something half-made, and was removed with it.
            assert!(!fs::symlink_metadata(path.join(name)).unwrap().is_symlink(), "{name}");
            drop(db);
        }
    }
}

/// A file with the name of a spare of the log, and the length of one, that others can read, or that has another name:
/// it is no spare, so no segment is made of it, and what its other name leads to is not written.
#[test]
fn a_spare_of_the_log_is_its_owner_s_alone() {
    for named in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("db"), directory.path().join("other"));
        work(&open(&path).unwrap());
        fs::write(&other, vec![b'x'; 256 << 10]).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(if named { 0o600 } else { 0o644 })).unwrap();
        // Several, and all others away, so that they are what is used next.
        for entry in fs::read_dir(path.join("log")).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.extension().is_none() {
                fs::remove_file(entry).unwrap();
            }
        }
        for number in 0..2 {
            let spare = path.join(format!("log/spare-{number}"));
            if named {
                fs::hard_link(&other, spare).unwrap();
            } else {
                fs::copy(&other, spare).unwrap();
            }
        }
        let db = open(&path).unwrap();
        work(&db);
        db.close().unwrap();
        for (path, is_directory, mode) in modes(&path) {
            assert_eq!(mode, if is_directory { 0o700 } else { 0o600 }, "{} is {mode:o}", path.display());
        }
        assert!(fs::read(&other).unwrap().iter().all(|&byte| byte == b'x'), "the other name was written to");
    }
}

/// A copy may lack the lock file, somebody may remove it, and who only reads does not make one.
#[test]
fn without_its_lock_file_a_database_is_open_once_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    work(&open(&path).unwrap());
    let read = || Database::builder().options(small()).read_only(true).open(&path);
    let in_use = |result: foreshore::Result<Database>| {
        assert!(matches!(result, Err(Error::AlreadyOpen { .. })), "{result:?}");
    };
    let remove = || fs::remove_file(path.join("LOCK")).unwrap();
    remove();
    let reader = read().unwrap();
    drop(read().unwrap());
    in_use(open(&path));
    drop(reader);
    let writer = open(&path).unwrap();
    remove();
    in_use(read());
    in_use(open(&path));
    drop(writer);
    assert!(open(&path).unwrap().verify().unwrap().is_sound());
}

/// A database is open once: in one thread of many, whatever name the others use for it.
#[test]
fn one_of_many_threads_opens_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    open(&path).unwrap().close().unwrap();
    symlink(&path, directory.path().join("alias")).unwrap();
    let names = [path, directory.path().join("alias"), directory.path().join("./db/../db")];
    for _ in 0..5 {
        let (sender, receiver) = mpsc::channel();
        let threads: Vec<_> = (0..6)
            .map(|number: usize| {
                let (name, sender) = (names[number % 3].clone(), sender.clone());
                std::thread::spawn(move || sender.send(open(&name)).unwrap())
            })
            .collect();
        let results: Vec<_> = receiver.iter().take(6).collect();
        let opened = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(opened, 1);
        assert!(results.iter().all(|result| matches!(result, Ok(_) | Err(Error::AlreadyOpen { .. }))));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// A process that was started while the database was open has nothing of it: it may outlive the database, and keeps
/// nobody from opening it again.
#[test]
fn a_process_that_was_started_meanwhile_inherits_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = open(&path).unwrap();
    work(&db);
    let mut child = Command::new("sh")
        .args(["-c", "ls -l /proc/self/fd; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    db.close().unwrap();
    drop(db);
    let again = open(&path);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    again.unwrap();
    let open_there = String::from_utf8(output.stdout).unwrap();
    assert!(!open_there.contains(path.to_str().unwrap()), "{open_there}");
}

/// The same at the moment when the other process has not yet become another program, and so has every descriptor still.
#[test]
fn a_process_that_is_being_started_keeps_no_lock() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = open(&path).unwrap();
    let (begun, go_on) = (directory.path().join("begun"), directory.path().join("go_on"));
    let mut command = Command::new("true");
    let (mark, signal) = (begun.clone(), go_on.clone());
    // SAFETY: between fork and exec it makes a directory, and looks for another one and sleeps until that is there, or
    // for a minute: for so short paths, that allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || {
            fs::create_dir(&mark)?;
            for _ in 0..6000 {
                if signal.exists() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(())
        });
    }
    let starting = std::thread::spawn(move || command.status().unwrap());
    while !begun.exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    db.close().unwrap();
    drop(db);
    let again = open(&path);
    fs::create_dir(&go_on).unwrap();
    again.unwrap().close().unwrap();
    assert!(starting.join().unwrap().success());
}

/// A lock does not outlive its process, however that ends.
#[test]
fn a_killed_process_leaves_no_lock() {
    if let Some(path) = std::env::var_os(CHILD) {
        let _db = open(Path::new(&path)).unwrap();
        println!("{OPEN}");
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["a_killed_process_leaves_no_lock", "--exact", "--nocapture"])
        .env(CHILD, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(said.map_while(Result::ok).any(|line| line.contains(OPEN)), "the other process did not open it");
    assert!(matches!(open(&path), Err(Error::AlreadyOpen { .. })));
    child.kill().unwrap();
    child.wait().unwrap();
    open(&path).unwrap();
}
