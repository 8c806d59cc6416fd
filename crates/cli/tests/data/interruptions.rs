//! Subcommands that change a database, and end in good order when they are interrupted.

use std::{
    fs,
    io::Write,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use foreshore::{Database, TableDefinition, limits::PAGE_BYTES};

use crate::scene::{Scene, parsed, text};

/// So small a log that there is a checkpoint, with its syncs, for every few pages that change.
const SLOWLY: &str = "--set log_bytes=4MiB";

/// A database of two tables; of the second, every other record is deleted.
fn make_database(scene: &Scene) {
    let builder = Database::builder().set("log_segment_bytes", "1MiB").unwrap();
    let db = builder.open(scene.path("db")).unwrap();
    const TABLES: [TableDefinition<u32, &[u8]>; 2] =
        [TableDefinition::new("first"), TableDefinition::new("second")];
    for table in TABLES {
        for batch in 0..6_u32 {
            db.transact(|tx| {
                (batch * 1000..(batch + 1) * 1000)
                    .try_for_each(|row| tx.put(table, row, &[7; 900][..]).map(drop))
            })
            .unwrap();
        }
    }
    db.transact(|tx| (0..6_000).step_by(2).try_for_each(|row| tx.delete(TABLES[1], row).map(drop))).unwrap();
    db.close().unwrap();
}

/// Whether the process catches the signal of Ctrl-C.
fn catches_interruptions(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (2 - 1) != 0
}

fn send(signal: &str, child: &Child) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(120), "it takes too long until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Interrupts a run on a new database as soon as it is ready for that. On a machine that stands still meanwhile it may
/// be done before: then it is run again.
fn interrupted(arguments: &str) -> (Scene, Output) {
    for _ in 0..20 {
        let scene = Scene::new();
        make_database(&scene);
        let child = scene.start(arguments);
        wait_until(&format!("{arguments} begins"), || catches_interruptions(&child));
        send("-INT", &child);
        let output = child.wait_with_output().unwrap();
        if output.status.code() != Some(0) {
            return (scene, output);
        }
    }
    panic!("{arguments} is done before it can be interrupted");
}

/// A load, a backup or a compaction that was left alone with `nohup` ended with its terminal.
#[test]
fn a_hangup_that_is_to_be_ignored_is_no_interruption() {
    let scene = Scene::new();
    let program = env!("CARGO_BIN_EXE_foreshore");
    let mut child = Command::new("sh")
        .args(["-c", &format!("trap '' HUP; exec {program} load db - --format csv --table t --key-type u64")])
        .current_dir(scene.path(""))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"key,value\n1,one\n").unwrap();
    wait_until("the load begins", || catches_interruptions(&child));
    send("-HUP", &child);
    stdin.write_all(b"2,two\n").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(scene.dump("db").len(), 3);
    // Others are, while it waits for its input. A hangup would be, too, but these tests may be left alone themselves.
    for signal in ["-TERM", "-INT"] {
        let mut child = scene.start("load db - --format csv --table t --key-type u64");
        let stdin = child.stdin.take();
        wait_until("the load begins", || catches_interruptions(&child));
        send(signal, &child);
        wait_until("the load ends", || child.try_wait().unwrap().is_some());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{signal}: {}", text(&output.stderr));
        drop(stdin);
    }
}

/// Of a terminal that is closed a program hears twice, and it ended at the second time, in the middle of its work.
#[test]
fn two_signals_at_once_are_one_interruption() {
    let scene = Scene::new();
    let mut child = scene.start("load db - --format csv --table t --key-type u64");
    let stdin = child.stdin.take();
    wait_until("the load begins", || catches_interruptions(&child));
    for signal in ["-STOP", "-TERM", "-INT", "-CONT"] {
        send(signal, &child);
    }
    wait_until("the load ends", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    drop(stdin);
}

/// Good order may take long, or for ever: here it waits for whoever reads what it says.
#[test]
fn a_second_interruption_ends_it_at_once() {
    let scene = Scene::new();
    // It tells its error to a pipe that is full, and that nobody reads: so it does not end in good order.
    let run = |program: &str, arguments: &str| {
        let mut command = Command::new(program);
        command.args(arguments.split(' ')).current_dir(scene.path("")).stdin(Stdio::piped());
        command
    };
    assert!(run("mkfifo", "full").status().unwrap().success());
    #[allow(clippy::disallowed_types, reason = "a pipe with a name, which no disk has")]
    let full = fs::OpenOptions::new().read(true).write(true).open(scene.path("full")).unwrap();
    let filled = run("dd", "if=/dev/zero of=full oflag=nonblock bs=1").output().unwrap();
    assert!(!filled.status.success(), "there is always room for more");
    let mut child = run(env!("CARGO_BIN_EXE_foreshore"), "load db - --format csv --table t --key-type u64")
        .stdout(Stdio::null())
        .stderr(full)
        .spawn()
        .unwrap();
    wait_until("the load begins", || catches_interruptions(&child));
    send("-INT", &child);
    let begun = Instant::now();
    // One that comes too soon counts with the first.
    wait_until("the load ends", || {
        thread::sleep(Duration::from_millis(100));
        let ended = child.try_wait().unwrap().is_some();
        if !ended {
            send("-INT", &child);
        }
        ended
    });
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(begun.elapsed() >= Duration::from_secs(1), "that was one interruption");
}

fn is_sound(scene: &Scene, records: u64) {
    let report = scene.json("verify db --json");
    assert_eq!((&report["sound"], &report["problems"]), (&true.into(), &serde_json::json!([])));
    let counted = scene.succeed("dump db").lines().filter(|line| line.starts_with("{\"key\"")).count();
    assert_eq!(counted as u64, records);
}

/// It died of the signal, and said nothing.
#[test]
fn an_interrupted_compaction_says_what_it_has_done() {
    for json in [false, true] {
        let (scene, output) =
            interrupted(&format!("compact db {SLOWLY} {}", if json { "--json" } else { "" }));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with("error: interrupted\n"), "{said}");
        assert!(said.contains(" merged, ") && said.contains("that stays"), "{said}");
        assert!(said.contains("next: foreshore compact db"), "{said}");
        if json {
            assert_eq!(parsed(&text(&output.stdout))["error"]["code"], "interrupted");
        }
        is_sound(&scene, 9_000);
        // The rest.
        let report = scene.json("compact db --json");
        assert!(report["pages_after"].as_u64() <= report["pages_before"].as_u64(), "{report}");
        is_sound(&scene, 9_000);
        let bytes = fs::metadata(scene.path("db/data")).unwrap().len();
        assert_eq!(report["pages_after"].as_u64(), Some(bytes / PAGE_BYTES as u64));
    }
}

/// The table was gone, and nobody was told.
#[test]
fn an_interrupted_drop_says_that_the_table_is_gone() {
    let (scene, output) = interrupted(&format!("drop db first --compact {SLOWLY}"));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("error: interrupted\n  table first is dropped; "), "{said}");
    assert!(said.contains("next: foreshore compact db"), "{said}");
    is_sound(&scene, 3_000);
    let report = scene.json("compact db --json");
    assert_eq!(report["dropped_left"], 0, "{report}");
    is_sound(&scene, 3_000);
}
