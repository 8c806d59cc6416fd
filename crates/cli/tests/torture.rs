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

#[test]
fn commits_promised_too_early_are_found_to_be_lost() {
    let report = torture("tpcb", &["--planted-loss"], 1);
    assert_eq!(report["passed"], false);
    assert!(report["losses"].as_u64().unwrap() > 0, "{report}");
    assert!(report["problems"][0].as_str().unwrap().starts_with("LOST"), "{report}");
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
