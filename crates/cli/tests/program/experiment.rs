//! `foreshore experiment`: what there is, one that is quick, and what cannot be run.
#![cfg(not(foreshore_sim))]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

fn experiment(words: &[&str], directory: &Path) -> Output {
    let program = env!("CARGO_BIN_EXE_foreshore");
    Command::new(program).arg("experiment").args(words).current_dir(directory).output().unwrap()
}

fn told(output: &Output) -> Value {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn the_list_has_every_paper_with_commands_and_claims() {
    let directory = tempfile::tempdir().unwrap();
    let output = experiment(&["list", "--json"], directory.path());
    assert_eq!(output.status.code(), Some(0));
    let list = told(&output);
    let experiments = list["experiments"].as_array().unwrap();
    for experiment in experiments {
        let commands = experiment["commands"].as_array().unwrap();
        assert!(!commands.is_empty() && !experiment["claims"].as_array().unwrap().is_empty(), "{experiment}");
        let begins = |command: &Value| {
            let command = command.as_str().unwrap();
            command.starts_with("cargo sim simulate ") || command.starts_with("foreshore ")
        };
        assert!(commands.iter().all(begins), "{experiment}");
    }
    let text = experiment(&["list", "--full"], directory.path()).stdout;
    let text = String::from_utf8(text).unwrap();
    for experiment in experiments {
        let title = experiment["title"].as_str().unwrap();
        let told = text.split_once(title).and_then(|(_, behind)| behind.lines().nth(1));
        let told = told.unwrap_or_else(|| panic!("{title}: {text}"));
        let commands = experiment["commands"].as_array().unwrap();
        let simulated = commands.iter().filter(|command| command.as_str().unwrap().starts_with("cargo sim "));
        let way = match simulated.count() {
            0 => "this machine, ",
            all if all == commands.len() => "simulated, ",
            _ => "simulated and this machine, ",
        };
        assert!(told.trim_start().starts_with(way), "{title}: {told}");
    }
}

#[test]
fn a_quick_one_is_run_once_stored_and_judged() {
    let directory = tempfile::tempdir().unwrap();
    let run = || {
        let output = experiment(&["run", "4.6", "--quick", "--json", "--out", "results"], directory.path());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        told(&output)
    };
    let first = run();
    let judged = &first["experiments"][0];
    assert_eq!((&judged["id"], &judged["verdict"]), (&"4.6".into(), &"holds".into()), "{first}");
    assert!(judged["claims"].as_array().unwrap().iter().any(|claim| claim["ours"] == "16.0"), "{first}");
    assert!(judged["remark"].as_str().unwrap().contains("futex"), "{first}");
    let answers = || fs::read_dir(directory.path().join("results/answers")).unwrap().collect::<Vec<_>>();
    let path = answers().remove(0).unwrap().path();
    assert_eq!(answers().len(), 1);
    let stored = fs::read(&path).unwrap();
    // It is not run again, unless that is asked for or another program gave the answer, or another machine.
    assert_eq!(run(), first);
    assert_eq!(fs::read(&path).unwrap(), stored);
    let mut answer: Value = serde_json::from_slice(&stored).unwrap();
    assert!(answer["command"].as_str().unwrap().starts_with("foreshore bench latch "));
    assert!(answer["machine"]["processors"].as_u64().unwrap() > 0);
    answer["program"] = "another".into();
    fs::write(&path, answer.to_string()).unwrap();
    assert_eq!(run()["experiments"][0]["verdict"], "holds");
    let again: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_ne!(again["program"], "another");
    let mut elsewhere = again.clone();
    elsewhere["machine"]["processor"] = "another".into();
    fs::write(&path, elsewhere.to_string()).unwrap();
    assert_eq!(run()["experiments"][0]["verdict"], "holds");
    let here: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(here["machine"], again["machine"]);
    // Nor if the answer lacks what is taken from it, or is damaged.
    answer["program"] = again["program"].clone();
    answer["answer"] = serde_json::json!({"results": []});
    for damage in [answer.to_string(), "{\"command\":".to_owned()] {
        fs::write(&path, damage).unwrap();
        assert_eq!(run()["experiments"][0]["verdict"], "holds");
    }
}

#[test]
fn what_cannot_be_run_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let output = experiment(&["run", "9.9"], directory.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("experiment list"));
    // This very program does not simulate, nor does one that ends well whatever it is asked for, or prints without end.
    for other in [env!("CARGO_BIN_EXE_foreshore"), "/bin/true", "/usr/bin/yes"] {
        let output = experiment(&["run", "2.8", "--json", "--simulator", other], directory.path());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let judged = &told(&output)["experiments"][0];
        assert_eq!(judged["verdict"], "not_run");
        let why = judged["why"].as_str().unwrap();
        assert!(why.contains("does not simulate: ") && !why.ends_with("simulate: "), "{judged}");
    }
}

/// A panic told nothing of it.
#[test]
fn threads_that_cannot_be_started_are_an_error() {
    let directory = tempfile::tempdir().unwrap();
    // Beside the main thread: the one that awaits interruptions, the one that runs commands, and two that read.
    for (can_be_started, what) in
        [(1, "a thread that runs commands"), (2, "a thread that reads"), (3, "a thread that reads")]
    {
        let shell = format!(
            "ulimit -v {} && exec \"$0\" experiment run 4.6 --json",
            can_be_started * (1 << 20) + (1 << 19)
        );
        let output = Command::new("sh")
            .args(["-c", &shell, env!("CARGO_BIN_EXE_foreshore")])
            .env("RUST_MIN_STACK", (1 << 30).to_string())
            .current_dir(directory.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let why = told(&output).to_string();
        assert!(why.contains(&format!("cannot start {what}")), "{can_be_started}: {output:?}");
    }
}

/// It was told when the first command had ended, which may take hours.
#[test]
fn where_no_answer_can_be_stored_nothing_is_run() {
    let directory = tempfile::tempdir().unwrap();
    let simulator = directory.path().join("simulator");
    fs::write(&simulator, "#!/bin/sh\n: > ran\n").unwrap();
    fs::set_permissions(&simulator, fs::Permissions::from_mode(0o700)).unwrap();
    // Nobody, not even root, makes a file there.
    std::os::unix::fs::symlink("/proc", directory.path().join("answers")).unwrap();
    let args = ["run", "2.8", "--out", ".", "--simulator", "./simulator"];
    let output = experiment(&args, directory.path());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write ./answers/"), "{output:?}");
    assert!(!directory.path().join("ran").exists());
}

/// As by a build while experiments run for hours: their answers bore the name of the program that was there before.
#[test]
fn what_a_program_answers_that_is_another_by_then_is_no_answer() {
    let directory = tempfile::tempdir().unwrap();
    let simulator = directory.path().join("simulator");
    let script = r#"#!/bin/sh
case "$*" in
*--version) echo "foreshore 0.1.0 (x)" ;;
"simulate --seeds 0 --json") echo '{"seed": 0}' ;;
*) echo : >> "$0"; echo '{"failures": []}' ;;
esac
"#;
    fs::write(&simulator, script).unwrap();
    fs::set_permissions(&simulator, fs::Permissions::from_mode(0o700)).unwrap();
    // One at a time: a script that is being written cannot be started.
    let args = ["run", "3.8", "--json", "--jobs", "1", "--simulator", "./simulator"];
    let output = experiment(&args, directory.path());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let judged = &told(&output)["experiments"][0];
    assert_eq!(judged["verdict"], "not_run", "{judged}");
    assert!(judged["why"].as_str().unwrap().contains("another program by now"), "{judged}");
    assert_eq!(fs::read_dir(directory.path().join("experiments/answers")).unwrap().count(), 0);
}

#[test]
fn the_report_shows_what_is_stored() {
    let directory = tempfile::tempdir().unwrap();
    let report = |words: &[&str]| {
        let program = env!("CARGO_BIN_EXE_foreshore");
        Command::new(program).arg("report").args(words).current_dir(directory.path()).output().unwrap()
    };
    let nothing = report(&[]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("experiment run"));
    let ran = experiment(&["run", "4.6"], directory.path());
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    // Where there is no terminal, progress is told in lines.
    let progress = String::from_utf8(ran.stderr).unwrap();
    assert!(progress.contains("1 of 1 commands: foreshore bench latch"), "{progress}");
    let output = report(&["experiments", "--out", "page.html", "--json"]);
    assert_eq!((output.status.code(), &told(&output)["judged"]), (Some(0), &1.into()), "{output:?}");
    let page = fs::read_to_string(directory.path().join("page.html")).unwrap();
    assert!(page.contains("id=\"e4.6\"") && page.contains("<svg") && page.contains("it was not run yet"));
    // What cannot be used says so, in place of being passed over; a pipe, which nobody writes to, keeps nobody waiting.
    let answers = directory.path().join("experiments/answers");
    let answer = fs::read_dir(&answers).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(&answer).unwrap();
    assert!(Command::new("mkfifo").arg(&answer).status().unwrap().success());
    assert_eq!(told(&report(&["--json"]))["judged"], 0);
    let page = fs::read_to_string(directory.path().join("experiments/report.html")).unwrap();
    assert!(page.contains("it is not a regular file; remove the file and run it again"));
}
