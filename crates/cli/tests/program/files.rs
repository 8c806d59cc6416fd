//! Files that the program makes: their owner's alone, whatever the umask, and never through a link.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn run(umask: &str, arguments: &str, directory: &Path) -> Output {
    Command::new("sh")
        .args(["-c", &format!("umask {umask}; exec \"$0\" {arguments}")])
        .arg(env!("CARGO_BIN_EXE_foreshore"))
        .current_dir(directory)
        .output()
        .unwrap()
}

/// Everything in a directory, links not followed.
fn walk(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                open.push(path.clone());
            }
            found.push(path);
        }
    }
    found
}

const COMMANDS: [&str; 6] = [
    "load made/db ../rows.csv --table rows",
    "backup made/db made/copy",
    "salvage made/db made/saved",
    "salvage made/db made/saved.jsonl --jsonl",
    "experiment run 4.6 --quiet --out made/experiments",
    "report made/experiments --out made/page.html",
];

#[test]
fn what_the_program_makes_is_its_owner_s() {
    for umask in ["000", "077", "0777"] {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("work");
        fs::create_dir_all(directory.join("made")).unwrap();
        fs::write(home.path().join("rows.csv"), "id,name\n1,one\n2,two\n").unwrap();
        for command in COMMANDS {
            let output = run(umask, command, &directory);
            assert!(output.status.success(), "{command}: {output:?}");
        }
        let made = walk(&directory.join("made"));
        for path in &made {
            let mode = fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
            assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "umask {umask}: {}", path.display());
        }
        for name in
            ["db/data", "copy/control", "saved/LOCK", "saved.jsonl", "experiments/answers", "page.html"]
        {
            assert!(made.contains(&directory.join("made").join(name)), "{name}: {made:?}");
        }
    }
}

/// What is to be made at the place of a link is not made where that leads.
#[test]
fn nothing_is_written_through_a_link() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("work");
    fs::create_dir_all(directory.join("made")).unwrap();
    fs::write(home.path().join("rows.csv"), "id,name\n1,one\n2,two\n").unwrap();
    // Only the files; a directory of the user's may be a link.
    for command in [COMMANDS[0], COMMANDS[4]] {
        assert!(run("022", command, &directory).status.success());
    }
    for (place, command) in [("made/saved.jsonl", COMMANDS[3]), ("made/page.html", COMMANDS[5])] {
        for target in ["victim", "absent"] {
            fs::write(directory.join("victim"), "precious").unwrap();
            symlink(directory.join(target), directory.join(place)).unwrap();
            let before = walk(&directory);
            let output = run("022", command, &directory);
            assert_eq!(output.status.code(), Some(2), "{command}: {output:?}");
            assert_eq!(fs::read(directory.join("victim")).unwrap(), b"precious");
            assert_eq!(walk(&directory), before);
            fs::remove_file(directory.join(place)).unwrap();
        }
        assert!(run("022", command, &directory).status.success(), "{command}");
    }
}
