//! `foreshore salvage`: damage planted in each kind of page and file, and what is saved in spite of it.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use foreshore::{Database, Options, TableDefinition};
use foreshore_env::disk::{Disk, OpenMode, RealDisk};
use serde_json::Value as Json;

const ACCOUNTS: TableDefinition<'_, u64, &str> = TableDefinition::new("accounts");
const LONG: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("long");
const PAGE_BYTES: usize = 8192;
const ROWS: u64 = 1500;

struct Scene {
    directory: tempfile::TempDir,
}

/// What a page of the data file is: kind, table, level (`pages`, `layout.rs`).
fn head(page: &[u8]) -> (u8, u32, u8) {
    (page[21], u32::from_le_bytes(page[16..20].try_into().unwrap()), page[20])
}

impl Scene {
    fn new() -> Scene {
        let scene = Scene { directory: tempfile::tempdir().unwrap() };
        let options = Options { log_segment_bytes: 256 << 10, log_bytes: 4 << 20, ..Options::default() };
        let db = Database::builder().options(options).open(scene.database()).unwrap();
        for begin in (0..ROWS).step_by(100) {
            db.transact(|tx| {
                (begin..begin + 100).try_for_each(|key| tx.put(ACCOUNTS, key, &*account(key)).map(drop))
            })
            .unwrap();
        }
        db.transact(|tx| (0..6).try_for_each(|key| tx.put(LONG, key, &[key as u8; 6000][..]).map(drop)))
            .unwrap();
        db.transact(|tx| tx.remove_range(ACCOUNTS, 700..720).map(drop)).unwrap();
        db.close().unwrap();
        scene
    }

    fn database(&self) -> PathBuf {
        self.directory.path().join("db")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.database().join(name)
    }

    /// Pages of this table and level.
    fn pages(&self, table: u32, level: u8) -> Vec<usize> {
        let data = fs::read(self.file("data")).unwrap();
        let pages = data.chunks(PAGE_BYTES).map(head).enumerate();
        pages.filter(|(_, head)| *head == (3, table, level)).map(|(page, _)| page).collect()
    }

    fn spoil(&self, pages: &[usize]) {
        let mut data = fs::read(self.file("data")).unwrap();
        for page in pages {
            data[page * PAGE_BYTES + 3000] ^= 0x40;
        }
        fs::write(self.file("data"), data).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_foreshore"))
            .args(arguments)
            .current_dir(self.directory.path())
            .output()
            .unwrap()
    }

    /// Salvages a database that is sound.
    #[track_caller]
    fn salvage_whole(&self) {
        let (status, report, keys) = self.salvage();
        assert_eq!(
            (status, &report["complete"], &report["source"]),
            (0, &true.into(), &"recovered".into()),
            "{report}"
        );
        assert_eq!(keys, all());
    }

    /// Salvages into a new database; the status, the report, and the accounts that are there.
    #[track_caller]
    fn salvage(&self) -> (i32, Json, Vec<u64>) {
        let before = everything(&self.database());
        let output = self.run(&["salvage", "db", "saved", "--json"]);
        let printed = String::from_utf8(output.stdout).unwrap();
        let report: Json = serde_json::from_str(&printed)
            .unwrap_or_else(|error| panic!("{error}: {printed} {}", String::from_utf8_lossy(&output.stderr)));
        assert_eq!(everything(&self.database()), before, "nothing of the damaged database changes");
        let db = Database::open(self.directory.path().join("saved")).unwrap();
        assert!(db.verify().unwrap().is_sound());
        let keys = db
            .transact(|tx| {
                let mut keys = Vec::new();
                for entry in tx.range(ACCOUNTS, ..)? {
                    let (key, value) = entry?;
                    assert_eq!(value, account(key));
                    keys.push(key);
                }
                Ok(keys)
            })
            .unwrap();
        (output.status.code().unwrap(), report, keys)
    }
}

fn account(key: u64) -> String {
    format!("account {key} ").repeat(8)
}

fn all() -> Vec<u64> {
    (0..700).chain(720..ROWS).collect()
}

fn everything(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { open.push(path) } else { found.push((path.clone(), fs::read(path).unwrap())) }
        }
    }
    found.sort();
    found
}

/// The table's id: tables are made in order.
const FIRST: u32 = 16;

#[test]
fn a_sound_database_is_saved_as_a_whole() {
    let scene = Scene::new();
    scene.salvage_whole();
    let db = Database::open(scene.directory.path().join("saved")).unwrap();
    let long = db.transact(|tx| tx.get(LONG, 5)).unwrap().unwrap();
    assert_eq!(long, [5; 6000]);
    // As JSON lines, which is what `dump` writes.
    let dumped = scene.run(&["dump", "db"]);
    let printed = scene.run(&["salvage", "db", "-", "--jsonl"]);
    assert_eq!(printed.status.code(), Some(0));
    assert!(printed.stdout == dumped.stdout, "salvage and dump say the same");
    assert!(String::from_utf8(printed.stderr).unwrap().contains("everything that is there was saved"));
    assert_eq!(scene.run(&["salvage", "db", "lines", "--jsonl"]).status.code(), Some(0));
    let lines = scene.directory.path().join("lines");
    assert!(fs::read(&lines).unwrap() == dumped.stdout);
    assert_eq!(fs::metadata(&lines).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn pages_above_the_leaves_are_not_missed() {
    for level in [1, 2] {
        let scene = Scene::new();
        let pages = scene.pages(FIRST, level);
        if pages.is_empty() {
            assert_eq!(level, 2, "a table of this size has inner pages");
            continue;
        }
        scene.spoil(&pages);
        assert_eq!(scene.run(&["verify", "db"]).status.code(), Some(1));
        let (status, report, keys) = scene.salvage();
        assert_eq!(keys, all(), "{report}");
        assert_eq!(report["damaged_pages"], pages.len(), "{report}");
        assert_eq!(status, 0, "no record was in these pages: {report}");
    }
}

#[test]
fn a_lost_leaf_costs_its_own_keys_and_says_which() {
    let scene = Scene::new();
    let leaves = scene.pages(FIRST, 0);
    assert!(leaves.len() >= 10);
    scene.spoil(&leaves[4..5]);
    let (status, report, keys) = scene.salvage();
    assert_eq!((status, &report["complete"]), (1, &false.into()), "{report}");
    let lost: Vec<u64> = all().into_iter().filter(|key| !keys.contains(key)).collect();
    assert!(!lost.is_empty() && lost.len() < 200, "{lost:?}");
    let gaps = report["tables"][0]["lost"].as_array().unwrap();
    assert_eq!(gaps.len(), 1, "{report}");
    let [from, to] = ["from", "to"].map(|end| gaps[0][end].as_u64().unwrap_or_else(|| panic!("{report}")));
    assert!((from..to).contains(&lost[0]) && (from..to).contains(lost.last().unwrap()), "{report}");
    assert!(keys.iter().all(|key| !(from..to).contains(key)), "{report}");
    let text = scene.run(&["salvage", "db", "again"]);
    let text = String::from_utf8(text.stdout).unwrap();
    let named = text.contains(&format!("  lost: keys from {from} to before {to}\n"));
    assert!(named && text.contains("not everything was saved"), "{text}");
}

#[test]
fn a_lost_chunk_costs_its_value() {
    let scene = Scene::new();
    let chunks = scene.pages(1, 0);
    scene.spoil(&chunks[..1]);
    let (status, report, keys) = scene.salvage();
    assert_eq!((status, keys), (1, all()), "{report}");
    let table = &report["tables"][1];
    let lost = table["values_lost"].as_array().unwrap().len();
    assert!(lost > 0 && table["rows"] == 6 - lost, "{report}");
    let lost: Vec<u64> =
        table["values_lost"].as_array().unwrap().iter().map(|key| key.as_u64().unwrap()).collect();
    let saved = Database::open(scene.directory.path().join("saved")).unwrap();
    let left = saved.transact(|tx| {
        (0..6)
            .map(|key| Ok((key, tx.get(LONG, key)?.is_some())))
            .collect::<Result<Vec<_>, foreshore::Error>>()
    });
    let missing: Vec<u64> =
        left.unwrap().into_iter().filter(|(_, is_there)| !is_there).map(|(key, _)| key.into()).collect();
    assert_eq!(lost, missing, "{report}");
    saved.close().unwrap();
}

/// Backslashes of escaped keys were doubled once more, and an encoded text stood in the report as its bytes.
#[test]
fn lost_keys_are_written_as_a_dump_has_them() {
    const TEXT: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("text");
    const BYTES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("bytes");
    let scene = Scene { directory: tempfile::tempdir().unwrap() };
    let db = Database::open(scene.database()).unwrap();
    let long = [1; 6000];
    db.transact(|tx| {
        tx.put(TEXT, r#"al\ice "ü""#, &long[..])?;
        tx.put(BYTES, b"\0\\\"\xff".as_slice(), &long[..]).map(drop)
    })
    .unwrap();
    db.close().unwrap();
    scene.spoil(&scene.pages(1, 0));
    let report = scene.run(&["salvage", "db", "saved", "--json"]).stdout;
    let report: Json = serde_json::from_slice(&report).unwrap();
    let lost = |table: &str| {
        let mut tables = report["tables"].as_array().unwrap().iter();
        tables.find(|found| found["table"] == table).unwrap()["values_lost"].clone()
    };
    assert_eq!(lost("text"), serde_json::json!([r#"al\ice "ü""#]), "{report}");
    assert_eq!(lost("bytes"), serde_json::json!([r#"\x00\\"\xff"#]), "{report}");
    let text = String::from_utf8(scene.run(&["salvage", "db", "again"]).stdout).unwrap();
    for key in [r#""al\\ice \"ü\"""#, r#""\x00\\\x22\xff""#] {
        let line = format!("  lost: the value of {key}");
        assert!(text.lines().any(|told| told == line), "{line}: {text}");
    }
}

/// In the place of the data file there is something else: nothing is read through it, nobody waits for its other end,
/// and it is said what there is.
#[test]
fn a_data_file_that_is_none() {
    let scene = Scene::new();
    let (data, aside) = (scene.file("data"), scene.directory.path().join("aside"));
    fs::rename(&data, &aside).unwrap();
    let makes: [(&str, &str, &[&str]); 4] = [
        ("symbolic link", "ln", &["-s", "../aside"]),
        ("symbolic link", "ln", &["-s", "/dev/zero"]),
        ("not a regular file", "mkfifo", &[]),
        ("not a regular file", "mkdir", &[]),
    ];
    for (says, program, arguments) in makes {
        assert!(Command::new(program).args(arguments).arg(&data).status().unwrap().success());
        for command in [["verify", "db"].as_slice(), &["dump", "db"], &["salvage", "db", "saved"]] {
            let output = scene.run(command);
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!((output.status.code(), said.contains(says)), (Some(2), true), "{command:?}: {said}");
        }
        let removed = fs::remove_file(&data).or_else(|_| fs::remove_dir(&data));
        removed.unwrap();
    }
    fs::rename(&aside, &data).unwrap();
    scene.salvage_whole();
}

/// In the place of a spare of the log there is something else, and nothing is lost with that. Who opens the database to
/// write removes it, if it is no directory, and leaves alone what a link leads to.
#[test]
fn a_spare_of_the_log_that_is_none() {
    let scene = Scene::new();
    let (spare, aside) = (scene.file("log/spare-99"), scene.directory.path().join("aside"));
    fs::write(&aside, "precious").unwrap();
    std::os::unix::fs::symlink(&aside, &spare).unwrap();
    scene.salvage_whole();
    Database::open(scene.database()).unwrap().close().unwrap();
    assert!(fs::symlink_metadata(&spare).is_err());
    assert_eq!(fs::read(aside).unwrap(), b"precious");

    let scene = Scene::new();
    fs::create_dir(scene.file("log/spare-99")).unwrap();
    scene.salvage_whole();
    assert!(Database::open(scene.database()).is_err());
}

/// A data file that somebody has made 64 GiB long, without a byte in it: it takes no longer to look through what is not
/// there. And pages in use whose bytes are gone are lost, hole or not.
#[test]
fn holes_are_passed_over() {
    for rebuilt in [false, true] {
        let scene = Scene::new();
        RealDisk.open(&scene.file("data"), OpenMode::ReadWrite).unwrap().set_len(64 << 30).unwrap();
        if rebuilt {
            fs::remove_file(scene.file("control")).unwrap();
        }
        let output = scene.run(&["salvage", "db", "saved", "--json"]);
        let report: Json = serde_json::from_slice(&output.stdout).unwrap();
        let source = if rebuilt { "rebuilt" } else { "recovered" };
        assert_eq!((output.status.code(), &report["source"]), (Some(0), &source.into()), "{report}");
        assert_eq!(
            (&report["tables"][0]["rows"], &report["damaged_pages"]),
            (&all().len().into(), &0.into())
        );
    }
    let scene = Scene::new();
    let bytes = fs::read(scene.file("data")).unwrap();
    let leaves = scene.pages(FIRST, 0);
    fs::remove_file(scene.file("data")).unwrap();
    let data = RealDisk.open(&scene.file("data"), OpenMode::CreateNew).unwrap();
    data.set_len(64 << 20).unwrap();
    for (page, bytes) in bytes.chunks(PAGE_BYTES).enumerate().filter(|(page, _)| *page != leaves[4]) {
        data.write_all_at(bytes, (page * PAGE_BYTES) as u64).unwrap();
    }
    let (status, report, keys) = scene.salvage();
    assert_eq!((status, &report["damaged_pages"]), (1, &1.into()), "{report}");
    assert!(keys.len() < all().len() && keys.len() > all().len() - 200, "{}", keys.len());
}

#[test]
fn a_control_file_is_made_anew() {
    for gone in [true, false] {
        let scene = Scene::new();
        if gone {
            fs::remove_file(scene.file("control")).unwrap();
        } else {
            fs::write(scene.file("control"), vec![0x5A; 8192]).unwrap();
        }
        let (status, report, keys) = scene.salvage();
        assert_eq!((status, &report["source"]), (0, &"rebuilt".into()), "{report}");
        assert_eq!(keys, all());
    }
}

/// After a crash only the log has what was committed last: it counts though the control file is gone.
#[test]
fn without_a_control_file_the_log_still_counts() {
    let scene = Scene::new();
    let db = Database::open(scene.database()).unwrap();
    db.transact(|tx| tx.put(ACCOUNTS, ROWS, &*account(ROWS)).map(drop)).unwrap();
    // As if the process had been killed here.
    let killed = scene.directory.path().join("killed");
    fs::create_dir_all(killed.join("log")).unwrap();
    for (path, bytes) in everything(&scene.database()) {
        fs::write(killed.join(path.strip_prefix(scene.database()).unwrap()), bytes).unwrap();
    }
    drop(db);
    fs::remove_dir_all(scene.database()).unwrap();
    fs::rename(killed, scene.database()).unwrap();
    fs::remove_file(scene.file("control")).unwrap();
    let (status, report, mut keys) = scene.salvage();
    assert_eq!(status, 0, "{report}");
    assert_eq!(keys.pop(), Some(ROWS), "{report}");
    assert_eq!(keys, all());
}

#[test]
fn without_the_catalogue_tables_have_no_names() {
    let scene = Scene::new();
    scene.spoil(&scene.pages(0, 0));
    let output = scene.run(&["salvage", "db", "saved", "--json"]);
    let report: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["source"]), (Some(1), &"repeated".into()), "{report}");
    assert_eq!(report["catalog_complete"], false, "{report}");
    assert_eq!(report["tables"][0]["table"], format!("lost-table-{FIRST}"));
    let db = Database::open(scene.directory.path().join("saved")).unwrap();
    let name = format!("lost-table-{FIRST}");
    let table = TableDefinition::<&[u8], &[u8]>::new(&name);
    let count = db.transact(|tx| Ok(tx.range(table, ..)?.count())).unwrap();
    assert_eq!(count, all().len());
}

#[test]
fn pages_alone_are_enough() {
    let scene = Scene::new();
    for name in ["control", "LOCK"] {
        fs::remove_file(scene.file(name)).unwrap();
    }
    fs::remove_dir_all(scene.file("log")).unwrap();
    let (status, report, keys) = scene.salvage();
    // It was closed in order: nothing was in the log alone. But nobody can know that.
    assert_eq!((status, &report["source"]), (1, &"pages".into()), "{report}");
    assert_eq!(keys, all());
    assert!(
        report["tables"].as_array().unwrap().iter().all(|table| table["lost"] == Json::Array(vec![])),
        "{report}"
    );
}

#[test]
fn a_log_that_is_damaged_leaves_the_pages() {
    let scene = Scene::new();
    for entry in fs::read_dir(scene.file("log")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        bytes[4096..].fill(0x33);
        fs::write(path, bytes).unwrap();
    }
    let (status, report, keys) = scene.salvage();
    // None of its records can be repeated, but the catalogue is found in the pages.
    assert_eq!((status, &report["source"]), (1, &"repeated".into()), "{report}");
    assert!(report["failure"].as_str().unwrap().contains("damaged"), "{report}");
    assert_eq!(report["catalog_complete"], true, "{report}");
    assert_eq!(keys, all());
}

/// Records that nobody has read are not saved.
#[test]
fn a_reader_that_stops_is_told_of() {
    let scene = Scene::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_foreshore"))
        .args(["salvage", "db", "-", "--jsonl"])
        .current_dir(scene.directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("not everything was saved") && said.contains("name a file"), "{said}");
}

/// Standard output that nobody can read is no place: a closed one is the null device when the program begins.
#[test]
fn a_closed_output_saves_nothing_and_says_so() {
    let scene = Scene::new();
    for redirection in [">&-", ">/dev/null"] {
        let command =
            format!("exec '{}' salvage db - --jsonl {redirection}", env!("CARGO_BIN_EXE_foreshore"));
        let output =
            Command::new("sh").args(["-c", &command]).current_dir(scene.directory.path()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{redirection}: {said}");
        assert!(said.contains("nothing would be saved") && said.contains("name a file"), "{said}");
    }
    let said = scene.run(&["salvage", "db", "-", "--jsonl"]).stderr;
    assert!(String::from_utf8(said).unwrap().contains("2 tables were written to standard output"));
    let said = scene.run(&["salvage", "db", "lines", "--jsonl"]).stdout;
    assert!(String::from_utf8(said).unwrap().contains("2 tables are in lines"));
}

/// What is not whole has another name, which says so, and keeps a second salvage from taking it for its own.
#[test]
fn what_is_not_whole_is_called_incomplete() {
    for (target, more) in [("saved", &[][..]), ("saved.jsonl", &["--jsonl"])] {
        let scene = Scene::new();
        let part = scene.directory.path().join(format!("{target}.incomplete"));
        let whole = scene.directory.path().join(target);
        // Broken off by a limit on the size of files.
        let command = format!(
            "ulimit -f 100; exec '{}' salvage db {target} {}",
            env!("CARGO_BIN_EXE_foreshore"),
            more.join(" ")
        );
        let output =
            Command::new("sh").args(["-c", &command]).current_dir(scene.directory.path()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("what was saved until then is in {target}.incomplete")), "{said}");
        assert!(!said.contains("standard output"), "{said}");
        assert!(part.exists() && !whole.exists());
        let again = |status: i32| {
            let output = scene.run(&[&["salvage", "db", target], more].concat());
            let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert_eq!(output.status.code(), Some(status), "{said}");
            said
        };
        let said = again(2);
        assert!(
            said.contains(&format!("{target}.incomplete exists")) && said.contains("remove it"),
            "{said}"
        );
        assert!(!whole.exists());
        if more.is_empty() {
            fs::remove_dir_all(&part).unwrap()
        } else {
            fs::remove_file(&part).unwrap()
        }
        again(0);
        assert!(whole.exists() && !part.exists());
    }
}

/// What an interrupted salvage has left may be all that there is, and be salvaged itself. It was said to be in the way,
/// and that it should be removed.
#[test]
fn the_damaged_database_is_not_in_its_own_way() {
    let scene = Scene::new();
    fs::rename(scene.database(), scene.directory.path().join("saved.incomplete")).unwrap();
    let output = scene.run(&["salvage", "saved.incomplete", "saved"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("saved.incomplete is the damaged database") && !said.contains("remove"), "{said}");
    let output = scene.run(&["salvage", "saved.incomplete", "other"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// An empty directory may be there already, and a link to it; the link stays.
#[test]
fn an_empty_directory_is_a_place() {
    let scene = Scene::new();
    let at = |name: &str| scene.directory.path().join(name);
    fs::create_dir(at("real")).unwrap();
    std::os::unix::fs::symlink(at("real"), at("link")).unwrap();
    let output = scene.run(&["salvage", "db", "link"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(at("link").is_symlink() && at("real/control").exists());
    fs::create_dir(at("here")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_foreshore"))
        .args(["salvage", "../db", "."])
        .current_dir(at("here"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("you are in that directory"));
}

/// The log alone: it has the pages that were changed since the last checkpoint as a whole.
#[test]
fn without_a_data_file_the_log_is_read() {
    let scene = Scene::new();
    let killed = scene.directory.path().join("killed");
    let fresh = scene.directory.path().join("fresh");
    let db = Database::open(&fresh).unwrap();
    for key in 0..40 {
        db.transact(|tx| tx.put(ACCOUNTS, key, &*account(key)).map(drop)).unwrap();
    }
    fs::create_dir_all(killed.join("log")).unwrap();
    for (path, bytes) in everything(&fresh) {
        fs::write(killed.join(path.strip_prefix(&fresh).unwrap()), bytes).unwrap();
    }
    drop(db);
    fs::remove_dir_all(scene.database()).unwrap();
    fs::rename(killed, scene.database()).unwrap();
    fs::remove_file(scene.file("data")).unwrap();
    let before = everything(&scene.database());
    let (status, report, keys) = scene.salvage();
    assert_eq!((status, &report["source"]), (1, &"repeated".into()), "{report}");
    assert!(report["failure"].as_str().unwrap().contains("data is damaged: it is missing"), "{report}");
    assert_eq!(keys, (0..40).collect::<Vec<_>>(), "{report}");
    assert!(everything(&scene.database()) == before, "nothing of it changes");
}

/// A lock file that is none, and files of others, cost nothing.
#[test]
fn foreign_files_are_in_nobody_s_way() {
    let scene = Scene::new();
    fs::remove_file(scene.file("LOCK")).unwrap();
    fs::create_dir(scene.file("LOCK")).unwrap();
    fs::create_dir(scene.file("photographs")).unwrap();
    fs::write(scene.file("letter"), "Dear").unwrap();
    fs::write(scene.file("log/letter"), "Dear").unwrap();
    scene.salvage_whole();
}

/// After a crash, one byte of the log damaged: what was committed before it is saved, with its name, and the damage is
/// named.
#[test]
fn a_damaged_log_is_repeated_up_to_the_damage() {
    let scene = Scene::new();
    let db = Database::open(scene.database()).unwrap();
    for key in ROWS..ROWS + 40 {
        db.transact(|tx| tx.put(ACCOUNTS, key, &*account(key)).map(drop)).unwrap();
    }
    let killed = scene.directory.path().join("killed");
    fs::create_dir_all(killed.join("log")).unwrap();
    for (path, bytes) in everything(&scene.database()) {
        fs::write(killed.join(path.strip_prefix(scene.database()).unwrap()), bytes).unwrap();
    }
    drop(db);
    fs::remove_dir_all(scene.database()).unwrap();
    fs::rename(killed, scene.database()).unwrap();
    let damaged = account(ROWS + 20);
    let mut found = 0;
    for entry in fs::read_dir(scene.file("log")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if let Some(place) = bytes.windows(damaged.len()).position(|part| part == damaged.as_bytes()) {
            bytes[place] ^= 1;
            fs::write(path, bytes).unwrap();
            found += 1;
        }
    }
    assert_eq!(found, 1);
    assert_eq!(scene.run(&["stat", "db"]).status.code(), Some(1));
    let (status, report, keys) = scene.salvage();
    assert_eq!(
        (status, &report["source"], &report["complete"]),
        (1, &"repeated".into(), &false.into()),
        "{report}"
    );
    assert_eq!(report["catalog_complete"], true, "{report}");
    assert!(report["log_damage"].as_str().unwrap().contains("the log at LSN"), "{report}");
    assert_eq!(keys, all().into_iter().chain(ROWS..ROWS + 20).collect::<Vec<_>>(), "{report}");
    let text = scene.run(&["salvage", "db", "again"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.contains("what can be read of its log was repeated") && text.contains("the log at LSN"),
        "{text}"
    );
}

#[test]
fn what_cannot_be_done_is_said() {
    let scene = Scene::new();
    let say = |arguments: &[&str]| {
        let output = scene.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(say(&["salvage", "nothing", "saved"]).contains("nothing"));
    assert!(say(&["salvage", "db", "db/saved"]).contains("lies in the damaged database"));
    fs::create_dir(scene.directory.path().join("full")).unwrap();
    fs::write(scene.directory.path().join("full/letter"), "Dear").unwrap();
    assert!(say(&["salvage", "db", "full"]).contains("not empty"));
    assert!(say(&["salvage", "full", "saved"]).contains("full"));
    assert!(say(&["salvage", "db", "full/letter", "--jsonl"]).contains("full/letter"));
    assert!(say(&["salvage", "db", "-", "--jsonl", "--json"]).contains("standard output"));
    // It made a directory that was called so.
    assert!(say(&["salvage", "db", "-"]).contains("add --jsonl"));
    assert!(!scene.directory.path().join("-").exists());
    let db = Database::open(scene.database()).unwrap();
    assert!(say(&["salvage", "db", "saved"]).contains("open"));
    drop(db);
    assert!(!scene.directory.path().join("saved").exists());
}

/// What this user may not read is not lost: that is for somebody who may.
#[test]
fn what_may_not_be_read_is_not_damaged() {
    // Everybody's directory, with a copy of the program: root may read everything, so whoever that is becomes somebody
    // else.
    const NOBODY: u32 = 65_534;
    let scene = Scene::new();
    let place = scene.directory.path();
    let everybody = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let is_root = fs::metadata(place).unwrap().uid() == 0;
    let program = place.join("program");
    fs::copy(env!("CARGO_BIN_EXE_foreshore"), &program).unwrap();
    everybody(place, 0o777);
    let mut paths: Vec<PathBuf> = everything(&scene.database()).into_iter().map(|(path, _)| path).collect();
    let segment = paths.iter().find(|path| path.extension().is_some_and(|end| end == "log")).unwrap().clone();
    if is_root {
        paths.extend([scene.database(), scene.file("log")]);
        paths.iter().for_each(|path| chown(path, Some(NOBODY), Some(NOBODY)).unwrap());
    }
    let salvage = || {
        let mut command = Command::new(&program);
        command.args(["salvage", "db", "saved"]).current_dir(place);
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output().unwrap()
    };
    for path in [scene.file("LOCK"), scene.file("control"), scene.file("data"), scene.file("log"), segment] {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        everybody(&path, 0);
        let output = salvage();
        everybody(&path, mode);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{}: {said}", path.display());
        let name = path.strip_prefix(place).unwrap().to_str().unwrap();
        assert!(said.contains(name) && said.contains("obtain permission"), "{said}");
        assert!(!place.join("saved").exists());
    }
    // With the rights it is whole.
    assert_eq!(salvage().status.code(), Some(0));
}
