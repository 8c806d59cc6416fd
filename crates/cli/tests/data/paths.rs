//! Paths as file systems have them: not all of them are text, and not all lead somewhere.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    process::{Command, Output},
};

use crate::scene::{Scene, parsed, text};

fn run(scene: &Scene, arguments: &[&OsStr]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_foreshore"))
        .args(arguments)
        .current_dir(scene.path(""))
        .output()
        .unwrap()
}

/// What is done is told in any case.
#[test]
fn paths_that_are_no_text_are_shown_as_far_as_they_are() {
    let scene = Scene::new();
    scene.write("data.csv", "a,b\n1,2\n");
    let name =
        |ending: &str| [OsStr::from_bytes(b"d\xFF"), ending.as_ref()].into_iter().collect::<OsString>();
    let [db, copy, saved, results] = ["", ".copy", ".saved", ".results"].map(name);
    fs::create_dir_all(scene.path("").join(&results).join("answers")).unwrap();
    let word = OsStr::new;
    for (arguments, field, ending) in [
        (vec![word("load"), &db, word("data.csv")], "database", ""),
        (vec![word("stat"), &db], "database", ""),
        (vec![word("verify"), &db], "database", ""),
        (vec![word("prepared"), &db], "database", ""),
        (vec![word("compact"), &db], "database", ""),
        (vec![word("backup"), &db, &copy], "backup", ".copy"),
        (vec![word("salvage"), &db, &saved], "target", ".saved"),
        (vec![word("rename"), &db, word("data"), word("renamed")], "database", ""),
        (vec![word("drop"), &db, word("renamed")], "database", ""),
        (vec![word("report"), &results], "file", ".results/report.html"),
    ] {
        let output = run(&scene, &[arguments.clone(), vec![word("--json")]].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        let told = parsed(text(&output.stdout).trim_end());
        assert_eq!(told[field], format!("d\u{FFFD}{ending}"), "{arguments:?}: {told}");
    }
}

#[test]
fn names_with_control_characters_are_json_too() {
    let scene = Scene::new();
    let header = "{\"table\":\"a\u{7F}\u{9B}31m\",\"key_type\":\"str\",\"value_type\":\"str\"}\n";
    scene.write("dump.jsonl", header);
    assert_eq!(scene.json("load db dump.jsonl --json")["tables"][0], "a\u{7F}\u{9B}31m");
    let printed = scene.succeed("stat db --quick --json");
    assert_eq!(parsed(&printed)["tables"][0]["name"], "a\u{7F}\u{9B}31m");
    assert!(!printed.trim_end().contains(char::is_control), "{printed:?}");
}

#[test]
fn where_no_database_is_the_next_step_is_said_once() {
    let scene = Scene::new();
    scene.write("letter", "dear");
    fs::create_dir(scene.path("desk")).unwrap();
    scene.write("desk/letter", "dear");
    for command in [
        "verify absent",
        "stat absent",
        "dump absent",
        "prepared absent",
        "compact absent",
        "backup absent to",
        "drop absent table",
        "salvage letter to",
    ] {
        let said = scene.fail(command);
        assert!(said.ends_with("; check the path\n"), "{command}: {said}");
    }
    for command in ["verify letter", "verify desk", "salvage desk to", "salvage absent to"] {
        let said = scene.fail(command);
        assert_eq!(said.matches("is not a Foreshore database").count(), 1, "{command}: {said}");
        assert!(said.ends_with("; name a database, or, to make one, a new or empty directory\n"), "{said}");
    }
}

/// Of a link that leads nowhere it was said that it lies in the database.
#[test]
fn no_backup_is_made_through_a_link_that_leads_nowhere() {
    let scene = Scene::new();
    scene.write("data.csv", "a,b\n1,2\n");
    scene.succeed("load db data.csv");
    symlink("nowhere", scene.path("link")).unwrap();
    let said = scene.fail("backup db link");
    assert!(said.contains("link is a symbolic link that leads nowhere"), "{said}");
    assert!(!scene.path("nowhere").exists());
}
