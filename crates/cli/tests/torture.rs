//! `foreshore torture` from outside, for a few seconds; and with a planted fault, which it must find.

use std::{
    io::Write,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use foreshore::Database;
use serde_json::Value as Json;

/// Runs the program for so many seconds, and for more if too little came about, on a slow machine or disk; its report.
fn torture(seconds: u64, more: &[&str], status: i32, is_enough: impl Fn(&Json) -> bool) -> Json {
    let mut last = None;
    for factor in [1, 5, 25] {
        let (code, report, told) = torture_for((seconds * factor) as f64, more);
        let is_right = code == Some(status);
        // What is planted has to be met before it can be found, and what is checked has to be committed.
        let is_too_short =
            (status == 1 && code == Some(0)) || (code == Some(2) && told.contains("nothing was checked"));
        assert!(is_right || (is_too_short && factor < 25), "{told}");
        if is_right && is_enough(&report) {
            return report;
        }
        last = Some(report);
    }
    last.unwrap()
}

/// Status, report and all that it says.
fn torture_for(seconds: f64, more: &[&str]) -> (Option<i32>, Json, String) {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_foreshore"))
        .args(["torture", "--json", "--threads", "4", "--seconds", &seconds.to_string()])
        .args(more)
        .arg("--dir")
        .arg(directory.path().join("db"))
        .output()
        .unwrap();
    let (printed, said) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let told = format!("{printed}{said}");
    let report = printed.lines().last().and_then(|line| serde_json::from_str(line).ok());
    (output.status.code(), report.unwrap_or_else(|| panic!("{told}")), told)
}

/// Kills, and no other faults.
fn kills(workload: &str, more: &[&str], status: i32) -> Json {
    torture(6, &[&["--seed", "3", "--workload", workload], more].concat(), status, |report| {
        report["kills"].as_u64() >= Some(2) && (status == 1 || report["commits_checked"].as_u64() > Some(0))
    })
}

fn assert_passed(report: &Json) {
    assert_eq!((&report["passed"], &report["losses"]), (&true.into(), &0.into()), "{report}");
    assert!(report["kills"].as_u64().unwrap() >= 2, "{report}");
    assert!(report["commits_checked"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn seconds_may_have_a_fraction() {
    let (status, report, told) = torture_for(0.5, &["--life", "0.2"]);
    // So little time may end before there is a commit.
    let checked = status == Some(0) || told.contains("nothing was checked");
    assert!(checked && report["error"]["code"] != "usage", "{told}");
}

#[test]
fn tpcb_survives_kills() {
    assert_passed(&kills("tpcb", &[], 0));
}

#[test]
fn all_workloads_together_survive_kills() {
    let report = kills("mixed", &[], 0);
    assert_passed(&report);
    assert!(report["longest_silence"].as_f64().is_some(), "{report}");
}

#[test]
fn tpcc_survives_kills() {
    assert_passed(&kills("tpcc", &[], 0));
}

#[test]
fn cycle_survives_kills() {
    assert_passed(&kills("cycle", &[], 0));
}

/// Threads of the engine run the transactions, and the control threads' locks go before the disk has the commit.
#[test]
fn partitioned_execution_survives_kills() {
    let report = kills("tpcb", &["--execution", "partitioned"], 0);
    assert_passed(&report);
    assert_eq!(report["execution"], "partitioned");
}

#[test]
fn commits_promised_too_early_are_found_to_be_lost() {
    let report = kills("tpcb", &["--planted-loss"], 1);
    assert_eq!(report["passed"], false);
    assert!(report["losses"].as_u64().unwrap() > 0, "{report}");
    assert!(report["problems"][0].as_str().unwrap().starts_with("LOST"), "{report}");
}

/// The others went on until they were killed, and the campaign passed.
#[test]
fn a_panic_in_a_thread_is_found() {
    let report = kills("tpcb", &["--planted-panic"], 1);
    assert_eq!(report["passed"], false);
    assert!(report["problems"][0].as_str().unwrap().contains("died by itself"), "{report}");
}

/// Interrupts a campaign whose standard error nobody reads, so that it has a second to go on while it tries to say that
/// it was interrupted; what it prints.
fn printed_when_interrupted(more: &[&str], whole_group: bool) -> String {
    let directory = tempfile::tempdir().unwrap();
    let (mut full, _nobody_reads) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.write(&[b'\n'; 4096]).is_ok() {}
    full.set_nonblocking(false).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_foreshore"))
        .args(["torture", "--json", "--threads", "2", "--seconds", "60", "--life", "0.1"])
        .args(more)
        .env("TMPDIR", directory.path())
        .current_dir(directory.path())
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(OwnedFd::from(full))
        .spawn()
        .unwrap();
    while std::fs::read_dir(directory.path()).unwrap().next().is_none() {
        assert!(child.try_wait().unwrap().is_none());
        thread::sleep(Duration::from_millis(10));
    }
    // Loaded, most probably, and in the midst of it: if it is not, nothing is shown, but nothing fails either.
    thread::sleep(Duration::from_secs(2));
    let process = format!("{}{}", if whole_group { "-" } else { "" }, child.id());
    assert!(Command::new("kill").args(["-INT", "--", &process]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, more.len() / 2, "a temporary directory is gone, another one is not");
    String::from_utf8(output.stdout).unwrap()
}

/// The database was gone when it was opened, and the verdict was that it did not open any more.
#[test]
fn an_interruption_is_not_taken_for_damage() {
    assert_eq!(printed_when_interrupted(&[], false), "");
}

/// A terminal interrupts the children, too, and the verdict was that one of them had died by itself.
#[test]
fn an_interruption_of_a_whole_group_is_not_taken_for_a_fault() {
    assert_eq!(printed_when_interrupted(&["--dir", "kept"], true), "");
}

#[test]
fn each_kill_has_its_power_cut() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let [cut, after] = ["kill -0 $FORESHORE_WORKER && echo cut", "echo after"]
        .map(|command| format!("{command} >>'{}'", log.display()));
    let report = kills("tpcb", &["--power-cut", &cut, "--after-kill", &after], 0);
    assert_passed(&report);
    assert_eq!(report["power_cuts"], report["kills"]);
    let cuts = report["power_cuts"].as_u64().unwrap() as usize;
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "cut\nafter\n".repeat(cuts));
}

#[test]
fn a_power_cut_without_all_that_it_needs_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("db");
    let refused = |arguments: &[&str], why: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_foreshore"))
            .args(["torture", "--seconds", "1"])
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    };
    let database = database.to_str().unwrap();
    refused(&["--power-cut", "true", "--dir", database], "--after-kill");
    refused(&["--power-cut", "true", "--after-kill", "true"], "--dir");
    refused(&["--after-kill", "true", "--dir", database], "--power-cut");
    refused(&["--power-cut", "false", "--after-kill", "true", "--dir", database], "`false` failed");
}

#[test]
fn an_occupied_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("letter"), "dear").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_foreshore"))
        .args(["torture", "--seconds", "1", "--dir"])
        .arg(directory.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("is not empty"));
}

/// A disk that is really full is no finding. As one on which the child, and whoever looks after it, meets a limit on
/// the size of files.
#[test]
fn without_room_there_is_no_verdict() {
    let directory = tempfile::tempdir().unwrap();
    // 24 MiB are enough for the beginning, and not for two hundred threads.
    for blocks in ["100", "6000"] {
        let database = directory.path().join(blocks);
        let command = format!(
            "ulimit -f {blocks}; exec '{}' torture --json --seed 1 --seconds 600 --workload tpcb --set log_segment_bytes=256KiB --dir '{}'",
            env!("CARGO_BIN_EXE_foreshore"),
            database.display()
        );
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("the disk is full"), "{said}");
        if blocks == "6000" {
            assert!(said.contains("no room for the campaign itself") && said.contains("--dir"), "{said}");
        }
        let report: Json = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["error"]["message"].is_string(), "{report}");
    }
}

/// A child that dies before its first commit is acknowledged shows nothing, however often.
#[test]
fn with_nothing_checked_there_is_no_verdict() {
    // A commit takes as long as the longest life.
    let (status, report, told) = torture_for(1.0, &["--seed", "2", "--set", "log_latency=1s"]);
    assert_eq!((status, &report["error"]["code"]), (Some(2), &"nothing_checked".into()), "{told}");
    assert!(told.contains("nothing was checked") && told.contains("more --seconds"), "{told}");
}

/// One class of faults, briefly.
fn faults(class: &str, more: &[&str], status: i32, is_enough: impl Fn(&Json) -> bool) -> Json {
    torture(4, &[&["--seed", "5", "--faults", class], more].concat(), status, is_enough)
}

/// How often faults of this name were met.
fn count_of(class: &Json, name: &str) -> u64 {
    let counts = class["met"].as_object().unwrap().iter();
    counts.filter(|(what, _)| what.starts_with(name)).map(|(_, count)| count.as_u64().unwrap()).sum()
}

/// The class passes, has met these faults, and a planted loss is found out.
fn assert_class(class: &str, told: &str, met: &[&str]) {
    let report = faults(class, &told.split(' ').collect::<Vec<_>>(), 0, |report| {
        let only = &report["classes"][0];
        only["commits_checked"].as_u64() > Some(0) && met.iter().all(|met| count_of(only, met) > 0)
    });
    assert_eq!(report["passed"], true, "{report}");
    let only = &report["classes"][0];
    assert_eq!((&only["faults"], &only["losses"]), (&class.into(), &0.into()), "{report}");
    assert!(only["commits_checked"].as_u64().unwrap() > 0, "{report}");
    for met in met {
        assert!(count_of(only, met) > 0, "{met} was not met: {report}");
    }
    let report = faults(class, &["--workload", "tpcb", "--planted-loss"], 1, |_| true);
    let only = &report["classes"][0];
    assert!(report["passed"] == false && only["losses"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn a_full_disk_loses_nothing_and_stops_nothing() {
    // The log asks for space with each segment: on a busy machine seldom, if these are long.
    let told = "--workload tpcb --set log_segment_bytes=256KiB";
    assert_class("disk-full", told, &["no space: data file", "no space: log"]);
}

#[test]
fn failing_reads_and_writes_lose_nothing() {
    assert_class("eio", "--workload cycle", &["read failed", "write failed"]);
}

#[test]
fn short_reads_and_writes_lose_nothing() {
    assert_class("short", "--workload tpcb", &["short read", "write failed"]);
}

#[test]
fn failing_syncs_lose_nothing() {
    assert_class("fsync", "--workload tpcc", &["sync failed"]);
}

#[test]
fn kills_at_writes_lose_nothing() {
    assert_class("kill", "--workload tpcb", &["kill at a write"]);
}

#[test]
fn power_failures_lose_nothing() {
    assert_class("power", "--workload tpcb", &["power failed"]);
}

/// A disk in memory ends with the program: what was found on it is written down, as the last crash left it.
#[test]
fn what_was_found_in_memory_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let mut command = Command::new(env!("CARGO_BIN_EXE_foreshore"));
    command.args([
        "torture",
        "--json",
        "--seed",
        "5",
        "--faults",
        "power",
        "--planted-loss",
        "--seconds",
        "100",
    ]);
    let output = command.arg("--dir").arg(&path).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let report: Json = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert_eq!((output.status.code(), report["kept"].as_str()), (Some(1), path.to_str()), "{report}");
    assert!(Database::builder().create(false).open(&path).unwrap().verify().unwrap().is_sound());
}

#[test]
fn faults_and_options_that_are_none_are_refused() {
    for (arguments, why) in [
        (&["--faults", "flood"][..], "disk-full"),
        (&["--faults", "power", "--set", "pool_bytes"], "option=value"),
        (&["--faults", "power", "--set", "pool=1"], "there is no option"),
        (&["--set", "pool=1"], "there is no option"),
        (&["--set", "pool_bytes=1"], "give 512KiB to "),
        (&["--set", "pool_bytes=4MiB,durability=lazy"], "does not take"),
        (&["--set", "durability=lazy"], "torture cannot judge durability=lazy"),
        (&["--faults", "power", "--set", "durability=lazy"], "leave out --set durability=lazy"),
        (&["--set", "isolation=read_committed"], "leave out --set isolation=read_committed"),
        (&["--set", "read_only=true"], "leave out --set read_only=true"),
        (&["--set", "execution=planned"], "give --execution alone"),
        (&["--faults", "power", "--life", "2"], "'--life <S>'"),
        (&["--threads", "1025"], "1..=1024"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_foreshore"))
            .args(["torture", "--seconds", "1"])
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    }
}
