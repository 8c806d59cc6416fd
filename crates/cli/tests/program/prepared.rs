//! `foreshore prepared` from outside.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use foreshore::{Database, TableDefinition};
use serde_json::Value as Json;

const TABLE: TableDefinition<&str, i64> = TableDefinition::new("accounts");

fn run(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_foreshore"))
        .arg("prepared")
        .arg("db")
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn succeed(directory: &Path, arguments: &[&str]) -> String {
    let output = run(directory, arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A database that was used with larger limits could not be used at a shell: nothing but `load` and `script` could be
/// told of others, and what opens it refused it.
#[test]
fn a_database_with_larger_limits_is_used_like_any_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    // As many as there are by default would take a test too long.
    let small = ["--set", "max_locks_per_transaction=100"];
    let db = Database::open(&path).unwrap();
    let mut tx = db.begin().unwrap();
    (0..1000).for_each(|number| _ = tx.put(TABLE, &*format!("{number}"), number).unwrap());
    tx.prepare(b"big").unwrap();
    db.close().unwrap();
    drop(db);
    let say = |command: &[&str], set: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_foreshore"))
            .args(command)
            .args(set)
            .current_dir(directory.path())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    for (command, status) in [
        (&["stat", "db", "--quick"][..], 0),
        (&["backup", "db", "copy"], 0),
        (&["compact", "db"], 0),
        (&["prepared", "db"], 0),
        // Both say what is in their way.
        (&["verify", "db"], 2),
        (&["dump", "db"], 2),
        (&["drop", "db", "accounts", "--wait", "0"], 2),
        (&["prepared", "db", "--rollback", "big"], 0),
        (&["verify", "db"], 0),
        (&["dump", "db"], 0),
        (&["drop", "db", "accounts"], 0),
    ] {
        let (code, said) = say(command, &small);
        assert_eq!(code, Some(status), "{command:?}: {said}");
        assert!(status == 0 || said.contains("prepared"), "{command:?}: {said}");
        let (code, said) = say(command, &["--set", "max_lock=1"]);
        assert!(code == Some(2) && said.contains("there is no option"), "{command:?}: {said}");
        let (code, said) = say(command, &["--set", "create=true"]);
        assert!(code == Some(2) && said.contains("leave out --set create=true"), "{command:?}: {said}");
    }
}

#[test]
fn prepared_transactions_are_listed_and_decided_about() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Database::open(&path).unwrap();
    for (key, id) in [("alice", b"one".as_slice()), ("bob", b"two words"), ("carol", b"\xff")] {
        let mut tx = db.begin().unwrap();
        tx.put(TABLE, key, 1).unwrap();
        tx.prepare(id).unwrap();
    }
    db.close().unwrap();
    drop(db);

    let here = directory.path();
    let text = succeed(here, &[]);
    assert!(text.contains("two words: transaction") && text.contains("hex:ff"), "{text}");
    assert!(text.ends_with("3 transactions are prepared\n"), "{text}");
    let json: Json = serde_json::from_str(&succeed(here, &["--commit", "two words", "--json"])).unwrap();
    assert_eq!(json["committed"], "two words");
    assert_eq!(json["prepared"].as_array().unwrap().len(), 2);
    assert!(
        json["prepared"][0]["locks"].as_u64().unwrap() > 0
            && json["prepared"][0]["log_bytes"].as_u64() > Some(0)
    );
    assert!(succeed(here, &["--rollback", "one"]).starts_with("one is rolled back\n"));

    let again = run(here, &["--rollback", "one"]);
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(
        again.status.code() == Some(2) && said.contains("no transaction is prepared under \"one\""),
        "{said}"
    );
    // As it would be listed, and for programs with the code of the database.
    for (id, shown) in [("hex:00FF", "hex:00ff"), ("hex:6f6e65", "one"), ("a\nb", "hex:610a62")] {
        let unknown = run(here, &["--commit", id, "--json"]);
        let said = String::from_utf8(unknown.stderr).unwrap();
        assert_eq!(unknown.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("no transaction is prepared under \"{shown}\"")), "{said}");
        assert!(
            said.contains("next: `foreshore prepared db` lists") && !said.contains("Database::"),
            "{said}"
        );
        let told: Json = serde_json::from_slice(&unknown.stdout).unwrap();
        assert_eq!(told["error"]["code"], "unknown_global_id", "{told}");
    }
    for id in ["", &"x".repeat(201)] {
        let said = String::from_utf8(run(here, &["--rollback", id]).stderr).unwrap();
        assert!(said.contains("1 to 200 bytes"), "{said}");
    }
    assert_eq!(run(here, &["--commit", "hex:f"]).status.code(), Some(2));
    assert_eq!(run(here, &["--commit", "a", "--rollback", "b"]).status.code(), Some(2));

    // What is not decided is in nobody's view, and lets nobody wait for ever.
    let counted =
        Command::new(env!("CARGO_BIN_EXE_foreshore")).args(["stat", "db"]).current_dir(here).output();
    let counted = counted.unwrap();
    let said = String::from_utf8(counted.stderr).unwrap();
    assert!(counted.status.code() == Some(2) && said.contains("prepared"), "{said}");

    let mut verify = Command::new(env!("CARGO_BIN_EXE_foreshore"));
    let verified = verify.args(["verify", "db", "--json"]).current_dir(here).output().unwrap();
    assert_eq!(code_of(&verified.stdout), "busy");
    let said = String::from_utf8(verified.stderr).unwrap();
    assert!(verified.status.code() == Some(2) && said.contains("foreshore prepared db"), "{said}");

    succeed(here, &["--commit", "hex:ff"]);
    let db = Database::open(&path).unwrap();
    let found = ["alice", "bob", "carol"].map(|key| db.transact(|tx| tx.get(TABLE, key)).unwrap());
    assert_eq!(found, [None, Some(1), Some(1)]);
    assert!(db.verify().unwrap().is_sound());
}

/// The code of a failure, on the last line of the output.
fn code_of(stdout: &[u8]) -> String {
    let printed = std::str::from_utf8(stdout).unwrap();
    let told: Json = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    told["error"]["code"].as_str().unwrap().to_owned()
}

/// Nobody is there to decide, so it would wait for ever.
#[test]
fn nothing_waits_for_a_decision() {
    const NOTES: TableDefinition<&str, &str> = TableDefinition::new("notes");
    let directory = tempfile::tempdir().unwrap();
    let db = Database::open(directory.path().join("db")).unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(NOTES, "alice", "one").unwrap();
    tx.prepare(b"transfer").unwrap();
    db.close().unwrap();
    drop(db);
    std::fs::write(directory.path().join("notes.csv"), "key,note\nbob,two\nalice,two\n").unwrap();
    // Those that read open the database read-only, where nobody would ever decide: they do not wait.
    for (command, code) in [
        ("load db notes.csv --value-column note --json", "lock_timeout"),
        ("stat db --json", "would_block"),
        ("dump db --json", "would_block"),
    ] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_foreshore"));
        let refused =
            program.args(command.split(' ')).current_dir(directory.path()).stdin(Stdio::null()).output();
        let refused = refused.unwrap();
        assert_eq!(code_of(&refused.stdout), code, "{command}");
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{command}: {said}");
        for part in ["table \"notes\" is in use", "prepared transfer", "next: ", "foreshore prepared db"] {
            assert!(said.contains(part), "{command}: {said}");
        }
    }
    succeed(directory.path(), &["--rollback", "transfer"]);
    let mut load = Command::new(env!("CARGO_BIN_EXE_foreshore"));
    let loaded = load.args(["load", "db", "notes.csv"]).current_dir(directory.path()).output().unwrap();
    assert_eq!(loaded.status.code(), Some(0), "{}", String::from_utf8_lossy(&loaded.stderr));
}

#[test]
fn a_drop_says_who_is_in_its_way() {
    let directory = tempfile::tempdir().unwrap();
    let db = Database::open(directory.path().join("db")).unwrap();
    let mut tx = db.begin().unwrap();
    tx.lock_table(TABLE, foreshore::TableLock::Exclusive).unwrap();
    tx.put(TABLE, "alice", 1).unwrap();
    tx.prepare(b"transfer").unwrap();
    db.close().unwrap();
    drop(db);
    let run = |arguments: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_foreshore"));
        program.args(arguments).current_dir(directory.path()).output().unwrap()
    };
    let listed: Json = serde_json::from_str(&succeed(directory.path(), &["--json"])).unwrap();
    assert_eq!(listed["prepared"][0]["tables"], 1, "{listed}");
    for command in [&["drop", "db", "accounts"][..], &["rename", "db", "accounts", "others"]] {
        let refused = run(&[command, &["--wait", "0.1", "--json"]].concat());
        assert_eq!(code_of(&refused.stdout), "lock_timeout");
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        for part in ["in its way", "prepared transfer", "next: ", "foreshore prepared db"] {
            assert!(said.contains(part), "{said}");
        }
    }
    succeed(directory.path(), &["--rollback", "transfer"]);
    assert_eq!(run(&["drop", "db", "accounts"]).status.code(), Some(0));
}
