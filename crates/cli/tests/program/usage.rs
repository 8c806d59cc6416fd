//! Every command of the program, found through its help: what it makes of mistakes, for people and for programs.

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Output, Stdio},
};

use foreshore::Database;
use foreshore_env::disk::{Disk, RealDisk};
use serde_json::Value as Json;

fn foreshore(arguments: &[&str]) -> Output {
    foreshore_in(tempfile::tempdir().unwrap().path(), arguments)
}

fn foreshore_in(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_foreshore"))
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// All commands that do something, as words.
fn commands() -> Vec<Vec<String>> {
    let mut open = vec![Vec::<String>::new()];
    let mut found = Vec::new();
    while let Some(words) = open.pop() {
        let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        arguments.push("--help");
        let output = foreshore(&arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        let help = text(&output.stdout);
        let below: Vec<&str> = help
            .lines()
            .skip_while(|line| *line != "Commands:")
            .skip(1)
            .take_while(|line| !line.is_empty())
            // Their explanations go on in lines that begin further to the right.
            .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
            .filter_map(|line| line.split_whitespace().next())
            .filter(|name| *name != "help")
            .collect();
        if below.is_empty() {
            found.push(words);
        } else {
            open.extend(below.into_iter().map(|name| [words.clone(), vec![name.to_owned()]].concat()));
        }
    }
    found.sort();
    found
}

/// The object on the last line; nothing else on standard output.
#[track_caller]
fn failure(output: &Output) -> Json {
    let printed = text(&output.stdout);
    assert_eq!(printed.lines().count(), 1, "{printed}");
    let object: Json = serde_json::from_str(printed.trim_end()).expect("an object");
    object["error"].clone()
}

#[test]
fn every_command_refuses_mistakes_in_words_and_as_an_object() {
    let commands = commands();
    for name in [
        "bench latch",
        "bench txbench",
        "script",
        "verify",
        "torture",
        "bench checkpoint tpcc",
        "prepared list",
    ] {
        let known =
            commands.iter().any(|words| words.join(" ").starts_with(name.split(" list").next().unwrap()));
        assert!(known, "{name} is not among {commands:?}");
    }
    assert!(commands.len() >= 25, "{commands:?}");
    for words in &commands {
        let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        arguments.push("--no-such-option");
        let output = foreshore(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.starts_with("error: ") && said.contains("--no-such-option"), "{arguments:?}: {said}");
        assert!(said.contains("--help"), "it says where to look: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        // The same for programs.
        arguments.push("--json");
        let output = foreshore(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains("--no-such-option"), "{arguments:?}");
        let error = failure(&output);
        assert_eq!(error["code"], "usage", "{arguments:?}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("--no-such-option") && !message.starts_with("error"), "{message}");
    }
    // Without a command, and with one that there is not.
    for arguments in [&["--json"][..], &["bench", "--json"], &["verfy", "db", "--json"]] {
        let output = foreshore(arguments);
        assert_eq!(
            (output.status.code(), &failure(&output)["code"]),
            (Some(2), &"usage".into()),
            "{arguments:?}"
        );
    }
    // What is no mistake is not made into one.
    for arguments in [&["--help"][..], &["--version"], &["bench", "latch", "--json", "--help"]] {
        let output = foreshore(arguments);
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{arguments:?}");
        assert!(!output.stdout.is_empty());
    }
}

#[test]
fn every_command_takes_json() {
    for mut words in commands() {
        words.push("--help".to_owned());
        let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        assert!(text(&foreshore(&arguments).stdout).contains("--json"), "{arguments:?}");
    }
}

#[test]
fn numbers_that_measure_nothing_are_refused() {
    for (arguments, part) in [
        ("bench latch --threads 2,2", "'2' occurs twice in '--threads <N,…>'"),
        ("bench latch --threads 0", "1 to 1024"),
        ("bench latch --threads 1025", "1 to 1024"),
        ("bench latch --threads 99999999999999999999", "1 to 1024"),
        ("bench latch --seconds 0", "more than 0"),
        ("bench latch --rounds 0", "1..=1000"),
        ("bench latch --mix mixed,mixed", "'mixed' occurs twice"),
        ("bench latch --latch none --mix contended --threads 1024", "with one thread"),
        ("bench latch --latch none --threads 1,2", "with one thread"),
        ("bench locks --threads 1,2,1", "'1' occurs twice"),
        ("bench locks --threads 0", "1..=1024"),
        ("bench locks --seconds 0", "more than 0"),
        ("bench locks --rounds 0", "1..=1000"),
        ("bench locks --locks 0", "lock"),
        ("bench locks --locks 99999999", "lock"),
        ("bench locks --lock-tables staged,staged", "'staged' occurs twice"),
        ("bench locks --lock-tables none", "global_mutex"),
        ("bench locks --policies none", "wait_die"),
        ("bench intent --threads 0", "1..=1024"),
        ("bench intent --threads 65536", "65536"),
        ("bench intent --rounds 0", "1..=1000"),
        ("bench intent --transactions 0", "not in 1.."),
        ("bench intent --kind private,private", "'private' occurs twice"),
        ("bench intent --kind none", "lightweight"),
        ("bench intent --absolute 5,5", "'5' occurs twice"),
        ("bench txbench --threads 2,2", "'2' occurs twice"),
        ("bench txbench --threads 0", "1..=1024"),
        ("bench txbench --seconds 0", "more than 0"),
        ("bench txbench --rounds 0", "1..=1000"),
        ("bench txbench --rows 0", "row"),
        ("bench txbench --updates 2", "updates"),
        ("bench txbench --lock-tables latched,latched", "'latched' occurs twice"),
        ("bench dreadlocks --threads 1,1", "'1' occurs twice"),
        ("bench dreadlocks --wait road,road", "'road' occurs twice"),
        ("bench dreadlocks --seconds 0", "more than 0"),
        ("bench dreadlocks --branches 0", "1..=10000"),
        ("bench nodeadlock --policies wait_die,wait_die", "'wait_die' occurs twice"),
        ("bench nodeadlock --tellers 0", "teller"),
        ("bench tpcb --seconds 0", "more than 0"),
        ("bench tpcb --threads 0", "1..=1024"),
        ("bench log --threads 1,1", "'1' occurs twice"),
        ("bench log --seconds 0", "more than 0"),
        ("bench elr --threads 0", "1..=1024"),
        ("bench elr --seconds 0", "more than 0"),
    ] {
        for json in [false, true] {
            let mut words: Vec<&str> = arguments.split(' ').collect();
            words.extend(json.then_some("--json"));
            let output = foreshore(&words);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
            assert!(said.contains(part), "{arguments}: {part:?} is not in {said}");
            if json {
                let message = failure(&output)["message"].as_str().unwrap().to_owned();
                assert!(message.contains(part), "{arguments}: {part:?} is not in {message}");
            } else {
                assert!(output.stdout.is_empty(), "{arguments}");
            }
        }
    }
}

/// Without a latch there is one thread.
#[test]
fn the_empty_loop_is_measured() {
    let output =
        foreshore(&["bench", "latch", "--latch", "none", "--seconds", "0.002", "--rounds", "1", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Json = serde_json::from_slice(&output.stdout).unwrap();
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), 4);
    assert!(
        results
            .iter()
            .all(|result| result["threads"] == 1 && result["acquisitions_per_s"].as_f64() > Some(0.0))
    );
}

/// What a program has open is not to be had at a shell; that program is named as what can do it, and how.
#[test]
fn what_a_program_has_open_is_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let db = Database::open(directory.path().join("shop")).unwrap();
    std::fs::write(directory.path().join("rows.csv"), "id,name\n1,nails\n").unwrap();
    for (arguments, call) in [
        (&["backup", "shop", "copy"][..], "Database::backup"),
        (&["verify", "shop"], "Database::verify"),
        (&["stat", "shop"], "Database::stats"),
        (&["dump", "shop"], "Database::backup"),
        (&["salvage", "shop", "saved"], "a program that has it open"),
        (&["load", "shop", "rows.csv"], "a program that has it open"),
        (&["prepared", "shop"], "Database::commit_prepared"),
        (&["prepared", "shop", "--commit", "one"], "Database::commit_prepared"),
        (&["compact", "shop"], "Database::compact"),
        (&["drop", "shop", "stock"], "Database::drop_table"),
        (&["rename", "shop", "stock", "goods"], "Database::rename_table"),
        (&["script", "shop"], "a program that has it open"),
    ] {
        let output = foreshore_in(directory.path(), arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        let tried = format!("`foreshore {}`", arguments[0]);
        for part in ["shop is open in another program", &tried, "next: ", call] {
            assert!(said.contains(part), "{arguments:?}: {part:?} is not in {said}");
        }
        assert!(!said.contains("Clone"), "{said}");
        if arguments[0] != "script" {
            let output = foreshore_in(directory.path(), &[arguments, &["--json"]].concat());
            assert_eq!(failure(&output)["code"], "already_open", "{arguments:?}");
        }
    }
    drop(db);
    let output = foreshore_in(directory.path(), &["backup", "shop", "copy"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // Where somebody else makes a copy now, that is not a database that a program has open and could copy.
    std::fs::create_dir(directory.path().join("next")).unwrap();
    let _made = RealDisk.lock(&directory.path().join("next/LOCK")).unwrap().unwrap();
    let output = foreshore_in(directory.path(), &["backup", "shop", "next"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("next is not empty") && said.contains("next: name a directory"), "{said}");
    assert!(!said.contains("another program"), "{said}");
}

/// A file or directory that is not there, or is something else: what is wrong, and what next.
#[test]
fn what_is_not_there_is_told_with_the_next_step() {
    let directory = tempfile::tempdir().unwrap();
    drop(Database::open(directory.path().join("shop")).unwrap());
    std::fs::write(directory.path().join("file"), "").unwrap();
    for (arguments, next) in [
        (&["load", "shop", "absent.csv"][..], "next: check the path"),
        (&["load", "shop", "file/rows.csv"], "next: check the path"),
        (&["load", "shop", "absent"], "next: add --format"),
        (&["verify", "absent"], "; check the path"),
        (&["stat", "absent"], "; check the path"),
        (&["dump", "absent"], "; check the path"),
        (&["compact", "absent"], "; check the path"),
        (&["drop", "absent", "stock"], "; check the path"),
        (&["rename", "absent", "stock", "goods"], "; check the path"),
        (&["prepared", "absent"], "; check the path"),
        (&["prepared", "absent", "--commit", "one"], "; check the path"),
        (&["backup", "absent", "copy"], "; check the path"),
        (&["backup", "shop", "nowhere/copy"], "; check the path"),
        (&["backup", "shop", "file"], "next: name a directory"),
        (&["backup", "shop", "shop"], "next: name a place beside it"),
        (&["backup", "shop", "shop/copy"], "next: name a place beside it"),
        (&["salvage", "absent", "saved"], "; name a database"),
        (&["salvage", "shop", "nowhere/saved"], "; check the path"),
        (&["salvage", "shop", "file"], "next: name a directory"),
        (&["salvage", "shop", "file/saved"], "next: name a directory"),
        (&["salvage", "shop", "shop/saved"], "next: name a place beside it"),
        (&["script", "file"], "; name a database"),
        (&["report", "absent"], "next: foreshore experiment run"),
        (&["bench", "tpcb", "--dir", "file"], "next: name a new directory"),
        (&["torture", "--seconds", "1", "--dir", "file"], "next: name a new directory"),
        (&["experiment", "run", "6.2", "--quick", "--out", "file"], "next: check the path"),
        (&["restore", "shop", "copy"], "foreshore backup BACKUP DIR"),
    ] {
        let output = foreshore_in(directory.path(), arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(next), "{arguments:?}: {next:?} is not in {said}");
    }
    let output = foreshore_in(directory.path(), &["load", "shop", "absent.csv", "--json"]);
    assert!(failure(&output)["message"].as_str().unwrap().ends_with("next: check the path"));
}

/// A place of its own that is none had another code with each command.
#[test]
fn a_place_that_cannot_be_used_is_wrong_usage_for_every_command() {
    let directory = tempfile::tempdir().unwrap();
    drop(Database::open(directory.path().join("shop")).unwrap());
    std::fs::write(directory.path().join("file"), "").unwrap();
    for arguments in [
        &["backup", "shop", "file"][..],
        &["backup", "shop", "shop"],
        &["backup", "shop", "shop/copy"],
        &["salvage", "shop", "file"],
        &["salvage", "shop", "shop"],
        &["salvage", "shop", "shop/saved"],
        &["bench", "tpcb", "--dir", "file"],
        &["bench", "tpcb", "--dir", "shop"],
        &["torture", "--seconds", "1", "--dir", "file"],
        &["torture", "--seconds", "1", "--dir", "shop"],
    ] {
        let output = foreshore_in(directory.path(), &[arguments, &["--json"]].concat());
        assert_eq!(failure(&output)["code"], "usage", "{arguments:?}");
    }
}

#[test]
fn the_completions_of_every_shell_name_every_command() {
    let commands = commands();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = foreshore(&["completions", shell]);
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{shell}");
        let script = text(&output.stdout);
        let named: BTreeSet<&str> =
            script.split(|symbol: char| !symbol.is_ascii_alphanumeric() && symbol != '-').collect();
        for word in commands.iter().flatten() {
            assert!(named.contains(word.as_str()), "{shell}: {word}");
        }
        // Fish has options without their hyphens.
        let has_options = named.contains("--durability") || named.contains("durability");
        assert!(named.contains("completions") && has_options, "{shell}");
    }
}
