//! `foreshore torture` from outside, for a few seconds; and with a planted fault, which it must find.

use std::process::Command;

use serde_json::Value as Json;

fn torture(workload: &str, more: &[&str], status: i32) -> Json {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_foreshore"))
        .args([
            "torture",
            "--json",
            "--seconds",
            "6",
            "--threads",
            "4",
            "--seed",
            "3",
            "--workload",
            workload,
        ])
        .args(more)
        .arg("--dir")
        .arg(directory.path().join("db"))
        .output()
        .unwrap();
    let (printed, said) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(status), "{printed}{said}");
    serde_json::from_str(printed.lines().last().unwrap()).unwrap()
}

fn assert_passed(report: &Json) {
    assert_eq!((&report["passed"], &report["losses"]), (&true.into(), &0.into()), "{report}");
    assert!(report["kills"].as_u64().unwrap() >= 2, "{report}");
    assert!(report["commits_checked"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn tpcb_survives_kills() {
    assert_passed(&torture("tpcb", &[], 0));
}

#[test]
fn tpcc_survives_kills() {
    assert_passed(&torture("tpcc", &[], 0));
}

#[test]
fn cycle_survives_kills() {
    assert_passed(&torture("cycle", &[], 0));
}

/// Threads of the engine run the transactions, and the control threads' locks go before the disk has the commit.
#[test]
fn partitioned_execution_survives_kills() {
    let report = torture("tpcb", &["--execution", "partitioned"], 0);
    assert_passed(&report);
    assert_eq!(report["execution"], "partitioned");
}

#[test]
fn commits_promised_too_early_are_found_to_be_lost() {
    let report = torture("tpcb", &["--planted-loss"], 1);
    assert_eq!(report["passed"], false);
    assert!(report["losses"].as_u64().unwrap() > 0, "{report}");
    assert!(report["problems"][0].as_str().unwrap().starts_with("LOST"), "{report}");
}

#[test]
fn each_kill_has_its_power_cut() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let [cut, after] = ["kill -0 $FORESHORE_WORKER && echo cut", "echo after"]
        .map(|command| format!("{command} >>'{}'", log.display()));
    let report = torture("tpcb", &["--power-cut", &cut, "--after-kill", &after], 0);
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
